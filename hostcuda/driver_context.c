// driver_context.c: the driver's contexts and what is set for them.
//
// A context is its device's number and one, and every thread always has one: its device's. Creating one therefore
// pushes the device's, and destroying it gives nothing back.
#include "driver_priv.h"

enum { FLAGS_MASK = 0xff }; // CU_CTX_FLAGS_MASK

CU_API(cuCtxGetDevice, (CUdevice * device))
{
  CU_RETURN(cudaGetDevice(device));
}

CU_API(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))
{
  if (context == NULL) {
    return INVALID_VALUE;
  }
  if (!hc_is_device(device)) {
    return INVALID_DEVICE;
  }
  *context = context_of(device);
  return SUCCESS;
}

CU_API(cuDevicePrimaryCtxRelease_v2, (CUdevice device))
{
  return hc_is_device(device) ? SUCCESS : INVALID_DEVICE;
}

CU_API(cuCtxGetCurrent, (CUcontext * context))
{
  CUdevice device = 0;
  CUresult e = cuCtxGetDevice(&device);
  return e != SUCCESS ? e : cuDevicePrimaryCtxRetain(context, device);
}

// NULL, no context, leaves the thread the one that it has.
CU_API(cuCtxSetCurrent, (CUcontext context))
{
  if (context == NULL) {
    return SUCCESS;
  }
  if (device_of(context) < 0) {
    return INVALID_CONTEXT;
  }
  CU_RETURN(cudaSetDevice(device_of(context)));
}

// The contexts beneath the thread's current one. A thread always has a context, so a pop with nothing beneath leaves it
// the one that it has.
enum { PUSHED_MOST = 64 };
static _Thread_local struct {
  int depth;
  CUcontext beneath[PUSHED_MOST];
} pushed;

CU_API(cuCtxPushCurrent_v2, (CUcontext context))
{
  CUcontext before = NULL;
  if (context == NULL || device_of(context) < 0) {
    return INVALID_CONTEXT;
  }
  if (pushed.depth == PUSHED_MOST) {
    return OUT_OF_MEMORY;
  }
  CUresult e = cuCtxGetCurrent(&before);
  e = e == SUCCESS ? cuCtxSetCurrent(context) : e;
  if (e != SUCCESS) {
    return e;
  }
  pushed.beneath[pushed.depth++] = before;
  return SUCCESS;
}

CU_API(cuCtxPopCurrent_v2, (CUcontext * context))
{
  CUcontext now = NULL;
  CUresult e = cuCtxGetCurrent(&now);
  if (e == SUCCESS && pushed.depth > 0) {
    e = cuCtxSetCurrent(pushed.beneath[pushed.depth - 1]);
    pushed.depth -= e == SUCCESS;
  }
  if (e == SUCCESS && context != NULL) {
    *context = now;
  }
  return e;
}

// NULL: the thread's. A context's number is its handle.
CU_API(cuCtxGetId, (CUcontext context, unsigned long long *id))
{
  if (id == NULL) {
    return INVALID_VALUE;
  }
  CUresult e = context == NULL ? cuCtxGetCurrent(&context) : device_of(context) < 0 ? INVALID_CONTEXT : SUCCESS;
  if (e == SUCCESS) {
    *id = (uintptr_t)context;
  }
  return e;
}

// Makes a call of the runtime with this device as the thread's.
static CUresult on_device(CUdevice device, cudaError_t (*call)(void *arg), void *arg)
{
  CUdevice before = 0;
  CUresult e = hc_is_device(device) ? cuCtxGetDevice(&before) : INVALID_DEVICE;
  if (e != SUCCESS) {
    return e;
  }
  cudaError_t last = cudaPeekAtLastError();
  e = (CUresult)cudaSetDevice(device);
  e = e == SUCCESS ? (CUresult)call(arg) : e;
  cudaSetDevice(before);
  hc_restore(last);
  return e;
}

static cudaError_t reset_device(void *arg)
{
  (void)arg;
  return cudaDeviceReset();
}

static cudaError_t set_flags(void *flags)
{
  return cudaSetDeviceFlags(*(unsigned *)flags);
}

static cudaError_t get_flags(void *flags)
{
  return cudaGetDeviceFlags(flags);
}

static cudaError_t synchronize(void *arg)
{
  (void)arg;
  return cudaDeviceSynchronize();
}

// Gives up the device's work, and makes the device again what it was at first.
CU_API(cuDevicePrimaryCtxReset_v2, (CUdevice device))
{
  return on_device(device, reset_device, NULL);
}

CU_API(cuDevicePrimaryCtxSetFlags_v2, (CUdevice device, unsigned flags))
{
  return on_device(device, set_flags, &flags);
}

// It always is active.
CU_API(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned *flags, int *active))
{
  if (flags == NULL || active == NULL) {
    return INVALID_VALUE;
  }
  CUresult e = on_device(device, get_flags, flags);
  if (e == SUCCESS) {
    *active = 1;
  }
  return e;
}

