#include <sys/mman.h>
#include <unistd.h>

#include "profiler.h"

enum { CHANNELS = 2, STEPS = 3, BYTES = 4096 };

const char *const prof_names[PROF_FUNCTIONS] = {[PROF_NOTHING] = "no function",    [PROF_INIT] = "init",
                                                [PROF_START] = "startEvent",       [PROF_STOP] = "stopEvent",
                                                [PROF_STATE] = "recordEventState", [PROF_FINALIZE] = "finalize"};

static pc_wait enter(prof_rank *p, prof_function f)
{
  if (p->quiet) {
    return (pc_wait){0};
  }
  atomic_store(&p->board->now, (int)f);
  return pc_wait_begin();
}

static void leave(prof_rank *p, prof_function f, const pc_wait *entered)
{
  if (p->quiet) {
    return;
  }
  uint64_t took = pc_wait_end(entered);
  if (took > atomic_load(&p->board->blocked[f])) {
    atomic_store(&p->board->blocked[f], took);
  }
  atomic_store(&p->board->now, PROF_NOTHING);
}

ncclResult_t prof_begin(prof_rank *p, const tt_profilers_env *env)
{
  pc_wait entered = enter(p, PROF_INIT);
  p->ctx = NULL;
  p->rank = env->rank;
  p->peer = (env->rank + 1) % env->nranks;
  ncclResult_t res = p->a->init(p->table, env, p->mask, &p->ctx);
  leave(p, PROF_INIT, &entered);
  return res;
}

void prof_end(prof_rank *p)
{
  pc_wait entered = enter(p, PROF_FINALIZE);
  if (p->ctx != NULL) {
    p->a->finalize(p->table, p->ctx);
  }
  leave(p, PROF_FINALIZE, &entered);
}

