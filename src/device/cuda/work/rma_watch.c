// rma_watch.c: batches of one-sided operations that are in flight: see rma.h.
#include <pthread.h>

#include "device/cuda/work/ipc.h"
#include "device/cuda/work/pool.h"
#include "device/cuda/work/rank.h"
#include "device/cuda/work/rma_priv.h"
#include "device/stall.h"
#include "device/stall_chain.h"
#include "os/clock.h"
#include "os/proc.h"

// Over the batches of all ports, in the order in which they were queued, and those that are over. Nobody waits with it.
static pthread_mutex_t batches_lock = PTHREAD_MUTEX_INITIALIZER;
static gpu_batch *ended, **ended_end = &ended;

void tt_gpu_rma_fly(gpu_batch *g)
{
  tt_gpu_port *p = g->port;
  tt_gpu_ranks_fly();
  pthread_mutex_lock(&batches_lock);
  gpu_batch **at = &p->batches;
  while (*at != NULL) {
    at = &(*at)->next;
  }
  *at = g;
  pthread_mutex_unlock(&batches_lock);
}

// It has not had its signals, and its stream will place no payloads.
static bool op_awaits_process(const gpu_batch *g, int i)
{
  const tt_rma_op *op = &g->batch->ops[i];
  return op->waits && !g->far[i].takes && tt_gpu_ipc_has(g->port, op->peer) &&
         atomic_load_explicit(gpu_count_in(g->batch, op), memory_order_relaxed) < op->number;
}

bool tt_gpu_rma_awaits(const tt_gpu_port *p)
{
  bool awaits = false;
  pthread_mutex_lock(&batches_lock);
  for (const gpu_batch *g = p->batches; g != NULL; g = g->next) {
    for (int i = 0; i < g->batch->n; i++) {
      awaits |= op_awaits_process(g, i);
    }
  }
  pthread_mutex_unlock(&batches_lock);
  return awaits;
}

bool tt_gpu_rma_flies(const tt_gpu_port *p)
{
  pthread_mutex_lock(&batches_lock);
  const bool flies = p->batches != NULL;
  pthread_mutex_unlock(&batches_lock);
  return flies;
}

static tt_port *rma_port_of(const gpu_batch *g)
{
  return g->port->port;
}

static bool port_runs(const gpu_batch *g)
{
  return tt_port_status(rma_port_of(g)) == ncclSuccess;
}

// ---- What the operations of a batch wait for. The lock is held ----

static bool op_is_over(const gpu_batch *g, const tt_rma_op *op)
{
  if (!op->waits && gpu_peer_of(g->batch, op)->networked) {
    return g->far[op - g->batch->ops].over;
  }
  if (op->waits) {
    return atomic_load_explicit(gpu_count_in(g->batch, op), memory_order_acquire) >= op->number;
  }
  const uint32_t over = atomic_load_explicit(&gpu_peer_of(g->batch, op)->gpu->over[op->ctx], memory_order_acquire);
  return (int32_t)(over - (uint32_t)op->number) > 0;
}

// Does the put wait for its window?
static bool gpu_op_lacks_window(const gpu_batch *g, int i)
{
  if (gpu_peer_of(g->batch, &g->batch->ops[i])->networked) {
    return false;
  }
  const gpu_target *t = &g->pinned->targets[i];
  return atomic_load_explicit(&t->late, memory_order_acquire) != 0 &&
         atomic_load_explicit(&t->ready, memory_order_relaxed) == 0;
}

// The windows that puts wait for may be open by now.
static void batch_aim(const gpu_batch *g)
{
  for (int i = 0; i < g->batch->n && port_runs(g); i++) {
    if (gpu_op_lacks_window(g, i)) {
      const ncclResult_t res = tt_gpu_rma_aim(g, i);
      if (res != ncclSuccess) {
        tt_port_stop(rma_port_of(g), res);
      }
    }
  }
}

