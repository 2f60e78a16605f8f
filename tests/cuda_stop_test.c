// cuda_stop_test.c: a rank on a GPU that stops has its buffers back: when ncclCommAbort has returned, or its stream's
// work has ended with an error, no kernel of another rank writes into them, and none that reads them takes what it
// finds for a result (src/device/cuda/work/owner.h). owner_test.c is the same for the
// host device.
#include "cuda_modes.h"
#include "harness.h"

#include "base/util.h"
#include "comm/comm.h"
#include "device/cuda/gpu.h"

// Sanitizers make the driver's machine up to twenty times slower: fewer moments.
#if defined TT_TSAN || defined TT_ASAN
enum { MOMENTS = 4, MODE_STEP = 2 };
#else
enum { MOMENTS = 16, MODE_STEP = 1 };
#endif

enum { RANKS = 3, COUNT = 999, ALL = RANKS * COUNT, MARK = 0x2a2a2a2a };

// The driver for tests stops its devices (tests/cudasim/sim.h).
static void (*devices_run)(long steps);
static bool (*devices_stand)(void);
static uint64_t (*device_steps)(void);

static const tt_cuda *cu;
static ncclComm_t comms[RANKS];
static CUstream streams[RANKS];
static float *ins[RANKS], *outs[RANKS];
static bool few_queues, blocking; // what one thread submits may stand behind what another one does

typedef enum { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, FUNCTIONS } function;

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

// ---- Ranks and their buffers ----

static void find_hooks(void)
{
  *(void **)&devices_run = driver_hook("cudasim_run");
  *(void **)&devices_stand = driver_hook("cudasim_stands");
  *(void **)&device_steps = driver_hook("cudasim_steps");
}

static void open_buffers(int r)
{
  CUdeviceptr at[2] = {0};
  for (int i = 0; i < 2; i++) {
    ON(r, cu->MemAlloc(&at[i], ALL * sizeof(float)));
  }
  ins[r] = (float *)(uintptr_t)at[0];
  outs[r] = (float *)(uintptr_t)at[1];
  ON(r, cu->StreamCreateWithPriority(&streams[r], CU_STREAM_NON_BLOCKING, 0));
}

static void open_driver(void)
{
  cu = tt_cuda_get(NULL);
  CHECK(cu != NULL, "no driver");
  find_hooks();
}

static void open_ranks(void)
{
  int devices[RANKS];
  for (int r = 0; r < RANKS; r++) {
    devices[r] = device_of(r);
  }
  OK(ncclCommInitAll(comms, RANKS, devices));
}

static float value_of(int rank, size_t i)
{
  return (float)(rank + 1) * (float)(i % 31 + 1);
}

// The driver for tests lets the host look into memory of devices.
static void fill(int r)
{
  for (size_t i = 0; i < ALL; i++) {
    ins[r][i] = value_of(r, i);
    outs[r][i] = -1;
  }
}

static ncclResult_t call(function f, int r)
{
  const ncclComm_t c = comms[r];
  const cudaStream_t s = (cudaStream_t)streams[r];
  switch (f) {
  case ALL_REDUCE: return ncclAllReduce(ins[r], outs[r], COUNT, ncclFloat, ncclSum, c, s);
  case BROADCAST: return ncclBroadcast(ins[r], outs[r], COUNT, ncclFloat, 1, c, s);
  case REDUCE: return ncclReduce(ins[r], outs[r], COUNT, ncclFloat, ncclSum, 1, c, s);
  case ALL_GATHER: return ncclAllGather(ins[r], outs[r], COUNT, ncclFloat, c, s);
  case REDUCE_SCATTER: return ncclReduceScatter(ins[r], outs[r], COUNT, ncclFloat, ncclSum, c, s);
  default: return ncclAlltoAll(ins[r], outs[r], COUNT, ncclFloat, c, s);
  }
}

