// cuda_runtime_api.h: the CUDA runtime's C interface on Tutti's host device (libhostcuda.so).
//
// For programs that use NCCL and the runtime's host functions, and launch no kernels of their own: they compile and run
// unchanged where there is no CUDA. A "device" is a number; its memory is ordinary memory, which the host may read and
// write as well. Streams are those that NCCL's calls take. What needs a GPU returns the error of a machine without that
// capability (cudaErrorNotSupported, cudaErrorNoKernelImageForDevice, ...). Names, values and layouts are those of
// CUDA 12.
//
// Threads: every function may be called from any thread; the current device and the last error are the calling thread's
// own. Each function returns cudaSuccess or an error, which is also the thread's last error then.
#ifndef HOSTCUDA_CUDA_RUNTIME_API_H_
#define HOSTCUDA_CUDA_RUNTIME_API_H_

#define CUDART_VERSION 12090
#define HOSTCUDA 1 // tells this header from NVIDIA's

#include "driver_types.h"

// Arguments that C++ may leave out.
#ifdef __cplusplus
#define HOSTCUDA_OR(value) = value
#else
#define HOSTCUDA_OR(value)
#endif

// As with NVIDIA's header: layouts that changed have another symbol, and a program compiled for per-thread default
// streams has others.
#define cudaGetDeviceProperties cudaGetDeviceProperties_v2
#define cudaStreamGetCaptureInfo cudaStreamGetCaptureInfo_v2
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define cudaMemcpy cudaMemcpy_ptds
#define cudaMemcpy2D cudaMemcpy2D_ptds
#define cudaMemcpy3D cudaMemcpy3D_ptds
#define cudaMemset cudaMemset_ptds
#define cudaMemset2D cudaMemset2D_ptds
#define cudaMemset3D cudaMemset3D_ptds
#define cudaEventRecord cudaEventRecord_ptsz
#define cudaEventRecordWithFlags cudaEventRecordWithFlags_ptsz
#define cudaFreeAsync cudaFreeAsync_ptsz
#define cudaLaunchHostFunc cudaLaunchHostFunc_ptsz
#define cudaMallocAsync cudaMallocAsync_ptsz
#define cudaMemcpy2DAsync cudaMemcpy2DAsync_ptsz
#define cudaMemcpy3DAsync cudaMemcpy3DAsync_ptsz
#define cudaMemcpyAsync cudaMemcpyAsync_ptsz
#define cudaMemset2DAsync cudaMemset2DAsync_ptsz
#define cudaMemset3DAsync cudaMemset3DAsync_ptsz
#define cudaMemsetAsync cudaMemsetAsync_ptsz
#define cudaGetDriverEntryPoint cudaGetDriverEntryPoint_ptsz
#define cudaGetDriverEntryPointByVersion cudaGetDriverEntryPointByVersion_ptsz
#define cudaStreamAddCallback cudaStreamAddCallback_ptsz
#define cudaStreamBeginCapture cudaStreamBeginCapture_ptsz
#define cudaStreamEndCapture cudaStreamEndCapture_ptsz
#define cudaStreamGetDevice cudaStreamGetDevice_ptsz
#define cudaStreamGetFlags cudaStreamGetFlags_ptsz
#define cudaStreamGetId cudaStreamGetId_ptsz
#define cudaStreamGetPriority cudaStreamGetPriority_ptsz
#define cudaStreamBeginCaptureToGraph cudaStreamBeginCaptureToGraph_ptsz
#define cudaStreamGetCaptureInfo_v2 cudaStreamGetCaptureInfo_v2_ptsz
#define cudaStreamGetCaptureInfo_v3 cudaStreamGetCaptureInfo_v3_ptsz
#define cudaStreamIsCapturing cudaStreamIsCapturing_ptsz
#define cudaStreamUpdateCaptureDependencies cudaStreamUpdateCaptureDependencies_ptsz
#define cudaStreamUpdateCaptureDependencies_v2 cudaStreamUpdateCaptureDependencies_v2_ptsz
#define cudaGraphInstantiateWithParams cudaGraphInstantiateWithParams_ptsz
#define cudaGraphLaunch cudaGraphLaunch_ptsz
#define cudaGraphUpload cudaGraphUpload_ptsz
#define cudaStreamQuery cudaStreamQuery_ptsz
#define cudaStreamSynchronize cudaStreamSynchronize_ptsz
#define cudaStreamWaitEvent cudaStreamWaitEvent_ptsz
#endif

