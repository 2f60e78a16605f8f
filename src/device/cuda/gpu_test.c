// gpu_test.c: devices, memory and streams of GPUs, on the driver for tests.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/cuda/memory.h"
#include "device/cuda/stream.h"

enum { MIB = 1 << 20 };

static const tt_cuda *cu;

// A context of the device is current, as in a program that has chosen it.
static void use_device(int device)
{
  CUcontext context = NULL;
  assert_int_equal(tt_gpu_context(device, &context), ncclSuccess);
  assert_int_equal(cu->CtxSetCurrent(context), CUDA_SUCCESS);
}

static CUstream new_stream(int device)
{
  CUstream stream = NULL;
  use_device(device);
  assert_int_equal(cu->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  return stream;
}

static CUdeviceptr new_memory(size_t bytes)
{
  CUdeviceptr at = 0;
  assert_int_equal(cu->MemAlloc(&at, bytes), CUDA_SUCCESS);
  return at;
}

static void *pointer(CUdeviceptr at)
{
  return (void *)(uintptr_t)at;
}

static void test_devices(void **state)
{
  (void)state;
  tt_device_id a, b;
  CUcontext before = NULL, now = NULL;
  assert_int_equal(tt_gpu_count(), 2);
  assert_int_equal(cu->CtxSetCurrent(NULL), CUDA_SUCCESS);
  assert_int_equal(tt_gpu_current(), 0);
  use_device(1);
  assert_int_equal(tt_gpu_current(), 1);
  tt_gpu_identify(0, &a);
  tt_gpu_identify(1, &b);
  assert_string_equal(a.kind, "cuda");
  assert_memory_not_equal(a.uuid, b.uuid, sizeof a.uuid);
  assert_string_equal(a.bus_id, "0000:01:00.0");
  assert_string_equal(b.bus_id, "0000:02:00.0");
  assert_int_equal(a.sm, 70);
  tt_gpu_identify(2, &b);
  assert_string_equal(b.bus_id, "");
  assert_int_equal(b.sm, 0);
  assert_true(tt_gpu_reaches(0, 0) && tt_gpu_reaches(0, 1));
  assert_false(tt_gpu_reaches(0, 2));
  assert_int_equal(cu->CtxGetCurrent(&before), CUDA_SUCCESS);
  assert_int_equal(tt_gpu_enter(0), ncclSuccess);
  assert_int_equal(tt_gpu_current(), 0);
  tt_gpu_leave();
  assert_int_equal(cu->CtxGetCurrent(&now), CUDA_SUCCESS);
  assert_ptr_equal(now, before);
  assert_int_equal(tt_gpu_enter(2), ncclInvalidArgument);
  assert_int_equal(tt_gpu_enter(-1), ncclInvalidArgument);
}

static void test_memory(void **state)
{
  (void)state;
  void *ours = NULL, *base = NULL;
  size_t bytes = 0;
  int device = -1, outside = 0;
  use_device(1);
  assert_int_equal(tt_gpu_alloc(MIB, &ours), ncclSuccess);
  assert_true(tt_gpu_allocation((char *)ours + 100, &base, &bytes, &device));
  assert_true(base == ours && bytes == MIB && device == 1);
  assert_false(tt_gpu_allocation(&outside, &base, &bytes, &device));
  assert_true(tt_gpu_range((char *)ours + 100, MIB - 100, &base, &bytes));
  assert_true(base == ours && bytes == MIB);
  assert_false(tt_gpu_range((char *)ours + 100, MIB, &base, &bytes));
  void *its = pointer(new_memory(4096)); // the program's own
  assert_false(tt_gpu_range(its, 1, &base, &bytes));
  assert_true(tt_gpu_allocation(its, &base, &bytes, &device));
  assert_int_equal(tt_gpu_free((char *)ours + 1), ncclInvalidArgument);
  assert_int_equal(tt_gpu_free(its), ncclInvalidArgument);
  assert_int_equal(tt_gpu_free(ours), ncclSuccess);
  assert_int_equal(tt_gpu_free(ours), ncclInvalidArgument);
  assert_false(tt_gpu_range(ours, 1, &base, &bytes));
  assert_int_equal(cu->MemFree((CUdeviceptr)(uintptr_t)its), CUDA_SUCCESS);
  assert_int_equal(tt_gpu_alloc((size_t)1 << 50, &ours), ncclUnhandledCudaError);
}

static CUresult refuse_free(CUdeviceptr ptr)
{
  (void)ptr;
  return CUDA_ERROR_UNKNOWN;
}

// What the driver does not free is still an allocation, which can be freed later.
static void test_free_fails(void **state)
{
  (void)state;
  void *ours = NULL, *base = NULL;
  size_t bytes = 0;
  use_device(0);
  assert_int_equal(tt_gpu_alloc(MIB, &ours), ncclSuccess);
  const uint32_t handle = tt_gpu_find(ours, MIB).handle;
  tt_cuda *table = (tt_cuda *)(uintptr_t)cu;
  CUresult (*free_memory)(CUdeviceptr) = table->MemFree;
  table->MemFree = refuse_free;
  assert_int_equal(tt_gpu_free(ours), ncclUnhandledCudaError);
  table->MemFree = free_memory;
  assert_true(tt_gpu_range(ours, MIB, &base, &bytes));
  assert_int_equal(tt_gpu_find(ours, MIB).handle, handle);
  assert_int_equal(tt_gpu_free(ours), ncclSuccess);
  assert_false(tt_gpu_exists(handle));
}

// An allocation keeps its number; what comes to its address later has another one.
static void test_numbers(void **state)
{
  (void)state;
  tt_gpu_share share;
  use_device(0);
  const CUdeviceptr a = new_memory(8192), b = new_memory(8192);
  const tt_mappable m = tt_gpu_find(pointer(a + 100), 50), n = tt_gpu_find(pointer(b), 8192);
  assert_true(m.handle != 0 && m.from == a && m.size == 8192 && n.handle != 0 && n.handle != m.handle);
  assert_int_equal(tt_gpu_find(pointer(a), 1).handle, m.handle);
  assert_int_equal(tt_gpu_find(pointer(a + 1), 8192).handle, 0); // its end is outside
  assert_int_equal(tt_gpu_find(&share, 1).handle, 0);            // memory of the host
  assert_int_equal(tt_gpu_export(m.handle, &share), ncclSuccess);
  assert_int_equal(share.bytes, 8192);
  assert_true(tt_gpu_exists(m.handle));
  assert_int_equal(cu->MemFree(a), CUDA_SUCCESS);
  assert_int_equal(tt_gpu_export(m.handle, &share), ncclInvalidArgument);
  assert_int_equal(tt_gpu_export(0, &share), ncclInvalidArgument);
  const CUdeviceptr again = new_memory(8192);
  assert_true(again == a); // the driver uses the address again
  const tt_mappable o = tt_gpu_find(pointer(again), 8192);
  assert_true(o.handle != 0 && o.handle != m.handle && o.handle != n.handle);
  assert_int_equal(tt_gpu_export(m.handle, &share), ncclInvalidArgument);
  assert_true(!tt_gpu_exists(m.handle) && tt_gpu_exists(n.handle) && tt_gpu_exists(o.handle) && !tt_gpu_exists(0));
  assert_int_equal(cu->MemFree(b), CUDA_SUCCESS);
  assert_true(tt_gpu_exists(n.handle)); // nobody has looked
  tt_gpu_sweep();
  assert_true(!tt_gpu_exists(n.handle) && tt_gpu_exists(o.handle));
  assert_int_equal(cu->MemFree(again), CUDA_SUCCESS);
}

static void map_new(CUdeviceptr at, bool handles)
{
  const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .requestedHandleTypes =
                                        handles ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE,
                                    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
  CUmemGenericAllocationHandle memory = 0;
  assert_int_equal(cu->MemCreate(&memory, 2 * MIB, &prop, 0), CUDA_SUCCESS);
  assert_int_equal(cu->MemMap(at, 2 * MIB, 0, memory, 0), CUDA_SUCCESS);
  assert_int_equal(cu->MemRelease(memory), CUDA_SUCCESS);
}

// Allocations of cuMemCreate behind each other, of which the third cannot be shared: as many have a number as a buffer
// needs. One is replaced.
static void test_pieces(void **state)
{
  (void)state;
  const size_t size = 2 * MIB;
  tt_gpu_share share;
  CUdeviceptr a = 0;
  uint64_t bytes = 0;
  int fd = -1;
  use_device(0); // that is not theirs
  assert_int_equal(cu->MemAddressReserve(&a, 4 * size, 0, 0, 0), CUDA_SUCCESS);
  for (size_t i = 0; i < 3; i++) {
    map_new(a + i * size, i < 2);
  }
  const tt_mappable one = tt_gpu_find(pointer(a + size - 100), 100), two = tt_gpu_find(pointer(a + size - 100), 101);
  assert_true(one.handle != 0 && one.from == a && one.size == size);
  assert_true(two.handle != 0 && two.handle != one.handle && two.from == a && two.size == 2 * size);
  assert_int_equal(tt_gpu_find(pointer(a + size - 1), 2).handle, two.handle);
  assert_int_equal(tt_gpu_find(pointer(a + 2 * size - 1), 2).handle, 0);
  assert_int_equal(tt_gpu_find(pointer(a + 2 * size), 1).handle, 0);
  assert_int_equal(tt_gpu_find(pointer(a + 3 * size), 1).handle, 0); // nothing is mapped there
  assert_int_equal(tt_gpu_export(two.handle, &share), ncclSuccess);
  assert_true(share.pieces == 2 && share.bytes == 2 * size);
  for (uint64_t i = 0; i < 2; i++) {
    assert_int_equal(tt_gpu_export_piece(two.handle, i, &bytes, &fd), ncclSuccess);
    assert_int_equal(bytes, size);
    assert_int_equal(close(fd), 0);
  }
  assert_int_equal(tt_gpu_export_piece(two.handle, 2, &bytes, &fd), ncclInvalidArgument);
  assert_int_equal(cu->MemUnmap(a + size, size), CUDA_SUCCESS);
  map_new(a + size, true);
  assert_int_equal(tt_gpu_export(two.handle, &share), ncclInvalidArgument);
  assert_int_equal(tt_gpu_export_piece(two.handle, 1, &bytes, &fd), ncclInvalidArgument);
  assert_int_equal(tt_gpu_find(pointer(a), size).handle, one.handle);
  const tt_mappable now = tt_gpu_find(pointer(a), 2 * size);
  assert_true(now.handle != 0 && now.handle != one.handle && now.handle != two.handle);
  tt_gpu_sweep();
  assert_true(tt_gpu_exists(one.handle) && !tt_gpu_exists(two.handle) && tt_gpu_exists(now.handle));
  assert_int_equal(cu->MemUnmap(a, 3 * size), CUDA_SUCCESS);
  assert_int_equal(cu->MemAddressFree(a, 4 * size), CUDA_SUCCESS);
  tt_gpu_sweep();
  assert_true(!tt_gpu_exists(one.handle) && !tt_gpu_exists(now.handle));
}

// ---- Two processes ----

static int there[2], back[2];

// The peer: opens what it is told of, and writes there.
static int peer(void)
{
  tt_gpu_share share;
  void *base = NULL;
  cu = tt_cuda_get(NULL);
  if (cu == NULL || read(there[0], &share, sizeof share) != sizeof share) {
    return 1;
  }
  if (tt_gpu_open(1, &share, &base) != ncclSuccess || tt_gpu_enter(1) != ncclSuccess) {
    return 2;
  }
  CUresult error = cu->MemsetD32((CUdeviceptr)(uintptr_t)base + 64, 0xabcd, 1);
  tt_gpu_leave();
  tt_gpu_close(1, tt_gpu_epoch(1), base);
  return error == CUDA_SUCCESS && write(back[1], "x", 1) == 1 ? 0 : 3;
}

static void test_share(void **state)
{
  (void)state;
  tt_gpu_share share;
  void *ours = NULL;
  uint32_t word = 0;
  char done;
  use_device(0);
  assert_int_equal(tt_gpu_alloc(MIB, &ours), ncclSuccess);
  assert_int_equal(tt_gpu_export(tt_gpu_find(ours, MIB).handle, &share), ncclSuccess);
  assert_int_equal(write(there[1], &share, sizeof share), sizeof share);
  assert_int_equal(read(back[0], &done, 1), 1);
  assert_int_equal(cu->MemcpyDtoH(&word, (CUdeviceptr)(uintptr_t)ours + 64, 4), CUDA_SUCCESS);
  assert_int_equal(word, 0xabcd);
  assert_int_equal(tt_gpu_free(ours), ncclSuccess);
}

// ---- Streams ----

static void test_handles(void **state)
{
  (void)state;
  tt_gpu_stream *a, *b, *c;
  CUstream own = new_stream(0), other = new_stream(1);
  assert_int_equal(tt_gpu_stream_get(own, 0, "test", &a), ncclSuccess);
  assert_int_equal(tt_gpu_stream_get(own, 0, "test", &b), ncclSuccess);
  assert_ptr_equal(a, b);
  assert_ptr_equal(tt_gpu_stream_handle(a), own);
  assert_int_equal(tt_gpu_stream_get(other, 0, "test", &b), ncclInvalidArgument);
  assert_non_null(strstr(tt_last_error(), "is not one of GPU 0"));
  assert_int_equal(tt_gpu_stream_get(own, 7, "test", &b), ncclInvalidArgument);
  assert_int_equal(tt_gpu_stream_get(NULL, 0, "test", &a), ncclSuccess);
  assert_int_equal(tt_gpu_stream_get((cudaStream_t)1, 0, "test", &b), ncclSuccess);
  assert_int_equal(tt_gpu_stream_get(NULL, 1, "test", &c), ncclSuccess);
  assert_true(a == b && a != c);
  cu->StreamDestroy(own);
  cu->StreamDestroy(other);
}

static void *thread_stream(void *out)
{
  assert_int_equal(tt_gpu_stream_get((cudaStream_t)2, 0, "test", out), ncclSuccess);
  return NULL;
}

// A thread's default stream is not another thread's.
static void test_threads(void **state)
{
  (void)state;
  tt_gpu_stream *mine, *again, *its;
  pthread_t thread;
  thread_stream(&mine);
  thread_stream(&again);
  assert_int_equal(pthread_create(&thread, NULL, thread_stream, &its), 0);
  pthread_join(thread, NULL);
  assert_true(mine == again && mine != its);
}

// Waits until the word is 1.
static void await_mark(tt_gpu_stream *s)
{
  bool idle = false;
  while (!idle) {
    assert_int_equal(tt_gpu_stream_query(s, &idle), ncclSuccess);
    sched_yield();
  }
}

static void hold(CUstream stream, CUdeviceptr word)
{
  assert_int_equal(cu->StreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
}

static void test_order(void **state)
{
  (void)state;
  void *words = NULL;
  bool idle;
  tt_gpu_stream *a, *b;
  CUstream first = new_stream(0), second = new_stream(0);
  assert_int_equal(cu->MemHostAlloc(&words, 64, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
  _Atomic uint32_t *word = words;
  const CUdeviceptr at = (CUdeviceptr)(uintptr_t)words;
  assert_int_equal(tt_gpu_stream_get(first, 0, "test", &a), ncclSuccess);
  assert_int_equal(tt_gpu_stream_get(second, 0, "test", &b), ncclSuccess);
  assert_int_equal(tt_gpu_stream_query(a, &idle), ncclSuccess);
  assert_true(idle); // nothing was submitted
  assert_int_equal(tt_gpu_stream_order(a, b), ncclSuccess);
  hold(first, at);
  assert_int_equal(cu->StreamWriteValue32(first, at + 4, 7, 0), CUDA_SUCCESS);
  assert_int_equal(tt_gpu_stream_mark(a), ncclSuccess);
  assert_int_equal(cu->StreamDestroy(first), CUDA_SUCCESS); // its work goes on, and can be waited for
  assert_int_equal(tt_gpu_stream_order(a, b), ncclSuccess);
  assert_int_equal(cu->StreamWaitValue32(second, at + 4, 7, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  assert_int_equal(cu->StreamWriteValue32(second, at + 8, 9, 0), CUDA_SUCCESS);
  assert_int_equal(tt_gpu_stream_mark(b), ncclSuccess);
  assert_int_equal(tt_gpu_stream_query(b, &idle), ncclSuccess);
  assert_false(idle);
  assert_int_equal(word[2], 0);
  word[0] = 1;
  await_mark(b);
  assert_int_equal(word[2], 9);
  assert_int_equal(tt_gpu_stream_query(a, &idle), ncclSuccess);
  assert_true(idle);
  assert_int_equal(cu->StreamDestroy(second), CUDA_SUCCESS);
  assert_int_equal(cu->MemFreeHost(words), CUDA_SUCCESS);
}

// Without order, the second does not wait for the first: else the test above would say nothing.
static void test_apart(void **state)
{
  (void)state;
  void *words = NULL;
  tt_gpu_stream *b;
  CUstream first = new_stream(0), second = new_stream(0);
  assert_int_equal(cu->MemHostAlloc(&words, 64, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
  _Atomic uint32_t *word = words;
  const CUdeviceptr at = (CUdeviceptr)(uintptr_t)words;
  assert_int_equal(tt_gpu_stream_get(second, 0, "test", &b), ncclSuccess);
  hold(first, at);
  assert_int_equal(cu->StreamWriteValue32(second, at + 8, 9, 0), CUDA_SUCCESS);
  assert_int_equal(tt_gpu_stream_mark(b), ncclSuccess);
  await_mark(b);
  assert_int_equal(word[2], 9);
  word[0] = 1;
  assert_int_equal(cu->StreamSynchronize(first), CUDA_SUCCESS);
  assert_int_equal(cu->StreamDestroy(first), CUDA_SUCCESS);
  assert_int_equal(cu->StreamDestroy(second), CUDA_SUCCESS);
  assert_int_equal(cu->MemFreeHost(words), CUDA_SUCCESS);
}

static void test_captures(void **state)
{
  (void)state;
  bool captured = true;
  CUgraph graph = NULL;
  CUevent event = NULL;
  CUstream stream = new_stream(0);
  assert_int_equal(tt_gpu_stream_captured(stream, 0, &captured), ncclSuccess);
  assert_false(captured);
  assert_int_equal(cu->StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  assert_int_equal(tt_gpu_stream_captured(stream, 0, &captured), ncclSuccess);
  assert_true(captured);
  assert_int_equal(cu->StreamEndCapture(stream, &graph), CUDA_SUCCESS);
  assert_int_equal(cu->GraphDestroy(graph), CUDA_SUCCESS);
  assert_int_equal(tt_gpu_stream_captured(stream, 1, &captured), ncclInvalidArgument);
  assert_int_equal(cu->EventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  assert_int_equal(tt_gpu_record_event(event, stream, 0), ncclSuccess);
  assert_int_equal(cu->EventSynchronize(event), CUDA_SUCCESS);
  assert_int_equal(tt_gpu_record_event(event, stream, 1), ncclInvalidArgument);
  assert_int_equal(cu->EventDestroy(event), CUDA_SUCCESS);
  assert_int_equal(cu->StreamDestroy(stream), CUDA_SUCCESS);
}

// Nothing that the library does here ends a capture of the program's, of any mode, in any thread; and the thread's mode
// is as before.
static void test_capture_goes_on(void **state)
{
  (void)state;
  void *ours = NULL;
  bool idle = false;
  tt_gpu_share share;
  tt_gpu_stream *s;
  CUgraph graph = NULL;
  CUdeviceptr at = 0;
  CUstream captured = new_stream(0), stream = new_stream(0);
  assert_int_equal(cu->StreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  assert_int_equal(tt_gpu_alloc(MIB, &ours), ncclSuccess);
  assert_int_equal(tt_gpu_export(tt_gpu_find(ours, MIB).handle, &share), ncclSuccess);
  assert_int_equal(tt_gpu_stream_get(stream, 0, "test", &s), ncclSuccess);
  assert_int_equal(tt_gpu_stream_mark(s), ncclSuccess);
  await_mark(s);
  assert_int_equal(tt_gpu_stream_query(s, &idle), ncclSuccess);
  assert_int_equal(tt_gpu_enter(0), ncclSuccess);
  assert_int_equal(tt_gpu_free(ours), ncclSuccess); // it enters, too
  assert_int_equal(cu->MemAlloc(&at, 64), CUDA_SUCCESS);
  assert_int_equal(cu->MemFree(at), CUDA_SUCCESS);
  tt_gpu_leave();
  assert_int_equal(cu->StreamEndCapture(captured, &graph), CUDA_SUCCESS);
  assert_int_equal(cu->GraphDestroy(graph), CUDA_SUCCESS);
  assert_int_equal(cu->StreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  assert_int_equal(cu->MemAlloc(&at, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  assert_int_equal(cu->StreamEndCapture(captured, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  assert_int_equal(cu->StreamDestroy(captured), CUDA_SUCCESS);
  assert_int_equal(cu->StreamDestroy(stream), CUDA_SUCCESS);
}

// The legacy stream waits for every blocking stream, which a captured one cannot give.
static void test_legacy_capture(void **state)
{
  (void)state;
  bool captured = false;
  CUgraph graph = NULL;
  CUstream stream = NULL;
  use_device(0);
  assert_int_equal(cu->StreamCreateWithPriority(&stream, CU_STREAM_DEFAULT, 0), CUDA_SUCCESS);
  assert_int_equal(cu->StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  assert_int_equal(tt_gpu_stream_captured(NULL, 0, &captured), ncclInvalidUsage);
  assert_int_equal(tt_gpu_stream_captured(stream, 0, &captured), ncclSuccess);
  assert_true(captured); // it goes on, until something is asked of the stream that no graph can do
  assert_int_not_equal(cu->StreamSynchronize(stream), CUDA_SUCCESS);
  assert_int_equal(tt_gpu_stream_captured(stream, 0, &captured), ncclInvalidUsage);
  assert_int_equal(cu->StreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  assert_int_equal(tt_gpu_stream_captured(NULL, 0, &captured), ncclSuccess);
  assert_false(captured);
  assert_int_equal(cu->StreamDestroy(stream), CUDA_SUCCESS);
}

int main(void)
{
  char path[512];
  const char *build = getenv("TUTTI_BUILD");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_devices),  cmocka_unit_test(test_memory),          cmocka_unit_test(test_free_fails),
      cmocka_unit_test(test_numbers),  cmocka_unit_test(test_share),           cmocka_unit_test(test_handles),
      cmocka_unit_test(test_threads),  cmocka_unit_test(test_order),           cmocka_unit_test(test_apart),
      cmocka_unit_test(test_captures), cmocka_unit_test(test_capture_goes_on), cmocka_unit_test(test_legacy_capture),
      cmocka_unit_test(test_pieces),
  };
  snprintf(path, sizeof path, "%s/lib/cudasim/libcuda.so.1", build != NULL ? build : "build");
  setenv("TUTTI_CUDA_DRIVER", path, 1);
  setenv("NCCL_DEBUG", "ERROR", 1);
  snprintf(path, sizeof path, "devices=2,box=gpu-test-%d", (int)getpid());
  setenv("CUDASIM", path, 1);
  if (pipe(there) != 0 || pipe(back) != 0) {
    return 1;
  }
  const pid_t child = fork(); // before either has opened the driver
  if (child < 0) {
    return 1;
  }
  close(child == 0 ? there[1] : there[0]); // each has its ends only: the end of one process ends the other's reads
  close(child == 0 ? back[0] : back[1]);
  if (child == 0) {
    _exit(peer());
  }
  cu = tt_cuda_get(NULL);
  if (cu == NULL) {
    return 1;
  }
  int failed = cmocka_run_group_tests(tests, NULL, NULL), status = 0;
  close(there[1]);
  waitpid(child, &status, 0);
  return failed != 0 || status != 0;
}
