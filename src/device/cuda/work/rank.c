// rank.c: see rank.h.
#include "device/cuda/work/rank.h"

#include <pthread.h>
#include <sched.h>

#include "base/log.h"
#include "device/cuda/work/capture.h"
#include "device/cuda/work/capture_priv.h"
#include "device/cuda/work/ipc.h"
#include "device/cuda/work/owner.h"
#include "device/cuda/work/pins.h"
#include "device/cuda/work/pool.h"
#include "device/cuda/work/rma.h"
#include "device/cuda/work/stage.h"
#include "device/cuda/work/submit.h"
#include "device/cuda/work/times.h"
#include "device/cuda/work/waits.h"
#include "device/stall.h"
#include "device/stall_chain.h"
#include "os/clock.h"
#include "os/proc.h"
#include "os/thread.h"

enum {
  NAP_LEAST_NS = 50 * 1000,
  NAP_MOST_NS = 2 * 1000 * 1000,
  SETTLE_MS = 2000,
  BLOCKED_MS = 500 // a submission takes so long: the driver has no room, or each launch waits for its kernel
};

struct tt_gpu_rank {
  tt_gpu_rank *next;
  tt_port *port;
  tt_gpu_port *gpu;
  tt_work *first, **end; // plans in flight, in the order of submission; the first one has begun, as far as one can say
  uint64_t due_ns;       // then its peers are looked at
  bool broken;           // work of its device has failed: nothing of it will be done
  bool graphs;           // plans of it are in graphs
  tt_stall replay;       // of their replays
  bool linked;           // its links are there
  bool tells;            // a thread tells the first plan's watcher that channels have begun: the plan stays,
  tt_gpu_rank *teller;   // the next one of which the thread does so
  _Atomic uint64_t submits_ns; // a thread submits since then; 0: none does. Relaxed
};

// Ranks, their plans and what is deferred, under the lock, which a look holds: it never waits. What follows from a look
// is done without (ranks_end).
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t something = PTHREAD_COND_INITIALIZER; // to do for the thread
static tt_gpu_rank *ranks;
static tt_deferred *deferred;
static bool runs;     // the thread
static bool sleeps;   // it waits for something to do
static int in_flight; // plans, and batches of one-sided operations
static bool closes;   // a thread closes memory of peers: no plan may be submitted
static pthread_cond_t closed = PTHREAD_COND_INITIALIZER;
static int in_graphs;  // ranks that have plans in graphs
static int in_windows; // ranks that take payloads of others

static tt_plan *plan_of(tt_work *w)
{
  return (tt_plan *)(void *)w;
}

// ---- One rank ----

// The plan is the first of its rank: shows the peers what the rank does, as far as one can say.
static void rank_begin(tt_gpu_rank *r)
{
  tt_plan *p = r->first != NULL ? plan_of(r->first) : NULL;
  if (p == NULL) {
    return;
  }
  p->started = true;
  tt_stall_begin(p);
  tt_flight_start(&p->port->flight, p->record, p->recorded, false);
  for (int i = 0; i < p->ncalls; i++) {
    atomic_store_explicit(&p->calls[i].open, true, memory_order_release);
    tt_page_show(p->port->page, p->calls[i].sig, tt_sig_shown(p->calls[i].sig, p->calls[i].sig_count));
  }
}

// Looks whether a replay waits for a peer, and whether something is wrong with that. True: it waits, which is shown.
static bool rank_check_replays(tt_gpu_rank *r)
{
  tt_wait w;
  tt_culprit culprit = 0;
  const uint64_t seen_ns = tt_now_ns();
  tt_stalled k = {.port = r->port, .stall = &r->replay, .wait = &w};
  const bool waits = r->graphs && tt_gpu_port_waits(r->gpu, &w, &k.mark);
  const tt_link *link = waits ? __atomic_load_n(&r->port->links[w.peer], __ATOMIC_ACQUIRE) : NULL;
  if (link == NULL) {
    tt_stall_over(r->port, &r->replay, true);
    return false;
  }
  const uint32_t state = tt_link_state(link);
  if (link->networked) { // for the next look
    r->port->mover->probe(r->port->mover_self, link->peer);
  }
  ncclResult_t res = tt_stall_look_at(&k, seen_ns);
  if (link->networked && state >= TT_RANK_FAILED) {
    r->port->mover->settle(r->port->mover_self); // what has come may not be in its slot yet
  }
  // What the peer had sent before it stopped counts: it is looked at once more.
  if (res == ncclSuccess && state >= TT_RANK_FAILED && tt_gpu_port_waits(r->gpu, &w, &k.mark) &&
      (int)w.peer == link->peer) {
    res = tt_port_accuse(r->port, link->peer, link->page, state, &culprit);
  }
  if (res != ncclSuccess) {
    tt_port_stop_for(r->port, res, culprit);
  }
  return true;
}

