// shapes.c: see shapes.h.
#include "comm/shapes.h"

#include "base/util.h"

enum { SHAPES_MAGIC = 0x74747331, MOST_RANKS = INT16_MAX };

// Figures of a plain node: what the host device does is measured elsewhere (coll/cost.h), so these only say which way
// is the longer one.
#define PLAIN_BW 20.0f
#define PLAIN_FAR_BW 10.0f // between NUMA nodes

// ---- Memory ----

ncclResult_t tt_node_shapes_room(int nranks, int ngroups, tt_node_shapes *out)
{
  *out = (tt_node_shapes){.nranks = nranks, .ngroups = ngroups};
  out->group_of = tt_calloc((size_t)nranks, sizeof(int));
  out->group = tt_calloc((size_t)ngroups, sizeof(tt_node_group));
  return out->group_of != NULL && out->group != NULL
             ? ncclSuccess
             : tt_fail(ncclSystemError, "no memory for the graphs of %d ranks", nranks);
}

void tt_node_shapes_clear(tt_node_shapes *s)
{
  for (int g = 0; s->group != NULL && g < s->ngroups; g++) {
    tt_plan_shape_clear(&s->group[g].shape);
  }
  tt_free(s->group_of);
  tt_free(s->group);
  *s = (tt_node_shapes){0};
}

// ---- Plain nodes ----

// How far the ranks are from each other: on one device, on one NUMA node, farther.
static int plain_type(const tt_source_rank *ranks, int nranks)
{
  int type = TT_PATH_LOC;
  for (int i = 1; i < nranks; i++) {
    int t = ranks[i].numa != ranks[0].numa ? TT_PATH_SYS : ranks[i].dev != ranks[0].dev ? TT_PATH_PHB : TT_PATH_LOC;
    type = TT_MAX(type, t);
  }
  return type;
}

static tt_plan_machine plain_machine(bool inter)
{
  tt_plan_machine m = {.cpu_arch = TT_CPU_UNKNOWN, .net_bw = inter ? PLAIN_FAR_BW : 0};
#if defined(__x86_64__)
  m.cpu_arch = TT_CPU_X86;
#elif defined(__aarch64__)
  m.cpu_arch = TT_CPU_ARM;
#endif
  return m;
}

ncclResult_t tt_node_shapes_plain(const tt_source_rank *ranks, int nranks, bool inter, tt_node_shapes *out)
{
  tt_node_shapes s = {0};
  ncclResult_t res = ncclSuccess;
  TT_TRY_GOTO(tt_node_shapes_room(nranks, 1, &s), res);
  tt_node_group *group = &s.group[0];
  int *order;
  TT_TRY_GOTO(TT_NEW(order, nranks, "no memory for the order of %d ranks", nranks), res);
  group->shape.memory = order;
  for (int i = 0; i < nranks; i++) {
    order[i] = i; // as the layout has them: what is logged is what is run
  }
  int type = plain_type(ranks, nranks);
  float bw = type == TT_PATH_SYS ? PLAIN_FAR_BW : PLAIN_BW;
  tt_plan_graph g = {.pattern = TT_PATTERN_RING,
                     .nchannels = 1,
                     .same_channels = 1,
                     .type_intra = type,
                     .type_inter = inter ? TT_PATH_PHB : TT_PATH_PIX,
                     .bw_intra = bw,
                     .bw_inter = inter ? PLAIN_FAR_BW : bw,
                     .gpus = order};
  group->shape.ngpus = nranks;
  group->shape.graph[TT_GRAPH_RING] = g;
  g.pattern = TT_PATTERN_TREE;
  group->shape.graph[TT_GRAPH_TREE] = g;
  group->machine = plain_machine(inter);
  group->p2p_wanted = 1;
  *out = s;
  return ncclSuccess;
fail:
  tt_node_shapes_clear(&s);
  return res;
}

// ---- Bytes ----

// No gaps in these structs: they are sent as they are, and compared.
typedef struct wire_node {
  int32_t magic, nranks, ngroups;
} wire_node;

typedef struct wire_group {
  int32_t ngpus, p2p_wanted, cc_min, cc_max, cpu_arch, cpu_vendor, nvswitch;
  float net_bw;
} wire_group;

typedef struct wire_graph {
  int32_t pattern, nchannels, cross_nic, same_channels, type_intra, type_inter, nnets;
  float bw_intra, bw_inter, latency_inter;
} wire_graph;

