// The host device's row, which row is taken, and the data of a check on either.
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "system.h"

static void host_open(void) {}

static void host_describe(int device, perf_device *d)
{
  char cpu[80];
  perf_cpu_name(cpu, sizeof(cpu));
  snprintf(d->bus, sizeof(d->bus), "%04x:%02x:00", (unsigned)device >> 8 & 0xffff, (unsigned)device & 0xff);
  snprintf(d->info, sizeof(d->info), "host memory, %s", cpu);
}

// There are buffers for every rank on this machine, whatever node it says it is on; an eighth is kept back for
// everything else.
static size_t host_room(const perf_job *j, const perf_rank *r)
{
  (void)r;
  size_t available = perf_memory_available();
  return (available - available / 8) / ((size_t)j->nlocal * (size_t)j->world.machine_procs);
}

static ncclResult_t host_open_stream(perf_rank *r)
{
  ncclResult_t result = tuttiSetDevice(r->device);
  return result == ncclSuccess ? tuttiStreamCreate(&r->stream, TUTTI_STREAM_NON_BLOCKING) : result;
}

static ncclResult_t host_close_stream(perf_rank *r)
{
  return tuttiStreamDestroy(r->stream);
}

static ncclResult_t host_alloc(const perf_rank *r, size_t size, void **out)
{
  (void)r;
  return tuttiMalloc(out, size);
}

static ncclResult_t host_free(const perf_rank *r, void *memory)
{
  (void)r;
  return tuttiFree(memory);
}

static ncclResult_t host_zero(const perf_rank *r, void *memory, size_t size)
{
  (void)r;
  memset(memory, 0, size);
  return ncclSuccess;
}

// NULL is the stream of the thread's device.
static ncclResult_t host_stands_at(int device, cudaStream_t stream)
{
  return stream ? ncclSuccess : tuttiSetDevice(device);
}

static ncclResult_t host_copy(int device, void *to, const void *from, size_t size, cudaStream_t stream)
{
  ncclResult_t result = host_stands_at(device, stream);
  return result == ncclSuccess ? tuttiMemcpyAsync(to, from, size, stream) : result;
}

static ncclResult_t host_wait(const perf_rank *r)
{
  ncclResult_t result = host_stands_at(r->device, r->stream);
  return result == ncclSuccess ? tuttiStreamSynchronize(r->stream) : result;
}

static ncclResult_t host_make_event(const perf_rank *r, tuttiEvent_t *out)
{
  (void)r;
  return tuttiEventCreate(out);
}

static ncclResult_t host_destroy_event(const perf_rank *r, tuttiEvent_t event)
{
  (void)r;
  return tuttiEventDestroy(event);
}

static ncclResult_t host_record(const perf_rank *r, tuttiEvent_t event)
{
  ncclResult_t result = host_stands_at(r->device, r->stream);
  return result == ncclSuccess ? tuttiEventRecord(event, r->stream) : result;
}

static ncclResult_t host_elapsed(const perf_rank *r, float *ms, tuttiEvent_t start, tuttiEvent_t end)
{
  (void)r;
  return tuttiEventElapsedTime(ms, start, end);
}

static ncclResult_t host_begin_capture(const perf_rank *r)
{
  return tuttiStreamBeginCapture(r->stream, tuttiCaptureThreadLocal);
}

static ncclResult_t host_end_capture(perf_rank *r)
{
  tuttiGraph_t graph;
  ncclResult_t result = tuttiStreamEndCapture(r->stream, &graph);
  if (result == ncclSuccess) {
    result = tuttiGraphInstantiate(&r->exec, graph);
  }
  return result == ncclSuccess ? tuttiGraphDestroy(graph) : result;
}

static ncclResult_t host_launch(const perf_rank *r)
{
  return tuttiGraphLaunch(r->exec, r->stream);
}

static ncclResult_t host_destroy_graph(perf_rank *r)
{
  ncclResult_t result = tuttiGraphExecDestroy(r->exec);
  r->exec = NULL;
  return result;
}

