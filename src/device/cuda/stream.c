// stream.c: see stream.h.
#include "device/cuda/stream.h"

#include <pthread.h>
#include <stdatomic.h>

#include "os/proc.h"

struct tt_gpu_stream {
  tt_gpu_stream *next;
  CUstream handle; // CU_STREAM_LEGACY, never 0
  int device;
  uint32_t epoch;        // it is never used after it
  uint64_t thread;       // whose default stream it is; 0: anybody's
  CUevent mark;          // behind the last work
  _Atomic bool marked;   // there was any
  _Atomic bool captured; // it was, when it was asked for last
};

static struct {
  pthread_mutex_t lock;
  tt_gpu_stream *first;
} streams = {.lock = PTHREAD_MUTEX_INITIALIZER};

// A number of the calling thread's that no other thread has had.
static uint64_t stream_thread(void)
{
  static _Atomic uint64_t last;
  static __thread uint64_t number;
  if (number == 0) {
    number = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
  }
  return number;
}

static CUstream gpu_stream_of(cudaStream_t handle)
{
  return handle == NULL ? CU_STREAM_LEGACY : (CUstream)handle;
}

static bool stream_is_default(CUstream handle)
{
  return handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
}

// Is it a stream of the device's context? That context is current.
static ncclResult_t stream_check(CUstream handle, int device, const char *what)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  CUcontext its = NULL, own = NULL;
  if (stream_is_default(handle)) {
    return ncclSuccess;
  }
  TT_TRY(tt_gpu_context(device, &own));
  if (cu->StreamGetCtx(handle, &its) != CUDA_SUCCESS) {
    return tt_fail(ncclInvalidArgument, "%s: %p is no stream", what, (void *)handle);
  }
  if (its != own) {
    return tt_fail(ncclInvalidArgument, "%s: stream %p is not one of GPU %d, the communicator's", what, (void *)handle,
                   device);
  }
  return ncclSuccess;
}

// NULL: it is not known yet. The lock is held.
static tt_gpu_stream *stream_look(CUstream handle, int device, uint64_t thread)
{
  tt_gpu_stream *s = streams.first;
  while (s != NULL &&
         (s->handle != handle || s->device != device || s->thread != thread || s->epoch != tt_gpu_epoch(device))) {
    s = s->next;
  }
  return s;
}

// The lock is held, and the device's context is current.
static ncclResult_t stream_make(CUstream handle, int device, uint64_t thread, tt_gpu_stream **out)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  tt_gpu_stream *s;
  TT_TRY(TT_NEW(s, 1, "GPU %d: no memory for a stream", device));
  *s = (tt_gpu_stream){
      .next = streams.first, .handle = handle, .device = device, .epoch = tt_gpu_epoch(device), .thread = thread};
  CUresult error = cu->EventCreate(&s->mark, CU_EVENT_DISABLE_TIMING);
  if (error != CUDA_SUCCESS) {
    tt_free(s);
  }
  TT_CUDA(cu, error, "GPU %d: cannot create an event", device);
  streams.first = s;
  *out = s;
  return ncclSuccess;
}

static ncclResult_t stream_find(CUstream handle, int device, const char *what, tt_gpu_stream **out)
{
  const uint64_t thread = handle == CU_STREAM_PER_THREAD ? stream_thread() : 0;
  ncclResult_t res = ncclSuccess;
  TT_TRY(stream_check(handle, device, what));
  pthread_mutex_lock(&streams.lock);
  tt_gpu_stream *s = stream_look(handle, device, thread);
  res = s != NULL ? ncclSuccess : stream_make(handle, device, thread, &s);
  pthread_mutex_unlock(&streams.lock);
  if (res == ncclSuccess) {
    *out = s;
  }
  return res;
}

// Errors that captures give are the program's.
static ncclResult_t stream_capture_result(CUresult error, int device, CUstream handle)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  if (error >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && error <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD) {
    return tt_fail(ncclInvalidUsage, "GPU %d, stream %p: %s", device, (void *)handle, tt_cuda_text(cu, error));
  }
  TT_CUDA(cu, error, "GPU %d: stream %p", device, (void *)handle);
  return ncclSuccess;
}

// The device's context is current.
static ncclResult_t stream_capture_state(CUstream stream, int device, bool *captured)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  TT_TRY(stream_capture_result(cu->StreamIsCapturing(stream, &status), device, stream));
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
    return tt_fail(ncclInvalidUsage, "GPU %d, stream %p: an earlier call has made its capture invalid", device,
                   (void *)stream);
  }
  *captured = status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return ncclSuccess;
}

ncclResult_t tt_gpu_stream_get(cudaStream_t handle, int device, const char *what, tt_gpu_stream **out)
{
  tt_gpu_stream *s = NULL;
  bool captured = false;
  TT_TRY(tt_gpu_enter(device));
  ncclResult_t res = stream_find(gpu_stream_of(handle), device, what, &s);
  res = res == ncclSuccess ? stream_capture_state(s->handle, device, &captured) : res;
  tt_gpu_leave();
  if (res == ncclSuccess) {
    s->captured = captured;
    *out = s;
  }
  return res;
}

