// system_test.c: from documents to models: each kind of node and link, and what is odd or wrong in a document.
#include "topo/topo_rig.h"

#define SYSTEM(rest) "<system version=\"1\">\n" rest "</system>"
#define INTEL(id, rest) \
  "<cpu numaid=\"" id "\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\">\n" rest "</cpu>\n"
#define PCI(bus, rest) \
  "<pci busid=\"" bus "\" class=\"0x060400\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">\n" rest "</pci>\n"
#define GPU(r, sm, rest) "<gpu dev=\"" r "\" sm=\"" sm "\" rank=\"" r "\" gdr=\"1\">\n" rest "</gpu>\n"
#define LINK(bus, n) "<nvlink target=\"" bus "\" count=\"" n "\" tclass=\"0x030200\"/>\n"
#define NVSWITCH(n) "<nvlink target=\"0000:ff:00.0\" count=\"" n "\" tclass=\"0x068000\"/>\n"
#define NET(d, rest) "<nic>\n<net name=\"n" d "\" dev=\"" d "\" " rest "/>\n</nic>\n"

static tt_topo *build(const char *text, int *notes)
{
  return rig_build(rig_xml(text), notes);
}

// ---- Nodes and links ----

static void test_tree(void **state)
{
  (void)state;
  int notes = 0;
  tt_topo *t = build(
      SYSTEM(INTEL("1", PCI("0000:10:00.0",
                            PCI("0000:11:00.0", GPU("0", "80", "")) PCI(
                                "0000:12:00.0",
                                NET("3", "speed=\"200000\" port=\"2\" latency=\"1.5\" guid=\"0xab\" maxconn=\"7\" "
                                         "gdr=\"1\" coll=\"1\" rail=\"4\""))) PCI("0000:13:00.0", GPU("1", "90", "")))),
      &notes);
  assert_int_equal(notes, 0);
  assert_int_equal(t->nnodes, 6);
  int cpu = rig_node(t, TT_NODE_CPU, 1), sw = rig_node(t, TT_NODE_PCI, 0x10000),
      nic = rig_node(t, TT_NODE_NIC, 0x12000);
  int net = rig_node(t, TT_NODE_NET, 3);
  assert_true(cpu >= 0 && sw >= 0 && nic >= 0 && net >= 0);
  assert_int_equal(t->nodes[net].line, 10);
  assert_int_equal(tt_topo_ends(t), 4);
  rig_same(rig_bw(t, 0, sw, TT_LINK_PCI), 24);
  rig_same(rig_bw(t, sw, cpu, TT_LINK_PCI), 24);
  rig_same(rig_bw(t, 1, cpu, TT_LINK_PCI), 24);
  rig_same(rig_bw(t, nic, net, TT_PATH_NET), 25);
  assert_int_equal(t->links[t->nodes[sw].first_link + 2].to, cpu); // the way up comes last
  const tt_topo_node *n = &t->nodes[net];
  assert_true(n->net.port == 2 && n->net.gdr == 1 && n->net.coll == 1 && n->net.maxconn == 7 && n->net.rail == 4 &&
              n->net.plane == -1);
  assert_true(n->net.guid == 0xab && n->net.card == 0x12000);
  rig_same(n->net.latency, 1.5f);
  assert_int_equal(t->nodes[1].gpu.sm, 90);
  assert_int_equal(t->nodes[cpu].cpu.model, TT_CPU_SAPPHIRE);
  char name[32];
  assert_string_equal(tt_node_name(t, net, name, sizeof(name)), "NET3");
  assert_string_equal(tt_node_name(t, sw, name, sizeof(name)), "PCI/10000");
  tt_topo_destroy(t);
  // A rank in host memory, on a machine without NUMA nodes.
  t = build(SYSTEM(INTEL("-1", PCI("fffe:0:0.3", GPU("3", "0", "")))), NULL);
  assert_true(tt_topo_host_rank(&t->nodes[0]));
  assert_string_equal(tt_node_name(t, 0, name, sizeof(name)), "RANK3");
  assert_string_equal(tt_node_name(t, t->first[TT_NODE_CPU], name, sizeof(name)), "CPU");
  tt_topo_destroy(t);
}

