// wait_test.c: waiting threads sleep, wake in time and never miss a wake-up; the worker runs what nobody waits for, and
// sleeps.
//
// The look at the peers, which would cover up a lost wake-up, comes only after CHECK_MS here: no wait may take that
// long. What tests the look itself runs in a second start of the program, where it comes after BRIEF_CHECK_MS.
#define _GNU_SOURCE
#include "device/host/work_rig.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/param.h"
#include "base/result.h"
#include "device/host/event.h"
#include "device/host/preempt.h"

#define CHECK_MS 60000
#define BRIEF_CHECK_MS 300
#define IN_TIME_S (CHECK_MS / 2000) // a wake-up that takes longer was lost
#define IN_TIME_NS (IN_TIME_S * TT_NS_PER_S)

// A thread that waits for a stream.
typedef struct waiter {
  tt_stream *s;
  pthread_t thread;
  uint64_t took; // ns from the start of the wait
  double cpu_ms; // of this thread, during the wait
  ncclResult_t res;
  _Atomic int done;
} waiter;

static void *wait_for_stream(void *arg)
{
  waiter *w = arg;
  double cpu = dummy_cpu_ms(RUSAGE_THREAD);
  uint64_t start = tt_now_ns();
  w->res = tt_stream_wait(w->s);
  w->took = tt_now_ns() - start;
  w->cpu_ms = dummy_cpu_ms(RUSAGE_THREAD) - cpu;
  atomic_store(&w->done, 1);
  return NULL;
}

static void start_waiter(waiter *w, tt_stream *s)
{
  *w = (waiter){.s = s};
  assert_int_equal(pthread_create(&w->thread, NULL, wait_for_stream, w), 0);
}

static void test_a_waiter_sleeps_until_the_post(void **state)
{
  _Atomic int gate = 0;
  static tt_bell bell;
  static dummy t;
  waiter w;
  (void)state;
  tt_stream *s = dummy_stream();
  tt_stream_push(s, &dummy_init(&t, &gate, &bell)->work);
  start_waiter(&w, s);
  assert_true(dummy_waited_for(s));
  tt_sleep_ns(300 * TT_NS_PER_MS);
  assert_true(dummy_sleepers(&bell, 1, DUMMY_LONG_S));
  assert_int_equal(atomic_load(&w.done), 0);
  dummy_open(&gate, &bell);
  assert_true(dummy_becomes(&w.done, 1, IN_TIME_S));
  pthread_join(w.thread, NULL);
  if (!(w.cpu_ms < 30 * SLOWER)) {
    fail_msg("a wait of 300 ms took %.1f ms of processor time", w.cpu_ms);
  }
  assert_int_equal(atomic_load(&bell.sleepers), 0);
  tt_stream_destroy(s);
}

// ---- Nothing is lost ----

// Streams with a waiting thread each. A round pushes entries that block, on the process's bell or one of their own;
// posters open them.
enum { LANES = 6, ENTRIES = 2, ROUNDS = 20000 / LANES };

typedef struct lane {
  tt_stream *s;
  tt_bell bells[ENTRIES];
  _Atomic int gates[ENTRIES];
  dummy dummies[ENTRIES];
  _Atomic int round; // pushed so far
  uint64_t slowest;
} lane;

static lane lanes[LANES];
static _Atomic int running;

static void *lane_main(void *arg)
{
  lane *l = arg;
  for (int i = 1; i <= ROUNDS / SLOWER; i++) {
    for (int k = 0; k < ENTRIES; k++) {
      atomic_store(&l->gates[k], 0);
      dummy_init(&l->dummies[k], &l->gates[k], (i + k) % 3 == 0 ? NULL : &l->bells[k]);
      tt_stream_push(l->s, &l->dummies[k].work);
    }
    atomic_store(&l->round, i);
    uint64_t start = tt_now_ns();
    assert_int_equal(tt_stream_wait(l->s), ncclSuccess);
    l->slowest = TT_MAX(l->slowest, tt_now_ns() - start);
    for (int k = 0; k < ENTRIES; k++) {
      while (atomic_load(&l->dummies[k].done) == 0) { // the helper that ran it is about to
      }
    }
  }
  atomic_fetch_sub(&running, 1);
  return NULL;
}

