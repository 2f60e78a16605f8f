// cuda_comm_test.c: communicators of ranks on GPUs, through the public interface, on the driver for tests: all ranks in
// one process. What comes out is compared with what a program would reckon. Each mode of the driver has a process of
// its own.
#include "cuda_modes.h"
#include "cuda_results.h"
#include "harness.h"

#include <pthread.h>

#include "base/util.h"
#include "comm/comm.h"
#include "device/cuda/gpu.h"
#include "device/cuda/work/rank.h"
#include "os/clock.h"

enum { RANKS = 8, MOST = 1 << 16, REPLAYS = 10 };

// Sanitizers make the driver's machine up to twenty times slower: fewer sizes and modes.
#if defined TT_TSAN || defined TT_ASAN
enum { SIZES = 3, MANY = 30, MODE_STEP = 3 };
#else
enum { SIZES = 5, MANY = 200, MODE_STEP = 1 };
#endif

static const tt_cuda *cu;
static ncclComm_t comms[RANKS];
static CUstream streams[RANKS];
static float *ins[RANKS], *outs[RANKS]; // memory of each rank's device
static _Thread_local int first, last;   // of the nranks this thread has those from `first` on, before `last`
static bool blocking, few_queues;       // what one thread submits may stand behind what another one does

static bool open_driver(void)
{
  cu = tt_cuda_get(NULL);
  return cu != NULL;
}

static int device_of(int rank)
{
  return rank % tt_gpu_count();
}

// One call of the driver in the context of a rank's device.
#define ON(rank, call)                                            \
  do {                                                            \
    assert_int_equal(tt_gpu_enter(device_of(rank)), ncclSuccess); \
    assert_int_equal((call), CUDA_SUCCESS);                       \
    tt_gpu_leave();                                               \
  } while (0)

static float *device_floats(int rank, size_t n)
{
  CUdeviceptr at = 0;
  ON(rank, cu->MemAlloc(&at, n * sizeof(float)));
  return (float *)(uintptr_t)at;
}

static void open_rank(int r)
{
  ON(r, cu->StreamCreateWithPriority(&streams[r], CU_STREAM_NON_BLOCKING, 0));
  ins[r] = device_floats(r, MOST);
  outs[r] = device_floats(r, MOST);
}

static void open_comms(int n)
{
  int devices[RANKS];
  tuttiDeviceKind_t kind;
  assert_true(open_driver());
  OK(tuttiGetDeviceKind(&kind));
  assert_int_equal(kind, tuttiDeviceCuda);
  nranks = last = n;
  first = 0;
  for (int r = 0; r < n; r++) {
    devices[r] = device_of(r);
    open_rank(r);
  }
  OK(ncclCommInitAll(comms, n, devices));
}

static void close_rank(int r)
{
  OK(ncclCommDestroy(comms[r]));
  ON(r, cu->StreamDestroy(streams[r]));
  ON(r, cu->MemFree((CUdeviceptr)(uintptr_t)ins[r]));
  ON(r, cu->MemFree((CUdeviceptr)(uintptr_t)outs[r]));
}

static void close_comms(void)
{
  for (int r = first; r < last; r++) {
    close_rank(r);
  }
}

static bool on_host;                    // this process
static _Thread_local float image[MOST]; // of a rank's memory, on the host

// Copies the image into memory of the rank, or that memory into the image. On the rank's stream: another one could
// stand behind what waits for this thread.
static void copy_image(int r, float *memory, size_t n, bool out)
{
  const CUdeviceptr at = (CUdeviceptr)(uintptr_t)memory;
  if (on_host) {
    memcpy(out ? image : memory, out ? memory : image, n * sizeof *image);
  } else if (n > 0 && out) {
    ON(r, cu->MemcpyDtoHAsync(image, at, n * sizeof *image, streams[r]));
    ON(r, cu->StreamSynchronize(streams[r]));
  } else if (n > 0) {
    ON(r, cu->MemcpyHtoDAsync(at, image, n * sizeof *image, streams[r]));
    ON(r, cu->StreamSynchronize(streams[r]));
  }
}

static void fill(size_t n)
{
  for (int r = first; r < last; r++) {
    for (size_t i = 0; i < n; i++) {
      image[i] = value_of(r, i);
    }
    copy_image(r, ins[r], n, false);
    for (size_t i = 0; i < n; i++) {
      image[i] = -1;
    }
    copy_image(r, outs[r], n, false);
  }
}

