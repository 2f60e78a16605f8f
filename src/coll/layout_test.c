// layout_test.c: any assignment of ranks to machines becomes numbered nodes, their members and a ring order.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/util.h"
#include "coll/layout.h"

enum { MOST = 40 };

static tt_layout *layout_of(int n, const int *name_of)
{
  tt_layout *l = NULL;
  assert_int_equal(tt_layout_create(n, name_of, &l), ncclSuccess);
  return l;
}

static void expect_ints(const int *got, int n, ...)
{
  va_list want;
  va_start(want, n);
  for (int i = 0; i < n; i++) {
    assert_int_equal(got[i], va_arg(want, int));
  }
  va_end(want);
}

static void test_names_are_any_numbers(void **state)
{
  (void)state;
  int name_of[] = {-7, 2000000000, -7, 5, 5, 5};
  tt_layout *l = layout_of(6, name_of);
  assert_int_equal(l->nranks, 6);
  assert_int_equal(l->nnodes, 3);
  assert_int_equal(l->smallest, 1);
  assert_int_equal(l->largest, 3);
  expect_ints(l->node_of, 6, 0, 1, 0, 2, 2, 2);
  expect_ints(l->index_of, 6, 0, 0, 1, 0, 1, 2);
  expect_ints(l->order, 6, 0, 2, 1, 3, 4, 5);
  expect_ints(l->first, 4, 0, 2, 3, 6);
  assert_int_equal(tt_layout_size(l, 2), 3);
  tt_layout_destroy(l);
}

static void test_ranks_dealt_out_in_turn(void **state)
{
  (void)state;
  int name_of[] = {1, 0, 1, 0, 1};
  tt_layout *l = layout_of(5, name_of);
  expect_ints(l->node_of, 5, 0, 1, 0, 1, 0);
  expect_ints(l->order, 5, 0, 2, 4, 1, 3);
  tt_layout_destroy(l);
}

static void check_layout(const tt_layout *l, const int *name_of)
{
  int seen = 0;
  for (int k = 0; k < l->nnodes; k++) {
    assert_in_range(tt_layout_size(l, k), l->smallest, l->largest);
    for (int i = 0; i < tt_layout_size(l, k); i++, seen++) {
      int r = l->order[l->first[k] + i];
      assert_int_equal(l->node_of[r], k);
      assert_int_equal(l->index_of[r], i);
      assert_true(i == 0 || r > l->order[l->first[k] + i - 1]);
      assert_int_equal(name_of[r], name_of[l->order[l->first[k]]]);
    }
    assert_true(k == 0 || l->order[l->first[k]] > l->order[l->first[k - 1]]);
  }
  assert_int_equal(seen, l->nranks);
}

static void test_every_number_of_nodes(void **state)
{
  (void)state;
  for (int n = 1; n <= MOST; n++) {
    for (int nodes = 1; nodes <= n; nodes++) {
      int name_of[MOST];
      for (int r = 0; r < n; r++) {
        name_of[r] = r < nodes ? r : r * r % nodes;
      }
      tt_layout *l = layout_of(n, name_of);
      assert_int_equal(l->nnodes, nodes);
      check_layout(l, name_of);
      tt_layout_destroy(l);
    }
  }
}

// ---- channels ----

