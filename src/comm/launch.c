// launch.c: from operations to plans: chooses the algorithm, has its schedule found, makes lanes, and queues the plan on the stream.
#include "base/log.h"
#include "base/result.h"
#include "coll/zerocopy.h"
#include "comm/collnet.h"
#include "comm/comm.h"
#include "comm/profile.h"

static bool is_p2p(const tt_task *t)
{
  return t->func == TT_FUNC_SEND || t->func == TT_FUNC_RECV;
}

// --- plans

// Called by whoever completed the plan. After the last line the communicator may be gone. A plan that is complete before its launch
// returns goes back without atomics: the launching thread owns the free list, and knows that nobody waits for the plan.
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
  while (!atomic_compare_exchange_weak_explicit(&comm->plans.returned, &p->next, p, memory_order_release, memory_order_relaxed)) {
  }
  if (atomic_fetch_add(&comm->plans.recycled, 1) & TT_FLUSHING) {
    comm->port.row->wake();
  }
}

static void plan_free(tt_plan *p)
{
  tt_free(p->calls);
  tt_free(p->lanes);
  p->port->row->scratch_free(p->scratch);
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
    p->port->row->scratch_free(p->scratch);
    p->scratch = p->port->row->scratch_alloc(scratch);
    p->scratch_size = p->scratch == NULL ? 0 : scratch;
  }
  return p->max_calls >= calls && p->max_lanes >= lanes && p->scratch_size >= scratch;
}

// An empty plan with room for so many calls, lanes and bytes of scratch.
static ncclResult_t plan_get(struct ncclComm *comm, int calls, int lanes, size_t scratch, tt_plan **out)
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
    return tt_fail(ncclSystemError, "rank %d: no memory for an operation (%d calls, %d lanes, %zu bytes of scratch)", comm->rank, calls,
                   lanes, scratch);
  }
  p->work.takes_us = 0;
  p->watch = NULL;
  p->started = false;
  p->stage_bytes = 0;
  p->ncalls = p->nlanes = 0;
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
  for (int i = 0; i < TT_KNOWN_SETS; i++) {
    for (int k = 0; comm->decisions.sets[i] != NULL && k < TT_KNOWN_WAYS; k++) {
      tt_free(comm->decisions.sets[i][k].ready.quick);
    }
    tt_free(comm->decisions.sets[i]);
  }
}

// Frees a plan that will not run. The peers have been promised messages of its lanes, and the proxy knows where they were to come from and
// go to.
static void plan_drop(struct ncclComm *comm, tt_plan *p, ncclResult_t why)
{
  if (comm->port.mover != NULL && p->nlanes > 0) {
    tt_port_stop(&comm->port, why);
    comm->port.mover->settle(comm->port.mover_self);
  }
  plan_free(p);
}

static void plan_push(struct ncclComm *comm, tt_plan *p, tt_stream *stream)
{
  p->ticket = comm->plans.issued++;
  comm->port.row->submit(p, stream);
  if (comm->port.mover != NULL) {
    comm->port.mover->kick(comm->port.mover_self, true); // should nobody wait for the stream
  }
}

// --- calls and lanes

// Fills the call. Functions that only copy count in bytes, so that both sides cut messages alike whatever their types.
static void fill_call(const tt_task *t, uint32_t seq, tt_call *c)
{
  size_t esize = tt_type_size(t->type);
  int op = 6; // "none" in messages
  c->in = t->in;
  c->out = t->out;
  c->in_mem = c->out_mem = 0;
  c->scalar = NULL;
  c->tmp = NULL;
  c->fetched = false;
  atomic_store_explicit(&c->open, false, memory_order_relaxed);
  if (tt_func_reduces(t->func)) {
    op = TT_MIN((int)t->op, ncclNumOps);
    c->count = t->count;
    c->esize = esize;
    tt_op_resolve(t, &c->op, &c->scalar);
  } else {
    c->count = t->count * esize;
    c->esize = 1;
    c->op.prescale = 0;
    c->op.scalar = 0;
  }
  if (is_p2p(t)) {
    c->sig = tt_sig_make(0, TT_FUNC_SEND, ncclInt8, op, 0);
    c->sig_count = c->count;
  } else {
    c->sig = tt_sig_make(seq, t->func, t->type, op, t->root);
    c->sig_count = t->count;
  }
}

