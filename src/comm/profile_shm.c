// profile_shm.c: see profile_shm.h.
#include "comm/profile_shm.h"

#include "comm/comm.h"
#include "comm/schedules.h"

#include "base/param.h"
#include "os/proc.h"

// Messages between this rank and one peer in one pass of a strand. Those of a schedule are found once.
typedef struct tt_nearby {
  int strand, peer;
  bool send;
  uint32_t messages;
} tt_nearby;

typedef enum { IDLE, STARTED, THERE, MOVING } stage;

// The events of one lane, peer and direction.
typedef struct row {
  int peer;
  bool send, running;
  stage stage;           // of the message whose turn it is
  uint32_t nsteps, done; // messages
  int chunk;             // bytes of the longest
  tt_prof_transfer transfer;
  tt_prof_event step;
} row;

typedef struct reported_lane {
  struct tt_shm_events *events;
  int channel, nrows;
  row *rows;
} reported_lane;

struct tt_shm_events {
  tt_profilers *profilers;
  const tt_prof_event *parent;
  bool begun;
  int rank, nlanes, nrows, running; // running: rows that are
  reported_lane *lanes;
  row *rows;
};

// ---- what a schedule moves

// Is the reference a message, or a piece of one, between ranks that have memory in common? A network that reduces is no
// rank.
static bool is_near(const tt_port *port, const tt_ref *r)
{
  bool moves = r->kind == TT_FIFO || r->kind == TT_TOKEN || r->kind == TT_PEER_IN || r->kind == TT_PEER_OUT;
  return moves && r->peer != port->rank && !port->links[r->peer]->networked && port->links[r->peer]->behind == NULL;
}

static bool shm_is_message(const tt_ref *r)
{
  return r->kind == TT_FIFO || r->kind == TT_TOKEN;
}

static void count_ref(tt_cached *c, int strand, const tt_ref *r, bool send)
{
  tt_nearby *t = c->nearby;
  while (t < c->nearby + c->nnearby && (t->strand != strand || t->peer != r->peer || t->send != send)) {
    t++;
  }
  if (t == c->nearby + c->nnearby) {
    *t = (tt_nearby){.strand = strand, .peer = r->peer, .send = send};
    c->nnearby++;
  }
  t->messages += shm_is_message(r);
}

// Destinations that profilers hear of. Not those of a step that writes into the peer's output: then the peer has
// nothing to fetch, and profilers hear of the fetching.
static int reported_destinations(const tt_step *step)
{
  return step->flags & TT_STEP_PUT ? 0 : step->ndst;
}

static void count_refs(const tt_port *port, tt_cached *c, int strand, const tt_ref *refs, int n, bool send)
{
  for (int i = 0; i < n; i++) {
    if (is_near(port, &refs[i])) {
      count_ref(c, strand, &refs[i], send);
    }
  }
}

// False: no memory.
static bool find_nearby(const tt_port *port, tt_cached *c)
{
  const tt_schedule *s = c->sched;
  if (c->nearby != NULL) {
    return true;
  }
  c->nearby = tt_calloc((size_t)s->nrefs + 1, sizeof *c->nearby);
  for (int k = 0; k < s->nstrands && c->nearby != NULL; k++) {
    for (uint32_t i = s->strands[k].first; i < s->strands[k].first + s->strands[k].count; i++) {
      const tt_step *step = &s->steps[i];
      count_refs(port, c, k, s->refs + step->src, step->nsrc, false);
      count_refs(port, c, k, s->refs + step->dst, reported_destinations(step), true);
    }
  }
  return c->nearby != NULL;
}

// ---- an operation

bool tt_shm_wanted(const tt_profilers *p)
{
  return tt_params_get()->host_proxy_events && tt_profilers_want(p, ncclProfileProxyOp);
}

