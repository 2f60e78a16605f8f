// connect.c: neighbours in rings and trees, each worked out when asked for.
#include "topo/connect_priv.h"

#include "base/util.h"

// ---- Rings ----

// The search's channel that a node uses for a channel's ring. Where channels come in pairs that cross (cross NIC 2),
// every other node takes the other one of the pair, so that each hop stays on one rail.
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

// A tree in which leaves and inner nodes alternate: node r hangs below r with its lowest bit moved up, or cleared where
// that is too far. 0 is the root and has one child, which counts as the second.
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

// The second tree is the first one seen in a mirror, or moved on by one where n is odd: inner nodes of one are leaves
// of the other.
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
static tt_tree_place tree_in_node(const tt_connect *c, int channel, int rank)
{
  int node = c->node_of[rank], i = tt_connect_place(c, TT_GRAPH_TREE, channel, rank);
  tt_tree_place p = {-1, {-1, -1, -1}};
  if (i > 0) {
    p.up = tt_connect_at(c, TT_GRAPH_TREE, node, channel, i - 1);
  }
  if (i < tt_connect_shape(c, node)->ngpus - 1) {
    p.down[0] = tt_connect_at(c, TT_GRAPH_TREE, node, channel, i + 1);
  }
  return p;
}

tt_tree_place tt_connect_tree(const tt_connect *c, int channel, int rank)
{
  int node = c->node_of[rank], ch = c->origin[channel] % c->nsearch;
  tt_tree_place p = tree_in_node(c, ch, rank);
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

int tt_connect_net(const tt_connect *c, tt_graph_kind graph, int channel, int rank)
{
  int node = c->node_of[rank];
  bool ring = graph == TT_GRAPH_RING;
  int ch = ring ? ring_channel(c, node, channel) : c->origin[channel] % c->nsearch;
  const tt_plan_graph *g = &tt_connect_shape(c, node)->graph[graph];
  bool first = tt_connect_place(c, graph, ch, rank) == 0;
  return g->nets == NULL ? -1 : g->nets[2 * ch + (first ? 0 : 1)];
}