_Static_assert(sizeof(wire_node) == 12 && sizeof(wire_group) == 32 && sizeof(wire_graph) == 40,
               "bytes that ranks tell each other");

// Where bytes go or come from. bytes NULL: they are only counted.
typedef struct wire {
  char *bytes;
  size_t at, size;
  bool bad; // more was asked for than there is
} wire;

static void shapes_put(wire *w, const void *data, size_t size)
{
  if (w->bytes != NULL) {
    memcpy(w->bytes + w->at, data, size);
  }
  w->at += size;
}

static void put_numbers(wire *w, const int *numbers, int count)
{
  for (int i = 0; i < count; i++) {
    int16_t n = (int16_t)numbers[i];
    shapes_put(w, &n, sizeof(n));
  }
}

static void put_graph(wire *w, const tt_plan_graph *g, int ngpus)
{
  wire_graph x = {.pattern = g->pattern,
                  .nchannels = g->nchannels,
                  .cross_nic = g->cross_nic,
                  .same_channels = g->same_channels,
                  .type_intra = g->type_intra,
                  .type_inter = g->type_inter,
                  .nnets = g->nets != NULL ? 2 * g->nchannels : 0,
                  .bw_intra = g->bw_intra,
                  .bw_inter = g->bw_inter,
                  .latency_inter = g->latency_inter};
  shapes_put(w, &x, sizeof(x));
  put_numbers(w, g->gpus, g->nchannels * ngpus);
  put_numbers(w, g->nets, x.nnets);
}

static void shapes_put_all(wire *w, const tt_node_shapes *s)
{
  shapes_put(w, &(wire_node){.magic = SHAPES_MAGIC, .nranks = s->nranks, .ngroups = s->ngroups}, sizeof(wire_node));
  put_numbers(w, s->group_of, s->nranks);
  for (int g = 0; g < s->ngroups; g++) {
    const tt_node_group *group = &s->group[g];
    const tt_plan_machine *m = &group->machine;
    wire_group x = {.ngpus = group->shape.ngpus,
                    .p2p_wanted = group->p2p_wanted,
                    .cc_min = m->cc_min,
                    .cc_max = m->cc_max,
                    .cpu_arch = m->cpu_arch,
                    .cpu_vendor = m->cpu_vendor,
                    .nvswitch = m->nvswitch,
                    .net_bw = m->net_bw};
    shapes_put(w, &x, sizeof(x));
    for (int k = 0; k < TT_GRAPH_KINDS; k++) {
      put_graph(w, &group->shape.graph[k], group->shape.ngpus);
    }
  }
}

ncclResult_t tt_node_shapes_write(const tt_node_shapes *s, char **out, size_t *size)
{
  wire w = {0};
  if (s->nranks > MOST_RANKS) {
    return tt_fail(ncclInvalidUsage, "%d ranks on one node: at most %d are possible", s->nranks, MOST_RANKS);
  }
  shapes_put_all(&w, s);
  w.bytes = tt_calloc(1, w.at);
  if (w.bytes == NULL) {
    return tt_fail(ncclSystemError, "no memory for %zu bytes of graphs", w.at);
  }
  *size = w.at;
  w.at = 0;
  shapes_put_all(&w, s);
  *out = w.bytes;
  return ncclSuccess;
}

static void shapes_get(wire *w, void *data, size_t size)
{
  if (w->bad || size > w->size - w->at) {
    w->bad = true;
    memset(data, 0, size);
    return;
  }
  memcpy(data, w->bytes + w->at, size);
  w->at += size;
}

static void take_numbers(wire *w, int *numbers, int count)
{
  for (int i = 0; i < count && !w->bad; i++) {
    int16_t n;
    shapes_get(w, &n, sizeof(n));
    numbers[i] = n;
  }
}

static wire_graph take_head(wire *w)
{
  wire_graph x;
  shapes_get(w, &x, sizeof(x));
  w->bad |= x.nchannels < 0 || x.nchannels > TT_GRAPH_MAX_CHANNELS || (x.nnets != 0 && x.nnets != 2 * x.nchannels) ||
            x.pattern < 0 || x.pattern > TT_PATTERN_COLLNET_DIRECT || x.type_intra < 0 ||
            x.type_intra >= TT_PATH_TYPES || x.type_inter < 0 || x.type_inter >= TT_PATH_TYPES;
  return x;
}

