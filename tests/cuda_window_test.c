// cuda_window_test.c: windows and one-sided operations of ranks on GPUs, through the public interface, on the driver
// for tests: every byte is compared; ranks of one thread, threads, processes, on one GPU or three. Each mode of the
// driver has a process of its own.
#include "cuda_modes.h"
#include "harness.h"

#include <pthread.h>

#include "base/util.h"
#include "device/cuda/gpu.h"
#include "nccl_device.h"

enum { RANKS = 8, HALF = 1 << 18, CONTEXTS = 2, SIGNALS = 3 };

#if defined TT_TSAN || defined TT_ASAN
enum { MANY = 20, MODE_STEP = 3, SIZES = 5 };
#else
enum { MANY = 100, MODE_STEP = 1, SIZES = 8 };
#endif

// A rank, with a window of two halves: what it puts lies in the first, what it gets in the second.
typedef struct side {
  ncclComm_t comm;
  CUstream stream, other;
  unsigned char *memory;
  ncclWindow_t window;
} side;

static const tt_cuda *cu;
static side sides[RANKS];
static int nranks;                    // of the communicator,
static _Thread_local int first, last; // of which this thread has those from `first` on, before `last`
static bool blocking, few_queues, apart;

static int device_of(int rank)
{
  return rank % tt_gpu_count();
}

