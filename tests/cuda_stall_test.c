// cuda_stall_test.c: what is reported of ranks on GPUs that wait too long: for which rank, in which call, at which
// step, and for what.
#include "cuda_modes.h"
#include "harness.h"

#include "device/cuda/gpu.h"

enum { RANKS = 3, COUNT = 1000 };

// Ranks 0 and 1 have made a call, or launched their graph with it, rank 2 has not.
typedef struct lateness {
  char *algo;
  bool graph;
  const char *says; // of rank 0
} lateness;

static const tt_cuda *cu;
static ncclComm_t comms[RANKS];
static CUstream streams[RANKS];
static void *buffers[RANKS];
static CUgraphExec execs[RANKS];

#define DRIVER(call)                                                     \
  do {                                                                   \
    CUresult on_ = (call);                                               \
    CHECK(on_ == CUDA_SUCCESS, "%s: the driver's error %d", #call, on_); \
  } while (0)

static bool log_says(const char *path, const char *words)
{
  char text[1 << 14] = "";
  const int fd = open(path, O_RDONLY);
  const ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
  close(fd);
  return n > 0 && strstr(text, words) != NULL;
}

static void late_open(void)
{
  int devices[RANKS] = {0, 0, 0};
  cu = tt_cuda_get(NULL);
  CHECK(cu != NULL && tt_gpu_enter(0) == ncclSuccess, "no GPU");
  OK(ncclCommInitAll(comms, RANKS, devices));
  for (int r = 0; r < RANKS; r++) {
    OK(ncclMemAlloc(&buffers[r], COUNT * sizeof(float)));
    DRIVER(cu->StreamCreateWithPriority(&streams[r], CU_STREAM_NON_BLOCKING, 0));
  }
}

static void late_close(void)
{
  for (int r = 0; r < RANKS; r++) {
    DRIVER(cu->StreamSynchronize(streams[r]));
    if (execs[r] != NULL) {
      DRIVER(cu->GraphExecDestroy(execs[r]));
    }
    OK(ncclCommDestroy(comms[r]));
  }
  tt_gpu_leave();
}

static void late_call(int r)
{
  OK(ncclAllReduce(buffers[r], buffers[r], COUNT, ncclFloat, ncclSum, comms[r], (cudaStream_t)streams[r]));
}

// Each rank captures for itself.
static void late_capture(void)
{
  CUgraph graph;
  for (int r = 0; r < RANKS; r++) {
    DRIVER(cu->StreamBeginCapture(streams[r], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    late_call(r);
    DRIVER(cu->StreamEndCapture(streams[r], &graph));
    DRIVER(cu->GraphInstantiateWithFlags(&execs[r], graph, 0));
    DRIVER(cu->GraphDestroy(graph));
  }
}

// Those ranks make the call, or launch their graphs.
static void late_run(int from, int until)
{
  OK(ncclGroupStart());
  for (int r = from; r < until; r++) {
    if (execs[r] != NULL) {
      DRIVER(cu->GraphLaunch(execs[r], streams[r]));
    } else {
      late_call(r);
    }
  }
  OK(ncclGroupEnd());
}

static void late_body(int process, void *arg)
{
  const lateness *late = arg;
  char path[] = "/tmp/cuda_stall_test.XXXXXX";
  (void)process;
  CHECK(mkstemp(path) >= 0 && setenv("NCCL_DEBUG", "WARN", 1) == 0 && setenv("NCCL_DEBUG_FILE", path, 1) == 0, "%s",
        path);
  late_open();
  if (late->graph) {
    late_capture();
  }
  late_run(0, 2);
  const double end = seconds_now() + GENEROUS(2);
  while (!log_says(path, late->says) && seconds_now() < end) {
    sleep_ms(20);
  }
  CHECK(log_says(path, late->says), "\"%s\" is not in %s", late->says, path);
  late_run(2, RANKS);
  late_close();
  remove(path);
}

static void test_late(void **state)
{
  static const lateness all[] = {
      {"NCCL_ALGO=Direct", false, "type ncclFloat32 op sum root 0 count 1000 for rank 2 (channel 0, step 2: a token)"},
      {"NCCL_ALGO=Ring", false, "type ncclFloat32 op sum root 0 count 1000 for rank 2 (channel 0, step 1: a message)"},
      {"NCCL_ALGO=Direct", true, "op sum root 0 count 1000 for rank 2 (channel 0, step 2: a token)"},
      {"NCCL_ALGO=Ring", true, "op sum root 0 count 1000 for rank 2 (channel 0, step 1: a message)"},
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
