// stream_test.c: order, the run flag, the pool, special streams, fork.
#define _GNU_SOURCE
#include "device/host/work_rig.h"

#include <sys/wait.h>

#include "base/result.h"
#include "device/host/device.h"
#include "device/host/ops.h"

#define FIRST_RUN (32u << 10) // what a push may run on the caller's time

// ---- Order ----

typedef struct journal {
  int n, ids[20000];
  _Atomic int inside; // somebody is running an entry
  int overlaps;
} journal;

static void note(dummy *t)
{
  journal *j = t->arg;
  j->overlaps += atomic_exchange(&j->inside, 1);
  j->ids[j->n++] = t->id; // not atomic: the run flag orders it
  atomic_store(&j->inside, 0);
}

static dummy *journal_dummy(dummy *t, journal *j, int id, _Atomic int *gate)
{
  dummy_init(t, gate, NULL);
  t->fn = note;
  t->arg = j;
  t->id = id;
  return t;
}

static void test_entries_run_in_order(void **state)
{
  enum { N = 500 };
  static dummy dummies[N];
  static journal j;
  _Atomic int gates[3] = {0};
  (void)state;
  tt_stream *s = dummy_stream();
  for (int i = 0; i < N; i++) { // three of them are blocked for a while
    tt_stream_push(s, &journal_dummy(&dummies[i], &j, i, i % 200 == 7 ? &gates[i / 200] : NULL)->work);
  }
  for (int k = 0; k < 3; k++) {
    tt_stream_progress(s, 1 << 20, true);
    assert_false(tt_stream_idle(s));
    dummy_open(&gates[k], NULL);
  }
  assert_int_equal(tt_stream_wait(s), ncclSuccess);
  assert_int_equal(j.n, N);
  for (int i = 0; i < N; i++) {
    assert_int_equal(j.ids[i], i);
  }
  tt_stream_destroy(s);
}

// ---- Many threads ----

enum { PUSHERS = 8, EACH = 2000 };

typedef struct crowd {
  tt_stream *s;
  journal j;
  dummy dummies[PUSHERS][EACH];
  _Atomic int next, left;
} crowd;

static crowd c;

static void *pusher(void *arg)
{
  (void)arg;
  int me = atomic_fetch_add(&c.next, 1);
  for (int i = 0; i < EACH / SLOWER; i++) {
    tt_stream_push(c.s, &journal_dummy(&c.dummies[me][i], &c.j, me * EACH + i, NULL)->work);
    if (i % 5 == me % 5) {
      tt_stream_progress(c.s, 1 + (size_t)i, i % 2 == 0);
    }
  }
  atomic_fetch_sub(&c.left, 1);
  return NULL;
}

static void *poker(void *arg)
{
  (void)arg;
  while (atomic_load(&c.left) > 0 || !tt_stream_idle(c.s)) {
    tt_stream_progress(c.s, 100, true);
    tt_stream_help(NULL, 100);
    tt_stream_check(c.s);
  }
  return NULL;
}

static void test_many_threads_push_and_run(void **state)
{
  pthread_t threads[PUSHERS + 2];
  int last[PUSHERS];
  (void)state;
  memset(&c, 0, sizeof c);
  c.s = dummy_stream();
  atomic_store(&c.left, PUSHERS);
  for (int i = 0; i < PUSHERS + 2; i++) {
    assert_int_equal(pthread_create(&threads[i], NULL, i < PUSHERS ? pusher : poker, NULL), 0);
  }
  for (int i = 0; i < PUSHERS + 2; i++) {
    pthread_join(threads[i], NULL);
  }
  assert_int_equal(tt_stream_wait(c.s), ncclSuccess);
  assert_int_equal(c.j.n, PUSHERS * (EACH / SLOWER));
  assert_int_equal(c.j.overlaps, 0);
  memset(last, -1, sizeof last);
  for (int i = 0; i < c.j.n; i++) { // each thread's entries in its order
    int who = c.j.ids[i] / EACH, id = c.j.ids[i] % EACH;
    assert_int_equal(id, last[who] + 1);
    last[who] = id;
  }
  for (int i = 0; i < PUSHERS * (EACH / SLOWER); i++) {
    dummy *t = &c.dummies[i / (EACH / SLOWER)][i % (EACH / SLOWER)];
    assert_true(dummy_becomes(&t->done, 1, DUMMY_LONG_S));
    assert_int_equal(t->runs, 1);
  }
  tt_stream_destroy(c.s);
}

