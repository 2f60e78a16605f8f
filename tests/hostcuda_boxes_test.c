// hostcuda_boxes_test.c: copies and fills of rows and boxes by the runtime and by the driver, each element against a
// plain loop; contexts and what is set for them; what needs a GPU.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <cudaTypedefs.h>
#include <cuda_runtime.h>
#include <string.h>

#define OK(call) assert_int_equal((call), 0)
#define GIVES(error, call) assert_int_equal((call), (error))

// The driver's function of this name and version, as a program finds it.
#define FIND(name, since) PFN_##name##_v##since name##_ = (PFN_##name##_v##since)found(#name, since)
typedef void (*function)(void);

static function found(const char *name, unsigned since)
{
  void *ptr = NULL;
  function f;
  enum cudaDriverEntryPointQueryResult status;
  OK(cudaGetDriverEntryPointByVersion(name, &ptr, since, cudaEnableDefault, &status));
  assert_int_equal(status, cudaDriverEntryPointSuccess);
  memcpy(&f, &ptr, sizeof f);
  return f;
}

enum { W = 12, H = 5, D = 4, PITCH = 20, ROWS = 7, PLANE = PITCH * ROWS, BYTES = PLANE * (D + 1) };
static unsigned char from[BYTES], to[BYTES], want[BYTES];

// Bytes that differ, and what a copy of the box from (sx, sy, sz) to (dx, dy, dz) makes of `to`.
static void expect(const size_t d[3], const size_t s[3], size_t w, size_t h, size_t depth)
{
  for (int i = 0; i < BYTES; i++) {
    from[i] = (unsigned char)(i * 7 + i / 251);
    to[i] = want[i] = 0xee;
  }
  for (size_t z = 0; z < depth; z++) {
    for (size_t y = 0; y < h; y++) {
      for (size_t x = 0; x < w; x++) {
        want[(d[2] + z) * PLANE + (d[1] + y) * PITCH + d[0] + x] =
            from[(s[2] + z) * PLANE + (s[1] + y) * PITCH + s[0] + x];
      }
    }
  }
}

static const size_t there[3] = {3, 1, 1}, here[3] = {5, 2, 0}, origin[3] = {0, 0, 0};

static struct cudaPitchedPtr whole(void *p)
{
  return (struct cudaPitchedPtr){.ptr = p, .pitch = PITCH, .xsize = PITCH, .ysize = ROWS};
}

static void test_runtime_boxes(void **state)
{
  (void)state;
  struct cudaMemcpy3DParms c = {.srcPtr = whole(from),
                                .srcPos = {here[0], here[1], here[2]},
                                .dstPtr = whole(to),
                                .dstPos = {there[0], there[1], there[2]},
                                .extent = {W, H, D},
                                .kind = cudaMemcpyDefault};
  expect(there, here, W, H, D);
  OK(cudaMemcpy3D(&c));
  assert_memory_equal(to, want, BYTES);
  // In a stream, through device memory of other pitches.
  struct cudaPitchedPtr device;
  OK(cudaMalloc3D(&device, (struct cudaExtent){W, H, D}));
  assert_true(device.pitch >= W && device.pitch % 512 == 0 && device.xsize == W && device.ysize == H);
  cudaStream_t s;
  OK(cudaStreamCreate(&s));
  expect(there, here, W, H, D);
  struct cudaMemcpy3DParms in = c, out = c;
  in.dstPtr = out.srcPtr = device;
  in.dstPos = out.srcPos = (struct cudaPos){0, 0, 0};
  OK(cudaMemcpy3DAsync(&in, s));
  OK(cudaMemcpy3DAsync(&out, s));
  OK(cudaStreamSynchronize(s));
  assert_memory_equal(to, want, BYTES);
  // Fills: rows and planes beyond the extent stay.
  memset(to, 1, BYTES);
  memset(want, 1, BYTES);
  for (int i = 0; i < 2 * H * W; i++) {
    want[i / (H * W) * PLANE + i % (H * W) / W * PITCH + i % W] = 9;
  }
  OK(cudaMemset3DAsync(whole(to), 9, (struct cudaExtent){W, H, 2}, s));
  OK(cudaStreamSynchronize(s));
  assert_memory_equal(to, want, BYTES);
  OK(cudaMemset3D(whole(to), 1, (struct cudaExtent){W, H, 2}));
  for (int i = 0; i < BYTES; i++) {
    assert_int_equal(to[i], 1);
  }
  OK(cudaStreamDestroy(s));
  OK(cudaFree(device.ptr));
}

