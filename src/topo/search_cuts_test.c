// search_cuts_test.c: the bounds that narrow places make, against all links counted for every switch and socket;
// machines of many switches in a row.
#include "topo/topo_rig.h"

#include "topo/search_priv.h"

enum { DEEP = 100 };

// ---- The same without any thought ----

static bool lies_below(const tt_topo *topo, int node, int top)
{
  for (int steps = 0; node != top && steps <= topo->nnodes; steps++) {
    const tt_topo_node *n = &topo->nodes[node];
    if (n->kind == TT_NODE_CPU || n->kind == TT_NODE_NVS) {
      return false;
    }
    node = topo->links[n->first_link + n->nlinks - 1].to;
  }
  return node == top;
}

static double links_of(const tt_topo *topo, int gpu)
{
  const tt_topo_node *d = &topo->nodes[topo->nodes[gpu].gpu.device];
  double sum = 0;
  for (int l = d->first_link; l < d->first_link + d->nlinks; l++) {
    sum += topo->links[l].type != TT_PATH_LOC ? (double)topo->links[l].bw : 0;
  }
  return sum;
}

// What a channel that is closed, or open, can have of the narrowest place.
static void plain_bounds(const tt_topo *topo, double bound[2])
{
  bound[0] = bound[1] = (double)TT_BW_LOC;
  for (int top = 0; top < topo->nnodes; top++) {
    double side[2] = {0, 0}, out = 0, in = 0;
    if (topo->nodes[top].kind != TT_NODE_CPU && topo->nodes[top].kind != TT_NODE_PCI) {
      continue;
    }
    for (int g = 0; g < tt_topo_count(topo, TT_NODE_GPU); g++) {
      side[lies_below(topo, g, top)] += links_of(topo, g);
    }
    for (int l = 0; l < topo->nlinks; l++) {
      bool leaves = lies_below(topo, topo->links[l].from, top) && !lies_below(topo, topo->links[l].to, top);
      out += leaves ? (double)topo->links[l].bw : 0;
      in += leaves ? (double)topo->links[topo->links[l].back].bw : 0;
    }
    if (out > 0 && out < side[0] && out < side[1]) {
      bound[0] = TT_MIN(bound[0], out + in);
      bound[1] = TT_MIN(bound[1], TT_MIN(out, in));
    }
  }
}

// Returns the number of narrow places; the machine is freed.
static int check(tt_topo *topo)
{
  double want[2];
  tt_search s = {.topo = topo};
  assert_int_equal(tt_cuts_create(topo, &s.arena, &s.cuts), ncclSuccess);
  plain_bounds(topo, want);
  rig_same(tt_cuts_bound(&s, false), (float)want[0]);
  rig_same(tt_cuts_bound(&s, true), (float)want[1]);
  int count = s.cuts.count;
  tt_arena_clear(&s.arena);
  tt_topo_destroy(topo);
  return count;
}

static int seen;

static void check_file(const char *path)
{
  seen += check(rig_build(rig_read(path), NULL));
}

static void every_machine(void **state)
{
  (void)state;
  assert_true(rig_each_machine(check_file) > 0);
  assert_true(seen > 0);
}

// ---- Many switches in a row ----

typedef struct writer {
  char *text;
  size_t at, room;
} writer;

__attribute__((format(printf, 2, 3))) static void add(writer *w, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(w->text + w->at, w->room - w->at, fmt, ap);
  va_end(ap);
  assert_true(n > 0 && w->at + (size_t)n < w->room);
  w->at += (size_t)n;
}

// Two sockets; in each, two GPUs below a row of switches. From the inside out they have 16 lanes, then 12, then 16
// again, then 8.
static tt_topo *deep_machine(int depth, bool card)
{
  static char text[1 << 16];
  writer w = {text, 0, sizeof(text)};
  add(&w, "<system version=\"1\">\n");
  for (int c = 0; c < 2; c++) {
    add(&w, "<cpu numaid=\"%d\" arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"175\" modelid=\"1\">\n", c);
    for (int i = 0; i < depth; i++) {
      int width = i < depth / 4 ? 8 : i < depth / 2 ? 16 : i < depth * 3 / 4 ? 12 : 16;
      add(&w, "<pci busid=\"%04x:%02x:00.0\" class=\"0x060400\" link_speed=\"8.0 GT/s\" link_width=\"%d\">\n", c, i + 1,
          width);
      if (card && i == depth / 8) {
        add(&w,
            "<pci busid=\"%04x:f0:00.0\" class=\"0x020000\"><nic><net name=\"n%d\" dev=\"%d\" "
            "speed=\"100000\"/></nic></pci>\n",
            c, c, c);
      }
    }
    for (int g = 0; g < 2; g++) {
      add(&w, "<pci busid=\"%04x:e%d:00.0\" class=\"0x030200\" link_speed=\"8.0 GT/s\" link_width=\"16\">", c, g);
      add(&w, "<gpu dev=\"%d\" sm=\"80\" rank=\"%d\"/></pci>\n", 2 * c + g, 2 * c + g);
    }
    for (int i = 0; i < depth; i++) {
      add(&w, "</pci>\n");
    }
    add(&w, "</cpu>\n");
  }
  add(&w, "</system>\n");
  return rig_build(rig_xml(text), NULL);
}

// 16, 12 and 8 lanes are narrower than two GPUs in each row; the CPUs, which 16 GB/s join, are so too. A card halves
// the row of 8 lanes.
static void rows_of_switches(void **state)
{
  (void)state;
  assert_int_equal(check(deep_machine(DEEP, false)), 2 * 3 + 2);
  assert_int_equal(check(deep_machine(DEEP, true)), 2 * 4 + 2);
  assert_int_equal(check(deep_machine(1, false)), 2 * 1 + 2);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_machine), cmocka_unit_test(rows_of_switches)};
  return cmocka_run_group_tests_name("topo/search_cuts", tests, NULL, NULL);
}
