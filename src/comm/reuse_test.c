// reuse_test.c: which results count as cached.
#include "comm/reuse.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { MIB = 1 << 20 };

static char memory[4096];

static void test_the_same_buffers_again(void **state)
{
  (void)state;
  tt_reuse r = {.cache = 16 * MIB};
  assert_false(tt_reuse_cached(&r, memory, 12 * MIB)); // never seen
  for (int i = 0; i < 3; i++) {
    assert_true(tt_reuse_cached(&r, memory, 12 * MIB));
  }
  assert_true(tt_reuse_cached(&r, memory, 16 * MIB));
  assert_false(tt_reuse_cached(&r, memory, 16 * MIB + 1)); // the call itself drives it out
}

static void test_others_in_between(void **state)
{
  (void)state;
  tt_reuse r = {.cache = 16 * MIB};
  const char *a = memory, *b = memory + 64, *c = memory + 128;
  assert_false(tt_reuse_cached(&r, a, 6 * MIB));
  assert_false(tt_reuse_cached(&r, b, 6 * MIB));
  assert_true(tt_reuse_cached(&r, a, 6 * MIB)); // 12 MiB since its last use
  assert_true(tt_reuse_cached(&r, b, 6 * MIB));
  assert_false(tt_reuse_cached(&r, c, 6 * MIB));
  assert_false(tt_reuse_cached(&r, a, 6 * MIB)); // 18 MiB
}

static void test_no_cache(void **state)
{
  (void)state;
  tt_reuse r = {0};
  assert_false(tt_reuse_cached(&r, memory, 1));
  assert_false(tt_reuse_cached(&r, memory, 1));
}

// More results than are remembered: those that share a place count as never seen, which is always right.
static void test_many(void **state)
{
  (void)state;
  tt_reuse r = {.cache = (size_t)1 << 40};
  int cached = 0;
  for (int round = 0; round < 3; round++) {
    for (uintptr_t i = 0; i < 1000; i++) {
      cached += tt_reuse_cached(&r, (const void *)(0x10000 + i * 64 * 1024), MIB);
    }
  }
  assert_true(cached < 2 * TT_REUSE_SEEN);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_same_buffers_again),
                                     cmocka_unit_test(test_others_in_between), cmocka_unit_test(test_no_cache),
                                     cmocka_unit_test(test_many)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
