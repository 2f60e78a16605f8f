// bell.h: sleep and wake between threads and processes, written once and used everywhere.
//
// A bell is two words in memory that poster and waiter both see (shared memory for ranks of different processes).
//   poster: publishes its data (release), tt_bell_fence(), then tt_bell_ring(): looks for sleepers and wakes them only
//   if there are any. waiter: tt_bell_announce() (counts itself in, fences), looks at the data once more, then
//   tt_bell_sleep() or tt_bell_leave().
// Either the poster sees the waiter's announcement, or the waiter's second look sees the data: no wake-up is lost
// (tests/bell_model_test.c walks all interleavings). Rule: `seq` is written by posters only, `sleepers` by waiters
// only.
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

typedef struct tt_bell {
  _Alignas(TT_CACHE_LINE) _Atomic uint32_t seq; // the futex word; grows with every wake
  _Atomic uint32_t sleepers;                    // waiters that have announced themselves
  uint32_t alarm; // 1: some rank has stopped: look after the peers at once (tt_bell_alarm). By __atomic_…
} tt_bell;

// Orders the poster's publication before its look at `sleepers` (store-load). One fence serves any number of rings that
// follow.
static inline void tt_bell_fence(void)
{
#if defined(TT_TSAN)
  static _Thread_local _Atomic uint32_t dummy;
  // ThreadSanitizer does not know fences; a sequentially consistent exchange has the same effect here.
  atomic_exchange(&dummy, 1);
#else
  atomic_thread_fence(memory_order_seq_cst);
#endif
}

// The same where an atomic read-modify-write has just been done: on x86-64 that is a full barrier already.
static inline void tt_bell_fence_after_rmw(void)
{
#if !defined(__x86_64__)
  tt_bell_fence();
#endif
}

// Wakes all that sleep on `b`. The cold half of tt_bell_ring.
void tt_bell_wake(tt_bell *b);

// Wakes the sleepers of `b`, if any. Call after publishing and tt_bell_fence(). Any thread.
static inline void tt_bell_ring(tt_bell *b)
{
  if (TT_UNLIKELY(atomic_load_explicit(&b->sleepers, memory_order_relaxed) != 0)) {
    tt_bell_wake(b);
  }
}

// Rings, and lets the thread that wakes, or that is about to sleep, look after its peers at once. Call after publishing
// and tt_bell_fence(). Any thread.
static inline void tt_bell_alarm(tt_bell *b)
{
  __atomic_store_n(&b->alarm, 1, __ATOMIC_RELEASE);
  tt_bell_ring(b);
}

// Has there been an alarm since the last call? Any thread.
static inline bool tt_bell_alarmed(tt_bell *b)
{
  return __atomic_load_n(&b->alarm, __ATOMIC_RELAXED) != 0 && __atomic_exchange_n(&b->alarm, 0, __ATOMIC_ACQUIRE) != 0;
}

// Counts the caller in as a sleeper and returns the ticket to sleep with. Look at the data again before sleeping.
static inline uint32_t tt_bell_announce(tt_bell *b)
{
  uint32_t ticket = atomic_load_explicit(&b->seq, memory_order_acquire);
  atomic_fetch_add(&b->sleepers, 1);
  tt_bell_fence(); // the addition alone does not keep the second look behind it, neither in C11 nor on ARM
  return ticket;
}

// Takes the announcement back.
static inline void tt_bell_leave(tt_bell *b)
{
  atomic_fetch_sub(&b->sleepers, 1);
}

#define TT_BELL_MAX 64 // bells one thread can sleep on

// Sleeps until one of `n` announced bells is rung since its ticket was taken, or `timeout_ns` has passed. Returns false
// on timeout. The caller still has to tt_bell_leave() each. Spurious returns are allowed.
bool tt_bell_sleep(tt_bell *const *bells, const uint32_t *tickets, int n, uint64_t timeout_ns);

// What tt_bell_sleep does where the kernel cannot wait for several words (before Linux 5.16, or refused by a sandbox):
// sleeps on the first bell for a millisecond at most, so that a ring of another one is noticed by then. Same contract.
// Of its own for tests.
bool tt_bell_nap(tt_bell *const *bells, const uint32_t *tickets, int n, uint64_t timeout_ns);
