// pack_test.c: trees packed by flow: known rates of small machines, the bound against all families of sets, machines of
// tests/topologies, and machines at random. Every packing is followed link by link.
// topo_pack_test [COUNT [FIRST [GPUS]]]: that many machines at random, from that seed on, with so many GPUs at most;
// from 600 on, and with COUNT 0 of the known ones, says how far below the bound rings, trees and packed trees are.
#include "topo/random_rig.h"

#include "tools/graph_bound.h"
#include "tools/graph_check.h"
#include "tools/pack_check.h"
#include "topo/graph.h"

enum { MOST_NODES = 9, MANY = 600, BINS = 11 };

#define LEAST 0.7   // of the bound: what every packing here has
#define NEARLY 0.97 // of rings and trees: packed trees have no less. One hundredth is given for fewer trees
#define CLOSE 1e-5

static int count = 500, first, gpus = 6;

// Machines by how many percent of the bound they have: 0 to 9, …, 90 to 99, 100 (99.5 and more).
typedef struct bins {
  int of[BINS];
} bins;

static bins by_graphs, by_packing;
static int far_before, far_behind;

static void put(bins *b, double part)
{
  b->of[part >= 0.995 ? 10 : (int)(TT_MIN(part, 0.99) * 10)]++;
}

static void print_bins(const char *what)
{
  printf("%s: machines with so much of the bound, by the better of rings and trees, by packed trees\n", what);
  for (int i = BINS - 1; i >= 0; i--) {
    printf("  %s %3d %%: %5d %5d\n", i < 10 ? "from" : "    ", i * 10, by_graphs.of[i], by_packing.of[i]);
  }
  printf("  more than 30 %% below: %d, %d\n", far_before, far_behind);
  by_graphs = by_packing = (bins){0};
  far_before = far_behind = 0;
}

static tt_pack_look expect_packing(const char *name, const tt_topo *t, int most, tt_packing *out)
{
  tt_pack_look look = {0};
  double bound = 0;
  if (tt_pack(t, most, out) != ncclSuccess || tt_packing_check(t, out, &look) != ncclSuccess ||
      tt_pack_bound(t, &bound) != ncclSuccess) {
    fail_msg("%s: %s", name, tt_last_error());
  }
  if (look.total > bound || bound != out->bound || out->ntrees > most) {
    fail_msg("%s: %d trees of %g GB/s, the bound is %g", name, out->ntrees, out->unit, bound);
  }
  return look;
}

static double rate_of(const tt_topo *t)
{
  tt_packing p = {0};
  double total = expect_packing("by hand", t, TT_PACK_TREES, &p).total;
  tt_packing_clear(&p);
  return total;
}

// ---- By hand ----

// GPUs below one CPU, with PCI of so many lanes of 8 GT/s, 0.75 GB/s each, and NVLinks of 20.
typedef struct small_mesh {
  int n, lanes, links[8][8], to_switch;
} small_mesh;

static tt_topo *mesh_build(const small_mesh *m)
{
  static char text[1 << 14];
  random_text t = {.text = text};
  random_print(&t, "<system version=\"1\"><cpu numaid=\"0\" affinity=\"\" arch=\"x86_64\" vendor=\"AuthenticAMD\" "
                   "familyid=\"175\" modelid=\"1\">\n");
  for (int g = 0; g < m->n; g++) {
    random_print(&t,
                 "<pci busid=\"0000:%02x:00.0\" class=\"0x030200\" link_speed=\"8.0 GT/s PCIe\" link_width=\"%d\">"
                 "<gpu dev=\"%d\" sm=\"80\" rank=\"%d\" gdr=\"1\">\n",
                 0x10 + g, m->lanes, g, g);
    for (int k = 0; k < m->n; k++) {
      if (m->links[g][k] > 0) {
        random_print(&t, "<nvlink target=\"0000:%02x:00.0\" count=\"%d\" tclass=\"0x030200\"/>\n", 0x10 + k,
                     m->links[g][k]);
      }
    }
    if (m->to_switch > 0) {
      random_print(&t, "<nvlink target=\"0000:f8:00.0\" count=\"%d\" tclass=\"0x068000\"/>\n", m->to_switch);
    }
    random_print(&t, "</gpu></pci>\n");
  }
  random_print(&t, "</cpu></system>\n");
  return rig_build(rig_xml(text), NULL);
}

