// cuda_stall_test.c: what is reported of ranks on GPUs that wait too long: for which rank, in which call, at which
// step, and for what.
#include "cuda_modes.h"
#include "harness.h"

#include "device/cuda/gpu.h"

enum { RANKS = 3, COUNT = 1000 };

// Ranks 0 and 1 have made a call, rank 2 has not.
typedef struct lateness {
  char *algo;
  const char *says; // of rank 0
} lateness;

static bool log_says(const char *path, const char *words)
{
  char text[1 << 14] = "";
  const int fd = open(path, O_RDONLY);
  const ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
  close(fd);
  return n > 0 && strstr(text, words) != NULL;
}

static void late_body(int process, void *arg)
{
  const lateness *late = arg;
  char path[] = "/tmp/cuda_stall_test.XXXXXX";
  int devices[RANKS] = {0, 0, 0};
  ncclComm_t comms[RANKS];
  CUstream streams[RANKS];
  void *buffers[RANKS];
  (void)process;
  CHECK(mkstemp(path) >= 0 && setenv("NCCL_DEBUG", "WARN", 1) == 0 && setenv("NCCL_DEBUG_FILE", path, 1) == 0, "%s",
        path);
  const tt_cuda *cu = tt_cuda_get(NULL);
  CHECK(cu != NULL && tt_gpu_enter(0) == ncclSuccess, "no GPU");
  OK(ncclCommInitAll(comms, RANKS, devices));
  for (int r = 0; r < RANKS; r++) {
    OK(ncclMemAlloc(&buffers[r], COUNT * sizeof(float)));
    CHECK(cu->StreamCreateWithPriority(&streams[r], CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS, "no stream");
  }
  OK(ncclGroupStart());
  for (int r = 0; r < 2; r++) {
    OK(ncclAllReduce(buffers[r], buffers[r], COUNT, ncclFloat, ncclSum, comms[r], (cudaStream_t)streams[r]));
  }
  OK(ncclGroupEnd());
  const double end = seconds_now() + GENEROUS(2);
  while (!log_says(path, late->says) && seconds_now() < end) {
    sleep_ms(20);
  }
  CHECK(log_says(path, late->says), "\"%s\" is not in %s", late->says, path);
  OK(ncclAllReduce(buffers[2], buffers[2], COUNT, ncclFloat, ncclSum, comms[2], (cudaStream_t)streams[2]));
  for (int r = 0; r < RANKS; r++) {
    CHECK(cu->StreamSynchronize(streams[r]) == CUDA_SUCCESS, "rank %d", r);
    OK(ncclCommDestroy(comms[r]));
  }
  remove(path);
  tt_gpu_leave();
}

static void test_late(void **state)
{
  static const lateness all[] = {
      {"NCCL_ALGO=Direct", "type ncclFloat32 op sum root 0 count 1000 for rank 2 (channel 0, step 2: a token)"},
      {"NCCL_ALGO=Ring", "type ncclFloat32 op sum root 0 count 1000 for rank 2 (channel 0, step 1: a message)"},
  };
  (void)state;
  for (size_t i = 0; i < TT_COUNT(all); i++) {
    const run job = {.n = 1,
                     .seconds = 60,
                     .fn = late_body,
                     .arg = (void *)(uintptr_t)&all[i],
                     .env = ENV(all[i].algo, "NCCL_STALL_WARN_MS=300")};
    assert_int_equal(run_processes(&job), 0);
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_late)};
  use_driver();
  set_modes("", "stall-test");
  return RUN_TESTS("cuda_stall", tests, argc, argv);
}
