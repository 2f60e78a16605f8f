// limits.c: what the machine itself can do: memory bandwidth of one and of two cores, and how fast two cores and two
// processes speak.
//
// Rows "name value unit what"; bandwidths are bytes read plus bytes written. With the argument "sizes": instead, the
// two cores' rates by the bytes that they work on, and hand-overs: what limits of whole messages are made from
// (bench/full/limit.h). Two processes, each on a core of its own, take part in a measurement; the slower one's time
// counts, in the best round.
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "pin.h"

#define LARGE ((size_t)128 << 20) // past every cache
#define PIECE ((size_t)4 << 20)   // of that, in one round: short, so that some rounds are undisturbed on a busy machine
#define SMALL ((size_t)256 << 10) // in the cache of a core
#define SMALL_TIMES 20
#define ROUNDS 64
#define PINGS 2000
#define LINES 64 // of the stream of lines
#define HALF (LINES / 2)
#define SIZES_MIN ((size_t)16 << 10) // least and largest bytes that both cores together work on
#define SIZES_MAX ((size_t)512 << 20)

typedef float four __attribute__((vector_size(16)));

typedef struct shared {
  _Atomic int arrived, round;
  _Atomic int refused;                       // the kernel does not let one process read the other
  _Alignas(128) _Atomic uint32_t one;        // written by both
  _Alignas(128) _Atomic uint32_t own[2][32]; // a line for each
  _Alignas(128) _Atomic uint32_t lines[LINES][32];
  double seconds[2];
  pid_t pid[2];
  void *base[2]; // each process's buffer a
} shared;