// Has a rank ended that an operation needs? What it has done before still counts, so its state is read first.
static ncclResult_t gpu_batch_peers(const gpu_batch *g, tt_culprit *culprit)
{
  for (int i = 0; i < g->batch->n; i++) {
    const tt_rma_op *op = &g->batch->ops[i];
    const tt_rma_peer *p = gpu_peer_of(g->batch, op);
    const uint32_t state = p->link == NULL ? (uint32_t)TT_RANK_RUNNING : tt_link_state(p->link);
    if (p->networked && state >= TT_RANK_FAILED) {
      rma_port_of(g)->mover->settle(rma_port_of(g)->mover_self); // takes what has come,
      tt_gpu_far_move(g);                                        // and sees what has been sent
    } else if (p->networked) {
      rma_port_of(g)->mover->probe(rma_port_of(g)->mover_self, op->peer);
    }
    if (state >= TT_RANK_FAILED && !op_is_over(g, op)) {
      return tt_port_accuse(rma_port_of(g), op->peer, p->page, state, culprit);
    }
  }
  return ncclSuccess;
}

// Is it a put by way of the host that has not been sent, though its stream has come to it?
static bool op_is_unsent(const gpu_batch *g, int i)
{
  const tt_rma_op *op = &g->batch->ops[i];
  if (op->waits || !gpu_peer_of(g->batch, op)->networked) {
    return !op->waits && tt_gpu_far_holds(g, i);
  }
  return atomic_load_explicit(&g->pinned->targets[i].ready, memory_order_acquire) != 0 && !g->far[i].op.passed;
}

static bool op_has_window(const gpu_batch *g, const tt_rma_op *op)
{
  tt_window_note unused;
  return op->bytes == 0 || tt_board_find(gpu_peer_of(g->batch, op)->board, op->window, &unused) != 0;
}

// What the stream waits for, or will be the first to: false: for no peer, as far as one can say. *mark: how far it is.
static bool batch_wait(const gpu_batch *g, tt_wait *w, uint64_t *mark)
{
  bool waits = false;
  *mark = 1;
  for (int i = 0; i < g->batch->n; i++) {
    const tt_rma_op *op = &g->batch->ops[i];
    const uint64_t came = op->waits ? atomic_load_explicit(gpu_count_in(g->batch, op), memory_order_relaxed) : 0;
    const bool unsent = op_is_unsent(g, i), lacks = op->waits ? came < op->number : gpu_op_lacks_window(g, i) || unsent;
    *mark = *mark * 31 + (lacks ? 1 + came : 0) + (unsent ? g->far[i].op.bytes : 0);
    if (lacks && !waits) {
      *w = (tt_wait){.peer = (uint32_t)op->peer,
                     .how = TT_WAIT_SIGNAL | (op->waits ? (uint32_t)TT_WAIT_RECEIVES : 0u),
                     .sig = tt_sig_rma(op->waits                        ? TT_SIG_WAIT
                                       : unsent && op_has_window(g, op) ? TT_SIG_ROOM
                                                                        : TT_SIG_PUT,
                                       op->ctx, op->sig),
                     .count = op->waits ? came << 32 | (uint32_t)op->number : op->window};
      waits = true;
    }
  }
  return waits;
}

static void gpu_batch_check(gpu_batch *g)
{
  const uint64_t seen_ns = tt_now_ns();
  tt_rma_batch *b = g->batch;
  tt_culprit culprit = 0;
  tt_wait w;
  uint64_t mark;
  ncclResult_t res = gpu_batch_peers(g, &culprit);
  if (res == ncclSuccess && !batch_wait(g, &w, &mark)) {
    tt_stall_over(rma_port_of(g), &b->stall, true);
  } else if (res == ncclSuccess) {
    const tt_stalled k = {.port = rma_port_of(g), .stall = &b->stall, .mark = mark, .wait = &w, .batch = true};
    res = tt_stall_look_at(&k, seen_ns);
  }
  if (res != ncclSuccess) {
    tt_port_stop_for(rma_port_of(g), res, culprit);
  } else if (b->stall.waited_ns >= tt_peer_check_ns()) {
    tt_port_watch(rma_port_of(g)); // also those that others wait for
  }
}

// Has the device been reset, or work of the batch's stream failed?
static bool batch_query(const gpu_batch *g)
{
  bool idle;
  ncclResult_t res = tt_gpu_port_look(g->port);
  if (res == ncclSuccess && atomic_load_explicit(&g->complete, memory_order_acquire)) {
    res = tt_gpu_stream_query(g->stream, &idle);
  }
  if (res != ncclSuccess && port_runs(g)) {
    tt_port_stop(rma_port_of(g), res);
  }
  return res != ncclSuccess;
}

// ---- Looking ----

