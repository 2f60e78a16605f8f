// pat.c: "PAT". All-gather and reduce-scatter in log2(n) rounds for any n.
//
// Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing systems" (1997), and
// the same backwards for reduce-scatter. Blocks are numbered by distance: distance d of the rank at place p is the
// block of the rank at place p + d. In round j (step 2^j) of the all-gather a rank holds distances 0..2^j-1 and gets
// the next 2^j (or what is left) from place p + 2^j. Reduce-scatter runs the rounds from the last to the first and
// every message the other way, adding instead of copying. Within a round a rank gives one and takes one in turn, so
// that one slot is enough.
#include "coll/build.h"
#include "coll/coll_priv.h"

typedef struct pat {
  const tt_shape *shape;
  int n, place;
} pat;

static uint32_t block_at(const pat *p, int distance)
{
  return (uint32_t)tt_shape_rank_at(p->shape, p->place + distance);
}

static void pat_allgather(tt_build *b, const pat *p)
{
  tt_build_copy(b, 0, tt_ref_in(0), tt_ref_out(block_at(p, 0)));
  for (int step = 1; step < p->n; step *= 2) {
    int up = tt_shape_rank_at(p->shape, p->place + step), down = tt_shape_rank_at(p->shape, p->place - step);
    for (int i = 0; i < step && step + i < p->n; i++) {
      uint32_t sent = block_at(p, i), taken = block_at(p, step + i);
      tt_build_copy(b, 0, tt_ref_out(sent), tt_ref_fifo(down, sent));
      tt_build_copy(b, 0, tt_ref_fifo(up, taken), tt_ref_out(taken));
    }
  }
}

// Where the sum for a distance grows: in the output for the own block, in scratch for the others.
static tt_ref sum_at(int distance)
{
  return distance == 0 ? tt_ref_out(0) : tt_ref_tmp((uint32_t)distance - 1);
}

// Has anything been added at `distance` before the round with this step? The round before had twice the step.
static bool pat_begun(const pat *p, int distance, int step)
{
  return step * 2 + distance < p->n;
}

// Sends the sum for `distance` (its last use in this pass).
static void pat_give(tt_build *b, const pat *p, int distance, int step)
{
  int to = tt_shape_rank_at(p->shape, p->place + step);
  bool sum = pat_begun(p, distance, step);
  tt_build_step(b, sum ? 0 : TT_STEP_REDUCE, 0);
  tt_build_from(b, sum ? sum_at(distance) : tt_ref_in(block_at(p, distance)));
  tt_build_to(b, tt_ref_fifo(to, block_at(p, distance)));
}

static void pat_take(tt_build *b, const pat *p, int distance, int step)
{
  int from = tt_shape_rank_at(p->shape, p->place - step);
  tt_build_step(b, TT_STEP_REDUCE | (step == 1 ? TT_STEP_FINAL : 0), 0);
  tt_build_from(b, pat_begun(p, distance, step) ? sum_at(distance) : tt_ref_in(block_at(p, distance)));
  tt_build_from(b, tt_ref_fifo(from, block_at(p, distance)));
  tt_build_to(b, sum_at(distance));
  tt_build_tmp(b, distance);
}

static void pat_reducescatter(tt_build *b, const pat *p)
{
  int step = 1;
  while (step * 2 < p->n) {
    step *= 2;
  }
  for (; step >= 1; step /= 2) {
    for (int i = 0; i < step && step + i < p->n; i++) {
      pat_give(b, p, step + i, step);
      pat_take(b, p, i, step);
    }
  }
}

ncclResult_t tt_pat_write(const tt_shape *shape, tt_schedule **out)
{
  pat p = {.shape = shape, .n = shape->nranks, .place = tt_shape_place_of(shape, shape->rank)};
  tt_build b;
  tt_build_begin(&b, shape, 1);
  tt_build_strand(&b);
  if (shape->func == TT_FUNC_ALLGATHER) {
    pat_allgather(&b, &p);
  } else {
    pat_reducescatter(&b, &p);
  }
  return tt_build_end(&b, out);
}
