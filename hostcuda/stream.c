// stream.c: streams, and calls of the host in them.
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
  HC_ENTER_UNSAFE();
  return result(tuttiStreamSynchronize(stream));
}
HC_TWIN(cudaStreamSynchronize, _ptsz, (cudaStream_t stream), (hc_own(stream)))

HC_API cudaStreamQuery(cudaStream_t stream)
{
  HC_ENTER_UNSAFE();
  return result(tuttiStreamQuery(stream));
}
HC_TWIN(cudaStreamQuery, _ptsz, (cudaStream_t stream), (hc_own(stream)))

HC_API cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
  HC_ENTER();
  HC_REFUSE(event == NULL, cudaErrorInvalidResourceHandle);
  HC_REFUSE(flags > cudaEventWaitExternal, cudaErrorInvalidValue);
  return result(tuttiStreamWaitEventWithFlags(stream, (tuttiEvent_t)event, flags));
}
HC_TWIN(cudaStreamWaitEvent, _ptsz, (cudaStream_t stream, cudaEvent_t event, unsigned int flags),
        (hc_own(stream), event, flags))

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

// What a stream is to call: fn, or callback.
typedef struct call {
  cudaHostFn_t fn;
  cudaStreamCallback_t callback;
  cudaStream_t stream;
  void *data;
} call;

static void run(void *arg)
{
  const call *c = arg;
  hc_inside(true);
  if (c->fn != NULL) {
    c->fn(c->data);
  } else {
    c->callback(c->stream, cudaSuccess, c->data);
  }
  hc_inside(false);
}

ncclResult_t hc_queue_function(cudaStream_t stream, cudaHostFn_t fn, void *data)
{
  call c = {.fn = fn, .data = data};
  return tuttiLaunchHostFuncStaged(stream, run, &c, sizeof c);
}

HC_API cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *userData)
{
  HC_ENTER();
  HC_REFUSE(fn == NULL, cudaErrorInvalidValue);
  return result(hc_queue_function(stream, fn, userData));
}
HC_TWIN(cudaLaunchHostFunc, _ptsz, (cudaStream_t stream, cudaHostFn_t fn, void *userData),
        (hc_own(stream), fn, userData))

HC_API cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void *userData, unsigned int flags)
{
  HC_ENTER();
  HC_REFUSE(callback == NULL || flags != 0, cudaErrorInvalidValue);
  HC_REFUSE(hc_captured(stream), cudaErrorStreamCaptureUnsupported);
  call c = {.callback = callback, .stream = stream, .data = userData};
  return result(tuttiLaunchHostFuncStaged(stream, run, &c, sizeof c));
}
HC_TWIN(cudaStreamAddCallback, _ptsz,
        (cudaStream_t stream, cudaStreamCallback_t callback, void *userData, unsigned int flags),
        (hc_own(stream), callback, userData, flags))
