// overlap.c: how fast the threads that issue all-reduces compute while these are in flight, and what the library's
// threads use when nothing is.
//
//   overlap [PROCESSES [RANKS [ROUNDS]]]    processes (1), ranks that the one thread of each issues for (2), rounds (7)
//
// Each round: compute alone; compute with all-reduces of 64 MiB in flight, until a host function behind them has been
// called; the same all-reduces, waited for; compute beside a thread that copies memory, which is what the machine
// allows; sleep. Computing is arithmetic in registers. The stream is never asked meanwhile: asking would help. Prints a
// line of a table, medians of the rounds:
//   speed     chunks per second in flight over those alone
//   own time  chunks per second of the computing thread's processor time in flight over those alone: what is missing in
//             speed alone was taken by whoever else wanted the core
//   library   cores that the library's threads used meanwhile
//   kept      speed over that of the cores which the library left (at most one per computing thread)
//   beside    speed, and by own time, beside the copying thread
//   longer    time of the all-reduces in flight over their time when waited for
//   idle      processor time of the processes per second of sleep, from 0.1 s after the last call
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "nccl.h"
#include "tutti.h"
#include "coll/machine.h"

enum { MOST = 8, ROUNDS_MOST = 64, FLIGHTS = 4 };
#define BYTES ((size_t)64 << 20)
#define ALONE_S 0.2

typedef struct speeds {
  double wall, own; // chunks per second, of the clock and of the thread's processor time
} speeds;

typedef struct figures {
  speeds alone, flight, beside;
  double library; // cores
  double longer;
  double idle; // seconds of processor time per second
} figures;

typedef struct meeting {
  _Atomic int arrived, round, known;
  ncclUniqueId id;
  figures of[MOST][ROUNDS_MOST];
} meeting;

typedef struct rank_state {
  ncclComm_t comm;
  cudaStream_t stream;
  float *in, *out;
  _Atomic int done;
} rank_state;

static meeting *meet;
static int nprocs = 1, nranks = 2, nrounds = 7, proc;
static rank_state ranks[MOST];
static volatile uint64_t sink;

static void must(ncclResult_t res, const char *what)
{
  if (res != ncclSuccess) {
    fprintf(stderr, "overlap: process %d: %s: %s (%s)\n", proc, what, ncclGetErrorString(res), ncclGetLastError(NULL));
    exit(1);
  }
}