// How many numbers the graphs of a group have, from where the wire is; never more than there are bytes for.
static size_t count_numbers(wire w, int ngpus)
{
  size_t count = 0;
  for (int k = 0; k < TT_GRAPH_KINDS && !w.bad; k++) {
    wire_graph x = take_head(&w);
    size_t n = w.bad ? 0 : (size_t)x.nchannels * (size_t)ngpus + (size_t)x.nnets;
    w.bad |= n > (w.size - w.at) / sizeof(int16_t);
    w.at += w.bad ? 0 : n * sizeof(int16_t);
    count += w.bad ? 0 : n;
  }
  return count;
}

// `memory` has room for all graphs' numbers; returns what is behind this graph's.
static int *take_graph(wire *w, tt_plan_graph *g, int ngpus, int *memory)
{
  wire_graph x = take_head(w);
  bool nets = x.nnets != 0;
  if (w->bad || (size_t)x.nchannels * (size_t)ngpus + (size_t)x.nnets > (w->size - w->at) / sizeof(int16_t)) {
    w->bad = true;
    return memory;
  }
  *g = (tt_plan_graph){.pattern = x.pattern,
                       .nchannels = x.nchannels,
                       .cross_nic = x.cross_nic,
                       .same_channels = x.same_channels,
                       .type_intra = x.type_intra,
                       .type_inter = x.type_inter,
                       .bw_intra = x.bw_intra,
                       .bw_inter = x.bw_inter,
                       .latency_inter = x.latency_inter};
  if (x.nchannels > 0) {
    g->gpus = memory;
    take_numbers(w, memory, x.nchannels * ngpus);
    memory += x.nchannels * ngpus;
    g->nets = nets ? memory : NULL;
    take_numbers(w, memory, x.nnets);
    memory += x.nnets;
  }
  return memory;
}

static ncclResult_t take_group(wire *w, tt_node_group *group, int nranks)
{
  wire_group x;
  shapes_get(w, &x, sizeof(x));
  w->bad |= x.ngpus < 1 || x.ngpus > nranks;
  if (w->bad) {
    return ncclSuccess; // said by the caller
  }
  group->p2p_wanted = x.p2p_wanted;
  group->machine = (tt_plan_machine){.cc_min = x.cc_min,
                                     .cc_max = x.cc_max,
                                     .cpu_arch = x.cpu_arch,
                                     .cpu_vendor = x.cpu_vendor,
                                     .nvswitch = x.nvswitch != 0,
                                     .net_bw = x.net_bw};
  group->shape.ngpus = x.ngpus;
  int *memory = group->shape.memory = tt_calloc(count_numbers(*w, x.ngpus) + 1, sizeof(int));
  if (memory == NULL) {
    return tt_fail(ncclSystemError, "no memory for the graphs of %d ranks", nranks);
  }
  for (int k = 0; k < TT_GRAPH_KINDS && !w->bad; k++) {
    memory = take_graph(w, &group->shape.graph[k], x.ngpus, memory);
  }
  return ncclSuccess;
}

static ncclResult_t shapes_get_all(wire *w, tt_node_shapes *s)
{
  wire_node x;
  shapes_get(w, &x, sizeof(x));
  w->bad |= x.magic != SHAPES_MAGIC || x.nranks < 1 || x.nranks > MOST_RANKS || x.ngroups < 1 || x.ngroups > x.nranks;
  if (w->bad) {
    return ncclSuccess;
  }
  TT_TRY(tt_node_shapes_room(x.nranks, x.ngroups, s));
  take_numbers(w, s->group_of, s->nranks);
  for (int i = 0; i < s->nranks; i++) {
    w->bad |= s->group_of[i] < 0 || s->group_of[i] >= s->ngroups;
  }
  for (int g = 0; g < s->ngroups && !w->bad; g++) {
    TT_TRY(take_group(w, &s->group[g], s->nranks));
  }
  return ncclSuccess;
}

ncclResult_t tt_node_shapes_read(const char *bytes, size_t size, tt_node_shapes *out)
{
  wire w = {.bytes = (char *)(uintptr_t)bytes, .size = size};
  tt_node_shapes s = {0};
  ncclResult_t res = shapes_get_all(&w, &s);
  if (res == ncclSuccess && (w.bad || w.at != size)) {
    res = tt_fail(ncclInternalError, "a node's graphs came as %zu bytes that are none", size);
  }
  if (res != ncclSuccess) {
    tt_node_shapes_clear(&s);
    return res;
  }
  *out = s;
  return ncclSuccess;
}
