// rma_far.c: one-sided operations of a rank on a GPU with peers over the network, or whose payloads go by way of the
// host: see rma.h.
//
// The host's thread sends what streams have staged, and takes what comes (device/rma_link.h). It cannot write into
// windows of GPUs: work of its own could stand in a hardware queue behind the very wait that it would end. So payloads
// stay in pinned memory until a wait of this rank has its signals, and the wait's own stream places them. What no wait
// takes is dropped at the end. One wait of a port places at a time, which needs nothing but its stream to go on.
#include "device/cuda/work/pool.h"
#include "device/cuda/work/rank.h"
#include "device/cuda/work/rma_priv.h"
#include "device/owner.h"
#include "device/rma_link.h"

// ---- The launching thread ----

ncclResult_t tt_gpu_far_stage(const gpu_batch *g, int i)
{
  gpu_far *f = &g->far[i];
  void *staging = NULL;
  f->op = g->batch->ops[i];
  TT_TRY(tt_gpu_enter(g->port->device)); // some context, for pinned memory: the thread of rank.c has none
  const ncclResult_t res = tt_gpu_pool_take(TT_GPU_PINNED, f->op.bytes, &staging);
  tt_gpu_leave();
  TT_TRY(res);
  f->op.from = f->staging = staging;
  return ncclSuccess;
}

static ncclResult_t far_copy(const gpu_batch *g, int i)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  const tt_rma_op *op = &g->batch->ops[i];
  TT_TRY(tt_gpu_far_stage(g, i));
  TT_CUDA(cu,
          cu->MemcpyAsync(gpu_address(g->far[i].staging), gpu_address(op->from), op->bytes,
                          tt_gpu_stream_handle(g->stream)),
          "cannot copy a put of %zu bytes", op->bytes);
  return ncclSuccess;
}

ncclResult_t tt_gpu_far_wait(const gpu_batch *g, int i)
{
  gpu_target *t = &g->pinned->targets[i];
  tt_cuda_take a = {.port = tt_gpu_rma_port(g), .list = gpu_address(&t->list)};
  g->far[i].takes = true;
  TT_TRY(tt_gpu_queue_word(g, &t->ready));
  TT_TRY(tt_gpu_queue_wait(g, &t->late, 1));
  TT_TRY(tt_gpu_queue_kernel(g, "take", 1, TT_CUDA_THREADS, &a));
  return tt_gpu_queue_word(g, &t->taken);
}

ncclResult_t tt_gpu_far_queue(const gpu_batch *g, int i)
{
  const tt_rma_op *op = &g->batch->ops[i];
  tt_gpu_rma_peer *peer = gpu_peer_of(g->batch, op)->gpu;
  const int signal = op->ctx * g->batch->rma->signals + op->sig;
  if (op->waits) {
    return tt_gpu_far_wait(g, i);
  }
  g->far[i].op = *op;
  TT_TRY(op->bytes > 0 ? far_copy(g, i) : ncclSuccess);
  g->far[i].op.passed = false;
  TT_TRY(tt_gpu_queue_word(g, &g->pinned->targets[i].ready));
  atomic_fetch_add_explicit(&peer->queued[signal], 1, memory_order_relaxed);
  peer->turn[op->ctx] = op->number + 1;
  return ncclSuccess;
}

// ---- Sending ----

static bool far_is_ready(const gpu_batch *g, int i)
{
  return atomic_load_explicit(&g->pinned->targets[i].ready, memory_order_acquire) != 0;
}

// Writes what there is room for, when the put has its turn and the window is there.
static ncclResult_t far_write(const gpu_batch *g, gpu_far *f, tt_rma_peer *peer)
{
  _Atomic uint32_t *over = &peer->gpu->over[f->op.ctx];
  tt_window_note note = {.size = 0};
  if (atomic_load_explicit(over, memory_order_relaxed) != (uint32_t)f->op.number) {
    return ncclSuccess;
  }
  const int found = f->op.bytes > 0 ? tt_board_find(peer->board, f->op.window, &note) : 1;
  if (found == 0) {
    return ncclSuccess;
  }
  if (f->op.bytes > 0 && (found < 0 || f->op.offset > note.size || f->op.bytes > note.size - f->op.offset)) {
    return tt_gpu_rma_misses(g->batch, &f->op, found, &note);
  }
  tt_rma_link_put(g->batch->rma, peer->net, &f->op);
  if (f->op.passed) {
    atomic_store_explicit(over, (uint32_t)f->op.number + 1, memory_order_release);
  }
  return ncclSuccess;
}