static void wait_all(void)
{
  for (int r = first; r < last; r++) {
    if (on_host) {
      OK(tuttiStreamSynchronize((cudaStream_t)streams[r]));
      continue;
    }
    ON(r, cu->StreamSynchronize(streams[r]));
  }
}

static void check(outcome *is, size_t n, size_t count)
{
  for (int r = first; r < last; r++) {
    copy_image(r, outs[r], count, true);
    for (size_t i = 0; i < count; i++) {
      if (image[i] != is(r, i, n)) {
        fail_msg("rank %d of %d, element %zu of %zu: %g, not %g", r, nranks, i, count, (double)image[i],
                 (double)is(r, i, n));
      }
    }
  }
}

typedef enum {
  ALL_REDUCE,
  BROADCAST,
  REDUCE,
  ALL_GATHER,
  REDUCE_SCATTER,
  ALL_TO_ALL,
  GATHER,
  SCATTER,
  RING,
  FUNCTIONS
} function;

static ncclResult_t call_on(int r, function f, size_t n, cudaStream_t s)
{
  const ncclComm_t c = comms[r];
  switch (f) {
  case ALL_REDUCE: return ncclAllReduce(ins[r], outs[r], n, ncclFloat, ncclSum, c, s);
  case BROADCAST: return ncclBroadcast(ins[r], outs[r], n, ncclFloat, 1 % nranks, c, s);
  case REDUCE: return ncclReduce(ins[r], outs[r], n, ncclFloat, ncclSum, 1 % nranks, c, s);
  case GATHER: return ncclGather(ins[r], outs[r], n, ncclFloat, 1 % nranks, c, s);
  case SCATTER: return ncclScatter(ins[r], outs[r], n, ncclFloat, 1 % nranks, c, s);
  case ALL_GATHER: return ncclAllGather(ins[r], outs[r], n, ncclFloat, c, s);
  case REDUCE_SCATTER: return ncclReduceScatter(ins[r], outs[r], n, ncclFloat, ncclSum, c, s);
  case ALL_TO_ALL: return ncclAlltoAll(ins[r], outs[r], n, ncclFloat, c, s);
  default: break;
  }
  OK(ncclSend(ins[r], n, ncclFloat, (r + 1) % nranks, c, s)); // to the next rank, from the one before
  return ncclRecv(outs[r], n, ncclFloat, (r + nranks - 1) % nranks, c, s);
}

static ncclResult_t call(function f, int r, size_t n)
{
  return call_on(r, f, n, (cudaStream_t)streams[r]);
}

// Calls the function on all ranks of this thread, of blocks of n elements.
static void launch(function f, size_t n)
{
  OK(ncclGroupStart());
  for (int r = first; r < last; r++) {
    OK(call(f, r, n));
  }
  OK(ncclGroupEnd());
}

static void try_function(function f, size_t n)
{
  static outcome *const results[] = {reduced,   from_one,        reduced_at_one,   gathered,   scattered,
                                     exchanged, gathered_at_one, scattered_by_one, from_before};
  const size_t all = n * (size_t)nranks;
  fill(all);
  launch(f, n);
  wait_all();
  check(results[f], n, f == ALL_GATHER || f == ALL_TO_ALL || f == GATHER ? all : n);
}

static void all_functions(void)
{
  static const size_t counts[] = {1, 0, 5, 1000, 4099};
  for (size_t i = 0; i < SIZES; i++) {
    for (int f = 0; f < FUNCTIONS; f++) {
      try_function((function)f, counts[i]);
    }
  }
}

// Many operations, of which none is waited for.
static void many(void)
{
  fill(300);
  for (int i = 0; i < MANY; i++) {
    launch((function)(i % FUNCTIONS), (size_t)(i % 37));
  }
  launch(ALL_REDUCE, 300);
  wait_all();
  check(reduced, 300, 300);
}

static void test_one(void **state)
{
  (void)state;
  open_comms(1);
  all_functions();
  many();
  close_comms();
}

static void test_two(void **state)
{
  (void)state;
  open_comms(2);
  all_functions();
  many();
  try_function(ALL_REDUCE, MOST / 2);
  close_comms();
}

static void test_three(void **state)
{
  (void)state;
  open_comms(3);
  all_functions();
  many();
  close_comms();
}

static void test_eight(void **state)
{
  (void)state;
  open_comms(8);
  all_functions();
  close_comms();
}

// ---- Threads ----

typedef struct rank_thread {
  pthread_t thread;
  ncclUniqueId id;
  int rank;
} rank_thread;

