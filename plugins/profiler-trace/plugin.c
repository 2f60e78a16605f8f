// plugin.c: the tables ncclProfiler_v7 and ncclProfiler_v6, and what the job's threads do: fill slots. See trace.h.
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "trace.h"

_Static_assert(sizeof(void *) == sizeof(uint64_t), "names of events are as long as handles");

// One per process, as the table is: handles say in their upper bits whose they are.
static struct {
  pthread_mutex_t lock;
  _Atomic(tt_context *) of[TT_TRACE_CONTEXTS];
  tt_settings settings;
  bool read;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// CLOCK_REALTIME minus CLOCK_MONOTONIC: of several readings the one that took least.
static uint64_t clock_skew(void)
{
  uint64_t best = UINT64_MAX, skew = 0;
  for (int i = 0; i < 8; i++) {
    uint64_t before = now();
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t after = now();
    if (after - before < best) {
      best = after - before;
      skew = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec - (before + best / 2);
    }
  }
  return skew;
}

static int32_t thread_number(void)
{
  // In the block that every thread has from the start: four bytes always fit, and LeakSanitizer trips over the other
  // kind in a library opened late.
  static __thread int32_t number __attribute__((tls_model("initial-exec")));
  if (number == 0) {
    number = (int32_t)syscall(SYS_gettid);
  }
  return number;
}

static size_t type_bytes(const char *type)
{
  static const struct {
    const char *end;
    size_t bytes;
  } types[] = {{"Bfloat16", 2}, {"Float8e4m3", 1}, {"Float8e5m2", 1}, {"nt8", 1},  {"nt32", 4}, {"nt64", 8},
               {"loat16", 2},   {"loat32", 4},     {"loat64", 8},     {"Half", 2}, {"Char", 1}, {"Double", 8}};
  size_t n = type != NULL ? strlen(type) : 0;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    size_t m = strlen(types[i].end);
    if (n >= m && strcmp(type + n - m, types[i].end) == 0) {
      return types[i].bytes;
    }
  }
  return 1;
}

// ---- events

static void *handle_of(const tt_context *c, const tt_record *e)
{
  return (void *)(uintptr_t)(c->tag | e->number);
}

// Bits of a step's way, below its channel and peer.
enum { IS_SEND = 1, IS_KNOWN = 2 };

static uint64_t number_of(void *handle)
{
  return (uint64_t)(uintptr_t)handle & ((UINT64_C(1) << TT_TRACE_NUMBER_BITS) - 1);
}

static tt_context *context_of(void *handle)
{
  uint64_t tag = (uint64_t)(uintptr_t)handle >> TT_TRACE_NUMBER_BITS;
  return tag > 0 && tag <= TT_TRACE_CONTEXTS ? atomic_load_explicit(&process.of[tag - 1], memory_order_acquire) : NULL;
}

// For a thread that may stop the event, or tells of its children before that.
static tt_record *event_of(void *handle, tt_context **context)
{
  *context = context_of(handle);
  return *context != NULL ? tt_ring_find(&(*context)->ring, number_of(handle)) : NULL;
}

// Counters of both ends go up alike, also for events that find no room: numbers of messages match.
static uint64_t count_messages(const tt_context *c, const ncclProfilerEventDescr_v7_t *d)
{
  if (c->messages == NULL || d->proxyOp.channelId >= TT_TRACE_CHANNELS || d->proxyOp.peer < 0 ||
      d->proxyOp.peer >= c->nranks) {
    return 0;
  }
  size_t row = ((size_t)(d->proxyOp.isSend != 0) * (size_t)c->nranks + (size_t)d->proxyOp.peer) * TT_TRACE_CHANNELS +
               d->proxyOp.channelId;
  return atomic_fetch_add_explicit(&c->messages[row], (uint32_t)d->proxyOp.nSteps, memory_order_relaxed);
}

static bool is_send(const char *func)
{
  return func != NULL && strcmp(func, "Send") == 0;
}

static uint64_t count_p2p(const tt_context *c, const ncclProfilerEventDescr_v7_t *d)
{
  if (c->p2ps == NULL || d->p2p.peer < 0 || d->p2p.peer >= c->nranks) {
    return 0;
  }
  size_t kind = is_send(d->p2p.func) ? 1 : tt_trace_is_recv(d->p2p.func) ? 0 : 2;
  size_t row = kind * (size_t)c->nranks + (size_t)d->p2p.peer;
  return atomic_fetch_add_explicit(&c->p2ps[row], 1, memory_order_relaxed);
}

