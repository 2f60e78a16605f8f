// abi.c: the functions whose structures differ between CUDA 11, 12 and 13. Compiled once for each library.
#include <string.h>

#include "graph.h"
#include "properties.h"

#undef cudaGetDeviceProperties
#undef cudaStreamGetCaptureInfo
_Static_assert(sizeof(struct cudaDeviceProp) == 1032, "CUDA 12's");
_Static_assert(sizeof(struct cudaPointerAttributes) == 24, "CUDA 12's");

HC_API cudaGetDeviceProperties(void *prop, int device);

#if HOSTCUDA_ABI == 12

HC_API cudaGetDeviceProperties_v2(struct cudaDeviceProp *prop, int device)
{
  HC_ENTER();
  HC_REFUSE(prop == NULL, cudaErrorInvalidValue);
  HC_REFUSE(!hc_is_device(device), cudaErrorInvalidDevice);
  hc_properties(prop, device);
  return cudaSuccess;
}

// For programs compiled with CUDA 11, whose structure ended earlier.
HC_API cudaGetDeviceProperties(void *prop, int device)
{
  struct cudaDeviceProp p;
  cudaError_t e = cudaGetDeviceProperties_v2(prop == NULL ? NULL : &p, device);
  if (e == cudaSuccess) {
    memcpy(prop, &p, offsetof(struct cudaDeviceProp, hostRegisterSupported));
  }
  return e;
}

// CUDA 11's, which newer programs do not call.
HC_API cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id);
HC_API cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id)
{
  return hc_capture_info(stream, &(hc_capture_answer){.status = status, .id = id});
}
HC_TWIN(cudaStreamGetCaptureInfo, _ptsz,
        (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id),
        (hc_own(stream), status, id))

HC_API cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *dependencies, size_t count,
                                           unsigned int flags)
{
  return cudaStreamUpdateCaptureDependencies_v2(stream, dependencies, NULL, count, flags);
}
HC_TWIN(cudaStreamUpdateCaptureDependencies, _ptsz,
        (cudaStream_t stream, cudaGraphNode_t *dependencies, size_t count, unsigned int flags),
        (hc_own(stream), dependencies, count, flags))

HC_API cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, size_t *count)
{
  return cudaGraphGetEdges_v2(graph, from, to, NULL, count);
}

HC_API cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *dependencies, size_t *count)
{
  return cudaGraphNodeGetDependencies_v2(node, dependencies, NULL, count);
}

#else

// CUDA 13's names mean the last forms of CUDA 12, under names that our header gives to older ones.
HC_API hc_capture_info_13(HC_CAPTURE_INFO_V3) __asm__("cudaStreamGetCaptureInfo");
HC_API hc_capture_info_13(HC_CAPTURE_INFO_V3)
{
  return hc_capture_info(stream, &(hc_capture_answer){status, id, graph, dependencies, edges, count});
}
HC_API hc_capture_info_13_ptsz(HC_CAPTURE_INFO_V3) __asm__("cudaStreamGetCaptureInfo_ptsz");
HC_API hc_capture_info_13_ptsz(HC_CAPTURE_INFO_V3)
{
  return hc_capture_info(hc_own(stream), &(hc_capture_answer){status, id, graph, dependencies, edges, count});
}

#define UPDATE_13 \
  cudaStream_t stream, cudaGraphNode_t *dependencies, const cudaGraphEdgeData *edges, size_t count, unsigned int flags
HC_API hc_update_13(UPDATE_13) __asm__("cudaStreamUpdateCaptureDependencies");
HC_API hc_update_13(UPDATE_13)
{
  return cudaStreamUpdateCaptureDependencies_v2(stream, dependencies, edges, count, flags);
}
HC_API hc_update_13_ptsz(UPDATE_13) __asm__("cudaStreamUpdateCaptureDependencies_ptsz");
HC_API hc_update_13_ptsz(UPDATE_13)
{
  return cudaStreamUpdateCaptureDependencies_v2(hc_own(stream), dependencies, edges, count, flags);
}

#define EDGES_13 cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, cudaGraphEdgeData *edges, size_t *count
HC_API hc_edges_13(EDGES_13) __asm__("cudaGraphGetEdges");
HC_API hc_edges_13(EDGES_13)
{
  return cudaGraphGetEdges_v2(graph, from, to, edges, count);
}

#define DEPENDENCIES_13 cudaGraphNode_t node, cudaGraphNode_t *dependencies, cudaGraphEdgeData *edges, size_t *count
HC_API hc_dependencies_13(DEPENDENCIES_13) __asm__("cudaGraphNodeGetDependencies");
HC_API hc_dependencies_13(DEPENDENCIES_13)
{
  return cudaGraphNodeGetDependencies_v2(node, dependencies, edges, count);
}

