// barrier.h: asymmetric barrier: the rare side calls membarrier so that the frequent side needs no fence.
//
// One thread says that it is about to use something, then looks whether it still may, thousands of times per
// millisecond. Another thread, once in the life of that thing, forbids its use, then looks whether it is in use. One
// of the two must see the other, for which each needs a full fence between its store and its look. Linux's
// membarrier lets the rare side have the fence for both. After tt_barrier_rare() every thread of the process has
// done what stood before its last tt_barrier_often(), or will see what the caller stored. So the frequent side needs
// the compiler's fence alone.
//
//  often: stores its mark (relaxed), tt_barrier_often(), looks (relaxed or acquire).
//  rare:  stores its word, tt_barrier_rare(), looks at the mark (acquire), and waits until it is gone.
//
// Where the kernel has no membarrier, or a sandbox refuses it, both have real fences.
#pragma once
#include <stdatomic.h>
#include <stdbool.h>

#include "base/util.h"
#include "os/bell.h"

extern TT_HIDDEN _Atomic bool tt_barrier_refused; // the frequent ones have fences of their own

// Asks the kernel, once per process. Before the first tt_barrier_often(). Any thread.
void tt_barrier_prepare(void);

static inline void tt_barrier_often(void)
{
  atomic_signal_fence(memory_order_seq_cst);
  if (TT_UNLIKELY(atomic_load_explicit(&tt_barrier_refused, memory_order_relaxed))) {
    tt_bell_fence();
  }
}

// Takes microseconds, the first time in a process of several threads some milliseconds. Any thread.
void tt_barrier_rare(void);
