// hostcuda_driver_test.c: the CUDA driver's functions on host devices, found by name as libraries find them, and their
// errors.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <cuda_runtime.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

typedef void (*function)(void);
typedef unsigned long long address;

enum {
  INVALID_VALUE = 1,
  INVALID_DEVICE = 101,
  INVALID_CONTEXT = 201,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_SUPPORTED = 801
};

// What cuda.h says of them.
#define F(name, ...) typedef int (*name##_fn)(__VA_ARGS__);
F(cuInit, unsigned)
F(cuDriverGetVersion, int *)
F(cuDeviceGetCount, int *)
F(cuDeviceGet, int *, int)
F(cuDeviceGetName, char *, int, int)
F(cuDeviceGetUuid, CUuuid *, int)
F(cuDeviceGetPCIBusId, char *, int, int)
F(cuDeviceGetAttribute, int *, int, int)
F(cuDeviceTotalMem, size_t *, int)
F(cuDevicePrimaryCtxRetain, void **, int)
F(cuDevicePrimaryCtxRelease, int)
F(cuCtxGetCurrent, void **)
F(cuCtxSetCurrent, void *)
F(cuCtxGetDevice, int *)
F(cuCtxSynchronize, void)
F(cuStreamCreate, void **, unsigned)
F(cuStreamSynchronize, void *)
F(cuStreamQuery, void *)
F(cuStreamDestroy, void *)
F(cuMemAlloc, address *, size_t)
F(cuMemFree, address)
F(cuMemGetAddressRange, address *, size_t *, address)
F(cuMemcpyHtoDAsync, address, const void *, size_t, void *)
F(cuMemcpyDtoHAsync, void *, address, size_t, void *)
F(cuMemcpyAsync, address, address, size_t, void *)
F(cuMemsetD8, address, unsigned char, size_t)
F(cuMemHostRegister, void *, size_t, unsigned)
F(cuMemHostGetDevicePointer, address *, void *, unsigned)
F(cuMemHostUnregister, void *)
F(cuFlushGPUDirectRDMAWrites, int, int)
F(cuMemRelease, void)
F(cuMemUnmap, void)
F(cuPointerGetAttribute, void *, int, address)
F(cuPointerGetAttributes, unsigned, int *, void **, address)
F(cuStreamWaitEvent, void *, void *, unsigned)
F(cuEventCreate, void **, unsigned)
F(cuEventRecord, void *, void *)
F(cuEventQuery, void *)
F(cuEventSynchronize, void *)
F(cuEventElapsedTime, float *, void *, void *)
F(cuEventDestroy, void *)
F(cuLaunchHostFunc, void *, void (*)(void *), void *)
F(cuStreamWriteValue32, void *, address, uint32_t, unsigned)
F(cuStreamWriteValue64, void *, address, uint64_t, unsigned)
F(cuStreamWaitValue32, void *, address, uint32_t, unsigned)
F(cuStreamWaitValue64, void *, address, uint64_t, unsigned)
F(cuStreamBatchMemOp, void *, unsigned, const void *, unsigned)
F(cuMemAllocAsync, address *, size_t, void *)
F(cuMemFreeAsync, address, void *)
F(cuMemHostAlloc, void **, size_t, unsigned)
F(cuMemFreeHost, void *)
F(cuMemcpyHtoD, address, const void *, size_t)
F(cuMemcpyDtoD, address, address, size_t)
F(cuMemcpyDtoH, void *, address, size_t)
F(cuStreamBeginCapture, void *, int)
F(cuStreamEndCapture, void *, void **)
F(cuGraphGetNodes, void *, void **, size_t *)
F(cuGraphNodeGetType, void *, int *)
F(cuGraphInstantiate, void **, void *, unsigned long long)
F(cuGraphLaunch, void *, void *)
F(cuGraphExecDestroy, void *)
F(cuGraphDestroy, void *)
F(cuCtxPushCurrent, void *)
F(cuCtxPopCurrent, void **)
F(cuDevicePrimaryCtxReset, int)
F(cuModuleLoadData, void **, const void *)
F(cuGetExportTable, const void **, const void *)
F(cuGetErrorName, int, const char **)
F(cuGetErrorString, int, const char **)
F(cuGetProcAddress, const char *, void **, int, unsigned long long, enum cudaDriverEntryPointQueryResult *)

