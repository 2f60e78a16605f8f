// shape.c: arithmetic of shapes: blocks, places in the ring order, which chunk each rank needs of each other one.
#include "coll/coll_priv.h"

static bool is_root(const tt_shape *shape)
{
  return shape->rank == shape->root;
}

int tt_func_in_blocks(const tt_shape *shape)
{
  switch (shape->func) {
  case TT_FUNC_BROADCAST: return is_root(shape);
  case TT_FUNC_SCATTER: return is_root(shape) ? shape->nranks : 0;
  case TT_FUNC_REDUCESCATTER:
  case TT_FUNC_ALLTOALL: return shape->nranks;
  case TT_FUNC_RECV: return 0;
  default: return 1;
  }
}

int tt_func_out_blocks(const tt_shape *shape)
{
  switch (shape->func) {
  case TT_FUNC_REDUCE: return is_root(shape);
  case TT_FUNC_GATHER: return is_root(shape) ? shape->nranks : 0;
  case TT_FUNC_ALLGATHER:
  case TT_FUNC_ALLTOALL: return shape->nranks;
  case TT_FUNC_SEND: return 0;
  default: return 1;
  }
}

static const int *order_of(const tt_shape *shape)
{
  return shape->layout ? shape->layout->order : shape->order;
}

int tt_shape_rank_at(const tt_shape *shape, int place)
{
  const int *order = order_of(shape);
  int at = tt_mod(place, shape->nranks);
  return order ? order[at] : at;
}

const int *tt_shape_ring(const tt_shape *shape)
{
  return shape->layout ? tt_layout_ring(shape->layout, shape->channel) : NULL;
}

const int *tt_shape_ups(const tt_shape *shape)
{
  return shape->layout ? tt_layout_ups(shape->layout, shape->channel) : NULL;
}

int tt_shape_nnodes(const tt_shape *shape)
{
  return shape->layout ? shape->layout->nnodes : 1;
}

int tt_shape_node_of(const tt_shape *shape, int rank)
{
  return shape->layout ? shape->layout->node_of[rank] : 0;
}

int tt_shape_index_of(const tt_shape *shape, int rank)
{
  return shape->layout ? shape->layout->index_of[rank] : tt_shape_place_of(shape, rank);
}

int tt_shape_node_size(const tt_shape *shape, int node)
{
  return shape->layout ? tt_layout_size(shape->layout, node) : shape->nranks;
}

int tt_shape_member(const tt_shape *shape, int node, int index)
{
  return tt_shape_rank_at(shape, (shape->layout ? shape->layout->first[node] : 0) + index);
}

int tt_shape_place_of(const tt_shape *shape, int rank)
{
  if (shape->layout) {
    return shape->layout->first[shape->layout->node_of[rank]] + shape->layout->index_of[rank];
  }
  if (!shape->order) {
    return rank;
  }
  for (int i = 0; i < shape->nranks; i++) {
    if (shape->order[i] == rank) {
      return i;
    }
  }
  return 0;
}

static bool flows(const tt_shape *shape, int reader, int owner)
{
  switch (shape->func) {
  case TT_FUNC_BROADCAST:
  case TT_FUNC_SCATTER: return owner == shape->root;
  case TT_FUNC_REDUCE:
  case TT_FUNC_GATHER: return reader == shape->root;
  case TT_FUNC_SEND: return reader == shape->root && owner == shape->rank;
  case TT_FUNC_RECV: return reader == shape->rank && owner == shape->root;
  default: return true;
  }
}

bool tt_flow(const tt_shape *shape, int reader, int owner, uint32_t *in_block, uint32_t *out_block)
{
  tt_func f = shape->func;
  *in_block = f == TT_FUNC_SCATTER || f == TT_FUNC_ALLTOALL || f == TT_FUNC_REDUCESCATTER ? (uint32_t)reader : 0;
  *out_block = f == TT_FUNC_GATHER || f == TT_FUNC_ALLTOALL || f == TT_FUNC_ALLGATHER ? (uint32_t)owner : 0;
  return flows(shape, reader, owner);
}