static void fill_call(tt_record *e, const ncclProfilerEventDescr_v7_t *d)
{
  if (d->type == ncclProfileCollApi) {
    e->func = d->collApi.func;
    e->datatype = d->collApi.datatype;
    e->bytes = d->collApi.count * type_bytes(e->datatype);
  } else if (d->type == ncclProfileP2pApi) {
    e->func = d->p2pApi.func;
    e->datatype = d->p2pApi.datatype;
    e->bytes = d->p2pApi.count * type_bytes(e->datatype);
  } else if (d->type == ncclProfileGroupApi) {
    e->nchannels = (uint32_t)d->groupApi.groupDepth;
  }
}

static void fill_task(tt_record *e, const ncclProfilerEventDescr_v7_t *d)
{
  if (d->type == ncclProfileColl) {
    e->func = d->coll.func;
    e->datatype = d->coll.datatype;
    e->algo = d->coll.algo;
    e->proto = d->coll.proto;
    e->bytes = d->coll.count * type_bytes(e->datatype);
    e->seq = d->coll.seqNumber;
    e->nchannels = d->coll.nChannels;
    e->mark[0] = d->coll.userTag;
    e->mark[1] = (uintptr_t)d->coll.kernelVariant;
    e->mark[2] = d->coll.isSymColl;
    e->peer = d->coll.root;
  } else {
    e->func = d->p2p.func;
    e->datatype = d->p2p.datatype;
    e->bytes = d->p2p.count * type_bytes(e->datatype);
    e->nchannels = d->p2p.nChannels;
    e->mark[0] = d->p2p.userTag;
    e->peer = d->p2p.peer;
    e->send = is_send(e->func);
  }
}

// What a step does not say of itself its operation knows.
static void fill_step(tt_record *e, const ncclProfilerEventDescr_v7_t *d)
{
  tt_context *c;
  const tt_record *op = event_of(d->parentObj, &c);
  e->peer = -1;
  if (op != NULL) {
    e->peer = op->peer;
    e->channel = op->channel;
    e->send = op->send;
    e->seq = op->seq + (uint64_t)d->proxyStep.step;
    e->op = op->pid == (uint64_t)c->pid ? op->parent : 0;
    tt_ring_set_way(e,
                    (uint64_t)(uint32_t)e->peer << 32 | (uint64_t)e->channel << 8 | IS_KNOWN | (e->send ? IS_SEND : 0));
  }
}

// What a network plugin tells is shown with the message that it is about, while that is known: the message may end, on
// another thread, at any time.
static void fill_net(tt_record *e, const ncclProfilerEventDescr_v7_t *d)
{
  tt_context *c = context_of(d->parentObj);
  uint64_t way;
  e->peer = -1;
  if (c != NULL && tt_ring_way(&c->ring, number_of(d->parentObj), &way) && (way & IS_KNOWN)) {
    e->peer = (int32_t)(way >> 32);
    e->channel = (uint16_t)(way >> 8);
    e->send = (way & IS_SEND) != 0;
  }
  if (d->netPlugin.id == (NCCL_PROFILER_NET_TYPE_SOCK | NCCL_PROFILER_NET_SOCKET_VER) && d->netPlugin.data != NULL) {
    e->bytes = ((const ncclProfilerNetSockDescr_v1_t *)d->netPlugin.data)->sock.length;
  } else if (d->netPlugin.id == (NCCL_PROFILER_NET_TYPE_IB | NCCL_PROFILER_NET_IB_VER) && d->netPlugin.data != NULL) {
    e->bytes = ((const ncclProfilerNetIbDescr_v1_t *)d->netPlugin.data)->qp.length;
  }
}

static void fill(const tt_context *c, tt_record *e, const ncclProfilerEventDescr_v7_t *d)
{
  switch (d->type) {
  case ncclProfileColl:
  case ncclProfileP2p: fill_task(e, d); break;
  case ncclProfileProxyOp:
    e->pid = (uint64_t)d->proxyOp.pid;
    e->peer = d->proxyOp.peer;
    e->channel = d->proxyOp.channelId;
    e->nchannels = (uint32_t)d->proxyOp.nSteps;
    e->bytes = (uint64_t)d->proxyOp.chunkSize;
    e->send = d->proxyOp.isSend != 0;
    break;
  case ncclProfileProxyStep: fill_step(e, d); break;
  case ncclProfileNetPlugin: fill_net(e, d); break;
  case ncclProfileKernelCh:
    e->channel = d->kernelCh.channelId;
    e->mark[0] = d->kernelCh.pTimer;
    break;
  case ncclProfileKernelPhase:
    e->channel = d->kernelPhase.channelId;
    e->func = d->kernelPhase.phaseName;
    e->mark[0] = d->kernelPhase.pTimer;
    break;
  case ncclProfileCollApi:
  case ncclProfileP2pApi:
  case ncclProfileGroupApi: fill_call(e, d); break;
  default: break;
  }
  (void)c;
}

