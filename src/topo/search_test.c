// search_test.c: the channels of all known machines, against what NCCL 2.30.7 finds and against the bound;
// permutations; the file.
#include "topo/topo_rig.h"

#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "tools/graph_bound.h"
#include "tools/graph_check.h"
#include "topo/graph.h"

enum { NODES = 3 };
static const int node_counts[NODES] = {1, 2, 4};
static int graphs_seen, graphs_worse, graphs_longer, graphs_better;
static double slowest;
static double times[1000];
static int ntimes;

typedef struct machine {
  tt_topo *topo;
  tt_paths *paths;
  int groups;
} machine;

// The first group of ranks of a machine.
static machine load_xml(tt_xml *xml)
{
  int group[TT_PATHS_MAX_ENDS];
  bool in_group[TT_PATHS_MAX_ENDS] = {false};
  tt_topo *whole = rig_build(xml, NULL);
  tt_paths *paths = rig_paths(whole, NULL);
  machine m = {.groups = tt_paths_groups(whole, paths, group)};
  if (m.groups < 2) {
    m.topo = whole;
    m.paths = paths;
    return m;
  }
  for (int g = 0; g < tt_topo_count(whole, TT_NODE_GPU); g++) {
    in_group[whole->nodes[g].gpu.rank] = group[g] == 0;
  }
  assert_int_equal(tt_topo_group(whole, in_group, TT_PATHS_MAX_ENDS, &m.topo), ncclSuccess);
  m.paths = rig_paths(m.topo, NULL);
  tt_paths_destroy(paths);
  tt_topo_destroy(whole);
  return m;
}

// Known results of in-network reduction are those of a plugin that offers it on every port.
static void add_collnet(tt_xml *xml)
{
  for (tt_xml_node *n = xml->root; n != NULL; n = tt_xml_walk(xml->root, n)) {
    if (strcmp(n->tag, "net") == 0) {
      assert_int_equal(tt_xml_set_int(xml, n, "coll", 1), ncclSuccess);
    }
  }
}

static machine load(const char *folder)
{
  char path[1200];
  snprintf(path, sizeof(path), "%s/input.xml", folder);
  tt_xml *xml = rig_read(path);
  if (strstr(folder, ".collnet") != NULL) {
    add_collnet(xml);
  }
  if (strstr(folder, "/mnnvl2") != NULL) {
    rig_double_hosts(xml, path);
  }
  return load_xml(xml);
}

static void unload(machine *m)
{
  tt_paths_destroy(m->paths);
  tt_topo_destroy(m->topo);
}

