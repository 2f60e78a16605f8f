// cuda_walks_test.c: resident ranks of one process while the driver has calls wait for kernels (tests/cudasim, mode
// waits): what a walk waits for is submitted all the same.
#include "cuda_modes.h"
#include "harness.h"

#include <pthread.h>

#include "device/cuda/gpu.h"

enum { RANKS = 2, SMALL = 1000, LARGE = 100000, LONG = 3000000 };

static ncclComm_t comms[RANKS];
static float *buffers[RANKS];

static void open_ranks(size_t count)
{
  OK(ncclCommInitAll(comms, RANKS, (const int[]){0, 1}));
  for (int r = 0; r < RANKS; r++) {
    OK(tt_gpu_enter(r));
    OK(ncclMemAlloc((void **)&buffers[r], count * sizeof(float)));
    for (size_t i = 0; i < count; i++) {
      buffers[r][i] = (float)(r + 1);
    }
    tt_gpu_leave();
  }
}

static void close_ranks(float first, size_t count, float last)
{
  for (int r = 0; r < RANKS; r++) {
    OK(tt_gpu_enter(r));
    CHECK(tt_cuda_get(NULL)->StreamSynchronize(NULL) == CUDA_SUCCESS, "rank %d is not done", r);
    tt_gpu_leave();
    CHECK(buffers[r][0] == first && buffers[r][count - 1] == last, "rank %d: wrong sums", r);
    OK(ncclCommDestroy(comms[r]));
    OK(ncclMemFree(buffers[r]));
  }
}

// The input is copied to memory of the GPU first, since the output overwrites it.
static void swap(int r, size_t count)
{
  OK(ncclAlltoAll(buffers[r], buffers[r], count / RANKS, ncclFloat, comms[r], NULL));
}

// Rank 0's walk waits for rank 1. Then its thread makes a call that needs more memory than there is, for which the
// driver has it wait, and only then rank 1's thread makes its calls, which need memory, too.
static void *rank_main(void *arg)
{
  const int r = *(const int *)arg;
  OK(tt_gpu_enter(r));
  sleep_ms(r == 0 ? 0 : 500);
  swap(r, SMALL);
  swap(r, LARGE);
  tt_gpu_leave();
  return NULL;
}

static void late_body(int rank, void *arg)
{
  static const int ranks[RANKS] = {0, 1};
  pthread_t threads[RANKS];
  (void)rank;
  (void)arg;
  open_ranks(LARGE);
  for (int r = 0; r < RANKS; r++) {
    CHECK(pthread_create(&threads[r], NULL, rank_main, (void *)(uintptr_t)&ranks[r]) == 0, "no thread");
  }
  for (int r = 0; r < RANKS; r++) {
    pthread_join(threads[r], NULL);
  }
  close_ranks(1, LARGE, 2);
}

static void test_late(void **state)
{
  (void)state;
  assert_int_equal(run_processes(&(run){.n = 1, .seconds = 60, .fn = late_body}), 0);
}

// More steps than one launch has, of two ranks that one thread calls for.
static void long_body(int rank, void *arg)
{
  (void)rank;
  (void)arg;
  open_ranks(LONG);
  OK(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) {
    OK(ncclAllReduce(buffers[r], buffers[r], LONG, ncclFloat, ncclSum, comms[r], NULL));
  }
  OK(ncclGroupEnd());
  close_ranks(3, LONG, 3);
}

static void test_long(void **state)
{
  (void)state;
  const run job = {
      .n = 1, .seconds = 120, .fn = long_body, .env = ENV("NCCL_ALGO=allreduce:Ring", "NCCL_BUFFSIZE=32768")};
  assert_int_equal(run_processes(&job), 0);
}

// The root sends a message of one line, and the other rank expects one of many.
static void short_body(int rank, void *arg)
{
  ncclResult_t error = ncclSuccess;
  (void)rank;
  (void)arg;
  open_ranks(SMALL);
  OK(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) {
    OK(ncclBroadcast(buffers[r], buffers[r], r == 0 ? 2 : SMALL, ncclFloat, 0, comms[r], NULL));
  }
  OK(ncclGroupEnd());
  for (double limit = seconds_now() + 30; error == ncclSuccess && seconds_now() < limit; sleep_ms(1)) {
    OK(ncclCommGetAsyncError(comms[1], &error));
  }
  const char *why = ncclGetLastError(comms[1]);
  CHECK(error == ncclInvalidUsage && strstr(why, "different calls") != NULL, "%d: %s", error, why);
  for (int r = 0; r < RANKS; r++) {
    OK(ncclCommAbort(comms[r]));
  }
}

static void test_short(void **state)
{
  (void)state;
  const run job = {.n = 1, .seconds = 60, .fn = short_body, .env = ENV("NCCL_PROTO=LL128")};
  assert_int_equal(run_processes(&job), 0);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_late), cmocka_unit_test(test_long),
                                     cmocka_unit_test(test_short)};
  use_driver();
  set_modes("resident,devices=2,waits,lines", "walks-test");
  return RUN_TESTS("cuda_walks", tests, argc, argv);
}