// The rows of one lane.
static void add_rows(tt_shm_events *e, reported_lane *t, const tt_lane *l, const tt_cached *c)
{
  uint64_t passes = TT_DIV_UP(l->end - l->begin, (size_t)l->sched->nsub * l->max_chunk);
  t->events = e;
  t->rows = &e->rows[e->nrows];
  for (int i = 0; i < c->nnearby && !l->done; i++) {
    const tt_nearby *n = &c->nearby[i];
    if (l->strand != &l->sched->strands[n->strand] || n->messages == 0) {
      continue;
    }
    uint64_t steps = passes * n->messages;
    t->rows[t->nrows++] = (row){.peer = n->peer,
                                .send = n->send,
                                .nsteps = (uint32_t)steps,
                                .chunk = (int)TT_MIN(tt_lane_longest(l), INT32_MAX)};
  }
  e->nrows += t->nrows;
}

static tt_shm_events *events_alloc(int nlanes, int nrows)
{
  tt_shm_events *e = tt_calloc(1, sizeof *e + (size_t)nlanes * sizeof(reported_lane) + (size_t)nrows * sizeof(row));
  if (e != NULL) {
    e->lanes = (reported_lane *)(e + 1);
    e->rows = (row *)(e->lanes + nlanes);
    e->nlanes = nlanes;
  }
  return e;
}

tt_shm_events *tt_shm_events_new(struct ncclComm *comm, const tt_plan *p, const tt_shm_lanes *lanes)
{
  int nrows = 0, nlanes = p->nlanes - lanes->first, n = 0;
  for (tt_cached *c = lanes->cached; n < nlanes; n += c->sched->nstrands, c = c->next_channel) {
    if (!find_nearby(&comm->port, c)) {
      return NULL;
    }
    nrows += c->nnearby;
  }
  tt_shm_events *e = nrows > 0 ? events_alloc(nlanes, nrows) : NULL;
  if (e == NULL) {
    return NULL;
  }
  e->rank = comm->rank;
  e->profilers = lanes->profilers;
  e->parent = lanes->parent;
  const tt_cached *c = lanes->cached;
  for (int i = 0, strand = 0, channel = lanes->channel; i < nlanes; i++) {
    e->lanes[i].channel = channel;
    add_rows(e, &e->lanes[i], &p->lanes[lanes->first + i], c);
    p->lanes[lanes->first + i].reported = &e->lanes[i];
    if (++strand == c->sched->nstrands) {
      strand = 0;
      channel++;
      c = c->next_channel;
    }
  }
  return e;
}

static void start_row(tt_shm_events *e, int channel, row *r)
{
  tt_prof_descr d = {.proxyOp = {.pid = tt_proc_self().pid,
                                 .channelId = (uint8_t)channel,
                                 .peer = r->peer,
                                 .nSteps = (int)r->nsteps,
                                 .chunkSize = r->chunk,
                                 .isSend = r->send}};
  r->running = true;
  r->transfer = (tt_prof_transfer){.profilers = e->profilers, .rank = e->rank};
  tt_prof_transfer_start(&r->transfer, &d, e->parent);
}

static void shm_events_begin(tt_shm_events *e)
{
  e->begun = true;
  e->running = e->nrows;
  for (int i = 0; i < e->nlanes; i++) {
    for (row *r = e->lanes[i].rows; r < e->lanes[i].rows + e->lanes[i].nrows; r++) {
      start_row(e, e->lanes[i].channel, r);
    }
  }
}

// Brings a message to a stage, by way of those before.
static void shm_message_reach(row *r, stage to, size_t bytes)
{
  if (r->stage == IDLE) {
    r->stage = STARTED;
    tt_prof_step_start(&r->transfer, r->done,
                       r->send ? ncclProfilerProxyStepSendGPUWait : ncclProfilerProxyStepRecvWait, &r->step);
  }
  if (r->stage < THERE && to >= THERE) {
    r->stage = THERE;
    tt_prof_step_state(&r->transfer, &r->step,
                       r->send ? ncclProfilerProxyStepSendPeerWait_v4 : ncclProfilerProxyStepRecvFlushWait,
                       r->send ? 0 : bytes);
  }
  if (r->stage < MOVING && to == MOVING) {
    r->stage = MOVING;
    tt_prof_step_state(&r->transfer, &r->step,
                       r->send ? ncclProfilerProxyStepSendWait : ncclProfilerProxyStepRecvGPUWait, bytes);
  }
}

