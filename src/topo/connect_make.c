// connect_make.c: checks what the search found on each kind of node, and what they have in common; duplicates channels.
#include "topo/connect_priv.h"

#include "base/util.h"

tt_connect_options tt_connect_options_default(void)
{
  return (tt_connect_options){
      .min_channels = -2, .max_channels = -2, .min_ctas = 1, .max_ctas = TT_GRAPH_MAX_CHANNELS, .collnet_nodes = 2};
}

static int clamp_int(int64_t v)
{
  return (int)TT_CLAMP(v, -2, 1 << 20);
}

tt_connect_options tt_connect_options_from(const tt_params *params)
{
  tt_connect_options o = tt_connect_options_default();
  o.min_channels = clamp_int(params->min_nchannels);
  o.max_channels = clamp_int(params->max_nchannels);
  o.min_ctas = params->min_ctas > 0 ? clamp_int(params->min_ctas) : o.min_ctas;
  o.max_ctas = params->max_ctas > 0 ? clamp_int(params->max_ctas) : o.max_ctas;
  o.collnet = params->collnet_enable != NCCL_CONFIG_UNDEF_INT && params->collnet_enable != 0;
  o.collnet_nodes = clamp_int(params->collnet_node_threshold);
  return o;
}

// ---- Checks ----

static const char *const graph_names[TT_GRAPH_KINDS] = {"ring", "tree", "collnet direct", "collnet chain", "NVLS"};

// Each GPU once, where `places` is not NULL: writes the place of each. NVLS and direct: GPUs of the node.
static ncclResult_t connect_check_channel(const tt_plan_shape *s, int graph, int channel, int *places)
{
  const int *gpus = s->graph[graph].gpus + (size_t)channel * (size_t)s->ngpus;
  for (int i = 0; places != NULL && i < s->ngpus; i++) {
    places[i] = -1;
  }
  for (int i = 0; i < s->ngpus; i++) {
    if (gpus[i] < 0 || gpus[i] >= s->ngpus) {
      return tt_fail(ncclInternalError, "%s, channel %d: GPU %d at place %d is none of the node's %d",
                     graph_names[graph], channel, gpus[i], i, s->ngpus);
    }
    if (places != NULL && places[gpus[i]] >= 0) {
      return tt_fail(ncclInternalError, "%s, channel %d: GPU %d is there twice, at places %d and %d",
                     graph_names[graph], channel, gpus[i], places[gpus[i]], i);
    }
    if (places != NULL) {
      places[gpus[i]] = i;
    }
  }
  return ncclSuccess;
}

static ncclResult_t connect_check_shape(const tt_plan_shape *s, int number)
{
  if (s->ngpus < 1) {
    return tt_fail(ncclInternalError, "kind of node %d has %d GPUs", number, s->ngpus);
  }
  for (int g = 0; g < TT_GRAPH_KINDS; g++) {
    const tt_plan_graph *graph = &s->graph[g];
    bool needed = g == TT_GRAPH_RING || g == TT_GRAPH_TREE;
    if (graph->nchannels < needed || graph->nchannels > TT_GRAPH_MAX_CHANNELS ||
        (graph->nchannels > 0 && graph->gpus == NULL)) {
      return tt_fail(ncclInternalError, "kind of node %d: the search for %s found %d channels%s", number,
                     graph_names[g], graph->nchannels, graph->gpus == NULL ? " without GPUs" : "");
    }
    for (int ch = 0; ch < graph->nchannels; ch++) {
      TT_TRY(connect_check_channel(s, g, ch, NULL));
    }
  }
  return ncclSuccess;
}

static ncclResult_t check_input(const tt_connect_input *in)
{
  if (in->nranks < 1 || in->nnodes < 1 || in->nshapes < 1 || in->nnodes > in->nranks || in->nshapes > in->nnodes) {
    return tt_fail(ncclInternalError, "%d ranks on %d nodes of %d kinds cannot be connected", in->nranks, in->nnodes,
                   in->nshapes);
  }
  for (int s = 0; s < in->nshapes; s++) {
    TT_TRY(connect_check_shape(&in->shapes[s], s));
  }
  for (int n = 0; n < in->nnodes; n++) {
    if (in->shape_of[n] < 0 || in->shape_of[n] >= in->nshapes) {
      return tt_fail(ncclInternalError, "node %d is of kind %d, there are %d", n, in->shape_of[n], in->nshapes);
    }
  }
  int seen = 0;
  for (int r = 0; r < in->nranks; r++) {
    if (in->node_of[r] < 0 || in->node_of[r] > seen || in->node_of[r] >= in->nnodes) {
      return tt_fail(
          ncclInternalError,
          "rank %d is on node %d: nodes count in the order of their first ranks, %d would be next, there are %d", r,
          in->node_of[r], seen, in->nnodes);
    }
    seen += in->node_of[r] == seen;
  }
  return ncclSuccess;
}

// ---- What all nodes have in common ----

