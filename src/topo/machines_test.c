// machines_test.c: machines of tests/topologies are detected: their files made from the document (mirror_rig.h), their
// GPUs and NVLinks told by an NVML that has the same document (tests/fakenvml). What is found is the document again,
// the same model, and the channels that NCCL is known to find.
#include "topo/graph.h"
#include "topo/mirror_rig.h"
#include "topo/nvml.h"

#define KNOWN RIG_MACHINES "/known/"

static int walked, left_out;

// NVML on the machine of that document.
static tt_nvml *mirror_nvml(const char *file)
{
  char path[1024];
  const char *build = getenv("TUTTI_BUILD");
  tt_nvml *n = NULL;
  setenv("FAKE_NVML", file, 1);
  snprintf(path, sizeof(path), "%s/lib/fakenvml/libnvidia-ml.so.1", build != NULL ? build : "build");
  assert_int_equal(tt_nvml_open(path, &n), ncclSuccess);
  assert_non_null(n);
  return n;
}

// ---- All machines ----

// Each rank detects its own GPU and all ports. `apart`: NVML shows it no other GPU, as in containers.
static tt_xml *join_views(const mirror *m, bool apart)
{
  tt_xml *joined = NULL;
  for (int i = 0; i < m->nranks; i++) {
    char mask[32];
    snprintf(mask, sizeof(mask), "%llx", 1ull << m->ranks[i].dev);
    assert_int_equal(apart ? setenv("FAKE_NVML_GPUS", mask, 1) : 0, 0);
    tt_nvml *nvml = mirror_nvml(m->name);
    tt_xml *view = mirror_detect(m, nvml, i);
    tt_nvml_close(nvml);
    unsetenv("FAKE_NVML_GPUS");
    if (joined == NULL) {
      joined = view;
      continue;
    }
    assert_int_equal(tt_topo_fuse(joined, view), ncclSuccess);
    tt_xml_destroy(view);
  }
  return joined;
}

static void walk(const char *path)
{
  mirror *m = mirror_load(path);
  const char *doubt = mirror_doubt(m);
  if (doubt != NULL) {
    printf("%s: left out: %s\n", path, doubt);
    left_out++;
    mirror_free(m);
    return;
  }
  tt_nvml *nvml = mirror_nvml(path);
  tt_xml *xml = mirror_detect(m, nvml, -1);
  tt_nvml_close(nvml);
  mirror_compare(m, m->xml->root, xml->root);
  tt_topo *told = rig_build(rig_read(path), NULL), *found = rig_build(xml, NULL);
  rig_equal_model(found, told);
  for (int apart = 0; apart < 2; apart++) {
    tt_topo *joined = rig_build(join_views(m, apart != 0), NULL);
    rig_equal_model(joined, found);
    tt_topo_destroy(joined);
  }
  tt_topo_destroy(found);
  tt_topo_destroy(told);
  mirror_free(m);
  walked++;
}

static void test_machines(void **state)
{
  (void)state;
  rig_fn = walk;
  rig_each(RIG_MACHINES "/known", "", rig_folder);
  rig_each(RIG_MACHINES "/more", ".xml", walk);
  printf("%d machines, %d left out\n", walked, left_out);
  assert_int_equal(left_out, 9);
  assert_true(walked > 100);
}

// ---- Channels ----

// Machines of each kind: meshes of NVLinks, NVSwitches, links to the CPU over two hosts, none of them.
static const struct {
  const char *name;
  int hosts;
} kinds[] = {
    {"dgx1p_8xP100_4nic", 1},
    {"dgx1v_8xV100_4nic", 1},
    {"a100_4gpu_fullmesh_4nic", 1},
    {"hgx_a100_8gpu_nvswitch_8nic", 1},
    {"hgx_h100_8gpu_nvswitch_8nic", 1},
    {"hgx_b200_8gpu_nvswitch_8nic_800g", 1},
    {"seed_a100_sxm4_vm", 1},
    {"mnnvl2_gb200_4gpu_nvswitch_4nic", 2},
    {"pcie_8gpu_2socket_2sw_each_gen3_v100_1nic", 1},
    {"rtx3090_4gpu_2pairs_sm86", 1},
};

// The hosts' documents, joined: ranks go on from one to the next.
static tt_topo *detect_hosts(mirror *m, int hosts)
{
  tt_nvml *nvml = mirror_nvml(m->name);
  tt_xml *all = NULL;
  for (int h = 0; h < hosts; h++) {
    m->host = (uint64_t)h + 1;
    tt_xml *xml = mirror_detect(m, nvml, -1);
    for (int i = 0; i < m->nranks; i++) {
      m->ranks[i].rank += m->nranks;
    }
    if (all == NULL) {
      all = xml;
      continue;
    }
    assert_int_equal(tt_topo_fuse(all, xml), ncclSuccess);
    tt_xml_destroy(xml);
  }
  tt_nvml_close(nvml);
  return rig_build(all, NULL);
}