static void *post_main(void *arg)
{
  int first = (int)(intptr_t)arg, seen[LANES] = {0};
  unsigned delay = 1;
  while (atomic_load(&running) > 0) {
    for (int i = first; i < LANES; i += 2) {
      lane *l = &lanes[i];
      int round = atomic_load(&l->round);
      if (round == seen[i]) {
        continue;
      }
      seen[i] = round;
      for (int k = 0; k < ENTRIES; k++) {
        delay = delay * 1103515245 + 12345;
        for (volatile unsigned n = delay >> 16 & 0x7ff; n > 0; n--) {
        }
        dummy_open(&l->gates[k], l->dummies[k].bell);
      }
    }
    sched_yield();
  }
  return NULL;
}

static void test_no_wake_up_is_lost(void **state)
{
  pthread_t threads[LANES], posters[2];
  (void)state;
  atomic_store(&running, LANES);
  for (int i = 0; i < LANES; i++) {
    lanes[i].s = dummy_stream();
    assert_int_equal(pthread_create(&threads[i], NULL, lane_main, &lanes[i]), 0);
  }
  for (int i = 0; i < 2; i++) {
    assert_int_equal(pthread_create(&posters[i], NULL, post_main, (void *)(intptr_t)i), 0);
  }
  for (int i = 0; i < LANES; i++) {
    pthread_join(threads[i], NULL);
  }
  for (int i = 0; i < 2; i++) {
    pthread_join(posters[i], NULL);
  }
  for (int i = 0; i < LANES; i++) {
    if (lanes[i].slowest > IN_TIME_NS) {
      fail_msg("a wait of thread %d took %.1f ms: a wake-up was lost", i, (double)lanes[i].slowest / 1e6);
    }
    tt_stream_destroy(lanes[i].s);
  }
}

// More streams than a thread can sleep on at once: its own comes first.
static void test_the_own_bell_counts_among_many(void **state)
{
  enum { N = 2 * TT_BELL_MAX };
  static tt_stream *streams[N];
  static tt_bell bells[N];
  static _Atomic int gates[N];
  static dummy dummies[N];
  waiter w;
  (void)state;
  for (int i = 0; i < N; i++) {
    streams[i] = dummy_stream();
    tt_stream_push(streams[i], &dummy_init(&dummies[i], &gates[i], &bells[i])->work);
  }
  start_waiter(&w, streams[N - 1]);
  bool in_time = dummy_waited_for(streams[N - 1]) && dummy_sleepers(&bells[N - 1], 1, DUMMY_LONG_S);
  tt_sleep_ns(20 * TT_NS_PER_MS);
  dummy_open(&gates[N - 1], &bells[N - 1]);
  in_time &= dummy_becomes(&w.done, 1, IN_TIME_S);
  for (int i = 0; i < N - 1; i++) {
    dummy_open(&gates[i], &bells[i]);
  }
  pthread_join(w.thread, NULL);
  for (int i = 0; i < N; i++) {
    assert_int_equal(tt_stream_wait(streams[i]), ncclSuccess);
    assert_true(dummy_becomes(&dummies[i].done, 1, DUMMY_LONG_S));
    tt_stream_destroy(streams[i]);
  }
  assert_true(in_time);
}

// ---- The bell changes while somebody falls asleep ----

// A helper runs the stream: the first entry has ended, the second is in the middle of its run and will block on a bell
// that the waiter cannot know yet.
typedef struct change {
  tt_stream *s;
  dummy first, second;
  tt_bell bell;
  _Atomic int gate, hold, in_run;
} change;

static tt_run slow_run(tt_work *w, size_t *budget, ncclResult_t *result)
{
  change *c = (change *)((char *)w - offsetof(change, second));
  (void)budget, (void)result;
  if (atomic_load(&c->gate)) {
    return TT_RUN_DONE;
  }
  atomic_store(&c->in_run, 1);
  dummy_becomes(&c->hold, 0, DUMMY_LONG_S);
  return TT_RUN_BLOCKED;
}

