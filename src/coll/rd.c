// rd.c: "RD". Recursive doubling all-reduce: log2(n) hops, each carrying the whole message. For small messages.
//
// Rabenseifner and Traeff, "More efficient reduction algorithms for non-power-of-two number of processors" (2004), section on recursive
// doubling. Of the n places, 2e form pairs so that a power of two of players is left; the second of each pair hands its input to
// the first and gets the result back. In every round two players combine their sums, the lower player's first: both evaluate the same
// expression, hence every rank gets the same bits.
#include "coll/build.h"
#include "coll/coll_priv.h"

#include "base/result.h"

typedef struct doubling {
  int players; // largest power of two <= n
  int extra;   // pairs: places 2i (player) and 2i + 1, i < extra
  int player;  // this rank's number as a player; -1: second of a pair
  int partner; // rank of the other of the pair, -1: not in a pair
  const tt_shape *shape;
} doubling;

static int rank_of_player(const doubling *d, int player)
{
  return tt_shape_rank_at(d->shape, player < d->extra ? 2 * player : player + d->extra);
}

static doubling doubling_of(const tt_shape *shape)
{
  doubling d = {.players = 1, .partner = -1, .shape = shape};
  while (d.players * 2 <= shape->nranks) {
    d.players *= 2;
  }
  d.extra = shape->nranks - d.players;
  int place = tt_shape_place_of(shape, shape->rank);
  bool paired = place < 2 * d.extra;
  d.partner = paired ? tt_shape_rank_at(shape, place ^ 1) : -1;
  d.player = !paired ? place - d.extra : place % 2 == 0 ? place / 2 : -1;
  return d;
}

static void second_of_pair(tt_build *b, const doubling *d)
{
  tt_build_step(b, TT_STEP_REDUCE, 0);
  tt_build_from(b, tt_ref_in(0));
  tt_build_to(b, tt_ref_fifo(d->partner, 0));
  tt_build_copy(b, 0, tt_ref_fifo(d->partner, 0), tt_ref_out(0));
}

// OUT holds the player's sum throughout: nobody else looks at it, and in place it is the input, read before it is written.
static void one_player(tt_build *b, const doubling *d)
{
  tt_build_step(b, TT_STEP_REDUCE, 0);
  tt_build_from(b, tt_ref_in(0));
  if (d->partner >= 0) {
    tt_build_from(b, tt_ref_fifo(d->partner, 0));
  }
  tt_build_to(b, tt_ref_out(0));
  tt_build_to(b, tt_ref_fifo(rank_of_player(d, d->player ^ 1), 0));
  for (int bit = 1; bit < d->players; bit *= 2) {
    bool last = bit * 2 == d->players, lower = !(d->player & bit);
    tt_ref theirs = tt_ref_fifo(rank_of_player(d, d->player ^ bit), 0);
    tt_build_step(b, TT_STEP_REDUCE | (last ? TT_STEP_FINAL : 0), 0);
    tt_build_from(b, lower ? tt_ref_out(0) : theirs);
    tt_build_from(b, lower ? theirs : tt_ref_out(0));
    tt_build_to(b, tt_ref_out(0));
    if (!last) {
      tt_build_to(b, tt_ref_fifo(rank_of_player(d, d->player ^ (bit * 2)), 0));
    } else if (d->partner >= 0) {
      tt_build_to(b, tt_ref_fifo(d->partner, 0));
    }
  }
}

ncclResult_t tt_rd_write(const tt_shape *shape, tt_schedule **out)
{
  TT_TRY(tt_shape_check(shape, "RD", 1u << TT_FUNC_ALLREDUCE));
  if (shape->nranks == 1) {
    return tt_write_alone(shape, out);
  }
  doubling d = doubling_of(shape);
  tt_build b;
  tt_build_begin(&b, shape, 1);
  tt_build_strand(&b);
  if (d.player < 0) {
    second_of_pair(&b, &d);
  } else {
    one_player(&b, &d);
  }
  return tt_build_end(&b, out);
}
