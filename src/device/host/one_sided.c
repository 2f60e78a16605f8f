// one_sided.c: batches of one-sided operations in a stream's queue (device/one_sided.h): puts copy and count, waits
// compare counters. A batch that waits sleeps on its own rank's bell, which peers ring when they have counted.
#include "device/one_sided.h"

#include <string.h>

#include "base/result.h"
#include "device/host/mem.h"
#include "device/stall.h"
#include "device/owner.h"
#include "device/rma_link.h"
#include "os/clock.h"
#include "os/shm.h"

#define WAIT_LOOKS 512         // about a microsecond
#define CALL_BYTES (32u << 10) // what a call may do on the caller's time

// ---- Memory of peers

static void drop_map(tt_window_map **at)
{
  tt_window_map *m = *at;
  *at = m->next;
  tt_shm_unmap(m->whole, m->size);
  tt_free(m);
}

void tt_rma_forget_maps(tt_rma_peer *p)
{
  while (p->maps != NULL) {
    drop_map(&p->maps);
  }
}

// The map of the peer's window. Those of windows that have been closed go. NULL: no memory. Caller holds p->lock.
static tt_window_map *map_of(tt_rma_peer *p, uint64_t number, const tt_window_note *note)
{
  tt_window_note unused;
  for (tt_window_map *m = p->maps; m != NULL; m = m->next) {
    if (m->number == number) {
      return m;
    }
  }
  for (tt_window_map **at = &p->maps; *at != NULL;) {
    if (tt_board_find(p->board, (*at)->number, &unused) < 0) {
      drop_map(at);
    } else {
      at = &(*at)->next;
    }
  }
  tt_window_map *m = tt_calloc(1, sizeof *m);
  if (m != NULL) {
    m->number = number;
    tt_mem_map_window(p->link, note, m);
    m->next = p->maps;
    p->maps = m;
  }
  return m;
}

// Where `n` bytes at `offset` of the window lie in this process; NULL: nowhere. Caller holds p->lock.
static char *window_place(tt_rma_peer *p, uint64_t number, const tt_window_note *note, uint64_t offset, size_t n)
{
  const tt_window_map *m = note->mem != 0 ? map_of(p, number, note) : NULL;
  uint64_t at = note->base + offset - (m != NULL ? m->remote : 0);
  return m != NULL && m->whole != NULL && at <= m->size && n <= m->size - at ? m->whole + at : NULL;
}

char *tt_rma_window_address(tt_rma_peer *p, uint64_t number, const tt_window_note *note)
{
  if (p->link == NULL || p->link->access == TT_ACCESS_LOCAL) {
    return (char *)(uintptr_t)note->base;
  }
  if (p->put.slots != NULL) { // of a GPU
    return NULL;
  }
  pthread_mutex_lock(&p->lock);
  char *base = window_place(p, number, note, 0, note->size);
  pthread_mutex_unlock(&p->lock);
  return base;
}

// Copies into a window of another process. Returns 0 or an errno value.
static int put_far(tt_rma_peer *p, const tt_rma_op *op, const tt_window_note *note, size_t n)
{
  pthread_mutex_lock(&p->lock);
  char *to = window_place(p, op->window, note, op->offset, n);
  if (to != NULL) {
    memcpy(to, op->from, n);
  }
  pthread_mutex_unlock(&p->lock);
  return to != NULL ? 0
                    : tt_proc_copy(p->link->proc.pid, (void *)(uintptr_t)op->from, note->base + op->offset, n, true);
}

// ---- Puts and signals

static const char *stopped_text(const tt_rank_page *page)
{
  uint32_t state = atomic_load_explicit(&page->state, memory_order_acquire);
  return state == TT_RANK_ABORTED ? "has aborted the communicator"
         : state == TT_RANK_GONE  ? "has destroyed the communicator"
         : state == TT_RANK_LOST  ? "cannot be reached any more: its process may have ended"
                                  : "has failed";
}

