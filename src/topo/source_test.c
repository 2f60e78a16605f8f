// source_test.c: documents of machines made of files, compared byte by byte.
#include "topo/nvml_rig.h"
#include "tools/gather.h"
#include "topo/source_rig.h"

static rig_machine m;

#define GPU_IDS "0x030200 0x10de 0x2330 0x10de 0x16c1"
#define NIC_IDS "0x020700 0x15b3 0x1021 0x15b3 0x0041"
#define SWITCH_IDS "0x060400 0x1000 0xc030 0x1000 0x100b"
#define PORT_IDS "0x060400 0x8086 0x352a 0x0000 0x0000"
#define NVS_IDS "0x068000 0x10de 0x22a3 0x10de 0x1796"

// ---- Machines ----

// Two sockets; on each a switch with a GPU and a card, and behind the second an NVSwitch.
static void dgx(void)
{
  rig_begin(&m);
  rig_intel(&m, "00ff,00ff", "ff00,ff00");
  for (int s = 0; s < 2; s++) {
    char path[512], up[128];
    int b = s * 0x80;
    snprintf(path, sizeof(path), "pci0000:%02x/0000:%02x:01.0", b, b);
    rig_pci(&m, path, PORT_IDS, "32.0", 16, s);
    snprintf(up, sizeof(up), "%.99s/0000:%02x:00.0", path, b + 1);
    rig_pci(&m, up, SWITCH_IDS, "32.0", 16, s);
    for (int d = 0; d < 2;
         d++) { // the port is slower than the device in one case, the device than the port in the other
      snprintf(path, sizeof(path), "%s/0000:%02x:%02x.0", up, b + 2, d);
      rig_pci(&m, path, SWITCH_IDS, d == 0 ? "16.0" : "32.0", d == 0 ? 16 : 8, s);
      snprintf(path, sizeof(path), "%s/0000:%02x:%02x.0/0000:%02x:00.0", up, b + 2, d, b + 3 + d);
      rig_pci(&m, path, d == 0 ? GPU_IDS : NIC_IDS, d == 0 ? "32.0" : "16.0", 16, s);
    }
    snprintf(path, sizeof(path), "/sys/kernel/pci_switch_link/virtual_switch_links/0000:%02x:00.0/0000:%02x:00.0",
             b + 1, 0x81 - b);
    rig_line(&m, "f %s ", path);
    rig_line(&m,
             "l /sys/class/infiniband/mlx5_%d "
             "../../devices/pci0000:%02x/0000:%02x:01.0/0000:%02x:00.0/0000:%02x:01.0/0000:%02x:00.0"
             "/infiniband/mlx5_%d",
             s, b, b, b + 1, b + 2, b + 4, s);
    snprintf(path, sizeof(path), "/sys/devices/%s/0000:%02x:01.0/0000:%02x:00.0/infiniband/mlx5_%d", up, b + 2, b + 4,
             s);
    rig_line(&m, "l %s/device ../../../0000:%02x:00.0", path, b + 4);
    rig_line(&m, "f %s/ports/1/rate 400 Gb/sec (4X NDR)\\n", path);
  }
  rig_pci(&m, "pci0000:c0/0000:c0:01.0/0000:c1:00.0", NVS_IDS, "5.0", 1, 1);
}