// The driver's function of this name; the test fails without one.
static function find(const char *name)
{
  void *found = NULL;
  function f;
  enum cudaDriverEntryPointQueryResult status = cudaDriverEntryPointVersionNotSufficent;
  assert_int_equal(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &status), cudaSuccess);
  assert_int_equal(status, cudaDriverEntryPointSuccess);
  assert_non_null(found);
  memcpy(&f, &found, sizeof f);
  return f;
}

#define GIVES(error, name, ...) assert_int_equal(((name##_fn)find(#name))(__VA_ARGS__), (error))
#define OK(...) GIVES(0, __VA_ARGS__)

static void test_find(void **state)
{
  (void)state;
  void *a = NULL, *b = NULL, *c = &a;
  enum cudaDriverEntryPointQueryResult status;
  assert_int_equal(cudaGetDriverEntryPointByVersion("cuMemAlloc", &a, 3020, cudaEnableDefault, NULL), cudaSuccess);
  assert_int_equal(cudaGetDriverEntryPoint("cuMemAlloc", &b, cudaEnableLegacyStream, NULL), cudaSuccess);
  assert_non_null(a);
  assert_ptr_equal(a, b);
  // One that is not here is no error.
  assert_int_equal(cudaGetDriverEntryPoint("cuTexObjectCreate", &c, cudaEnableDefault, &status), cudaSuccess);
  assert_null(c);
  assert_int_equal(status, cudaDriverEntryPointSymbolNotFound);
  // A symbol, not a name.
  assert_int_equal(cudaGetDriverEntryPoint("cuMemAlloc_v2", &c, cudaEnableDefault, NULL), cudaSuccess);
  assert_null(c);
  assert_int_equal(cudaGetDriverEntryPoint(NULL, &c, cudaEnableDefault, NULL), cudaErrorInvalidValue);
  assert_int_equal(cudaGetDriverEntryPoint("cuInit", NULL, cudaEnableDefault, NULL), cudaErrorInvalidValue);
  assert_int_equal(cudaGetDriverEntryPoint("cuInit", &c, 3, NULL), cudaErrorInvalidValue);
  assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
  // The twins for programs with per-thread default streams.
  assert_int_equal(cudaGetDriverEntryPoint("cuMemcpyAsync", &a, cudaEnableDefault, NULL), cudaSuccess);
  assert_int_equal(cudaGetDriverEntryPoint("cuMemcpyAsync", &b, cudaEnablePerThreadDefaultStream, NULL), cudaSuccess);
  assert_ptr_not_equal(a, b);
  // The driver's own way.
  OK(cuGetProcAddress, "cuMemcpyAsync", &c, 12000, 0, &status);
  assert_ptr_equal(c, a);
  OK(cuGetProcAddress, "cuMemcpyAsync", &c, 12000, 2, &status);
  assert_ptr_equal(c, b);
  GIVES(NOT_FOUND, cuGetProcAddress, "cuTexObjectCreate", &c, 12000, 0, &status);
  assert_int_equal(status, cudaDriverEntryPointSymbolNotFound);
  GIVES(INVALID_VALUE, cuGetProcAddress, "cuInit", NULL, 12000, 0, NULL);
}

// What a name means to a program of this version of CUDA.
static function form(const char *name, unsigned version, enum cudaDriverEntryPointQueryResult expected)
{
  void *found = &found;
  function f;
  enum cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSuccess;
  assert_int_equal(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &status), cudaSuccess);
  assert_int_equal(status, expected);
  assert_true((found != NULL) == (expected == cudaDriverEntryPointSuccess));
  memcpy(&f, &found, sizeof f);
  return f;
}