// *n: less than it was where the peer's FIFO has no room.
static ncclResult_t copy_piece(const tt_rma *rma, tt_rma_peer *p, const tt_rma_op *op, const tt_window_note *note,
                               size_t *n)
{
  if (p->link == NULL || p->link->access == TT_ACCESS_LOCAL) {
    memcpy((char *)(uintptr_t)note->base + op->offset, op->from, *n);
    return ncclSuccess;
  }
  if (p->put.slots != NULL) { // no thread writes memory of GPUs
    *n = tt_rma_box_put(p, op, *n);
    return ncclSuccess;
  }
  int e = put_far(p, op, note, *n);
  return e == 0
             ? ncclSuccess
             : tt_fail(ncclRemoteError, "rank %d cannot write %zu bytes into window %llu of rank %d (process %d): %s",
                       rma->port->rank, *n, (unsigned long long)op->window, op->peer, p->link->proc.pid, strerror(e));
}

// Is the place that the put writes to inside the peer's window?
static ncclResult_t check_place(const tt_rma *rma, const tt_rma_op *op, int found, const tt_window_note *note)
{
  if (found < 0) {
    return tt_fail(ncclInvalidUsage, "rank %d: ncclPutSignal into window %llu of rank %d, which has deregistered it",
                   rma->port->rank, (unsigned long long)op->window, op->peer);
  }
  return op->offset > note->size || op->bytes > note->size - op->offset
             ? tt_fail(ncclInvalidArgument,
                       "rank %d: ncclPutSignal of %zu bytes at offset %llu of window %llu of rank %d, which has %llu",
                       rma->port->rank, op->bytes, (unsigned long long)op->offset, (unsigned long long)op->window,
                       op->peer, (unsigned long long)note->size)
             : ncclSuccess;
}

// One piece, under the writer's count. *n: its bytes; 0: the window is not open yet, or there is no room.
static ncclResult_t put_counted(const tt_rma *rma, tt_rma_op *op, tt_rma_peer *p, size_t *n)
{
  tt_window_note note = {.size = 0};
  int found = op->bytes > 0 ? tt_board_find(p->board, op->window, &note) : 1;
  if (tt_page_stopped(p->page) && p->link != NULL) {
    return tt_fail(ncclRemoteError, "rank %d: one-sided operation to rank %d, which %s", rma->port->rank, op->peer,
                   stopped_text(p->page));
  }
  if (found == 0 || op->bytes == 0) {
    *n = 0;
    return ncclSuccess;
  }
  TT_TRY(check_place(rma, op, found, &note));
  return copy_piece(rma, p, op, &note, n);
}

static _Atomic uint64_t *turn_of(const tt_rma *rma, const tt_rma_op *op)
{
  return &rma->turn[(size_t)op->ctx * (size_t)rma->port->nranks + (size_t)op->peer];
}

// The next operation with the peer in this context has its turn, perhaps in a batch on another stream. A fence, then
// the own bell, follow.
static void put_passes(tt_rma *rma, const tt_rma_op *op)
{
  atomic_store_explicit(turn_of(rma, op), op->number + 1, memory_order_release);
}

// Counts up, which only who has the turn does, and gives the turn on. What was written is seen before.
static void put_ends(tt_rma *rma, tt_rma_op *op)
{
  _Atomic uint64_t *count = &rma->peers[op->peer].out->count[op->ctx * rma->signals + op->sig];
  atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1, memory_order_release);
  put_passes(rma, op);
  op->over = true;
}

// The end of writing is the fence before the bells, also of the count and the turn. `counts`: the put ends with its
// last piece; else that is another one's, a GPU's.
static inline ncclResult_t put_written(tt_rma *rma, tt_rma_op *op, size_t *budget, bool counts)
{
  tt_rma_peer *p = &rma->peers[op->peer];
  size_t n = TT_MIN(op->bytes, (size_t)TT_PUT_BYTES);
  _Atomic uint64_t *writing = counts ? &p->out->writing : &p->out->handing;
  atomic_fetch_add(writing, 1);
  tt_bell_fence_after_rmw();
  ncclResult_t res = put_counted(rma, op, p, &n);
  if (res == ncclSuccess) {
    op->from += n;
    op->offset += n;
    op->bytes -= n;
    *budget -= TT_MIN(*budget, n);
    if (counts && op->bytes == 0) {
      put_ends(rma, op);
    }
  }
  atomic_fetch_sub(writing, 1);
  tt_bell_fence_after_rmw();
  tt_writes_ring(p->page);
  if (op->over) {
    tt_bell_ring(&rma->port->page->bell);
    tt_bell_ring(&p->page->bell);
  }
  return res;
}