static void test_runtime_refusals(void **state)
{
  (void)state;
  struct cudaMemcpy3DParms c = {.srcPtr = whole(from),
                                .dstPtr = whole(to),
                                .extent = {W, H, D},
                                .kind = cudaMemcpyDefault},
                           bad = c;
  GIVES(cudaErrorInvalidValue, cudaMemcpy3D(NULL));
  bad.srcArray = (cudaArray_t)from;
  GIVES(cudaErrorNotSupported, cudaMemcpy3D(&bad));
  bad = c;
  bad.dstPtr.ptr = NULL;
  GIVES(cudaErrorInvalidValue, cudaMemcpy3D(&bad));
  bad = c;
  bad.extent.width = PITCH + 1;
  GIVES(cudaErrorInvalidPitchValue, cudaMemcpy3D(&bad));
  bad = c;
  bad.kind = (enum cudaMemcpyKind)9;
  GIVES(cudaErrorInvalidMemcpyDirection, cudaMemcpy3D(&bad));
  bad = c;
  bad.extent.depth = SIZE_MAX / 2;
  GIVES(cudaErrorInvalidValue, cudaMemcpy3D(&bad));
  memset(to, 3, BYTES);
  bad = c;
  bad.extent.height = 0; // nothing
  OK(cudaMemcpy3D(&bad));
  assert_int_equal(to[0], 3);
  GIVES(cudaErrorInvalidPitchValue, cudaMemset3D(whole(to), 1, (struct cudaExtent){PITCH + 1, 1, 1}));
  GIVES(cudaErrorInvalidValue, cudaMalloc3D(NULL, (struct cudaExtent){1, 1, 1}));
  cudaGetLastError();
}

static CUdeviceptr ptr_of(void *p)
{
  return (CUdeviceptr)(uintptr_t)p;
}

static void test_driver_rows_and_boxes(void **state)
{
  (void)state;
  FIND(cuMemcpy2D, 3020);
  FIND(cuMemcpy2DUnaligned, 3020);
  FIND(cuMemcpy2DAsync, 3020);
  FIND(cuMemcpy3D, 3020);
  FIND(cuMemcpy3DAsync, 3020);
  CUDA_MEMCPY2D rows = {.srcXInBytes = here[0],
                        .srcY = here[1],
                        .srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = from,
                        .srcPitch = PITCH,
                        .dstXInBytes = there[0],
                        .dstY = there[1],
                        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                        .dstDevice = ptr_of(to),
                        .dstPitch = PITCH,
                        .WidthInBytes = W,
                        .Height = H};
  const size_t d[3] = {there[0], there[1], 0};
  expect(d, here, W, H, 1);
  OK(cuMemcpy2D_(&rows));
  assert_memory_equal(to, want, BYTES);
  expect(d, here, W, H, 1);
  OK(cuMemcpy2DUnaligned_(&rows));
  assert_memory_equal(to, want, BYTES);
  expect(d, here, W, H, 1);
  OK(cuMemcpy2DAsync_(&rows, NULL));
  OK(cudaDeviceSynchronize());
  assert_memory_equal(to, want, BYTES);
  CUDA_MEMCPY3D box = {.srcXInBytes = here[0],
                       .srcY = here[1],
                       .srcZ = here[2],
                       .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                       .srcDevice = ptr_of(from),
                       .srcPitch = PITCH,
                       .srcHeight = ROWS,
                       .dstXInBytes = there[0],
                       .dstY = there[1],
                       .dstZ = there[2],
                       .dstMemoryType = CU_MEMORYTYPE_HOST,
                       .dstHost = to,
                       .dstPitch = PITCH,
                       .dstHeight = ROWS,
                       .WidthInBytes = W,
                       .Height = H,
                       .Depth = D};
  expect(there, here, W, H, D);
  OK(cuMemcpy3D_(&box));
  assert_memory_equal(to, want, BYTES);
  expect(there, here, W, H, D);
  OK(cuMemcpy3DAsync_(&box, NULL));
  OK(cudaDeviceSynchronize());
  assert_memory_equal(to, want, BYTES);
  // Without gaps; and one plane, whose rows of a plane need not be said.
  box.srcXInBytes = box.srcY = box.srcZ = box.dstXInBytes = box.dstY = box.dstZ = 0;
  box.WidthInBytes = PITCH;
  box.Height = ROWS;
  expect(origin, origin, PITCH, ROWS, D);
  OK(cuMemcpy3D_(&box));
  assert_memory_equal(to, want, BYTES);
  box.Depth = 1;
  box.srcHeight = box.dstHeight = 0;
  expect(origin, origin, PITCH, ROWS, 1);
  OK(cuMemcpy3D_(&box));
  assert_memory_equal(to, want, BYTES);
  box.Depth = 2;
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D_(&box));
  box.Depth = 1;
  box.srcLOD = 1;
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D_(&box));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_(NULL));
  rows.dstPitch = W + there[0] - 1;
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_(&rows));
  rows.dstPitch = PITCH;
  rows.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  GIVES(CUDA_ERROR_NOT_SUPPORTED, cuMemcpy2D_(&rows));
  rows.dstMemoryType = (CUmemorytype)0;
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_(&rows));
  assert_int_equal(cudaGetLastError(), cudaSuccess);
}

