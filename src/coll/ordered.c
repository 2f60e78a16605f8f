// ordered.c: "Ordered". Each rank sums one chunk of n from what all ranks send it, in the order of the ranks, with one
// rounding; then it sends the sum to every rank that needs it. For messages too long for Oneshot, where the order must
// be that of the ranks: a rank sends the message twice, not n - 1 times. Reduce-scatter is Oneshot's.
#include "coll/build.h"
#include "coll/coll_priv.h"

static int ordered_turn(const tt_shape *shape, int i)
{
  return (shape->rank + i) % shape->nranks;
}

// To every other rank the chunk that it sums.
static void ordered_scatter(tt_build *b, const tt_shape *shape)
{
  for (int i = shape->nranks - 1; i > 0; i--) {
    int q = ordered_turn(shape, i);
    tt_build_step(b, TT_STEP_REDUCE, (uint32_t)q); // a sum of one: scales the input where the operation does
    tt_build_from(b, tt_ref_in((uint32_t)q));
    tt_build_to(b, tt_ref_fifo(q, (uint32_t)q));
  }
}

// The sum of the own chunk, without its destinations.
static void ordered_sum(tt_build *b, const tt_shape *shape)
{
  uint32_t own = (uint32_t)shape->rank;
  tt_build_step(b, TT_STEP_REDUCE | TT_STEP_FINAL, own);
  for (int q = 0; q < shape->nranks; q++) {
    tt_build_from(b, q == shape->rank ? tt_ref_in(own) : tt_ref_fifo(q, own));
  }
}

// The sum goes to the others in a step of its own: with one slot there is room only when they have taken what they sum.
static void ordered_spread(tt_build *b, const tt_shape *shape)
{
  uint32_t own = (uint32_t)shape->rank;
  bool away = shape->func == TT_FUNC_REDUCE && shape->rank != shape->root;
  tt_build_to(b, away ? tt_ref_fifo(shape->root, own) : tt_ref_out(own));
  if (shape->func == TT_FUNC_ALLREDUCE) {
    tt_build_step(b, 0, own);
    tt_build_from(b, tt_ref_out(own));
    for (int i = 1; i < shape->nranks; i++) {
      tt_build_to(b, tt_ref_fifo(ordered_turn(shape, i), own));
    }
  }
}

// The other ranks' sums.
static void ordered_gather(tt_build *b, const tt_shape *shape)
{
  for (int i = 1; i < shape->nranks && (shape->func == TT_FUNC_ALLREDUCE || shape->rank == shape->root); i++) {
    uint32_t q = (uint32_t)ordered_turn(shape, i);
    tt_build_copy(b, q, tt_ref_fifo((int)q, q), tt_ref_out(q));
  }
}

ncclResult_t tt_ordered_write(const tt_shape *shape, tt_schedule **out)
{
  tt_build b;
  tt_build_begin(&b, shape, shape->nranks);
  tt_build_strand(&b);
  ordered_scatter(&b, shape);
  ordered_sum(&b, shape);
  ordered_spread(&b, shape);
  ordered_gather(&b, shape);
  return tt_build_end(&b, out);
}
