// tree.c: "Tree". Double binary tree: about 2 log n hops at nearly full bandwidth. Chunk t of a pass travels on tree t.
//
// Sums go up in one strand and results come down in another, so the next pass starts up while this one is still coming down.
#include "coll/build.h"
#include "coll/coll_priv.h"
#include "coll/tree_shape.h"

#include "base/result.h"

// Neighbours of this rank in one tree, as ranks.
typedef struct branch {
  uint32_t sub;
  int parent; // -1: none
  int nchild, child[2];
} branch;

static void from_children(tt_build *b, const branch *t)
{
  for (int i = 0; i < t->nchild; i++) {
    tt_build_from(b, tt_ref_fifo(t->child[i], t->sub));
  }
  tt_build_from(b, tt_ref_in(t->sub));
}

static void to_children(tt_build *b, const branch *t)
{
  for (int i = 0; i < t->nchild; i++) {
    tt_build_to(b, tt_ref_fifo(t->child[i], t->sub));
  }
}

// Sum of the own input and what the children say, to the parent.
static void go_up(tt_build *b, const branch *t)
{
  tt_build_strand(b);
  tt_build_step(b, TT_STEP_REDUCE, t->sub);
  from_children(b, t);
  tt_build_to(b, tt_ref_fifo(t->parent, t->sub));
}

// What the parent says, into the output and to the children.
static void go_down(tt_build *b, const branch *t)
{
  tt_build_strand(b);
  tt_build_step(b, 0, t->sub);
  tt_build_from(b, tt_ref_fifo(t->parent, t->sub));
  tt_build_to(b, tt_ref_out(t->sub));
  to_children(b, t);
}

// The top: complete the sum, keep it, and send it down where `down` says so.
static void turn_at_root(tt_build *b, const branch *t, bool down)
{
  tt_build_strand(b);
  tt_build_step(b, TT_STEP_REDUCE | TT_STEP_FINAL, t->sub);
  from_children(b, t);
  tt_build_to(b, tt_ref_out(t->sub));
  if (down) {
    to_children(b, t);
  }
}

static void tree_allreduce(tt_build *b, const branch *t)
{
  if (t->parent < 0) {
    turn_at_root(b, t, true);
  } else {
    go_up(b, t);
    go_down(b, t);
  }
}

static void tree_broadcast(tt_build *b, const branch *t)
{
  if (t->parent >= 0) {
    go_down(b, t);
    return;
  }
  tt_build_strand(b);
  tt_build_step(b, 0, t->sub);
  tt_build_from(b, tt_ref_in(t->sub));
  tt_build_to(b, tt_ref_out(t->sub));
  to_children(b, t);
}

static void tree_reduce(tt_build *b, const branch *t)
{
  if (t->parent < 0) {
    turn_at_root(b, t, false);
  } else {
    go_up(b, t);
  }
}

// Trees for all-reduce: positions are places.
static branch branch_free(const tt_shape *shape, const tt_tree_shape *trees, int which)
{
  tt_tree_node node = tt_tree_node_at(trees, which, tt_shape_place_of(shape, shape->rank));
  branch t = {.sub = (uint32_t)which, .nchild = node.nchild};
  t.parent = node.parent < 0 ? -1 : tt_shape_rank_at(shape, node.parent);
  for (int i = 0; i < node.nchild; i++) {
    t.child[i] = tt_shape_rank_at(shape, node.child[i]);
  }
  return t;
}

// Trees with a given root: two trees over the n-1 others, position 0 being the place behind the root's; the root hangs above both.
static branch branch_rooted(const tt_shape *shape, const tt_tree_shape *trees, int which)
{
  int first = tt_shape_place_of(shape, shape->root) + 1;
  branch t = {.sub = (uint32_t)which, .parent = -1};
  if (shape->rank == shape->root) {
    t.nchild = 1;
    t.child[0] = tt_shape_rank_at(shape, first + tt_tree_root_of(trees, which));
    return t;
  }
  int at = tt_mod(tt_shape_place_of(shape, shape->rank) - first, shape->nranks);
  tt_tree_node node = tt_tree_node_at(trees, which, at);
  t.parent = node.parent < 0 ? shape->root : tt_shape_rank_at(shape, first + node.parent);
  t.nchild = node.nchild;
  for (int i = 0; i < node.nchild; i++) {
    t.child[i] = tt_shape_rank_at(shape, first + node.child[i]);
  }
  return t;
}

ncclResult_t tt_tree_write(const tt_shape *shape, tt_schedule **out)
{
  TT_TRY(tt_shape_check(shape, "Tree", 1u << TT_FUNC_ALLREDUCE | 1u << TT_FUNC_BROADCAST | 1u << TT_FUNC_REDUCE));
  if (shape->nranks == 1) {
    return tt_write_alone(shape, out);
  }
  bool rooted = shape->func != TT_FUNC_ALLREDUCE;
  tt_tree_shape trees = tt_tree_shape_of(rooted ? shape->nranks - 1 : shape->nranks);
  tt_build b;
  tt_build_begin(&b, shape, trees.ntrees);
  for (int which = 0; which < trees.ntrees; which++) {
    branch t = rooted ? branch_rooted(shape, &trees, which) : branch_free(shape, &trees, which);
    switch (shape->func) {
    case TT_FUNC_ALLREDUCE: tree_allreduce(&b, &t); break;
    case TT_FUNC_BROADCAST: tree_broadcast(&b, &t); break;
    default: tree_reduce(&b, &t); break;
    }
  }
  return tt_build_end(&b, out);
}
