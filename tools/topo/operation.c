// operation.c: functions, types, operations and sizes of the command line, as the perf programs name them.
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/param.h"
#include "base/util.h"
#include "commands.h"
#include "topo/search_priv.h"

static const char *const type_names[] = {
#define T(id, word, ...) [nccl##id] = word,
#include "base/types.def"
};
static const char *const op_names[] = {"sum", "prod", "max", "min", "avg", "mulsum"};
enum { DEFAULT_TYPE = ncclFloat32, MULSUM = 5 };

typedef struct list {
  const char *const *names;
  int count;
} list;

static const char *list_at(void *arg, int i)
{
  const list *l = arg;
  return i < l->count ? l->names[i] : NULL;
}

// "ncclAllReduce", "all_reduce_perf" and "all-reduce" are "allreduce"; "tuttiAllGatherV" is "allgatherv".
static void plain_name(const char *name, char out[32])
{
  size_t n = 0, length = strlen(name);
  length -= length > 5 && strcmp(name + length - 5, "_perf") == 0 ? 5 : 0;
  size_t before = strncasecmp(name, "nccl", 4) == 0 ? 4 : strncasecmp(name, "tutti", 5) == 0 ? 5 : 0;
  for (size_t i = length > before ? before : 0; i < length && n + 1 < 32; i++) {
    if (name[i] != '_' && name[i] != '-') {
      out[n++] = (char)tolower((unsigned char)name[i]);
    }
  }
  out[n] = 0;
}

// Other names of the same, as NCCL, nccl-tests and people write them.
static const char *const aliases[][2] = {
    {"char", "int8"},      {"int", "int32"},         {"float16", "half"},   {"fp16", "half"},
    {"float32", "float"},  {"fp32", "float"},        {"float64", "double"}, {"fp64", "double"},
    {"bf16", "bfloat16"},  {"float8e4m3", "f8e4m3"}, {"fp8e4m3", "f8e4m3"}, {"float8e5m2", "f8e5m2"},
    {"fp8e5m2", "f8e5m2"}, {"premulsum", "mulsum"},
};

static int find(const char *what, const char *name, list l)
{
  char plain[32];
  plain_name(name, plain);
  for (size_t i = 0; i < TT_COUNT(aliases); i++) {
    if (strcmp(aliases[i][0], plain) == 0) {
      snprintf(plain, sizeof(plain), "%s", aliases[i][1]);
    }
  }
  for (int i = 0; i < l.count; i++) {
    if (strcmp(l.names[i], plain) == 0) {
      return i;
    }
  }
  const char *near = xp_nearest(plain, list_at, &l);
  fprintf(stderr, "tutti-topo: unknown %s '%.80s'; ", what, name);
  if (near != NULL) {
    fprintf(stderr, "the nearest is %s; ", near);
  }
  fprintf(stderr, "there are");
  for (int i = 0; i < l.count; i++) {
    fprintf(stderr, " %s", l.names[i]);
  }
  fprintf(stderr, "\n");
  return -1;
}

int xp_func_of(const char *name)
{
  static const char *const names[] = {"broadcast",     "reduce",    "allgather",
                                      "reducescatter", "allreduce", [XP_ALL_TO_ALL] = "alltoall"};
  return find("function", name, (list){names, TT_COUNT(names)});
}

const char *xp_func_name(int func)
{
  return func == XP_ALL_TO_ALL ? "AllToAll" : tt_model_func_name((tt_model_func)func);
}

bool xp_say_blocks(const char *coll, bool json, xp_print *out)
{
  static const char *const names[] = {"AllGatherV", "GatherV", "ScatterV", "AlltoAllV", "ReduceScatterV"};
  char plain[32], name[32];
  size_t i = 0;
  plain_name(coll != NULL ? coll : "", plain);
  for (; i < TT_COUNT(names); i++) {
    plain_name(names[i], name);
    if (strcmp(name, plain) == 0) {
      break;
    }
  }
  if (i == TT_COUNT(names)) {
    return false;
  }
  bool sums = strcmp(names[i], "ReduceScatterV") == 0;
  if (json) {
    fprintf(out->f, "{\n  \"function\": \"%s\", \"choice\": null, \"parts\": \"%s\"\n}\n", names[i],
            sums ? "Reduce" : "Send/Recv");
    return true;
  }
  xp_say(out, 2, "%s: no algorithm is chosen for the call, because its blocks have lengths of their own", names[i]);
  xp_say(out, 4, "%s",
         sums
             ? "  it is a reduce for each rank's block, all side by side; that rank sums in the order of the ranks, by "
               "Oneshot, or Direct where it can read its peers' memory"
             : "  it is a message for each pair of ranks with a block, all side by side, and a copy of the own block; "
               "each message is chosen for by its own size");
  return true;
}

void xp_say_host(const xp_print *out, const tt_topo *topo, int func)
{
  if (tt_topo_host_rank(&topo->nodes[0])) {
    xp_say(out, 4,
           "  ranks in host memory: this is NCCL's model of GPUs; tutti-topo host --coll %s has the model that "
           "communicators use",
           xp_func_name(func));
  }
}

