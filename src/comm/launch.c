// launch.c: from operations to plans: chooses the algorithm, has its schedule found, makes lanes, and queues the plan
// on the stream.
#include "comm/launch.h"

#include "base/log.h"
#include "base/result.h"
#include "coll/zerocopy.h"
#include "comm/blocks.h"
#include "comm/collnet.h"
#include "comm/comm.h"
#include "comm/decide.h"
#include "comm/inline.h"
#include "comm/options.h"
#include "comm/profile.h"
#include "comm/schedules.h"
#include "comm/task.h"
#include "comm/tuning.h"

// --- plans

// Called by the thread that has completed the plan. After the last line the communicator may be gone. A plan that is
// complete before its launch returns goes back without atomics: the launching thread owns the free list, and knows that
// nobody waits for the plan.
static void recycle(tt_plan *p)
{
  struct ncclComm *comm = p->owner;
  if (atomic_load_explicit(&comm->launcher, memory_order_relaxed) == (uintptr_t)__builtin_thread_pointer()) {
    p->next = comm->plans.spare;
    comm->plans.spare = p;
    comm->plans.finished++;
    return;
  }
  p->next = atomic_load_explicit(&comm->plans.returned, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(&comm->plans.returned, &p->next, p, memory_order_release,
                                                memory_order_relaxed)) {
  }
  if (atomic_fetch_add(&comm->plans.recycled, 1) & TT_FLUSHING) {
    comm->port.row->wake();
  }
}

static void plan_free(tt_plan *p)
{
  tt_free(p->calls);
  tt_free(p->lanes);
  p->port->row->scratch_free(p->port->device, p->scratch);
  tt_free(p);
}

// NULL: no memory.
static tt_plan *plan_new(struct ncclComm *comm)
{
  tt_plan *p = tt_calloc(1, sizeof *p);
  if (p != NULL) {
    p->port = &comm->port;
    p->owner = comm;
    p->recycle = recycle;
  }
  return p;
}

static bool plan_reserve(tt_plan *p, int calls, int lanes, size_t scratch)
{
  if (calls > p->max_calls) {
    tt_free(p->calls);
    p->calls = tt_calloc((size_t)calls, sizeof *p->calls);
    p->max_calls = p->calls == NULL ? 0 : calls;
  }
  if (lanes > p->max_lanes) {
    tt_free(p->lanes);
    p->lanes = tt_calloc((size_t)lanes, sizeof *p->lanes);
    p->max_lanes = p->lanes == NULL ? 0 : lanes;
  }
  if (scratch > p->scratch_size) {
    p->port->row->scratch_free(p->port->device, p->scratch);
    p->scratch = p->port->row->scratch_alloc(p->port->device, scratch);
    p->scratch_size = p->scratch == NULL ? 0 : scratch;
  }
  return p->max_calls >= calls && p->max_lanes >= lanes && p->scratch_size >= scratch;
}

// An empty plan for the stream, with room for so many calls, lanes and bytes of scratch.
static ncclResult_t plan_get(struct ncclComm *comm, const tt_stream *stream, int calls, int lanes, size_t scratch,
                             tt_plan **out)
{
  if (comm->plans.spare == NULL) {
    comm->plans.spare = atomic_exchange_explicit(&comm->plans.returned, NULL, memory_order_acquire);
  }
  tt_plan *p = comm->plans.spare;
  if (p != NULL) {
    comm->plans.spare = p->next;
  } else {
    p = plan_new(comm);
  }
  if (p == NULL || !plan_reserve(p, calls, lanes, scratch)) {
    if (p != NULL) {
      plan_free(p);
    }
    return tt_fail(ncclSystemError, "rank %d: no memory for an operation (%d calls, %d lanes, %zu bytes of scratch)",
                   comm->rank, calls, lanes, scratch);
  }
  p->ticket = comm->plans.issued++;
  p->work.takes_us = 0;
  p->stall_error_ms = 0;
  p->watch = NULL;
  p->started = false;
  p->in_graph = comm->port.row->in_graph != NULL && comm->port.row->in_graph(stream);
  p->stage_bytes = 0;
  p->ncalls = p->nlanes = p->recorded = 0;
  p->turns = NULL;
  p->turns_end = &p->turns;
  *out = p;
  return ncclSuccess;
}

