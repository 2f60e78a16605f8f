// recorder.h: a profiler that writes down what it is told, one line per call. recorder_v1.c … recorder_v7.c compile it
// for one version of the interface each.
//
// TUTTI_RECORD=FILE            the lines go to FILE.vN.PID
// TUTTI_RECORD_MASK=N          its mask; all events without
// TUTTI_RECORD_NO_HANDLE=N     gives no handle to events of these kinds (bits as in the mask)
// TUTTI_RECORD_INIT_FAILS=V    init fails in version V
// TUTTI_RECORD_NO_CONTEXT=V    init of version V gives no context
// TUTTI_RECORD_TIMERS=1        time stamps as numbers, not as "set"
// TUTTI_RECORD_HANDLES=1       lines of starts end in the context's rank and the handle; those with a parent of another
//                              process, in that one's handle before
// TUTTI_RECORD_GATE=V:FILE     init and finalize of version V return when there is such a file
//
// Events are named by kind and number, "Coll#2". What must not be (an event stopped twice, a handle or context used
// after its end) is a line that begins with ERROR. Handles stay allocated until their context is finalized, so that
// such use can be seen.
#pragma once
#ifndef RECORDER
#define RECORDER 7
#endif

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl/profiler.h"

#define GLUE_(a, b, c) a##b##c
#define GLUE(a, b, c) GLUE_(a, b, c)
#define DESCR GLUE(ncclProfilerEventDescr_v, RECORDER, _t)
#define ARGS GLUE(ncclProfilerEventStateArgs_v, RECORDER, _t)
#define TABLE GLUE(ncclProfiler_v, RECORDER, _t)
#define SYMBOL GLUE(ncclProfiler_v, RECORDER, )

enum { KINDS = 16 };

typedef struct context context;

typedef struct event {
  struct event *next;
  context *ctx;
  int kind, number;
  bool stopped;
  const struct event *parent; // of this process
} event;

