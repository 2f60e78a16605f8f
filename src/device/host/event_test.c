// event_test.c: records, waits, and what keeps an event alive.
#include "device/host/work_rig.h"

#include "base/result.h"
#include "device/host/event.h"

static tt_event *new_event(void)
{
  tt_event *e = NULL;
  assert_int_equal(tt_event_create(&e), ncclSuccess);
  return e;
}

static void test_an_event_without_record_is_complete(void **state)
{
  (void)state;
  tt_event *e = new_event();
  tt_stream *s = dummy_stream();
  assert_true(tt_event_complete(e));
  tt_stream_push(s, tt_event_wait_work(e)); // waits for nothing
  assert_int_equal(tt_stream_wait(s), ncclSuccess);
  tt_event_destroy(e);
  tt_event_destroy(NULL);
  tt_stream_destroy(s);
}

static void test_a_record_is_reached_in_its_turn(void **state)
{
  _Atomic int gate = 0;
  static dummy t;
  (void)state;
  tt_event *e = new_event();
  tt_stream *s = dummy_stream();
  uint64_t start = tt_now_ns();
  tt_stream_push(s, &dummy_init(&t, &gate, NULL)->work);
  tt_stream_push(s, tt_event_record_work(e));
  assert_false(tt_event_complete(e));
  uint64_t opened = tt_now_ns();
  dummy_open(&gate, NULL);
  assert_int_equal(tt_stream_wait(s), ncclSuccess);
  assert_true(tt_event_complete(e));
  assert_in_range(tt_event_time(e), opened, tt_now_ns());
  assert_true(opened >= start);
  tt_stream_push(s, tt_event_record_work(e)); // again
  assert_int_equal(tt_stream_wait(s), ncclSuccess);
  assert_true(tt_event_complete(e));
  tt_event_destroy(e);
  tt_stream_destroy(s);
}

static void test_another_stream_waits(void **state)
{
  _Atomic int gate = 0;
  static dummy t[2];
  (void)state;
  tt_event *e = new_event();
  tt_stream *a = dummy_stream(), *b = dummy_stream();
  tt_stream_push(a, &dummy_init(&t[0], &gate, NULL)->work);
  tt_stream_push(a, tt_event_record_work(e));
  tt_stream_push(b, tt_event_wait_work(e));
  tt_stream_push(b, &dummy_init(&t[1], NULL, NULL)->work);
  tt_event_destroy(e); // the entries keep it
  tt_stream_help(NULL, 1 << 20);
  assert_int_equal(t[1].runs, 0);
  dummy_open(&gate, NULL);
  assert_int_equal(tt_stream_wait(b), ncclSuccess); // runs `a` on the way
  assert_int_equal(t[1].runs, 1);
  assert_true(tt_stream_idle(a));
  tt_stream_destroy(a);
  tt_stream_destroy(b);
}

// A wait is for the newest record at the time of the call. Later records, on whichever stream, change nothing.
static void test_a_later_record_does_not_release_an_earlier_wait(void **state)
{
  _Atomic int gate = 0;
  static dummy t[2];
  (void)state;
  tt_event *e = new_event();
  tt_stream *slow = dummy_stream(), *fast = dummy_stream(), *b = dummy_stream();
  tt_stream_push(slow, &dummy_init(&t[0], &gate, NULL)->work);
  tt_stream_push(slow, tt_event_record_work(e));
  tt_stream_push(b, tt_event_wait_work(e));
  tt_stream_push(b, &dummy_init(&t[1], NULL, NULL)->work);
  tt_stream_push(fast, tt_event_record_work(e));
  assert_int_equal(tt_stream_wait(fast), ncclSuccess);
  assert_true(tt_event_complete(e)); // its newest record is reached
  tt_stream_help(NULL, 1 << 20);
  assert_int_equal(t[1].runs, 0);
  dummy_open(&gate, NULL);
  assert_int_equal(tt_stream_wait(b), ncclSuccess);
  assert_true(tt_event_complete(e));
  tt_event_destroy(e);
  tt_stream_destroy(slow);
  tt_stream_destroy(fast);
  tt_stream_destroy(b);
}

