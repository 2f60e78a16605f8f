// ring_test.c: what finds room in the ring, what is kept, what is found again.
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "trace.h"

typedef struct seen {
  uint64_t numbers[64];
  int n;
} seen;

static void note(void *arg, const tt_record *e)
{
  seen *s = arg;
  s->numbers[s->n++ % 64] = e->number;
}

static void ring_loses_what_finds_no_room(void **state)
{
  (void)state;
  tt_ring r;
  seen s = {.n = 0};
  tt_record *e[8];
  assert_true(tt_ring_create(&r, 5, false));
  assert_int_equal(r.n, 8);
  for (int i = 0; i < 8; i++) {
    e[i] = tt_ring_start(&r);
    assert_non_null(e[i]);
    tt_ring_started(&r, e[i]);
    assert_ptr_equal(tt_ring_find(&r, e[i]->number), e[i]);
  }
  assert_null(tt_ring_start(&r));
  assert_int_equal(atomic_load(&r.lost), 1);
  uint64_t old = e[3]->number;
  tt_ring_stop(&r, e[3]);
  assert_null(tt_ring_find(&r, old)); // has ended
  assert_null(tt_ring_start(&r));     // and nobody has taken it away
  tt_ring_drain(&r, false, note, &s);
  assert_int_equal(s.n, 1);
  assert_int_equal(s.numbers[0], old);
  tt_record *again = tt_ring_start(&r);
  assert_ptr_equal(again, e[3]);
  tt_ring_started(&r, again);
  assert_null(tt_ring_find(&r, old)); // the slot is another's now
  tt_ring_destroy(&r);
}

static void ring_that_keeps_has_the_last(void **state)
{
  (void)state;
  tt_ring r;
  assert_true(tt_ring_create(&r, 16, true));
  for (int i = 0; i < 100; i++) {
    tt_record *e = tt_ring_start(&r);
    assert_non_null(e);
    tt_ring_started(&r, e);
    tt_ring_stop(&r, e);
  }
  for (int round = 0; round < 3; round++) { // once as new ones, then as often as one likes
    seen s = {.n = 0};
    tt_ring_drain(&r, round > 0, note, &s);
    assert_int_equal(s.n, 16);
    for (int i = 0; i < 16; i++) {
      assert_in_range(s.numbers[i], 85, 100);
    }
  }
  seen s = {.n = 0};
  tt_ring_drain(&r, false, note, &s);
  assert_int_equal(s.n, 0); // nothing is new
  assert_int_equal(atomic_load(&r.lost), 0);
  assert_int_equal(atomic_load(&r.overwritten), 84);
  tt_ring_destroy(&r);
}

static void ring_forgets_the_way_of_what_has_ended(void **state)
{
  (void)state;
  tt_ring r;
  uint64_t way = 1;
  assert_true(tt_ring_create(&r, 8, true));
  tt_record *e = tt_ring_start(&r);
  uint64_t number = e->number;
  tt_ring_set_way(e, 77);
  assert_false(tt_ring_way(&r, number, &way)); // not yet
  tt_ring_started(&r, e);
  assert_true(tt_ring_way(&r, number, &way));
  assert_int_equal(way, 77);
  tt_ring_stop(&r, e);
  assert_false(tt_ring_way(&r, number, &way));
  tt_record *next = NULL;
  for (int i = 0; i < 8; i++) {
    next = tt_ring_start(&r);
    tt_ring_started(&r, next);
  }
  assert_ptr_equal(next, e);
  assert_false(tt_ring_way(&r, number, &way)); // the slot is another's,
  assert_true(tt_ring_way(&r, next->number, &way));
  assert_int_equal(way, 0); // which has none yet
  tt_ring_destroy(&r);
}

// Slots go from one message to the next while another thread looks up the message it last heard of: its way is that
// message's, or none.
typedef struct traffic {
  tt_ring ring;
  _Atomic uint64_t last; // name of a message that has been open
  atomic_bool ended;
} traffic;

static void *move_messages(void *arg)
{
  traffic *t = arg;
  tt_record *before = NULL; // open until the next one is
  for (int i = 0; i < 200000; i++) {
    tt_record *e = tt_ring_start(&t->ring);
    if (e != NULL) {
      tt_ring_set_way(e, e->number * 3);
      tt_ring_started(&t->ring, e);
      atomic_store(&t->last, e->number);
      if (before != NULL) {
        tt_ring_stop(&t->ring, before);
      }
      before = e;
    }
  }
  atomic_store(&t->ended, true);
  return NULL;
}

static void ring_tells_the_way_of_no_other(void **state)
{
  (void)state;
  static traffic t;
  pthread_t mover;
  uint64_t found = 0;
  assert_true(tt_ring_create(&t.ring, 8, true));
  assert_int_equal(pthread_create(&mover, NULL, move_messages, &t), 0);
  while (!atomic_load(&t.ended)) {
    uint64_t number = atomic_load(&t.last), way;
    if (tt_ring_way(&t.ring, number, &way)) {
      assert_int_equal(way, number * 3);
      found++;
    }
  }
  pthread_join(mover, NULL);
  print_message("%llu found open\n", (unsigned long long)found);
  tt_ring_destroy(&t.ring);
}

enum { THREADS = 4, EACH = 20000 };

static void *produce(void *arg)
{
  tt_ring *r = arg;
  for (int i = 0; i < EACH; i++) {
    tt_record *e = tt_ring_start(r);
    if (e != NULL) {
      e->start = e->number;
      e->stop = ~e->number;
      tt_ring_started(r, e);
      tt_ring_stop(r, e);
    }
  }
  return NULL;
}

static void check(void *arg, const tt_record *e)
{
  assert_int_equal(e->start, e->number); // whole
  assert_int_equal(e->stop, ~e->number);
  ++*(uint64_t *)arg;
}

static void ring_of_many_threads_counts_all(void **state)
{
  (void)state;
  tt_ring r;
  pthread_t threads[THREADS];
  uint64_t got = 0;
  assert_true(tt_ring_create(&r, 256, false));
  for (int i = 0; i < THREADS; i++) {
    assert_int_equal(pthread_create(&threads[i], NULL, produce, &r), 0);
  }
  for (int i = 0; i < 200; i++) {
    tt_ring_drain(&r, false, check, &got);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
  }
  tt_ring_drain(&r, false, check, &got);
  assert_int_equal(got + atomic_load(&r.lost), THREADS * EACH);
  tt_ring_destroy(&r);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ring_loses_what_finds_no_room),          cmocka_unit_test(ring_that_keeps_has_the_last),
      cmocka_unit_test(ring_forgets_the_way_of_what_has_ended), cmocka_unit_test(ring_tells_the_way_of_no_other),
      cmocka_unit_test(ring_of_many_threads_counts_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
