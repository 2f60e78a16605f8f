// Ranks that sit on GPUs: NVML and the machine's file say where that is, and rings and trees are those of the machine.
//
// The kind of device "seated" does everything as the host device does, but says that it is a GPU of the machine: bus
// id and compute capability, as a driver would. NVML is tests/fakenvml.
#include "folder.h"
#include "harness.h"

#include "base/util.h"
#include "comm/comm.h"
#include "comm/init.h"
#include "comm/topology.h"
#include "topo/xml.h"

#define KNOWN "tests/topologies/known/"

enum { MOST = 16, LIMIT = 60 };

static void same_text(const char *a, const char *b)
{
  char *x = text_of(a), *y = text_of(b);
  assert_true(x[0] != 0);
  assert_string_equal(x, y);
  free(x);
  free(y);
}

static int count_text(const char *path, const char *part)
{
  char *text = text_of(path);
  int count = 0;
  for (const char *at = text; (at = strstr(at, part)) != NULL; at++) {
    count++;
  }
  free(text);
  return count;
}

static void say(const char *name, const char *value)
{
  OK(value != NULL && setenv(name, value, 1) == 0 ? ncclSuccess : ncclSystemError);
}

// --- Machines

// A machine whose GPUs the ranks sit on.
typedef struct seats {
  const char *machine; // name among the known ones
  int nranks, nnodes;
  int per_gpu; // ranks that share a GPU
  bool apart;  // NVML shows each rank its own GPU alone
  bool nvml;   // there is one
  bool file;   // the machine has a partial file
  int hosts;   // so many ranks, the last, are on the host device
} seats;

// Bus ids of the machine's GPUs by number, and their capability.
static char gpu_bus[MOST][16];
static int gpu_sm;

static const char *machine_file(const seats *s)
{
  static char path[PATH_BYTES];
  snprintf(path, sizeof path, KNOWN "%s/input.xml", s->machine);
  return path;
}

// Reads the machine's GPUs, and writes its file without what NVML knows: of <gpu> stays `gdr`.
static void read_machine(const seats *s, const char *partial)
{
  tt_xml *xml = NULL;
  OK(tt_xml_read(machine_file(s), &xml));
  for (tt_xml_node *n = xml->root; n != NULL; n = tt_xml_walk(xml->root, n)) {
    if (!tt_xml_is(n, "gpu")) {
      continue;
    }
    int dev = atoi(tt_xml_get(n, "dev"));
    CHECK(dev >= 0 && dev < MOST, "GPU %d", dev);
    snprintf(gpu_bus[dev], sizeof gpu_bus[dev], "%s", tt_xml_get(n->parent, "busid"));
    gpu_sm = atoi(tt_xml_get(n, "sm"));
    tt_xml_unset(n, "dev");
    tt_xml_unset(n, "sm");
    tt_xml_unset(n, "rank");
    n->child = n->last_child = NULL;
  }
  OK(partial != NULL ? tt_xml_write(xml, partial) : ncclSuccess);
  tt_xml_destroy(xml);
}

static tt_device_ops seated;
static bool on_host; // this rank

static void seated_identify(int device, tt_device_id *out)
{
  tt_device_host.identify(device, out);
  strcpy(out->kind, "seated");
  if (!on_host) {
    memcpy(out->bus_id, gpu_bus[device], sizeof out->bus_id);
    out->sm = gpu_sm;
  }
}

static ncclComm_t join_seated(int nranks, int rank, int device)
{
  ncclComm_t comm = NULL;
  seated = tt_device_host;
  seated.name = "seated";
  seated.identify = seated_identify;
  tt_init_args args = {.id = shared_id(0, rank), .nranks = nranks, .rank = rank, .device = device};
  OK(tuttiSetDevice(device));
  OK(tt_comm_new(&seated, &comm));
  OK(tt_config_read(NULL, NULL, &comm->config));
  tt_comm_name(comm, &args);
  OK(tt_comm_init(comm, &args));
  return comm;
}

