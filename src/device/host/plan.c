// plan.c: a plan in a stream's queue: runs its lanes in turn, keeps the order of the communicator's plans, and looks after its peers.
#include "base/log.h"
#include "base/result.h"
#include "device/lane.h"
#include "os/clock.h"

#define CHECK_BYTES (64u << 10) // what a look at the peers may move

// First run: reads device scalars and shows the peers what this rank is doing.
static inline __attribute__((always_inline)) void begin(tt_plan *p)
{
  p->started = true;
  for (int i = 0; i < p->ncalls; i++) {
    tt_call *c = &p->calls[i];
    if (c->scalar != NULL) {
      memcpy(&c->op.scalar, c->scalar, c->esize);
    }
  }
  if (p->stage_bytes > 0) {
    memcpy(p->scratch, p->stage_src, p->stage_bytes);
  }
  for (int i = 0; i < p->ncalls; i++) { // last: what was there before has been read
    atomic_store_explicit(&p->calls[i].open, true, memory_order_release);
  }
  if (p->ncalls > 0) {
    tt_rank_page *page = p->port->page;
    atomic_store_explicit(&page->sig, 0, memory_order_relaxed); // so that nobody takes the new count for that of the operation before
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&page->count, p->calls[0].sig_count, memory_order_relaxed);
    atomic_store_explicit(&page->sig, p->calls[0].sig, memory_order_release);
  }
}

// Must a lane go first that is not done? Between channels what it has lent may still be under way.
static bool is_early(const tt_plan *p, const tt_lane *l)
{
  for (int i = l->after; i > l->after - l->nafter; i--) {
    if (!p->lanes[i].done && !(p->lanes[i].drains && l->flow == 0)) {
      return true;
    }
  }
  return false;
}

// One lane's turn in a plan that is watched.
static tt_run watched_turn(tt_port *port, tt_lane *l, size_t *budget)
{
  tt_stamp *s = l->stamp;
  if (s->start == 0) {
    s->start = tt_now_ns();
  }
  tt_run r = tt_lane_run(port, l, budget);
  if (r == TT_RUN_DONE && --s->lanes == 0) {
    s->stop = tt_now_ns();
  }
  return r;
}

// One turn of every lane that is not done. Inlined, so that plans nobody watches pay nothing.
static inline __attribute__((always_inline)) tt_run turn(tt_plan *p, size_t *budget, bool watched)
{
  for (int i = 0; i < p->nlanes; i++) {
    tt_lane *l = &p->lanes[i];
    if (l->done || (l->after >= 0 && is_early(p, l))) {
      continue;
    }
    tt_run r = watched ? watched_turn(p->port, l, budget) : tt_lane_run(p->port, l, budget);
    if (r == TT_RUN_FAILED || r == TT_RUN_MORE) {
      return r;
    }
    p->live -= r == TT_RUN_DONE;
  }
  return p->live == 0 ? TT_RUN_DONE : TT_RUN_BLOCKED;
}

// Says whose post the blocked plan waits for. True when that has changed: then the lanes must be looked at once more, because a peer that
// posted a moment ago may have seen the old value and woken nobody.
static inline __attribute__((always_inline)) bool say_want(tt_plan *p)
{
  uint32_t want = 0;
  int blocked = 0;
  for (int i = 0; i < p->nlanes; i++) {
    const tt_lane *l = &p->lanes[i];
    if (!l->done && l->waits_for >= 0) {
      want = (uint32_t)l->waits_for + 1;
      blocked++;
    }
  }
  want = blocked == 1 ? want : 0;
  if (atomic_load_explicit(&p->port->page->want, memory_order_relaxed) == want) {
    return false;
  }
  atomic_store_explicit(&p->port->page->want, want, memory_order_relaxed);
  tt_bell_fence();
  return true;
}

static tt_run complete(tt_plan *p)
{
  atomic_store_explicit(&p->port->done, p->ticket + 1, memory_order_release); // plans complete in order, so this is the only writer
  return TT_RUN_DONE;
}

