// ipc.c: memory and events of other processes.
#include <string.h>

#include "hostcuda.h"

_Static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(tuttiIpcMemHandle_t), "the same bytes");
_Static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(tuttiIpcEventHandle_t), "the same bytes");

// What opening a handle gave: this process's own, gone or no handle, no way to it.
static cudaError_t opened(ncclResult_t r)
{
  return r == ncclInvalidUsage  ? hc_error(cudaErrorDeviceUninitialized)
         : r == ncclSystemError ? hc_error(cudaErrorMapBufferObjectFailed)
                                : hc_result(r, cudaErrorInvalidResourceHandle);
}

HC_API cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *ptr)
{
  HC_ENTER();
  return hc_result(tuttiIpcGetMemHandle((tuttiIpcMemHandle_t *)handle, ptr), cudaErrorInvalidValue);
}

HC_API cudaIpcOpenMemHandle(void **ptr, cudaIpcMemHandle_t handle, unsigned int flags)
{
  tuttiIpcMemHandle_t h;
  HC_ENTER();
  HC_REFUSE(ptr == NULL || flags != cudaIpcMemLazyEnablePeerAccess, cudaErrorInvalidValue);
  memcpy(&h, &handle, sizeof h);
  return opened(tuttiIpcOpenMemHandle(ptr, &h));
}

HC_API cudaIpcCloseMemHandle(void *ptr)
{
  HC_ENTER();
  tuttiPointerAttributes_t a = hc_look_up(ptr);
  HC_REFUSE(a.base != ptr || ptr == NULL, cudaErrorInvalidValue);
  tuttiDeviceWait(a.device);
  return hc_result(tuttiIpcCloseMemHandle(ptr), cudaErrorInvalidValue);
}

HC_API cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event)
{
  HC_ENTER();
  HC_REFUSE(handle == NULL, cudaErrorInvalidValue);
  return hc_result(tuttiIpcGetEventHandle((tuttiIpcEventHandle_t *)handle, (tuttiEvent_t)event),
                   cudaErrorInvalidResourceHandle);
}

HC_API cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
  tuttiIpcEventHandle_t h;
  HC_ENTER();
  HC_REFUSE(event == NULL, cudaErrorInvalidValue);
  memcpy(&h, &handle, sizeof h);
  return opened(tuttiIpcOpenEventHandle((tuttiEvent_t *)event, &h));
}