CU_API(cuCtxSynchronize, (void))
{
  CU_RETURN(cudaDeviceSynchronize());
}

// From version 13000 on these two take a context; NULL: the thread's.

CU_API(cuCtxGetDevice_v2, (CUdevice * device, CUcontext context))
{
  if (device == NULL) {
    return INVALID_VALUE;
  }
  if (context == NULL) {
    return cuCtxGetDevice(device);
  }
  if (device_of(context) < 0) {
    return INVALID_CONTEXT;
  }
  *device = device_of(context);
  return SUCCESS;
}

CU_API(cuCtxSynchronize_v2, (CUcontext context))
{
  if (context == NULL) {
    return cuCtxSynchronize();
  }
  return device_of(context) < 0 ? INVALID_CONTEXT : on_device(device_of(context), synchronize, NULL);
}

// ---- Creating and destroying ----

CU_API(cuCtxCreate_v2, (CUcontext * context, unsigned flags, CUdevice device))
{
  if (context == NULL || (flags & ~(unsigned)FLAGS_MASK) != 0) {
    return INVALID_VALUE;
  }
  if (!hc_is_device(device)) {
    return INVALID_DEVICE;
  }
  CUresult e = cuCtxPushCurrent_v2(context_of(device));
  if (e == SUCCESS) {
    *context = context_of(device);
  }
  return e;
}
CU_API(cuCtxCreate, (CUcontext * context, unsigned flags, CUdevice device))
{
  return cuCtxCreate_v2(context, flags, device);
}

// With a wanted number of multiprocessors, which there are not.
CU_API(cuCtxCreate_v3, (CUcontext * context, const void *affinities, int count, unsigned flags, CUdevice device))
{
  if (count < 0 || (count > 0 && affinities == NULL)) {
    return INVALID_VALUE;
  }
  return count > 0 ? UNSUPPORTED_EXEC_AFFINITY : cuCtxCreate_v2(context, flags, device);
}

typedef struct create_params { // CUctxCreateParams
  const void *affinities;
  int count;
  const void *graphics;
} create_params;

CU_API(cuCtxCreate_v4, (CUcontext * context, const create_params *params, unsigned flags, CUdevice device))
{
  if (params == NULL) {
    return cuCtxCreate_v2(context, flags, device);
  }
  return params->graphics != NULL ? NOT_SUPPORTED
                                  : cuCtxCreate_v3(context, params->affinities, params->count, flags, device);
}

// The thread's own is popped.
CU_API(cuCtxDestroy_v2, (CUcontext context))
{
  CUcontext now = NULL;
  if (context == NULL || device_of(context) < 0) {
    return INVALID_CONTEXT;
  }
  CUresult e = cuCtxGetCurrent(&now);
  return e == SUCCESS && now == context ? cuCtxPopCurrent_v2(NULL) : e;
}
CU_API(cuCtxDestroy, (CUcontext context))
{
  return cuCtxDestroy_v2(context);
}

// ---- Settings ----

CU_IS(cuCtxGetFlags, (unsigned *flags), cudaGetDeviceFlags(flags))
CU_IS(cuCtxSetFlags, (unsigned flags), cudaSetDeviceFlags(flags))
CU_IS(cuCtxGetLimit, (size_t * value, int limit), cudaDeviceGetLimit(value, (enum cudaLimit)limit))
CU_IS(cuCtxSetLimit, (int limit, size_t value), cudaDeviceSetLimit((enum cudaLimit)limit, value))
CU_IS(cuCtxGetCacheConfig, (int *config), cudaDeviceGetCacheConfig((enum cudaFuncCache *)config))
CU_IS(cuCtxSetCacheConfig, (int config), cudaDeviceSetCacheConfig((enum cudaFuncCache)config))
CU_IS(cuCtxGetSharedMemConfig, (int *config), cudaDeviceGetSharedMemConfig((enum cudaSharedMemConfig *)config))
CU_IS(cuCtxSetSharedMemConfig, (int config), cudaDeviceSetSharedMemConfig((enum cudaSharedMemConfig)config))
CU_IS(cuCtxGetStreamPriorityRange, (int *least, int *greatest), cudaDeviceGetStreamPriorityRange(least, greatest))

// NULL: the thread's.
CU_API(cuCtxGetApiVersion, (CUcontext context, unsigned *version))
{
  if (version == NULL) {
    return INVALID_VALUE;
  }
  if (context != NULL && device_of(context) < 0) {
    return INVALID_CONTEXT;
  }
  *version = 3020;
  return SUCCESS;
}

CU_API(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags))
{
  if (peer == NULL || device_of(peer) < 0) {
    return INVALID_CONTEXT;
  }
  CU_RETURN(cudaDeviceEnablePeerAccess(device_of(peer), flags));
}

CU_API(cuCtxDisablePeerAccess, (CUcontext peer))
{
  if (peer == NULL || device_of(peer) < 0) {
    return INVALID_CONTEXT;
  }
  CU_RETURN(cudaDeviceDisablePeerAccess(device_of(peer)));
}
