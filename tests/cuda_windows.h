// cuda_windows.h: for the tests of windows and one-sided operations of ranks on GPUs: ranks with a window each, of one
// thread, of threads, of processes.
#pragma once
#include "cuda_modes.h"
#include "harness.h"

#include <pthread.h>

#include "base/util.h"
#include "device/cuda/gpu.h"
#include "nccl_device.h"

enum { RANKS = 8, HALF = 1 << 16, CONTEXTS = 2, SIGNALS = 3, LONG_PUT = (5 << 18) + 3 }; // LONG_PUT: more than a FIFO

#if defined TT_TSAN || defined TT_ASAN
enum { MANY = 20, MODE_STEP = 3, SIZES = 5, TIMES = 1 };
#else
enum { MANY = 100, MODE_STEP = 1, SIZES = 8, TIMES = 2 };
#endif

// A rank, with a window of two halves: what it puts lies in the first, what it gets in the second.
typedef struct side {
  ncclComm_t comm;
  CUstream stream, other;
  unsigned char *memory, *longer; // longer: of long_put, kept, since freeing waits for ranks of the same GPU
  ncclWindow_t window;
} side;

static const tt_cuda *cu;
static side sides[RANKS];
HARNESS int nranks;                   // of the communicator,
static _Thread_local int first, last; // of which this thread has those from `first` on, before `last`
HARNESS bool blocking, few_queues, apart;
HARNESS bool on_host; // this process,
HARNESS bool mixed;   // and others not

HARNESS int device_of(int rank)
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

HARNESS void open_driver(void)
{
  cu = tt_cuda_get(NULL);
  CHECK(cu != NULL, "there is no driver");
}

HARNESS ncclConfig_t window_config(void)
{
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.numRmaCtx = CONTEXTS;
  config.numRmaSig = SIGNALS;
  return config;
}

// ncclMemAlloc takes the calling thread's device.
HARNESS unsigned char *long_memory(int r, size_t bytes)
{
  unsigned char *memory = NULL;
  OK(on_host ? ncclSuccess : tt_gpu_enter(device_of(r)));
  OK(ncclMemAlloc((void **)&memory, bytes));
  if (!on_host) {
    tt_gpu_leave();
  }
  memset(memory, 0, bytes); // the driver for tests lets the host look into memory of devices
  return memory;
}

HARNESS void open_memory(int r)
{
  sides[r].memory = long_memory(r, 2 * HALF);
}

HARNESS void open_stream(int r)
{
  if (on_host) {
    OK(tuttiStreamCreate((cudaStream_t *)&sides[r].stream, TUTTI_STREAM_DEFAULT));
    OK(tuttiStreamCreate((cudaStream_t *)&sides[r].other, TUTTI_STREAM_DEFAULT));
    return;
  }
  ON(r, cu->StreamCreateWithPriority(&sides[r].stream, CU_STREAM_NON_BLOCKING, 0));
  ON(r, cu->StreamCreateWithPriority(&sides[r].other, CU_STREAM_NON_BLOCKING, 0));
}

HARNESS void open_windows(void)
{
  for (int r = first; r < last; r++) {
    side *s = &sides[r];
    OK(ncclCommWindowRegister(s->comm, s->memory, 2 * HALF, &s->window, NCCL_WIN_COLL_SYMMETRIC));
  }
}

HARNESS void close_windows(void)
{
  for (int r = first; r < last; r++) {
    OK(ncclCommWindowDeregister(sides[r].comm, sides[r].window));
  }
}

// All ranks in this thread, without windows yet.
HARNESS void open_comms(int n)
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

HARNESS void close_rank(int r)
{
  side *s = &sides[r];
  if (s->comm != NULL) {
    OK(ncclCommDestroy(s->comm));
  }
  if (on_host) {
    OK(tuttiStreamDestroy((cudaStream_t)s->stream));
    OK(tuttiStreamDestroy((cudaStream_t)s->other));
  } else {
    ON(r, cu->StreamDestroy(s->stream));
    ON(r, cu->StreamDestroy(s->other));
  }
  OK(ncclMemFree(s->memory));
  OK(s->longer != NULL ? ncclMemFree(s->longer) : ncclSuccess);
  *s = (side){.comm = NULL};
}

HARNESS void close_comms(void)
{
  for (int r = first; r < last; r++) {
    close_rank(r);
  }
}

HARNESS cudaStream_t stream_of(int r)
{
  return (cudaStream_t)sides[r].stream;
}

