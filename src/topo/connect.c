// connect.c: neighbours in rings, trees, NVLS and collnet, each worked out when asked for.
#include "topo/connect_priv.h"

#include "base/util.h"

// ---- Rings ----

// The search's channel that a node uses for a channel's ring. Where channels come in pairs that cross (cross NIC 2), every other node takes
// the other one of the pair, so that each hop stays on one rail.
static int ring_channel(const tt_connect *c, int node, int channel)
{
  int base = c->origin[channel] % c->nsearch;
  bool crossed = tt_connect_shape(c, node)->graph[TT_GRAPH_RING].cross_nic == 2 && c->nsearch % 2 == 0 && node % 2 == 1;
  return crossed ? base ^ 1 : base;
}

int tt_connect_ring_step(const tt_connect *c, int channel, int rank, int step)
{
  int node = c->node_of[rank], ch = ring_channel(c, node, channel), n = tt_connect_shape(c, node)->ngpus;
  int at = tt_connect_place(c, TT_GRAPH_RING, ch, rank) + step;
  if (at >= 0 && at < n) {
    return tt_connect_at(c, TT_GRAPH_RING, node, ch, at);
  }
  int other = (node + step + c->nnodes) % c->nnodes;
  int last = tt_connect_shape(c, other)->ngpus - 1;
  return tt_connect_at(c, TT_GRAPH_RING, other, ring_channel(c, other, channel), step > 0 ? 0 : last);
}

void tt_connect_ring(const tt_connect *c, int channel, int start, int *out)
{
  for (int i = 0, r = start; i < c->nranks; i++) {
    out[i] = r;
    r = tt_connect_ring_step(c, channel, r, 1);
  }
}

// ---- Trees ----

// A tree in which leaves and inner nodes alternate: node r hangs below r with its lowest bit moved up, or cleared where that is too far.
// 0 is the root and has one child, which counts as the second.
static tt_btree_place first_tree(int n, int r)
{
  tt_btree_place p = {.up = -1, .down = {-1, -1}};
  if (r == 0) {
    for (int top = 1; top < n; top <<= 1) {
      p.down[1] = top;
    }
    return p;
  }
  int bit = r & -r, half = bit >> 1;
  p.up = (r ^ bit) | (bit << 1);
  p.up = p.up < n ? p.up : r ^ bit;
  p.second = r > p.up;
  p.down[0] = half > 0 ? r - half : -1;
  while (half > 0 && r + half >= n) {
    half >>= 1;
  }
  p.down[1] = half > 0 ? r + half : -1;
  return p;
}

// The second tree is the first one seen in a mirror, or moved on by one where n is odd: inner nodes of one are leaves of the other.
static int second_tree_node(int n, int node, int direction)
{
  if (node < 0) {
    return -1;
  }
  return n % 2 == 0 ? n - 1 - node : (node + direction + n) % n;
}

tt_btree_place tt_btree(int n, int node, int tree)
{
  if (tree == 0) {
    return first_tree(n, node);
  }
  tt_btree_place p = first_tree(n, second_tree_node(n, node, -1));
  p.up = second_tree_node(n, p.up, 1);
  p.down[0] = second_tree_node(n, p.down[0], 1);
  p.down[1] = second_tree_node(n, p.down[1], 1);
  return p;
}

// The place in a node's channel of the GPU that a child node (first or second) connects to.
static int child_place(const tt_plan_shape *s, bool second)
{
  int pattern = s->graph[TT_GRAPH_TREE].pattern, split = second ? TT_PATTERN_SPLIT_TREE : pattern;
  bool next = pattern != TT_PATTERN_TREE && pattern == split;
  return next && s->ngpus > 1 ? 1 : 0;
}

static void add_down(tt_tree_place *p, int rank)
{
  for (int i = 0; i < TT_TREE_DOWNS; i++) {
    if (p->down[i] < 0) {
      p->down[i] = rank;
      return;
    }
  }
}

// Neighbours within the node: a chain.
static tt_tree_place chain(const tt_connect *c, tt_graph_kind graph, int channel, int rank)
{
  int node = c->node_of[rank], i = tt_connect_place(c, graph, channel, rank);
  tt_tree_place p = {-1, {-1, -1, -1}};
  if (i > 0) {
    p.up = tt_connect_at(c, graph, node, channel, i - 1);
  }
  if (i < tt_connect_shape(c, node)->ngpus - 1) {
    p.down[0] = tt_connect_at(c, graph, node, channel, i + 1);
  }
  return p;
}

tt_tree_place tt_connect_tree(const tt_connect *c, int channel, int rank)
{
  int node = c->node_of[rank], ch = c->origin[channel] % c->nsearch;
  tt_tree_place p = chain(c, TT_GRAPH_TREE, ch, rank);
  tt_btree_place b = tt_btree(c->nnodes, node, c->origin[channel] / c->nsearch);
  const tt_plan_shape *s = tt_connect_shape(c, node);
  int i = tt_connect_place(c, TT_GRAPH_TREE, ch, rank);
  if (i == 0 && b.up >= 0) {
    p.up = tt_connect_at(c, TT_GRAPH_TREE, b.up, ch, child_place(tt_connect_shape(c, b.up), b.second));
  }
  for (int k = 0; k < 2; k++) {
    if (i == child_place(s, k == 1) && b.down[k] >= 0) {
      add_down(&p, tt_connect_at(c, TT_GRAPH_TREE, b.down[k], ch, 0));
    }
  }
  return p;
}

