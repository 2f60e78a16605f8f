// profile.c: see profile.h.
#include "comm/profile.h"
#include "comm/decide.h"
#include "comm/profile_shm.h"
#include "comm/schedules.h"
#include "comm/task.h"

#include "base/log.h"
#include "base/result.h"
#include "os/clock.h"

typedef struct channel_event {
  tt_stamp stamp;
  tt_prof_event event; // its KernelCh
  bool reported;       // its start
} channel_event;

struct tt_task_events {
  tt_task_events *next;    // of the plan
  tt_profilers *profilers; // held
  tt_prof_event group, api, op;
  int channel, nchannels;
  tt_stamp nobody; // for lanes of other calls in the plan whose events there was no memory for
  channel_event *channels;
  channel_event one;       // where there is one
  tt_shm_events *messages; // between ranks that have memory in common
};

static const char *proto_text(tt_proto proto)
{
  return proto == TT_LL ? "LL" : "SIMPLE";
}

static void events_free(tt_task_events *e)
{
  tt_profilers *p = e->profilers;
  if (e->channels != &e->one) {
    tt_free(e->channels);
  }
  tt_shm_events_free(e->messages);
  tt_profilers_give(p, e);
  tt_profilers_release(p);
}

// ---- calls

bool tt_profile_group_start(tt_group_events *g, struct ncclComm *comm, cudaStream_t stream, int depth)
{
  bool captured = false;
  if (tt_capturing() && !g->captured) {
    comm->port.row->captured(stream, comm->device, &captured);
  }
  captured |= g->captured;
  tt_prof_descr d = {.type = ncclProfileGroupApi, .groupApi = {.graphCaptured = captured, .groupDepth = depth + 1}};
  if (g->profilers == NULL) {
    g->profilers = tt_profilers_hold(comm->profiling.profilers);
    tt_profilers_start(g->profilers, &d, NULL, NULL, &g->api);
    tt_profilers_state(g->profilers, &g->api, ncclProfilerGroupStartApiStop, NULL);
  }
  return captured;
}

static void start_call(const tt_task *t, tt_task_events *e, bool captured)
{
  tt_prof_descr d = {.type = tt_func_is_message(t->func) ? ncclProfileP2pApi : ncclProfileCollApi};
  if (tt_func_is_message(t->func)) {
    d.p2pApi.func = tt_func_name(t->func);
    d.p2pApi.count = t->count;
    d.p2pApi.datatype = tt_type_name((int)t->type);
    d.p2pApi.stream = t->stream;
    d.p2pApi.graphCaptured = captured;
    d.p2pApi.userTag = t->user_tag;
  } else {
    d.collApi.func = tt_func_name(t->func);
    d.collApi.count = t->count;
    d.collApi.datatype = tt_type_name((int)t->type);
    d.collApi.root = t->root;
    d.collApi.stream = t->stream;
    d.collApi.graphCaptured = captured;
    d.collApi.userTag = t->user_tag;
  }
  tt_profilers_start(e->profilers, &d, &e->group, NULL, &e->api);
}

void tt_profile_call_start(tt_group_events *g, tt_task *t, int depth)
{
  tt_profilers *p = t->comm->profiling.profilers;
  bool captured = tt_profile_group_start(g, t->comm, t->stream, depth);
  tt_task_events *e = tt_profilers_take(p, sizeof *e);
  if (e == NULL) {
    tt_info(TT_PROFILE, "rank %d: no memory to tell profilers of %s", t->comm->rank, tt_func_name(t->func));
    return;
  }
  e->profilers = tt_profilers_hold(p);
  e->group = g->api;
  start_call(t, e, captured);
  t->events = e;
  g->reported = true;
}

// Stops an event whose name is still needed, as the parent of others.
static void stop_copy(tt_profilers *p, const tt_prof_event *e)
{
  tt_prof_event copy = *e;
  tt_profilers_stop(p, &copy);
}

void tt_profile_call_stop(tt_task_events *e)
{
  if (e != NULL) {
    stop_copy(e->profilers, &e->api);
  }
}