// Moves what is to be sent and what has come over the network.
static bool move(const tt_plan *p)
{
  const tt_port *port = p->port;
  return port->mover != NULL && port->mover->progress(port->mover_self, true);
}

// The plan ends with the port's code. From here on its buffers are the user's again.
static tt_run give_up(const tt_plan *p, ncclResult_t *result)
{
  if (p->port->mover != NULL) {
    p->port->mover->settle(p->port->mover_self);
  }
  *result = tt_port_status(p->port);
  return TT_RUN_FAILED;
}

static inline __attribute__((always_inline)) tt_run run(tt_plan *p, size_t *budget, ncclResult_t *result, bool watched)
{
  if (TT_UNLIKELY(tt_port_status(p->port) != ncclSuccess)) {
    return give_up(p, result);
  }
  if (atomic_load_explicit(&p->port->done, memory_order_acquire) != p->ticket) {
    return TT_RUN_BLOCKED; // an earlier plan of this communicator, on another stream
  }
  if (!p->started) {
    begin(p);
  }
  for (;;) {
    size_t before = *budget;
    tt_run r = turn(p, budget, watched);
    bool moved = move(p);
    if (p->port->mover != NULL && r != TT_RUN_FAILED && tt_port_status(p->port) != ncclSuccess) {
      r = TT_RUN_FAILED; // a connection has failed
    }
    if (r == TT_RUN_DONE) {
      if (p->port->mover != NULL) { // what it has sent may not be on its way yet, and nobody comes back for it
        p->port->mover->kick(p->port->mover_self, false);
      }
      return complete(p);
    }
    if (r == TT_RUN_FAILED) {
      return give_up(p, result);
    }
    if (r == TT_RUN_MORE || (*budget == before && !moved && !say_want(p))) {
      return r;
    }
  }
}

static tt_run plan_run(tt_work *w, size_t *budget, ncclResult_t *result)
{
  return run((tt_plan *)w, budget, result, false);
}

static void plan_done(tt_work *w)
{
  tt_plan *p = (tt_plan *)w;
  p->recycle(p);
}

static tt_run watched_run(tt_work *w, size_t *budget, ncclResult_t *result)
{
  tt_plan *p = (tt_plan *)w;
  tt_run r = run(p, budget, result, true);
  if (r == TT_RUN_BLOCKED || r == TT_RUN_MORE) {
    p->watch(p, false);
  }
  return r;
}

// Channels that were under way when the plan failed end with it.
static void watched_done(tt_work *w)
{
  tt_plan *p = (tt_plan *)w;
  for (int i = 0; i < p->nlanes; i++) {
    tt_stamp *s = p->lanes[i].stamp;
    if (s->start != 0 && s->stop == 0) {
      s->stop = tt_now_ns();
    }
  }
  p->watch(p, true);
  p->recycle(p);
}

static tt_bell *plan_bell(tt_work *w)
{
  return &((tt_plan *)w)->port->page->bell;
}

static const char *state_text(uint32_t state)
{
  return state == TT_RANK_ABORTED ? "has aborted the communicator"
         : state == TT_RANK_GONE  ? "has destroyed the communicator"
         : state == TT_RANK_LOST  ? "cannot be reached any more: its process has ended, or the network between has failed"
                                  : "has failed";
}

// Is the peer in the same operation with other arguments? Then neither will ever get what it waits for.
static bool differs(const tt_lane *l, const tt_link *link, uint64_t *sig, uint64_t *count)
{
  *sig = atomic_load_explicit(&link->page->sig, memory_order_acquire);
  *count = atomic_load_explicit(&link->page->count, memory_order_acquire);
  const tt_call *c = l->call;
  bool same_number =
      c->sig >> 32 != 0 && *sig >> 32 == c->sig >> 32 && atomic_load_explicit(&link->page->sig, memory_order_relaxed) == *sig;
  return same_number && (*sig != c->sig || *count != c->sig_count);
}

