// memory.c: allocating, registering and asking about memory.
#include <stdint.h>
#include <string.h>

#include "hostcuda.h"

tuttiPointerAttributes_t hc_look_up(const void *ptr)
{
  tuttiPointerAttributes_t a = {.device = -1};
  tuttiPointerGetAttributes(&a, ptr);
  return a;
}

static cudaError_t allocate(void **ptr, size_t size, tuttiMemory_t kind, unsigned int flags)
{
  HC_ENTER_UNSAFE();
  HC_REFUSE(ptr == NULL, cudaErrorInvalidValue);
  if (size == 0) {
    *ptr = NULL;
    return cudaSuccess;
  }
  return hc_result(tuttiMallocKind(ptr, size, kind, flags), cudaErrorInvalidValue);
}

HC_API cudaMalloc(void **ptr, size_t size)
{
  return allocate(ptr, size, tuttiMemoryDevice, 0);
}

HC_API cudaMallocHost(void **ptr, size_t size)
{
  return allocate(ptr, size, tuttiMemoryHost, 0);
}

HC_API cudaHostAlloc(void **ptr, size_t size, unsigned int flags)
{
  HC_REFUSE((flags & ~(unsigned)(cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined)) != 0,
            cudaErrorInvalidValue);
  return allocate(ptr, size, tuttiMemoryHost, flags);
}

HC_API cudaMallocManaged(void **ptr, size_t size, unsigned int flags)
{
  HC_REFUSE(flags != cudaMemAttachGlobal && flags != cudaMemAttachHost, cudaErrorInvalidValue);
  HC_REFUSE(size == 0, cudaErrorInvalidValue);
  return allocate(ptr, size, tuttiMemoryManaged, flags);
}

HC_API cudaMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height)
{
  size_t row = (width + 511) / 512 * 512, size;
  HC_REFUSE(pitch == NULL || row < width || __builtin_mul_overflow(row, height, &size), cudaErrorInvalidValue);
  cudaError_t e = allocate(ptr, size, tuttiMemoryDevice, 0);
  if (e == cudaSuccess) {
    *pitch = row;
  }
  return e;
}

// As CUDA does: not while work of the device may use it.
static cudaError_t release(void *ptr, bool host)
{
  HC_ENTER_UNSAFE();
  if (ptr == NULL) {
    return cudaSuccess;
  }
  tuttiPointerAttributes_t a = hc_look_up(ptr);
  HC_REFUSE(a.base != ptr || (a.kind == tuttiMemoryHost) != host, cudaErrorInvalidValue);
  tuttiDeviceWait(a.device);
  return hc_result(tuttiFree(ptr), cudaErrorInvalidValue);
}

HC_API cudaFree(void *ptr)
{
  return release(ptr, false);
}

HC_API cudaFreeHost(void *ptr)
{
  return release(ptr, true);
}

static cudaError_t check_stream(cudaStream_t stream)
{
  return hc_result(tuttiStreamGetInfo(stream, NULL, NULL, NULL), cudaErrorInvalidResourceHandle);
}

HC_API cudaMallocAsync(void **ptr, size_t size, cudaStream_t stream)
{
  cudaError_t e = check_stream(stream);
  HC_REFUSE(e == cudaSuccess && hc_captured(stream), cudaErrorStreamCaptureUnsupported); // memory of graphs
  return e != cudaSuccess ? e : allocate(ptr, size, tuttiMemoryDevice, 0);
}
HC_TWIN(cudaMallocAsync, _ptsz, (void **ptr, size_t size, cudaStream_t stream), (ptr, size, hc_own(stream)))

// The pool of a device is its number and one: there is nothing in it.
static bool is_pool(cudaMemPool_t pool)
{
  return (uintptr_t)pool <= 1 << 20 && hc_is_device((int)(intptr_t)pool - 1);
}

HC_API cudaMallocFromPoolAsync(void **ptr, size_t size, cudaMemPool_t pool, cudaStream_t stream);
HC_API cudaMallocFromPoolAsync(void **ptr, size_t size, cudaMemPool_t pool, cudaStream_t stream)
{
  HC_REFUSE(!is_pool(pool), cudaErrorInvalidValue);
  return cudaMallocAsync(ptr, size, stream);
}
HC_TWIN(cudaMallocFromPoolAsync, _ptsz, (void **ptr, size_t size, cudaMemPool_t pool, cudaStream_t stream),
        (ptr, size, pool, hc_own(stream)))