static int type_index(const xp_options *o)
{
  return o->type == NULL ? DEFAULT_TYPE : find("type", o->type, (list){type_names, TT_COUNT(type_names)});
}

static int op_index(const xp_options *o)
{
  return o->op == NULL ? ncclSum : find("operation", o->op, (list){op_names, TT_COUNT(op_names)});
}

// NVLink switches add whole numbers and floating point, and compare what has at least 16 bits but is not float or
// double.
bool xp_op_of(const xp_options *o, tt_model_op *out)
{
  int type = type_index(o), op = op_index(o);
  if (type < 0 || op < 0) {
    return false;
  }
  bool wide = type == ncclFloat32 || type == ncclFloat64, fp8 = type == ncclFloat8e4m3 || type == ncclFloat8e5m2;
  bool small = fp8 || type == ncclInt8 || type == ncclUint8;
  bool compares = op == ncclMin || op == ncclMax;
  *out = (tt_model_op){
      .no_nvls = small || !(op == ncclSum || (compares && !wide)), .scaled = op == ncclAvg || op == MULSUM, .fp8 = fp8};
  return true;
}

const char *xp_type_of(const xp_options *o)
{
  int type = type_index(o);
  return type < 0 ? "?" : type_names[type];
}

const char *xp_redop_of(const xp_options *o, tt_model_func func)
{
  bool reduces = func == TT_MODEL_ALL_REDUCE || func == TT_MODEL_REDUCE_SCATTER || func == TT_MODEL_REDUCE;
  int op = reduces ? op_index(o) : -1;
  return op < 0 ? "none" : op_names[op];
}

size_t xp_element_of(const xp_options *o)
{
  int type = type_index(o);
  return type < 0 ? 1 : tt_type_size(type);
}

size_t xp_next_size(const xp_options *o, size_t size)
{
  size_t factor = (size_t)o->factor, next;
  if (factor > 1) {
    next = size == 0 ? factor : size > o->max_bytes / factor ? 0 : size * factor;
  } else {
    next = size + o->step; // both are at most 2^50
  }
  return next > size && next <= o->max_bytes ? next : 0;
}

double xp_bus_factor(int func, int nranks)
{
  double others = (double)(nranks - 1) / nranks;
  switch (func) {
  case TT_MODEL_ALL_REDUCE: return 2 * others;
  case TT_MODEL_ALL_GATHER:
  case TT_MODEL_REDUCE_SCATTER:
  case XP_ALL_TO_ALL: return others;
  default: return 1;
  }
}

const char *xp_off_text(tt_model_off off, char *out, size_t size)
{
  char value[128], clean[128];
  const char *text = tt_model_off_text(off), *variable = tt_model_off_variable(off);
  const tt_param_row *row = variable != NULL ? tt_param_find(variable) : NULL;
  bool unset = row == NULL || (tt_param_origin_of(row) == TT_PARAM_FROM_DEFAULT && off == TT_OFF_COLLNET_ENABLE);
  if (unset) {
    snprintf(out, size, "%s", text);
    return out;
  }
  tt_param_text(row, value, sizeof(value));
  snprintf(out, size, "%s=%s%s", variable, xp_clean(value, clean, sizeof(clean)), text + strlen(variable));
  return out;
}

void xp_say_collnet(const xp_print *out, const tt_model *m)
{
  if (m->collnet) {
    xp_say(out, 4,
           "  collnet: NCCL takes it with a network plugin that reduces; communicators of this library too, as their "
           "own cost model chooses");
  }
}

const char *xp_node_name(const tt_topo *t, int node, char *out, size_t size)
{
  bool virtual_card = t->nodes[node].kind == TT_NODE_NIC && t->nodes[node].id < 0;
  return virtual_card ? "NIC" : tt_node_name(t, node, out, size);
}

// What the search takes for each edge of each channel.
static void take_all(const tt_graph *g, tt_flow *flow, tt_edge *edges)
{
  for (int c = 0; c < g->nchannels; c++) {
    int count = tt_graph_edges(g, c, edges);
    for (int i = 0; i < count; i++) {
      tt_flow_take(flow, edges[i].from, edges[i].to, edges[i].amount);
    }
  }
}

// NVLS: each head speaks with all GPUs at once through the switch; the edges of its list say nothing.
static bool is_heads(const tt_graph *g)
{
  return g->pattern == TT_PATTERN_NVLS || g->pattern == TT_PATTERN_COLLNET_DIRECT;
}

void xp_loads(const tt_topo *topo, const tt_paths *paths, const tt_graph *graph, float *load)
{
  tt_arena arena = {0};
  tt_flow flow;
  tt_edge *edges;
  TT_ARENA_NEW(&arena, edges, graph->ngpus + TT_EDGES_MORE);
  memset(load, 0, (size_t)topo->nlinks * sizeof(*load));
  if (!is_heads(graph) && tt_flow_create(topo, paths, &arena, &flow) == ncclSuccess) {
    take_all(graph, &flow, edges);
    for (int l = 0; l < topo->nlinks; l++) {
      load[l] = (float)(tt_flow_amount(topo->links[l].bw) - flow.left[l]) / (float)tt_flow_amount(1);
    }
  }
  tt_arena_clear(&arena);
}