#ifdef __cplusplus
extern "C" {
#endif

// ---- Errors ----

// The calling thread's last error; the first function also resets it to cudaSuccess.
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
// "cudaErrorInvalidValue", and a text. Constant, never NULL.
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);

// ---- Versions ----

// CUDART_VERSION of the library, and the newest version that it stands in for.
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaDriverGetVersion(int *version);

// The CUDA driver's function `name` ("cuMemAlloc"), for those of them that hostcuda/driver.def lists, in the form that
// it had in CUDA `version` (without: the library's own); else NULL, with cudaSuccess. `status` may be NULL.
cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *status HOSTCUDA_OR(0));
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned int version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status HOSTCUDA_OR(0));

// ---- Devices ----

// NCCL_HOST_DEVICES when set, else 8.
cudaError_t cudaGetDeviceCount(int *count);
// The calling thread's device; 0 at first. NCCL binds a communicator to it.
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaInitDevice(int device, unsigned int deviceFlags, unsigned int flags);
cudaError_t cudaSetDeviceFlags(unsigned int flags);
cudaError_t cudaGetDeviceFlags(unsigned int *flags);
cudaError_t cudaSetValidDevices(int *devices, int count);
cudaError_t cudaChooseDevice(int *device, const struct cudaDeviceProp *wanted);
// Compute capability 9.0 and its limits, because programs choose data types and sizes by them; kernels do not run. The
// memory is the machine's, shared by all devices.
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device);
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device);
// "0000:05:00.0" for device 5, and back.
cudaError_t cudaDeviceGetPCIBusId(char *busId, int size, int device);
cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *busId);
// Waits for all streams of the device; returns the first error of their work.
cudaError_t cudaDeviceSynchronize(void);
// Waits as above, forgets the device's peers and flags. Memory, streams and events stay good: free them.
cudaError_t cudaDeviceReset(void);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit limit);
cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value);
cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *config);
cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache config);
cudaError_t cudaDeviceGetSharedMemConfig(enum cudaSharedMemConfig *config);
cudaError_t cudaDeviceSetSharedMemConfig(enum cudaSharedMemConfig config);

// Each device reaches the memory of all others; the bookkeeping is CUDA's.
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags);
cudaError_t cudaDeviceDisablePeerAccess(int peer);
cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attr, int source, int destination);

// ---- Memory ----

// On pages of their own, zeroed; NULL for 0 bytes. An overrun is seen by AddressSanitizer, where the program has it.
cudaError_t cudaMalloc(void **ptr, size_t size);
cudaError_t cudaMallocHost(void **ptr, size_t size);
cudaError_t cudaHostAlloc(void **ptr, size_t size, unsigned int flags);
cudaError_t cudaMallocManaged(void **ptr, size_t size, unsigned int flags);
cudaError_t cudaMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height);
cudaError_t cudaMalloc3D(struct cudaPitchedPtr *ptr, struct cudaExtent extent);
// Wait for the device that the memory belongs to.
cudaError_t cudaFree(void *ptr);
cudaError_t cudaFreeHost(void *ptr);
// At once, and in stream order.
cudaError_t cudaMallocAsync(void **ptr, size_t size, cudaStream_t stream);
cudaError_t cudaFreeAsync(void *ptr, cudaStream_t stream);
// Every device has one pool, which holds nothing back: its settings are accepted and mean nothing.
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device);
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device);
cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr, void *value);
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr, void *value);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep);

