// v3.c: version 3 of the profiler's interface.
#include "plugin/profiler/profiler_priv.h"

static const tt_plugin_member members[TT_PROFILER_NMEMBERS] = TT_PROFILER_MEMBERS(ncclProfiler_v3_t);

static ncclResult_t init(const void *table, const tt_profilers_env *env, int *mask, void **ctx)
{
  const ncclProfiler_v3_t *t = table;
  (void)env;
  return t->init(ctx, mask);
}

static void start(const void *table, void *ctx, void **handle, tt_prof_descr *d)
{
  const ncclProfiler_v3_t *t = table;
  ncclProfilerEventDescr_v3_t o = {.type = (uint8_t)d->type, .parentObj = d->parentObj, .rank = d->rank};
  switch (d->type) {
  case ncclProfileGroup:
  case ncclProfileProxyCtrl: break;
  case ncclProfileColl:
    o.parentObj = d->coll.parentGroup;
    o.coll.seqNumber = d->coll.seqNumber;
    o.coll.func = d->coll.func;
    o.coll.sendBuff = d->coll.sendBuff;
    o.coll.recvBuff = d->coll.recvBuff;
    o.coll.count = d->coll.count;
    o.coll.root = d->coll.root;
    o.coll.datatype = d->coll.datatype;
    o.coll.nWarps = d->coll.nWarps;
    o.coll.algo = d->coll.algo;
    o.coll.proto = d->coll.proto;
    o.coll.nMaxChannels = d->coll.nChannels;
    break;
  case ncclProfileP2p:
    o.parentObj = d->p2p.parentGroup;
    o.p2p.func = d->p2p.func;
    o.p2p.buff = d->p2p.buff;
    o.p2p.datatype = d->p2p.datatype;
    o.p2p.count = d->p2p.count;
    o.p2p.peer = d->p2p.peer;
    break;
  case ncclProfileProxyOp:
    o.proxyOp.pid = d->proxyOp.pid;
    o.proxyOp.channelId = d->proxyOp.channelId;
    o.proxyOp.peer = d->proxyOp.peer;
    o.proxyOp.nSteps = d->proxyOp.nSteps;
    o.proxyOp.chunkSize = d->proxyOp.chunkSize;
    o.proxyOp.isSend = d->proxyOp.isSend;
    break;
  case ncclProfileProxyStep: o.proxyStep.step = d->proxyStep.step; break;
  case ncclProfileKernelCh: o.kernelCh.channelId = d->kernelCh.channelId; break;
  case ncclProfileNetPlugin:
    o.netPlugin.id = d->netPlugin.id;
    o.netPlugin.data = d->netPlugin.data;
    break;
  default: return; // younger than this version
  }
  t->startEvent(ctx, handle, &o);
}

static void stop(const void *table, void *handle)
{
  ((const ncclProfiler_v3_t *)table)->stopEvent(handle);
}

static void state(const void *table, void *handle, ncclProfilerEventState_t what, const tt_prof_args *args)
{
  const ncclProfiler_v3_t *t = table;
  ncclProfilerEventStateArgs_v3_t o = {0};
  switch (what) {
  case ncclProfilerProxyStepSendGPUWait:
  case ncclProfilerProxyStepSendWait:
  case ncclProfilerProxyStepRecvWait:
  case ncclProfilerProxyStepRecvFlushWait:
  case ncclProfilerProxyStepRecvGPUWait: break;
  case ncclProfilerProxyCtrlIdle:
  case ncclProfilerProxyCtrlActive:
  case ncclProfilerProxyCtrlSleep:
  case ncclProfilerProxyCtrlWakeup:
  case ncclProfilerProxyCtrlAppend:
  case ncclProfilerProxyCtrlAppendEnd: o.proxyCtrl.appendedProxyOps = args->proxyCtrl.appendedProxyOps; break;
  default: return; // younger than this version
  }
  t->recordEventState(handle, what, &o);
}

static void finalize(const void *table, void *ctx)
{
  ((const ncclProfiler_v3_t *)table)->finalize(ctx);
}

const tt_profiler_adapter tt_profiler_v3 = {
    .members = members, .nmembers = TT_PROFILER_NMEMBERS, .init = init, .start = start, .stop = stop, .state = state, .finalize = finalize};