// ---- Passing ----

typedef struct stay {
  tt_stream *s;
  _Atomic int inside, leave, left;
} stay;

static void dwell(dummy *t)
{
  stay *y = t->arg;
  atomic_store(&y->inside, 1);
  while (!atomic_load(&y->leave)) {
    sched_yield();
  }
  atomic_store(&y->left, 1);
}

static void *run_it(void *arg)
{
  stay *y = arg;
  tt_stream_progress(y->s, 1 << 20, true);
  return NULL;
}

static void *let_it_go(void *arg)
{
  stay *y = arg;
  usleep(20000);
  atomic_store(&y->leave, 1);
  return NULL;
}

// A thread that passes a stream has waited for the thread that was in an entry, and has run what comes after it.
static void test_passing_waits_for_who_is_inside(void **state)
{
  static dummy gate_dummy, first, second;
  _Atomic int gate = 0;
  stay y = {.s = dummy_stream()};
  pthread_t runner, opener;
  (void)state;
  dummy_init(&gate_dummy, &gate, NULL);
  dummy_init(&first, NULL, NULL);
  dummy_init(&second, NULL, NULL);
  first.fn = dwell;
  first.arg = &y;
  tt_stream_push(y.s, &gate_dummy.work); // blocks, so that the thread below is the one that runs the next
  tt_stream_push(y.s, &first.work);
  tt_stream_push(y.s, &second.work);
  dummy_open(&gate, NULL);
  assert_int_equal(pthread_create(&runner, NULL, run_it, &y), 0);
  assert_true(dummy_becomes(&y.inside, 1, DUMMY_LONG_S));
  assert_int_equal(pthread_create(&opener, NULL, let_it_go, &y), 0);
  tt_stream_pass(y.s);
  assert_int_equal(atomic_load(&y.left), 1);
  assert_true(dummy_becomes(&second.done, 1, DUMMY_LONG_S));
  pthread_join(runner, NULL);
  pthread_join(opener, NULL);
  assert_int_equal(tt_stream_wait(y.s), ncclSuccess);
  tt_stream_destroy(y.s);
}

// ---- The first run ----

static void test_push_runs_a_bounded_part(void **state)
{
  static dummy t;
  (void)state;
  tt_stream *s = dummy_stream();
  dummy_init(&t, NULL, NULL);
  t.bytes = 64 << 20;
  tt_stream_push(s, &t.work);
  assert_int_equal(tt_stream_wait(s), ncclSuccess);
  assert_true(dummy_becomes(&t.done, 1, DUMMY_LONG_S));
  size_t moved = 0;
  for (int i = 0; i < 1000 && moved == 0; i++) { // nothing, if the worker is just about to leave the stream
    dummy_init(&t, NULL, NULL);
    t.bytes = 1 << 20;
    tt_stream_push(s, &t.work);
    assert_true(dummy_becomes(&t.done, 1, DUMMY_LONG_S)); // by the worker
    moved = t.moved_by_maker;
  }
  assert_in_range(moved, 1, FIRST_RUN);
  tt_stream_destroy(s);
}

static void test_the_first_failure_is_told_once(void **state)
{
  static dummy t[3];
  (void)state;
  tt_stream *s = dummy_stream();
  for (int i = 0; i < 3; i++) {
    dummy_init(&t[i], NULL, NULL);
    t[i].result = i == 0 ? ncclRemoteError : i == 1 ? ncclInternalError : ncclSuccess;
    tt_stream_push(s, &t[i].work);
  }
  assert_int_equal(tt_stream_wait(s), ncclRemoteError);
  assert_int_equal(tt_stream_wait(s), ncclSuccess);
  assert_true(dummy_becomes(&t[2].done, 1, DUMMY_LONG_S));
  tt_stream_destroy(s);
}

// ---- The pool ----

