// flight.h: the flight recorder of a rank: its last operations, in a ring.
//
// The launching thread adds operations, the thread that runs their plan adds when they started and ended. Any thread
// may copy the ring meanwhile (tt_flight_copy). An operation that was over when its call returned has one time: its
// end. One that starts while its call queues it has one for both. Times are ticks (os/clock.h); small calls that follow
// each other closely share one (tt_shortcut_ops.free_at).
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "os/clock.h"

#define TT_FLIGHT_NOT_YET UINT64_MAX // of `started` and `ended`

// One operation. In the ring `ended` is 0 when the operation was over at `added`: then `started` and `thread` are of
// another, older operation.
typedef struct tt_flight_op {
  _Alignas(TT_CACHE_LINE) _Atomic uint64_t kind; // tt_task_kind: function, type, operator, root or peer
  _Atomic uint64_t count;                        // elements; of a one-sided wait: signals
  _Atomic uint64_t stream;                       // handle
  _Atomic uint64_t sequence;                     // of the communicator's collectives so far
  _Atomic uint64_t added, started, ended;
  _Atomic uint64_t thread; // that queued it, as pthread_self() says it
} tt_flight_op;
_Static_assert(sizeof(tt_flight_op) == TT_CACHE_LINE, "one line");

// Zeroed and opened by tt_flight_open.
typedef struct tt_flight {
  _Atomic uint64_t n; // operations so far, times the size of one
  uint64_t mask;      // of the offset of an operation in `ops`
  char *ops;
  tt_flight_op none; // stands for `ops` where nothing is recorded
} tt_flight;

// Room for `most` operations or some more; 0, or no memory: nothing is recorded. Before the first use.
void tt_flight_open(tt_flight *f, size_t most);
// Frees the ring. No thread may add or copy any more. A zeroed one is allowed.
void tt_flight_close(tt_flight *f);

// Is anything recorded?
static inline bool tt_flight_on(const tt_flight *f)
{
  return f->mask != 0;
}

// The time of what is recorded now, in ticks; 0 where nothing is recorded: then the clock is not read.
static inline uint64_t tt_flight_now(const tt_flight *f)
{
  return tt_flight_on(f) ? tt_ticks() : 0;
}

static inline tt_flight_op *tt_flight_at(const tt_flight *f, uint64_t n)
{
  return (tt_flight_op *)(void *)(f->ops + (n & f->mask));
}

// The place of the next operation, for the two functions that add one, which set its times.
static inline tt_flight_op *tt_flight_next(const tt_flight *f)
{
  tt_flight_op *o = tt_flight_at(f, atomic_load_explicit(&f->n, memory_order_relaxed));
  atomic_thread_fence(memory_order_release); // a copy that sees what follows sees `n`
  return o;
}

// The operation stands there. For the same two.
static inline void tt_flight_put(tt_flight *f, tt_flight_op *o, uint64_t kind, uint64_t count, const void *stream,
                                 uint32_t sequence)
{
  uint64_t n = atomic_load_explicit(&f->n, memory_order_relaxed);
  atomic_store_explicit(&o->kind, kind, memory_order_relaxed);
  atomic_store_explicit(&o->count, count, memory_order_relaxed);
  atomic_store_explicit(&o->stream, (uintptr_t)stream, memory_order_relaxed);
  atomic_store_explicit(&o->sequence, sequence, memory_order_relaxed);
  atomic_store_explicit(&f->n, n + sizeof *o, memory_order_release);
}

// Adds an operation that is over. `now`: in ticks; one for the messages of a group. The launching thread.
static inline void tt_flight_add(tt_flight *f, uint64_t kind, uint64_t count, const void *stream, uint32_t sequence,
                                 uint64_t now)
{
  tt_flight_op *o = tt_flight_next(f);
  atomic_store_explicit(&o->added, now, memory_order_relaxed);
  atomic_store_explicit(&o->ended, 0, memory_order_relaxed);
  tt_flight_put(f, o, kind, count, stream, sequence);
}

// Adds an operation that a plan will run: it has not started. Returns where it is, for the two below: the next one is
// sizeof(tt_flight_op) behind. The launching thread.
uint64_t tt_flight_queue(tt_flight *f, uint64_t kind, uint64_t count, const void *stream, uint32_t sequence,
                         uint64_t now);

// The `n` operations from `first` on start, or end, now; `at_once`: they start when they were added, or end when they
// started, and the clock is not read. The thread that runs their plan.
void tt_flight_start(const tt_flight *f, uint64_t first, int n, bool at_once);
void tt_flight_end(const tt_flight *f, uint64_t first, int n, bool at_once);

// A copy of an operation.
typedef struct tt_flight_entry {
  uint64_t number; // from 0 on
  uint64_t kind, count, stream, sequence;
  uint64_t added, started, ended; // TT_FLIGHT_NOT_YET: not yet
  uint64_t thread;                // 0: not recorded
} tt_flight_entry;

// Copies the operations that are still there, the oldest first, into *out, which the caller frees with tt_free. Returns
// how many. 0: none, or no memory; then *out is NULL. Any thread, while others add.
size_t tt_flight_copy(const tt_flight *f, tt_flight_entry **out);