static void add_up(ncclComm_t comm)
{
  long x = comm->rank + 1, n = comm->nranks;
  OK(ncclAllReduce(&x, &x, 1, ncclInt64, ncclSum, comm, NULL));
  OK(tuttiStreamSynchronize(NULL));
  CHECK(x == n * (n + 1) / 2, "rank %d: the sum is %ld", comm->rank, x);
}

static void node_of(const seats *s, int rank)
{
  char name[16];
  snprintf(name, sizeof name, "node%d", rank * s->nnodes / s->nranks);
  say("NCCL_HOSTID", name);
}

static void say_nvml(const seats *s, int device)
{
  char path[PATH_BYTES], mask[32];
  const char *build = getenv("TUTTI_BUILD");
  snprintf(path, sizeof path, "%s/lib/fakenvml/libnvidia-ml.so.1", build != NULL ? build : "build");
  say("TUTTI_NVML", s->nvml ? path : "libno-such-nvml.so.1");
  say("FAKE_NVML", machine_file(s));
  if (s->apart) {
    snprintf(mask, sizeof mask, "%x", 1u << device);
    say("FAKE_NVML_GPUS", mask);
  }
}

static int device_of(const seats *s, int rank)
{
  return rank % (s->nranks / s->nnodes) / s->per_gpu;
}

static void seated_body(int rank, void *arg)
{
  const seats *s = arg;
  int device = device_of(s, rank);
  char log[32];
  snprintf(log, sizeof log, "log%d", rank);
  on_host = rank >= s->nranks - s->hosts;
  node_of(s, rank);
  say_nvml(s, device);
  read_machine(s, NULL);
  if (s->file) {
    say("NCCL_TOPO_FILE", in_folder("partial.xml"));
  }
  say("NCCL_DEBUG", "WARN");
  say("NCCL_DEBUG_FILE", in_folder(log));
  say("NCCL_TOPO_DUMP_FILE", in_folder("topo.xml"));
  say("NCCL_GRAPH_DUMP_FILE", in_folder("graphs.xml"));
  ncclComm_t comm = join_seated(s->nranks, rank, device);
  CHECK(!comm->topology->plain, "rank %d sees a plain host", rank);
  CHECK(device_of(s, s->nranks - 1) > 0 || comm->topology->connect->nchannels == 1, "%d channels within a GPU",
        comm->topology->connect->nchannels);
  add_up(comm);
  OK(ncclCommDestroy(comm));
  CHECK(count_text(in_folder(log), "WARN") == 0, "rank %d has warned", rank);
}

// Host ranks in the places of those GPUs: what the file alone says.
static void file_body(int rank, void *arg)
{
  const seats *s = arg;
  node_of(s, rank);
  say("NCCL_TOPO_FILE", machine_file(s));
  say("NCCL_GRAPH_DUMP_FILE", in_folder("known.xml"));
  OK(tuttiSetDevice(device_of(s, rank)));
  ncclComm_t comm = join_processes(0, s->nranks, rank);
  OK(ncclCommDestroy(comm));
}

static void write_body(int rank, void *arg)
{
  (void)rank;
  read_machine(arg, in_folder("partial.xml"));
}

static void run_seated(const seats *s)
{
  PROCESSES(1, LIMIT, write_body, (void *)s);
  PROCESSES(s->nranks, LIMIT, seated_body, (void *)s);
}

// Channels of ranks on GPUs are those of host ranks in the places that the whole file describes.
static void channels_are_the_machines(void **state)
{
  (void)state;
  static const seats all[] = {
      {"dgx1v_8xV100_4nic", 8, 1, 1, false, true, true, 0},
      {"hgx_a100_8gpu_nvswitch_8nic", 8, 1, 1, false, true, true, 0},
      {"hgx_h100_8gpu_nvswitch_8nic", 8, 1, 1, false, true, true, 0},
      {"hgx_h100_8gpu_nvswitch_8nic", 8, 1, 1, true, true, true, 0},
      {"hgx_h100_8gpu_nvswitch_8nic", 8, 2, 1, false, true, true, 0},
      {"hgx_h100_8gpu_nvswitch_8nic", 6, 1, 2, false, true, true, 0},
      {"mnnvl2_gb200_4gpu_nvswitch_4nic", 4, 1, 1, false, true, true, 0},
      {"pcie_4gpu_2socket_sw", 4, 1, 1, false, true, true, 0},
  };
  for (size_t i = 0; i < TT_COUNT(all); i++) {
    run_seated(&all[i]);
    PROCESSES(all[i].nranks, LIMIT, file_body, (void *)&all[i]);
    same_text(in_folder("graphs.xml"), in_folder("known.xml"));
  }
}