static void batch_begins(gpu_batch *g)
{
  if (!g->begun && atomic_load_explicit(&g->pinned->begun, memory_order_acquire) != 0) {
    g->begun = true;
    tt_flight_start(&rma_port_of(g)->flight, g->batch->record, g->batch->n, false);
  }
}

// Its end could not be queued: has its stream come to the end of what was queued, or failed? Then nothing of it runs.
static bool batch_is_lost(gpu_batch *g)
{
  bool idle = true;
  if (g->lost && tt_gpu_stream_query(g->stream, &idle) != ncclSuccess) {
    g->lost = false;
    return true;
  }
  return g->lost && idle;
}

static bool batch_is_over(gpu_batch *g, bool broken)
{
  return atomic_load_explicit(&g->complete, memory_order_acquire) &&
         (batch_is_lost(g) || broken ||
          (atomic_load_explicit(&g->pinned->done, memory_order_acquire) != 0 && tt_gpu_far_over(g)));
}

// Notes where the batches stand, and finds windows. True: payloads have moved.
static bool batches_move(const tt_gpu_port *p)
{
  bool moved = p->takes != NULL && tt_gpu_far_take(p->takes);
  for (gpu_batch *g = p->batches; g != NULL; g = g->next) {
    batch_begins(g);
    batch_aim(g);
    moved |= tt_gpu_far_move(g);
  }
  return moved;
}

static void batches_check(const tt_gpu_port *p, uint64_t now, bool *broken)
{
  for (gpu_batch *g = p->batches; g != NULL; g = g->next) {
    if (now < g->due_ns) {
      continue;
    }
    *broken |= g->due_ns != 0 && batch_query(g);
    if (g->begun && port_runs(g)) {
      gpu_batch_check(g);
    }
    g->due_ns = now + TT_MIN(tt_peer_check_ns(), 10 * TT_NS_PER_MS);
  }
}

// Those that were over when the port was looked at for what kernels have found wrong leave the list.
static int batches_reap(tt_gpu_port *p)
{
  int n = 0;
  for (gpu_batch **at = &p->batches; *at != NULL;) {
    gpu_batch *g = *at;
    if (!g->over) {
      at = &g->next;
      continue;
    }
    batch_begins(g);
    tt_gpu_far_drop(g);
    if (g->batch->moves) { // nobody comes back for what it has still to send
      rma_port_of(g)->mover->kick(rma_port_of(g)->mover_self, false);
    }
    tt_stall_over(rma_port_of(g), &g->batch->stall, port_runs(g));
    tt_flight_end(&rma_port_of(g)->flight, g->batch->record, g->batch->n, false);
    *at = g->next;
    g->next = NULL;
    *ended_end = g;
    ended_end = &g->next;
    n++;
  }
  return n;
}

// Ranks on the host sleep when they wait, and kernels wake nobody.
static void batch_rings(const gpu_batch *g)
{
  tt_bell_fence();
  for (int i = 0; i < g->batch->n; i++) {
    const tt_rma_peer *peer = gpu_peer_of(g->batch, &g->batch->ops[i]);
    if (gpu_peer_is_apart(peer) && peer->put.slots == NULL) {
      tt_bell_ring(&peer->page->bell);
    }
  }
}

// Notes which of them are over.
static void batches_end(const tt_gpu_port *p, bool broken)
{
  for (gpu_batch *g = p->batches; g != NULL; g = g->next) {
    g->over = batch_is_over(g, broken);
    batch_rings(g);
  }
}

int tt_gpu_rma_look(tt_gpu_port *p, uint64_t now, bool *broken, bool *moved)
{
  const tt_mover *mover = tt_gpu_rma_flies(p) ? p->port->mover : NULL;
  if (mover != NULL) {
    mover->progress(p->port->mover_self, true);
  }
  pthread_mutex_lock(&batches_lock);
  const bool flies = p->batches != NULL;
  *moved |= batches_move(p);
  batches_end(p, *broken);
  pthread_mutex_unlock(&batches_lock);
  if (!flies) {
    return 0;
  }
  tt_gpu_port_check(p); // also what is over
  pthread_mutex_lock(&batches_lock);
  batches_check(p, now, broken);
  if (*broken) {
    tt_gpu_rma_leave(p);
    batches_end(p, true);
  }
  pthread_mutex_unlock(&batches_lock);
  if (tt_port_status(p->port) != ncclSuccess) {
    tt_gpu_port_stop(p); // before: it releases what the batches wait for
  }
  pthread_mutex_lock(&batches_lock);
  const int n = batches_reap(p);
  pthread_mutex_unlock(&batches_lock);
  return n;
}

