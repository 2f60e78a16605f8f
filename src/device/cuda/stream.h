// stream.h: the program's streams, as work is submitted to them and ordered between them.
//
// The caller that submits work to a stream marks it afterwards (tt_gpu_stream_mark). Order is made with that mark, not
// with the stream: the program may have destroyed it by then, and the handle of the thread's default stream means
// another one in other threads.
// Any thread, unless it says otherwise. The driver is open.
#pragma once
#include "device/cuda/gpu.h"

typedef struct tt_gpu_stream tt_gpu_stream;

// The stream of this handle, for function `what`: NULL and 1 are the device's legacy default stream, 2 the calling
// thread's. It stays known. Asks the driver whether it is captured. Errors: ncclInvalidArgument (there is no such
// device, or the stream is another device's), ncclInvalidUsage (as tt_gpu_stream_captured), ncclUnhandledCudaError,
// ncclSystemError.
ncclResult_t tt_gpu_stream_get(cudaStream_t handle, int device, const char *what, tt_gpu_stream **out);

// The driver's handle of it, in the device's context. Valid until the program destroys the stream.
CUstream tt_gpu_stream_handle(const tt_gpu_stream *s);

// Marks the stream behind all work submitted so far. The stream is not captured. Called by the thread that has
// submitted the work, with the device's context current. Errors: ncclUnhandledCudaError.
ncclResult_t tt_gpu_stream_mark(tt_gpu_stream *s);

// Work submitted to `later` from now on runs after the work before the last mark of `earlier`. Called by the thread
// that submits to `later`. Errors: ncclUnhandledCudaError.
ncclResult_t tt_gpu_stream_order(tt_gpu_stream *earlier, tt_gpu_stream *later);

// The same with all work that `earlier` has by now, the program's too. Both are captured, in one capture, or neither
// is. Errors: ncclUnhandledCudaError.
ncclResult_t tt_gpu_stream_join(tt_gpu_stream *earlier, tt_gpu_stream *later);

// *idle: has all work before the last mark ended? Errors: ncclUnhandledCudaError, also when such work has failed.
ncclResult_t tt_gpu_stream_query(tt_gpu_stream *s, bool *idle);

// Is the stream captured? Errors: as tt_gpu_stream_get; ncclInvalidUsage: its capture has failed already, or it is the
// legacy stream while others are captured.
ncclResult_t tt_gpu_stream_captured(cudaStream_t handle, int device, bool *captured);
// Was it, when tt_gpu_stream_get was called last? The thread that has called that.
bool tt_gpu_stream_is_captured(const tt_gpu_stream *s);

// The number of the capture that the stream is in, which no other capture of the process has; 0: none. Errors: as
// tt_gpu_stream_is_captured.
ncclResult_t tt_gpu_stream_capture(const tt_gpu_stream *s, uint64_t *number);

// Records the program's event on the stream. Errors: as tt_gpu_stream_get; ncclInvalidUsage (breaks a rule of
// captures).
ncclResult_t tt_gpu_record_event(cudaEvent_t event, cudaStream_t stream, int device);
