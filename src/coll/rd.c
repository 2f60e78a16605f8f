// rd.c: "RD". Recursive doubling all-reduce: log2(n) hops, each carrying the whole message. For small messages.
//
// Rabenseifner and Traeff, "More efficient reduction algorithms for non-power-of-two number of processors" (2004),
// section on recursive doubling. Of the n participants, 2e form pairs so that a power of two of players is left; the
// second of each pair hands its input to the first and gets the result back. In every round two players combine their
// sums, the lower player's first: both evaluate the same expression, hence every rank gets the same bits.
//
// Participants are all ranks, by their places. With nodes ("HierRD", hier_rd.c) they are the nodes' leaders, each of
// which adds what its followers have sent to its own input and passes the result on to them.
#include "coll/build.h"
#include "coll/coll_priv.h"

typedef struct doubling {
  int players; // largest power of two <= participants
  int extra;   // pairs: participants 2i (player) and 2i + 1, i < extra
  int player;  // this rank's number as a player; -1: second of a pair
  int partner; // rank of the other of the pair, -1: not in a pair
  const tt_team *team;
} doubling;

static int rank_of(const tt_team *team, int participant)
{
  return team->leaders ? tt_shape_member(team->shape, participant, 0) : tt_shape_rank_at(team->shape, participant);
}

static int rank_of_player(const doubling *d, int player)
{
  return rank_of(d->team, player < d->extra ? 2 * player : player + d->extra);
}

static doubling doubling_of(const tt_team *team)
{
  doubling d = {.players = 1, .partner = -1, .team = team};
  while (d.players * 2 <= team->count) {
    d.players *= 2;
  }
  d.extra = team->count - d.players;
  bool paired = team->me < 2 * d.extra;
  d.partner = paired ? rank_of(team, team->me ^ 1) : -1;
  d.player = !paired ? team->me - d.extra : team->me % 2 == 0 ? team->me / 2 : -1;
  return d;
}

void tt_team_gather(tt_build *b, const tt_team *team)
{
  tt_build_from(b, tt_ref_in(0));
  int node = tt_shape_node_of(team->shape, team->shape->rank);
  for (int i = 1; team->leaders && i < tt_shape_node_size(team->shape, node); i++) {
    tt_build_from(b, tt_ref_fifo(tt_shape_member(team->shape, node, i), 0));
  }
}

void tt_team_spread(tt_build *b, const tt_team *team)
{
  tt_build_to(b, tt_ref_out(0));
  int node = tt_shape_node_of(team->shape, team->shape->rank);
  for (int i = 1; team->leaders && i < tt_shape_node_size(team->shape, node); i++) {
    tt_build_to(b, tt_ref_fifo(tt_shape_member(team->shape, node, i), 0));
  }
}

static void second_of_pair(tt_build *b, const doubling *d)
{
  tt_build_step(b, TT_STEP_REDUCE, 0);
  tt_team_gather(b, d->team);
  tt_build_to(b, tt_ref_fifo(d->partner, 0));
  tt_build_step(b, 0, 0);
  tt_build_from(b, tt_ref_fifo(d->partner, 0));
  tt_team_spread(b, d->team);
}

// OUT holds the player's sum throughout: nobody else looks at it, and in place it is the input, read before it is
// written.
static void one_player(tt_build *b, const doubling *d)
{
  tt_build_step(b, TT_STEP_REDUCE, 0);
  tt_team_gather(b, d->team);
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
    if (!last) {
      tt_build_to(b, tt_ref_out(0));
      tt_build_to(b, tt_ref_fifo(rank_of_player(d, d->player ^ (bit * 2)), 0));
      continue;
    }
    tt_team_spread(b, d->team);
    if (d->partner >= 0) {
      tt_build_to(b, tt_ref_fifo(d->partner, 0));
    }
  }
}

void tt_team_allreduce(tt_build *b, const tt_team *team)
{
  doubling d = doubling_of(team);
  if (d.player < 0) {
    second_of_pair(b, &d);
  } else {
    one_player(b, &d);
  }
}

ncclResult_t tt_rd_write(const tt_shape *shape, tt_schedule **out)
{
  tt_team team = {.shape = shape, .count = shape->nranks, .me = tt_shape_place_of(shape, shape->rank)};
  tt_build b;
  tt_build_begin(&b, shape, 1);
  tt_build_strand(&b);
  tt_team_allreduce(&b, &team);
  return tt_build_end(&b, out);
}
