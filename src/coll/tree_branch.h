// tree_branch.h: the parent of each rank in the one or two trees that "Tree" uses, as ranks.
//
// Without a layout, or with one rank per node, these are the trees of tree_shape.h over all ranks. With several ranks
// on a node they are trees over the nodes: in each tree one rank of a node, its head, talks to other nodes, and the
// node's other ranks hang below the head. So a message enters each node once. The two trees have different heads where
// that is possible:
//   all-reduce   The sums of one tree and the results of the other run in different strands, so the trees may share no
//                edge, and two trees inside a node without a common edge exist from 4 ranks on. With a node of 2 or 3
//                ranks there is one tree only.
//   others       Everything flows one way. Both trees run in one strand, may share edges, and there are always two with
//                different heads.
//
// A channel that gives a tree has that one alone; "Packed" has one of its own. Functions with a root turn it round: on
// the way from the function's root to the tree's, the child becomes the parent.
#pragma once
#include <stdbool.h>

#include "coll/coll.h"
#include "coll/tree_shape.h"

typedef struct tt_forest {
  const tt_shape *shape;
  int ntrees;          // 1 or 2
  bool together;       // the trees may share edges: all their steps belong in one strand, tree 0 first
  const int *ups;      // the one tree that the channel gives; NULL: the following
  bool flat;           // every rank is a node of its own; nodes are places
  bool rooted;         // the function's root hangs above both trees, its node is no position of theirs
  int nnodes;          // positions that have a node
  tt_tree_shape nodes; // of the positions: nodes, less the root's
} tt_forest;

// Neighbours of the shape's rank in one tree.
typedef struct tt_branch {
  uint32_t sub;           // chunk of a pass that travels on the tree: its number
  int parent;             // -1: none
  int nchild, child[4];   // of trees over nodes: children in other nodes first
  const tt_forest *given; // of a tree that is given: the children are the rank's other neighbours. Else NULL
} tt_branch;

// Plans the trees of a shape of at least two ranks; `packed`: that of "Packed", if the layout has such trees. `shape`
// must live as long as the forest.
tt_forest tt_forest_of(const tt_shape *shape, bool packed);

// The rank's place in tree `which` < ntrees.
tt_branch tt_forest_branch(const tt_forest *f, int which);

// A rank's child at or behind place *at, from 0 on, which moves behind it; -1: no more. A given tree's by rank. The
// forest must live as long.
int tt_branch_next(const tt_branch *b, int *at);
