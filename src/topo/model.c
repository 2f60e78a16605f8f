// model.c: latency and bandwidth of every function, algorithm and protocol, as NCCL 2.30 reckons them.
//
// Where NCCL mixes float and double, so does this: the results are compared with its own to the last printed digit.
#include "topo/model.h"

#include <math.h>
#include <stdio.h>

#include "base/advice.h"
#include "base/log.h"
#include "base/param.h"
#include "base/util.h"

static const char *const algo_names[TT_MODEL_ALGOS] = {"Tree",     "Ring", "CollNetDirect", "CollNetChain", "NVLS",
                                                       "NVLSTree", "PAT"};
static const char *const proto_names[TT_MODEL_PROTOS] = {"LL", "LL128", "Simple"};

// ---- Constants, measured by NCCL's authors ----

enum { HW_NVLINK, HW_PCI, HW_NET, HW_KINDS };
enum { GEN_VOLTA, GEN_AMPERE, GEN_HOPPER, GEN_BLACKWELL, GENS };
static const float nvls_efficiency[GENS] = {0, 0, 0.85F, 0.74F};

// What tuner plugins may change. Latencies in microseconds: of an operation before the first byte moves, of a step over
// each kind of link. Bandwidths in GB/s that a generation's kernels reach, for one, two, and more nodes.
static const tt_model_constants constants = {
    .baseLatencies =
        {
            [TT_MODEL_TREE] = {6.8, 14.0, 8.4},
            [TT_MODEL_RING] = {6.6, 14.0, 8.4},
            [TT_MODEL_PAT] = {8.0, 8.0, 8.0},
        },
    .hwLatencies =
        {
            [HW_NVLINK] =
                {
                    [TT_MODEL_TREE] = {0.6, 1.25, 4.0},
                    [TT_MODEL_RING] = {0.6, 1.9, 3.4},
                    [TT_MODEL_COLLNET_DIRECT] = {0, 0, 3.7},
                    [TT_MODEL_COLLNET_CHAIN] = {0, 0, 2.8},
                    [TT_MODEL_NVLS] = {0, 0, 25},
                    [TT_MODEL_NVLS_TREE] = {0, 0, 25},
                    [TT_MODEL_PAT] = {0, 0, 4.0},
                },
            [HW_PCI] =
                {
                    [TT_MODEL_TREE] = {1.0, 1.9, 4.0},
                    [TT_MODEL_RING] = {1.0, 2.5, 5.7},
                    [TT_MODEL_COLLNET_DIRECT] = {0, 0, 3.7},
                    [TT_MODEL_COLLNET_CHAIN] = {0, 0, 2.8},
                    [TT_MODEL_PAT] = {0, 0, 4.0},
                },
            [HW_NET] =
                {
                    [TT_MODEL_TREE] = {5.0, 8.5, 14},
                    [TT_MODEL_RING] = {2.7, 4.0, 14.0},
                    [TT_MODEL_COLLNET_DIRECT] = {0, 0, 31},
                    [TT_MODEL_COLLNET_CHAIN] = {0, 0, 30},
                    [TT_MODEL_NVLS] = {0, 0, 18},
                    [TT_MODEL_NVLS_TREE] = {0, 0, 20.9},
                    [TT_MODEL_PAT] = {0, 0, 14},
                },
        },
    .llMaxBws = {{39.0, 39.0, 20.4}, {87.7, 22.5, 19.0}, {141.0, 45.0, 35.0}, {282.0, 90.0, 70.0}},
    // Per channel, and so are those below.
    .perChMaxRingLL128Bws = {{20.0, 20.0, 20.0}, {20.0, 20.0, 20.0}, {36.7, 36.7, 36.7}, {40.0, 40.0, 40.0}},
    .perChMaxTreeLL128Bws = {{20.0, 20.0, 20.0}, {20.0, 20.0, 20.0}, {36.7, 36.7, 29.0}, {55.6, 31.67, 20.0}},
    .perChMaxTreeBws = {{26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {38.7, 41.4, 36.0}, {70.0, 42.8, 24.0}},
    .perChMaxNVLSTreeBws = {{26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {0.0, 57.7, 45.5}, {0.0, 96.0, 80.0}},
};

// What is left of a tree's bandwidth, for sizes of 64 bytes, 128 bytes and so on.
enum { TREE_SIZES = 24 };
static const float tree_factor[TT_MODEL_PROTOS][TREE_SIZES] = {
    {1, 1, 1, 1, .9F, .8F, .7F, .7F, .7F, .7F, .6F, .5F, .4F, .4F, .5F, .6F, .7F, .8F, .9F, 1, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9F, .8F, .8F, .8F, .7F, .6F, .6F, .6F, .6F, .6F, .6F, .8F, .9F, .9F, .9F, .9F, 1, 1, 1},
    {.9F, .9F, .9F, .9F, .9F, .9F, .9F, .8F, .7F, .6F, .6F, .5F,
     .5F, .5F, .5F, .6F, .7F, .8F, .7F, .7F, .8F, .9F, .9F, .9F},
};

// The graph of each algorithm.
static const tt_graph_kind graph_of[TT_MODEL_ALGOS] = {TT_GRAPH_TREE,          TT_GRAPH_RING, TT_GRAPH_COLLNET_DIRECT,
                                                       TT_GRAPH_COLLNET_CHAIN, TT_GRAPH_NVLS, TT_GRAPH_NVLS,
                                                       TT_GRAPH_TREE};

// ---- Making the model ----

typedef struct maker {
  const tt_model_input *in;
  const tt_connect *c;
  const tt_model_constants *v;
  tt_model_options opt;
  tt_model *m;
  int nranks, nnodes, gen, scale; // scale: 0 one node, 1 two, 2 more
  float ppn;
  bool pat, chain, gathers; // chain: its ends are heads. gathers: the network does all-gather and every GPU is a head
} maker;

// One cell of the table.
typedef struct cell {
  tt_model_func f;
  tt_model_algo a;
  tt_model_proto p;
  const tt_plan_graph *g;
  int nsteps;
  tt_model_bound bound;
} cell;

static bool gathers(tt_model_func f)
{
  return f == TT_MODEL_ALL_GATHER || f == TT_MODEL_REDUCE_SCATTER;
}

static bool is_collnet(tt_model_algo a)
{
  return a == TT_MODEL_COLLNET_DIRECT || a == TT_MODEL_COLLNET_CHAIN;
}

static int log2_down(uint64_t n)
{
  return n == 0 ? -1 : 63 - __builtin_clzll(n);
}

// Does NCCL have that at all?
static bool model_exists(const maker *k, const cell *x)
{
  switch (x->f) {
  case TT_MODEL_ALL_REDUCE: return x->a != TT_MODEL_PAT && (!tt_model_is_nvls(x->a) || x->p == TT_MODEL_SIMPLE);
  case TT_MODEL_ALL_GATHER:
  case TT_MODEL_REDUCE_SCATTER:
    return x->a == TT_MODEL_RING || x->a == TT_MODEL_COLLNET_DIRECT ||
           (x->a == TT_MODEL_NVLS && x->p == TT_MODEL_SIMPLE) ||
           (x->a == TT_MODEL_PAT && x->p == TT_MODEL_SIMPLE && k->pat);
  default: return x->a == TT_MODEL_RING;
  }
}

// The less of two, and what decided.
static float least(cell *x, double bw, double most, tt_model_bound what)
{
  x->bound = most < bw ? what : x->bound;
  return (float)TT_MIN(bw, most);
}

// GB/s of one channel with NVLS.
static float nvls_bw(const maker *k, cell *x)
{
  int n = x->g->nchannels;
  float intra = x->g->bw_intra * nvls_efficiency[k->gen] * (float)(n - 1) / (float)n;
  intra *= x->f == TT_MODEL_ALL_REDUCE ? 2.0F : (k->ppn - 1) / k->ppn; // an all-reduce has two operations in flight
  bool tree = x->a == TT_MODEL_NVLS_TREE;
  float inter = x->g->bw_inter * (float)(k->nnodes <= 2 && tree ? 2 : 1);
  x->bound = inter < intra ? TT_BOUND_INTER : TT_BOUND_INTRA;
  float bw = TT_MIN(intra, inter);
  return tree ? least(x, (double)bw, (double)(float)k->v->perChMaxNVLSTreeBws[k->gen][k->scale], TT_BOUND_GPU) : bw;
}

static double ll_limit(const maker *k)
{
  bool amd = k->c->machine.cpu_vendor == TT_CPU_AMD || k->c->machine.cpu_vendor == TT_CPU_MIXED;
  return k->v->llMaxBws[k->nnodes == 1 ? k->gen : amd ? 1 : 0][k->scale];
}

static float tree_limits(const maker *k, cell *x, float bw)
{
  double n = x->g->nchannels;
  if (x->f == TT_MODEL_ALL_REDUCE) {
    bw = least(x, (double)bw * .92, n * k->v->perChMaxTreeBws[k->gen][k->scale], TT_BOUND_GPU);
  }
  if (x->p == TT_MODEL_LL) {
    bw = least(x, (double)bw * 1.0 / 3.8, ll_limit(k), TT_BOUND_LL);
  }
  if (x->p == TT_MODEL_LL128) {
    bw = least(x, (double)bw * (k->nnodes == 1 ? 7.0 / 9.0 : 120.0 / 128.0),
               n * k->v->perChMaxTreeLL128Bws[k->gen][k->scale], TT_BOUND_GPU);
  }
  return k->c->max_tree_pattern == TT_PATTERN_TREE ? (float)((double)bw * .85) : bw;
}

static float direct_limits(const maker *k, cell *x, float bw)
{
  if (x->p != TT_MODEL_SIMPLE) {
    return 0;
  }
  if (gathers(x->f)) {
    return k->ppn * least(x, (double)x->g->bw_intra, (double)(x->g->bw_inter * 0.9F), TT_BOUND_INTER);
  }
  // Full speed only where each GPU has a card of its own.
  float factor = (float)((double)k->ppn / (1.0 * x->g->nchannels));
  factor -= (factor - 1) / 2;
  bw /= factor;
  return k->c->machine.cc_min >= 90 ? (float)((double)bw * .85) : bw;
}

// GB/s that pass each GPU.
static float bus_bw(const maker *k, cell *x)
{
  bool intra = k->nnodes <= 2 || is_collnet(x->a);
  float bw = intra ? x->g->bw_intra : x->g->bw_inter;
  x->bound = intra ? TT_BOUND_INTRA : TT_BOUND_INTER;
  bw = tt_model_is_nvls(x->a) ? nvls_bw(k, x) : bw;
  bw *= (float)x->g->nchannels;
  switch (x->a) {
  case TT_MODEL_RING:
    if (x->p == TT_MODEL_LL) {
      bw = least(x, (double)bw * .5, ll_limit(k), TT_BOUND_LL);
    } else if (x->p == TT_MODEL_LL128) {
      bw = least(x, (double)bw * 0.92, x->g->nchannels * k->v->perChMaxRingLL128Bws[k->gen][k->scale], TT_BOUND_GPU);
    }
    break;
  case TT_MODEL_TREE: bw = tree_limits(k, x, bw); break;
  case TT_MODEL_PAT: bw = (float)((double)bw * .75); break;
  case TT_MODEL_COLLNET_DIRECT: bw = direct_limits(k, x, bw); break;
  case TT_MODEL_COLLNET_CHAIN: bw = x->p == TT_MODEL_SIMPLE ? bw : 0; break;
  default: break;
  }
  bool net = (x->a == TT_MODEL_NVLS || x->a == TT_MODEL_COLLNET_DIRECT) && gathers(x->f) && k->nnodes > 1;
  return net && !k->gathers ? 0 : bw;
}

// GB/s of the operation's size.
static float cell_bw(const maker *k, cell *x)
{
  float bw = bus_bw(k, x);
  if (x->a != TT_MODEL_RING && gathers(x->f)) {
    return bw;
  }
  bool ring = x->a == TT_MODEL_RING || tt_model_is_nvls(x->a);
  return bw * (ring ? (float)((1.0 * k->nranks) / x->nsteps) : .5F);
}

static float overhead(const maker *k)
{
  return k->c->machine.cpu_arch == TT_CPU_X86 && k->c->machine.cpu_vendor == TT_CPU_AMD ? 2.0F : 1.0F;
}

static float hw_latency(const maker *k, int hw, tt_model_algo a, tt_model_proto p)
{
  bool power = hw == HW_PCI && a == TT_MODEL_TREE && p == TT_MODEL_SIMPLE && k->c->machine.cpu_arch == TT_CPU_POWER;
  return (float)k->v->hwLatencies[hw][power ? TT_MODEL_RING : a][p]; // or trees would never win there
}

static float ring_latency(const maker *k, const cell *x, float intra, float inter)
{
  int hw = k->nnodes > 1 ? HW_NET : x->g->type_intra == TT_PATH_NVL ? HW_NVLINK : HW_PCI;
  if (x->f == TT_MODEL_BROADCAST || x->f == TT_MODEL_REDUCE) {
    if (x->g->same_channels) {
      return hw_latency(k, hw, TT_MODEL_RING, x->p);
    }
    return (float)x->nsteps * hw_latency(k, hw, x->p == TT_MODEL_SIMPLE ? TT_MODEL_TREE : TT_MODEL_RING, x->p);
  }
  // Between nodes every step has to be posted.
  float post = k->nnodes > 1 ? overhead(k) * (x->p == TT_MODEL_SIMPLE ? 3.0F : 1.0F) : 0;
  int far = k->nnodes == 1 ? 0 : x->f == TT_MODEL_ALL_REDUCE ? 2 * (k->nnodes - 1) : k->nnodes - 1;
  return (float)(x->nsteps - far) * TT_MAX(intra, post) + (float)far * inter;
}

static float cell_latency(const maker *k, const cell *x)
{
  float base = (float)k->v->baseLatencies[x->a][x->p],
        inter = hw_latency(k, HW_NET, k->ppn == 1 ? TT_MODEL_TREE : x->a, x->p);
  float intra = hw_latency(k, x->g->type_intra == TT_PATH_NVL ? HW_NVLINK : HW_PCI, x->a, x->p);
  inter += x->g->latency_inter * (x->p == TT_MODEL_SIMPLE ? 2.0F : 1.0F); // the second time: for the flush
  int locals = k->nranks / k->nnodes - 1, levels = log2_down((uint64_t)k->nnodes);
  switch (x->a) {
  case TT_MODEL_RING: return base + ring_latency(k, x, intra, inter);
  case TT_MODEL_TREE: return base + 2 * ((float)locals * intra + (float)levels * inter);
  case TT_MODEL_COLLNET_DIRECT:
    return (float)((double)base + 2 * ((double)((float)TT_MIN(1, locals) * intra) + locals * 0.4) + (double)inter);
  case TT_MODEL_COLLNET_CHAIN: return base + ((float)(2 * locals) * intra + inter);
  case TT_MODEL_NVLS: return k->nnodes > 1 ? intra + inter : intra;
  case TT_MODEL_NVLS_TREE: return base + (intra + (float)(2 * levels) * inter);
  default: return (float)((double)base + levels * ((double)inter / 3.5) + k->nranks * 2.8);
  }
}

// ---- What is off ----

static bool ll128_ok(const maker *k, const tt_plan_graph *g)
{
  int limit = k->c->machine.cc_min >= 90 ? TT_PATH_PXN : TT_PATH_PXB;
  return g->type_inter <= limit && g->type_intra <= TT_PATH_NVB &&
         (k->c->machine.cc_min == k->c->machine.cc_max || k->c->machine.cc_min >= 90) && k->c->machine.cc_min >= 70;
}

static tt_model_off algo_off(const maker *k, tt_model_algo a)
{
  if (k->nnodes == 1 && a == TT_MODEL_NVLS_TREE) {
    return TT_OFF_ONE_NODE;
  }
  if (!k->c->collnet && (is_collnet(a) || (a == TT_MODEL_NVLS && k->nnodes > 1))) {
    return k->opt.no_collnet != TT_OFF_NOT ? k->opt.no_collnet : TT_OFF_COLLNET;
  }
  if (a == TT_MODEL_COLLNET_CHAIN && !k->chain) {
    return TT_OFF_HEADS;
  }
  return a == TT_MODEL_COLLNET_DIRECT && !k->c->machine.nvswitch ? TT_OFF_SWITCH : TT_OFF_NOT;
}

// `allow` of the protocol: 2 where no variable speaks of LL128.
static tt_model_off cell_off(const maker *k, const cell *x, bool algo, int proto)
{
  tt_model_off off = algo_off(k, x->a);
  if (off != TT_OFF_NOT) {
    return off;
  }
  if (!algo) {
    return TT_OFF_ALGO_VAR;
  }
  if (proto == 0) {
    return TT_OFF_PROTO_VAR;
  }
  return proto == 2 && x->p == TT_MODEL_LL128 && !ll128_ok(k, x->g) ? TT_OFF_LL128 : TT_OFF_NOT;
}

// Why the search found no NVLS.
static tt_model_off no_nvls(const maker *k)
{
  if (k->opt.no_nvls != TT_OFF_NOT) {
    return k->opt.no_nvls;
  }
  return !k->c->machine.nvswitch ? TT_OFF_SWITCH : k->c->machine.cc_min < 90 ? TT_OFF_OLD_GPU : TT_OFF_GRAPH;
}

static tt_model_off model_missing(const maker *k, const cell *x)
{
  if (x->a == TT_MODEL_PAT && gathers(x->f) && x->p == TT_MODEL_SIMPLE && !k->pat) {
    return TT_OFF_PAT;
  }
  if (!model_exists(k, x)) {
    return TT_OFF_NEVER;
  }
  return tt_model_is_nvls(x->a) && x->g->nchannels < 2 ? no_nvls(k) : TT_OFF_NOT;
}

static tt_model_off model_slow(const maker *k, const cell *x)
{
  if (is_collnet(x->a) && x->p != TT_MODEL_SIMPLE) {
    return TT_OFF_NEVER;
  }
  if (x->g->nchannels == 0) {
    return TT_OFF_GRAPH;
  }
  return gathers(x->f) && k->nnodes > 1 ? (k->in->net_gathers ? TT_OFF_HEADS : TT_OFF_COLLNET) : TT_OFF_GRAPH;
}

static void fill_cell(const maker *k, cell *x, bool algo, int proto)
{
  tt_model_off off = model_missing(k, x);
  float bw = 0;
  if (off == TT_OFF_NOT) {
    k->m->latency[x->f][x->a][x->p] = cell_latency(k, x);
    bw = cell_bw(k, x);
    off = cell_off(k, x, algo, proto);
  }
  if (off == TT_OFF_NOT && !(bw > 0)) {
    off = model_slow(k, x);
  }
  k->m->bandwidth[x->f][x->a][x->p] = off == TT_OFF_NOT ? bw : 0;
  k->m->off[x->f][x->a][x->p] = (uint8_t)off;
  k->m->bound[x->f][x->a][x->p] = (uint8_t)(off == TT_OFF_NOT ? x->bound : TT_BOUND_NONE);
}

static ncclResult_t fill_table(const maker *k)
{
  int algos[TT_MODEL_FUNCS][TT_MODEL_ALGOS], protos[TT_MODEL_FUNCS][TT_MODEL_PROTOS];
  for (int f = 0; f < TT_MODEL_FUNCS; f++) {
    for (int a = 0; a < TT_MODEL_ALGOS; a++) {
      algos[f][a] = 1;
    }
    for (int p = 0; p < TT_MODEL_PROTOS; p++) {
      protos[f][p] = p == TT_MODEL_LL128 ? 2 : 1;
    }
  }
  if (k->opt.proto != NULL) {
    TT_TRY(tt_model_allow("NCCL_PROTO", k->opt.proto, proto_names, TT_MODEL_PROTOS, &protos[0][0]));
  }
  if (k->opt.algo != NULL) {
    TT_TRY(tt_model_allow("NCCL_ALGO", k->opt.algo, algo_names, TT_MODEL_ALGOS, &algos[0][0]));
  }
  for (int i = 0; i < TT_MODEL_FUNCS * TT_MODEL_ALGOS * TT_MODEL_PROTOS; i++) {
    cell x = {.f = i / (TT_MODEL_ALGOS * TT_MODEL_PROTOS),
              .a = i / TT_MODEL_PROTOS % TT_MODEL_ALGOS,
              .p = i % TT_MODEL_PROTOS};
    x.g = &k->c->common[graph_of[x.a]];
    x.nsteps = x.f == TT_MODEL_ALL_REDUCE ? 2 * (k->nranks - 1) : gathers(x.f) ? k->nranks - 1 : k->nranks;
    fill_cell(k, &x, algos[x.f][x.a], protos[x.f][x.p]);
  }
  return ncclSuccess;
}

// ---- Threads ----

// NCCL_NTHREADS: a multiple of a warp within limits, 0: not set. Otherwise INFO, and what NCCL takes instead.
static int threads_of(int set)
{
  enum { LEAST = 2 * TT_MODEL_WARP, MOST = 512 };
  if (set <= 0) {
    return 0;
  }
  int n = set % TT_MODEL_WARP != 0 ? MOST : TT_CLAMP(set, LEAST, MOST);
  if (n != set) {
    tt_advise("NCCL_NTHREADS=%d: must be a multiple of %d from %d to %d; %d is taken", set, TT_MODEL_WARP, LEAST, MOST,
              n);
  }
  return n;
}

static void fill_threads(const maker *k)
{
  const tt_plan_graph *ring = &k->c->common[TT_GRAPH_RING];
  tt_model *m = k->m;
  bool slow_links = (double)(ring->bw_intra * (float)ring->nchannels) <= 12.0; // what PCI 3.0 carries
  for (int a = 0; a < TT_MODEL_ALGOS; a++) {
    bool simple_only = is_collnet(a) || tt_model_is_nvls(a);
    m->threads[a][TT_MODEL_SIMPLE] = simple_only ? TT_MODEL_MAX_THREADS : 0;
    m->threshold[a][TT_MODEL_LL] = m->threshold[a][TT_MODEL_LL128] = 8;
    m->threshold[a][TT_MODEL_SIMPLE] = is_collnet(a) ? 512 : 64;
  }
  int threads = threads_of(k->opt.nthreads);
  for (int a = TT_MODEL_TREE; a <= TT_MODEL_RING; a++) {
    m->threads[a][TT_MODEL_LL] = threads > 0 ? threads : 512;
    m->threads[a][TT_MODEL_LL128] = TT_MODEL_MAX_THREADS;
    m->threads[a][TT_MODEL_SIMPLE] = threads > 0 ? threads : a == TT_MODEL_RING && slow_links ? 256 : 512;
  }
  m->threshold[TT_MODEL_RING][TT_MODEL_LL] *= k->nranks;
}

// ---- The front door ----

// Do the GPUs that the chains end in speak to the network, that is, are they heads of NVLS, or of collnet direct where
// there is no NVLS?
static bool chain_ends_in_heads(const tt_connect *c)
{
  for (int s = 0; s < c->nshapes && c->common[TT_GRAPH_COLLNET_CHAIN].nchannels > 0; s++) {
    const tt_plan_shape *shape = &c->shapes[s];
    if (!c->used[s]) {
      continue;
    }
    const tt_plan_graph *heads = &shape->graph[c->nvls_channels > 0 ? TT_GRAPH_NVLS : TT_GRAPH_COLLNET_DIRECT];
    for (int ch = 0; ch < shape->graph[TT_GRAPH_COLLNET_CHAIN].nchannels; ch++) {
      int end = shape->graph[TT_GRAPH_COLLNET_CHAIN].gpus[(size_t)ch * (size_t)shape->ngpus], h = 0;
      while (h < heads->nchannels && heads->gpus[(size_t)h * (size_t)shape->ngpus] != end) {
        h++;
      }
      if (h == heads->nchannels) {
        return false;
      }
    }
  }
  return true;
}

static void model_look(maker *k)
{
  const tt_connect *c = k->c;
  k->nranks = c->nranks;
  k->nnodes = c->nnodes;
  k->gen = c->machine.cc_min >= 100  ? GEN_BLACKWELL
           : c->machine.cc_min >= 90 ? GEN_HOPPER
           : c->machine.cc_min >= 80 ? GEN_AMPERE
                                     : GEN_VOLTA;
  k->scale = c->nnodes <= 2 ? c->nnodes - 1 : 2;
  k->ppn = (float)c->nranks / (float)c->nnodes;
  k->pat = c->machine.cc_min >= 60 && c->nnodes == c->nranks;
  k->chain = chain_ends_in_heads(c);
  int heads = c->nvls_channels > 0 ? c->nvls_heads : tt_plan_heads(&c->shapes[c->shape_of[0]], TT_GRAPH_COLLNET_DIRECT);
  k->gathers = c->collnet && k->in->net_gathers && c->max_local <= heads;
  k->m->direct_heads = tt_plan_heads(&c->shapes[c->shape_of[0]], TT_GRAPH_COLLNET_DIRECT);
}

tt_model_options tt_model_options_from(const tt_params *params)
{
  return (tt_model_options){.algo = params->algo,
                            .proto = params->proto,
                            .nthreads = (int)TT_CLAMP(params->nthreads, 0, 1 << 20),
                            .no_nvls = params->nvls_enable == 0 ? TT_OFF_NVLS_ENABLE : TT_OFF_NOT,
                            .no_collnet = params->collnet_enable == 0 ? TT_OFF_COLLNET_ENABLE : TT_OFF_NOT};
}

void tt_model_constants_default(tt_model_constants *out)
{
  *out = constants;
}

ncclResult_t tt_model_make(const tt_model_input *in, tt_model *out)
{
  const tt_connect *c = in->connect;
  tt_model m = {.nranks = c->nranks,
                .nnodes = c->nnodes,
                .nchannels = c->nchannels,
                .nvls_channels = c->nvls_channels,
                .max_local = c->max_local,
                .cc_min = c->machine.cc_min,
                .collnet = c->collnet,
                .x86 = c->machine.cpu_arch == TT_CPU_X86};
  maker k = {.in = in, .c = c, .v = in->constants != NULL ? in->constants : &constants, .m = &m};
  if (in->opt != NULL) {
    k.opt = *in->opt;
  }
  m.by_variable = k.opt.algo != NULL || k.opt.proto != NULL;
  model_look(&k);
  fill_threads(&k);
  if (m.nranks > 1) {
    TT_TRY(fill_table(&k));
  } else {
    memset(m.threshold, 0, sizeof(m.threshold)); // a copy, at once by all channels
  }
  *out = m;
  return ncclSuccess;
}

// ---- Asking it ----

// Off for this operation though not in general.
static tt_model_off op_off(const tt_model *m, const tt_model_op *op, tt_model_algo a)
{
  bool net = m->collnet && !op->no_net;
  if (is_collnet(a) && !net) {
    return TT_OFF_COLLNET;
  }
  if (is_collnet(a) && m->max_local > TT_GRAPH_MAX_DIRECT) {
    return TT_OFF_LOCALS;
  }
  if (tt_model_is_nvls(a) && (m->nvls_channels == 0 || (op->no_nvls && op->func != TT_MODEL_ALL_GATHER))) {
    return TT_OFF_NVLS;
  }
  if (tt_model_is_nvls(a) && op->func != TT_MODEL_ALL_REDUCE && m->max_local > TT_GRAPH_MAX_HEADS) {
    return TT_OFF_LOCALS;
  }
  if (a == TT_MODEL_NVLS && !net && m->nnodes > 1) {
    return TT_OFF_COLLNET;
  }
  return a == TT_MODEL_PAT && op->func == TT_MODEL_REDUCE_SCATTER && op->scaled ? TT_OFF_OPERATION : TT_OFF_NOT;
}

tt_model_off tt_model_why(const tt_model *m, const tt_model_op *op, tt_model_algo algo, tt_model_proto proto)
{
  if (m->nranks == 1) {
    return algo == TT_MODEL_RING && proto == TT_MODEL_SIMPLE ? TT_OFF_NOT : TT_OFF_NEVER;
  }
  tt_model_off off = (tt_model_off)m->off[op->func][algo][proto];
  return off != TT_OFF_NOT ? off : op_off(m, op, algo);
}

float tt_model_time(const tt_model *m, const tt_model_op *op, tt_model_algo algo, tt_model_proto proto)
{
  enum { OPS_PER_BATCH = 8 }; // operations that a kernel takes at once
  if (tt_model_why(m, op, algo, proto) != TT_OFF_NOT) {
    return -1;
  }
  if (m->nranks == 1) {
    return 0;
  }
  float bw = m->bandwidth[op->func][algo][proto], latency = m->latency[op->func][algo][proto];
  int size = log2_down(op->bytes >> 6), together = TT_MAX(op->together, 1);
  bool all_reduce = op->func == TT_MODEL_ALL_REDUCE;
  bool tree = algo == TT_MODEL_TREE && size < TREE_SIZES - 1;
  bool nvls = algo == TT_MODEL_NVLS_TREE && size < TREE_SIZES && m->cc_min >= 100 && m->x86;
  if (all_reduce && size >= 0 && (tree || nvls)) {
    bw *= tree_factor[proto][size];
  }
  bool ring = algo == TT_MODEL_RING;
  if (ring && proto == TT_MODEL_SIMPLE && m->nnodes > 1 && all_reduce &&
      op->bytes / ((size_t)m->nchannels * (size_t)m->nranks) >= 64) {
    latency = (float)((double)latency * (m->cc_min < 80 ? 1.9 : 1.4)); // each step waits for its predecessor's
  }
  int times = ring ? together : TT_DIV_UP(together, OPS_PER_BATCH);
  float us = latency * (float)times + (float)op->bytes / (1000 * bw);
  return op->fp8 && ring && m->nranks > 8 ? us * 1024 : us; // a long ring of additions in 8 bits would lose too much
}

const char *tt_model_algo_name(tt_model_algo algo)
{
  return algo_names[algo];
}

const char *tt_model_proto_name(tt_model_proto proto)
{
  return proto_names[proto];
}
