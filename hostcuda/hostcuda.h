// hostcuda.h: what the files of libhostcuda.so share: errors, and the forms that exported functions come in.
//
// Each function of the runtime is a few lines over the tutti… functions: it checks what CUDA checks, and turns the
// result into CUDA's.
#pragma once
#include <stdbool.h>

#include "cuda_runtime_api.h"
#include "tutti.h"

// Which runtime's layouts and symbols the library has: 12 (libhostcuda.so.1, libcudart.so.12) or 13 (libcudart.so.13).
#ifndef HOSTCUDA_ABI
#define HOSTCUDA_ABI 12
#endif

// The head of an exported function, and its twin for programs with per-thread default streams, which returns `result`.
#define HC_API __attribute__((visibility("default"))) cudaError_t
#define HC_TWIN_RETURNS(name, suffix, parameters, result) \
  HC_API name##suffix parameters;                         \
  HC_API name##suffix parameters                          \
  {                                                       \
    return result;                                        \
  }
// HC_TWIN(cudaX, _ptsz, (parameters), (arguments)): a twin that calls cudaX.
#define HC_TWIN(name, suffix, parameters, arguments) HC_TWIN_RETURNS(name, suffix, parameters, name arguments)

// What stream NULL means in such a twin.
static inline cudaStream_t hc_own(cudaStream_t stream)
{
  return stream == NULL ? cudaStreamPerThread : stream;
}

// Makes `error` the thread's last error, unless it is cudaSuccess, and returns it.
cudaError_t hc_error(cudaError_t error);

// Makes `error`, which was the thread's last error before, that again.
void hc_restore(cudaError_t error);

// CUDA's code for a result, as hc_error; of a broken rule of captures that rule's. `invalid`: what an argument that
// cannot be means in the calling function.
cudaError_t hc_result(ncclResult_t result, cudaError_t invalid);

// True, with the last error set, inside a host function: the runtime cannot be called there.
bool hc_forbidden(void);
// Says that the calling thread begins or ends a host function.
void hc_inside(bool inside);

// Returns from the calling function when it is called inside a host function.
#define HC_ENTER()                             \
  do {                                         \
    if (__builtin_expect(hc_forbidden(), 0)) { \
      return cudaErrorNotPermitted;            \
    }                                          \
  } while (0)

// The same for what CUDA calls potentially unsafe while a stream is captured, and the thread's capture mode does not
// allow.
#define HC_ENTER_UNSAFE()                                 \
  do {                                                    \
    HC_ENTER();                                           \
    ncclResult_t allowed_ = tuttiCaptureAllows(__func__); \
    if (__builtin_expect(allowed_ != ncclSuccess, 0)) {   \
      return hc_result(allowed_, cudaErrorInvalidValue);  \
    }                                                     \
  } while (0)

// Returns from the calling function with this error if the condition holds.
#define HC_REFUSE(condition, error) \
  do {                              \
    if (condition) {                \
      return hc_error(error);       \
    }                               \
  } while (0)

// Is `device` one of those that cudaGetDeviceCount counts?
bool hc_is_device(int device);

// What a pointer is, as far as known.
tuttiPointerAttributes_t hc_look_up(const void *ptr);

// `depth` planes of rows. A plane begins `dstPlane` or `srcPlane` bytes behind the one before.
typedef struct hc_box {
  tuttiRows_t rows;
  size_t dstPlane, srcPlane, depth;
} hc_box;

// Copies a box in the order of the stream, and returns when cudaMemcpy2D does, or if `async` cudaMemcpy2DAsync.
cudaError_t hc_copy_box(const hc_box *box, enum cudaMemcpyKind kind, cudaStream_t stream, bool async);
// Sets each element of `size` bytes (1, 2 or 4; the rows' width is a multiple of it) to `value`; returns as
// cudaMemset2D or cudaMemset2DAsync.
cudaError_t hc_fill_box(const hc_box *box, uint32_t value, size_t size, cudaStream_t stream, bool async);

// Is the stream captured? False also where it is none.
bool hc_captured(cudaStream_t stream);

// Queues a call of the host that may not call the runtime.
ncclResult_t hc_queue_function(cudaStream_t stream, cudaHostFn_t fn, void *data);