static void test_nvlinks(void **state)
{
  (void)state;
  tt_topo *t = build(
      SYSTEM(INTEL(
          "0",
          PCI("0:1:0.0", GPU("0", "80", LINK("0:2:0.0", "4") NVSWITCH("2") NVSWITCH("2"))) PCI(
              "0:2:0.0",
              GPU("1", "80",
                  LINK("0:1:0.0",
                       "4")))) "<cpu numaid=\"1\" arch=\"ppc64le\">" PCI("0:3:0.0",
                                                                         GPU("2", "70",
                                                                             "<nvlink target=\"0:9:0.0\" count=\"3\" "
                                                                             "tclass=\"0x068001\"/>")) "</cpu>"),
      NULL);
  int nvs = rig_node(t, TT_NODE_NVS, 0), power = rig_node(t, TT_NODE_CPU, 1), intel = rig_node(t, TT_NODE_CPU, 0);
  rig_same(rig_bw(t, 0, 1, TT_PATH_NVL), 80);
  rig_same(rig_bw(t, 1, 0, TT_PATH_NVL), 80);
  rig_same(rig_bw(t, 0, nvs, TT_PATH_NVL), 80); // two switches are one
  rig_same(rig_bw(t, nvs, 0, TT_PATH_NVL), 80);
  rig_same(rig_bw(t, 2, power, TT_PATH_NVL), 60);
  rig_same(rig_bw(t, power, intel, TT_PATH_SYS), 32);
  rig_same(rig_bw(t, intel, power, TT_PATH_SYS), 22);
  tt_topo_destroy(t);
}

static void test_c2c_and_hosts(void **state)
{
  (void)state;
#define HOST(hash, a)                                                                                                \
  "<cpu host_hash=\"" hash                                                                                           \
  "\" numaid=\"0\" arch=\"arm64\">" PCI("0:1:0.0", GPU(a, "100", NVSWITCH("18") "<c2c bw=\"44712\" count=\"10\"/>")) \
      NET("0", "") "</cpu>"
  tt_topo *t = build(SYSTEM(HOST("0xaa", "1") HOST("0xBB", "0")), NULL);
  assert_int_equal(t->nhosts, 2);
  assert_true(t->hosts[0] == 0xbb && t->hosts[1] == 0xaa); // as ranks come
  assert_int_equal(tt_topo_count(t, TT_NODE_NVS), 1);
  assert_int_equal(tt_topo_count(t, TT_NODE_NET), 2);
  int cpu = t->first[TT_NODE_CPU], nic = t->first[TT_NODE_NIC];
  rig_same(rig_bw(t, 0, cpu, TT_PATH_C2C), 447.12f);
  rig_same(rig_bw(t, 0, t->first[TT_NODE_NVS], TT_PATH_NVL), 721.8f);
  assert_null(rig_link(t, cpu, cpu + 1, TT_PATH_SYS));
  rig_same(rig_bw(t, cpu, nic, TT_LINK_PCI), TT_BW_LOC);
  char name[32];
  assert_string_equal(tt_node_name(t, t->first[TT_NODE_NET] + 1, name, sizeof(name)), "NET0.h1");
  tt_topo_destroy(t);
}

// Cards on CPUs, without PCI: each CPU has its own.
static void test_virtual_cards(void **state)
{
  (void)state;
  tt_topo *t = build(SYSTEM(INTEL("-1", NET("0", "speed=\"-1\"") NET("1", "")) INTEL("0", NET("2", ""))), NULL);
  assert_int_equal(tt_topo_count(t, TT_NODE_NIC), 2);
  int nic = rig_node(t, TT_NODE_NIC, -1), other = rig_node(t, TT_NODE_NIC, -2);
  rig_same(rig_bw(t, nic, 0, TT_PATH_NET), 1.25f);
  rig_same(rig_bw(t, nic, 1, TT_PATH_NET), 1.25f);
  rig_same(rig_bw(t, other, 2, TT_PATH_NET), 1.25f);
  tt_topo_destroy(t);
}

static void test_amd(void **state)
{
  (void)state;
#define AMD(bus, r, to)                                                                                             \
  "<pci busid=\"" bus "\" class=\"0x120000\"><gpu dev=\"" r "\" sm=\"304\" gcn=\"gfx942\" arch=\"38911\" rank=\"" r \
  "\" gdr=\"1\"><xgmi target=\"" to "\" count=\"2\" tclass=\"0x120000\"/></gpu></pci>"
  tt_topo *t = build(
      "<system version=\"2\">" INTEL("0", AMD("0:1:0.0", "0", "0:2:0.0") AMD("0:2:0.0", "1", "0:1:0.0")) "</system>",
      NULL);
  rig_same(rig_bw(t, 0, 1, TT_PATH_NVL), 96);
  assert_int_equal(t->nodes[0].gpu.gcn, 0x942);
  assert_int_equal(t->nodes[0].gpu.sm, 0);
  tt_topo_destroy(t);
}