// One call of the driver in the context of a rank's device.
#define ON(rank, call)                                \
  do {                                                \
    OK(tt_gpu_enter(device_of(rank)));                \
    CHECK((call) == CUDA_SUCCESS, "%s fails", #call); \
    tt_gpu_leave();                                   \
  } while (0)

static void open_driver(void)
{
  cu = tt_cuda_get(NULL);
  CHECK(cu != NULL, "there is no driver");
}

static ncclConfig_t window_config(void)
{
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.numRmaCtx = CONTEXTS;
  config.numRmaSig = SIGNALS;
  return config;
}

// ncclMemAlloc takes the calling thread's device.
static void open_memory(int r)
{
  side *s = &sides[r];
  OK(tt_gpu_enter(device_of(r)));
  OK(ncclMemAlloc((void **)&s->memory, 2 * HALF));
  tt_gpu_leave();
  memset(s->memory, 0, 2 * HALF); // the driver for tests lets the host look into memory of devices
}

static void open_stream(int r)
{
  ON(r, cu->StreamCreateWithPriority(&sides[r].stream, CU_STREAM_NON_BLOCKING, 0));
  ON(r, cu->StreamCreateWithPriority(&sides[r].other, CU_STREAM_NON_BLOCKING, 0));
}

static void open_windows(void)
{
  for (int r = first; r < last; r++) {
    side *s = &sides[r];
    OK(ncclCommWindowRegister(s->comm, s->memory, 2 * HALF, &s->window, NCCL_WIN_COLL_SYMMETRIC));
  }
}

static void close_windows(void)
{
  for (int r = first; r < last; r++) {
    OK(ncclCommWindowDeregister(sides[r].comm, sides[r].window));
  }
}

// All ranks in this thread, without windows yet.
static void open_comms(int n)
{
  ncclUniqueId id;
  ncclConfig_t config = window_config();
  open_driver();
  OK(ncclGetUniqueId(&id));
  nranks = last = n;
  first = 0;
  OK(ncclGroupStart());
  for (int r = 0; r < n; r++) {
    OK(tt_gpu_enter(device_of(r)));
    OK(ncclCommInitRankConfig(&sides[r].comm, n, id, r, &config));
    tt_gpu_leave();
    open_stream(r);
    open_memory(r);
  }
  OK(ncclGroupEnd());
}

static void close_rank(int r)
{
  side *s = &sides[r];
  if (s->comm != NULL) {
    OK(ncclCommDestroy(s->comm));
  }
  ON(r, cu->StreamDestroy(s->stream));
  ON(r, cu->StreamDestroy(s->other));
  OK(ncclMemFree(s->memory));
  *s = (side){.comm = NULL};
}

static void close_comms(void)
{
  for (int r = first; r < last; r++) {
    close_rank(r);
  }
}

static void wait_all(void)
{
  for (int r = first; r < last; r++) {
    ON(r, cu->StreamSynchronize(sides[r].stream));
  }
}

// ---- Operations ----

static cudaStream_t stream_of(int r)
{
  return (cudaStream_t)sides[r].stream;
}

static void put(int r, size_t from, size_t bytes, int peer, size_t to, int sig, int ctx)
{
  const side *s = &sides[r];
  OK(ncclPutSignal(s->memory + from, bytes, ncclUint8, peer, s->window, HALF + to, sig, ctx, 0, s->comm, stream_of(r)));
}

static void wait_for(int r, int count, int peer, int sig, int ctx)
{
  ncclWaitSignalDesc_t d = {.opCnt = count, .peer = peer, .sigIdx = sig, .ctx = ctx};
  OK(ncclWaitSignal(1, &d, sides[r].comm, stream_of(r)));
}

static int after(int r)
{
  return (r + 1) % nranks;
}

static int before(int r)
{
  return (r + nranks - 1) % nranks;
}

static unsigned char pattern(int rank, int round, size_t i)
{
  return (unsigned char)(i * 7 + (size_t)rank * 31 + (size_t)round * 101 + (i >> 12));
}

static void write_pattern(unsigned char *at, size_t n, int rank, int round)
{
  for (size_t i = 0; i < n; i++) {
    at[i] = pattern(rank, round, i);
  }
}

static void check_pattern(const unsigned char *at, size_t n, int rank, int round)
{
  for (size_t i = 0; i < n; i++) {
    CHECK(at[i] == pattern(rank, round, i), "byte %zu of %zu of rank %d in round %d is %d, not %d", i, n, rank, round,
          at[i], pattern(rank, round, i));
  }
}

// All ranks have come so far: signals to all and from all.
static void barrier(void)
{
  OK(ncclGroupStart());
  for (int r = first; r < last; r++) {
    ncclWaitSignalDesc_t d[RANKS];
    for (int i = 0; i < nranks; i++) {
      OK(ncclSignal(i, 2, 1, 0, sides[r].comm, stream_of(r)));
      d[i] = (ncclWaitSignalDesc_t){.opCnt = 1, .peer = i, .sigIdx = 2, .ctx = 1};
    }
    OK(ncclWaitSignal(nranks, d, sides[r].comm, stream_of(r)));
  }
  OK(ncclGroupEnd());
  wait_all();
}

// Each writes into the next one's window, in sizes around those at which a put is cut. Own rank where it is alone.
static void ring_of_puts(void)
{
  static const size_t sizes[] = {1, 0, 4096, 8191, 65537, 8, 131073, HALF};
  for (int i = 0; i < SIZES; i++) {
    const size_t n = sizes[i], at = n < HALF ? (size_t)i : 0;
    for (int r = first; r < last; r++) {
      write_pattern(sides[r].memory + at, n, r, i);
      memset(sides[r].memory + HALF, 0, HALF);
    }
    barrier();
    OK(ncclGroupStart());
    for (int r = first; r < last; r++) {
      put(r, at, n, after(r), at * 3, 0, 0);
      wait_for(r, 1, before(r), 0, 0);
    }
    OK(ncclGroupEnd());
    wait_all();
    for (int r = first; r < last; r++) {
      check_pattern(sides[r].memory + HALF + at * 3, n, before(r), i);
      CHECK(at * 3 + n >= HALF || sides[r].memory[HALF + at * 3 + n] == 0, "written behind the end");
      CHECK(at == 0 || sides[r].memory[HALF + at * 3 - 1] == 0, "written before the beginning");
    }
    barrier();
  }
}

// To all, own rank too, and one wait for all. The wait comes first, in another context.
static void all_to_all(void)
{
  const size_t part = 5000;
  for (int r = first; r < last; r++) {
    write_pattern(sides[r].memory, part, r, 77);
    memset(sides[r].memory + HALF, 0, HALF);
  }
  barrier();
  OK(ncclGroupStart());
  for (int r = first; r < last; r++) {
    ncclWaitSignalDesc_t d[RANKS];
    for (int i = 0; i < nranks; i++) {
      d[i] = (ncclWaitSignalDesc_t){.opCnt = 1, .peer = i, .sigIdx = 1, .ctx = 0};
    }
    wait_for(r, 1, before(r), 0, 1);
    for (int i = 0; i < nranks; i++) {
      put(r, 0, part, i, (size_t)r * part, 1, 0);
    }
    OK(ncclWaitSignal(nranks, d, sides[r].comm, stream_of(r)));
    OK(ncclSignal(after(r), 0, 1, 0, sides[r].comm, (cudaStream_t)sides[r].other));
  }
  OK(ncclGroupEnd());
  wait_all();
  for (int r = first; r < last; r++) {
    for (int i = 0; i < nranks; i++) {
      check_pattern(sides[r].memory + HALF + (size_t)i * part, part, i, 77);
    }
  }
  barrier();
}

// Puts to one place, from two streams in turn: they arrive in the order of the calls, each before its signal.
static void order_of_puts(void)
{
  for (int r = first; r < last; r++) {
    for (int i = 0; i < MANY; i++) {
      memset(sides[r].memory + (size_t)i * 64, i + 1, 64);
    }
  }
  barrier();
  OK(ncclGroupStart());
  for (int i = 0; i < MANY; i++) {
    for (int r = first; r < last; r++) {
      const side *s = &sides[r];
      OK(ncclPutSignal(s->memory + (size_t)i * 64, 64, ncclUint8, after(r), s->window, HALF, i % SIGNALS, 0, 0, s->comm,
                       (cudaStream_t)(i % 2 == 0 ? s->stream : s->other)));
    }
  }
  for (int r = first; r < last; r++) {
    wait_for(r, (MANY - 1) / SIGNALS + 1, before(r), (MANY - 1) % SIGNALS, 0); // the last one's signal
  }
  OK(ncclGroupEnd());
  wait_all();
  for (int r = first; r < last; r++) {
    for (int i = 0; i < 64; i++) {
      CHECK(sides[r].memory[HALF + i] == MANY, "put %d came last", sides[r].memory[HALF + i]);
    }
  }
  OK(ncclGroupStart());
  for (int r = first; r < last; r++) { // what the waits have left
    for (int sig = 0; sig < SIGNALS; sig++) {
      const int count = (MANY - 1 - sig) / SIGNALS + 1;
      if (sig != (MANY - 1) % SIGNALS) {
        wait_for(r, count, before(r), sig, 0);
      }
    }
  }
  OK(ncclGroupEnd());
  wait_all();
  barrier();
}

// A message goes round, each rank waits before it passes it on: calls of one group, in the order of the ranks or
// against it.
static void round_trip(void)
{
  const size_t n = 3000;
  for (int turn = 0; turn < 3; turn++) {
    if (first == 0) {
      write_pattern(sides[0].memory + HALF, n, 0, turn);
    }
    barrier();
    OK(ncclGroupStart());
    for (int k = first; k < last; k++) {
      const int r = turn == 1 ? first + last - 1 - k : k;
      const side *s = &sides[r];
      if (r != 0) {
        wait_for(r, 1, before(r), 0, 0);
      }
      OK(ncclPutSignal(s->memory + HALF, n, ncclUint8, after(r), s->window, r == nranks - 1 ? 0 : HALF, 0, 0, 0,
                       s->comm, stream_of(r)));
      if (r == 0) {
        wait_for(r, 1, before(r), 0, 0);
      }
    }
    OK(ncclGroupEnd());
    wait_all();
    for (int r = first; r < last; r++) {
      check_pattern(sides[r].memory + (r == 0 ? 0 : HALF), n, 0, turn);
    }
    barrier();
  }
}

// Collectives, and operations of both kinds in one group.
static void with_collectives(void)
{
  for (int i = 0; i < 4; i++) {
    for (int r = first; r < last; r++) {
      write_pattern(sides[r].memory, 100, r, i);
      *(float *)(void *)(sides[r].memory + 4096) = (float)(r + 1);
    }
    barrier();
    OK(ncclGroupStart());
    for (int r = first; r < last; r++) {
      const side *s = &sides[r];
      put(r, 0, 100, after(r), 0, 0, 0);
      OK(ncclAllReduce(s->memory + 4096, s->memory + 8192, 1, ncclFloat, ncclSum, s->comm, stream_of(r)));
      wait_for(r, 1, before(r), 0, 0);
    }
    OK(ncclGroupEnd());
    wait_all();
    for (int r = first; r < last; r++) {
      const float sum = (float)(nranks * (nranks + 1) / 2);
      CHECK(*(const float *)(const void *)(sides[r].memory + 8192) == sum, "the sum is wrong");
      check_pattern(sides[r].memory + HALF, 100, before(r), i);
    }
    barrier();
  }
}

// The peers' addresses: what is stored there, they have.
static void addresses(void)
{
  for (int r = first; r < last; r++) {
    const side *s = &sides[r];
    void *own, *at, *lsa;
    OK(ncclWinGetUserPtr(s->comm, s->window, &own));
    CHECK(own == s->memory, "the own address");
    for (int peer = 0; peer < nranks; peer++) {
      OK(ncclGetPeerDevicePointer(s->window, 4096, peer, &at));
      OK(ncclGetLsaDevicePointer(s->window, 4096, peer, &lsa));
      CHECK(at != NULL && at == lsa, "rank %d has no address of rank %d", r, peer);
      CHECK(peer < first || peer >= last || at == sides[peer].memory + 4096, "another address");
    }
    OK(ncclGetPeerDevicePointer(s->window, HALF, after(r), &at));
    ON(r, cu->MemsetD8Async((CUdeviceptr)(uintptr_t)at, (unsigned char)(r + 1), 100, s->stream));
  }
  barrier();
  for (int r = first; r < last; r++) {
    for (int i = 0; i < 100; i++) {
      CHECK(sides[r].memory[HALF + i] == before(r) + 1, "byte %d is %d", i, sides[r].memory[HALF + i]);
    }
  }
  barrier();
}

static void all_operations(void)
{
  open_windows();
  ring_of_puts();
  all_to_all();
  order_of_puts();
  round_trip();
  with_collectives();
  addresses();
  close_windows();
}

static void one_thread(int n)
{
  open_comms(n);
  all_operations();
  open_windows(); // at the same addresses
  ring_of_puts();
  close_windows();
  close_comms();
}

static void test_one(void **state)
{
  (void)state;
  one_thread(1);
}

// GPUs that do not reach each other: the window is there, but nothing can be put.
static void without_access(int n)
{
  open_comms(n);
  open_windows();
  for (int r = 0; r < n; r++) {
    REFUSED(ncclSignal(after(r), 0, 0, 0, sides[r].comm, stream_of(r)), ncclInvalidArgument, "on GPUs", "peer access");
  }
  close_windows();
  close_comms();
}

static void test_several(void **state)
{
  (void)state;
  static const int counts[] = {2, 3, 8};
  for (size_t i = 0; i < TT_COUNT(counts); i++) {
    (apart ? without_access : one_thread)(counts[i]);
  }
}

// ---- Threads and processes ----

typedef struct rank_thread {
  pthread_t thread;
  ncclUniqueId id;
  int rank;
} rank_thread;

static void one_rank(int rank, int n, const ncclUniqueId *id)
{
  ncclConfig_t config = window_config();
  OK(tt_gpu_enter(device_of(rank)));
  first = rank;
  last = rank + 1;
  open_stream(rank);
  open_memory(rank);
  OK(ncclCommInitRankConfig(&sides[rank].comm, n, *id, rank, &config));
}

static void *thread_body(void *arg)
{
  const rank_thread *t = arg;
  one_rank(t->rank, nranks, &t->id);
  all_operations();
  close_comms();
  tt_gpu_leave();
  return NULL;
}

static void test_threads(void **state)
{
  (void)state;
  rank_thread threads[4];
  ncclUniqueId id;
  if (few_queues || apart) {
    skip();
  }
  open_driver();
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

static void open_process(int rank, int n)
{
  const ncclUniqueId id = shared_id(0, rank);
  open_driver();
  nranks = n;
  one_rank(rank, n, &id);
}

static void process_body(int rank, void *arg)
{
  open_process(rank, *(const int *)arg);
  if (apart && nranks > 1) {
    open_windows();
    REFUSED(ncclSignal(0, 0, 0, 0, sides[rank].comm, stream_of(rank)), ncclInvalidArgument, "on GPUs", "peer access");
  } else {
    all_operations();
    all_operations();
  }
  close_comms();
  tt_gpu_leave();
}

static void test_processes(void **state)
{
  (void)state;
  for (int n = 1; n <= 3; n++) {
    PROCESSES(n, 60, process_body, &n);
  }
}

// Processes with several ranks each, which one thread calls.
static void pair_body(int process, void *arg)
{
  const int n = *(const int *)arg;
  ncclConfig_t config = window_config();
  const ncclUniqueId id = shared_id(0, process);
  open_driver();
  nranks = 2 * n;
  first = 2 * process;
  last = first + 2;
  OK(ncclGroupStart());
  for (int r = first; r < last; r++) {
    open_stream(r);
    open_memory(r);
    OK(tt_gpu_enter(device_of(r)));
    OK(ncclCommInitRankConfig(&sides[r].comm, nranks, id, r, &config));
    tt_gpu_leave();
  }
  OK(ncclGroupEnd());
  all_operations();
  close_comms();
}

static void test_pairs(void **state)
{
  (void)state;
  int n = 2;
  if (apart) {
    skip();
  }
  PROCESSES(n, 60, pair_body, &n);
}

// ---- Windows that are not there yet, or no more ----

// The put is queued before its peer registers the window; it goes on then.
static void test_early(void **state)
{
  (void)state;
  if (blocking || apart) {
    skip(); // the call would wait for its kernel
  }
  open_comms(2);
  for (int i = 0; i < 3; i++) {
    side *a = &sides[0], *b = &sides[1];
    write_pattern(a->memory, 5000, 0, i);
    OK(ncclCommWindowRegister(a->comm, a->memory, 2 * HALF, &a->window, 0));
    put(0, 0, 5000, 1, 16, 0, 0);
    sleep_ms(5);
    OK(tt_gpu_enter(0));
    assert_int_equal(cu->StreamQuery(a->stream), CUDA_ERROR_NOT_READY);
    tt_gpu_leave();
    OK(ncclCommWindowRegister(b->comm, b->memory, 2 * HALF, &b->window, 0));
    wait_for(1, 1, 0, 0, 0);
    wait_all();
    check_pattern(b->memory + HALF + 16, 5000, 0, i);
    close_windows();
  }
  close_comms();
}

static void await_error(int rank, ncclResult_t code, const char *const *words)
{
  ncclResult_t async = ncclSuccess;
  const double end = seconds_now() + 60;
  while (async == ncclSuccess && seconds_now() < end) {
    OK(ncclCommGetAsyncError(sides[rank].comm, &async));
  }
  CHECK(async == code, "rank %d: %d", rank, (int)async);
  CHECK(has_words(ncclGetLastError(sides[rank].comm), words), "rank %d: the text", rank);
}

static void abort_comms(void)
{
  for (int r = first; r < last; r++) {
    OK(ncclCommAbort(sides[r].comm));
  }
  wait_all(); // nothing of them is left in the streams
  for (int r = first; r < last; r++) {
    sides[r].comm = NULL;
  }
  close_comms();
}

// A put into a window that turns out to be too short, or to be gone by the time that its stream comes to it.
static void test_wrong_place(void **state)
{
  (void)state;
  if (blocking || apart) {
    skip();
  }
  open_comms(2);
  side *a = &sides[0], *b = &sides[1];
  OK(ncclCommWindowRegister(a->comm, a->memory, 2 * HALF, &a->window, 0));
  put(0, 0, 5000, 1, 0, 0, 0);
  OK(ncclCommWindowRegister(b->comm, b->memory, HALF + 4999, &b->window, 0));
  await_error(0, ncclInvalidArgument, (const char *const[]){"rank 0", "5000 bytes", "window 1 of rank 1", NULL});
  abort_comms();
  open_comms(2);
  open_windows();
  CUdeviceptr word;
  ON(0, cu->MemHostAlloc((void **)&word, 4096, CU_MEMHOSTALLOC_PORTABLE));
  memset((void *)word, 0, 4096);
  ON(0, cu->StreamWaitValue32(a->stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
  memset(b->memory + HALF, 5, 5000);
  put(0, 0, 5000, 1, 0, 0, 0);
  OK(ncclCommWindowDeregister(b->comm, b->window));
  *(volatile uint32_t *)word = 1;
  await_error(0, ncclInvalidUsage, (const char *const[]){"rank 0", "window 1 of rank 1", "deregistered", NULL});
  for (int i = 0; i < 5000; i++) {
    CHECK(b->memory[HALF + i] == 5, "a closed window is written");
  }
  abort_comms();
  OK(tt_gpu_enter(0));
  cu->MemFreeHost((void *)word);
  tt_gpu_leave();
}

// What is refused, by the call.
static void test_refused(void **state)
{
  (void)state;
  CUgraph graph;
  ncclWindow_t window = NULL;
  open_comms(1);
  side *s = &sides[0];
  REFUSED(ncclSignal(0, 0, 0, 0, s->comm, stream_of(0)), ncclInvalidUsage, "no window");
  char *heap = malloc(8192);
  REFUSED(ncclCommWindowRegister(s->comm, heap, 4096, &window, 0), ncclInvalidArgument, "does not reach",
          "ncclMemAlloc");
  free(heap);
  open_windows();
  REFUSED(ncclPutSignal(s->memory, 2, ncclUint8, 0, s->window, 2 * HALF - 1, 0, 0, 0, s->comm, stream_of(0)),
          ncclInvalidArgument, "do not lie in the window");
  ON(0, cu->StreamBeginCapture(s->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  REFUSED(ncclSignal(0, 0, 0, 0, s->comm, stream_of(0)), ncclInvalidUsage, "captured", "one-sided");
  ON(0, cu->StreamEndCapture(s->stream, &graph));
  ON(0, cu->GraphDestroy(graph));
  ring_of_puts(); // nothing of it counts
  close_windows();
  close_comms();
}

// Pinned memory of the host: a window for ranks of the process, but for no others.
static unsigned char *host_window(int r)
{
  unsigned char *memory = NULL;
  ON(r, cu->MemHostAlloc((void **)&memory, 2 * HALF, CU_MEMHOSTALLOC_PORTABLE));
  OK(ncclMemFree(sides[r].memory));
  memset(memory, 0, 2 * HALF);
  sides[r].memory = memory;
  return memory;
}

static void close_host_window(int r, unsigned char *memory)
{
  ON(r, cu->MemFreeHost(memory));
  open_memory(r);
}

static void test_pinned(void **state)
{
  (void)state;
  if (apart) {
    skip();
  }
  open_comms(2);
  unsigned char *a = host_window(0), *b = host_window(1);
  open_windows();
  ring_of_puts();
  close_windows();
  close_host_window(0, a);
  close_host_window(1, b);
  close_comms();
}

static void pinned_body(int rank, void *arg)
{
  (void)arg;
  open_process(rank, 2);
  unsigned char *pinned = rank == 1 ? host_window(1) : NULL;
  open_windows();
  barrier();
  if (rank == 0) {
    put(0, 0, 10, 1, 0, 0, 0);
    await_error(0, ncclInvalidUsage,
                (const char *const[]){"rank 0", "window 1 of rank 1", "cannot map", "ncclMemAlloc", NULL});
  } else {
    put(1, 0, 10, 0, 0, 0, 0); // that way there is nothing to map
    wait_all();
  }
  meet(2);
  OK(ncclCommAbort(sides[rank].comm));
  wait_all();
  sides[rank].comm = NULL;
  if (rank == 1) {
    close_host_window(1, pinned);
  }
  close_comms();
}

static void test_pinned_apart(void **state)
{
  (void)state;
  if (apart) {
    skip();
  }
  PROCESSES(2, 60, pinned_body, NULL);
}

// ---- Ranks that do not signal ----

static void test_abort(void **state)
{
  (void)state;
  if (apart) {
    skip();
  }
  open_comms(2);
  open_windows();
  wait_for(0, 1, 1, 0, 0);
  sleep_ms(20);
  OK(tt_gpu_enter(0));
  assert_int_equal(cu->StreamQuery(sides[0].stream), CUDA_ERROR_NOT_READY);
  tt_gpu_leave();
  abort_comms();
}

// The peer leaves in order: a wait for its signals that has begun ends, what it has signalled before still counts.
static void test_leave(void **state)
{
  (void)state;
  if (apart) {
    skip();
  }
  open_comms(2);
  open_windows();
  put(1, 0, 100, 0, 0, 0, 0);
  wait_for(0, 1, 1, 0, 0);
  wait_all();
  put(1, 0, 100, 0, 0, 0, 0);
  OK(ncclCommDestroy(sides[1].comm));
  sides[1].comm = NULL;
  wait_for(0, 1, 1, 0, 0);
  wait_all();
  wait_for(0, 1, 1, 0, 0);
  await_error(0, ncclRemoteError, (const char *const[]){"rank 0", "rank 1", NULL});
  last = 1;
  abort_comms();
  last = 2;
  first = 1;
  close_comms();
}

static void death_body(int rank, void *arg)
{
  (void)arg;
  open_process(rank, 3);
  open_windows();
  barrier();
  if (rank == 1) {
    raise(SIGKILL);
  }
  if (rank == 0) {
    wait_for(0, 1, 1, 0, 0);
  } else {
    wait_for(2, 1, 0, 0, 0); // which is not dead, but ends
  }
  await_error(rank, ncclRemoteError, (const char *const[]){"rank 1", NULL});
  abort_comms();
  tt_gpu_leave();
}

static void test_death(void **state)
{
  (void)state;
  if (apart) {
    skip();
  }
  ranks_set r;
  start_processes(&r, &(run){.n = 3, .seconds = 60, .fn = death_body});
  r.expected[1] = -SIGKILL;
  assert_int_equal(finish_processes(&r), 0);
}

static void stall_body(int rank, void *arg)
{
  (void)arg;
  open_process(rank, 2);
  open_windows();
  barrier();
  if (rank == 0) {
    OK(ncclSignal(1, 0, 0, 0, sides[0].comm, stream_of(0)));
    wait_for(0, 3, 1, 0, 0);
    await_error(0, ncclTimeout, (const char *const[]){"rank 0 waits in WaitSignal", "from rank 1 (1 of 3", NULL});
  } else {
    OK(ncclSignal(0, 0, 0, 0, sides[1].comm, stream_of(1)));
  }
  meet(2);
  abort_comms();
  tt_gpu_leave();
}

static void test_stall(void **state)
{
  (void)state;
  if (apart) {
    skip();
  }
  const run job = {
      .n = 2, .seconds = 60, .fn = stall_body, .env = ENV("NCCL_STALL_ERROR_MS=300", "NCCL_STALL_WARN_MS=100")};
  assert_int_equal(run_processes(&job), 0);
}

// ---- Ranks that GPUs do not reach ----

static void refused_body(int rank, void *arg)
{
  const bool mixed = *(const bool *)arg;
  ncclConfig_t config = window_config();
  ncclComm_t comm;
  ncclWindow_t window;
  cudaStream_t stream;
  void *memory;
  open_driver();
  if (mixed && rank == 1) {
    OK(tuttiStreamCreate(&stream, TUTTI_STREAM_DEFAULT));
  } else {
    open_stream(rank);
    stream = stream_of(rank);
  }
  OK(ncclMemAlloc(&memory, 4096));
  OK(ncclCommInitRankConfig(&comm, 2, shared_id(0, rank), rank, &config));
  OK(ncclCommWindowRegister(comm, memory, 4096, &window, 0));
  REFUSED(ncclSignal(1 - rank, 0, 0, 0, comm, stream), ncclInvalidArgument, "on GPUs",
          mixed ? "on the host" : "network");
  OK(ncclCommWindowDeregister(comm, window));
  OK(ncclCommDestroy(comm));
  OK(ncclMemFree(memory));
}

static void test_unreachable(void **state)
{
  (void)state;
  bool mixed = true;
  PROCESSES(2, 60, refused_body, &mixed);
  mixed = false;
  const run job = {
      .n = 2, .seconds = 60, .fn = refused_body, .arg = &mixed, .env = ENV("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1")};
  assert_int_equal(run_processes(&job), 0);
}

static int in_mode(const char *modes, unsigned number)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_processes),   cmocka_unit_test(test_pairs),       cmocka_unit_test(test_pinned_apart),
      cmocka_unit_test(test_death),       cmocka_unit_test(test_stall),
      cmocka_unit_test(test_unreachable), // up to here: their parent has not opened the driver
      cmocka_unit_test(test_one),         cmocka_unit_test(test_several),     cmocka_unit_test(test_threads),
      cmocka_unit_test(test_early),       cmocka_unit_test(test_wrong_place), cmocka_unit_test(test_refused),
      cmocka_unit_test(test_pinned),      cmocka_unit_test(test_abort),       cmocka_unit_test(test_leave),
  };
  (void)number;
  set_modes(modes, "window-test");
  few_queues = strstr(modes, "queues=") != NULL || strstr(modes, "order=random") != NULL; // by lot
  blocking = strstr(modes, "blocking") != NULL;
  apart = strstr(modes, "peers=none") != NULL;
  return cmocka_run_group_tests_name(modes, tests, NULL, NULL);
}

// An argument chooses tests by name; CUDA_WINDOW_MODE one mode.
int main(int argc, char **argv)
{
  static const char *const modes[] = {"",
                                      "queues=1",
                                      "order=random,stores,stale,step=500,seed=5",
                                      "devices=3,order=random,seed=6,slices",
                                      "queues=1,blocking",
                                      "queues=1,launches=6,seed=7",
                                      "devices=3,peers=none,slices"};
  use_driver();
  if (argc > 1) {
    cmocka_set_test_filter(argv[1]);
  }
  return for_each_mode(modes, TT_COUNT(modes), MODE_STEP, getenv("CUDA_WINDOW_MODE"), in_mode) != 0;
}
