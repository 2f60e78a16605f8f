// host.c: the tutti… functions: streams, events and memory of the host device.
#include <stdlib.h>

#include "base/result.h"
#include "device/host/device.h"
#include "device/host/event.h"
#include "device/host/ops.h"
#include "device/host/stream.h"
#include "tutti.h"

#define TUTTI_API __attribute__((visibility("default"))) ncclResult_t

static ncclResult_t null_argument(const char *what)
{
  return tt_fail(ncclInvalidArgument, "%s: a pointer argument is NULL", what);
}

static ncclResult_t push(const char *what, cudaStream_t stream, tt_work *w)
{
  tt_stream *s;
  if (w == NULL) {
    return tt_fail(ncclSystemError, "%s: no memory", what);
  }
  ncclResult_t res = tt_stream_get(stream, tt_host_device(), &s);
  if (res != ncclSuccess) {
    w->ops->done(w);
    return res;
  }
  tt_stream_push(s, w);
  return ncclSuccess;
}

TUTTI_API tuttiGetDeviceCount(int *count)
{
  if (count == NULL) {
    return null_argument("tuttiGetDeviceCount");
  }
  *count = tt_host_device_count();
  return ncclSuccess;
}

TUTTI_API tuttiSetDevice(int device)
{
  return tt_host_device_set(device);
}

TUTTI_API tuttiGetDevice(int *device)
{
  if (device == NULL) {
    return null_argument("tuttiGetDevice");
  }
  *device = tt_host_device();
  return ncclSuccess;
}

TUTTI_API tuttiStreamCreate(cudaStream_t *stream, unsigned flags)
{
  tt_stream *s;
  if (stream == NULL) {
    return null_argument("tuttiStreamCreate");
  }
  if (flags > TUTTI_STREAM_NON_BLOCKING) {
    return tt_fail(ncclInvalidArgument, "tuttiStreamCreate: flags are %u; known are 0 and %d", flags, TUTTI_STREAM_NON_BLOCKING);
  }
  TT_TRY(tt_stream_create(tt_host_device(), flags == TUTTI_STREAM_DEFAULT, &s));
  *stream = (cudaStream_t)s;
  return ncclSuccess;
}

TUTTI_API tuttiStreamDestroy(cudaStream_t stream)
{
  tt_stream *s;
  if ((uintptr_t)stream <= 2) {
    return tt_fail(ncclInvalidArgument, "tuttiStreamDestroy: %p is a default stream, which cannot be destroyed", (void *)stream);
  }
  TT_TRY(tt_stream_get(stream, tt_host_device(), &s));
  tt_stream_destroy(s);
  return ncclSuccess;
}

TUTTI_API tuttiStreamSynchronize(cudaStream_t stream)
{
  tt_stream *s;
  TT_TRY(tt_stream_get(stream, tt_host_device(), &s));
  return tt_stream_wait(s);
}

TUTTI_API tuttiStreamQuery(cudaStream_t stream)
{
  tt_stream *s;
  TT_TRY(tt_stream_get(stream, tt_host_device(), &s));
  if (!tt_stream_idle(s)) {
    tt_stream_progress(s, 1 << 20, false);
    tt_stream_help(s, 1 << 20);
  }
  return tt_stream_idle(s) ? ncclSuccess : ncclInProgress;
}

TUTTI_API tuttiStreamWaitEvent(cudaStream_t stream, tuttiEvent_t event)
{
  return event == NULL ? null_argument("tuttiStreamWaitEvent")
                       : push("tuttiStreamWaitEvent", stream, tt_event_wait_work((tt_event *)event));
}

TUTTI_API tuttiLaunchHostFunc(cudaStream_t stream, void (*fn)(void *arg), void *arg)
{
  return fn == NULL ? null_argument("tuttiLaunchHostFunc") : push("tuttiLaunchHostFunc", stream, tt_host_function(fn, arg));
}

static void wait_device(tt_stream *s, void *res)
{
  if (s->device == tt_host_device()) {
    ncclResult_t r = tt_stream_wait(s);
    *(ncclResult_t *)res = r != ncclSuccess ? r : *(ncclResult_t *)res;
  }
}

TUTTI_API tuttiDeviceSynchronize(void)
{
  ncclResult_t res = ncclSuccess;
  tt_stream_each(wait_device, &res);
  return res;
}

TUTTI_API tuttiEventCreate(tuttiEvent_t *event)
{
  tt_event *e;
  if (event == NULL) {
    return null_argument("tuttiEventCreate");
  }
  TT_TRY(tt_event_create(&e));
  *event = (tuttiEvent_t)e;
  return ncclSuccess;
}

TUTTI_API tuttiEventDestroy(tuttiEvent_t event)
{
  tt_event_destroy((tt_event *)event);
  return ncclSuccess;
}

TUTTI_API tuttiEventRecord(tuttiEvent_t event, cudaStream_t stream)
{
  return event == NULL ? null_argument("tuttiEventRecord") : push("tuttiEventRecord", stream, tt_event_record_work((tt_event *)event));
}

TUTTI_API tuttiEventQuery(tuttiEvent_t event)
{
  if (event == NULL) {
    return null_argument("tuttiEventQuery");
  }
  return tt_event_complete((tt_event *)event) ? ncclSuccess : ncclInProgress;
}

static bool event_ready(void *e)
{
  return tt_event_complete(e);
}

TUTTI_API tuttiEventSynchronize(tuttiEvent_t event)
{
  if (event == NULL) {
    return null_argument("tuttiEventSynchronize");
  }
  tt_host_wait(NULL, event_ready, event);
  return ncclSuccess;
}

TUTTI_API tuttiEventElapsedTime(float *ms, tuttiEvent_t start, tuttiEvent_t end)
{
  tt_event *a = (tt_event *)start, *b = (tt_event *)end;
  if (ms == NULL || a == NULL || b == NULL) {
    return null_argument("tuttiEventElapsedTime");
  }
  if (atomic_load(&a->recorded) == 0 || atomic_load(&b->recorded) == 0) {
    return tt_fail(ncclInvalidUsage, "tuttiEventElapsedTime: an event was never recorded");
  }
  if (!tt_event_complete(a) || !tt_event_complete(b)) {
    return ncclInProgress;
  }
  *ms = (float)((double)(int64_t)(atomic_load(&b->time) - atomic_load(&a->time)) / 1e6);
  return ncclSuccess;
}

TUTTI_API tuttiMalloc(void **ptr, size_t size)
{
  if (ptr == NULL) {
    return null_argument("tuttiMalloc");
  }
  void *p = aligned_alloc(4096, TT_ROUND_UP(TT_MAX(size, 1), 4096));
  if (p == NULL) {
    return tt_fail(ncclSystemError, "tuttiMalloc: no memory for %zu bytes", size);
  }
  *ptr = p;
  return ncclSuccess;
}

TUTTI_API tuttiFree(void *ptr)
{
  free(ptr);
  return ncclSuccess;
}

TUTTI_API tuttiMemcpyAsync(void *dst, const void *src, size_t size, cudaStream_t stream)
{
  if (size > 0 && (dst == NULL || src == NULL)) {
    return null_argument("tuttiMemcpyAsync");
  }
  return push("tuttiMemcpyAsync", stream, tt_host_copy(dst, src, size));
}

TUTTI_API tuttiMemsetAsync(void *dst, int value, size_t size, cudaStream_t stream)
{
  if (size > 0 && dst == NULL) {
    return null_argument("tuttiMemsetAsync");
  }
  return push("tuttiMemsetAsync", stream, tt_host_fill(dst, value, size));
}
