// host.c: the tutti… functions for devices, streams and events of the host device. Memory is in host_mem.c.
#include "api/host_priv.h"
#include "base/result.h"
#include "device/host/capture.h"
#include "device/host/device.h"
#include "device/host/event.h"
#include "device/host/ops.h"
#include "device/host/stream.h"

// The stream is captured: the entry becomes a node, which can be queued again and again.
static ncclResult_t capture(const char *what, tt_stream *s, tt_work *w)
{
  if (w->ops->again == NULL) {
    w->ops->done(w);
    return tt_capture_refuse(s, what);
  }
  return tt_capture_add(&s, 1, tt_node_new(w->ops->kind, w));
}

ncclResult_t tt_api_push_to(const char *what, tt_stream *s, tt_work *w)
{
  if (w == NULL) {
    return tt_fail(ncclSystemError, "%s: no memory", what);
  }
  if (TT_UNLIKELY(tt_stream_captures(s))) {
    return capture(what, s, w);
  }
  ncclResult_t res = tt_capturing() ? tt_capture_refuse_legacy(s, what) : ncclSuccess;
  if (res != ncclSuccess) {
    w->ops->done(w);
    return res;
  }
  tt_stream_push(s, w);
  return ncclSuccess;
}

ncclResult_t tt_api_push(const char *what, cudaStream_t stream, tt_work *w)
{
  tt_stream *s;
  ncclResult_t res = tt_stream_look(stream, TT_STREAM_CALLERS, &s);
  if (res != ncclSuccess && w != NULL) {
    w->ops->done(w);
  }
  return res != ncclSuccess ? res : tt_api_push_to(what, s, w);
}

TUTTI_API tuttiGetDeviceKind(tuttiDeviceKind_t *kind)
{
  TT_TRY(tt_api_needs("tuttiGetDeviceKind", kind != NULL));
  *kind = tt_device_row() == &tt_device_host ? tuttiDeviceHost : tuttiDeviceCuda;
  return ncclSuccess;
}

TUTTI_API tuttiGetDeviceCount(int *count)
{
  tt_device_want_host();
  TT_TRY(tt_api_needs("tuttiGetDeviceCount", count != NULL));
  *count = tt_host_device_count();
  return ncclSuccess;
}

TUTTI_API tuttiGetUsualDeviceCount(int *count)
{
  tt_device_want_host();
  TT_TRY(tt_api_needs("tuttiGetUsualDeviceCount", count != NULL));
  *count = tt_host_device_usual_count();
  return ncclSuccess;
}

TUTTI_API tuttiSetDevice(int device)
{
  tt_device_want_host();
  return tt_host_device_set(device);
}

TUTTI_API tuttiGetDevice(int *device)
{
  tt_device_want_host();
  TT_TRY(tt_api_needs("tuttiGetDevice", device != NULL));
  *device = tt_host_device();
  return ncclSuccess;
}

TUTTI_API tuttiStreamCreate(cudaStream_t *stream, unsigned flags)
{
  tt_device_want_host();
  tt_stream *s;
  TT_TRY(tt_api_needs("tuttiStreamCreate", stream != NULL));
  if (flags > TUTTI_STREAM_NON_BLOCKING) {
    return tt_fail(ncclInvalidArgument, "tuttiStreamCreate: flags are %u; known are 0 and %d", flags,
                   TUTTI_STREAM_NON_BLOCKING);
  }
  TT_TRY(tt_stream_create(tt_host_device(), flags == TUTTI_STREAM_DEFAULT, &s));
  *stream = (cudaStream_t)s;
  return ncclSuccess;
}

TUTTI_API tuttiStreamDestroy(cudaStream_t stream)
{
  tt_stream *s;
  if ((uintptr_t)stream <= 2) {
    return tt_fail(ncclInvalidArgument, "tuttiStreamDestroy: %p is a default stream, which cannot be destroyed",
                   (void *)stream);
  }
  TT_TRY(tt_stream_look(stream, TT_STREAM_CALLERS, &s));
  tt_stream_destroy(s);
  return ncclSuccess;
}

TUTTI_API tuttiStreamGetInfo(cudaStream_t stream, int *device, unsigned *flags, unsigned long long *id)
{
  tt_stream *s;
  TT_TRY(tt_stream_look(stream, TT_STREAM_CALLERS, &s));
  if (device != NULL) {
    *device = s->device;
  }
  if (flags != NULL) {
    *flags = atomic_load(&s->legacy) != NULL || s->is_legacy ? TUTTI_STREAM_DEFAULT : TUTTI_STREAM_NON_BLOCKING;
  }
  if (id != NULL) {
    *id = (unsigned long long)(uintptr_t)s / sizeof *s;
  }
  return ncclSuccess;
}

TUTTI_API tuttiStreamSynchronize(cudaStream_t stream)
{
  tt_stream *s;
  TT_TRY(tt_stream_get(stream, TT_STREAM_CALLERS, "tuttiStreamSynchronize", &s));
  return tt_stream_wait(s);
}