// Forms with fewer arguments leave alone what lies where the newer ones' would.
static void test_versions(void **state)
{
  (void)state;
  typedef int (*five_fn)(const char *, void **, int, unsigned long long, enum cudaDriverEntryPointQueryResult *);
  const enum cudaDriverEntryPointQueryResult here = cudaDriverEntryPointSuccess,
                                             old = cudaDriverEntryPointVersionNotSufficent;
  enum cudaDriverEntryPointQueryResult status = (enum cudaDriverEntryPointQueryResult)77;
  void *p = NULL, *context = NULL;
  int device = -1;
  form("cuGetProcAddress", 11020, old);
  form("cuGetProcAddress", 12000, here);
  form("cuNothing", 12000, cudaDriverEntryPointSymbolNotFound);
  form("cuMemAlloc", 3010, old); // whose addresses have 32 bits
  form("cuMemAlloc", 3020, here);
  form("cuMemGetHandleForAddressRange", 11060, old);
  five_fn early = (five_fn)form("cuGetProcAddress", 11030, here), late = (five_fn)form("cuGetProcAddress", 11080, here);
  assert_ptr_equal(early, late);
  assert_int_equal(early("cuInit", &p, 11030, 0, &status), 0);
  assert_non_null(p);
  assert_int_equal(status, 77);
  assert_int_equal(((five_fn)form("cuGetProcAddress", 12000, here))("cuGetProcAddress", &p, 11080, 0, &status), 0);
  assert_int_equal(status, here);
  function found;
  memcpy(&found, &p, sizeof found);
  assert_ptr_equal(found, (function)early);
  GIVES(NOT_FOUND, cuGetProcAddress, "cuMemCreate", &p, 10010, 0, &status);
  assert_int_equal(status, old);
  GIVES(INVALID_VALUE, cuGetProcAddress, "cuInit", &p, -1, 0, &status);
  // From 13000 on of any context.
  typedef int (*device_of_fn)(int *, void *);
  typedef int (*synchronize_fn)(void *);
  device_of_fn device_of = (device_of_fn)form("cuCtxGetDevice", 13000, here);
  synchronize_fn synchronize = (synchronize_fn)form("cuCtxSynchronize", 13000, here);
  OK(cuDevicePrimaryCtxRetain, &context, 1);
  assert_int_equal(device_of(&device, context), 0);
  assert_int_equal(device, 1);
  assert_int_equal(((device_of_fn)form("cuCtxGetDevice", 12090, here))(&device, context), 0);
  assert_int_equal(device, 0);
  device = -1;
  assert_int_equal(device_of(&device, NULL), 0);
  assert_int_equal(device, 0);
  assert_int_equal(device_of(NULL, context), INVALID_VALUE);
  assert_int_equal(device_of(&device, (void *)&device), INVALID_CONTEXT);
  assert_int_equal(synchronize(context), 0);
  assert_int_equal(synchronize(NULL), 0);
  assert_int_equal(synchronize((void *)(intptr_t)5000), INVALID_CONTEXT);
  assert_int_equal(synchronize((void *)INTPTR_MIN), INVALID_CONTEXT);
  OK(cuCtxGetDevice, &device);
  assert_int_equal(device, 0);
}

