// port.c: see port.h.
#include "device/cuda/work/port.h"

#include "device/cuda/work/capture.h"
#include "device/cuda/work/capture_priv.h"
#include "device/cuda/work/fifos.h"
#include "device/cuda/work/functions.h"
#include "device/cuda/work/ipc.h"
#include "device/cuda/work/inbox.h"
#include "device/cuda/work/owner.h"
#include "device/cuda/work/pool.h"
#include "device/cuda/work/rma.h"
#include "device/cuda/work/waits.h"
#include "device/cuda/work/walk.h"

// Bytes of a block of lists. Tests have less.
#ifndef TT_GPU_LIST_BLOCK
#define TT_GPU_LIST_BLOCK (256u << 10)
#endif

enum {
  LIST_ALIGN = 16,
  LIST_BLOCK_LEAST = 4096,
  WALK_BLOCKS = 8, // that a resident port has from the start: the driver may have pinning wait for walks
  CTAS_PER_SM = 2
};

// ---- Lists ----

// A block of so many bytes.
static ncclResult_t list_block_new(size_t bytes, gpu_block **out)
{
  void *memory = NULL;
  TT_TRY(tt_gpu_pool_take(TT_GPU_PINNED, bytes, &memory));
  *out = memory;
  **out = (gpu_block){.bytes = bytes - sizeof **out};
  return ncclSuccess;
}

// A block with so much room, which becomes the first. A block is used again when the work that reads it is done.
static ncclResult_t list_block(tt_gpu_port *p, size_t bytes)
{
  const uint32_t done = atomic_load_explicit(&p->flags->done, memory_order_acquire);
  gpu_block **at = &p->blocks, *b = NULL;
  while (*at != NULL && ((int32_t)(done - (*at)->ticket) < 0 || (*at)->bytes < bytes)) {
    at = &(*at)->next;
  }
  if (*at != NULL) {
    b = *at;
    *at = b->next;
  } else {
    TT_TRY(list_block_new(TT_MAX(bytes + sizeof *b, (size_t)TT_GPU_LIST_BLOCK), &b));
  }
  b->used = 0;
  b->next = p->blocks;
  p->blocks = b;
  return ncclSuccess;
}

// The same of a captured plan, whose lists stay as long as its graph: the first one is small.
static ncclResult_t list_block_captured(gpu_capture *c, size_t bytes)
{
  const size_t twice = c->blocks != NULL ? 2 * (c->blocks->bytes + sizeof *c->blocks) : LIST_BLOCK_LEAST;
  gpu_block *b = NULL;
  TT_TRY(list_block_new(TT_MAX(bytes + sizeof *b, TT_MIN(twice, (size_t)TT_GPU_LIST_BLOCK)), &b));
  b->next = c->blocks;
  c->blocks = b;
  return ncclSuccess;
}

// What a port has before its first plan.
static ncclResult_t list_blocks_first(tt_gpu_port *p, int n)
{
  for (int i = 0; i < n; i++) {
    gpu_block *b = NULL;
    TT_TRY(list_block_new(TT_GPU_LIST_BLOCK, &b));
    b->next = p->blocks;
    p->blocks = b;
  }
  return ncclSuccess;
}

ncclResult_t tt_gpu_list(tt_gpu_port *p, size_t bytes, void **out)
{
  gpu_capture *c = p->recording != NULL ? p->recording->capture : NULL;
  gpu_block *const *first = c != NULL ? &c->blocks : &p->blocks, *b = *first;
  bytes = TT_ROUND_UP(bytes, (size_t)LIST_ALIGN);
  if (b == NULL || b->bytes - b->used < bytes) {
    TT_TRY(c != NULL ? list_block_captured(c, bytes) : list_block(p, bytes));
  }
  b = *first;
  *out = (char *)(b + 1) + b->used;
  b->used += bytes;
  b->ticket = p->submitted;
  return ncclSuccess;
}

void tt_gpu_lists_give(gpu_block *first)
{
  for (gpu_block *b = first, *next; b != NULL; b = next) {
    next = b->next;
    tt_gpu_pool_give(TT_GPU_PINNED, b);
  }
}

// ---- Open and close ----

size_t tt_gpu_room_bytes(const tt_gpu_port *p)
{
  return TT_ROUND_UP((size_t)p->nranks * sizeof(tt_cuda_slot) + gpu_port_refs(p) * sizeof(tt_cuda_operand) +
                         sizeof(gpu_counts) + sizeof(uint32_t),
                     (size_t)TT_CACHE_LINE);
}

void tt_gpu_room_set(const tt_gpu_port *p, const void *memory, uint32_t *token_seq, gpu_room *out)
{
  out->tokens = gpu_address(memory);
  out->operands = out->tokens + (size_t)p->nranks * sizeof(tt_cuda_slot);
  out->meet = out->operands + gpu_port_refs(p) * sizeof(tt_cuda_operand);
  out->go = out->meet + sizeof(gpu_counts);
  out->token_seq = token_seq;
}