static void test_bandwidths(void **state)
{
  (void)state;
  const struct {
    int sm;
    float bw;
  } nv[] = {{60, 18}, {70, 20}, {80, 20}, {86, 12}, {89, 20}, {90, 20.6f}, {100, 40.1f}, {120, 40.1f}, {30, 20}};
  for (size_t i = 0; i < TT_COUNT(nv); i++) {
    rig_same(tt_bw_nvlink(nv[i].sm), nv[i].bw);
  }
  rig_same(tt_bw_xgmi(0x908), 24);
  rig_same(tt_bw_xgmi(0x90a), 36);
  rig_same(tt_bw_xgmi(0x950), 48);
  const struct {
    const char *speed;
    int width;
    float bw;
    bool known;
  } pci[] = {{"2.5 GT/s PCIe", 16, 3, true},
             {"5 GT/s", 16, 6, true},
             {"8.0 GT/s PCIe", 8, 6, true},
             {"16 GT/s", 16, 24, true},
             {"32.0 GT/s PCIe", 16, 48, true},
             {"64.0 GT/s PCIe", 16, 96, true},
             {"", 0, 12, false},
             {"7 GT/s", 16, 12, false},
             {"16", 16, 12, false},
             {"nan GT/s", 16, 12, false},
             {"5.0 GT/s PCIe", 32, 12, true}};
  for (size_t i = 0; i < TT_COUNT(pci); i++) {
    float bw = 0;
    assert_int_equal(tt_bw_pci(pci[i].speed, pci[i].width, &bw), pci[i].known);
    rig_same(bw, pci[i].bw);
  }
  rig_same(tt_bw_cpus(TT_CPU_X86, TT_CPU_INTEL, TT_CPU_EMERALD), 40);
  rig_same(tt_bw_cpus(TT_CPU_X86, TT_CPU_INTEL, TT_CPU_SKYLAKE), 10);
  rig_same(tt_bw_cpus(TT_CPU_X86, TT_CPU_INTEL, TT_CPU_PLAIN), 6);
  rig_same(tt_bw_cpus(TT_CPU_X86, TT_CPU_AMD, TT_CPU_PLAIN), 16);
  rig_same(tt_bw_cpus(TT_CPU_X86, TT_CPU_ZHAOXIN, TT_CPU_YONGFENG), 9);
  rig_same(tt_bw_cpus(TT_CPU_ARM, 0, 0), 6);
  rig_same(tt_bw_cpus(TT_CPU_UNKNOWN, 0, 0), 6);
}

static void test_bus_ids(void **state)
{
  (void)state;
  int64_t id = 0;
  assert_true(tt_bus_id("0000:0f:1c.3", &id) && id == 0xf1c3);
  assert_true(tt_bus_id("00000001:00:00.0", &id) && id == 0x100000);
  assert_true(tt_bus_id("0000:AF:00.0", &id) && id == 0xaf000);
  assert_true(tt_bus_id("0:1:2.3", &id) && id == 0x1023);
  assert_true(tt_bus_id("fffffff:ffff:ff", &id));
  assert_false(tt_bus_id("", &id));
  assert_false(tt_bus_id("::", &id));
  assert_false(tt_bus_id("0000:0g:00.0", &id));
  assert_false(tt_bus_id("111111111111111", &id));
  assert_false(tt_bus_id("0000:0f:00.0 x", &id));
}

