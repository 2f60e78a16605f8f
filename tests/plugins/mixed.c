// A library with a network, a tuner and a profiler: the latter two say in the log that they are there, and do nothing.
#define NET_VERSION 12
#include "net_tcp.h"
#include "nccl/profiler.h"
#include "nccl/tuner.h"

static ncclResult_t begin(size_t nranks, size_t nnodes, ncclDebugLogger_t log, void **made)
{
  static char one;
  (void)nranks;
  (void)nnodes;
  log(NCCL_LOG_INFO, NCCL_TUNING, __FILE__, __LINE__, "mixed test plugin: its tuner begins");
  *made = &one;
  return ncclSuccess;
}

static ncclResult_t choose(void *instance, ncclFunc_t func, size_t bytes, int ops, float **costs, int nalgo, int nproto,
                           int registered, int *channels)
{
  (void)instance;
  (void)func;
  (void)bytes;
  (void)ops;
  (void)costs;
  (void)nalgo;
  (void)nproto;
  (void)registered;
  (void)channels;
  return ncclSuccess;
}

static ncclResult_t end(void *instance)
{
  (void)instance;
  return ncclSuccess;
}

static ncclResult_t watch(void **made, int *mask)
{
  static char one;
  fprintf(stdout, "mixed test plugin: its profiler begins\n");
  *mask = ncclProfileColl;
  *made = &one;
  return ncclSuccess;
}

static ncclResult_t start(void *instance, void **event, ncclProfilerEventDescr_v1_t *descr)
{
  (void)instance;
  (void)descr;
  *event = NULL;
  return ncclSuccess;
}

static ncclResult_t stop(void *event)
{
  (void)event;
  return ncclSuccess;
}

static ncclResult_t change(void *event, ncclProfilerEventState_v1_t state, ncclProfilerEventStateArgs_v1_t *args)
{
  (void)event;
  (void)state;
  (void)args;
  return ncclSuccess;
}

const ncclNet_v12_t ncclNetPlugin_v12 = {NET_TABLE};
const ncclTuner_v4_t ncclTunerPlugin_v4 = {.name = "Mixed", .init = begin, .getCollInfo = choose, .destroy = end};
const ncclProfiler_v1_t ncclProfiler_v1 = {.name = "Mixed",
                                           .init = watch,
                                           .startEvent = start,
                                           .stopEvent = stop,
                                           .recordEventState = change,
                                           .finalize = end};
