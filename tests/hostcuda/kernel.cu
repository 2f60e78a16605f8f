// kernel.cu: a program with a kernel, built by nvcc against NVIDIA's runtime: it loads with ours, its host functions work, its structures
// have the layout that it was compiled with, and the launch fails as on a device that it has no code for.
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>

static int wrong;
#define WANT(condition)                                 \
  if (!(condition)) {                                   \
    printf("line %d: not %s\n", __LINE__, #condition);  \
    wrong = 1;                                          \
  }
#define OK(call) WANT((call) == cudaSuccess)

__managed__ int managed;
__device__ int variable;

__global__ void kernel(int *p)
{
  *p = 1;
}

int main()
{
  cudaDeviceProp prop;
  struct {
    cudaPointerAttributes attributes;
    char behind[8];
  } a;
  int version = 0, *device, *symbol, in[100], out[100] = {0};
  cudaStream_t stream;
  cudaEvent_t begin, end;
  cudaStreamCaptureStatus capturing;
  float ms;
  memset(&prop, 0xff, sizeof prop);
  memset(&a, 0x5a, sizeof a);
  for (int i = 0; i < 100; i++) {
    in[i] = i;
  }
  OK(cudaRuntimeGetVersion(&version));
  WANT(version / 1000 == CUDART_VERSION / 1000);
  OK(cudaGetDeviceProperties(&prop, 1));
  WANT(prop.pciBusID == 1 && prop.unifiedAddressing == 1 && prop.ipcEventSupported == 1 && prop.maxThreadsPerBlock == 1024 && prop.maxGridSize[1] == 65535 && prop.major == 9);
  WANT(prop.reserved[sizeof prop.reserved / sizeof prop.reserved[0] - 1] == 0);
  OK(cudaMalloc(&device, sizeof in));
  OK(cudaPointerGetAttributes(&a.attributes, device));
  WANT(a.attributes.type == cudaMemoryTypeDevice && a.attributes.devicePointer == device && a.behind[0] == 0x5a);
  OK(cudaStreamCreate(&stream));
  OK(cudaEventCreate(&begin));
  OK(cudaEventCreate(&end));
  OK(cudaEventRecord(begin, stream));
  OK(cudaMemcpyAsync(device, in, sizeof in, cudaMemcpyHostToDevice, stream));
  OK(cudaMemcpyAsync(out, device, sizeof in, cudaMemcpyDeviceToHost, stream));
  OK(cudaEventRecord(end, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaEventElapsedTime(&ms, begin, end));
  WANT(memcmp(in, out, sizeof in) == 0);
  OK(cudaStreamIsCapturing(stream, &capturing));
  WANT(capturing == cudaStreamCaptureStatusNone);
  managed = 7;
  WANT(managed == 7);
  kernel<<<1, 1, 0, stream>>>(device);
  WANT(cudaGetLastError() == cudaErrorNoKernelImageForDevice);
  WANT(cudaGetSymbolAddress((void **)&symbol, variable) == cudaErrorInvalidSymbol);
  OK(cudaFree(device));
  return wrong;
}