static void *help_main(void *arg)
{
  change *c = arg;
  tt_stream_progress(c->s, 1 << 20, true);
  return NULL;
}

static void test_the_bell_changes_while_a_waiter_falls_asleep(void **state)
{
  static const tt_work_ops slow_ops = {.name = "slow", .run = slow_run, .done = dummy_done, .bell = dummy_bell};
  _Atomic int closed = 0;
  static change c;
  pthread_t helper;
  waiter w;
  (void)state;
  memset(&c, 0, sizeof c);
  c.s = dummy_stream();
  tt_stream_push(c.s, &dummy_init(&c.first, &closed, NULL)->work);
  dummy_init(&c.second, NULL, &c.bell)->work.ops = &slow_ops;
  atomic_store(&c.hold, 1);
  atomic_fetch_add(&c.s->waiters, 1); // as if somebody waited: the worker keeps off
  tt_stream_push(c.s, &c.second.work);
  atomic_store(&closed, 1);
  assert_int_equal(pthread_create(&helper, NULL, help_main, &c), 0);
  assert_true(dummy_becomes(&c.in_run, 1, DUMMY_LONG_S));
  start_waiter(&w, c.s);
  assert_true(dummy_sleepers(&tt_process_bell, 1, DUMMY_LONG_S)); // the only bell it can know of
  tt_sleep_ns(20 * TT_NS_PER_MS);
  atomic_store(&c.hold, 0);
  pthread_join(helper, NULL);
  tt_sleep_ns(20 * TT_NS_PER_MS);
  dummy_open(&c.gate, &c.bell);
  bool in_time = dummy_becomes(&w.done, 1, IN_TIME_S);
  pthread_join(w.thread, NULL);
  atomic_fetch_sub(&c.s->waiters, 1);
  tt_stream_destroy(c.s);
  assert_true(in_time);
}

// A helper leaves an entry behind that could go on, and goes away. The stream's waiter asked for another look
// meanwhile, and fell asleep.
static tt_run piece_run(tt_work *w, size_t *budget, ncclResult_t *result)
{
  change *c = (change *)((char *)w - offsetof(change, second));
  (void)result;
  if (c->second.runs++ == 0) {
    return TT_RUN_BLOCKED; // its bell is known from now on
  }
  if (c->second.runs < 4) {
    atomic_store(&c->in_run, 1);
    dummy_becomes(&c->hold, 0, DUMMY_LONG_S);
    *budget = 0;
    return TT_RUN_MORE;
  }
  return TT_RUN_DONE;
}

static void test_a_helper_leaves_in_the_middle(void **state)
{
  static const tt_work_ops piece_ops = {.name = "piece", .run = piece_run, .done = dummy_done, .bell = dummy_bell};
  static change c;
  pthread_t helper;
  waiter w;
  (void)state;
  memset(&c, 0, sizeof c);
  c.s = dummy_stream();
  dummy_init(&c.second, NULL, &c.bell)->work.ops = &piece_ops;
  atomic_store(&c.hold, 1);
  atomic_fetch_add(&c.s->waiters, 1); // as if somebody waited: the worker keeps off
  tt_stream_push(c.s, &c.second.work);
  assert_int_equal(pthread_create(&helper, NULL, help_main, &c), 0);
  assert_true(dummy_becomes(&c.in_run, 1, DUMMY_LONG_S));
  start_waiter(&w, c.s);
  assert_true(dummy_sleepers(&c.bell, 1, DUMMY_LONG_S));
  tt_sleep_ns(20 * TT_NS_PER_MS);
  atomic_store(&c.hold, 0);
  pthread_join(helper, NULL);
  bool in_time = dummy_becomes(&w.done, 1, IN_TIME_S);
  pthread_join(w.thread, NULL);
  atomic_fetch_sub(&c.s->waiters, 1);
  tt_stream_destroy(c.s);
  assert_true(in_time);
}

// ---- The worker ----