static ncclResult_t start_event(void *context, void **handle, ncclProfilerEventDescr_v7_t *d)
{
  tt_context *c = context;
  uint64_t seq = 0;
  *handle = NULL;
  if (c == NULL || (d->type & (uint64_t)process.settings.mask) == 0) {
    return ncclSuccess;
  }
  if (d->type == ncclProfileProxyOp) {
    seq = count_messages(c, d);
  } else if (d->type == ncclProfileP2p) {
    seq = count_p2p(c, d);
  }
  tt_record *e = tt_ring_start(&c->ring);
  if (e == NULL) {
    return ncclSuccess;
  }
  e->kind = (uint8_t)__builtin_ctzll(d->type);
  e->parent = (uint64_t)(uintptr_t)d->parentObj;
  e->thread = thread_number();
  e->seq = seq;
  fill(c, e, d);
  e->start = now();
  *handle = handle_of(c, e);
  tt_ring_started(&c->ring, e);
  return ncclSuccess;
}

static ncclResult_t stop_event(void *handle)
{
  tt_context *c;
  tt_record *e = event_of(handle, &c);
  if (e != NULL) {
    e->stop = now();
    tt_ring_stop(&c->ring, e);
  }
  return ncclSuccess;
}

// A message's times: when it was first looked at, when there was something to move, when it moved.
static void step_state(tt_record *e, ncclProfilerEventState_v7_t state, const ncclProfilerEventStateArgs_v7_t *args)
{
  int i = state == ncclProfilerProxyStepSendPeerWait_v4 || state == ncclProfilerProxyStepRecvFlushWait ? 1
          : state == ncclProfilerProxyStepSendWait || state == ncclProfilerProxyStepRecvGPUWait        ? 2
                                                                                                       : 0;
  if (e->mark[i] == 0) {
    e->mark[i] = now();
  }
  if (args != NULL && args->proxyStep.transSize != 0) {
    e->bytes = args->proxyStep.transSize;
  }
}

static ncclResult_t record_state(void *handle, ncclProfilerEventState_v7_t state, ncclProfilerEventStateArgs_v7_t *args)
{
  tt_context *c;
  tt_record *e = event_of(handle, &c);
  if (e == NULL) {
    return ncclSuccess;
  }
  if ((state == ncclProfilerKernelChStop || state == ncclProfilerKernelPhaseStop) && args != NULL) {
    e->mark[1] = args->kernelCh.pTimer;
  } else if (state == ncclProfilerGroupStartApiStop || state == ncclProfilerGroupEndApiStart) {
    e->mark[state == ncclProfilerGroupEndApiStart] = now();
  } else if (e->kind == 4) {
    step_state(e, state, args);
  }
  return ncclSuccess;
}

// ---- life

void tt_plugin_forked(void)
{
  pthread_mutex_init(&process.lock, NULL);
}

static bool make_counters(tt_context *c)
{
  if (c->nranks > 65536) {
    return true; // no arrows
  }
  c->messages = calloc((size_t)c->nranks * 2 * TT_TRACE_CHANNELS, sizeof *c->messages);
  c->p2ps = calloc((size_t)c->nranks * 3, sizeof *c->p2ps);
  return c->messages != NULL && c->p2ps != NULL;
}

static bool enter(tt_context *c)
{
  for (uint64_t i = 0; i < TT_TRACE_CONTEXTS; i++) {
    if (atomic_load(&process.of[i]) == NULL) {
      c->tag = (i + 1) << TT_TRACE_NUMBER_BITS;
      atomic_store(&process.of[i], c);
      return true;
    }
  }
  return false;
}

static void leave(const tt_context *c)
{
  atomic_store(&process.of[(c->tag >> TT_TRACE_NUMBER_BITS) - 1], NULL);
}