// Is it the handle of a stream that lives? All three ways to ask say the same.
static bool lives(const void *handle)
{
  cudaStream_t h = (cudaStream_t)(uintptr_t)handle;
  tt_stream *looked = NULL, *got = NULL, *found = tt_stream_find(h, 0);
  bool is = tt_stream_look(h, 0, &looked) == ncclSuccess;
  assert_int_equal(tt_stream_get(h, 0, "test", &got), is ? ncclSuccess : ncclInvalidArgument);
  assert_ptr_equal(got, looked);
  assert_ptr_equal(found, looked);
  assert_true(!is || looked == handle);
  return is;
}

static void test_streams_are_used_again(void **state)
{
  (void)state;
  tt_stream *a = dummy_stream();
  tt_stream_destroy(a);
  assert_false(lives(a));
  tt_stream *b = dummy_stream();
  assert_ptr_equal(a, b);
  assert_true(lives(b));
  assert_false(lives((char *)b + 8));
  assert_false(lives(&b));
  tt_stream_destroy(b);
}

// A failure that nobody asked for does not come up in the next stream.
static void test_a_new_stream_has_no_error(void **state)
{
  static dummy t;
  (void)state;
  tt_stream *s = dummy_stream();
  dummy_init(&t, NULL, NULL)->result = ncclInternalError;
  tt_stream_push(s, &t.work);
  tt_stream_destroy(s);
  tt_stream *again = dummy_stream();
  assert_ptr_equal(s, again);
  assert_int_equal(tt_stream_wait(again), ncclSuccess);
  tt_stream_destroy(again);
}

static void fail_with_text(dummy *t)
{
  t->result = tt_fail(ncclTimeout, "entry %d took too long", t->id);
}

static void *fail_elsewhere(void *arg)
{
  tt_stream_pass(arg);
  tt_fail(ncclRemoteError, "what a service thread met afterwards");
  return NULL;
}

// Whoever is told of a stream's error has its text, whatever other threads have met since.
static void test_a_waiting_thread_has_the_text(void **state)
{
  _Atomic int gate = 0;
  static dummy t[2];
  pthread_t other;
  (void)state;
  tt_stream *s = dummy_stream();
  for (int i = 0; i < 2; i++) {
    dummy_init(&t[i], &gate, NULL)->fn = fail_with_text;
    t[i].id = i;
    tt_stream_push(s, &t[i].work);
  }
  atomic_store(&gate, 1); // no bell: the other thread runs them, or the worker
  pthread_create(&other, NULL, fail_elsewhere, s);
  pthread_join(other, NULL);
  for (int i = 0; i < 3; i++) {
    tt_last_error_set("");
    assert_int_equal(i < 2 ? tt_stream_error(s, false) : tt_stream_wait(s), ncclTimeout);
    assert_string_equal(tt_last_error(), "entry 0 took too long"); // the first counts
  }
  tt_last_error_set("own fault");
  assert_int_equal(tt_stream_wait(s), ncclSuccess);
  assert_string_equal(tt_last_error(), "own fault");
  tt_stream_destroy(s);
}

static void test_a_destroyed_stream_finishes_its_work(void **state)
{
  _Atomic int gate = 0;
  static dummy t[2];
  (void)state;
  tt_stream *s = dummy_stream();
  tt_stream_push(s, &dummy_init(&t[0], &gate, NULL)->work);
  tt_stream_push(s, &dummy_init(&t[1], NULL, NULL)->work);
  tt_stream_destroy(s);
  tt_stream *other = dummy_stream();
  assert_ptr_not_equal(s, other); // still busy
  dummy_open(&gate, NULL);
  assert_true(dummy_becomes(&t[1].done, 1, DUMMY_LONG_S)); // by the worker
  uint64_t end = tt_now_ns() + DUMMY_LONG_S * TT_NS_PER_S;
  while (atomic_load(&s->state) != TT_STREAM_FREE && tt_now_ns() < end) {
    tt_sleep_ns(100000);
  }
  tt_stream *again = dummy_stream();
  assert_ptr_equal(s, again);
  tt_stream_destroy(again);
  tt_stream_destroy(other);
}

