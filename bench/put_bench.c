// put_bench.c: how long one-sided operations between two processes take, each bound to a core of its own.
//
//   put_bench [ROUNDS]    rounds (15)
//
// Each round measures all lines in turn; printed are the lower quartile and the best round:
//   line      a cache line handed over, by bare stores: half of there and back
//   exchange  8 B put to the other rank, and the wait for its put; the stream is waited for after every 100 of them
//   ping      the same one after the other: half of there and back, each waited for
//   reduce    8 B all-reduce, as in `exchange`, for comparison
//   copy      memcpy of 64 MiB from a rank's window to the peer's
//   put       ncclPutSignal of the same bytes to the same place, and the wait for the stream
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "nccl.h"
#include "nccl_device/core.h"
#include "tutti.h"
#include "pin.h"

enum { ROUNDS_MOST = 1000, SMALL_CALLS = 10000, BURST = 100, LARGE_CALLS = 3 };
#define LARGE ((size_t)64 << 20)

typedef struct common {
  _Atomic int known, arrived;
  ncclUniqueId id;
  _Alignas(128) _Atomic uint32_t ball[2][32]; // a line each
} common;

typedef struct side {
  common *both;
  int rank;
  ncclComm_t comm;
  cudaStream_t stream;
  char *memory, *peers; // the window: what is sent, then where it arrives; the peer's
  ncclWindow_t window;
} side;

static void must(ncclResult_t res, const char *what)
{
  if (res != ncclSuccess) {
    fprintf(stderr, "put_bench: %s: %s\n", what, ncclGetLastError(NULL));
    _exit(1);
  }
}

