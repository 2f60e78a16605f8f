// driver.c: the CUDA driver's functions that libraries around NCCL call, each a few lines over the runtime's.
//
// Codes of the driver have the numbers of the runtime's. What the runtime calls the last error is not the driver's
// business: it stays as it was.
#include "driver_priv.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "properties.h"

enum { MEMORY_HOST = 1, MEMORY_DEVICE = 2 }; // CUmemorytype

// ---- The driver and its devices ----

CU_API(cuInit, (unsigned flags))
{
  return flags == 0 ? SUCCESS : INVALID_VALUE;
}

CU_API(cuDriverGetVersion, (int *version))
{
  CU_RETURN(cudaDriverGetVersion(version));
}

CU_API(cuDeviceGetCount, (int *count))
{
  CU_RETURN(cudaGetDeviceCount(count));
}

CU_API(cuDeviceGet, (CUdevice * device, int ordinal))
{
  if (device == NULL) {
    return INVALID_VALUE;
  }
  if (!hc_is_device(ordinal)) {
    return INVALID_DEVICE;
  }
  *device = ordinal;
  return SUCCESS;
}

CU_API(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device))
{
  CU_RETURN(cudaDeviceGetAttribute(value, (enum cudaDeviceAttr)attribute, device));
}

CU_API(cuDeviceGetPCIBusId, (char *out, int size, CUdevice device))
{
  CU_RETURN(cudaDeviceGetPCIBusId(out, size, device));
}

CU_API(cuDeviceGetName, (char *out, int size, CUdevice device))
{
  struct cudaDeviceProp p;
  if (out == NULL || size <= 0) {
    return INVALID_VALUE;
  }
  if (!hc_is_device(device)) {
    return INVALID_DEVICE;
  }
  hc_properties(&p, device);
  snprintf(out, (size_t)size, "%s", p.name);
  return SUCCESS;
}

CU_API(cuDeviceGetUuid_v2, (CUuuid * out, CUdevice device))
{
  struct cudaDeviceProp p;
  if (out == NULL) {
    return INVALID_VALUE;
  }
  if (!hc_is_device(device)) {
    return INVALID_DEVICE;
  }
  hc_properties(&p, device);
  *out = p.uuid;
  return SUCCESS;
}

CU_API(cuDeviceGetUuid, (CUuuid * out, CUdevice device))
{
  return cuDeviceGetUuid_v2(out, device);
}

CU_API(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device))
{
  size_t available;
  if (bytes == NULL) {
    return INVALID_VALUE;
  }
  if (!hc_is_device(device)) {
    return INVALID_DEVICE;
  }
  CU_RETURN(cudaMemGetInfo(&available, bytes));
}

CU_IS(cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer), cudaDeviceCanAccessPeer(can, device, peer))
CU_IS(cuDeviceGetByPCIBusId, (CUdevice * device, const char *id), cudaDeviceGetByPCIBusId(device, id))
CU_IS(cuDeviceGetP2PAttribute, (int *value, int which, CUdevice source, CUdevice destination),
      cudaDeviceGetP2PAttribute(value, (enum cudaDeviceP2PAttr)which, source, destination))

CU_API(cuDeviceComputeCapability, (int *major, int *minor, CUdevice device))
{
  CUresult e = major == NULL || minor == NULL ? INVALID_VALUE
                                              : cuDeviceGetAttribute(major, cudaDevAttrComputeCapabilityMajor, device);
  return e != SUCCESS ? e : cuDeviceGetAttribute(minor, cudaDevAttrComputeCapabilityMinor, device);
}

// ---- Memory ----

CU_API(cuMemAlloc_v2, (CUdeviceptr * out, size_t size))
{
  void *ptr = NULL;
  if (out == NULL || size == 0) {
    return INVALID_VALUE;
  }
  cudaError_t before = cudaPeekAtLastError();
  CUresult e = (CUresult)cudaMalloc(&ptr, size);
  hc_restore(before);
  if (e == SUCCESS) {
    *out = (uintptr_t)ptr;
  }
  return e;
}

CU_API(cuMemFree_v2, (CUdeviceptr ptr))
{
  CU_RETURN(cudaFree(at(ptr)));
}

CU_API(cuMemHostRegister_v2, (void *ptr, size_t size, unsigned flags))
{
  CU_RETURN(cudaHostRegister(ptr, size, flags));
}