static void test_devices(void **state)
{
  (void)state;
  int n = 0, device = -1, value = -1, version = 0;
  char text[64], same[64];
  struct cudaDeviceProp p;
  CUuuid id;
  size_t bytes = 0;
  OK(cuInit, 0u);
  GIVES(INVALID_VALUE, cuInit, 1u);
  OK(cuDriverGetVersion, &version);
  assert_int_equal(version, 13000);
  GIVES(INVALID_VALUE, cuDriverGetVersion, NULL);
  OK(cuDeviceGetCount, &n);
  assert_true(n > 1);
  OK(cuDeviceGet, &device, n - 1);
  assert_int_equal(device, n - 1);
  GIVES(INVALID_DEVICE, cuDeviceGet, &device, n);
  GIVES(INVALID_VALUE, cuDeviceGet, NULL, 0);
  assert_int_equal(cudaGetDeviceProperties(&p, 1), cudaSuccess);
  OK(cuDeviceGetName, text, sizeof text, 1);
  assert_int_equal(strncmp(text, p.name, sizeof text - 1), 0);
  OK(cuDeviceGetName, text, 5, 1);
  assert_int_equal(strlen(text), 4);
  GIVES(INVALID_VALUE, cuDeviceGetName, text, 0, 1);
  GIVES(INVALID_DEVICE, cuDeviceGetName, text, 5, -1);
  OK(cuDeviceGetUuid, &id, 1);
  assert_memory_equal(&id, &p.uuid, sizeof id);
  GIVES(INVALID_DEVICE, cuDeviceGetUuid, &id, n);
  OK(cuDeviceGetPCIBusId, text, sizeof text, 1);
  assert_int_equal(cudaDeviceGetPCIBusId(same, sizeof same, 1), cudaSuccess);
  assert_string_equal(text, same);
  OK(cuDeviceGetAttribute, &value, 41 /* unified addressing */, 1);
  assert_int_equal(value, 1);
  OK(cuDeviceGetAttribute, &value, 116 /* GPUDirect RDMA */, 1);
  assert_int_equal(value, 0);
  OK(cuDeviceGetAttribute, &value, 124 /* dma-buf */, 1);
  assert_int_equal(value, 0);
  GIVES(INVALID_DEVICE, cuDeviceGetAttribute, &value, 41, n);
  OK(cuDeviceTotalMem, &bytes, 0);
  assert_true(bytes > 1 << 20);
}

static void test_contexts(void **state)
{
  (void)state;
  void *first = NULL, *second = NULL, *now = NULL;
  int device = -1;
  OK(cuCtxGetCurrent, &first);
  assert_non_null(first);
  OK(cuDevicePrimaryCtxRetain, &second, 1);
  assert_ptr_not_equal(first, second);
  OK(cuCtxSetCurrent, second);
  OK(cuCtxGetDevice, &device);
  assert_int_equal(device, 1);
  assert_int_equal(cudaGetDevice(&device), cudaSuccess);
  assert_int_equal(device, 1);
  OK(cuCtxSetCurrent, NULL);
  OK(cuCtxGetCurrent, &now);
  assert_ptr_equal(now, second);
  GIVES(INVALID_CONTEXT, cuCtxSetCurrent, (void *)(intptr_t)5000);
  GIVES(INVALID_CONTEXT, cuCtxSetCurrent, (void *)&now);
  OK(cuCtxSynchronize);
  OK(cuDevicePrimaryCtxRelease, 1);
  GIVES(INVALID_DEVICE, cuDevicePrimaryCtxRelease, -1);
  OK(cuCtxSetCurrent, first);
}