void tt_comm_free_plans(struct ncclComm *comm)
{
  tt_plan *lists[2] = {comm->plans.spare, atomic_exchange_explicit(&comm->plans.returned, NULL, memory_order_acquire)};
  for (int i = 0; i < 2; i++) {
    for (tt_plan *p = lists[i], *next; p != NULL; p = next) {
      next = p->next;
      plan_free(p);
    }
  }
  comm->plans.spare = NULL;
}

// Frees a plan that will not run. The peers have been promised messages of its lanes, and the proxy knows where they
// were to come from and go to.
static void plan_drop(struct ncclComm *comm, tt_plan *p, ncclResult_t why)
{
  comm->plans.issued--; // it was the last
  if (comm->port.mover != NULL && p->nlanes > 0) {
    tt_port_stop(&comm->port, why);
    comm->port.mover->settle(comm->port.mover_self);
  }
  plan_free(p);
}

// While this thread is inside the communicator, the plan's memory stays, even if another thread has completed the plan.
static ncclResult_t plan_push(struct ncclComm *comm, tt_plan *p, tt_stream *stream)
{
  atomic_store_explicit(&p->submitter, (uintptr_t)__builtin_thread_pointer(), memory_order_relaxed);
  ncclResult_t res = comm->port.row->submit(p, stream);
  atomic_store_explicit(&p->submitter, 0, memory_order_relaxed);
  if (comm->port.mover != NULL) {
    comm->port.mover->kick(comm->port.mover_self, true); // should nobody wait for the stream
  }
  return res;
}

// --- calls and lanes

// Where the buffers lie, for peers that map them.
static void find_memory(const tt_device_ops *row, const tt_schedule *s, tt_call *c)
{
  c->in_mem = row->find(c->in, (size_t)TT_MAX(s->in_blocks, 1) * c->count * c->esize);
  c->out_mem = row->find(c->out, (size_t)TT_MAX(s->out_blocks, 1) * c->count * c->esize);
}

// Shows the device the buffers of a large call. In place one may be the beginning of the other.
static void use_buffers(struct ncclComm *comm, const tt_schedule *s, const tt_call *c)
{
  size_t block = c->count * c->esize, in = (size_t)s->in_blocks * block, out = (size_t)s->out_blocks * block;
  bool same = c->in == c->out;
  const tt_buffer_use buffers = {
      .in = c->in, .in_bytes = same ? 0 : in, .out = c->out, .out_bytes = same ? TT_MAX(in, out) : out};
  comm->port.row->use_buffers(&comm->port, &buffers);
}

// Shall the results of a call over `bytes` bytes bypass the caches? Sums gain nothing from being stored there.
static inline bool bypasses(struct ncclComm *comm, tt_func func, const tt_call *c, int blocks, size_t bytes)
{
  if (TT_LIKELY(bytes < comm->machine.stream_bytes)) {
    return false;
  }
  bool cached = tt_reuse_cached(&comm->reuse, c->out != NULL ? c->out : c->in, (size_t)blocks * c->count * c->esize);
  return !cached || tt_func_reduces(func);
}

// That a rank reads and writes.
static inline int blocks_of(const tt_schedule *s, const tt_call *c)
{
  return c->in == c->out ? TT_MAX(s->in_blocks, s->out_blocks) : s->in_blocks + s->out_blocks;
}