// Where the buffers lie, for peers that map them.
static void find_memory(const tt_device_ops *row, const tt_schedule *s, tt_call *c)
{
  c->in_mem = row->find(c->in, (size_t)TT_MAX(s->in_blocks, 1) * c->count * c->esize);
  c->out_mem = row->find(c->out, (size_t)TT_MAX(s->out_blocks, 1) * c->count * c->esize);
}

// Large buffers that come back get huge pages. In place one may be the beginning of the other.
static void use_buffers(tt_pages *pages, const tt_schedule *s, const tt_call *c)
{
  size_t block = c->count * c->esize, in = (size_t)s->in_blocks * block, out = (size_t)s->out_blocks * block;
  bool same = c->in == c->out;
  tt_pages_use(pages, &(tt_pages_call){.in = c->in, .in_bytes = same ? 0 : in, .out = c->out, .out_bytes = same ? TT_MAX(in, out) : out});
}

// Shall the results of a call over `bytes` bytes bypass the caches? Sums gain nothing from being stored there.
static inline bool bypasses(struct ncclComm *comm, tt_func func, const tt_call *c, int blocks, size_t bytes)
{
  if (TT_LIKELY(bytes < comm->machine.stream_bytes)) {
    return false;
  }
  bool cached = tt_reuse_cached(&comm->results.reuse, c->out != NULL ? c->out : c->in, (size_t)blocks * c->count * c->esize);
  return !cached || tt_func_reduces(func);
}

// That a rank reads and writes.
static inline int blocks_of(const tt_schedule *s, const tt_call *c)
{
  return c->in == c->out ? TT_MAX(s->in_blocks, s->out_blocks) : s->in_blocks + s->out_blocks;
}