static ncclResult_t far_send(const gpu_batch *g, gpu_far *f, tt_rma_peer *peer)
{
  if (!f->op.passed) {
    TT_TRY(far_write(g, f, peer));
  }
  const int32_t left = (int32_t)(f->op.until - atomic_load_explicit(peer->net->send.head, memory_order_acquire));
  f->over = f->op.passed && (!f->op.lent || left <= 0);
  if (f->over) {
    tt_gpu_pool_give(TT_GPU_PINNED, f->staging);
    f->staging = NULL;
  }
  return ncclSuccess;
}

bool tt_gpu_far_holds(const gpu_batch *g, int i)
{
  return atomic_load_explicit(&g->pinned->targets[i].staged, memory_order_acquire) != 0 && g->far[i].staging != NULL;
}

// To a rank of this machine. One that has stopped is seen to elsewhere.
static ncclResult_t far_hand(const gpu_batch *g, int i)
{
  gpu_far *f = &g->far[i];
  if (tt_page_stopped(gpu_peer_of(g->batch, &f->op)->page)) {
    return ncclSuccess;
  }
  TT_TRY(tt_rma_write(g->batch->rma, &f->op));
  if (f->op.bytes == 0) {
    tt_gpu_pool_give(TT_GPU_PINNED, f->staging);
    f->staging = NULL;
    atomic_store_explicit(&g->pinned->targets[i].sent, 1, memory_order_release);
  }
  return ncclSuccess;
}

// ---- Payloads that come ----

bool tt_gpu_far_take(tt_rma *rma)
{
  const tt_gpu_port *p = tt_gpu_rank_port(rma->port);
  bool any = false;
  for (int i = 0; i < rma->port->nranks; i++) {
    tt_rma_peer *peer = &rma->peers[i];
    any |= tt_gpu_rma_is_sent_to(p, peer) && peer->comes.slots != NULL && tt_rma_box_take(rma, peer);
  }
  return any;
}

static void message_free(tt_rma_message *m)
{
  tt_gpu_pool_give(TT_GPU_PINNED, m->payload);
  tt_free(m);
}

void tt_gpu_place_put(tt_rma_peer *peer, uint64_t window, uint64_t offset, const char *payload, size_t bytes)
{
  tt_rma_message *m = NULL;
  ncclResult_t res = TT_NEW(m, 1, "rank %d: no memory for a put of rank %d", peer->port->rank, peer->rank);
  res = res == ncclSuccess ? tt_gpu_enter(peer->port->device) : res;
  if (res == ncclSuccess) {
    res = tt_gpu_pool_take(TT_GPU_PINNED, bytes, &m->payload);
    tt_gpu_leave();
  }
  if (res != ncclSuccess) {
    tt_free(m);
    tt_port_stop(peer->port, res);
    return;
  }
  memcpy(m->payload, payload, bytes);
  m->window = window;
  m->offset = offset;
  m->bytes = bytes;
  pthread_mutex_lock(&peer->lock);
  peer->came_end = peer->came == NULL ? &peer->came : peer->came_end;
  *peer->came_end = m;
  peer->came_end = &m->next;
  pthread_mutex_unlock(&peer->lock);
}

static tt_rma_message *far_take_all(tt_rma_peer *peer)
{
  pthread_mutex_lock(&peer->lock);
  tt_rma_message *all = peer->came;
  peer->came = NULL;
  pthread_mutex_unlock(&peer->lock);
  return all;
}

static void messages_free(tt_rma_message *m)
{
  for (tt_rma_message *next; m != NULL; m = next) {
    next = m->next;
    message_free(m);
  }
}

void tt_gpu_far_forget(tt_rma_peer *peer)
{
  messages_free(far_take_all(peer));
}

// The list for the kernel: what lies in windows that are still open. `n`: of all messages.
static ncclResult_t far_list(const gpu_batch *g, gpu_far *f, gpu_target *t, size_t n)
{
  tt_cuda_payload *p;
  TT_TRY(tt_gpu_enter(g->port->device)); // some context, for pinned memory: the thread of rank.c has none
  const ncclResult_t res = tt_gpu_pool_take(TT_GPU_PINNED, n * sizeof *p, &f->list);
  tt_gpu_leave();
  TT_TRY(res);
  p = f->list;
  for (const tt_rma_message *m = f->messages; m != NULL; m = m->next) {
    tt_window_note note;
    if (tt_board_find(g->batch->rma->board, m->window, &note) > 0) {
      *p++ = (tt_cuda_payload){.operands = {{.at = gpu_address(m->payload)}, {.at = note.base + m->offset}},
                               .bytes = m->bytes};
    }
  }
  t->list = gpu_address(f->list);
  t->nlist = (uint32_t)(p - (tt_cuda_payload *)f->list);
  return ncclSuccess;
}