static float sum_at(size_t i)
{
  return value_of(0, i) + value_of(1, i) + value_of(2, i);
}

static float expected(function f, int r, size_t i)
{
  const int block = (int)(i / COUNT);
  switch (f) {
  case ALL_REDUCE: return i < COUNT ? sum_at(i) : -1;
  case BROADCAST: return i < COUNT ? value_of(1, i) : -1;
  case REDUCE: return i < COUNT && r == 1 ? sum_at(i) : -1;
  case ALL_GATHER: return value_of(block, i % COUNT);
  case REDUCE_SCATTER: return i < COUNT ? sum_at((size_t)r * COUNT + i) : -1;
  default: return value_of(block, (size_t)r * COUNT + i % COUNT);
  }
}

// ---- What must hold ----

// What the program does as soon as the buffers are its own.
static void spoil(int r)
{
  for (size_t i = 0; i < ALL; i++) {
    ((int *)ins[r])[i] = ((int *)outs[r])[i] = MARK;
  }
}

static void check_spoilt(int r, function f, long moment)
{
  for (size_t i = 0; i < ALL; i++) {
    const int found = ((const int *)outs[r])[i];
    CHECK(found == MARK && ((const int *)ins[r])[i] == MARK,
          "function %d, moment %ld: element %zu of rank %d's output was written after the rank had it back: %x", (int)f,
          moment, i, r, (unsigned)found);
  }
}

// Rank r has not stopped by itself: it has an error, or the result. Either way its stream ends.
static ncclResult_t check_peer(int r, function f, ncclResult_t res, long moment)
{
  ncclResult_t async = ncclSuccess;
  ON(r, cu->StreamSynchronize(streams[r]));
  if (res == ncclSuccess && comms[r] != NULL) {
    OK(ncclCommGetAsyncError(comms[r], &async));
    res = async;
  }
  CHECK(res == ncclSuccess || res == ncclRemoteError, "function %d, moment %ld: rank %d: %d, %s", (int)f, moment, r,
        (int)res, ncclGetLastError(comms[r]));
  for (size_t i = 0; i < ALL && res == ncclSuccess; i++) {
    CHECK(outs[r][i] == expected(f, r, i), "function %d, moment %ld: rank %d: element %zu is %g, not %g", (int)f,
          moment, r, i, (double)outs[r][i], (double)expected(f, r, i));
  }
  return res;
}

static void all_call(function f)
{
  OK(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) {
    OK(call(f, r));
  }
  OK(ncclGroupEnd());
  for (int r = 0; r < RANKS; r++) {
    ON(r, cu->StreamSynchronize(streams[r]));
  }
}

// In processes that read each other's buffers, and in others that also write into them.
static void in_both_ways(int n, void (*fn)(int rank, void *arg), void *arg)
{
  static char *const ways[] = {"NCCL_ALGO=Direct", "NCCL_ALGO=DirectWrite"};
  for (size_t i = 0; i < TT_COUNT(ways); i++) {
    const run job = {.n = n, .seconds = 60, .fn = fn, .arg = arg, .env = ENV(ways[i])};
    assert_int_equal(run_processes(&job), 0);
  }
}

// ---- A rank that comes when another one has gone ----

// Rank 0 has told rank 1 where its buffers are.
static void await_told(void)
{
  const tt_link *link = NULL;
  while (link == NULL || atomic_load(&((tt_slot *)(void *)link->send[TT_TOK].slots)->seq) == 0) {
    link = __atomic_load_n(&comms[0]->port.links[1], __ATOMIC_ACQUIRE);
    sleep_ms(0.1);
  }
}

