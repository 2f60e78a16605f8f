// fuzz_sysfs.c: any bytes as the files of a machine (a capture): GPUs, cards and ranks found in it, a document, its
// model; what is gathered from it describes the same machine.
#include <stdint.h>
#include <stdlib.h>

#include "base/util.h"
#include "tools/capture.h"
#include "tools/gather.h"
#include "topo/paths.h"
#include "topo/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_PORTS = 16, MAX_RANKS = 16 };

static void must(int holds)
{
  if (!holds) {
    abort();
  }
}

// Notes are many; nobody reads them here.
static void no_note(void *arg, const tt_xml_node *at, const char *text)
{
  (void)arg, (void)at, (void)text;
}

// The machine's GPUs, and one rank on the host device.
static int list_ranks(const tt_sysfs *machine, tt_source_rank *ranks)
{
  static char bus[TT_NVML_MAX_GPUS][16];
  int count = 0;
  must(tt_source_gpus(machine, bus, &count) == ncclSuccess);
  count = TT_MIN(count, MAX_RANKS - 1);
  for (int i = 0; i < count; i++) {
    ranks[i] = (tt_source_rank){.bus_id = bus[i], .rank = i, .gdr = 1};
  }
  ranks[count] = (tt_source_rank){.rank = count, .dev = 1000, .numa = -1};
  return count + 1;
}

static int list_nets(const tt_tree *tree, tt_source_net *nets)
{
  static tt_source_port ports[MAX_PORTS];
  static char names[MAX_PORTS][8];
  int count = 0;
  must(tt_source_ports(tree, ports, MAX_PORTS, &count) == ncclSuccess);
  for (int i = 0; i < count; i++) { // the network layer gives each port a name of its own
    names[i][0] = 'n';
    names[i][1] = (char)('a' + i);
    nets[i] = (tt_source_net){.name = names[i],
                              .pci_path = ports[i].pci_path,
                              .speed = ports[i].speed,
                              .port = ports[i].port,
                              .rail = -1,
                              .plane = -1};
  }
  return count;
}

// Returns the document's text. What /var/run says may be wrong: then there is none.
static char *detect(const tt_tree *tree)
{
  tt_source_rank ranks[MAX_RANKS];
  tt_source_net nets[MAX_PORTS];
  tt_source in = {.machine = {.tree = tree, .gpu = tt_gpu_element, .host_hash = 1}, .ranks = ranks, .nets = nets};
  tt_xml *xml = NULL;
  tt_topo *topo = NULL;
  char *text = NULL;
  size_t size = 0;
  in.nranks = list_ranks(&in.machine, ranks);
  in.nnets = list_nets(tree, nets);
  if (tt_source_detect(&in, &xml) != ncclSuccess) {
    return NULL;
  }
  must(tt_xml_text(xml, &text, &size) == ncclSuccess);
  // What was detected alone can always be understood; a file's part need not.
  char buf[2];
  bool alone = tt_tree_read(tree, TT_SOURCE_DEFAULT_FILE, buf, sizeof(buf)) <= 0;
  ncclResult_t res = tt_topo_build(xml, no_note, NULL, &topo);
  must(res == ncclSuccess || !alone);
  if (res == ncclSuccess && alone) {
    must(tt_topo_count(topo, TT_NODE_GPU) == in.nranks && tt_topo_count(topo, TT_NODE_NET) == in.nnets);
  }
  tt_topo_destroy(topo);
  tt_xml_destroy(xml);
  return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  tt_tree *tree = NULL, *again = NULL;
  if (tt_capture_parse("fuzz.txt", data, size, &tree) != ncclSuccess) {
    return 0;
  }
  char *once = detect(tree), *capture = NULL;
  tt_sysfs machine = {.tree = tree, .gpu = tt_gpu_element};
  must(tt_gather(&machine, &capture, &size) == ncclSuccess);
  must(tt_capture_parse("again.txt", capture, size, &again) == ncclSuccess);
  char *twice = detect(again);
  must(twice != NULL);
  tt_free(once);
  tt_free(twice);
  tt_free(capture);
  tt_tree_close(tree);
  tt_tree_close(again);
  return 0;
}
