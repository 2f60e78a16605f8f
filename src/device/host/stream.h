// stream.h: queues of work on the host device, and the threads that run them.
//
// A stream runs its entries one after the other. No thread owns a stream. A thread that waits for a stream runs it, a
// thread that waits for something else helps, and a lazy worker runs the streams for which no thread waits. One thread
// at a time holds a stream's run flag.
//
// Streams are never given back to the system, only used again: a helper may look at one that has just been destroyed
// and finds it empty.
#pragma once
#include <stdatomic.h>
#include <stdbool.h>

#include "base/result.h"
#include "device/device.h"

// The run flag: 0 free, 1 taken, 2 taken and somebody asked meanwhile (the holder looks again before it leaves).
struct tt_stream {
  _Alignas(TT_CACHE_LINE) _Atomic int run;
  _Atomic bool check;          // somebody wants a check: the run flag's holder makes it. Set before `run` becomes 2
  _Atomic bool listed;         // is in the list of busy streams (busy.h), or is just being put there or taken out
  _Atomic uint32_t again;      // looks that the holder has made because somebody asked; counted by him when one is over
  _Atomic uint32_t pending;    // entries not complete; > 0 from push until after `done`
  _Atomic uint32_t waiters;    // threads inside tt_stream_wait for this stream
  _Atomic uint32_t takes_us;   // of the blocked current entry (work.h)
  _Atomic(tt_work *) incoming; // pushed entries, newest first. Any thread adds, the run flag's holder takes all
  tt_work *current, *queue, **queue_end; // entries in order; the run flag's holder only
  _Atomic uint32_t error;  // first failure since the last synchronise. The run flag's holder sets it, others clear it
  uint32_t seen_pushes;    // at the worker's last tick; the worker's
  _Atomic(tt_bell *) bell; // what the blocked current entry waits for; NULL: the process's bell
  _Atomic uint64_t read;   // when the clock was read for a call, in ticks (tt_stream_free_at)
  _Atomic(tt_stream *) legacy; // the device's legacy default stream, which this one is ordered with; NULL: none
  _Atomic int state;           // TT_STREAM_…; changed under the pool's lock
  _Atomic uint32_t pushes;     // counted by pushing threads; tells the worker that a thread looks after the stream
  bool orphan;                 // nobody has pushed since: the worker runs it. The worker's
  _Atomic bool synchronized;   // a thread has waited for it since a call last waited inside (comm/inline.c). Relaxed: a
                               // hint, which orders nothing
  bool is_legacy;
  _Atomic uint8_t shares; // so many more calls may share `read`. Relaxed, as that is: only times depend on it
  _Atomic int device;
  _Atomic(tt_stream *) next_busy; // in the list of busy streams
  _Atomic(tt_error *) why;        // the text of `error`, written before it; NULL: none. Who exchanges it owns it
  union {
    struct tt_member *member; // of a capture (capture.c, whose lock guards it); NULL: is not captured
    tt_stream *next_free;     // of a free stream: in the pool's list of those, under its lock
  };
};
_Static_assert(sizeof(tt_stream) == 2 * TT_CACHE_LINE, "two lines; finding a stream divides by this");

// Capturing: what would be queued is recorded (capture.h). Destroyed: goes back to the pool when it is idle.
enum { TT_STREAM_FREE, TT_STREAM_LIVE, TT_STREAM_CAPTURING, TT_STREAM_DESTROYED };

// As a device: the calling thread's. Looked up only where the stream depends on it.
#define TT_STREAM_CALLERS (-1)

// Turns a handle of the API into a stream: NULL and 1 are the device's legacy default stream, 2 the calling thread's
// own. Errors: ncclInvalidArgument for a handle that is not a live stream.
ncclResult_t tt_stream_look(cudaStream_t handle, int device, tt_stream **out);
// The same for function `what`, which uses the stream. Errors: ncclInvalidUsage where it is captured, which breaks the
// capture (capture.h).
ncclResult_t tt_stream_get(cudaStream_t handle, int device, const char *what, tt_stream **out);
// The same, without a word where there is no such stream, or it is captured: NULL.
tt_stream *tt_stream_find(cudaStream_t handle, int device);

// tt_shortcut_ops.free_at of the stream that tt_stream_find finds.
uint64_t tt_stream_free_at(cudaStream_t handle, int device, bool timed);

// A thread waits for the stream, asks whether it is idle, or records an event: the next call has a time of its own.
static inline void tt_stream_unshare(tt_stream *s)
{
  atomic_store_explicit(&s->shares, 0, memory_order_relaxed);
}

// The stream that tt_stream_find finds, if it is not a legacy default stream: NULL.
const void *tt_stream_queue(cudaStream_t handle, int device);

