// shape.c: arithmetic of shapes: blocks, places in the ring order, who needs which chunk of whom.
#include "base/result.h"
#include "base/util.h"
#include "coll/build.h"
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

static bool has_root(tt_func f)
{
  return f != TT_FUNC_ALLGATHER && f != TT_FUNC_REDUCESCATTER && f != TT_FUNC_ALLREDUCE && f != TT_FUNC_ALLTOALL;
}

ncclResult_t tt_shape_check(const tt_shape *shape, const char *name, uint32_t funcs)
{
  if ((unsigned)shape->func >= TT_NFUNCS || !(funcs >> shape->func & 1)) {
    return tt_fail(ncclInvalidArgument, "algorithm %s does not know the function %s", name, tt_func_name(shape->func));
  }
  if (shape->nranks < 1 || shape->rank < 0 || shape->rank >= shape->nranks) {
    return tt_fail(ncclInvalidArgument, "algorithm %s: rank %d of %d ranks", name, shape->rank, shape->nranks);
  }
  if (has_root(shape->func) && (shape->root < 0 || shape->root >= shape->nranks)) {
    return tt_fail(ncclInvalidArgument, "algorithm %s, %s: root or peer %d is not one of %d ranks", name,
                   tt_func_name(shape->func), shape->root, shape->nranks);
  }
  if (shape->layout && (shape->order || shape->layout->nranks != shape->nranks)) {
    return tt_fail(ncclInvalidArgument, "algorithm %s: %d ranks, but a layout of %d%s", name, shape->nranks,
                   shape->layout->nranks, shape->order ? " and a ring order beside it" : "");
  }
  int channels = shape->layout ? shape->layout->channels.count : 1;
  if (shape->channel < 0 || shape->channel >= channels) {
    return tt_fail(ncclInvalidArgument, "algorithm %s: channel %d of %d", name, shape->channel, channels);
  }
  return ncclSuccess;
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

ncclResult_t tt_write_alone(const tt_shape *shape, tt_schedule **out)
{
  tt_build b;
  tt_build_begin(&b, shape, 1);
  tt_build_strand(&b);
  tt_build_step(&b, tt_func_reduces(shape->func) ? TT_STEP_REDUCE | TT_STEP_FINAL : 0, 0);
  tt_build_from(&b, tt_ref_in(0));
  tt_build_to(&b, tt_ref_out(0));
  return tt_build_end(&b, out);
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