static double mesh_bound(const small_mesh *m, double *total)
{
  tt_topo *t = mesh_build(m);
  double bound = 0;
  assert_int_equal(tt_pack_bound(t, &bound), ncclSuccess);
  *total = rate_of(t);
  tt_topo_destroy(t);
  return bound;
}

static small_mesh full_mesh(int n, int links)
{
  small_mesh m = {.n = n, .lanes = 1};
  for (int i = 0; i < n * n; i++) {
    m.links[i / n][i % n] = i / n != i % n ? links : 0;
  }
  return m;
}

static void expect_rate(const char *what, const small_mesh *m, double want)
{
  double total, bound = mesh_bound(m, &total);
  if (bound < want - CLOSE || bound > want + CLOSE || total < want * LEAST) {
    fail_msg("%s: bound %.9g, %.9g expected; %g packed", what, bound, want, total);
  }
}

static void rates_by_hand(void **state)
{
  (void)state;
  expect_rate("two GPUs, a tree either way", &(small_mesh){.n = 2, .lanes = 16}, 2 * 12);
  expect_rate("one switch: n c / (n - 1)", &(small_mesh){.n = 5, .lanes = 16}, 5 * 12 / 4.0);
  expect_rate("an NVSwitch and PCI", &(small_mesh){.n = 4, .lanes = 16, .to_switch = 6}, 4 * (6 * 20 + 12) / 3.0);
  small_mesh m = full_mesh(4, 1);
  expect_rate("a mesh", &m, 4 * (3 * 20 + 0.75) / 3);
  m.links[0][1] = m.links[1][0] = 0; // all GPUs apart still bound it: ten ends of links are left of twelve
  expect_rate("a mesh without a link", &m, (10 * 20 + 4 * 0.75) / 3);
  m.links[0][2] = m.links[2][0] = m.links[0][3] = m.links[3][0] = 0; // what goes to GPU 0 and back is all that counts
  expect_rate("a GPU apart from a mesh", &m, 2 * 0.75);
  m = (small_mesh){.n = 8, .lanes = 1};
  for (int g = 0; g < 8; g++) { // a cube: what leaves all corners
    m.links[g][g ^ 1] = m.links[g][g ^ 2] = m.links[g][g ^ 4] = 2;
  }
  expect_rate("a cube", &m, 8 * (6 * 20 + 0.75) / 7);
  for (int g = 0; g < 8; g++) { // halves that are joined by one link of each corner, but inside by five
    m.links[g][g ^ 1] = m.links[g][g ^ 2] = m.links[g][g ^ 3] = 5;
    m.links[g][g ^ 4] = g == 0 || g == 4;
  }
  expect_rate("two halves", &m, 2 * (20 + 4 * 0.75));
}

// A DGX-1 with V100: 6 NVLinks of 20 GB/s (there are 20 at sm 70) and PCI.
static void dgx1(void **state)
{
  (void)state;
  tt_topo *t = rig_build(rig_read(RIG_MACHINES "/known/dgx1v_8xV100_4nic/input.xml"), NULL);
  tt_packing p = {0};
  tt_pack_look look = expect_packing("DGX-1", t, TT_PACK_TREES, &p);
  assert_true(p.bound > 8 * 132 / 7.0 - CLOSE && p.bound < 8 * 132 / 7.0 + CLOSE && look.total > 0.98 * p.bound);
  tt_packing_clear(&p);
  look = expect_packing("DGX-1, few trees", t, 4, &p);
  assert_true(p.ntrees <= 4 && look.total > 0);
  tt_packing_clear(&p);
  tt_topo_destroy(t);
}