// Rank 0's buffers are open to rank 1, which waits for rank 2. Rank 0 aborts, and its program uses the buffers for
// other things. Then rank 2 comes.
static void late_body(int process, void *arg)
{
  (void)process;
  (void)arg;
  int errors = 0;
  open_driver();
  for (int r = 0; r < RANKS; r++) {
    open_buffers(r);
  }
  for (int f = 0; f < FUNCTIONS; f++) {
    open_ranks();
    for (int r = 0; r < RANKS; r++) {
      fill(r);
    }
    OK(ncclGroupStart());
    OK(call((function)f, 0));
    OK(call((function)f, 1));
    OK(ncclGroupEnd());
    if (f != BROADCAST) { // its root is rank 1, and rank 0 only reads
      await_told();
    }
    OK(ncclCommAbort(comms[0]));
    comms[0] = NULL;
    spoil(0);
    const ncclResult_t res = call((function)f, 2);
    for (int r = 1; r < RANKS; r++) {
      errors += check_peer(r, (function)f, r == 2 ? res : ncclSuccess, -1) != ncclSuccess;
    }
    check_spoilt(0, (function)f, -1);
    OK(ncclCommAbort(comms[1]));
    OK(ncclCommAbort(comms[2]));
  }
  CHECK(errors > 0, "no rank has noticed anything");
}

// Another communicator ends while calls wait for one that comes later: its memory is unpinned when nothing waits.
static void other_body(int process, void *arg)
{
  (void)process;
  (void)arg;
  ncclComm_t ended[RANKS];
  open_driver();
  for (int r = 0; r < RANKS; r++) {
    open_buffers(r);
  }
  open_ranks();
  all_call(ALL_REDUCE);
  memcpy(ended, comms, sizeof ended);
  for (int round = 0; round < 3; round++) {
    open_ranks();
    for (int r = 0; r < RANKS; r++) {
      fill(r);
    }
    OK(ncclGroupStart());
    OK(call(ALL_GATHER, 0));
    OK(call(ALL_GATHER, 1));
    OK(ncclGroupEnd());
    for (int r = 0; r < RANKS; r++) {
      OK(round == 0 ? ncclCommDestroy(ended[r]) : ncclCommAbort(ended[r]));
    }
    OK(call(ALL_GATHER, 2));
    for (int r = 0; r < RANKS; r++) {
      CHECK(check_peer(r, ALL_GATHER, ncclSuccess, -1) == ncclSuccess, "rank %d has failed", r);
    }
    memcpy(ended, comms, sizeof ended);
  }
  for (int r = 0; r < RANKS; r++) {
    OK(ncclCommDestroy(ended[r]));
  }
}

static void test_other(void **state)
{
  (void)state;
  if (few_queues || blocking) {
    skip(); // rank 2 comes behind rank 1, which waits for it
  }
  in_both_ways(1, other_body, NULL);
}

static void test_late(void **state)
{
  (void)state;
  if (few_queues || blocking) {
    skip(); // rank 2 comes behind rank 1, which waits for it; the first call would not return
  }
  in_both_ways(1, late_body, NULL);
}

// The same with a process for each rank.
static void late_process(int rank, void *arg)
{
  const function f = *(const function *)arg;
  ncclResult_t res = ncclSuccess;
  open_driver();
  OK(tt_gpu_enter(device_of(rank)));
  open_buffers(rank);
  comms[rank] = join_processes(0, RANKS, rank);
  fill(rank);
  meet(RANKS);
  if (rank < 2) {
    res = call(f, rank);
  }
  if (rank == 0) {
    await_told();
    OK(ncclCommAbort(comms[0]));
    spoil(0);
  }
  meet(RANKS);
  if (rank == 2) {
    res = call(f, rank);
  }
  if (rank > 0) {
    res = check_peer(rank, f, res, -1);
    OK(ncclCommAbort(comms[rank]));
  }
  meet(RANKS);
  if (rank == 0) {
    check_spoilt(0, f, -1);
  }
  tt_gpu_leave();
}

