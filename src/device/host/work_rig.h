// work_rig.h: dummy entries of a stream's queue for the tests of this folder: they block, move bytes, note when they
// ran, and ring bells.
#pragma once
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "device/host/stream.h"
#include "os/clock.h"

#ifdef TT_TSAN
enum { SLOWER = 10 }; // how much less to do in an instrumented program
#elif defined(TT_ASAN)
enum { SLOWER = 4 };
#else
enum { SLOWER = 1 };
#endif
#define DUMMY __attribute__((unused)) static
#define DUMMY_LONG_S 60 // whatever happens soon: only a hang takes longer, however busy the machine

// Blocked until *gate is not 0 (NULL: never blocked), then moves `bytes` in portions of the budget, calls fn and ends
// with `result`.
typedef struct dummy {
  tt_work work; // first member
  _Atomic int *gate;
  tt_bell *bell; // NULL: the process's
  size_t bytes;
  void (*fn)(struct dummy *t);
  void *arg;
  ncclResult_t result;
  pthread_t maker;
  size_t moved_by_maker; // bytes that the thread of dummy_init moved
  int id;
  int runs; // under the run flag
  _Atomic int checks;
  _Atomic int done;
} dummy;

DUMMY tt_run dummy_run(tt_work *w, size_t *budget, ncclResult_t *result)
{
  dummy *t = (dummy *)w;
  t->runs++;
  if (t->gate != NULL && atomic_load_explicit(t->gate, memory_order_acquire) == 0) {
    return TT_RUN_BLOCKED;
  }
  size_t n = TT_MIN(t->bytes, *budget);
  t->bytes -= n;
  *budget -= n;
  if (pthread_equal(pthread_self(), t->maker)) {
    t->moved_by_maker += n;
  }
  if (t->bytes > 0) {
    return TT_RUN_MORE;
  }
  if (t->fn != NULL) {
    t->fn(t);
  }
  *result = t->result;
  return t->result == ncclSuccess ? TT_RUN_DONE : TT_RUN_FAILED;
}

DUMMY void dummy_done(tt_work *w)
{
  atomic_fetch_add(&((dummy *)w)->done, 1);
}

DUMMY tt_bell *dummy_bell(tt_work *w)
{
  const dummy *t = (const dummy *)w;
  return t->bell != NULL ? t->bell : &tt_process_bell;
}

DUMMY void dummy_check(tt_work *w)
{
  ((dummy *)w)->checks++;
}

static const tt_work_ops dummy_ops = {
    .name = "dummy", .run = dummy_run, .done = dummy_done, .bell = dummy_bell, .check = dummy_check};

// The dummy lives until `done` is 1, which may be after its stream counts as idle: a static one is best. `gate` and
// `bell` may be NULL.
DUMMY dummy *dummy_init(dummy *t, _Atomic int *gate, tt_bell *bell)
{
  *t = (dummy){.work.ops = &dummy_ops, .gate = gate, .bell = bell, .maker = pthread_self()};
  return t;
}

// Opens a gate and wakes the threads that sleep because of it.
DUMMY void dummy_open(_Atomic int *gate, tt_bell *bell)
{
  atomic_store_explicit(gate, 1, memory_order_release);
  tt_bell_fence();
  tt_bell_ring(bell != NULL ? bell : &tt_process_bell);
}

DUMMY tt_stream *dummy_stream(void)
{
  tt_stream *s = NULL;
  assert_int_equal(tt_stream_create(0, false, &s), ncclSuccess);
  return s;
}

// Waits until *word is `value`, at most `seconds`.
DUMMY bool dummy_becomes(_Atomic int *word, int value, double seconds)
{
  uint64_t end = tt_now_ns() + (uint64_t)(seconds * 1e9);
  while (atomic_load_explicit(word, memory_order_acquire) != value) {
    if (tt_now_ns() > end) {
      return false;
    }
    tt_sleep_ns(20000);
  }
  return true;
}

// Waits until just so many threads have announced themselves on the bell, at most `seconds`.
DUMMY bool dummy_sleepers(tt_bell *b, uint32_t n, double seconds)
{
  uint64_t end = tt_now_ns() + (uint64_t)(seconds * 1e9);
  while (atomic_load(&b->sleepers) != n) {
    if (tt_now_ns() > end) {
      return false;
    }
    tt_sleep_ns(20000);
  }
  return true;
}

// Waits until a thread has announced itself on the bell.
DUMMY bool dummy_sleeper(tt_bell *b, double seconds)
{
  uint64_t end = tt_now_ns() + (uint64_t)(seconds * 1e9);
  while (atomic_load(&b->sleepers) == 0) {
    if (tt_now_ns() > end) {
      return false;
    }
    tt_sleep_ns(20000);
  }
  return true;
}

// Waits until a thread waits for the stream. From then on the worker keeps off.
DUMMY bool dummy_waited_for(tt_stream *s)
{
  uint64_t end = tt_now_ns() + DUMMY_LONG_S * TT_NS_PER_S;
  while (atomic_load(&s->waiters) == 0) {
    if (tt_now_ns() > end) {
      return false;
    }
    tt_sleep_ns(20000);
  }
  return true;
}

// Milliseconds of processor time used so far: RUSAGE_THREAD or RUSAGE_SELF.
DUMMY double dummy_cpu_ms(int who)
{
  struct rusage r;
  getrusage(who, &r);
  return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1e3 +
         (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e3;
}
