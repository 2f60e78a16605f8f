// windows.c: windows of GPUs' memory, and what a rank has of each peer for one-sided operations: see rma.h.
#include <pthread.h>

#include "base/log.h"
#include "device/cuda/memory.h"
#include "device/cuda/work/ipc.h"
#include "device/cuda/work/pins.h"
#include "device/cuda/work/pool.h"
#include "device/cuda/work/rank.h"
#include "device/cuda/work/rma_priv.h"
#include "os/proc.h"

enum { PAGE = 4096 };

static pthread_mutex_t peers_lock = PTHREAD_MUTEX_INITIALIZER; // of the list
static tt_gpu_rma_peer *rma_peers;

// ---- Peers ----

static ncclResult_t peer_pin(tt_gpu_rma_peer *g, const volatile void *at)
{
  char *page = (char *)((uintptr_t)at & ~(uintptr_t)(PAGE - 1));
  for (int i = 0; i < g->npins; i++) {
    if (g->pins[i] == page) {
      return ncclSuccess;
    }
  }
  if (!tt_grow(&g->pins, g->npins, 1, &g->room, sizeof *g->pins)) {
    return tt_fail(ncclSystemError, "no memory for one-sided operations");
  }
  TT_TRY(tt_gpu_pin(g->port->device, page, PAGE));
  g->pins[g->npins++] = page;
  return ncclSuccess;
}

static void gpu_peer_free(tt_gpu_rma_peer *g)
{
  for (int i = 0; i < g->npins; i++) {
    tt_gpu_unpin(g->pins[i]);
  }
  tt_gpu_ranks_close_stale();
  tt_gpu_pool_give(TT_GPU_PINNED, (void *)g->over);
  tt_free(g->pins);
  tt_free(g);
}

static ncclResult_t gpu_peer_new(tt_gpu_port *p, const tt_rma_peer *peer, tt_gpu_rma_peer **out)
{
  const size_t bytes = TT_RMA_CONTEXTS * sizeof(uint32_t);
  tt_gpu_rma_peer *g;
  void *over = NULL;
  TT_TRY(TT_NEW(g, 1, "rank %d: no memory for one-sided operations", peer->port->rank));
  g->port = p;
  g->rank = peer->rank;
  ncclResult_t res = tt_gpu_pool_take(TT_GPU_PINNED, bytes, &over);
  if (res == ncclSuccess) {
    memset(over, 0, bytes);
    g->over = over;
  }
  if (res == ncclSuccess && !peer->networked) {
    res = peer_pin(g, peer->out);
    res = res == ncclSuccess ? peer_pin(g, peer->in) : res;
  }
  if (res != ncclSuccess) {
    gpu_peer_free(g);
    return res;
  }
  *out = g;
  return ncclSuccess;
}

ncclResult_t tt_gpu_rma_reach(tt_gpu_port *p, const tt_rma *rma, tt_rma_peer *peer, uint64_t window)
{
  if (peer->gpu == NULL) {
    TT_TRY(gpu_peer_new(p, peer, &peer->gpu));
    peer->gpu->rma = rma;
    pthread_mutex_lock(&peers_lock);
    peer->gpu->next = rma_peers;
    rma_peers = peer->gpu;
    pthread_mutex_unlock(&peers_lock);
  }
  return window == 0 || peer->networked ? ncclSuccess : peer_pin(peer->gpu, &peer->board->windows[window % TT_WINDOWS]);
}

void tt_gpu_window_forget(tt_rma_peer *peer)
{
  tt_gpu_rma_peer **at = &rma_peers;
  if (peer->port != NULL) {
    tt_gpu_rank_takes(peer->port, NULL);
  }
  tt_rma_forget_maps(peer); // of a rank on the host
  tt_gpu_far_forget(peer);
  if (peer->gpu == NULL) {
    return;
  }
  pthread_mutex_lock(&peers_lock);
  while (*at != peer->gpu) {
    at = &(*at)->next;
  }
  *at = peer->gpu->next;
  pthread_mutex_unlock(&peers_lock);
  gpu_peer_free(peer->gpu);
  peer->gpu = NULL;
}

void tt_gpu_rma_leave(const tt_gpu_port *p)
{
  const tt_rma *rma = NULL;
  pthread_mutex_lock(&peers_lock);
  for (const tt_gpu_rma_peer *g = rma_peers; g != NULL; g = g->next) {
    if (g->port == p) {
      rma = g->rma;
      if (!rma->peers[g->rank].networked) {
        atomic_store_explicit(&rma->peers[g->rank].out->writing, 0, memory_order_release);
      }
    }
  }
  if (rma != NULL) {
    tt_board_clear(rma);
  }
  pthread_mutex_unlock(&peers_lock);
}

uint64_t tt_gpu_rma_queued(const tt_gpu_port *p, const tt_rma_peer *peer, int signal)
{
  const bool here = !peer->networked && !tt_gpu_ipc_has(p, peer->rank);
  uint64_t queued = here ? 0 : UINT64_MAX;
  pthread_mutex_lock(&peers_lock);
  for (tt_gpu_rma_peer *g = rma_peers; g != NULL; g = g->next) {
    if (g->rank == p->port->rank && g->port->port->rank == peer->rank && g->port->port->hash == p->port->hash) {
      queued = atomic_load_explicit(&g->queued[signal], memory_order_relaxed);
    }
  }
  pthread_mutex_unlock(&peers_lock);
  return queued;
}

// ---- Windows ----

// Does the device reach the byte?
static bool window_reached(const tt_port *port, uint64_t at)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  CUdeviceptr here = 0;
  bool reached = false;
  if (tt_gpu_enter(port->device) == ncclSuccess) {
    reached = cu->PointerGetAttribute(&here, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at) == CUDA_SUCCESS && here == at;
    tt_gpu_leave();
  }
  return reached;
}