enum { MANY = 2000 };

static int by_address(const void *a, const void *b)
{
  uintptr_t x = (uintptr_t) * (tt_stream *const *)a, y = (uintptr_t) * (tt_stream *const *)b;
  return (x > y) - (x < y);
}

static void test_two_thousand_streams(void **state)
{
  static tt_stream *streams[MANY], *again[MANY];
  static dummy dummies[MANY];
  _Atomic int gate = 0;
  (void)state;
  for (int i = 0; i < MANY; i++) {
    streams[i] = dummy_stream();
    tt_stream_push(streams[i], &dummy_init(&dummies[i], &gate, NULL)->work);
  }
  for (int i = 0; i < MANY; i++) {
    assert_false(tt_stream_idle(streams[i]));
  }
  dummy_open(&gate, NULL);
  for (int i = 0; i < MANY; i++) {
    assert_int_equal(tt_stream_wait(streams[i]), ncclSuccess);
    assert_true(dummy_becomes(&dummies[i].done, 1, DUMMY_LONG_S));
    tt_stream_destroy(streams[i]);
  }
  for (int i = 0; i < MANY; i++) {
    again[i] = dummy_stream();
  }
  qsort(streams, MANY, sizeof *streams, by_address);
  qsort(again, MANY, sizeof *again, by_address);
  assert_memory_equal(streams, again, sizeof again);
  for (int i = 0; i < MANY; i++) {
    assert_true(i == 0 || streams[i] != streams[i - 1]);
    assert_true(lives(streams[i]));
    assert_false(lives((char *)streams[i] + 8));
    tt_stream_destroy(streams[i]);
    assert_false(lives(streams[i]));
  }
}

// ---- Special streams ----

static tt_stream *get(uintptr_t handle, int device)
{
  tt_stream *s = NULL;
  assert_int_equal(tt_stream_look((cudaStream_t)handle, device, &s), ncclSuccess);
  return s;
}

static void *own_default(void *out)
{
  *(tt_stream **)out = get(2, 0);
  assert_ptr_equal(get(2, 0), *(tt_stream **)out);
  return NULL;
}

static void test_handles_of_default_streams(void **state)
{
  tt_stream *theirs = NULL;
  pthread_t thread;
  (void)state;
  assert_ptr_equal(get(0, 0), get(1, 0));
  assert_ptr_not_equal(get(0, 0), get(0, 1));
  assert_ptr_equal(get(2, 0), get(2, 0));
  assert_ptr_not_equal(get(2, 0), get(2, 1));
  assert_ptr_not_equal(get(2, 0), get(0, 0));
  for (int device = 1; device >= 0; device--) {
    assert_int_equal(tt_host_device_set(device), ncclSuccess);
    assert_ptr_equal(get(0, TT_STREAM_CALLERS), get(0, device));
    assert_ptr_equal(get(2, TT_STREAM_CALLERS), get(2, device));
  }
  assert_int_equal(pthread_create(&thread, NULL, own_default, &theirs), 0);
  pthread_join(thread, NULL);
  assert_ptr_not_equal(theirs, get(2, 0));
  assert_int_equal(atomic_load(&theirs->state), TT_STREAM_FREE); // it went with its thread
}