static ncclResult_t put_piece(tt_rma *rma, tt_rma_op *op, size_t *budget)
{
  return put_written(rma, op, budget, true);
}

ncclResult_t tt_rma_write(tt_rma *rma, tt_rma_op *op)
{
  size_t budget = 0;
  return put_written(rma, op, &budget, false);
}

// Over the network: is all of it with the peer, or on its way there?
static bool put_is_sent(const tt_rma_peer *p, const tt_rma_op *op)
{
  return op->passed &&
         (!op->lent || (int32_t)(op->until - atomic_load_explicit(p->net->send.head, memory_order_acquire)) <= 0);
}

// The same over the network: what there is room for is written. A payload that was lent is the user's again when it has
// been sent.
static ncclResult_t put_messages(tt_rma *rma, tt_rma_op *op, size_t *budget)
{
  tt_rma_peer *p = &rma->peers[op->peer];
  if (!op->passed) {
    tt_window_note note = {.size = 0};
    int found = op->bytes > 0 ? tt_board_find(p->board, op->window, &note) : 1;
    if (tt_page_stopped(p->page)) {
      return tt_fail(ncclRemoteError, "rank %d: one-sided operation to rank %d, which %s", rma->port->rank, op->peer,
                     stopped_text(p->page));
    }
    if (found == 0) {
      return ncclSuccess;
    }
    TT_TRY(op->bytes > 0 ? check_place(rma, op, found, &note) : ncclSuccess);
    size_t before = op->bytes;
    tt_rma_link_put(rma, p->net, op);
    *budget -= TT_MIN(*budget, before - op->bytes);
    if (op->passed) {
      put_passes(rma, op);
      tt_bell_fence();
      tt_bell_ring(&rma->port->page->bell);
    }
  }
  op->over = put_is_sent(p, op);
  return ncclSuccess;
}

static ncclResult_t put_run(tt_rma *rma, tt_rma_op *op, size_t *budget)
{
  if (!op->passed && atomic_load_explicit(turn_of(rma, op), memory_order_acquire) != op->number) {
    return ncclSuccess;
  }
  if (rma->peers[op->peer].networked) {
    return put_messages(rma, op, budget);
  }
  for (size_t before = op->bytes + 1; op->bytes<before && * budget> 0 && !op->over;) {
    before = op->bytes;
    TT_TRY(put_piece(rma, op, budget));
  }
  return ncclSuccess;
}

// ---- Waits

static uint64_t signals_of(const tt_rma *rma, const tt_rma_op *op)
{
  return atomic_load_explicit(&rma->peers[op->peer].in->count[op->ctx * rma->signals + op->sig], memory_order_acquire);
}

// At its first look a wait looks a little longer, about a microsecond, if the peer is another process with a core of
// its own: a signal that is on its way costs no turn of a waiting thread then.
static bool wait_looks(const tt_rma *rma, tt_rma_op *op)
{
  bool over = signals_of(rma, op) >= op->number;
  bool stays =
      !op->looked && !rma->port->crowded && rma->peers[op->peer].link != NULL && rma->peers[op->peer].link->watched;
  op->looked = true;
  for (int i = 0; i < WAIT_LOOKS && stays && !over; i++) {
    over = signals_of(rma, op) >= op->number;
  }
  return over;
}

static ncclResult_t op_run(tt_rma *rma, tt_rma_op *op, size_t *budget)
{
  if (!op->waits) {
    return put_run(rma, op, budget);
  }
  op->over = wait_looks(rma, op);
  return ncclSuccess;
}

bool tt_rma_run(tt_rma *rma, tt_rma_op *op)
{
  size_t budget = CALL_BYTES;
  ncclResult_t res = rma->peers[op->peer].networked ? ncclSuccess : op_run(rma, op, &budget);
  if (TT_UNLIKELY(res != ncclSuccess)) {
    tt_port_stop(rma->port, res);
  }
  return op->over;
}

// ---- Batches

static void rma_tell(tt_rma_batch *b, int op)
{
  if (TT_UNLIKELY(b->watch != NULL)) {
    b->watch(b, op, tt_now_ns());
  }
}

