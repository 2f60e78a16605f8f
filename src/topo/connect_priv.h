// connect_priv.h: looking things up in connected graphs. Private to topo/.
#pragma once
#include "topo/connect.h"

static inline const tt_plan_shape *tt_connect_shape(const tt_connect *c, int node)
{
  return &c->shapes[c->shape_of[node]];
}

// The rank of a node's GPU number `local`.
static inline int tt_connect_rank(const tt_connect *c, int node, int local)
{
  return c->ranks[c->first[node] + local];
}

// The rank at place i of a node's channel.
static inline int tt_connect_at(const tt_connect *c, tt_graph_kind graph, int node, int channel, int i)
{
  const tt_plan_shape *s = tt_connect_shape(c, node);
  return tt_connect_rank(c, node, s->graph[graph].gpus[(size_t)channel * (size_t)s->ngpus + (size_t)i]);
}

// The place of a rank in a channel of its node: of ring, tree or chain, channels below the common number.
static inline int tt_connect_place(const tt_connect *c, tt_graph_kind graph, int channel, int rank)
{
  int shape = c->shape_of[c->node_of[rank]], n = c->shapes[shape].ngpus;
  return c->place[c->shape_place[shape] + (c->place_of[graph] + channel) * n + c->local_of[rank]];
}