// Does the lane's current step receive from the peer it waits for?
static bool receives(const tt_lane *l)
{
  const tt_step *step = &l->sched->steps[l->strand->first + l->pc];
  for (int i = 0; i < step->nsrc; i++) {
    const tt_ref *r = &l->sched->refs[step->src + i];
    if ((r->kind == TT_FIFO || r->kind == TT_TOKEN) && r->peer == l->waits_for) {
      return true;
    }
  }
  return false;
}

// Send/recv only: a receive waits while the peer's next message has come in another size class, so the two disagree about the size.
// (Messages of a pair are sent in order, so when a later one is there and ours still is not, ours will not come.)
static const tt_slot *stray_message(const tt_lane *l, const tt_link *link)
{
  if (l->call->sig >> 32 != 0 || !receives(l)) {
    return NULL;
  }
  for (int k = 0; k < TT_NFIFOS; k++) {
    const tt_slot *s = tt_fifo_slot(&link->recv[k]);
    if (k != l->fifo && tt_fifo_arrived(&link->recv[k]) && s->sig >> 32 == 0 && !tt_fifo_arrived(&link->recv[l->fifo])) {
      return s;
    }
  }
  return NULL;
}

// What is wrong with the peer this lane waits for? ncclSuccess: nothing. state, ended: as they were before the lane's last look.
static ncclResult_t diagnose(const tt_port *port, const tt_lane *l, uint32_t state, bool ended)
{
  const tt_link *link = port->links[l->waits_for];
  const tt_call *c = l->call;
  uint64_t sig, count;
  bool mismatch = differs(l, link, &sig, &count); // also of a peer that has failed: because of it, probably
  if (state >= TT_RANK_FAILED && !mismatch) {
    return tt_fail(ncclRemoteError, "rank %d waits for rank %d, which %s", port->rank, link->peer, state_text(state));
  }
  if (ended) {
    return tt_fail(ncclRemoteError, "rank %d waits for rank %d, but its process %d has ended", port->rank, link->peer, link->proc.pid);
  }
  const tt_slot *stray = stray_message(l, link);
  if (stray != NULL) {
    return tt_call_mismatch(port, c, link->peer, stray->sig, stray->count);
  }
  if (mismatch) {
    return tt_call_mismatch(port, l->call, link->peer, sig, count);
  }
  return ncclSuccess;
}

static void plan_check(tt_work *w)
{
  tt_plan *p = (tt_plan *)w;
  if (!p->started || tt_port_status(p->port) != ncclSuccess) {
    return;
  }
  for (int i = 0; i < p->nlanes; i++) {
    tt_lane *l = &p->lanes[i];
    int peer = l->waits_for;
    if (l->done || peer < 0 || peer == p->port->rank) {
      continue;
    }
    // State and life are looked at before the lane looks once more: what the peer sent before it stopped or ended still counts.
    const tt_link *link = p->port->links[peer];
    uint32_t state = atomic_load_explicit(&link->page->state, memory_order_acquire);
    bool ended = state < TT_RANK_FAILED && link->watched && !tt_proc_alive(&link->proc);
    if (link->networked && state >= TT_RANK_FAILED) {
      p->port->mover->settle(p->port->mover_self);
    }
    size_t budget = CHECK_BYTES;
    move(p);
    tt_run r = w->ops == &tt_plan_watched_ops ? watched_turn(p->port, l, &budget) : tt_lane_run(p->port, l, &budget);
    p->live -= r == TT_RUN_DONE;
    if (r == TT_RUN_FAILED) {
      return;
    }
    if (r == TT_RUN_BLOCKED && budget == CHECK_BYTES && l->waits_for == peer) {
      if (p->port->mover != NULL) { // for the next check: is it in another call, and does its process still answer?
        p->port->mover->ask(p->port->mover_self, peer);
      }
      ncclResult_t res = diagnose(p->port, l, state, ended);
      if (res != ncclSuccess) {
        tt_port_stop(p->port, res);
        return;
      }
    }
  }
}

const tt_work_ops tt_plan_ops = {.name = "plan", .run = plan_run, .done = plan_done, .bell = plan_bell, .check = plan_check};
const tt_work_ops tt_plan_watched_ops = {.name = "plan", .run = watched_run, .done = watched_done, .bell = plan_bell, .check = plan_check};