cudaError_t cudaHostRegister(void *ptr, size_t size, unsigned int flags);
cudaError_t cudaHostUnregister(void *ptr);
// The same pointer.
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned int flags);
cudaError_t cudaHostGetFlags(unsigned int *flags, void *host);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr);
cudaError_t cudaMemGetInfo(size_t *available, size_t *total);
cudaError_t cudaMemAdvise(const void *ptr, size_t count, enum cudaMemoryAdvise advice, int device);
cudaError_t cudaMemPrefetchAsync(const void *ptr, size_t count, int device, cudaStream_t stream HOSTCUDA_OR(0));

// In the order of the device's default stream. Returns when the copy is done, but for copies from device memory to
// device memory.
cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                         enum cudaMemcpyKind kind);
// Of pitched memory; cudaErrorNotSupported if an array is named.
cudaError_t cudaMemcpy3D(const struct cudaMemcpy3DParms *params);
cudaError_t cudaMemcpyPeer(void *dst, int dstDevice, const void *src, int srcDevice, size_t count);
// Returns when the value is set, or, for device memory, at once.
cudaError_t cudaMemset(void *ptr, int value, size_t count);
cudaError_t cudaMemset2D(void *ptr, size_t pitch, int value, size_t width, size_t height);
cudaError_t cudaMemset3D(struct cudaPitchedPtr ptr, int value, struct cudaExtent extent);
// In stream order. Return at once; only copies from one piece of ordinary memory to another, and from device to
// ordinary memory, wait, as CUDA's do. "Ordinary" is what neither the runtime nor NCCL allocated and nobody registered.
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t stream HOSTCUDA_OR(0));
cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind, cudaStream_t stream HOSTCUDA_OR(0));
cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *params, cudaStream_t stream HOSTCUDA_OR(0));
cudaError_t cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice, size_t count,
                                cudaStream_t stream HOSTCUDA_OR(0));
cudaError_t cudaMemsetAsync(void *ptr, int value, size_t count, cudaStream_t stream HOSTCUDA_OR(0));
cudaError_t cudaMemset2DAsync(void *ptr, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream HOSTCUDA_OR(0));
cudaError_t cudaMemset3DAsync(struct cudaPitchedPtr ptr, int value, struct cudaExtent extent,
                              cudaStream_t stream HOSTCUDA_OR(0));

// ---- Memory and events of other processes ----

// For memory of cudaMalloc and ncclMemAlloc, and events with cudaEventInterprocess | cudaEventDisableTiming. The owner
// must live when a handle is opened. The process that made a handle gets cudaErrorDeviceUninitialized when it opens it.
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *ptr);
cudaError_t cudaIpcOpenMemHandle(void **ptr, cudaIpcMemHandle_t handle, unsigned int flags);
cudaError_t cudaIpcCloseMemHandle(void *ptr);
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event);
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle);

// ---- Streams ----

// NULL and cudaStreamLegacy are the device's default stream, cudaStreamPerThread the thread's own. There are no
// priorities.
cudaError_t cudaStreamCreate(cudaStream_t *stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority);
// Queued work still runs.
cudaError_t cudaStreamDestroy(cudaStream_t stream);
// cudaErrorLaunchFailure when an operation of NCCL failed in it; ncclCommGetAsyncError says which and why.
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags HOSTCUDA_OR(0));
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int *flags);
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority);
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device);
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id);
cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void *ptr, size_t length HOSTCUDA_OR(0),
                                     unsigned int flags HOSTCUDA_OR(cudaMemAttachSingle));
// Queue a call of the host. It runs on a thread of its own kind, never on one that queues or waits, and holds up its
// own stream alone. Inside it the runtime answers cudaErrorNotPermitted.
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *userData);
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void *userData,
                                  unsigned int flags);

// ---- Events ----

cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream HOSTCUDA_OR(0));
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream HOSTCUDA_OR(0),
                                     unsigned int flags HOSTCUDA_OR(0));
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
// Milliseconds.
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end);

// ---- Captures and graphs ----

