// cuda_streams_test.c: messages of one group on several streams of a GPU: each comes behind what its stream had before,
// and what follows on a stream comes behind its message. On the driver for tests.
#include "cuda_modes.h"
#include "harness.h"

#include "base/util.h"
#include "device/cuda/gpu.h"

enum { RANKS = 2, STREAMS = 2, COUNT = 1000, ROUNDS = 3 };

static const tt_cuda *cu;
static ncclComm_t comms[RANKS];
static CUstream streams[RANKS][STREAMS];
static uint32_t *in[RANKS], *out[RANKS], *copy[RANKS];
static uint32_t *gate; // the program's own work waits for this number

static uint32_t *words(void)
{
  CUdeviceptr at = 0;
  assert_int_equal(cu->MemAlloc(&at, COUNT * sizeof(uint32_t)), CUDA_SUCCESS);
  memset((void *)(uintptr_t)at, 0, COUNT * sizeof(uint32_t));
  return (uint32_t *)(uintptr_t)at;
}

static int open_ranks(void **state)
{
  void *memory;
  (void)state;
  cu = tt_cuda_get(NULL);
  assert_non_null(cu);
  OK(tt_gpu_enter(0));
  assert_int_equal(cu->MemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
  gate = memory;
  *gate = 0;
  for (int r = 0; r < RANKS; r++) {
    in[r] = words();
    out[r] = words();
    copy[r] = words();
    for (int k = 0; k < STREAMS; k++) {
      assert_int_equal(cu->StreamCreateWithPriority(&streams[r][k], CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    }
  }
  OK(ncclCommInitAll(comms, RANKS, (const int[RANKS]){0}));
  return 0;
}

static int close_ranks(void **state)
{
  (void)state;
  for (int r = 0; r < RANKS; r++) {
    OK(ncclCommDestroy(comms[r]));
  }
  tt_gpu_leave();
  return 0;
}

static CUdeviceptr address(const void *at)
{
  return (CUdeviceptr)(uintptr_t)at;
}

// The stream's next work waits until the gate is opened for the round.
static void hold_stream(CUstream stream, uint32_t round)
{
  assert_int_equal(cu->StreamWaitValue32(stream, address(gate), round, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
}

// Opens it, after what should not go on has had time to go wrong; then all streams end.
static void open_gate(uint32_t round)
{
  sleep_ms(30);
  __atomic_store_n(gate, round, __ATOMIC_RELEASE);
  for (int r = 0; r < RANKS; r++) {
    for (int k = 0; k < STREAMS; k++) {
      assert_int_equal(cu->StreamSynchronize(streams[r][k]), CUDA_SUCCESS);
    }
  }
}

// Messages between the two ranks: those received on one stream of each rank, those sent on the other.
static void exchange(int receives, int sends, bool receive_first)
{
  OK(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) {
    const cudaStream_t to = (cudaStream_t)streams[r][receives], from = (cudaStream_t)streams[r][sends];
    if (receive_first) {
      OK(ncclRecv(out[r], COUNT, ncclUint32, 1 - r, comms[r], to));
    }
    OK(ncclSend(in[r], COUNT, ncclUint32, 1 - r, comms[r], from));
    if (!receive_first) {
      OK(ncclRecv(out[r], COUNT, ncclUint32, 1 - r, comms[r], to));
    }
  }
  OK(ncclGroupEnd());
}

static void check_words(uint32_t *const *at, uint32_t value)
{
  for (int r = 0; r < RANKS; r++) {
    for (int i = 0; i < COUNT; i++) {
      if (at[r][i] != value + (uint32_t)(1 - r)) {
        fail_msg("rank %d, word %d: %u, not %u", r, i, at[r][i], value + (uint32_t)(1 - r));
      }
    }
  }
}

// What a rank sends on its second stream is written there before, by the program. The group's work is on the first.
static void test_before(void **state)
{
  (void)state;
  for (uint32_t round = 1; round <= ROUNDS; round++) {
    for (int r = 0; r < RANKS; r++) {
      hold_stream(streams[r][1], *gate + 1);
      assert_int_equal(cu->MemsetD32Async(address(in[r]), 10 * round + (uint32_t)r, COUNT, streams[r][1]),
                       CUDA_SUCCESS);
    }
    exchange(0, 1, true);
    open_gate(*gate + 1);
    check_words(out, 10 * round);
  }
}

// What a rank receives on its second stream is read there by what follows. The group's work is on the first.
static void test_behind(void **state)
{
  (void)state;
  for (uint32_t round = 1; round <= ROUNDS; round++) {
    for (int r = 0; r < RANKS; r++) {
      for (int i = 0; i < COUNT; i++) {
        in[r][i] = 1000 * round + (uint32_t)r;
      }
      hold_stream(streams[r][0], *gate + 1);
    }
    exchange(1, 0, false);
    for (int r = 0; r < RANKS; r++) {
      assert_int_equal(cu->MemcpyAsync(address(copy[r]), address(out[r]), COUNT * sizeof(uint32_t), streams[r][1]),
                       CUDA_SUCCESS);
    }
    open_gate(*gate + 1);
    check_words(copy, 1000 * round);
  }
}

// A communicator's second call is on another stream, and reads what the first one has written.
static void test_plans(void **state)
{
  (void)state;
  for (uint32_t round = 1; round <= ROUNDS; round++) {
    for (int k = 0; k < STREAMS; k++) {
      OK(ncclGroupStart());
      for (int r = 0; r < RANKS; r++) {
        if (k == 0) {
          for (int i = 0; i < COUNT; i++) {
            in[r][i] = 100 * round + (uint32_t)r;
          }
          hold_stream(streams[r][0], *gate + 1);
        }
        OK(ncclAllReduce(k == 0 ? in[r] : out[r], k == 0 ? out[r] : copy[r], COUNT, ncclUint32, ncclSum, comms[r],
                         (cudaStream_t)streams[r][k]));
      }
      OK(ncclGroupEnd());
    }
    open_gate(*gate + 1);
    for (int r = 0; r < RANKS; r++) {
      for (int i = 0; i < COUNT; i++) {
        assert_int_equal(copy[r][i], 400 * round + 2);
      }
    }
  }
}

static int in_mode(const char *modes, unsigned number)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_before), cmocka_unit_test(test_behind),
                                     cmocka_unit_test(test_plans)};
  (void)number;
  set_modes(modes, "streams-test");
  return cmocka_run_group_tests_name(modes, tests, open_ranks, close_ranks);
}

// An argument chooses tests by name; CUDA_STREAMS_MODE one mode.
int main(int argc, char **argv)
{
  static const char *const modes[] = {"queues=32", "queues=32,stores,stale,step=500,seed=2", "queues=32,sms=1,seed=3"};
  use_driver();
  if (argc > 1) {
    cmocka_set_test_filter(argv[1]);
  }
  return for_each_mode(modes, TT_COUNT(modes), 1, getenv("CUDA_STREAMS_MODE"), in_mode) != 0;
}
