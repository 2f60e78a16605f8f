// stream.c: streams, and calls of the host in them.
#include <stdlib.h>

#include "hostcuda.h"

// A handle of a stream that is none: CUDA's error for it.
static cudaError_t result(ncclResult_t r)
{
  return hc_result(r, cudaErrorInvalidResourceHandle);
}

HC_API cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
  HC_ENTER();
  HC_REFUSE(flags > cudaStreamNonBlocking, cudaErrorInvalidValue);
  return hc_result(tuttiStreamCreate(stream, flags), cudaErrorInvalidValue);
}

HC_API cudaStreamCreate(cudaStream_t *stream)
{
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

HC_API cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
  (void)priority; // there is one; CUDA clamps too
  return cudaStreamCreateWithFlags(stream, flags);
}

HC_API cudaStreamDestroy(cudaStream_t stream)
{
  HC_ENTER();
  return result(tuttiStreamDestroy(stream));
}

HC_API cudaStreamSynchronize(cudaStream_t stream)
{
  HC_ENTER();
  return result(tuttiStreamSynchronize(stream));
}
HC_TWIN(cudaStreamSynchronize, _ptsz, (cudaStream_t stream), (hc_own(stream)))

HC_API cudaStreamQuery(cudaStream_t stream)
{
  HC_ENTER();
  return result(tuttiStreamQuery(stream));
}
HC_TWIN(cudaStreamQuery, _ptsz, (cudaStream_t stream), (hc_own(stream)))

HC_API cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
  HC_ENTER();
  HC_REFUSE(event == NULL, cudaErrorInvalidResourceHandle);
  HC_REFUSE(flags > cudaEventWaitExternal, cudaErrorInvalidValue);
  return result(tuttiStreamWaitEvent(stream, (tuttiEvent_t)event));
}
HC_TWIN(cudaStreamWaitEvent, _ptsz, (cudaStream_t stream, cudaEvent_t event, unsigned int flags), (hc_own(stream), event, flags))

HC_API cudaStreamGetFlags(cudaStream_t stream, unsigned int *flags)
{
  HC_ENTER();
  HC_REFUSE(flags == NULL, cudaErrorInvalidValue);
  return result(tuttiStreamGetInfo(stream, NULL, flags, NULL));
}
HC_TWIN(cudaStreamGetFlags, _ptsz, (cudaStream_t stream, unsigned int *flags), (hc_own(stream), flags))

HC_API cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
  HC_ENTER();
  HC_REFUSE(priority == NULL, cudaErrorInvalidValue);
  cudaError_t e = result(tuttiStreamGetInfo(stream, NULL, NULL, NULL));
  if (e == cudaSuccess) {
    *priority = 0;
  }
  return e;
}
HC_TWIN(cudaStreamGetPriority, _ptsz, (cudaStream_t stream, int *priority), (hc_own(stream), priority))

HC_API cudaStreamGetDevice(cudaStream_t stream, int *device)
{
  HC_ENTER();
  HC_REFUSE(device == NULL, cudaErrorInvalidValue);
  return result(tuttiStreamGetInfo(stream, device, NULL, NULL));
}
HC_TWIN(cudaStreamGetDevice, _ptsz, (cudaStream_t stream, int *device), (hc_own(stream), device))

HC_API cudaStreamGetId(cudaStream_t stream, unsigned long long *id)
{
  HC_ENTER();
  HC_REFUSE(id == NULL, cudaErrorInvalidValue);
  return result(tuttiStreamGetInfo(stream, NULL, NULL, id));
}
HC_TWIN(cudaStreamGetId, _ptsz, (cudaStream_t stream, unsigned long long *id), (hc_own(stream), id))

// What a stream is to call: fn, or callback. Freed by the call.
typedef struct call {
  cudaHostFn_t fn;
  cudaStreamCallback_t callback;
  cudaStream_t stream;
  void *data;
} call;

static void run(void *arg)
{
  call c = *(call *)arg;
  free(arg);
  hc_inside(true);
  if (c.fn != NULL) {
    c.fn(c.data);
  } else {
    c.callback(c.stream, cudaSuccess, c.data);
  }
  hc_inside(false);
}

static cudaError_t queue(const call *c)
{
  HC_ENTER();
  call *mine = malloc(sizeof *mine);
  HC_REFUSE(mine == NULL, cudaErrorMemoryAllocation);
  *mine = *c;
  ncclResult_t r = tuttiLaunchHostFunc(c->stream, run, mine);
  if (r != ncclSuccess) {
    free(mine);
  }
  return result(r);
}

HC_API cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *userData)
{
  HC_REFUSE(fn == NULL, cudaErrorInvalidValue);
  return queue(&(call){.fn = fn, .stream = stream, .data = userData});
}
HC_TWIN(cudaLaunchHostFunc, _ptsz, (cudaStream_t stream, cudaHostFn_t fn, void *userData), (hc_own(stream), fn, userData))

HC_API cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void *userData, unsigned int flags)
{
  HC_REFUSE(callback == NULL || flags != 0, cudaErrorInvalidValue);
  return queue(&(call){.callback = callback, .stream = stream, .data = userData});
}
HC_TWIN(cudaStreamAddCallback, _ptsz, (cudaStream_t stream, cudaStreamCallback_t callback, void *userData, unsigned int flags),
        (hc_own(stream), callback, userData, flags))

// ---- Capture: there is none ----

HC_API cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
  (void)stream, (void)mode;
  return hc_error(cudaErrorNotSupported);
}
HC_TWIN(cudaStreamBeginCapture, _ptsz, (cudaStream_t stream, enum cudaStreamCaptureMode mode), (stream, mode))

HC_API cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
  (void)stream;
  HC_REFUSE(graph == NULL, cudaErrorInvalidValue);
  *graph = NULL;
  return hc_error(cudaErrorIllegalState);
}
HC_TWIN(cudaStreamEndCapture, _ptsz, (cudaStream_t stream, cudaGraph_t *graph), (stream, graph))

HC_API cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
  HC_ENTER();
  HC_REFUSE(status == NULL, cudaErrorInvalidValue);
  cudaError_t e = result(tuttiStreamGetInfo(stream, NULL, NULL, NULL));
  if (e == cudaSuccess) {
    *status = cudaStreamCaptureStatusNone;
  }
  return e;
}
HC_TWIN(cudaStreamIsCapturing, _ptsz, (cudaStream_t stream, enum cudaStreamCaptureStatus *status), (hc_own(stream), status))

// All versions of the question have the stream and the answer first; of a stream that is not captured nothing else is answered.
#define CAPTURE_INFO(name)                                                \
  HC_API name(cudaStream_t stream, enum cudaStreamCaptureStatus *status); \
  HC_API name(cudaStream_t stream, enum cudaStreamCaptureStatus *status)  \
  {                                                                       \
    return cudaStreamIsCapturing(stream, status);                         \
  }                                                                       \
  HC_TWIN(name, _ptsz, (cudaStream_t stream, enum cudaStreamCaptureStatus * status), (hc_own(stream), status))
CAPTURE_INFO(cudaStreamGetCaptureInfo)
CAPTURE_INFO(cudaStreamGetCaptureInfo_v2)
CAPTURE_INFO(cudaStreamGetCaptureInfo_v3)

HC_API cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
  static _Thread_local enum cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
  HC_REFUSE(mode == NULL || (int)*mode < 0 || *mode > cudaStreamCaptureModeRelaxed, cudaErrorInvalidValue);
  enum cudaStreamCaptureMode before = current;
  current = *mode;
  *mode = before;
  return cudaSuccess;
}
