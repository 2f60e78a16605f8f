// gpu.c: see gpu.h.
#include "device/cuda/gpu.h"

#include <pthread.h>
#include <string.h>

#include "base/log.h"
#include "os/proc.h"

static struct {
  pthread_mutex_t lock;
  CUcontext context[TT_GPUS];      // NULL: not retained yet
  unsigned long long id[TT_GPUS];  // the driver's number of it
  _Atomic uint32_t epoch[TT_GPUS]; // written under the lock
  bool joined[TT_GPUS][TT_GPUS];   // the first may use the memory of the second
} gpus = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Atomic int gpus_seen; // by this process, or the one that it was forked from

int tt_gpu_count(void)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  int count = 0;
  if (cu == NULL) {
    return tt_cuda_get_state() == TT_CUDA_FORKED ? gpus_seen : 0;
  }
  if (cu->DeviceGetCount(&count) != CUDA_SUCCESS) {
    return 0;
  }
  count = TT_MIN(count, TT_GPUS);
  gpus_seen = count;
  return count;
}

int tt_gpu_current(void)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  CUdevice device = 0;
  return cu != NULL && cu->CtxGetDevice(&device) == CUDA_SUCCESS ? (int)device : 0;
}

// Compute capability × 10; 0: the driver does not know it.
static int gpu_capability(const tt_cuda *cu, int device)
{
  int major = 0, minor = 0;
  CUresult error = cu->DeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, (CUdevice)device);
  if (error == CUDA_SUCCESS) {
    error = cu->DeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, (CUdevice)device);
  }
  return error == CUDA_SUCCESS ? major * 10 + minor : 0;
}

void tt_gpu_identify(int device, tt_device_id *out)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  CUuuid uuid;
  tt_device_id id = {.kind = "cuda"};
  *out = id;
  if (cu == NULL) {
    return;
  }
  if (cu->DeviceGetUuid(&uuid, (CUdevice)device) == CUDA_SUCCESS) {
    memcpy(id.uuid, uuid.bytes, sizeof id.uuid);
  }
  if (cu->DeviceGetPCIBusId(id.bus_id, sizeof id.bus_id, (CUdevice)device) != CUDA_SUCCESS) {
    memset(id.bus_id, 0, sizeof id.bus_id);
  }
  id.bus_id[sizeof id.bus_id - 1] = '\0';
  id.sm = gpu_capability(cu, device);
  *out = id;
}

bool tt_gpu_reaches(int device, int peer)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  int can = 0;
  return device == peer ||
         (cu != NULL && cu->DeviceCanAccessPeer(&can, (CUdevice)device, (CUdevice)peer) == CUDA_SUCCESS && can != 0);
}

static ncclResult_t gpu_enable(int device, int peer)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  CUcontext its = NULL;
  TT_TRY(tt_gpu_context(peer, &its));
  TT_TRY(tt_gpu_enter(device));
  const CUresult error = cu->CtxEnablePeerAccess(its, 0);
  tt_gpu_leave();
  if (error != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) { // by the program
    TT_CUDA(cu, error, "GPU %d cannot use the memory of GPU %d", device, peer);
  }
  return ncclSuccess;
}

bool tt_gpu_join(int device, int peer)
{
  if (device == peer) {
    return true;
  }
  pthread_mutex_lock(&gpus.lock);
  bool joined = gpus.joined[device][peer];
  pthread_mutex_unlock(&gpus.lock);
  if (!joined && tt_gpu_reaches(device, peer)) {
    joined = gpu_enable(device, peer) == ncclSuccess;
    if (!joined) {
      tt_info(TT_INIT | TT_P2P, "%s", tt_last_error());
    }
    pthread_mutex_lock(&gpus.lock);
    gpus.joined[device][peer] |= joined;
    pthread_mutex_unlock(&gpus.lock);
  }
  return joined;
}

static ncclResult_t gpu_retain(const tt_cuda *cu, int device)
{
  CUcontext context = NULL;
  TT_CUDA(cu, cu->DevicePrimaryCtxRetain(&context, (CUdevice)device), "GPU %d: cannot use its primary context", device);
  TT_CUDA(cu, cu->CtxGetId(context, &gpus.id[device]), "GPU %d: cannot ask for its context's number", device);
  gpus.context[device] = context;
  gpus.epoch[device]++;
  return ncclSuccess;
}

