// slice_test.c: processes take turns on a device; what a blocked, a polling or a dead one does to the others.
#include "rig.h"

#include <signal.h>

static _Atomic uint32_t *registered_words(void)
{
  void *words = (char *)rig_shared() + 4096;
  OK(cu.MemHostRegister(words, 4096, CU_MEMHOSTREGISTER_PORTABLE));
  return words;
}

// Each process computes, all share one device.
static void compute(void)
{
  enum { ROUNDS = 30 };
  uint32_t out = 0;
  rig_context(0);
  CUfunction add = rig_kernel("add");
  CUstream stream = rig_stream();
  CUdeviceptr sum = rig_memory(4);
  OK(cu.MemsetD32Async(sum, 0, 1, stream));
  for (int i = 0; i < ROUNDS; i++) {
    OK(rig_launch(add, 4, 64, sum, 1, stream));
  }
  OK(cu.MemcpyDtoHAsync(&out, sum, 4, stream));
  CHECK(out == ROUNDS * 256);
}

static void test_compute(void **state)
{
  (void)state;
  rig_quiet("slices=1", 4, compute);
  rig_quiet("slices=50,order=random,step=1000", 4, compute);
}

// The first process waits on its stream, in a way of its own, for a word that the second one writes later.
static void across(void (*wait)(CUstream stream, CUdeviceptr word))
{
  rig_context(0);
  _Atomic uint32_t *words = registered_words();
  CUstream stream = rig_stream();
  if (rank == 0) {
    wait(stream, at(words));
  }
  rig_barrier(2);
  if (rank == 1) {
    rig_sleep_ms(20);
    OK(rig_launch(rig_kernel("put"), 1, 1, at(words), 1, stream));
  }
  OK(cu.StreamSynchronize(stream));
  rig_barrier(2);
}

static void wait_by_stream(CUstream stream, CUdeviceptr word)
{
  OK(cu.StreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
}

static void wait_by_kernel(CUstream stream, CUdeviceptr word)
{
  OK(rig_launch(rig_kernel("spin"), 2, 32, word, 1, stream));
}

// A stream that waits for a word does not keep the device from another process, which writes it.
static void wait_across(void)
{
  across(wait_by_stream);
}

// Nor does a kernel that polls, since devices change between processes within kernels.
static void spin_across(void)
{
  across(wait_by_kernel);
}

static void test_across(void **state)
{
  (void)state;
  rig_quiet("slices=1", 2, wait_across);
  rig_quiet("slices", 2, wait_across);
  rig_quiet("slices=1", 2, spin_across);
  rig_quiet("", 2, spin_across); // at the same time
}

// A process that dies with the device, in a kernel that never ends, gives it back.
static void die(void)
{
  uint32_t out = 0;
  rig_context(0);
  CUstream stream = rig_stream();
  CUdeviceptr ptr = rig_memory(4);
  OK(cu.MemsetD32(ptr, 0, 1));
  OK(cu.CtxSynchronize());
  if (rank == 0) {
    OK(rig_launch(rig_kernel("busy"), 1, 1, ptr, 1, stream));
    rig_sleep_ms(20);
  }
  rig_barrier(2);
  if (rank == 0) {
    kill(getpid(), SIGKILL);
  }
  OK(rig_launch(rig_kernel("add"), 1, 32, ptr, 1, stream));
  OK(cu.MemcpyDtoHAsync(&out, ptr, 4, stream));
  CHECK(out == 32);
}

static void test_die(void **state)
{
  (void)state;
  int status[2];
  for (int i = 0; i < 5; i++) {
    rig_run_some("slices=1,deadlock=20000", 2, die, rig_err, sizeof rig_err, status);
    assert_true(WIFSIGNALED(status[0]));
    assert_int_equal(status[1], 0);
  }
}

// Memory of a process that has died is free again.
static void leave_memory(void)
{
  size_t available = 0, total = 0;
  rig_context(0);
  if (rank == 0) {
    rig_memory(6 << 20);
  }
  rig_barrier(2);
  if (rank == 0) {
    kill(getpid(), SIGKILL);
  }
  CUdeviceptr ptr;
  for (int i = 0; i < 5000 && available < 6 << 20; i++) { // until it is dead
    rig_sleep_ms(1);
    OK(cu.MemGetInfo(&available, &total));
  }
  OK(cu.MemAlloc(&ptr, 6 << 20));
}

static void test_leave_memory(void **state)
{
  (void)state;
  int status[2];
  rig_run_some("memory=8", 2, leave_memory, rig_err, sizeof rig_err, status);
  assert_true(WIFSIGNALED(status[0]));
  assert_int_equal(status[1], 0);
}

// A deadlock between processes: the report has the waits of both, though one process writes it.
static void deadlock_across(void)
{
  rig_context(0);
  _Atomic uint32_t *words = registered_words();
  CUstream stream = rig_stream();
  rig_barrier(2);
  OK(cu.StreamWriteValue32(stream, at(words + 8 * rank), 1, 0));
  OK(cu.StreamWaitValue32(stream, at(words + 8 * (1 - rank)), 2, CU_STREAM_WAIT_VALUE_GEQ));
  GIVES(CUDA_ERROR_LAUNCH_TIMEOUT, cu.StreamSynchronize(stream));
  rig_barrier(2);
}

static int occurrences(const char *what)
{
  int n = 0;
  for (const char *p = strstr(rig_err, what); p != NULL; p = strstr(p + 1, what)) {
    n++;
  }
  return n;
}

static void test_deadlock_across(void **state)
{
  (void)state;
  rig_run("deadlock=1000,slices=1", 2, deadlock_across);
  assert_int_equal(occurrences("now 1; 0 operations behind it; last written by stream"), 2);
  assert_int_equal(occurrences("no stream of any process has gone on"), 1);
}

// No report while one of the processes goes on.
static void one_goes_on(void)
{
  rig_context(0);
  _Atomic uint32_t *words = registered_words();
  CUstream stream = rig_stream();
  if (rank == 0) {
    OK(cu.StreamWaitValue32(stream, at(words), 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  rig_barrier(2);
  for (int i = 0; i < 300 && rank == 1; i++) {
    OK(cu.StreamWriteValue32(stream, at(words + 1), 1, 0));
    rig_sleep_ms(10);
  }
  if (rank == 1) {
    OK(cu.StreamWriteValue32(stream, at(words), 1, 0));
  }
  OK(cu.StreamSynchronize(stream));
  rig_barrier(2);
}

// Nor while one is in a long kernel.
static void one_computes(void)
{
  rig_context(0);
  _Atomic uint32_t *words = registered_words();
  CUstream stream = rig_stream();
  if (rank == 1) {
    OK(rig_launch(rig_kernel("busy"), 1, 1, at(words), 1, stream));
  }
  rig_barrier(2);
  if (rank == 1) {
    rig_sleep_ms(2600);
    atomic_store(words, 1);
  } else {
    OK(cu.StreamWaitValue32(stream, at(words), 1, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cu.StreamSynchronize(stream));
  }
  rig_barrier(2);
}

static void test_one_goes_on(void **state)
{
  (void)state;
  rig_quiet("deadlock=2000,slices=1", 2, one_computes);
  rig_quiet("deadlock=2000", 2, one_goes_on);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_compute),      cmocka_unit_test(test_across),          cmocka_unit_test(test_die),
      cmocka_unit_test(test_leave_memory), cmocka_unit_test(test_deadlock_across), cmocka_unit_test(test_one_goes_on),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
