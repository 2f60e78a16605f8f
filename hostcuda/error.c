// error.c: the last error, and what errors are called.
#include "hostcuda.h"

static _Thread_local cudaError_t last __attribute__((tls_model("initial-exec")));
static _Thread_local bool inside_function __attribute__((tls_model("initial-exec")));

cudaError_t hc_error(cudaError_t error)
{
  if (error != cudaSuccess) {
    last = error;
  }
  return error;
}

void hc_restore(cudaError_t error)
{
  last = error;
}

// The error of a rule of captures that was broken; else, work of NCCL in a stream has failed.
static cudaError_t usage(void)
{
  tuttiCaptureFault_t fault = tuttiTakeCaptureFault();
  switch (fault) {
  case tuttiCaptureFaultNone: return cudaErrorLaunchFailure;
  case tuttiCaptureFaultState: return cudaErrorIllegalState;
  default: return (cudaError_t)(cudaErrorStreamCaptureUnsupported + (fault - tuttiCaptureFaultUnsupported));
  }
}
_Static_assert(cudaErrorStreamCaptureWrongThread - cudaErrorStreamCaptureUnsupported ==
                   tuttiCaptureFaultThread - tuttiCaptureFaultUnsupported,
               "the rules are in the order of the errors");

cudaError_t hc_result(ncclResult_t result, cudaError_t invalid)
{
  switch (result) {
  case ncclSuccess: return cudaSuccess;
  case ncclInProgress: return hc_error(cudaErrorNotReady);
  case ncclInvalidArgument: return hc_error(invalid);
  case ncclSystemError: return hc_error(cudaErrorMemoryAllocation);
  case ncclInvalidUsage: return hc_error(usage());
  default: // work of NCCL in a stream has failed
    return hc_error(cudaErrorLaunchFailure);
  }
}

bool hc_forbidden(void)
{
  if (inside_function) {
    last = cudaErrorNotPermitted;
  }
  return inside_function;
}

void hc_inside(bool inside)
{
  inside_function = inside;
}

HC_API cudaGetLastError(void)
{
  cudaError_t e = last;
  last = cudaSuccess;
  return e;
}

HC_API cudaPeekAtLastError(void)
{
  return last;
}

__attribute__((visibility("default"))) const char *cudaGetErrorName(cudaError_t error)
{
  switch ((int)error) {
#define E(name, value, text) \
  case value:                \
    return #name;
#include "errors.def"
#undef E
  default: return "unrecognized error code";
  }
}

__attribute__((visibility("default"))) const char *cudaGetErrorString(cudaError_t error)
{
  const char *found = "unrecognized error code";
  switch ((int)error) {
#define E(name, value, text)                 \
  case value:                                \
    found = sizeof(text) > 1 ? text : #name; \
    break;
#include "errors.def"
#undef E
  default: break;
  }
  return found;
}
