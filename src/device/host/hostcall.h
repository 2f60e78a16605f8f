// hostcall.h: threads for host functions.
//
// A host function is the user's code: it may take long, and it may wait for something that its own program does later.
// So it runs neither on a thread that queues it nor on one that waits for a stream or helps, and it holds up its own
// stream alone. The threads are started when there are more functions to run than idle threads (TT_HOSTCALL_THREADS at
// most; what comes on top waits its turn), and end when they have been idle for a while.
#pragma once
#include <stdatomic.h>
#include <stdbool.h>

#include "nccl.h"

#define TT_HOSTCALL_THREADS 64

typedef struct tt_hostcall {
  struct tt_hostcall *next; // the queue's
  void (*fn)(void *arg);
  void *arg;
  _Atomic bool over; // fn has returned (release); the last thing the thread writes here
} tt_hostcall;

// Has c->fn(c->arg) called on a thread of this module. `c` stays the caller's and must live until `over`; the process's
// bell rings then. Any thread. Errors: ncclSystemError (no thread at all could be started); then fn is never called.
ncclResult_t tt_hostcall_start(tt_hostcall *c);

static inline bool tt_hostcall_over(const tt_hostcall *c)
{
  return atomic_load_explicit(&c->over, memory_order_acquire);
}

// A forked child has none of these threads, and nothing for them to do.
void tt_hostcall_forget(void);