void tt_profile_drop(tt_task *tasks, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    if (tasks[i].events != NULL) {
      events_free(tasks[i].events);
      tasks[i].events = NULL;
    }
  }
}

void tt_profile_group_ends(tt_group_events *g)
{
  if (g->profilers != NULL) {
    tt_profilers_state(g->profilers, &g->api, ncclProfilerGroupEndApiStart, NULL);
  }
}

void tt_profile_group_stop(tt_group_events *g)
{
  if (g->profilers != NULL) {
    tt_profilers_stop(g->profilers, &g->api);
    tt_profilers_release(g->profilers);
    g->profilers = NULL;
    g->reported = false;
  }
}

// ---- launches

void tt_profile_plan_start(tt_launch_events *l, struct ncclComm *comm, tt_plan *p)
{
  *l = (tt_launch_events){.comm = comm, .plan = p};
  l->last = &l->first;
}

// The plan's Group, with its first operation of which anybody wants to know.
static void start_plan_group(tt_launch_events *l, const tt_task_events *e)
{
  tt_prof_descr d = {.type = ncclProfileGroup};
  if (!l->begun) {
    l->begun = true;
    l->api = &e->group;
    tt_profilers_start(l->comm->profiling.profilers, &d, NULL, NULL, &l->group);
  }
}

static void start_coll(const tt_launch_events *l, const tt_task *t, const tt_decision *d)
{
  const tt_algorithm *a = &tt_algorithms(NULL)[d->choice.algo];
  tt_prof_descr descr = {.type = ncclProfileColl,
                         .coll = {.seqNumber = l->comm->counts.calls[t->func] - 1,
                                  .func = tt_func_name(t->func),
                                  .sendBuff = t->in,
                                  .recvBuff = t->out,
                                  .count = t->count,
                                  .root = t->root,
                                  .datatype = tt_type_name((int)t->type),
                                  .nChannels = (uint8_t)d->choice.channels,
                                  .nWarps = 1,
                                  .algo = a->id,
                                  .proto = proto_text(d->choice.proto),
                                  .kernelVariant = a->variants[d->choice.proto == TT_LL],
                                  .userTag = t->user_tag}};
  tt_profilers_start(l->comm->profiling.profilers, &descr, &t->events->api, &l->group, &t->events->op);
}

static void start_p2p(const tt_launch_events *l, const tt_task *t)
{
  void *buff = t->func == TT_FUNC_SEND ? (void *)(uintptr_t)t->in : t->out;
  tt_prof_descr descr = {.type = ncclProfileP2p,
                         .p2p = {.func = tt_func_name(t->func),
                                 .buff = buff,
                                 .count = t->count,
                                 .datatype = tt_type_name((int)t->type),
                                 .peer = t->root,
                                 .nChannels = 1,
                                 .userTag = t->user_tag}};
  tt_profilers_start(l->comm->profiling.profilers, &descr, &t->events->api, &l->group, &t->events->op);
}

void tt_profile_op_start(tt_launch_events *l, tt_task *t, const tt_decision *d, int channel)
{
  tt_task_events *e = t->events;
  if (e == NULL) {
    return;
  }
  start_plan_group(l, e);
  if (tt_func_is_message(t->func)) {
    start_p2p(l, t);
  } else {
    start_coll(l, t, d);
  }
  e->channel = channel % TT_MESSAGE_CHANNELS;
  e->nchannels = tt_func_is_message(t->func) ? 1 : d->choice.channels;
  *l->last = e;
  l->last = &e->next;
  t->events = NULL;
  if (tt_profilers_want(e->profilers, ncclProfileKernelCh)) {
    e->channels = e->nchannels == 1 ? &e->one : tt_calloc((size_t)e->nchannels, sizeof *e->channels);
  }
}