static void less(tt_plan_graph *all, const tt_plan_graph *g)
{
  all->nchannels = TT_MIN(all->nchannels, g->nchannels);
  all->same_channels = TT_MIN(all->same_channels, g->same_channels);
  all->bw_intra = TT_MIN(all->bw_intra, g->bw_intra);
  all->bw_inter = TT_MIN(all->bw_inter, g->bw_inter);
  all->type_intra = TT_MAX(all->type_intra, g->type_intra);
  all->type_inter = TT_MAX(all->type_inter, g->type_inter);
  all->cross_nic = TT_MAX(all->cross_nic, g->cross_nic);
  all->latency_inter = TT_MAX(all->latency_inter, g->latency_inter);
}

static void find_common(tt_connect *c)
{
  int first = c->shape_of[0];
  memcpy(c->common, c->shapes[first].graph, sizeof(c->common));
  c->min_local = c->shapes[first].ngpus;
  for (int s = 0; s < c->nshapes; s++) {
    for (int g = 0; g < TT_GRAPH_KINDS && c->used[s]; g++) {
      less(&c->common[g], &c->shapes[s].graph[g]);
    }
    if (c->used[s]) {
      c->max_tree_pattern = TT_MAX(c->max_tree_pattern, c->shapes[s].graph[TT_GRAPH_TREE].pattern);
      c->max_local = TT_MAX(c->max_local, c->shapes[s].ngpus);
      c->min_local = TT_MIN(c->min_local, c->shapes[s].ngpus);
    }
  }
  for (int g = 0; g < TT_GRAPH_KINDS; g++) {
    c->common[g].gpus = c->common[g].nets = NULL;
  }
  c->nsearch = TT_MIN(c->common[TT_GRAPH_RING].nchannels, c->common[TT_GRAPH_TREE].nchannels);
  c->common[TT_GRAPH_RING].nchannels = c->common[TT_GRAPH_TREE].nchannels = c->nsearch;
}

static int count_nvls_heads(const tt_connect *c)
{
  int least = TT_GRAPH_MAX_CHANNELS;
  for (int s = 0; s < c->nshapes; s++) {
    int heads = c->used[s] ? tt_plan_heads(&c->shapes[s], TT_GRAPH_NVLS) : least;
    least = TT_MIN(least, heads);
  }
  return least;
}

// ---- Numbers of channels ----

// More channels, each a copy of the one `from` before it.
static void copy_channels(tt_connect *c, int to)
{
  int from = c->nchannels;
  to = TT_MIN(to, TT_GRAPH_MAX_CHANNELS);
  for (int ch = from; ch < to; ch++) {
    c->origin[ch] = c->origin[ch - from];
  }
  c->nchannels = TT_MAX(from, to);
}

static void count_channels(tt_connect *c, const tt_connect_options *opt)
{
  for (int ch = 0; ch < TT_GRAPH_MAX_CHANNELS; ch++) {
    c->origin[ch] = (uint8_t)(ch % (2 * c->nsearch));
  }
  c->nchannels = TT_MIN(TT_GRAPH_MAX_CHANNELS, 2 * c->nsearch);
  const tt_plan_graph *ring = &c->common[TT_GRAPH_RING], *link = &c->common[TT_GRAPH_COLLNET_CHAIN];
  if (c->collnet && link->bw_intra > link->bw_inter && c->nranks > c->nnodes) {
    copy_channels(c, c->nchannels + c->nchannels / 2);
  }
  if (c->machine.cc_min >= 90 && c->nnodes > 1 && ring->bw_intra > 45.0F && c->nchannels < 16) {
    copy_channels(c, 2 * c->nchannels);
  }
  int most = opt->max_channels == -2 ? TT_GRAPH_MAX_CHANNELS : TT_CLAMP(opt->max_channels, 1, TT_GRAPH_MAX_CHANNELS);
  int least = TT_CLAMP(opt->min_channels, 0, TT_GRAPH_MAX_CHANNELS);
  c->nchannels = TT_MAX(1, TT_MIN(TT_MIN(most, c->nchannels), opt->max_ctas));
  copy_channels(c, TT_MAX(least, opt->min_ctas));
}

static int count_nvls(const tt_connect *c, const tt_connect_options *opt)
{
  float net_bw = c->machine.net_bw;
  if (c->common[TT_GRAPH_NVLS].nchannels == 0 || c->nvls_heads == 0) {
    return 0;
  }
  int n = 16;
  if (c->machine.cc_min >= 100) {
    n = c->nnodes == 1 ? 24 : 32;
    bool small = net_bw >= 96.0F ? c->min_local <= 8 : net_bw >= 48.0F;
    n = c->nnodes > 1 && !(c->nnodes == 2 && net_bw >= 48.0F) && small ? 24 : n;
  }
  return TT_MAX(opt->min_ctas, TT_MIN(opt->max_ctas, n));
}

// ---- Making it ----

