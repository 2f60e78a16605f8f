// tree_branch.c: trees over nodes, a tree inside each node, and where the two meet; trees that channels give.
#include "coll/tree_branch.h"

#include "coll/coll_priv.h"

// ---- inside a node: positions 0 .. size-1, the head's neighbours in other nodes not counted ----

// From this size on, tree_shape.h has two trees without a common edge; from 4 on there are two such chains.
enum { TWO_TREES = 6, TWO_CHAINS = 4 };

// The second chain visits the odd positions, then the even ones: no two neighbours of the first chain follow one
// another.
static int chain1_at(int size, int step)
{
  return step < size / 2 ? 2 * step + 1 : 2 * (step - size / 2);
}

static tt_tree_node chain_node(int size, int which, int p)
{
  int step = which == 0 ? p : p % 2 == 1 ? p / 2 : size / 2 + p / 2;
  int before = step - 1, behind = step + 1;
  tt_tree_node node = {.parent = before < 0 ? -1 : which == 0 ? before : chain1_at(size, before)};
  if (behind < size) {
    node.child[node.nchild++] = which == 0 ? behind : chain1_at(size, behind);
  }
  return node;
}

// Trees that must not share an edge.
static tt_tree_node apart_node(const tt_forest *f, int size, int which, int p)
{
  tt_tree_shape t = tt_tree_shape_of(size);
  if (f->ntrees == 2 && size >= TWO_CHAINS && size < TWO_TREES) {
    return chain_node(size, which, p);
  }
  return tt_tree_node_at(&t, t.ntrees == 2 ? which : 0, p);
}

// Position of the head among its node's ranks.
static int head_index(const tt_forest *f, int node, int which)
{
  int size = tt_shape_node_size(f->shape, node);
  if (f->rooted && tt_shape_node_of(f->shape, f->shape->root) == node) {
    return tt_shape_index_of(f->shape, f->shape->root);
  }
  if (f->together) {
    return which == 0 ? 0 : size / 2;
  }
  int p = 0;
  while (apart_node(f, size, which, p).parent >= 0) {
    p++;
  }
  return p;
}

// Trees that may share edges: one form, turned so that the head is its root; the second is the first seen in a mirror,
// so that leaves of one tend to be inner nodes of the other.
static int turned(int p, int size, int head, int which)
{
  return tt_mod(which == 0 ? head + p : head - p, size);
}

static tt_tree_node together_node(int size, int head, int which, int p)
{
  tt_tree_shape t = tt_tree_shape_of(size);
  tt_tree_node node = tt_tree_node_at(&t, 0, tt_mod(which == 0 ? p - head : head - p, size));
  node.parent = node.parent < 0 ? -1 : turned(node.parent, size, head, which);
  for (int i = 0; i < node.nchild; i++) {
    node.child[i] = turned(node.child[i], size, head, which);
  }
  return node;
}

// ---- between nodes ----

static int branch_node_of(const tt_forest *f, int rank)
{
  return f->flat ? tt_shape_place_of(f->shape, rank) : tt_shape_node_of(f->shape, rank);
}

static int branch_head_of(const tt_forest *f, int node, int which)
{
  return f->flat ? tt_shape_rank_at(f->shape, node) : tt_shape_member(f->shape, node, head_index(f, node, which));
}

// Node number `p` positions behind the root's, or simply number p.
static int node_at(const tt_forest *f, int p)
{
  return f->rooted ? tt_mod(branch_node_of(f, f->shape->root) + 1 + p, f->nnodes) : p;
}

// The second tree over few nodes, where tree_shape.h has only one, is the first seen in a mirror.
static tt_tree_node position_node(const tt_forest *f, int which, int p)
{
  int last = f->nodes.n - 1;
  if (which == 0 || f->nodes.ntrees == 2) {
    return tt_tree_node_at(&f->nodes, which, p);
  }
  tt_tree_node node = tt_tree_node_at(&f->nodes, 0, last - p);
  node.parent = node.parent < 0 ? -1 : last - node.parent;
  for (int i = 0; i < node.nchild; i++) {
    node.child[i] = last - node.child[i];
  }
  return node;
}

static int top_position(const tt_forest *f, int which)
{
  int p = 0;
  while (position_node(f, which, p).parent >= 0) {
    p++;
  }
  return p;
}

