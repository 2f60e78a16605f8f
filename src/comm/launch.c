// launch.c: from operations to plans: chooses the algorithm, finds its schedule, makes lanes, and queues the plan on the stream.
#include "base/log.h"
#include "base/result.h"
#include "coll/zerocopy.h"
#include "comm/comm.h"
#include "comm/profile.h"
#include "device/host/mem.h"
#include "device/host/stream.h"

#define STREAM_BYTES (4u << 20) // results from this size on are not kept in the caches

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
    p->next = comm->plans;
    comm->plans = p;
    comm->finished++;
    return;
  }
  p->next = atomic_load_explicit(&comm->returned, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(&comm->returned, &p->next, p, memory_order_release, memory_order_relaxed)) {
  }
  if (atomic_fetch_add(&comm->recycled, 1) & TT_FLUSHING) {
    tt_bell_fence();
    tt_bell_ring(&tt_process_bell);
  }
}

static void plan_free(tt_plan *p)
{
  tt_free(p->calls);
  tt_free(p->lanes);
  tt_free(p->scratch);
  tt_free(p);
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
    tt_free(p->scratch);
    p->scratch = tt_calloc_line(scratch);
    p->scratch_size = p->scratch == NULL ? 0 : scratch;
  }
  return p->max_calls >= calls && p->max_lanes >= lanes && p->scratch_size >= scratch;
}

// An empty plan with room for so many calls, lanes and bytes of scratch.
static ncclResult_t plan_get(struct ncclComm *comm, int calls, int lanes, size_t scratch, tt_plan **out)
{
  if (comm->plans == NULL) {
    comm->plans = atomic_exchange_explicit(&comm->returned, NULL, memory_order_acquire);
  }
  tt_plan *p = comm->plans;
  if (p != NULL) {
    comm->plans = p->next;
  } else {
    p = tt_calloc(1, sizeof *p);
  }
  if (p == NULL || !plan_reserve(p, calls, lanes, scratch)) {
    if (p != NULL) {
      plan_free(p);
    }
    return tt_fail(ncclSystemError, "rank %d: no memory for an operation (%d calls, %d lanes, %zu bytes of scratch)", comm->rank, calls,
                   lanes, scratch);
  }
  p->work = (tt_work){.ops = &tt_plan_ops};
  p->port = &comm->port;
  p->owner = comm;
  p->recycle = recycle;
  p->started = false;
  p->stage_bytes = 0;
  p->ncalls = p->nlanes = p->live = 0;
  *out = p;
  return ncclSuccess;
}

