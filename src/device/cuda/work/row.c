// row.c: the CUDA device's row of the table of devices (device.h).
#include <string.h>

#include "base/log.h"
#include "device/cuda/memory.h"
#include "device/cuda/work/ipc.h"
#include "device/cuda/work/inbox.h"
#include "device/cuda/work/pins.h"
#include "device/cuda/work/pool.h"
#include "device/cuda/work/rank.h"
#include "device/cuda/work/rma.h"
#include "device/cuda/work/walk.h"
#include "device/stall.h"

// In the child of a fork whose parent has used GPUs, ranks would be on GPUs: what they ask for fails, with that text.
bool tt_device_cuda_opens(void)
{
  const char *why = "";
  const bool opens = tt_cuda_get(&why) != NULL && tt_gpu_count() > 0;
  if (!opens && tt_cuda_get_state() == TT_CUDA_REFUSED) {
    tt_info(TT_INIT, "GPUs are not used: %s", why);
  }
  return opens || tt_cuda_get_state() == TT_CUDA_FORKED;
}

// ---- Identity ----

// What is tried are allocations (ipc.h), which need no place.
static uint64_t gpu_row_probe(void)
{
  return 0;
}

static bool gpu_row_fifos_only(const tt_port *port)
{
  return tt_gpu_walk_fifos_only(tt_gpu_rank_port(port));
}

// A walk may wait while another rank connects, and the driver have that one wait for it.
static bool gpu_row_connects_early(const tt_port *port)
{
  return gpu_row_fifos_only(port) || (port->ll128 && gpu_walks(tt_gpu_rank_port(port)));
}

static bool gpu_row_joins(int device, int other)
{
  return tt_gpu_join(device, other) && tt_gpu_join(other, device);
}

static bool gpu_row_reaches(tt_port *port, const tt_reach *peer)
{
  tt_device_id id;
  if (peer->here) {
    return gpu_row_joins(port->device, peer->device);
  }
  for (int d = 0; d < tt_gpu_count(); d++) {
    tt_gpu_identify(d, &id);
    if (memcmp(id.uuid, peer->id->uuid, sizeof id.uuid) == 0) {
      return tt_gpu_reaches(port->device, d) && tt_gpu_ipc_try(tt_gpu_rank_port(port), peer->rank);
    }
  }
  return false; // this process does not see the device
}

// ---- Memory ----

static void (*_Atomic memory_goes)(void *base, size_t size);

static void gpu_row_on_free(void (*fn)(void *base, size_t size))
{
  atomic_store(&memory_goes, fn);
}

static ncclResult_t gpu_row_free(void *ptr)
{
  void (*goes)(void *base, size_t size) = atomic_load(&memory_goes), *base;
  size_t bytes;
  if (goes != NULL && tt_gpu_range(ptr, 1, &base, &bytes) && base == ptr) {
    goes(base, bytes);
  }
  return tt_gpu_free(ptr);
}

static tt_moved *gpu_row_map(void *ptr, size_t size, bool ordinary, size_t *bytes)
{
  (void)ptr;
  (void)size;
  (void)ordinary;
  *bytes = 0;
  return NULL;
}

static void gpu_row_unmap(tt_moved *moved)
{
  (void)moved;
}

static bool gpu_row_allocation(const void *ptr, void **base, size_t *bytes)
{
  int device;
  return tt_gpu_allocation(ptr, base, bytes, &device);
}

static void *gpu_row_scratch_alloc(int device, size_t bytes)
{
  void *scratch = NULL;
  return tt_gpu_pool_take(device, bytes, &scratch) == ncclSuccess ? scratch : NULL;
}

// ---- Memory of links, pinned ----

// A link's part of the device: what has been pinned.
typedef struct row_link {
  int device;
  char *windows[2];
} row_link;

static void gpu_row_disconnect(tt_link *link)
{
  row_link *l = (row_link *)(void *)link->handover;
  if (l == NULL) {
    return;
  }
  for (int i = 0; i < 2 && l->windows[i] != NULL; i++) {
    tt_gpu_unpin(l->windows[i]);
  }
  tt_gpu_ranks_close_stale();
  tt_free(l);
  link->handover = NULL;
}

static ncclResult_t gpu_row_pin_windows(row_link *l, const tt_link_env *env)
{
  for (int i = 0; i < 2; i++) {
    TT_TRY(tt_gpu_pin(l->device, env->windows[i], env->window_bytes));
    l->windows[i] = env->windows[i];
  }
  return ncclSuccess;
}

static ncclResult_t gpu_row_connect(const tt_port *port, tt_link *link, const tt_link_env *env)
{
  row_link *l;
  TT_TRY(TT_NEW(l, 1, "rank %d: no memory for the connection to rank %d", link->rank, link->peer));
  l->device = port->device;
  link->handover = (struct tt_handover *)(void *)l;
  ncclResult_t res = tt_gpu_enter(port->device);
  if (res == ncclSuccess) {
    res = gpu_row_pin_windows(l, env);
    tt_gpu_leave();
  }
  res = res == ncclSuccess ? tt_gpu_inbox_connect(tt_gpu_rank_port(port), link) : res;
  if (res != ncclSuccess) {
    gpu_row_disconnect(link);
  }
  return res;
}

// ---- Streams ----

// Only kernels and the proxy take part in a replay.
static ncclResult_t row_may_capture(const tt_port *port, const char *what)
{
  const tt_gpu_port *p = tt_gpu_rank_port(port);
  for (int i = 0; port->neighbors != NULL && i < port->nranks; i++) {
    if (!port->neighbors[i].alike || (tt_gpu_ipc_has(p, i) && !tt_gpu_ipc_serves(p, i))) {
      return tt_fail(ncclInvalidUsage,
                     "%s on rank %d: the stream is captured, but rank %d is not on a GPU: captures need all ranks of "
                     "the communicator on GPUs",
                     what, port->rank, i);
    }
  }
  return ncclSuccess;
}