static ncclResult_t port_open_memory(tt_gpu_port *p)
{
  uint32_t *token_seq = NULL;
  void *flags = NULL;
  TT_TRY(TT_NEW(p->refs, gpu_port_refs(p), "GPU %d: no memory for a port", p->device));
  TT_TRY(TT_NEW(p->captured, p->nranks, "GPU %d: no memory for a port", p->device));
  TT_TRY(TT_NEW(p->shared, p->nranks, "GPU %d: no memory for a port", p->device));
  TT_TRY(TT_NEW(p->submits, p->nranks, "GPU %d: no memory for a port", p->device));
  TT_TRY(TT_NEW(token_seq, p->nranks, "GPU %d: no memory for a port", p->device));
  p->own.token_seq = token_seq;
  TT_TRY(tt_gpu_pool_take(TT_GPU_PINNED, sizeof *p->flags, &flags));
  p->flags = flags;
  *p->flags = (gpu_flags){.stop = 0};
  TT_TRY(tt_gpu_pool_take(p->device, tt_gpu_room_bytes(p), &p->memory));
  tt_gpu_room_set(p, p->memory, token_seq, &p->own);
  p->room = &p->own;
  TT_TRY(tt_gpu_walk_open(p));
  TT_TRY(list_blocks_first(p, gpu_walks(p) ? WALK_BLOCKS : 1));
  return tt_gpu_inbox_open(p);
}

static ncclResult_t port_open_device(tt_gpu_port *p)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  int sms = 1;
  p->epoch = tt_gpu_epoch(p->device);
  TT_TRY(tt_gpu_functions_load(p->device));
  TT_CUDA(cu, cu->DeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, (CUdevice)p->device),
          "GPU %d: cannot ask for its size", p->device);
  p->sms = sms;
  p->ctas = CTAS_PER_SM * sms;
  return port_open_memory(p);
}

ncclResult_t tt_gpu_port_open(tt_port *port, int device, tt_gpu_port **out)
{
  tt_gpu_port *p = NULL;
  tt_gpu_closed_reap();
  TT_TRY(tt_gpu_enter(device));
  ncclResult_t res = TT_NEW(p, 1, "GPU %d: no memory for a port", device);
  if (res == ncclSuccess) {
    p->port = port;
    p->nranks = port->nranks;
    p->device = device;
    res = port_open_device(p);
  }
  tt_gpu_leave();
  if (res != ncclSuccess) {
    tt_gpu_port_close(p);
    return res;
  }
  *out = p;
  return ncclSuccess;
}

// The driver waits for all work when memory is closed, of other ports too: so that comes later.
void tt_gpu_port_free(tt_gpu_port *p)
{
  tt_gpu_ipc_close(p);
  for (int i = 0; p->shared != NULL && i < p->nranks; i++) {
    tt_gpu_ipc_unshare(p, &p->shared[i]);
  }
  tt_free(p->shared);
  tt_gpu_pool_give(TT_GPU_PINNED, p->flags);
  tt_gpu_pool_give(p->device, p->memory);
  tt_free(p);
}

// What no graph needs.
static void port_close_own(tt_gpu_port *p)
{
  tt_gpu_lists_give(p->blocks);
  tt_gpu_waits_free(p);
  tt_gpu_inbox_close(p);
  tt_gpu_walk_close(p);
  tt_free(p->refs);
  tt_free(p->captured);
  tt_free((void *)p->submits);
  tt_free(p->own.token_seq);
}

void tt_gpu_port_close(tt_gpu_port *p)
{
  if (p == NULL) {
    return;
  }
  const bool graphs = p->flags != NULL && tt_gpu_port_captures(p) > 0;
  if (graphs) { // replays from now on do nothing
    atomic_store(&p->flags->stop, 1);
    tt_gpu_captures_release(p);
  }
  tt_gpu_fifos_retire(p);
  port_close_own(p);
  p->port = NULL;
  if (graphs) {
    tt_gpu_closed_add(p);
  } else {
    tt_gpu_port_free(p);
  }
  tt_gpu_closed_reap();
}

// ---- Progress and the end ----

uint32_t tt_gpu_port_submitted(const tt_gpu_port *p)
{
  return p->submitted;
}

bool tt_gpu_port_done(const tt_gpu_port *p, uint32_t number)
{
  return (int32_t)(atomic_load_explicit(&p->flags->done, memory_order_acquire) - number) >= 0;
}

bool tt_gpu_port_submits(const tt_gpu_port *p, int peer, int fifo)
{
  return (atomic_load_explicit(&p->submits[peer], memory_order_relaxed) >> fifo & 1) != 0;
}

bool tt_gpu_port_idle(const tt_gpu_port *p)
{
  return atomic_load_explicit(&p->flags->done, memory_order_acquire) == p->submitted;
}

const tt_cuda_fault *tt_gpu_port_fault(const tt_gpu_port *p)
{
  const tt_cuda_fault *f = &p->flags->fault;
  return __atomic_load_n(&f->code, __ATOMIC_ACQUIRE) == TT_CUDA_FINE ? NULL : f;
}