// The wait's stream stands there, and its signals have come: it goes on, and places what has come before. Until that is
// done that counts as writing, for whoever closes a window (one_sided.h).
static ncclResult_t far_let_go(const gpu_batch *g, int i)
{
  gpu_far *f = &g->far[i];
  gpu_target *t = &g->pinned->targets[i];
  tt_rma_peer *peer = gpu_peer_of(g->batch, &g->batch->ops[i]);
  size_t n = 0;
  atomic_fetch_add(&g->batch->rma->placing, 1);
  tt_bell_fence_after_rmw();
  g->port->taking = f->places = true;
  if (peer->comes.slots != NULL) {
    tt_rma_box_take(g->batch->rma, peer);
  }
  f->messages = far_take_all(peer);
  for (const tt_rma_message *m = f->messages; m != NULL; m = m->next) {
    n++;
  }
  if (n > 0) {
    TT_TRY(far_list(g, f, t, n));
  }
  atomic_store_explicit(&t->late, 1, memory_order_release);
  return ncclSuccess;
}

// What it has placed is not needed any more.
static void far_taken(const gpu_batch *g, int i)
{
  gpu_far *f = &g->far[i];
  messages_free(f->messages);
  tt_gpu_pool_give(TT_GPU_PINNED, f->list);
  f->messages = NULL;
  f->list = NULL;
  f->over = true;
  g->port->taking = f->places = false;
  atomic_fetch_sub(&g->batch->rma->placing, 1);
}

static ncclResult_t far_receive(const gpu_batch *g, int i)
{
  const tt_rma_op *op = &g->batch->ops[i];
  const gpu_target *t = &g->pinned->targets[i];
  const bool goes = atomic_load_explicit(&t->late, memory_order_relaxed) != 0;
  if (goes && g->far[i].places && atomic_load_explicit(&t->taken, memory_order_acquire) != 0) {
    far_taken(g, i);
  } else if (!goes && !g->port->taking &&
             atomic_load_explicit(gpu_count_in(g->batch, op), memory_order_acquire) >= op->number) {
    return far_let_go(g, i);
  }
  return ncclSuccess;
}

// ---- A batch ----

// Has its stream come to where the thread has something to do? Before that far[i] may be the launching thread's.
static bool far_is_due(const gpu_batch *g, int i)
{
  const tt_rma_op *op = &g->batch->ops[i];
  return !op->waits && !gpu_peer_of(g->batch, op)->networked ? tt_gpu_far_holds(g, i)
                                                             : far_is_ready(g, i) && !g->far[i].over;
}

static ncclResult_t far_step(const gpu_batch *g, int i)
{
  const tt_rma_op *op = &g->batch->ops[i];
  tt_rma_peer *peer = gpu_peer_of(g->batch, op);
  return op->waits ? far_receive(g, i) : peer->networked ? far_send(g, &g->far[i], peer) : far_hand(g, i);
}

// How far it is: puts have sent so much less, waits are so far.
static size_t far_left(const gpu_far *f)
{
  return f->op.bytes + f->places + 2 * f->over;
}

bool tt_gpu_far_move(const gpu_batch *g)
{
  const tt_rma_batch *b = g->batch;
  tt_port *port = g->port->port;
  ncclResult_t res = ncclSuccess;
  bool moved = false;
  for (int i = 0; i < b->n && res == ncclSuccess && tt_port_status(port) == ncclSuccess; i++) {
    const size_t left = far_is_due(g, i) ? far_left(&g->far[i]) : SIZE_MAX;
    res = left != SIZE_MAX ? far_step(g, i) : ncclSuccess;
    moved |= left != SIZE_MAX && far_left(&g->far[i]) != left;
  }
  if (res != ncclSuccess) {
    tt_port_stop(port, res);
  }
  return moved;
}

// A put to a rank of this machine is over when its stream is.
static bool far_op_is_over(const gpu_batch *g, int i)
{
  const tt_rma_op *op = &g->batch->ops[i];
  return g->far[i].over || (op->waits ? !g->far[i].takes : !gpu_peer_of(g->batch, op)->networked);
}

bool tt_gpu_far_over(const gpu_batch *g)
{
  int i = 0;
  while (i < g->batch->n && far_op_is_over(g, i)) {
    i++;
  }
  return i == g->batch->n || tt_port_status(g->port->port) != ncclSuccess;
}

void tt_gpu_far_drop(const gpu_batch *g)
{
  const tt_port *port = g->port->port;
  if (g->lost) { // work of the stream may be left
    return;
  }
  if (g->batch->moves && tt_port_status(port) != ncclSuccess) {
    port->mover->settle(port->mover_self); // nothing reads what is staged afterwards
  }
  for (int i = 0; i < g->batch->n; i++) {
    tt_gpu_pool_give(TT_GPU_PINNED, g->far[i].staging);
    if (g->far[i].places) {
      far_taken(g, i);
    }
  }
}