// The network sends what kernels have put into slots, and brings what streams wait for. True: something has moved.
static bool rank_move(const tt_gpu_rank *r)
{
  return r->port->mover != NULL && r->port->mover->progress(r->port->mover_self, true);
}

// No plan of the rank is in flight, but graphs with some may be launched at any time. Replays of a stopped port do
// nothing; its words are released again and again, for peers may write them until they have stopped, too. True:
// something has moved over the network.
static bool rank_look_at_graphs(tt_gpu_rank *r, uint64_t now)
{
  const bool graphs = r->graphs;
  if (graphs && !tt_gpu_port_in_graphs(r->gpu)) { // a last look: what their last replays have sent goes out
    r->graphs = false;
    in_graphs--;
  }
  if (!graphs || !r->linked) {
    return false;
  }
  const bool moved = rank_move(r);
  tt_gpu_port_check(r->gpu);
  if (tt_port_status(r->port) != ncclSuccess) {
    tt_gpu_port_stop(r->gpu);
  } else if (now >= r->due_ns) {
    r->due_ns = now + TT_MIN(tt_peer_check_ns(), 10 * TT_NS_PER_MS);
    if (rank_check_replays(r) && r->replay.waited_ns >= tt_peer_check_ns()) {
      tt_port_watch(r->port); // also those that others wait for
    }
  }
  return moved;
}

// Is the first plan done, or will it never be? A thread that submits it has it still, or peers use its buffers.
static bool rank_first_over(const tt_gpu_rank *r)
{
  return tt_gpu_port_done(r->gpu, plan_of(r->first)->number) ||
         (atomic_load_explicit(&r->submits_ns, memory_order_relaxed) == 0 && (r->broken || tt_gpu_port_lost(r->gpu)) &&
          tt_gpu_owner_free(r->gpu));
}

// Plans that are over leave the rank's list for *over. True: any did.
static bool rank_reap(tt_gpu_rank *r, tt_work ***over)
{
  bool any = false;
  while (r->first != NULL && !r->tells && rank_first_over(r)) {
    tt_work *w = r->first;
    tt_plan *p = plan_of(w);
    tt_gpu_port_check(r->gpu); // after the look at the number: what was found before that is seen
    const bool complete = tt_port_status(r->port) == ncclSuccess;
    r->first = w->next;
    r->end = r->first == NULL ? &r->first : r->end;
    in_flight--;
    if (r->port->mover != NULL) { // nobody comes back for what it has still to send
      r->port->mover->kick(r->port->mover_self, false);
    }
    tt_stall_end(p, complete);
    tt_flight_end(&r->port->flight, p->record, p->recorded, false);
    atomic_store_explicit(&r->port->done, p->ticket + 1, memory_order_release);
    w->next = NULL;
    **over = w;
    *over = &w->next;
    any = true;
    rank_begin(r);
  }
  if (any) {
    gpu_wait at;
    tt_gpu_waits_first(r->gpu, &at); // drops those of what is over
  }
  if (any && r->first == NULL && tt_port_status(r->port) != ncclSuccess && !r->graphs) {
    tt_gpu_owner_leave(r->gpu); // a submission may have failed between the kernels of a step
  }
  return any;
}

// Does the peer show another call than this rank's, under its number?
static bool rank_differs(const tt_plan *p, const tt_link *link, const tt_call **call, uint64_t *sig, uint64_t *count)
{
  for (int i = 0; i < p->ncalls; i++) {
    const tt_call *c = &p->calls[i];
    const uint32_t number = (uint32_t)(c->sig >> 32);
    if (number != 0 && tt_page_shown(link->page, number, sig, count) &&
        !tt_sig_same_call(*sig, *count, c->sig, c->sig_count)) {
      *call = c;
      return true;
    }
  }
  return false;
}

