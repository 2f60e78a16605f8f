// cuda_window_reset_test.c: the program resets a GPU (cudaDeviceReset) while one-sided operations are in flight. Ranks
// on it fail, and say why; their peers learn of it; nothing hangs, nothing is left, and new communicators work.
#include "cuda_windows.h"

#include "comm/comm.h"
#include "device/cuda/work/pool.h"

// Sanitizers make the driver's machine up to twenty times slower.
#if defined TT_TSAN || defined TT_ASAN
enum { RESET_MODE_STEP = 2, WAY_STEP = 3 };
#else
enum { RESET_MODE_STEP = 1, WAY_STEP = 1 };
#endif

enum { LONG = 5000 };

// What rank 0 has in flight when GPU 0 is reset, and how it goes on.
typedef struct scene {
  void (*begin)(void);
  bool late; // rank 1's window is not there
  int way;   // bits: the device is used again before the library does so; the communicators are aborted
} scene;

// ---- What is in flight ----

static void begin_wait(void)
{
  wait_for(0, 1, 1, 0, 0);
}

static void begin_put(void)
{
  put(0, 0, LONG, 1, 0, 0, 0);
}

// The stream waits for a word that nobody writes.
static void hold(int rank, CUstream stream, uint32_t **word)
{
  void *memory = NULL;
  ON(rank, cu->MemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_PORTABLE));
  memset(memory, 0, 4096);
  ON(rank, cu->StreamWaitValue32(stream, (CUdeviceptr)(uintptr_t)memory, 1, CU_STREAM_WAIT_VALUE_GEQ));
  *word = memory;
}

static void begin_behind(void)
{
  uint32_t *word;
  hold(0, sides[0].stream, &word);
  put(0, 0, LONG, 1, 0, 0, 0);
}

// The second stream's signal has its turn behind the first one's put.
static void begin_turn(void)
{
  begin_behind();
  OK(ncclSignal(1, 0, 0, 0, sides[0].comm, (cudaStream_t)sides[0].other));
}

static uint64_t writes_of(int rank)
{
  return atomic_load(&sides[rank].comm->rma->peers[1 - rank].out->writing);
}

// A kernel writes into the peer's window at this moment.
static void begin_write(void)
{
  for (CUresult state = CUDA_SUCCESS; writes_of(0) == 0;) {
    if (state == CUDA_SUCCESS) {
      put(0, 0, HALF, 1, 0, 0, 0);
    }
    OK(tt_gpu_enter(0));
    state = cu->StreamQuery(sides[0].stream);
    tt_gpu_leave();
  }
}

// ---- Resets and ends ----

static void reset_first(int way)
{
  CUcontext context;
  CHECK(cu->DevicePrimaryCtxReset(0) == CUDA_SUCCESS, "no reset");
  if ((way & 1) != 0) {
    CHECK(cu->DevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS, "no context");
  }
}

static void end_comm(int r, int way)
{
  if ((way & 2) != 0) {
    OK(ncclCommAbort(sides[r].comm));
  } else {
    (void)ncclCommDestroy(sides[r].comm); // its result is the failure, if there was one
  }
  sides[r].comm = NULL;
}

// What the rank had on a device that was reset has gone, and the library forgets it.
static void drop_side(int r)
{
  if (sides[r].memory != NULL) {
    REFUSED(ncclMemFree(sides[r].memory), ncclUnhandledCudaError, "reset GPU");
  }
  sides[r] = (side){.comm = NULL};
}

// All that the library has taken of its own memory is given back; threads may do that a little later.
static void nothing_is_left(void)
{
  size_t bytes, taken = 1;
  for (const double end = seconds_now() + GENEROUS(2); taken > 0 && seconds_now() < end; sleep_ms(1)) {
    tt_gpu_pool_count(&bytes, &taken);
  }
  CHECK(taken == 0, "%zu bytes of the pool are not given back", taken);
}

static void try_windows(void)
{
  open_windows();
  ring_of_puts();
  close_windows();
  close_comms();
  nothing_is_left();
}

// ---- One process ----

