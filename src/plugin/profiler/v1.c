// v1.c: version 1 of the profiler's interface: functions, types, algorithms and protocols are numbers.
#include <string.h>

#include "base/util.h"
#include "plugin/profiler/profiler_priv.h"

static const tt_plugin_member members[TT_PROFILER_NMEMBERS] = TT_PROFILER_MEMBERS(ncclProfiler_v1_t);

// A text and its number in this version.
typedef struct number {
  const char *text;
  uint8_t value;
} number;

static uint8_t look_up(const number *rows, size_t n, const char *text, uint8_t others)
{
  for (size_t i = 0; i < n; i++) {
    if (text != NULL && strcmp(rows[i].text, text) == 0) {
      return rows[i].value;
    }
  }
  return others;
}

// What this version has no number for goes by the number that NCCL gives it.
static uint8_t func_number(const char *func)
{
  static const number rows[] = {
      {"AllGather", ncclFuncAllGather}, {"AllReduce", ncclFuncAllReduce},         {"Broadcast", ncclFuncBroadcast}, {"Recv", ncclFuncRecv},
      {"Reduce", ncclFuncReduce},       {"ReduceScatter", ncclFuncReduceScatter}, {"SendRecv", ncclFuncSendRecv}};
  return look_up(rows, TT_COUNT(rows), func, ncclFuncSend);
}

static uint8_t type_number(const char *type)
{
  static const number rows[] = {{"ncclInt8", ncclInt8},       {"ncclInt32", ncclInt32},      {"ncclUint32", ncclUint32},
                                {"ncclInt64", ncclInt64},     {"ncclUint64", ncclUint64},    {"ncclFloat16", ncclFloat16},
                                {"ncclFloat32", ncclFloat32}, {"ncclBfloat16", ncclBfloat16}};
  return look_up(rows, TT_COUNT(rows), type, ncclFloat64);
}

static uint8_t algo_number(const char *algo)
{
  static const number rows[] = {{"TREE", 0}, {"RING", 1}, {"COLLNET_DIRECT", 2}, {"COLLNET_CHAIN", 3}, {"NVLS", 4}, {"NVLS_TREE", 5}};
  return look_up(rows, TT_COUNT(rows), algo, 6);
}

static uint8_t proto_number(const char *proto)
{
  static const number rows[] = {{"LL", 0}, {"LL128", 1}};
  return look_up(rows, TT_COUNT(rows), proto, 2);
}

static ncclResult_t init(const void *table, const tt_profilers_env *env, int *mask, void **ctx)
{
  const ncclProfiler_v1_t *t = table;
  (void)env;
  return t->init(ctx, mask);
}

static void start(const void *table, void *ctx, void **handle, tt_prof_descr *d)
{
  const ncclProfiler_v1_t *t = table;
  ncclProfilerEventDescr_v1_t o = {.type = (uint8_t)d->type, .parentObj = d->parentObj, .rank = d->rank};
  switch (d->type) {
  case ncclProfileGroup:
  case ncclProfileProxyCtrl: break;
  case ncclProfileColl:
    o.parentObj = d->coll.parentGroup;
    o.coll.func = func_number(d->coll.func);
    o.coll.datatype = type_number(d->coll.datatype);
    o.coll.algo = algo_number(d->coll.algo);
    o.coll.proto = proto_number(d->coll.proto);
    o.coll.seqNumber = d->coll.seqNumber;
    o.coll.sendBuff = d->coll.sendBuff;
    o.coll.recvBuff = d->coll.recvBuff;
    o.coll.count = d->coll.count;
    o.coll.root = d->coll.root;
    o.coll.nWarps = d->coll.nWarps;
    o.coll.nMaxChannels = d->coll.nChannels;
    break;
  case ncclProfileP2p:
    o.parentObj = d->p2p.parentGroup;
    o.p2p.func = func_number(d->p2p.func);
    o.p2p.datatype = type_number(d->p2p.datatype);
    o.p2p.buff = d->p2p.buff;
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
  default: return; // younger than this version
  }
  t->startEvent(ctx, handle, &o);
}

static void stop(const void *table, void *handle)
{
  ((const ncclProfiler_v1_t *)table)->stopEvent(handle);
}

static void state(const void *table, void *handle, ncclProfilerEventState_t what, const tt_prof_args *args)
{
  const ncclProfiler_v1_t *t = table;
  ncclProfilerEventStateArgs_v1_t o = {0};
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
  ((const ncclProfiler_v1_t *)table)->finalize(ctx);
}

const tt_profiler_adapter tt_profiler_v1 = {
    .members = members, .nmembers = TT_PROFILER_NMEMBERS, .init = init, .start = start, .stop = stop, .state = state, .finalize = finalize};
