// plan_test.c: from graphs to shapes; which card a rank uses, by itself or over another GPU.
#include "topo/topo_rig.h"

#include "tools/cards.h"
#include "topo/connect.h"

#define SLOT "link_speed=\"16.0 GT/s PCIe\" link_width=\"16\""
#define GPU(bus, rank, sm)                                                                     \
  "<pci busid=\"0000:" bus ":00.0\" " SLOT "><gpu dev=\"" rank "\" sm=\"" sm "\" rank=\"" rank \
  "\" gdr=\"1\"><nvlink target=\""                                                             \
  "0000:f0:00.0\" count=\"4\" tclass=\"0x068000\"/></gpu></pci>"
#define NIC(bus, dev, speed)                                                                             \
  "<pci busid=\"0000:" bus ":00.0\" " SLOT "><nic><net name=\"n" dev "\" dev=\"" dev "\" speed=\"" speed \
  "\" port=\"1\" "                                                                                       \
  "latency=\"0\" guid=\"" dev "\" maxconn=\"64\" gdr=\"1\"/></nic></pci>"
#define SWITCH(bus, inside) "<pci busid=\"0000:" bus ":00.0\" class=\"0x060400\" " SLOT ">" inside "</pci>"

// Two switches with a GPU and a card each; ranks against the order of the document.
static const char machine[] =
    "<system version=\"1\"><cpu numaid=\"0\" affinity=\"ff\" arch=\"x86_64\" vendor=\"AuthenticAMD\">" SWITCH(
        "10", GPU("11", "1", "80") NIC("12", "0", "100000"))
        SWITCH("20", GPU("21", "0", "90") NIC("22", "1", "100000")) "</cpu></system>";

typedef struct made {
  tt_topo *t;
  tt_paths *p;
  tt_topo_rules r;
} made;

static made make(void)
{
  made m = {.t = rig_build(rig_xml(machine), NULL), .r = tt_topo_rules_default()};
  m.p = rig_paths(m.t, &m.r);
  return m;
}

static void unmake(made *m)
{
  tt_paths_destroy(m->p);
  tt_topo_destroy(m->t);
}

static void test_shape(void **state)
{
  (void)state;
  made m = make();
  int r0 = tt_topo_rank_node(m.t, 0), r1 = tt_topo_rank_node(m.t, 1), net = m.t->first[TT_NODE_NET];
  tt_graphs g = {.graph = {[TT_GRAPH_RING] = {.pattern = TT_PATTERN_RING,
                                              .nchannels = 2,
                                              .crossnic = 2,
                                              .speedintra = 24,
                                              .speedinter = 12,
                                              .typeintra = TT_PATH_NVL,
                                              .typeinter = TT_PATH_PIX,
                                              .ngpus = 2,
                                              .inter = true,
                                              .gpus = (int[]){r1, r0, r0, r1},
                                              .nets = (int[]){net, net + 1, net + 1, net}},
                           [TT_GRAPH_TREE] = {.pattern = TT_PATTERN_TREE,
                                              .nchannels = 1,
                                              .ngpus = 2,
                                              .samechannels = true,
                                              .gpus = (int[]){r0, r1},
                                              .nets = (int[]){-1, -1}}}};
  tt_plan_shape s;
  assert_int_equal(tt_plan_shape_make(m.t, &g, &s), ncclSuccess);
  assert_int_equal(s.ngpus, 2);
  const tt_plan_graph *ring = &s.graph[TT_GRAPH_RING], *tree = &s.graph[TT_GRAPH_TREE];
  assert_memory_equal(ring->gpus, ((int[]){1, 0, 0, 1}), 4 * sizeof(int));
  assert_memory_equal(ring->nets, ((int[]){net, net + 1, net + 1, net}), 4 * sizeof(int));
  assert_true(ring->pattern == TT_PATTERN_RING && ring->cross_nic == 2 && ring->bw_intra == 24 && ring->bw_inter == 12);
  assert_true(ring->type_intra == TT_PATH_NVL && ring->type_inter == TT_PATH_PIX);
  assert_memory_equal(tree->gpus, ((int[]){0, 1}), 2 * sizeof(int));
  assert_null(tree->nets); // channels do not end at cards
  assert_int_equal(tree->same_channels, 1);
  assert_int_equal(s.graph[TT_GRAPH_NVLS].nchannels, 0);
  tt_plan_shape_clear(&s);
  tt_plan_shape_clear(&s);
  tt_alloc_fail_at(1);
  assert_int_equal(tt_plan_shape_make(m.t, &g, &s), ncclSystemError);
  tt_alloc_fail_at(0);
  unmake(&m);
}

