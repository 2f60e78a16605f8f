// lint_graphs.c: files of channels: what only shows across elements.
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "lint_priv.h"
#include "topo/graph.h"

static const xp_reason twice = {XP_ERROR, "the file does not load", "keep one of them"};
static const xp_reason miscounted = {XP_ERROR, "the file does not load", "write the number of <channel> elements"};
static const xp_reason gpu_twice = {XP_ERROR, "the file does not load: a channel has every GPU once",
                                    "correct the order"};
static const xp_reason nets_odd = {XP_ERROR, "a channel comes by one port and leaves by one",
                                   "write a <net> before the GPUs and one behind them, or none"};
static const xp_reason other_gpus = {XP_ERROR, "the file does not load: all channels have the same GPUs",
                                     "correct the order"};
static const xp_reason no_speed = {
    XP_WARNING, "the channels count as if they carried nothing, and no algorithm with them is chosen",
    "write the GB/s of one channel"};
static const xp_reason high_speed = {
    XP_WARNING, "speeds are GB/s of one channel; predicted times would be far too short", "correct the unit"};
static const xp_reason not_same = {XP_WARNING, "samechannels says that all channels have one order",
                                   "set samechannels to 0"};
static const xp_reason wrong_pattern = {XP_WARNING, "the graph of this id has another pattern",
                                        "correct id or pattern"};

static bool is(const tt_xml_node *x, const char *tag)
{
  return strcmp(x->tag, tag) == 0;
}

// A GPU of a channel as a number; files of older versions have no rank.
static uint64_t gpu_of(const tt_xml_node *x)
{
  const char *dev = tt_xml_get(x, "dev");
  long long rank = xp_number(x, "rank", -1);
  return rank >= 0 ? (uint64_t)rank : dev != NULL ? strtoull(dev, NULL, 16) : UINT64_MAX;
}

typedef struct order {
  uint64_t *sorted;
  int gpus, nets;
  uint64_t hash, set; // of the order, and of its GPUs in any order
} order;

static int compare_gpus(const void *a, const void *b)
{
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static void read_order(xp_findings *f, const tt_xml_node *channel, order *o)
{
  o->gpus = o->nets = 0;
  for (const tt_xml_node *x = channel->child; x != NULL; x = x->next) {
    o->nets += is(x, "net");
    if (is(x, "gpu")) {
      o->sorted[o->gpus++] = gpu_of(x);
    }
  }
  o->hash = tt_hash(o->sorted, (size_t)o->gpus * sizeof(uint64_t), 1);
  qsort(o->sorted, (size_t)o->gpus, sizeof(uint64_t), compare_gpus);
  o->set = tt_hash(o->sorted, (size_t)o->gpus * sizeof(uint64_t), 1);
  for (int i = 1; i < o->gpus; i++) {
    if (o->sorted[i] == o->sorted[i - 1]) {
      xp_find(f, channel, &gpu_twice, "GPU %llu is in this channel twice", (unsigned long long)o->sorted[i]);
      break;
    }
  }
}

static void check_channels(xp_findings *f, const tt_xml_node *graph, uint64_t *room, int *nets)
{
  order first = {.sorted = room}, now = {.sorted = room};
  long long pattern = xp_number(graph, "pattern", 0);
  bool heads = pattern == TT_PATTERN_NVLS || pattern == TT_PATTERN_COLLNET_DIRECT, differ = false;
  int count = 0;
  for (const tt_xml_node *c = tt_xml_child(graph, "channel"); c != NULL; c = tt_xml_sibling(c, "channel"), count++) {
    read_order(f, c, &now);
    *nets += now.nets;
    if (count == 0) {
      first = now;
    }
    if (now.nets != 0 && now.nets != 2) {
      xp_find(f, c, &nets_odd, "%d network port%s", now.nets, now.nets == 1 ? "" : "s");
    }
    if (!heads && (now.gpus != first.gpus || now.set != first.set)) {
      xp_find(f, c, &other_gpus, "%d GPUs; not those of the first channel, which has %d", now.gpus, first.gpus);
    }
    differ |= now.hash != first.hash;
  }
  long long told = xp_number(graph, "nchannels", count);
  if (told != count) {
    xp_find(f, graph, &miscounted, "nchannels=\"%lld\", but there are %d", told, count);
  }
  if (!heads && differ && xp_number(graph, "samechannels", 0) == 1) {
    xp_find(f, graph, &not_same, "samechannels=\"1\", but orders differ");
  }
}

static double decimal(const tt_xml_node *x, const char *name)
{
  const char *text = tt_xml_get(x, name);
  return text != NULL ? strtod(text, NULL) : 0;
}

static void check_speeds(xp_findings *f, const tt_xml_node *graph, int nets)
{
  static const char *const names[] = {"speedintra", "speedinter"};
  for (int i = 0; i < 2; i++) {
    double speed = decimal(graph, names[i]);
    if (!(speed > 0.05) && (i == 0 || nets > 0)) {
      xp_find(f, graph, &no_speed, "%s=\"%g\" of a graph with channels", names[i], speed);
    } else if (speed > 2000) {
      xp_find(f, graph, &high_speed, "%s=\"%g\"", names[i], speed);
    }
  }
}

static void check_graph(xp_findings *f, const tt_xml_node *graph, uint64_t *room, int *seen)
{
  long long id = xp_number(graph, "id", -1), pattern = xp_number(graph, "pattern", -1);
  int nets = 0;
  if (id >= 0 && id < TT_GRAPH_KINDS) {
    if (seen[id] > 0) {
      xp_find(f, graph, &twice, "id=\"%lld\": the graph at line %d has it too", id, seen[id]);
    }
    seen[id] = graph->line;
    bool ring = pattern == TT_PATTERN_RING, nvls = pattern == TT_PATTERN_NVLS,
         direct = pattern == TT_PATTERN_COLLNET_DIRECT;
    bool fits = id == 0 ? ring : id == 3 ? nvls : id == 4 ? direct : !ring && !nvls && !direct;
    if (pattern > 0 && !fits) {
      xp_find(f, graph, &wrong_pattern, "id=\"%lld\" with pattern=\"%lld\"", id, pattern);
    }
  }
  check_channels(f, graph, room, &nets);
  if (tt_xml_child(graph, "channel") != NULL) {
    check_speeds(f, graph, nets);
  }
}

void xp_lint_graphs(xp_findings *f, const tt_xml *xml)
{
  int seen[TT_GRAPH_KINDS] = {0};
  uint64_t *room = tt_calloc((size_t)xml->nnodes + 1, sizeof(*room));
  f->no_memory |= room == NULL;
  for (const tt_xml_node *x = tt_xml_child(xml->root, "graph"); x != NULL && room != NULL;
       x = tt_xml_sibling(x, "graph")) {
    check_graph(f, x, room, seen);
  }
  tt_free(room);
}