// What is pushed to a blocking stream waits for what stands in the legacy stream, and the other way round.
static void test_the_legacy_stream_is_ordered_with_blocking_ones(void **state)
{
  _Atomic int first = 0, second = 0;
  static dummy t[5];
  tt_stream *legacy = get(0, 0), *own = get(2, 0), *blocking, *free_one = dummy_stream(), *elsewhere = get(0, 1);
  (void)state;
  assert_int_equal(tt_stream_create(0, true, &blocking), ncclSuccess);
  tt_stream_push(legacy, &dummy_init(&t[0], &first, NULL)->work);
  tt_stream_push(blocking, &dummy_init(&t[1], &second, NULL)->work);
  tt_stream_push(own, &dummy_init(&t[2], NULL, NULL)->work);
  tt_stream_push(free_one, &dummy_init(&t[3], NULL, NULL)->work);
  tt_stream_push(elsewhere, &dummy_init(&t[4], NULL, NULL)->work);
  assert_int_equal(tt_stream_wait(free_one), ncclSuccess);
  assert_int_equal(tt_stream_wait(elsewhere), ncclSuccess);
  tt_stream_help(NULL, 1 << 20);
  assert_int_equal(t[1].runs, 0);
  assert_int_equal(t[2].runs, 0);
  dummy_open(&first, NULL);
  assert_int_equal(tt_stream_wait(own), ncclSuccess);
  assert_int_equal(tt_stream_wait(legacy), ncclSuccess);
  assert_false(tt_stream_idle(blocking));
  static dummy late;
  tt_stream_push(legacy, &dummy_init(&late, NULL, NULL)->work);
  tt_stream_help(NULL, 1 << 20);
  assert_false(tt_stream_idle(legacy));
  dummy_open(&second, NULL);
  assert_int_equal(tt_stream_wait(legacy), ncclSuccess);
  assert_int_equal(late.runs, 1);
  assert_true(dummy_becomes(&t[1].done, 1, DUMMY_LONG_S));
  tt_stream_destroy(blocking);
  tt_stream_destroy(free_one);
}

static void test_order_between_two_streams(void **state)
{
  _Atomic int gate = 0;
  static dummy t[3];
  (void)state;
  tt_stream *a = dummy_stream(), *b = dummy_stream();
  tt_stream_push(a, &dummy_init(&t[0], &gate, NULL)->work);
  assert_int_equal(tt_stream_order(a, b), ncclSuccess);
  tt_stream_push(a, &dummy_init(&t[1], NULL, NULL)->work);
  tt_stream_push(b, &dummy_init(&t[2], NULL, NULL)->work);
  tt_stream_help(NULL, 1 << 20);
  assert_int_equal(t[2].runs, 0);
  dummy_open(&gate, NULL);
  assert_int_equal(tt_stream_wait(b), ncclSuccess);
  assert_int_equal(tt_stream_wait(a), ncclSuccess);
  assert_int_equal(tt_stream_order(a, b), ncclSuccess); // both idle
  assert_int_equal(tt_stream_wait(b), ncclSuccess);
  tt_alloc_fail_at(2);
  assert_int_equal(tt_stream_order(a, b), ncclSystemError);
  tt_alloc_fail_at(0);
  assert_int_equal(tt_stream_wait(a), ncclSuccess);
  tt_stream_destroy(a);
  tt_stream_destroy(b);
}

// Waiting for a device ends with what was queued before, although somebody goes on queueing, and collects errors of
// idle streams too.
static dummy endless[3];
static _Atomic int feeding;

static void *feed(void *arg)
{
  for (int i = 0; atomic_load(&feeding) == 1; i++) { // never idle: the next entry is queued before the last one ends
    dummy *t = &endless[i % 3];
    if (i >= 3) {
      dummy_becomes(&t->done, 1, DUMMY_LONG_S);
    }
    dummy_init(t, NULL, NULL)->bytes = 1 << 20;
    tt_stream_push(arg, &t->work);
  }
  return NULL;
}

static void test_waiting_for_a_device(void **state)
{
  _Atomic int gate = 0;
  static dummy t, failing;
  pthread_t feeder;
  tt_stream *busy = NULL, *other = NULL, *failed = NULL;
  (void)state;
  assert_int_equal(tt_stream_create(5, false, &busy), ncclSuccess);
  assert_int_equal(tt_stream_create(6, false, &other), ncclSuccess);
  assert_int_equal(tt_stream_create(5, false, &failed), ncclSuccess);
  tt_stream_push(other, &dummy_init(&t, &gate, NULL)->work); // another device: nobody waits for it
  dummy_init(&failing, NULL, NULL)->result = ncclRemoteError;
  tt_stream_push(failed, &failing.work);
  assert_true(tt_stream_idle(failed));
  atomic_store(&feeding, 1);
  pthread_create(&feeder, NULL, feed, busy);
  for (int i = 0; i < 20; i++) {
    assert_int_equal(tt_stream_wait_device(5, false), ncclSuccess);
  }
  assert_int_equal(tt_stream_wait_device(5, true), ncclRemoteError);
  assert_int_equal(tt_stream_wait_device(5, true), ncclSuccess);
  atomic_store(&feeding, 0);
  pthread_join(feeder, NULL);
  assert_int_equal(tt_stream_wait_device(5, true), ncclSuccess);
  assert_int_equal(atomic_load(&t.done), 0);
  dummy_open(&gate, NULL);
  assert_int_equal(tt_stream_wait(other), ncclSuccess);
  tt_stream_destroy(busy);
  tt_stream_destroy(other);
  tt_stream_destroy(failed);
}

