// graph_bound_test.c: bounds of graphs by maximum flows, against all cuts of small machines, one by one; and a few by
// hand.
#include "topo/random_rig.h"

#include "tools/graph_bound.h"
#include "topo/search_priv.h"

enum { MACHINES = 400, MAX_NODES = 15 };

// A cut: nodes as bits, the world behind them.
typedef struct cut_count {
  double out, in; // GB/s from the set, and to it
  bool gpus_in, gpus_out;
} cut_count;

// What links carry over a cut. Ports count between the world and their first NET.
static cut_count look_at_cut(const tt_topo *t, const tt_graph *g, unsigned set)
{
  cut_count c = {0};
  bool world = (set >> t->nnodes & 1) != 0;
  for (int l = 0; l < t->nlinks; l++) {
    bool from = (set >> t->links[l].from & 1) != 0, to = (set >> t->links[l].to & 1) != 0;
    c.out += from && !to ? (double)t->links[l].bw : 0;
    c.in += to && !from ? (double)t->links[l].bw : 0;
  }
  for (int n = 0; n < t->nnodes; n++) {
    bool in = (set >> n & 1) != 0, gpu = t->nodes[n].kind == TT_NODE_GPU;
    c.gpus_in |= gpu && in;
    c.gpus_out |= gpu && !in;
    if (t->nodes[n].kind == TT_NODE_NET && g->inter && in != world) {
      c.out = world ? c.out + (double)t->nodes[n].net.bw : 1e9; // ways out are as wide as the link to the port
      c.in = world ? 1e9 : c.in + (double)t->nodes[n].net.bw;
    }
  }
  return c;
}

// The least of all cuts that such a graph's channels cross.
static double least_cut(const tt_topo *t, const tt_graph *g)
{
  double least = 1e9;
  bool ring = g->pattern == TT_PATTERN_RING;
  for (unsigned set = 1; set < 2u << t->nnodes; set++) {
    cut_count c = look_at_cut(t, g, set);
    bool world = (set >> t->nnodes & 1) != 0;
    if (g->inter && world && c.gpus_out) { // comes from the world; a ring goes back there
      least = TT_MIN(least, ring ? TT_MIN(c.out, c.in) : c.out);
    }
    if (g->inter && world && !c.gpus_in) { // all GPUs are outside
      least = TT_MIN(least, c.in);
    }
    if (!g->inter && !world && c.gpus_in && c.gpus_out) {
      least = TT_MIN(least, ring ? TT_MIN(c.out, c.in) : c.out + c.in);
    }
  }
  return least;
}

static bool has_shared_ports(const tt_topo *t)
{
  for (int n = t->first[TT_NODE_NET] + 1; n < t->first[TT_NODE_NET + 1]; n++) {
    for (int k = t->first[TT_NODE_NET]; k < n; k++) {
      if (t->nodes[k].net.guid == t->nodes[n].net.guid && t->nodes[k].net.port == t->nodes[n].net.port) {
        return true;
      }
    }
  }
  return false;
}

// Of chains inside a machine the bound also knows parts, so it may be less than the least cut.
static void compare_cuts(int seed, const tt_topo *t, int pattern, bool inter)
{
  tt_graph g = {
      .pattern = pattern, .ngpus = tt_topo_count(t, TT_NODE_GPU), .inter = inter, .speedintra = 1, .speedinter = 1};
  double want = least_cut(t, &g), got = 0;
  assert_int_equal(tt_graph_bound(t, NULL, &g, &got), ncclSuccess);
  bool chain = pattern != TT_PATTERN_RING && !inter;
  if (got > want + 0.01 || (got < want - 0.01 && !chain) || got <= 0) {
    fail_msg("seed %d, pattern %d, %s: %g GB/s, the least cut has %g", seed, pattern, inter ? "inter" : "intra", got,
             want);
  }
}

static void as_all_cuts(void **state)
{
  (void)state;
  int compared = 0;
  for (int seed = 0; seed < MACHINES; seed++) {
    char *text = random_document((uint64_t)seed, (random_size){3, 2, 1});
    tt_topo *t = rig_build(rig_xml(text), NULL);
    free(text);
    if (t->nnodes <= MAX_NODES && tt_topo_count(t, TT_NODE_GPU) > 1 && !has_shared_ports(t)) {
      compared++;
      for (int i = 0; i < 4; i++) {
        bool inter = i >= 2 && tt_topo_count(t, TT_NODE_NET) > 0;
        compare_cuts(seed, t, i % 2 == 0 ? TT_PATTERN_RING : TT_PATTERN_BALANCED_TREE, inter);
      }
    }
    tt_topo_destroy(t);
  }
  assert_true(compared > MACHINES / 8);
}

// ---- By hand ----

static double bound_on(const char *name, tt_graph g)
{
  char path[512];
  double bound = 0;
  snprintf(path, sizeof(path), RIG_MACHINES "/known/%s/input.xml", name);
  tt_topo *t = rig_build(rig_read(path), NULL);
  g.ngpus = tt_topo_count(t, TT_NODE_GPU);
  assert_int_equal(tt_graph_bound(t, NULL, &g, &bound), ncclSuccess);
  tt_topo_destroy(t);
  return bound;
}

static void by_hand(void **state)
{
  (void)state;
  // Four A100 with 3 x 80 GB/s of NVLink and 12 of PCI each: what leaves one; three edges of a chain share all.
  rig_same((float)bound_on("seed_a100_sxm4_vm", (tt_graph){.pattern = TT_PATTERN_RING}), 252);
  rig_same((float)bound_on("seed_a100_sxm4_vm", (tt_graph){.pattern = TT_PATTERN_TREE}), 4 * 252.0f / 3);
  // Two cards with 48 GB/s of PCI, whose ports have 50.
  tt_graph g = {.pattern = TT_PATTERN_RING, .inter = true, .speedinter = 48};
  rig_same((float)bound_on("hgx_h100_8gpu_nvswitch_2nic", g), 96);
  // Twelve ports of 1.25 GB/s. A channel of 1.2 counts 1 of them, so they could have 15 x 1.2 but for their links.
  g.speedinter = 1.2f;
  rig_same((float)bound_on("seed_a100_sxm4_vm", g), 15);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(as_all_cuts), cmocka_unit_test(by_hand)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