TUTTI_API tuttiStreamSynchronizeFor(cudaStream_t stream, unsigned ms)
{
  tt_stream *s;
  TT_TRY(tt_stream_get(stream, TT_STREAM_CALLERS, "tuttiStreamSynchronizeFor", &s));
  return tt_stream_wait_for(s, ms * UINT64_C(1000000));
}

static bool host_stream_idle(void *s)
{
  return tt_stream_idle(s);
}

TUTTI_API tuttiStreamQuery(cudaStream_t stream)
{
  tt_stream *s;
  TT_TRY(tt_stream_get(stream, TT_STREAM_CALLERS, "tuttiStreamQuery", &s));
  tt_stream_unshare(s);
  return tt_host_poll(s, host_stream_idle, s) ? tt_stream_error(s, false) : ncclInProgress;
}

TUTTI_API tuttiStreamWaitEvent(cudaStream_t stream, tuttiEvent_t event)
{
  return tuttiStreamWaitEventWithFlags(stream, event, 0);
}

TUTTI_API tuttiStreamWaitEventWithFlags(cudaStream_t stream, tuttiEvent_t event, unsigned flags)
{
  tt_event *e = (tt_event *)event;
  tt_stream *s;
  TT_TRY(tt_api_needs("tuttiStreamWaitEvent", e != NULL));
  TT_TRY(tt_stream_look(stream, TT_STREAM_CALLERS, &s));
  if (tt_stream_captures(s) && (flags & TUTTI_EVENT_EXTERNAL) != 0) {
    return tt_capture_add(&s, 1, tt_node_of_event(e, false));
  }
  return tt_stream_captures(s) || tt_event_captured(e)
             ? tt_capture_wait(s, e)
             : tt_api_push_to("tuttiStreamWaitEvent", s, tt_event_wait_work(e));
}

TUTTI_API tuttiLaunchHostFunc(cudaStream_t stream, void (*fn)(void *arg), void *arg)
{
  TT_TRY(tt_api_needs("tuttiLaunchHostFunc", fn != NULL));
  return tt_api_push("tuttiLaunchHostFunc", stream, tt_host_function(fn, arg));
}

TUTTI_API tuttiLaunchHostFuncStaged(cudaStream_t stream, void (*fn)(void *arg), const void *arg, size_t size)
{
  TT_TRY(tt_api_needs("tuttiLaunchHostFuncStaged", fn != NULL && arg != NULL && size != 0));
  return tt_api_push("tuttiLaunchHostFuncStaged", stream, tt_host_function_staged(fn, (void *)(uintptr_t)arg, size));
}

TUTTI_API tuttiDeviceSynchronize(void)
{
  TT_TRY(tt_capture_refuse_device(tt_host_device(), "tuttiDeviceSynchronize"));
  return tt_stream_wait_device(tt_host_device(), true);
}

TUTTI_API tuttiDeviceWait(int device)
{
  return tt_stream_wait_device(device, false);
}

static ncclResult_t create_event(const char *what, tuttiEvent_t *event, unsigned flags)
{
  tt_event *e;
  TT_TRY(tt_api_needs(what, event != NULL));
  if ((flags & ~(unsigned)(TUTTI_EVENT_DISABLE_TIMING | TUTTI_EVENT_INTERPROCESS)) != 0 ||
      flags == TUTTI_EVENT_INTERPROCESS) {
    return tt_fail(ncclInvalidArgument, "%s: flags are %u; known are 0, %d, and %d together with it", what, flags,
                   TUTTI_EVENT_DISABLE_TIMING, TUTTI_EVENT_INTERPROCESS);
  }
  TT_TRY((flags & TUTTI_EVENT_INTERPROCESS) != 0 ? tt_event_create_shared(NULL, &e) : tt_event_create(&e));
  e->flags = flags;
  *event = (tuttiEvent_t)e;
  return ncclSuccess;
}

TUTTI_API tuttiEventCreate(tuttiEvent_t *event)
{
  return create_event("tuttiEventCreate", event, TUTTI_EVENT_DEFAULT);
}

TUTTI_API tuttiEventCreateWithFlags(tuttiEvent_t *event, unsigned flags)
{
  tt_device_want_host();
  return create_event("tuttiEventCreateWithFlags", event, flags);
}

TUTTI_API tuttiIpcGetEventHandle(tuttiIpcEventHandle_t *handle, tuttiEvent_t event)
{
  const tt_event *e = (const tt_event *)event;
  TT_TRY(tt_api_needs("tuttiIpcGetEventHandle", handle != NULL && e != NULL));
  if (e->slot == NULL) {
    return tt_fail(ncclInvalidArgument, "tuttiIpcGetEventHandle: the event was made without TUTTI_EVENT_INTERPROCESS");
  }
  return tt_ipc_slot_export(e->slot, handle);
}

