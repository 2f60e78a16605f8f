// profiler.c: a profiler: how long collectives run, one line per communicator in the log. Version 6 of the interface.
//
//   NCCL_PROFILER_PLUGIN=/path/libnccl-profiler-example.so NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=PROFILE ./program
//
// What is worth knowing before one writes a plugin of one's own:
//  - The Coll event ends when the operation is queued, not when it has run. When it runs, its channels (KernelCh) tell:
//  the first start and the last stop
//    count. `nChannels` says how many there will be.
//  - Callbacks run on the thread that works: a thread that waits for the operation waits for them. They come from
//  several threads, for one communicator too.
//  - A handle is the plugin's. NULL says "not interested": children then have no parent. So a parent may always be
//  NULL.
//  - An event's handle is still its children's parentObj when the event has been stopped: what it points to has to stay
//  until the last of them.
//  - An operation that is aborted may have fewer channels than it announced, or none. What waits for them goes with its
//  communicator.
//  - A descriptor is the library's and good during the call; texts in it are constants, which may be kept.
//  - init and finalize come one at a time. *mask belongs to the whole process: the plugin's contexts share it.
#include <nccl/profiler.h>
#include <pthread.h>
#include <stdlib.h>

static ncclDebugLogger_t logger;

// A collective, in the list of its communicator until its event and all its channels have ended.
typedef struct operation operation;

// One communicator's rank.
typedef struct context {
  pthread_mutex_t lock; // held for moments
  operation *first;
  int rank;
  unsigned long long operations, nanoseconds;
} context;

// What a handle points to: an operation, or one of its channels.
typedef struct event {
  operation *of;
  int is_channel;
} event;

struct operation {
  event self;
  context *ctx;
  operation *previous, *next;
  int left;            // of its event and its channels, to end
  uint64_t begin, end; // of the channels: nanoseconds of the device's clock
};

static ncclResult_t init(void **out, uint64_t comm, int *mask, const char *name, int nodes, int ranks, int rank,
                         ncclDebugLogger_t log)
{
  (void)comm;
  (void)name;
  (void)nodes;
  (void)ranks;
  context *c = calloc(1, sizeof *c);
  if (c == NULL) {
    return ncclSystemError; // the job goes on without this profiler
  }
  pthread_mutex_init(&c->lock, NULL);
  logger = log;
  c->rank = rank;
  *out = c;
  __atomic_store_n(mask, ncclProfileColl | ncclProfileKernelCh,
                   __ATOMIC_RELAXED); // brings their ancestors with it: GroupApi, CollApi, Group
  return ncclSuccess;
}

static void forget(context *c, operation *op)
{
  *(op->previous != NULL ? &op->previous->next : &c->first) = op->next;
  if (op->next != NULL) {
    op->next->previous = op->previous;
  }
  free(op);
}

static ncclResult_t finalize(void *ctx)
{
  context *c = ctx;
  if (c->operations > 0) {
    logger(NCCL_LOG_INFO, NCCL_PROFILE, __FILE__, __LINE__,
           "example profiler: rank %d: %llu collectives, %.1f us on average", c->rank, c->operations,
           (double)c->nanoseconds / (double)c->operations / 1000);
  }
  while (c->first != NULL) {
    forget(c, c->first);
  }
  pthread_mutex_destroy(&c->lock);
  free(c);
  return ncclSuccess;
}

static event *start_operation(context *c, const ncclProfilerEventDescr_t *d)
{
  operation *op = calloc(1, sizeof *op); // a profiler for production has a pool: memory is slow
  if (op == NULL) {
    return NULL;
  }
  op->self.of = op;
  op->ctx = c;
  op->left = 1 + d->coll.nChannels;
  pthread_mutex_lock(&c->lock);
  op->next = c->first;
  if (op->next != NULL) {
    op->next->previous = op;
  }
  c->first = op;
  pthread_mutex_unlock(&c->lock);
  return &op->self;
}

static event *start_channel(operation *op, uint64_t time)
{
  event *e = calloc(1, sizeof *e);
  if (e == NULL) {
    return NULL; // the operation stays until finalize
  }
  e->of = op;
  e->is_channel = 1;
  pthread_mutex_lock(&op->ctx->lock);
  op->begin = op->begin == 0 || time < op->begin ? time : op->begin;
  pthread_mutex_unlock(&op->ctx->lock);
  return e;
}

static ncclResult_t start(void *ctx, void **handle, ncclProfilerEventDescr_t *d)
{
  const event *parent = d->parentObj;
  *handle = NULL; // nothing more is heard of those
  if (d->type == ncclProfileColl) {
    *handle = start_operation(ctx, d);
  } else if (d->type == ncclProfileKernelCh && parent != NULL) { // of a Coll: P2p events have no handle
    *handle = start_channel(parent->of, d->kernelCh.pTimer);
  }
  return ncclSuccess; // results count for nothing, but init's
}

static ncclResult_t state(void *handle, ncclProfilerEventState_t what, ncclProfilerEventStateArgs_t *args)
{
  operation *op = ((event *)handle)->of;
  if (what == ncclProfilerKernelChStop) {
    pthread_mutex_lock(&op->ctx->lock);
    op->end = args->kernelCh.pTimer > op->end ? args->kernelCh.pTimer : op->end;
    pthread_mutex_unlock(&op->ctx->lock);
  }
  return ncclSuccess;
}

static ncclResult_t stop(void *handle)
{
  event *e = handle;
  operation *op = e->of;
  context *c = op->ctx;
  if (e->is_channel) {
    free(e);
  }
  pthread_mutex_lock(&c->lock);
  if (--op->left == 0) {
    c->operations++;
    c->nanoseconds += op->end - op->begin;
    forget(c, op);
  }
  pthread_mutex_unlock(&c->lock);
  return ncclSuccess;
}

const ncclProfiler_t ncclProfiler_v7 = {.name = "Example",
                                        .init = init,
                                        .startEvent = start,
                                        .stopEvent = stop,
                                        .recordEventState = state,
                                        .finalize = finalize};