static const char dgx_document[] =
    "<system version=\"1\">\n"
    "  <cpu host_hash=\"0x1234\" numaid=\"0\" affinity=\"00ff,00ff\" arch=\"x86_64\" vendor=\"GenuineIntel\" "
    "familyid=\"6\" modelid=\"143\">\n"
    "    <pci busid=\"0000:01:00.0\" class=\"0x060400\" vendor=\"0x1000\" device=\"0xc030\" "
    "subsystem_vendor=\"0x1000\" "
    "subsystem_device=\"0x100b\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
    "      <pci busid=\"0000:03:00.0\" class=\"0x030200\" vendor=\"0x10de\" device=\"0x2330\" "
    "subsystem_vendor=\"0x10de\" "
    "subsystem_device=\"0x16c1\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">\n"
    "        <gpu dev=\"0\" sm=\"90\" rank=\"0\" gdr=\"1\">\n"
    "          <nvlink target=\"0000:c1:00.0\" count=\"2\" tclass=\"0x068000\"/>\n"
    "          <nvlink target=\"0000:83:00.0\" count=\"1\" tclass=\"0x030200\"/>\n"
    "          <nvlink target=\"fffffff:ffff:ff\" count=\"2\" tclass=\"0x068000\"/>\n"
    "          <c2c bw=\"40000\" count=\"2\"/>\n"
    "        </gpu>\n"
    "      </pci>\n"
    "      <pcilink target=\"0000:81:00.0\"/>\n"
    "      <pci busid=\"0000:04:00.0\" class=\"0x020700\" vendor=\"0x15b3\" device=\"0x1021\" "
    "subsystem_vendor=\"0x15b3\" "
    "subsystem_device=\"0x0041\" link_speed=\"16.0 GT/s PCIe\" link_width=\"8\">\n"
    "        <nic>\n"
    "          <net name=\"mlx5_0\" dev=\"0\" latency=\"0.000000\" speed=\"400000\" port=\"1\" guid=\"0x1f\" "
    "maxconn=\"131072\" "
    "gdr=\"1\"/>\n"
    "        </nic>\n"
    "      </pci>\n"
    "    </pci>\n"
    "    <nic>\n"
    "      <net name=\"eth9\" dev=\"2\" latency=\"0.500000\" speed=\"10000\" port=\"0\" guid=\"0x2\" maxconn=\"65536\" "
    "gdr=\"0\"/>\n"
    "    </nic>\n"
    "  </cpu>\n"
    "  <cpu host_hash=\"0x1234\" numaid=\"1\" affinity=\"ff00,ff00\" arch=\"x86_64\" vendor=\"GenuineIntel\" "
    "familyid=\"6\" modelid=\"143\">\n"
    "    <pci busid=\"0000:81:00.0\" class=\"0x060400\" vendor=\"0x1000\" device=\"0xc030\" "
    "subsystem_vendor=\"0x1000\" "
    "subsystem_device=\"0x100b\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
    "      <pci busid=\"0000:83:00.0\" class=\"0x030200\" vendor=\"0x10de\" device=\"0x2330\" "
    "subsystem_vendor=\"0x10de\" "
    "subsystem_device=\"0x16c1\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">\n"
    "        <gpu dev=\"1\" sm=\"90\" rank=\"1\" gdr=\"1\">\n"
    "          <nvlink target=\"0000:c1:00.0\" count=\"2\" tclass=\"0x068000\"/>\n"
    "          <nvlink target=\"0000:03:00.0\" count=\"1\" tclass=\"0x030200\"/>\n"
    "          <nvlink target=\"fffffff:ffff:ff\" count=\"2\" tclass=\"0x068000\"/>\n"
    "          <c2c bw=\"40000\" count=\"2\"/>\n"
    "        </gpu>\n"
    "      </pci>\n"
    "      <pcilink target=\"0000:01:00.0\"/>\n"
    "      <pci busid=\"0000:84:00.0\" class=\"0x020700\" vendor=\"0x15b3\" device=\"0x1021\" "
    "subsystem_vendor=\"0x15b3\" "
    "subsystem_device=\"0x0041\" link_speed=\"16.0 GT/s PCIe\" link_width=\"8\">\n"
    "        <nic>\n"
    "          <net name=\"mlx5_1\" dev=\"1\" latency=\"0.000000\" speed=\"400000\" port=\"1\" guid=\"0x20\" "
    "maxconn=\"131072\" "
    "gdr=\"1\" coll=\"1\"/>\n"
    "        </nic>\n"
    "      </pci>\n"
    "    </pci>\n"
    "  </cpu>\n"
    "</system>\n";

static const tt_source_net dgx_nets[] = {{.name = "mlx5_0",
                                          .pci_path = "/sys/class/infiniband/mlx5_0/device",
                                          .speed = 400000,
                                          .port = 1,
                                          .maxconn = 131072,
                                          .gdr = 1,
                                          .rail = -1,
                                          .plane = -1,
                                          .guid = 0x1f},
                                         {.name = "mlx5_1",
                                          .pci_path = "/sys/class/infiniband/mlx5_1/device",
                                          .speed = 400000,
                                          .port = 1,
                                          .maxconn = 131072,
                                          .gdr = 1,
                                          .coll = 1,
                                          .rail = -1,
                                          .plane = -1,
                                          .guid = 0x20},
                                         {.name = "eth9",
                                          .pci_path = "/sys/devices/virtual/net/eth9",
                                          .speed = 10000,
                                          .maxconn = 65536,
                                          .rail = -1,
                                          .plane = -1,
                                          .latency = 0.5f,
                                          .guid = 2}};

static const tt_source_rank dgx_ranks[] = {{.bus_id = "0000:03:00.0", .rank = 0, .gdr = 1},
                                           {.bus_id = "0000:83:00.0", .rank = 1, .gdr = 1}};

static void test_dgx(void **state)
{
  (void)state;
  tt_nvml *nvml = fake_nvml();
  dgx();
  tt_source in = {
      .machine = {.nvml = nvml, .host_hash = 0x1234}, .ranks = dgx_ranks, .nranks = 2, .nets = dgx_nets, .nnets = 3};
  rig_expect(&m, &in, dgx_document);
  int before = fake_shutdowns;
  tt_nvml_close(nvml);
  assert_int_equal(fake_shutdowns, before + 1);
}

// Each rank detects its own GPU and all ports; joined, that is the machine.
static void test_views(void **state)
{
  (void)state;
  tt_nvml *nvml = fake_nvml();
  dgx();
  tt_tree *tree = rig_capture(&m);
  tt_xml *views[2] = {NULL, NULL};
  for (int r = 0; r < 2; r++) {
    tt_source in = {.machine = {.tree = tree, .gpu = tt_gpu_element, .nvml = nvml, .host_hash = 0x1234},
                    .ranks = &dgx_ranks[r],
                    .nranks = 1,
                    .nets = dgx_nets,
                    .nnets = 3};
    assert_int_equal(tt_source_detect(&in, &views[r]), ncclSuccess);
  }
  assert_int_equal(tt_topo_fuse(views[0], views[1]), ncclSuccess);
  tt_topo *fused = rig_build(views[0], NULL), *whole = rig_build(rig_xml(dgx_document), NULL);
  rig_same_model(fused, whole);
  tt_topo_destroy(fused);
  tt_topo_destroy(whole);
  tt_xml_destroy(views[1]);
  tt_tree_close(tree);
  tt_nvml_close(nvml);
}