// An address that nobody may look at.
static void *nowhere(void)
{
  static void *page;
  if (page == NULL) {
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  return (char *)page + 64;
}

static void *start(prof_rank *p, tt_prof_descr d, void *parent, void *group)
{
  void *handle = NULL;
  if (!tt_profiler_mask_wants((uint32_t)__atomic_load_n(p->mask, __ATOMIC_RELAXED), d.type)) {
    return NULL;
  }
  d.rank = p->rank;
  d.parentObj = p->orphans ? NULL : parent;
  if (d.type == ncclProfileColl) {
    d.coll.parentGroup = p->orphans ? NULL : group;
  } else if (d.type == ncclProfileP2p) {
    d.p2p.parentGroup = p->orphans ? NULL : group;
  }
  p->started++;
  pc_wait entered = enter(p, PROF_START);
  p->a->start(p->table, p->ctx, &handle, &d);
  leave(p, PROF_START, &entered);
  return handle;
}

static void stop(prof_rank *p, void *handle)
{
  if (handle != NULL) {
    pc_wait entered = enter(p, PROF_STOP);
    p->a->stop(p->table, handle);
    leave(p, PROF_STOP, &entered);
  }
}

static void state(prof_rank *p, void *handle, ncclProfilerEventState_t what, const tt_prof_args *args)
{
  if (handle != NULL && !p->broken_off) {
    pc_wait entered = enter(p, PROF_STATE);
    p->a->state(p->table, handle, what, args);
    leave(p, PROF_STATE, &entered);
  }
}

static void messages(prof_rank *p, void *op, bool send)
{
  static const ncclProfilerEventState_t states[2][3] = {
      {ncclProfilerProxyStepRecvWait, ncclProfilerProxyStepRecvFlushWait, ncclProfilerProxyStepRecvGPUWait},
      {ncclProfilerProxyStepSendGPUWait, ncclProfilerProxyStepSendPeerWait_v4, ncclProfilerProxyStepSendWait}};
  const tt_prof_args args = {.proxyStep = {.transSize = BYTES}};
  static char data[64];
  const tt_prof_args update = {.netPlugin = {.data = data}};
  for (int i = 0; i < STEPS; i++) {
    void *message = start(p, (tt_prof_descr){.type = ncclProfileProxyStep, .proxyStep = {.step = i}}, op, NULL);
    for (int k = 0; k < 3; k++) {
      state(p, message, states[send][k], &args);
    }
    void *net = start(p,
                      (tt_prof_descr){.type = ncclProfileNetPlugin,
                                      .netPlugin = {.id = NCCL_PROFILER_NET_TYPE_SOCK | 1, .data = data}},
                      message, NULL);
    state(p, net, ncclProfilerNetPluginUpdate, &update);
    stop(p, net);
    stop(p, message);
  }
}

// The thread that runs the messages of a task, when its call has long returned.
static void proxy(prof_rank *p, void *task, bool send)
{
  void *parent = p->foreign ? nowhere() : task;
  void *op = start(p,
                   (tt_prof_descr){.type = ncclProfileProxyOp,
                                   .proxyOp = {.pid = p->foreign ? getppid() : getpid(),
                                               .channelId = (uint8_t)(p->seq % CHANNELS),
                                               .peer = p->peer,
                                               .nSteps = STEPS,
                                               .chunkSize = BYTES,
                                               .isSend = send}},
                   parent, NULL);
  const tt_prof_args none = {.proxyStep = {.transSize = 0}};
  state(p, op, ncclProfilerProxyOpInProgress_v4, &none);
  messages(p, op, send);
  stop(p, op);
}

static void channels(prof_rank *p, void *task)
{
  void *ch[CHANNELS];
  for (int i = 0; i < CHANNELS; i++) {
    ch[i] = start(
        p, (tt_prof_descr){.type = ncclProfileKernelCh, .kernelCh = {.channelId = (uint8_t)i, .pTimer = pc_clock_ns()}},
        task, NULL);
  }
  for (int i = 0; i < CHANNELS; i++) {
    const tt_prof_args args = {.kernelCh = {.pTimer = pc_clock_ns()}};
    state(p, ch[i], ncclProfilerKernelChStop, &args);
    stop(p, ch[i]);
  }
}

// What is around an operation: the call, its group, its launch. Returns the operation.
typedef struct around {
  void *api, *call, *group;
} around;

static around call(prof_rank *p, const tt_prof_descr *d)
{
  around a;
  a.api = start(p, (tt_prof_descr){.type = ncclProfileGroupApi, .groupApi = {.groupDepth = 1}}, NULL, NULL);
  state(p, a.api, ncclProfilerGroupStartApiStop, NULL);
  a.call = start(p, *d, a.api, NULL);
  stop(p, a.call);
  state(p, a.api, ncclProfilerGroupEndApiStart, NULL);
  a.group = start(p, (tt_prof_descr){.type = ncclProfileGroup}, NULL, NULL);
  return a;
}

static void launch(prof_rank *p, const around *a, void *task, void *stream)
{
  stop(p, task);
  stop(p, a->group);
  stop(p, start(p, (tt_prof_descr){.type = ncclProfileKernelLaunch, .kernelLaunch = {.stream = stream}}, a->api, NULL));
  stop(p, a->api);
}

void prof_allreduce(prof_rank *p)
{
  static char memory[2];
  const tt_prof_descr calls = {
      .type = ncclProfileCollApi,
      .collApi = {.func = "AllReduce", .count = BYTES / 4, .datatype = "ncclFloat32", .stream = &memory[0]}};
  around a = call(p, &calls);
  void *task = start(p,
                     (tt_prof_descr){.type = ncclProfileColl,
                                     .coll = {.seqNumber = p->seq++,
                                              .func = "AllReduce",
                                              .sendBuff = &memory[0],
                                              .recvBuff = &memory[1],
                                              .count = BYTES / 4,
                                              .datatype = "ncclFloat32",
                                              .nChannels = CHANNELS,
                                              .nWarps = 1,
                                              .algo = "RING",
                                              .proto = "SIMPLE"}},
                     a.call, a.group);
  launch(p, &a, task, &memory[0]);
  channels(p, task);
  proxy(p, task, true);
  proxy(p, task, false);
}

void prof_send(prof_rank *p)
{
  static char memory[2];
  const tt_prof_descr calls = {
      .type = ncclProfileP2pApi,
      .p2pApi = {.func = "Send", .count = BYTES, .datatype = "ncclInt8", .stream = &memory[0]}};
  around a = call(p, &calls);
  void *task = start(p,
                     (tt_prof_descr){.type = ncclProfileP2p,
                                     .p2p = {.func = "Send",
                                             .buff = &memory[1],
                                             .datatype = "ncclInt8",
                                             .count = BYTES,
                                             .peer = p->peer,
                                             .nChannels = CHANNELS}},
                     a.call, a.group);
  launch(p, &a, task, &memory[0]);
  channels(p, task);
  proxy(p, task, true);
}

void prof_progress(prof_rank *p)
{
  static const ncclProfilerEventState_t states[] = {ncclProfilerProxyCtrlSleep,  ncclProfilerProxyCtrlWakeup,
                                                    ncclProfilerProxyCtrlAppend, ncclProfilerProxyCtrlAppendEnd,
                                                    ncclProfilerProxyCtrlActive, ncclProfilerProxyCtrlIdle};
  const tt_prof_args args = {.proxyCtrl = {.appendedProxyOps = 1}};
  for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
    void *event = start(p, (tt_prof_descr){.type = ncclProfileProxyCtrl}, NULL, NULL);
    state(p, event, states[i], &args);
    stop(p, event);
  }
}
