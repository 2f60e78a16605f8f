// flight_test.c: the ring of a flight recorder: order, states, what is overwritten; copies while another thread adds.
#include "device/flight.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <string.h>

static void states(void **state)
{
  (void)state;
  tt_flight f = {.n = 0};
  tt_flight_entry *all;
  tt_flight_open(&f, 4);
  assert_int_equal(tt_flight_copy(&f, &all), 0);
  tt_flight_add(&f, 1, 10, NULL, 1, tt_ticks());
  uint64_t first = tt_flight_queue(&f, 2, 20, &f, 2, tt_ticks());
  assert_int_equal(tt_flight_queue(&f, 3, 30, &f, 2, tt_ticks()), first + sizeof(tt_flight_op));
  tt_flight_start(&f, first, 2, false);
  tt_flight_end(&f, first, 1, false);
  assert_int_equal(tt_flight_copy(&f, &all), 3);
  for (uint64_t i = 0; i < 3; i++) {
    assert_int_equal(all[i].number, i);
    assert_int_equal(all[i].kind, i + 1);
    assert_int_equal(all[i].count, 10 * (i + 1));
  }
  assert_int_equal(all[0].ended, all[0].added);
  assert_true(all[1].ended >= all[1].started && all[1].ended != TT_FLIGHT_NOT_YET);
  assert_true(all[2].started != TT_FLIGHT_NOT_YET && all[2].ended == TT_FLIGHT_NOT_YET);
  tt_free(all);
  tt_flight_close(&f);
}

static void old_ones_go(void **state)
{
  (void)state;
  tt_flight f = {.n = 0};
  tt_flight_entry *all;
  tt_flight_open(&f, 3); // becomes 4
  uint64_t stuck = tt_flight_queue(&f, 0, 0, NULL, 0, tt_ticks());
  for (uint64_t i = 1; i < 11; i++) {
    tt_flight_queue(&f, i, 0, NULL, 0, tt_ticks());
  }
  tt_flight_end(&f, stuck, 1, false); // is not there any more, and another one stands in its place
  assert_int_equal(tt_flight_copy(&f, &all), 3);
  for (uint64_t i = 0; i < 3; i++) {
    assert_int_equal(all[i].kind, 8 + i);
    assert_true(all[i].ended == TT_FLIGHT_NOT_YET);
  }
  tt_free(all);
  tt_flight_close(&f);
}

static void nothing_is_recorded(void **state)
{
  (void)state;
  tt_flight f = {.n = 0};
  tt_flight_entry *all;
  tt_flight_open(&f, 0);
  assert_false(tt_flight_on(&f));
  assert_int_equal(tt_flight_now(&f), 0); // the clock is not read
  tt_flight_add(&f, 1, 1, NULL, 1, tt_ticks());
  tt_flight_start(&f, tt_flight_queue(&f, 1, 1, NULL, 1, tt_ticks()), 1, false);
  assert_int_equal(tt_flight_copy(&f, &all), 0);
  assert_null(all);
  tt_flight_close(&f);
}

// An operation in the place of one that ended later than the time that it shares.
static void at_once_is_known(void **state)
{
  (void)state;
  tt_flight f = {.n = 0};
  tt_flight_entry *all;
  tt_flight_open(&f, 1); // becomes 2
  uint64_t first = tt_flight_queue(&f, 1, 1, NULL, 1, 5);
  tt_flight_start(&f, first, 1, false);
  tt_flight_end(&f, first, 1, true);
  assert_int_equal(tt_flight_copy(&f, &all), 1);
  assert_true(all[0].started > 5 && all[0].ended == all[0].started);
  tt_free(all);
  first = tt_flight_queue(&f, 1, 1, NULL, 1, 6); // starts when it is added
  tt_flight_start(&f, first, 1, true);
  tt_flight_end(&f, first, 1, false);
  assert_int_equal(tt_flight_copy(&f, &all), 1);
  assert_true(all[0].started == 6 && all[0].ended > 6);
  tt_free(all);
  tt_flight_add(&f, 2, 2, NULL, 2, 7);
  tt_flight_add(&f, 3, 3, NULL, 3, 7);
  assert_int_equal(tt_flight_copy(&f, &all), 1);
  assert_true(all[0].kind == 3 && all[0].started == 7 && all[0].ended == 7 && all[0].thread == 0);
  tt_free(all);
  tt_flight_close(&f);
}

static tt_flight shared;
static _Atomic int over;

static void *add_many(void *arg)
{
  for (uint64_t i = 0; i < 300000; i++) {
    tt_flight_add(&shared, i, i, (const void *)(uintptr_t)i, (uint32_t)i, tt_ticks());
  }
  atomic_store(&over, 1);
  return arg;
}

// No copy has a part of one operation and a part of another.
static void copies_are_whole(void **state)
{
  (void)state;
  pthread_t t;
  tt_flight_open(&shared, 64);
  assert_int_equal(pthread_create(&t, NULL, add_many, NULL), 0);
  while (atomic_load(&over) == 0) {
    tt_flight_entry *all;
    size_t n = tt_flight_copy(&shared, &all);
    for (size_t i = 0; i < n; i++) {
      const tt_flight_entry *e = &all[i];
      assert_true(e->kind == e->number && e->count == e->number && e->stream == e->number && e->sequence == e->number);
    }
    tt_free(all);
  }
  pthread_join(t, NULL);
  tt_flight_close(&shared);
}

static void ticks(void **state)
{
  (void)state;
  const tt_moment then = {.ns = 1000, .ticks = 500}, now = {.ns = 3000, .ticks = 1500};
  assert_int_equal(tt_ticks_ns(1000, then, now), 2000);
  assert_int_equal(tt_ticks_ns(500, then, now), 1000);
  assert_int_equal(tt_ticks_ns(2000, then, now), 3000);
  assert_int_equal(tt_ticks_ns(1000, then, then), 1000);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(states),           cmocka_unit_test(old_ones_go),      cmocka_unit_test(nothing_is_recorded),
      cmocka_unit_test(at_once_is_known), cmocka_unit_test(copies_are_whole), cmocka_unit_test(ticks),
  };
  return cmocka_run_group_tests_name("flight", tests, NULL, NULL);
}