// A virtual machine: no ports above the devices, no NUMA node, NVSwitches not shown.
static void test_vm(void **state)
{
  (void)state;
  static const char document[] = "<system version=\"1\">\n"
                                 "  <cpu host_hash=\"0x7\" numaid=\"-1\" affinity=\"\" arch=\"x86_64\" "
                                 "vendor=\"AuthenticAMD\" familyid=\"175\" modelid=\"1\">\n"
                                 "    <pci busid=\"0000:03:00.0\" class=\"0x030200\" vendor=\"0x10de\" "
                                 "device=\"0x2330\" subsystem_vendor=\"0x10de\" "
                                 "subsystem_device=\"0x16c1\" link_speed=\"5.0 GT/s PCIe\" link_width=\"0\">\n"
                                 "      <gpu dev=\"0\" sm=\"80\" rank=\"0\" gdr=\"1\">\n"
                                 "        <nvlink target=\"0000:15:00.0\" count=\"4\" tclass=\"0x068000\"/>\n"
                                 "      </gpu>\n"
                                 "    </pci>\n"
                                 "    <pci busid=\"0000:0d:00.0\" class=\"0x020000\" vendor=\"0x15ad\" "
                                 "device=\"0x07b0\" subsystem_vendor=\"0x15ad\" "
                                 "subsystem_device=\"0x07b0\" link_speed=\"\" link_width=\"0\">\n"
                                 "      <nic>\n"
                                 "        <net name=\"ens192\" dev=\"0\" latency=\"0.000000\" speed=\"10000\" "
                                 "port=\"0\" guid=\"0x0\" maxconn=\"65536\" gdr=\"0\"/>\n"
                                 "      </nic>\n"
                                 "    </pci>\n"
                                 "    <nic>\n"
                                 "      <net name=\"br-1\" dev=\"1\" latency=\"0.000000\" speed=\"10000\" port=\"0\" "
                                 "guid=\"0x1\" maxconn=\"65536\" gdr=\"0\"/>\n"
                                 "      <net name=\"veth7\" dev=\"2\" latency=\"0.000000\" speed=\"10000\" port=\"0\" "
                                 "guid=\"0x2\" maxconn=\"65536\" gdr=\"0\"/>\n"
                                 "    </nic>\n"
                                 "  </cpu>\n"
                                 "</system>\n";
  tt_source_net nets[] = {{.name = "ens192",
                           .pci_path = "/sys/class/net/ens192/device",
                           .speed = 10000,
                           .maxconn = 65536,
                           .rail = -1,
                           .plane = -1},
                          {.name = "br-1", .speed = 10000, .maxconn = 65536, .rail = -1, .plane = -1, .guid = 1},
                          {.name = "veth7",
                           .pci_path = "/sys/class/net/veth7/device",
                           .speed = 10000,
                           .maxconn = 65536,
                           .rail = -1,
                           .plane = -1,
                           .guid = 2}};
  tt_source_rank rank = {.bus_id = "00000000:03:00.0", .gdr = 1};
  rig_begin(&m);
  rig_line(&m,
           "f /proc/cpuinfo vendor_id\\t: AuthenticAMD\\ncpu family\\t: 25\\nmodel\\t\\t: 1\\nmodel name\\t: EPYC\\n");
  rig_pci(&m, "pci0000:03/0000:03:00.0", GPU_IDS, "5.0", 32, -1);
  rig_pci(&m, "pci0000:0d/0000:0d:00.0", "0x020000 0x15ad 0x07b0 0x15ad 0x07b0", NULL, 0, -1);
  rig_line(&m, "l /sys/class/net/ens192 ../../devices/pci0000:0d/0000:0d:00.0/net/ens192");
  rig_line(&m, "l /sys/devices/pci0000:0d/0000:0d:00.0/net/ens192/device ../../../0000:0d:00.0");
  rig_line(&m, "f /nvml/0000:03:00.0 bus 0000:03:00.0\\nindex 0\\nsm 80\\nnvlink 0000:15:00.0 4\\nsomething new\\n");
  tt_source in = {.machine = {.host_hash = 7}, .ranks = &rank, .nranks = 1, .nets = nets, .nnets = 3};
  rig_expect(&m, &in, document);
}