static double clock_of(clockid_t id)
{
  struct timespec t;
  clock_gettime(id, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double process_cpu(void)
{
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void pause_for(double seconds)
{
  struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
  nanosleep(&t, NULL);
}

static void barrier(void)
{
  int round = atomic_load(&meet->round);
  if (atomic_fetch_add(&meet->arrived, 1) == nprocs - 1) {
    atomic_store(&meet->arrived, 0);
    atomic_store(&meet->round, round + 1);
  }
  while (atomic_load(&meet->round) == round) {
    pause_for(0.0001);
  }
}

// One chunk of computing: some microseconds.
static void compute(void)
{
  uint64_t x = sink;
  for (int i = 0; i < 2000; i++) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    x ^= x >> 29;
  }
  sink = x;
}

static bool all_done(void)
{
  for (int r = 0; r < nranks; r++) {
    if (atomic_load_explicit(&ranks[r].done, memory_order_acquire) == 0) {
      return false;
    }
  }
  return true;
}

// Computes for `seconds`, or until all flights are done where that is 0.
static speeds compute_for(double seconds)
{
  double start = clock_of(CLOCK_MONOTONIC), own = clock_of(CLOCK_THREAD_CPUTIME_ID), end = start;
  long chunks = 0;
  do {
    compute();
    chunks++;
    end = clock_of(CLOCK_MONOTONIC);
  } while (seconds > 0 ? end - start < seconds : !all_done());
  return (speeds){(double)chunks / (end - start), (double)chunks / (clock_of(CLOCK_THREAD_CPUTIME_ID) - own)};
}

static void land(void *arg)
{
  atomic_store_explicit(&((rank_state *)arg)->done, 1, memory_order_release);
}

static void take_off(void)
{
  for (int i = 0; i < FLIGHTS; i++) {
    must(ncclGroupStart(), "ncclGroupStart");
    for (int r = 0; r < nranks; r++) {
      must(ncclAllReduce(ranks[r].in, ranks[r].out, BYTES / sizeof(float), ncclFloat32, ncclSum, ranks[r].comm,
                         ranks[r].stream),
           "ncclAllReduce");
    }
    must(ncclGroupEnd(), "ncclGroupEnd");
  }
  for (int r = 0; r < nranks; r++) {
    atomic_store(&ranks[r].done, 0);
    must(tuttiLaunchHostFunc(ranks[r].stream, land, &ranks[r]), "tuttiLaunchHostFunc");
  }
}

static void *copy_memory(void *arg)
{
  const _Atomic int *stop = arg;
  while (!atomic_load(stop)) {
    memcpy(ranks[0].out, ranks[0].in, BYTES);
  }
  return NULL;
}

static speeds compute_beside_copies(void)
{
  _Atomic int stop = 0;
  pthread_t id;
  if (pthread_create(&id, NULL, copy_memory, &stop) != 0) {
    fprintf(stderr, "overlap: no thread\n");
    exit(1);
  }
  speeds speed = compute_for(ALONE_S);
  atomic_store(&stop, 1);
  pthread_join(id, NULL);
  return speed;
}

static void settle(void)
{
  for (int r = 0; r < nranks; r++) {
    must(tuttiStreamSynchronize(ranks[r].stream), "tuttiStreamSynchronize");
  }
}

static void one_round(figures *f)
{
  barrier();
  f->alone = compute_for(ALONE_S);
  barrier();
  double start = clock_of(CLOCK_MONOTONIC), all = process_cpu(), own = clock_of(CLOCK_THREAD_CPUTIME_ID);
  take_off();
  f->flight = compute_for(0);
  double flight = clock_of(CLOCK_MONOTONIC) - start;
  f->library = (process_cpu() - all - (clock_of(CLOCK_THREAD_CPUTIME_ID) - own)) / flight;
  settle();
  barrier();
  start = clock_of(CLOCK_MONOTONIC);
  take_off();
  settle();
  f->longer = flight / (clock_of(CLOCK_MONOTONIC) - start);
  pause_for(0.1);
  barrier();
  all = process_cpu();
  pause_for(0.5);
  f->idle = (process_cpu() - all) / 0.5;
  barrier();
  f->beside = compute_beside_copies();
}

static void open_ranks(void)
{
  if (proc == 0) {
    must(ncclGetUniqueId(&meet->id), "ncclGetUniqueId");
    atomic_store(&meet->known, 1);
  }
  while (!atomic_load(&meet->known)) {
    pause_for(0.001);
  }
  must(ncclGroupStart(), "ncclGroupStart");
  for (int r = 0; r < nranks; r++) {
    must(tuttiSetDevice(proc * nranks + r), "tuttiSetDevice");
    must(ncclCommInitRank(&ranks[r].comm, nprocs * nranks, meet->id, proc * nranks + r), "ncclCommInitRank");
  }
  must(ncclGroupEnd(), "ncclGroupEnd");
  for (int r = 0; r < nranks; r++) {
    must(tuttiSetDevice(proc * nranks + r), "tuttiSetDevice");
    must(tuttiStreamCreate(&ranks[r].stream, TUTTI_STREAM_NON_BLOCKING), "tuttiStreamCreate");
    must(tuttiMalloc((void **)&ranks[r].in, BYTES), "tuttiMalloc");
    must(tuttiMalloc((void **)&ranks[r].out, BYTES), "tuttiMalloc");
    for (size_t i = 0; i < BYTES / sizeof(float); i++) {
      ranks[r].in[i] = 1;
    }
  }
}

static void check_sums(void)
{
  for (int r = 0; r < nranks; r++) {
    for (size_t i = 0; i < BYTES / sizeof(float); i++) {
      if (ranks[r].out[i] != (float)(nprocs * nranks)) {
        fprintf(stderr, "overlap: process %d, rank %d, element %zu: %g\n", proc, r, i, (double)ranks[r].out[i]);
        exit(1);
      }
    }
  }
}

static int run_process(void)
{
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  open_ranks();
  take_off(); // cold: pages, connections, the worker
  (void)compute_for(0);
  check_sums();
  for (int i = 0; i < nrounds; i++) {
    one_round(&meet->of[proc][i]);
  }
  for (int r = 0; r < nranks; r++) {
    must(ncclCommDestroy(ranks[r].comm), "ncclCommDestroy");
    must(tuttiStreamDestroy(ranks[r].stream), "tuttiStreamDestroy");
    must(tuttiFree(ranks[r].in), "tuttiFree");
    must(tuttiFree(ranks[r].out), "tuttiFree");
  }
  return 0;
}

static int by_size(const void *a, const void *b)
{
  double d = *(const double *)a - *(const double *)b;
  return (d > 0) - (d < 0);
}

static double median(double *v)
{
  qsort(v, (size_t)nrounds, sizeof *v, by_size);
  return v[nrounds / 2];
}

static void add(speeds *sum, const speeds *s)
{
  sum->wall += s->wall;
  sum->own += s->own;
}

enum { SPEED, OWN, LIBRARY, KEPT, BESIDE, BESIDE_OWN, LONGER, IDLE, COLUMNS };

// Of each round the sums over the processes; of these the medians.
static void report(void)
{
  double v[COLUMNS][ROUNDS_MOST], m[COLUMNS];
  double cores = (double)sysconf(_SC_NPROCESSORS_ONLN);
  for (int i = 0; i < nrounds; i++) {
    figures sum = {.longer = 0};
    for (int p = 0; p < nprocs; p++) {
      const figures *f = &meet->of[p][i];
      add(&sum.alone, &f->alone);
      add(&sum.flight, &f->flight);
      add(&sum.beside, &f->beside);
      sum.library += f->library;
      sum.longer += f->longer / nprocs;
      sum.idle += f->idle;
    }
    double left = (cores - sum.library) / nprocs;
    v[SPEED][i] = sum.flight.wall / sum.alone.wall;
    v[OWN][i] = sum.flight.own / sum.alone.own;
    v[LIBRARY][i] = sum.library;
    v[KEPT][i] = v[SPEED][i] / (left < 1 ? left : 1);
    v[BESIDE][i] = sum.beside.wall / sum.alone.wall;
    v[BESIDE_OWN][i] = sum.beside.own / sum.alone.own;
    v[LONGER][i] = sum.longer;
    v[IDLE][i] = sum.idle;
  }
  for (int k = 0; k < COLUMNS; k++) {
    m[k] = median(v[k]);
  }
  machine_say(stdout);
  printf("\n| processes | ranks of each | speed | own time | library | kept | beside | longer | idle |\n");
  printf("|---|---|---|---|---|---|---|---|---|\n");
  printf("| %d | %d | %.2f | %.2f | %.2f | %.2f | %.2f, %.2f | %.2f | %.2f ms |\n", nprocs, nranks, m[SPEED], m[OWN],
         m[LIBRARY], m[KEPT], m[BESIDE], m[BESIDE_OWN], m[LONGER], 1000 * m[IDLE]);
}

int main(int argc, char **argv)
{
  nprocs = argc > 1 ? atoi(argv[1]) : nprocs;
  nranks = argc > 2 ? atoi(argv[2]) : nranks;
  nrounds = argc > 3 ? atoi(argv[3]) : nrounds;
  if (nprocs < 1 || nprocs > MOST || nranks < 1 || nranks > MOST || nrounds < 1 || nrounds > ROUNDS_MOST) {
    fprintf(stderr, "usage: overlap [PROCESSES [RANKS [ROUNDS]]] (at most %d, %d, %d)\n", MOST, MOST, ROUNDS_MOST);
    return 2;
  }
  meet = mmap(NULL, sizeof *meet, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (meet == MAP_FAILED) {
    return 1;
  }
  for (proc = 0; proc < nprocs; proc++) {
    if (fork() == 0) {
      return run_process();
    }
  }
  int status, bad = 0;
  while (wait(&status) > 0) {
    if (status != 0 && bad++ == 0) {
      signal(SIGTERM, SIG_IGN);
      kill(0, SIGTERM); // the first that fails takes the others along
    }
  }
  if (bad == 0) {
    report();
  }
  return bad != 0;
}
