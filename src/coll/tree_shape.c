// tree_shape.c: arithmetic of the double binary tree.
//
// Tree 0 is the in-order tree: the lowest set bit of a position is its height, so odd positions are leaves, and
// position 0 hangs above the top as the root. Tree 1 has the same form with its nodes renamed: inner nodes (even) get
// odd names, shifted, and leaves the names that are left. The shift is the first for which no edge is common.
#include "coll/tree_shape.h"

#include <stdbool.h>

static int parent0(int n, int p)
{
  if (p == 0) {
    return -1;
  }
  int bit = p & -p;
  int up = (p ^ bit) | (bit << 1);
  return up < n ? up : p ^ bit;
}

// Children of p: at p - bit/2, and at p + bit/2 or the nearest below that exists.
static tt_tree_node node0(int n, int p)
{
  tt_tree_node node = {.parent = parent0(n, p)};
  if (p == 0) {
    int top = 1;
    while (top * 2 < n) {
      top *= 2;
    }
    if (n > 1) {
      node.child[node.nchild++] = top;
    }
    return node;
  }
  int half = (p & -p) / 2;
  if (half > 0) {
    node.child[node.nchild++] = p - half;
  }
  while (half > 0 && p + half >= n) {
    half /= 2;
  }
  if (half > 0) {
    node.child[node.nchild++] = p + half;
  }
  return node;
}

// Name in tree 1 of position x of tree 0.
static int rename1(const tt_tree_shape *t, int x)
{
  if (x % 2 == 0) {
    return (x + 1 + 2 * t->shift) % t->n;
  }
  if (t->n % 2 == 0) {
    return x - 1;
  }
  return x < 2 * t->shift ? x : x + 1;
}

static bool trees_share_an_edge(const tt_tree_shape *t)
{
  for (int x = 1; x < t->n; x++) {
    int a = rename1(t, x), b = rename1(t, parent0(t->n, x));
    if (parent0(t->n, a) == b || parent0(t->n, b) == a) {
      return true;
    }
  }
  return false;
}

tt_tree_shape tt_tree_shape_of(int n)
{
  tt_tree_shape t = {.n = n, .ntrees = 2};
  for (t.shift = 1; t.shift < n / 2; t.shift++) {
    if (!trees_share_an_edge(&t)) {
      return t;
    }
  }
  return (tt_tree_shape){.n = n, .ntrees = 1};
}

tt_tree_node tt_tree_node_at(const tt_tree_shape *t, int which, int p)
{
  if (which == 0) {
    return node0(t->n, p);
  }
  int x = 0;
  while (rename1(t, x) != p) {
    x++;
  }
  tt_tree_node node = node0(t->n, x);
  node.parent = node.parent < 0 ? -1 : rename1(t, node.parent);
  for (int i = 0; i < node.nchild; i++) {
    node.child[i] = rename1(t, node.child[i]);
  }
  return node;
}
