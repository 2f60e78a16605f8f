// thread.h: named threads that leave the application's signals alone.
#pragma once
#include <pthread.h>
#include <stdbool.h>

#include "nccl.h"

// A joinable thread. Zeroed means: none.
typedef struct tt_thread {
  pthread_t id;
  bool running; // started and not joined yet
} tt_thread;

// Starts `fn(arg)` on a thread called `name` (cut to 15 characters) with every signal blocked, so that the
// application's handlers run on its own threads. Stop it with tt_thread_join. Any thread. Errors: ncclSystemError.
ncclResult_t tt_thread_start(tt_thread *t, const char *name, void *(*fn)(void *), void *arg);
// Waits until the thread has returned. Does nothing for a zeroed or already joined one. Not from the thread itself.
void tt_thread_join(tt_thread *t);
// Lets the thread end by itself: it is not joined, and the library stays loaded. Also from the thread itself.
void tt_thread_detach(tt_thread *t);
// As tt_thread_start, for a thread that is never joined: it frees its own things and ends by itself. The library
// stays loaded from then on (tt_library_stay).
ncclResult_t tt_thread_start_detached(const char *name, void *(*fn)(void *), void *arg);
