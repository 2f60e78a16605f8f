// The host device's row, and which row is taken.
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

static int64_t host_memory(const perf_job *j)
{
  (void)j;
  return perf_memory_resident();
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
    .memory = host_memory,
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
#ifdef TUTTI_HAVE_CUDA // else the library has no GPUs either
  chosen = kind == tuttiDeviceCuda ? &perf_device_cuda : &perf_device_host;
#endif
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
