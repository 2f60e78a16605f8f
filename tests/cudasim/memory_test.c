// memory_test.c: memory of devices and of the host, copies, what is known of addresses, memory in two halves.
#include "rig.h"

static void allocations(void)
{
  CUdeviceptr a, b, base, more;
  size_t bytes, available, total, less;
  rig_context(0);
  OK(cu.MemGetInfo(&available, &total));
  CHECK(total == (size_t)8 << 20 && available == total);
  a = rig_memory(100);
  b = rig_memory(1 << 20);
  OK(cu.MemGetInfo(&less, &total));
  CHECK(less < available);
  OK(cu.MemGetAddressRange(&base, &bytes, a + 50));
  CHECK(base == a && bytes == 100);
  GIVES(CUDA_ERROR_NOT_FOUND, cu.MemGetAddressRange(&base, &bytes, a + 100));
  GIVES(CUDA_ERROR_OUT_OF_MEMORY, cu.MemAlloc(&more, 8 << 20));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.MemAlloc(&more, 0));
  OK(cu.MemFree(a));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.MemFree(a));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.MemFree(b + 4));
  OK(cu.MemFree(0));
  CHECK(rig_memory(64) == a); // the address is used again
  OK(cu.MemFree(b));
}

static void test_allocations(void **state)
{
  (void)state;
  rig_says("memory=8", 1, allocations, "not the beginning of an allocation (freed before?)");
}

static void copies(void)
{
  enum { N = 3 << 20 };
  char *out = malloc(N), *in = malloc(N);
  rig_context(0);
  CUdeviceptr a = rig_memory(N), b = rig_memory(N);
  CUstream stream = rig_stream();
  for (int i = 0; i < N; i++) {
    in[i] = (char)(i * 7 + i / 1000);
  }
  OK(cu.MemcpyHtoD(a, in, N));
  OK(cu.MemcpyAsync(b, a, N, stream));
  OK(cu.MemsetD8Async(b + 1, 0x5a, 3, stream));
  OK(cu.MemcpyDtoHAsync(out, b, N, stream)); // into pageable memory: it is there when the call returns
  CHECK(memcmp(in + 4, out + 4, N - 4) == 0 && out[0] == in[0] && out[1] == 0x5a && out[3] == 0x5a);
  OK(cu.MemcpyHtoDAsync(a, in, 5, stream));
  memset(in, 0, 5); // from pageable memory: it has been taken
  OK(cu.StreamSynchronize(stream));
  OK(cu.MemcpyDtoH(out, a, 5));
  CHECK(out[1] == 7 && out[2] == 14);
  OK(cu.MemsetD32(a, 0x01020304, 2));
  OK(cu.MemcpyDtoH(out, a, 9));
  CHECK(memcmp(out, "\4\3\2\1\4\3\2\1", 8) == 0);
  free(out);
  free(in);
}

static void test_copies(void **state)
{
  (void)state;
  rig_quiet("", 1, copies);
  rig_quiet("order=random,seed=3", 1, copies);
}

static void beyond(void)
{
  char out[8];
  rig_context(0);
  CUdeviceptr a = rig_memory(100);
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.MemcpyDtoH(out, a + 96, 8));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.MemsetD8(a + 99, 0, 2));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.MemsetD32(a + 2, 0, 1));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.MemcpyHtoD(0, out, 8));
  OK(cu.MemFree(a));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.MemsetD8(a, 0, 2));
}

static void test_beyond(void **state)
{
  (void)state;
  rig_says("", 1, beyond, "8 bytes at ");
  assert_non_null(strstr(rig_err, "go beyond device memory of 100 bytes"));
  assert_non_null(strstr(rig_err, "is not aligned to 4 bytes"));
}