// Is something wrong with a peer that the rank waits for? Its state is read before what it has sent: what it sent
// before it stopped still counts. False: the port has been stopped.
static bool rank_check_peer(tt_gpu_rank *r, const tt_link *link)
{
  tt_plan *p = plan_of(r->first);
  const tt_call *call = NULL;
  uint64_t sig, count;
  tt_culprit culprit = 0;
  ncclResult_t res = ncclSuccess;
  const uint32_t state = tt_link_state(link);
  const uint64_t submits_ns = atomic_load_explicit(&r->submits_ns, memory_order_relaxed);
  const bool blocked = submits_ns != 0 && tt_now_ns() - TT_MIN(submits_ns, tt_now_ns()) > BLOCKED_MS * TT_NS_PER_MS;
  if (!tt_gpu_link_lacks(r->gpu, link, blocked)) {
    return true;
  }
  if (link->networked) { // for the next look
    r->port->mover->probe(r->port->mover_self, link->peer);
  }
  if (rank_differs(p, link, &call, &sig, &count)) {
    res = tt_call_mismatch(r->port, call, link->peer, sig, count);
  } else if (state >= TT_RANK_FAILED) {
    res = tt_port_accuse(r->port, link->peer, link->page, state, &culprit);
  }
  if (res != ncclSuccess) {
    tt_port_stop_for(r->port, res, culprit);
  }
  return res == ncclSuccess;
}

// Has work of the device failed, of whomever? Then its context is no good any more.
static void rank_query(tt_gpu_rank *r)
{
  const ncclResult_t res = tt_gpu_port_query(r->gpu);
  if (res == ncclSuccess) {
    return;
  }
  r->broken = true;
  tt_gpu_owner_leave(r->gpu);
  if (tt_port_status(r->port) == ncclSuccess) {
    tt_port_stop(r->port, res);
  }
  tt_gpu_rma_leave(r->gpu);
}

// Looks after the peers, and shows at which wait the rank's streams stand. They may also stand behind other work before
// it, which sends something first. So nothing is proved by it: TT_WAIT_ALONE is not said.
static void rank_check(tt_gpu_rank *r)
{
  const uint64_t seen_ns = tt_now_ns();
  tt_plan *p = plan_of(r->first);
  tt_wait w = {.peer = UINT32_MAX};
  gpu_wait at;
  uint64_t mark = p->number;
  for (int i = 0; i < r->port->nranks; i++) {
    const tt_link *link = __atomic_load_n(&r->port->links[i], __ATOMIC_ACQUIRE);
    if (link != NULL && i != r->port->rank && !rank_check_peer(r, link)) {
      return;
    }
    mark += link != NULL ? tt_gpu_link_mark(link) : 0;
  }
  if (tt_gpu_waits_first(r->gpu, &at)) {
    w = (tt_wait){.peer = at.peer, .how = at.how, .sig = at.sig, .count = at.count};
  }
  if (rank_check_replays(r) || w.peer == UINT32_MAX) { // it runs, or stands behind other work of its stream
    tt_stall_end(p, w.peer == UINT32_MAX);
    return;
  }
  const tt_stalled k = {.port = r->port, .stall = &p->stall, .mark = mark, .wait = &w, .error_ms = p->stall_error_ms};
  ncclResult_t res = tt_stall_look_at(&k, seen_ns);
  if (res != ncclSuccess) {
    tt_port_stop(r->port, res);
  } else if (p->stall.waited_ns >= tt_peer_check_ns()) {
    tt_port_watch(r->port); // also those that others wait for
  }
}

// Ranks on the host sleep when they wait, and kernels wake nobody.
static void rank_ring(const tt_gpu_rank *r)
{
  tt_bell_fence();
  for (int i = 0; i < r->port->nranks; i++) {
    const tt_link *link = __atomic_load_n(&r->port->links[i], __ATOMIC_ACQUIRE);
    if (link != NULL && i != r->port->rank && !link->networked) {
      tt_page_ring(link->page, r->port->rank);
    }
  }
}