static void test_arm(void **state)
{
  (void)state;
  static const char document[] = "<system version=\"1\">\n"
                                 "  <cpu host_hash=\"0x0\" numaid=\"0\" affinity=\"ffffffff\" arch=\"arm64\">\n"
                                 "    <pci busid=\"0009:01:00.0\" class=\"0x030200\" vendor=\"0x10de\" "
                                 "device=\"0x2330\" subsystem_vendor=\"0x10de\" "
                                 "subsystem_device=\"0x16c1\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
                                 "      <gpu dev=\"3\" sm=\"90\" rank=\"5\" gdr=\"0\">\n"
                                 "        <c2c bw=\"44712\" count=\"10\"/>\n"
                                 "      </gpu>\n"
                                 "    </pci>\n"
                                 "  </cpu>\n"
                                 "</system>\n";
  tt_source_rank rank = {.bus_id = "0009:01:00.0", .rank = 5};
  rig_begin(&m);
  rig_line(&m,
           "f /proc/cpuinfo processor\\t: 0\\nBogoMIPS\\t: 2000.00\\nCPU implementer\\t: 0x41\\nCPU part\\t: 0xd4f\\n");
  rig_line(&m, "f /sys/devices/system/node/node0/cpumap ffffffff\\n");
  rig_pci(&m, "pci0009:00/0009:00:00.0", "0x060400 0x10de 0x22b1 0x0000 0x0000", "32.0", 16, 0);
  rig_pci(&m, "pci0009:00/0009:00:00.0/0009:01:00.0", GPU_IDS, "64.0", 16, 0);
  rig_line(&m, "f /nvml/0009:01:00.0 bus 0009:01:00.0\\nindex 3\\nsm 90\\nc2c 10 44712\\n");
  tt_source in = {.ranks = &rank, .nranks = 1};
  rig_expect(&m, &in, document);
}

// A device that /sys does not show hangs on an unknown CPU, and NVML says what it is.
static void test_hidden_gpu(void **state)
{
  (void)state;
  tt_source_rank rank = {.bus_id = "0000:03:00.0"};
  tt_nvml *nvml = fake_nvml();
  rig_begin(&m);
  tt_source in = {.machine = {.nvml = nvml}, .ranks = &rank, .nranks = 1};
  fake_sm = 61;
  rig_expect(
      &m, &in,
      "<system version=\"1\">\n"
      "  <cpu host_hash=\"0x0\" numaid=\"-1\" affinity=\"\">\n"
      "    <pci busid=\"0000:03:00.0\" class=\"0x03\" vendor=\"0x10de\" device=\"0x2330\" subsystem_vendor=\"0x10de\" "
      "subsystem_device=\"0x16c1\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
      "      <gpu dev=\"0\" sm=\"61\" rank=\"0\" gdr=\"0\">\n"
      "        <nvlink target=\"0000:c1:00.0\" count=\"2\" tclass=\"0x068000\"/>\n"
      "        <nvlink target=\"0000:83:00.0\" count=\"1\" tclass=\"0x030200\"/>\n"
      "      </gpu>\n"
      "    </pci>\n"
      "  </cpu>\n"
      "</system>\n");
  fake_sm = 90;
  tt_nvml_close(nvml);
}

// ---- Host ranks ----

static void test_host_ranks(void **state)
{
  (void)state;
  static const char document[] =
      "<system version=\"1\">\n"
      "  <cpu host_hash=\"0x9\" numaid=\"1\" affinity=\"c\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" "
      "modelid=\"143\">\n"
      "    <pci busid=\"fffe:00:00.0\" class=\"0x0b4000\" link_speed=\"64.0 GT/s PCIe\" link_width=\"16\">\n"
      "      <gpu dev=\"0\" sm=\"0\" rank=\"0\" gdr=\"0\"/>\n"
      "    </pci>\n"
      "  </cpu>\n"
      "  <cpu host_hash=\"0x9\" numaid=\"0\" affinity=\"3\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" "
      "modelid=\"143\">\n"
      "    <pci busid=\"fffe:00:00.1\" class=\"0x0b4000\" link_speed=\"64.0 GT/s PCIe\" link_width=\"16\">\n"
      "      <gpu dev=\"1\" sm=\"0\" rank=\"1\" gdr=\"0\"/>\n"
      "      <gpu dev=\"1\" sm=\"0\" rank=\"9\" gdr=\"0\"/>\n"
      "    </pci>\n"
      "    <pci busid=\"fffe:01:01.1\" class=\"0x0b4000\" link_speed=\"64.0 GT/s PCIe\" link_width=\"16\">\n"
      "      <gpu dev=\"265\" sm=\"0\" rank=\"2\" gdr=\"0\"/>\n"
      "    </pci>\n"
      "    <nic>\n"
      "      <net name=\"eth0\" dev=\"0\" latency=\"0.000000\" speed=\"10000\" port=\"0\" guid=\"0x0\" maxconn=\"64\" "
      "gdr=\"0\"/>\n"
      "    </nic>\n"
      "  </cpu>\n"
      "</system>\n";
  tt_source_rank ranks[] = {{.rank = 0, .dev = 0, .numa = 1},
                            {.rank = 1, .dev = 1, .numa = 0},
                            {.rank = 2, .dev = 265, .numa = -1},
                            {.rank = 9, .dev = 1, .numa = 1}};
  tt_source_net net = {.name = "eth0", .speed = 10000, .maxconn = 64, .rail = -1, .plane = -1};
  rig_begin(&m);
  rig_intel(&m, "3", "c");
  tt_source in = {.machine = {.host_hash = 9}, .ranks = ranks, .nranks = 4, .nets = &net, .nnets = 1};
  rig_expect(&m, &in, document);
}