// Tells the proxy what a lane will send and receive over the network. Called in the order of the lanes, which is the
// order on both sides.
static ncclResult_t post_traffic(struct ncclComm *comm, const tt_cached *cached, const tt_lane *l, int channel,
                                 uint64_t opcount)
{
  const tt_call *c = l->call;
  uint64_t passes = TT_MAX(TT_DIV_UP(l->end - l->pos, (size_t)l->sched->nsub * l->max_chunk), 1);
  const int *rows = &cached->traffic_of[l->strand - l->sched->strands];
  for (int i = rows[0]; i < rows[1]; i++) {
    const tt_traffic *t = &cached->traffic[i];
    if (TT_UNLIKELY(t->peer >= comm->nranks)) { // a network that reduces: what comes back needs no word
      tt_proxy_sums_post(comm->network.reduce->sums, t->send ? (uint32_t)(passes * t->messages) : 0);
      continue;
    }
    tt_proxy_op op = {.peer = t->peer,
                      .send = t->send,
                      .proto = l->fifo,
                      .channel = (uint8_t)channel,
                      .shared = cached->func >= TT_FUNC_ALLTOALL, // as NCCL: what is made of sends and receives
                      .nsteps = (uint32_t)(passes * t->messages),
                      .chunk = (uint32_t)TT_MIN(tt_lane_longest(l), UINT32_MAX),
                      .nbytes = (uint64_t)(l->end - l->pos) * c->esize * t->messages / (uint64_t)l->sched->nsub,
                      .opcount = opcount,
                      .sig = c->sig,
                      .count = c->sig_count,
                      .event = c->event != NULL ? tt_profile_event(c) : NULL,
                      .place = {.lane = t->send ? NULL : l, .steps = t->steps, .messages = t->messages}};
    TT_TRY(tt_proxy_post(comm->network.proxy, &op));
  }
  return ncclSuccess;
}

// What the network may do with the call's buffers: the flags of the steps that may lend from them and place in them.
static unsigned zerocopy_flags(const struct ncclComm *comm, const tt_cached *cached, tt_proto proto, const tt_call *c)
{
  if (TT_LIKELY(cached->ntraffic == 0) || proto != TT_SIMPLE || comm->port.row->pins) {
    return 0;
  }
  switch (tt_zerocopy_buffers(cached->sched, c->in, c->out, c->count * c->esize)) {
  case TT_BUFFERS_APART: return TT_STEP_LEND | TT_STEP_PLACE;
  case TT_BUFFERS_IN_PLACE: return TT_STEP_LEND_IN_PLACE | TT_STEP_PLACE_IN_PLACE;
  default: return 0;
  }
}

// The lanes of one channel, and which part of each block is theirs.
typedef struct channel_part {
  const tt_cached *cached;
  size_t chunk; // elements
  tt_proto proto;
  bool whole;        // the part is everything
  size_t begin, end; // if not
  tt_lane **flow;    // a message's: the last lane of its direction of the connection. NULL: no message
  int after, nafter;
  int channel; // its number; of messages, which may be many, modulo TT_MESSAGE_CHANNELS
} channel_part;

// Adds a lane that is ready, unless it has nothing to do. `flow`: as in channel_part.
static inline void launch_add_lane(tt_plan *p, tt_lane *l, tt_lane **flow)
{
  if (TT_LIKELY(!l->done)) {
    tt_plan_add(p, l, flow != NULL ? *flow : NULL);
    if (flow != NULL) {
      l->turn = *flow != NULL ? (*flow)->turn + 1 : l->turn;
      *flow = l;
    }
  }
}

// Adds one lane per strand of the channel's schedule. Inlined, so that one channel pays nothing for there being several
// elsewhere.
static inline __attribute__((always_inline)) ncclResult_t launch_add_part(struct ncclComm *comm, tt_plan *p, tt_call *c,
                                                                          const channel_part *part)
{
  const tt_cached *cached = part->cached;
  const tt_schedule *s = cached->sched;
  unsigned zerocopy = zerocopy_flags(comm, cached, part->proto, c);
  for (int i = 0; i < s->nstrands; i++) {
    tt_lane *l = &p->lanes[p->nlanes++];
    tt_lane_init(l, s, i, c, part->chunk, part->proto);
    if (!part->whole) {
      tt_lane_share(l, part->begin, part->end);
      l->nafter = part->nafter;
    }
    l->after = part->after;
    l->turn = !part->whole                                ? (uint32_t)part->channel
              : tt_func_is_message((tt_func)cached->func) ? 0
                                                          : (uint32_t)p->ncalls;
    l->lends = zerocopy & (TT_STEP_LEND | TT_STEP_LEND_IN_PLACE);
    l->places = zerocopy & (TT_STEP_PLACE | TT_STEP_PLACE_IN_PLACE);
    launch_add_lane(p, l, part->flow);
    if (TT_UNLIKELY(cached->ntraffic > 0) && !l->done && !p->in_graph) {
      ncclResult_t res = post_traffic(comm, cached, l, part->channel, p->ticket);
      if (res != ncclSuccess) {
        return res;
      }
    }
  }
  return ncclSuccess;
}