HARNESS void wait_all(void)
{
  for (int r = first; r < last; r++) {
    if (on_host) {
      OK(tuttiStreamSynchronize(stream_of(r)));
    } else {
      ON(r, cu->StreamSynchronize(sides[r].stream));
    }
  }
}

HARNESS void await_error(int rank, ncclResult_t code, const char *const *words)
{
  ncclResult_t async = ncclSuccess;
  const double end = seconds_now() + GENEROUS(6);
  while (async == ncclSuccess && seconds_now() < end) {
    OK(ncclCommGetAsyncError(sides[rank].comm, &async));
    sleep_ms(1);
  }
  CHECK(async == code, "rank %d: %d", rank, (int)async);
  CHECK(has_words(ncclGetLastError(sides[rank].comm), words), "rank %d: the text", rank);
}

// ---- Operations ----

HARNESS void put(int r, size_t from, size_t bytes, int peer, size_t to, int sig, int ctx)
{
  const side *s = &sides[r];
  OK(ncclPutSignal(s->memory + from, bytes, ncclUint8, peer, s->window, HALF + to, sig, ctx, 0, s->comm, stream_of(r)));
}

HARNESS void wait_for(int r, int count, int peer, int sig, int ctx)
{
  ncclWaitSignalDesc_t d = {.opCnt = count, .peer = peer, .sigIdx = sig, .ctx = ctx};
  OK(ncclWaitSignal(1, &d, sides[r].comm, stream_of(r)));
}

HARNESS int after(int r)
{
  return (r + 1) % nranks;
}

HARNESS int before(int r)
{
  return (r + nranks - 1) % nranks;
}

HARNESS unsigned char pattern(int rank, int round, size_t i)
{
  return (unsigned char)(i * 7 + (size_t)rank * 31 + (size_t)round * 101 + (i >> 12));
}

HARNESS void write_pattern(unsigned char *at, size_t n, int rank, int round)
{
  for (size_t i = 0; i < n; i++) {
    at[i] = pattern(rank, round, i);
  }
}

HARNESS void check_pattern(const unsigned char *at, size_t n, int rank, int round)
{
  for (size_t i = 0; i < n; i++) {
    CHECK(at[i] == pattern(rank, round, i), "byte %zu of %zu of rank %d in round %d is %d, not %d", i, n, rank, round,
          at[i], pattern(rank, round, i));
  }
}

// All ranks have come so far: signals to all and from all.
HARNESS void barrier(void)
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
HARNESS void ring_of_puts(void)
{
  static const size_t sizes[] = {1, 0, 4096, 12289, 8, 8191, 20000, HALF};
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

// ---- Ranks of their own ----

HARNESS void one_rank(int rank, int n, const ncclUniqueId *id)
{
  ncclConfig_t config = window_config();
  OK(on_host ? ncclSuccess : tt_gpu_enter(device_of(rank)));
  first = rank;
  last = rank + 1;
  open_stream(rank);
  open_memory(rank);
  OK(ncclCommInitRankConfig(&sides[rank].comm, n, *id, rank, &config));
}

HARNESS void open_process(int rank, int n)
{
  const ncclUniqueId id = shared_id(0, rank);
  if (!on_host) {
    open_driver();
  }
  nranks = n;
  one_rank(rank, n, &id);
}

// The modes of the driver. Each has a process of its own.
static const char *const window_modes[] = {"",
                                           "queues=1",
                                           "order=random,stores,stale,step=500,seed=5",
                                           "devices=3,order=random,seed=6,slices",
                                           "queues=1,blocking",
                                           "queues=1,launches=6,seed=7",
                                           "devices=3,peers=none,slices",
                                           "devices=2,peers=none,queues=1"};

HARNESS int run_mode(const char *modes, const char *name, const struct CMUnitTest *tests, size_t n)
{
  set_modes(modes, name);
  few_queues = strstr(modes, "queues=") != NULL || strstr(modes, "order=random") != NULL; // by lot
  blocking = strstr(modes, "blocking") != NULL;
  apart = strstr(modes, "peers=none") != NULL;
  return _cmocka_run_group_tests(modes, tests, n, NULL, NULL);
}

// What main returns. An argument chooses tests by name; CUDA_WINDOW_MODE one mode.
HARNESS int run_modes(int argc, char **argv, int (*in_mode)(const char *modes, unsigned number))
{
  use_driver();
  if (argc > 1) {
    cmocka_set_test_filter(argv[1]);
  }
  return for_each_mode(window_modes, TT_COUNT(window_modes), MODE_STEP, getenv("CUDA_WINDOW_MODE"), in_mode) != 0;
}