static void test_the_worker_runs_what_nobody_waits_for(void **state)
{
  _Atomic int gate = 0;
  static tt_bell bell;
  static dummy t[3];
  (void)state;
  tt_stream *s = dummy_stream();
  tt_stream_push(s, &dummy_init(&t[0], &gate, &bell)->work);
  tt_stream_push(s, &dummy_init(&t[1], NULL, NULL)->work);
  dummy_init(&t[2], NULL, NULL)->bytes = 100 << 20;
  tt_stream_push(s, &t[2].work);
  tt_sleep_ns(20 * TT_NS_PER_MS);
  assert_int_equal(atomic_load(&t[0].done), 0);
  dummy_open(&gate, &bell);
  assert_true(dummy_becomes(&t[2].done, 1, DUMMY_LONG_S));
  tt_stream_destroy(s);
}

// How often the worker has given up its core so far; -1: there is no worker.
static long worker_switches(void)
{
  DIR *tasks = opendir("/proc/self/task");
  long found = -1;
  for (struct dirent *e; tasks != NULL && (e = readdir(tasks)) != NULL;) {
    char path[300], line[100];
    bool worker = false;
    snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
    FILE *f = fopen(path, "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
      worker |= strcmp(line, "Name:\ttutti worker\n") == 0;
      if (worker && sscanf(line, "voluntary_ctxt_switches: %ld", &found) == 1) {
        break;
      }
    }
    if (f != NULL) {
      fclose(f);
    }
  }
  closedir(tasks);
  return found;
}

static void test_the_worker_sleeps_again(void **state)
{
  _Atomic int gate = 0;
  static dummy t;
  (void)state;
  tt_stream *s = dummy_stream();
  tt_stream_push(s, &dummy_init(&t, &gate, NULL)->work);
  dummy_open(&gate, NULL);
  assert_true(dummy_becomes(&t.done, 1, DUMMY_LONG_S));
  uint64_t end = tt_now_ns() + DUMMY_LONG_S * TT_NS_PER_S;
  for (int quiet = 0; quiet < 3;) { // it ticks for a while, once a millisecond, as it gets to it
    long before = worker_switches();
    assert_true(before >= 0);
    tt_sleep_ns(100 * TT_NS_PER_MS);
    quiet = worker_switches() == before ? quiet + 1 : 0;
    assert_true(tt_now_ns() < end);
  }
  atomic_store(&gate, 0); // and wakes
  tt_stream_push(s, &dummy_init(&t, &gate, NULL)->work);
  dummy_open(&gate, NULL);
  assert_true(dummy_becomes(&t.done, 1, DUMMY_LONG_S));
  tt_stream_destroy(s);
}

// A blocked orphan costs the worker a look per tick, not a core.
static void test_a_blocked_orphan_is_cheap(void **state)
{
  _Atomic int gate = 0;
  static tt_bell bell;
  static dummy t;
  (void)state;
  tt_stream *s = dummy_stream();
  tt_stream_push(s, &dummy_init(&t, &gate, &bell)->work);
  uint64_t begin = tt_now_ns();
  double before = dummy_cpu_ms(RUSAGE_SELF);
  tt_sleep_ns(300 * TT_NS_PER_MS);
  double used = dummy_cpu_ms(RUSAGE_SELF) - before, passed = (double)(tt_now_ns() - begin) / 1e6;
  dummy_open(&gate, &bell);
  assert_true(dummy_becomes(&t.done, 1, DUMMY_LONG_S));
  tt_stream_destroy(s);
  if (!(used < passed / 5 * SLOWER)) {
    fail_msg("%.2f ms of processor time in %.0f ms beside a blocked stream", used, passed);
  }
}

// The last waiter leaves while others' work is still queued: the worker takes over, even if it was asleep.
typedef struct leaver {
  tt_stream *s;
  _Atomic int ready;
  pthread_t thread;
} leaver;

static bool leaver_ready(void *arg)
{
  return atomic_load(&((leaver *)arg)->ready) != 0;
}

static void *leave_main(void *arg)
{
  leaver *l = arg;
  tt_host_wait(l->s, leaver_ready, l);
  return NULL;
}