// Two levels of a Broadcom switch become one; three of something else stay.
static void test_flattening(void **state)
{
  (void)state;
#define CHIP(bus, device, sub, rest)                                                                                  \
  "<pci busid=\"" bus "\" class=\"0x060400\" vendor=\"0x1000\" device=\"" device                                      \
  "\" subsystem_vendor=\"0x1000\" subsystem_device=\"" sub "\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">" rest \
  "</pci>"
#define TWO_LEVELS(device, upper, lower)                                                                               \
  SYSTEM(INTEL(                                                                                                        \
      "0", CHIP("0:1:0.0", device, upper,                                                                              \
                CHIP("0:2:0.0", device, lower,                                                                         \
                     PCI("0:3:0.0", GPU("0", "80", "")) PCI("0:4:0.0", PCI("0:8:0.0", NET("0", ""))))                  \
                    CHIP("0:5:0.0", device, lower, PCI("0:6:0.0", GPU("1", "80", "")) "<pcilink target=\"0:2:0.0\"/>") \
                        PCI("0:7:0.0", GPU("2", "80", "")))))
  const char *flat[] = {TWO_LEVELS("0xc010", "0xa096", "0xa032"), TWO_LEVELS("0xc030", "0x0001", "0x1001")};
  for (size_t i = 0; i < TT_COUNT(flat); i++) {
    tt_topo *t = build(flat[i], NULL);
    int top = rig_node(t, TT_NODE_PCI, 0x1000), under = rig_node(t, TT_NODE_PCI, 0x4000);
    assert_int_equal(tt_topo_count(t, TT_NODE_PCI), 2);
    assert_int_equal(t->nodes[top].nlinks, 5);
    for (int g = 0; g < 3; g++) {
      rig_same(rig_bw(t, g, top, TT_LINK_PCI), 24);
      rig_same(rig_bw(t, top, g, TT_LINK_PCI), 24);
    }
    rig_same(rig_bw(t, under, top, TT_LINK_PCI), 24);
    assert_int_equal(t->links[t->nodes[under].first_link + 1].to, top);
    tt_topo_destroy(t);
  }
  tt_topo *t = build(TWO_LEVELS("0xc011", "0xa096", "0xa032"), NULL);
  assert_int_equal(tt_topo_count(t, TT_NODE_PCI), 4);
  int a = rig_node(t, TT_NODE_PCI, 0x2000), b = rig_node(t, TT_NODE_PCI, 0x5000);
  rig_same(rig_bw(t, a, b, TT_PATH_LOC), TT_BW_LOC);
  rig_same(rig_bw(t, b, a, TT_PATH_LOC), TT_BW_LOC); // told by one of them only
  tt_topo_destroy(t);
}

// Levels that are linked twice: by the tree and by a pcilink, upwards and downwards.
static void test_flattening_linked_twice(void **state)
{
  (void)state;
  tt_topo *t = build(SYSTEM(INTEL("0", CHIP("0:1:0.0", "0xc030", "0x0001",
                                            CHIP("0:2:0.0", "0xc030", "0x1001",
                                                 PCI("0:3:0.0", GPU("0", "80", "")) "<pcilink target=\"0:1:0.0\"/>")
                                                PCI("0:4:0.0", GPU("1", "80", ""))))),
                     NULL);
  assert_int_equal(tt_topo_count(t, TT_NODE_PCI), 1);
  rig_same(rig_bw(t, 0, rig_node(t, TT_NODE_PCI, 0x1000), TT_LINK_PCI), 24);
  assert_int_equal(t->nlinks, 6);
  tt_topo_destroy(t);
  t = build(SYSTEM(INTEL(
                "0", CHIP("0:1:0.0", "0xc030", "0x0001",
                          CHIP("0:2:0.0", "0xc030", "0x1001",
                               PCI("0:3:0.0", PCI("0:4:0.0", GPU("0", "80", "")) "<pcilink target=\"0:2:0.0\"/>"))))),
            NULL);
  int top = rig_node(t, TT_NODE_PCI, 0x1000), under = rig_node(t, TT_NODE_PCI, 0x3000);
  assert_int_equal(tt_topo_count(t, TT_NODE_PCI), 2);
  rig_same(rig_bw(t, top, under, TT_LINK_PCI), 24);
  rig_same(rig_bw(t, top, under, TT_PATH_LOC), TT_BW_LOC);
  rig_same(rig_bw(t, under, top, TT_PATH_LOC), TT_BW_LOC);
  tt_topo_destroy(t);
}

// Among links of equal width the one that was widened last comes last.
static void test_order_of_links(void **state)
{
  (void)state;
  tt_topo *t = build(SYSTEM(INTEL("0", PCI("0:1:0.0", GPU("0", "80",
                                                          LINK("0:2:0.0", "1") LINK("0:3:0.0", "2") LINK("0:4:0.0", "2")
                                                              LINK("0:5:0.0", "3") LINK("0:2:0.0", "1")))
                                           PCI("0:2:0.0", GPU("1", "80", "")) PCI("0:3:0.0", GPU("2", "80", ""))
                                               PCI("0:4:0.0", GPU("3", "80", "")) PCI("0:5:0.0", GPU("4", "80", "")))),
                     NULL);
  static const int order[] = {4, 2, 3, 1};
  const tt_topo_link *links = &t->links[t->nodes[0].first_link];
  assert_int_equal(t->nodes[0].nlinks, 5);
  for (int i = 0; i < 4; i++) {
    assert_int_equal(links[i].to, order[i]);
  }
  assert_int_equal(t->nodes[links[4].to].kind, TT_NODE_CPU);
  tt_topo_destroy(t);
}

// ---- Groups, names ----