static void test_driver_fills(void **state)
{
  enum { N = 1001 };
  static uint16_t narrow[N + 1];
  static uint32_t wide[N + 1], area[4][8];
  (void)state;
  FIND(cuMemsetD16, 3020);
  FIND(cuMemsetD32, 3020);
  FIND(cuMemsetD16Async, 3020);
  FIND(cuMemsetD2D8, 3020);
  FIND(cuMemsetD2D16, 3020);
  FIND(cuMemsetD2D32, 3020);
  FIND(cuMemsetD2D32Async, 3020);
  OK(cuMemsetD16_(ptr_of(narrow), 0x1234, N));
  OK(cuMemsetD32_(ptr_of(wide), 0x12345678, N));
  for (int i = 0; i <= N; i++) {
    assert_int_equal(narrow[i], i < N ? 0x1234 : 0);
    assert_int_equal(wide[i], i < N ? 0x12345678 : 0);
  }
  OK(cuMemsetD16Async_(ptr_of(narrow), 0x7f01, N, NULL));
  OK(cuMemsetD2D32_(ptr_of(area), sizeof area[0], 0xaabbccdd, 3, 4));
  OK(cuMemsetD2D32Async_(ptr_of(&area[1][4]), sizeof area[0], 7, 2, 2, NULL));
  OK(cudaDeviceSynchronize());
  assert_int_equal(narrow[N - 1], 0x7f01);
  for (int y = 0; y < 4; y++) {
    for (int x = 0; x < 8; x++) {
      uint32_t expected = x < 3 ? 0xaabbccdd : (x == 4 || x == 5) && (y == 1 || y == 2) ? 7 : 0;
      assert_int_equal(area[y][x], expected);
    }
  }
  OK(cuMemsetD2D16_(ptr_of(area), sizeof area[0], 0x0102, 2, 1));
  assert_int_equal(area[0][0], 0x01020102);
  OK(cuMemsetD2D8_(ptr_of(area), sizeof area[0], 5, 4, 2));
  assert_int_equal(area[1][0], 0x05050505);
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemsetD16_(ptr_of(narrow) + 1, 1, 1));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_(ptr_of(wide) + 2, 1, 1));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D32_(ptr_of(area), 8, 1, 3, 2));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_(ptr_of(wide), 1, SIZE_MAX / 2));
}

// A graph fills with any value of 1, 2 or 4 bytes.
static void test_graph_fills(void **state)
{
  static uint32_t area[6];
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaGraphNode_t first, second;
  (void)state;
  struct cudaMemsetParams wide = {.dst = area, .value = 0x01020304, .elementSize = 4, .width = 5, .height = 1};
  struct cudaMemsetParams narrow = {
      .dst = area, .value = 0x0506, .elementSize = 2, .width = 1, .height = 2, .pitch = 8};
  OK(cudaGraphCreate(&graph, 0));
  struct cudaMemsetParams huge = wide; // its bytes would be none again
  huge.width = SIZE_MAX / huge.elementSize + 1;
  GIVES(cudaErrorInvalidValue, cudaGraphAddMemsetNode(&first, graph, NULL, 0, &huge));
  assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
  OK(cudaGraphAddMemsetNode(&first, graph, NULL, 0, &wide));
  OK(cudaGraphAddMemsetNode(&second, graph, &first, 1, &narrow));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphLaunch(exec, NULL));
  OK(cudaDeviceSynchronize());
  const uint32_t expected[6] = {0x01020506, 0x01020304, 0x01020506, 0x01020304, 0x01020304, 0};
  assert_memory_equal(area, expected, sizeof area);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
}

