// directw.c: "DirectWrite". As Direct, but results are written into the peers' outputs: every byte is read once and written once.
//
// In place is safe: chunk r of anybody's buffer is read and written by its owner r only, and in one step.
#include "coll/build.h"
#include "coll/coll_priv.h"

#include "base/result.h"

static void to_all_outputs(tt_build *b, const tt_shape *shape, uint32_t chunk)
{
  tt_build_to(b, tt_ref_out(chunk));
  for (int i = 1; i < shape->nranks; i++) {
    tt_build_to(b, tt_ref_peer_out((shape->rank + i) % shape->nranks, chunk));
  }
}

static void directw_allreduce(tt_build *b, const tt_shape *shape)
{
  uint32_t own = (uint32_t)shape->rank;
  tt_build_tell_all(b);
  tt_direct_sum_all(b, shape, own, own);
  to_all_outputs(b, shape, own);
  tt_build_tell_all(b);
  tt_build_hear_all(b);
}

// Own input to block `block` of every output.
static void spread(tt_build *b, const tt_shape *shape, uint32_t block)
{
  tt_build_step(b, 0, 0);
  for (int i = 1; i < shape->nranks; i++) {
    tt_build_from(b, tt_ref_token((shape->rank + i) % shape->nranks));
  }
  tt_build_from(b, tt_ref_in(0));
  to_all_outputs(b, shape, block);
}

static void directw_allgather(tt_build *b, const tt_shape *shape)
{
  tt_build_tell_all(b);
  spread(b, shape, (uint32_t)shape->rank);
  tt_build_tell_all(b);
  tt_build_hear_all(b);
}

static void tell_one(tt_build *b, int peer)
{
  tt_build_step(b, 0, 0);
  tt_build_to(b, tt_ref_token(peer));
}

static void hear_one(tt_build *b, int peer)
{
  tt_build_step(b, 0, 0);
  tt_build_from(b, tt_ref_token(peer));
}

static void directw_broadcast(tt_build *b, const tt_shape *shape)
{
  if (shape->rank == shape->root) {
    spread(b, shape, 0);
    tt_build_tell_all(b);
  } else {
    tell_one(b, shape->root);
    hear_one(b, shape->root);
  }
}

// Rank r sums chunk r of all inputs into the root's output: all ranks share the work. In place at the root, chunk r of its input is
// read by rank r alone, in the step that overwrites it.
static void directw_reduce(tt_build *b, const tt_shape *shape)
{
  uint32_t own = (uint32_t)shape->rank;
  tt_build_tell_all(b);
  tt_direct_sum_all(b, shape, own, own);
  tt_build_to(b, shape->rank == shape->root ? tt_ref_out(own) : tt_ref_peer_out(shape->root, own));
  tt_build_tell_all(b);
  tt_build_hear_all(b);
}

ncclResult_t tt_directw_write(const tt_shape *shape, tt_schedule **out)
{
  TT_TRY(tt_shape_check(shape, "DirectWrite",
                        1u << TT_FUNC_ALLREDUCE | 1u << TT_FUNC_ALLGATHER | 1u << TT_FUNC_BROADCAST | 1u << TT_FUNC_REDUCE |
                            1u << TT_FUNC_REDUCESCATTER));
  if (shape->nranks == 1 || shape->func == TT_FUNC_REDUCESCATTER) {
    return tt_direct_write(shape, out); // nothing is written to others: the same as reading
  }
  bool split = shape->func == TT_FUNC_ALLREDUCE || shape->func == TT_FUNC_REDUCE;
  tt_build b;
  tt_build_begin(&b, shape, split ? shape->nranks : 1);
  tt_build_strand(&b);
  switch (shape->func) {
  case TT_FUNC_ALLREDUCE: directw_allreduce(&b, shape); break;
  case TT_FUNC_REDUCE: directw_reduce(&b, shape); break;
  case TT_FUNC_ALLGATHER: directw_allgather(&b, shape); break;
  default: directw_broadcast(&b, shape); break;
  }
  return tt_build_end(&b, out);
}