// Adds the lanes of several channels, which run one after the other. Each gets whole passes, so that together they take
// as many as one would.
static __attribute__((noinline)) ncclResult_t add_channels(struct ncclComm *comm, tt_plan *p, tt_call *c,
                                                           const tt_decision *d)
{
  channel_part part = {
      .cached = d->cached, .chunk = tt_chunk_elements(&d->choice, c->esize), .proto = tt_choice_fifo(&d->choice)};
  size_t pass = (size_t)d->cached->sched->nsub * part.chunk, passes = TT_DIV_UP(c->count, pass),
         channels = (size_t)d->choice.channels;
  int first = p->nlanes;
  for (size_t i = 0; i < channels; i++) {
    part.begin = TT_MIN(passes * i / channels * pass, c->count);
    part.end = TT_MIN(passes * (i + 1) / channels * pass, c->count);
    part.channel = (int)i;
    part.after = p->nlanes - 1;
    part.nafter = p->nlanes - first;
    TT_TRY(launch_add_part(comm, p, c, &part));
    part.cached = part.cached->next_channel;
  }
  return ncclSuccess;
}

// What a call needs that has no program.
static void prepare_call(struct ncclComm *comm, const tt_plan *p, const tt_task *t, tt_call *c)
{
  const tt_decision *d = t->decision;
  const tt_schedule *s = d->cached->sched;
  size_t bytes = tt_task_bytes(t);
  c->fetched = t->func == TT_FUNC_ALLREDUCE && d->choice.fetches;
  c->stream_put = bypasses(comm, t->func, c, blocks_of(s, c), bytes);
  c->stream = c->stream_put && !c->fetched;
  if (d->choice.direct && !comm->machine.all_local && p->stage_bytes == 0) {
    find_memory(comm->port.row, s, c);
  }
  if (bytes >= comm->port.large) {
    use_buffers(comm, s, c);
  }
}

// Adds the lanes of an operation without a program that serves it: they resolve their steps themselves.
static __attribute__((noinline)) ncclResult_t add_resolving(struct ncclComm *comm, tt_plan *p, tt_call *c,
                                                            const tt_task *t, tt_lane **flow)
{
  const tt_decision *d = t->decision;
  if (TT_UNLIKELY(t->begun)) { // another one's decision took its place, and there was no memory for its program
    return tt_fail(ncclSystemError, "rank %d: no memory for an operation that is under way", comm->rank);
  }
  if (TT_UNLIKELY(d->choice.channels > 1)) {
    return add_channels(comm, p, c, d);
  }
  channel_part part = {.cached = d->cached,
                       .chunk = tt_chunk_elements(&d->choice, c->esize),
                       .proto = tt_choice_fifo(&d->choice),
                       .whole = true,
                       .flow = flow};
  part.after = -1;
  part.channel = flow == NULL ? 0 : p->nlanes % TT_MESSAGE_CHANNELS;
  return launch_add_part(comm, p, c, &part);
}

// Adds the lanes of an operation that has been decided: they run what is left of its program, if it has one. A queued
// one is for results that may stay in the caches. Those of one `flow` (NULL: no message) run one after the other.
static inline ncclResult_t add_lanes(struct ncclComm *comm, tt_plan *p, tt_call *c, const tt_task *t, tt_lane **flow)
{
  const tt_program *q = t->decision->program;
  if (q == NULL || q->queued) {
    prepare_call(comm, p, t, c);
    if (q == NULL || c->stream_put) {
      return add_resolving(comm, p, c, t, flow);
    }
  }
  for (int i = 0; i < q->nstrands; i++) {
    tt_lane *l = &p->lanes[p->nlanes++];
    tt_lane_resume(l, q, i, c, t->state.steps[i]);
    launch_add_lane(p, l, flow);
  }
  return ncclSuccess;
}