// A GPU that neither the file nor NVML knows is what its driver says; several ranks may sit on it.
static void test_bare_gpu(void **state)
{
  (void)state;
  static const char document[] = "<system version=\"1\">\n"
                                 "  <cpu host_hash=\"0x9\" numaid=\"1\" affinity=\"c\" arch=\"x86_64\" "
                                 "vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\">\n"
                                 "    <pci busid=\"0000:03:00.0\" class=\"0x030200\" vendor=\"0x10de\" "
                                 "device=\"0x2330\" subsystem_vendor=\"0x10de\" "
                                 "subsystem_device=\"0x16c1\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
                                 "      <gpu dev=\"2\" sm=\"90\" rank=\"0\" gdr=\"0\"/>\n"
                                 "      <gpu dev=\"2\" sm=\"90\" rank=\"1\" gdr=\"0\"/>\n"
                                 "    </pci>\n"
                                 "  </cpu>\n"
                                 "</system>\n";
  tt_source_rank ranks[] = {{.bus_id = "00000000:03:00.0", .rank = 0, .dev = 2, .sm = 90},
                            {.bus_id = "0000:03:00.0", .rank = 1, .dev = 2, .sm = 90}};
  rig_begin(&m);
  rig_intel(&m, "3", "c");
  rig_pci(&m, "pci0000:00/0000:00:01.0", PORT_IDS, "32.0", 16, 1);
  rig_pci(&m, "pci0000:00/0000:00:01.0/0000:03:00.0", GPU_IDS, "32.0", 16, 1);
  tt_source in = {.machine = {.host_hash = 9}, .ranks = ranks, .nranks = 2};
  rig_expect(&m, &in, document);
  tt_tree *tree = rig_capture(&m);
  tt_xml *xml = NULL;
  in.machine.tree = tree; // and no function that looks for GPUs
  assert_int_equal(tt_source_detect(&in, &xml), ncclSuccess);
  tt_xml_destroy(xml);
  tt_tree_close(tree);
}

// Ranks that share a node meet at their CPU, others between CPUs.
static void test_host_paths(void **state)
{
  (void)state;
  tt_source_rank ranks[] = {
      {.rank = 0, .dev = 0, .numa = 0}, {.rank = 1, .dev = 1, .numa = 0}, {.rank = 2, .dev = 2, .numa = 1}};
  rig_begin(&m);
  rig_intel(&m, "3", "c");
  tt_tree *tree = rig_capture(&m);
  tt_source in = {.ranks = ranks, .nranks = 3};
  char *text = rig_detect(&in, tree);
  tt_topo *topo = rig_build(rig_xml(text), NULL);
  tt_paths *paths = rig_paths(topo, NULL);
  assert_int_equal(tt_path_get(paths, 0, 1)->type, TT_PATH_PHB);
  assert_int_equal(tt_path_get(paths, 0, 2)->type, TT_PATH_SYS);
  int group[3];
  assert_int_equal(tt_paths_groups(topo, paths, group), 1);
  tt_paths_destroy(paths);
  tt_topo_destroy(topo);
  tt_free(text);
  tt_tree_close(tree);
}

// Devices stand in the order of their bus ids, in whatever order they are added.
static void test_order(void **state)
{
  (void)state;
  static const int devs[] = {3, 1, 4, 0, 2};
  tt_source_rank ranks[5];
  for (int i = 0; i < 5; i++) {
    ranks[i] = (tt_source_rank){.rank = i, .dev = devs[i], .numa = -1};
  }
  rig_begin(&m);
  tt_tree *tree = rig_capture(&m);
  tt_source in = {.ranks = ranks, .nranks = 5};
  char *text = rig_detect(&in, tree), *at = text;
  for (int i = 0; i < 5; i++) {
    char bus_id[32];
    snprintf(bus_id, sizeof(bus_id), "busid=\"fffe:00:00.%d\"", i);
    at = strstr(at, bus_id);
    assert_non_null(at);
  }
  tt_free(text);
  tt_tree_close(tree);
}

// One node, and PCI devices that do not say that they are on it: a rank and a card meet at their CPU. With two nodes
// nobody knows.
static void test_silent_pci(void **state)
{
  (void)state;
  for (int nodes = 1; nodes <= 2; nodes++) {
    tt_source_rank rank = {.rank = 0, .dev = 0, .numa = 0};
    tt_source_net net = {
        .name = "eth0", .pci_path = "/sys/bus/pci/devices/0000:00:03.0", .speed = 10000, .rail = -1, .plane = -1};
    rig_begin(&m);
    rig_intel(&m, "3", nodes == 2 ? "c" : NULL);
    rig_pci(&m, "pci0000:00/0000:00:03.0", NIC_IDS, NULL, 0, -1);
    tt_tree *tree = rig_capture(&m);
    tt_source in = {.ranks = &rank, .nranks = 1, .nets = &net, .nnets = 1};
    char *text = rig_detect(&in, tree);
    tt_topo *topo = rig_build(rig_xml(text), NULL);
    tt_paths *paths = rig_paths(topo, NULL);
    assert_int_equal(tt_topo_count(topo, TT_NODE_CPU), nodes);
    assert_int_equal(tt_path_get(paths, 0, topo->first[TT_NODE_NET])->type, nodes == 1 ? TT_PATH_PHB : TT_PATH_SYS);
    tt_paths_destroy(paths);
    tt_topo_destroy(topo);
    tt_free(text);
    tt_tree_close(tree);
  }
}