// What follows from a look.
typedef struct ranks_found {
  tt_work *over, **end; // plans that are over
  tt_gpu_rank *begun;   // ranks with channels that have begun, whose watcher is to be told
} ranks_found;

// Have channels of the first plan begun that profilers want to know of? One thread at a time tells.
static void rank_look_at_times(tt_gpu_rank *r, ranks_found *found)
{
  tt_plan *p = plan_of(r->first);
  if (p->watch != NULL && !r->tells && tt_gpu_times_look(p)) {
    r->tells = true;
    r->teller = found->begun;
    found->begun = r;
  }
}

// True: a plan is over, or something has moved over the network.
static bool rank_look(tt_gpu_rank *r, uint64_t now, ranks_found *found)
{
  if (r->first == NULL) { // the rank may be being created, or taken down
    return rank_look_at_graphs(r, now);
  }
  const bool moved = rank_move(r);
  rank_ring(r);
  const bool any = rank_reap(r, &found->end) || moved;
  if (r->first == NULL) {
    return any;
  }
  rank_look_at_times(r, found);
  tt_gpu_port_check(r->gpu);
  if (any || now >= r->due_ns) {
    if (!any) {
      rank_query(r);
    }
    if (!any && tt_port_status(r->port) == ncclSuccess) {
      rank_check(r);
    }
    r->due_ns = now + TT_MIN(tt_peer_check_ns(), 10 * TT_NS_PER_MS);
  }
  if (tt_port_status(r->port) != ncclSuccess) {
    tt_gpu_port_stop(r->gpu);
  }
  return any;
}

// ---- All of them ----

// Tells the rank's watcher what has begun.
static void rank_tell(tt_gpu_rank *r)
{
  tt_plan *p = plan_of(r->first);
  p->watch(p, false);
  pthread_mutex_lock(&lock);
  r->tells = false;
  pthread_mutex_unlock(&lock);
}

// Tells what has begun, and takes back plans that are over. Without the lock: watchers and owners may do what they
// like.
static void ranks_end(const ranks_found *found)
{
  tt_gpu_rma_end();
  for (tt_gpu_rank *r = found->begun, *next; r != NULL; r = next) {
    next = r->teller;
    rank_tell(r);
  }
  for (tt_work *w = found->over, *next; w != NULL; w = next) {
    tt_plan *p = plan_of(w);
    next = w->next;
    if (p->watch != NULL) {
      tt_gpu_times_close(p);
      p->watch(p, true);
    }
    p->recycle(p);
  }
}

// The lock is held. True: as rank_look, for any.
static bool ranks_look(ranks_found *found)
{
  const uint64_t now = tt_now_ns();
  bool any = false;
  *found = (ranks_found){.end = &found->over};
  for (tt_gpu_rank *r = ranks; r != NULL && in_flight + in_graphs + in_windows > 0; r = r->next) {
    const int batches = tt_gpu_rma_look(r->gpu, now, &r->broken, &any);
    in_flight -= batches;
    any |= rank_look(r, now, found) || batches > 0;
  }
  return any;
}

bool tt_gpu_progress(void)
{
  ranks_found found;
  pthread_mutex_lock(&lock);
  const bool any = ranks_look(&found);
  pthread_mutex_unlock(&lock);
  ranks_end(&found);
  return any;
}

static bool rank_replays(const tt_gpu_rank *r)
{
  bool any = false;
  return r->graphs && tt_gpu_port_replays(r->gpu, &any) == ncclSuccess && any;
}

bool tt_gpu_rank_replays(const tt_port *port)
{
  pthread_mutex_lock(&lock);
  const bool any = port->gpu != NULL && rank_replays(port->gpu);
  pthread_mutex_unlock(&lock);
  return any;
}

// Has a port that is stopped plans in flight, or replays?
static bool any_unsettled(void)
{
  bool any = false;
  pthread_mutex_lock(&lock);
  for (const tt_gpu_rank *r = ranks; r != NULL; r = r->next) {
    any |= (r->first != NULL || tt_gpu_rma_flies(r->gpu) || rank_replays(r)) && tt_port_status(r->port) != ncclSuccess;
  }
  pthread_mutex_unlock(&lock);
  return any;
}