static void test_work_left_by_a_waiter_is_run(void **state)
{
  _Atomic int gate = 0;
  static tt_bell bell;
  leaver l = {.s = dummy_stream()};
  static dummy t;
  (void)state;
  tt_sleep_ns(200 * TT_NS_PER_MS); // the worker falls asleep
  assert_int_equal(pthread_create(&l.thread, NULL, leave_main, &l), 0);
  assert_true(dummy_waited_for(l.s));
  tt_stream_push(l.s, &dummy_init(&t, &gate, &bell)->work);
  tt_sleep_ns(200 * TT_NS_PER_MS); // the worker sees that somebody waits, and falls asleep again
  atomic_store(&l.ready, 1);
  tt_bell_fence();
  tt_bell_wake(&bell);
  tt_bell_wake(&tt_process_bell);
  pthread_join(l.thread, NULL);
  dummy_open(&gate, &bell);
  bool run = dummy_becomes(&t.done, 1, DUMMY_LONG_S);
  assert_int_equal(tt_stream_wait(l.s), ncclSuccess);
  assert_true(dummy_becomes(&t.done, 1, DUMMY_LONG_S));
  tt_stream_destroy(l.s);
  assert_true(run);
}

typedef struct later {
  tt_deferred d; // first member
  _Atomic int runs, finished;
} later;

static bool run_later(tt_deferred *d)
{
  later *l = (later *)d;
  if (atomic_fetch_add(&l->runs, 1) < 2) {
    return false;
  }
  atomic_store(&l->finished, 1);
  return true;
}

static void test_deferred_work_is_tried_until_it_is_done(void **state)
{
  static later l[3];
  (void)state;
  for (int i = 0; i < 3; i++) {
    l[i] = (later){.d.run = run_later};
    tt_worker_defer(&l[i].d);
  }
  for (int i = 0; i < 3; i++) {
    assert_true(dummy_becomes(&l[i].finished, 1, DUMMY_LONG_S));
  }
  tt_sleep_ns(20 * TT_NS_PER_MS);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(atomic_load(&l[i].runs), 3);
  }
}

// ---- Retiring a bell ----

// Bells come and go with their owners while threads of all kinds sleep on them: none is touched after tt_bell_retire.
static void test_a_retired_bell_is_free(void **state)
{
  (void)state;
  for (int i = 0; i < 600 / SLOWER; i++) {
    _Atomic int gate = 0;
    dummy t;
    waiter w;
    tt_bell *bell = tt_calloc_line(sizeof *bell);
    assert_non_null(bell);
    tt_stream *s = dummy_stream(), *idle = dummy_stream();
    tt_stream_push(s, &dummy_init(&t, &gate, bell)->work);
    if (i % 3 != 0) { // otherwise only the worker knows the bell
      start_waiter(&w, s);
    }
    if (i % 2 == 0) {
      dummy_sleeper(bell, 5); // a waiter, or the worker
    }
    dummy_open(&gate, bell);
    assert_true(dummy_becomes(&t.done, 1, DUMMY_LONG_S));
    tt_bell_retire(bell);
    assert_int_equal(atomic_load(&bell->sleepers), 0);
    memset(bell, 0xff, sizeof *bell);
    tt_free(bell);
    if (i % 3 != 0) {
      pthread_join(w.thread, NULL);
      assert_true(w.took < IN_TIME_NS);
    }
    tt_stream_destroy(s);
    tt_stream_destroy(idle);
  }
}

typedef struct dawdler {
  tt_bell bell;
  _Atomic int left;
} dawdler;

static void *dawdle(void *arg)
{
  dawdler *d = arg;
  tt_bell *b = &d->bell;
  uint32_t ticket = tt_bell_announce(b);
  tt_bell_sleep(&b, &ticket, 1, 2 * IN_TIME_NS);
  tt_sleep_ns(30 * TT_NS_PER_MS);
  atomic_store(&d->left, 1);
  tt_bell_leave(b);
  return NULL;
}