// Tells the proxy what a lane will send and receive over the network. Called in the order of the lanes, which is the order on both sides.
static ncclResult_t post_traffic(struct ncclComm *comm, const tt_cached *cached, const tt_lane *l, int channel, uint64_t opcount)
{
  const tt_call *c = l->call;
  uint64_t passes = TT_DIV_UP(l->end - l->pos, (size_t)l->sched->nsub * l->max_chunk);
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
static unsigned zerocopy_flags(const tt_cached *cached, tt_proto proto, const tt_call *c)
{
  if (TT_LIKELY(cached->ntraffic == 0) || proto != TT_SIMPLE) {
    return 0;
  }
  switch (tt_zerocopy_buffers(cached->sched, c->in, c->out, c->count * c->esize)) {
  case TT_BUFFERS_APART: return TT_STEP_LEND | TT_STEP_PLACE;
  case TT_BUFFERS_IN_PLACE: return TT_STEP_LEND_IN_PLACE | TT_STEP_PLACE_IN_PLACE;
  default: return 0;
  }
}

// Elements of a chunk.
static inline size_t chunk_of(const tt_decision *d, const tt_call *c)
{
  return TT_MAX(d->choice.chunk >> __builtin_ctzl(c->esize), 1);
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

static inline tt_proto fifo_of(const tt_choice *c)
{
  return c->tiny ? TT_TINY : c->proto;
}

// Adds one lane per strand of the channel's schedule. Inlined, so that one channel pays nothing for there being several elsewhere.
static inline __attribute__((always_inline)) ncclResult_t add_part(struct ncclComm *comm, tt_plan *p, tt_call *c, const channel_part *part)
{
  const tt_cached *cached = part->cached;
  const tt_schedule *s = cached->sched;
  unsigned zerocopy = zerocopy_flags(cached, part->proto, c);
  for (int i = 0; i < s->nstrands; i++) {
    tt_lane *l = &p->lanes[p->nlanes++];
    tt_lane_init(l, s, i, c, part->chunk, part->proto);
    if (!part->whole) {
      tt_lane_share(l, part->begin, part->end);
      l->nafter = part->nafter;
    }
    l->after = part->after;
    l->lends = zerocopy & (TT_STEP_LEND | TT_STEP_LEND_IN_PLACE);
    l->places = zerocopy & (TT_STEP_PLACE | TT_STEP_PLACE_IN_PLACE);
    if (TT_LIKELY(!l->done)) {
      tt_plan_add(p, l, part->flow != NULL ? *part->flow : NULL);
      if (part->flow != NULL) {
        *part->flow = l;
      }
    }
    if (TT_UNLIKELY(cached->ntraffic > 0) && !l->done) {
      ncclResult_t res = post_traffic(comm, cached, l, part->channel, comm->plans.issued);
      if (res != ncclSuccess) {
        return res;
      }
    }
  }
  return ncclSuccess;
}

// Adds the lanes of several channels, which run one after the other. Each gets whole passes, so that together they take as many as one
// would.
static __attribute__((noinline)) ncclResult_t add_channels(struct ncclComm *comm, tt_plan *p, tt_call *c, const tt_decision *d)
{
  channel_part part = {.cached = d->cached, .chunk = chunk_of(d, c), .proto = fifo_of(&d->choice)};
  size_t pass = (size_t)d->cached->sched->nsub * part.chunk, passes = TT_DIV_UP(c->count, pass), channels = (size_t)d->choice.channels;
  int first = p->nlanes;
  for (size_t i = 0; i < channels; i++) {
    part.begin = TT_MIN(passes * i / channels * pass, c->count);
    part.end = TT_MIN(passes * (i + 1) / channels * pass, c->count);
    part.channel = (int)i;
    part.after = p->nlanes - 1;
    part.nafter = p->nlanes - first;
    TT_TRY(add_part(comm, p, c, &part));
    part.cached = part.cached->next_channel;
  }
  return ncclSuccess;
}

// Adds the lanes of an operation. Those of one `flow` (NULL: no message) run one after the other.
static ncclResult_t add_lanes(struct ncclComm *comm, tt_plan *p, tt_call *c, const tt_decision *d, tt_lane **flow)
{
  if (TT_UNLIKELY(d->choice.channels > 1)) {
    return add_channels(comm, p, c, d);
  }
  channel_part part = {.cached = d->cached, .chunk = chunk_of(d, c), .proto = fifo_of(&d->choice), .whole = true, .flow = flow};
  part.after = -1;
  part.channel = flow == NULL ? 0 : p->nlanes % TT_MESSAGE_CHANNELS;
  return add_part(comm, p, c, &part);
}

size_t tt_task_bytes(const tt_task *t)
{
  tt_func f = t->func;
  bool one = f == TT_FUNC_BROADCAST || f == TT_FUNC_REDUCE || f == TT_FUNC_ALLREDUCE || f == TT_FUNC_SEND || f == TT_FUNC_RECV;
  return t->count * tt_type_size(t->type) * (one ? 1 : (size_t)t->comm->nranks);
}

static bool same_choice(const tt_choice *a, const tt_choice *b)
{
  return a->algo == b->algo && a->proto == b->proto && a->chunk == b->chunk && a->channels == b->channels;
}

// What was chosen goes with the messages, in case another rank's plugin chooses something else.
static void mark_choice(tt_call *call, const tt_choice *c)
{
  uint64_t words[] = {(uint64_t)c->algo, (uint64_t)c->proto, c->chunk, (uint64_t)c->channels};
  call->sig_count = tt_sig_count_mark(call->sig_count, tt_hash(words, sizeof words, 12), c->decided);
}

// The task's lanes, from number `first` on, leave out what has been run already.
static inline void skip_done(tt_plan *p, int first, const tt_task *t)
{
  for (int i = 0; t->begun && i < TT_QUICK_STRANDS && first + i < p->nlanes; i++) {
    tt_lane_skip(&p->lanes[first + i], t->done.steps[i]);
  }
}

static void forget(tt_decision *d)
{
  d->made = false;
  d->ready.state = TT_READY_NEW;
}

// A place in a set: a free one; else, going round, that of the first decision which was not used since the last search.
static tt_decision *place_in(struct ncclComm *comm, tt_decision *set)
{
  for (tt_decision *d = set; d < set + TT_KNOWN_WAYS; d++) {
    if (!d->made) {
      return d;
    }
  }
  tt_decision *d = &set[++comm->decisions.hand % TT_KNOWN_WAYS];
  for (; d->used; d = &set[++comm->decisions.hand % TT_KNOWN_WAYS]) {
    d->used = false;
  }
  return d;
}

// Gives the task a decision that is still to be made.
static ncclResult_t claim(struct ncclComm *comm, tt_task *t)
{
  tt_decision **set = &comm->decisions.sets[tt_known_set(t->count, t->kind)];
  if (*set == NULL) {
    *set = tt_calloc(TT_KNOWN_WAYS, sizeof **set);
  }
  if (*set == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for the choice of an algorithm of %s", comm->rank, tt_func_name(t->func));
  }
  tt_decision *d = place_in(comm, *set);
  forget(d);
  d->count = t->count;
  d->kind = t->kind;
  t->known = d;
  return ncclSuccess;
}

// Chooses, and finds the schedules, unless the choice is the same as before. `asks`: a tuner plugin, each time.
static __attribute__((noinline)) ncclResult_t choose(struct ncclComm *comm, const tt_task *t, size_t ops, bool asks, tt_decision *d)
{
  size_t bytes = tt_task_bytes(t);
  tt_choice c;
  TT_TRY(asks ? tt_tuning_choose_task(comm, t, ops, &c) : tt_tuning_choose(comm, t->func, bytes, t->root, d->in_network, &c));
  if (!d->made || !same_choice(&d->choice, &c)) {
    forget(d);
    d->choice = c;
    TT_TRY(tt_comm_schedules(comm, t->func, t->root, d));
    d->takes_us = tt_tuning_takes_us(comm, bytes);
    d->made = true;
  }
  d->choice.decided = c.decided;
  return ncclSuccess;
}

// Algorithm and schedule for an operation: those of the last one like it, else new ones. `ops`: collectives of the group.
static ncclResult_t decide(struct ncclComm *comm, tt_task *t, size_t ops, tt_decision **out)
{
  bool in_network = TT_UNLIKELY(comm->network.reduce != NULL) && !is_p2p(t) && tt_comm_collnet_allows(comm, t->func, t->type, t->op);
  bool asks = TT_UNLIKELY(comm->tuned) && !is_p2p(t);
  if (TT_UNLIKELY(!tt_task_is_known(t))) { // one may have been made since
    tt_comm_recall(comm, t);
  }
  if (TT_UNLIKELY(t->known == NULL)) {
    TT_TRY(claim(comm, t));
  }
  tt_decision *d = *out = t->known;
  d->used = true;
  if (TT_UNLIKELY(d->in_network != in_network)) { // of user-defined operations some may be summed there
    forget(d);
    d->in_network = in_network;
  }
  return TT_LIKELY(d->made && !asks) ? ncclSuccess : choose(comm, t, ops, asks, d);
}

// Adds the operation's lanes to the plan, and tells profilers of them. `channel`: number of the first one, to profilers.
static ncclResult_t add_lanes_profiled(tt_launch_events *l, tt_task *t, tt_call *c, const tt_decision *d, tt_lane **flow)
{
  int first = l->plan->nlanes;
  tt_profile_op_start(l, t, d, flow != NULL ? first : 0);
  TT_TRY(add_lanes(l->comm, l->plan, c, d, flow));
  tt_profile_op_lanes(l, c, d, first);
  return ncclSuccess;
}

static void push_profiled(tt_launch_events *l, tt_stream *stream, cudaStream_t handle)
{
  tt_profile_push_start(l, handle);
  plan_push(l->comm, l->plan, stream);
  tt_profile_push_stop(l);
}

// The end of launch_collective where profilers are told.
static __attribute__((noinline)) ncclResult_t launch_profiled(struct ncclComm *comm, tt_plan *p, tt_task *t, const tt_decision *d,
                                                              tt_stream *stream)
{
  tt_launch_events l;
  tt_profile_plan_start(&l, comm, p);
  ncclResult_t res = add_lanes_profiled(&l, t, &p->calls[0], d, NULL);
  if (res == ncclSuccess) {
    push_profiled(&l, stream, t->stream);
  } else {
    tt_profile_plan_drop(&l);
    plan_drop(comm, p, res);
  }
  return res;
}

static __attribute__((noinline)) ncclResult_t launch_collective(struct ncclComm *comm, tt_task *t, size_t ops)
{
  tt_decision *d;
  tt_plan *p;
  tt_stream *stream;
  TT_TRY(comm->port.row->get(t->stream, comm->device, tt_func_name(t->func), &stream));
  size_t bytes = tt_task_bytes(t);
  TT_TRY(decide(comm, t, ops, &d));
  const tt_schedule *s = d->cached->sched;
  uint32_t seq = comm->counts.sequence = tt_comm_next(comm);
  bool staged = t->func == TT_FUNC_ALLTOALL && t->in == t->out;
  size_t scratch = staged ? bytes : (size_t)d->ntmp * d->choice.chunk;
  TT_TRY(plan_get(comm, 1, d->lanes, scratch, &p));
  tt_call *c = &p->calls[p->ncalls++];
  ncclResult_t res;
  fill_call(t, seq, c);
  if (TT_UNLIKELY(comm->tuned)) {
    mark_choice(c, &d->choice);
  }
  c->tmp = p->scratch;
  c->fetched = t->func == TT_FUNC_ALLREDUCE && d->choice.fetches;
  c->stream_given = bypasses(comm, t->func, c, blocks_of(s, c), bytes);
  c->stream = c->stream_given && !c->fetched;
  p->work.takes_us = d->takes_us;
  if (staged) {
    p->stage_src = t->in;
    p->stage_bytes = bytes;
    c->in = p->scratch;
  } else if (d->choice.direct && !comm->machine.all_local) {
    find_memory(comm->port.row, s, c);
  }
  if (bytes >= comm->results.huge_pages.least) {
    use_buffers(&comm->results.huge_pages, s, c);
  }
  comm->counts.calls[t->func]++;
  c->event = t->events;
  if (TT_UNLIKELY(t->events != NULL)) {
    return launch_profiled(comm, p, t, d, stream);
  }
  TT_TRY_GOTO(add_lanes(comm, p, c, d, NULL), res);
  tt_comm_quick_learn(t, p->lanes, d);
  skip_done(p, 0, t);
  plan_push(comm, p, stream);
  return ncclSuccess;
fail:
  plan_drop(comm, p, res);
  return res;
}

// One stream for the group's messages: the first one's; work on the others is ordered with it.
static ncclResult_t join_streams(const struct ncclComm *comm, const tt_task *tasks, size_t n, cudaStream_t main, bool before)
{
  for (size_t i = 0; i < n; i++) {
    tt_stream *s, *m;
    if (!is_p2p(&tasks[i]) || TT_LIKELY(tasks[i].stream == main)) {
      continue;
    }
    TT_TRY(comm->port.row->get(tasks[i].stream, comm->device, tt_func_name(tasks[i].func), &s));
    TT_TRY(comm->port.row->get(main, comm->device, tt_func_name(tasks[i].func), &m));
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

// `l` NULL: profilers are not told.
static ncclResult_t add_message(struct ncclComm *comm, tt_plan *p, tt_task *t, tt_launch_events *l)
{
  tt_decision *d;
  tt_call *c = &p->calls[p->ncalls];
  fill_call(t, 0, c);
  TT_TRY(decide(comm, t, 0, &d));
  if (d->choice.direct && !comm->machine.all_local) {
    find_memory(comm->port.row, d->cached->sched, c);
  }
  if (c->count >= comm->results.huge_pages.least) {
    use_buffers(&comm->results.huge_pages, d->cached->sched, c);
  }
  c->stream = bypasses(comm, t->func, c, 1, c->count);
  p->work.takes_us = TT_MAX(p->work.takes_us, d->takes_us);
  p->ncalls++;
  c->event = t->events;
  tt_lane **flow = flow_of(comm, t);
  if (TT_UNLIKELY(l != NULL)) {
    return add_lanes_profiled(l, t, c, d, flow);
  }
  TT_TRY(add_lanes(comm, p, c, d, flow));
  tt_comm_quick_learn(t, &p->lanes[p->nlanes - 1], d);
  skip_done(p, p->nlanes - 1, t);
  return ncclSuccess;
}

// Is it a message that is still to be launched?
static bool is_open_message(const tt_task *t)
{
  return is_p2p(t) && t->count > 0 && !t->over;
}

// Sends and receives of one group run side by side; those to the same peer in the same direction one after the other.
static __attribute__((noinline)) ncclResult_t launch_p2p(struct ncclComm *comm, tt_task *tasks, size_t n, int messages)
{
  tt_launch_events events, *told = NULL;
  tt_plan *p;
  const tt_task *first = NULL;
  tt_stream *stream;
  ncclResult_t res = ncclSuccess;
  TT_TRY(plan_get(comm, messages, messages, 0, &p));
  for (size_t i = n; i-- > 0;) {
    if (is_open_message(&tasks[i])) {
      first = &tasks[i];
      *flow_of(comm, first) = NULL;
    }
    told = tasks[i].events != NULL ? &events : told;
  }
  if (TT_UNLIKELY(told != NULL)) {
    tt_profile_plan_start(told, comm, p);
  }
  TT_TRY_GOTO(comm->port.row->get(first->stream, comm->device, tt_func_name(first->func), &stream), res);
  TT_TRY_GOTO(join_streams(comm, tasks, n, first->stream, true), res); // a wrong stream is found before the proxy is told of anything
  for (size_t i = 0; i < n; i++) {
    if (is_open_message(&tasks[i])) {
      TT_TRY_GOTO(add_message(comm, p, &tasks[i], told), res);
    }
  }
  if (TT_UNLIKELY(told != NULL)) {
    push_profiled(told, stream, first->stream);
  } else {
    plan_push(comm, p, stream);
  }
  return join_streams(comm, tasks, n, first->stream, false);
fail:
  if (told != NULL) {
    tt_profile_plan_drop(told);
  }
  plan_drop(comm, p, res);
  return res;
}

// How many of the tasks are collectives: what a tuner is told.
static size_t count_collectives(const tt_task *tasks, size_t n)
{
  size_t collectives = 0;
  for (size_t i = 0; i < n; i++) {
    collectives += tasks[i].count > 0 && !is_p2p(&tasks[i]);
  }
  return collectives;
}

// Launches the collectives among the tasks. Returns at the first failure; *messages: are there any?
static inline ncclResult_t launch_collectives(struct ncclComm *comm, tt_task *tasks, size_t n, unsigned looks, bool *messages)
{
  size_t collectives = 0; // 0: not counted
  for (size_t i = 0; i < n; i++) {
    tt_task *t = &tasks[i];
    if (is_p2p(t)) {
      *messages |= is_open_message(t);
    } else if (t->count > 0 && !t->over && (t->begun || !tt_comm_quick(t, looks))) {
      collectives = comm->tuned && collectives == 0 ? count_collectives(tasks, n) : collectives;
      ncclResult_t res = launch_collective(comm, t, collectives);
      if (TT_UNLIKELY(res != ncclSuccess)) {
        return tt_comm_quick_failed(comm, t, 1, res);
      }
    }
  }
  return ncclSuccess;
}

static inline ncclResult_t launch(struct ncclComm *comm, tt_task *tasks, size_t n, unsigned looks)
{
  bool messages = false;
  TT_TRY(launch_collectives(comm, tasks, n, looks, &messages));
  int left = messages ? tt_comm_quick_messages(tasks, n, looks) : 0;
  if (TT_LIKELY(left == 0)) {
    return ncclSuccess;
  }
  ncclResult_t res = launch_p2p(comm, tasks, n, left);
  return TT_LIKELY(res == ncclSuccess) ? res : tt_comm_quick_failed(comm, tasks, n, res);
}

// The same while some stream of the process is captured.
static __attribute__((noinline)) ncclResult_t launch_or_capture(struct ncclComm *comm, tt_task *tasks, size_t n, unsigned looks)
{
  bool captured = false;
  TT_TRY(tt_comm_capture(comm, tasks, n, &captured));
  return captured ? ncclSuccess : launch(comm, tasks, n, looks);
}

ncclResult_t tt_comm_launch(struct ncclComm *comm, tt_task *tasks, size_t n, unsigned looks)
{
  return tt_capturing() ? launch_or_capture(comm, tasks, n, looks) : launch(comm, tasks, n, looks);
}