static void host(void)
{
  CUdeviceptr device;
  rig_context(0);
  _Atomic uint32_t *words = rig_words(1024);
  char *own = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  OK(cu.MemHostGetDevicePointer(&device, (void *)words, 0));
  CHECK(device == at(words));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.MemHostGetDevicePointer(&device, own, 0));
  OK(cu.MemHostRegister(own, 8192, CU_MEMHOSTREGISTER_PORTABLE));
  GIVES(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cu.MemHostRegister(own + 4096, 4096, 0));
  OK(cu.MemHostGetDevicePointer(&device, own + 5, 0));
  GIVES(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cu.MemHostUnregister(own + 4096));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.MemFreeHost(own));
  OK(cu.MemHostUnregister(own));
  GIVES(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cu.MemHostUnregister(own));
  munmap(own, 8192);
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.MemHostRegister(own, 8192, 0)); // nothing is there
  OK(cu.MemFreeHost((void *)words));
}

static void test_host(void **state)
{
  (void)state;
  rig_says("", 1, host, "not all is memory of this process");
}

static void read_only(void)
{
  rig_context(0);
  char *own = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  OK(cu.MemHostRegister(own, 4096, CU_MEMHOSTREGISTER_READ_ONLY));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.MemsetD8((CUdeviceptr)(uintptr_t)own, 1, 1));
}

static void test_read_only(void **state)
{
  (void)state;
  rig_says("", 1, read_only, "may only be read");
}

static void attributes(void)
{
  int local = 0, ordinal[3];
  unsigned type[3];
  CUcontext owner[3], context = rig_context(1);
  unsigned long long id[3];
  CUdeviceptr start[3], where[] = {rig_memory(64) + 8, at(rig_words(4)) + 4, (CUdeviceptr)(uintptr_t)&local};
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                 CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
  for (int i = 0; i < 3; i++) {
    void *values[] = {&owner[i], &type[i], &ordinal[i], &id[i], &start[i]};
    OK(cu.PointerGetAttributes(5, which, values, where[i]));
  }
  CHECK(owner[0] == context && type[0] == CU_MEMORYTYPE_DEVICE && ordinal[0] == 1 && start[0] == where[0] - 8);
  CHECK(type[1] == CU_MEMORYTYPE_HOST && start[1] == where[1] - 4 && id[1] != id[0]);
  CHECK(owner[2] == NULL && type[2] == 0 && ordinal[2] == -2);
  OK(cu.PointerGetAttribute(&type[0], CU_POINTER_ATTRIBUTE_MEMORY_TYPE, where[1]));
  CHECK(type[0] == CU_MEMORYTYPE_HOST);
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.PointerGetAttribute(&type[0], CU_POINTER_ATTRIBUTE_MEMORY_TYPE, where[2]));
  OK(cu.MemFree(where[0] - 8));
  CUdeviceptr again = rig_memory(64); // same address, another allocation
  unsigned long long other;
  CHECK(again == where[0] - 8);
  OK(cu.PointerGetAttribute(&other, CU_POINTER_ATTRIBUTE_BUFFER_ID, again));
  CHECK(other != id[0]);
}

static void test_attributes(void **state)
{
  (void)state;
  rig_quiet("devices=2", 1, attributes);
}

// Another thread frees memory that a stream still waits to use: the call waits for the stream.
static _Atomic int freed;

static void *free_it(void *arg)
{
  OK(cu.CtxSetCurrent(rig_context(0)));
  OK(cu.MemFree(*(CUdeviceptr *)arg));
  atomic_store(&freed, 1);
  return NULL;
}