static void test_an_older_record_does_not_complete_a_newer_one(void **state)
{
  _Atomic int gate = 0;
  static dummy t;
  (void)state;
  tt_event *e = new_event();
  tt_stream *a = dummy_stream(), *b = dummy_stream();
  tt_work *early = tt_event_record_work(e);
  tt_stream_push(b, &dummy_init(&t, &gate, NULL)->work);
  tt_stream_push(b, tt_event_record_work(e));
  tt_stream_push(a, early);
  assert_int_equal(tt_stream_wait(a), ncclSuccess);
  assert_false(tt_event_complete(e));
  dummy_open(&gate, NULL);
  assert_int_equal(tt_stream_wait(b), ncclSuccess);
  assert_true(tt_event_complete(e));
  tt_event_destroy(e);
  tt_stream_destroy(a);
  tt_stream_destroy(b);
}

static void test_no_memory(void **state)
{
  tt_event *e = NULL;
  (void)state;
  tt_alloc_fail_at(1);
  assert_int_equal(tt_event_create(&e), ncclSystemError);
  assert_null(e);
  e = new_event();
  tt_alloc_fail_at(1);
  assert_null(tt_event_record_work(e));
  assert_true(tt_event_complete(e)); // a record that was not made does not count
  tt_work *record = tt_event_record_work(e);
  tt_alloc_fail_at(1);
  assert_null(tt_event_wait_work(e));
  tt_alloc_fail_at(0);
  tt_stream *s = dummy_stream();
  tt_stream_push(s, record);
  assert_int_equal(tt_stream_wait(s), ncclSuccess);
  tt_event_destroy(e);
  tt_stream_destroy(s);
}

// Several threads record and wait over four streams with a few events; nothing hangs, nothing leaks.
enum { THREADS = 4, ROUNDS = 3000 };

static tt_stream *ring[THREADS];
static tt_event *shared[3];
static pthread_mutex_t turn =
    PTHREAD_MUTEX_INITIALIZER; // makes "record" and "wait" one step each: else a wait could be queued before its record

static void *recorder(void *arg)
{
  int me = (int)(intptr_t)arg;
  for (int i = 0; i < ROUNDS / SLOWER; i++) {
    pthread_mutex_lock(&turn);
    tt_stream_push(ring[(me + i) % THREADS], tt_event_record_work(shared[i % 3]));
    tt_stream_push(ring[me], tt_event_wait_work(shared[(i + me) % 3]));
    pthread_mutex_unlock(&turn);
    if (i % 64 == 0) {
      tt_stream_wait(ring[i / 64 % THREADS]);
    }
  }
  return NULL;
}

static void test_threads_record_and_wait(void **state)
{
  pthread_t threads[THREADS];
  (void)state;
  for (int i = 0; i < THREADS; i++) {
    ring[i] = dummy_stream();
    shared[i % 3] = i < 3 ? new_event() : shared[0];
  }
  for (int i = 0; i < THREADS; i++) {
    assert_int_equal(pthread_create(&threads[i], NULL, recorder, (void *)(intptr_t)i), 0);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
  }
  for (int i = 0; i < THREADS; i++) {
    assert_int_equal(tt_stream_wait(ring[i]), ncclSuccess);
  }
  for (int i = 0; i < THREADS; i++) {
    tt_stream_destroy(ring[i]);
    if (i < 3) {
      assert_true(tt_event_complete(shared[i]));
      tt_event_destroy(shared[i]);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_an_event_without_record_is_complete),
      cmocka_unit_test(test_a_record_is_reached_in_its_turn),
      cmocka_unit_test(test_another_stream_waits),
      cmocka_unit_test(test_a_later_record_does_not_release_an_earlier_wait),
      cmocka_unit_test(test_an_older_record_does_not_complete_a_newer_one),
      cmocka_unit_test(test_no_memory),
      cmocka_unit_test(test_threads_record_and_wait),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