// Runs operation i. When it is over, the flight recorder has its end.
static ncclResult_t batch_op(tt_rma_batch *b, int i, size_t *budget)
{
  tt_rma_op *op = &b->ops[i];
  TT_TRY(op_run(b->rma, op, budget));
  if (op->over) {
    tt_flight_end(&b->rma->port->flight, b->record + (uint64_t)i * sizeof(tt_flight_op), 1, false);
    rma_tell(b, i);
  }
  return ncclSuccess;
}

// Runs what can be run. True when nothing is left.
static bool batch_turn(tt_rma_batch *b, size_t *budget, ncclResult_t *result)
{
  uint64_t blocked = 0;
  b->left = 0;
  for (int i = 0; i < b->n && *result == ncclSuccess; i++) {
    tt_rma_op *op = &b->ops[i];
    if (!op->over && (blocked & op->contexts) == 0) {
      *result = batch_op(b, i, budget);
    }
    if (!op->over) {
      blocked |= op->passed ? 0 : op->contexts;
      b->left += (op->passed ? 1 : 2) + op->bytes;
    }
  }
  return b->left == 0;
}

// Afterwards what was lent is the user's again.
static tt_run batch_fails(tt_rma_batch *b, ncclResult_t *result)
{
  tt_port *port = b->rma->port;
  if (tt_port_status(port) == ncclSuccess) {
    tt_port_stop(port, *result);
  }
  if (b->moves) {
    port->mover->settle(port->mover_self);
  }
  *result = tt_port_status(port);
  return TT_RUN_FAILED;
}

static tt_run batch_run(tt_work *work, size_t *budget, ncclResult_t *result)
{
  tt_rma_batch *b = (tt_rma_batch *)work;
  const tt_port *port = b->rma->port;
  if (!b->begun) {
    b->begun = true;
    tt_flight_start(&port->flight, b->record, b->n, false);
    rma_tell(b, -1);
  }
  for (;;) {
    size_t before = *budget;
    *result = tt_port_status(port);
    bool over = *result == ncclSuccess && batch_turn(b, budget, result);
    bool moved = b->moves && *result == ncclSuccess && port->mover->progress(port->mover_self, true);
    if (*result != ncclSuccess) {
      return batch_fails(b, result);
    }
    if (over) {
      if (b->moves) { // what it has written may not be on its way yet, and nobody comes back for it
        port->mover->kick(port->mover_self, false);
      }
      return TT_RUN_DONE;
    }
    if (*budget < before || !moved) {
      return *budget < before || *budget == 0 ? TT_RUN_MORE : TT_RUN_BLOCKED;
    }
  }
}

static void batch_done(tt_work *work)
{
  tt_rma_batch *b = (tt_rma_batch *)work;
  if (TT_UNLIKELY(b->stall.since_ns != 0)) {
    tt_stall_over(b->rma->port, &b->stall, tt_port_status(b->rma->port) == ncclSuccess);
  }
  b->recycle(b);
}

static tt_bell *batch_bell(tt_work *work)
{
  return &((tt_rma_batch *)work)->rma->port->page->bell;
}

// ---- When it does not move

// The peer has not opened the window that the put writes into.
static bool op_lacks_window(const tt_rma *rma, const tt_rma_op *op)
{
  tt_window_note unused;
  return op->bytes > 0 && tt_board_find(rma->peers[op->peer].board, op->window, &unused) == 0;
}

// Is it the next one in its context? What waits for others of this rank waits for no peer.
static bool op_is_next(const tt_rma *rma, const tt_rma_op *op)
{
  return op->waits || op->passed || atomic_load_explicit(turn_of(rma, op), memory_order_acquire) == op->number;
}

// The operation that stands for all: the first that waits for a peer. NULL: there is none.
static const tt_rma_op *batch_waits(const tt_rma_batch *b)
{
  for (int i = 0; i < b->n; i++) {
    if (!b->ops[i].over) {
      return op_is_next(b->rma, &b->ops[i]) ? &b->ops[i] : NULL;
    }
  }
  return NULL;
}

