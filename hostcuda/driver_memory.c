// driver_memory.c: the driver's functions that allocate and share memory, beside those of driver.c.
#include "driver_priv.h"

// ---- Allocations ----

CU_IS(cuMemGetInfo_v2, (size_t * available, size_t *total), cudaMemGetInfo(available, total))
CU_IS(cuMemFreeHost, (void *ptr), cudaFreeHost(ptr))
CU_IS(cuMemHostAlloc, (void **out, size_t size, unsigned flags),
      size == 0 ? cudaErrorInvalidValue : cudaHostAlloc(out, size, flags))
CU_IS(cuMemAllocHost_v2, (void **out, size_t size), size == 0 ? cudaErrorInvalidValue : cudaMallocHost(out, size))
CU_IS(cuMemHostGetFlags, (unsigned *flags, void *ptr), cudaHostGetFlags(flags, ptr))
CU_STREAM(cuMemFreeAsync, (CUdeviceptr ptr, cudaStream_t stream),
          ptr == 0 ? cudaErrorInvalidValue : cudaFreeAsync(at(ptr), stream))

// A call of the runtime that gives a pointer, which a CUdeviceptr has room for.
_Static_assert(sizeof(CUdeviceptr) == sizeof(void *), "the same bits");

// A name of C++ in the header.
cudaError_t cudaMallocFromPoolAsync(void **ptr, size_t size, cudaMemPool_t pool, cudaStream_t stream);

CU_API(cuMemAllocPitch_v2, (CUdeviceptr * out, size_t *pitch, size_t width, size_t height, unsigned elementSize))
{
  if (out == NULL || width == 0 || height == 0 || (elementSize != 4 && elementSize != 8 && elementSize != 16)) {
    return INVALID_VALUE;
  }
  CU_RETURN(cudaMallocPitch((void **)out, pitch, width, height));
}

CU_IS(cuMemAllocManaged, (CUdeviceptr * out, size_t size, unsigned flags), cudaMallocManaged((void **)out, size, flags))
CU_STREAM(cuMemAllocAsync, (CUdeviceptr * out, size_t size, cudaStream_t stream),
          size == 0 ? cudaErrorInvalidValue : cudaMallocAsync((void **)out, size, stream))
CU_STREAM(cuMemAllocFromPoolAsync, (CUdeviceptr * out, size_t size, cudaMemPool_t pool, cudaStream_t stream),
          size == 0 ? cudaErrorInvalidValue : cudaMallocFromPoolAsync((void **)out, size, pool, stream))
CU_IS(cuDeviceGetDefaultMemPool, (cudaMemPool_t * pool, CUdevice device), cudaDeviceGetDefaultMemPool(pool, device))
CU_IS(cuDeviceGetMemPool, (cudaMemPool_t * pool, CUdevice device), cudaDeviceGetMemPool(pool, device))
CU_IS(cuDeviceSetMemPool, (CUdevice device, cudaMemPool_t pool), cudaDeviceSetMemPool(device, pool))
CU_IS(cuMemPoolSetAttribute, (cudaMemPool_t pool, int which, void *value),
      cudaMemPoolSetAttribute(pool, (enum cudaMemPoolAttr)which, value))
CU_IS(cuMemPoolGetAttribute, (cudaMemPool_t pool, int which, void *value),
      cudaMemPoolGetAttribute(pool, (enum cudaMemPoolAttr)which, value))
CU_IS(cuMemPoolTrimTo, (cudaMemPool_t pool, size_t keep), cudaMemPoolTrimTo(pool, keep))
CU_IS(cuIpcGetMemHandle, (cudaIpcMemHandle_t * handle, CUdeviceptr ptr), cudaIpcGetMemHandle(handle, at(ptr)))
CU_IS(cuIpcOpenMemHandle_v2, (CUdeviceptr * out, cudaIpcMemHandle_t handle, unsigned flags),
      cudaIpcOpenMemHandle((void **)out, handle, flags))
CU_IS(cuIpcCloseMemHandle, (CUdeviceptr ptr), cudaIpcCloseMemHandle(at(ptr)))