static void test_groups(void **state)
{
  (void)state;
  tt_topo *t =
      build(SYSTEM(INTEL("0", PCI("0:1:0.0", GPU("0", "80", LINK("0:2:0.0", "1"))) PCI(
                                  "0:2:0.0", GPU("1", "80", LINK("0:1:0.0", "1"))) PCI("0:3:0.0", GPU("2", "80", "")))),
            NULL);
  tt_topo *part = NULL;
  assert_int_equal(tt_topo_group(t, (bool[]){false, true}, 2, &part), ncclSuccess);
  assert_int_equal(tt_topo_count(part, TT_NODE_GPU), 1);
  assert_int_equal(tt_topo_count(part, TT_NODE_DEV), 2);
  assert_int_equal(tt_topo_devices(part), 3);
  assert_int_equal(part->nodes[0].gpu.rank, 1);
  assert_int_equal(tt_topo_rank_node(part, 1), 0);
  assert_int_equal(tt_topo_rank_node(part, 0), -1);
  int dev = part->first[TT_NODE_DEV];
  assert_int_equal(part->nodes[dev].gpu.rank, 0);
  assert_int_equal(part->nodes[dev + 1].gpu.rank, 2);
  rig_same(rig_bw(part, 0, dev, TT_PATH_NVL), 20);
  tt_topo_destroy(part);
  tt_topo_destroy(t);
  assert_int_equal(tt_path_type_of("PXN"), TT_PATH_PXN);
  assert_int_equal(tt_path_type_of("PCI"), -1);
  assert_string_equal(tt_link_type_name(TT_LINK_PCI), "PCI");
  assert_string_equal(tt_path_type_name(99), "?");
  assert_string_equal(tt_node_kind_name(-1), "?");
}

// Nodes come in the order in which the ranks' views show them, wherever they stand in a document.
static void test_order_is_of_ranks(void **state)
{
  (void)state;
  tt_topo *t = build(SYSTEM(INTEL("0", PCI("0:1:0.0", GPU("3", "80", "")) PCI("0:2:0.0", GPU("1", "80", "")))
                                INTEL("1", PCI("0:3:0.0", GPU("2", "80", "")) PCI("0:4:0.0", GPU("0", "80", ""))
                                               PCI("0:5:0.0", NET("0", "")))),
                     NULL);
  for (int i = 0; i < 4; i++) {
    static const int ranks[] = {0, 2, 1, 3};
    assert_int_equal(t->nodes[i].gpu.rank, ranks[i]);
  }
  assert_int_equal(t->nodes[t->first[TT_NODE_CPU]].id, 1);
  tt_topo_destroy(t);
}

// ---- Odd: said, and read all the same ----

static void test_odd_documents(void **state)
{
  (void)state;
  const struct {
    const char *text;
    int notes, nodes;
  } odd[] = {
      {SYSTEM(""), 0, 0},
      {SYSTEM(INTEL("0", PCI("0:1:0.0", ""))), 0, 0},                                 // leads to nothing
      {SYSTEM(INTEL("0", PCI("0:1:0.0", "<gpu dev=\"0\" sm=\"80\"/>"))), 0, 0},       // no rank
      {SYSTEM(INTEL("0", "<nic><net name=\"a\"/></nic>")), 0, 0},                     // no dev
      {SYSTEM(INTEL("0", "<nic><net name=\"a\" dev=\"0\" net=\"0\"/></nic>")), 0, 0}, // not for this
      {SYSTEM("<foo/><foo/><bar/>" INTEL("0", "<foo/>" NET("0", ""))), 2, 3},         // one note for a name
      {SYSTEM("text" INTEL("0", NET("0", ""))), 1, 3},
      {SYSTEM("<cpu numaid=\"0\" arch=\"riscv64\">" NET("0", "") "</cpu>"), 1, 3},
      {SYSTEM("<cpu numaid=\"0\">" NET("0", "") "</cpu>"), 1, 3},
      {SYSTEM(INTEL("0", "<pci busid=\"0:1:0.0\" link_speed=\"fast\">" NET("0", "") "</pci>")), 1, 3},
      {SYSTEM(INTEL("0", PCI("0:1:0.0", GPU("0", "80", LINK("0:1:0.0", "1"))))), 1, 2}, // to itself
      {SYSTEM(INTEL("0", PCI("0:1:0.0", GPU("0", "80", LINK("0:7:0.0", "1"))))), 0, 2}, // to one that takes no part
      {SYSTEM(INTEL("0", PCI("0:1:0.0", GPU("0", "80", LINK("0:2:0.0", "1"))) PCI("0:2:0.0", GPU("1", "80", "")))), 1,
       3},
      {SYSTEM(INTEL("0", PCI("0:1:0.0", PCI("0:1:0.0", PCI("0:1:0.0", GPU("0", "80", "")))))), 1, 4}, // a loop by id
      {SYSTEM(INTEL("0", NET("0", "") NET("0", ""))), 1, 3},
      {"<system>" INTEL("0", NET("0", "")) "</system>", 0, 3},
  };
  for (size_t i = 0; i < TT_COUNT(odd); i++) {
    int notes = 0;
    tt_topo *t = build(odd[i].text, &notes);
    if (notes != odd[i].notes || t->nnodes != odd[i].nodes) {
      fail_msg("%s: %d notes, %d nodes", odd[i].text, notes, t->nnodes);
    }
    tt_paths *p = rig_paths(t, NULL);
    tt_paths_destroy(p);
    tt_topo_destroy(t);
  }
}

