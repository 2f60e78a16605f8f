// bell.c: futex behind bell.h.
#include "os/bell.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/clock.h"

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

// Layout of the kernel's struct futex_waitv (Linux 5.16), which older headers lack.
typedef struct waiter {
  uint64_t val;
  uint64_t addr;
  uint32_t flags;
  uint32_t reserved;
} waiter;
_Static_assert(sizeof(waiter) == 24, "kernel ABI");

#define WAITER_U32 2u              // 32-bit word, shared between processes
#define FALLBACK_NAP_NS 1000000ull // longest sleep on one word when the kernel cannot wait for several

void tt_bell_wake(tt_bell *b)
{
  atomic_fetch_add_explicit(&b->seq, 1, memory_order_release);
  syscall(SYS_futex, &b->seq, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static bool sleep_one(tt_bell *b, uint32_t ticket, uint64_t timeout_ns)
{
  struct timespec t = tt_timespec(timeout_ns);
  long r = syscall(SYS_futex, &b->seq, FUTEX_WAIT, ticket, &t, NULL, 0);
  return r == 0 || errno != ETIMEDOUT;
}

bool tt_bell_nap(tt_bell *const *bells, const uint32_t *tickets, int n, uint64_t timeout_ns)
{
  for (int i = 0; i < n; i++) {
    if (atomic_load_explicit(&bells[i]->seq, memory_order_acquire) != tickets[i]) {
      return true;
    }
  }
  bool rung = sleep_one(bells[0], tickets[0], TT_MIN(timeout_ns, FALLBACK_NAP_NS));
  return rung || timeout_ns > FALLBACK_NAP_NS; // the end of a short nap is not the caller's timeout
}

bool tt_bell_sleep(tt_bell *const *bells, const uint32_t *tickets, int n, uint64_t timeout_ns)
{
  if (n == 1) {
    return sleep_one(bells[0], tickets[0], timeout_ns);
  }
  if (n > TT_BELL_MAX) {
    return tt_bell_nap(bells, tickets, n, timeout_ns);
  }
  waiter w[TT_BELL_MAX];
  for (int i = 0; i < n; i++) {
    w[i] = (waiter){.val = tickets[i], .addr = (uint64_t)(uintptr_t)&bells[i]->seq, .flags = WAITER_U32};
  }
  struct timespec until = tt_timespec(tt_now_ns() + timeout_ns);
  long r = syscall(SYS_futex_waitv, w, (unsigned)n, 0u, &until, CLOCK_MONOTONIC);
  if (r < 0 && (errno == ENOSYS || errno == EPERM || errno == EINVAL)) {
    return tt_bell_nap(bells, tickets, n, timeout_ns);
  }
  return r >= 0 || errno != ETIMEDOUT;
}