// What has begun ends soon: it waits for no word any more, and kernels that have not begun do nothing. Longer waits
// only work that stands in its stream behind the program's own.
void tt_gpu_settle(void)
{
  const uint64_t end_ns = tt_now_ns() + SETTLE_MS * TT_NS_PER_MS;
  for (tt_gpu_progress(); any_unsettled() && tt_now_ns() < end_ns; tt_gpu_progress()) {
    tt_sleep_ns(NAP_LEAST_NS);
  }
}

static _Thread_local int awaits;

void tt_gpu_await(bool (*ready)(void *arg), void *arg)
{
  uint64_t nap_ns = NAP_LEAST_NS;
  awaits++;
  while (!ready(arg)) {
    if (tt_gpu_progress()) {
      nap_ns = NAP_LEAST_NS;
      continue;
    }
    tt_sleep_ns(nap_ns);
    nap_ns = TT_MIN(2 * nap_ns, (uint64_t)NAP_MOST_NS);
  }
  awaits--;
}

// A program that has waited for its stream asks now whether the work was good: what its kernels have found wrong has to
// be seen first.
bool tt_gpu_poll(bool (*ready)(void *arg), void *arg)
{
  tt_gpu_progress();
  if (ready(arg)) {
    return true;
  }
  sched_yield();
  return ready(arg);
}

bool tt_gpu_awaiting(void)
{
  return awaits > 0;
}

// ---- The thread ----

// Runs what is deferred until nothing of it has been done. The lock is held, and given up meanwhile.
static void ranks_run_deferred(void)
{
  for (tt_deferred **at = &deferred; *at != NULL;) {
    tt_deferred *d = *at, *after = d->next;
    *at = after; // it may be freed
    pthread_mutex_unlock(&lock);
    const bool over = d->run(d);
    pthread_mutex_lock(&lock);
    if (!over) { // back to its place
      d->next = *at;
      *at = d;
    }
    at = over ? &deferred : &d->next;
  }
}

static _Thread_local bool is_watcher;

static void *ranks_run(void *arg)
{
  uint64_t nap_ns = NAP_LEAST_NS;
  is_watcher = true;
  pthread_mutex_lock(&lock);
  while (ranks != NULL || deferred != NULL) {
    ranks_found found;
    if (in_flight + in_graphs + in_windows == 0 && deferred == NULL) {
      sleeps = true;
      pthread_cond_wait(&something, &lock);
      sleeps = false;
      nap_ns = NAP_LEAST_NS;
      continue;
    }
    const bool any = ranks_look(&found);
    pthread_mutex_unlock(&lock);
    ranks_end(&found);
    pthread_mutex_lock(&lock);
    ranks_run_deferred();
    nap_ns = any ? NAP_LEAST_NS : TT_MIN(nap_ns * 3 / 2, (uint64_t)NAP_MOST_NS);
    pthread_mutex_unlock(&lock);
    tt_sleep_ns(nap_ns);
    pthread_mutex_lock(&lock);
  }
  runs = false;
  pthread_mutex_unlock(&lock);
  return arg;
}

// The lock is held.
static ncclResult_t ranks_start(void)
{
  if (!runs) {
    TT_TRY(tt_thread_start_detached("tutti gpu", ranks_run, NULL));
    runs = true;
  }
  return ncclSuccess;
}

// The lock is held.
static void ranks_wake(void)
{
  if (sleeps) {
    pthread_cond_signal(&something);
  }
}

void tt_gpu_defer(tt_deferred *d)
{
  pthread_mutex_lock(&lock);
  d->next = deferred;
  deferred = d;
  if (ranks_start() != ncclSuccess) {
    tt_warn("GPUs: %s; memory of an aborted communicator stays allocated", tt_last_error());
  }
  ranks_wake();
  pthread_mutex_unlock(&lock);
}

// ---- Open and close ----

// The driver waits for all work of the process when memory is closed or unpinned, and that could wait for what another
// thread is about to submit. So nobody submits meanwhile. False: something is in flight.
static bool ranks_close_stale(void)
{
  pthread_mutex_lock(&lock);
  const bool may = in_flight == 0 && in_graphs == 0 && !closes;
  closes |= may;
  pthread_mutex_unlock(&lock);
  if (may) {
    tt_gpu_ipc_close_stale();
    tt_gpu_pins_close_stale();
    pthread_mutex_lock(&lock);
    closes = false;
    pthread_cond_broadcast(&closed);
    pthread_mutex_unlock(&lock);
  }
  return may;
}