static void test_retiring_wakes_and_waits_for_sleepers(void **state)
{
  static dawdler d;
  pthread_t threads[3];
  (void)state;
  for (int i = 0; i < 3; i++) {
    assert_int_equal(pthread_create(&threads[i], NULL, dawdle, &d), 0);
  }
  while (atomic_load(&d.bell.sleepers) != 3) {
    tt_sleep_ns(100000);
  }
  uint64_t start = tt_now_ns();
  tt_bell_retire(&d.bell);
  assert_int_equal(atomic_load(&d.left), 1);
  assert_int_equal(atomic_load(&d.bell.sleepers), 0);
  assert_true(tt_now_ns() - start < IN_TIME_NS);
  for (int i = 0; i < 3; i++) {
    pthread_join(threads[i], NULL);
  }
}

// ---- Helping ----

typedef struct pair {
  _Atomic int *gate;
} pair;

static void open_other(dummy *t)
{
  dummy_open(((pair *)t->arg)->gate, NULL);
}

// What the thread waits for depends on a stream that nobody else runs.
static void test_a_waiter_helps_elsewhere(void **state)
{
  _Atomic int gate = 0, start = 0;
  pair p = {.gate = &gate};
  static dummy t[2];
  (void)state;
  tt_stream *a = dummy_stream(), *b = dummy_stream();
  tt_stream_push(a, &dummy_init(&t[0], &gate, NULL)->work);
  dummy_init(&t[1], &start, NULL)->fn = open_other;
  t[1].arg = &p;
  tt_stream_push(b, &t[1].work);
  atomic_store(&start, 1);
  uint64_t begin = tt_now_ns();
  assert_int_equal(tt_stream_wait(a), ncclSuccess);
  assert_true(tt_now_ns() - begin < IN_TIME_NS);
  assert_int_equal(tt_stream_wait(b), ncclSuccess);
  assert_true(dummy_becomes(&t[1].done, 1, DUMMY_LONG_S));
  tt_stream_destroy(a);
  tt_stream_destroy(b);
}

// While a thread sleeps, it has its stream's current entry look whether its peers live, every NCCL_PEER_CHECK_MS: not
// less often, nor more. (The worker, which may have come before the waiter, looks as often.)
static void a_sleeper_looks_after_its_peers(void **state)
{
  _Atomic int gate = 0;
  static tt_bell bell;
  static dummy t;
  waiter w;
  (void)state;
  tt_stream *s = dummy_stream();
  uint64_t begin = tt_now_ns();
  tt_stream_push(s, &dummy_init(&t, &gate, &bell)->work);
  start_waiter(&w, s);
  assert_true(dummy_waited_for(s));
  int some = atomic_load(&t.checks), checks = some;
  uint64_t last = 0, least_gap = UINT64_MAX; // between two looks: on a busy machine some are longer, but not all
  for (uint64_t end = tt_now_ns() + DUMMY_LONG_S * TT_NS_PER_S; checks < some + 4 && tt_now_ns() < end;) {
    tt_sleep_ns(TT_NS_PER_MS);
    int now = atomic_load(&t.checks);
    if (now > checks) {
      least_gap = last > 0 ? TT_MIN(least_gap, tt_now_ns() - last) : least_gap;
      last = tt_now_ns();
      checks = now;
    }
  }
  assert_in_range(least_gap, 0, 5 * BRIEF_CHECK_MS * TT_NS_PER_MS);
  double most = 2 + 2 * (double)(tt_now_ns() - begin) / (BRIEF_CHECK_MS * 1e6);
  assert_true(checks >= some + 4);
  assert_true(checks <= most);
  dummy_open(&gate, &bell);
  pthread_join(w.thread, NULL);
  assert_true(dummy_becomes(&t.done, 1, DUMMY_LONG_S));
  tt_stream_destroy(s);
}

