// rma.c: batches of one-sided operations become stream work: see rma.h.
#include "device/cuda/work/rma.h"

#include <string.h>

#include "device/cuda/kernels/choose.h"
#include "device/cuda/work/functions.h"
#include "device/cuda/work/ipc.h"
#include "device/cuda/work/pool.h"
#include "device/cuda/work/rank.h"
#include "device/cuda/work/rma_priv.h"

// Of the operands of a launch: an abort waits for no more. Tests have less.
#ifndef TT_GPU_PUT_BYTES
#define TT_GPU_PUT_BYTES (32u << 20)
#endif

enum { PUT_CTA_BYTES = 32 << 10 }; // that a CTA moves, at least

// Batches that are queued together, by one thread.
typedef struct rma_works {
  gpu_batch **of;
  int n;
} rma_works;

// What the thread holds back.
static _Thread_local struct {
  gpu_batch **of;
  int n, room;
} rma_held;

// ---- One operation ----

ncclResult_t tt_gpu_queue_wait(const gpu_batch *g, const volatile void *word, uint32_t value)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  const CUstream stream = tt_gpu_stream_handle(g->stream);
  TT_CUDA(cu, cu->StreamWaitValue32(stream, gpu_address(word), value, CU_STREAM_WAIT_VALUE_GEQ),
          "cannot make stream %p wait for a word", (void *)stream);
  return ncclSuccess;
}

ncclResult_t tt_gpu_queue_word(const gpu_batch *g, const volatile void *word)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  const CUstream stream = tt_gpu_stream_handle(g->stream);
  TT_CUDA(cu, cu->StreamWriteValue32(stream, gpu_address(word), 1, 0), "cannot make stream %p write a word",
          (void *)stream);
  return ncclSuccess;
}

static ncclResult_t queue_kernel_of(const gpu_batch *g, const tt_kernel *kernel, size_t ctas, unsigned threads,
                                    void *args)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  void *params[] = {args};
  TT_CUDA(cu,
          cu->LaunchKernel(tt_gpu_function(g->port->device, kernel->module, kernel->name), (unsigned)ctas, 1, 1,
                           threads, 1, 1, 0, tt_gpu_stream_handle(g->stream), params, NULL),
          "GPU %d: cannot launch kernel %s", g->port->device, kernel->name);
  return ncclSuccess;
}

ncclResult_t tt_gpu_queue_kernel(const gpu_batch *g, const char *name, size_t ctas, size_t packs, void *args)
{
  return queue_kernel_of(g, &(tt_kernel){.module = "one_sided", .name = name}, ctas, tt_kernel_threads(packs), args);
}

// A step without data writes the GPU's time.
static ncclResult_t queue_time(const gpu_batch *g, const volatile void *at)
{
  tt_cuda_step args = {.port = tt_gpu_rma_port(g), .start = gpu_address(at)};
  return g->batch->watch == NULL
             ? ncclSuccess
             : queue_kernel_of(g, &(tt_kernel){.module = "step", .name = "copy"}, 1, tt_kernel_threads(0), &args);
}

tt_cuda_port tt_gpu_rma_port(const gpu_batch *g)
{
  return (tt_cuda_port){.stop = gpu_address(&g->port->flags->stop), .fault = gpu_address(&g->port->flags->fault)};
}

// The payload, in launches of bounded length.
static ncclResult_t queue_payload(const gpu_batch *g, int i)
{
  const tt_rma_op *op = &g->batch->ops[i];
  const tt_rma_peer *peer = gpu_peer_of(g->batch, op);
  tt_cuda_put a = {.port = tt_gpu_rma_port(g),
                   .operands = gpu_address(g->pinned->targets[i].operands),
                   .open = gpu_address(&peer->board->windows[op->window % TT_WINDOWS].number),
                   .number = op->window,
                   .writing = gpu_address(&peer->out->writing),
                   .peer = op->peer};
  for (size_t at = 0; at < op->bytes; at += TT_GPU_PUT_BYTES) {
    a.first = at;
    a.count = TT_MIN((size_t)TT_GPU_PUT_BYTES, op->bytes - at);
    const size_t ctas = TT_DIV_UP(a.count, (size_t)PUT_CTA_BYTES);
    TT_TRY(tt_gpu_queue_kernel(g, "put", TT_MIN(ctas, (size_t)g->port->ctas), TT_DIV_UP(a.count, (size_t)TT_CUDA_PACK),
                               &a));
  }
  return ncclSuccess;
}

// Behind what other streams have for the peer in this context.
static ncclResult_t queue_turn(const gpu_batch *g, const tt_rma_op *op)
{
  tt_gpu_rma_peer *peer = gpu_peer_of(g->batch, op)->gpu;
  tt_gpu_stream *last = peer->last[op->ctx];
  peer->last[op->ctx] = g->stream;
  return last == NULL || last == g->stream ? ncclSuccess
                                           : tt_gpu_queue_wait(g, &peer->over[op->ctx], (uint32_t)op->number);
}