// CUDA 13's cudaDeviceProp: what cudaDeviceGetAttribute tells too was taken out.
typedef struct properties13 {
  char name[256];
  cudaUUID_t uuid;
  char luid[8];
  unsigned int luidDeviceNodeMask;
  size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize;
  size_t memPitch;
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
  size_t totalConstMem;
  int major, minor;
  size_t textureAlignment, texturePitchAlignment;
  int multiProcessorCount, integrated, canMapHostMemory;
  int textures[39]; // maxTexture1D … maxSurfaceCubemapLayered
  size_t surfaceAlignment;
  int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver, asyncEngineCount, unifiedAddressing;
  int memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize, maxThreadsPerMultiProcessor, streamPrioritiesSupported;
  int globalL1CacheSupported, localL1CacheSupported;
  size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID, hostNativeAtomicSupported;
  int pageableMemoryAccess, concurrentManagedAccess, computePreemptionSupported, canUseHostPointerForRegisteredMem,
      cooperativeLaunch;
  size_t sharedMemPerBlockOptin;
  int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost, maxBlocksPerMultiProcessor,
      accessPolicyMaxWindowSize;
  size_t reservedSharedMemPerBlock;
  int hostRegisterSupported, sparseCudaArraySupported, hostRegisterReadOnlySupported, timelineSemaphoreInteropSupported;
  int memoryPoolsSupported, gpuDirectRDMASupported;
  unsigned int gpuDirectRDMAFlushWritesOptions;
  int gpuDirectRDMAWritesOrdering;
  unsigned int memoryPoolSupportedHandleTypes;
  int deferredMappingCudaArraySupported, ipcEventSupported, clusterLaunch, unifiedFunctionPointers;
  int deviceNumaConfig, deviceNumaId, mpsEnabled, hostNumaId;
  unsigned int gpuPciDeviceID, gpuPciSubsystemID;
  int hostNumaMultinodeIpcSupported, reserved[56];
} properties13;
_Static_assert(sizeof(properties13) == 1008, "CUDA 13's");
_Static_assert(offsetof(properties13, surfaceAlignment) == 552 && offsetof(properties13, hostRegisterSupported) == 704,
               "CUDA 13's");

HC_API cudaGetDeviceProperties(void *prop, int device)
{
  struct cudaDeviceProp p;
  HC_ENTER();
  HC_REFUSE(prop == NULL, cudaErrorInvalidValue);
  HC_REFUSE(!hc_is_device(device), cudaErrorInvalidDevice);
  hc_properties(&p, device);
  properties13 *q = prop;
  *q = (properties13){.uuid = p.uuid,
                      .totalGlobalMem = p.totalGlobalMem,
                      .sharedMemPerBlock = p.sharedMemPerBlock,
                      .regsPerBlock = p.regsPerBlock,
                      .warpSize = p.warpSize,
                      .memPitch = p.memPitch,
                      .maxThreadsPerBlock = p.maxThreadsPerBlock,
                      .totalConstMem = p.totalConstMem,
                      .major = p.major,
                      .minor = p.minor,
                      .textureAlignment = p.textureAlignment,
                      .texturePitchAlignment = p.texturePitchAlignment,
                      .multiProcessorCount = p.multiProcessorCount,
                      .integrated = p.integrated,
                      .canMapHostMemory = p.canMapHostMemory,
                      .surfaceAlignment = p.surfaceAlignment,
                      .pciBusID = p.pciBusID,
                      .pciDomainID = p.pciDomainID,
                      .asyncEngineCount = p.asyncEngineCount,
                      .unifiedAddressing = p.unifiedAddressing,
                      .l2CacheSize = p.l2CacheSize,
                      .maxThreadsPerMultiProcessor = p.maxThreadsPerMultiProcessor,
                      .managedMemory = p.managedMemory,
                      .hostNativeAtomicSupported = p.hostNativeAtomicSupported,
                      .pageableMemoryAccess = p.pageableMemoryAccess,
                      .concurrentManagedAccess = p.concurrentManagedAccess,
                      .canUseHostPointerForRegisteredMem = p.canUseHostPointerForRegisteredMem,
                      .pageableMemoryAccessUsesHostPageTables = p.pageableMemoryAccessUsesHostPageTables,
                      .directManagedMemAccessFromHost = p.directManagedMemAccessFromHost,
                      .maxBlocksPerMultiProcessor = p.maxBlocksPerMultiProcessor,
                      .hostRegisterSupported = p.hostRegisterSupported,
                      .hostRegisterReadOnlySupported = p.hostRegisterReadOnlySupported,
                      .memoryPoolsSupported = p.memoryPoolsSupported,
                      .ipcEventSupported = p.ipcEventSupported,
                      .deviceNumaId = -1,
                      .hostNumaId = -1};
  memcpy(q->name, p.name, sizeof q->name);
  memcpy(q->maxThreadsDim, p.maxThreadsDim, sizeof q->maxThreadsDim);
  memcpy(q->maxGridSize, p.maxGridSize, sizeof q->maxGridSize);
  return cudaSuccess;
}

#endif

HC_API cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr)
{
  HC_ENTER();
  HC_REFUSE(attributes == NULL, cudaErrorInvalidValue);
  tuttiPointerAttributes_t a = hc_look_up(ptr);
  struct cudaPointerAttributes out = {.type = (enum cudaMemoryType)a.kind, .device = a.device};
  if (a.kind == tuttiMemoryUnknown) {
    out.device = cudaInvalidDeviceId;
  } else {
    out.devicePointer = (void *)(size_t)ptr;
  }
  if (a.kind != tuttiMemoryDevice) {
    out.hostPointer = (void *)(size_t)ptr;
  }
  *attributes = out;
#if HOSTCUDA_ABI >= 13
  memset((char *)attributes + sizeof out, 0, 64); // eight reserved words
#endif
  return cudaSuccess;
}

HC_API cudaRuntimeGetVersion(int *version)
{
  HC_REFUSE(version == NULL, cudaErrorInvalidValue);
  *version = HOSTCUDA_ABI == 12 ? CUDART_VERSION : HOSTCUDA_ABI * 1000;
  return cudaSuccess;
}
