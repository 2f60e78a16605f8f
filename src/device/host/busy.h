// busy.h: the list of busy streams, where a search for work finds them (tt_stream_each, tt_stream_help).
#pragma once
#include "base/util.h"
#include "device/host/stream.h"

// Puts the stream into the list, unless another thread is doing that. The cold half of tt_busy_list.
void tt_busy_add(tt_stream *s);

// Puts the stream into the list, unless it is there. Called after an entry has been counted in `pending`, and before
// another thread must find that entry. Any thread.
static inline void tt_busy_list(tt_stream *s)
{
  if (TT_UNLIKELY(!atomic_load(&s->listed))) {
    tt_busy_add(s);
  }
}

// Returns and clears the first error of the device's streams. Any thread.
ncclResult_t tt_busy_take_error(int device);

// Forgets the list; for a forked child.
void tt_busy_forget(void);