// A link without a class leads to a GPU when its target is one.
static void test_links_without_class(void **state)
{
  (void)state;
  tt_topo *t = build(
      SYSTEM(INTEL(
          "0", PCI("0:1:0.0",
                   GPU("0", "80", "<nvlink target=\"0:2:0.0\" count=\"1\"/><nvlink target=\"0:9:0.0\" count=\"3\"/>"))
                   PCI("0:2:0.0", GPU("1", "80", "<nvlink count=\"1\"/>")))),
      NULL);
  rig_same(rig_bw(t, 0, 1, TT_PATH_NVL), 20);
  rig_same(rig_bw(t, 0, rig_node(t, TT_NODE_NVS, 0), TT_PATH_NVL), 60);
  tt_topo_destroy(t);
  // A GPU that takes no part, and one that only its class tells, are GPUs all the same.
  t = build(
      SYSTEM(INTEL("0",
                   PCI("0:1:0.0", GPU("0", "80",
                                      "<nvlink target=\"0:2:0.0\" count=\"1\"/><nvlink target=\"0:3:0.0\" count=\"1\" "
                                      "tclass=\"\"/>"))
                       PCI("0:2:0.0", "<gpu dev=\"1\" sm=\"80\"/>") "<pci busid=\"0:3:0.0\" class=\"0x030200\"/>")),
      NULL);
  assert_int_equal(tt_topo_count(t, TT_NODE_NVS), 0);
  tt_topo_destroy(t);
}

// ---- Wrong: named with file, line and value ----