// The last operation of the lanes stays until the end, where KernelCh events are reported.
static void message_ends(tt_shm_events *e, row *r)
{
  tt_profilers_stop(e->profilers, &r->step);
  r->stage = IDLE;
  if (++r->done == r->nsteps && e->running > 1) {
    e->running--;
    r->running = false;
    tt_profilers_stop(e->profilers, &r->transfer.op);
  }
}

// How far is the lane's next step?
static stage shm_stage_of(const tt_port *port, tt_lane *l)
{
  switch (tt_lane_lack_of(port, l)) {
  case TT_LACKS_SOURCE: return STARTED;
  case TT_LACKS_ROOM: return THERE;
  default: return MOVING;
  }
}

static row *shm_row_of(const reported_lane *t, int peer, bool send)
{
  row *r = t->rows;
  while (r < t->rows + t->nrows && (r->peer != peer || r->send != send)) {
    r++;
  }
  return r < t->rows + t->nrows ? r : NULL;
}

static bool is_direct(const tt_ref *r)
{
  return r->kind == TT_PEER_IN || r->kind == TT_PEER_OUT;
}

// What goes with reference `at` of a step: its own data; and, with the first message to its peer or without any, what
// is read or written there directly. *message: is one among the peer's references?
static size_t share_of(const tt_ref *refs, int n, int at, size_t bytes, bool *message)
{
  int first = -1, direct = 0;
  for (int i = 0; i < n; i++) {
    if (refs[i].peer == refs[at].peer) {
      first = first < 0 && shm_is_message(&refs[i]) ? i : first;
      direct += is_direct(&refs[i]);
    }
  }
  *message = first >= 0;
  return (refs[at].kind == TT_FIFO ? bytes : 0) + (first < 0 || first == at ? (size_t)direct * bytes : 0);
}

// The sources or destinations of a step.
typedef struct side {
  const tt_ref *refs;
  int n;
  bool send, taken;
  size_t bytes;
  stage stage;
} side;

static void tell_side(const tt_port *port, tt_lane *l, const side *s)
{
  const reported_lane *t = l->reported;
  for (int i = 0; i < s->n; i++) {
    const tt_ref *r = &s->refs[i];
    row *which = is_near(port, r) ? shm_row_of(t, r->peer, s->send) : NULL;
    bool message;
    size_t bytes = share_of(s->refs, s->n, i, s->bytes, &message);
    if (which == NULL || (!message && !s->send) || (message && !shm_is_message(r))) {
      continue; // what is read after its token has gone, or told with its token
    }
    bool there = !s->send && s->stage < THERE && tt_lane_source_ready(port, l, r);
    shm_message_reach(which, there ? THERE : s->stage, bytes);
    if (s->taken && message) {
      message_ends(t->events, which);
    }
  }
}

void tt_shm_step(const tt_plan *p, tt_lane *l, const tt_step *step, size_t bytes, bool taken)
{
  tt_shm_events *e = ((reported_lane *)l->reported)->events;
  side sources = {.refs = l->sched->refs + step->src, .n = step->nsrc, .taken = taken, .bytes = bytes};
  side destinations = {.refs = l->sched->refs + step->dst,
                       .n = reported_destinations(step),
                       .send = true,
                       .taken = taken,
                       .bytes = bytes};
  if (!e->begun) {
    shm_events_begin(e);
  }
  sources.stage = destinations.stage = taken ? MOVING : shm_stage_of(p->port, l);
  tell_side(p->port, l, &sources);
  tell_side(p->port, l, &destinations);
}

void tt_shm_events_end(tt_shm_events *e)
{
  for (int i = 0; e != NULL && e->begun && i < e->nrows; i++) {
    tt_profilers_stop(e->profilers, &e->rows[i].step);
  }
  for (int i = 0; e != NULL && e->begun && i < e->nrows; i++) {
    if (e->rows[i].running) {
      e->rows[i].running = false;
      tt_profilers_stop(e->profilers, &e->rows[i].transfer.op);
    }
  }
}

void tt_shm_events_free(tt_shm_events *e)
{
  tt_free(e);
}
