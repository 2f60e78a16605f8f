// ThreadSanitizer's own thread, for tools and tests that count the threads of their process.
#ifndef TUTTI_TOOLS_SANITIZER_H
#define TUTTI_TOOLS_SANITIZER_H

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/util.h"

#ifdef TT_TSAN
static inline void *tt_sanitizer_tid(void *tid)
{
  *(long *)tid = syscall(SYS_gettid);
  return NULL;
}
#endif

// Call it before threads are counted, each time. Under ThreadSanitizer the first thread of a process, and the first
// after a fork, brings one of the sanitizer's own: this begins such a first thread and returns when only the
// sanitizer's is left. A joined thread counts until the kernel has ended it. Elsewhere it does nothing. Any thread.
static inline void tt_sanitizer_begin(void)
{
#ifdef TT_TSAN
  pthread_t first;
  long tid = 0;
  if (pthread_create(&first, NULL, tt_sanitizer_tid, &tid) == 0) {
    pthread_join(first, NULL);
    while (syscall(SYS_tgkill, getpid(), tid, 0) == 0) {
      sched_yield();
    }
  }
#endif
}

#endif
