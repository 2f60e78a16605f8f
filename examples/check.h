// check.h: what all examples need: look at every result, and say which call failed and why.
#pragma once
#include <cuda_runtime.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#define CUDA(call)                                                                              \
  do {                                                                                          \
    cudaError_t cuda_ = (call);                                                                 \
    if (cuda_ != cudaSuccess) {                                                                 \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(cuda_)); \
      exit(1);                                                                                  \
    }                                                                                           \
  } while (0)

// The code says what kind of failure, the text says what and where. ncclInProgress comes from non-blocking
// communicators only.
#define NCCL(call)                                                                                 \
  do {                                                                                             \
    ncclResult_t nccl_ = (call);                                                                   \
    if (nccl_ != ncclSuccess && nccl_ != ncclInProgress) {                                         \
      fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, ncclGetErrorString(nccl_), \
              ncclGetLastError(NULL));                                                             \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

// As many ranks as there are devices, at most `most`.
static inline int ranks(int most)
{
  int devices;
  CUDA(cudaGetDeviceCount(&devices));
  return devices < most ? devices : most;
}
