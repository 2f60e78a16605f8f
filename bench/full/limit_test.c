// limit_test.c: what the machine could do at most, from a table of rates.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "limit.h"

static int read_text(const char *text, limit_table *t)
{
  FILE *f = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
  assert_non_null(f);
  int res = limit_read(f, t);
  fclose(f);
  return res;
}

static const char *const good = "cores 2.0 processors here\n"
                                "copy_1000 10.0 GB/s copy\nadd_1000 20.0 GB/s add\n"
                                "copy_4000 40.0 GB/s copy\nadd_4000 5.0 GB/s add\n"
                                "whatever 3 of no interest\n"
                                "line_exchange 100.0 ns a\nline_stream 10.0 ns b\n";

static int near(double a, double b)
{
  return fabs(a - b) < 1e-9 * fabs(b);
}

static void test_read(void **state)
{
  (void)state;
  limit_table t;
  assert_int_equal(read_text(good, &t), 0);
  assert_int_equal(t.n, 2);
  assert_true(t.cores == 2 && t.exchange_ns == 100 && t.stream_ns == 10);
  assert_true(t.copy[1] == 40 && t.add[0] == 20);
  assert_int_equal(read_text("copy_1000 10 GB/s x\n", &t), 1);
  // No rate of adding.
  assert_int_equal(read_text("cores 2 x\nline_exchange 1 x\nline_stream 1 x\ncopy_8 1 x\n", &t), 1);
  assert_int_equal(read_text("\n", &t), 1);
}

static void test_traffic(void **state)
{
  (void)state;
  assert_true(limit_traffic(COLL_ALL_REDUCE, 2, 100) == 400);
  assert_true(limit_traffic(COLL_REDUCE_SCATTER, 2, 100) == 300);
  assert_true(limit_traffic(COLL_ALL_GATHER, 4, 100) == 500);
  assert_true(limit_traffic(COLL_REDUCE, 2, 100) == 300);
  assert_true(limit_traffic(COLL_BROADCAST, 2, 100) == 200);
  assert_true(limit_traffic(COLL_ALL_TO_ALL, 2, 100) == 400);
  assert_true(limit_traffic(COLL_SEND_RECV, 2, 100) == 400);
}

static void test_us(void **state)
{
  (void)state;
  limit_table t;
  read_text(good, &t);
  // 1000 bytes of traffic at 20 GB/s are 50 ns, and a hand-over of 100 ns.
  assert_true(near(limit_us(&t, COLL_ALL_REDUCE, 2, 250, 0), 0.150));
  // Cold: at the rate of the largest working set.
  assert_true(near(limit_us(&t, COLL_ALL_REDUCE, 2, 250, 1), 0.300));
  // Half way between the sizes, in logarithms: 2000 bytes at sqrt(10 * 40) GB/s.
  assert_true(near(limit_us(&t, COLL_SEND_RECV, 2, 500, 0), 0.200));
  // Below and above the table: its ends.
  assert_true(near(limit_us(&t, COLL_SEND_RECV, 2, 25, 0), 0.110));
  assert_true(near(limit_us(&t, COLL_SEND_RECV, 2, 10000, 0), 1.100));
  // Rooted ones do not wait for an answer; more ranks than cores wait for the scheduler.
  assert_true(near(limit_us(&t, COLL_BROADCAST, 2, 500, 0), 0.110));
  assert_true(near(limit_us(&t, COLL_ALL_REDUCE, 4, 125, 0), 0.050));
  assert_true(limit_us(&(limit_table){0}, COLL_ALL_REDUCE, 2, 250, 0) == 0);
}

static void test_bus(void **state)
{
  (void)state;
  assert_true(near(limit_bus(COLL_ALL_REDUCE, 4, 1e6, 1000), 1.5));
  assert_true(near(limit_bus(COLL_ALL_GATHER, 4, 1e6, 1000), 0.75));
  assert_true(near(limit_bus(COLL_BROADCAST, 4, 1e6, 1000), 1));
  assert_true(limit_bus(COLL_BROADCAST, 4, 1e6, 0) == 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_read), cmocka_unit_test(test_traffic),
                                     cmocka_unit_test(test_us), cmocka_unit_test(test_bus)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