static void test_late_processes(void **state)
{
  static const function functions[] = {ALL_REDUCE, REDUCE, ALL_GATHER};
  (void)state;
  if (blocking) {
    skip();
  }
  for (size_t i = 0; i < TT_COUNT(functions); i++) {
    in_both_ways(RANKS, late_process, (void *)(uintptr_t)&functions[i]);
  }
}

// ---- Any moment ----

static _Atomic bool aborts; // rank 0

static void *abort_body(void *arg)
{
  atomic_store(&aborts, true);
  OK(ncclCommAbort(comms[0]));
  comms[0] = NULL;
  spoil(0);
  return arg;
}

// The devices stand while rank 0 begins to abort.
static void try_moment(function f, long moment)
{
  pthread_t aborter;
  open_ranks();
  for (int r = 0; r < RANKS; r++) {
    fill(r);
  }
  devices_run(moment);
  OK(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) {
    OK(call(f, r));
  }
  OK(ncclGroupEnd());
  while (!devices_stand()) {
    sleep_ms(0.1);
  }
  atomic_store(&aborts, false);
  CHECK(pthread_create(&aborter, NULL, abort_body, NULL) == 0, "no thread");
  while (!atomic_load(&aborts)) {
    sleep_ms(0.1);
  }
  sleep_ms(2);
  devices_run(-1);
  pthread_join(aborter, NULL);
  for (int r = 1; r < RANKS; r++) {
    check_peer(r, f, ncclSuccess, moment);
  }
  check_spoilt(0, f, moment);
  OK(ncclCommAbort(comms[1]));
  OK(ncclCommAbort(comms[2]));
}

// How many steps of the devices the function takes.
static long measure(function f)
{
  open_ranks();
  for (int r = 0; r < RANKS; r++) {
    fill(r);
  }
  const uint64_t before = device_steps();
  OK(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) {
    OK(call(f, r));
  }
  OK(ncclGroupEnd());
  for (int r = 0; r < RANKS; r++) {
    CHECK(check_peer(r, f, ncclSuccess, 0) == ncclSuccess, "rank %d", r);
  }
  const uint64_t after = device_steps();
  for (int r = 0; r < RANKS; r++) {
    OK(ncclCommDestroy(comms[r]));
  }
  return (long)(after - before);
}

static void moments_body(int process, void *arg)
{
  (void)process;
  (void)arg;
  open_driver();
  for (int r = 0; r < RANKS; r++) {
    open_buffers(r);
  }
  for (int f = 0; f < FUNCTIONS; f++) {
    const long steps = measure((function)f) * 9 / 10; // by lot it may take fewer another time
    for (long i = 1; i <= MOMENTS; i++) {
      try_moment((function)f, TT_MAX(steps * i / MOMENTS, 1));
    }
  }
}

static void test_moments(void **state)
{
  (void)state;
  if (blocking) {
    skip(); // calls do not return while devices stand
  }
  in_both_ways(1, moments_body, NULL);
}

static int in_mode(const char *modes, unsigned number)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_other),
      cmocka_unit_test(test_late),
      cmocka_unit_test(test_late_processes),
      cmocka_unit_test(test_moments),
  };
  (void)number;
  set_modes(modes, "stop-test");
  few_queues = strstr(modes, "queues=") != NULL || strstr(modes, "order=random") != NULL; // by lot
  blocking = strstr(modes, "blocking") != NULL;
  return cmocka_run_group_tests_name(modes, tests, NULL, NULL);
}

// An argument chooses tests by name; CUDA_STOP_MODE one mode.
int main(int argc, char **argv)
{
  static const char *const modes[] = {"devices=3,step=500", "step=500", "queues=1,order=random,seed=4,step=200",
                                      "devices=2,stores,stale,order=random,step=300,seed=7"};
  use_driver();
  if (argc > 1) {
    cmocka_set_test_filter(argv[1]);
  }
  return for_each_mode(modes, TT_COUNT(modes), MODE_STEP, getenv("CUDA_STOP_MODE"), in_mode) != 0;
}