void tt_comm_free_plans(struct ncclComm *comm)
{
  tt_plan *lists[2] = {comm->plans, atomic_exchange_explicit(&comm->returned, NULL, memory_order_acquire)};
  for (int i = 0; i < 2; i++) {
    for (tt_plan *p = lists[i], *next; p != NULL; p = next) {
      next = p->next;
      plan_free(p);
    }
  }
  comm->plans = NULL;
  for (int i = 0; i < TT_CACHE_BUCKETS; i++) {
    for (tt_cached *c = comm->cache[i], *next; c != NULL; c = next) {
      next = c->next;
      if (!c->lent) {
        tt_schedule_free(c->sched);
        tt_free(c->traffic);
      }
      tt_free(c);
    }
    comm->cache[i] = NULL;
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
  p->ticket = comm->issued++;
  atomic_store_explicit(&comm->launcher, (uintptr_t)__builtin_thread_pointer(), memory_order_relaxed);
  tt_stream_push(stream, &p->work);
  atomic_store_explicit(&comm->launcher, 0, memory_order_relaxed);
  if (comm->port.mover != NULL) {
    comm->port.mover->kick(comm->port.mover_self, true); // should nobody wait for the stream
  }
}

// --- schedules

// Connects this rank with everybody the schedule mentions.
static ncclResult_t connect_peers(struct ncclComm *comm, const tt_schedule *s)
{
  for (int i = 0; i < s->nrefs; i++) {
    const tt_ref *r = &s->refs[i];
    if (r->kind >= TT_FIFO) {
      TT_TRY(tt_transport_connect(&comm->wiring, r->peer));
    }
  }
  return ncclSuccess;
}

// Counts one message of a strand between this rank and a peer on another machine.
static void count_message(tt_cached *c, int strand, int peer, bool send)
{
  tt_traffic *t = c->traffic;
  while (t < c->traffic + c->ntraffic && (t->strand != strand || t->peer != peer || t->send != send)) {
    t++;
  }
  if (t == c->traffic + c->ntraffic) {
    *t = (tt_traffic){.strand = strand, .peer = peer, .send = send};
    c->ntraffic++;
  }
  t->messages++;
}

// Counts the messages among `n` references of a strand.
static void count_refs(const struct ncclComm *comm, tt_cached *c, int strand, const tt_ref *refs, int n, bool send)
{
  for (int i = 0; i < n; i++) {
    if (refs[i].kind == TT_FIFO && comm->port.links[refs[i].peer]->networked) {
      count_message(c, strand, refs[i].peer, send);
    }
  }
}

// Adds step `i` once for every message of `peer` that it takes. Returns where the next one goes.
static uint32_t *list_step(const tt_schedule *s, uint32_t i, int peer, uint32_t *room)
{
  const tt_step *step = &s->steps[i];
  for (uint32_t r = step->src; r < step->src + step->nsrc; r++) {
    if (s->refs[r].kind == TT_FIFO && s->refs[r].peer == peer) {
      *room++ = i;
    }
  }
  return room;
}

// Which steps receive the messages of each row, in order: where they belong can be told before they come.
static void list_steps(tt_cached *c, uint32_t *room)
{
  const tt_schedule *s = c->sched;
  for (tt_traffic *t = c->traffic; t < c->traffic + c->ntraffic; t++) {
    const tt_strand *strand = &s->strands[t->strand];
    t->steps = room;
    for (uint32_t i = strand->first; i < strand->first + strand->count && !t->send; i++) {
      room = list_step(s, i, t->peer, room);
    }
  }
}

// Counts all messages in the rows of c->traffic, which has room for as many as there are references.
static void count_messages(const struct ncclComm *comm, tt_cached *c)
{
  const tt_schedule *s = c->sched;
  for (int k = 0; k < s->nstrands; k++) {
    for (uint32_t i = s->strands[k].first; i < s->strands[k].first + s->strands[k].count; i++) {
      const tt_step *step = &s->steps[i];
      count_refs(comm, c, k, s->refs + step->src, step->nsrc, false);
      count_refs(comm, c, k, s->refs + step->dst, step->ndst, true);
    }
  }
}

// What one pass of the schedule moves over the network: the proxy is told with each operation.
static ncclResult_t find_traffic(struct ncclComm *comm, tt_cached *c)
{
  if (comm->proxy == NULL || c->sched->nrefs == 0) {
    return ncclSuccess;
  }
  TT_TRY(tt_zerocopy_mark(c->sched));
  tt_traffic *rows = c->traffic = tt_calloc((size_t)c->sched->nrefs, sizeof *rows), *kept = NULL;
  size_t received = 0;
  if (rows != NULL) {
    count_messages(comm, c);
    for (int i = 0; i < c->ntraffic; i++) {
      received += rows[i].send ? 0 : rows[i].messages;
    }
    kept = tt_calloc(1, (size_t)c->ntraffic * sizeof *rows + received * sizeof(uint32_t) + 1); // rows, then steps
  }
  if (kept != NULL) {
    memcpy(kept, rows, (size_t)c->ntraffic * sizeof *rows);
    c->traffic = kept;
    list_steps(c, (uint32_t *)(kept + c->ntraffic));
    tt_free(rows);
  }
  return kept != NULL ? ncclSuccess
                      : tt_fail(ncclSystemError, "rank %d: no memory for a schedule of %s", comm->rank, tt_func_name(c->func));
}

static bool same_ref(const tt_ref *a, const tt_ref *b)
{
  return a->kind == b->kind && a->peer == b->peer && a->chunk == b->chunk;
}

// But for where buffers may be lent, which follows from the rest and is found later.
static bool same_step(const tt_step *a, const tt_step *b)
{
  const unsigned counts = TT_STEP_REDUCE | TT_STEP_FINAL;
  return (a->flags & counts) == (b->flags & counts) && a->nsrc == b->nsrc && a->ndst == b->ndst && a->sub == b->sub && a->src == b->src &&
         a->dst == b->dst;
}

static bool same_schedule(const tt_schedule *a, const tt_schedule *b)
{
  bool same = a->nranks == b->nranks && a->rank == b->rank && a->in_blocks == b->in_blocks && a->out_blocks == b->out_blocks &&
              a->nsub == b->nsub && a->ntmp == b->ntmp && a->nstrands == b->nstrands && a->nsteps == b->nsteps && a->nrefs == b->nrefs;
  for (int i = 0; same && i < a->nstrands; i++) {
    same = a->strands[i].first == b->strands[i].first && a->strands[i].count == b->strands[i].count;
  }
  for (int i = 0; same && i < a->nsteps; i++) {
    same = same_step(&a->steps[i], &b->steps[i]);
  }
  for (int i = 0; same && i < a->nrefs; i++) {
    same = same_ref(&a->refs[i], &b->refs[i]);
  }
  return same;
}

static tt_cached **cache_bucket(struct ncclComm *comm, tt_func func, int algo, int root, int channel)
{
  unsigned number = (unsigned)func * 7 + (unsigned)algo * 31 + (unsigned)root + (unsigned)channel * 13;
  return &comm->cache[number % TT_CACHE_BUCKETS];
}

static tt_cached *cache_find(struct ncclComm *comm, tt_func func, int algo, int root, int channel)
{
  tt_cached *c = *cache_bucket(comm, func, algo, root, channel);
  while (c != NULL && (c->func != func || c->algo != algo || c->root != root || c->channel != channel)) {
    c = c->next;
  }
  return c;
}

// Channels often come in pairs with the same order, or all have it: they share a schedule. Takes that of an earlier channel.
static bool borrow(struct ncclComm *comm, tt_cached *c)
{
  for (int channel = 0; channel < c->channel && !c->lent; channel++) {
    const tt_cached *other = cache_find(comm, c->func, c->algo, c->root, channel);
    if (other != NULL && !other->lent && same_schedule(other->sched, c->sched)) {
      tt_schedule_free(c->sched);
      c->sched = other->sched;
      c->traffic = other->traffic;
      c->ntraffic = other->ntraffic;
      c->lent = true;
    }
  }
  return c->lent;
}

// The schedule for (function, algorithm, root, channel), written and connected when first needed.
static ncclResult_t schedule_get(struct ncclComm *comm, tt_func func, int algo, int root, int channel, tt_cached **out)
{
  *out = cache_find(comm, func, algo, root, channel);
  if (TT_LIKELY(*out != NULL)) {
    return ncclSuccess;
  }
  tt_cached **bucket = cache_bucket(comm, func, algo, root, channel);
  const tt_algorithm *a = &tt_algorithms(NULL)[algo];
  bool placed = comm->layout->nnodes > 1 || tt_algorithm_channels(a, comm->layout) > 0;
  tt_shape shape = {
      .func = func, .rank = comm->rank, .nranks = comm->nranks, .root = root, .layout = placed ? comm->layout : NULL, .channel = channel};
  tt_cached *c = tt_calloc(1, sizeof *c);
  if (c == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for a schedule of %s", comm->rank, tt_func_name(func));
  }
  *c = (tt_cached){.func = func, .algo = algo, .root = root, .channel = channel, .next = *bucket};
  ncclResult_t res = a->write(&shape, &c->sched);
  bool lent = res == ncclSuccess && borrow(comm, c);
  if (res == ncclSuccess && !lent) {
    res = connect_peers(comm, c->sched);
  }
  if (res == ncclSuccess && !lent) {
    res = find_traffic(comm, c);
  }
  if (res != ncclSuccess) {
    tt_schedule_free(c->sched);
    tt_free(c->traffic);
    tt_free(c);
    return res;
  }
  *bucket = c;
  *out = c;
  return ncclSuccess;
}

// The schedules of all channels that the decision wants.
static ncclResult_t get_channels(struct ncclComm *comm, tt_func func, int root, tt_decision *d)
{
  tt_cached *last = NULL;
  d->lanes = d->ntmp = 0;
  for (int channel = 0; channel < d->choice.channels; channel++) {
    tt_cached *c = NULL;
    TT_TRY(schedule_get(comm, func, d->choice.algo, root, channel, &c));
    if (last == NULL) {
      d->cached = c;
    } else {
      last->next_channel = c;
    }
    d->lanes += c->sched->nstrands;
    d->ntmp = TT_MAX(d->ntmp, c->sched->ntmp);
    last = c;
  }
  return ncclSuccess;
}

// --- calls and lanes

// Fills the call. Functions that only copy count in bytes, so that both sides cut messages alike whatever their types.
static ncclResult_t fill_call(const struct ncclComm *comm, const tt_task *t, uint32_t seq, tt_call *c)
{
  size_t esize = tt_type_size(t->type);
  int op = 6; // "none" in messages
  c->in = t->in;
  c->out = t->out;
  c->in_mem = c->out_mem = 0;
  c->scalar = NULL;
  c->tmp = NULL;
  atomic_store_explicit(&c->open, false, memory_order_relaxed);
  if (tt_func_reduces(t->func)) {
    op = TT_MIN((int)t->op, ncclNumOps);
    c->count = t->count;
    c->esize = esize;
    TT_TRY(tt_op_resolve(comm, t->op, t->type, &c->op, &c->scalar));
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
  return ncclSuccess;
}

// Where the buffers lie, for peers that map them.
static void find_memory(const tt_schedule *s, tt_call *c)
{
  c->in_mem = tt_mem_find(c->in, (size_t)TT_MAX(s->in_blocks, 1) * c->count * c->esize, &c->in_off);
  c->out_mem = tt_mem_find(c->out, (size_t)TT_MAX(s->out_blocks, 1) * c->count * c->esize, &c->out_off);
}

// The last lane so far on the same connection and direction, or -1.
static int lane_before(const tt_plan *p, int flow)
{
  for (int i = p->nlanes - 1; i >= 0; i--) {
    if (p->lanes[i].flow == flow) {
      return i;
    }
  }
  return -1;
}

// Tells the proxy what a lane will send and receive over the network. Called in the order of the lanes, which is the order on both sides.
static ncclResult_t post_traffic(struct ncclComm *comm, const tt_cached *cached, const tt_lane *l, int channel, uint64_t opcount)
{
  const tt_call *c = l->call;
  uint64_t passes = TT_DIV_UP(l->end - l->pos, (size_t)l->sched->nsub * l->max_chunk);
  for (int i = 0; i < cached->ntraffic; i++) {
    const tt_traffic *t = &cached->traffic[i];
    if (l->strand != &l->sched->strands[t->strand]) {
      continue;
    }
    tt_proxy_op op = {.peer = t->peer,
                      .send = t->send,
                      .proto = l->fifo,
                      .channel = (uint8_t)channel,
                      .shared = cached->func >= TT_FUNC_ALLTOALL, // as NCCL: what is made of sends and receives
                      .nsteps = (uint32_t)(passes * t->messages),
                      .nbytes = (uint64_t)(l->end - l->pos) * c->esize * t->messages / (uint64_t)l->sched->nsub,
                      .opcount = opcount,
                      .sig = c->sig,
                      .count = c->sig_count,
                      .event = c->event != NULL ? tt_profile_event(c) : NULL,
                      .place = {.lane = t->send ? NULL : l, .steps = t->steps, .messages = t->messages}};
    TT_TRY(tt_proxy_post(comm->proxy, &op));
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
  int flow, after, nafter;
  int channel; // its number; of messages, which may be many, modulo TT_MESSAGE_CHANNELS
} channel_part;

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
    l->flow = part->flow;
    l->lends = zerocopy & (TT_STEP_LEND | TT_STEP_LEND_IN_PLACE);
    l->places = zerocopy & (TT_STEP_PLACE | TT_STEP_PLACE_IN_PLACE);
    p->live += !l->done;
    if (TT_UNLIKELY(cached->ntraffic > 0) && !l->done) {
      ncclResult_t res = post_traffic(comm, cached, l, part->channel, comm->issued);
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
  channel_part part = {.cached = d->cached, .chunk = chunk_of(d, c), .proto = d->choice.proto};
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

// Adds the lanes of an operation. Those of one `flow` (0: none) run one after the other.
static ncclResult_t add_lanes(struct ncclComm *comm, tt_plan *p, tt_call *c, const tt_decision *d, int flow)
{
  if (TT_UNLIKELY(d->choice.channels > 1)) {
    return add_channels(comm, p, c, d);
  }
  channel_part part = {.cached = d->cached, .chunk = chunk_of(d, c), .proto = d->choice.proto, .whole = true, .flow = flow};
  part.after = flow == 0 ? -1 : lane_before(p, flow);
  part.channel = flow == 0 ? 0 : p->nlanes % TT_MESSAGE_CHANNELS;
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

// The same with a tuner plugin, which is asked each time.
static __attribute__((noinline)) ncclResult_t decide_with_plugin(struct ncclComm *comm, const tt_task *t, size_t bytes, size_t ops,
                                                                 const tt_decision **out)
{
  tt_decision *d = &comm->last[t->func];
  tt_choice c;
  TT_TRY(tt_tuning_choose_task(comm, t, ops, &c));
  if (!d->made || d->bytes != bytes || d->root != t->root || !same_choice(&d->choice, &c)) {
    *d = (tt_decision){.bytes = bytes, .root = t->root, .choice = c};
    TT_TRY(get_channels(comm, t->func, t->root, d));
    d->made = true;
  }
  *out = d;
  return ncclSuccess;
}

// What was chosen goes with the messages, in case another rank's plugin chooses something else.
static void mark_choice(tt_call *call, const tt_choice *c)
{
  uint64_t words[] = {(uint64_t)c->algo, (uint64_t)c->proto, c->chunk, (uint64_t)c->channels};
  call->sig_count = tt_sig_count_mark(call->sig_count, tt_hash(words, sizeof words, 12));
}

// Algorithm and schedule for an operation: the last decision for this function when it fits, else a new one.
static ncclResult_t decide(struct ncclComm *comm, tt_func func, size_t bytes, int root, const tt_decision **out)
{
  tt_decision *d = &comm->last[func];
  if (TT_UNLIKELY(!d->made || d->bytes != bytes || d->root != root)) {
    d->made = false;
    TT_TRY(tt_tuning_choose(comm, func, bytes, root, &d->choice));
    TT_TRY(get_channels(comm, func, root, d));
    d->bytes = bytes;
    d->root = root;
    d->made = true;
  }
  *out = d;
  return ncclSuccess;
}

// Adds the operation's lanes to the plan, and tells profilers of them. `channel`: number of the first one, to profilers.
static ncclResult_t add_lanes_profiled(tt_launch_events *l, tt_task *t, tt_call *c, const tt_decision *d, int flow)
{
  int first = l->plan->nlanes;
  tt_profile_op_start(l, t, d, flow != 0 ? first : 0);
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
  ncclResult_t res = add_lanes_profiled(&l, t, &p->calls[0], d, 0);
  if (res == ncclSuccess) {
    push_profiled(&l, stream, t->stream);
  } else {
    tt_profile_plan_drop(&l);
    plan_drop(comm, p, res);
  }
  return res;
}

static ncclResult_t launch_collective(struct ncclComm *comm, tt_task *t, size_t ops)
{
  const tt_decision *d;
  tt_plan *p;
  tt_stream *stream;
  size_t bytes = tt_task_bytes(t);
  TT_TRY(tt_stream_get(t->stream, comm->device, &stream));
  TT_TRY(TT_UNLIKELY(comm->tuned) ? decide_with_plugin(comm, t, bytes, ops, &d) : decide(comm, t->func, bytes, t->root, &d));
  const tt_schedule *s = d->cached->sched;
  uint32_t seq = ++comm->sequence == 0 ? ++comm->sequence : comm->sequence;
  bool staged = t->func == TT_FUNC_ALLTOALL && t->in == t->out;
  size_t scratch = staged ? bytes : (size_t)d->ntmp * d->choice.chunk;
  TT_TRY(plan_get(comm, 1, d->lanes, scratch, &p));
  tt_call *c = &p->calls[p->ncalls++];
  ncclResult_t res = fill_call(comm, t, seq, c);
  if (res != ncclSuccess) {
    goto fail;
  }
  if (TT_UNLIKELY(comm->tuned)) {
    mark_choice(c, &d->choice);
  }
  c->tmp = p->scratch;
  bool fetched = t->func == TT_FUNC_ALLREDUCE && d->choice.fetches; // peers read the output while the call runs
  c->stream = bytes >= STREAM_BYTES && !fetched;
  if (staged) {
    p->stage_src = t->in;
    p->stage_bytes = bytes;
    c->in = p->scratch;
  } else if (d->choice.direct && !comm->all_local) {
    find_memory(s, c);
  }
  comm->calls[t->func]++;
  c->event = t->events;
  if (TT_UNLIKELY(t->events != NULL)) {
    return launch_profiled(comm, p, t, d, stream);
  }
  TT_TRY_GOTO(add_lanes(comm, p, c, d, 0), res);
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
    TT_TRY(tt_stream_get(tasks[i].stream, comm->device, &s));
    TT_TRY(tt_stream_get(main, comm->device, &m));
    if (s != m) {
      TT_TRY(before ? tt_stream_order(s, m) : tt_stream_order(m, s));
    }
  }
  return ncclSuccess;
}

// `l` NULL: profilers are not told.
static ncclResult_t add_message(struct ncclComm *comm, tt_plan *p, tt_task *t, tt_launch_events *l)
{
  const tt_decision *d;
  tt_call *c = &p->calls[p->ncalls];
  TT_TRY(fill_call(comm, t, 0, c));
  TT_TRY(decide(comm, t->func, c->count, t->root, &d));
  if (d->choice.direct && !comm->all_local) {
    find_memory(d->cached->sched, c);
  }
  c->stream = c->count >= STREAM_BYTES;
  p->ncalls++;
  c->event = t->events;
  int flow = 2 * (t->root + 1) + (t->func == TT_FUNC_SEND);
  return TT_UNLIKELY(l != NULL) ? add_lanes_profiled(l, t, c, d, flow) : add_lanes(comm, p, c, d, flow);
}

// Sends and receives of one group run side by side; those to the same peer in the same direction one after the other.
static ncclResult_t launch_p2p(struct ncclComm *comm, tt_task *tasks, size_t n, int messages)
{
  tt_launch_events events, *told = NULL;
  tt_plan *p;
  const tt_task *first = NULL;
  tt_stream *stream;
  ncclResult_t res = ncclSuccess;
  TT_TRY(plan_get(comm, messages, messages, 0, &p));
  for (size_t i = n; i-- > 0;) {
    first = is_p2p(&tasks[i]) && tasks[i].count > 0 ? &tasks[i] : first;
    told = tasks[i].events != NULL ? &events : told;
  }
  if (TT_UNLIKELY(told != NULL)) {
    tt_profile_plan_start(told, comm, p);
  }
  TT_TRY_GOTO(tt_stream_get(first->stream, comm->device, &stream), res);
  TT_TRY_GOTO(join_streams(comm, tasks, n, first->stream, true), res); // a wrong stream is found before the proxy is told of anything
  for (size_t i = 0; i < n; i++) {
    if (is_p2p(&tasks[i]) && tasks[i].count > 0) {
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

ncclResult_t tt_comm_launch(struct ncclComm *comm, tt_task *tasks, size_t n)
{
  int messages = 0;
  size_t collectives = 0;
  for (size_t i = 0; i < n && comm->tuned; i++) {
    collectives += tasks[i].count > 0 && !is_p2p(&tasks[i]);
  }
  for (size_t i = 0; i < n; i++) {
    if (tasks[i].count == 0) {
      continue;
    }
    if (is_p2p(&tasks[i])) {
      messages++;
    } else {
      TT_TRY(launch_collective(comm, &tasks[i], collectives));
    }
  }
  return messages > 0 ? launch_p2p(comm, tasks, n, messages) : ncclSuccess;
}
