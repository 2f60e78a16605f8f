// profile_rma.c: what profilers are told of one-sided operations (profile.h). They have no kind of their own: they are
// P2p events with their function's name, each line of a wait one, and each has one channel.
#include "comm/one_sided.h"
#include "comm/profile.h"

#include "base/log.h"
#include "base/result.h"
#include "comm/comm.h"
#include "os/clock.h"

struct tt_rma_call_events {
  tt_profilers *profilers; // held
  tt_prof_event group, api;
};

// An operation of a batch.
typedef struct watched_op {
  tt_prof_event op, channel;
} watched_op;

// What a batch knows of its operations' events while it runs.
typedef struct rma_watcher {
  tt_profilers *profilers; // held
  watched_op ops[];
} rma_watcher;

static const char *rma_func(const tt_rma_call *c)
{
  return c->what + sizeof "nccl" - 1; // PutSignal
}

void tt_profile_rma_start(tt_group_events *g, tt_rma_call *c, int depth)
{
  tt_profilers *p = c->comm->profiling.profilers;
  bool captured = tt_profile_group_start(g, c->comm, c->stream, depth);
  tt_rma_call_events *e = tt_calloc(1, sizeof *e);
  if (e == NULL) {
    tt_info(TT_PROFILE, "rank %d: no memory to tell profilers of %s", c->comm->rank, c->what);
    return;
  }
  tt_prof_descr d = {.type = ncclProfileP2pApi,
                     .p2pApi = {.func = rma_func(c),
                                .count = c->count,
                                .datatype = tt_type_name((int)c->type),
                                .stream = c->stream,
                                .graphCaptured = captured}};
  *e = (tt_rma_call_events){.profilers = tt_profilers_hold(p), .group = g->api};
  tt_profilers_start(p, &d, &e->group, NULL, &e->api);
  c->events = e;
}

void tt_profile_rma_stop(const tt_rma_call *c)
{
  if (c->events != NULL) {
    tt_prof_event copy = c->events->api; // whose name is still needed, as the parent of others
    tt_profilers_stop(c->events->profilers, &copy);
  }
}

void tt_profile_rma_drop(tt_rma_call_events *e)
{
  if (e != NULL) {
    tt_profilers_release(e->profilers);
    tt_free(e);
  }
}

// ---- batches

static void start_op(const tt_rma_call *c, int peer, const tt_prof_event *group, tt_prof_event *out)
{
  tt_prof_descr d = {.type = ncclProfileP2p,
                     .p2p = {.func = rma_func(c),
                             .buff = (void *)(uintptr_t)c->from,
                             .datatype = tt_type_name((int)c->type),
                             .count = c->count,
                             .peer = peer,
                             .nChannels = 1}};
  tt_profilers_start(c->events->profilers, &d, &c->events->api, group, out);
}

static void start_channel(rma_watcher *w, int i, uint64_t ns)
{
  watched_op *o = &w->ops[i];
  tt_prof_descr d = {.type = ncclProfileKernelCh,
                     .kernelCh = {.channelId = (uint8_t)(i % TT_MESSAGE_CHANNELS), .pTimer = ns}};
  tt_profilers_start(w->profilers, &d, &o->op, NULL, &o->channel);
}

static void stop_channel(rma_watcher *w, int i, uint64_t ns)
{
  const tt_prof_args args = {.kernelCh = {.pTimer = ns}};
  tt_prof_event *e = &w->ops[i].channel;
  if (tt_prof_is_on(e)) {
    tt_profilers_state(w->profilers, e, ncclProfilerKernelChStop, &args);
    tt_profilers_stop(w->profilers, e);
  }
}

// tt_rma_batch.watch.
static void watch_rma(tt_rma_batch *b, int op, uint64_t ns)
{
  for (int i = 0; i < b->n && op < 0; i++) {
    start_channel(b->watcher, i, ns);
  }
  if (op >= 0) {
    stop_channel(b->watcher, op, ns);
  }
}

void tt_profile_batch_over(tt_rma_batch *b)
{
  rma_watcher *w = b->watcher;
  if (w != NULL) {
    for (int i = 0; i < b->n; i++) {
      stop_channel(w, i, tt_now_ns()); // of what has failed
    }
    tt_profilers_release(w->profilers);
    tt_free(w);
  }
}

// Tells of the batch's operations, which are queued.
static void tell_queued(const tt_rma_batch *b, const tt_rma_call *calls, const tt_prof_event *group, rma_watcher *w)
{
  int i = 0;
  for (const tt_rma_call *c = calls; c != NULL; c = c->next) {
    for (int k = 0; k < tt_rma_call_ops(c); k++, i++) {
      if (c->events != NULL) {
        start_op(c, b->ops[i].peer, group, &w->ops[i].op);
      }
    }
  }
  for (i = 0; i < b->n; i++) {
    tt_prof_event copy = w->ops[i].op;
    tt_profilers_stop(w->profilers, &copy);
  }
}

void tt_profile_batch_start(tt_rma_launch_events *l, tt_rma_batch *b, const tt_rma_call *calls)
{
  tt_profilers *p = calls->comm->profiling.profilers;
  const tt_prof_event *api = calls->events != NULL ? &calls->events->group : NULL;
  tt_prof_descr group = {.type = ncclProfileGroup},
                launch = {.type = ncclProfileKernelLaunch, .kernelLaunch = {.stream = calls->stream}};
  rma_watcher *w = tt_calloc(1, sizeof *w + (size_t)b->n * sizeof *w->ops);
  *l = (tt_rma_launch_events){.profilers = tt_profilers_hold(p)};
  tt_profilers_start(p, &group, NULL, NULL, &l->group);
  if (w != NULL) {
    w->profilers = tt_profilers_hold(p);
    tell_queued(b, calls, &l->group, w);
    b->watcher = w;
    b->watch = watch_rma;
  }
  tt_profilers_stop(p, &l->group);
  tt_profilers_start(p, &launch, api, NULL, &l->launch);
}

void tt_profile_batch_stop(tt_rma_launch_events *l)
{
  tt_profilers_stop(l->profilers, &l->launch);
  tt_profilers_release(l->profilers);
}
