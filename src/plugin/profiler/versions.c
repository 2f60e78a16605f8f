// versions.c: an adapter for each version of the profiler's interface.
//
// An event is described in version 7. A descriptor goes down from version to version in its place, each step changing
// what differs: most versions begin as the one after them. Static assertions pin the layouts that this relies on.
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "base/util.h"
#include "plugin/profiler/profiler_priv.h"

typedef union any_descr {
  ncclProfilerEventDescr_v1_t v1;
  ncclProfilerEventDescr_v2_t v2;
  ncclProfilerEventDescr_v3_t v3;
  ncclProfilerEventDescr_v4_t v4;
  ncclProfilerEventDescr_v5_t v5;
  ncclProfilerEventDescr_v6_t v6;
  ncclProfilerEventDescr_v7_t v7;
} any_descr;

// The members from `first` to `last` have the same layout in two versions.
#define AT(v, member) offsetof(ncclProfilerEventDescr_v##v##_t, member)
#define SAME(v, w, first, last) \
  static_assert(AT(v, last) - AT(v, first) == AT(w, last) - AT(w, first), #first " to " #last)
#define SAME_PLACE(v, w, member) static_assert(AT(v, member) == AT(w, member), #member)

// ---- What each version knows ----

enum {
  EVENTS_V1 = ncclProfileGroup | ncclProfileColl | ncclProfileP2p | ncclProfileProxyOp | ncclProfileProxyStep |
              ncclProfileProxyCtrl,
  EVENTS_V3 = EVENTS_V1 | ncclProfileKernelCh | ncclProfileNetPlugin,
  EVENTS_V5 = EVENTS_V3 | ncclProfileGroupApi | ncclProfileCollApi | ncclProfileP2pApi | ncclProfileKernelLaunch,
  EVENTS_V6 = EVENTS_V5 | ncclProfileCeColl | ncclProfileCeSync | ncclProfileCeBatch,
  EVENTS_V7 = EVENTS_V6 | ncclProfileKernelPhase,
};
static const uint64_t events[] = {0, EVENTS_V1, EVENTS_V1, EVENTS_V3, EVENTS_V3, EVENTS_V5, EVENTS_V6, EVENTS_V7};

// The last state of each version; its first is ProxyStepSendGPUWait.
static const ncclProfilerEventState_t last_state[] = {0,
                                                      ncclProfilerProxyCtrlAppendEnd,
                                                      ncclProfilerProxyCtrlAppendEnd,
                                                      ncclProfilerProxyCtrlAppendEnd,
                                                      ncclProfilerKernelChStop,
                                                      ncclProfilerGroupEndApiStart,
                                                      ncclProfilerCeBatchComplete,
                                                      ncclProfilerKernelPhaseStop};

// ---- Descriptors ----

// Version 7 only adds members behind those of version 6.
SAME_PLACE(6, 7, groupApi.groupDepth);
SAME_PLACE(6, 7, collApi.graphCaptured);
SAME_PLACE(6, 7, p2pApi.graphCaptured);
SAME_PLACE(6, 7, kernelLaunch.stream);
SAME_PLACE(6, 7, coll.parentGroup);
SAME_PLACE(6, 7, p2p.parentGroup);
SAME_PLACE(6, 7, proxyOp.isSend);
SAME_PLACE(6, 7, proxyStep.step);
SAME_PLACE(6, 7, kernelCh.pTimer);
SAME_PLACE(6, 7, netPlugin.data);
SAME_PLACE(6, 7, ceColl.stream);
SAME_PLACE(6, 7, ceCollSync.nRanks);
SAME_PLACE(6, 7, ceCollBatch.useIntraSync);

SAME_PLACE(5, 6, coll.parentGroup);
SAME_PLACE(5, 6, p2p.parentGroup);
SAME_PLACE(5, 6, collApi.graphCaptured);
SAME_PLACE(5, 6, p2pApi.graphCaptured);
SAME_PLACE(5, 6, netPlugin.data);

static void descr_v5_to_v4(any_descr *d)
{
  SAME_PLACE(4, 5, rank);
  SAME_PLACE(4, 5, coll.proto);
  SAME_PLACE(4, 5, p2p.nChannels);
  SAME_PLACE(4, 5, proxyOp.isSend);
  SAME_PLACE(4, 5, kernelCh.pTimer);
  SAME_PLACE(4, 5, netPlugin.data);
  uint64_t type = d->v5.type;
  if (type == ncclProfileColl || type == ncclProfileP2p) {
    d->v4.parentObj = type == ncclProfileColl ? d->v5.coll.parentGroup : d->v5.p2p.parentGroup;
  }
  d->v4.type = (uint8_t)type;
}

static void descr_v4_to_v3(any_descr *d)
{
  SAME(3, 4, coll.seqNumber, coll.proto);
  SAME(3, 4, p2p.func, p2p.peer);
  SAME_PLACE(3, 4, proxyOp.isSend);
  SAME_PLACE(3, 4, netPlugin.data);
  if (d->v4.type == ncclProfileColl) {
    memmove(&d->v3.coll.seqNumber, &d->v4.coll, sizeof d->v4.coll);
    d->v3.coll.name = NULL;
    d->v3.coll.commHash = 0;
  } else if (d->v4.type == ncclProfileP2p) {
    memmove(&d->v3.p2p.func, &d->v4.p2p, AT(4, p2p.nChannels) - AT(4, p2p.func));
    d->v3.p2p.name = NULL;
    d->v3.p2p.commHash = 0;
  }
}

static void descr_v3_to_v2(any_descr *d)
{
  SAME_PLACE(2, 3, coll.datatype);
  SAME(2, 3, coll.nMaxChannels, coll.proto);
  SAME_PLACE(2, 3, p2p.peer);
  SAME_PLACE(2, 3, proxyOp.isSend);
  if (d->v3.type == ncclProfileColl) {
    memmove(&d->v2.coll.nMaxChannels, &d->v3.coll.nMaxChannels,
            sizeof d->v3.coll - (AT(3, coll.nMaxChannels) - AT(3, coll)));
    d->v2.coll.trafficBytes = 0;
  }
}

// A text and its number in version 1.
typedef struct number {
  const char *text;
  uint8_t value;
} number;

static uint8_t descr_number_of(const number *rows, size_t n, const char *text, uint8_t others)
{
  for (size_t i = 0; i < n; i++) {
    if (text != NULL && strcmp(rows[i].text, text) == 0) {
      return rows[i].value;
    }
  }
  return others;
}

// What version 1 has no number for goes by the number that NCCL gives it.
static uint8_t func_number(const char *func)
{
  static const number rows[] = {{"AllGather", ncclFuncAllGather}, {"AllReduce", ncclFuncAllReduce},
                                {"Broadcast", ncclFuncBroadcast}, {"Recv", ncclFuncRecv},
                                {"Reduce", ncclFuncReduce},       {"ReduceScatter", ncclFuncReduceScatter},
                                {"SendRecv", ncclFuncSendRecv},   {"WaitSignal", ncclFuncRecv}};
  return descr_number_of(rows, TT_COUNT(rows), func, ncclFuncSend);
}

static uint8_t type_number(const char *type)
{
  static const number rows[] = {{"ncclInt8", ncclInt8},       {"ncclInt32", ncclInt32},
                                {"ncclUint32", ncclUint32},   {"ncclInt64", ncclInt64},
                                {"ncclUint64", ncclUint64},   {"ncclFloat16", ncclFloat16},
                                {"ncclFloat32", ncclFloat32}, {"ncclBfloat16", ncclBfloat16}};
  return descr_number_of(rows, TT_COUNT(rows), type, ncclFloat64);
}

static uint8_t algo_number(const char *algo)
{
  static const number rows[] = {{"TREE", 0},          {"RING", 1}, {"COLLNET_DIRECT", 2},
                                {"COLLNET_CHAIN", 3}, {"NVLS", 4}, {"NVLS_TREE", 5}};
  return descr_number_of(rows, TT_COUNT(rows), algo, 6);
}

static uint8_t proto_number(const char *proto)
{
  static const number rows[] = {{"LL", 0}, {"LL128", 1}};
  return descr_number_of(rows, TT_COUNT(rows), proto, 2);
}

static void descr_v2_to_v1(any_descr *d)
{
  SAME_PLACE(1, 2, proxyOp.isSend);
  const ncclProfilerEventDescr_v2_t o = d->v2;
  if (o.type == ncclProfileColl) {
    memset(&d->v1.coll, 0, sizeof d->v1.coll);
    d->v1.coll.seqNumber = o.coll.seqNumber;
    d->v1.coll.func = func_number(o.coll.func);
    d->v1.coll.sendBuff = o.coll.sendBuff;
    d->v1.coll.recvBuff = o.coll.recvBuff;
    d->v1.coll.count = o.coll.count;
    d->v1.coll.root = o.coll.root;
    d->v1.coll.datatype = type_number(o.coll.datatype);
    d->v1.coll.nMaxChannels = o.coll.nMaxChannels;
    d->v1.coll.nWarps = o.coll.nWarps;
    d->v1.coll.algo = algo_number(o.coll.algo);
    d->v1.coll.proto = proto_number(o.coll.proto);
  } else if (o.type == ncclProfileP2p) {
    d->v1.p2p.func = func_number(o.p2p.func);
    d->v1.p2p.buff = o.p2p.buff;
    d->v1.p2p.datatype = type_number(o.p2p.datatype);
    d->v1.p2p.count = o.p2p.count;
    d->v1.p2p.peer = o.p2p.peer;
  }
}

// Brings a descriptor down to a version. False: the version has no such event.
static bool descr_convert(any_descr *d, int version)
{
  static void (*const steps[])(any_descr * d) = {NULL, descr_v2_to_v1, descr_v3_to_v2, descr_v4_to_v3, descr_v5_to_v4};
  if ((d->v7.type & ~events[version]) != 0) {
    return false;
  }
  for (int v = 4; v >= version; v--) {
    steps[v](d);
  }
  return true;
}

// ---- States ----

typedef union any_args {
  ncclProfilerEventStateArgs_v1_t v1;
  ncclProfilerEventStateArgs_v2_t v2;
  ncclProfilerEventStateArgs_v3_t v3;
  ncclProfilerEventStateArgs_v4_t v4;
  ncclProfilerEventStateArgs_v5_t v5;
  ncclProfilerEventStateArgs_v6_t v6;
  ncclProfilerEventStateArgs_v7_t v7;
} any_args;
static_assert(sizeof(ncclProfilerEventStateArgs_v4_t) == sizeof(ncclProfilerEventStateArgs_v7_t),
              "the arguments of versions 4 to 7 are the same");

// What goes with a state; a copy, because the plugin may write into it. False: the version has no such state.
static bool make_args(any_args *out, int version, ncclProfilerEventState_t what, const tt_prof_args *args)
{
  bool ctrl = what >= ncclProfilerProxyCtrlIdle && what <= ncclProfilerProxyCtrlAppendEnd;
  memset(out, 0, sizeof *out);
  if (args != NULL && version >= 4) {
    out->v7 = *args;
  } else if (args != NULL && ctrl) {
    out->v3.proxyCtrl.appendedProxyOps = args->proxyCtrl.appendedProxyOps;
  }
  return what >= ncclProfilerProxyStepSendGPUWait && what <= last_state[version];
}

// ---- The adapters ----

#define ADAPTER(n, last_args, ...)                                                                                   \
  static ncclResult_t init_v##n(const void *table, const tt_profilers_env *env, int *mask, void **ctx)               \
  {                                                                                                                  \
    (void)env;                                                                                                       \
    return ((const ncclProfiler_v##n##_t *)table)->init(__VA_ARGS__);                                                \
  }                                                                                                                  \
                                                                                                                     \
  static void start_v##n(const void *table, void *ctx, void **handle, tt_prof_descr *d)                              \
  {                                                                                                                  \
    any_descr o = {.v7 = *d};                                                                                        \
    if (descr_convert(&o, n)) {                                                                                      \
      ((const ncclProfiler_v##n##_t *)table)->startEvent(ctx, handle, &o.v##n);                                      \
    }                                                                                                                \
  }                                                                                                                  \
                                                                                                                     \
  static void stop_v##n(const void *table, void *handle)                                                             \
  {                                                                                                                  \
    ((const ncclProfiler_v##n##_t *)table)->stopEvent(handle);                                                       \
  }                                                                                                                  \
                                                                                                                     \
  static void state_v##n(const void *table, void *handle, ncclProfilerEventState_t what, const tt_prof_args *args)   \
  {                                                                                                                  \
    any_args o;                                                                                                      \
    if (make_args(&o, n, what, args)) {                                                                              \
      ((const ncclProfiler_v##n##_t *)table)->recordEventState(handle, what, (last_args) ? &o.v##n : NULL);          \
    }                                                                                                                \
  }                                                                                                                  \
                                                                                                                     \
  static void finalize_v##n(const void *table, void *ctx)                                                            \
  {                                                                                                                  \
    ((const ncclProfiler_v##n##_t *)table)->finalize(ctx);                                                           \
  }                                                                                                                  \
                                                                                                                     \
  static const tt_plugin_member members_v##n[] = {                                                                   \
      TT_PLUGIN_MEMBER(ncclProfiler_v##n##_t, init), TT_PLUGIN_MEMBER(ncclProfiler_v##n##_t, startEvent),            \
      TT_PLUGIN_MEMBER(ncclProfiler_v##n##_t, stopEvent), TT_PLUGIN_MEMBER(ncclProfiler_v##n##_t, recordEventState), \
      TT_PLUGIN_MEMBER(ncclProfiler_v##n##_t, finalize)}

#define ROW(n, init)                                                                             \
  {                                                                                              \
    members_v##n, TT_COUNT(members_v##n), init, start_v##n, stop_v##n, state_v##n, finalize_v##n \
  }

ADAPTER(1, true, ctx, mask);
ADAPTER(2, true, ctx, mask);
ADAPTER(3, true, ctx, mask);
ADAPTER(4, true, ctx, mask, env->name, env->hash, env->nnodes, env->nranks, env->rank, tt_plugin_log);
ADAPTER(5, true, ctx, env->hash, mask, env->name, env->nnodes, env->nranks, env->rank, tt_plugin_log);
ADAPTER(6, args != NULL, ctx, env->hash, mask, env->name, env->nnodes, env->nranks, env->rank, tt_plugin_log);
ADAPTER(7, args != NULL, ctx, env->hash, mask, env->name, env->nnodes, env->nranks, env->rank, tt_plugin_log);

// Bits of the mask that the plugin's version does not have are not its wish.
static ncclResult_t init_v5_masked(const void *table, const tt_profilers_env *env, int *mask, void **ctx)
{
  ncclResult_t res = init_v5(table, env, mask, ctx);
  __atomic_fetch_and(mask, ~(EVENTS_V7 & ~EVENTS_V5), __ATOMIC_RELAXED);
  return res;
}

static ncclResult_t init_v6_masked(const void *table, const tt_profilers_env *env, int *mask, void **ctx)
{
  ncclResult_t res = init_v6(table, env, mask, ctx);
  __atomic_fetch_and(mask, ~(EVENTS_V7 & ~EVENTS_V6), __ATOMIC_RELAXED);
  return res;
}

const tt_profiler_adapter *tt_profiler_adapter_of(int version)
{
  static const tt_profiler_adapter adapters[] = {ROW(1, init_v1), ROW(2, init_v2),        ROW(3, init_v3),
                                                 ROW(4, init_v4), ROW(5, init_v5_masked), ROW(6, init_v6_masked),
                                                 ROW(7, init_v7)};
  return &adapters[version - 1];
}
