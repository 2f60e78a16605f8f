// cuda_calls_test.c: how often an operation asks the CUDA driver, which counts its calls (tests/cudasim).
#include "cuda_modes.h"
#include "harness.h"

#include <dlfcn.h>

#include "device/cuda/gpu.h"

enum { RANKS = 2, COUNT = 100 };

static ncclComm_t comms[RANKS];
static void *buffers[RANKS];

static void all_reduce(void)
{
  OK(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) {
    OK(ncclAllReduce(buffers[r], buffers[r], COUNT, ncclFloat, ncclSum, comms[r], NULL));
  }
  OK(ncclGroupEnd());
}

// Whether its stream is captured is asked once for each call.
static void captured_body(int rank, void *arg)
{
  uint64_t (*calls)(const char *name);
  int devices[RANKS] = {0, 0};
  (void)rank;
  (void)arg;
  OK(tt_gpu_enter(0));
  void *driver = dlopen(getenv("TUTTI_CUDA_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
  CHECK(driver != NULL, "%s", dlerror());
  *(void **)&calls = dlsym(driver, "cudasim_calls");
  CHECK(calls != NULL, "%s", dlerror());
  OK(ncclCommInitAll(comms, RANKS, devices));
  for (int r = 0; r < RANKS; r++) {
    OK(ncclMemAlloc(&buffers[r], COUNT * sizeof(float)));
  }
  all_reduce();
  const uint64_t before = calls("cuStreamIsCapturing");
  CHECK(before > 0, "it is not asked at all");
  all_reduce();
  const uint64_t asked = calls("cuStreamIsCapturing") - before;
  CHECK(asked == RANKS, "%d calls have asked %d times", RANKS, (int)asked);
  for (int r = 0; r < RANKS; r++) {
    OK(ncclCommDestroy(comms[r]));
    OK(ncclMemFree(buffers[r]));
  }
  tt_gpu_leave();
}

static void test_captured(void **state)
{
  (void)state;
  PROCESSES(1, 60, captured_body, NULL);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_captured)};
  use_driver();
  set_modes("", "calls-test");
  return RUN_TESTS("cuda_calls", tests, argc, argv);
}