// A stream of `device` from the pool. blocking: ordered with the legacy default stream. Errors: ncclSystemError.
ncclResult_t tt_stream_create(int device, bool blocking, tt_stream **out);
// Returns at once; queued work still runs.
void tt_stream_destroy(tt_stream *s);

// Queues `w` and tries a bounded first run on the calling thread. Never waits. Any thread.
void tt_stream_push(tt_stream *s, tt_work *w);

// Orders streams: what is pushed to `later` from now on runs after what has been pushed to `earlier`. Errors:
// ncclSystemError.
ncclResult_t tt_stream_order(tt_stream *earlier, tt_stream *later);

static inline bool tt_stream_idle(const tt_stream *s)
{
  return atomic_load_explicit(&s->pending, memory_order_acquire) == 0;
}

// Runs what can be run, for at most `budget` bytes. True when anything moved. `insist`: if another thread holds the run
// flag, make it look again. Any thread.
bool tt_stream_progress(tt_stream *s, size_t budget, bool insist);

// The same for sure: waits for the thread that holds the run flag, which never waits for peers, then runs what can be
// run. Afterwards no entry has a thread in it that found it before this call. Not from within an entry.
void tt_stream_pass(tt_stream *s);

// Lets the blocked current entry look whether what it waits for can still come (tt_work_ops.check). When another thread
// runs `s`, that one does it: a thread that polls all the time would leave no gap for anybody else.
void tt_stream_check(tt_stream *s);

// Waits until no thread of this process sleeps on `bell` or is about to: then its memory may go. No stream's entry may
// use it any more.
void tt_bell_retire(tt_bell *bell);

// Runs what can be run on all streams of the process but `except`. True when anything moved.
bool tt_stream_help(const tt_stream *except, size_t budget);

// Forgets all streams; for a forked child.
void tt_stream_forget(void);

// Calls visit(s, arg) for every stream with pending work, perhaps more than once. Takes time in proportion to their
// number.
void tt_stream_each(void (*visit)(tt_stream *s, void *arg), void *arg);

// Waits until `s` is idle. Helps, spins as the machine's load allows, sleeps. Returns and clears the stream's error.
ncclResult_t tt_stream_wait(tt_stream *s);

// The same for about `ns` nanoseconds at most. ncclInProgress: it is not idle then.
ncclResult_t tt_stream_wait_for(tt_stream *s, uint64_t ns);

// The stream's error, which becomes the calling thread's last one, with its text. take: clears it. Any thread.
ncclResult_t tt_stream_error(tt_stream *s, bool take);

// Waits for what is queued to the streams of `device` now. take_errors: returns and clears the first of their errors;
// else they stay until a thread synchronises.
ncclResult_t tt_stream_wait_device(int device, bool take_errors);

// Waits until ready(arg), running `s` (may be NULL) first and helping elsewhere; the waiting half of tt_stream_wait and
// of events.
void tt_host_wait(tt_stream *s, bool (*ready)(void *arg), void *arg);

// The same for about `ns` nanoseconds at most, as tt_stream_wait_for. Returns whether it is ready.
bool tt_host_wait_for(tt_stream *s, bool (*ready)(void *arg), void *arg, uint64_t ns);

// Looks once whether ready(arg), after running what can be run: `s` (may be NULL) first, then others. Never waits; of a
// thread that asks again and again in vain each query gives the core away, once it has asked for as long as a waiting
// thread looks before it sleeps.
bool tt_host_poll(tt_stream *s, bool (*ready)(void *arg), void *arg);

// Looks whether ready(arg), and gives the core to others in between, for as long as they are likely to need it for
// their part of a small call; never sleeps. Returns whether it is ready. For short waits with more ranks than cores.
bool tt_host_spin(const tt_stream *s, bool (*ready)(void *arg), void *arg);

// The process's bell: rung when an event completes or an entry without a bell of its own does.
extern tt_bell tt_process_bell;

// Called with +1 when a thread begins to look after streams in tt_host_wait, with -1 when it stops or falls asleep:
// meanwhile no other thread need look after the network. NULL: no function is called. Set once per process,
// before the first stream can need it.
extern void (*_Atomic tt_host_attend)(int delta);

// Is some communicator crowded (tt_host_load)?
bool tt_host_crowded(void);

// Is the calling thread inside tt_host_wait? So it is in a signal handler that interrupted the wait, or in a plugin
// that the wait called: it must not wait for anything that the wait holds.
bool tt_host_waiting(void);

// Tells how crowded the machine is: `ranks` ranks of one communicator share it with `cores` cores. Waits spin less when
// crowded.
void tt_host_load(int ranks, int cores);

// Work for the worker's next quiet moments.
void tt_worker_defer(tt_deferred *d);

// For a forked child: it has no worker, and no thread that sleeps.
void tt_worker_forget(void);
void tt_sleep_forget(void);

// Makes sure that the worker runs what is queued, although no thread waits for it.
void tt_worker_kick(void);
