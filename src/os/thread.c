// thread.c: see thread.h.
#define _GNU_SOURCE // pthread_setname_np
#include "os/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/result.h"
#include "base/util.h"
#include "os/library.h"

typedef struct {
  void *(*fn)(void *);
  void *arg;
  char name[16];
} start_info;

static void *start_thread(void *p)
{
  start_info s = *(start_info *)p;
  tt_free(p);
  pthread_setname_np(pthread_self(), s.name);
  return s.fn(s.arg);
}

// A new thread inherits its creator's mask; blocking here and not in the thread leaves no instant with signals open.
ncclResult_t tt_thread_start(tt_thread *t, const char *name, void *(*fn)(void *), void *arg)
{
  sigset_t all, old;
  start_info *s = tt_calloc(1, sizeof(*s));
  if (s == NULL) {
    return tt_fail(ncclSystemError, "no memory to start thread %s", name);
  }
  s->fn = fn;
  s->arg = arg;
  snprintf(s->name, sizeof(s->name), "%s", name);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int e = pthread_create(&t->id, NULL, start_thread, s);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (e != 0) {
    tt_free(s);
    return tt_fail(ncclSystemError, "cannot start thread %s: %s (see ulimit -u and the container's limit of processes)",
                   name, strerror(e));
  }
  t->running = true;
  return ncclSuccess;
}

void tt_thread_join(tt_thread *t)
{
  if (t->running) {
    pthread_join(t->id, NULL);
    t->running = false;
  }
}

void tt_thread_detach(tt_thread *t)
{
  if (t->running) {
    tt_library_stay();
    pthread_detach(t->id);
    t->running = false;
  }
}

ncclResult_t tt_thread_start_detached(const char *name, void *(*fn)(void *), void *arg)
{
  tt_thread t = {.running = false};
  tt_library_stay();
  TT_TRY(tt_thread_start(&t, name, fn, arg));
  tt_thread_detach(&t);
  return ncclSuccess;
}