// Has the peers of other processes open the allocation that do so. *all: there is none that cannot.
static ncclResult_t window_share(tt_gpu_port *p, const tt_rma *rma, const tt_mappable *m, bool *all)
{
  *all = true;
  for (int i = 0; i < rma->port->nranks && *all; i++) {
    if (tt_gpu_ipc_has(p, i) && !gpu_peer_is_apart(&rma->peers[i])) {
      *all = m->handle != 0;
      TT_TRY(*all ? tt_gpu_ipc_share(p, i, m, all) : ncclSuccess);
    }
  }
  return ncclSuccess;
}

// Do payloads come for windows of the rank, from some peer?
static bool window_is_sent_to(const tt_gpu_port *p, const tt_rma *rma)
{
  int i = 0;
  while (i < rma->port->nranks && !tt_gpu_rma_is_sent_to(p, &rma->peers[i])) {
    i++;
  }
  return i < rma->port->nranks;
}

ncclResult_t tt_gpu_window_show(tt_rma *rma, tt_window_note *note)
{
  const tt_port *port = rma->port;
  tt_gpu_port *p = tt_gpu_rank_port(port);
  const tt_mappable m = tt_gpu_find((const void *)(uintptr_t)note->base, note->size);
  bool shared;
  TT_TRY(tt_gpu_rank_look(port));
  if (!window_reached(port, note->base) || !window_reached(port, note->base + note->size - 1)) {
    return tt_fail(ncclInvalidArgument,
                   "ncclCommWindowRegister on rank %d: GPU %d does not reach the %llu bytes at 0x%llx: register memory "
                   "of ncclMemAlloc or cudaMalloc, or pinned memory of the host",
                   port->rank, port->device, (unsigned long long)note->size, (unsigned long long)note->base);
  }
  TT_TRY(window_share(p, rma, &m, &shared));
  const bool waits = !shared && tt_gpu_rma_awaits(p); // waits that have been queued place no payloads
  if (!shared && !waits) {
    atomic_store_explicit(&p->unshared, true, memory_order_relaxed);
  }
  note->mem = shared ? m.handle : waits ? TT_MEM_NONE : 0;
  if (window_is_sent_to(p, rma)) {
    tt_gpu_rank_takes(port, rma);
  }
  return ncclSuccess;
}

char *tt_gpu_window_address(tt_rma_peer *peer, uint64_t number, const tt_window_note *note)
{
  const tt_gpu_port *p = tt_gpu_rank_port(peer->port);
  (void)number;
  if (gpu_peer_is_apart(peer)) {
    return NULL;
  }
  if (!tt_gpu_ipc_has(p, peer->rank)) {
    return (char *)(uintptr_t)note->base;
  }
  return note->mem == 0 || note->mem == TT_MEM_NONE
             ? NULL
             : tt_gpu_ipc_address(p, peer->rank, (uint32_t)note->mem, note->base, note->size);
}

ncclResult_t tt_gpu_rma_misses(const tt_rma_batch *b, const tt_rma_op *op, int found, const tt_window_note *note)
{
  const int rank = b->rma->port->rank;
  const unsigned long long window = op->window;
  if (found < 0) {
    tt_culprit unused;
    return tt_gpu_rma_shut(b->rma->port, &(tt_cuda_fault){.peer = op->peer, .sig = op->window}, &unused);
  }
  if (op->offset > note->size || op->bytes > note->size - op->offset) {
    return tt_fail(ncclInvalidArgument,
                   "rank %d: ncclPutSignal of %zu bytes at offset %llu of window %llu of rank %d, which has %llu", rank,
                   op->bytes, (unsigned long long)op->offset, window, op->peer, (unsigned long long)note->size);
  }
  return tt_fail(
      ncclInvalidUsage,
      "rank %d: ncclPutSignal into window %llu of rank %d, whose memory other processes cannot map, and which was "
      "registered while a wait for them was in a stream: register it before, or memory of ncclMemAlloc or cudaMalloc",
      rank, window, op->peer);
}

ncclResult_t tt_gpu_rma_aim(const gpu_batch *g, int i)
{
  const tt_rma_op *op = &g->batch->ops[i];
  tt_rma_peer *peer = gpu_peer_of(g->batch, op);
  gpu_target *t = &g->pinned->targets[i];
  tt_window_note note = {.size = 0};
  const int found = tt_board_find(peer->board, op->window, &note);
  if (found == 0) {
    return ncclSuccess;
  }
  const bool fits = found > 0 && op->offset <= note.size && op->bytes <= note.size - op->offset;
  const char *base = fits ? tt_gpu_window_address(peer, op->window, &note) : NULL;
  if (!fits || (base == NULL && !gpu_peer_is_apart(peer) && note.mem != 0)) {
    return tt_gpu_rma_misses(g->batch, op, found, &note);
  }
  TT_TRY(base == NULL ? tt_gpu_far_stage(g, i) : ncclSuccess);
  t->operands[0] = (tt_cuda_operand){.at = gpu_address(op->from)};
  t->operands[1] =
      (tt_cuda_operand){.at = base == NULL ? gpu_address(g->far[i].staging) : gpu_address(base) + op->offset};
  atomic_store_explicit(&t->sent, base != NULL, memory_order_relaxed);
  atomic_store_explicit(&t->ready, 1, memory_order_release);
  return ncclSuccess;
}

// A child cannot use its parent's GPUs.
static void gpu_windows_in_child(void)
{
  rma_peers = NULL;
  pthread_mutex_init(&peers_lock, NULL);
}

__attribute__((constructor)) static void gpu_windows_at_start(void)
{
  static tt_fork_hook hook = {.fn = gpu_windows_in_child};
  tt_proc_on_fork(&hook);
}