void tt_profile_op_lanes(const tt_launch_events *l, const tt_call *c, const tt_decision *d, int first)
{
  tt_task_events *e = c->event;
  const tt_cached *cached = d != NULL ? d->cached : NULL;
  bool phases = e != NULL && tt_profilers_want(e->profilers, ncclProfileKernelPhase);
  for (int i = first, channel = 0, strand = 0; i < l->plan->nlanes; i++) {
    tt_lane *lane = &l->plan->lanes[i];
    lane->stamp = e != NULL && e->channels != NULL ? &e->channels[channel].stamp : NULL;
    if (lane->stamp != NULL) {
      lane->stamp->lanes += !lane->done;
      lane->stamp->phases = phases;
      lane->stamp->owner = c->event;
    }
    lane->reported = NULL;
    if (cached != NULL && ++strand == cached->sched->nstrands) {
      strand = 0;
      channel++;
      cached = cached->next_channel;
    }
  }
  if (e != NULL && d != NULL && tt_prof_is_on(&e->op) && tt_shm_wanted(e->profilers)) {
    const tt_shm_lanes lanes = {
        .profilers = e->profilers, .parent = &e->op, .cached = d->cached, .first = first, .channel = e->channel};
    e->messages = tt_shm_events_new(l->comm, l->plan, &lanes);
  }
}

// Stops what ends when the operations are queued.
static void stop_queued(tt_launch_events *l)
{
  for (tt_task_events *e = l->first; e != NULL; e = e->next) {
    stop_copy(e->profilers, &e->op);
  }
  stop_copy(l->comm->profiling.profilers, &l->group);
}

static void free_all(tt_task_events *e)
{
  for (tt_task_events *next; e != NULL; e = next) {
    next = e->next;
    events_free(e);
  }
}

// The first one with events while it runs.
static tt_task_events *watched(tt_task_events *e)
{
  while (e != NULL && e->channels == NULL && e->messages == NULL) {
    e = e->next;
  }
  return e;
}

static void start_channels(tt_task_events *e)
{
  for (int i = 0; i < e->nchannels; i++) {
    channel_event *c = &e->channels[i];
    tt_prof_descr d = {.type = ncclProfileKernelCh,
                       .kernelCh = {.channelId = (uint8_t)(e->channel + i), .pTimer = c->stamp.start}};
    if (!c->reported && c->stamp.start != 0) {
      c->reported = true;
      tt_profilers_start(e->profilers, &d, &e->op, NULL, &c->event);
    }
  }
}

static void tell_phase(tt_task_events *e, const channel_event *c, const tt_prof_descr *phase, uint64_t stop)
{
  const tt_prof_args args = {.kernelCh = {.pTimer = stop}};
  tt_prof_descr d = *phase;
  tt_prof_event event;
  tt_profilers_start(e->profilers, &d, &c->event, NULL, &event);
  tt_profilers_state(e->profilers, &event, ncclProfilerKernelPhaseStop, &args);
  tt_profilers_stop(e->profilers, &event);
}

// NCCL's phases, as far as a channel has had them, when it is over. In between it waits and computes in turns.
static void tell_phases(tt_task_events *e, const channel_event *c, uint8_t channel)
{
  static const char *const names[] = {"initial_sync", "compute", "final_sync"};
  const tt_stamp *s = &c->stamp;
  const uint64_t times[] = {s->start, s->first, s->last, s->stop};
  for (int i = 0; i < 3 && s->phases && times[i] != 0; i++) {
    const tt_prof_descr d = {
        .type = ncclProfileKernelPhase,
        .kernelPhase = {.channelId = channel, .phaseId = (uint8_t)i, .phaseName = names[i], .pTimer = times[i]}};
    tell_phase(e, c, &d, times[i + 1] != 0 ? times[i + 1] : s->stop);
  }
}

static void stop_channels(tt_task_events *e)
{
  for (int i = 0; i < e->nchannels; i++) {
    channel_event *c = &e->channels[i];
    const tt_prof_args args = {.kernelCh = {.pTimer = c->stamp.stop}};
    if (c->reported) {
      tell_phases(e, c, (uint8_t)(e->channel + i));
      tt_profilers_state(e->profilers, &c->event, ncclProfilerKernelChStop, &args);
      tt_profilers_stop(e->profilers, &c->event);
    }
  }
}