// ---- Files ----

static char file_name[] = "/tmp/tutti-source-XXXXXX";

static void write_file(const char *text)
{
  strcpy(file_name, "/tmp/tutti-source-XXXXXX");
  int fd = mkstemp(file_name);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, text, strlen(text)), strlen(text));
  close(fd);
}

// Hints about switches, as clouds ship them: what is detected joins them, what leads nowhere goes.
static void test_hints(void **state)
{
  (void)state;
  static const char hints[] =
      "<system version=\"1\">\n"
      "  <cpu numaid=\"0\" affinity=\"f\" arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"143\" modelid=\"49\">\n"
      "    <pci busid=\"ffff:ff:01.0\" class=\"0x060400\" link_speed=\"16 GT/s\" link_width=\"16\">\n"
      "      <pci busid=\"0000:03:00.0\" class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"16\"/>\n"
      "      <pci busid=\"0000:0D:00.0\" class=\"0x020700\" link_speed=\"16 GT/s\" link_width=\"16\"/>\n"
      "    </pci>\n"
      "    <pci busid=\"ffff:ff:02.0\" class=\"0x060400\" link_speed=\"16 GT/s\" link_width=\"16\">\n"
      "      <pci busid=\"0000:04:00.0\" class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"16\"/>\n"
      "    </pci>\n"
      "  </cpu>\n"
      "  <cpu numaid=\"1\"/>\n"
      "</system>\n";
  static const char document[] =
      "<system version=\"1\">\n"
      "  <cpu numaid=\"0\" affinity=\"f\" arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"143\" modelid=\"49\" "
      "host_hash=\"0x5\">\n"
      "    <pci busid=\"ffff:ff:01.0\" class=\"0x060400\" link_speed=\"16 GT/s\" link_width=\"16\">\n"
      "      <pci busid=\"0000:03:00.0\" class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"16\" vendor=\"0x10de\" "
      "device=\"0x2330\" "
      "subsystem_vendor=\"0x10de\" subsystem_device=\"0x16c1\">\n"
      "        <gpu dev=\"0\" sm=\"70\" rank=\"0\" gdr=\"0\"/>\n"
      "      </pci>\n"
      "      <pci busid=\"0000:0D:00.0\" class=\"0x020700\" link_speed=\"16 GT/s\" link_width=\"16\" vendor=\"0x15b3\" "
      "device=\"0x1021\" "
      "subsystem_vendor=\"0x15b3\" subsystem_device=\"0x0041\">\n"
      "        <nic>\n"
      "          <net name=\"mlx5_0\" dev=\"0\" latency=\"0.000000\" speed=\"200000\" port=\"1\" rail=\"3\" "
      "plane=\"0\" guid=\"0xff\" "
      "maxconn=\"64\" gdr=\"1\"/>\n"
      "        </nic>\n"
      "      </pci>\n"
      "    </pci>\n"
      "  </cpu>\n"
      "</system>\n";
  tt_source_rank rank = {.bus_id = "0000:03:00.0"};
  tt_source_net net = {.name = "mlx5_0",
                       .pci_path = "/sys/bus/pci/devices/0000:0d:00.0",
                       .speed = 200000,
                       .port = 1,
                       .maxconn = 64,
                       .gdr = 1,
                       .rail = 3,
                       .guid = 255};
  rig_begin(&m);
  rig_pci(&m, "pci0000:03/0000:03:00.0", GPU_IDS, NULL, 0, 0);
  rig_pci(&m, "pci0000:0d/0000:0d:00.0", NIC_IDS, NULL, 0, 0);
  rig_line(&m, "f /nvml/0000:03:00.0 bus 0000:03:00.0\\nindex 0\\nsm 70\\n");
  write_file(hints);
  tt_source in = {
      .machine = {.host_hash = 5}, .file = file_name, .ranks = &rank, .nranks = 1, .nets = &net, .nnets = 1};
  rig_expect(&m, &in, document);
  unlink(file_name);
}

// Without GPUs, ranks take the places of another machine; its cards stay.
static void places(const char *path)
{
  tt_tree *tree = NULL;
  tt_xml *file = rig_read(path), *xml = NULL;
  static tt_source_rank ranks[1024];
  int count = 0;
  for (tt_xml_node *n = file->root; n != NULL; n = tt_xml_walk(file->root, n)) {
    if (strcmp(n->tag, "gpu") == 0 && tt_xml_get(n, "rank") != NULL) {
      ranks[count++] =
          (tt_source_rank){.rank = atoi(tt_xml_get(n, "rank")), .dev = atoi(tt_xml_get(n, "dev")), .numa = -1};
    }
  }
  tt_xml_destroy(file);
  assert_int_equal(tt_capture_parse("none", "tutti-machine 1\n", 16, &tree), ncclSuccess);
  tt_source in = {.machine = {.tree = tree}, .file = path, .ranks = ranks, .nranks = count, .file_nets = true};
  if (tt_source_detect(&in, &xml) != ncclSuccess) {
    fail_msg("%s: %s", path, tt_last_error());
  }
  tt_topo *topo = rig_build(xml, NULL);
  assert_int_equal(tt_topo_count(topo, TT_NODE_GPU), count);
  tt_topo_destroy(topo);
  tt_tree_close(tree);
}

