// plan.c: a plan in a stream's queue: runs its lanes in turn, keeps the order of the communicator's plans, and looks
// after its peers.
#include "base/log.h"
#include "base/result.h"
#include "device/stall.h"
#include "device/program.h"
#include "os/clock.h"

#define CHECK_BYTES (64u << 10)        // what a look at the peers may move
#define AT_ONCE_BYTES TT_PROGRAM_BYTES // a plan that moves no more, and waits for nothing, takes no time to record

// Does the caller's own submission of the plan run it?
static inline bool plan_is_submitted_here(const tt_plan *p)
{
  return atomic_load_explicit(&p->submitter, memory_order_relaxed) == (uintptr_t)__builtin_thread_pointer();
}

// First run: reads device scalars and shows the peers what this rank is doing.
static inline __attribute__((always_inline)) void begin(tt_plan *p)
{
  p->started = true;
  tt_stall_begin(p);
  tt_flight_start(&p->port->flight, p->record, p->recorded, plan_is_submitted_here(p));
  for (int i = 0; i < p->ncalls; i++) {
    tt_call *c = &p->calls[i];
    if (c->scalar != NULL) {
      memcpy(&c->op.scalar, c->scalar, c->esize);
    }
  }
  if (p->stage_bytes > 0) {
    memcpy(p->scratch, p->stage_src, p->stage_bytes);
  }
  // Last: what was there before has been read. All are shown, because it is not known which one a peer will miss.
  for (int i = 0; i < p->ncalls; i++) {
    atomic_store_explicit(&p->calls[i].open, true, memory_order_release);
    tt_page_show(p->port->page, p->calls[i].sig, tt_sig_shown(p->calls[i].sig, p->calls[i].sig_count));
  }
}

// Must a lane of another channel go first that has steps to take? What it has lent may still be under way.
static bool plan_is_early(const tt_plan *p, const tt_lane *l)
{
  for (int i = l->after; i > l->after - l->nafter; i--) {
    if (!p->lanes[i].done && !p->lanes[i].drains) {
      return true;
    }
  }
  return false;
}

// Runs a lane step by step, and tells of each.
static tt_run reported_turn(tt_plan *p, tt_lane *l, size_t *budget)
{
  for (;;) {
    size_t bytes = 0, one = 1; // less than any step costs
    const tt_step *step = tt_lane_step(l, &bytes);
    if (step != NULL) {
      p->step(p, l, step, bytes, false);
    }
    tt_run r = tt_lane_run(p->port, l, &one);
    if (one != 0) { // it has taken none
      return r;
    }
    p->step(p, l, step, bytes, true);
    *budget -= TT_MIN(*budget, bytes + 64);
    if (r != TT_RUN_MORE || *budget == 0) {
      return r;
    }
  }
}

static tt_run plain_turn(tt_plan *p, tt_lane *l, size_t *budget)
{
  return l->reported != NULL ? reported_turn(p, l, budget) : tt_lane_run(p->port, l, budget);
}

// The same, which notes when something moves.
static tt_run phased_turn(tt_plan *p, tt_lane *l, size_t *budget)
{
  tt_stamp *s = l->stamp;
  uint64_t began = s->first == 0 ? tt_now_ns() : 0;
  size_t had = *budget;
  tt_run r = plain_turn(p, l, budget);
  if (*budget < had) {
    s->first = s->first == 0 ? began : s->first;
    s->last = tt_now_ns();
  }
  return r;
}

// One lane's turn in a plan that is watched.
static tt_run watched_turn(tt_plan *p, tt_lane *l, size_t *budget)
{
  tt_stamp *s = l->stamp;
  if (s->start == 0) {
    s->start = tt_now_ns();
    s->next = p->begun;
    p->begun = s;
  }
  tt_run r = s->phases ? phased_turn(p, l, budget) : plain_turn(p, l, budget);
  if (r == TT_RUN_DONE && --s->lanes == 0) {
    s->stop = tt_now_ns();
  }
  return r;
}