// Without NVML a GPU is where sysfs and the file have it, and its driver says what it is.
static void without_nvml(void **state)
{
  (void)state;
  static const seats filed = {"hgx_h100_8gpu_nvswitch_8nic", 4, 1, 1, false, false, true, 0};
  static const seats alone = {"hgx_h100_8gpu_nvswitch_8nic", 4, 1, 2, false, false, false, 0};
  static const seats crowd = {"hgx_h100_8gpu_nvswitch_8nic", 8, 1, 8, false, false, false, 0};
  run_seated(&filed);
  assert_true(count_text(in_folder("topo.xml"), "dev=\"3\" sm=\"90\" rank=\"3\"") > 0);
  assert_int_equal(count_text(in_folder("topo.xml"), "<nvlink"), 0);
  run_seated(&alone);
  assert_int_equal(count_text(in_folder("topo.xml"), "<pci busid="), 2);
  assert_true(count_text(in_folder("topo.xml"), "<gpu dev=\"1\" sm=\"90\" rank=\"3\" gdr=\"0\"/>") > 0);
  run_seated(&crowd);
  assert_int_equal(count_text(in_folder("topo.xml"), "<pci busid="), 1);
  assert_int_equal(count_text(in_folder("topo.xml"), "<gpu dev=\"0\" sm=\"90\""), 8);
}

// Without a file either: the machine is what NVML says, on an unknown CPU.
static void without_file(void **state)
{
  (void)state;
  static const seats alone = {"dgx1v_8xV100_4nic", 8, 1, 1, false, true, false, 0};
  run_seated(&alone);
  assert_true(count_text(in_folder("topo.xml"), "<nvlink target=\"0000:1b:00.0\" count=\"2\" tclass=\"0x030200\"/>") >
              0);
  assert_true(count_text(in_folder("graphs.xml"), "<channel>") > 1);
}

// Ranks on GPUs and on the host in one communicator: each has its place.
static void with_hosts(void **state)
{
  (void)state;
  static const seats mixed = {"dgx1v_8xV100_4nic", 8, 1, 1, false, true, false, 3};
  run_seated(&mixed);
  assert_int_equal(count_text(in_folder("topo.xml"), "class=\"0x0b4000\""), 3);
  assert_int_equal(count_text(in_folder("topo.xml"), "sm=\"70\""), 5);
  assert_true(count_text(in_folder("topo.xml"), "<nvlink") > 0);
}

// A rank on the host device asks no NVML.
static void host_body(int rank, void *arg)
{
  const seats *s = arg;
  say_nvml(s, 0);
  say("NCCL_DEBUG", "INFO");
  say("NCCL_DEBUG_SUBSYS", "ALL");
  say("NCCL_DEBUG_FILE", in_folder("log"));
  ncclComm_t comm = join_processes(0, s->nranks, rank);
  CHECK(comm->topology->plain, "the host is not plain");
  OK(ncclCommDestroy(comm));
  CHECK(count_text(in_folder("log"), "Init COMPLETE") > 0 && count_text(in_folder("log"), "NVML:") == 0,
        "NVML was asked");
}

static void hosts_as_before(void **state)
{
  (void)state;
  static seats host = {"dgx1v_8xV100_4nic", 1, 1, 1, false, false, false, 0};
  PROCESSES(1, LIMIT, host_body, &host);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(channels_are_the_machines, open_folder, close_folder),
      cmocka_unit_test_setup_teardown(without_nvml, open_folder, close_folder),
      cmocka_unit_test_setup_teardown(without_file, open_folder, close_folder),
      cmocka_unit_test_setup_teardown(with_hosts, open_folder, close_folder),
      cmocka_unit_test_setup_teardown(hosts_as_before, open_folder, close_folder),
  };
  return RUN_TESTS("gpu_places", tests, argc, argv);
}