static void test_a_sleeper_looks_after_its_peers(void **state)
{
  (void)state;
  int status = -1;
  pid_t pid = fork();
  if (pid == 0) {
    execl("/proc/self/exe", "wait_test", "peers", (char *)NULL);
    _exit(1);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
}

// A thread that polls holds the run flag nearly all the time: it then makes the check that somebody else asks for.
typedef struct held {
  dummy t;
  _Atomic int in_run, let_go;
} held;

static tt_run held_run(tt_work *w, size_t *budget, ncclResult_t *result)
{
  held *h = (held *)w;
  (void)budget, (void)result;
  if (h->t.checks > 0) {
    return TT_RUN_DONE;
  }
  atomic_store(&h->in_run, 1);
  dummy_becomes(&h->let_go, 1, DUMMY_LONG_S);
  return TT_RUN_BLOCKED;
}

static void *held_main(void *s)
{
  tt_stream_progress(s, 1, false);
  return NULL;
}

static void test_the_runner_makes_the_check(void **state)
{
  static const tt_work_ops held_ops = {
      .name = "held", .run = held_run, .done = dummy_done, .bell = dummy_bell, .check = dummy_check};
  static held h;
  tt_bell bell = {0};
  pthread_t runner;
  (void)state;
  memset(&h, 0, sizeof h);
  tt_stream *s = dummy_stream();
  dummy_init(&h.t, NULL, &bell)->work.ops = &held_ops;
  atomic_store(&s->run, 1);         // the push leaves it alone
  atomic_fetch_add(&s->waiters, 1); // and so does the worker
  tt_stream_push(s, &h.t.work);
  atomic_store(&s->run, 0);
  assert_int_equal(pthread_create(&runner, NULL, held_main, s), 0);
  assert_true(dummy_becomes(&h.in_run, 1, DUMMY_LONG_S));
  tt_stream_check(s); // returns although the flag is taken
  assert_int_equal(h.t.checks, 0);
  atomic_store(&h.let_go, 1);
  pthread_join(runner, NULL);
  assert_int_equal(h.t.checks, 1);
  assert_true(dummy_becomes(&h.t.done, 1, DUMMY_LONG_S));
  atomic_fetch_sub(&s->waiters, 1);
  tt_stream_destroy(s);
}

// ---- Preemption ----

enum {
  SLICE = 4000000,
  BRIEF = 2000,
  TAKES = 8 * TT_LONG_US
}; // ns of a yield with a preemption and of any other; us of the work that is waited for

static bool preempted(tt_preemption *p, uint64_t *now, uint64_t took)
{
  *now += took;
  return tt_preemption_note(p, *now - took, *now, 2, TAKES);
}

// Begins waits at `now` until one may yield; returns how many slept.
static uint64_t waits_that_sleep(tt_preemption *p, uint64_t now)
{
  uint64_t n = 1;
  while (tt_preemption_sleeps(p, now, TAKES)) {
    n++;
  }
  return n;
}

static void test_preemptions_in_short_succession_end_yielding(void **state)
{
  tt_preemption p = {0};
  uint64_t now = 1000, times = 1;
  (void)state;
  assert_false(tt_preemption_sleeps(&p, now, TAKES));
  for (int i = 0; i < 10; i++, times = TT_MIN(2 * times, TT_PREEMPTED_TIMES)) {
    assert_false(preempted(&p, &now, BRIEF));
    assert_true(preempted(&p, &now, SLICE));
    assert_int_equal(waits_that_sleep(&p, now), times * (SLICE / TT_SLEEP_NS));
  }
}

static void test_a_rare_preemption_changes_nothing(void **state)
{
  tt_preemption p = {0};
  uint64_t now = 1000;
  (void)state;
  for (int i = 0; i < 3; i++) {
    for (int k = 0; k < TT_PREEMPTED_YIELDS; k++) {
      assert_false(preempted(&p, &now, BRIEF));
    }
    assert_true(preempted(&p, &now, SLICE)); // this wait sleeps
    assert_false(tt_preemption_sleeps(&p, now, TAKES));
  }
  assert_true(preempted(&p, &now, SLICE));
  assert_true(tt_preemption_sleeps(&p, now, TAKES));
  for (int k = 0; k < TT_PREEMPTED_YIELDS; k++) {
    assert_false(preempted(&p, &now, BRIEF));
  }
  assert_true(preempted(&p, &now, SLICE)); // begins anew
  assert_false(tt_preemption_sleeps(&p, now, TAKES));
}

// Where many ranks share a core a wait that sleeps takes long: as many of them as a preemption pays for would take
// seconds.
static void test_what_a_preemption_pays_for_ends_with_time(void **state)
{
  tt_preemption p = {0};
  uint64_t now = 1000, longest = 3600 * TT_NS_PER_S, wall = (uint64_t)TT_PREEMPTED_WALL * SLICE;
  (void)state;
  assert_true(preempted(&p, &now, SLICE));
  assert_true(tt_preemption_sleeps(&p, now, TAKES));
  assert_true(tt_preemption_sleeps(&p, now + wall - 1, TAKES));
  assert_false(tt_preemption_sleeps(&p, now + wall, TAKES));
  for (int i = 0; i < 10; i++) {
    assert_true(preempted(&p, &now, longest));
  }
  assert_true(tt_preemption_sleeps(&p, now, TAKES));
  assert_false(tt_preemption_sleeps(&p, now + 2 * TT_NS_PER_S, TAKES)); // whatever was lost
}

// Other ranks' turns at long work look like preemptions. Waits for short work do not pay for them; and work of any kind
// that was seen on the core is none.
static void test_what_long_work_teaches_is_for_long_work(void **state)
{
  tt_preemption p = {0};
  uint64_t now = 1000;
  (void)state;
  assert_true(preempted(&p, &now, SLICE));
  assert_true(tt_preemption_sleeps(&p, now, TAKES / TT_MUCH_LONGER + 1));
  assert_false(tt_preemption_sleeps(&p, now, TAKES / TT_MUCH_LONGER - 1));
  assert_false(tt_preemption_sleeps(&p, now, TAKES));
  p = (tt_preemption){0};
  assert_true(tt_preemption_note(&p, now, now + SLICE, 2, TT_LONG_US - 1)); // of calls of some size all sizes learn
  assert_true(tt_preemption_sleeps(&p, now, 0));
  assert_false(tt_preemption_note(&p, now + SLICE, now, 2, TAKES)); // seen by another core's clock, later than now
}

int main(int argc, char **argv)
{
  char text[20];
  bool peers = argc > 1 && strcmp(argv[1], "peers") == 0;
  const struct CMUnitTest second_start[] = {cmocka_unit_test(a_sleeper_looks_after_its_peers)};
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_waiter_sleeps_until_the_post),
      cmocka_unit_test(test_no_wake_up_is_lost),
      cmocka_unit_test(test_the_own_bell_counts_among_many),
      cmocka_unit_test(test_the_bell_changes_while_a_waiter_falls_asleep),
      cmocka_unit_test(test_a_helper_leaves_in_the_middle),
      cmocka_unit_test(test_the_worker_runs_what_nobody_waits_for),
      cmocka_unit_test(test_the_worker_sleeps_again),
      cmocka_unit_test(test_a_blocked_orphan_is_cheap),
      cmocka_unit_test(test_work_left_by_a_waiter_is_run),
      cmocka_unit_test(test_deferred_work_is_tried_until_it_is_done),
      cmocka_unit_test(test_a_retired_bell_is_free),
      cmocka_unit_test(test_retiring_wakes_and_waits_for_sleepers),
      cmocka_unit_test(test_a_waiter_helps_elsewhere),
      cmocka_unit_test(test_a_sleeper_looks_after_its_peers),
      cmocka_unit_test(test_the_runner_makes_the_check),
      cmocka_unit_test(test_preemptions_in_short_succession_end_yielding),
      cmocka_unit_test(test_a_rare_preemption_changes_nothing),
      cmocka_unit_test(test_what_a_preemption_pays_for_ends_with_time),
      cmocka_unit_test(test_what_long_work_teaches_is_for_long_work),
  };
  snprintf(text, sizeof text, "%d", peers ? BRIEF_CHECK_MS : CHECK_MS);
  setenv("NCCL_PEER_CHECK_MS", text, 1); // read when first needed
  setenv("NCCL_HOST_SPIN_US", "0", 1);
  return peers ? cmocka_run_group_tests(second_start, NULL, NULL) : cmocka_run_group_tests(tests, NULL, NULL);
}
