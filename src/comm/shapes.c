// shapes.c: see shapes.h.
#include "comm/shapes.h"

#include "base/util.h"
#include "topo/pack.h"

enum { SHAPES_MAGIC = 0x74747333, MOST_RANKS = INT16_MAX };

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
    tt_free(s->group[g].packed_memory);
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

// Where bytes go or come from. bytes NULL: they are only counted.
typedef struct wire {
  char *bytes;
  size_t at, size;
  bool reads; // else it writes
  bool bad;   // more was asked for than there is, or something cannot be
  int *room;  // for the numbers of graphs that are read,
  int *end;   // up to here
} wire;

static void wire_move(wire *w, void *data, size_t size)
{
  if (w->reads && (w->bad || size > w->size - w->at)) {
    w->bad = true;
    memset(data, 0, size);
    return;
  }
  if (w->reads) {
    memcpy(data, w->bytes + w->at, size);
  } else if (w->bytes != NULL) {
    memcpy(w->bytes + w->at, data, size);
  }
  w->at += size;
}

// A number or a struct without gaps.
#define WIRE(w, x) wire_move((w), &(x), sizeof(x))

static void wire_numbers(wire *w, const int *numbers, int count)
{
  for (int i = 0; i < count; i++) {
    int16_t n = (int16_t)(w->reads ? 0 : numbers[i]);
    WIRE(w, n);
    if (w->reads) {
      ((int *)(uintptr_t)numbers)[i] = n;
    }
  }
}

// Checks what was read of a graph, and takes the place of its numbers from the room.
static void wire_take_room(wire *w, tt_plan_graph *g, int ngpus, int nnets)
{
  w->bad |= g->nchannels < 0 || g->nchannels > TT_GRAPH_MAX_CHANNELS || (nnets != 0 && nnets != 2 * g->nchannels) ||
            g->pattern < 0 || g->pattern > TT_PATTERN_COLLNET_DIRECT || g->type_intra < 0 ||
            g->type_intra >= TT_PATH_TYPES || g->type_inter < 0 || g->type_inter >= TT_PATH_TYPES;
  size_t count = w->bad ? 0 : (size_t)g->nchannels * (size_t)ngpus + (size_t)nnets;
  w->bad |= count > (size_t)(w->end - w->room);
  g->gpus = !w->bad && g->nchannels > 0 ? w->room : NULL;
  g->nets = !w->bad && nnets > 0 ? w->room + g->nchannels * ngpus : NULL;
  w->room += w->bad ? 0 : count;
}

static void wire_graph(wire *w, tt_plan_graph *g, int ngpus)
{
  int nnets = g->nets != NULL ? 2 * g->nchannels : 0;
  _Static_assert(offsetof(tt_plan_graph, gpus) == 40, "nine numbers, which are sent as they are, and a gap");
  wire_move(w, g, offsetof(tt_plan_graph, latency_inter) + sizeof g->latency_inter);
  WIRE(w, nnets);
  if (w->reads) {
    wire_take_room(w, g, ngpus, nnets);
  }
  if (!w->bad) {
    wire_numbers(w, g->gpus, g->nchannels * ngpus);
    wire_numbers(w, g->nets, nnets);
  }
}

static void wire_packed(wire *w, tt_node_group *group)
{
  int npacked = group->npacked;
  WIRE(w, npacked);
  w->bad |= npacked < 0 || npacked > TT_PACK_TREES;
  size_t count = w->bad ? 0 : (size_t)npacked * (size_t)group->shape.ngpus;
  w->bad |= w->reads && count > (size_t)(w->end - w->room);
  if (w->reads && !w->bad) {
    group->npacked = npacked;
    group->packed = npacked > 0 ? w->room : NULL;
    w->room += count;
  }
  wire_numbers(w, group->packed, w->bad ? 0 : (int)count);
}