// Bandwidth of a graph that counts: between nodes if there are several.
static float worth(const tt_graph *g)
{
  return (float)g->nchannels * (g->inter ? g->speedinter : g->speedintra);
}

static void expect_channels(const tt_topo *topo, const char *name, int nodes)
{
  tt_topo_rules rules = tt_topo_rules_default();
  tt_search_options options = {.inter = nodes > 1, .cross_nic = 2, .nvls = true};
  tt_graphs our = {0}, known = {0};
  tt_paths *paths = rig_paths(topo, NULL);
  char path[1200];
  snprintf(path, sizeof(path), "%s/topologies/known/%s/%dnodes.graphs.xml", getenv("TUTTI_BUILD"), name, nodes);
  tt_xml *xml = rig_read(path);
  assert_int_equal(tt_graphs_from_xml(topo, xml, nodes > 1, &known), ncclSuccess);
  assert_int_equal(tt_graphs_search(topo, paths, &rules, &options, &our), ncclSuccess);
  for (int k = 0; k < TT_GRAPH_KINDS; k++) {
    const tt_graph *a = &our.graph[k], *b = &known.graph[k];
    if (b->nchannels > 0 && k != TT_GRAPH_COLLNET_CHAIN && k != TT_GRAPH_COLLNET_DIRECT) {
      printf("%s, %d nodes, graph %d: %d channels, %g GB/s; known %d, %g GB/s\n", name, nodes, k, a->nchannels,
             (double)worth(a), b->nchannels, (double)worth(b));
      assert_true(worth(a) > worth(b) * 0.999f);
      assert_true(worth(a) > worth(b) * 1.001f || (a->typeintra <= b->typeintra && a->typeinter <= b->typeinter));
    }
  }
  tt_graphs_clear(&our);
  tt_graphs_clear(&known);
  tt_xml_destroy(xml);
  tt_paths_destroy(paths);
}

static void test_channels(void **state)
{
  (void)state;
  if (getenv("TUTTI_BUILD") == NULL) {
    skip(); // nobody says where the build unpacked the results
  }
  for (size_t i = 0; i < TT_COUNT(kinds); i++) {
    char path[512];
    snprintf(path, sizeof(path), KNOWN "%s/input.xml", kinds[i].name);
    mirror *m = mirror_load(path);
    tt_topo *topo = detect_hosts(m, kinds[i].hosts);
    for (int nodes = 1; nodes <= 2; nodes++) {
      expect_channels(topo, kinds[i].name, nodes);
    }
    tt_topo_destroy(topo);
    mirror_free(m);
  }
}

// ---- Where files do not show all ----

// A partial file, as clouds ship them, on a machine whose /sys shows nothing of it: NVML says what GPUs are, and which
// far ends of links are GPUs.
static void partial_file(const char *path)
{
  char file[] = "/tmp/tutti-partial-XXXXXX";
  mirror *m = mirror_load(path);
  tt_xml *partial = rig_read(path), *xml = NULL;
  tt_tree *tree = NULL;
  tt_xml_node *last = NULL;
  for (tt_xml_node *n = partial->root; n != NULL; n = tt_xml_walk(partial->root, n)) {
    if (tt_xml_is(n, "gpu")) {
      rig_xml_remove(n);
      n = last;
    }
    last = n;
  }
  int fd = mkstemp(file);
  assert_true(fd >= 0);
  close(fd);
  assert_int_equal(tt_xml_write(partial, file), ncclSuccess);
  assert_int_equal(tt_capture_parse("none", "tutti-machine 1\n", 16, &tree), ncclSuccess);
  tt_nvml *nvml = mirror_nvml(path);
  tt_source in = {.machine = {.tree = tree, .gpu = tt_gpu_element, .nvml = nvml, .host_hash = m->host},
                  .file = file,
                  .file_nets = true,
                  .ranks = m->ranks,
                  .nranks = m->nranks};
  assert_int_equal(tt_source_detect(&in, &xml), ncclSuccess);
  mirror_compare(m, m->xml->root, xml->root);
  unlink(file);
  tt_nvml_close(nvml);
  tt_tree_close(tree);
  tt_xml_destroy(xml);
  tt_xml_destroy(partial);
  mirror_free(m);
}

static void test_partial_file(void **state)
{
  (void)state;
  partial_file(KNOWN "dgx1v_8xV100_4nic/input.xml");
  partial_file(KNOWN "hgx_h100_8gpu_nvswitch_8nic/input.xml");
  partial_file(KNOWN "mnnvl2_gb200_4gpu_nvswitch_4nic/input.xml");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_machines),
      cmocka_unit_test(test_channels),
      cmocka_unit_test(test_partial_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