// Recorded are copies, fills, calls of the host, operations of NCCL, launches of graphs, and records and waits with the
// flags "external". Not memory in stream order, callbacks of cudaStreamAddCallback, kernels. Rules and errors are
// CUDA's. Each launch makes the recorded calls of NCCL anew: all ranks launch alike, graphs and ordinary calls may
// alternate. A launch whose communicator has gone gives cudaErrorInvalidValue.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                          const cudaGraphEdgeData *edges, size_t count,
                                          enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status);
// The pointers behind `status` may be NULL. `dependencies` are good until the stream is used again.
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id HOSTCUDA_OR(0), cudaGraph_t *graph HOSTCUDA_OR(0),
                                     const cudaGraphNode_t **dependencies HOSTCUDA_OR(0), size_t *count HOSTCUDA_OR(0));
cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                        unsigned long long *id HOSTCUDA_OR(0), cudaGraph_t *graph HOSTCUDA_OR(0),
                                        const cudaGraphNode_t **dependencies HOSTCUDA_OR(0),
                                        const cudaGraphEdgeData **edges HOSTCUDA_OR(0), size_t *count HOSTCUDA_OR(0));
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *dependencies, size_t count,
                                                unsigned int flags HOSTCUDA_OR(0));
cudaError_t cudaStreamUpdateCaptureDependencies_v2(cudaStream_t stream, cudaGraphNode_t *dependencies,
                                                   const cudaGraphEdgeData *edges, size_t count,
                                                   unsigned int flags HOSTCUDA_OR(0));
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode);

cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned int flags);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
// Lists: NULL asks for the number; else at most *count are written.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count);
cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count);
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, size_t *count);
cudaError_t cudaGraphGetEdges_v2(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to,
                                 cudaGraphEdgeData *edges, size_t *count);
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *dependencies, size_t *count);
cudaError_t cudaGraphNodeGetDependencies_v2(cudaGraphNode_t node, cudaGraphNode_t *dependencies,
                                            cudaGraphEdgeData *edges, size_t *count);
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type);
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                     size_t count, void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                   size_t count, const struct cudaMemsetParams *params);
cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                 size_t count, const struct cudaHostNodeParams *params);
cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                       size_t count, cudaGraph_t child);
cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                  size_t count);
cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                        size_t count, cudaEvent_t event);
cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                      size_t count, cudaEvent_t event);

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags HOSTCUDA_OR(0));
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                          unsigned long long flags HOSTCUDA_OR(0));
cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t *exec, cudaGraph_t graph,
                                           cudaGraphInstantiateParams *params);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
// Does nothing.
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream);
// cudaErrorGraphExecUpdateFailure when the graph has other kinds of nodes, or another order.
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *info);
cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t exec, unsigned long long *flags);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

// ---- What needs a GPU: present, so that programs compile and load. Each returns an error. ----

cudaError_t cudaLaunchKernel(const void *func, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem,
                             cudaStream_t stream);
cudaError_t cudaLaunchCooperativeKernel(const void *func, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem,
                                        cudaStream_t stream);
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr, const void *func);
cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attr, int value);
cudaError_t cudaFuncSetCacheConfig(const void *func, enum cudaFuncCache config);
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *func, int blockSize,
                                                          size_t sharedMem);
cudaError_t cudaGetSymbolAddress(void **ptr, const void *symbol);
cudaError_t cudaGetSymbolSize(size_t *size, const void *symbol);
cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *src, size_t count, size_t offset HOSTCUDA_OR(0),
                               enum cudaMemcpyKind kind HOSTCUDA_OR(cudaMemcpyHostToDevice));
cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                   size_t count, const struct cudaKernelNodeParams *params);
// A graph that is ready to run keeps its copies: cudaErrorNotSupported. Capture it again, and update or instantiate.
cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node, void *dst, const void *src,
                                               size_t count, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyFromSymbol(void *dst, const void *symbol, size_t count, size_t offset HOSTCUDA_OR(0),
                                 enum cudaMemcpyKind kind HOSTCUDA_OR(cudaMemcpyDeviceToHost));

#ifdef __cplusplus
}
#endif

#endif
