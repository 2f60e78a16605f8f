// barrier.c: see barrier.h.
#define _GNU_SOURCE // syscall
#include "os/barrier.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "os/clock.h"

#define DRAIN_NS 20000000ull // by then every core has been interrupted, and a store has left it long before

_Atomic bool tt_barrier_refused;
static _Atomic bool barrier_queried;

static long membarrier(int command)
{
  return syscall(SYS_membarrier, command, 0, 0);
}

void tt_barrier_prepare(void)
{
  const long both = MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED | MEMBARRIER_CMD_PRIVATE_EXPEDITED;
  if (atomic_load_explicit(&barrier_queried, memory_order_relaxed)) {
    return;
  }
  long can = membarrier(MEMBARRIER_CMD_QUERY);
  if (can < 0 || (can & both) != both) {
    atomic_store(&tt_barrier_refused, true);
  }
  atomic_store(&barrier_queried, true);
}

void tt_barrier_rare(void)
{
  tt_bell_fence();
  if (atomic_load(&tt_barrier_refused)) {
    return;
  }
  // Registered here, and not before: that holds up a process of several threads, and most never come here.
  if (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0 || membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0) {
    // A sandbox has come later: from now on there are fences, and until then only time helps.
    atomic_store(&tt_barrier_refused, true);
    tt_info(TT_ALL, "membarrier is refused, although the kernel has it: each call has a fence of its own from now on");
    tt_sleep_ns(DRAIN_NS);
  }
}