size_t tt_task_bytes(const tt_task *t)
{
  tt_func f = t->func;
  bool one = f == TT_FUNC_BROADCAST || f == TT_FUNC_REDUCE || f == TT_FUNC_ALLREDUCE || f == TT_FUNC_SEND ||
             f == TT_FUNC_RECV || t->blocks != NULL;
  return t->count * tt_type_size(t->type) * (one ? 1 : (size_t)t->comm->nranks);
}

// The time for the flight recorder of operations that could not be run at once: of the attempt, if there was one.
static inline uint64_t launch_time(const struct ncclComm *comm)
{
  return comm->attempts.now != 0 ? comm->attempts.now : tt_flight_now(&comm->port.flight);
}

// The flight recorder has the operation from now on, as one of the plan's.
static void launch_record(struct ncclComm *comm, tt_plan *p, const tt_task *t, uint64_t now)
{
  uint64_t n = tt_flight_queue(&comm->port.flight, t->kind, t->count, t->stream, comm->counts.sequence, now);
  p->record = p->recorded++ == 0 ? n : p->record;
}

// Adds an operation to the plan's last call. `flow`: as in add_lanes. `l` NULL: profilers are not told.
static ncclResult_t add_operation(struct ncclComm *comm, tt_plan *p, tt_task *t, tt_lane **flow, tt_launch_events *l)
{
  tt_call *c = &p->calls[p->ncalls - 1];
  int first = p->nlanes;
  p->work.takes_us = TT_MAX(p->work.takes_us, t->decision->takes_us);
  if (TT_LIKELY(l == NULL)) {
    return add_lanes(comm, p, c, t, flow);
  }
  tt_profile_op_start(l, t, t->decision, flow != NULL ? first : 0);
  TT_TRY(add_lanes(comm, p, c, t, flow));
  tt_profile_op_lanes(l, c, t->decision, first);
  return ncclSuccess;
}

// Queues a plan whose making has ended with `res`, or drops it. `l` NULL: profilers are not told.
static ncclResult_t end_plan(struct ncclComm *comm, tt_plan *p, tt_launch_events *l, tt_stream *stream,
                             cudaStream_t handle, ncclResult_t res)
{
  if (TT_UNLIKELY(res != ncclSuccess)) {
    if (l != NULL) {
      tt_profile_plan_drop(l);
    }
    plan_drop(comm, p, res);
    return res;
  }
  if (TT_LIKELY(l == NULL)) {
    return plan_push(comm, p, stream);
  }
  tt_profile_push_start(l, handle);
  res = plan_push(comm, p, stream);
  tt_profile_push_stop(l);
  return res;
}

// What the call's options say of its plan.
static void apply_options(tt_plan *p, const tt_task *t, tt_call *c)
{
  const tt_call_options *o = tt_task_options(t);
  tt_call_mark(t, &t->decision->choice, c);
  p->stall_error_ms = o != NULL ? o->stall_error_ms : 0;
}

// The task's decision. One that has begun has it, unless another one's took its place.
static inline ncclResult_t launch_decide(struct ncclComm *comm, tt_task *t, size_t ops)
{
  return t->begun && tt_task_is_decided(t) ? ncclSuccess : tt_comm_decide(comm, t, ops);
}