const perf_device_ops perf_device_host = {
    .name = "host memory",
    .open = host_open,
    .count = tuttiGetDeviceCount,
    .set = tuttiSetDevice,
    .describe = host_describe,
    .room = host_room,
    .open_stream = host_open_stream,
    .close_stream = host_close_stream,
    .alloc = host_alloc,
    .free = host_free,
    .zero = host_zero,
    .copy = host_copy,
    .wait = host_wait,
    .make_event = host_make_event,
    .destroy_event = host_destroy_event,
    .record = host_record,
    .elapsed = host_elapsed,
    .begin_capture = host_begin_capture,
    .end_capture = host_end_capture,
    .launch = host_launch,
    .destroy_graph = host_destroy_graph,
};

static const perf_device_ops *chosen = &perf_device_host;

// Ranks of several threads on one GPU: a stream that waits holds up those that share a hardware queue with it, and the
// driver has 8 unless it is asked for more. 32 is the most.
void perf_device_prepare(void)
{
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

void perf_device_choose(void)
{
  tuttiDeviceKind_t kind;
  PERF_NCCL(tuttiGetDeviceKind(&kind));
  chosen = kind == tuttiDeviceCuda ? &perf_device_cuda : &perf_device_host;
  chosen->open();
}

const perf_device_ops *perf_devices(void)
{
  return chosen;
}

ncclResult_t perf_copy(const perf_call *x, void *to, const void *from, size_t size)
{
  return chosen->copy(x->device, to, from, size, x->stream);
}

// ---- Data of a check ----

// The bytes of a buffer that a check is about: what the operation may touch, and the guards around it.
static size_t extent(size_t bytes)
{
  return bytes + 2 * (size_t)PERF_GUARD;
}

// The thread's memory in place of the device's: buffers of the same size.
static perf_buffers stand_in(perf_thread *t, const perf_rank *r)
{
  for (int i = 0; i < 2; i++) {
    if (!t->staging[i]) {
      t->staging[i] = malloc(extent(r->buffers.size));
    }
    if (!t->staging[i]) {
      perf_die_saying(PERF_EXIT_INTERNAL, "-c: no memory to make and check %zu bytes (-c 0: no check)",
                      r->buffers.size);
    }
  }
  return (perf_buffers){t->staging[0] + PERF_GUARD, t->staging[1] + PERF_GUARD, r->buffers.size};
}

void perf_device_fill(perf_thread *t, perf_rank *r, uint64_t rep)
{
  const perf_coll *coll = t->job->coll;
  if (!chosen->write) {
    perf_fill(coll, &r->c, r->pattern, &r->buffers, rep);
    return;
  }
  perf_buffers b = stand_in(t, r);
  perf_fill(coll, &r->c, r->pattern, &b, rep);
  chosen->write(r, r->buffers.send - PERF_GUARD, b.send - PERF_GUARD, extent(perf_send_extent(&r->c)));
  chosen->write(r, r->buffers.recv - PERF_GUARD, b.recv - PERF_GUARD, extent(perf_recv_extent(&r->c)));
}

size_t perf_device_check(perf_thread *t, perf_rank *r, uint64_t rep, perf_mismatch *first)
{
  const perf_coll *coll = t->job->coll;
  if (!chosen->read) {
    return perf_check(coll, &r->c, r->pattern, &r->buffers, rep, first);
  }
  perf_buffers b = stand_in(t, r);
  chosen->read(r, b.send - PERF_GUARD, r->buffers.send - PERF_GUARD, extent(perf_send_extent(&r->c)));
  chosen->read(r, b.recv - PERF_GUARD, r->buffers.recv - PERF_GUARD, extent(perf_recv_extent(&r->c)));
  return perf_check(coll, &r->c, r->pattern, &b, rep, first);
}

void perf_device_leave(perf_thread *t)
{
  for (int i = 0; i < 2; i++) {
    free(t->staging[i]);
    t->staging[i] = NULL;
  }
}