CU_API(cuMemHostUnregister, (void *ptr))
{
  CU_RETURN(cudaHostUnregister(ptr));
}

CU_API(cuMemHostGetDevicePointer_v2, (CUdeviceptr * out, void *host, unsigned flags))
{
  void *ptr = NULL;
  if (out == NULL) {
    return INVALID_VALUE;
  }
  cudaError_t before = cudaPeekAtLastError();
  CUresult e = (CUresult)cudaHostGetDevicePointer(&ptr, host, flags);
  hc_restore(before);
  if (e == SUCCESS) {
    *out = (uintptr_t)ptr;
  }
  return e;
}

CU_API(cuMemGetAddressRange_v2, (CUdeviceptr * base, size_t *size, CUdeviceptr ptr))
{
  tuttiPointerAttributes_t a = hc_look_up(at(ptr));
  if (a.kind == tuttiMemoryUnknown) {
    return NOT_FOUND;
  }
  if (base != NULL) {
    *base = (uintptr_t)a.base;
  }
  if (size != NULL) {
    *size = a.size;
  }
  return SUCCESS;
}

// Host memory needs no flush.
CU_API(cuFlushGPUDirectRDMAWrites, (int target, int scope))
{
  (void)target, (void)scope;
  return SUCCESS;
}

// ---- What a pointer is ----

// The value of one attribute; NOT_SUPPORTED for one that is not known here. Of memory that nobody allocated or
// registered all are nothing.
static CUresult attribute(const tuttiPointerAttributes_t *a, const void *ptr, int which, void *out)
{
  bool known = a->kind != tuttiMemoryUnknown;
  switch (which) {
  case 1: *(CUcontext *)out = (CUcontext)(intptr_t)(known ? a->device + 1 : 0); return SUCCESS;
  case 2: *(unsigned *)out = !known ? 0 : a->kind == tuttiMemoryHost ? MEMORY_HOST : MEMORY_DEVICE; return SUCCESS;
  case 3: *(CUdeviceptr *)out = known ? (uintptr_t)ptr : 0; return SUCCESS;
  case 4: *(void **)out = known && a->kind != tuttiMemoryDevice ? (void *)(uintptr_t)ptr : NULL; return SUCCESS;
  case 6: *(unsigned char *)out = 0; return SUCCESS; // synchronous operations wait as they always do
  case 8: *(unsigned char *)out = a->kind == tuttiMemoryManaged; return SUCCESS;
  case 9: *(int *)out = known ? a->device : cudaInvalidDeviceId; return SUCCESS;
  case 10: *(unsigned char *)out = a->kind == tuttiMemoryDevice; return SUCCESS;
  case 11: *(CUdeviceptr *)out = (uintptr_t)a->base; return SUCCESS;
  case 12: *(size_t *)out = a->size; return SUCCESS;
  case 13: *(unsigned char *)out = known; return SUCCESS;
  case 14: *(unsigned long long *)out = 0; return SUCCESS; // no handles for other devices
  case 15: *(unsigned char *)out = 0; return SUCCESS;      // no GPU's memory
  default: return NOT_SUPPORTED;
  }
}

CU_API(cuPointerGetAttribute, (void *out, int which, CUdeviceptr ptr))
{
  tuttiPointerAttributes_t a = hc_look_up(at(ptr));
  if (out == NULL || a.kind == tuttiMemoryUnknown) {
    return INVALID_VALUE;
  }
  return attribute(&a, at(ptr), which, out);
}

CU_API(cuPointerGetAttributes, (unsigned count, int *which, void **out, CUdeviceptr ptr))
{
  if (which == NULL || out == NULL) {
    return INVALID_VALUE;
  }
  tuttiPointerAttributes_t a = hc_look_up(at(ptr));
  for (unsigned i = 0; i < count; i++) {
    CUresult e = out[i] == NULL ? INVALID_VALUE : attribute(&a, at(ptr), which[i], out[i]);
    if (e != SUCCESS) {
      return e;
    }
  }
  return SUCCESS;
}

// What can be set is how synchronous operations wait, which is the same for all memory.
CU_API(cuPointerSetAttribute, (const void *value, int which, CUdeviceptr ptr))
{
  if (value == NULL || hc_look_up(at(ptr)).kind == tuttiMemoryUnknown) {
    return INVALID_VALUE;
  }
  return which == 6 ? SUCCESS : NOT_SUPPORTED;
}