static tt_wait wait_of(const tt_rma *rma, const tt_rma_op *op)
{
  tt_wait w = {.peer = (uint32_t)op->peer, .how = TT_WAIT_SIGNAL};
  if (op->waits) {
    w.how |= TT_WAIT_RECEIVES;
    w.sig = tt_sig_rma(TT_SIG_WAIT, op->ctx, op->sig);
    w.count = signals_of(rma, op) << 32 | (uint32_t)op->number;
  } else if (op_lacks_window(rma, op)) {
    w.sig = tt_sig_rma(TT_SIG_PUT, op->ctx, op->sig);
    w.count = op->window;
  } else {
    w.sig = tt_sig_rma(TT_SIG_ROOM, op->ctx, op->sig);
  }
  return w;
}

// Has the rank ended that the operation waits for? Its last signals still count, and what it was sent. *culprit: where
// that began.
static ncclResult_t check_peer(const tt_rma_batch *b, const tt_rma_op *op, tt_culprit *culprit)
{
  const tt_rma_peer *p = &b->rma->peers[op->peer];
  const tt_port *port = b->rma->port;
  if (p->link == NULL) {
    return ncclSuccess;
  }
  uint32_t state = tt_link_state(p->link);
  if (p->networked && state >= TT_RANK_FAILED) {
    port->mover->settle(port->mover_self); // takes what has come
  } else if (p->networked) {
    port->mover->probe(port->mover_self, op->peer);
  }
  bool over = op->waits ? signals_of(b->rma, op) >= op->number : put_is_sent(p, op);
  return state < TT_RANK_FAILED || over ? ncclSuccess : tt_port_accuse(port, op->peer, p->page, state, culprit);
}

// Shows what stands behind operation `first`, for which the batch waits: what follows in its contexts.
static void batch_hold(const tt_rma_batch *b, const tt_rma_op *first)
{
  for (const tt_rma_op *op = first + 1; op < b->ops + b->n; op++) {
    if (!op->waits && !op->over && (op->contexts & first->contexts) != 0 && op_is_next(b->rma, op)) {
      tt_stall_hold(b->rma->port, &b->stall, tt_held_put(op->peer, op->ctx));
    }
  }
}

static ncclResult_t check_stall(tt_rma_batch *b, uint64_t seen_ns)
{
  const tt_rma_op *op = batch_waits(b);
  if (op == NULL) {
    tt_stall_over(b->rma->port, &b->stall, true);
    return ncclSuccess;
  }
  tt_wait w = wait_of(b->rma, op);
  const tt_stalled k = {
      .port = b->rma->port, .stall = &b->stall, .mark = 1 + b->left * 31 + w.count, .wait = &w, .batch = true};
  ncclResult_t res = tt_stall_look_at(&k, seen_ns);
  batch_hold(b, op);
  return res;
}

static void batch_check(tt_work *work)
{
  tt_rma_batch *b = (tt_rma_batch *)work;
  tt_port *port = b->rma->port;
  uint64_t seen_ns = tt_now_ns();
  tt_culprit culprit = 0;
  ncclResult_t res = ncclSuccess;
  if (tt_port_status(port) != ncclSuccess) {
    return;
  }
  for (int i = 0; i < b->n && res == ncclSuccess; i++) {
    res = b->ops[i].over ? ncclSuccess : check_peer(b, &b->ops[i], &culprit);
  }
  if (res == ncclSuccess && !tt_port_watch(port)) {
    return;
  }
  res = res == ncclSuccess ? check_stall(b, seen_ns) : res;
  if (res != ncclSuccess) {
    tt_port_stop_for(port, res, culprit);
  }
}

static void batch_behind(tt_work *work, const tt_work *current)
{
  tt_rma_batch *b = (tt_rma_batch *)work;
  tt_port *port = b->rma->port;
  const tt_rma_batch *c = current->ops == &tt_rma_ops ? (const tt_rma_batch *)current : NULL;
  if (c == NULL || c->rma != b->rma) {
    b->stall.batch = true;
    tt_stall_show_behind(port, &b->stall, current);
    return;
  }
  for (int i = 0; i < b->n; i++) {
    if (!b->ops[i].waits && op_is_next(b->rma, &b->ops[i])) {
      tt_stall_hold(port, &c->stall, tt_held_put(b->ops[i].peer, b->ops[i].ctx));
    }
  }
}

const tt_work_ops tt_rma_ops = {.name = "one-sided",
                                .run = batch_run,
                                .done = batch_done,
                                .bell = batch_bell,
                                .check = batch_check,
                                .behind = batch_behind};