// ---- The bound against all families of sets ----

// A link between GPUs of two generations has another bandwidth either way. Packing takes the lesser.
static double slower_side(const tt_topo *t, int link)
{
  return (double)TT_MIN(t->links[link].bw, t->links[t->links[link].back].bw);
}

static bool has_slower_sides(const tt_topo *t)
{
  bool any = false;
  for (int l = 0; l < t->nlinks; l++) {
    any |= t->links[l].bw != t->links[t->links[l].back].bw;
  }
  return any;
}

// GB/s that enters each set of a family, ÷ (sets - 1); `label`: of each node, 0: in none.
static double rate_of_family(const tt_topo *t, const int *label, int most)
{
  double enters = 0;
  int sets = 0;
  for (int s = 1; s <= most; s++) {
    bool any = false, gpu = false;
    for (int n = 0; n < t->nnodes; n++) {
      any |= label[n] == s;
      gpu |= label[n] == s && t->nodes[n].kind == TT_NODE_GPU;
    }
    if (any && !gpu) {
      return 1e9; // says less than without this set
    }
    sets += any;
  }
  for (int l = 0; l < t->nlinks; l++) {
    int to = label[t->links[l].to];
    enters += to > 0 && to != label[t->links[l].from] ? slower_side(t, l) : 0;
  }
  return sets > 1 ? enters / (sets - 1) : 1e9;
}

static double least_family(const tt_topo *t)
{
  int label[MOST_NODES] = {0}, n = tt_topo_count(t, TT_NODE_GPU), at = 0;
  double least = 1e9;
  while (at < t->nnodes) {
    least = TT_MIN(least, rate_of_family(t, label, n));
    for (at = 0; at < t->nnodes && label[at] == n; at++) { // the next number of base n + 1
      label[at] = 0;
    }
    if (at < t->nnodes) {
      label[at]++;
    }
  }
  return least;
}

static void as_all_families(void **state)
{
  (void)state;
  int compared = 0;
  for (uint64_t seed = 0; seed < 400; seed++) {
    char *text = random_document(seed, (random_size){3, 0, 1});
    tt_topo *t = rig_build(rig_xml(text), NULL);
    free(text);
    if (t->nnodes <= MOST_NODES && tt_topo_count(t, TT_NODE_GPU) > 1) {
      double got = 0, want = least_family(t);
      assert_int_equal(tt_pack_bound(t, &got), ncclSuccess);
      if (got > want + CLOSE * want || got < want - CLOSE * want) {
        fail_msg("seed %d: the bound is %.9g GB/s, the least family has %.9g", (int)seed, got, want);
      }
      compared++;
    }
    tt_topo_destroy(t);
  }
  assert_true(compared > 100);
}

// ---- Beside rings and trees ----

// GB/s as pack.h counts them: twice those of an all-reduce.
static double rate_of_graphs(const tt_topo *t, const tt_paths *paths)
{
  tt_topo_rules rules = tt_topo_rules_default();
  tt_graphs graphs = {0};
  tt_search_options options = {.nvls = true};
  if (tt_graphs_search(t, paths, &rules, &options, &graphs) != ncclSuccess) {
    fail_msg("%s", tt_last_error());
  }
  const tt_graph *ring = &graphs.graph[TT_GRAPH_RING], *tree = &graphs.graph[TT_GRAPH_TREE];
  double rate = ring->speedintra > 0.11f ? (double)tt_graph_total(ring) * ring->ngpus / (ring->ngpus - 1) : 0;
  rate = tree->speedintra > 0.11f ? TT_MAX(rate, (double)tt_graph_total(tree)) : rate;
  tt_graphs_clear(&graphs);
  return rate;
}

