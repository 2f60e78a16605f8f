// utility.h: macros of the device API's headers.
#ifndef NCCL_DEVICE_UTILITY_H_
#define NCCL_DEVICE_UTILITY_H_

#include <stdbool.h>
#include <stdint.h>

// 1 where a CUDA compiler reads this, else 0.
#ifndef NCCL_CHECK_CUDACC
#ifdef __CUDACC__
#define NCCL_CHECK_CUDACC 1
#else
#define NCCL_CHECK_CUDACC 0
#endif
#endif

// Head of an exported function.
#ifdef __cplusplus
#define NCCL_EXTERN_C extern "C"
#else
#define NCCL_EXTERN_C
#endif

// Head of a small function that is compiled with the program.
#if NCCL_CHECK_CUDACC
#define NCCL_HOST_DEVICE_INLINE static __host__ __device__ __forceinline__
#else
#define NCCL_HOST_DEVICE_INLINE static inline
#endif

#endif
