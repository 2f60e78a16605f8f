// event.c: events.
#include "hostcuda.h"

HC_API cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
  HC_ENTER();
  HC_REFUSE((flags & ~(unsigned)(cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess)) != 0,
            cudaErrorInvalidValue);
  return hc_result(tuttiEventCreateWithFlags((tuttiEvent_t *)event, flags & ~(unsigned)cudaEventBlockingSync),
                   cudaErrorInvalidValue);
}

HC_API cudaEventCreate(cudaEvent_t *event)
{
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

HC_API cudaEventDestroy(cudaEvent_t event)
{
  HC_ENTER();
  HC_REFUSE(event == NULL, cudaErrorInvalidResourceHandle);
  return hc_result(tuttiEventDestroy((tuttiEvent_t)event), cudaErrorInvalidResourceHandle);
}

HC_API cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
  HC_ENTER();
  HC_REFUSE(event == NULL, cudaErrorInvalidResourceHandle);
  HC_REFUSE(flags > cudaEventRecordExternal, cudaErrorInvalidValue);
  return hc_result(tuttiEventRecordWithFlags((tuttiEvent_t)event, stream, flags), cudaErrorInvalidResourceHandle);
}
HC_TWIN(cudaEventRecordWithFlags, _ptsz, (cudaEvent_t event, cudaStream_t stream, unsigned int flags),
        (event, hc_own(stream), flags))

HC_API cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}
HC_TWIN(cudaEventRecord, _ptsz, (cudaEvent_t event, cudaStream_t stream), (event, hc_own(stream)))

HC_API cudaEventSynchronize(cudaEvent_t event)
{
  HC_ENTER_UNSAFE();
  return hc_result(tuttiEventSynchronize((tuttiEvent_t)event), cudaErrorInvalidResourceHandle);
}

HC_API cudaEventQuery(cudaEvent_t event)
{
  HC_ENTER_UNSAFE();
  return hc_result(tuttiEventQuery((tuttiEvent_t)event), cudaErrorInvalidResourceHandle);
}

HC_API cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
  HC_ENTER();
  HC_REFUSE(ms == NULL, cudaErrorInvalidValue);
  ncclResult_t r = tuttiEventElapsedTime(ms, (tuttiEvent_t)start, (tuttiEvent_t)end);
  if (r == ncclInvalidUsage && tuttiTakeCaptureFault() == tuttiCaptureFaultEvent) {
    return hc_error(cudaErrorCapturedEvent);
  }
  return hc_result(r == ncclInvalidUsage ? ncclInvalidArgument : r, cudaErrorInvalidResourceHandle);
}
HC_TWIN(cudaEventElapsedTime, _v2, (float *ms, cudaEvent_t start, cudaEvent_t end), (ms, start, end))