static void free_waits(void)
{
  pthread_t thread;
  rig_context(0);
  _Atomic uint32_t *word = rig_words(1);
  CUdeviceptr a = rig_memory(4);
  CUstream stream = rig_stream();
  OK(cu.StreamWaitValue32(stream, at(word), 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cu.MemsetD32Async(a, 5, 1, stream));
  CHECK(pthread_create(&thread, NULL, free_it, &a) == 0);
  rig_sleep_ms(50);
  CHECK(atomic_load(&freed) == 0);
  atomic_store(word, 1);
  CHECK(pthread_join(thread, NULL) == 0);
  OK(cu.StreamSynchronize(stream));
}

// Mode `waits`: new memory of a device waits for the kernel that runs there, and not for a stream that waits.
static void *allocate_it(void *arg)
{
  CUdeviceptr ptr;
  (void)arg;
  OK(cu.CtxSetCurrent(rig_context(0)));
  OK(cu.MemAlloc(&ptr, 4));
  atomic_store(&freed, 1);
  return NULL;
}

static void kernel_waits(void)
{
  pthread_t thread;
  rig_context(1);
  CUcontext context = rig_context(0);
  _Atomic uint32_t *words = rig_words(4);
  CUfunction spin = rig_kernel("spin");
  CUstream streams[] = {rig_stream(), rig_stream()};
  OK(cu.StreamWaitValue32(streams[1], at(words + 2), 1, CU_STREAM_WAIT_VALUE_EQ));
  rig_memory(4);
  OK(rig_launch(spin, 1, 1, at(words), 1, streams[0]));
  while (atomic_load(words + 1) == 0) {
    rig_sleep_ms(1);
  }
  rig_context(1);
  rig_memory(4);
  CHECK(pthread_create(&thread, NULL, allocate_it, NULL) == 0);
  rig_sleep_ms(50);
  CHECK(atomic_load(&freed) == 0);
  atomic_store(words, 1);
  CHECK(pthread_join(thread, NULL) == 0);
  atomic_store(words + 2, 1);
  OK(cu.CtxSetCurrent(context));
  OK(cu.StreamSynchronize(streams[1]));
}

static void test_kernel_waits(void **state)
{
  (void)state;
  if (real_driver()) {
    skip();
  }
  rig_quiet("waits,devices=2", 1, kernel_waits);
}

static void test_free_waits(void **state)
{
  (void)state;
  rig_quiet("", 1, free_waits);
}

// ---- Memory in two halves ----

static const CUmemAllocationProp device_0 = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                             .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                             .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

static void halves(void)
{
  CUmemGenericAllocationHandle handle, again;
  CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr a, b;
  uint32_t out;
  size_t granule;
  rig_context(0);
  OK(cu.MemGetAllocationGranularity(&granule, &device_0, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.MemCreate(&handle, granule + 1, &device_0, 0));
  OK(cu.MemCreate(&handle, 2 * granule, &device_0, 0));
  OK(cu.MemAddressReserve(&a, 4 * granule, 0, 0, 0));
  b = a + 2 * granule;
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.MemMap(a + 3 * granule, 2 * granule, 0, handle, 0));
  OK(cu.MemMap(a, 2 * granule, 0, handle, 0));
  OK(cu.MemMap(b, granule, granule, handle, 0)); // its second half once more
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.MemMap(b, granule, 0, handle, 0));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.MemsetD32(a, 1, 1)); // no access yet
  OK(cu.MemSetAccess(a, 3 * granule, &access, 1));
  OK(cu.MemsetD32(a + granule, 77, 1));
  OK(cu.MemcpyDtoH(&out, b, 4));
  CHECK(out == 77);
  OK(cu.MemRetainAllocationHandle(&again, (void *)(uintptr_t)b));
  CHECK(again == handle);
  OK(cu.MemRelease(handle));
  OK(cu.MemRelease(handle));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.MemRelease(handle));
  OK(cu.MemcpyDtoH(&out, b, 4)); // the mappings keep it
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.MemAddressFree(a, 4 * granule));
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.MemUnmap(a, granule));
  OK(cu.MemUnmap(a, 3 * granule));
  OK(cu.MemAddressFree(a, 4 * granule));
}

static void test_halves(void **state)
{
  (void)state;
  rig_says("", 1, halves, "mapped memory that cuMemSetAccess has not given to device 0");
  assert_non_null(strstr(rig_err, "still mapped"));
  assert_non_null(strstr(rig_err, "not whole mappings"));
}

// What is known of an address in mapped memory.
typedef struct known {
  CUdeviceptr range, base;
  size_t range_bytes, bytes;
  unsigned opens;
  uint64_t types;
  unsigned long long block;
} known;

static known known_of(CUdeviceptr at)
{
  known k = {0};
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                 CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                 CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES};
  void *values[] = {&k.range, &k.range_bytes, &k.opens, &k.types};
  OK(cu.PointerGetAttributes(4, which, values, at));
  OK(cu.PointerGetAttribute(&k.block, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, at));
  OK(cu.MemGetAddressRange(&k.base, &k.bytes, at));
  return k;
}

