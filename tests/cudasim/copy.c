// copy.c: copies and fills.
#include <stdlib.h>
#include <string.h>

#include "sim.h"

static bool is_known(uint64_t address)
{
  return sim_range_find(sim.ranges, address) != NULL;
}

// A copy, in a stream. From pageable host memory the bytes are taken at once; into it the call waits.
static CUresult copy(uint64_t dst, uint64_t src, size_t bytes, struct sim_stream *stream)
{
  struct sim_work work = {.kind = SIM_COPY, .context = stream->context, .copy = {dst, src, bytes, NULL}};
  bool captured = stream->capture != NULL;
  if (bytes == 0) {
    return CUDA_SUCCESS;
  }
  CUresult error = sim_work_check(&work);
  if (error != CUDA_SUCCESS) {
    return error;
  }
  if (!is_known(src) && !captured) {
    work.copy.staged = malloc(bytes);
    if (work.copy.staged == NULL) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(work.copy.staged, (const void *)(uintptr_t)src, bytes); // NOLINT(performance-no-int-to-ptr)
  }
  error = sim_submit(stream, &work);
  return error == CUDA_SUCCESS && !is_known(dst) && !captured ? sim_stream_drain(stream) : error;
}

static CUresult copy_async(uint64_t dst, uint64_t src, size_t bytes, CUstream handle)
{
  CUresult error;
  struct sim_stream *stream = sim_stream_of(handle, &error);
  return stream == NULL ? error : copy(dst, src, bytes, stream);
}

// In the legacy default stream; the call waits.
static CUresult copy_now(uint64_t dst, uint64_t src, size_t bytes)
{
  CUresult error;
  struct sim_stream *stream = sim_stream_of(NULL, &error);
  error = stream == NULL ? error : sim_capture_unsafe();
  error = error == CUDA_SUCCESS ? copy(dst, src, bytes, stream) : error;
  return error == CUDA_SUCCESS ? sim_stream_drain(stream) : error;
}

CUresult cuMemcpyHtoD(CUdeviceptr dst, const void *src, size_t bytes)
{
  SIM_CALL("cuMemcpyHtoD", copy_now(dst, (uint64_t)(uintptr_t)src, bytes));
}

CUresult cuMemcpyDtoH(void *dst, CUdeviceptr src, size_t bytes)
{
  SIM_CALL("cuMemcpyDtoH", copy_now((uint64_t)(uintptr_t)dst, src, bytes));
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
  SIM_CALL("cuMemcpyAsync", copy_async(dst, src, bytes, stream));
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream)
{
  SIM_CALL("cuMemcpyHtoDAsync", copy_async(dst, (uint64_t)(uintptr_t)src, bytes, stream));
}

CUresult cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
  SIM_CALL("cuMemcpyDtoHAsync", copy_async((uint64_t)(uintptr_t)dst, src, bytes, stream));
}

// ---- Fills ----

static CUresult fill(uint64_t dst, uint32_t value, size_t count, unsigned width, CUstream handle)
{
  CUresult error;
  struct sim_stream *stream = sim_stream_of(handle, &error);
  if (stream == NULL || count == 0) {
    return stream == NULL ? error : CUDA_SUCCESS;
  }
  struct sim_work work = {.kind = SIM_SET, .context = stream->context, .set = {dst, value, count, width}};
  error = sim_work_check(&work);
  return error == CUDA_SUCCESS ? sim_submit(stream, &work) : error;
}

CUresult cuMemsetD8(CUdeviceptr dst, unsigned char value, size_t count)
{
  SIM_CALL("cuMemsetD8", fill(dst, value, count, 1, NULL));
}

CUresult cuMemsetD32(CUdeviceptr dst, unsigned value, size_t count)
{
  SIM_CALL("cuMemsetD32", fill(dst, value, count, 4, NULL));
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t count, CUstream stream)
{
  SIM_CALL("cuMemsetD8Async", fill(dst, value, count, 1, stream));
}

CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned value, size_t count, CUstream stream)
{
  SIM_CALL("cuMemsetD32Async", fill(dst, value, count, 4, stream));
}