static void test_wrong_documents(void **state)
{
  (void)state;
#define CPU_OF(attrs) "<system version=\"1\">\n<cpu " attrs ">\n" NET("0", "") "</cpu></system>"
#define PCI_OF(attrs) "<system version=\"1\">\n<cpu numaid=\"0\">\n<pci " attrs ">" NET("0", "") "</pci></cpu></system>"
#define GPU_OF(attrs, rest)                                                                     \
  "<system version=\"1\">\n<cpu numaid=\"0\">\n<pci busid=\"0:1:0.0\">\n<gpu " attrs ">\n" rest \
  "</gpu></pci></cpu></system>"
#define GOOD "dev=\"0\" rank=\"0\" sm=\"80\""
#define NET_OF(attrs) "<system version=\"1\">\n<cpu numaid=\"0\">\n<nic>\n<net " attrs "/></nic></cpu></system>"
  const struct {
    const char *text, *place, *what;
  } wrong[] = {
      {"<graphs version=\"1\"/>", ":1: <graphs>", "begins with <system>"},
      {"<system version=\"3\"/>", ":1: <system>", "version=\"3\": a whole number from 1 to 2"},
      {"<system version=\"one\"/>", ":1: <system>", "version=\"one\""},
      {CPU_OF(""), ":2: <cpu>", "numaid is missing"},
      {CPU_OF("numaid=\"x\""), ":2: <cpu>", "numaid=\"x\""},
      {CPU_OF("numaid=\"-2\""), ":2: <cpu>", "numaid=\"-2\""},
      {CPU_OF("numaid=\"0\" host_hash=\"zz\""), ":2: <cpu>", "host_hash=\"zz\""},
      {CPU_OF("numaid=\"0\" familyid=\"-6\""), ":2: <cpu>", "familyid=\"-6\""},
      {PCI_OF(""), ":3: <pci>", "busid is missing"},
      {PCI_OF("busid=\"0:zz:0.0\""), ":3: <pci>", "busid=\"0:zz:0.0\": a bus id such as"},
      {PCI_OF("busid=\"0:1:0.0\" link_width=\"-4\""), ":3: <pci>", "link_width=\"-4\": a whole number from 0 to 64"},
      {PCI_OF("busid=\"0:1:0.0\" link_width=\"1e9\""), ":3: <pci>", "link_width=\"1e9\""},
      {GPU_OF("rank=\"0\" sm=\"80\"", ""), ":4: <gpu>", "dev is missing"},
      {GPU_OF("rank=\"-1\" dev=\"0\" sm=\"80\"", ""), ":4: <gpu>", "rank=\"-1\""},
      {GPU_OF("rank=\"99999999999\" dev=\"0\" sm=\"80\"", ""), ":4: <gpu>", "rank=\"99999999999\""},
      {GPU_OF("rank=\"\" dev=\"0\" sm=\"80\"", ""), ":4: <gpu>", "rank=\"\""},
      {GPU_OF(GOOD " gcn=\"rdna\"", ""), ":4: <gpu>", "gcn=\"rdna\""},
      {GPU_OF(GOOD, "<nvlink target=\"0:2:0.0\" tclass=\"0x03\"/>"), ":5: <nvlink>", "count is missing"},
      {GPU_OF(GOOD, "<nvlink count=\"0\" target=\"0:2:0.0\" tclass=\"0x03\"/>"), ":5: <nvlink>",
       "count=\"0\": a whole number from 1"},
      {GPU_OF(GOOD, "<nvlink count=\"9999\" target=\"0:2:0.0\" tclass=\"0x03\"/>"), ":5: <nvlink>", "count=\"9999\""},
      {GPU_OF(GOOD, "<nvlink count=\"1\" target=\"GPU2\" tclass=\"0x03\"/>"), ":5: <nvlink>", "target=\"GPU2\""},
      {GPU_OF(GOOD, "<c2c bw=\"-5\" count=\"1\"/>"), ":5: <c2c>", "bw=\"-5\""},
      {GPU_OF(GOOD, "<c2c bw=\"5\"/>"), ":5: <c2c>", "count is missing"},
      {NET_OF("dev=\"-1\""), ":4: <net>", "dev=\"-1\""},
      {NET_OF("dev=\"0\" speed=\"fast\""), ":4: <net>", "speed=\"fast\""},
      {NET_OF("dev=\"0\" speed=\"99999999999\""), ":4: <net>", "speed="},
      {NET_OF("dev=\"0\" latency=\"-1\""), ":4: <net>", "latency=\"-1\""},
      {NET_OF("dev=\"0\" latency=\"nan\""), ":4: <net>", "latency=\"nan\""},
      {NET_OF("dev=\"0\" guid=\"0x11111111111111111\""), ":4: <net>", "guid="},
      {NET_OF("dev=\"0\" maxconn=\"-7\""), ":4: <net>", "maxconn=\"-7\""},
      {SYSTEM(INTEL("0", NET("0", "")) INTEL("0", NET("1", ""))), ":7: <cpu>",
       "numaid=\"0\" is there already at machine.xml:2"},
      {SYSTEM(INTEL("0", PCI("0:1:0.0", GPU("0", "80", "")) PCI("0000:01:00.0", GPU("1", "80", "")))), ":7: <pci>",
       "is there already at machine.xml:4"},
      {SYSTEM(INTEL("0", PCI("0:1:0.0", GPU("0", "80", "")) PCI("0:2:0.0", GPU("0", "80", "")))), ":8: <gpu>",
       "rank=\"0\" is there already at machine.xml:4"},
      {SYSTEM(INTEL("0", PCI("0:1:0.0", NET("0", "")) PCI("0:1:0.0", NET("1", "")))), ":8: <pci>",
       "busid=\"0:1:0.0\" is there already"},
      {SYSTEM(INTEL("0", "<pci busid=\"0:1:0.0\" vendor=\"0x12345\">" PCI("0:2:0.0", NET("0", "")) "</pci>")),
       ":3: <pci>", "vendor=\"0x12345\""},
  };
  for (size_t i = 0; i < TT_COUNT(wrong); i++) {
    tt_xml *xml = rig_xml(wrong[i].text);
    tt_topo *t = (tt_topo *)&wrong;
    int notes = 0;
    rig_error(tt_topo_build(xml, rig_count, &notes, &t), wrong[i].place, wrong[i].what);
    assert_ptr_equal(t, &wrong);
    tt_xml_destroy(xml);
  }
}

// ---- Big, and short of memory ----