static void test_memory(void **state)
{
  (void)state;
  enum { N = 1000 };
  address p = 0, base = 0, seen = 0;
  size_t size = 0;
  void *stream = NULL;
  unsigned char out[N], in[N];
  OK(cuMemAlloc, &p, N);
  GIVES(INVALID_VALUE, cuMemAlloc, &p, 0);
  OK(cuMemGetAddressRange, &base, &size, p + 10);
  assert_true(base == p && size == N);
  GIVES(NOT_FOUND, cuMemGetAddressRange, &base, &size, (address)(uintptr_t)out);
  memset(in, 7, sizeof in);
  memset(out, 0, sizeof out);
  OK(cuStreamCreate, &stream, 1u);
  OK(cuMemcpyHtoDAsync, p, in, N, stream);
  OK(cuMemcpyDtoHAsync, out, p, N, stream);
  OK(cuStreamSynchronize, stream);
  OK(cuStreamQuery, stream);
  assert_memory_equal(in, out, N);
  OK(cuMemsetD8, p, 9, N);
  OK(cuMemcpyAsync, (address)(uintptr_t)out, p, N, stream);
  OK(cuStreamSynchronize, stream);
  assert_true(out[0] == 9 && out[N - 1] == 9);
  OK(cuStreamDestroy, stream);
  GIVES(INVALID_HANDLE, cuStreamDestroy, stream);
  OK(cuMemHostRegister, in, sizeof in, 0u);
  OK(cuMemHostGetDevicePointer, &seen, in, 0u);
  assert_true(seen == (uintptr_t)in);
  OK(cuMemHostUnregister, in);
  GIVES(713, cuMemHostUnregister, in);
  GIVES(INVALID_VALUE, cuMemHostGetDevicePointer, &seen, in, 0u);
  OK(cuMemFree, p);
  GIVES(INVALID_VALUE, cuMemFree, p);
  OK(cuFlushGPUDirectRDMAWrites, 0, 100);
  // What host memory does not have; of the runtime's last error all this is none.
  GIVES(NOT_SUPPORTED, cuMemRelease);
  GIVES(NOT_SUPPORTED, cuMemUnmap);
  assert_int_equal(cudaGetLastError(), cudaSuccess);
  assert_int_equal(cudaSetDevice(-1), cudaErrorInvalidDevice);
  GIVES(INVALID_VALUE, cuMemFree, (address)8);
  assert_int_equal(cudaGetLastError(), cudaErrorInvalidDevice);
}

// An operation of cuStreamBatchMemOp, as words.
static void operation(uint64_t *o, uint64_t type, address at, uint64_t value, uint64_t flags)
{
  o[0] = type;
  o[1] = at;
  o[2] = value;
  o[3] = flags;
}

// What is written by one stream lets the other go on; so does a store of the program, which is what libraries do whose
// host threads work for a stream.
static void test_values(void **state)
{
  (void)state;
  enum { GEQ = 0, EQ = 1, WAIT_64 = 4, WRITE_32 = 2, WRITE_64 = 5, BARRIER = 6 };
  void *a = NULL, *b = NULL, *memory = NULL;
  uint64_t batch[4][6] = {{0}};
  int value = 0;
  OK(cuStreamCreate, &a, 1u);
  OK(cuStreamCreate, &b, 1u);
  OK(cuMemHostAlloc, &memory, 64, 0u);
  _Atomic uint32_t *word = memory;
  _Atomic uint64_t *wide = (_Atomic uint64_t *)memory + 4;
  address w = (uintptr_t)word, v = (uintptr_t)wide;
  OK(cuDeviceGetAttribute, &value, 122 /* 64 bits */, 0);
  assert_int_equal(value, 1);
  OK(cuStreamWaitValue32, b, w, 5u, EQ);
  OK(cuStreamWriteValue64, b, v, 1ull << 40, 0u);
  GIVES(600, cuStreamQuery, b);
  OK(cuStreamWriteValue32, a, w, 5u, 1u /* without a barrier */);
  OK(cuStreamWaitValue64, a, v, 1ull << 40, GEQ | 1u << 30 /* with a flush */);
  OK(cuStreamSynchronize, a);
  OK(cuStreamSynchronize, b);
  operation(batch[0], WRITE_32, w, 9, 0);
  operation(batch[1], WAIT_64, v, 3, EQ);
  operation(batch[2], BARRIER, 0, 0, 0);
  operation(batch[3], WRITE_64, v, 4, 0);
  OK(cuStreamBatchMemOp, a, 4u, batch, 0u);
  GIVES(600, cuStreamQuery, a);
  atomic_store(wide, 3);
  OK(cuStreamSynchronize, a);
  assert_int_equal(atomic_load(word), 9);
  assert_int_equal(atomic_load(wide), 4);
  // Wrong arguments; of a batch with one nothing is queued.
  GIVES(INVALID_VALUE, cuStreamWriteValue32, a, w + 2, 1u, 0u);
  GIVES(INVALID_VALUE, cuStreamWriteValue64, a, v + 4, 1ull, 0u);
  GIVES(INVALID_VALUE, cuStreamWriteValue32, a, (address)0, 1u, 0u);
  GIVES(INVALID_VALUE, cuStreamWriteValue32, a, w, 1u, 2u);
  GIVES(INVALID_VALUE, cuStreamWaitValue32, a, w, 1u, 4u);
  GIVES(INVALID_HANDLE, cuStreamWaitValue32, memory, w, 1u, EQ);
  operation(batch[3], 7, v, 4, 0);
  GIVES(INVALID_VALUE, cuStreamBatchMemOp, a, 4u, batch, 0u);
  GIVES(INVALID_VALUE, cuStreamBatchMemOp, a, 0u, batch, 0u);
  OK(cuStreamQuery, a);
  // A reset gives up what would wait for ever.
  OK(cuStreamWaitValue32, a, w, 77u, EQ);
  GIVES(600, cuStreamQuery, a);
  OK(cuDevicePrimaryCtxReset, 0);
  GIVES(719, cuStreamSynchronize, a);
  OK(cuStreamDestroy, a);
  OK(cuStreamDestroy, b);
  OK(cuMemFreeHost, memory);
}

