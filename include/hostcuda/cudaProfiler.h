// cudaProfiler.h: the driver's switches of CUDA's profiler. There is none to switch: both succeed.
#ifndef HOSTCUDA_CUDAPROFILER_H_
#define HOSTCUDA_CUDAPROFILER_H_

#include "cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);

#ifdef __cplusplus
}
#endif

#endif