// Have all channels begun that have anything to do?
static bool all_begun(const tt_task_events *e)
{
  for (int i = 0; i < e->nchannels; i++) {
    if (e->channels[i].stamp.start == 0 && e->channels[i].stamp.lanes > 0) {
      return false;
    }
  }
  return true;
}

// A channel without anything to do began and ended when the operation did. A device's own clock is not known here.
static void stamp_idle(tt_task_events *e, const tt_plan *p)
{
  uint64_t first = 0, last = 0;
  for (int i = 0; i < e->nchannels; i++) {
    const tt_stamp *s = &e->channels[i].stamp;
    first = first == 0 || (s->start != 0 && s->start < first) ? s->start : first;
    last = TT_MAX(last, s->stop);
  }
  const bool known = first != 0 || !p->port->row->clock;
  for (int i = 0; i < e->nchannels && p->started && known; i++) {
    tt_stamp *s = &e->channels[i].stamp;
    if (s->start == 0 && s->lanes == 0) {
      s->start = first != 0 ? first : tt_now_ns();
      s->stop = last != 0 ? last : s->start;
      s->phases = false;
    }
  }
}

// Tells of operations whose channels have begun since the last time, the first one first. There may be many others in
// the plan.
static void tell_begun(tt_plan *p)
{
  tt_stamp *oldest = NULL;
  for (tt_stamp *s = p->begun, *next; s != NULL; s = next) {
    next = s->next;
    s->next = oldest;
    oldest = s;
  }
  p->begun = NULL;
  for (const tt_stamp *s = oldest; s != NULL; s = s->next) {
    tt_task_events *e = s->owner;
    if (e != NULL && all_begun(e)) {
      start_channels(e);
    }
  }
}

static void tell_all(tt_plan *p)
{
  p->begun = NULL;
  for (tt_task_events *e = p->watcher; e != NULL; e = e->next) {
    if (e->channels != NULL) {
      stamp_idle(e, p);
      start_channels(e);
    }
  }
  for (tt_task_events *e = p->watcher; e != NULL; e = e->next) {
    tt_shm_events_end(e->messages);
    if (e->channels != NULL) {
      stop_channels(e);
    }
  }
  free_all(p->watcher);
}

// tt_plan.watch.
static void profile_watch(tt_plan *p, bool ended)
{
  (ended ? tell_all : tell_begun)(p);
}

// The plan's lanes get stamps, whosever they are.
static void watch_plan(tt_launch_events *l, tt_task_events *some)
{
  tt_plan *p = l->plan;
  for (int i = 0; i < p->nlanes; i++) {
    p->lanes[i].stamp = p->lanes[i].stamp != NULL ? p->lanes[i].stamp : &some->nobody;
  }
  p->watch = profile_watch;
  p->begun = NULL;
  p->step = tt_shm_step;
  p->watcher = l->first;
  l->first = NULL;
}

void tt_profile_push_start(tt_launch_events *l, cudaStream_t stream)
{
  tt_prof_descr d = {.type = ncclProfileKernelLaunch, .kernelLaunch = {.stream = stream}};
  stop_queued(l);
  if (l->begun) {
    tt_profilers_start(l->comm->profiling.profilers, &d, l->api, NULL, &l->launch);
  }
  tt_task_events *some = watched(l->first);
  if (some != NULL) {
    watch_plan(l, some);
  }
}

void tt_profile_push_stop(tt_launch_events *l)
{
  tt_profilers_stop(l->comm->profiling.profilers, &l->launch);
  free_all(l->first);
}

void tt_profile_plan_drop(tt_launch_events *l)
{
  stop_queued(l);
  free_all(l->first);
}

const tt_prof_event *tt_profile_event(const tt_call *c)
{
  const tt_task_events *e = c->event;
  return e != NULL && tt_prof_is_on(&e->op) ? &e->op : NULL;
}
