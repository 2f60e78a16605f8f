// hostcall.c: see hostcall.h.
#include "device/host/hostcall.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "base/result.h"
#include "device/host/stream.h"
#include "os/thread.h"

#define IDLE_SECONDS 10 // how long a thread waits for its next function before it ends

// All under `lock`; `more` is signalled once per function queued.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static tt_hostcall *first, *last; // functions that no thread has taken yet
static int queued, idle, threads;

// Caller holds `lock` and has counted itself idle.
static tt_hostcall *wait_for_one(void)
{
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += IDLE_SECONDS;
  while (first == NULL) {
    if (pthread_cond_timedwait(&more, &lock, &until) == ETIMEDOUT && first == NULL) {
      return NULL;
    }
  }
  tt_hostcall *c = first;
  first = c->next;
  queued--;
  return c;
}

static void *hostcall_main(void *arg)
{
  (void)arg;
  pthread_mutex_lock(&lock);
  for (;;) {
    idle++;
    tt_hostcall *c = wait_for_one();
    idle--;
    if (c == NULL) {
      break;
    }
    pthread_mutex_unlock(&lock);
    c->fn(c->arg);
    atomic_store_explicit(&c->over, true, memory_order_release); // from here on `c` may be gone
    tt_bell_fence();
    tt_bell_ring(&tt_process_bell);
    pthread_mutex_lock(&lock);
  }
  threads--;
  pthread_mutex_unlock(&lock);
  return NULL;
}

// One more thread, if the functions in the queue need one. Caller holds `lock`. Errors: only where no thread is left
// that would come to it.
static ncclResult_t add_thread(void)
{
  if (queued <= idle || threads >= TT_HOSTCALL_THREADS) {
    return ncclSuccess;
  }
  threads++;
  ncclResult_t res = tt_thread_start_detached("tutti hostfn", hostcall_main, NULL);
  if (res != ncclSuccess) {
    threads--;
  }
  return threads == 0 ? res : ncclSuccess;
}

ncclResult_t tt_hostcall_start(tt_hostcall *c)
{
  c->next = NULL;
  pthread_mutex_lock(&lock);
  queued++;
  ncclResult_t res = add_thread();
  if (res == ncclSuccess) {
    *(first == NULL ? &first : &last->next) = c;
    last = c;
    pthread_cond_signal(&more);
  } else {
    queued--;
  }
  pthread_mutex_unlock(&lock);
  return res;
}

void tt_hostcall_forget(void)
{
  pthread_mutex_init(&lock, NULL);
  pthread_cond_init(&more, NULL);
  first = last = NULL;
  queued = idle = threads = 0;
}