static void *thread_body(void *arg)
{
  const rank_thread *t = arg;
  OK(tt_gpu_enter(device_of(t->rank)));
  first = t->rank;
  last = first + 1;
  open_rank(first);
  OK(ncclCommInitRank(&comms[first], nranks, t->id, first));
  all_functions();
  many();
  close_rank(first);
  tt_gpu_leave();
  return NULL;
}

static void test_threads(void **state)
{
  (void)state;
  rank_thread threads[4];
  ncclUniqueId id;
  if (few_queues) {
    skip();
  }
  assert_true(open_driver());
  OK(ncclGetUniqueId(&id));
  nranks = TT_COUNT(threads);
  for (int i = 0; i < nranks; i++) {
    threads[i] = (rank_thread){.id = id, .rank = i};
    assert_int_equal(pthread_create(&threads[i].thread, NULL, thread_body, &threads[i]), 0);
  }
  for (int i = 0; i < nranks; i++) {
    assert_int_equal(pthread_join(threads[i].thread, NULL), 0);
  }
}

// ---- Graphs ----

// Behind what `earlier`'s stream has, in a capture as well.
static void follow(int earlier, int later)
{
  CUevent event;
  ON(earlier, cu->EventCreate(&event, CU_EVENT_DISABLE_TIMING));
  ON(earlier, cu->EventRecord(event, streams[earlier]));
  ON(later, cu->StreamWaitEvent(streams[later], event, 0));
  ON(earlier, cu->EventDestroy(event));
}

// All ranks' calls, in one graph.
static CUgraphExec capture(function f, size_t n)
{
  CUgraph graph;
  CUgraphExec exec;
  ON(0, cu->StreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  for (int r = 1; r < nranks; r++) {
    follow(0, r);
  }
  launch(f, n);
  for (int r = 1; r < nranks; r++) {
    follow(r, 0);
  }
  ON(0, cu->StreamEndCapture(streams[0], &graph));
  ON(0, cu->GraphInstantiateWithFlags(&exec, graph, 0));
  ON(0, cu->GraphDestroy(graph));
  return exec;
}

// Replays between eager calls.
static void replay(CUgraphExec exec, size_t n)
{
  for (int i = 0; i < REPLAYS; i++) {
    fill(n);
    ON(0, cu->GraphLaunch(exec, streams[0]));
    wait_all();
    check(reduced, n, n);
    try_function((function)(i % FUNCTIONS), n / 2);
  }
}

static void test_graph(void **state)
{
  (void)state;
  for (int n = 1; n <= 3; n++) {
    open_comms(n);
    try_function(ALL_REDUCE, 100);
    const CUgraphExec exec = capture(ALL_REDUCE, 300), other = capture(RING, 40);
    replay(exec, 300);
    fill(40);
    ON(0, cu->GraphLaunch(other, streams[0]));
    wait_all();
    check(from_before, 40, 40);
    ON(0, cu->GraphExecDestroy(exec));
    ON(0, cu->GraphExecDestroy(other));
    try_function(ALL_REDUCE, 100);
    close_comms();
  }
}

// The graph outlives the communicators, and does nothing then.
static void test_graph_outlives(void **state)
{
  (void)state;
  open_comms(2);
  const CUgraphExec exec = capture(ALL_REDUCE, 300);
  replay(exec, 300);
  for (int r = 0; r < 2; r++) {
    OK(ncclCommDestroy(comms[r]));
    comms[r] = NULL;
  }
  fill(300);
  ON(0, cu->GraphLaunch(exec, streams[0]));
  wait_all();
  for (int r = 0; r < 2; r++) {
    copy_image(r, outs[r], 300, true);
    for (int i = 0; i < 300; i++) {
      assert_true(image[i] == -1);
    }
  }
  ON(0, cu->GraphExecDestroy(exec));
  close_comms();
}

// ---- Children ----

// An all-reduce of the ranks that have a child, in which those of `members` are.
static void try_children(const ncclComm_t *children, const int *members, int n)
{
  float sum = 0;
  fill(10);
  OK(ncclGroupStart());
  for (int i = 0; i < n; i++) {
    const int r = members[i];
    OK(ncclAllReduce(ins[r], outs[r], 10, ncclFloat, ncclSum, children[r], (cudaStream_t)streams[r]));
    sum += value_of(r, 7);
  }
  OK(ncclGroupEnd());
  wait_all();
  for (int i = 0; i < n; i++) {
    copy_image(members[i], outs[members[i]], 10, true);
    assert_true(image[7] == sum);
    OK(ncclCommDestroy(children[members[i]]));
  }
}

static void test_children(void **state)
{
  (void)state;
  ncclComm_t children[4] = {NULL};
  int excluded[] = {1};
  open_comms(4);
  OK(ncclGroupStart());
  for (int r = 0; r < 4; r++) {
    OK(ncclCommSplit(comms[r], r % 2, r, &children[r], NULL));
  }
  OK(ncclGroupEnd());
  try_children(children, (const int[]){0, 2}, 2);
  try_children(children, (const int[]){1, 3}, 2);
  OK(ncclGroupStart());
  for (int r = 0; r < 4; r++) {
    if (r != 1) {
      OK(ncclCommShrink(comms[r], excluded, 1, &children[r], NULL, NCCL_SHRINK_DEFAULT));
    }
  }
  OK(ncclGroupEnd());
  try_children(children, (const int[]){0, 2, 3}, 3);
  try_function(ALL_REDUCE, 10);
  close_comms();
}

// ---- What goes wrong ----

static void await_error(int rank, ncclResult_t code, const char *const *words)
{
  ncclResult_t async = ncclSuccess;
  for (const double end = seconds_now() + 60; async == ncclSuccess && seconds_now() < end; sleep_ms(1)) {
    OK(ncclCommGetAsyncError(comms[rank], &async));
  }
  CHECK(async == code, "rank %d: %d", rank, (int)async);
  CHECK(has_words(ncclGetLastError(comms[rank]), words), "rank %d: the text", rank);
}

// A rank's buffer is memory that its GPU does not reach: the kernel fails, and with it the context. Every rank of it
// learns that, ranks on other GPUs learn which rank has failed, and nothing hangs.
static void broken_body(int rank, void *arg)
{
  const bool aborts = *(const bool *)arg;
  (void)rank;
  open_comms(2);
  fill(100);
  float *good = ins[1];
  ins[1] = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); // some GPUs reach all that the program may
  assert_true(ins[1] != MAP_FAILED);
  OK(ncclGroupStart());
  for (int r = 0; r < 2; r++) {
    (void)call(ALL_REDUCE, r, 100); // the first may fail already, where each launch waits for its kernel
  }
  (void)ncclGroupEnd();
  const bool shared = device_of(0) == device_of(1);
  await_error(1, ncclUnhandledCudaError, (const char *const[]){"CUDA_ERROR", NULL});
  await_error(0, shared ? ncclUnhandledCudaError : ncclRemoteError,
              (const char *const[]){shared ? "CUDA_ERROR" : "rank 1", NULL});
  for (int r = 0; r < 2; r++) {
    OK(aborts ? ncclCommAbort(comms[r]) : ncclCommDestroy(comms[r]));
  }
  munmap(ins[1], 4096);
  ins[1] = good;
}

