// cuda_calls_test.c: how often an operation asks the CUDA driver, which counts its calls (tests/cudasim); lanes of a
// resident rank that go on while another one waits.
#include "cuda_modes.h"
#include "harness.h"

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

static uint64_t (*calls)(const char *name);

static void open_counts(void)
{
  OK(tt_gpu_enter(0));
  *(void **)&calls = driver_hook("cudasim_calls");
  tt_gpu_leave();
}

// Rank r on GPU devices[r].
static void open_ranks(const int devices[RANKS])
{
  OK(ncclCommInitAll(comms, RANKS, devices));
  for (int r = 0; r < RANKS; r++) {
    OK(tt_gpu_enter(devices[r]));
    OK(ncclMemAlloc(&buffers[r], COUNT * sizeof(float)));
    tt_gpu_leave();
  }
  all_reduce();
}

static void close_ranks(void)
{
  for (int r = 0; r < RANKS; r++) {
    OK(ncclCommDestroy(comms[r]));
    OK(ncclMemFree(buffers[r]));
  }
}

// Whether its stream is captured is asked once for each call.
static void captured_body(int rank, void *arg)
{
  (void)rank;
  (void)arg;
  open_counts();
  open_ranks((const int[]){0, 0});
  const uint64_t before = calls("cuStreamIsCapturing");
  CHECK(before > 0, "it is not asked at all");
  all_reduce();
  const uint64_t asked = calls("cuStreamIsCapturing") - before;
  CHECK(asked == RANKS, "%d calls have asked %d times", RANKS, (int)asked);
  close_ranks();
}

static void test_captured(void **state)
{
  (void)state;
  PROCESSES(1, 60, captured_body, NULL);
}

// The lines of the log with that text.
static int logged(const char *path, const char *text)
{
  char line[1024];
  int n = 0;
  FILE *f = fopen(path, "r");
  CHECK(f != NULL, "%s: no log", path);
  while (fgets(line, sizeof line, f) != NULL) {
    n += strstr(line, text) != NULL;
  }
  fclose(f);
  return n;
}

// A resident rank has one launch for an operation, and its stream waits for no word; one that shares its GPU is not
// resident, and says so.
static void resident_body(int rank, void *arg)
{
  char log[128];
  const int *with_lines = arg;
  (void)rank;
  snprintf(log, sizeof log, "/tmp/cuda_calls_test-%d", (int)getpid());
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_FILE", log, 1);
  open_counts();
  for (int shared = 0; shared < 2; shared++) {
    open_ranks((const int[]){0, !shared});
    const uint64_t launches = calls("cuLaunchKernel"), waits = calls("cuStreamBatchMemOp");
    all_reduce();
    const int launched = (int)(calls("cuLaunchKernel") - launches), waited = (int)(calls("cuStreamBatchMemOp") - waits);
    CHECK(shared ? waited > 0 : launched == RANKS && waited == 0, "shared %d: %d launches, %d calls that wait", shared,
          launched, waited);
    close_ranks();
  }
  const int resident = logged(log, "an operation is one kernel"), shares = logged(log, "is on the same GPU"),
            lines = logged(log, "are LL128");
  unlink(log);
  CHECK(resident == RANKS && shares == RANKS, "%d ranks say that they are resident, %d why they are not", resident,
        shares);
  CHECK(lines == *with_lines, "%d ranks say that their messages are LL128", lines);
}

static void test_resident(void **state)
{
  (void)state;
  static int with_lines[] = {RANKS, 0};
  for (int i = 0; i < 2; i++) {
    const run job = {.n = 1,
                     .seconds = 60,
                     .fn = resident_body,
                     .arg = &with_lines[i],
                     .env = ENV("NCCL_CUDA_RESIDENT=1", "NCCL_ALGO=allreduce:Ring", "NCCL_PROTO=LL128",
                                i == 0 ? "NCCL_P2P_DISABLE=0" : "NCCL_P2P_DISABLE=1")};
    assert_int_equal(run_processes(&job), 0);
  }
}

enum { LANE_RANKS = 3 };

static ncclComm_t lane_comms[LANE_RANKS];
static uint32_t *lane_memory[LANE_RANKS];

// A word of each rank's own to rank 0, all over. Waits until it has come to its place there: the sender's stream is
// done when it lies in a FIFO.
static void lane_send(int r)
{
  OK(ncclSend(lane_memory[r], COUNT, ncclUint32, 0, lane_comms[r], NULL));
  OK(tt_gpu_enter(r));
  CHECK(tt_cuda_get(NULL)->StreamSynchronize(NULL) == CUDA_SUCCESS, "rank %d has not sent", r);
  tt_gpu_leave();
  while (memcmp(lane_memory[0] + (size_t)r * COUNT, lane_memory[r], COUNT * sizeof(uint32_t)) != 0) {
    sleep_ms(1);
  }
}

// Messages of one group from two ranks: those of the second one are over when the first one makes its call.
static void lanes_body(int rank, void *arg)
{
  (void)rank;
  (void)arg;
  OK(ncclCommInitAll(lane_comms, LANE_RANKS, (const int[]){0, 1, 2}));
  for (int r = 0; r < LANE_RANKS; r++) {
    OK(tt_gpu_enter(r));
    OK(ncclMemAlloc((void **)&lane_memory[r], LANE_RANKS * COUNT * sizeof(uint32_t)));
    memset(lane_memory[r], r + 1, LANE_RANKS * COUNT * sizeof(uint32_t));
    tt_gpu_leave();
  }
  OK(ncclGroupStart());
  for (int r = 1; r < LANE_RANKS; r++) {
    OK(ncclRecv(lane_memory[0] + (size_t)r * COUNT, COUNT, ncclUint32, r, lane_comms[0], NULL));
  }
  OK(ncclGroupEnd());
  lane_send(2);
  lane_send(1);
  for (int r = 0; r < LANE_RANKS; r++) {
    OK(ncclCommDestroy(lane_comms[r]));
    OK(ncclMemFree(lane_memory[r]));
  }
}

static void test_lanes(void **state)
{
  (void)state;
  const run job = {.n = 1, .seconds = 60, .fn = lanes_body, .env = ENV("NCCL_CUDA_RESIDENT=1")};
  assert_int_equal(run_processes(&job), 0);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_captured), cmocka_unit_test(test_resident),
                                     cmocka_unit_test(test_lanes)};
  use_driver();
  set_modes("devices=3", "calls-test");
  return RUN_TESTS("cuda_calls", tests, argc, argv);
}
