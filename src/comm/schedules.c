// schedules.c: the schedules of a communicator, written and connected when first needed, and what they move over the
// network.
#include "comm/schedules.h"

#include <string.h>

#include "base/result.h"
#include "coll/level.h"
#include "coll/zerocopy.h"
#include "comm/comm.h"
#include "comm/decide.h"

enum { CACHE_LEAST = 64 }; // buckets; a power of two

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

// A walk over the messages of a schedule: the first counts them, the second lists the steps that receive them.
typedef struct traffic_walk {
  struct ncclComm *comm;
  tt_cached *c;
  int first; // of the rows of the strand
  bool lists;
} traffic_walk;

static bool schedules_is_far(const struct ncclComm *comm, const tt_ref *r)
{
  return r->kind == TT_FIFO && (comm->port.links[r->peer]->networked || r->peer >= comm->nranks);
}

// The row of a strand's messages between this rank and a peer on another machine: rows of a strand stand together. The
// communicator remembers the newest row of each peer and direction, from whatever schedule.
static tt_traffic *traffic_row(const traffic_walk *w, int strand, int peer, bool send)
{
  tt_cached *c = w->c;
  int *row = &w->comm->schedules.newest_row[2 * peer + send];
  bool known = *row >= w->first && *row < c->ntraffic && c->traffic[*row].peer == peer && c->traffic[*row].send == send;
  if (!known) {
    *row = c->ntraffic++;
    tt_traffic *t = &c->traffic[*row];
    t->strand = strand;
    t->peer = peer;
    t->send = send;
  }
  return &c->traffic[*row];
}

// The messages among `n` references of a step (number `i`).
static void walk_refs(const traffic_walk *w, int strand, uint32_t i, bool send)
{
  const tt_schedule *s = w->c->sched;
  const tt_step *step = &s->steps[i];
  const tt_ref *refs = s->refs + (send ? step->dst : step->src);
  for (int k = 0; k < (send ? step->ndst : step->nsrc); k++) {
    if (!schedules_is_far(w->comm, &refs[k])) {
      continue;
    }
    tt_traffic *t = traffic_row(w, strand, refs[k].peer, send);
    if (w->lists && !send) {
      t->steps[t->messages] = i;
    }
    t->messages++;
  }
}

static void walk_messages(traffic_walk *w)
{
  const tt_schedule *s = w->c->sched;
  for (int k = 0; k < s->nstrands; k++) {
    w->first = w->c->ntraffic;
    for (uint32_t i = s->strands[k].first; i < s->strands[k].first + s->strands[k].count; i++) {
      walk_refs(w, k, i, false);
      walk_refs(w, k, i, true);
    }
  }
}

// Moves the rows into memory of their size, with the lists behind them: of each strand's first row, and of the steps
// that receive the messages of each row, in order: where they belong can be told before they come. False: no memory.
static bool keep_traffic(tt_cached *c)
{
  const tt_traffic *rows = c->traffic;
  int nstrands = c->sched->nstrands, n = 0;
  size_t received = 0;
  for (int i = 0; i < c->ntraffic; i++) {
    received += rows[i].send ? 0 : rows[i].messages;
  }
  tt_traffic *kept = tt_calloc(1, (size_t)c->ntraffic * sizeof *rows + (size_t)(nstrands + 1) * sizeof(int) +
                                      received * sizeof(uint32_t));
  if (kept == NULL) {
    return false;
  }
  memcpy(kept, rows, (size_t)c->ntraffic * sizeof *rows);
  c->traffic = kept;
  c->traffic_of = (int *)(kept + c->ntraffic);
  for (int k = 0; k <= nstrands; k++) {
    c->traffic_of[k] = n;
    for (; n < c->ntraffic && kept[n].strand == k; n++) {
    }
  }
  uint32_t *room = (uint32_t *)(c->traffic_of + nstrands + 1);
  for (tt_traffic *t = kept; t < kept + c->ntraffic; t++) {
    t->steps = room;
    room += t->send ? 0 : t->messages;
  }
  return true;
}

static void list_steps(traffic_walk *w)
{
  tt_cached *c = w->c;
  for (tt_traffic *t = c->traffic; t < c->traffic + c->ntraffic; t++) {
    t->messages = 0;
  }
  c->ntraffic = 0;
  w->lists = true;
  walk_messages(w);
}

// What one pass of the schedule moves over the network: each operation posts it to the proxy.
static ncclResult_t find_traffic(struct ncclComm *comm, tt_cached *c)
{
  if (comm->network.proxy == NULL || c->sched->nrefs == 0) {
    return ncclSuccess;
  }
  TT_TRY(tt_zerocopy_mark(c->sched));
  if (comm->schedules.newest_row == NULL) {
    comm->schedules.newest_row = tt_calloc(2 * ((size_t)comm->nranks + TT_COLLNET_HEADS), sizeof(int));
  }
  traffic_walk w = {.comm = comm, .c = c};
  tt_traffic *rows = c->traffic = tt_calloc((size_t)c->sched->nrefs, sizeof *rows);
  bool kept = false;
  if (rows != NULL && comm->schedules.newest_row != NULL) {
    walk_messages(&w);
    kept = keep_traffic(c);
  }
  if (kept) {
    list_steps(&w);
    tt_free(rows);
  }
  return kept ? ncclSuccess
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
  return (a->flags & counts) == (b->flags & counts) && a->level == b->level && a->nsrc == b->nsrc &&
         a->ndst == b->ndst && a->sub == b->sub && a->src == b->src && a->dst == b->dst;
}