ncclResult_t tt_gpu_port_look(const tt_gpu_port *p)
{
  CUcontext context;
  if (tt_gpu_context(p->device, &context) == ncclSuccess && tt_gpu_epoch(p->device) == p->epoch) {
    return ncclSuccess;
  }
  return tt_fail(ncclUnhandledCudaError,
                 "rank %d: the program has reset GPU %d (cudaDeviceReset, cuDevicePrimaryCtxReset) since the "
                 "communicator was made: abort it, and make another one",
                 p->port->rank, p->device);
}

ncclResult_t tt_gpu_port_query(const tt_gpu_port *p)
{
  TT_TRY(tt_gpu_port_look(p));
  tt_gpu_stream *last = __atomic_load_n(&p->last, __ATOMIC_ACQUIRE);
  bool idle;
  return last != NULL ? tt_gpu_stream_query(last, &idle) : ncclSuccess;
}

bool tt_gpu_port_lost(const tt_gpu_port *p)
{
  bool idle = true;
  return atomic_load_explicit(&p->lost, memory_order_acquire) &&
         (tt_gpu_stream_query(__atomic_load_n(&p->last, __ATOMIC_ACQUIRE), &idle) != ncclSuccess || idle);
}

// The word is as far as a stream may wait for.
static void raise_word(_Atomic uint32_t *word, uint32_t value)
{
  if ((int32_t)(value - atomic_load_explicit(word, memory_order_relaxed)) > 0) {
    atomic_store_explicit(word, value, memory_order_release);
  }
}

// The port is stopped: its streams wait no longer for messages of the peer, nor until that has given back slots.
static void release_link(const tt_link *link)
{
  for (int k = 0; k < TT_NFIFOS; k++) {
    const tt_fifo *in = &link->recv[k], *out = &link->send[k];
    // One more than what counts: a thread may stand in the submission of a step.
    const uint32_t taken = __atomic_load_n(&in->next, __ATOMIC_RELAXED) + 1,
                   sent = __atomic_load_n(&out->next, __ATOMIC_RELAXED) + 1;
    for (uint32_t i = 0; in->slots != NULL && i <= in->mask; i++) {
      raise_word(&((tt_slot *)(in->slots + (size_t)i * in->stride))->seq, taken);
    }
    if (out->slots != NULL) {
      raise_word(out->head, sent);
    }
  }
}

void tt_gpu_port_stop(tt_gpu_port *p)
{
  atomic_store(&p->flags->stop, 1);
  if (!tt_gpu_owner_free(p)) {
    return;
  }
  for (int peer = 0; peer < p->port->nranks; peer++) {
    const tt_link *link = __atomic_load_n(&p->port->links[peer], __ATOMIC_ACQUIRE);
    if (link != NULL) {
      release_link(link);
    }
  }
  tt_gpu_rma_release(p);
  tt_gpu_captures_release(p);
}

// The peer's memory may not be used any more. It has shown before why (tt_gpu_port_stop).
static ncclResult_t fault_ended(const tt_gpu_port *p, const tt_cuda_fault *f, tt_culprit *culprit)
{
  const tt_link *link = __atomic_load_n(&p->port->links[f->peer], __ATOMIC_ACQUIRE);
  const uint32_t state = tt_link_state(link);
  return state >= TT_RANK_FAILED
             ? tt_port_accuse(p->port, f->peer, link->page, state, culprit)
             : tt_fail(ncclRemoteError, "rank %d needs memory of rank %d, which has stopped", p->port->rank, f->peer);
}

// *culprit: as tt_port_accuse.
static ncclResult_t fault_error(const tt_gpu_port *p, const tt_cuda_fault *f, tt_culprit *culprit)
{
  const tt_call own = {.sig = f->own_sig, .sig_count = f->own_count};
  switch (f->code) {
  case TT_CUDA_MISMATCH: return tt_call_mismatch(p->port, &own, f->peer, f->sig, f->count);
  case TT_CUDA_UNMAPPED:
    return tt_fail(ncclInternalError, "rank %d has no memory of rank %d at 0x%llx, in its allocation %llu",
                   p->port->rank, f->peer, (unsigned long long)f->count, (unsigned long long)f->sig);
  case TT_CUDA_SHUT: return tt_gpu_rma_shut(p->port, f, culprit);
  case TT_CUDA_ENDED: return fault_ended(p, f, culprit);
  default:
    return tt_fail(ncclInternalError, "rank %d went on before the message of rank %d had arrived", p->port->rank,
                   f->peer);
  }
}

void tt_gpu_port_check(tt_gpu_port *p)
{
  const tt_cuda_fault *f = tt_gpu_port_fault(p);
  tt_culprit culprit = 0;
  if (f != NULL && tt_port_status(p->port) == ncclSuccess) {
    const ncclResult_t res = fault_error(p, f, &culprit);
    tt_port_stop_for(p->port, res, culprit);
    tt_gpu_port_stop(p);
  }
}