// ---- Errors, and finding functions ----

// Its text; NULL for a code that the functions here do not return.
static const char *name_of(CUresult error)
{
  switch (error) {
  case 0: return "CUDA_SUCCESS";
  case 1: return "CUDA_ERROR_INVALID_VALUE";
  case 2: return "CUDA_ERROR_OUT_OF_MEMORY";
  case 3: return "CUDA_ERROR_NOT_INITIALIZED";
  case 100: return "CUDA_ERROR_NO_DEVICE";
  case 101: return "CUDA_ERROR_INVALID_DEVICE";
  case 201: return "CUDA_ERROR_INVALID_CONTEXT";
  case 205: return "CUDA_ERROR_MAP_FAILED";
  case 209: return "CUDA_ERROR_NO_BINARY_FOR_GPU";
  case 215: return "CUDA_ERROR_UNSUPPORTED_LIMIT";
  case 224: return "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY";
  case 400: return "CUDA_ERROR_INVALID_HANDLE";
  case 401: return "CUDA_ERROR_ILLEGAL_STATE";
  case 500: return "CUDA_ERROR_NOT_FOUND";
  case 600: return "CUDA_ERROR_NOT_READY";
  case 704: return "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED";
  case 705: return "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED";
  case 712: return "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED";
  case 713: return "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED";
  case 719: return "CUDA_ERROR_LAUNCH_FAILED";
  case 800: return "CUDA_ERROR_NOT_PERMITTED";
  case 801: return "CUDA_ERROR_NOT_SUPPORTED";
  case 900: return "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
  case 901: return "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED";
  case 902: return "CUDA_ERROR_STREAM_CAPTURE_MERGE";
  case 903: return "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED";
  case 904: return "CUDA_ERROR_STREAM_CAPTURE_UNJOINED";
  case 905: return "CUDA_ERROR_STREAM_CAPTURE_ISOLATION";
  case 906: return "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT";
  case 907: return "CUDA_ERROR_CAPTURED_EVENT";
  case 908: return "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD";
  case 910: return "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE";
  case 999: return "CUDA_ERROR_UNKNOWN";
  default: return NULL;
  }
}

static CUresult text(CUresult error, const char *found, const char **out)
{
  if (out == NULL) {
    return INVALID_VALUE;
  }
  *out = name_of(error) == NULL ? NULL : found;
  return *out == NULL ? INVALID_VALUE : SUCCESS;
}

CU_API(cuGetErrorName, (CUresult error, const char **out))
{
  return text(error, name_of(error), out);
}

CU_API(cuGetErrorString, (CUresult error, const char **out))
{
  return text(error, cudaGetErrorString((cudaError_t)error), out);
}

CU_API(cuGetProcAddress_v2, (const char *name, void **out, int version, unsigned long long flags, int *status))
{
  enum cudaDriverEntryPointQueryResult found;
  if (name == NULL || out == NULL || version < 0 || flags > cudaEnablePerThreadDefaultStream) {
    return INVALID_VALUE;
  }
  *out = hc_driver_find(name, (unsigned)version, flags == cudaEnablePerThreadDefaultStream, &found);
  if (status != NULL) {
    *status = (int)found;
  }
  return *out == NULL ? NOT_FOUND : SUCCESS;
}

// As it was before version 12000.
CU_API(cuGetProcAddress, (const char *name, void **out, int version, unsigned long long flags))
{
  return cuGetProcAddress_v2(name, out, version, flags, NULL);
}

// Only NVIDIA's runtime asks for these tables, which nobody else knows: a program that contains it cannot work here. It
// says no more than that there is no driver, so the reason is said here, once.
CU_API(cuGetExportTable, (const void **table, const void *id))
{
  static atomic_flag said = ATOMIC_FLAG_INIT;
  (void)id;
  if (table != NULL) {
    *table = NULL;
  }
  if (!atomic_flag_test_and_set(&said)) {
    fputs("libcuda.so.1 of Tutti: this program uses NVIDIA's CUDA runtime, which needs NVIDIA's driver. Link with "
          "\"nvcc -cudart shared\" (nvcc's "
          "default is libcudart_static.a), and let LD_LIBRARY_PATH find lib/cuda/libcudart.so of Tutti first.\n",
          stderr);
  }
  return NOT_SUPPORTED;
}
