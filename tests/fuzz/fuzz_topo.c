// fuzz_topo.c: any bytes as a machine: document, round trip, model, paths, groups, and on a small one a short search.
// What is accepted must keep the invariants.
#include <stdint.h>
#include <stdlib.h>

#include "base/util.h"
#include "tools/graph_check.h"
#include "topo/graph.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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

static void round_trip(const tt_xml *xml)
{
  char *once = NULL, *twice = NULL;
  size_t size = 0, again = 0;
  tt_xml *back = NULL;
  must(tt_xml_text(xml, &once, &size) == ncclSuccess);
  if (size <= TT_XML_MAX_BYTES) {
    must(tt_xml_parse("back", once, size, &back) == ncclSuccess);
    must(tt_xml_same(xml->root, back->root));
    must(tt_xml_text(back, &twice, &again) == ncclSuccess && size == again && memcmp(once, twice, size) == 0);
  }
  tt_free(once);
  tt_free(twice);
  tt_xml_destroy(back);
}

// What is found must hold; that nothing can be found is said by an error.
static void find_graphs(const tt_topo *topo, const tt_paths *paths, const tt_topo_rules *rules)
{
  tt_graphs graphs = {0};
  for (int inter = 0; inter < 2; inter++) {
    tt_search_options opt = {.inter = inter != 0, .cross_nic = 2, .collnet = true, .nvls = true, .max_steps = 40};
    if (tt_graphs_search(topo, paths, rules, &opt, &graphs) == ncclSuccess) {
      for (int k = 0; k < TT_GRAPH_KINDS; k++) {
        must(graphs.graph[k].nchannels == 0 || tt_graph_check(topo, paths, &graphs.graph[k]) == ncclSuccess);
      }
    }
    tt_graphs_clear(&graphs);
  }
}

static void find_paths(const tt_topo *topo)
{
  tt_topo_rules rules = tt_topo_rules_default();
  tt_paths *paths = NULL;
  if (tt_topo_ends(topo) > 200) {
    return; // only slow
  }
  must(tt_paths_build(topo, &rules, &paths) == ncclSuccess);
  must(tt_paths_check(topo, paths) == ncclSuccess);
  int group[TT_PATHS_MAX_ENDS];
  int groups = tt_paths_groups(topo, paths, group);
  must(groups <= tt_topo_count(topo, TT_NODE_GPU));
  if (groups == 1 && tt_topo_ends(topo) <= 10) {
    find_graphs(topo, paths, &rules);
  }
  tt_paths_destroy(paths);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  tt_xml *xml = NULL, *more = NULL;
  tt_topo *topo = NULL;
  if (tt_xml_parse("fuzz.xml", data, size, &xml) != ncclSuccess) {
    return 0;
  }
  round_trip(xml);
  if (tt_topo_build(xml, no_note, NULL, &topo) == ncclSuccess) {
    find_paths(topo);
    tt_topo_destroy(topo);
  }
  // A document joined with itself is itself.
  must(tt_xml_parse("more.xml", data, size, &more) == ncclSuccess);
  ncclResult_t res = tt_topo_fuse(xml, more);
  must(res == ncclSuccess && tt_xml_same(xml->root, more->root));
  tt_xml_destroy(more);
  tt_xml_destroy(xml);
  return 0;
}
