// cuda_runtime.h: the CUDA runtime on Tutti's host device: see cuda_runtime_api.h. In C++ also its typed forms of the
// allocating functions.
#ifndef HOSTCUDA_CUDA_RUNTIME_H_
#define HOSTCUDA_CUDA_RUNTIME_H_

#include <math.h> // programs rely on CUDA's header to bring these
#include <stdlib.h>
#include <string.h>

#include "builtin_types.h"
#include "cuda_runtime_api.h"
#include "driver_functions.h"
#include "library_types.h"
#include "vector_functions.h"

#ifdef __cplusplus

template <class T> static inline cudaError_t cudaMalloc(T **ptr, size_t size)
{
  return ::cudaMalloc((void **)(void *)ptr, size);
}

template <class T> static inline cudaError_t cudaMallocHost(T **ptr, size_t size, unsigned int flags = 0)
{
  return ::cudaHostAlloc((void **)(void *)ptr, size, flags);
}

template <class T> static inline cudaError_t cudaHostAlloc(T **ptr, size_t size, unsigned int flags)
{
  return ::cudaHostAlloc((void **)(void *)ptr, size, flags);
}

template <class T> static inline cudaError_t cudaHostGetDevicePointer(T **device, void *host, unsigned int flags)
{
  return ::cudaHostGetDevicePointer((void **)(void *)device, host, flags);
}

template <class T>
static inline cudaError_t cudaMallocManaged(T **ptr, size_t size, unsigned int flags = cudaMemAttachGlobal)
{
  return ::cudaMallocManaged((void **)(void *)ptr, size, flags);
}

template <class T> static inline cudaError_t cudaMallocPitch(T **ptr, size_t *pitch, size_t width, size_t height)
{
  return ::cudaMallocPitch((void **)(void *)ptr, pitch, width, height);
}

template <class T> static inline cudaError_t cudaMallocAsync(T **ptr, size_t size, cudaStream_t stream)
{
  return ::cudaMallocAsync((void **)(void *)ptr, size, stream);
}

static inline cudaError_t cudaMallocHost(void **ptr, size_t size, unsigned int flags)
{
  return ::cudaHostAlloc(ptr, size, flags);
}

static inline cudaError_t cudaMallocManaged(void **ptr, size_t size)
{
  return ::cudaMallocManaged(ptr, size, cudaMemAttachGlobal);
}

static inline cudaError_t cudaEventCreate(cudaEvent_t *event, unsigned int flags)
{
  return ::cudaEventCreateWithFlags(event, flags);
}

// CUDA 11's form.
static inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, cudaGraphNode_t *errorNode,
                                               char *log, size_t size)
{
  (void)errorNode, (void)log, (void)size;
  return ::cudaGraphInstantiate(exec, graph, 0);
}

#endif

#endif