// Launches a collective that tt_comm_run has not run, or not to its end. One that is decided only now, as all are which
// a tuner is asked about, is run first, if it can be.
static __attribute__((noinline)) ncclResult_t launch_collective(struct ncclComm *comm, tt_task *t, size_t ops,
                                                                unsigned looks)
{
  tt_launch_events events, *reported = t->events != NULL ? &events : NULL;
  bool decided = tt_task_is_decided(t), staged = t->func == TT_FUNC_ALLTOALL && t->in == t->out;
  tt_stream *stream;
  tt_plan *p;
  // A wrong one is found before anything is sent.
  TT_TRY(comm->port.row->get(t->stream, &comm->port, tt_func_name(t->func), &stream));
  TT_TRY(launch_decide(comm, t, ops));
  if ((!decided || comm->tuned) && tt_comm_run(t, looks)) {
    return ncclSuccess;
  }
  const tt_decision *d = t->decision;
  uint32_t seq = tt_comm_next(comm);
  __atomic_store_n(&comm->counts.sequence, seq, __ATOMIC_RELAXED);
  TT_TRY(plan_get(comm, stream, 1, d->lanes, staged ? tt_task_bytes(t) : (size_t)d->ntmp * d->choice.chunk, &p));
  tt_call *c = &p->calls[p->ncalls++];
  tt_call_fill(t, seq, c);
  tt_comm_count(&comm->counts.calls[t->func]);
  if (TT_UNLIKELY(comm->tuned || tt_kind_options(t->kind) != 0)) {
    apply_options(p, t, c);
  }
  c->tmp = p->scratch;
  if (staged) {
    p->stage_src = t->in;
    p->stage_bytes = tt_task_bytes(t);
    c->in = p->scratch;
  }
  launch_record(comm, p, t, launch_time(comm));
  if (TT_UNLIKELY(reported != NULL)) {
    tt_profile_plan_start(reported, comm, p);
  }
  return end_plan(comm, p, reported, stream, t->stream, add_operation(comm, p, t, NULL, reported));
}

// --- blocks with lengths of their own

// Chooses for a part, and finds its schedule.
static ncclResult_t decide_part(struct ncclComm *comm, tt_task *part, tt_decision *d)
{
  *d = (tt_decision){.made = true};
  part->decision = d;
  TT_TRY(tt_blocks_choose(part, &d->choice));
  return tt_comm_schedules(comm, part->func, part->root, d);
}

// How many calls and lanes the task's parts are. Afterwards all schedules and links are there.
static ncclResult_t measure_blocks(struct ncclComm *comm, const tt_task *t, int *calls, int *lanes)
{
  tt_task part;
  tt_decision d;
  *calls = *lanes = 0;
  for (int i = 0; i < tt_blocks_parts(t); i++) {
    if (tt_blocks_part(t, i, &part)) {
      TT_TRY(decide_part(comm, &part, &d));
      *calls += 1;
      *lanes += d.lanes;
    }
  }
  return ncclSuccess;
}

// Adds a part, which has been decided, to the plan. Its messages have the task's fingerprint, and the part's count.
static ncclResult_t add_part(struct ncclComm *comm, tt_plan *p, const tt_task *t, const tt_task *part, uint32_t seq)
{
  tt_call *c = &p->calls[p->ncalls++];
  tt_lane *none = NULL;
  tt_call_fill(part, seq, c);
  c->sig = tt_sig_make(seq, tt_func_base(t->func), t->type, (int)(c->sig >> 8 & 15), t->root) | TT_SIG_BLOCKS;
  c->sig_count = part->count;
  c->empty = part->count == 0;
  p->work.takes_us = TT_MAX(p->work.takes_us, tt_tuning_takes_us(comm, tt_task_bytes(part)));
  return add_lanes(comm, p, c, part, &none);
}

// Profilers are told of one operation, with the algorithm of its first part.
static ncclResult_t add_blocks(struct ncclComm *comm, tt_plan *p, tt_task *t, uint32_t seq, tt_launch_events *l)
{
  struct tt_task_events *events = t->events;
  tt_task part;
  tt_decision d;
  for (int i = 0; i < tt_blocks_parts(t); i++) {
    if (!tt_blocks_part(t, i, &part)) {
      continue;
    }
    TT_TRY(decide_part(comm, &part, &d));
    if (l != NULL && p->ncalls == 0) {
      tt_profile_op_start(l, t, &d, 0);
    }
    part.events = events;
    if (p->stage_bytes > 0 && part.in != NULL && part.count > 0) { // the plan copies the input to its scratch first
      part.in = p->scratch + ((const char *)part.in - (const char *)t->in);
    }
    TT_TRY(add_part(comm, p, t, &part, seq));
  }
  if (l != NULL && p->ncalls > 0) {
    tt_profile_op_lanes(l, p->calls, NULL, 0);
  }
  return ncclSuccess;
}