static ncclResult_t queue_signal(const gpu_batch *g, const tt_rma_op *op)
{
  const tt_rma_peer *peer = gpu_peer_of(g->batch, op);
  const int signal = op->ctx * g->batch->rma->signals + op->sig;
  const uint64_t count = atomic_load_explicit(&peer->gpu->queued[signal], memory_order_relaxed) + 1;
  tt_cuda_signal a = {.port = tt_gpu_rma_port(g),
                      .count = gpu_address(&peer->out->count[signal]),
                      .value = count,
                      .turn = gpu_address(&peer->gpu->over[op->ctx]),
                      .over = (uint32_t)op->number + 1};
  TT_TRY(tt_gpu_queue_kernel(g, "signal", 1, 0, &a));
  atomic_store_explicit(&peer->gpu->queued[signal], count, memory_order_relaxed);
  peer->gpu->turn[op->ctx] = op->number + 1;
  return ncclSuccess;
}

// Finds the window. *hands: the payload goes by way of the host, or may do so, which a late put will know.
static ncclResult_t queue_window(const gpu_batch *g, int i, bool *hands)
{
  gpu_target *t = &g->pinned->targets[i];
  const tt_rma_peer *peer = gpu_peer_of(g->batch, &g->batch->ops[i]);
  TT_TRY(tt_gpu_rma_aim(g, i));
  *hands = g->far[i].staging != NULL;
  if (atomic_load_explicit(&t->ready, memory_order_relaxed) == 0) {
    *hands = gpu_peer_is_apart(peer) || tt_gpu_ipc_has(g->port, peer->rank);
    atomic_store_explicit(&t->late, 1, memory_order_release);
    TT_TRY(tt_gpu_queue_wait(g, &t->ready, 1));
  }
  return ncclSuccess;
}

static ncclResult_t queue_put(const gpu_batch *g, int i)
{
  const tt_rma_op *op = &g->batch->ops[i];
  gpu_target *t = &g->pinned->targets[i];
  bool hands = false;
  TT_TRY(op->bytes > 0 ? queue_window(g, i, &hands) : ncclSuccess);
  TT_TRY(queue_turn(g, op));
  TT_TRY(queue_payload(g, i));
  TT_TRY(hands ? tt_gpu_queue_word(g, &t->staged) : ncclSuccess);
  TT_TRY(hands ? tt_gpu_queue_wait(g, &t->sent, 1) : ncclSuccess);
  return queue_signal(g, op);
}

// What a peer puts by way of the host is there before its signal, and the stream places it.
static ncclResult_t queue_wait_op(const gpu_batch *g, int i)
{
  const tt_rma_op *op = &g->batch->ops[i];
  const tt_rma_peer *peer = gpu_peer_of(g->batch, op);
  TT_TRY(tt_gpu_queue_wait(g, gpu_count_in(g->batch, op), (uint32_t)op->number));
  return tt_gpu_rma_is_sent_to(g->port, peer) ? tt_gpu_far_wait(g, i) : ncclSuccess;
}

// In the context of the batch's device. Nothing more of a port that has stopped.
static void queue_op(const gpu_batch *g, int i)
{
  tt_rma_op *op = &g->batch->ops[i];
  tt_port *port = g->port->port;
  ncclResult_t res = tt_port_status(port);
  op->passed = true;
  if (res == ncclSuccess && gpu_peer_of(g->batch, op)->networked) {
    res = tt_gpu_far_queue(g, i);
  } else if (res == ncclSuccess && op->waits) {
    res = queue_wait_op(g, i);
  } else if (res == ncclSuccess) {
    res = queue_put(g, i);
  }
  if (res != ncclSuccess && tt_port_status(port) == ncclSuccess) {
    tt_port_stop(port, res);
  }
}

// ---- The order of several ----

// Can an operation be queued? A wait ELSEWHERE: another process sends the signals that it needs; ALONE: a rank of this
// process has to send them, and has not queued them; its thread may do so at any moment. A put or signal that has not
// its turn: NOT_YET.
typedef enum { OP_READY, OP_ELSEWHERE, OP_ALONE, OP_NOT_YET } op_state;

static op_state op_state_of(const gpu_batch *g, const tt_rma_op *op)
{
  if (!op->waits) {
    const bool turn = tt_port_status(g->port->port) != ncclSuccess || // then it is only passed over
                      gpu_peer_of(g->batch, op)->gpu->turn[op->ctx] == op->number;
    return turn ? OP_READY : OP_NOT_YET;
  }
  const uint64_t queued =
      tt_gpu_rma_queued(g->port, gpu_peer_of(g->batch, op), op->ctx * g->batch->rma->signals + op->sig);
  return queued == UINT64_MAX ? OP_ELSEWHERE : queued >= op->number ? OP_READY : OP_ALONE;
}

// Queues what is READY of the batch: in order, but for operations of other contexts; or one operation alone that is up
// to that other state. Returns whether anything was.
static bool batch_queue(const gpu_batch *g, op_state state)
{
  tt_rma_batch *b = g->batch;
  uint64_t blocked = 0;
  bool moved = false;
  for (int i = 0; i < b->n && !(moved && state != OP_READY); i++) {
    tt_rma_op *op = &b->ops[i];
    if (!op->passed && (blocked & op->contexts) == 0 && op_state_of(g, op) <= state) {
      queue_op(g, i);
      moved = true;
    }
    blocked |= op->passed ? 0 : op->contexts;
  }
  return moved;
}

