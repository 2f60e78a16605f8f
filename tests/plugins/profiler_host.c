// A library that tells a profiler of operations, as ncclComm does of its own: its texts and its log are here, and go
// when it is unloaded.
#include <stdarg.h>
#include <stdlib.h>

#include "nccl/profiler_v6.h"

__attribute__((visibility("default"))) int host_run(const ncclProfiler_v6_t *profiler, int ops);

__attribute__((format(printf, 5, 6))) static void log_nothing(ncclDebugLogLevel level, unsigned long flags,
                                                              const char *file, int line, const char *fmt, ...)
{
  (void)level;
  (void)flags;
  (void)file;
  (void)line;
  (void)fmt;
}

// An all-reduce on one channel.
static void tell(const ncclProfiler_v6_t *profiler, void *context, uint64_t seq)
{
  void *coll = NULL, *channel = NULL;
  ncclProfilerEventDescr_v6_t d = {.type = ncclProfileColl};
  d.coll.seqNumber = seq;
  d.coll.func = "HostReduce";
  d.coll.count = 8;
  d.coll.datatype = "ncclFloat32";
  d.coll.nChannels = 1;
  d.coll.algo = "HOSTRING";
  d.coll.proto = "HOSTSIMPLE";
  profiler->startEvent(context, &coll, &d);
  d = (ncclProfilerEventDescr_v6_t){.type = ncclProfileKernelCh, .parentObj = coll};
  d.kernelCh.pTimer = 1;
  if (coll != NULL) {
    profiler->startEvent(context, &channel, &d);
    profiler->stopEvent(coll); // queued; the channel runs
  }
  if (channel != NULL) {
    ncclProfilerEventStateArgs_v6_t stop = {.kernelCh = {.pTimer = 2}};
    profiler->recordEventState(channel, ncclProfilerKernelChStop, &stop);
    profiler->stopEvent(channel);
  }
}

// A communicator of one rank: opened, used, closed. 0: good.
int host_run(const ncclProfiler_v6_t *profiler, int ops)
{
  void *context = NULL;
  int mask = 0;
  if (profiler->init(&context, 0xc0, &mask, "host", 1, 1, 0, log_nothing) != ncclSuccess) {
    return 1;
  }
  for (int i = 0; i < ops; i++) {
    tell(profiler, context, (uint64_t)i);
  }
  return profiler->finalize(context) == ncclSuccess ? 0 : 1;
}
