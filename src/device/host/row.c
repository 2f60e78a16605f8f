// row.c: the host device's row of the table of devices.
#include <stdio.h>
#include <string.h>

#include "base/param.h"
#include "base/result.h"
#include "device/device.h"
#include "device/host/capture.h"
#include "device/host/device.h"
#include "device/elsewhere.h"
#include "device/host/handover.h"
#include "device/host/heap.h"
#include "device/host/mem.h"
#include "device/host/moved.h"
#include "device/host/pages.h"
#include "device/stall.h"
#include "device/host/stream.h"

#define HELP_BYTES (1u << 20) // moved by one call of `progress`, about

// The same bytes as a program gets from libhostcuda for this device.
static void row_identify(int device, tt_device_id *out)
{
  *out = (tt_device_id){.uuid = "tutti host"};
  snprintf(out->kind, sizeof out->kind, "%s", tt_device_host.name);
  for (int i = 0; i < 4; i++) {
    out->uuid[12 + i] = (uint8_t)((uint32_t)device >> (24 - 8 * i));
  }
}

// Peers read this value, and write it again, to see whether they can do that with this process at all.
static uint64_t probe_value;

static uint64_t row_probe(void)
{
  __atomic_store_n(&probe_value, tt_proc_self().cookie, __ATOMIC_RELAXED);
  return (uint64_t)(uintptr_t)&probe_value;
}

static bool row_reaches(tt_port *port, const tt_reach *peer)
{
  const int pid = peer->proc->pid;
  uint64_t seen = 0;
  (void)port;
  return tt_params_get()->cma_enable && tt_proc_copy(pid, &seen, peer->probe, sizeof seen, false) == 0 &&
         seen == peer->proc->cookie && tt_proc_copy(pid, &seen, peer->probe, sizeof seen, true) == 0;
}

static bool row_joins(int device, int other)
{
  (void)device;
  (void)other;
  return true;
}

static void *row_scratch_alloc(int device, size_t bytes)
{
  (void)device;
  return tt_calloc_line(bytes);
}

static void row_scratch_free(int device, void *scratch)
{
  (void)device;
  tt_free(scratch);
}

static ncclResult_t row_captured(cudaStream_t stream, int device, bool *captured)
{
  tt_stream *s;
  TT_TRY(tt_stream_look(stream, device, &s));
  *captured = tt_stream_captures(s);
  return ncclSuccess;
}

static ncclResult_t row_open(tt_port *port, const tt_port_env *env)
{
  tt_host_load(env->ranks, env->cores);
  port->operands = tt_calloc(TT_OPERANDS(port->nranks), sizeof *port->operands);
  port->bounce = env->reads ? tt_calloc_line(TT_BOUNCE_BYTES) : NULL;
  if (port->operands == NULL || (env->reads && port->bounce == NULL)) {
    return tt_fail(ncclSystemError, "rank %d: no memory to run operations of %d ranks", port->rank, port->nranks);
  }
  TT_TRY(TT_NEW(port->pages, 1, "rank %d: no memory to know large buffers again", port->rank));
  tt_pages_open(port->pages, port->nranks > 1);
  port->large = port->pages->least;
  tt_elsewhere_open(port);
  return ncclSuccess;
}

static void row_close(tt_port *port)
{
  tt_elsewhere_close(port);
  tt_bell_retire(&port->page->bell);
  tt_free(port->operands);
  tt_free(port->bounce);
  tt_free(port->pages);
  port->pages = NULL;
  port->operands = NULL;
  port->bounce = NULL;
}

static void row_use_buffers(tt_port *port, const tt_buffer_use *buffers)
{
  tt_pages_use(port->pages, buffers);
}

static ncclResult_t row_submit(tt_plan *plan, tt_stream *stream)
{
  plan->work.ops = plan->watch == NULL ? &tt_plan_ops : &tt_plan_watched_ops;
  tt_stream_push(stream, &plan->work);
  return ncclSuccess;
}

static void row_submit_rma(tt_rma_batch *b, tt_stream *stream)
{
  b->work.ops = &tt_rma_ops;
  tt_stream_push(stream, &b->work);
}

static bool row_progress(void)
{
  return tt_stream_help(NULL, HELP_BYTES);
}

