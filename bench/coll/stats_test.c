// stats_test.c: medians, geometric means, the worst of several, missing values.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "stats.h"

static void test_median(void **state)
{
  (void)state;
  assert_true(stats_median((const double[]){3, 1, 2}, 3) == 2);
  assert_true(stats_median((const double[]){4, 1, 2, 3}, 4) == 2.5);
  assert_true(stats_median((const double[]){0, 7, 0, 5, 0}, 5) == 6);
  assert_true(stats_median((const double[]){0, 0}, 2) == 0);
  assert_true(stats_median(NULL, 0) == 0);
}

static void test_geometric(void **state)
{
  (void)state;
  stats_mean m = {0};
  assert_true(stats_geometric(&m) == 0);
  stats_add(&m, 2, 10);
  stats_add(&m, 8, 11);
  assert_true(fabs(stats_geometric(&m) - 4) < 1e-12);
  stats_add(&m, 0, 12); // missing
  stats_add(&m, NAN, 13);
  assert_true(fabs(stats_geometric(&m) - 4) < 1e-12);
  assert_int_equal(m.n, 2);
  assert_int_equal(m.where, 10);
  stats_add(&m, 0.5, 14);
  assert_true(fabs(stats_geometric(&m) - 2) < 1e-12);
  assert_true(m.worst == 0.5);
  assert_int_equal(m.where, 14);
}

static void test_least(void **state)
{
  (void)state;
  assert_int_equal(stats_least((const double[]){0, 3, 2, 5}, 4), 2);
  assert_int_equal(stats_least((const double[]){0, -1}, 2), -1);
  assert_int_equal(stats_least(NULL, 0), -1);
}

static void test_ratio(void **state)
{
  (void)state;
  assert_true(stats_ratio(3, 2) == 1.5);
  assert_true(stats_ratio(0, 2) == 0);
  assert_true(stats_ratio(3, 0) == 0);
}

static void test_size(void **state)
{
  (void)state;
  char text[24];
  assert_string_equal(stats_size(8, text), "8 B");
  assert_string_equal(stats_size(2048, text), "2 KiB");
  assert_string_equal(stats_size((size_t)256 << 20, text), "256 MiB");
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_median), cmocka_unit_test(test_geometric),
                                     cmocka_unit_test(test_least), cmocka_unit_test(test_ratio),
                                     cmocka_unit_test(test_size)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
