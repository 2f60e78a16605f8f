// virtual_test.c: where ports that are made of several stand in the document, and what they are in the model.
#include "topo/source_rig.h"

#define NIC_IDS "0x020700 0x15b3 0x1021 0x15b3 0x0041"
#define SWITCH_IDS "0x060400 0x1000 0xc030 0x1000 0x100b"
#define PORT_IDS "0x060400 0x8086 0x352a 0x0000 0x0000"

#define BEHIND "pci0000:00/0000:00:01.0/0000:01:00.0" // upstream port of a switch
#define A BEHIND "/0000:02:00.0/0000:03:00.0"
#define B BEHIND "/0000:02:01.0/0000:04:00.0"
#define C "pci0000:00/0000:00:02.0/0000:08:00.0" // two functions of one card at the CPU
#define C1 "pci0000:00/0000:00:02.0/0000:08:00.1"
#define D "pci0000:80/0000:80:01.0/0000:83:00.0" // at the other CPU

static rig_machine m;

static void machine(void)
{
  rig_begin(&m);
  rig_intel(&m, "00ff", "ff00");
  rig_pci(&m, "pci0000:00/0000:00:01.0", PORT_IDS, "32.0", 16, 0);
  rig_pci(&m, BEHIND, SWITCH_IDS, "32.0", 16, 0);
  rig_pci(&m, BEHIND "/0000:02:00.0", SWITCH_IDS, "32.0", 16, 0);
  rig_pci(&m, BEHIND "/0000:02:01.0", SWITCH_IDS, "32.0", 16, 0);
  rig_pci(&m, A, NIC_IDS, "32.0", 16, 0);
  rig_pci(&m, B, NIC_IDS, "32.0", 8, 0);
  rig_pci(&m, "pci0000:00/0000:00:02.0", PORT_IDS, "32.0", 16, 0);
  rig_pci(&m, C, NIC_IDS, "32.0", 16, 0);
  rig_pci(&m, C1, NIC_IDS, "32.0", 16, 0);
  rig_pci(&m, "pci0000:80/0000:80:01.0", PORT_IDS, "32.0", 16, 1);
  rig_pci(&m, D, NIC_IDS, "32.0", 16, 1);
}

static tt_xml_node *port(const tt_xml *xml)
{
  for (tt_xml_node *n = xml->root; n != NULL; n = tt_xml_walk(xml->root, n)) {
    if (strcmp(n->tag, "net") == 0) {
      return n;
    }
  }
  return NULL;
}

static const char *get(const tt_xml_node *n, const char *name)
{
  const char *value = n != NULL ? tt_xml_get(n, name) : NULL;
  return value != NULL ? value : "";
}

// A port of two parts stands in a <pci> of that bus id and width, whose parent is `above` (a bus id, or a CPU's
// number).
static void expect(const char *one, const char *two, const char *bus, const char *width, const char *above)
{
  char paths[2][256];
  snprintf(paths[0], sizeof paths[0], "/sys/devices/%s", one);
  snprintf(paths[1], sizeof paths[1], "/sys/devices/%s", two);
  const char *both[] = {paths[0], paths[1]};
  tt_source_rank rank = {.rank = 0, .dev = 0, .numa = 0};
  tt_source_net net = {.name = "mlx5_0+mlx5_1",
                       .pci_path = paths[0],
                       .speed = 800000,
                       .port = 1,
                       .maxconn = 64,
                       .rail = -1,
                       .plane = -1,
                       .nparts = 2,
                       .part_paths = both,
                       .parts = "mlx5_0,mlx5_1"};
  machine();
  tt_tree *tree = rig_capture(&m);
  tt_source in = {.machine = {.tree = tree, .host_hash = 7}, .ranks = &rank, .nranks = 1, .nets = &net, .nnets = 1};
  tt_xml *xml = NULL;
  assert_int_equal(tt_source_detect(&in, &xml), ncclSuccess);
  const tt_xml_node *n = port(xml), *pci = n->parent->parent;
  assert_string_equal(get(n, "parts"), "mlx5_0,mlx5_1");
  assert_string_equal(get(n, "speed"), "800000");
  assert_string_equal(get(pci, "busid"), bus);
  assert_string_equal(get(pci, "class"), bus[0] == '\0' ? "" : "0x020700");
  assert_string_equal(get(pci, "link_width"), width);
  assert_string_equal(strcmp(pci->tag, "pci") != 0           ? get(pci, "numaid")
                      : strcmp(pci->parent->tag, "pci") == 0 ? get(pci->parent, "busid")
                                                             : get(pci->parent, "numaid"),
                      above);
  tt_topo *topo = rig_build(xml, NULL); // takes the document
  assert_int_equal(tt_topo_count(topo, TT_NODE_NET), 1);
  rig_same(topo->nodes[topo->first[TT_NODE_NET]].net.bw, 100);
  tt_topo_destroy(topo);
  tt_tree_close(tree);
}

static void places(void **state)
{
  (void)state;
  expect(A, B, "fffd:03:00.0", "24", "0000:01:00.0"); // the switch's own way up limits them as before
}

static void functions(void **state)
{
  (void)state;
  expect(C, C1, "fffd:08:00.0", "16", "0"); // one link
  expect(C, C, "0000:08:00.0", "16", "0");  // two ports of one function
}

static void far(void **state)
{
  (void)state;
  expect(A, C, "fffd:03:00.0", "32", "0");
  expect(D, A, "fffd:83:00.0", "32", "1"); // another CPU: beside the first
}

// Not on this machine: beside the first CPU, as other ports without a PCI device.
static void nowhere(void **state)
{
  (void)state;
  expect(A, "pci0000:00/0000:00:09.0/0000:99:00.0", "", "", "0");
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(places), cmocka_unit_test(functions), cmocka_unit_test(far),
                                     cmocka_unit_test(nowhere)};
  return cmocka_run_group_tests_name("virtual", tests, NULL, NULL);
}
