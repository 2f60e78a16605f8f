// tree_shape_test.c: the two trees are trees, agree about neighbours, are low, share no edge and share the load.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/util.h"
#include "coll/tree_shape.h"

enum { MOST = 200 };

// Position of the root of a tree.
static int root_of(const tt_tree_shape *t, int which)
{
  int p = 0;
  while (tt_tree_node_at(t, which, p).parent >= 0) {
    p = tt_tree_node_at(t, which, p).parent;
  }
  return p;
}

static int height_of(const tt_tree_shape *t, int which, int p)
{
  tt_tree_node node = tt_tree_node_at(t, which, p);
  int height = 0;
  for (int i = 0; i < node.nchild; i++) {
    height = TT_MAX(height, 1 + height_of(t, which, node.child[i]));
  }
  return height;
}

static int size_of(const tt_tree_shape *t, int which, int p)
{
  tt_tree_node node = tt_tree_node_at(t, which, p);
  int size = 1;
  for (int i = 0; i < node.nchild; i++) {
    assert_int_equal(tt_tree_node_at(t, which, node.child[i]).parent, p);
    size += size_of(t, which, node.child[i]);
  }
  return size;
}

static int log2_up(int n)
{
  int k = 0;
  while (1 << k < n) {
    k++;
  }
  return k;
}

static void test_trees_span(void **state)
{
  (void)state;
  for (int n = 1; n <= MOST; n++) {
    tt_tree_shape t = tt_tree_shape_of(n);
    assert_int_equal(t.ntrees, n >= 6 ? 2 : 1);
    for (int which = 0; which < t.ntrees; which++) {
      int root = root_of(&t, which);
      assert_int_equal(tt_tree_node_at(&t, which, root).parent, -1);
      assert_int_equal(size_of(&t, which, root), n);
      assert_true(height_of(&t, which, root) <= log2_up(n) + 1);
    }
  }
}

static void test_no_common_edge(void **state)
{
  (void)state;
  for (int n = 6; n <= MOST; n++) {
    tt_tree_shape t = tt_tree_shape_of(n);
    assert_true(root_of(&t, 0) != root_of(&t, 1));
    for (int p = 0; p < n; p++) {
      tt_tree_node a = tt_tree_node_at(&t, 0, p);
      int up = tt_tree_node_at(&t, 1, p).parent;
      assert_true(up < 0 || (up != a.parent && tt_tree_node_at(&t, 0, up).parent != p));
    }
  }
}

static void test_load_is_shared(void **state)
{
  (void)state;
  for (int n = 6; n <= MOST; n++) {
    tt_tree_shape t = tt_tree_shape_of(n);
    int both = 0, more_than_three = 0;
    for (int p = 0; p < n; p++) {
      int a = tt_tree_node_at(&t, 0, p).nchild, b = tt_tree_node_at(&t, 1, p).nchild;
      both += a > 0 && b > 0;
      more_than_three += a + b > 3;
    }
    assert_true(both <= 3);
    assert_true(more_than_three <= 1);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_trees_span),
      cmocka_unit_test(test_no_common_edge),
      cmocka_unit_test(test_load_is_shared),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