// No bound of cuts for trees is less.
static double bound_of_cuts(const tt_topo *t)
{
  tt_graph g = {.pattern = TT_PATTERN_TREE, .ngpus = tt_topo_count(t, TT_NODE_GPU), .speedintra = 1};
  double bound = 0;
  assert_int_equal(tt_graph_bound(t, NULL, &g, &bound), ncclSuccess);
  return bound;
}

static bool is_one_group(const tt_topo *t, const tt_paths *paths)
{
  int group[TT_PATHS_MAX_ENDS];
  return tt_topo_count(t, TT_NODE_GPU) > 1 && tt_paths_groups(t, paths, group) == 1;
}

static void look_at_machine(const char *name, const tt_topo *t)
{
  tt_paths *paths = rig_paths(t, NULL);
  tt_packing p = {0};
  if (is_one_group(t, paths)) {
    double total = expect_packing(name, t, TT_PACK_TREES, &p).total, graphs = rate_of_graphs(t, paths);
    double cuts = bound_of_cuts(t);
    bool beaten = !has_slower_sides(t) && (total < graphs * NEARLY || graphs > p.bound * (1 + 1e-3));
    if (total < p.bound * LEAST || beaten || p.bound > cuts * (1 + CLOSE) + 0.01) {
      fail_msg("%s: packed %g GB/s, rings and trees %g, bound %g, of cuts %g", name, total, graphs, p.bound, cuts);
    }
    put(&by_graphs, graphs / p.bound);
    put(&by_packing, total / p.bound);
    far_before += graphs < p.bound * LEAST;
    far_behind += total < p.bound * LEAST;
    if (count == 0 && graphs < p.bound * LEAST) {
      printf("%s: %d GPUs, rings and trees %g of %g (%.0f %%), %d packed trees %g (%.0f %%)\n", name, p.ngpus, graphs,
             p.bound, 100 * graphs / p.bound, p.ntrees, total, 100 * total / p.bound);
    }
  }
  tt_packing_clear(&p);
  tt_paths_destroy(paths);
}

static void look_at_file(const char *path)
{
  tt_topo *t = rig_build(rig_read(path), NULL);
  look_at_machine(path, t);
  tt_topo_destroy(t);
}

static void known_machines(void **state)
{
  (void)state;
  assert_true(rig_each_machine(look_at_file) > 100);
  print_bins("machines of tests/topologies");
}

static void machines_at_random(void **state)
{
  (void)state;
  for (int i = 0; i < count; i++) {
    char name[32], *text = random_document((uint64_t)first + (uint64_t)i, (random_size){gpus, 1, 2});
    tt_topo *t = rig_build(rig_xml(text), NULL);
    free(text);
    snprintf(name, sizeof(name), "seed %d", first + i);
    look_at_machine(name, t);
    tt_topo_destroy(t);
  }
  if (count >= MANY) {
    print_bins("machines at random");
  }
}

// Several hosts of one NVLink domain: 4 GPUs each on one NVSwitch, 72 together.
static void many_gpus(void **state)
{
  (void)state;
  enum { HOSTS = 18 };
  const char *path = RIG_MACHINES "/known/mnnvl2_gb200_4gpu_nvswitch_4nic/input.xml";
  tt_xml *xml = rig_read(path);
  assert_int_equal(tt_topo_set_host(xml, 1), ncclSuccess);
  for (int h = 1; h < HOSTS; h++) {
    tt_xml *other = rig_read(path);
    for (tt_xml_node *n = other->root; n != NULL; n = tt_xml_walk(other->root, n)) {
      int rank;
      if (tt_xml_get(n, "rank") != NULL) {
        assert_int_equal(tt_xml_int(n, "rank", (tt_xml_range){0, 3}, &rank), ncclSuccess);
        assert_int_equal(tt_xml_set_int(other, n, "rank", rank + 4 * h), ncclSuccess);
      }
    }
    assert_int_equal(tt_topo_set_host(other, (uint64_t)h + 1), ncclSuccess);
    assert_int_equal(tt_topo_fuse(xml, other), ncclSuccess);
    tt_xml_destroy(other);
  }
  tt_topo *t = rig_build(xml, NULL);
  tt_packing p = {0};
  tt_pack_look look = expect_packing("72 GPUs", t, TT_PACK_TREES, &p);
  assert_int_equal(p.ngpus, 4 * HOSTS);
  assert_true(look.total > LEAST * p.bound);
  tt_packing_clear(&p);
  tt_topo_destroy(t);
}

