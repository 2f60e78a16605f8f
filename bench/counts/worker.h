// worker.h: holds the library's worker while instructions are counted. For the one source file of a program; before it:
// _GNU_SOURCE.
#pragma once
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nccl.h"
#include "tutti.h"

static void must(ncclResult_t res, const char *what)
{
  if (res != ncclSuccess) {
    fprintf(stderr, "%s: %s (%s)\n", what, ncclGetErrorString(res), ncclGetLastError(NULL));
    exit(1);
  }
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool let_go; // under the lock
static int held;    // how often it was held; under the lock

// Stands before the C library's. A thread of the library begins by taking its name: that is where the worker is held.
__attribute__((visibility("default"))) int pthread_setname_np(pthread_t id, const char *name)
{
  pthread_mutex_lock(&lock);
  if (strcmp(name, "tutti worker") == 0) {
    held++;
    pthread_cond_broadcast(&changed);
    while (!let_go) {
      pthread_cond_wait(&changed, &lock);
    }
  }
  pthread_mutex_unlock(&lock);
  int (*set_name)(pthread_t, const char *) = NULL;
  *(void **)&set_name = dlsym(RTLD_NEXT, "pthread_setname_np");
  return set_name == NULL ? 0 : set_name(id, name);
}

// Returns how often the worker has been held. What is expected once may just be about to begin: while it does, calls
// may meet it, and wake it.
static int await_worker(int expected)
{
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += 10;
  pthread_mutex_lock(&lock);
  while (held < expected && pthread_cond_timedwait(&changed, &lock, &end) == 0) {
  }
  int n = held;
  pthread_mutex_unlock(&lock);
  return n;
}

static void release_worker(void)
{
  pthread_mutex_lock(&lock);
  let_go = true;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}