// Streams that become busy and idle while others take idle ones out of the list of busy ones.
enum { LISTERS = 3, LISTED = 100, LIST_ROUNDS = 60 };

static _Atomic int listing, missed;

static void *lister(void *arg)
{
  int device = (int)(intptr_t)arg;
  tt_stream *streams[LISTED];
  dummy *dummies = calloc(LISTED, sizeof *dummies);
  for (int i = 0; i < LISTED; i++) {
    missed += tt_stream_create(device, false, &streams[i]) != ncclSuccess;
  }
  for (int round = 0; round < LIST_ROUNDS; round++) {
    for (int i = round % 7; i < LISTED; i += 1 + round % 5) {
      dummy_init(&dummies[i], NULL, NULL)->bytes = 2 * FIRST_RUN; // a push leaves some of it
      tt_stream_push(streams[i], &dummies[i].work);
    }
    missed += tt_stream_wait_device(device, true) != ncclSuccess;
    for (int i = round % 7; i < LISTED; i += 1 + round % 5) {
      missed += !tt_stream_idle(streams[i]);
      missed += !dummy_becomes(&dummies[i].done, 1, DUMMY_LONG_S);
    }
  }
  for (int i = 0; i < LISTED; i++) {
    tt_stream_destroy(streams[i]);
  }
  free(dummies);
  atomic_fetch_sub(&listing, 1);
  return NULL;
}

static void no_visit(tt_stream *s, void *arg)
{
  (void)s, (void)arg;
}

static void test_busy_streams_are_found_whatever_is_idle(void **state)
{
  pthread_t threads[LISTERS];
  (void)state;
  atomic_store(&listing, LISTERS);
  for (int i = 0; i < LISTERS; i++) {
    assert_int_equal(pthread_create(&threads[i], NULL, lister, (void *)(intptr_t)(7 + i)), 0);
  }
  while (atomic_load(&listing) > 0) {
    tt_stream_each(no_visit, NULL);
    sched_yield();
  }
  for (int i = 0; i < LISTERS; i++) {
    pthread_join(threads[i], NULL);
  }
  assert_int_equal(atomic_load(&missed), 0);
}

// ---- Small work ----

static void add_one(void *arg)
{
  ++*(int *)arg;
}

static void test_copies_fills_and_functions(void **state)
{
  char from[100], to[100];
  int called = 0;
  (void)state;
  tt_stream *s = dummy_stream();
  memset(from, 'x', sizeof from);
  tt_stream_push(s, tt_host_fill(to, 'y', sizeof to));
  tt_stream_push(s, tt_host_copy(to, from, 50));
  tt_stream_push(s, tt_host_copy(to + 40, to + 45, 20)); // overlapping
  tt_stream_push(s, tt_host_function(add_one, &called));
  assert_int_equal(tt_stream_wait(s), ncclSuccess);
  assert_int_equal(called, 1);
  for (int i = 0; i < 100; i++) {
    assert_int_equal(to[i], i < 45 ? 'x' : 'y');
  }
  tt_alloc_fail_at(1);
  assert_null(tt_host_function(add_one, &called));
  tt_alloc_fail_at(0);
  tt_stream_destroy(s);
}

// ---- Fork ----

static void count_stream(tt_stream *s, void *n)
{
  (void)s;
  ++*(int *)n;
}