HC_API cudaFreeAsync(void *ptr, cudaStream_t stream)
{
  HC_ENTER();
  if (ptr == NULL) {
    return cudaSuccess;
  }
  cudaError_t e = check_stream(stream);
  return e != cudaSuccess ? e : hc_result(tuttiFreeAsync(ptr, stream), cudaErrorInvalidValue);
}
HC_TWIN(cudaFreeAsync, _ptsz, (void *ptr, cudaStream_t stream), (ptr, hc_own(stream)))

HC_API cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
  HC_ENTER();
  HC_REFUSE(pool == NULL, cudaErrorInvalidValue);
  HC_REFUSE(!hc_is_device(device), cudaErrorInvalidDevice);
  *pool = (cudaMemPool_t)(intptr_t)(device + 1);
  return cudaSuccess;
}

HC_API cudaDeviceGetMemPool(cudaMemPool_t *pool, int device)
{
  return cudaDeviceGetDefaultMemPool(pool, device);
}

HC_API cudaDeviceSetMemPool(int device, cudaMemPool_t pool)
{
  HC_ENTER();
  HC_REFUSE(!hc_is_device(device), cudaErrorInvalidDevice);
  HC_REFUSE((intptr_t)pool != device + 1, cudaErrorInvalidValue);
  return cudaSuccess;
}

HC_API cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr, void *value)
{
  HC_ENTER();
  HC_REFUSE(!is_pool(pool) || (int)attr < 1 || attr > cudaMemPoolAttrUsedMemHigh || value == NULL,
            cudaErrorInvalidValue);
  return cudaSuccess;
}

HC_API cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr, void *value)
{
  HC_ENTER();
  HC_REFUSE(!is_pool(pool) || (int)attr < 1 || attr > cudaMemPoolAttrUsedMemHigh || value == NULL,
            cudaErrorInvalidValue);
  memset(value, 0, attr <= cudaMemPoolReuseAllowInternalDependencies ? sizeof(int) : sizeof(uint64_t));
  return cudaSuccess;
}

HC_API cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep)
{
  HC_ENTER();
  (void)keep;
  HC_REFUSE(!is_pool(pool), cudaErrorInvalidValue);
  return cudaSuccess;
}

HC_API cudaHostRegister(void *ptr, size_t size, unsigned int flags)
{
  HC_ENTER();
  HC_REFUSE(ptr == NULL || size == 0 || size > UINTPTR_MAX - (uintptr_t)ptr || flags > 0xf, cudaErrorInvalidValue);
  return hc_result(tuttiHostRegister(ptr, size, flags), cudaErrorHostMemoryAlreadyRegistered);
}

HC_API cudaHostUnregister(void *ptr)
{
  HC_ENTER();
  HC_REFUSE(ptr == NULL, cudaErrorInvalidValue);
  return hc_result(tuttiHostUnregister(ptr), cudaErrorHostMemoryNotRegistered);
}

HC_API cudaHostGetDevicePointer(void **device, void *host, unsigned int flags)
{
  HC_ENTER();
  HC_REFUSE(device == NULL || host == NULL || flags != 0, cudaErrorInvalidValue);
  tuttiMemory_t kind = hc_look_up(host).kind;
  HC_REFUSE(kind != tuttiMemoryHost && kind != tuttiMemoryManaged, cudaErrorInvalidValue);
  *device = host;
  return cudaSuccess;
}

HC_API cudaHostGetFlags(unsigned int *flags, void *host)
{
  HC_ENTER();
  tuttiPointerAttributes_t a = hc_look_up(host);
  HC_REFUSE(flags == NULL || a.kind != tuttiMemoryHost, cudaErrorInvalidValue);
  *flags = a.flags | cudaHostAllocMapped;
  return cudaSuccess;
}

HC_API cudaMemGetInfo(size_t *available, size_t *total)
{
  HC_ENTER();
  return hc_result(tuttiMemGetInfo(available, total), cudaErrorInvalidValue);
}
