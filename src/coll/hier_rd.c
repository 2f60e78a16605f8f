// hier_rd.c: "HierRD". All-reduce of small messages on several nodes: every rank hands its input to its node's leader,
// the leaders do recursive doubling (rd.c), and hand the result back. A message crosses about log2(nodes) times between
// nodes, one after the other.
//
// On one node the leader sums all inputs in one step: two hops.
#include "coll/build.h"
#include "coll/coll_priv.h"

static void follow(tt_build *b, int leader)
{
  tt_build_step(b, TT_STEP_REDUCE, 0);
  tt_build_from(b, tt_ref_in(0));
  tt_build_to(b, tt_ref_fifo(leader, 0));
  tt_build_copy(b, 0, tt_ref_fifo(leader, 0), tt_ref_out(0));
}

static void rd_lead(tt_build *b, const tt_team *team)
{
  if (team->count > 1) {
    tt_team_allreduce(b, team);
    return;
  }
  tt_build_step(b, TT_STEP_REDUCE | TT_STEP_FINAL, 0);
  tt_team_gather(b, team);
  tt_team_spread(b, team);
}

ncclResult_t tt_hierrd_write(const tt_shape *shape, tt_schedule **out)
{
  tt_team team = {
      .shape = shape, .count = tt_shape_nnodes(shape), .me = tt_shape_node_of(shape, shape->rank), .leaders = true};
  int leader = tt_shape_member(shape, team.me, 0);
  tt_build b;
  tt_build_begin(&b, shape, 1);
  tt_build_strand(&b);
  if (leader == shape->rank) {
    rd_lead(&b, &team);
  } else {
    follow(&b, leader);
  }
  return tt_build_end(&b, out);
}