// Launches a collective whose blocks have lengths of their own: one plan with all its parts.
static __attribute__((noinline)) ncclResult_t launch_blocks(struct ncclComm *comm, tt_task *task)
{
  tt_launch_events events, *reported = task->events != NULL ? &events : NULL;
  tt_task t = *task;
  tt_stream *stream;
  tt_plan *p;
  int calls, lanes;
  size_t staged = tt_blocks_staged(&t);
  TT_TRY(comm->port.row->get(t.stream, &comm->port, tt_func_name(t.func), &stream));
  TT_TRY(measure_blocks(comm, &t, &calls, &lanes));
  uint32_t seq = tt_comm_next(comm);
  __atomic_store_n(&comm->counts.sequence, seq, __ATOMIC_RELAXED);
  TT_TRY(plan_get(comm, stream, calls, lanes, staged, &p));
  tt_comm_count(&comm->counts.calls[t.func]);
  if (staged > 0) {
    p->stage_src = t.in;
    p->stage_bytes = staged;
  }
  launch_record(comm, p, &t, launch_time(comm));
  if (TT_UNLIKELY(reported != NULL)) {
    tt_profile_plan_start(reported, comm, p);
  }
  ncclResult_t res = add_blocks(comm, p, &t, seq, reported);
  task->events = t.events; // the plan may have taken them over
  return end_plan(comm, p, reported, stream, t.stream, res);
}

// --- messages

// One stream for the group's messages: the first one's; work on the others is ordered with it.
static ncclResult_t join_streams(const struct ncclComm *comm, const tt_task *tasks, size_t n, cudaStream_t main,
                                 bool before)
{
  for (size_t i = 0; i < n; i++) {
    tt_stream *s, *m;
    if (!tt_func_is_message(tasks[i].func) || TT_LIKELY(tasks[i].stream == main)) {
      continue;
    }
    TT_TRY(comm->port.row->get(tasks[i].stream, &comm->port, tt_func_name(tasks[i].func), &s));
    TT_TRY(comm->port.row->get(main, &comm->port, tt_func_name(tasks[i].func), &m));
    if (s != m) {
      TT_TRY(before ? comm->port.row->order(s, m) : comm->port.row->order(m, s));
    }
  }
  return ncclSuccess;
}

// The last lane of a message's direction of its connection, in the plan that is being made.
static inline tt_lane **flow_of(const struct ncclComm *comm, const tt_task *t)
{
  return &comm->plans.flows[2 * t->root + (t->func == TT_FUNC_SEND)];
}

// Is it a message that is still to be launched?
static bool is_open_message(const tt_task *t)
{
  return tt_func_is_message(t->func) && t->count > 0 && !t->over;
}

static ncclResult_t add_messages(struct ncclComm *comm, tt_plan *p, tt_task *tasks, size_t n, tt_launch_events *l)
{
  const uint64_t now = launch_time(comm);
  for (size_t i = 0; i < n; i++) {
    if (is_open_message(&tasks[i])) {
      TT_TRY(launch_decide(comm, &tasks[i], 0));
      tt_call_fill(&tasks[i], 0, &p->calls[p->ncalls++]);
      launch_record(comm, p, &tasks[i], now);
      TT_TRY(add_operation(comm, p, &tasks[i], flow_of(comm, &tasks[i]), l));
    }
  }
  return ncclSuccess;
}