// Rank 1 is on the same GPU, or learns that rank 0 has failed. But the ranks of a process share pinned pages. GPU 0 may
// have pinned them, and then work of GPU 1 that stands there fails as well: such a program resets both.
static void peer_learns(bool late)
{
  const side *s = &sides[1];
  ncclResult_t async = ncclSuccess, res = ncclSuccess;
  if (late) {
    res = ncclCommWindowRegister(s->comm, s->memory, 2 * HALF, &sides[1].window, 0);
  }
  res = res == ncclSuccess ? ncclSignal(0, 1, 0, 0, s->comm, stream_of(1)) : res;
  if (tt_gpu_count() == 1) {
    CHECK(res == ncclUnhandledCudaError, "rank 1: %d", (int)res);
    await_error(1, ncclUnhandledCudaError, (const char *const[]){"rank 1", "reset GPU 0", NULL});
    return;
  }
  CHECK(res == ncclSuccess || res == ncclRemoteError || res == ncclUnhandledCudaError, "rank 1: %d", (int)res);
  for (const double end = seconds_now() + GENEROUS(6); async == ncclSuccess && seconds_now() < end;) {
    OK(ncclCommGetAsyncError(s->comm, &async));
  }
  CHECK(async == ncclRemoteError || async == ncclUnhandledCudaError, "rank 1: %d", (int)async);
}

static void end_all(int way)
{
  for (int r = 0; r < 2; r++) {
    end_comm(r, way);
  }
  nothing_is_left();
}

static void begin_again(void)
{
  if (tt_gpu_count() > 1) {
    CHECK(cu->DevicePrimaryCtxReset(1) == CUDA_SUCCESS, "no reset");
  }
  drop_side(0);
  drop_side(1);
  open_comms(2);
  try_windows();
}

static void flying_body(int process, void *arg)
{
  const scene *s = arg;
  (void)process;
  open_comms(2);
  if (s->late) {
    OK(ncclCommWindowRegister(sides[0].comm, sides[0].memory, 2 * HALF, &sides[0].window, 0));
  } else {
    open_windows();
    ring_of_puts();
  }
  s->begin();
  reset_first(s->way);
  await_error(0, ncclUnhandledCudaError, (const char *const[]){"rank 0", "reset GPU 0", NULL});
  for (const double end = seconds_now() + GENEROUS(6); !s->late && writes_of(0) != 0 && seconds_now() < end;) {
    sleep_ms(1); // its thread takes that back behind the error
  }
  CHECK(s->late || writes_of(0) == 0, "rank 0 counts as one that writes");
  peer_learns(s->late);
  end_all(s->way);
  begin_again();
}

static void test_flying(void **state)
{
  static const scene all[] = {{begin_wait, false, 0},
                              {begin_put, true, 0},
                              {begin_behind, false, 0},
                              {begin_turn, false, 0},
                              {begin_write, false, 0}};
  (void)state;
  for (size_t i = 0; i < TT_COUNT(all); i++) {
    for (int way = 0; way < 4; way += WAY_STEP) {
      scene s = all[i];
      s.way = way;
      PROCESSES(1, 60, flying_body, &s);
    }
  }
}

// Nothing is in flight: the next call says what has happened, of whichever kind it is.
static void idle_body(int process, void *arg)
{
  const int way = *(const int *)arg;
  ncclWindow_t window = NULL;
  void *memory = NULL;
  (void)process;
  open_comms(2);
  open_windows();
  ring_of_puts();
  reset_first(way);
  REFUSED(ncclMemFree(sides[0].memory), ncclUnhandledCudaError, "reset GPU");
  sides[0].memory = NULL;
  OK(tt_gpu_enter(0)); // there may be other memory in its place
  OK(ncclMemAlloc(&memory, 2 * HALF));
  tt_gpu_leave();
  if ((way & 4) != 0) {
    REFUSED(ncclCommWindowRegister(sides[0].comm, memory, 2 * HALF, &window, 0), ncclUnhandledCudaError, "rank 0",
            "reset GPU 0");
  } else {
    REFUSED(ncclSignal(1, 0, 0, 0, sides[0].comm, stream_of(0)), ncclUnhandledCudaError, "rank 0", "reset GPU 0");
  }
  peer_learns(false);
  end_all(way);
  OK(ncclMemFree(memory));
  begin_again();
}

static void test_idle(void **state)
{
  (void)state;
  for (int way = 0; way < 8; way += WAY_STEP) {
    PROCESSES(1, 60, idle_body, &way);
  }
}

// ---- Two processes ----