// How often n can be halved.
static int log2_down(int n)
{
  return 31 - __builtin_clz((unsigned)n);
}

int tt_connect_tree_depth(const tt_connect *c)
{
  return c->nranks / c->nnodes - 1 + log2_down(c->nnodes);
}

// ---- NVLS ----

tt_nvls_place tt_connect_nvls(const tt_connect *c, int channel, int rank)
{
  tt_nvls_place p = {.head = -1, .nheads = c->nvls_heads, .tree = {-1, {-1, -1, -1}}};
  int node = c->node_of[rank], n = 0;
  const int *heads = tt_connect_heads(c, c->shape_of[node], 0, &n);
  for (int h = 0; h < c->nvls_heads && p.head < 0; h++) {
    p.head = heads[h] == c->local_of[rank] ? h : -1;
  }
  if (p.head < 0 || c->nnodes == 1) {
    return p;
  }
  tt_btree_place b = tt_btree(c->nnodes, node, channel % 2);
  for (int k = -1; k < 2; k++) {
    int other = k < 0 ? b.up : b.down[k];
    if (other < 0) {
      continue;
    }
    int there = tt_connect_rank(c, other, tt_connect_heads(c, c->shape_of[other], 0, &n)[p.head]);
    if (k < 0) {
      p.tree.up = there;
    } else {
      add_down(&p.tree, there);
    }
  }
  return p;
}

// ---- Collnet ----

tt_tree_place tt_connect_chain(const tt_connect *c, int channel, int rank)
{
  int ch = c->origin[channel] % c->nsearch;
  if (!c->collnet || ch >= c->common[TT_GRAPH_COLLNET_CHAIN].nchannels) {
    return (tt_tree_place){-1, {-1, -1, -1}};
  }
  tt_tree_place p = chain(c, TT_GRAPH_COLLNET_CHAIN, ch, rank);
  p.up = p.up < 0 ? c->nranks : p.up;
  return p;
}

tt_direct_place tt_connect_direct(const tt_connect *c, int rank)
{
  tt_direct_place p = {.head = -1, .out = -1};
  int node = c->node_of[rank], n = tt_connect_shape(c, node)->ngpus;
  const int *heads = tt_connect_heads(c, c->shape_of[node], 1, &p.nheads);
  if (!c->collnet || c->max_local > TT_GRAPH_MAX_DIRECT || p.nheads == 0) {
    return (tt_direct_place){.head = -1, .out = -1};
  }
  for (int h = 0; h < p.nheads; h++) {
    if (heads[h] == c->local_of[rank]) {
      p.head = h;
    } else {
      p.up[p.nup++] = tt_connect_rank(c, node, heads[h]);
    }
  }
  for (int i = 0; p.head >= 0 && i < n; i++) {
    int below = tt_connect_at(c, TT_GRAPH_COLLNET_DIRECT, node, p.head, i);
    if (below != rank) {
      p.down[p.ndown++] = below;
    }
  }
  p.out = p.head >= 0 ? c->nranks : -1;
  p.shift = rank % n % p.nheads;
  for (int h = 0; h < p.nheads; h++) {
    p.heads[h] = tt_connect_rank(c, node, heads[(TT_MAX(p.head, 0) + h) % p.nheads]);
  }
  return p;
}

// ---- Network cards ----

// Of the channels whose head a rank is, the one that comes `turn`-th; -1: it is no head.
static int headed_channel(const tt_plan_graph *g, int ngpus, int local, int turn)
{
  int of[TT_GRAPH_MAX_CHANNELS], n = 0;
  for (int ch = 0; ch < g->nchannels; ch++) {
    if (g->gpus[(size_t)ch * (size_t)ngpus] == local) {
      of[n++] = ch;
    }
  }
  return n > 0 ? of[turn % n] : -1;
}

int tt_connect_net(const tt_connect *c, tt_graph_kind graph, int channel, int rank)
{
  int node = c->node_of[rank];
  const tt_plan_shape *s = tt_connect_shape(c, node);
  const tt_plan_graph *g = &s->graph[graph];
  if (g->nets == NULL || g->nchannels == 0) {
    return -1;
  }
  if (graph == TT_GRAPH_NVLS) {
    int ch = headed_channel(g, s->ngpus, c->local_of[rank], channel);
    return ch < 0 ? -1 : g->nets[ch * 2];
  }
  int ch = graph == TT_GRAPH_RING ? ring_channel(c, node, channel) : c->origin[channel] % c->nsearch % g->nchannels;
  bool first = g->gpus[(size_t)ch * (size_t)s->ngpus] == c->local_of[rank];
  return g->nets[ch * 2 + (first ? 0 : 1)];
}