static shared *sh;
static int rank;
static float *a, *b, *c;      // of LARGE bytes
static size_t at;             // first float of the round's piece
static size_t window = LARGE; // bytes of each buffer that the pieces go through

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void barrier(void)
{
  int round = atomic_load(&sh->round);
  if (atomic_fetch_add(&sh->arrived, 1) == 1) {
    atomic_store(&sh->arrived, 0);
    atomic_store(&sh->round, round + 1);
    return;
  }
  for (int look = 1; atomic_load(&sh->round) == round; look++) {
    if (look % 4096 == 0) {
      sched_yield();
    }
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void copy_stream(size_t bytes)
{
  for (size_t i = at; i < at + bytes / 4; i += 16) {
    _mm256_stream_ps(c + i, _mm256_load_ps(a + i));
    _mm256_stream_ps(c + i + 8, _mm256_load_ps(a + i + 8));
  }
  _mm_sfence();
}

__attribute__((target("avx2"))) static void add_stream(size_t bytes)
{
  for (size_t i = at; i < at + bytes / 4; i += 16) {
    _mm256_stream_ps(c + i, _mm256_add_ps(_mm256_load_ps(a + i), _mm256_load_ps(b + i)));
    _mm256_stream_ps(c + i + 8, _mm256_add_ps(_mm256_load_ps(a + i + 8), _mm256_load_ps(b + i + 8)));
  }
  _mm_sfence();
}

__attribute__((target("avx2"))) static void add_cached(size_t bytes)
{
  for (size_t i = at; i < at + bytes / 4; i += 16) {
    _mm256_store_ps(c + i, _mm256_add_ps(_mm256_load_ps(a + i), _mm256_load_ps(b + i)));
    _mm256_store_ps(c + i + 8, _mm256_add_ps(_mm256_load_ps(a + i + 8), _mm256_load_ps(b + i + 8)));
  }
}
#endif

static void copy_plain(size_t bytes)
{
  memcpy(c + at, a + at, bytes);
}

static void add_plain(size_t bytes)
{
  four *to = (four *)(c + at);
  const four *x = (const four *)(a + at), *y = (const four *)(b + at);
  for (size_t i = 0; i < bytes / sizeof *to; i++) {
    to[i] = x[i] + y[i];
  }
}

// The other process's buffer, through the kernel.
static void read_peer(size_t bytes)
{
  const size_t step = (size_t)1 << 20;
  for (size_t done = 0; done < bytes; done += step) {
    size_t n = bytes - done < step ? bytes - done : step;
    struct iovec to = {(char *)(c + at) + done, n}, from = {(char *)((float *)sh->base[1 - rank] + at) + done, n};
    if (process_vm_readv(sh->pid[1 - rank], &to, 1, &from, 1, 0) < 0) {
      sh->refused = 1;
    }
  }
}

// One cache line that both write in turn.
static void ping_pong(size_t pings)
{
  for (uint32_t i = 0; i < pings; i++) {
    while (atomic_load_explicit(&sh->one, memory_order_acquire) != 2 * i + (uint32_t)rank) {
    }
    atomic_store_explicit(&sh->one, 2 * i + (uint32_t)rank + 1, memory_order_release);
  }
}

// Both write a line of their own and wait for the other's: what a small all-reduce is at least.
static void exchange(size_t pings)
{
  for (uint32_t i = 1; i <= pings; i++) {
    atomic_store_explicit(&sh->own[rank][0], i, memory_order_release);
    while (atomic_load_explicit(&sh->own[1 - rank][0], memory_order_acquire) < i) {
    }
  }
}

// Process 0 fills line after line, process 1 reads them and says so twice per turn of the ring: what a message in one
// direction is at least when many are under way.
static void stream_lines(size_t count)
{
  for (uint32_t i = 1; i <= count; i++) {
    _Atomic uint32_t *line = sh->lines[i % LINES];
    if (rank == 0) {
      while (i % HALF == 0 && atomic_load_explicit(&sh->own[1][0], memory_order_acquire) + HALF < i) {
      }
      atomic_store_explicit(line, i, memory_order_release);
      continue;
    }
    while (atomic_load_explicit(line, memory_order_acquire) < i) {
    }
    if (i % HALF == 0) {
      atomic_store_explicit(&sh->own[1][0], i, memory_order_release);
    }
  }
}

static void clear_lines(void)
{
  atomic_store(&sh->one, 0);
  atomic_store(&sh->own[0][0], 0);
  atomic_store(&sh->own[1][0], 0);
  for (int i = 0; i < LINES; i++) {
    atomic_store(&sh->lines[i][0], 0);
  }
}

// Best time of several rounds in which the first `ranks` processes do the work `times` times. On rank 0.
static double best(void (*work)(size_t), size_t amount, int times, int ranks)
{
  double least = 1e9;
  for (int round = 0; round < ROUNDS; round++) {
    if (rank == 0) {
      clear_lines();
    }
    sh->seconds[rank] = 0;
    at = amount == PIECE ? (at + PIECE / sizeof *a) % (window / sizeof *a) : 0;
    barrier();
    double start = now();
    for (int i = 0; i < times && rank < ranks; i++) {
      work(amount);
    }
    sh->seconds[rank] = now() - start;
    barrier();
    double slower = ranks == 2 && sh->seconds[1] > sh->seconds[0] ? sh->seconds[1] : sh->seconds[0];
    least = slower < least ? slower : least;
  }
  barrier();
  return least / times;
}

static void row(const char *name, double value, const char *unit, const char *what)
{
  if (rank == 0) {
    printf("%-26s %8.1f %-5s %s\n", name, value, unit, what);
    fflush(stdout);
  }
}

// `touched`: buffers read or written per byte of `amount`.
static void bandwidth(const char *name, void (*work)(size_t), int touched, const char *what)
{
  static const char *const places[2] = {"cache", "memory"};
  char label[64], text[128];
  for (int place = 0; place < 2; place++) {
    size_t bytes = place ? PIECE : SMALL;
    for (int ranks = 1; ranks <= 2; ranks++) {
      double s = best(work, bytes, place ? 1 : SMALL_TIMES, ranks);
      snprintf(label, sizeof label, "%s_%s_%d", name, places[place], ranks);
      snprintf(text, sizeof text, "%s, in %s, %d core%s", what, place ? "memory" : "a core's cache", ranks,
               ranks == 1 ? "" : "s");
      row(label, touched * 1e-9 * (double)(bytes * (size_t)ranks) / s, "GB/s", text);
    }
  }
}

// Rate of both cores that work on `bytes` in all, in GB/s: the better of stores that pass the caches by and stores that
// do not.
static double rate(void (*const work[2])(size_t), int touched, size_t bytes)
{
  double most = 0;
  size_t each = bytes / 2 / (size_t)touched / 64 * 64; // of every buffer
  size_t amount = each < PIECE ? each : PIECE;
  int times = each < SMALL ? (int)(SMALL / each) : 1;
  window = each < PIECE ? LARGE : each / PIECE * PIECE;
  for (int i = 0; i < 2; i++) {
    double gbs = 2e-9 * (double)(amount * (size_t)touched) / best(work[i], amount, times, 2);
    most = gbs > most ? gbs : most;
  }
  return most;
}

static void measure_sizes(void)
{
  void (*copy[2])(size_t) = {copy_plain, copy_plain}, (*add[2])(size_t) = {add_plain, add_plain};
  char name[64];
  row("cores", (double)sysconf(_SC_NPROCESSORS_ONLN), "", "processors here");
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    copy[0] = copy_stream;
    add[0] = add_stream;
    add[1] = add_cached;
  }
#endif
  for (size_t bytes = SIZES_MIN; bytes <= SIZES_MAX; bytes *= 2) {
    snprintf(name, sizeof name, "copy_%zu", bytes);
    row(name, rate(copy, 2, bytes), "GB/s", "copy, both cores, by the bytes that they work on");
    snprintf(name, sizeof name, "add_%zu", bytes);
    row(name, rate(add, 3, bytes), "GB/s", "c = a + b, both cores, by the bytes that they work on");
  }
  row("line_exchange", 1e9 * best(exchange, PINGS, 1, 2) / PINGS, "ns", "a cache line each way at the same time");
  row("line_stream", 1e9 * best(stream_lines, PINGS, 1, 2) / PINGS, "ns",
      "a cache line in one direction, many under way");
}

static void measure(void)
{
  void (*copy)(size_t) = copy_plain, (*add)(size_t) = add_plain;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    copy = copy_stream;
    add = add_stream;
  }
#endif
  bandwidth("memcpy", copy_plain, 2, "memcpy of the C library");
  bandwidth("copy", copy, 2, "copy with non-temporal stores");
  bandwidth("add", add, 3, "c = a + b with non-temporal stores");
  bandwidth("add_plain", add_plain, 3, "c = a + b with ordinary stores");
  read_peer(PIECE);
  barrier();
  if (!sh->refused) {
    bandwidth("readv", read_peer, 2, "process_vm_readv of the other process");
  }
  row("line_one_way", 1e9 * best(ping_pong, PINGS, 1, 2) / PINGS / 2, "ns", "a cache line from core to core");
  row("line_exchange", 1e9 * best(exchange, PINGS, 1, 2) / PINGS, "ns", "a cache line each way at the same time");
}

static float *buffer(void)
{
  float *p = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    perror("limits: no memory");
    exit(1);
  }
  for (size_t i = 0; i < LARGE / sizeof *p; i++) {
    p[i] = (float)(i % 61);
  }
  return p;
}

int main(int argc, char **argv)
{
  sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (sh == MAP_FAILED) {
    return 1;
  }
  pid_t child = fork();
  if (child < 0) {
    return 1;
  }
  rank = child == 0;
  if (rank == 1) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
  }
  alarm(120);
  bench_pin(rank);
  a = buffer();
  b = buffer();
  c = buffer();
  sh->pid[rank] = getpid();
  sh->base[rank] = a;
  barrier();
  if (argc > 1 && strcmp(argv[1], "sizes") == 0) {
    measure_sizes();
  } else {
    measure();
  }
  if (rank == 1) {
    return 0;
  }
  waitpid(child, NULL, 0);
  return 0;
}
