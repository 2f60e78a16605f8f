#include "tuning.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "fail.h"
#include "nccl/profiler.h"
#include "system.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
// Under the lock, but for *mask, which the library reads at any time.
static struct {
  int *mask; // NULL: the library does not use this profiler
  bool told; // of the operation
  bool complained;
  perf_tuning found;
} state;
// This thread issues the operation that is looked at.
static _Thread_local bool watching;

// ---- the profiler

static void copy_name(char *out, size_t size, const char *name)
{
  snprintf(out, size, "%s", name ? name : "");
}

// The first operation of the thread that watches; its handle is the address of what is known of it.
static void take_operation(void **handle, const ncclProfilerEventDescr_v7_t *d)
{
  perf_tuning *t = &state.found;
  if (!watching || state.told) {
    return;
  }
  state.told = true;
  *handle = t;
  if (d->type == ncclProfileP2p) {
    copy_name(t->implementation, sizeof(t->implementation), "p2p");
    t->channels = d->p2p.nChannels;
    return;
  }
  copy_name(t->implementation, sizeof(t->implementation), d->coll.isSymColl ? "symmetric" : "collective");
  copy_name(t->algo, sizeof(t->algo), d->coll.algo);
  copy_name(t->proto, sizeof(t->proto), d->coll.proto);
  copy_name(t->variant, sizeof(t->variant), d->coll.kernelVariant);
  t->channels = d->coll.nChannels;
  t->warps = d->coll.nWarps;
}

static void take_messages(const ncclProfilerEventDescr_v7_t *d)
{
  // A parent of another process is a number, and may be any.
  if (d->parentObj == &state.found && d->proxyOp.pid == getpid() && d->proxyOp.chunkSize > state.found.chunk) {
    state.found.chunk = d->proxyOp.chunkSize;
  }
}

static ncclResult_t tuning_start(void *context, void **handle, ncclProfilerEventDescr_v7_t *d)
{
  (void)context;
  *handle = NULL;
  pthread_mutex_lock(&lock);
  if (d->type == ncclProfileColl || d->type == ncclProfileP2p) {
    take_operation(handle, d);
  } else if (d->type == ncclProfileProxyOp) {
    take_messages(d);
  }
  pthread_mutex_unlock(&lock);
  return ncclSuccess;
}

static ncclResult_t tuning_stop(void *handle)
{
  (void)handle;
  return ncclSuccess;
}

static ncclResult_t tuning_state(void *handle, ncclProfilerEventState_v7_t s, ncclProfilerEventStateArgs_v7_t *args)
{
  (void)handle;
  (void)s;
  (void)args;
  return ncclSuccess;
}

static ncclResult_t tuning_init(void **context, uint64_t comm, int *mask, const char *name, int nodes, int ranks,
                                int rank, ncclDebugLogger_t log)
{
  (void)comm;
  (void)name;
  (void)nodes;
  (void)ranks;
  (void)rank;
  (void)log;
  pthread_mutex_lock(&lock);
  *context = NULL;
  if (state.mask == NULL) {
    *mask = 0;
    state.mask = mask;
  }
  pthread_mutex_unlock(&lock);
  return ncclSuccess;
}

static ncclResult_t tuning_finalize(void *context)
{
  (void)context;
  return ncclSuccess;
}

// Found by the library in the program itself (STATIC_PLUGIN).
__attribute__((visibility("default"))) const ncclProfiler_v7_t ncclProfiler_v7 = {
    .name = "perf -U",
    .init = tuning_init,
    .startEvent = tuning_start,
    .stopEvent = tuning_stop,
    .recordEventState = tuning_state,
    .finalize = tuning_finalize,
};

// ---- the program

bool perf_tuning_prepare(void)
{
  const char *others = perf_env("NCCL_PROFILER_PLUGIN");
  if (!others || !*others || strcasecmp(others, "none") == 0) {
    // Nobody else listens: messages in common memory may be told of, because they show the size of a chunk.
    return setenv("NCCL_PROFILER_PLUGIN", "STATIC_PLUGIN", 1) == 0 && setenv("NCCL_HOST_PROXY_EVENTS", "1", 0) == 0;
  }
  size_t size = strlen(others) + sizeof(",STATIC_PLUGIN");
  char *all = malloc(size);
  if (all) {
    snprintf(all, size, "%s,STATIC_PLUGIN", others);
  }
  bool ok = all && setenv("NCCL_PROFILER_PLUGIN", all, 1) == 0;
  free(all);
  return ok;
}

static void set_mask(int kinds)
{
  if (state.mask) {
    __atomic_store_n(state.mask, kinds, __ATOMIC_RELAXED);
  }
}

void perf_tuning_begin(void)
{
  pthread_mutex_lock(&lock);
  state.found = (perf_tuning){.implementation = ""};
  state.told = false;
  set_mask(ncclProfileColl | ncclProfileP2p | ncclProfileProxyOp);
  pthread_mutex_unlock(&lock);
  watching = true;
}

void perf_tuning_end(perf_tuning *out)
{
  watching = false;
  pthread_mutex_lock(&lock);
  set_mask(0);
  bool deaf = !state.mask && !state.complained;
  state.complained = state.complained || deaf;
  *out = state.found;
  pthread_mutex_unlock(&lock);
  if (deaf) {
    perf_say("-U: the library does not tell this program of its operations; NCCL_DEBUG=INFO says why");
  }
}