tt_gpu_port *tt_gpu_rank_port(const tt_port *port)
{
  return port->gpu->gpu;
}

ncclResult_t tt_gpu_rank_look(const tt_port *port)
{
  const ncclResult_t res = tt_gpu_port_look(port->gpu->gpu);
  if (res != ncclSuccess) {
    tt_port_stop(port->gpu->port, res);
  }
  return res;
}

ncclResult_t tt_gpu_rank_open(tt_port *port)
{
  tt_gpu_rank *r;
  TT_TRY(TT_NEW(r, 1, "rank %d: no memory for its GPU", port->rank));
  r->port = port;
  r->end = &r->first;
  // No post moves this rank's thread, which sleeps on the page's bell for mails alone (ipc.h): so posts do not ring it.
  atomic_store_explicit(&port->page->want, (uint32_t)port->rank + 1, memory_order_relaxed);
  ncclResult_t res = tt_gpu_port_open(port, port->device, &r->gpu);
  res = res == ncclSuccess ? tt_gpu_ipc_open(r->gpu) : res;
  if (res == ncclSuccess) {
    pthread_mutex_lock(&lock);
    r->next = ranks;
    ranks = r;
    res = ranks_start();
    pthread_mutex_unlock(&lock);
    port->gpu = r;
  }
  if (res != ncclSuccess && port->gpu == NULL) {
    tt_gpu_port_close(r->gpu);
    tt_free(r);
  }
  return res;
}

void tt_gpu_rank_close(tt_port *port)
{
  tt_gpu_rank *r = port->gpu, **at = &ranks;
  if (r == NULL) {
    return;
  }
  pthread_mutex_lock(&lock);
  while (*at != r) {
    at = &(*at)->next;
  }
  *at = r->next;
  in_graphs -= r->graphs;
  ranks_wake();
  pthread_mutex_unlock(&lock);
  tt_gpu_stage_close(r->gpu);
  tt_gpu_ipc_stop(r->gpu);
  tt_gpu_port_close(r->gpu);
  tt_free(r);
  port->gpu = NULL;
  if (!is_watcher && tt_gpu_ipc_stale()) { // else the next operation does it
    ranks_close_stale();
  }
}

void tt_gpu_rank_unlink(const tt_port *port)
{
  if (port->gpu != NULL) {
    pthread_mutex_lock(&lock);
    port->gpu->linked = false;
    tt_stall_over(port->gpu->port, &port->gpu->replay, false);
    pthread_mutex_unlock(&lock);
    tt_gpu_captures_leave(port->gpu->gpu);
  }
}

// ---- Submission ----

// The plan is in flight from now on, until the port's work of that number is done.
static void rank_fly(const tt_gpu_work *w, uint32_t number)
{
  tt_gpu_rank *r = w->plan->port->gpu;
  w->plan->work.next = NULL;
  w->plan->number = number;
  pthread_mutex_lock(&lock);
  while (closes) {
    pthread_cond_wait(&closed, &lock);
  }
  r->linked = true;
  const bool first = r->first == NULL;
  *r->end = &w->plan->work;
  r->end = &w->plan->work.next;
  in_flight++;
  if (first) {
    rank_begin(r);
    r->due_ns = tt_now_ns() + TT_MIN(tt_peer_check_ns(), 10 * TT_NS_PER_MS);
  }
  ranks_wake();
  pthread_mutex_unlock(&lock);
}

void tt_gpu_ranks_fly(void)
{
  pthread_mutex_lock(&lock);
  while (closes) {
    pthread_cond_wait(&closed, &lock);
  }
  in_flight++;
  ranks_wake();
  pthread_mutex_unlock(&lock);
}

void tt_gpu_rank_takes(const tt_port *port, tt_rma *rma)
{
  tt_gpu_port *p = port->gpu->gpu;
  pthread_mutex_lock(&lock);
  in_windows += (rma != NULL) - (p->takes != NULL);
  p->takes = rma;
  ranks_wake();
  pthread_mutex_unlock(&lock);
}