// The same of the works; each in the context of its device.
static bool works_queue(const rma_works *w, op_state state)
{
  bool moved = false;
  for (int i = 0; i < w->n && !(moved && state != OP_READY); i++) {
    gpu_batch *g = w->of[i];
    const ncclResult_t res = tt_gpu_reenter(g->port->device, g->port->epoch);
    if (res == ncclSuccess) {
      moved |= batch_queue(g, state);
      tt_gpu_leave();
    }
  }
  return moved;
}

static ncclResult_t batch_begin(const gpu_batch *g)
{
  const tt_rma_batch *b = g->batch;
  for (int i = 0; i < b->n; i++) {
    const tt_rma_op *op = &b->ops[i];
    TT_TRY(tt_gpu_rma_reach(g->port, b->rma, gpu_peer_of(b, op), op->bytes > 0 ? op->window : 0));
  }
  TT_TRY(queue_time(g, &g->pinned->start));
  return tt_gpu_queue_word(g, &g->pinned->begun);
}

static ncclResult_t batch_end(const gpu_batch *g)
{
  const ncclResult_t res = queue_time(g, &g->pinned->stop), word = tt_gpu_queue_word(g, &g->pinned->done);
  return word == ncclSuccess ? res : word;
}

static ncclResult_t batch_mark(const gpu_batch *g)
{
  return tt_gpu_stream_mark(g->stream);
}

// Does something for the batch in the context of its device; an error stops its port.
static ncclResult_t batch_do(const gpu_batch *g, ncclResult_t (*what)(const gpu_batch *g))
{
  ncclResult_t res = tt_gpu_reenter(g->port->device, g->port->epoch);
  if (res == ncclSuccess) {
    res = what(g);
    tt_gpu_leave();
  }
  if (res != ncclSuccess && tt_port_status(g->port->port) == ncclSuccess) {
    tt_port_stop(g->port->port, res);
  }
  return res;
}

static void works_submit(const rma_works *w)
{
  for (int i = 0; i < w->n; i++) {
    tt_gpu_rma_fly(w->of[i]);
    batch_do(w->of[i], batch_begin);
  }
  while (works_queue(w, OP_READY) || works_queue(w, OP_ELSEWHERE) || works_queue(w, OP_ALONE)) {
  }
  for (int i = 0; i < w->n; i++) {
    w->of[i]->lost = batch_do(w->of[i], batch_end) != ncclSuccess;
    batch_do(w->of[i], batch_mark);
    atomic_store_explicit(&w->of[i]->complete, true, memory_order_release); // it may be gone now
  }
}

// ---- Batches ----

static ncclResult_t batch_make(tt_rma_batch *b, tt_gpu_stream *stream, gpu_batch **out)
{
  const tt_port *port = b->rma->port;
  const size_t bytes = sizeof(gpu_batch_pinned) + (size_t)b->n * sizeof(gpu_target);
  gpu_batch *g = tt_calloc(1, sizeof *g + (size_t)b->n * sizeof *g->far);
  void *pinned = NULL;
  if (g == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for %d one-sided operations", port->rank, b->n);
  }
  ncclResult_t res = tt_gpu_enter(port->device); // some context, for pinned memory
  if (res == ncclSuccess) {
    res = tt_gpu_pool_take(TT_GPU_PINNED, bytes, &pinned);
    tt_gpu_leave();
  }
  if (res != ncclSuccess) {
    tt_free(g);
    return res;
  }
  memset(pinned, 0, bytes);
  *g = (gpu_batch){.batch = b,
                   .port = tt_gpu_rank_port(port),
                   .stream = stream,
                   .pinned = pinned,
                   .far = (gpu_far *)(void *)(g + 1)};
  *out = g;
  return ncclSuccess;
}

void tt_gpu_rma_submit(tt_rma_batch *b, tt_gpu_stream *stream)
{
  gpu_batch *g = NULL;
  tt_gpu_ranks_close_stale();
  ncclResult_t res = batch_make(b, stream, &g);
  if (res == ncclSuccess && tt_gpu_holds() &&
      !tt_grow(&rma_held.of, rma_held.n, 1, &rma_held.room, sizeof *rma_held.of)) {
    tt_gpu_pool_give(TT_GPU_PINNED, g->pinned);
    tt_free(g);
    res = tt_fail(ncclSystemError, "rank %d: no memory for a group of operations", b->rma->port->rank);
  }
  if (res != ncclSuccess) {
    tt_port_stop(b->rma->port, res);
    b->recycle(b);
  } else if (tt_gpu_holds()) {
    rma_held.of[rma_held.n++] = g;
  } else {
    works_submit(&(rma_works){&g, 1});
  }
}

void tt_gpu_rma_unhold(void)
{
  works_submit(&(rma_works){rma_held.of, rma_held.n});
  tt_free(rma_held.of);
  memset(&rma_held, 0, sizeof rma_held);
}