static void test_broken(void **state)
{
  (void)state;
  for (int aborts = 0; aborts < 2; aborts++) {
    bool how = aborts;
    PROCESSES(1, 60, broken_body, &how);
  }
}

// What GPUs cannot do yet is refused, and nothing else is the matter.
static void test_refused(void **state)
{
  (void)state;
  open_comms(1);
  if (!real_driver()) { // which would read what the handle points to
    REFUSED(call_on(0, ALL_REDUCE, 10, (cudaStream_t)(uintptr_t)0x1234560), ncclInvalidArgument, "no stream");
  }
  OK(ncclCommSuspend(comms[0], NCCL_SUSPEND_MEM));
  OK(ncclCommResume(comms[0]));
  try_function(ALL_REDUCE, 10);
  close_comms();
}

static void abort_comms(void)
{
  for (int r = first; r < last; r++) {
    OK(ncclCommAbort(comms[r]));
  }
  wait_all(); // nothing of them is left in the streams
  for (int r = first; r < last; r++) {
    comms[r] = NULL;
  }
  close_comms();
}

// Rank 1 has another count. Every rank learns of it, and says which call is which.
static void test_mismatch(void **state)
{
  (void)state;
  open_comms(3);
  fill(20);
  OK(ncclGroupStart());
  for (int r = 0; r < 3; r++) {
    OK(call(ALL_REDUCE, r, r == 1 ? 11 : 10));
  }
  OK(ncclGroupEnd());
  for (int r = 0; r < 3; r++) {
    await_error(r, ncclInvalidUsage, (const char *const[]){"different calls", "count 11", "count 10", NULL});
  }
  abort_comms();
}

