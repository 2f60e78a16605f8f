// value.h: words of memory that streams write and wait for, as entries for tt_stream_push.
//
// Anybody may store the value that a stream waits for: a thread, another process, an entry of another stream. A plain
// store rings no bell. The thread that runs the stream sees it at once. For sleeping threads, one thread of this module
// looks at the words of all blocked waits, at intervals that grow with how long nothing has happened (from 50 us to 10
// ms), and rings the process's bell. It ends after 10 s without a wait.
//
// A wait that has held once while it was the next entry of its stream is over, even if the word changes back.
#pragma once
#include "device/work.h"
#include "tutti.h"

// A naturally aligned word of memory, `bytes` wide: 4 or 8.
typedef struct tt_value {
  void *at;
  uint64_t value;
  unsigned bytes;
} tt_value;

// Stores the value (release) after all work before it in the stream. NULL: there is no memory.
tt_work *tt_value_write(const tt_value *v);
// Blocks a stream of `device` until the word and the value meet the condition. The word must be readable until then.
// NULL: there is no memory.
tt_work *tt_value_wait(const tt_value *v, tuttiValueCondition_t condition, int device);

// Ends all waits for values that are queued to streams of `device` now, as failed. Any thread.
void tt_value_abandon(int device);

// A forked child has neither the thread nor anything for it to watch.
void tt_value_forget(void);