static void test_ten_thousand_nodes(void **state)
{
  (void)state;
  enum { N = 10000 };
  char *text = calloc(1, 300 * N),
       *at = stpcpy(text, "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\">\n");
  for (int i = 0; i < N; i++) {
    at += sprintf(at,
                  "<pci busid=\"%04x:00:00.0\" link_width=\"16\"><gpu dev=\"%d\" sm=\"90\" rank=\"%d\">" NVSWITCH(
                      "18") "</gpu></pci>\n",
                  i, i, i);
  }
  strcpy(at, "</cpu></system>");
  tt_topo *t = build(text, NULL);
  assert_int_equal(tt_topo_count(t, TT_NODE_GPU), N);
  assert_int_equal(t->nlinks, 4 * N);
  tt_topo_destroy(t);
  free(text);
}

static void test_too_many_cpus(void **state)
{
  (void)state;
  char *text = calloc(1, 200 * 300), *at = stpcpy(text, "<system version=\"1\">\n");
  for (int i = 0; i < 300; i++) {
    at += sprintf(at, "<cpu numaid=\"%d\" arch=\"arm64\"><nic><net dev=\"%d\" name=\"n\"/></nic></cpu>\n", i, i);
  }
  strcpy(at, "</system>");
  tt_xml *xml = rig_xml(text);
  tt_topo *t = NULL;
  rig_error(tt_topo_build(xml, NULL, NULL, &t), "machine.xml:2: <cpu>", "more than 256 CPUs");
  tt_xml_destroy(xml);
  free(text);
}

static void test_no_memory(void **state)
{
  (void)state;
  tt_xml *xml = rig_xml(
      SYSTEM(INTEL("0", PCI("0:1:0.0", PCI("0:2:0.0", GPU("0", "80", NVSWITCH("12"))))) INTEL("1", NET("0", ""))));
  int failures = 0;
  for (long k = 1;; k++) {
    tt_topo *t = NULL;
    tt_alloc_fail_at(k);
    ncclResult_t res = tt_topo_build(xml, NULL, NULL, &t);
    tt_alloc_fail_at(0);
    if (res == ncclSuccess) {
      tt_topo_destroy(t);
      break;
    }
    assert_int_equal(res, ncclSystemError);
    failures++;
  }
  assert_true(failures > 5);
  tt_xml_destroy(xml);
}

// ---- The checker itself ----

static void test_checker(void **state)
{
  (void)state;
  const char *text = SYSTEM(INTEL("0", PCI("0:1:0.0", GPU("0", "80", LINK("0:2:0.0", "1")))
                                           PCI("0:2:0.0", GPU("1", "80", LINK("0:1:0.0", "1")))));
  tt_topo *t = build(text, NULL);
  tt_topo_link saved = t->links[0];
#define BREAK(change, what)                          \
  do {                                               \
    change;                                          \
    rig_error(tt_topo_check(t), "topology:", what);  \
    t->links[0] = saved;                             \
    assert_int_equal(tt_topo_check(t), ncclSuccess); \
  } while (0)
  BREAK(t->links[0].bw = 0, "bandwidth 0");
  BREAK(t->links[0].to = 99, "leads from node 0 to node 99");
  BREAK(t->links[0].back = -1, "no way back");
  BREAK(t->links[0].back = 0, "is not the way back");
  BREAK(t->links[0].from = 1, "begins at node 1");
  BREAK(t->links[0].type = TT_PATH_DIS, "type 11");
  t->nodes[1].gpu.rank = 0;
  rig_error(tt_topo_check(t), "topology:", "rank 0/0/0 is there twice");
  t->nodes[1].gpu.rank = 1;
  t->nodes[1].id = t->nodes[0].id;
  rig_error(tt_topo_check(t), "topology:", "is there twice");
  tt_topo_destroy(t);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tree),
      cmocka_unit_test(test_nvlinks),
      cmocka_unit_test(test_c2c_and_hosts),
      cmocka_unit_test(test_virtual_cards),
      cmocka_unit_test(test_amd),
      cmocka_unit_test(test_bandwidths),
      cmocka_unit_test(test_bus_ids),
      cmocka_unit_test(test_flattening),
      cmocka_unit_test(test_flattening_linked_twice),
      cmocka_unit_test(test_order_of_links),
      cmocka_unit_test(test_groups),
      cmocka_unit_test(test_order_is_of_ranks),
      cmocka_unit_test(test_odd_documents),
      cmocka_unit_test(test_links_without_class),
      cmocka_unit_test(test_wrong_documents),
      cmocka_unit_test(test_ten_thousand_nodes),
      cmocka_unit_test(test_too_many_cpus),
      cmocka_unit_test(test_no_memory),
      cmocka_unit_test(test_checker),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