void tt_context_free(tt_context *c)
{
  if (c != NULL) {
    tt_file_close(&c->file);
    tt_ring_destroy(&c->ring);
    tt_stats_destroy(c->stats);
    tt_events_destroy(c->events);
    free((void *)c->messages);
    free((void *)c->p2ps);
    free(c);
  }
}

static void host_name(char *out, size_t size)
{
  if (gethostname(out, size) != 0) {
    snprintf(out, size, "?");
  }
  out[size - 1] = '\0';
}

static tt_context *make(uint64_t comm, const char *name, int nnodes, int nranks, int rank)
{
  tt_context *c = calloc(1, sizeof *c);
  if (c == NULL) {
    return NULL;
  }
  *c = (tt_context){.comm = comm,
                    .rank = rank,
                    .nranks = nranks,
                    .nnodes = nnodes,
                    .pid = getpid(),
                    .began = now(),
                    .skew = clock_skew()};
  c->file.fd = -1;
  host_name(c->host, sizeof c->host);
  snprintf(c->name, sizeof c->name, "%s", name != NULL ? name : "");
  if (!tt_ring_create(&c->ring, process.settings.events, process.settings.keeps) || !make_counters(c) ||
      (c->stats = tt_stats_create(nranks)) == NULL || (c->events = tt_events_create()) == NULL) {
    tt_context_free(c);
    return NULL;
  }
  return c;
}

static ncclResult_t init(void **context, uint64_t comm, int *mask, const char *name, int nnodes, int nranks,
                         int rank, // table's
                         ncclDebugLogger_t log)
{
  pthread_mutex_lock(&process.lock);
  if (!process.read) {
    process.read = true;
    tt_settings_read(&process.settings, log);
  }
  tt_context *c = make(comm, name, nnodes, nranks, rank);
  bool good = c != NULL && enter(c);
  if (good) {
    c->log = log;
    good = tt_thread_add(c, &process.settings);
    if (!good) {
      leave(c);
    }
  }
  pthread_mutex_unlock(&process.lock);
  if (!good) {
    log(NCCL_LOG_WARN, TT_TRACE_WARNS, __FILE__, __LINE__,
        "trace: no memory or no thread for rank %d of comm 0x%llx: it is not traced", rank, (unsigned long long)comm);
    tt_context_free(c);
    return ncclSystemError;
  }
  *mask = process.settings.mask;
  *context = c;
  return ncclSuccess;
}

static ncclResult_t finalize(void *context)
{
  tt_context *c = context;
  if (c != NULL) {
    pthread_mutex_lock(&process.lock);
    leave(c);
    pthread_mutex_unlock(&process.lock);
    tt_thread_remove(c);
  }
  return ncclSuccess;
}

__attribute__((visibility("default"))) const ncclProfiler_v7_t ncclProfiler_v7 = {.name = "trace",
                                                                                  .init = init,
                                                                                  .startEvent = start_event,
                                                                                  .stopEvent = stop_event,
                                                                                  .recordEventState = record_state,
                                                                                  .finalize = finalize};

// For an NCCL that does not know version 7. Its descriptors begin as those of version 7, and end before the tag.
static ncclResult_t start_event_v6(void *context, void **handle, ncclProfilerEventDescr_v6_t *d)
{
  ncclProfilerEventDescr_v7_t newer = {.type = 0};
  static_assert(offsetof(ncclProfilerEventDescr_v7_t, coll.kernelVariant) ==
                        sizeof(d->coll) + offsetof(ncclProfilerEventDescr_v6_t, coll) &&
                    offsetof(ncclProfilerEventDescr_v7_t, p2p.userTag) ==
                        sizeof(d->p2p) + offsetof(ncclProfilerEventDescr_v6_t, p2p),
                "version 7 only appends to version 6");
  memcpy(&newer, d, sizeof *d);
  if (d->type == ncclProfileColl) {
    newer.coll.userTag = 0;
    newer.coll.kernelVariant = NULL;
    newer.coll.isSymColl = false;
  } else if (d->type == ncclProfileP2p) {
    newer.p2p.userTag = 0;
  }
  return start_event(context, handle, &newer);
}

__attribute__((visibility("default"))) const ncclProfiler_v6_t ncclProfiler_v6 = {.name = "trace",
                                                                                  .init = init,
                                                                                  .startEvent = start_event_v6,
                                                                                  .stopEvent = stop_event,
                                                                                  .recordEventState = record_state,
                                                                                  .finalize = finalize};