// What the head of a node has beyond it.
static void join_nodes(const tt_forest *f, int node, int which, tt_branch *branch)
{
  if (f->rooted && node == branch_node_of(f, f->shape->root)) {
    branch->child[branch->nchild++] = branch_head_of(f, node_at(f, top_position(f, which)), which);
    return;
  }
  int p = f->rooted ? tt_mod(node - branch_node_of(f, f->shape->root) - 1, f->nnodes) : node;
  tt_tree_node at = position_node(f, which, p);
  if (at.parent >= 0) {
    branch->parent = branch_head_of(f, node_at(f, at.parent), which);
  } else if (f->rooted) {
    branch->parent = f->shape->root;
  }
  for (int i = 0; i < at.nchild; i++) {
    branch->child[branch->nchild++] = branch_head_of(f, node_at(f, at.child[i]), which);
  }
}

static void join_ranks(const tt_forest *f, int node, int which, tt_branch *branch)
{
  int size = tt_shape_node_size(f->shape, node), index = tt_shape_index_of(f->shape, f->shape->rank);
  tt_tree_node at =
      f->together ? together_node(size, head_index(f, node, which), which, index) : apart_node(f, size, which, index);
  if (at.parent >= 0) {
    branch->parent = tt_shape_member(f->shape, node, at.parent);
  }
  for (int i = 0; i < at.nchild; i++) {
    branch->child[branch->nchild++] = tt_shape_member(f->shape, node, at.child[i]);
  }
}

// ---- a tree that is given ----

// Whom a rank hangs below when the function's root is on top.
static int parent_below(const tt_forest *f, int top, int rank)
{
  for (int at = top; at != rank; at = f->ups[at]) {
    if (f->ups[at] < 0) {
      return f->ups[rank]; // not on the way from `top` up
    }
    if (f->ups[at] == rank) {
      return at;
    }
  }
  return -1;
}

// Neighbours are the rank's parent and children as given; one of them is the parent now.
static tt_branch described_branch(const tt_forest *f)
{
  int rank = f->shape->rank;
  return (tt_branch){.parent = f->rooted ? parent_below(f, f->shape->root, rank) : f->ups[rank], .given = f};
}

int tt_branch_next(const tt_branch *b, int *at)
{
  const tt_forest *f = b->given;
  if (!f) {
    return *at < b->nchild ? b->child[(*at)++] : -1;
  }
  int rank = f->shape->rank;
  while (*at < f->shape->nranks) {
    int r = (*at)++;
    if ((r == f->ups[rank] || f->ups[r] == rank) && r != b->parent) {
      return r;
    }
  }
  return -1;
}

tt_branch tt_forest_branch(const tt_forest *f, int which)
{
  if (f->ups) {
    return described_branch(f);
  }
  tt_branch branch = {.sub = (uint32_t)which, .parent = -1};
  int node = branch_node_of(f, f->shape->rank);
  if (branch_head_of(f, node, which) == f->shape->rank) {
    join_nodes(f, node, which, &branch);
  }
  if (!f->flat) {
    join_ranks(f, node, which, &branch);
  }
  return branch;
}

// Are there two trees for an all-reduce that share no edge? Two nodes without a second head may be joined in one tree
// only.
static bool two_apart(const tt_forest *f)
{
  const tt_layout *l = f->shape->layout;
  for (int k = 0; k < l->nnodes; k++) {
    int size = tt_layout_size(l, k);
    if (size < TWO_CHAINS && (size > 1 || f->nodes.ntrees == 1)) {
      return false;
    }
  }
  return true;
}

tt_forest tt_forest_of(const tt_shape *shape, bool packed)
{
  const tt_layout *l = shape->layout;
  const int *ups =
      packed && l && tt_layout_packed(l, shape->channel) ? tt_layout_packed(l, shape->channel) : tt_shape_ups(shape);
  if (ups) {
    return (tt_forest){.shape = shape, .ups = ups, .rooted = shape->func != TT_FUNC_ALLREDUCE, .ntrees = 1};
  }
  tt_forest f = {
      .shape = shape, .flat = !l || l->nnodes == 1 || l->largest == 1, .rooted = shape->func != TT_FUNC_ALLREDUCE};
  f.nnodes = f.flat ? shape->nranks : l->nnodes;
  f.nodes = tt_tree_shape_of(f.rooted ? f.nnodes - 1 : f.nnodes);
  f.together = f.rooted && !f.flat;
  f.ntrees = f.flat ? f.nodes.ntrees : f.together || two_apart(&f) ? 2 : 1;
  return f;
}
