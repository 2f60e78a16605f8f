// oneshot.c: "Oneshot". Everybody sends its whole input to everybody who needs it (reduce-scatter: the part that is for
// them); one hop. For the smallest messages, and where cores are short: nobody waits twice. A rank that only sends,
// such as a broadcast's root, runs ahead as far as there are slots.
#include "coll/build.h"
#include "coll/coll_priv.h"

// Own input to every other rank and into `keep`, scaled where the function reduces.
static void send_to_all(tt_build *b, const tt_shape *shape, uint32_t id, tt_ref keep)
{
  tt_build_step(b, tt_func_reduces(shape->func) ? TT_STEP_REDUCE : 0, 0);
  tt_build_from(b, tt_ref_in(0));
  tt_build_to(b, keep);
  for (int i = 1; i < shape->nranks; i++) {
    tt_build_to(b, tt_ref_fifo((shape->rank + i) % shape->nranks, id));
  }
}

// The own part is taken from OUT, where it was scaled and rounded like the parts of the others: all ranks evaluate one
// expression.
static void oneshot_allreduce(tt_build *b, const tt_shape *shape)
{
  send_to_all(b, shape, 0, tt_ref_out(0));
  tt_build_step(b, TT_STEP_REDUCE | TT_STEP_FINAL, 0);
  for (int q = 0; q < shape->nranks; q++) {
    tt_build_from(b, q == shape->rank ? tt_ref_out(0) : tt_ref_fifo(q, 0));
  }
  tt_build_to(b, tt_ref_out(0));
}

static void oneshot_allgather(tt_build *b, const tt_shape *shape)
{
  send_to_all(b, shape, (uint32_t)shape->rank, tt_ref_out((uint32_t)shape->rank));
  for (int i = 1; i < shape->nranks; i++) {
    int q = (shape->rank + i) % shape->nranks;
    tt_build_copy(b, 0, tt_ref_fifo(q, (uint32_t)q), tt_ref_out((uint32_t)q));
  }
}

static void oneshot_broadcast(tt_build *b, const tt_shape *shape)
{
  if (shape->rank == shape->root) {
    send_to_all(b, shape, 0, tt_ref_out(0));
  } else {
    tt_build_copy(b, 0, tt_ref_fifo(shape->root, 0), tt_ref_out(0));
  }
}

// Sums what everybody has of a chunk into OUT, in the order of the ranks.
static void sum_up(tt_build *b, const tt_shape *shape, uint32_t chunk)
{
  tt_build_step(b, TT_STEP_REDUCE | TT_STEP_FINAL, 0);
  for (int q = 0; q < shape->nranks; q++) {
    tt_build_from(b, q == shape->rank ? tt_ref_in(chunk) : tt_ref_fifo(q, chunk));
  }
  tt_build_to(b, tt_ref_out(0));
}

static void oneshot_reduce(tt_build *b, const tt_shape *shape)
{
  if (shape->rank == shape->root) {
    sum_up(b, shape, 0);
    return;
  }
  tt_build_step(b, TT_STEP_REDUCE, 0);
  tt_build_from(b, tt_ref_in(0));
  tt_build_to(b, tt_ref_fifo(shape->root, 0));
}

static void oneshot_reducescatter(tt_build *b, const tt_shape *shape)
{
  for (int i = 1; i < shape->nranks; i++) {
    int q = (shape->rank + i) % shape->nranks;
    tt_build_step(b, TT_STEP_REDUCE, 0);
    tt_build_from(b, tt_ref_in((uint32_t)q));
    tt_build_to(b, tt_ref_fifo(q, (uint32_t)q));
  }
  sum_up(b, shape, (uint32_t)shape->rank);
}

ncclResult_t tt_oneshot_write(const tt_shape *shape, tt_schedule **out)
{
  tt_build b;
  tt_build_begin(&b, shape, 1);
  tt_build_strand(&b);
  switch (shape->func) {
  case TT_FUNC_ALLREDUCE: oneshot_allreduce(&b, shape); break;
  case TT_FUNC_ALLGATHER: oneshot_allgather(&b, shape); break;
  case TT_FUNC_BROADCAST: oneshot_broadcast(&b, shape); break;
  case TT_FUNC_REDUCE: oneshot_reduce(&b, shape); break;
  default: oneshot_reducescatter(&b, shape); break;
  }
  return tt_build_end(&b, out);
}