static double now_ms(void)
{
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static tt_graphs search(const machine *m, int nodes, bool collnet, double *ms)
{
  tt_topo_rules rules = tt_topo_rules_default();
  tt_search_options options = {.inter = nodes * m->groups > 1, .cross_nic = 2, .collnet = collnet, .nvls = true};
  tt_graphs graphs = {0};
  double begin = now_ms();
  if (tt_graphs_search(m->topo, m->paths, &rules, &options, &graphs) != ncclSuccess) {
    fail_msg("%s", tt_last_error());
  }
  *ms = now_ms() - begin;
  return graphs;
}

// ---- Against known results ----

static int hops_between(const machine *m, int a, int b)
{
  return a < 0 || b < 0 ? 0 : tt_path_get(m->paths, a, b)->count;
}

// Links of all edges, counted anew; 0 for graphs of heads.
static int count_hops(const machine *m, const tt_graph *g)
{
  int hops = 0, n = g->ngpus;
  for (int c = 0; c < g->nchannels && g->pattern < TT_PATTERN_NVLS; c++) {
    const int *gpus = &g->gpus[c * n], *nets = &g->nets[2 * c];
    bool ring = g->pattern == TT_PATTERN_RING;
    for (int i = 0; i < n - 1; i++) {
      hops += hops_between(m, gpus[i], gpus[i + 1]);
    }
    hops += g->inter ? hops_between(m, nets[0], gpus[0]) + hops_between(m, gpus[ring ? n - 1 : 0], nets[1]) : 0;
    hops += g->inter && g->pattern == TT_PATTERN_BALANCED_TREE ? hops_between(m, gpus[1], nets[1]) : 0;
    hops += ring && !g->inter ? hops_between(m, gpus[n - 1], gpus[0]) : 0;
  }
  return hops;
}

static void show(const tt_graph *g, int hops, char *text, size_t size)
{
  snprintf(text, size, "%2d x %5g/%-5g %s/%s c%d s%d p%d h%d", g->nchannels, (double)g->speedintra,
           (double)g->speedinter, tt_path_type_name(g->typeintra), g->inter ? tt_path_type_name(g->typeinter) : "-",
           g->crossnic, g->samechannels, g->pattern, hops);
}

// What is worse than known; "" when nothing is.
static const char *judge(const tt_graph *our, const tt_graph *known, const int hops[2])
{
  float n = (float)our->nchannels, k = (float)known->nchannels;
  float main_our = our->inter ? n * our->speedinter : n * our->speedintra;
  float main_known = our->inter ? k * known->speedinter : k * known->speedintra;
  bool more = main_our > main_known * 1.001f;
  if (main_our < main_known * 0.999f) {
    return "BANDWIDTH";
  }
  if (n * our->speedintra < k * known->speedintra * 0.999f) {
    return more ? "" : "INTRA";
  }
  if (!more && (our->typeintra > known->typeintra || (our->inter && our->typeinter > known->typeinter))) {
    return "TYPES";
  }
  if (!more && our->pattern == TT_PATTERN_RING && known->samechannels && !our->samechannels) {
    return "ORDERS"; // a broadcast along different orders is slower
  }
  return !more && our->nchannels >= known->nchannels && hops[0] * known->nchannels > hops[1] * our->nchannels ? "HOPS"
                                                                                                              : "";
}

// No graph, ours or NCCL's, has more than the links can carry, as cuts show it.
static void check_bound(const machine *m, const tt_graph *g)
{
  double bound = 0;
  if (g->nchannels == 0 || g->speedintra < 0.11f) { // what did not fit
    return;
  }
  assert_int_equal(tt_graph_bound(m->topo, NULL, g, &bound), ncclSuccess);
  if (bound > 0 && (double)tt_graph_total(g) > bound * 1.001) {
    fail_msg("%s: %g GB/s together, more than links carry: %g", tt_pattern_name(g->pattern), (double)tt_graph_total(g),
             bound);
  }
}

// What must hold of ours: permutations, types, bandwidth; and the file reads back as the same graphs, byte for byte.
static void check_graphs(const machine *m, const tt_graphs *graphs, bool inter)
{
  for (int i = 0; i < TT_GRAPH_KINDS; i++) {
    if (tt_graph_check(m->topo, m->paths, &graphs->graph[i]) != ncclSuccess) {
      fail_msg("%s", tt_last_error());
    }
    const tt_graph *g = &graphs->graph[i];
    check_bound(m, g);
    if (g->nchannels > 0 && g->bound > 0 && tt_graph_total(g) > g->bound * 1.001f) {
      fail_msg("%s: %g GB/s together, more than the bound of %g", tt_pattern_name(g->pattern),
               (double)tt_graph_total(g), (double)g->bound);
    }
  }
  tt_xml *xml = NULL, *again = NULL;
  char *text[2];
  size_t size[2];
  tt_graphs back = {0};
  assert_int_equal(tt_graphs_to_xml(m->topo, graphs, &xml), ncclSuccess);
  assert_int_equal(tt_graphs_from_xml(m->topo, xml, inter, &back), ncclSuccess);
  assert_int_equal(tt_graphs_to_xml(m->topo, &back, &again), ncclSuccess);
  assert_int_equal(tt_xml_text(xml, &text[0], &size[0]), ncclSuccess);
  assert_int_equal(tt_xml_text(again, &text[1], &size[1]), ncclSuccess);
  assert_string_equal(text[0], text[1]);
  tt_free(text[0]);
  tt_free(text[1]);
  tt_xml_destroy(xml);
  tt_xml_destroy(again);
  tt_graphs_clear(&back);
}

// A file that NCCL wrote, read and written, has the same bytes.
static void same_bytes(const machine *m, const char *path, const tt_graphs *graphs)
{
  tt_xml *xml = NULL;
  char *text = NULL;
  size_t size = 0;
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  assert_int_equal(tt_graphs_to_xml(m->topo, graphs, &xml), ncclSuccess);
  assert_int_equal(tt_xml_text(xml, &text, &size), ncclSuccess);
  char *known = calloc(1, size + 2);
  size_t got = fread(known, 1, size + 1, file);
  if (got != size || memcmp(text, known, size) != 0) {
    fail_msg("%s: written again it has %zu bytes: %s", path, size, text);
  }
  free(known);
  fclose(file);
  tt_free(text);
  tt_xml_destroy(xml);
}

static void compare(const machine *m, const char *label, const tt_graph *our, const tt_graph *known, double ms)
{
  int hops[2] = {count_hops(m, our), count_hops(m, known)};
  char a[100], b[100];
  const char *worse = judge(our, known, hops);
  bool better = (float)our->nchannels * our->speedinter > (float)known->nchannels * known->speedinter * 1.001f;
  show(our, hops[0], a, sizeof(a));
  show(known, hops[1], b, sizeof(b));
  graphs_seen++;
  graphs_longer += strcmp(worse, "HOPS") == 0;
  graphs_worse += worse[0] != 0 && strcmp(worse, "HOPS") != 0;
  graphs_better += better && worse[0] == 0;
  printf("%-46s id%d %-42s | %-42s bound %6g %8ld steps%s %8.3f ms %s\n", label, our->id, a, b, (double)our->bound,
         our->steps, our->exhausted ? " " : "+", ms,
         worse[0] != 0 ? worse
         : better      ? "better"
                       : "");
}

static void compare_nodes(const machine *m, const char *folder, int nodes)
{
  const char *build = getenv("TUTTI_BUILD"), *name = strrchr(folder, '/') + 1;
  char path[1200], label[300];
  snprintf(path, sizeof(path), "%s/topologies/known/%s/%dnodes.graphs.xml", build != NULL ? build : ".", name, nodes);
  if (access(path, R_OK) != 0) {
    return; // two hosts in one domain have no result for four nodes
  }
  double ms = 0;
  bool collnet = strstr(name, ".collnet") != NULL;
  tt_graphs our = search(m, nodes, collnet, &ms), known = {0};
  tt_xml *xml = rig_read(path);
  if (tt_graphs_from_xml(m->topo, xml, nodes * m->groups > 1, &known) != ncclSuccess) {
    fail_msg("%s", tt_last_error());
  }
  snprintf(label, sizeof(label), "%.40s %d", name, nodes);
  check_graphs(m, &our, nodes * m->groups > 1);
  same_bytes(m, path, &known);
  for (int i = 0; i < TT_GRAPH_KINDS; i++) {
    check_bound(m, &known.graph[i]);
    if (known.graph[i].nchannels + our.graph[i].nchannels > 0) {
      compare(m, label, &our.graph[i], &known.graph[i], ms);
    }
  }
  times[ntimes++ % 1000] = ms;
  slowest = slowest < ms ? ms : slowest;
  tt_xml_destroy(xml);
  tt_graphs_clear(&known);
  tt_graphs_clear(&our);
}

static void compare_machine(const char *folder)
{
  machine m = load(folder);
  for (int i = 0; i < NODES; i++) {
    compare_nodes(&m, folder, node_counts[i]);
  }
  unload(&m);
}

static int by_value(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void known_machines(void **state)
{
  (void)state;
  rig_each(RIG_MACHINES "/known", "", compare_machine);
  assert_true(graphs_seen > 0);
  qsort(times, (size_t)ntimes, sizeof(double), by_value);
  printf("%d graphs, %d better, %d worse, %d longer; %d searches of all graphs: median %.3f ms, slowest %.3f ms\n",
         graphs_seen, graphs_better, graphs_worse, graphs_longer, ntimes, times[ntimes / 2], slowest);
  assert_int_equal(graphs_worse, 0);
  assert_int_equal(graphs_longer, 0);
}

// ---- All other machines ----

static double slowest_other;

static void search_both(const machine *m, const char *name)
{
  for (int nodes = 1; nodes <= 2; nodes++) {
    double ms = 0;
    bool inter = nodes * m->groups > 1;
    if (inter && tt_topo_count(m->topo, TT_NODE_NET) == 0) {
      continue;
    }
    tt_graphs our = search(m, nodes, true, &ms);
    const tt_graph *ring = &our.graph[TT_GRAPH_RING], *tree = &our.graph[TT_GRAPH_TREE];
    char a[100], b[100];
    assert_true(ring->nchannels > 0 && tree->nchannels > 0);
    check_graphs(m, &our, inter);
    show(ring, count_hops(m, ring), a, sizeof(a));
    show(tree, count_hops(m, tree), b, sizeof(b));
    printf("%-46.46s %d %-42s | %-42s bound %6g %8ld steps%s %8.3f ms\n", name, nodes, a, b, (double)ring->bound,
           ring->steps + tree->steps, ring->exhausted && tree->exhausted ? " " : "+", ms);
    slowest_other = slowest_other < ms ? ms : slowest_other;
    tt_graphs_clear(&our);
  }
}

static void search_other(const char *path)
{
  if (strstr(path, "/known/") == NULL) {
    machine m = load_xml(rig_read(path));
    search_both(&m, strrchr(path, '/') + 1);
    unload(&m);
  }
}

static void other_machines(void **state)
{
  (void)state;
  assert_true(rig_each_machine(search_other) > 0);
  printf("slowest %.3f ms\n", slowest_other);
}

// ---- Trees over the cards of two GPUs ----

// Each GPU sends 24 GB/s through the CPU: the trees must have different orders, so that the second GPU of one is the
// first of the other.
static void trees_of_two(void **state)
{
  static const char *const text =
      "<system version='1'><cpu numaid='0' affinity='' arch='arm64'>"
      "<pci busid='0000:10:00.0' class='0x030200' link_speed='16.0 GT/s PCIe' link_width='16'>"
      "<gpu dev='0' sm='86' rank='0' gdr='0'><nvlink target='0000:f8:00.0' count='6' tclass='0x068000'/></gpu></pci>"
      "<pci busid='0000:11:00.0' class='0x030200' link_speed='16.0 GT/s PCIe' link_width='16'>"
      "<gpu dev='1' sm='86' rank='1' gdr='0'><nvlink target='0000:f8:00.0' count='6' tclass='0x068000'/></gpu></pci>"
      "<pci busid='0000:12:00.0' class='0x020700' link_speed='16.0 GT/s PCIe' link_width='16'>"
      "<nic><net name='a' dev='0' speed='200000' guid='0x1' gdr='0'/></nic></pci>"
      "<pci busid='0000:13:00.0' class='0x020700' link_speed='16.0 GT/s PCIe' link_width='16'>"
      "<nic><net name='b' dev='1' speed='200000' guid='0x2' gdr='0'/></nic></pci>"
      "</cpu></system>";
  (void)state;
  double ms = 0;
  machine m = load_xml(rig_xml(text));
  tt_graphs graphs = search(&m, 2, false, &ms);
  const tt_graph *tree = &graphs.graph[TT_GRAPH_TREE];
  check_graphs(&m, &graphs, true);
  assert_int_equal(tree->nchannels, 2);
  rig_same(tree->speedinter, 24);
  rig_same(tree->speedintra, 48);
  assert_int_not_equal(tree->gpus[0], tree->gpus[2]);
  tt_graphs_clear(&graphs);
  unload(&m);
}

// Where not all was seen, the turns that follow look for channels of one order, too: over another first one.
static void turns_of_one_order(void **state)
{
  (void)state;
  machine m = load(RIG_MACHINES "/known/fuzz_22");
  tt_topo_rules rules = tt_topo_rules_default();
  tt_search_options options = {.inter = true, .cross_nic = 1, .nvls = true};
  tt_graphs graphs = {0};
  assert_int_equal(tt_graphs_search(m.topo, m.paths, &rules, &options, &graphs), ncclSuccess);
  check_graphs(&m, &graphs, true);
  const tt_graph *ring = &graphs.graph[TT_GRAPH_RING], *tree = &graphs.graph[TT_GRAPH_TREE];
  assert_true(ring->samechannels && ring->nchannels == 4 && tree->samechannels && tree->nchannels == 4);
  assert_true(ring->nhops <= 91);
  assert_true(tree->nhops <= 106);
  tt_graphs_clear(&graphs);
  unload(&m);
}

// Eighteen hosts of four GPUs in one NVLink domain.
static void large_domain(void **state)
{
  (void)state;
  const char *path = RIG_MACHINES "/known/mnnvl2_gb200_4gpu_nvswitch_4nic/input.xml";
  tt_xml *xml = rig_read(path);
  assert_int_equal(tt_topo_set_host(xml, 1), ncclSuccess);
  for (int host = 1; host < 18; host++) {
    tt_xml *other = rig_read(path);
    for (tt_xml_node *n = other->root; n != NULL; n = tt_xml_walk(other->root, n)) {
      int rank;
      if (tt_xml_get(n, "rank") != NULL) {
        assert_int_equal(tt_xml_int(n, "rank", (tt_xml_range){0, 3}, &rank), ncclSuccess);
        assert_int_equal(tt_xml_set_int(other, n, "rank", rank + 4 * host), ncclSuccess);
      }
    }
    assert_int_equal(tt_topo_set_host(other, (uint64_t)host + 1), ncclSuccess);
    assert_int_equal(tt_topo_fuse(xml, other), ncclSuccess);
    tt_xml_destroy(other);
  }
  machine m = load_xml(xml);
  assert_int_equal(tt_topo_count(m.topo, TT_NODE_GPU), 72);
  search_both(&m, "18 hosts of GB200");
  unload(&m);
}

// ---- One machine in detail ----

#define SEED RIG_MACHINES "/known/seed_a100_sxm4_vm"

// Seed 004: twelve rings and trees of 20 GB/s over NVLink; every order that begins with the first GPU, twice.
static void seed_machine(void **state)
{
  (void)state;
  machine m = load(SEED);
  double ms;
  tt_graphs our = search(&m, 1, false, &ms);
  const tt_graph *ring = &our.graph[TT_GRAPH_RING], *tree = &our.graph[TT_GRAPH_TREE];
  int times_of[256] = {0};
  assert_int_equal(ring->nchannels, 12);
  assert_int_equal(tree->nchannels, 12);
  rig_same(ring->speedintra, 20);
  rig_same(tree->speedintra, 20);
  assert_int_equal(ring->typeintra, TT_PATH_NVL);
  assert_int_equal(tree->typeintra, TT_PATH_NVL);
  for (int c = 0; c < 12; c++) {
    const int *g = &ring->gpus[4 * c];
    assert_int_equal(g[0], 0);
    times_of[g[1] << 4 | g[2] << 2 | g[3]]++;
  }
  for (int i = 0; i < 256; i++) {
    assert_true(times_of[i] == 0 || times_of[i] == 2);
  }
  tt_graphs_clear(&our);
  unload(&m);
}

// Same machine, same graphs.
static void same_again(void **state)
{
  (void)state;
  machine m = load(RIG_MACHINES "/known/hgx_h100_8gpu_nvswitch_8nic");
  tt_xml *xml[2];
  double ms;
  for (int i = 0; i < 2; i++) {
    tt_graphs our = search(&m, 2, false, &ms);
    assert_int_equal(tt_graphs_to_xml(m.topo, &our, &xml[i]), ncclSuccess);
    tt_graphs_clear(&our);
  }
  assert_true(tt_xml_same(xml[0]->root, xml[1]->root));
  tt_xml_destroy(xml[0]);
  tt_xml_destroy(xml[1]);
  unload(&m);
}

// Whichever allocation fails: an error, nothing leaked.
static void no_memory(void **state)
{
  (void)state;
  machine m = load(SEED);
  tt_topo_rules rules = tt_topo_rules_default();
  tt_search_options options = {.nvls = true};
  ncclResult_t res = ncclSystemError;
  int k = 0;
  while (res != ncclSuccess && ++k < 1000) {
    tt_graphs our = {0};
    tt_alloc_fail_at(k);
    res = tt_graphs_search(m.topo, m.paths, &rules, &options, &our);
    tt_alloc_fail_at(0);
    assert_true(res == ncclSuccess || res == ncclSystemError);
    tt_graphs_clear(&our);
  }
  assert_true(k > 10 && k < 1000);
  unload(&m);
}

// ---- Files that are wrong ----

#define GRAPH                                                                                         \
  "<graph id=\"0\" pattern=\"4\" crossnic=\"0\" nchannels=\"1\" speedintra=\"20\" speedinter=\"20\" " \
  "latencyinter=\"0\" typeintra=\"NVL\" typeinter=\"PIX\" samechannels=\"0\">"
#define GPUS(a, b, c, d) "<gpu dev=\"" a "\"/><gpu dev=\"" b "\"/><gpu dev=\"" c "\"/><gpu dev=\"" d "\"/>"

static void bad_file(const machine *m, const char *text, const char *what)
{
  tt_graphs graphs = {0};
  tt_xml *xml = rig_xml(text);
  rig_error(tt_graphs_from_xml(m->topo, xml, false, &graphs), "machine.xml:1", what);
  tt_xml_destroy(xml);
}

static void bad_files(void **state)
{
  (void)state;
  machine m = load(SEED);
  bad_file(&m, "<system version=\"1\"/>", "begins with <graphs");
  bad_file(&m, "<graphs version=\"2\"/>", "version");
  bad_file(&m, "<graphs version=\"1\"><graph id=\"9\"/></graphs>", "id");
  bad_file(&m, "<graphs version=\"1\">" GRAPH "</graph></graphs>", "there are 0");
  bad_file(&m, "<graphs version=\"1\">" GRAPH "<channel>" GPUS("0", "1", "2", "2") "</channel></graph></graphs>",
           "twice");
  bad_file(&m, "<graphs version=\"1\">" GRAPH "<channel>" GPUS("0", "1", "2", "9") "</channel></graph></graphs>",
           "no such GPU");
  bad_file(&m, "<graphs version=\"1\">" GRAPH "<channel><gpu rank=\"77\"/></channel></graph></graphs>", "no such rank");
  bad_file(&m, "<graphs version=\"1\">" GRAPH "<channel><gpu dev=\"0\"/></channel></graph></graphs>", "expected are 4");
  bad_file(&m,
           "<graphs version=\"1\">" GRAPH "<channel>" GPUS("0", "1", "2", "3") "</channel><channel/></graph></graphs>",
           "more channels");
  bad_file(&m, "<graphs version=\"1\"><graph id=\"0\" pattern=\"4\" crossnic=\"0\" nchannels=\"-1\"/></graphs>",
           "nchannels");
  unload(&m);
}

// The seed's own file has no ranks and gives ids in another order.
static void old_file(void **state)
{
  (void)state;
  machine m = load(SEED);
  tt_graphs graphs = {0};
  tt_xml *xml =
      rig_xml("<graphs version=\"1\">" GRAPH "<channel>" GPUS("0", "0x1", "3", "2") "</channel></graph></graphs>");
  assert_int_equal(tt_graphs_from_xml(m.topo, xml, false, &graphs), ncclSuccess);
  const tt_graph *ring = &graphs.graph[TT_GRAPH_RING];
  assert_int_equal(ring->nchannels, 1);
  assert_int_equal(ring->gpus[2], tt_topo_rank_node(m.topo, 3));
  assert_int_equal(graphs.graph[TT_GRAPH_TREE].nchannels, 0);
  assert_int_equal(tt_graph_check(m.topo, m.paths, ring), ncclSuccess);
  tt_graphs_clear(&graphs);
  tt_xml_destroy(xml);
  unload(&m);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(seed_machine),       cmocka_unit_test(same_again),     cmocka_unit_test(no_memory),
      cmocka_unit_test(bad_files),          cmocka_unit_test(old_file),       cmocka_unit_test(large_domain),
      cmocka_unit_test(trees_of_two),       cmocka_unit_test(known_machines), cmocka_unit_test(other_machines),
      cmocka_unit_test(turns_of_one_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