static void pass(tt_stream *s, void *unused)
{
  (void)unused;
  tt_stream_pass(s);
}

static void row_settle(void)
{
  tt_stream_each(pass, NULL);
}

static void row_await(bool (*ready)(void *arg), void *arg)
{
  tt_host_wait(NULL, ready, arg);
}

static void row_wake(void)
{
  tt_bell_fence();
  tt_bell_ring(&tt_process_bell);
}

static bool row_poll(bool (*ready)(void *arg), void *arg)
{
  return tt_host_poll(NULL, ready, arg);
}

static void row_attend(void (*fn)(int delta))
{
  atomic_store(&tt_host_attend, fn);
}

static bool row_take_synchronized(cudaStream_t stream, int device)
{
  tt_stream *s = tt_stream_find(stream, device);
  if (s == NULL || !atomic_load_explicit(&s->synchronized, memory_order_relaxed)) {
    return false;
  }
  atomic_store_explicit(&s->synchronized, false, memory_order_relaxed);
  return true;
}

static bool row_spin(cudaStream_t stream, int device, bool (*ready)(void *arg), void *arg)
{
  return tt_host_spin(tt_stream_find(stream, device), ready, arg);
}

static ncclResult_t row_record_event(cudaEvent_t event, cudaStream_t stream, int device)
{
  tt_event *e = (tt_event *)event;
  tt_stream *s;
  if (e->slot != NULL) {
    return tt_fail(ncclInvalidArgument, "launchCompletionEvent: the event is shared between processes");
  }
  TT_TRY(tt_stream_look(stream, device, &s));
  if (tt_stream_captures(s)) {
    return tt_capture_record(s, e);
  }
  TT_TRY(tt_capturing() ? tt_capture_refuse_legacy(s, "launchCompletionEvent") : ncclSuccess);
  tt_work *w = tt_event_record_work(e);
  if (w == NULL) {
    return tt_fail(ncclSystemError, "launchCompletionEvent: no memory");
  }
  atomic_store_explicit(&e->stream, s, memory_order_relaxed);
  tt_stream_unshare(s);
  tt_stream_push(s, w);
  return ncclSuccess;
}

static const tt_shortcut_ops shortcut = {.free_at = tt_stream_free_at,
                                         .take_synchronized = row_take_synchronized,
                                         .spin = row_spin,
                                         .queue = tt_stream_queue,
                                         .run_rma = tt_rma_run};

static ncclResult_t host_row_get(cudaStream_t handle, const tt_port *port, const char *what, tt_stream **out)
{
  return tt_stream_get(handle, port->device, what, out);
}

const tt_device_ops tt_device_host = {.name = "host",
                                      .count = tt_host_device_count,
                                      .current = tt_host_device,
                                      .identify = row_identify,
                                      .probe = row_probe,
                                      .reaches = row_reaches,
                                      .joins = row_joins,
                                      .alloc = tt_mem_alloc,
                                      .free = tt_mem_free,
                                      .find = tt_mem_find,
                                      .range = tt_mem_range,
                                      .map = tt_moved_take,
                                      .unmap = tt_moved_give,
                                      .allocation = tt_heap_allocation,
                                      .on_free = tt_mem_on_free,
                                      .scratch_alloc = row_scratch_alloc,
                                      .scratch_free = row_scratch_free,
                                      .get = host_row_get,
                                      .order = tt_stream_order,
                                      .record_event = row_record_event,
                                      .captured = row_captured,
                                      .record = tt_capture_calls,
                                      .open = row_open,
                                      .close = row_close,
                                      .tell = tt_stall_tell,
                                      .view = tt_stall_view,
                                      .use_buffers = row_use_buffers,
                                      .submit = row_submit,
                                      .submit_rma = row_submit_rma,
                                      .window_address = tt_rma_window_address,
                                      .forget_windows = tt_rma_forget_maps,
                                      .connect = tt_handover_open,
                                      .disconnect = tt_handover_close,
                                      .progress = row_progress,
                                      .settle = row_settle,
                                      .await = row_await,
                                      .wake = row_wake,
                                      .poll = row_poll,
                                      .awaiting = tt_host_waiting,
                                      .defer = tt_worker_defer,
                                      .attend = row_attend,
                                      .shortcut = &shortcut};
