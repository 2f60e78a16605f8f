// fuzz_graphs.c: any bytes as a document of graphs for a small machine: read, written again, connected over one and two
// nodes, modelled. The first byte of the input says whether channels begin at network cards.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "tools/model_choice.h"
#include "topo/model.h"

enum { GPUS = 4, NETS = 2 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
  if (!holds) {
    abort();
  }
}

static void no_note(void *arg, const tt_xml_node *at, const char *text)
{
  (void)arg, (void)at, (void)text;
}

// Four GPUs behind an NVSwitch, two cards. Made once, freed by nobody: the program is for this machine alone.
static const tt_topo *machine(const tt_paths **paths)
{
  static tt_topo *topo;
  static tt_paths *all;
  if (topo == NULL) {
    char text[4096];
    int n = snprintf(text, sizeof text,
                     "<system version=\"1\"><cpu numaid=\"0\" affinity=\"0f\" arch=\"x86_64\" vendor=\"GenuineIntel\" "
                     "familyid=\"6\" modelid=\"143\">");
    for (int i = 0; i < GPUS; i++) {
      n += snprintf(
          text + n, sizeof text - (size_t)n,
          "<pci busid=\"0000:%d0:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><gpu "
          "dev=\"%d\" sm=\"90\" "
          "rank=\"%d\" gdr=\"1\"><nvlink target=\"0000:90:00.0\" count=\"18\" tclass=\"0x068000\"/></gpu></pci>",
          i + 1, i, i);
    }
    for (int i = 0; i < NETS; i++) {
      n += snprintf(text + n, sizeof text - (size_t)n,
                    "<pci busid=\"0000:%d0:00.0\" class=\"0x020700\" link_speed=\"32.0 GT/s PCIe\" "
                    "link_width=\"16\"><nic><net name=\"net%d\" "
                    "dev=\"%d\" speed=\"400000\" port=\"1\" guid=\"0x%d\" maxconn=\"131072\" gdr=\"1\"/></nic></pci>",
                    i + 5, i, i, i + 1);
    }
    n += snprintf(text + n, sizeof text - (size_t)n, "</cpu></system>");
    tt_topo_rules rules = tt_topo_rules_default();
    tt_xml *xml = NULL;
    must(tt_xml_parse("machine", text, (size_t)n, &xml) == ncclSuccess);
    must(tt_topo_build(xml, no_note, NULL, &topo) == ncclSuccess);
    must(tt_paths_build(topo, &rules, &all) == ncclSuccess);
    tt_xml_destroy(xml);
  }
  *paths = all;
  return topo;
}

// What every rank and channel is told must make sense.
static void ask(const tt_connect *c)
{
  int ring[2 * GPUS];
  for (int ch = 0; ch < c->nchannels; ch++) {
    tt_connect_ring(c, ch, 0, ring);
    for (int i = 0; i < c->nranks; i++) {
      must(ring[i] >= 0 && ring[i] < c->nranks);
      must(tt_connect_ring_step(c, ch, ring[i], 1) == ring[(i + 1) % c->nranks]);
      tt_tree_place t = tt_connect_tree(c, ch, i);
      must(t.up >= -1 && t.up < c->nranks);
      for (int k = 0; k < TT_TREE_DOWNS; k++) {
        must(t.down[k] >= -1 && t.down[k] < c->nranks);
      }
    }
  }
}

static void connect(const tt_topo *topo, const tt_paths *paths, const tt_plan_shape *shape, int nnodes)
{
  tt_topo_rules rules = tt_topo_rules_default();
  int node_of[2 * GPUS], shape_of[2] = {0, 0};
  for (int i = 0; i < nnodes * GPUS; i++) {
    node_of[i] = i / GPUS;
  }
  tt_connect_input in = {.nranks = nnodes * GPUS,
                         .nnodes = nnodes,
                         .nshapes = 1,
                         .node_of = node_of,
                         .shape_of = shape_of,
                         .shapes = shape,
                         .machine = tt_plan_look(topo, paths, &rules)};
  tt_connect *c = NULL;
  tt_model m;
  if (tt_connect_create(&in, &c) == ncclSuccess) {
    ask(c);
    tt_model_choice choice;
    if (tt_model_make(&(tt_model_input){.connect = c}, &m) == ncclSuccess) {
      (void)tt_model_choose(&m, &(tt_model_op){.func = TT_MODEL_ALL_REDUCE, .bytes = 1 << 20}, &choice);
    }
    tt_connect_destroy(c);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  const tt_paths *paths;
  const tt_topo *topo = machine(&paths);
  tt_xml *xml = NULL, *back = NULL;
  tt_graphs graphs = {0};
  tt_plan_shape shape = {0};
  if (size == 0 || tt_xml_parse("fuzz.xml", data + 1, size - 1, &xml) != ncclSuccess) {
    return 0;
  }
  bool inter = data[0] & 1;
  if (tt_graphs_from_xml(topo, xml, inter, &graphs) == ncclSuccess) {
    must(tt_graphs_to_xml(topo, &graphs, &back) == ncclSuccess);
    must(tt_plan_shape_make(topo, &graphs, &shape) == ncclSuccess);
    connect(topo, paths, &shape, inter ? 2 : 1);
  }
  tt_plan_shape_clear(&shape);
  tt_graphs_clear(&graphs);
  tt_xml_destroy(back);
  tt_xml_destroy(xml);
  return 0;
}