// The program may have reset the device. Then the context has another number, or none until somebody uses the device
// again; its handle may be the same. The lock is held.
static void gpu_look_for_reset(const tt_cuda *cu, int device)
{
  unsigned long long id = 0;
  const CUresult error = cu->CtxGetId(gpus.context[device], &id);
  const bool gone = error == CUDA_ERROR_CONTEXT_IS_DESTROYED || error == CUDA_ERROR_INVALID_CONTEXT;
  if (!gone && (error != CUDA_SUCCESS || id == gpus.id[device])) {
    return; // other errors are those of work that has failed
  }
  gpus.context[device] = NULL;
  for (int i = 0; i < TT_GPUS; i++) {
    gpus.joined[device][i] = gpus.joined[i][device] = false;
  }
  tt_info(TT_INIT, "the program has reset GPU %d: communicators that were on it cannot be used any more", device);
}

ncclResult_t tt_gpu_context(int device, CUcontext *out)
{
  const char *why = NULL;
  const tt_cuda *cu = tt_cuda_get(&why);
  const int count = tt_gpu_count();
  if (cu == NULL) {
    return tt_fail(ncclUnhandledCudaError, "%s", why);
  }
  if (device < 0 || device >= count) {
    return tt_fail(ncclInvalidArgument, "there is no GPU %d: the driver has %d", device, count);
  }
  pthread_mutex_lock(&gpus.lock);
  if (gpus.context[device] != NULL) {
    gpu_look_for_reset(cu, device);
  }
  ncclResult_t res = gpus.context[device] != NULL ? ncclSuccess : gpu_retain(cu, device);
  if (res == ncclSuccess) {
    *out = gpus.context[device];
  }
  pthread_mutex_unlock(&gpus.lock);
  return res;
}

// How often the thread has entered, and its mode of captures before.
static __thread struct {
  int depth;
  CUstreamCaptureMode mode;
} entered;

// A capture of mode global forbids calls such as cuMemAlloc in all threads: such a call fails, and ends the capture.
static CUresult relax_captures(const tt_cuda *cu)
{
  if (entered.depth > 0) {
    return CUDA_SUCCESS;
  }
  entered.mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  return cu->ThreadExchangeStreamCaptureMode(&entered.mode);
}

ncclResult_t tt_gpu_enter(int device)
{
  CUcontext context = NULL;
  TT_TRY(tt_gpu_context(device, &context));
  const tt_cuda *cu = tt_cuda_get(NULL);
  TT_CUDA(cu, cu->CtxPushCurrent(context), "GPU %d: cannot enter its context", device);
  CUresult error = relax_captures(cu);
  if (error != CUDA_SUCCESS) {
    cu->CtxPopCurrent(&context);
  }
  TT_CUDA(cu, error, "GPU %d: cannot set the thread's mode of captures", device);
  entered.depth++;
  return ncclSuccess;
}

uint32_t tt_gpu_epoch(int device)
{
  return gpus.epoch[device];
}

ncclResult_t tt_gpu_reenter(int device, uint32_t epoch)
{
  TT_TRY(tt_gpu_enter(device));
  if (tt_gpu_epoch(device) != epoch) {
    tt_gpu_leave();
    return tt_fail(
        ncclUnhandledCudaError,
        "the program has reset GPU %d (cudaDeviceReset, cuDevicePrimaryCtxReset): what was made there before "
        "has gone",
        device);
  }
  return ncclSuccess;
}

void tt_gpu_leave(void)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  CUcontext context = NULL;
  cu->CtxPopCurrent(&context);
  if (--entered.depth == 0) {
    cu->ThreadExchangeStreamCaptureMode(&entered.mode);
  }
}

// A child of a fork cannot use its parent's GPUs, and another thread may have been here.
static void gpus_in_child(void)
{
  memset(&gpus, 0, sizeof gpus);
  pthread_mutex_init(&gpus.lock, NULL);
}

__attribute__((constructor)) static void gpus_at_start(void)
{
  static tt_fork_hook hook = {.fn = gpus_in_child};
  tt_proc_on_fork(&hook);
}