static void add_one(void *arg)
{
  ++*(int *)arg;
}

static void test_events_and_graphs(void **state)
{
  (void)state;
  void *a = NULL, *b = NULL, *e = NULL, *f = NULL, *graph = NULL, *exec = NULL, *nodes[2];
  uint32_t word = 0;
  int called = 0, type = -1;
  size_t count = 2;
  float ms = -1;
  address p = 0, q = 0;
  char in[100], out[100] = "";
  OK(cuStreamCreate, &a, 1u);
  OK(cuStreamCreate, &b, 1u);
  OK(cuEventCreate, &e, 0u);
  OK(cuEventCreate, &f, 0u);
  OK(cuLaunchHostFunc, a, add_one, &called);
  OK(cuEventRecord, e, a);
  OK(cuStreamWaitEvent, b, e, 0u);
  OK(cuEventRecord, f, b);
  OK(cuEventSynchronize, f);
  OK(cuEventQuery, e);
  OK(cuEventElapsedTime, &ms, e, f);
  assert_true(called == 1 && ms >= 0);
  OK(cuStreamBeginCapture, a, 2);
  OK(cuLaunchHostFunc, a, add_one, &called);
  OK(cuStreamWriteValue32, a, (uintptr_t)&word, 6u, 0u);
  OK(cuStreamEndCapture, a, &graph);
  OK(cuGraphGetNodes, graph, nodes, &count);
  assert_int_equal(count, 2);
  OK(cuGraphNodeGetType, nodes[1], &type);
  assert_int_equal(type, 12 /* a batch of memory operations */);
  OK(cuGraphInstantiate, &exec, graph, 0ull);
  OK(cuGraphLaunch, exec, a);
  OK(cuGraphLaunch, exec, a);
  OK(cuStreamSynchronize, a);
  assert_true(called == 3 && word == 6);
  OK(cuGraphExecDestroy, exec);
  OK(cuGraphDestroy, graph);
  memset(in, 5, sizeof in);
  OK(cuMemAllocAsync, &p, sizeof in, a);
  OK(cuMemAllocAsync, &q, sizeof in, a);
  GIVES(INVALID_VALUE, cuMemAllocAsync, &q, 0, a);
  OK(cuMemcpyHtoD, p, in, sizeof in);
  OK(cuMemcpyDtoD, q, p, sizeof in);
  OK(cuMemcpyDtoH, out, q, sizeof in);
  assert_memory_equal(in, out, sizeof in);
  OK(cuMemFreeAsync, p, a);
  OK(cuMemFreeAsync, q, a);
  OK(cuEventDestroy, e);
  OK(cuEventDestroy, f);
  OK(cuStreamDestroy, a);
  OK(cuStreamDestroy, b);
}

