// driver.c: built with our cuda.h, and with NVIDIA's where there is one: what the driver's functions on host devices
// say to its prototypes, types and numbers.
#include <cuda.h>
#include <cudaProfiler.h>
#include <cudaTypedefs.h>
#include <stdio.h>
#include <string.h>

static int failed;

#define CHECK(condition)                                     \
  do {                                                       \
    if (!(condition)) {                                      \
      printf("line %d: not so: %s\n", __LINE__, #condition); \
      failed = 1;                                            \
    }                                                        \
  } while (0)
#define OK(call) CHECK((call) == CUDA_SUCCESS)

static void check_device(void)
{
  CUdevice device, again;
  CUcontext context, current;
  CUuuid id;
  char name[80] = "", bus[16];
  const char *error;
  size_t bytes = 0;
  int n = 0, value = -1;
  OK(cuInit(0));
  OK(cuDeviceGetCount(&n));
  CHECK(n > 0);
  OK(cuDeviceGet(&device, n - 1));
  CHECK(cuDeviceGet(&again, n) == CUDA_ERROR_INVALID_DEVICE);
  OK(cuDevicePrimaryCtxRetain(&context, device));
  OK(cuCtxSetCurrent(context));
  OK(cuCtxGetCurrent(&current));
  CHECK(current == context);
  OK(cuCtxGetDevice(&again));
  CHECK(again == device);
  CHECK(cuCtxSetCurrent((CUcontext)(size_t)99999) == CUDA_ERROR_INVALID_CONTEXT);
  OK(cuDeviceGetName(name, sizeof name, device));
  CHECK(strncmp(name, "Host device", 11) == 0);
  OK(cuDeviceGetUuid(&id, device));
  OK(cuDeviceGetPCIBusId(bus, sizeof bus, device));
  OK(cuDeviceTotalMem(&bytes, device));
  CHECK(bytes > 0);
  OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, device));
  CHECK(value == 1);
  OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, device));
  CHECK(value == 0);
  OK(cuDevicePrimaryCtxRelease(device));
  OK(cuGetErrorName(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, &error));
  CHECK(strcmp(error, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED") == 0);
}

static void check_memory(void)
{
  CUdeviceptr p = 0, base = 0;
  CUstream stream;
  CUmemorytype kind = 0;
  CUcontext context = NULL;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_CONTEXT};
  void *into[] = {&kind, &context};
  size_t size = 0;
  char in[100], out[100] = "";
  memset(in, 3, sizeof in);
  OK(cuMemAlloc(&p, sizeof in));
  OK(cuMemGetAddressRange(&base, &size, p + 1));
  CHECK(base == p && size == sizeof in);
  OK(cuPointerGetAttributes(2, which, into, p));
  CHECK(kind == CU_MEMORYTYPE_DEVICE && context != NULL);
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuMemcpyHtoDAsync(p, in, sizeof in, stream));
  OK(cuMemcpyDtoHAsync(out, p, sizeof out, stream));
  OK(cuStreamSynchronize(stream));
  CHECK(memcmp(in, out, sizeof in) == 0);
  OK(cuMemsetD8(p, 8, sizeof in));
  OK(cuMemcpyDtoHAsync(out, p, sizeof out, stream));
  OK(cuStreamSynchronize(stream));
  CHECK(out[0] == 8 && out[99] == 8);
  OK(cuStreamDestroy(stream));
  OK(cuMemFree(p));
  OK(cuMemHostRegister(in, sizeof in, 0));
  OK(cuMemHostGetDevicePointer(&p, in, 0));
  CHECK(p == (CUdeviceptr)(size_t)in);
  OK(cuMemHostUnregister(in));
  CHECK(cuMemHostUnregister(in) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  CHECK(cuMemCreate(&handle, 1 << 21, &prop, 0) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(cuMemUnmap(p, 1 << 21) == CUDA_ERROR_NOT_SUPPORTED);
  OK(cuThreadExchangeStreamCaptureMode(&mode));
}

// One stream's write and the program's store let others go on; the same in a graph.
static void check_values(void)
{
  CUstream a, b;
  CUdeviceptr p;
  CUgraph graph;
  CUgraphExec exec;
  CUgraphNode node;
  CUgraphNodeType type;
  CUstreamBatchMemOpParams batch[2] = {{.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32},
                                       {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64}};
  void *memory;
  size_t count = 1;
  OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
  OK(cuMemHostAlloc(&memory, 64, CU_MEMHOSTALLOC_PORTABLE));
  memset(memory, 0, 64);
  OK(cuMemHostGetDevicePointer(&p, memory, 0));
  OK(cuStreamWaitValue32(b, p, 1, CU_STREAM_WAIT_VALUE_EQ));
  CHECK(cuStreamQuery(b) == CUDA_ERROR_NOT_READY);
  OK(cuStreamWriteValue32(a, p, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
  OK(cuStreamSynchronize(b));
  batch[0].writeValue.address = p + 4;
  batch[0].writeValue.value = 7;
  batch[1].waitValue.address = p + 8;
  batch[1].waitValue.value64 = 9;
  batch[1].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  OK(cuStreamBatchMemOp(a, 2, batch, 0));
  CHECK(cuStreamQuery(a) == CUDA_ERROR_NOT_READY);
  __atomic_store_n((unsigned long long *)memory + 1, 9, __ATOMIC_SEQ_CST);
  OK(cuStreamSynchronize(a));
  CHECK(((unsigned *)memory)[1] == 7);
  CHECK(cuStreamWriteValue32(a, p + 1, 1, 0) == CUDA_ERROR_INVALID_VALUE);
  OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuStreamWriteValue64(a, p, 44, 0));
  OK(cuStreamEndCapture(a, &graph));
  OK(cuGraphGetNodes(graph, &node, &count));
  OK(cuGraphNodeGetType(node, &type));
  CHECK(type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  OK(cuGraphInstantiate(&exec, graph, 0));
  OK(cuGraphLaunch(exec, a));
  OK(cuStreamSynchronize(a));
  CHECK(*(unsigned long long *)memory == 44);
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  OK(cuMemFreeHost(memory));
  OK(cuStreamDestroy(a));
  OK(cuStreamDestroy(b));
}

// A matrix and a box of it, elements of 16 and 32 bits; a context, a limit, code for a GPU.
static void check_rows(void)
{
  CUdeviceptr p;
  CUcontext context;
  CUmodule module;
  CUdevice device = -1;
  unsigned got[2][3];
  unsigned short words[4];
  size_t pitch = 0, limit;
  OK(cuMemAllocPitch(&p, &pitch, 64, 4, 4));
  OK(cuMemsetD2D32(p, pitch, 0x01020304, 16, 4));
  OK(cuMemsetD16(p + pitch + 4, 0x0506, 4));
  CUDA_MEMCPY2D rows = {.srcXInBytes = 4,
                        .srcY = 1,
                        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                        .srcDevice = p,
                        .srcPitch = pitch,
                        .dstMemoryType = CU_MEMORYTYPE_HOST,
                        .dstHost = got,
                        .dstPitch = sizeof got[0],
                        .WidthInBytes = sizeof got[0],
                        .Height = 2};
  OK(cuMemcpy2D(&rows));
  CHECK(got[0][0] == 0x05060506 && got[0][1] == 0x05060506 && got[0][2] == 0x01020304 && got[1][0] == 0x01020304);
  CUDA_MEMCPY3D box = {.srcXInBytes = 4,
                       .srcZ = 1,
                       .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                       .srcDevice = p,
                       .srcPitch = pitch,
                       .srcHeight = 1,
                       .dstMemoryType = CU_MEMORYTYPE_HOST,
                       .dstHost = words,
                       .dstPitch = 4,
                       .dstHeight = 1,
                       .WidthInBytes = 4,
                       .Height = 1,
                       .Depth = 2};
  OK(cuMemcpy3D(&box));
  CHECK(words[0] == 0x0506 && words[1] == 0x0506 && words[2] == 0x0304 && words[3] == 0x0102);
  OK(cuMemFree(p));
  OK(cuDeviceGet(&device, 0));
  OK(cuDevicePrimaryCtxRetain(&context, device));
  OK(cuCtxPushCurrent(context));
  OK(cuCtxPopCurrent(&context));
  CHECK(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE) == CUDA_ERROR_UNSUPPORTED_LIMIT);
  CHECK(cuModuleLoad(&module, "none") == CUDA_ERROR_NO_BINARY_FOR_GPU);
  OK(cuProfilerStart());
  OK(cuProfilerStop());
}

// A function found by name and version, through the type that has both in its name.
static void check_typedefs(void)
{
  PFN_cuDeviceGetAttribute_v2000 attribute = NULL;
  PFN_cuMemcpyAsync_v7000_ptsz copy = NULL;
  PFN_cuMemCreate_v10020 create = NULL;
  CUmemGenericAllocationHandle handle;
  void *found = NULL;
  int value = 0;
  OK(cuGetProcAddress("cuDeviceGetAttribute", &found, 2000, CU_GET_PROC_ADDRESS_DEFAULT, NULL));
  memcpy(&attribute, &found, sizeof attribute);
  OK(attribute(&value, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 0));
  CHECK(value == 1);
  OK(cuGetProcAddress("cuMemcpyAsync", &found, 7000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
  memcpy(&copy, &found, sizeof copy);
  OK(copy(0, 0, 0, NULL));
  OK(cuGetProcAddress("cuMemCreate", &found, 10020, CU_GET_PROC_ADDRESS_DEFAULT, NULL));
  memcpy(&create, &found, sizeof create);
  CHECK(create(&handle, 1 << 21, NULL, 0) == CUDA_ERROR_NOT_SUPPORTED);
}

static void check_entry_points(void)
{
  CUdriverProcAddressQueryResult status;
  CUresult (*version)(int *) = NULL;
  void *found = NULL;
  int number = 0;
  OK(cuGetProcAddress("cuDriverGetVersion", &found, CUDA_VERSION, CU_GET_PROC_ADDRESS_DEFAULT, &status));
  CHECK(status == CU_GET_PROC_ADDRESS_SUCCESS);
  memcpy(&version, &found, sizeof version);
  OK(version(&number));
  CHECK(number >= 12000);
  CHECK(cuGetProcAddress("cuNone", &found, CUDA_VERSION, CU_GET_PROC_ADDRESS_DEFAULT, &status) == CUDA_ERROR_NOT_FOUND);
  CHECK(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND && found == NULL);
}

int main(void)
{
  check_device();
  check_memory();
  check_values();
  check_rows();
  check_typedefs();
  check_entry_points();
  return failed;
}