static void map_new(CUdeviceptr at, size_t bytes, const CUmemAllocationProp *prop)
{
  CUmemGenericAllocationHandle handle;
  OK(cu.MemCreate(&handle, bytes, prop, 0));
  OK(cu.MemMap(at, bytes, 0, handle, 0));
  OK(cu.MemRelease(handle));
}

// Two allocations behind each other: each has its number, and work goes across. One comes in another's place.
static void behind(void)
{
  const CUmemAllocationProp closed = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = device_0.location};
  const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle;
  CUdeviceptr a;
  uint32_t out[2];
  size_t g;
  int fd = -1;
  rig_context(0);
  OK(cu.MemGetAllocationGranularity(&g, &device_0, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  OK(cu.MemAddressReserve(&a, 8 * g, 0, 0, 0));
  map_new(a, 2 * g, &device_0);
  map_new(a + 2 * g, g, &closed);
  OK(cu.MemSetAccess(a, 3 * g, &access, 1));
  const known k = known_of(a + g + 4), l = known_of(a + 2 * g);
  CHECK(k.range == a && l.range == a && k.range_bytes == 8 * g && l.range_bytes == 8 * g);
  CHECK(k.base == a && k.bytes == 2 * g && l.base == a + 2 * g && l.bytes == g);
  CHECK(k.types == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && l.types == 0 && k.opens == 0 && l.opens == 0);
  CHECK(k.block != 0 && l.block != 0 && k.block != l.block);
  OK(cu.MemsetD32(a + 2 * g - 4, 4711, 2));
  OK(cu.MemcpyDtoH(out, a + 2 * g - 4, 8));
  CHECK(out[0] == 4711 && out[1] == 4711);
  GIVES(CUDA_ERROR_INVALID_VALUE, cu.MemsetD32(a + 3 * g - 4, 1, 2));
  OK(cu.MemRetainAllocationHandle(&handle, (void *)(uintptr_t)(a + 2 * g)));
  GIVES(CUDA_ERROR_INVALID_VALUE,
        cu.MemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  OK(cu.MemRelease(handle));
  OK(cu.MemUnmap(a, 2 * g));
  map_new(a, 2 * g, &device_0);
  CHECK(known_of(a).block != k.block && known_of(a + 2 * g).block == l.block);
  OK(cu.MemUnmap(a, 3 * g));
  OK(cu.MemAddressFree(a, 8 * g));
}

static void test_behind(void **state)
{
  (void)state;
  rig_says("", 1, behind, "was made without handles of type 1");
  assert_non_null(strstr(rig_err, "go beyond mapped memory"));
}

// A device that reaches no other one has no access to its mapped memory. Without a context no range is told.
static void apart(void)
{
  const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr a, base;
  size_t g, bytes;
  OK(cu.MemGetAllocationGranularity(&g, &device_0, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  OK(cu.MemAddressReserve(&a, g, 0, 0, 0));
  map_new(a, g, &device_0);
  GIVES(CUDA_ERROR_INVALID_CONTEXT, cu.MemGetAddressRange(&base, &bytes, a));
  rig_context(0);
  OK(cu.MemGetAddressRange(&base, &bytes, a));
  GIVES(CUDA_ERROR_INVALID_DEVICE, cu.MemSetAccess(a, g, &access, 1));
}

static void test_apart(void **state)
{
  (void)state;
  rig_says("devices=2,peers=none", 1, apart, "memory of device 0 for device 1, which cannot reach it");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_allocations), cmocka_unit_test(test_copies),       cmocka_unit_test(test_beyond),
      cmocka_unit_test(test_host),        cmocka_unit_test(test_read_only),    cmocka_unit_test(test_attributes),
      cmocka_unit_test(test_free_waits),  cmocka_unit_test(test_halves),       cmocka_unit_test(test_behind),
      cmocka_unit_test(test_apart),       cmocka_unit_test(test_kernel_waits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