static void test_places(void **state)
{
  (void)state;
  places(RIG_MACHINES "/known/seed_a100_sxm4_vm/input.xml");
  places(RIG_MACHINES "/known/hgx_h100_8gpu_nvswitch_8nic/input.xml");
}

// What is detected, and what NVML says, can be read again from a dump.
static void test_dump_again(void **state)
{
  (void)state;
  tt_nvml *nvml = fake_nvml();
  dgx();
  write_file(dgx_document);
  tt_source in = {.machine = {.nvml = nvml, .host_hash = 0x1234},
                  .file = file_name,
                  .ranks = dgx_ranks,
                  .nranks = 2,
                  .nets = dgx_nets,
                  .nnets = 3};
  tt_tree *tree = rig_capture(&m);
  char *text = rig_detect(&in, tree);
  assert_string_equal(text, dgx_document);
  tt_free(text);
  tt_tree_close(tree);
  tt_nvml_close(nvml);
  unlink(file_name);
}

static void test_hypervisor_file(void **state)
{
  (void)state;
  tt_source_rank rank = {.dev = 4};
  rig_begin(&m);
  rig_line(&m, "f " TT_SOURCE_DEFAULT_FILE " <system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0000:01:00.0\"><gpu "
               "dev=\"4\" sm=\"80\"/></pci></cpu></system>");
  tt_tree *tree = rig_capture(&m);
  tt_source in = {.ranks = &rank, .nranks = 1};
  char *text = rig_detect(&in, tree);
  assert_non_null(strstr(text, "<gpu dev=\"4\" sm=\"80\" rank=\"0\" gdr=\"0\"/>"));
  tt_free(text);
  tt_tree_close(tree);
}

// ---- This machine ----

static void test_this_machine(void **state)
{
  (void)state;
  tt_tree *tree = NULL, *again = NULL;
  static tt_source_port ports[64];
  static tt_source_net nets[64];
  tt_source_rank rank = {.numa = -1};
  char *capture = NULL;
  size_t size;
  int count = 0;
  assert_int_equal(tt_tree_open("/", &tree), ncclSuccess);
  assert_int_equal(tt_source_ports(tree, ports, 64, &count), ncclSuccess);
  for (int i = 0; i < count; i++) {
    nets[i] = (tt_source_net){
        .name = ports[i].name, .pci_path = ports[i].pci_path, .speed = ports[i].speed, .rail = -1, .plane = -1};
  }
  tt_sysfs machine = {.tree = tree};
  assert_int_equal(tt_gather(&machine, &capture, &size), ncclSuccess);
  assert_int_equal(tt_capture_parse("this", capture, size, &again), ncclSuccess);
  tt_source in = {.ranks = &rank, .nranks = 1, .nets = nets, .nnets = count};
  char *text = rig_detect(&in, tree), *second = rig_detect(&in, again);
  assert_string_equal(text, second);
  tt_topo *topo = rig_build(rig_xml(text), NULL);
  assert_int_equal(tt_topo_count(topo, TT_NODE_NET), count);
  tt_topo_destroy(topo);
  tt_free(text);
  tt_free(second);
  tt_free(capture);
  tt_tree_close(tree);
  tt_tree_close(again);
}

static void test_ports(void **state)
{
  (void)state;
  static tt_source_port ports[4];
  int count = 0;
  dgx();
  tt_tree *tree = rig_capture(&m);
  assert_int_equal(tt_source_ports(tree, ports, 4, &count), ncclSuccess);
  assert_int_equal(count, 2);
  assert_string_equal(ports[1].name, "mlx5_1");
  assert_string_equal(ports[1].pci_path, "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:01.0/0000:84:00.0");
  assert_int_equal(ports[1].speed, 400000);
  assert_int_equal(ports[1].port, 1);
  assert_int_equal(tt_source_ports(tree, ports, 1, &count), ncclSuccess);
  assert_int_equal(count, 1);
  tt_tree_close(tree);
}

// ---- What is wrong ----

static void expect_error(const tt_source *in, const char *place, const char *what)
{
  tt_tree *tree = NULL;
  tt_xml *xml = NULL;
  tt_source s = *in;
  assert_int_equal(tt_capture_parse("none", "tutti-machine 1\n", 16, &tree), ncclSuccess);
  s.machine.tree = tree;
  s.machine.gpu = tt_gpu_element;
  rig_error(tt_source_detect(&s, &xml), place, what);
  assert_null(xml);
  tt_tree_close(tree);
}