// Profilers hear of the operations when all of the batch is over: they have run since its beginning, if it has begun.
static void rma_tell_times(const gpu_batch *g)
{
  tt_rma_batch *b = g->batch;
  const uint64_t start = atomic_load_explicit(&g->pinned->start, memory_order_relaxed),
                 stop = atomic_load_explicit(&g->pinned->stop, memory_order_relaxed);
  for (int i = -1; i < b->n && b->watch != NULL && start != 0; i++) {
    b->watch(b, i, i < 0 ? start : TT_MAX(start, stop));
  }
}

static void rma_give_back(gpu_batch *g)
{
  tt_rma_batch *b = g->batch;
  rma_tell_times(g);
  if (!g->lost) { // else kernels may still look there
    tt_gpu_pool_give(TT_GPU_PINNED, g->pinned);
  }
  tt_free(g);
  b->recycle(b);
}

void tt_gpu_rma_end(void)
{
  pthread_mutex_lock(&batches_lock);
  gpu_batch *all = ended;
  ended = NULL;
  ended_end = &ended;
  pthread_mutex_unlock(&batches_lock);
  for (gpu_batch *g = all, *next; g != NULL; g = next) {
    next = g->next;
    rma_give_back(g);
  }
}

// ---- Stops ----

// The port is stopped: nothing reads these numbers any more but its streams.
static void raise_count(_Atomic uint64_t *count, uint64_t value)
{
  if (atomic_load_explicit(count, memory_order_relaxed) < value) {
    atomic_store_explicit(count, value, memory_order_release);
  }
}

static void op_release(const gpu_batch *g, int i)
{
  const tt_rma_op *op = &g->batch->ops[i];
  const tt_rma_peer *peer = gpu_peer_of(g->batch, op);
  if (peer->networked) {
    atomic_store_explicit(&g->pinned->targets[i].late, op->waits, memory_order_release);
    return;
  }
  if (op->waits) {
    raise_count(gpu_count_in(g->batch, op), op->number);
    atomic_store_explicit(&g->pinned->targets[i].late, 1, memory_order_release);
    return;
  }
  atomic_store_explicit(&g->pinned->targets[i].sent, 1, memory_order_release);
  atomic_store_explicit(&g->pinned->targets[i].ready, 1, memory_order_release);
  if (peer->gpu != NULL) {
    _Atomic uint32_t *over = &peer->gpu->over[op->ctx];
    if ((int32_t)((uint32_t)op->number - atomic_load_explicit(over, memory_order_relaxed)) > 0) {
      atomic_store_explicit(over, (uint32_t)op->number, memory_order_release);
    }
  }
}

void tt_gpu_rma_release(const tt_gpu_port *p)
{
  pthread_mutex_lock(&batches_lock);
  for (const gpu_batch *g = p->batches; g != NULL; g = g->next) {
    for (int i = 0; i < g->batch->n; i++) {
      op_release(g, i);
    }
  }
  pthread_mutex_unlock(&batches_lock);
}

ncclResult_t tt_gpu_rma_shut(const tt_port *port, const tt_cuda_fault *f, tt_culprit *culprit)
{
  const tt_link *link = f->peer == port->rank ? NULL : __atomic_load_n(&port->links[f->peer], __ATOMIC_ACQUIRE);
  const uint32_t state = link == NULL ? (uint32_t)TT_RANK_RUNNING : tt_link_state(link);
  return state >= TT_RANK_FAILED
             ? tt_port_accuse(port, f->peer, link->page, state, culprit)
             : tt_fail(ncclInvalidUsage,
                       "rank %d: ncclPutSignal into window %llu of rank %d, which has deregistered it", port->rank,
                       (unsigned long long)f->sig, f->peer);
}

// A child has none of these.
static void rma_in_child(void)
{
  ended = NULL;
  ended_end = &ended;
  pthread_mutex_init(&batches_lock, NULL);
}

__attribute__((constructor)) static void rma_at_start(void)
{
  static tt_fork_hook hook = {.fn = rma_in_child};
  tt_proc_on_fork(&hook);
}
