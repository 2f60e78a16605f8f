// tree_shape.h: two binary trees over positions 0..n-1 that share no edge, nearly every inner node of one being a leaf
// of the other.
//
// Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan" (2009). Theirs may
// share edges; ours may not, because each tree runs in a strand of its own and a connection belongs to one strand.
#pragma once

typedef struct tt_tree_shape {
  int n;
  int ntrees; // 2, or 1 where n is too small for two trees without a common edge (n < 6)
  int shift;  // how far the inner nodes of the second tree are moved
} tt_tree_shape;

typedef struct tt_tree_node {
  int parent; // position, -1 at the root
  int nchild; // 0..2
  int child[2];
} tt_tree_node;

// Prepares the trees for n >= 1 positions. O(n), no memory.
tt_tree_shape tt_tree_shape_of(int n);

// Neighbours of position `p` in tree `which` (0 or 1 < ntrees). O(n).
tt_tree_node tt_tree_node_at(const tt_tree_shape *t, int which, int p);
