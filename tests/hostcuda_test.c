// hostcuda_test.c: the CUDA runtime's names on host devices: what each function answers, when it returns, and what it
// refuses.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OK(call) assert_int_equal((call), cudaSuccess)
// Gives this error, which is also the last one.
#define GIVES(call, error)                             \
  do {                                                 \
    assert_int_equal((call), (error));                 \
    assert_int_equal(cudaGetLastError(), (error));     \
    assert_int_equal(cudaGetLastError(), cudaSuccess); \
  } while (0)

static void sleep_ms(long ms)
{
  nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

// A host function that stays until the gate is open, at most a minute.
typedef struct gate {
  _Atomic int open, inside, passed;
  cudaError_t told;
} gate;

static void stay(void *arg)
{
  gate *g = arg;
  atomic_store(&g->inside, 1);
  for (int i = 0; i < 60000 && !atomic_load(&g->open); i++) {
    sleep_ms(1);
  }
  atomic_fetch_add(&g->passed, 1);
}

// ---- Errors ----

static void *other_thread(void *arg)
{
  (void)arg;
  return (void *)(intptr_t)(cudaGetLastError() == cudaSuccess && cudaSetDevice(-1) == cudaErrorInvalidDevice);
}

static void test_errors(void **state)
{
  pthread_t t;
  void *good;
  int n;
  (void)state;
  OK(cudaGetLastError());
  assert_int_equal(cudaSetDevice(-1), cudaErrorInvalidDevice);
  assert_int_equal(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  OK(cudaGetDevice(&n)); // success does not clear it
  pthread_create(&t, NULL, other_thread, NULL);
  pthread_join(t, &good);
  assert_int_equal((intptr_t)good, 1);
  assert_int_equal(cudaGetLastError(), cudaErrorInvalidDevice);
  assert_int_equal(cudaGetLastError(), cudaSuccess);
  assert_string_equal(cudaGetErrorName(cudaErrorInvalidDevice), "cudaErrorInvalidDevice");
  assert_string_equal(cudaGetErrorString(cudaSuccess), "no error");
  assert_string_equal(cudaGetErrorName((cudaError_t)12345), "unrecognized error code");
  for (int e = 0; e < 1000; e++) {
    assert_true(cudaGetErrorString((cudaError_t)e)[0] != 0 && cudaGetErrorName((cudaError_t)e)[0] != 0);
  }
}

// ---- Devices ----

static void test_devices(void **state)
{
  int count, n, least = 7, greatest = 7;
  char bus[32];
  unsigned flags;
  size_t value, total;
  (void)state;
  OK(cudaGetDeviceCount(&count));
  assert_int_equal(count, 8);
  GIVES(cudaGetDeviceCount(NULL), cudaErrorInvalidValue);
  GIVES(cudaSetDevice(count), cudaErrorInvalidDevice);
  OK(cudaSetDevice(count - 1));
  OK(cudaGetDevice(&n));
  assert_int_equal(n, count - 1);
  OK(cudaDeviceGetPCIBusId(bus, sizeof bus, 5));
  assert_string_equal(bus, "0000:05:00.0");
  OK(cudaDeviceGetByPCIBusId(&n, bus));
  assert_int_equal(n, 5);
  OK(cudaDeviceGetByPCIBusId(&n, "05:00.0"));
  assert_int_equal(n, 5);
  GIVES(cudaDeviceGetByPCIBusId(&n, "0000:99:00.0"), cudaErrorInvalidDevice);
  GIVES(cudaDeviceGetByPCIBusId(&n, "nonsense"), cudaErrorInvalidValue);
  GIVES(cudaDeviceGetPCIBusId(bus, 5, 0), cudaErrorInvalidValue);
  OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  assert_int_equal(least | greatest, 0);
  OK(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
  OK(cudaGetDeviceFlags(&flags));
  assert_int_equal(flags, cudaDeviceScheduleBlockingSync | cudaDeviceMapHost);
  GIVES(cudaSetDeviceFlags(0x1000), cudaErrorInvalidValue);
  OK(cudaMemGetInfo(&value, &total));
  assert_true(value > 0 && value <= total);
  GIVES(cudaDeviceGetLimit(&value, cudaLimitStackSize), cudaErrorUnsupportedLimit);
  OK(cudaDeviceSetCacheConfig(cudaFuncCachePreferL1));
  OK(cudaInitDevice(0, 0, 0));
  GIVES(cudaInitDevice(99, 0, 0), cudaErrorInvalidDevice);
  OK(cudaDeviceReset());
  OK(cudaGetDeviceFlags(&flags));
  assert_int_equal(flags, cudaDeviceMapHost);
  OK(cudaRuntimeGetVersion(&n));
  assert_int_equal(n, CUDART_VERSION);
  OK(cudaDriverGetVersion(&n));
  assert_true(n >= CUDART_VERSION);
  OK(cudaSetDevice(0));
}

static void test_properties(void **state)
{
  struct cudaDeviceProp p, q;
  int n, m;
  (void)state;
  memset(&p, 0xff, sizeof p);
  OK(cudaGetDeviceProperties(&p, 3));
  OK(cudaGetDeviceProperties(&q, 4));
  assert_true(strncmp(p.name, "Host device", 11) == 0);
  assert_memory_not_equal(&p.uuid, &q.uuid, sizeof p.uuid);
  assert_true(p.major == 9 && p.minor == 0); // programs try fp8 from 9.0 on
  assert_true(p.warpSize == 32 && p.maxThreadsPerBlock == 1024 && p.maxThreadsDim[2] == 64 &&
              p.maxGridSize[0] == 2147483647);
  assert_true(p.totalGlobalMem > 0 && p.multiProcessorCount > 0 && p.warpSize > 0 && p.maxThreadsPerBlock > 0);
  assert_int_equal(p.pciBusID, 3);
  assert_int_equal(p.reserved[62], 0);
  GIVES(cudaGetDeviceProperties(&p, 99), cudaErrorInvalidDevice);
  GIVES(cudaGetDeviceProperties(NULL, 0), cudaErrorInvalidValue);
  // Both ways of asking say the same.
  const struct {
    enum cudaDeviceAttr attr;
    int value;
  } same[] = {
      {cudaDevAttrWarpSize, p.warpSize},
      {cudaDevAttrMaxBlockDimX, p.maxThreadsDim[0]},
      {cudaDevAttrMaxBlockDimY, p.maxThreadsDim[1]},
      {cudaDevAttrMaxBlockDimZ, p.maxThreadsDim[2]},
      {cudaDevAttrMaxGridDimX, p.maxGridSize[0]},
      {cudaDevAttrMaxGridDimY, p.maxGridSize[1]},
      {cudaDevAttrMaxGridDimZ, p.maxGridSize[2]},
      {cudaDevAttrMaxSharedMemoryPerBlock, (int)p.sharedMemPerBlock},
      {cudaDevAttrTotalConstantMemory, (int)p.totalConstMem},
      {cudaDevAttrMaxRegistersPerBlock, p.regsPerBlock},
      {cudaDevAttrMaxThreadsPerMultiProcessor, p.maxThreadsPerMultiProcessor},
      {cudaDevAttrMaxBlocksPerMultiprocessor, p.maxBlocksPerMultiProcessor},
      {cudaDevAttrMultiProcessorCount, p.multiProcessorCount},
      {cudaDevAttrIntegrated, p.integrated},
      {cudaDevAttrUnifiedAddressing, p.unifiedAddressing},
      {cudaDevAttrManagedMemory, p.managedMemory},
      {cudaDevAttrConcurrentManagedAccess, p.concurrentManagedAccess},
      {cudaDevAttrComputeCapabilityMajor, p.major},
      {cudaDevAttrCooperativeLaunch, p.cooperativeLaunch},
      {cudaDevAttrMemoryPoolsSupported, p.memoryPoolsSupported},
      {cudaDevAttrIpcEventSupport, p.ipcEventSupported},
      {cudaDevAttrPciBusId, p.pciBusID},
      {cudaDevAttrStreamPrioritiesSupported, p.streamPrioritiesSupported},
      {cudaDevAttrMaxThreadsPerBlock, p.maxThreadsPerBlock},
      {cudaDevAttrAsyncEngineCount, p.asyncEngineCount},
      {cudaDevAttrL2CacheSize, p.l2CacheSize},
      {cudaDevAttrGPUDirectRDMASupported, p.gpuDirectRDMASupported},
  };
  for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
    OK(cudaDeviceGetAttribute(&n, same[i].attr, 3));
    assert_int_equal(n, same[i].value);
  }
  GIVES(cudaDeviceGetAttribute(&n, (enum cudaDeviceAttr)5000, 0), cudaErrorInvalidValue);
  GIVES(cudaDeviceGetAttribute(&n, cudaDevAttrWarpSize, -1), cudaErrorInvalidDevice);
  OK(cudaChooseDevice(&m, &p));
  assert_int_equal(m, 0);
}

static void test_peers(void **state)
{
  int can;
  (void)state;
  OK(cudaSetDevice(1));
  OK(cudaDeviceCanAccessPeer(&can, 1, 2));
  assert_int_equal(can, 1);
  OK(cudaDeviceCanAccessPeer(&can, 1, 1));
  assert_int_equal(can, 0);
  GIVES(cudaDeviceCanAccessPeer(&can, 1, 99), cudaErrorInvalidDevice);
  GIVES(cudaDeviceDisablePeerAccess(2), cudaErrorPeerAccessNotEnabled);
  OK(cudaDeviceEnablePeerAccess(2, 0));
  OK(cudaDeviceEnablePeerAccess(3, 0));
  GIVES(cudaDeviceEnablePeerAccess(2, 0), cudaErrorPeerAccessAlreadyEnabled);
  GIVES(cudaDeviceEnablePeerAccess(1, 0), cudaErrorInvalidDevice);
  GIVES(cudaDeviceEnablePeerAccess(4, 1), cudaErrorInvalidValue);
  OK(cudaSetDevice(2)); // each device has its own
  GIVES(cudaDeviceDisablePeerAccess(3), cudaErrorPeerAccessNotEnabled);
  OK(cudaSetDevice(1));
  OK(cudaDeviceDisablePeerAccess(2));
  OK(cudaDeviceDisablePeerAccess(3));
  OK(cudaDeviceEnablePeerAccess(2, 0));
  OK(cudaDeviceReset());
  GIVES(cudaDeviceDisablePeerAccess(2), cudaErrorPeerAccessNotEnabled);
  OK(cudaDeviceGetP2PAttribute(&can, cudaDevP2PAttrAccessSupported, 0, 1));
  assert_int_equal(can, 1);
  OK(cudaSetDevice(0));
}

// ---- Memory ----

static void expect_kind(const void *p, enum cudaMemoryType type, int device, bool on_device, bool on_host)
{
  struct cudaPointerAttributes a;
  OK(cudaPointerGetAttributes(&a, p));
  assert_int_equal(a.type, type);
  assert_int_equal(a.device, device);
  assert_ptr_equal(a.devicePointer, on_device ? p : NULL);
  assert_ptr_equal(a.hostPointer, on_host ? p : NULL);
}

static void test_memory(void **state)
{
  char *d, *h, *m, *n, local;
  void *p;
  unsigned flags;
  (void)state;
  OK(cudaSetDevice(2));
  OK(cudaMalloc((void **)&d, 1000));
  OK(cudaSetDevice(3));
  OK(cudaHostAlloc((void **)&h, 1000, cudaHostAllocPortable));
  OK(cudaMallocManaged((void **)&m, 1000, cudaMemAttachGlobal));
  assert_int_equal(ncclMemAlloc((void **)&n, 1000), ncclSuccess);
  expect_kind(d + 999, cudaMemoryTypeDevice, 2, true, false);
  expect_kind(h + 1, cudaMemoryTypeHost, 3, true, true);
  expect_kind(m, cudaMemoryTypeManaged, 3, true, true);
  expect_kind(n, cudaMemoryTypeDevice, 3, true, false);
  expect_kind(&local, cudaMemoryTypeUnregistered, cudaInvalidDeviceId, false, true);
  GIVES(cudaPointerGetAttributes(NULL, d), cudaErrorInvalidValue);
  OK(cudaHostGetFlags(&flags, h));
  assert_true((flags & cudaHostAllocPortable) != 0);
  OK(cudaHostGetDevicePointer(&p, h, 0));
  assert_ptr_equal(p, h);
  GIVES(cudaHostGetDevicePointer(&p, &local, 0), cudaErrorInvalidValue);
  // The wrong way to free, and what was never allocated.
  GIVES(cudaFree(h), cudaErrorInvalidValue);
  GIVES(cudaFreeHost(d), cudaErrorInvalidValue);
  GIVES(cudaFree(d + 1), cudaErrorInvalidValue);
  GIVES(cudaFree(&local), cudaErrorInvalidValue);
  GIVES(cudaFree(n), cudaErrorInvalidValue);
  OK(cudaFree(NULL));
  OK(cudaFreeHost(NULL));
  OK(cudaFree(d));
  GIVES(cudaFree(d), cudaErrorInvalidValue);
  expect_kind(d, cudaMemoryTypeUnregistered, cudaInvalidDeviceId, false, true);
  OK(cudaFreeHost(h));
  OK(cudaFree(m));
  assert_int_equal(ncclMemFree(n), ncclSuccess);
  OK(cudaMalloc(&p, 0));
  assert_null(p);
  GIVES(cudaMalloc(NULL, 8), cudaErrorInvalidValue);
  GIVES(cudaMalloc(&p, (size_t)1 << 60), cudaErrorMemoryAllocation);
  GIVES(cudaHostAlloc(&p, 8, 0x100), cudaErrorInvalidValue);
  GIVES(cudaMallocManaged(&p, 8, 0), cudaErrorInvalidValue);
  OK(cudaSetDevice(0));
}

static void test_registered_memory(void **state)
{
  static char mine[10000];
  void *p;
  (void)state;
  OK(cudaHostRegister(mine, sizeof mine, cudaHostRegisterMapped));
  expect_kind(mine + 5000, cudaMemoryTypeHost, 0, true, true);
  GIVES(cudaHostRegister(mine + 100, 10, 0), cudaErrorHostMemoryAlreadyRegistered);
  OK(cudaHostGetDevicePointer(&p, mine + 7, 0));
  assert_ptr_equal(p, mine + 7);
  GIVES(cudaFreeHost(mine), cudaErrorInvalidValue);
  OK(cudaHostUnregister(mine));
  GIVES(cudaHostUnregister(mine), cudaErrorHostMemoryNotRegistered);
  GIVES(cudaHostRegister(NULL, 10, 0), cudaErrorInvalidValue);
  GIVES(cudaHostRegister(mine, 10, 0x100), cudaErrorInvalidValue);
}

static void test_memory_in_stream_order(void **state)
{
  static gate g;
  char *p, host[100];
  cudaMemPool_t pool;
  uint64_t threshold = UINT64_MAX;
  cudaStream_t s;
  (void)state;
  OK(cudaStreamCreate(&s));
  OK(cudaDeviceGetDefaultMemPool(&pool, 0));
  OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &threshold));
  assert_int_equal(threshold, 0);
  OK(cudaMemPoolTrimTo(pool, 0));
  GIVES(cudaMemPoolTrimTo((cudaMemPool_t)12345678, 0), cudaErrorInvalidValue);
  OK(cudaLaunchHostFunc(s, stay, &g));
  OK(cudaMallocAsync((void **)&p, sizeof host, s));
  OK(cudaMemsetAsync(p, 'x', sizeof host, s));
  cudaEvent_t e; // pinned memory would do, too
  OK(cudaEventCreate(&e));
  OK(cudaEventRecord(e, s));
  OK(cudaFreeAsync(p, s));
  expect_kind(p, cudaMemoryTypeDevice, 0, true, false); // not yet
  atomic_store(&g.open, 1);
  OK(cudaStreamSynchronize(s));
  expect_kind(p, cudaMemoryTypeUnregistered, cudaInvalidDeviceId, false, true);
  GIVES(cudaFreeAsync(host, s), cudaErrorInvalidValue);
  GIVES(cudaMallocAsync((void **)&p, 8, (cudaStream_t)host), cudaErrorInvalidResourceHandle);
  OK(cudaFreeAsync(NULL, s));
  OK(cudaEventDestroy(e));
  OK(cudaStreamDestroy(s));
}

