// tree.c: "Tree". Double binary tree: about 2 log n hops at nearly full bandwidth. Chunk t of a pass travels on tree t.
// "Packed": the same steps along trees that share a machine's links as well as trees can (topo/pack.h), one for each
// channel.
//
// Sums go up in one strand and results come down in another, so the next pass starts up while this one is still coming
// down. Which ranks are neighbours, with and without nodes, and in a tree that a channel gives: tree_branch.h.
#include "coll/build.h"
#include "coll/coll_priv.h"
#include "coll/tree_branch.h"

static void from_children(tt_build *b, const tt_branch *t)
{
  for (int at = 0, child; (child = tt_branch_next(t, &at)) >= 0;) {
    tt_build_from(b, tt_ref_fifo(child, t->sub));
  }
  tt_build_from(b, tt_ref_in(t->sub));
}

static void to_children(tt_build *b, const tt_branch *t)
{
  for (int at = 0, child; (child = tt_branch_next(t, &at)) >= 0;) {
    tt_build_to(b, tt_ref_fifo(child, t->sub));
  }
}

// Sum of the own input and what the children say, to the parent.
static void go_up(tt_build *b, const tt_branch *t)
{
  tt_build_step(b, TT_STEP_REDUCE, t->sub);
  from_children(b, t);
  tt_build_to(b, tt_ref_fifo(t->parent, t->sub));
}

// What the parent says, into the output and to the children.
static void tree_go_down(tt_build *b, const tt_branch *t)
{
  tt_build_step(b, 0, t->sub);
  tt_build_from(b, tt_ref_fifo(t->parent, t->sub));
  tt_build_to(b, tt_ref_out(t->sub));
  to_children(b, t);
}

// The top: complete the sum, keep it, and send it down where `down` says so.
static void turn_at_root(tt_build *b, const tt_branch *t, bool down)
{
  tt_build_step(b, TT_STEP_REDUCE | TT_STEP_FINAL, t->sub);
  from_children(b, t);
  tt_build_to(b, tt_ref_out(t->sub));
  if (down) {
    to_children(b, t);
  }
}

static void tree_allreduce(tt_build *b, const tt_branch *t)
{
  if (t->parent < 0) {
    turn_at_root(b, t, true);
  } else {
    go_up(b, t);
    tt_build_strand(b);
    tree_go_down(b, t);
  }
}

static void tree_broadcast(tt_build *b, const tt_branch *t)
{
  if (t->parent >= 0) {
    tree_go_down(b, t);
    return;
  }
  tt_build_step(b, 0, t->sub);
  tt_build_from(b, tt_ref_in(t->sub));
  tt_build_to(b, tt_ref_out(t->sub));
  to_children(b, t);
}

static void tree_reduce(tt_build *b, const tt_branch *t)
{
  if (t->parent < 0) {
    turn_at_root(b, t, false);
  } else {
    go_up(b, t);
  }
}

static ncclResult_t write_trees(const tt_shape *shape, bool packed, tt_schedule **out)
{
  tt_forest forest = tt_forest_of(shape, packed);
  tt_build b;
  tt_build_begin(&b, shape, forest.ntrees);
  for (int which = 0; which < forest.ntrees; which++) {
    tt_branch t = tt_forest_branch(&forest, which);
    if (which == 0 || !forest.together) {
      tt_build_strand(&b);
    }
    switch (shape->func) {
    case TT_FUNC_ALLREDUCE: tree_allreduce(&b, &t); break;
    case TT_FUNC_BROADCAST: tree_broadcast(&b, &t); break;
    default: tree_reduce(&b, &t); break;
    }
  }
  return tt_build_end(&b, out);
}

ncclResult_t tt_tree_write(const tt_shape *shape, tt_schedule **out)
{
  return write_trees(shape, false, out);
}

ncclResult_t tt_packed_write(const tt_shape *shape, tt_schedule **out)
{
  return write_trees(shape, true, out);
}