TUTTI_API tuttiIpcOpenEventHandle(tuttiEvent_t *event, const tuttiIpcEventHandle_t *handle)
{
  tt_event *e;
  TT_TRY(tt_api_needs("tuttiIpcOpenEventHandle", event != NULL && handle != NULL));
  TT_TRY(tt_event_create_shared(handle, &e));
  e->flags = TUTTI_EVENT_DISABLE_TIMING | TUTTI_EVENT_INTERPROCESS;
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
  return tuttiEventRecordWithFlags(event, stream, 0);
}

TUTTI_API tuttiEventRecordWithFlags(tuttiEvent_t event, cudaStream_t stream, unsigned flags)
{
  tt_event *e = (tt_event *)event;
  tt_stream *s;
  TT_TRY(tt_api_needs("tuttiEventRecord", e != NULL));
  TT_TRY(tt_stream_look(stream, TT_STREAM_CALLERS, &s));
  if (!tt_stream_captures(s)) {
    atomic_store_explicit(&e->stream, s, memory_order_relaxed);
    tt_stream_unshare(s);
    return tt_api_push_to("tuttiEventRecord", s, tt_event_record_work(e));
  }
  return (flags & TUTTI_EVENT_EXTERNAL) != 0 ? tt_capture_add(&s, 1, tt_node_of_event(e, true))
                                             : tt_capture_record(s, e);
}

// Where this process recorded the event last: a thread that asks for the event runs that first.
static tt_stream *stream_of(const tt_event *e)
{
  return atomic_load_explicit(&e->stream, memory_order_relaxed);
}

static ncclResult_t poll_event(tt_event *e)
{
  if (tt_host_poll(stream_of(e), tt_event_reached, e)) {
    return ncclSuccess;
  }
  TT_TRY(tt_event_check(e));
  return ncclInProgress;
}

TUTTI_API tuttiEventQuery(tuttiEvent_t event)
{
  TT_TRY(tt_api_needs("tuttiEventQuery", event != NULL));
  return tt_event_captured((tt_event *)event) ? tt_capture_refuse_event("tuttiEventQuery")
                                              : poll_event((tt_event *)event);
}

// Waits for an event of several processes. A wait in a stream watches its bell and whether the process lives that has
// recorded it. NEVER_OVER: without a limit.
#define NEVER_OVER UINT64_MAX

static ncclResult_t wait_for_shared(tt_event *e, uint64_t ns)
{
  tt_stream *s;
  TT_TRY(tt_stream_create(tt_host_device(), false, &s));
  tt_work *w = tt_event_wait_work(e);
  ncclResult_t res = ncclSuccess;
  if (w == NULL) {
    res = tt_fail(ncclSystemError, "tuttiEventSynchronize: no memory");
  } else {
    tt_stream_push(s, w);
    res = ns == NEVER_OVER ? tt_stream_wait(s) : tt_stream_wait_for(s, ns);
  }
  tt_stream_destroy(s);
  return res;
}

static ncclResult_t wait_for_event(const char *what, tt_event *e, uint64_t ns)
{
  TT_TRY(tt_api_needs(what, e != NULL));
  if (tt_event_captured(e)) {
    return tt_capture_refuse_event(what);
  }
  if (e->slot != NULL) {
    return wait_for_shared(e, ns);
  }
  if (ns == NEVER_OVER) {
    tt_host_wait(stream_of(e), tt_event_reached, e);
    return ncclSuccess;
  }
  return tt_host_wait_for(stream_of(e), tt_event_reached, e, ns) ? ncclSuccess : ncclInProgress;
}

TUTTI_API tuttiEventSynchronize(tuttiEvent_t event)
{
  return wait_for_event("tuttiEventSynchronize", (tt_event *)event, NEVER_OVER);
}

TUTTI_API tuttiEventSynchronizeFor(tuttiEvent_t event, unsigned ms)
{
  return wait_for_event("tuttiEventSynchronizeFor", (tt_event *)event, ms * UINT64_C(1000000));
}

TUTTI_API tuttiEventElapsedTime(float *ms, tuttiEvent_t start, tuttiEvent_t end)
{
  tt_event *a = (tt_event *)start, *b = (tt_event *)end;
  TT_TRY(tt_api_needs("tuttiEventElapsedTime", ms != NULL && a != NULL && b != NULL));
  if (((a->flags | b->flags) & TUTTI_EVENT_DISABLE_TIMING) != 0) {
    return tt_fail(ncclInvalidUsage, "tuttiEventElapsedTime: an event was made without a time stamp");
  }
  if (tt_event_captured(a) || tt_event_captured(b)) {
    return tt_capture_refuse_event("tuttiEventElapsedTime");
  }
  if (!tt_event_recorded(a) || !tt_event_recorded(b)) {
    return tt_fail(ncclInvalidUsage, "tuttiEventElapsedTime: an event was never recorded");
  }
  ncclResult_t res = poll_event(a);
  res = res == ncclSuccess ? poll_event(b) : res;
  if (res != ncclSuccess) {
    return res;
  }
  *ms = (float)((double)(int64_t)(tt_event_time(b) - tt_event_time(a)) / 1e6);
  return ncclSuccess;
}