static double now_us(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void both_come(const side *s, int *meeting)
{
  atomic_fetch_add(&s->both->arrived, 1);
  for (++*meeting; atomic_load(&s->both->arrived) < 2 * *meeting;) {
    sched_yield();
  }
}

static void open_one(side *s)
{
  bench_pin(s->rank);
  if (s->rank == 0) {
    must(ncclGetUniqueId(&s->both->id), "ncclGetUniqueId");
    atomic_store(&s->both->known, 1);
  }
  while (atomic_load(&s->both->known) == 0) {
    sched_yield();
  }
  must(ncclCommInitRank(&s->comm, 2, s->both->id, s->rank), "ncclCommInitRank");
  must(tuttiStreamCreate(&s->stream, TUTTI_STREAM_NON_BLOCKING), "tuttiStreamCreate");
  must(ncclMemAlloc((void **)&s->memory, 2 * LARGE), "ncclMemAlloc");
  memset(s->memory, s->rank + 1, 2 * LARGE);
  must(ncclCommWindowRegister(s->comm, s->memory, 2 * LARGE, &s->window, NCCL_WIN_DEFAULT), "ncclCommWindowRegister");
}

static void put(side *s, size_t bytes)
{
  must(ncclPutSignal(s->memory, bytes, ncclUint8, 1 - s->rank, s->window, LARGE, 0, 0, 0, s->comm, s->stream),
       "ncclPutSignal");
}

static void wait_for_put(side *s)
{
  ncclWaitSignalDesc_t d = {.opCnt = 1, .peer = 1 - s->rank, .sigIdx = 0, .ctx = 0};
  must(ncclWaitSignal(1, &d, s->comm, s->stream), "ncclWaitSignal");
}

static void wait_for_stream(side *s)
{
  must(tuttiStreamSynchronize(s->stream), "tuttiStreamSynchronize");
}

static void line(side *s, int i)
{
  _Atomic uint32_t *own = s->both->ball[s->rank], *other = s->both->ball[1 - s->rank];
  uint32_t turn = atomic_load_explicit(own, memory_order_relaxed) + 1;
  (void)i;
  if (s->rank == 0) {
    atomic_store_explicit(own, turn, memory_order_release);
  }
  while (atomic_load_explicit(other, memory_order_acquire) != turn) {
  }
  if (s->rank == 1) {
    atomic_store_explicit(own, turn, memory_order_release);
  }
}

static void exchange(side *s, int i)
{
  put(s, 8);
  wait_for_put(s);
  if (i % BURST == BURST - 1) {
    wait_for_stream(s);
  }
}

static void ping(side *s, int i)
{
  (void)i;
  if (s->rank == 0) {
    put(s, 8);
  }
  wait_for_put(s);
  wait_for_stream(s);
  if (s->rank == 1) {
    put(s, 8);
  }
}

static void reduce(side *s, int i)
{
  must(ncclAllReduce(s->memory, s->memory + LARGE, 2, ncclFloat32, ncclSum, s->comm, s->stream), "ncclAllReduce");
  if (i % BURST == BURST - 1) {
    wait_for_stream(s);
  }
}

static void copy(side *s, int i)
{
  (void)i;
  if (s->rank == 0) {
    memcpy(s->peers + LARGE, s->memory, LARGE);
  }
}

static void large_put(side *s, int i)
{
  (void)i;
  if (s->rank == 0) {
    put(s, LARGE);
    wait_for_stream(s);
  }
}

static const struct {
  const char *name;
  void (*body)(side *s, int i);
  int calls;
  double parts; // of a call's time that count
} lines[] = {{"line", line, SMALL_CALLS, 0.5}, {"exchange", exchange, SMALL_CALLS, 1},
             {"ping", ping, SMALL_CALLS, 0.5}, {"reduce", reduce, SMALL_CALLS, 1},
             {"copy", copy, LARGE_CALLS, 1},   {"put", large_put, LARGE_CALLS, 1}};
enum { LINES = sizeof lines / sizeof *lines };

static int by_size(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double us[LINES][ROUNDS_MOST];

static void measure(side *s, int rounds)
{
  int meeting = 0;
  for (int round = -1; round < rounds; round++) { // the first is not counted
    for (int k = 0; k < LINES; k++) {
      both_come(s, &meeting);
      double began = now_us();
      for (int i = 0; i < lines[k].calls; i++) {
        lines[k].body(s, i);
      }
      us[k][round < 0 ? 0 : round] = (now_us() - began) * lines[k].parts / lines[k].calls;
    }
    for (int i = 0; s->rank == 1 && i < LARGE_CALLS; i++) {
      wait_for_put(s);
    }
    wait_for_stream(s);
  }
}

static int run_side(side *s, int rounds)
{
  double quartile[LINES];
  open_one(s);
  put(s, 8); // the windows of both are there
  wait_for_put(s);
  wait_for_stream(s);
  must(ncclGetPeerDevicePointer(s->window, 0, 1 - s->rank, (void **)&s->peers), "ncclGetPeerDevicePointer");
  measure(s, rounds);
  for (int k = 0; k < LINES; k++) {
    qsort(us[k], (size_t)rounds, sizeof us[k][0], by_size);
    quartile[k] = us[k][rounds / 4];
    if (s->rank == 0) {
      printf("%-9s %10.3f us, best %10.3f\n", lines[k].name, quartile[k], us[k][0]);
    }
  }
  if (s->rank == 0) {
    printf("put over copy: %.3f of its speed\n", quartile[LINES - 2] / quartile[LINES - 1]);
  }
  must(ncclCommWindowDeregister(s->comm, s->window), "ncclCommWindowDeregister");
  must(ncclCommDestroy(s->comm), "ncclCommDestroy");
  return 0;
}

int main(int argc, char **argv)
{
  int rounds = argc > 1 ? atoi(argv[1]) : 15, status = 1;
  common *both = mmap(NULL, sizeof *both, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (both == MAP_FAILED || rounds < 1 || rounds > ROUNDS_MOST) {
    fprintf(stderr, "usage: put_bench [ROUNDS], 1 to %d\n", ROUNDS_MOST);
    return 2;
  }
  pid_t child = fork();
  int res = run_side(&(side){.both = both, .rank = child == 0}, rounds);
  if (child == 0) {
    _exit(res);
  }
  return waitpid(child, &status, 0) == child && status == 0 ? res : 1;
}