static void test_channels_are_copied(void **state)
{
  (void)state;
  int names[4] = {0, 0, 1, 1}, rings[] = {2, 0, 3, 1, 0, 1, 2, 3}, ups[] = {-1, 0, 0, 0, 1, 2, 3, -1};
  tt_layout *l = layout_of(4, names);
  assert_int_equal(l->channels.count, 1);
  assert_true(tt_layout_ring(l, 0) == NULL && tt_layout_ups(l, 0) == NULL);
  assert_int_equal(tt_layout_set_channels(l, &(tt_channels){.count = 2, .rings = rings, .ups = ups}), ncclSuccess);
  rings[4] = ups[4] = 77;
  assert_int_equal(l->channels.count, 2);
  expect_ints(tt_layout_ring(l, 0), 4, 2, 0, 3, 1);
  expect_ints(tt_layout_ring(l, 1), 4, 0, 1, 2, 3);
  expect_ints(tt_layout_ups(l, 0), 4, -1, 0, 0, 0);
  expect_ints(tt_layout_ups(l, 1), 4, 1, 2, 3, -1);
  expect_ints(l->order, 4, 0, 1, 2, 3);
  assert_int_equal(tt_layout_set_channels(l, &(tt_channels){.count = 1, .rings = rings}), ncclSuccess); // others
  assert_int_equal(l->channels.count, 1);
  assert_null(tt_layout_ups(l, 0));
  assert_null(tt_layout_packed(l, 0));
  int packed[] = {-1, 0, 0, 0, 3, 3, 3, -1, 1, -1, 1, 1}; // trees of their own number
  assert_int_equal(tt_layout_set_channels(l, &(tt_channels){.count = 1, .ups = ups, .npacked = 3, .packed = packed}),
                   ncclSuccess);
  packed[0] = 77;
  assert_true(l->channels.count == 1 && l->channels.npacked == 3);
  expect_ints(tt_layout_packed(l, 0), 4, -1, 0, 0, 0);
  expect_ints(tt_layout_packed(l, 2), 4, 1, -1, 1, 1);
  tt_layout_destroy(l);
}

static void expect_refused(tt_layout *l, const tt_channels *c)
{
  const int *before = l->channels.rings;
  assert_int_equal(tt_layout_set_channels(l, c), ncclInvalidArgument);
  assert_true(l->channels.rings == before && l->channels.count == 1);
}

static void test_bad_channels(void **state)
{
  (void)state;
  static const int rings[][6] = {{0, 1, 2, 3, 4, 4}, {0, 1, 2, 3, 4, 6}, {0, 1, 2, 3, 4, -1}};
  static const int ups[][6] = {
      {-1, -1, 0, 0, 1, 1}, // two roots
      {-1, 0, 0, 0, 0, 1},  // four children
      {1, 0, 0, 0, 1, 1},   // no root
      {-1, 0, 3, 4, 2, 0},  // a circle beside the tree
      {-1, 0, 2, 0, 1, 1},  // below itself
      {-1, 0, 6, 0, 1, 1},  // below nobody
      {-1, 0, -2, 0, 1, 1},
  };
  int names[6] = {0}, good[6] = {5, 4, 3, 2, 1, 0};
  tt_layout *l = layout_of(6, names);
  expect_refused(l, &(tt_channels){.count = 1});
  expect_refused(l, &(tt_channels){.count = 0, .rings = good});
  expect_refused(l, &(tt_channels){.count = -1, .rings = good});
  assert_int_equal(tt_layout_set_channels(l, &(tt_channels){.count = 1, .rings = good}), ncclSuccess);
  for (int i = 0; i < 3; i++) {
    expect_refused(l, &(tt_channels){.count = 1, .rings = rings[i]});
  }
  for (int i = 0; i < 7; i++) {
    expect_refused(l, &(tt_channels){.count = 1, .rings = good, .ups = ups[i]});
    if (i != 1) {
      expect_refused(l, &(tt_channels){.count = 1, .rings = good, .npacked = 1, .packed = ups[i]});
    }
  }
  tt_alloc_fail_at(1);
  assert_int_equal(tt_layout_set_channels(l, &(tt_channels){.count = 1, .rings = good}), ncclSystemError);
  tt_alloc_fail_at(0);
  expect_ints(tt_layout_ring(l, 0), 6, 5, 4, 3, 2, 1, 0);
  tt_layout_destroy(l);
}

static void test_failures(void **state)
{
  (void)state;
  tt_layout *l = NULL;
  int none[] = {0};
  assert_int_equal(tt_layout_create(0, none, &l), ncclInvalidArgument);
  assert_int_equal(tt_layout_create(-1, none, &l), ncclInvalidArgument);
  tt_alloc_fail_at(1);
  assert_int_equal(tt_layout_create(1, none, &l), ncclSystemError);
  tt_alloc_fail_at(0);
  assert_null(l);
  tt_layout_destroy(NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_names_are_any_numbers), cmocka_unit_test(test_ranks_dealt_out_in_turn),
      cmocka_unit_test(test_every_number_of_nodes), cmocka_unit_test(test_channels_are_copied),
      cmocka_unit_test(test_bad_channels),          cmocka_unit_test(test_failures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
