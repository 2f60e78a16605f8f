// one_process.c: one thread drives several ranks: ncclCommInitAll makes them, groups issue their calls together.
#include "../check.h"

enum { MOST = 4, COUNT = 1 << 16 };

int main(void)
{
  ncclComm_t comm[MOST];
  cudaStream_t stream[MOST];
  float *data[MOST], *host;
  int n = ranks(MOST), wrong = 0;

  NCCL(ncclCommInitAll(comm, n, NULL)); // rank i on device i
  CUDA(cudaMallocHost((void **)&host, COUNT * sizeof *host));
  for (int i = 0; i < n; i++) {
    CUDA(cudaSetDevice(i)); // what follows belongs to this device
    CUDA(cudaStreamCreate(&stream[i]));
    CUDA(cudaMalloc((void **)&data[i], COUNT * sizeof *host));
    for (int k = 0; k < COUNT; k++) {
      host[k] = (float)(i + 1);
    }
    CUDA(cudaMemcpy(data[i], host, COUNT * sizeof *host, cudaMemcpyHostToDevice));
  }

  NCCL(ncclGroupStart()); // one thread, several ranks: without the group the first call might wait for the others
  for (int i = 0; i < n; i++) {
    NCCL(ncclAllReduce(data[i], data[i], COUNT, ncclFloat, ncclSum, comm[i], stream[i]));
  }
  NCCL(ncclGroupEnd());

  for (int i = 0; i < n; i++) {
    CUDA(cudaSetDevice(i));
    CUDA(cudaMemcpyAsync(host, data[i], COUNT * sizeof *host, cudaMemcpyDeviceToHost, stream[i]));
    CUDA(cudaStreamSynchronize(stream[i])); // the result is there when the stream has passed the operation
    for (int k = 0; k < COUNT; k++) {
      wrong += host[k] != (float)(n * (n + 1) / 2);
    }
    printf("rank %d of %d: %g\n", i, n, (double)host[0]);
  }

  for (int i = 0; i < n; i++) {
    CUDA(cudaSetDevice(i));
    CUDA(cudaFree(data[i]));
    CUDA(cudaStreamDestroy(stream[i]));
    NCCL(ncclCommDestroy(comm[i]));
  }
  CUDA(cudaFreeHost(host));
  printf("%s\n", wrong == 0 ? "all ranks have the sum" : "wrong");
  return wrong != 0;
}
