// crossing_test.c: limits move with the figures as they should, and not at all with the library's own.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/util.h"
#include "coll/cost.h"
#include "coll/crossing.h"

static const tt_limits base = {
    .ll = 16 << 10, .direct_copy = 32 << 10, .direct_local = 8 << 10, .direct_chunk = 512 << 10};

// The limits on a machine where one figure is `factor` times the library's own.
static tt_limits with(tt_figure which, double factor)
{
  tt_figures f = tt_figures_default();
  tt_limits l = base;
  f.measured = 1;
  f.value[which] = (uint32_t)(factor * f.value[which]);
  assert_true(tt_figures_good(&f));
  assert_int_equal(tt_limits_find(&f, &l), ncclSuccess);
  return l;
}

static void own_figures_change_nothing(void **state)
{
  (void)state;
  tt_figures f = tt_figures_default();
  tt_limits l = base;
  assert_int_equal(tt_limits_find(&f, &l), ncclSuccess);
  assert_memory_equal(&l, &base, sizeof l);
  tt_cost_env own = tt_cost_env_of(&f, 3), table = tt_cost_env_default(3);
  assert_memory_equal(&own, &table, sizeof own);
}

static void limits_move_as_they_should(void **state)
{
  (void)state;
  tt_limits own = with(TT_FIG_LINE, 1);
  assert_true(own.direct_local == base.direct_local && own.direct_chunk == base.direct_chunk);
  // A call that takes longer to begin pays later.
  assert_true(with(TT_FIG_CALL_START, 2).direct_copy > own.direct_copy * 3 / 2);
  assert_true(with(TT_FIG_CALL_START, 0.25).direct_copy < own.direct_copy);
  assert_true(with(TT_FIG_CALL_START, 4).direct_local == own.direct_local); // within a process nothing is called
  assert_true(with(TT_FIG_PASS, 0.5).direct_copy < own.direct_copy);        // messages are copied twice over this way
  assert_true(with(TT_FIG_CALL, 0.8).direct_copy > own.direct_copy);
  // Meeting takes tokens, more of them than a message.
  assert_true(with(TT_FIG_LINE, 8).direct_local > own.direct_local);
  assert_true(with(TT_FIG_L2, 0.5).direct_chunk == base.direct_chunk / 2);
  for (double factor = 2; factor <= 64; factor *= 2) { // outboxes do not grow with the cache
    tt_limits l = with(TT_FIG_L2, factor);
    assert_true(l.direct_chunk == base.direct_chunk && tt_limits_good(&l));
  }
  assert_true(with(TT_FIG_NET_WAY, 4).direct_copy == own.direct_copy);
}

// Where direct access begins to pay was measured (docs/notes/performance-log.md) on one machine in two states: two
// cores that share caches, two that do not. The model finds it within a factor of two. LL ends to pay where a message
// takes more than one of its slots.
static void measured_crossings(void **state)
{
  (void)state;
  const uint32_t near[TT_FIGURES] = {27000, 8800, 114000, 1460, 12400, 2400, 3900, 2760, 23800, 1024};
  const uint32_t far[TT_FIGURES] = {150000, 3600, 114000, 1530, 6500, 2400, 6300, 2760, 23800, 1024};
  tt_figures f = tt_figures_default();
  tt_limits l = base;
  const size_t slot = tt_cost_env_default(2).payload[TT_LL];
  f.measured = 1;
  memcpy(f.value, near, sizeof near);
  assert_int_equal(tt_limits_find(&f, &l), ncclSuccess);
  assert_true(l.ll > slot / 2 && l.ll < 2 * slot);
  assert_true(l.direct_copy > 100000 / 2 && l.direct_copy < 100000 * 2);
  l = base;
  memcpy(f.value, far, sizeof far);
  assert_int_equal(tt_limits_find(&f, &l), ncclSuccess);
  assert_true(l.ll > slot / 2 && l.ll < 2 * slot);
  assert_true(l.direct_copy > 17000 / 2 && l.direct_copy < 17000 * 2);
}

// Whatever the figures: within limits, and whole lines.
static void limits_have_limits(void **state)
{
  (void)state;
  uint32_t seed = 1;
  for (int i = 0; i < 300; i++) {
    tt_figures f = tt_figures_default();
    for (int k = 0; k < TT_FIGURES; k++) {
      const tt_figure_row *row = tt_figure_row_at((tt_figure)k);
      seed = seed * 1664525u + 1013904223u;
      f.value[k] = (seed >> 8) % 3 == 0 ? row->least : (seed >> 8) % 3 == 1 ? row->most : row->own;
    }
    tt_limits l = base;
    f.measured = 1;
    assert_int_equal(tt_limits_find(&f, &l), ncclSuccess);
    const size_t now[] = {l.ll, l.direct_copy, l.direct_local, l.direct_chunk},
                 was[] = {base.ll, base.direct_copy, base.direct_local, base.direct_chunk};
    for (size_t k = 0; k < TT_COUNT(now); k++) {
      assert_true(now[k] >= was[k] / 16 && now[k] <= was[k] * 16 && now[k] % 64 == 0);
    }
    assert_true(tt_limits_good(&l));
  }
}

// What comes from another rank may be anything.
static void bad_limits(void **state)
{
  (void)state;
  const size_t wrong[] = {0, 63, 65, TT_LIMIT_MOST + 64, SIZE_MAX, SIZE_MAX - 63};
  assert_true(tt_limits_good(&base));
  for (size_t i = 0; i < TT_COUNT(wrong); i++) {
    for (size_t k = 0; k < sizeof base / sizeof(size_t); k++) {
      tt_limits l = base;
      memcpy((size_t *)&l + k, &wrong[i], sizeof(size_t));
      assert_false(tt_limits_good(&l));
    }
  }
}

static void no_memory(void **state)
{
  (void)state;
  tt_figures f = tt_figures_default();
  f.measured = 1;
  int failed = 0;
  ncclResult_t res = ncclSystemError;
  for (long k = 1; res != ncclSuccess; k++) {
    tt_limits l = base;
    tt_alloc_fail_at(k);
    res = tt_limits_find(&f, &l);
    tt_alloc_fail_at(0);
    if (res != ncclSuccess) {
      assert_int_equal(res, ncclSystemError);
      assert_memory_equal(&l, &base, sizeof l);
      failed++;
    }
    assert_true(k < 100000);
    k += k / 8;
  }
  assert_true(failed > 10);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(own_figures_change_nothing),
      cmocka_unit_test(limits_move_as_they_should),
      cmocka_unit_test(measured_crossings),
      cmocka_unit_test(limits_have_limits),
      cmocka_unit_test(bad_limits),
      cmocka_unit_test(no_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