// In the child: no work, no streams of the parent, and new ones work.
static int child(tt_stream *parents)
{
  int busy = 0;
  _Atomic int gate = 0;
  tt_stream *s, *got;
  static dummy t[2];
  tt_stream_each(count_stream, &busy);
  if (busy != 0 || lives(parents) ||
      lives((void *)sizeof *s)) { // the second one would be a stream of a table that begins at NULL
    return 1;
  }
  if (tt_stream_create(0, true, &s) != ncclSuccess || tt_stream_look((cudaStream_t)s, 0, &got) != ncclSuccess ||
      got != s) {
    return 2;
  }
  tt_stream_push(s, &dummy_init(&t[0], NULL, NULL)->work);
  if (!tt_stream_idle(s) || tt_stream_wait(s) != ncclSuccess ||
      tt_stream_look((cudaStream_t)2, 0, &got) != ncclSuccess) {
    return 3;
  }
#ifndef TT_TSAN // no threads there after a fork
  tt_stream_push(s, &dummy_init(&t[1], &gate, NULL)->work);
  atomic_store(&gate, 1);
  if (!dummy_becomes(&t[1].done, 1, DUMMY_LONG_S)) { // by a worker of its own
    return 4;
  }
#else
  (void)gate;
#endif
  return 0;
}

static void test_a_forked_child_starts_empty(void **state)
{
  _Atomic int gate = 0;
  static dummy t;
  int status = -1;
  (void)state;
  tt_stream *s = dummy_stream(), *own = get(2, 0);
  assert_non_null(own);
  assert_int_equal(tt_host_device(), 0); // links device.c, which sees to forks
  tt_stream_push(s, &dummy_init(&t, &gate, NULL)->work);
  pid_t pid = fork();
  if (pid == 0) {
    _exit(child(s));
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  dummy_open(&gate, NULL); // the parent's work is not lost
  assert_int_equal(tt_stream_wait(s), ncclSuccess);
  assert_ptr_equal(get(2, 0), own);
  tt_stream_destroy(s);
}

// Calls that follow each other share a time, at most TT_TIME_SHARED of them; not after a wait.
static void test_calls_share_a_time(void **state)
{
  (void)state;
  tt_stream *s = dummy_stream();
  cudaStream_t handle = (cudaStream_t)s;
  uint64_t first = tt_stream_free_at(handle, 0, true);
  assert_true(first != 0);
  assert_int_equal(s->shares, 0); // the call before was long ago
  s->shares = TT_TIME_SHARED - 1;
  for (int i = 1; i < TT_TIME_SHARED; i++) {
    assert_int_equal(tt_stream_free_at(handle, 0, true), first);
  }
  uint64_t second = tt_stream_free_at(handle, 0, true);
  assert_true(second > first);
  s->shares = 1;
  assert_int_equal(tt_stream_wait(s), ncclSuccess);
  uint64_t third = tt_stream_free_at(handle, 0, true);
  assert_true(third > second);
  s->shares = 0;
  assert_true(tt_stream_free_at(handle, 0, false) != 0);
  assert_int_equal(s->read, third); // without reading the clock
  tt_stream_destroy(s);
  assert_int_equal(tt_stream_free_at(handle, 0, true), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_entries_run_in_order),
      cmocka_unit_test(test_many_threads_push_and_run),
      cmocka_unit_test(test_passing_waits_for_who_is_inside),
      cmocka_unit_test(test_push_runs_a_bounded_part),
      cmocka_unit_test(test_the_first_failure_is_told_once),
      cmocka_unit_test(test_streams_are_used_again),
      cmocka_unit_test(test_a_new_stream_has_no_error),
      cmocka_unit_test(test_a_waiting_thread_has_the_text),
      cmocka_unit_test(test_a_destroyed_stream_finishes_its_work),
      cmocka_unit_test(test_two_thousand_streams),
      cmocka_unit_test(test_handles_of_default_streams),
      cmocka_unit_test(test_the_legacy_stream_is_ordered_with_blocking_ones),
      cmocka_unit_test(test_order_between_two_streams),
      cmocka_unit_test(test_waiting_for_a_device),
      cmocka_unit_test(test_busy_streams_are_found_whatever_is_idle),
      cmocka_unit_test(test_copies_fills_and_functions),
      cmocka_unit_test(test_calls_share_a_time),
      cmocka_unit_test(test_a_forked_child_starts_empty),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
