// schedules.c: the schedules of a communicator, written and connected when first needed, and what they move over the network.
#include <string.h>

#include "base/result.h"
#include "coll/zerocopy.h"
#include "comm/comm.h"

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
    if (refs[i].kind == TT_FIFO && (comm->port.links[refs[i].peer]->networked || refs[i].peer >= comm->nranks)) {
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
  return a->kind == b->kind && a->peer == b->peer && a->chunk == b->chunk && a->offer == b->offer;
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

ncclResult_t tt_comm_schedules(struct ncclComm *comm, tt_func func, int root, tt_decision *d)
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

void tt_comm_free_schedules(struct ncclComm *comm)
{
  for (int i = 0; i < TT_CACHE_BUCKETS; i++) {
    for (tt_cached *c = comm->cache[i], *next; c != NULL; c = next) {
      next = c->next;
      if (!c->lent) {
        tt_schedule_free(c->sched);
        tt_free(c->traffic);
      }
      tt_free(c->nearby);
      tt_free(c);
    }
    comm->cache[i] = NULL;
  }
}
