// cuda_reset_test.c: the program resets a GPU (cudaDeviceReset) on which communicators are. Their next call says so, as
// does one that is under way; they can be destroyed and aborted; new ones work.
#include "cuda_modes.h"
#include "harness.h"

#include "base/util.h"
#include "device/cuda/gpu.h"

// Sanitizers make the driver's machine up to twenty times slower: one mode, and ways in which each bit is both 0 and 1.
#if defined TT_TSAN || defined TT_ASAN
enum { MODE_STEP = 2, WAY_STEP = 3 };
#else
enum { MODE_STEP = 1, WAY_STEP = 1 };
#endif

enum { RANKS = 2, COUNT = 1000 };

static const tt_cuda *cu;
static ncclComm_t comms[RANKS];
static CUstream streams[RANKS];
static float *ins[RANKS], *outs[RANKS];

static int device_of(int rank)
{
  return rank % tt_gpu_count();
}

// One call of the driver in the context of a rank's device.
#define ON(rank, call)                                                   \
  do {                                                                   \
    OK(tt_gpu_enter(device_of(rank)));                                   \
    CUresult on_ = (call);                                               \
    CHECK(on_ == CUDA_SUCCESS, "%s: the driver's error %d", #call, on_); \
    tt_gpu_leave();                                                      \
  } while (0)

static void open_memory(void)
{
  CUdeviceptr at[2] = {0};
  for (int r = 0; r < RANKS; r++) {
    for (int i = 0; i < 2; i++) {
      ON(r, cu->MemAlloc(&at[i], COUNT * sizeof(float)));
    }
    ins[r] = (float *)(uintptr_t)at[0];
    outs[r] = (float *)(uintptr_t)at[1];
    ON(r, cu->StreamCreateWithPriority(&streams[r], CU_STREAM_NON_BLOCKING, 0));
  }
}

static void open_all(void)
{
  int devices[RANKS];
  cu = tt_cuda_get(NULL);
  CHECK(cu != NULL, "no driver");
  open_memory();
  for (int r = 0; r < RANKS; r++) {
    devices[r] = device_of(r);
  }
  OK(ncclCommInitAll(comms, RANKS, devices));
}

static ncclResult_t all_reduce(int r)
{
  return ncclAllReduce(ins[r], outs[r], COUNT, ncclFloat, ncclSum, comms[r], (cudaStream_t)streams[r]);
}

static void try_all_reduce(void)
{
  for (int r = 0; r < RANKS; r++) {
    for (size_t i = 0; i < COUNT; i++) {
      ins[r][i] = (float)(r + 1) * (float)(i % 7);
    }
  }
  OK(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) {
    OK(all_reduce(r));
  }
  OK(ncclGroupEnd());
  for (int r = 0; r < RANKS; r++) {
    ON(r, cu->StreamSynchronize(streams[r]));
    for (size_t i = 0; i < COUNT; i++) {
      CHECK(outs[r][i] == 3 * (float)(i % 7), "rank %d, element %zu: %g", r, i, (double)outs[r][i]);
    }
  }
}

// What becomes of the context: the program uses the device again before the library does, or not.
static void reset(bool used_again)
{
  CUcontext context;
  CHECK(cu->DevicePrimaryCtxReset(0) == CUDA_SUCCESS, "no reset");
  if (used_again) {
    CHECK(cu->DevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS, "no context");
  }
}

static void end_all(bool aborts)
{
  for (int r = 0; r < RANKS; r++) {
    if (aborts) {
      OK(ncclCommAbort(comms[r]));
    } else {
      (void)ncclCommDestroy(comms[r]); // its result is the failure, if there was one
    }
  }
}

static void try_again(void)
{
  open_all();
  for (int i = 0; i < 3; i++) {
    try_all_reduce();
  }
  end_all(false);
}

// Nothing is under way. The next call of a rank on the GPU says what has happened; the other rank learns of it.
static void idle_body(int rank, void *arg)
{
  const int way = *(const int *)arg;
  ncclResult_t async = ncclSuccess;
  (void)rank;
  open_all();
  try_all_reduce();
  reset((way & 1) != 0);
  if ((way & 2) != 0) { // they are ended without another call
    end_all((way & 4) != 0);
    try_again();
    return;
  }
  open_memory();
  REFUSED(all_reduce(0), ncclUnhandledCudaError, "rank 0", "reset GPU 0");
  OK(ncclCommGetAsyncError(comms[0], &async));
  CHECK(async == ncclUnhandledCudaError, "%d", (int)async);
  CHECK(has_words(ncclGetLastError(comms[0]), (const char *const[]){"reset GPU 0", NULL}), "the text");
  end_all((way & 4) != 0);
  try_again();
}

static void test_idle(void **state)
{
  (void)state;
  for (int way = 0; way < 8; way += WAY_STEP) {
    PROCESSES(1, 60, idle_body, &way);
  }
}

// Rank 0 waits for rank 1 in a call. It ends with the error.
static void busy_body(int rank, void *arg)
{
  const int way = *(const int *)arg;
  ncclResult_t async = ncclSuccess;
  (void)rank;
  open_all();
  try_all_reduce();
  OK(all_reduce(0));
  reset((way & 1) != 0);
  while (async == ncclSuccess) {
    OK(ncclCommGetAsyncError(comms[0], &async));
    sleep_ms(1);
  }
  CHECK(async == ncclUnhandledCudaError, "%d", (int)async);
  CHECK(has_words(ncclGetLastError(comms[0]), (const char *const[]){"rank 0", "reset GPU 0", NULL}), "the text");
  end_all((way & 2) != 0);
  try_again();
}

static void test_busy(void **state)
{
  (void)state;
  for (int way = 0; way < 4; way += WAY_STEP) {
    PROCESSES(1, 60, busy_body, &way);
  }
}

// A graph of the program had operations of the communicator.
static void graph_body(int rank, void *arg)
{
  CUgraph graph;
  int device = 0;
  const bool used_again = *(const int *)arg != 0;
  (void)rank;
  cu = tt_cuda_get(NULL);
  open_memory();
  OK(ncclCommInitAll(comms, 1, &device));
  ON(0, cu->StreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(all_reduce(0));
  ON(0, cu->StreamEndCapture(streams[0], &graph));
  reset(used_again);
  OK(ncclCommAbort(comms[0]));
  try_again();
}

static void test_graph(void **state)
{
  (void)state;
  for (int again = 0; again < 2; again++) {
    PROCESSES(1, 60, graph_body, &again);
  }
}

// Memory of ncclMemAlloc has gone with the device.
static void memory_body(int rank, void *arg)
{
  void *p = NULL, *q = NULL;
  (void)rank;
  (void)arg;
  cu = tt_cuda_get(NULL);
  OK(tt_gpu_enter(0));
  OK(ncclMemAlloc(&p, 1 << 20));
  tt_gpu_leave();
  reset(false);
  REFUSED(ncclMemFree(p), ncclUnhandledCudaError, "reset GPU 0");
  REFUSED(ncclMemFree(p), ncclInvalidArgument, "allocation");
  OK(tt_gpu_enter(0));
  OK(ncclMemAlloc(&q, 1 << 20));
  OK(ncclMemFree(q));
  tt_gpu_leave();
}

static void test_memory(void **state)
{
  (void)state;
  PROCESSES(1, 60, memory_body, NULL);
}

static int in_mode(const char *modes, unsigned number)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_idle), cmocka_unit_test(test_busy),
                                     cmocka_unit_test(test_graph), cmocka_unit_test(test_memory)};
  (void)number;
  set_modes(modes, "reset-test");
  return cmocka_run_group_tests_name(modes, tests, NULL, NULL);
}

// An argument chooses tests by name; CUDA_RESET_MODE one mode.
int main(int argc, char **argv)
{
  static const char *const modes[] = {"devices=2", ""};
  use_driver();
  if (argc > 1) {
    cmocka_set_test_filter(argv[1]);
  }
  return for_each_mode(modes, TT_COUNT(modes), MODE_STEP, getenv("CUDA_RESET_MODE"), in_mode) != 0;
}