static void test_peers_and_pitch(void **state)
{
  (void)state;
  FIND(cuDevicePrimaryCtxRetain, 7000);
  FIND(cuMemAllocPitch, 3020);
  FIND(cuMemFree, 3020);
  FIND(cuMemcpyPeer, 4000);
  FIND(cuMemcpyPeerAsync, 4000);
  CUcontext zero, one;
  CUdeviceptr p = 0;
  size_t pitch = 0;
  OK(cuDevicePrimaryCtxRetain_(&zero, 0));
  OK(cuDevicePrimaryCtxRetain_(&one, 1));
  OK(cuMemAllocPitch_(&p, &pitch, 100, 3, 4));
  assert_true(pitch >= 100);
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch_(&p, &pitch, 100, 3, 5));
  memset(from, 8, 100);
  memset(to, 0, 100);
  OK(cuMemcpyPeer_(p, one, ptr_of(from), zero, 100));
  OK(cuMemcpyPeerAsync_(ptr_of(to), zero, p, one, 100, NULL));
  OK(cudaDeviceSynchronize());
  assert_memory_equal(to, from, 100);
  GIVES(CUDA_ERROR_INVALID_CONTEXT, cuMemcpyPeer_(p, (CUcontext)(intptr_t)5000, p, zero, 1));
  OK(cuMemFree_(p));
}

static void test_contexts(void **state)
{
  (void)state;
  FIND(cuCtxCreate, 3020);
  PFN_cuCtxCreate_v11040 with_affinity = (PFN_cuCtxCreate_v11040)found("cuCtxCreate", 11040);
  PFN_cuCtxCreate_v12050 newest = (PFN_cuCtxCreate_v12050)found("cuCtxCreate", 12050);
  FIND(cuCtxDestroy, 4000);
  FIND(cuCtxGetDevice, 2000);
  FIND(cuCtxGetApiVersion, 3020);
  CUcontext context = NULL, other = NULL;
  CUdevice device = -1;
  unsigned version = 0;
  OK(cuCtxCreate_(&context, CU_CTX_SCHED_YIELD, 2));
  OK(cuCtxGetDevice_(&device));
  assert_int_equal(device, 2);
  OK(with_affinity(&other, NULL, 0, 0, 1));
  OK(newest(&other, NULL, 0, 3));
  OK(cuCtxGetDevice_(&device));
  assert_int_equal(device, 3);
  OK(cuCtxGetApiVersion_(other, &version));
  assert_int_equal(version, 3020);
  OK(cuCtxDestroy_(context)); // not the thread's own: stays
  OK(cuCtxGetDevice_(&device));
  assert_int_equal(device, 3);
  OK(cuCtxDestroy_(other));
  OK(cuCtxGetDevice_(&device));
  assert_int_equal(device, 1);
  CUexecAffinityParam affinity = {.type = CU_EXEC_AFFINITY_TYPE_SM_COUNT, .param = {.smCount = {.val = 1}}};
  CUctxCreateParams params = {.execAffinityParams = &affinity, .numExecAffinityParams = 1};
  GIVES(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, with_affinity(&other, &affinity, 1, 0, 1));
  GIVES(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, newest(&other, &params, 0, 1));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuCtxCreate_(NULL, 0, 0));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuCtxCreate_(&other, 1u << 20, 0));
  GIVES(CUDA_ERROR_INVALID_DEVICE, cuCtxCreate_(&other, 0, -1));
  GIVES(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_(NULL));
  OK(cudaSetDevice(0));
}

