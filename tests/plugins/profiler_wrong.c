// A profiler of version 6 that breaks the rule that TEST_PROFILER_WRONG names, one that `tutti-plugin check` looks at;
// a good one that counts otherwise.
#define _GNU_SOURCE // gettid
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nccl/profiler.h"

enum { CHECKS_JOB = 0x7e57 }; // the communicator that the tool makes up

typedef struct event {
  struct event *next; // that is kept, too
  uint64_t type, children;
} event;

static pid_t starter;  // the thread that starts events
static event *hoarded; // all that were stopped
static void *volatile lost;

static bool wrong(const char *what)
{
  const char *value = getenv("TEST_PROFILER_WRONG");
  return value != NULL && strcmp(value, what) == 0;
}

__attribute__((noreturn)) static void sleep_for_ever(void)
{
  for (;;) {
    pause();
  }
}

// A thread that stays. It runs none of this library's code, which may go soon.
static void leave_thread(void)
{
  pthread_t id;
  if (pthread_create(&id, NULL, (void *(*)(void *))(void (*)(void))pause, NULL) == 0) {
    pthread_detach(id);
  }
}

static ncclResult_t init(void **context, uint64_t comm, int *mask, const char *name, int nodes, int nranks, int rank,
                         ncclDebugLogger_t log)
{
  static char one;
  (void)nodes;
  log(NCCL_LOG_INFO, NCCL_PROFILE, __FILE__, __LINE__, "the wrong profiler follows rank %d of %s", rank,
      name != NULL ? name : "-");
  *mask = wrong("nothing") ? 0 : wrong("mask") ? 1 << 20 | 0xfff : 0xfff;
  if (wrong("init")) {
    return ncclSystemError;
  }
  if ((wrong("ranks") && nranks > 1024) || (wrong("job") && comm != CHECKS_JOB)) {
    abort();
  }
  if (wrong("stay")) {
    (void)!dup(0);
    leave_thread();
  } else if (wrong("leak")) {
    lost = malloc(1000);
  } else if (wrong("print")) {
    puts("the wrong profiler is here");
  } else if (wrong("folder")) {
    (void)!chdir("/");
  } else if (wrong("handler")) {
    signal(SIGUSR2, SIG_IGN);
  }
  *context = &one;
  return ncclSuccess;
}

// Counts the children of an event, and forgets that there may be no parent, or only in another process.
static void use_parent(const ncclProfilerEventDescr_v6_t *d)
{
  event *parent = d->parentObj;
  bool has_parent = d->type == ncclProfileColl || d->type == ncclProfileKernelCh || d->type == ncclProfileProxyStep;
  bool own = d->type != ncclProfileProxyOp || d->proxyOp.pid == getpid() || wrong("foreign");
  if (own && (parent != NULL || (has_parent && wrong("parent")))) {
    __atomic_fetch_add(&parent->children, 1, __ATOMIC_RELAXED);
  }
}

// Aborts when events come from more threads than one, which need not be inside at the same time.
static void insist_on_one_thread(void)
{
  pid_t me = gettid(), first = 0;
  if (!__atomic_compare_exchange_n(&starter, &first, me, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) && first != me) {
    abort();
  }
}

static ncclResult_t start(void *context, void **handle, ncclProfilerEventDescr_v6_t *d)
{
  (void)context;
  if (wrong("threads")) {
    insist_on_one_thread();
  }
  if (wrong("parent") || wrong("foreign")) {
    use_parent(d);
  }
  event *e = calloc(1, sizeof *e);
  if (e != NULL) {
    e->type = d->type;
  }
  *handle = e;
  return ncclSuccess;
}

// Where events' children are counted they stay for a while: the last few thousand.
enum { KEPT = 4096 };
static event *kept[KEPT];

static ncclResult_t stop(void *handle)
{
  static unsigned next;
  if (wrong("block") && getenv("TEST_PROFILER_SLEPT") == NULL) {
    setenv("TEST_PROFILER_SLEPT", "once in a process", 1);
    nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
  }
  if (wrong("grow")) {
    ((event *)handle)->next = __atomic_load_n(&hoarded, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&hoarded, &((event *)handle)->next, handle, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
    }
    return ncclSuccess;
  }
  if (!wrong("parent") && !wrong("foreign")) {
    free(handle);
    return ncclSuccess;
  }
  event *old =
      __atomic_exchange_n(&kept[__atomic_fetch_add(&next, 1, __ATOMIC_RELAXED) % KEPT], handle, __ATOMIC_ACQ_REL);
  free(old);
  return ncclSuccess;
}

static ncclResult_t record(void *handle, ncclProfilerEventState_v6_t state, ncclProfilerEventStateArgs_v6_t *args)
{
  (void)handle;
  (void)state;
  (void)args;
  return ncclSuccess;
}

static ncclResult_t finalize(void *context)
{
  (void)context;
  if (wrong("hang")) {
    sleep_for_ever();
  }
  return ncclSuccess;
}

__attribute__((destructor)) static void unload(void)
{
  for (int i = 0; i < KEPT; i++) {
    free(kept[i]);
  }
  for (event *e = hoarded, *next; e != NULL; e = next) {
    next = e->next;
    free(e);
  }
}

const ncclProfiler_v6_t ncclProfiler_v6 = {.name = "TestWrong",
                                           .init = init,
                                           .startEvent = start,
                                           .stopEvent = stop,
                                           .recordEventState = record,
                                           .finalize = finalize};