static void test_look(void **state)
{
  (void)state;
  made m = make();
  tt_plan_machine a = tt_plan_look(m.t, m.p, &m.r);
  assert_true(a.cc_min == 80 && a.cc_max == 90 && a.cpu_arch == TT_CPU_X86 && a.cpu_vendor == TT_CPU_AMD && a.nvswitch);
  rig_same(a.net_bw, 12.5F);
  tt_plan_machine b = {.cc_min = 70, .cc_max = 86, .cpu_arch = TT_CPU_X86, .cpu_vendor = TT_CPU_INTEL, .net_bw = 20};
  tt_plan_machine c = tt_plan_join(&a, &b);
  assert_true(c.cc_min == 70 && c.cc_max == 90 && c.cpu_arch == TT_CPU_X86 && c.cpu_vendor == TT_CPU_MIXED &&
              !c.nvswitch);
  rig_same(c.net_bw, 12.5F);
  unmake(&m);
}

static tt_net_choice p2p(const made *m, tt_p2p_rules rules, int rank, int peer_dev)
{
  return tt_p2p_net(m->t, m->p, &m->r, rules,
                    (tt_p2p_part){.gpu = tt_topo_rank_node(m->t, rank), .peer_dev = peer_dev});
}

static void assert_choice(tt_net_choice c, int net, int proxy)
{
  assert_int_equal(c.net, net);
  assert_int_equal(c.proxy, proxy);
}

static void test_cards(void **state)
{
  (void)state;
  made m = make();
  int r0 = tt_topo_rank_node(m.t, 0), r1 = tt_topo_rank_node(m.t, 1), n0 = m.t->first[TT_NODE_NET], n1 = n0 + 1;
  tt_p2p_rules any = {.cross_nic = 2, .pxn = 2}, none = {.cross_nic = 2}, rail = {.cross_nic = 0},
               some = {.cross_nic = 2, .pxn = 1};
  assert_choice(p2p(&m, any, 0, 0), n1, r0); // rank 0 is near card 1
  assert_choice(p2p(&m, any, 0, 1), n0, r1); // to GPU 1 over there: over GPU 1 here
  assert_choice(p2p(&m, some, 0, 1), n0, r1);
  assert_choice(p2p(&m, none, 0, 1), n1, r0);
  assert_choice(p2p(&m, rail, 0, 1), n0, r0);
  assert_choice(p2p(&m, any, 0, 7), n1, r0); // nobody here has that number
  m.r.pxn_disable = true;
  tt_paths_destroy(m.p);
  m.p = rig_paths(m.t, &m.r);
  assert_choice(p2p(&m, any, 0, 1), n1, r0);
  unmake(&m);
}

static void test_wanted(void **state)
{
  (void)state;
  made m = make();
  assert_int_equal(tt_p2p_wanted(m.t, m.p, &m.r, true), 6);  // four NVLinks of one generation are three of the other's
  assert_int_equal(tt_p2p_wanted(m.t, m.p, &m.r, false), 1); // a card of 12.5 GB/s
  unmake(&m);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_shape),
      cmocka_unit_test(test_look),
      cmocka_unit_test(test_cards),
      cmocka_unit_test(test_wanted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