CUstream tt_gpu_stream_handle(const tt_gpu_stream *s)
{
  return s->handle;
}

ncclResult_t tt_gpu_stream_mark(tt_gpu_stream *s)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  TT_CUDA(cu, cu->EventRecord(s->mark, s->handle), "GPU %d: cannot record an event on stream %p", s->device,
          (void *)s->handle);
  s->marked = true;
  return ncclSuccess;
}

ncclResult_t tt_gpu_stream_order(tt_gpu_stream *earlier, tt_gpu_stream *later)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  if (earlier == later || !earlier->marked) {
    return ncclSuccess;
  }
  TT_TRY(tt_gpu_reenter(later->device, later->epoch));
  CUresult error = cu->StreamWaitEvent(later->handle, earlier->mark, 0);
  tt_gpu_leave();
  TT_CUDA(cu, error, "GPU %d: stream %p cannot wait for an event of stream %p", later->device, (void *)later->handle,
          (void *)earlier->handle);
  return ncclSuccess;
}

ncclResult_t tt_gpu_stream_query(tt_gpu_stream *s, bool *idle)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  TT_TRY(tt_gpu_reenter(s->device, s->epoch));
  const CUresult error = cu->EventQuery(s->mark); // one that was never recorded counts as past
  tt_gpu_leave();
  if (error != CUDA_SUCCESS && error != CUDA_ERROR_NOT_READY) {
    TT_CUDA(cu, error, "GPU %d: work on stream %p has failed", s->device, (void *)s->handle);
  }
  *idle = error == CUDA_SUCCESS;
  return ncclSuccess;
}

ncclResult_t tt_gpu_stream_captured(cudaStream_t handle, int device, bool *captured)
{
  const CUstream stream = gpu_stream_of(handle);
  TT_TRY(tt_gpu_enter(device));
  ncclResult_t res = stream_check(stream, device, "capture");
  res = res == ncclSuccess ? stream_capture_state(stream, device, captured) : res;
  tt_gpu_leave();
  return res;
}

bool tt_gpu_stream_is_captured(const tt_gpu_stream *s)
{
  return s->captured;
}

ncclResult_t tt_gpu_stream_capture(const tt_gpu_stream *s, uint64_t *number)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  CUstreamCaptureStatus status;
  cuuint64_t id = 0;
  if (s->captured) {
    TT_TRY(tt_gpu_reenter(s->device, s->epoch));
    const CUresult error = cu->StreamGetCaptureInfo(s->handle, &status, &id, NULL, NULL, NULL, NULL);
    tt_gpu_leave();
    TT_TRY(stream_capture_result(error, s->device, s->handle));
  }
  *number = id;
  return ncclSuccess;
}

// An event of its own: the stream's mark is asked about later, which an event in a capture cannot be.
static ncclResult_t join_captured(const tt_gpu_stream *earlier, const tt_gpu_stream *later)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  CUevent event = NULL;
  TT_CUDA(cu, cu->EventCreate(&event, CU_EVENT_DISABLE_TIMING), "GPU %d: cannot create an event", later->device);
  CUresult error = cu->EventRecord(event, earlier->handle);
  error = error == CUDA_SUCCESS ? cu->StreamWaitEvent(later->handle, event, 0) : error;
  cu->EventDestroy(event);
  return stream_capture_result(error, later->device, later->handle);
}

ncclResult_t tt_gpu_stream_join(tt_gpu_stream *earlier, tt_gpu_stream *later)
{
  const bool captured = earlier->captured;
  TT_TRY(tt_gpu_reenter(earlier->device, earlier->epoch));
  ncclResult_t res = captured ? join_captured(earlier, later) : tt_gpu_stream_mark(earlier);
  tt_gpu_leave();
  return res == ncclSuccess && !captured ? tt_gpu_stream_order(earlier, later) : res;
}

ncclResult_t tt_gpu_record_event(cudaEvent_t event, cudaStream_t stream, int device)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  const CUstream handle = gpu_stream_of(stream);
  TT_TRY(tt_gpu_enter(device));
  ncclResult_t res = stream_check(handle, device, "launchCompletionEvent");
  CUresult error = res == ncclSuccess ? cu->EventRecord((CUevent)event, handle) : CUDA_SUCCESS;
  tt_gpu_leave();
  TT_TRY(res);
  return stream_capture_result(error, device, handle);
}

// A child of a fork cannot use its parent's GPUs, and another thread may have been here.
static void gpu_streams_in_child(void)
{
  streams.first = NULL;
  pthread_mutex_init(&streams.lock, NULL);
}

__attribute__((constructor)) static void gpu_streams_at_start(void)
{
  static tt_fork_hook hook = {.fn = gpu_streams_in_child};
  tt_proc_on_fork(&hook);
}