// Rank 1 has captured another operation. Every rank learns of it in the first replay.
static void test_graph_mismatch(void **state)
{
  (void)state;
  CUgraph graph;
  CUgraphExec exec;
  open_comms(2);
  fill(20);
  ON(0, cu->StreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
  follow(0, 1);
  OK(ncclGroupStart());
  OK(ncclAllReduce(ins[0], outs[0], 10, ncclFloat, ncclSum, comms[0], (cudaStream_t)streams[0]));
  OK(ncclAllReduce(ins[1], outs[1], 10, ncclFloat, ncclMax, comms[1], (cudaStream_t)streams[1]));
  OK(ncclGroupEnd());
  follow(1, 0);
  ON(0, cu->StreamEndCapture(streams[0], &graph));
  ON(0, cu->GraphInstantiateWithFlags(&exec, graph, 0));
  ON(0, cu->GraphDestroy(graph));
  ON(0, cu->GraphLaunch(exec, streams[0]));
  for (int r = 0; r < 2; r++) {
    await_error(r, ncclInvalidUsage, (const char *const[]){"different calls", "op sum", "op max", NULL});
  }
  abort_comms();
  ON(0, cu->GraphExecDestroy(exec));
}

// Rank 2 does not come. An abort ends what the others have begun.
static void test_abort(void **state)
{
  (void)state;
  if (blocking) {
    skip(); // the first call would not return
  }
  open_comms(3);
  fill(20);
  OK(ncclGroupStart());
  OK(call(ALL_REDUCE, 0, 20));
  OK(call(ALL_REDUCE, 1, 20));
  OK(ncclGroupEnd());
  sleep_ms(20);
  assert_int_equal(tt_gpu_enter(0), ncclSuccess);
  assert_int_equal(cu->StreamQuery(streams[0]), CUDA_ERROR_NOT_READY);
  tt_gpu_leave();
  abort_comms();
}

// The communicator is destroyed while its work is under way, and completes it.
static void test_destroy(void **state)
{
  (void)state;
  open_comms(2);
  fill(5000);
  launch(ALL_REDUCE, 5000);
  for (int r = 0; r < 2; r++) {
    OK(ncclCommDestroy(comms[r]));
    comms[r] = NULL;
  }
  check(reduced, 5000, 5000); // the streams may have to note yet that they are at their ends
  close_comms();
}

// ---- Work for a quiet moment ----

static _Atomic bool quiet;
static _Atomic int asked, buried;

static bool is_quiet(tt_deferred *d)
{
  (void)d;
  const bool over = atomic_load(&quiet);
  atomic_fetch_add(over ? &buried : &asked, 1);
  return over;
}

// While two wait for it, operations are completed all the same, also if nobody asks for that.
static void test_defer(void **state)
{
  static tt_deferred later[2] = {{.run = is_quiet}, {.run = is_quiet}};
  (void)state;
  open_comms(2);
  fill(100);
  tt_gpu_defer(&later[0]);
  tt_gpu_defer(&later[1]);
  while (atomic_load(&asked) < 3) {
    sleep_ms(0.1);
  }
  const double end = seconds_now() + 60;
  const uint64_t before = atomic_load(&comms[1]->port.done);
  launch(ALL_REDUCE, 100);
  wait_all();
  while (atomic_load(&comms[1]->port.done) == before && seconds_now() < end) {
    sleep_ms(0.1);
  }
  CHECK(atomic_load(&comms[1]->port.done) != before, "the operation is not completed");
  atomic_store(&quiet, true);
  while (atomic_load(&buried) < 2) {
    sleep_ms(0.1);
  }
  close_comms();
}

// ---- Processes ----

// No kernel takes the part of a host.
static void refuse_capture(int rank, const char *why)
{
  CUgraph graph;
  ON(rank, cu->StreamBeginCapture(streams[rank], CU_STREAM_CAPTURE_MODE_RELAXED));
  REFUSED(call(ALL_REDUCE, rank, 10), ncclInvalidUsage, "is captured", why);
  ON(rank, cu->StreamEndCapture(streams[rank], &graph));
  ON(rank, cu->GraphDestroy(graph));
}

static bool hosts; // some ranks are on the host

static void process_body(int rank, void *arg)
{
  const int n = *(const int *)arg;
  CHECK(open_driver(), "rank %d: no driver", rank);
  OK(tt_gpu_enter(device_of(rank)));
  nranks = n;
  first = rank;
  last = rank + 1;
  open_rank(rank);
  comms[rank] = join_processes(0, n, rank);
  if (hosts) {
    refuse_capture(rank, "rank 1 is not on a GPU");
  }
  all_functions();
  many();
  close_rank(rank);
  tt_gpu_leave();
}

static void death_body(int rank, void *arg)
{
  (void)arg;
  CHECK(open_driver(), "rank %d: no driver", rank);
  OK(tt_gpu_enter(device_of(rank)));
  nranks = 3;
  first = rank;
  last = rank + 1;
  open_rank(rank);
  comms[rank] = join_processes(0, 3, rank);
  try_function(ALL_REDUCE, 100);
  if (rank == 1) {
    _exit(0);
  }
  launch(ALL_REDUCE, 100);
  await_error(rank, ncclRemoteError, (const char *const[]){"rank 1", NULL});
  abort_comms();
  tt_gpu_leave();
}

// Odd ranks are on the host, in the same communicator.
static void mixed_body(int rank, void *arg)
{
  hosts = true;
  if (rank % 2 == 0) {
    process_body(rank, arg);
    return;
  }
  cudaStream_t stream;
  OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
  nranks = *(const int *)arg;
  first = rank;
  last = rank + 1;
  streams[rank] = (CUstream)stream;
  ins[rank] = calloc(MOST, sizeof(float));
  outs[rank] = calloc(MOST, sizeof(float));
  on_host = true;
  comms[rank] = join_processes(0, nranks, rank);
  all_functions();
  many();
  OK(ncclCommDestroy(comms[rank]));
  OK(tuttiStreamDestroy(stream));
  free(ins[rank]);
  free(outs[rank]);
}

static void test_mixed(void **state)
{
  (void)state;
  for (int n = 2; n <= 4; n++) {
    PROCESSES(n, 60, mixed_body, &n);
  }
}

// A process ends in the middle. The others learn which rank that was, and can end.
static void test_death(void **state)
{
  (void)state;
  PROCESSES(3, 60, death_body, NULL);
}

// The same with every pair of ranks on the network.
static void test_network(void **state)
{
  (void)state;
  for (int n = 2; n <= 3; n++) {
    const run job = {
        .n = n, .seconds = 60, .fn = process_body, .arg = &n, .env = ENV("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1")};
    assert_int_equal(run_processes(&job), 0);
  }
  const run death = {.n = 3, .seconds = 60, .fn = death_body, .env = ENV("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1")};
  assert_int_equal(run_processes(&death), 0);
}

static void test_processes(void **state)
{
  (void)state;
  for (int n = 1; n <= 3; n++) {
    PROCESSES(n, 60, process_body, &n);
  }
}

static int in_mode(const char *modes, unsigned number)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_processes),
      cmocka_unit_test(test_death),
      cmocka_unit_test(test_network),
      cmocka_unit_test(test_mixed),
      cmocka_unit_test(test_broken), // up to here: their parent has not opened the driver
      cmocka_unit_test(test_one),
      cmocka_unit_test(test_two),
      cmocka_unit_test(test_three),
      cmocka_unit_test(test_eight),
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_children),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_mismatch),
      cmocka_unit_test(test_abort),
      cmocka_unit_test(test_destroy),
      cmocka_unit_test(test_defer),
      cmocka_unit_test(test_graph),
      cmocka_unit_test(test_graph_outlives),
      cmocka_unit_test(test_graph_mismatch),
  };
  (void)number;
  set_modes(modes, "comm-test");
  few_queues = strstr(modes, "queues=") != NULL || strstr(modes, "order=random") != NULL; // by lot
  blocking = strstr(modes, "blocking") != NULL;
  return cmocka_run_group_tests_name(modes, tests, NULL, NULL);
}

// An argument chooses tests by name; CUDA_COMM_MODE one mode.
int main(int argc, char **argv)
{
  static const char *const modes[] = {"",
                                      "queues=1",
                                      "order=random,stores,stale,step=500,seed=5",
                                      "devices=3,order=random,seed=6,slices",
                                      "queues=1,blocking",
                                      "devices=3,peers=none,slices",
                                      "resident,devices=8,order=random,stores,stale,seed=4",
                                      "resident,devices=3,waits,stores,stale,seed=9",
                                      "resident,devices=8,lines,order=random,stores,stale,seed=3"};
  use_driver();
  if (argc > 1) {
    cmocka_set_test_filter(argv[1]);
  }
  return for_each_mode(modes, TT_COUNT(modes), MODE_STEP, getenv("CUDA_COMM_MODE"), in_mode) != 0;
}