// cudaFree waits for work that may use the memory.
static void test_free_waits(void **state)
{
  static gate g;
  char *d, *h;
  cudaStream_t s;
  (void)state;
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  OK(cudaMalloc((void **)&d, 1 << 20));
  OK(cudaMallocHost((void **)&h, 1 << 20));
  OK(cudaLaunchHostFunc(s, stay, &g));
  OK(cudaMemsetAsync(d, 'd', 1 << 20, s));
  OK(cudaMemcpyAsync(h, d, 1 << 20, cudaMemcpyDeviceToHost, s));
  pthread_t t;
  pthread_create(&t, NULL, (void *(*)(void *))(void *)cudaFree, d);
  sleep_ms(20);
  assert_int_equal(cudaStreamQuery(s), cudaErrorNotReady);
  expect_kind(d, cudaMemoryTypeDevice, 0, true, false);
  atomic_store(&g.open, 1);
  pthread_join(t, NULL);
  OK(cudaStreamSynchronize(s));
  assert_int_equal(h[(1 << 20) - 1], 'd');
  OK(cudaFreeHost(h));
  OK(cudaStreamDestroy(s));
  cudaGetLastError();
}

// ---- Copies ----

static void test_copies(void **state)
{
  enum { SIZE = 300000 };
  static char a[SIZE], b[SIZE];
  char *d, *e;
  (void)state;
  for (int i = 0; i < SIZE; i++) {
    a[i] = (char)(i * 7);
  }
  OK(cudaMalloc((void **)&d, SIZE));
  OK(cudaMalloc((void **)&e, SIZE));
  OK(cudaMemcpy(d, a, SIZE, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(e, d, SIZE, cudaMemcpyDeviceToDevice));
  OK(cudaMemcpy(b, e, SIZE, cudaMemcpyDefault));
  assert_memory_equal(a, b, SIZE);
  OK(cudaMemset(d, 3, SIZE));
  OK(cudaMemcpy(b, d, SIZE, cudaMemcpyDeviceToHost));
  assert_int_equal(b[0] + b[SIZE - 1], 6);
  OK(cudaMemcpyPeer(d, 5, e, 6, SIZE));
  OK(cudaMemcpyPeerAsync(e, 6, d, 5, SIZE, NULL));
  OK(cudaMemcpy(b, e, SIZE, cudaMemcpyDeviceToHost));
  assert_memory_equal(a, b, SIZE);
  int now;
  OK(cudaGetDevice(&now));
  assert_int_equal(now, 0);
  OK(cudaMemcpy(NULL, NULL, 0, cudaMemcpyHostToDevice));
  GIVES(cudaMemcpy(NULL, a, 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  GIVES(cudaMemcpy(d, a, 1, (enum cudaMemcpyKind)9), cudaErrorInvalidMemcpyDirection);
  GIVES(cudaMemcpyAsync(d, a, 1, cudaMemcpyHostToDevice, (cudaStream_t)a), cudaErrorInvalidResourceHandle);
  GIVES(cudaMemsetAsync(d, 1, 1, (cudaStream_t)a), cudaErrorInvalidResourceHandle);
  GIVES(cudaMemset(NULL, 1, 1), cudaErrorInvalidValue);
  GIVES(cudaMemcpyPeer(d, 99, e, 0, 1), cudaErrorInvalidDevice);
  OK(cudaFree(d));
  OK(cudaFree(e));
}

static void test_rows(void **state)
{
  enum { W = 100, H = 50, PITCH = 160 };
  static char a[PITCH * H], b[PITCH * H];
  char *d;
  size_t pitch;
  (void)state;
  for (int i = 0; i < PITCH * H; i++) {
    a[i] = (char)i;
  }
  OK(cudaMallocPitch((void **)&d, &pitch, W, H));
  assert_true(pitch >= W && pitch % 512 == 0);
  OK(cudaMemcpy2D(d, pitch, a, PITCH, W, H, cudaMemcpyHostToDevice));
  OK(cudaMemcpy2DAsync(b, PITCH, d, pitch, W, H, cudaMemcpyDeviceToHost, NULL)); // to ordinary memory: is there at once
  for (int y = 0; y < H; y++) {
    assert_memory_equal(a + y * PITCH, b + y * PITCH, W);
    assert_int_equal(b[y * PITCH + W], 0);
  }
  OK(cudaMemset2D(d, pitch, 9, W / 2, H));
  OK(cudaMemcpy2D(b, PITCH, d, pitch, W, H, cudaMemcpyDeviceToHost));
  assert_int_equal(b[PITCH * (H - 1) + W / 2 - 1], 9);
  assert_int_equal(b[PITCH * (H - 1) + W / 2], a[PITCH * (H - 1) + W / 2]);
  GIVES(cudaMemcpy2D(d, W - 1, a, PITCH, W, H, cudaMemcpyHostToDevice), cudaErrorInvalidPitchValue);
  GIVES(cudaMemset2D(d, W - 1, 0, W, H), cudaErrorInvalidPitchValue);
  OK(cudaFree(d));
}

// When a copy returns: CUDA's table.
static void test_when_copies_return(void **state)
{
  enum { SIZE = 4 << 20 };
  static char ordinary[SIZE];
  static gate g;
  char *d, *e, *h;
  cudaStream_t s;
  (void)state;
  OK(cudaStreamCreate(&s));
  OK(cudaMalloc((void **)&d, SIZE));
  OK(cudaMalloc((void **)&e, SIZE));
  OK(cudaMallocHost((void **)&h, SIZE));
  memset(h, 'h', SIZE);
  memset(ordinary, 'o', SIZE);
  OK(cudaLaunchHostFunc(s, stay, &g));
  OK(cudaMemcpyAsync(d, h, SIZE, cudaMemcpyHostToDevice, s)); // all of these return although the stream stands still
  OK(cudaMemcpyAsync(e, d, SIZE, cudaMemcpyDeviceToDevice, s));
  OK(cudaMemcpyAsync(h, e, SIZE, cudaMemcpyDeviceToHost, s));
  OK(cudaMemcpyAsync(d, ordinary, 1000, cudaMemcpyHostToDevice, s)); // read already: may be changed
  memset(ordinary, 'x', 1000);
  OK(cudaMemcpyAsync(e, ordinary + 100000, SIZE - 100000, cudaMemcpyHostToDevice, s));
  OK(cudaMemsetAsync(h, 'm', 10, s));
  assert_int_equal(cudaStreamQuery(s), cudaErrorNotReady);
  assert_int_equal(h[0], 'h');
  atomic_store(&g.open, 1);
  OK(cudaMemcpyAsync(ordinary, d, 2000, cudaMemcpyDeviceToHost, s)); // waits: there when it returns
  assert_int_equal(ordinary[0], 'o');
  assert_int_equal(ordinary[1000], 'h');
  assert_int_equal(h[0], 'm');
  assert_int_equal(h[10], 'h');
  OK(cudaStreamSynchronize(s));
  OK(cudaFree(d));
  OK(cudaFree(e));
  OK(cudaFreeHost(h));
  OK(cudaStreamDestroy(s));
  cudaGetLastError();
}

// ---- Streams and events ----

static void test_streams(void **state)
{
  cudaStream_t s, t;
  unsigned flags;
  int n;
  unsigned long long id, other;
  enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaGraph_t graph = (cudaGraph_t)1;
  (void)state;
  OK(cudaSetDevice(4));
  OK(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, -5));
  OK(cudaStreamCreate(&t));
  OK(cudaSetDevice(0));
  OK(cudaStreamGetFlags(s, &flags));
  assert_int_equal(flags, cudaStreamNonBlocking);
  OK(cudaStreamGetFlags(t, &flags));
  assert_int_equal(flags, cudaStreamDefault);
  OK(cudaStreamGetFlags(NULL, &flags));
  assert_int_equal(flags, cudaStreamDefault);
  OK(cudaStreamGetPriority(s, &n));
  assert_int_equal(n, 0);
  OK(cudaStreamGetDevice(s, &n));
  assert_int_equal(n, 4);
  OK(cudaStreamGetId(s, &id));
  OK(cudaStreamGetId(t, &other));
  assert_true(id != other);
  OK(cudaStreamQuery(s));
  OK(cudaStreamQuery(cudaStreamPerThread));
  OK(cudaStreamSynchronize(cudaStreamLegacy));
  OK(cudaStreamIsCapturing(s, &status));
  assert_int_equal(status, cudaStreamCaptureStatusNone);
  GIVES(cudaStreamEndCapture(s, &graph), cudaErrorIllegalState);
  assert_null(graph);
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  assert_int_equal(mode, cudaStreamCaptureModeGlobal);
  GIVES(cudaStreamCreateWithFlags(&s, 7), cudaErrorInvalidValue);
  GIVES(cudaStreamCreate(NULL), cudaErrorInvalidValue);
  GIVES(cudaStreamDestroy(NULL), cudaErrorInvalidResourceHandle);
  GIVES(cudaStreamSynchronize((cudaStream_t)&n), cudaErrorInvalidResourceHandle);
  OK(cudaStreamDestroy(s));
  GIVES(cudaStreamDestroy(s), cudaErrorInvalidResourceHandle);
  GIVES(cudaStreamQuery(s), cudaErrorInvalidResourceHandle);
  OK(cudaStreamDestroy(t));
}

static void test_events(void **state)
{
  static gate g;
  cudaEvent_t a, b, c;
  cudaStream_t s, t;
  float ms = -1;
  (void)state;
  OK(cudaStreamCreate(&s));
  OK(cudaStreamCreate(&t));
  OK(cudaEventCreate(&a));
  OK(cudaEventCreateWithFlags(&b, cudaEventBlockingSync));
  OK(cudaEventCreateWithFlags(&c, cudaEventDisableTiming));
  OK(cudaEventQuery(a)); // never recorded
  GIVES(cudaEventElapsedTime(&ms, a, b), cudaErrorInvalidResourceHandle);
  OK(cudaEventRecord(a, s));
  OK(cudaLaunchHostFunc(s, stay, &g));
  OK(cudaEventRecord(b, s));
  OK(cudaEventRecord(c, s));
  OK(cudaStreamWaitEvent(t, b, 0));
  GIVES(cudaEventQuery(b), cudaErrorNotReady);
  GIVES(cudaEventElapsedTime(&ms, a, b), cudaErrorNotReady);
  GIVES(cudaStreamQuery(t), cudaErrorNotReady);
  sleep_ms(15);
  atomic_store(&g.open, 1);
  OK(cudaEventSynchronize(b));
  OK(cudaStreamSynchronize(t));
  OK(cudaEventElapsedTime(&ms, a, b));
  assert_true(ms >= 15 && ms < 60000);
  OK(cudaEventSynchronize(c));
  GIVES(cudaEventElapsedTime(&ms, a, c), cudaErrorInvalidResourceHandle);
  GIVES(cudaEventElapsedTime(NULL, a, b), cudaErrorInvalidValue);
  GIVES(cudaEventCreateWithFlags(&a, 0x80), cudaErrorInvalidValue);
  GIVES(cudaEventCreateWithFlags(&a, cudaEventInterprocess), cudaErrorInvalidValue);
  GIVES(cudaEventRecord(NULL, s), cudaErrorInvalidResourceHandle);
  GIVES(cudaEventRecord(a, (cudaStream_t)&ms), cudaErrorInvalidResourceHandle);
  GIVES(cudaEventQuery(NULL), cudaErrorInvalidResourceHandle);
  GIVES(cudaEventDestroy(NULL), cudaErrorInvalidResourceHandle);
  GIVES(cudaStreamWaitEvent(s, NULL, 0), cudaErrorInvalidResourceHandle);
  OK(cudaStreamSynchronize(s));
  OK(cudaEventDestroy(a));
  OK(cudaEventDestroy(b));
  OK(cudaEventDestroy(c));
  OK(cudaStreamDestroy(s));
  OK(cudaStreamDestroy(t));
}

static void ask_runtime(void *arg)
{
  gate *g = arg;
  int n;
  g->told = cudaGetDevice(&n);
  if (g->told == cudaErrorNotPermitted && cudaStreamSynchronize(NULL) == cudaErrorNotPermitted &&
      cudaGetLastError() == g->told) {
    atomic_store(&g->passed, 1);
  }
}

static void called_back(cudaStream_t stream, cudaError_t status, void *arg)
{
  gate *g = arg;
  g->told = status;
  atomic_store(&g->passed, stream == NULL ? 1 : 2);
}

static void test_host_functions(void **state)
{
  static gate g, back, waits;
  cudaStream_t s, t;
  (void)state;
  OK(cudaStreamCreate(&s));
  OK(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
  OK(cudaLaunchHostFunc(s, ask_runtime, &g)); // the runtime is not to be called inside
  OK(cudaStreamAddCallback(s, called_back, &back, 0));
  OK(cudaStreamSynchronize(s));
  assert_int_equal(atomic_load(&g.passed), 1);
  assert_int_equal(atomic_load(&back.passed), 2);
  assert_int_equal(back.told, cudaSuccess);
  // One stream stands still; the others, and the thread that waits for them, go on.
  OK(cudaLaunchHostFunc(s, stay, &waits));
  OK(cudaLaunchHostFunc(t, ask_runtime, &g));
  OK(cudaStreamSynchronize(t));
  assert_int_equal(atomic_load(&waits.passed), 0);
  atomic_store(&waits.open, 1);
  OK(cudaDeviceSynchronize());
  assert_int_equal(atomic_load(&waits.passed), 1);
  GIVES(cudaLaunchHostFunc(s, NULL, NULL), cudaErrorInvalidValue);
  GIVES(cudaLaunchHostFunc((cudaStream_t)&g, stay, NULL), cudaErrorInvalidResourceHandle);
  GIVES(cudaStreamAddCallback(s, called_back, NULL, 1), cudaErrorInvalidValue);
  OK(cudaStreamDestroy(s));
  OK(cudaStreamDestroy(t));
}

// ---- What needs a GPU ----

static void test_what_needs_a_gpu(void **state)
{
  struct cudaFuncAttributes attr;
  dim3 one = {1, 1, 1};
  cudaGraphNode_t node;
  void *p;
  char local = 0;
  (void)state;
  GIVES(cudaLaunchKernel(&local, one, one, NULL, 0, NULL), cudaErrorNoKernelImageForDevice);
  GIVES(cudaFuncGetAttributes(&attr, &local), cudaErrorInvalidDeviceFunction);
  GIVES(cudaGetSymbolAddress(&p, &local), cudaErrorInvalidSymbol);
  GIVES(cudaMemcpyToSymbol(&local, &local, 1, 0, cudaMemcpyHostToDevice), cudaErrorInvalidSymbol);
  GIVES(cudaGraphAddKernelNode(&node, NULL, NULL, 0, NULL), cudaErrorNotSupported);
  OK(cudaMemPrefetchAsync(&local, 1, 0, NULL));
  OK(cudaMemAdvise(&local, 1, cudaMemAdviseSetReadMostly, 0));
  OK(cudaProfilerStart());
  OK(cudaProfilerStop());
}

// ---- With NCCL ----

static void test_streams_are_those_of_nccl(void **state)
{
  enum { N = 4, COUNT = 100000 };
  ncclComm_t comm[N];
  cudaStream_t s[N];
  float *d[N], *h = malloc(COUNT * sizeof *h);
  (void)state;
  assert_int_equal(ncclCommInitAll(comm, N, NULL), ncclSuccess);
  for (int i = 0; i < N; i++) {
    OK(cudaSetDevice(i));
    OK(cudaStreamCreate(&s[i]));
    OK(cudaMalloc((void **)&d[i], COUNT * sizeof *h));
    for (int k = 0; k < COUNT; k++) {
      h[k] = (float)(i + k % 100);
    }
    OK(cudaMemcpy(d[i], h, COUNT * sizeof *h, cudaMemcpyHostToDevice));
  }
  assert_int_equal(ncclGroupStart(), ncclSuccess);
  for (int i = 0; i < N; i++) {
    assert_int_equal(ncclAllReduce(d[i], d[i], COUNT, ncclFloat, ncclSum, comm[i], s[i]), ncclSuccess);
  }
  assert_int_equal(ncclGroupEnd(), ncclSuccess);
  for (int i = 0; i < N; i++) { // a copy on the device's default stream comes after work on blocking streams
    OK(cudaSetDevice(i));
    memset(h, 0, COUNT * sizeof *h);
    OK(cudaMemcpy(h, d[i], COUNT * sizeof *h, cudaMemcpyDeviceToHost));
    assert_int_equal((int)h[COUNT - 1], N * (N - 1) / 2 + N * ((COUNT - 1) % 100));
  }
  // An operation that fails is seen where CUDA shows the failures of kernels.
  for (int i = 0; i < N; i++) {
    assert_int_equal(ncclAllReduce(d[i], d[i], i == 1 ? 5 : 4, ncclFloat, ncclSum, comm[i], s[i]), ncclSuccess);
  }
  GIVES(cudaStreamSynchronize(s[0]), cudaErrorLaunchFailure);
  OK(cudaSetDevice(1));
  GIVES(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  OK(cudaDeviceSynchronize()); // said once
  for (int i = 0; i < N; i++) {
    OK(cudaSetDevice(i));
    assert_int_equal(ncclCommAbort(comm[i]), ncclSuccess);
    OK(cudaFree(d[i]));
    OK(cudaStreamDestroy(s[i]));
  }
  free(h);
  OK(cudaSetDevice(0));
}

// A child of a process that has used everything starts anew: streams of its own, memory it inherited stays known.
static void child(const char *inherited)
{
  static gate g;
  cudaStream_t s;
  cudaEvent_t e;
  char *p;
  struct cudaPointerAttributes a;
  g.open = 1;
  alarm(60);
  bool good = cudaPointerGetAttributes(&a, inherited) == cudaSuccess && a.type == cudaMemoryTypeDevice &&
              cudaMalloc((void **)&p, 1 << 20) == cudaSuccess && cudaStreamCreate(&s) == cudaSuccess &&
              cudaLaunchHostFunc(s, stay, &g) == cudaSuccess && cudaMemsetAsync(p, 5, 1 << 20, s) == cudaSuccess &&
              cudaEventCreate(&e) == cudaSuccess && cudaEventRecord(e, s) == cudaSuccess &&
              cudaEventSynchronize(e) == cudaSuccess && p[(1 << 20) - 1] == 5 && atomic_load(&g.passed) == 1 &&
              cudaFree(p) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess;
  _exit(good ? 0 : 1);
}

static void test_fork(void **state)
{
  static gate g;
  cudaStream_t s;
  char *p;
  int status = -1;
  (void)state;
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
  skip(); // it ends a child that starts threads
#endif
#endif
  OK(cudaStreamCreate(&s));
  OK(cudaMalloc((void **)&p, 1000));
  OK(cudaLaunchHostFunc(s, stay, &g)); // in the middle of it
  while (!atomic_load(&g.inside)) {
    sleep_ms(1);
  }
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    child(p);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  atomic_store(&g.open, 1); // the parent is unharmed
  OK(cudaStreamSynchronize(s));
  OK(cudaFree(p));
  OK(cudaStreamDestroy(s));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_errors),
      cmocka_unit_test(test_devices),
      cmocka_unit_test(test_properties),
      cmocka_unit_test(test_peers),
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_registered_memory),
      cmocka_unit_test(test_memory_in_stream_order),
      cmocka_unit_test(test_free_waits),
      cmocka_unit_test(test_copies),
      cmocka_unit_test(test_rows),
      cmocka_unit_test(test_when_copies_return),
      cmocka_unit_test(test_streams),
      cmocka_unit_test(test_events),
      cmocka_unit_test(test_host_functions),
      cmocka_unit_test(test_what_needs_a_gpu),
      cmocka_unit_test(test_streams_are_those_of_nccl),
      cmocka_unit_test(test_fork),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