static void test_settings(void **state)
{
  (void)state;
  FIND(cuCtxSetFlags, 12010);
  FIND(cuCtxGetFlags, 7000);
  FIND(cuDevicePrimaryCtxSetFlags, 11000);
  FIND(cuDevicePrimaryCtxGetState, 7000);
  FIND(cuCtxGetLimit, 3010);
  FIND(cuCtxSetLimit, 3010);
  FIND(cuCtxGetCacheConfig, 3020);
  FIND(cuCtxGetStreamPriorityRange, 5050);
  FIND(cuDeviceComputeCapability, 2000);
  FIND(cuDeviceGetP2PAttribute, 8000);
  FIND(cuGetErrorName, 6000);
  unsigned flags = 0;
  int active = 0, major = 0, minor = -1, least = 9, greatest = 9, value = 0;
  size_t limit = 0;
  CUfunc_cache cache = CU_FUNC_CACHE_PREFER_L1;
  const char *name = NULL;
  OK(cuCtxSetFlags_(CU_CTX_SCHED_YIELD));
  OK(cuCtxGetFlags_(&flags));
  assert_int_equal(flags & CU_CTX_SCHED_MASK, CU_CTX_SCHED_YIELD);
  OK(cuDevicePrimaryCtxSetFlags_(3, CU_CTX_SCHED_SPIN));
  OK(cuDevicePrimaryCtxGetState_(3, &flags, &active));
  assert_int_equal(flags & CU_CTX_SCHED_MASK, CU_CTX_SCHED_SPIN);
  assert_int_equal(active, 1);
  OK(cuCtxGetFlags_(&flags)); // the thread's device is as it was
  assert_int_equal(flags & CU_CTX_SCHED_MASK, CU_CTX_SCHED_YIELD);
  OK(cuCtxSetFlags_(0));
  GIVES(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxGetLimit_(&limit, CU_LIMIT_STACK_SIZE));
  GIVES(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxSetLimit_(CU_LIMIT_MALLOC_HEAP_SIZE, 1 << 20));
  OK(cuGetErrorName_(CUDA_ERROR_UNSUPPORTED_LIMIT, &name));
  assert_string_equal(name, "CUDA_ERROR_UNSUPPORTED_LIMIT");
  OK(cuCtxGetCacheConfig_(&cache));
  assert_int_equal(cache, CU_FUNC_CACHE_PREFER_NONE);
  OK(cuCtxGetStreamPriorityRange_(&least, &greatest));
  assert_int_equal(least, 0);
  assert_int_equal(greatest, 0);
  OK(cuDeviceComputeCapability_(&major, &minor, 0));
  assert_true(major == 9 && minor == 0);
  OK(cuDeviceGetP2PAttribute_(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
  assert_int_equal(value, 1);
  assert_int_equal(cudaGetLastError(), cudaSuccess);
}

static void test_hints_and_kernels(void **state)
{
  (void)state;
  FIND(cuMemAdvise, 8000);
  FIND(cuMemPrefetchAsync, 8000);
  FIND(cuProfilerStart, 4000);
  FIND(cuProfilerStop, 4000);
  FIND(cuStreamGetDevice, 12080);
  FIND(cuModuleLoad, 2000);
  FIND(cuFuncGetAttribute, 2020);
  FIND(cuOccupancyMaxPotentialBlockSize, 6050);
  PFN_cuMemAdvise_v12020 advise = (PFN_cuMemAdvise_v12020)found("cuMemAdvise", 12020);
  PFN_cuMemPrefetchAsync_v12020 prefetch = (PFN_cuMemPrefetchAsync_v12020)found("cuMemPrefetchAsync", 12020);
  CUmemLocation place = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
  CUmodule module;
  CUdevice device = -1;
  int value;
  OK(cuMemAdvise_(ptr_of(to), 8, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
  OK(advise(ptr_of(to), 8, CU_MEM_ADVISE_SET_READ_MOSTLY, place));
  OK(cuMemPrefetchAsync_(ptr_of(to), 8, 0, NULL));
  OK(prefetch(ptr_of(to), 8, place, 0, NULL));
  OK(cuProfilerStart_());
  OK(cuProfilerStop_());
  OK(cuStreamGetDevice_(NULL, &device));
  assert_int_equal(device, 0);
  GIVES(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoad_(&module, "kernel.cubin"));
  GIVES(CUDA_ERROR_NO_BINARY_FOR_GPU, cuFuncGetAttribute_(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, NULL));
  GIVES(CUDA_ERROR_NO_BINARY_FOR_GPU, cuOccupancyMaxPotentialBlockSize_(&value, &value, NULL, NULL, 0, 0));
  found("cuImportExternalMemory", 10000);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_runtime_boxes),
      cmocka_unit_test(test_runtime_refusals),
      cmocka_unit_test(test_driver_rows_and_boxes),
      cmocka_unit_test(test_driver_fills),
      cmocka_unit_test(test_graph_fills),
      cmocka_unit_test(test_peers_and_pitch),
      cmocka_unit_test(test_contexts),
      cmocka_unit_test(test_settings),
      cmocka_unit_test(test_hints_and_kernels),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
