// program.c: a program that includes nccl.h alone and uses the CUDA runtime, as many do. C99 and C++; without arguments
// two ranks add up.
#include <nccl.h>
#include <stdio.h>

#define CUDA(call)                                                \
  do {                                                            \
    cudaError_t e_ = (call);                                      \
    if (e_ != cudaSuccess) {                                      \
      fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e_)); \
      return 1;                                                   \
    }                                                             \
  } while (0)
#define NCCL(call)                                                \
  do {                                                            \
    ncclResult_t r_ = (call);                                     \
    if (r_ != ncclSuccess) {                                      \
      fprintf(stderr, "%s: %s\n", #call, ncclGetLastError(NULL)); \
      return 1;                                                   \
    }                                                             \
  } while (0)

int main(void)
{
  ncclComm_t comm[2];
  cudaStream_t stream[2];
  float *data[2], got[2];
  struct cudaDeviceProp prop;
  int version = 0;
  CUDA(cudaRuntimeGetVersion(&version));
  CUDA(cudaGetDeviceProperties(&prop, 1));
  NCCL(ncclCommInitAll(comm, 2, NULL));
  for (int i = 0; i < 2; i++) {
    float mine = (float)(i + 1);
    CUDA(cudaSetDevice(i));
    CUDA(cudaStreamCreate(&stream[i]));
    CUDA(cudaMalloc((void **)&data[i], sizeof(float)));
    CUDA(cudaMemcpy(data[i], &mine, sizeof(float), cudaMemcpyHostToDevice));
  }
  NCCL(ncclGroupStart());
  for (int i = 0; i < 2; i++) {
    NCCL(ncclAllReduce(data[i], data[i], 1, ncclFloat, ncclSum, comm[i], stream[i]));
  }
  NCCL(ncclGroupEnd());
  for (int i = 0; i < 2; i++) {
    CUDA(cudaSetDevice(i));
    CUDA(cudaMemcpyAsync(&got[i], data[i], sizeof(float), cudaMemcpyDeviceToHost, stream[i]));
    CUDA(cudaStreamSynchronize(stream[i]));
    CUDA(cudaFree(data[i]));
    CUDA(cudaStreamDestroy(stream[i]));
    NCCL(ncclCommDestroy(comm[i]));
  }
  return version == CUDART_VERSION && prop.pciBusID == 1 && got[0] == 3 && got[1] == 3 ? 0 : 2;
}