// When GPU 0 is reset, rank 1 has a put for rank 0 behind work of the program's, and waits for a signal; or has that
// put alone; or nothing, and makes it afterwards.
typedef enum { WAITS, BEHIND, AFTERWARDS, FAR_TIMES } far_time;

typedef struct far_scene {
  int way;
  far_time time;
} far_scene;

static uint32_t *begin_peer(far_time time)
{
  ncclWaitSignalDesc_t d = {.opCnt = 1, .peer = 0};
  uint32_t *word = NULL;
  if (time == AFTERWARDS) {
    return NULL;
  }
  hold(1, sides[1].stream, &word);
  put(1, 0, LONG, 0, 0, 0, 0);
  if (time == WAITS) {
    OK(ncclWaitSignal(1, &d, sides[1].comm, (cudaStream_t)sides[1].other));
  }
  return word;
}

// Rank 0 has failed. Rank 1 learns of it, and nothing of its operations stands in the way of the program's work.
static void go_on(uint32_t *word)
{
  ncclWaitSignalDesc_t d = {.opCnt = 1, .peer = 0};
  ncclResult_t res = ncclSuccess;
  if (word != NULL) {
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
  } else {
    res =
        ncclPutSignal(sides[1].memory, LONG, ncclUint8, 0, sides[1].window, HALF, 0, 0, 0, sides[1].comm, stream_of(1));
  }
  if (over_network() && res == ncclSuccess) { // a put goes on its way all the same
    res = ncclWaitSignal(1, &d, sides[1].comm, stream_of(1));
  }
  CHECK(res == ncclSuccess || res == ncclRemoteError, "rank 1: %d", (int)res);
  await_error(1, ncclRemoteError, (const char *const[]){"rank 0", NULL});
  wait_all();
  ON(1, cu->StreamSynchronize(sides[1].other));
  if (word != NULL) {
    ON(1, cu->MemFreeHost(word));
  }
}

static void far_body(int rank, void *arg)
{
  const far_scene *s = arg;
  uint32_t *word = NULL;
  open_process(rank, 2);
  open_windows();
  ring_of_puts();
  if (rank == 0) {
    wait_for(0, 1, 1, 0, 0);
  } else {
    word = begin_peer(s->time);
  }
  meet(2);
  if (rank == 0) {
    reset_first(s->way);
    await_error(0, ncclUnhandledCudaError, (const char *const[]){"rank 0", "reset GPU 0", NULL});
  } else if (s->time == WAITS) {
    await_error(1, ncclRemoteError, (const char *const[]){"rank 0", NULL});
  }
  meet(2);
  if (rank == 1) {
    go_on(word);
  }
  end_comm(rank, s->way);
  nothing_is_left();
  if (rank == 0) {
    drop_side(0);
  } else {
    close_rank(1);
  }
  const ncclUniqueId id = shared_id(1, rank);
  one_rank(rank, 2, &id);
  try_windows();
}

static void test_apart(void **state)
{
  const char *const *const ways[] = {NULL, ENV("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1"), ENV("NCCL_P2P_DISABLE=1")};
  (void)state;
  for (int way = 0; way < 4; way += WAY_STEP) {
    for (int i = 0; i < (int)TT_COUNT(ways) * FAR_TIMES; i++) {
      far_scene s = {.way = way, .time = (far_time)(i % FAR_TIMES)};
      const run job = {.n = 2, .seconds = 60, .fn = far_body, .arg = &s, .env = ways[i / FAR_TIMES]};
      assert_int_equal(run_processes(&job), 0);
    }
  }
}

static int in_mode(const char *modes, unsigned number)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_flying), cmocka_unit_test(test_idle),
                                     cmocka_unit_test(test_apart)};
  (void)number;
  return run_mode(modes, "window-reset", tests, TT_COUNT(tests));
}

// An argument chooses tests by name; CUDA_WINDOW_MODE one mode.
int main(int argc, char **argv)
{
  static const char *const modes[] = {"devices=2", "", "devices=2,order=random,stores,stale,step=500,seed=5"};
  use_driver();
  if (argc > 1) {
    cmocka_set_test_filter(argv[1]);
  }
  return for_each_mode(modes, TT_COUNT(modes), RESET_MODE_STEP, getenv("CUDA_WINDOW_MODE"), in_mode) != 0;
}