// The stack of contexts, also beyond what was pushed, and what needs a GPU or NVIDIA's driver.
static void test_stack_and_refusals(void **state)
{
  (void)state;
  void *first = NULL, *second = NULL, *top = NULL, *module = NULL;
  const void *table = &table;
  OK(cuCtxGetCurrent, &first);
  OK(cuDevicePrimaryCtxRetain, &second, 1);
  OK(cuCtxPushCurrent, second);
  OK(cuCtxGetCurrent, &top);
  assert_ptr_equal(top, second);
  OK(cuCtxPopCurrent, &top);
  assert_ptr_equal(top, second);
  for (int i = 0; i < 1000; i++) { // a library that puts the caller's context away and back
    OK(cuCtxPopCurrent, &top);
    assert_ptr_equal(top, first);
    OK(cuCtxPushCurrent, top);
  }
  OK(cuCtxGetCurrent, &top);
  assert_ptr_equal(top, first);
  OK(cuCtxPopCurrent, &top); // the push of the last round
  OK(cuCtxPopCurrent, &top); // nothing is beneath
  OK(cuCtxPushCurrent, second);
  OK(cuCtxPopCurrent, &top);
  assert_ptr_equal(top, second);
  OK(cuCtxGetCurrent, &top);
  assert_ptr_equal(top, first);
  GIVES(INVALID_CONTEXT, cuCtxPushCurrent, NULL);
  GIVES(209, cuModuleLoadData, &module, "code");
  GIVES(NOT_SUPPORTED, cuGetExportTable, &table, first);
  assert_null(table);
}

static void test_pointers(void **state)
{
  (void)state;
  address p = 0, start = 0;
  unsigned kind = 9;
  int device = -9, where[] = {2, 9, 11}, all[] = {1, 2, 3, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15}, mine = 0;
  unsigned long long values[13];
  void *into[] = {&kind, &device, &start}, *every[13];
  for (int i = 0; i < 13; i++) {
    every[i] = &values[i];
  }
  assert_int_equal(cudaSetDevice(1), cudaSuccess);
  OK(cuMemAlloc, &p, 64);
  OK(cuPointerGetAttributes, 3u, where, into, p + 5);
  assert_true(kind == 2 && device == 1 && start == p);
  OK(cuPointerGetAttributes, 13u, all, every, p);
  OK(cuMemHostRegister, &mine, sizeof mine, 0u);
  OK(cuPointerGetAttribute, &kind, 2, (address)(uintptr_t)&mine);
  assert_int_equal(kind, 1);
  OK(cuMemHostUnregister, &mine);
  // Nobody's memory: nothing, and with the single question an error.
  OK(cuPointerGetAttributes, 3u, where, into, (address)(uintptr_t)&mine);
  assert_true(kind == 0 && device == -2 && start == 0);
  GIVES(INVALID_VALUE, cuPointerGetAttribute, &kind, 2, (address)(uintptr_t)&mine);
  GIVES(NOT_SUPPORTED, cuPointerGetAttribute, &kind, 99, p);
  GIVES(INVALID_VALUE, cuPointerGetAttribute, NULL, 2, p);
  GIVES(INVALID_VALUE, cuPointerGetAttributes, 1u, NULL, into, p);
  OK(cuMemFree, p);
  assert_int_equal(cudaSetDevice(0), cudaSuccess);
}

static void test_errors(void **state)
{
  (void)state;
  const char *text = "";
  OK(cuGetErrorName, INVALID_DEVICE, &text);
  assert_string_equal(text, "CUDA_ERROR_INVALID_DEVICE");
  OK(cuGetErrorString, 2, &text);
  assert_string_equal(text, "out of memory");
  GIVES(INVALID_VALUE, cuGetErrorName, 12345, &text);
  assert_null(text);
  GIVES(INVALID_VALUE, cuGetErrorString, 0, NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_find),
      cmocka_unit_test(test_versions),
      cmocka_unit_test(test_devices),
      cmocka_unit_test(test_contexts),
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_values),
      cmocka_unit_test(test_events_and_graphs),
      cmocka_unit_test(test_stack_and_refusals),
      cmocka_unit_test(test_pointers),
      cmocka_unit_test(test_errors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