// A submission has failed: the ports are stopped. A plan whose work was not begun is over when the ones before are.
static void rank_fail(const tt_gpu_work *works, int n, ncclResult_t res)
{
  pthread_mutex_lock(&lock);
  for (int i = 0; i < n; i++) {
    tt_gpu_rank *r = works[i].plan->port->gpu;
    const uint32_t last = tt_gpu_port_submitted(r->gpu);
    for (tt_work *w = r->first; w != NULL; w = w->next) {
      plan_of(w)->number = (int32_t)(plan_of(w)->number - last) > 0 ? last : plan_of(w)->number;
    }
  }
  pthread_mutex_unlock(&lock);
  for (int i = 0; i < n; i++) {
    tt_port_stop(works[i].plan->port, res);
  }
}

// Are the streams captured? All or none.
static ncclResult_t works_captured(const tt_gpu_work *works, int n, bool *captured)
{
  *captured = works->captured;
  for (int i = 1; i < n; i++) {
    if (works[i].captured != *captured) {
      return tt_fail(ncclInvalidUsage, "of a group of calls some are on captured streams, and some are not");
    }
  }
  return ncclSuccess;
}

// Graphs keep nothing of the plans. They go back when those before them are done, which is the order that owners know.
static ncclResult_t ranks_capture(tt_gpu_work *works, int n, ncclResult_t res)
{
  for (int i = 0; i < n; i++) {
    works[i].plan->times = NULL;
  }
  res = res == ncclSuccess ? tt_gpu_capture(works, n) : res;
  for (int i = 0; i < n; i++) {
    tt_gpu_rank *r = works[i].plan->port->gpu;
    if (res != ncclSuccess) {
      tt_port_stop(r->port, res);
    }
    tt_gpu_stage_drop(&works[i]);
    pthread_mutex_lock(&lock);
    in_graphs += !r->graphs; // before the plan, whose end may put the thread to sleep
    r->graphs = true;
    pthread_mutex_unlock(&lock);
    rank_fly(&works[i], tt_gpu_port_submitted(r->gpu));
  }
  return res;
}

ncclResult_t tt_gpu_ranks_submit(tt_gpu_work *works, int n)
{
  bool captured = false;
  const ncclResult_t mixed = works_captured(works, n, &captured);
  if (captured || mixed != ncclSuccess) {
    return ranks_capture(works, n, mixed);
  }
  // In flight before they are submitted: so whatever holds that up is seen.
  for (int i = 0; i < n; i++) {
    if (works[i].plan->watch != NULL) {
      tt_gpu_times_open(works[i].port, works[i].plan);
    }
    atomic_store_explicit(&works[i].plan->port->gpu->submits_ns, tt_now_ns(), memory_order_relaxed);
    rank_fly(&works[i], tt_gpu_port_submitted(works[i].port) + 1);
  }
  ncclResult_t res = tt_gpu_submit(works, n);
  for (int i = 0; i < n; i++) {
    atomic_store_explicit(&works[i].plan->port->gpu->submits_ns, 0, memory_order_relaxed);
  }
  for (int i = 0; i < n; i++) {
    tt_gpu_stage_drop(&works[i]);
  }
  if (res != ncclSuccess) {
    rank_fail(works, n, res);
  }
  return res;
}

void tt_gpu_ranks_close_stale(void)
{
  if (tt_gpu_ipc_stale() || tt_gpu_pins_stale()) {
    tt_gpu_progress();
    if (!ranks_close_stale()) {
      tt_gpu_pins_keep_stale();
    }
  }
}

// A child of a fork cannot use its parent's GPUs, and has no such thread; another thread may have been here.
static void ranks_in_child(void)
{
  ranks = NULL;
  deferred = NULL;
  runs = sleeps = closes = false;
  in_flight = in_graphs = in_windows = 0;
  pthread_mutex_init(&lock, NULL);
  pthread_cond_init(&something, NULL);
  pthread_cond_init(&closed, NULL);
}

__attribute__((constructor)) static void ranks_at_start(void)
{
  static tt_fork_hook hook = {.fn = ranks_in_child};
  tt_proc_on_fork(&hook);
}