static ncclResult_t gpu_row_get(cudaStream_t handle, const tt_port *port, const char *what, tt_stream **out)
{
  tt_gpu_stream *s;
  TT_TRY(tt_gpu_rank_look(port));
  TT_TRY(tt_gpu_stream_get(handle, port->device, what, &s));
  if (tt_gpu_stream_is_captured(s)) {
    TT_TRY(row_may_capture(port, what));
  }
  *out = (tt_stream *)(void *)s;
  return ncclSuccess;
}

// Both of one capture, or of none: else the driver would end a capture.
static ncclResult_t gpu_row_order(tt_stream *earlier, tt_stream *later)
{
  tt_gpu_stream *before = (tt_gpu_stream *)(void *)earlier, *behind = (tt_gpu_stream *)(void *)later;
  uint64_t captures[2];
  TT_TRY(tt_gpu_stream_capture(before, &captures[0]));
  TT_TRY(tt_gpu_stream_capture(behind, &captures[1]));
  if (captures[0] != captures[1]) {
    return tt_fail(ncclInvalidUsage, "messages of one group on several streams, of which %s",
                   captures[0] == 0 || captures[1] == 0 ? "one is captured and one is not" : "two are in two captures");
  }
  return tt_gpu_order(before, behind);
}

static bool gpu_row_in_graph(const tt_stream *stream)
{
  return tt_gpu_stream_is_captured((const tt_gpu_stream *)(const void *)stream);
}

// The driver captures what is submitted.
static ncclResult_t gpu_row_record(const tt_stream_use *uses, size_t n, int device, tt_recorded *r, bool *captured)
{
  (void)uses;
  (void)n;
  (void)device;
  *captured = false;
  if (r != NULL) {
    r->drop(r);
  }
  return ncclSuccess;
}

// ---- Ports and work ----

static ncclResult_t gpu_row_open(tt_port *port, const tt_port_env *env)
{
  (void)env;
  port->large = SIZE_MAX;
  return tt_gpu_rank_open(port);
}

static ncclResult_t gpu_row_submit(tt_plan *plan, tt_stream *stream)
{
  return tt_gpu_submit_plan(plan, (tt_gpu_stream *)(void *)stream);
}

static ncclResult_t gpu_row_check_rma(tt_stream *stream, const char *what)
{
  return tt_gpu_stream_is_captured((tt_gpu_stream *)(void *)stream)
             ? tt_fail(ncclInvalidUsage,
                       "%s: the stream is captured, and one-sided operations of GPUs cannot be part of a graph", what)
             : ncclSuccess;
}

static void gpu_row_submit_rma(tt_rma_batch *b, tt_stream *stream)
{
  tt_gpu_rma_submit(b, (tt_gpu_stream *)(void *)stream);
}

static void gpu_row_wake(void) {} // threads that wait look again by themselves

static void gpu_row_attend(void (*fn)(int delta))
{
  (void)fn; // no thread of a user's moves anything
}

const tt_device_ops tt_device_cuda = {.name = "cuda",
                                      .levels = true,
                                      .pins = true,
                                      .clock = true,
                                      .pairs = true,
                                      .count = tt_gpu_count,
                                      .current = tt_gpu_current,
                                      .identify = tt_gpu_identify,
                                      .probe = gpu_row_probe,
                                      .reaches = gpu_row_reaches,
                                      .fifos_only = gpu_row_fifos_only,
                                      .connects_early = gpu_row_connects_early,
                                      .joins = gpu_row_joins,
                                      .alloc = tt_gpu_alloc,
                                      .free = gpu_row_free,
                                      .find = tt_gpu_find,
                                      .range = tt_gpu_range,
                                      .map = gpu_row_map,
                                      .unmap = gpu_row_unmap,
                                      .allocation = gpu_row_allocation,
                                      .on_free = gpu_row_on_free,
                                      .scratch_alloc = gpu_row_scratch_alloc,
                                      .scratch_free = tt_gpu_pool_give,
                                      .get = gpu_row_get,
                                      .order = gpu_row_order,
                                      .record_event = tt_gpu_record_event,
                                      .captured = tt_gpu_stream_captured,
                                      .in_graph = gpu_row_in_graph,
                                      .record = gpu_row_record,
                                      .open = gpu_row_open,
                                      .leave = tt_gpu_rank_unlink,
                                      .close = tt_gpu_rank_close,
                                      .tell = tt_stall_tell,
                                      .view = tt_stall_view,
                                      .submit = gpu_row_submit,
                                      .hold = tt_gpu_hold,
                                      .unhold = tt_gpu_unhold,
                                      .check_rma = gpu_row_check_rma,
                                      .submit_rma = gpu_row_submit_rma,
                                      .show_window = tt_gpu_window_show,
                                      .place_put = tt_gpu_place_put,
                                      .window_address = tt_gpu_window_address,
                                      .forget_windows = tt_gpu_window_forget,
                                      .connect = gpu_row_connect,
                                      .disconnect = gpu_row_disconnect,
                                      .progress = tt_gpu_progress,
                                      .settle = tt_gpu_settle,
                                      .replays = tt_gpu_rank_replays,
                                      .await = tt_gpu_await,
                                      .wake = gpu_row_wake,
                                      .poll = tt_gpu_poll,
                                      .awaiting = tt_gpu_awaiting,
                                      .defer = tt_gpu_defer,
                                      .attend = gpu_row_attend};