static void test_wrong_use(void **state)
{
  (void)state;
  tt_source_rank twice[] = {{.rank = 3, .dev = 0, .numa = -1}, {.rank = 3, .dev = 1, .numa = -1}};
  tt_source_rank odd[] = {
      {.bus_id = "03:00", .rank = 0}, {.bus_id = "0000:03:00.0", .rank = 1}, {.rank = -1}, {.rank = 0, .dev = 65536}};
  tt_source_net nets[] = {{.name = "eth0"}, {.name = "eth0"}};
  expect_error(&(tt_source){.ranks = twice, .nranks = 2}, "rank 3", "twice");
  expect_error(&(tt_source){.ranks = &odd[0], .nranks = 1}, "03:00", "bus id");
  expect_error(&(tt_source){.ranks = &odd[1], .nranks = 1}, "rank 1", "0000:03:00.0");
  expect_error(&(tt_source){.ranks = &odd[2], .nranks = 1}, "rank -1", "no rank");
  expect_error(&(tt_source){.ranks = &odd[3], .nranks = 1}, "rank 0", "65536");
  expect_error(&(tt_source){.nets = nets, .nnets = 2}, "device 1", "eth0");
  expect_error(&(tt_source){.file = "/nonexistent.xml"}, "/nonexistent.xml", "");
  write_file("<graphs version=\"1\"/>");
  expect_error(&(tt_source){.file = file_name}, file_name, "<system>");
  unlink(file_name);
}

// Every file of a machine replaced by something bad, one after the other: there is a document, and a model of it.
static void test_bad_files(void **state)
{
  (void)state;
  static const char *bad[] = {"",   "\\n",    "\\x00\\xff\\xfe", "-99999999999999999999", "nan", "Unknown",
                              "0x", "<&\"'>", "1e999 GT/s"};
  static rig_machine broken;
  tt_source in = {.ranks = dgx_ranks, .nranks = 2, .nets = dgx_nets, .nnets = 3};
  tt_nvml *nvml = fake_nvml();
  in.machine.nvml = nvml;
  dgx();
  for (size_t i = 0; i < TT_COUNT(bad); i++) {
    char *copy = strdup(m.text), *rest = copy;
    rig_begin(&broken);
    strsep(&rest, "\n");
    for (char *line = strsep(&rest, "\n"); line != NULL && *line != 0; line = strsep(&rest, "\n")) {
      rig_line(&broken, "%.*s%s", line[0] == 'f' ? (int)(strchr(line + 2, ' ') - line) + 1 : 4096, line,
               line[0] == 'f' ? bad[i] : "");
    }
    tt_tree *tree = rig_capture(&broken);
    char *text = rig_detect(&in, tree);
    tt_topo_destroy(rig_build(rig_xml(text), NULL));
    tt_free(text);
    tt_tree_close(tree);
    free(copy);
  }
  tt_nvml_close(nvml);
}

// Memory that is missing at any point is an error, and nothing leaks (the sanitizers look).
static void test_no_memory(void **state)
{
  (void)state;
  tt_nvml *nvml = fake_nvml();
  dgx();
  tt_tree *tree = rig_capture(&m);
  tt_source in = {.machine = {.tree = tree, .gpu = tt_gpu_element, .nvml = nvml},
                  .ranks = dgx_ranks,
                  .nranks = 2,
                  .nets = dgx_nets,
                  .nnets = 3};
  ncclResult_t res = ncclSystemError;
  for (long k = 1; res != ncclSuccess && k < 10000; k++) {
    tt_xml *xml = NULL;
    tt_alloc_fail_at(k);
    res = tt_source_detect(&in, &xml);
    tt_alloc_fail_at(0);
    assert_true(res == ncclSuccess ? xml != NULL : res == ncclSystemError && xml == NULL);
    tt_xml_destroy(xml);
  }
  assert_int_equal(res, ncclSuccess);
  res = ncclSystemError;
  for (long k = 1; res != ncclSuccess && k < 10000; k++) {
    char *text = NULL;
    size_t size;
    tt_alloc_fail_at(k);
    res = tt_gather(&in.machine, &text, &size);
    tt_alloc_fail_at(0);
    assert_true(res == ncclSuccess ? text != NULL : res == ncclSystemError && text == NULL);
    tt_free(text);
  }
  assert_int_equal(res, ncclSuccess);
  tt_tree_close(tree);
  tt_nvml_close(nvml);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_dgx),          cmocka_unit_test(test_views),
      cmocka_unit_test(test_order),        cmocka_unit_test(test_silent_pci),
      cmocka_unit_test(test_vm),           cmocka_unit_test(test_arm),
      cmocka_unit_test(test_hidden_gpu),   cmocka_unit_test(test_host_ranks),
      cmocka_unit_test(test_bare_gpu),     cmocka_unit_test(test_host_paths),
      cmocka_unit_test(test_hints),        cmocka_unit_test(test_places),
      cmocka_unit_test(test_dump_again),   cmocka_unit_test(test_ports),
      cmocka_unit_test(test_wrong_use),    cmocka_unit_test(test_hypervisor_file),
      cmocka_unit_test(test_bad_files),    cmocka_unit_test(test_no_memory),
      cmocka_unit_test(test_this_machine),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
