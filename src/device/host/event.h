// event.h: marks in a stream's queue.
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"
#include "device/host/ipc.h"
#include "device/host/stream.h"
#include "device/work.h"

typedef struct tt_mark tt_mark; // capture.c's

// An event counts how often it has been recorded and how often a record has been reached. Kept alive by its user and by
// queued entries. The state of an event that several processes share is in its slot instead. A wait there is for a
// count, not for a certain record: where two streams record one shared event, the wait ends with the record that is
// reached first.
typedef struct tt_event {
  _Atomic uint32_t refs;
  unsigned flags; // TUTTI_EVENT_…
  // Where this process recorded it last, NULL: nowhere. Relaxed: a waiting thread runs that stream first.
  _Atomic(tt_stream *) stream;
  tt_event_slot *slot;           // shared with other processes; NULL: not
  uint32_t generation;           // of the slot, when the event was made or opened
  bool imported;                 // the slot is another process's
  _Atomic uint64_t recorded;     // number of the newest record queued
  _Atomic uint64_t reached;      // number of the newest record reached (release)
  _Atomic uint64_t time;         // when, tt_now_ns
  pthread_mutex_t lock;          // of `newest`, and of what `mark` points to
  struct tt_event_entry *newest; // newest record; waits hold on to the one they are for
  _Atomic(tt_mark *) mark; // was last recorded in a captured stream, behind these nodes (capture.h); NULL: was not
} tt_event;

// One reference for the caller. Errors: ncclSystemError.
ncclResult_t tt_event_create(tt_event **out);
// The same, shared: `handle` NULL makes an event that other processes can open, else the event behind the handle.
// Errors: ncclInvalidArgument, ncclInvalidUsage, ncclSystemError (tt_ipc_slot_open).
ncclResult_t tt_event_create_shared(const tuttiIpcEventHandle_t *handle, tt_event **out);
// Drops the caller's reference; queued entries keep theirs.
void tt_event_destroy(tt_event *e);
// True when the newest record has been reached, or there was none.
bool tt_event_complete(const tt_event *e);
// The same, for arguments of tt_host_wait and tt_host_poll.
bool tt_event_reached(void *e);
// A shared event whose newest record will never be reached, because the process that made it has ended or the owner has
// destroyed it: ncclRemoteError. Costs microseconds. ncclSuccess for all others.
ncclResult_t tt_event_check(const tt_event *e);
// Was it ever recorded, and when was the newest record reached (tt_now_ns)?
bool tt_event_recorded(const tt_event *e);
uint64_t tt_event_time(const tt_event *e);

// Entries for tt_stream_push; NULL when there is no memory. The record counts from the moment this is called.
tt_work *tt_event_record_work(tt_event *e);
// Waits for the record that is the newest now, whatever is recorded later.
tt_work *tt_event_wait_work(tt_event *e);

// Was the event last recorded in a captured stream?
static inline bool tt_event_captured(const tt_event *e)
{
  return TT_UNLIKELY(atomic_load_explicit(&e->mark, memory_order_relaxed) != NULL);
}
// Gives the event a new mark, which it owns (NULL: none), in place of the one it has.
void tt_event_mark(tt_event *e, tt_mark *mark);
// NULL is allowed. capture.c
void tt_mark_free(tt_mark *mark);