static void wire_group(wire *w, tt_node_group *group, int nranks)
{
  tt_plan_machine *m = &group->machine;
  int nvswitch = m->nvswitch;
  WIRE(w, group->shape.ngpus);
  WIRE(w, group->p2p_wanted);
  WIRE(w, m->cc_min);
  WIRE(w, m->cc_max);
  WIRE(w, m->cpu_arch);
  WIRE(w, m->cpu_vendor);
  WIRE(w, nvswitch);
  WIRE(w, m->net_bw);
  if (w->reads) {
    m->nvswitch = nvswitch != 0;
  }
  w->bad |= group->shape.ngpus < 1 || group->shape.ngpus > nranks;
  for (int k = 0; k < TT_GRAPH_KINDS && !w->bad; k++) {
    wire_graph(w, &group->shape.graph[k], group->shape.ngpus);
  }
  if (!w->bad) {
    wire_packed(w, group);
  }
}

// Room for the numbers of all graphs: what is left of the bytes but for the heads.
static ncclResult_t wire_make_room(wire *w, tt_node_shapes *s)
{
  size_t heads = (size_t)s->ngroups * (9 + TT_GRAPH_KINDS * 10) * sizeof(int), left = w->size - w->at;
  w->bad |= left < heads;
  size_t count = w->bad ? 0 : (left - heads) / sizeof(int16_t);
  TT_TRY(TT_NEW(w->room, count + 1, "no memory for the graphs of %d ranks", s->nranks));
  s->group[0].shape.memory = w->room; // the first group's, for all
  w->end = w->room + count;
  return ncclSuccess;
}

// Both ways. Writing changes nothing in *s. Bad bytes are said by the caller.
static ncclResult_t wire_all(wire *w, tt_node_shapes *s)
{
  int magic = SHAPES_MAGIC, nranks = s->nranks, ngroups = s->ngroups;
  WIRE(w, magic);
  WIRE(w, nranks);
  WIRE(w, ngroups);
  w->bad |= magic != SHAPES_MAGIC || nranks < 1 || nranks > MOST_RANKS || ngroups < 1 || ngroups > nranks;
  if (w->reads && !w->bad) {
    TT_TRY(tt_node_shapes_room(nranks, ngroups, s));
  }
  wire_numbers(w, s->group_of, w->bad ? 0 : nranks);
  for (int i = 0; i < nranks && !w->bad; i++) {
    w->bad |= s->group_of[i] < 0 || s->group_of[i] >= ngroups;
  }
  if (w->reads && !w->bad) {
    TT_TRY(wire_make_room(w, s));
  }
  for (int g = 0; g < ngroups && !w->bad; g++) {
    wire_group(w, &s->group[g], nranks);
  }
  return ncclSuccess;
}

ncclResult_t tt_node_shapes_write(const tt_node_shapes *s, char **out, size_t *size)
{
  tt_node_shapes *same = (tt_node_shapes *)(uintptr_t)s;
  wire w = {.reads = false};
  if (s->nranks > MOST_RANKS) {
    return tt_fail(ncclInvalidUsage, "%d ranks on one node: at most %d are possible", s->nranks, MOST_RANKS);
  }
  TT_TRY(wire_all(&w, same));
  TT_TRY(TT_NEW(w.bytes, w.at, "no memory for %zu bytes of graphs", w.at));
  w.at = 0;
  TT_TRY(wire_all(&w, same));
  *size = w.at;
  *out = w.bytes;
  return ncclSuccess;
}

ncclResult_t tt_node_shapes_read(const char *bytes, size_t size, tt_node_shapes *out)
{
  wire w = {.bytes = (char *)(uintptr_t)bytes, .size = size, .reads = true};
  tt_node_shapes s = {0};
  ncclResult_t res = wire_all(&w, &s);
  if (res == ncclSuccess && (w.bad || w.at != size)) {
    res = tt_fail(ncclInternalError, "a node has sent %zu bytes that are not its graphs", size);
  }
  if (res != ncclSuccess) {
    tt_node_shapes_clear(&s);
    return res;
  }
  *out = s;
  return ncclSuccess;
}