static ncclResult_t connect_allocate(tt_connect *c)
{
  tt_arena *a = &c->arena;
  TT_ARENA_NEW(a, c->shapes, c->nshapes);
  TT_ARENA_NEW(a, c->used, c->nshapes);
  TT_ARENA_NEW(a, c->shape_place, c->nshapes);
  TT_ARENA_NEW(a, c->shape_of, c->nnodes);
  TT_ARENA_NEW(a, c->first, c->nnodes + 1);
  TT_ARENA_NEW(a, c->ranks, c->nranks);
  TT_ARENA_NEW(a, c->node_of, c->nranks);
  TT_ARENA_NEW(a, c->local_of, c->nranks);
  return !a->failed ? ncclSuccess
                    : tt_fail(ncclSystemError, "no memory to connect %d ranks on %d nodes", c->nranks, c->nnodes);
}

// Ranks node by node.
static ncclResult_t sort_ranks(tt_connect *c)
{
  for (int r = 0; r < c->nranks; r++) {
    c->local_of[r] = c->first[c->node_of[r] + 1]++;
  }
  for (int n = 0; n < c->nnodes; n++) {
    if (c->first[n + 1] != tt_connect_shape(c, n)->ngpus) {
      return tt_fail(ncclInternalError, "node %d has %d ranks, its graphs have %d", n, c->first[n + 1],
                     tt_connect_shape(c, n)->ngpus);
    }
    c->first[n + 1] += c->first[n];
  }
  for (int r = 0; r < c->nranks; r++) {
    c->ranks[c->first[c->node_of[r]] + c->local_of[r]] = r;
  }
  return ncclSuccess;
}

static ncclResult_t find_places(tt_connect *c)
{
  static const tt_graph_kind ids[] = {TT_GRAPH_RING, TT_GRAPH_TREE, TT_GRAPH_COLLNET_CHAIN};
  int channels = 0, total = 0;
  for (size_t k = 0; k < TT_COUNT(ids); k++) {
    c->place_of[ids[k]] = channels;
    channels += c->common[ids[k]].nchannels;
  }
  for (int s = 0; s < c->nshapes; s++) {
    c->shape_place[s] = total;
    total += channels * c->shapes[s].ngpus;
  }
  TT_ARENA_NEW(&c->arena, c->place, total);
  if (c->place == NULL) {
    return tt_fail(ncclSystemError, "no memory for %d places in channels", total);
  }
  for (int s = 0; s < c->nshapes; s++) {
    for (int k = 0; k < channels && c->used[s]; k++) {
      int g = k < c->place_of[TT_GRAPH_TREE]            ? TT_GRAPH_RING
              : k < c->place_of[TT_GRAPH_COLLNET_CHAIN] ? TT_GRAPH_TREE
                                                        : TT_GRAPH_COLLNET_CHAIN;
      TT_TRY(connect_check_channel(&c->shapes[s], g, k - c->place_of[g],
                                   c->place + c->shape_place[s] + k * c->shapes[s].ngpus));
    }
  }
  return ncclSuccess;
}

static ncclResult_t connect_fill(tt_connect *c, const tt_connect_input *in)
{
  tt_connect_options def = tt_connect_options_default();
  const tt_connect_options *opt = in->opt != NULL ? in->opt : &def;
  TT_TRY(connect_allocate(c));
  memcpy(c->shapes, in->shapes, (size_t)c->nshapes * sizeof(*c->shapes));
  memcpy(c->shape_of, in->shape_of, (size_t)c->nnodes * sizeof(int));
  memcpy(c->node_of, in->node_of, (size_t)c->nranks * sizeof(int));
  for (int n = 0; n < c->nnodes; n++) {
    c->used[c->shape_of[n]] = true;
  }
  TT_TRY(sort_ranks(c));
  find_common(c);
  TT_TRY(find_places(c));
  c->nvls_heads = count_nvls_heads(c);
  c->collnet = opt->collnet && c->common[TT_GRAPH_COLLNET_CHAIN].nchannels > 0 && c->nnodes >= opt->collnet_nodes;
  count_channels(c, opt);
  c->nvls_channels = count_nvls(c, opt);
  c->nvls_heads = c->nvls_channels > 0 ? c->nvls_heads : 0;
  return ncclSuccess;
}

ncclResult_t tt_connect_create(const tt_connect_input *in, tt_connect **out)
{
  TT_TRY(check_input(in));
  tt_connect *c;
  TT_TRY(TT_NEW(c, 1, "no memory to connect %d ranks", in->nranks));
  c->nranks = in->nranks;
  c->nnodes = in->nnodes;
  c->nshapes = in->nshapes;
  c->machine = in->machine;
  ncclResult_t res = connect_fill(c, in);
  if (res != ncclSuccess) {
    tt_connect_destroy(c);
    return res;
  }
  *out = c;
  return ncclSuccess;
}

void tt_connect_destroy(tt_connect *c)
{
  if (c == NULL) {
    return;
  }
  tt_arena_clear(&c->arena);
  tt_free(c);
}
