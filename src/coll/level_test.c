// level_test.c: what levels cost, and where they end.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/result.h"
#include "base/util.h"
#include "coll/build.h"
#include "coll/level.h"

// The levels of a message's schedule do not depend on the ranks that have no part in it, nor does their cost: with
// connections between all pairs of so many ranks there would be no memory.
static void message_of_many_ranks(void **state)
{
  (void)state;
  static const int ends[][2] = {{0, 1}, {3, 2}, {1, 1}, {0, 4}, {4, 0}};
  int count = 0, looked = 0;
  const tt_algorithm *table = tt_algorithms(&count);
  for (int a = 0; a < count; a++) {
    for (int f = TT_FUNC_SEND; f <= TT_FUNC_RECV && (table[a].funcs >> f & 1) != 0; f++) {
      for (size_t i = 0; i < TT_COUNT(ends); i++) {
        const tt_shape few = {.func = (tt_func)f, .nranks = 5, .rank = ends[i][0], .root = ends[i][1]};
        const int far = ends[i][0] == ends[i][1] ? 0 : 1;
        const tt_shape many = {.func = (tt_func)f, .nranks = 1 << 20, .rank = 1 << 19, .root = (1 << 19) - far};
        tt_schedule *x, *y;
        assert_int_equal(tt_algorithm_write(&table[a], &few, &x), ncclSuccess);
        assert_int_equal(tt_algorithm_write(&table[a], &many, &y), ncclSuccess);
        assert_int_equal(tt_schedule_level(&table[a], &few, x), ncclSuccess);
        assert_int_equal(tt_schedule_level(&table[a], &many, y), ncclSuccess);
        assert_int_equal(x->nsteps, y->nsteps);
        for (int k = 0; k < x->nsteps; k++) {
          assert_int_equal(x->steps[k].level, y->steps[k].level);
        }
        looked += x->nsteps;
        tt_schedule_free(x);
        tt_schedule_free(y);
      }
    }
  }
  assert_true(looked > 0);
}

// Two ranks, and one message that goes to and fro: each way takes a round.
static int ways;

static ncclResult_t write_to_and_fro(const tt_shape *shape, tt_schedule **out)
{
  tt_build b;
  tt_build_begin(&b, shape, 1);
  tt_build_strand(&b);
  for (int i = 0; i < ways; i++) {
    const tt_ref other = tt_ref_fifo(1 - shape->rank, 0);
    const bool sends = i % 2 == shape->rank;
    tt_build_copy(&b, 0, sends ? tt_ref_in(0) : other, sends ? other : tt_ref_out(0));
  }
  return tt_build_end(&b, out);
}

static ncclResult_t level_of(int n, int *last)
{
  static const tt_algorithm a = {.name = "ToAndFro", .funcs = 1u << TT_FUNC_ALLREDUCE, .write = write_to_and_fro};
  const tt_shape shape = {.func = TT_FUNC_ALLREDUCE, .nranks = 2, .rank = n % 2};
  tt_schedule *s;
  ways = n;
  assert_int_equal(tt_algorithm_write(&a, &shape, &s), ncclSuccess);
  ncclResult_t res = tt_schedule_level(&a, &shape, s);
  *last = s->steps[s->nsteps - 1].level;
  tt_schedule_free(s);
  return res;
}

// Two rounds with the same level would be in no order.
static void more_rounds_than_levels(void **state)
{
  (void)state;
  int last;
  assert_int_equal(level_of(UINT16_MAX, &last), ncclSuccess);
  assert_int_equal(last, UINT16_MAX); // takes what was sent in the round before
  assert_int_equal(level_of(UINT16_MAX + 1, &last), ncclInvalidUsage);
  assert_non_null(strstr(tt_last_error(), "ToAndFro"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(message_of_many_ranks),
                                     cmocka_unit_test(more_rounds_than_levels)};
  return cmocka_run_group_tests_name("level", tests, NULL, NULL);
}
