// cuda_profiler_api.h: the switches of CUDA's profiler. There is none to switch: both succeed.
#ifndef HOSTCUDA_CUDA_PROFILER_API_H_
#define HOSTCUDA_CUDA_PROFILER_API_H_

#include "cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t cudaProfilerStart(void);
cudaError_t cudaProfilerStop(void);

#ifdef __cplusplus
}
#endif

#endif
