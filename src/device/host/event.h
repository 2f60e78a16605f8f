// event.h: marks in a stream's queue.
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/work.h"

// An event counts how often it has been recorded and how often a record has been reached. Kept alive by its user and by queued entries.
typedef struct tt_event {
  _Atomic uint32_t refs;
  _Atomic uint64_t recorded;     // number of the newest record queued
  _Atomic uint64_t reached;      // number of the newest record reached (release)
  _Atomic uint64_t time;         // when, tt_now_ns
  pthread_mutex_t lock;          // of `newest`
  struct tt_event_entry *newest; // newest record; waits hold on to the one they are for
} tt_event;

// One reference for the caller. Errors: ncclSystemError.
ncclResult_t tt_event_create(tt_event **out);
// Drops the caller's reference; queued entries keep theirs.
void tt_event_destroy(tt_event *e);
// True when the newest record has been reached, or there was none.
bool tt_event_complete(const tt_event *e);

// Entries for tt_stream_push; NULL when there is no memory. The record counts from the moment this is called.
tt_work *tt_event_record_work(tt_event *e);
// Waits for the record that is the newest now, whatever is recorded later.
tt_work *tt_event_wait_work(tt_event *e);
