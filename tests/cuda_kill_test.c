// cuda_kill_test.c: ranks on GPUs that end in the middle of operations, at every call of the driver: a process is
// killed, a communicator is aborted by another thread, in processes and in one process, with several algorithms. The
// others learn which rank that was, and nothing hangs. Beside it, a rank that has left in order while another one's
// submission waits. On the driver for tests.
//
//   cuda_kill_test N     behind N calls of each algorithm's, instead of 5
#include "cuda_modes.h"
#include "harness.h"

#include <semaphore.h>

#include "base/util.h"
#include "device/cuda/gpu.h"

enum { RANKS = 3, COUNT = 3000, CALLS = 6, BUFFERS = 3, PLACES = 5 };

#if defined TT_TSAN || defined TT_ASAN
enum { ALGORITHM_STEP = 2, MODE_STEP = 2 };
#else
enum { ALGORITHM_STEP = 1, MODE_STEP = 1 };
#endif

static const char *const algorithms[] = {"NCCL_ALGO=allreduce:Direct", "NCCL_ALGO=allreduce:Ring",
                                         "NCCL_ALGO=allreduce:Tree"};

static const tt_cuda *cu;
static ncclComm_t comms[RANKS];
static CUstream streams[RANKS];
static float *buffers[RANKS][BUFFERS];                // input and output of a call
static int first, last;                               // the ranks of this process
static long places = PLACES;                          // so many calls are tried of each algorithm
static long (*signal_behind)(long calls, int signal); // cudasim_signal

static int device_of(int rank)
{
  return rank % tt_gpu_count();
}