struct context {
  context *next;
  int rank; // -1: this version is not told
  bool finalized;
  event *events;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *out;
static int count[KINDS];
static context *contexts; // finalized ones, too
static bool masked;

static const char *const kind_name[KINDS] = {
    "Group",    "Coll",    "P2p",    "ProxyOp",      "ProxyStep", "ProxyCtrl", "KernelCh", "NetPlugin",
    "GroupApi", "CollApi", "P2pApi", "KernelLaunch", "CeColl",    "CeSync",    "CeBatch",  "KernelPhase"};
static const char *const state_name[] = {"0",
                                         "1",
                                         "2",
                                         "3",
                                         "4",
                                         "5",
                                         "6",
                                         "7",
                                         "SendGPUWait",
                                         "SendWait",
                                         "RecvWait",
                                         "RecvFlushWait",
                                         "RecvGPUWait",
                                         "Idle",
                                         "Active",
                                         "Sleep",
                                         "Wakeup",
                                         "Append",
                                         "AppendEnd",
                                         "InProgress",
                                         "SendPeerWait",
                                         "NetUpdate",
                                         "KernelChStop",
                                         "GroupStartApiStop",
                                         "GroupEndApiStart",
                                         [ncclProfilerKernelPhaseStop] = "KernelPhaseStop"};

static long number(const char *name, long otherwise)
{
  const char *text = getenv(name);
  return text != NULL ? strtol(text, NULL, 0) : otherwise;
}

__attribute__((format(printf, 1, 2))) static void say(const char *fmt, ...)
{
  const char *file = getenv("TUTTI_RECORD");
  if (out == NULL && file != NULL) {
    char name[4096];
    snprintf(name, sizeof name, "%s.v%d.%d", file, RECORDER, (int)getpid());
    out = fopen(name, "a");
  }
  if (out != NULL) {
    va_list ap;
    va_start(ap, fmt);
    vfprintf(out, fmt, ap);
    va_end(ap);
    fflush(out);
  }
}

// The last context has gone: so does everything.
__attribute__((destructor)) static void at_unload(void)
{
  for (context *c = contexts, *next; c != NULL; c = next) {
    next = c->next;
    for (event *e = c->events, *after; e != NULL; e = after) {
      after = e->next;
      free(e);
    }
    free(c);
  }
  if (out != NULL) {
    fclose(out);
  }
}

static void pass_gate(void)
{
  const char *gate = getenv("TUTTI_RECORD_GATE");
  while (gate != NULL && atoi(gate) == RECORDER && access(gate + 2, F_OK) != 0) {
    usleep(1000);
  }
}

static ncclResult_t init_for(void **ctx, int *mask, int rank)
{
  if (number("TUTTI_RECORD_INIT_FAILS", 0) == RECORDER) {
    say("init fails\n");
    return ncclSystemError;
  }
  if (!masked) { // it is the process's
    masked = true;
    __atomic_store_n(mask, (int)number("TUTTI_RECORD_MASK", (1 << KINDS) - 1), __ATOMIC_RELAXED);
  }
  if (number("TUTTI_RECORD_NO_CONTEXT", 0) == RECORDER) {
    return ncclSuccess;
  }
  context *c = calloc(1, sizeof *c);
  if (c == NULL) {
    return ncclSystemError;
  }
  c->rank = rank;
  c->next = contexts;
  contexts = c;
  *ctx = c;
  return ncclSuccess;
}

#if RECORDER <= 3
static ncclResult_t init(void **ctx, int *mask)
{
  pthread_mutex_lock(&lock);
  say("init\n");
  ncclResult_t res = init_for(ctx, mask, -1);
  pthread_mutex_unlock(&lock);
  pass_gate();
  return res;
}
#else
#if RECORDER == 4
static ncclResult_t init(void **ctx, int *mask, const char *name, uint64_t id, int nnodes, int nranks, int rank,
                         ncclDebugLogger_t log)
#else
static ncclResult_t init(void **ctx, uint64_t id, int *mask, const char *name, int nnodes, int nranks, int rank,
                         ncclDebugLogger_t log)
#endif
{
  pthread_mutex_lock(&lock);
  log(NCCL_LOG_INFO, NCCL_PROFILE, __FILE__, __LINE__, "recorder of version %d", RECORDER);
  say("init name=%s id=%s nodes=%d ranks=%d rank=%d\n", name != NULL ? name : "-", id != 0 ? "set" : "0", nnodes,
      nranks, rank);
  ncclResult_t res = init_for(ctx, mask, rank);
  pthread_mutex_unlock(&lock);
  pass_gate();
  return res;
}
#endif

static const char *name_of(void *handle, char *buf)
{
  const event *e = handle;
  if (e == NULL) {
    return "-";
  }
  sprintf(buf, "%s#%d", kind_name[e->kind], e->number);
  return buf;
}

#if RECORDER == 1
#define TEXT "%d"
#else
#define TEXT "%s"
#endif

static void say_task(const DESCR *d)
{
  if (d->type == ncclProfileColl) {
#if RECORDER <= 3
    int channels = d->coll.nMaxChannels;
    say(" name=%s hash=%d", d->coll.name != NULL ? d->coll.name : "-", (int)d->coll.commHash);
#else
    int channels = d->coll.nChannels;
#endif
    say(" seq=%d func=" TEXT " in=%s out=%s count=%zu root=%d type=" TEXT " channels=%d warps=%d algo=" TEXT
        " proto=" TEXT,
        (int)d->coll.seqNumber, d->coll.func, d->coll.sendBuff != NULL ? "set" : "-",
        d->coll.recvBuff != NULL ? "set" : "-", d->coll.count, d->coll.root, d->coll.datatype, channels, d->coll.nWarps,
        d->coll.algo, d->coll.proto);
  }
  if (d->type == ncclProfileP2p) {
    say(" func=" TEXT " buff=%s count=%zu type=" TEXT " peer=%d", d->p2p.func, d->p2p.buff != NULL ? "set" : "-",
        d->p2p.count, d->p2p.datatype, d->p2p.peer);
#if RECORDER >= 4
    say(" channels=%d", d->p2p.nChannels);
#endif
  }
#if RECORDER >= 5
  char buf[64];
  if (d->type == ncclProfileColl) {
    say(" group=%s", name_of(d->coll.parentGroup, buf));
  } else if (d->type == ncclProfileP2p) {
    say(" group=%s", name_of(d->p2p.parentGroup, buf));
  }
#endif
#if RECORDER >= 7
  if (d->type == ncclProfileColl) {
    say(" variant=%s sym=%d tag=%llu", d->coll.kernelVariant, d->coll.isSymColl, (unsigned long long)d->coll.userTag);
  } else if (d->type == ncclProfileP2p) {
    say(" tag=%llu", (unsigned long long)d->p2p.userTag);
  }
#endif
}

#if RECORDER >= 4
static void say_timer(uint64_t ns)
{
  if (number("TUTTI_RECORD_TIMERS", 0) != 0) {
    say(" timer=%llu", (unsigned long long)ns);
  } else {
    say(" timer=%s", ns != 0 ? "set" : "0");
  }
}
#endif

static void say_rest(const DESCR *d)
{
  if (d->type == ncclProfileProxyOp) {
    say(" pid=%s channel=%d peer=%d steps=%d chunk=%d send=%d", d->proxyOp.pid == getpid() ? "own" : "other",
        d->proxyOp.channelId, d->proxyOp.peer, d->proxyOp.nSteps, d->proxyOp.chunkSize, d->proxyOp.isSend);
  } else if (d->type == ncclProfileProxyStep) {
    say(" step=%d", d->proxyStep.step);
  }
#if RECORDER >= 3
  if (d->type == ncclProfileKernelCh) {
    say(" channel=%d", d->kernelCh.channelId);
  } else if (d->type == ncclProfileNetPlugin) {
    say(" id=0x%llx", (unsigned long long)d->netPlugin.id);
    if (d->netPlugin.id == (NCCL_PROFILER_NET_TYPE_SOCK | NCCL_PROFILER_NET_SOCKET_VER) && d->netPlugin.data != NULL) {
      const ncclProfilerNetSockDescr_v1_t *s = d->netPlugin.data;
      say(" op=%d length=%zu", s->sock.op, s->sock.length);
    }
  }
#endif
#if RECORDER >= 4
  if (d->type == ncclProfileKernelCh) {
    say_timer(d->kernelCh.pTimer);
  }
#endif
#if RECORDER >= 5
  if (d->type == ncclProfileGroupApi) {
    say(" depth=%d graph=%d", d->groupApi.groupDepth, d->groupApi.graphCaptured);
  } else if (d->type == ncclProfileCollApi) {
    say(" func=%s count=%zu type=%s root=%d stream=%s graph=%d", d->collApi.func, d->collApi.count, d->collApi.datatype,
        d->collApi.root, d->collApi.stream != NULL ? "set" : "-", d->collApi.graphCaptured);
  } else if (d->type == ncclProfileP2pApi) {
    say(" func=%s count=%zu type=%s stream=%s graph=%d", d->p2pApi.func, d->p2pApi.count, d->p2pApi.datatype,
        d->p2pApi.stream != NULL ? "set" : "-", d->p2pApi.graphCaptured);
  } else if (d->type == ncclProfileKernelLaunch) {
    say(" stream=%s", d->kernelLaunch.stream != NULL ? "set" : "-");
  }
#endif
#if RECORDER >= 7
  if (d->type == ncclProfileCollApi) {
    say(" tag=%llu", (unsigned long long)d->collApi.userTag);
  } else if (d->type == ncclProfileP2pApi) {
    say(" tag=%llu", (unsigned long long)d->p2pApi.userTag);
  } else if (d->type == ncclProfileKernelPhase) {
    say(" channel=%d phase=%d:%s", d->kernelPhase.channelId, d->kernelPhase.phaseId, d->kernelPhase.phaseName);
    say_timer(d->kernelPhase.pTimer);
  }
#endif
}

static ncclResult_t start(void *context_, void **handle, DESCR *d)
{
  context *c = context_;
  char buf[64];
  pthread_mutex_lock(&lock);
  int kind = __builtin_ctzll(d->type);
  const event *parent = d->parentObj;
  if (c != NULL && c->finalized) {
    say("ERROR: %s starts after finalize\n", kind_name[kind]);
  }
  bool foreign = d->type == ncclProfileProxyOp && d->proxyOp.pid != getpid();
  if (!foreign && parent != NULL && parent->ctx != NULL && parent->ctx->finalized) {
    say("ERROR: %s starts below %s, which is finalized\n", kind_name[kind], name_of(d->parentObj, buf));
  }
  event *e = number("TUTTI_RECORD_NO_HANDLE", 0) >> kind & 1 ? NULL : calloc(1, sizeof *e);
  if (e != NULL) {
    e->kind = kind;
    e->number = ++count[kind];
    e->ctx = c;
    e->parent = foreign ? NULL : parent;
    if (c != NULL) {
      e->next = c->events;
      c->events = e;
    }
  }
  say("start %s%s parent=%s rank=%d", e != NULL ? "" : kind_name[kind], name_of(e, buf),
      foreign ? "foreign" : name_of(d->parentObj, (char[64]){0}), d->rank);
  say_task(d);
  say_rest(d);
  if (number("TUTTI_RECORD_HANDLES", 0) != 0) {
    if (foreign) {
      say(" of=%p", d->parentObj);
    }
    say(" by=%d at=%p", c != NULL ? c->rank : -1, (void *)e);
  }
  say("\n");
  *handle = e;
  pthread_mutex_unlock(&lock);
  return ncclSuccess;
}

// Can the handle be used? If not, says so.
static bool good(const event *e, const char *what)
{
  char buf[64];
  if (e->stopped || (e->ctx != NULL && e->ctx->finalized)) {
    say("ERROR: %s of %s, which has ended\n", what, name_of((void *)e, buf));
    return false;
  }
  return true;
}

static ncclResult_t stop(void *handle)
{
  event *e = handle;
  char buf[64];
  pthread_mutex_lock(&lock);
  if (e == NULL) {
    say("ERROR: stop without a handle\n");
  } else if (good(e, "stop")) {
    if (e->parent != NULL && e->parent->ctx != NULL &&
        e->parent->ctx->finalized) { // profilers count a parent's children
      say("ERROR: %s ends below %s, which is finalized\n", name_of(e, buf),
          name_of((void *)(uintptr_t)e->parent, (char[64]){0}));
    }
    say("stop %s\n", name_of(e, buf));
    e->stopped = true;
    if (e->ctx == NULL) {
      free(e);
    }
  }
  pthread_mutex_unlock(&lock);
  return ncclInternalError; // nobody cares
}

static ncclResult_t record(void *handle, GLUE(ncclProfilerEventState_v, RECORDER, _t) state, ARGS *args)
{
  char buf[64];
  pthread_mutex_lock(&lock);
  if (handle == NULL) {
    say("ERROR: state without a handle\n");
  } else if (good(handle, "state")) {
    say("state %s %s", name_of(handle, buf), state_name[state]);
    if (state >= ncclProfilerProxyCtrlIdle && state <= ncclProfilerProxyCtrlAppendEnd) {
      say(" ops=%d", args->proxyCtrl.appendedProxyOps);
    }
#if RECORDER >= 4
    if (state == ncclProfilerNetPluginUpdate && args->netPlugin.data != NULL) {
      say(" length=%zu", ((const ncclProfilerNetSockDescr_v1_t *)args->netPlugin.data)->sock.length);
    }
    if (state == ncclProfilerKernelChStop || state == ncclProfilerKernelPhaseStop) {
      say_timer(args->kernelCh.pTimer);
    } else if ((state >= ncclProfilerProxyStepSendGPUWait && state <= ncclProfilerProxyStepRecvGPUWait) ||
               state == ncclProfilerProxyStepSendPeerWait_v4) {
      say(" size=%zu", args->proxyStep.transSize);
    }
#endif
    say("\n");
  }
  pthread_mutex_unlock(&lock);
  return ncclSystemError;
}

static ncclResult_t finalize(void *context_)
{
  context *c = context_;
  char buf[64];
  pass_gate();
  pthread_mutex_lock(&lock);
  if (c->finalized) {
    say("ERROR: finalized twice\n");
  }
  for (event *e = c->events; e != NULL; e = e->next) {
    if (!e->stopped) {
      say("ERROR: %s is not stopped at finalize\n", name_of(e, buf));
    }
  }
  c->finalized = true;
  say("finalize rank=%d\n", c->rank);
  pthread_mutex_unlock(&lock);
  return ncclSuccess;
}

const TABLE SYMBOL = {.name = "recorder",
                      .init = init,
                      .startEvent = start,
                      .stopEvent = stop,
                      .recordEventState = record,
                      .finalize = finalize};