// ---- What is wrong is noticed ----

static void expect_noticed(const tt_topo *t, const tt_packing *p, const char *what)
{
  tt_pack_look look;
  if (tt_packing_check(t, p, &look) == ncclSuccess) {
    fail_msg("%s is not noticed", what);
  }
  assert_non_null(strstr(tt_last_error(), what));
}

static void wrong_packings(void **state)
{
  (void)state;
  tt_topo *t = rig_build(rig_read(RIG_MACHINES "/known/pcie_4gpu_2socket_sw/input.xml"), NULL);
  tt_packing p = {0};
  expect_packing("wrong", t, TT_PACK_TREES, &p);
  int root = 0, ups = 0;
  while (p.ups[root] >= 0) {
    root++;
  }
  p.unit *= 1.001;
  expect_noticed(t, &p, "trees need");
  p.unit /= 1.001;
  ups = p.ups[root == 0];
  p.ups[root == 0] = root == 0; // below itself
  expect_noticed(t, &p, "no way up");
  p.ups[root == 0] = -1;
  expect_noticed(t, &p, "2 roots");
  p.ups[root == 0] = ups;
  int *link = &p.links[p.first[root == 0]], right = *link;
  *link = t->links[right].back;
  expect_noticed(t, &p, "begins at node");
  *link = right;
  p.first[(root == 0) + 1]--;
  expect_noticed(t, &p, "tree 0");
  p.first[(root == 0) + 1]++;
  assert_int_equal(tt_packing_check(t, &p, NULL), ncclSuccess);
  tt_packing_clear(&p);
  tt_topo_destroy(t);
}

static void no_trees(void **state)
{
  (void)state;
  tt_topo *t = mesh_build(&(small_mesh){.n = 1, .lanes = 16});
  tt_packing p = {0};
  double bound = 1;
  assert_int_equal(tt_pack(t, 8, &p), ncclSuccess);
  assert_true(p.ntrees == 0 && p.ngpus == 1 && p.bound == 0);
  assert_int_equal(tt_pack_bound(t, &bound), ncclSuccess);
  assert_true(bound == 0);
  tt_packing_clear(&p);
  tt_topo_destroy(t);
}

static void out_of_memory(void **state)
{
  (void)state;
  small_mesh m = full_mesh(4, 2);
  tt_topo *t = mesh_build(&m);
  ncclResult_t res = ncclSystemError;
  int failures = 0;
  for (long k = 1; res != ncclSuccess; k++) {
    tt_packing p = {0};
    tt_alloc_fail_at(k);
    res = tt_pack(t, TT_PACK_TREES, &p);
    assert_true(res == ncclSuccess || (res == ncclSystemError && p.ups == NULL));
    tt_packing_clear(&p);
    failures += res != ncclSuccess;
  }
  tt_alloc_fail_at(0);
  assert_true(failures > 5);
  tt_topo_destroy(t);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rates_by_hand),      cmocka_unit_test(dgx1),
      cmocka_unit_test(as_all_families),    cmocka_unit_test(known_machines),
      cmocka_unit_test(machines_at_random), cmocka_unit_test(many_gpus),
      cmocka_unit_test(wrong_packings),     cmocka_unit_test(no_trees),
      cmocka_unit_test(out_of_memory),
  };
  count = argc > 1 ? atoi(argv[1]) : count;
  first = argc > 2 ? atoi(argv[2]) : first;
  gpus = argc > 3 ? atoi(argv[3]) : gpus;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
