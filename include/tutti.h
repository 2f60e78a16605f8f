// tutti.h: the host device's public face. Plain host memory as a real device: streams, events, memory, host functions.
//
// Tutti's nccl.h takes a cudaStream_t. Where there is no GPU, a cudaStream_t is one of the streams created here, or one of the special
// values NULL, (cudaStream_t)1 (legacy default stream) and (cudaStream_t)2 (per-thread default stream), which mean what CUDA says they mean.
//
// Threads: every function may be called from any thread. Errors: an ncclResult_t; ncclGetLastError(NULL) has the text.
// Usable from C99 and C++.
#ifndef TUTTI_H_
#define TUTTI_H_

#include <stddef.h>

#include "nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tuttiEvent *tuttiEvent_t;

// Flags of tuttiStreamCreate: a blocking stream orders itself with the legacy default stream, a non-blocking one does not.
#define TUTTI_STREAM_DEFAULT 0
#define TUTTI_STREAM_NON_BLOCKING 1

// Number of host devices: NCCL_HOST_DEVICES when set, else 1024 (host devices cost nothing until used).
ncclResult_t tuttiGetDeviceCount(int *count);

// Device of the calling thread (0 at first): ncclCommInitRank binds the communicator to it. Several ranks may share one.
ncclResult_t tuttiSetDevice(int device);
ncclResult_t tuttiGetDevice(int *device);

// Creates a stream on the calling thread's device. `flags`: TUTTI_STREAM_…. Free it with tuttiStreamDestroy, which waits for nothing:
// queued work still runs.
ncclResult_t tuttiStreamCreate(cudaStream_t *stream, unsigned flags);
ncclResult_t tuttiStreamDestroy(cudaStream_t stream);

// Waits until all work queued so far is complete, and helps to run it. Returns the first error of that work since the last
// synchronise (ncclSuccess otherwise); a communicator's own error stays readable with ncclCommGetAsyncError.
ncclResult_t tuttiStreamSynchronize(cudaStream_t stream);

// ncclSuccess when the stream is idle, ncclInProgress when it is not; never waits, runs a bounded amount of queued work.
ncclResult_t tuttiStreamQuery(cudaStream_t stream);

// Work queued on `stream` after this call starts when `event` is complete (at once when it was never recorded).
ncclResult_t tuttiStreamWaitEvent(cudaStream_t stream, tuttiEvent_t event);

// Queues fn(arg). It runs on whichever thread drives the stream, and must not call functions that wait for streams.
ncclResult_t tuttiLaunchHostFunc(cudaStream_t stream, void (*fn)(void *arg), void *arg);

// Waits for all streams of the calling thread's device.
ncclResult_t tuttiDeviceSynchronize(void);

// Events: marks in a stream's queue, with a time stamp from the monotonic clock.
ncclResult_t tuttiEventCreate(tuttiEvent_t *event);
ncclResult_t tuttiEventDestroy(tuttiEvent_t event);
ncclResult_t tuttiEventRecord(tuttiEvent_t event, cudaStream_t stream);
ncclResult_t tuttiEventQuery(tuttiEvent_t event);
ncclResult_t tuttiEventSynchronize(tuttiEvent_t event);
// Milliseconds between two completed events (ncclInvalidUsage when one was not recorded, ncclInProgress when one is not complete).
ncclResult_t tuttiEventElapsedTime(float *ms, tuttiEvent_t start, tuttiEvent_t end);

// Host memory aligned to 4096 bytes, not shared with other processes (ncclMemAlloc gives memory that peers can map).
ncclResult_t tuttiMalloc(void **ptr, size_t size);
ncclResult_t tuttiFree(void *ptr);
// In stream order. Sizes in bytes.
ncclResult_t tuttiMemcpyAsync(void *dst, const void *src, size_t size, cudaStream_t stream);
ncclResult_t tuttiMemsetAsync(void *dst, int value, size_t size, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