// Sends and receives of one group run side by side; those to the same peer in the same direction one after the other.
static __attribute__((noinline)) ncclResult_t launch_p2p(struct ncclComm *comm, tt_task *tasks, size_t n, int messages)
{
  tt_launch_events events, *reported = NULL;
  tt_plan *p;
  const tt_task *first = tasks;
  tt_stream *stream;
  bool apart = false; // several streams
  for (size_t i = n; i-- > 0;) {
    if (is_open_message(&tasks[i])) {
      first = &tasks[i];
      *flow_of(comm, first) = NULL;
    }
    reported = tasks[i].events != NULL ? &events : reported;
    apart |= tasks[i].stream != tasks->stream;
  }
  TT_TRY(comm->port.row->get(first->stream, &comm->port, tt_func_name(first->func), &stream));
  // A wrong stream is found before anything is posted to the proxy.
  TT_TRY(apart ? join_streams(comm, tasks, n, first->stream, true) : ncclSuccess);
  TT_TRY(plan_get(comm, stream, messages, messages, 0, &p));
  if (TT_UNLIKELY(reported != NULL)) {
    tt_profile_plan_start(reported, comm, p);
  }
  TT_TRY(end_plan(comm, p, reported, stream, first->stream, add_messages(comm, p, tasks, n, reported)));
  return apart ? join_streams(comm, tasks, n, first->stream, false) : ncclSuccess;
}

// How many of the tasks are collectives: a tuner asks for that.
static size_t count_collectives(const tt_task *tasks, size_t n)
{
  size_t collectives = 0;
  for (size_t i = 0; i < n; i++) {
    collectives += tasks[i].count > 0 && !tt_func_is_message(tasks[i].func);
  }
  return collectives;
}

// Launches a collective, unless it is over. `collectives`: of the group; not looked at where no tuner is asked.
static __attribute__((noinline)) ncclResult_t launch_task(struct ncclComm *comm, tt_task *t, size_t collectives,
                                                          unsigned looks)
{
  if (TT_UNLIKELY(t->blocks != NULL)) {
    return launch_blocks(comm, t);
  }
  if (t->count == 0 || t->over || (!t->begun && !comm->tuned && TT_LIKELY(tt_comm_run(t, looks)))) {
    return ncclSuccess;
  }
  ncclResult_t res = launch_collective(comm, t, collectives, looks);
  return TT_LIKELY(res == ncclSuccess) ? res : tt_comm_run_failed(comm, t, 1, res);
}

// Launches the collectives among the tasks. Returns at the first failure; *messages: are there any?
static inline ncclResult_t launch_collectives(struct ncclComm *comm, tt_task *tasks, size_t n, unsigned looks,
                                              bool *messages)
{
  size_t collectives = comm->tuned ? count_collectives(tasks, n) : 0;
  for (size_t i = 0; i < n; i++) {
    tt_task *t = &tasks[i];
    if (tt_func_is_message(t->func)) {
      *messages |= is_open_message(t);
    } else {
      TT_TRY(launch_task(comm, t, collectives, looks));
    }
  }
  return ncclSuccess;
}

static inline ncclResult_t launch_plan(struct ncclComm *comm, tt_task *tasks, size_t n, unsigned looks)
{
  bool messages = false;
  TT_TRY(launch_collectives(comm, tasks, n, looks, &messages));
  int left = 0;
  if (messages) {
    TT_TRY(tt_comm_run_messages(tasks, n, looks, &left));
  }
  if (TT_LIKELY(left == 0)) {
    return ncclSuccess;
  }
  ncclResult_t res = launch_p2p(comm, tasks, n, left);
  return TT_LIKELY(res == ncclSuccess) ? res : tt_comm_run_failed(comm, tasks, n, res);
}

// The same while some stream of the process is captured.
static __attribute__((noinline)) ncclResult_t launch_or_capture(struct ncclComm *comm, tt_task *tasks, size_t n,
                                                                unsigned looks)
{
  bool captured = false;
  TT_TRY(tt_comm_capture(comm, tasks, n, &captured));
  return captured ? ncclSuccess : launch_plan(comm, tasks, n, looks);
}

ncclResult_t tt_comm_launch(struct ncclComm *comm, tt_task *tasks, size_t n, unsigned looks)
{
  comm->attempts.now = 0;
  if (tt_capturing()) {
    return launch_or_capture(comm, tasks, n, looks);
  }
  return n == 1 && !tt_func_is_message(tasks->func) ? launch_task(comm, tasks, 1, looks)
                                                    : launch_plan(comm, tasks, n, looks);
}