static bool same_schedule(const tt_schedule *a, const tt_schedule *b)
{
  bool same = a->nranks == b->nranks && a->rank == b->rank && a->in_blocks == b->in_blocks &&
              a->out_blocks == b->out_blocks && a->nsub == b->nsub && a->ntmp == b->ntmp &&
              a->nstrands == b->nstrands && a->nsteps == b->nsteps && a->nrefs == b->nrefs;
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

static tt_cached **cache_bucket(const struct ncclComm *comm, tt_func func, int algo, int root, int channel)
{
  unsigned number = (unsigned)func * 7 + (unsigned)algo * 31 + (unsigned)root + (unsigned)channel * 13;
  return &comm->schedules.buckets[number & (comm->schedules.room - 1)];
}

static tt_cached *cache_find(const struct ncclComm *comm, tt_func func, int algo, int root, int channel)
{
  tt_cached *c = comm->schedules.buckets == NULL ? NULL : *cache_bucket(comm, func, algo, root, channel);
  while (c != NULL && (c->func != func || c->algo != algo || c->root != root || c->channel != channel)) {
    c = c->next;
  }
  return c;
}

static void cache_add(struct ncclComm *comm, tt_cached *c)
{
  tt_cached **bucket = cache_bucket(comm, c->func, c->algo, c->root, c->channel);
  c->next = *bucket;
  *bucket = c;
}

// Makes room for one more: as many buckets as schedules, a power of two. False: no memory.
static bool cache_grow(struct ncclComm *comm)
{
  unsigned room = comm->schedules.room, more = room == 0 ? CACHE_LEAST : 2 * room;
  tt_cached **old = comm->schedules.buckets,
            **cache = comm->schedules.n < room ? old : tt_calloc(more, sizeof(tt_cached *));
  if (cache == old || cache == NULL) {
    return cache != NULL;
  }
  comm->schedules.buckets = cache;
  comm->schedules.room = more;
  for (unsigned i = 0; i < room; i++) {
    for (tt_cached *c = old[i], *next; c != NULL; c = next) {
      next = c->next;
      cache_add(comm, c);
    }
  }
  tt_free(old);
  return true;
}

// Channels often come in pairs with the same order, or all have it: they share a schedule. Takes that of an earlier
// channel.
static bool borrow(struct ncclComm *comm, tt_cached *c)
{
  for (int channel = 0; channel < c->channel && !c->lent; channel++) {
    const tt_cached *other = cache_find(comm, c->func, c->algo, c->root, channel);
    if (other != NULL && !other->lent && same_schedule(other->sched, c->sched)) {
      tt_schedule_free(c->sched);
      c->sched = other->sched;
      c->traffic = other->traffic;
      c->ntraffic = other->ntraffic;
      c->traffic_of = other->traffic_of;
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
  const tt_algorithm *a = &tt_algorithms(NULL)[algo];
  bool alone = root < 0, placed = !alone && (comm->layout->nnodes > 1 || tt_algorithm_channels(a, comm->layout) > 0);
  tt_shape shape = {.func = func,
                    .rank = alone ? 0 : comm->rank,
                    .nranks = alone ? 1 : comm->nranks,
                    .root = alone ? 0 : root,
                    .layout = placed ? comm->layout : NULL,
                    .channel = channel};
  tt_cached *c = tt_calloc(1, sizeof *c);
  if (c == NULL || !cache_grow(comm)) {
    tt_free(c);
    return tt_fail(ncclSystemError, "rank %d: no memory for a schedule of %s", comm->rank, tt_func_name(func));
  }
  *c = (tt_cached){.func = func, .algo = algo, .root = root, .channel = channel};
  ncclResult_t res = tt_algorithm_write(a, &shape, &c->sched);
  if (res == ncclSuccess && comm->port.row->levels) {
    res = tt_schedule_level(a, &shape, c->sched);
  }
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
  cache_add(comm, c);
  comm->schedules.n++;
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
  for (unsigned i = 0; i < comm->schedules.room; i++) {
    for (tt_cached *c = comm->schedules.buckets[i], *next; c != NULL; c = next) {
      next = c->next;
      if (!c->lent) {
        tt_schedule_free(c->sched);
        tt_free(c->traffic);
      }
      tt_free(c->nearby);
      tt_free(c);
    }
  }
  tt_free(comm->schedules.buckets);
  comm->schedules.buckets = NULL;
  comm->schedules.room = comm->schedules.n = 0;
  tt_free(comm->schedules.newest_row);
  comm->schedules.newest_row = NULL;
}