// A lane that is done leaves the list to its follower.
static inline void plan_leave(tt_lane **at)
{
  tt_lane *l = *at, *f = l->follower;
  if (TT_LIKELY(f == NULL)) {
    *at = l->next;
  } else {
    f->next = l->next;
    *at = f;
  }
}

// One turn of every lane in the list. Inlined, so that plans nobody watches pay nothing.
static inline __attribute__((always_inline)) tt_run turn(tt_plan *p, size_t *budget, bool watched)
{
  for (tt_lane **at = &p->turns; *at != NULL;) {
    tt_lane *l = *at;
    tt_run r = TT_RUN_DONE;
    if (!l->done) {
      r = l->after >= 0 && plan_is_early(p, l) ? TT_RUN_BLOCKED
          : watched                            ? watched_turn(p, l, budget)
                                               : tt_lane_run(p->port, l, budget);
    }
    if (r == TT_RUN_DONE) {
      plan_leave(at);
    } else if (r == TT_RUN_BLOCKED) {
      at = &l->next;
    } else {
      return r;
    }
  }
  return p->turns == NULL ? TT_RUN_DONE : TT_RUN_BLOCKED;
}

// Says whose post the blocked plan waits for. True when that has changed: then the lanes must be looked at once more,
// because a peer that posted a moment ago may have seen the old value and woken nobody.
static inline __attribute__((always_inline)) bool say_want(tt_plan *p)
{
  uint32_t want = 0;
  int blocked = 0;
  for (const tt_lane *l = p->turns; l != NULL; l = l->next) {
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

static tt_run plan_complete(tt_plan *p, bool at_once)
{
  tt_stall_end(p, true);
  tt_flight_end(&p->port->flight, p->record, p->recorded, at_once);
  // Plans complete in order, so this is the only writer.
  atomic_store_explicit(&p->port->done, p->ticket + 1, memory_order_release);
  return TT_RUN_DONE;
}

// Moves what is to be sent and what has come over the network.
static bool plan_move(const tt_plan *p)
{
  const tt_port *port = p->port;
  return port->mover != NULL && port->mover->progress(port->mover_self, true);
}

// The plan ends with the port's code. From here on its buffers are the user's again: so not while a peer is writing
// into them, which then rings.
static tt_run plan_give_up(tt_plan *p, ncclResult_t *result)
{
  if (p->port->mover != NULL) {
    p->port->mover->settle(p->port->mover_self);
  }
  if (tt_port_writer(p->port, false) != NULL) {
    return TT_RUN_BLOCKED;
  }
  tt_stall_end(p, false);
  *result = tt_port_status(p->port);
  tt_last_error_end(*result, tt_port_error(p->port)); // this thread may have met a broken connection since
  return TT_RUN_FAILED;
}

static inline __attribute__((always_inline)) tt_run plan_run_lanes(tt_plan *p, size_t *budget, ncclResult_t *result,
                                                                   bool watched)
{
  if (TT_UNLIKELY(tt_port_status(p->port) != ncclSuccess)) {
    return plan_give_up(p, result);
  }
  if (atomic_load_explicit(&p->port->done, memory_order_acquire) != p->ticket) {
    return TT_RUN_BLOCKED; // an earlier plan of this communicator, on another stream
  }
  const size_t at_first = p->started ? SIZE_MAX : *budget;
  if (!p->started) {
    begin(p);
  }
  for (;;) {
    size_t before = *budget;
    tt_run r = turn(p, budget, watched);
    bool moved = plan_move(p);
    if (p->port->mover != NULL && r != TT_RUN_FAILED && tt_port_status(p->port) != ncclSuccess) {
      r = TT_RUN_FAILED; // a connection has failed
    }
    if (r == TT_RUN_DONE) {
      if (p->port->mover != NULL) { // what it has sent may not be on its way yet, and nobody comes back for it
        p->port->mover->kick(p->port->mover_self, false);
      }
      return plan_complete(p, at_first - *budget <= AT_ONCE_BYTES);
    }
    if (r == TT_RUN_FAILED) {
      return plan_give_up(p, result);
    }
    if (r == TT_RUN_MORE || (*budget == before && !moved && !say_want(p))) {
      return r;
    }
  }
}

static tt_run plan_run(tt_work *w, size_t *budget, ncclResult_t *result)
{
  return plan_run_lanes((tt_plan *)w, budget, result, false);
}

static void plan_done(tt_work *w)
{
  tt_plan *p = (tt_plan *)w;
  p->recycle(p);
}

static tt_run watched_run(tt_work *w, size_t *budget, ncclResult_t *result)
{
  tt_plan *p = (tt_plan *)w;
  tt_run r = plan_run_lanes(p, budget, result, true);
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

// Has the peer begun this operation with other arguments? Then neither gets what it waits for, also if the peer has
// been able to go on to later ones.
static bool differs(const tt_lane *l, const tt_rank_page *page, uint64_t *sig, uint64_t *count)
{
  const tt_call *c = l->call;
  uint32_t number = (uint32_t)(c->sig >> 32);
  return number != 0 && tt_page_shown(page, number, sig, count) &&
         !tt_sig_same_call(*sig, *count, c->sig, c->sig_count);
}

// Send/recv, and blocks with lengths of their own: a receive waits while the peer's next message has come in another
// size class, so the two disagree about the size. (Messages of a pair are sent in order, so when a later one is there
// and ours still is not, ours will not come.)
static const tt_slot *stray_message(const tt_lane *l, const tt_link *link)
{
  uint64_t sig = l->call->sig;
  if ((sig >> 32 != 0 && !tt_sig_has_blocks(sig)) || !l->receives) {
    return NULL;
  }
  for (int k = 0; k < TT_NFIFOS; k++) {
    const tt_fifo *f = &link->recv[k];
    bool stray = k != l->fifo && f->slots != NULL && tt_fifo_arrived(f) && !tt_fifo_arrived(&link->recv[l->fifo]);
    if (stray && (tt_fifo_slot(f)->sig == sig || (tt_fifo_slot(f)->sig | sig) >> 32 == 0)) {
      return tt_fifo_slot(f);
    }
  }
  return NULL;
}

// A rank that a lane waits for: the link's, or one of those behind a network that reduces. State and life as they were
// before the lane's last look.
typedef struct suspect {
  int rank;
  const tt_rank_page *page;
  uint32_t state; // KILLED or EXITED where its process has ended without a word
} suspect;

static int suspects_of(const tt_link *link)
{
  return link->behind != NULL ? link->behind->n : 1;
}

static suspect suspect_at(const tt_link *link, int i)
{
  suspect s = {.rank = link->behind != NULL ? link->behind->ranks[i] : link->peer,
               .page = link->behind != NULL ? link->behind->pages[i] : link->page};
  s.state = link->behind == NULL ? tt_link_state(link) : atomic_load_explicit(&s.page->state, memory_order_acquire);
  return s;
}

// The first that has stopped or ended; else the last.
static suspect worst_of(const tt_link *link)
{
  suspect s = {0};
  for (int i = 0; i < suspects_of(link) && s.state < TT_RANK_FAILED; i++) {
    s = suspect_at(link, i);
  }
  return s;
}

// What is wrong with the rank this lane waits for? ncclSuccess: nothing. *culprit: where that began; 0: here.
static ncclResult_t diagnose(const tt_port *port, const tt_lane *l, const tt_link *link, const suspect *s,
                             tt_culprit *culprit)
{
  uint64_t sig, count;
  bool mismatch = differs(l, s->page, &sig, &count); // also of a peer that has failed: because of it, probably
  if (s->state >= TT_RANK_FAILED && !mismatch) {
    return tt_port_accuse(port, s->rank, s->page, s->state, culprit);
  }
  const tt_slot *stray = link->behind == NULL ? stray_message(l, link) : NULL;
  if (stray != NULL) {
    return tt_call_mismatch(port, l->call, s->rank, stray->sig, stray->count);
  }
  if (mismatch) {
    return tt_call_mismatch(port, l->call, s->rank, sig, count);
  }
  return ncclSuccess;
}

// The lane does not move: asks those it waits for, for the next check (is one in another call, does its process still
// answer?), and says what is wrong.
static ncclResult_t inquire(const tt_port *port, const tt_lane *l, const tt_link *link, const suspect *worst,
                            tt_culprit *culprit)
{
  for (int i = 0; i < suspects_of(link) && port->mover != NULL; i++) {
    port->mover->probe(port->mover_self, link->behind != NULL ? link->behind->ranks[i] : link->peer);
  }
  ncclResult_t res = diagnose(port, l, link, worst, culprit);
  for (int i = 0; i < suspects_of(link) && link->behind != NULL && res == ncclSuccess; i++) {
    suspect s = suspect_at(link, i);
    s.state = TT_RANK_RUNNING; // what has happened since is for the next check
    res = diagnose(port, l, link, &s, culprit);
  }
  return res;
}

// The lane waits for `peer`: looks once more, and whether that rank is in order. False: the port was stopped, or the
// plan has failed.
static bool check_lane(tt_plan *p, tt_lane *l, int peer)
{
  // State and life are looked at before the lane looks once more: what the peer sent before it stopped or ended still
  // counts.
  const tt_link *link = p->port->links[peer];
  suspect worst = worst_of(link);
  if ((link->networked || link->behind != NULL) && worst.state >= TT_RANK_FAILED) {
    p->port->mover->settle(p->port->mover_self);
  }
  size_t budget = CHECK_BYTES;
  plan_move(p);
  tt_run r = p->work.ops == &tt_plan_watched_ops ? watched_turn(p, l, &budget) : tt_lane_run(p->port, l, &budget);
  if (r != TT_RUN_BLOCKED || budget != CHECK_BYTES || l->waits_for != peer) {
    return r != TT_RUN_FAILED;
  }
  tt_culprit culprit = 0;
  ncclResult_t res = inquire(p->port, l, link, &worst, &culprit);
  if (res != ncclSuccess) {
    tt_port_stop_for(p->port, res, culprit);
  }
  return res == ncclSuccess;
}

static void plan_check(tt_work *w)
{
  tt_plan *p = (tt_plan *)w;
  if (tt_port_status(p->port) != ncclSuccess) {
    tt_port_writer(p->port, true); // one that has died is not waited for
    return;
  }
  uint64_t seen_ns = tt_now_ns();
  for (tt_lane *l = p->started ? p->turns : NULL; l != NULL; l = l->next) {
    int peer = l->waits_for;
    if (!l->done && peer >= 0 && peer != p->port->rank && !check_lane(p, l, peer)) {
      return;
    }
  }
  if (p->started && !tt_port_watch(p->port)) {
    return;
  }
  ncclResult_t res = p->started ? tt_stall_look(p, seen_ns) : ncclSuccess;
  if (res != ncclSuccess) {
    tt_port_stop(p->port, res);
  }
}

static void plan_behind(tt_work *w, const tt_work *current)
{
  tt_stall_behind((tt_plan *)w, current);
}

const tt_work_ops tt_plan_ops = {
    .name = "plan", .run = plan_run, .done = plan_done, .bell = plan_bell, .check = plan_check, .behind = plan_behind};
const tt_work_ops tt_plan_watched_ops = {.name = "plan",
                                         .run = watched_run,
                                         .done = watched_done,
                                         .bell = plan_bell,
                                         .check = plan_check,
                                         .behind = plan_behind};