// One call of the driver in the context of a rank's device.
#define ON(rank, call)                                                        \
  do {                                                                        \
    OK(tt_gpu_enter(device_of(rank)));                                        \
    const CUresult on_ = (call);                                              \
    CHECK(on_ == CUDA_SUCCESS, "%s: the driver's error %d", #call, (int)on_); \
    tt_gpu_leave();                                                           \
  } while (0)

static void open_driver(void)
{
  cu = tt_cuda_get(NULL);
  CHECK(cu != NULL, "no driver");
  *(void **)&signal_behind = driver_hook("cudasim_signal");
}

// Joins with the ranks from `from` on, before `to`.
static void join(int from, int to)
{
  open_driver();
  first = from;
  last = to;
  const ncclUniqueId id = shared_id(0, from);
  OK(ncclGroupStart());
  for (int r = first; r < last; r++) {
    OK(tt_gpu_enter(device_of(r)));
    OK(ncclCommInitRank(&comms[r], RANKS, id, r));
    tt_gpu_leave();
  }
  OK(ncclGroupEnd());
  for (int r = first; r < last; r++) {
    ON(r, cu->StreamCreateWithPriority(&streams[r], CU_STREAM_NON_BLOCKING, 0));
    for (int i = 0; i < BUFFERS; i++) {
      CUdeviceptr at = 0;
      ON(r, cu->MemAlloc(&at, 2 * COUNT * sizeof(float)));
      buffers[r][i] = (float *)(uintptr_t)at;
      for (int e = 0; e < COUNT; e++) {
        buffers[r][i][e] = (float)(r + 1);
        buffers[r][i][COUNT + e] = -1;
      }
    }
  }
}

static void wait_all(void)
{
  for (int r = first; r < last; r++) {
    ON(r, cu->StreamSynchronize(streams[r]));
  }
}

static _Atomic bool aborting;

// Calls on buffers that are new to the peers, then known. Ends with the first error, also one that comes later.
static ncclResult_t run_calls(int calls)
{
  ncclResult_t res = ncclSuccess;
  for (int i = 0; i < calls && res == ncclSuccess && !atomic_load(&aborting); i++) {
    OK(ncclGroupStart());
    for (int r = first; r < last && res == ncclSuccess; r++) {
      float *at = buffers[r][i % BUFFERS];
      res = ncclAllReduce(at, at + COUNT, COUNT, ncclFloat, ncclSum, comms[r], (cudaStream_t)streams[r]);
    }
    const ncclResult_t end = ncclGroupEnd();
    res = res == ncclSuccess ? end : res;
  }
  return res;
}

// What has been written is whole numbers of right sums, or nothing.
static void check_outputs(bool complete)
{
  for (int r = first; r < last; r++) {
    for (int i = 0; i < BUFFERS; i++) {
      for (int e = 0; e < COUNT; e++) {
        const float out = buffers[r][i][COUNT + e];
        CHECK(out == 6 || (!complete && (out == -1 || out == 1 || out == 3 || out == 5 || out == 2 || out == 4)),
              "rank %d, element %d: %g", r, e, (double)out);
      }
    }
  }
}

// Rank 1 is over: the rank learns it, whatever it does. Gives the error of its communicator.
static void is_over(int rank, ncclResult_t res, const char *word)
{
  const double end = seconds_now() + GENEROUS(10);
  while (res == ncclSuccess && seconds_now() < end) {
    OK(ncclCommGetAsyncError(comms[rank], &res));
    sleep_ms(1);
  }
  const char *text = ncclGetLastError(comms[rank]);
  CHECK(res == ncclRemoteError && strstr(text, word) != NULL, "rank %d: %d: %s", rank, (int)res, text);
}

// ---- How many calls there are ----

// Of the driver, that a process makes for the operations. In board.word[rank].
static void count_body(int rank, void *arg)
{
  (void)arg;
  join(rank, rank + 1);
  meet(RANKS);
  const long before = signal_behind(0, 0);
  OK(run_calls(CALLS));
  wait_all();
  atomic_store(&the_board->word[rank], (uint64_t)(signal_behind(0, 0) - before));
  check_outputs(true);
  OK(ncclCommDestroy(comms[rank]));
}

static void count_here_body(int process, void *arg)
{
  (void)process;
  (void)arg;
  join(0, RANKS);
  const long before = signal_behind(0, 0);
  OK(run_calls(CALLS));
  wait_all();
  atomic_store(&the_board->word[1], (uint64_t)(signal_behind(0, 0) - before));
  check_outputs(true);
  for (int r = 0; r < RANKS; r++) {
    OK(ncclCommDestroy(comms[r]));
  }
}

static long calls_of(const char *algorithm, bool here)
{
  ranks_set s;
  start_processes(
      &s,
      &(run){.n = here ? 1 : RANKS, .seconds = 60, .fn = here ? count_here_body : count_body, .env = ENV(algorithm)});
  board *b = the_board;
  assert_int_equal(ranks_wait(&s), 0);
  const long calls = (long)atomic_load(&b->word[1]);
  board_close();
  assert_true(calls > CALLS);
  return calls;
}

// ---- Killed ----

static void killed_body(int rank, void *arg)
{
  join(rank, rank + 1);
  meet(RANKS);
  if (rank == 1) {
    signal_behind(*(const long *)arg, SIGKILL);
  }
  ncclResult_t res = run_calls(CALLS);
  if (rank == 1) { // the last calls may come from a thread that looks at times
    wait_all();
    raise(SIGKILL);
  }
  is_over(rank, res, "rank 1");
  OK(ncclCommAbort(comms[rank]));
  wait_all();
  check_outputs(false);
}

static void kill_at(const char *algorithm, long call)
{
  ranks_set s;
  start_processes(&s, &(run){.n = RANKS, .seconds = 60, .fn = killed_body, .arg = &call, .env = ENV(algorithm)});
  s.expected[1] = -SIGKILL;
  const int failed = finish_processes(&s);
  if (failed != 0) {
    fail_msg("%s, killed behind call %ld", algorithm, call);
  }
}

// ---- Aborted, by another thread ----

static sem_t reached;

// A thread has made the call: the abort begins while it is there.
static void on_call(int signal)
{
  const int saved = errno;
  (void)signal;
  sem_post(&reached);
  for (int i = 0; i < 2000 && !atomic_load(&aborting); i++) {
    sleep_ms(0.5);
  }
  errno = saved;
}

static void *abort_then(void *arg)
{
  while (sem_wait(&reached) != 0) {
  }
  atomic_store(&aborting, true);
  OK(ncclCommAbort(comms[1]));
  return arg;
}

// Runs the calls, in the middle of which rank 1 is aborted. Returns their result.
static ncclResult_t run_aborted(long call)
{
  pthread_t thread;
  OK(sem_init(&reached, 0, 0) == 0 ? ncclSuccess : ncclSystemError);
  signal(SIGUSR1, on_call);
  CHECK(pthread_create(&thread, NULL, abort_then, NULL) == 0, "no thread");
  signal_behind(call, SIGUSR1);
  const ncclResult_t res = run_calls(CALLS);
  if (!atomic_load(&aborting)) { // there were fewer calls this time
    sem_post(&reached);
  }
  pthread_join(thread, NULL);
  signal_behind(0, 0);
  return res;
}

static void aborted_body(int rank, void *arg)
{
  join(rank, rank + 1);
  meet(RANKS);
  if (rank == 1) {
    run_aborted(*(const long *)arg);
  } else {
    is_over(rank, run_calls(CALLS), "rank 1");
    OK(ncclCommAbort(comms[rank]));
  }
  wait_all();
  check_outputs(false);
}

// All ranks in this process, whose calls come from one thread.
static void aborted_here_body(int process, void *arg)
{
  (void)process;
  join(0, RANKS);
  run_aborted(*(const long *)arg);
  for (int r = 0; r < RANKS; r += 2) {
    ncclResult_t res = ncclSuccess;
    OK(ncclCommGetAsyncError(comms[r], &res));
    CHECK(res == ncclSuccess || res == ncclRemoteError, "rank %d: %d", r, (int)res);
    OK(ncclCommAbort(comms[r]));
  }
  wait_all();
  check_outputs(false);
}

static void abort_at(const char *algorithm, long call, bool here)
{
  const run job = {.n = here ? 1 : RANKS,
                   .seconds = 60,
                   .fn = here ? aborted_here_body : aborted_body,
                   .arg = &call,
                   .env = ENV(algorithm)};
  if (run_processes(&job) != 0) {
    fail_msg("%s, aborted behind call %ld, %s", algorithm, call, here ? "in one process" : "in processes");
  }
}

// ---- All of it ----

typedef void at_call(const char *algorithm, long call);

static void abort_in_processes(const char *algorithm, long call)
{
  abort_at(algorithm, call, false);
}

static void abort_in_one(const char *algorithm, long call)
{
  abort_at(algorithm, call, true);
}

// Does it at some calls, from the first one to the last.
static void for_calls(at_call *what, bool here)
{
  static long shift; // other calls each time
  const bool fifos_only = !here && strcmp(getenv("NCCL_CUDA_RESIDENT"), "1") == 0;
  for (size_t a = fifos_only ? 1 : 0; a < TT_COUNT(algorithms); a += ALGORITHM_STEP) {
    const long calls = calls_of(algorithms[a], here), step = TT_MAX(calls / places, 1);
    print_message("%s: %ld calls\n", algorithms[a], calls);
    for (long k = 1 + shift++ % step; k <= calls; k += step) {
      what(algorithms[a], k);
    }
  }
}

static void test_killed(void **state)
{
  (void)state;
  for_calls(kill_at, false);
}

static void test_aborted(void **state)
{
  (void)state;
  for_calls(abort_in_processes, false);
}

static void test_aborted_in_one_process(void **state)
{
  (void)state;
  for_calls(abort_in_one, true);
}

// ---- A rank that has left in order ----

static void *release_later(void *arg)
{
  while (atomic_load(&the_board->word[0]) == 0) {
    sleep_ms(1);
  }
  sleep_ms(1500); // so long a submission may be, and longer
  __atomic_store_n((uint32_t *)arg, 1, __ATOMIC_RELEASE);
  return arg;
}

// Rank 1 has sent all that rank 0 needs, and has left. Rank 0's submission waits meanwhile for the program's own work,
// and that is no reason to say that rank 1 has gone.
static void left_body(int rank, void *arg)
{
  pthread_t thread;
  void *word = NULL;
  (void)arg;
  CHECK(rank < 2, "two ranks");
  open_driver();
  OK(tt_gpu_enter(0));
  comms[rank] = join_processes(0, 2, rank);
  CHECK(cu->StreamCreateWithPriority(&streams[rank], CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS, "no stream");
  CUdeviceptr at = 0;
  CHECK(cu->MemAlloc(&at, sizeof(float)) == CUDA_SUCCESS, "no memory");
  float *value = (float *)(uintptr_t)at;
  *value = (float)rank;
  if (rank == 0) {
    CHECK(cu->MemHostAlloc(&word, 4096, CU_MEMHOSTALLOC_PORTABLE) == CUDA_SUCCESS, "no memory");
    *(uint32_t *)word = 0;
    CHECK(cu->StreamWaitValue32(streams[0], (CUdeviceptr)(uintptr_t)word, 1, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS,
          "cannot wait");
    CHECK(pthread_create(&thread, NULL, release_later, word) == 0, "no thread");
  }
  OK(ncclBroadcast(value, value, 1, ncclFloat, 1, comms[rank], (cudaStream_t)streams[rank]));
  CHECK(cu->StreamSynchronize(streams[rank]) == CUDA_SUCCESS, "rank %d: its stream", rank);
  CHECK(*value == 1, "rank %d has %g", rank, (double)*value);
  if (rank == 0) {
    ncclResult_t res = ncclSuccess;
    OK(ncclCommGetAsyncError(comms[0], &res));
    CHECK(res == ncclSuccess, "%d: %s", (int)res, ncclGetLastError(comms[0]));
    pthread_join(thread, NULL);
  }
  OK(ncclCommDestroy(comms[rank]));
  atomic_store(&the_board->word[0], 1);
  tt_gpu_leave();
}

static void test_left(void **state)
{
  (void)state;
  const run job = {.n = 2, .seconds = 60, .fn = left_body, .env = ENV("NCCL_ALGO=broadcast:Ring", "NCCL_PROTO=LL")};
  assert_int_equal(run_processes(&job), 0);
}

// In this process launches return at once.
static void be_quick(void)
{
  char modes[256];
  snprintf(modes, sizeof modes, "%s", getenv("CUDASIM"));
  char *blocking = strstr(modes, "blocking=");
  CHECK(blocking != NULL, "no mode blocking in %s", modes);
  memset(blocking, ',', strcspn(blocking, ","));
  setenv("CUDASIM", modes, 1);
}

// Rank 1 has taken all that rank 0 has sent, and has left, before rank 0's submission has returned: the mode lets it
// return late. That is no reason to say that rank 1 has gone.
static void taken_body(int rank, void *arg)
{
  ncclResult_t res = ncclSuccess;
  CUdeviceptr at = 0;
  (void)arg;
  CHECK(rank < 2, "two ranks");
  if (rank == 1) {
    be_quick();
  }
  open_driver();
  OK(tt_gpu_enter(0));
  comms[rank] = join_processes(0, 2, rank);
  CHECK(cu->StreamCreateWithPriority(&streams[rank], CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS, "no stream");
  CHECK(cu->MemAlloc(&at, sizeof(float)) == CUDA_SUCCESS, "no memory");
  float *value = (float *)(uintptr_t)at;
  *value = (float)rank;
  OK(ncclBroadcast(value, value, 1, ncclFloat, 0, comms[rank], (cudaStream_t)streams[rank]));
  CHECK(cu->StreamSynchronize(streams[rank]) == CUDA_SUCCESS, "rank %d: its stream", rank);
  OK(ncclCommGetAsyncError(comms[rank], &res));
  CHECK(res == ncclSuccess && *value == 0, "rank %d: %d: %s; it has %g", rank, (int)res, ncclGetLastError(comms[rank]),
        (double)*value);
  OK(ncclCommDestroy(comms[rank]));
  tt_gpu_leave();
}

static void test_taken(void **state)
{
  (void)state;
  const run job = {.n = 2, .seconds = 60, .fn = taken_body, .env = ENV("NCCL_ALGO=broadcast:Ring", "NCCL_PROTO=LL")};
  assert_int_equal(run_processes(&job), 0);
}

static int in_mode(const char *modes, unsigned number)
{
  const struct CMUnitTest ends[] = {cmocka_unit_test(test_killed), cmocka_unit_test(test_aborted),
                                    cmocka_unit_test(test_aborted_in_one_process)};
  const struct CMUnitTest left[] = {cmocka_unit_test(test_left), cmocka_unit_test(test_taken)};
  (void)number;
  set_modes(modes, "kill-test");
  return strstr(modes, "blocking") != NULL ? cmocka_run_group_tests_name(modes, left, NULL, NULL)
                                           : cmocka_run_group_tests_name(modes, ends, NULL, NULL);
}

int main(int argc, char **argv)
{
  static const char *const modes[] = {"queues=1", "devices=2,order=random,slices,seed=4", "queues=1,blocking=100",
                                      "resident,devices=3,waits,order=random,seed=5",
                                      "resident,devices=3,lines,order=random,seed=6"};
  use_driver();
  setenv("NCCL_HOST_DIRECT_THRESHOLD", "0", 1);
  if (argc > 1) {
    places = TT_MAX(strtol(argv[1], NULL, 10), 1);
  }
  return for_each_mode(modes, TT_COUNT(modes), MODE_STEP, getenv("CUDA_KILL_MODE"), in_mode) != 0;
}
