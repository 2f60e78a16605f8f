// backend_floor.c: no library: the least that an all-reduce of large buffers has to do. A thread per core, each of
// which reads its part of all inputs once and writes the sums once into all outputs, around the caches: two bytes of
// memory traffic per byte and rank, and two barriers. With more ranks than cores the others only wait.
//
//   coll_floor [RANKS] [cached]    RANKS: 2, or up to 64; cached: ordinary stores, for buffers that fit the caches
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "../pin.h"
#include "coll_bench.h"
#include "ranks.h"

enum { MAX_RANKS = 64, BLOCK = 1024, LINE = 16 }; // floats: of a block of sums; of a cache line

// What each rank has posted of its call.
typedef struct posts {
  const float *_Atomic in[MAX_RANKS];
  float *_Atomic out[MAX_RANKS];
} posts;

static int nranks = 2, workers, cached; // workers: ranks 0 and up, one per core
static _Thread_local int rank;

// Elements from..from+n of all inputs into `sums`.
static void sum_block(const float *const *in, size_t from, size_t n, float *sums)
{
  memcpy(sums, in[0] + from, n * sizeof *sums);
  for (int k = 1; k < nranks; k++) {
    const float *x = in[k] + from;
    for (size_t i = 0; i < n; i++) {
      sums[i] += x[i];
    }
  }
}

#if defined(__x86_64__)
// Line by line from the inputs to all outputs, each line written at once. Returns how many elements it has done: whole
// lines.
__attribute__((target("avx2"))) static size_t sum_stream(const float *const *in, float *const *out, size_t from,
                                                         size_t n)
{
  size_t end = from + n / LINE * LINE;
  for (size_t i = from; i < end; i += LINE) {
    __m256 lo = _mm256_loadu_ps(in[0] + i), hi = _mm256_loadu_ps(in[0] + i + 8);
    for (int k = 1; k < nranks; k++) {
      lo = _mm256_add_ps(lo, _mm256_loadu_ps(in[k] + i));
      hi = _mm256_add_ps(hi, _mm256_loadu_ps(in[k] + i + 8));
    }
    for (int k = 0; k < nranks; k++) {
      _mm256_stream_ps(out[k] + i, lo);
      _mm256_stream_ps(out[k] + i + 8, hi);
    }
  }
  _mm_sfence();
  return end - from;
}

static int can_stream(float *const *out, size_t from)
{
  size_t addresses = 0;
  for (int k = 0; k < nranks; k++) {
    addresses |= (size_t)(out[k] + from);
  }
  return !cached && addresses % 32 == 0 && __builtin_cpu_supports("avx2");
}
#endif

static int call(const coll_call *c)
{
  posts *p = ranks_area();
  const float *in[MAX_RANKS];
  float *out[MAX_RANKS], sums[BLOCK];
  atomic_store(&p->in[rank], c->in);
  atomic_store(&p->out[rank], c->out);
  ranks_barrier();
  for (int k = 0; k < nranks; k++) {
    in[k] = p->in[k];
    out[k] = p->out[k];
  }
  size_t part = c->count / (size_t)workers / LINE * LINE, from = (size_t)rank * part;
  size_t n = rank >= workers ? 0 : rank == workers - 1 ? c->count - from : part, done = 0;
#if defined(__x86_64__)
  if (n > 0 && can_stream(out, from)) {
    done = sum_stream(in, out, from, n);
  }
#endif
  for (size_t i = done, m; i < n; i += m) {
    m = n - i < BLOCK ? n - i : BLOCK;
    sum_block(in, from + i, m, sums);
    for (int k = 0; k < nranks; k++) {
      memcpy(out[k] + from + i, sums, m * sizeof *sums);
    }
  }
  return ranks_barrier();
}

static int settle(void)
{
  return 0;
}

// On huge pages where there are any: pages are not what is to be measured.
static void *buffer(size_t bytes)
{
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    perror("coll_floor: no memory");
    return NULL;
  }
  madvise(p, bytes, MADV_HUGEPAGE);
  return p;
}

static int run_rank(int number)
{
  const coll_library lib = {
      .lacks = ~(1u << COLL_ALL_REDUCE), .call = call, .settle = settle, .barrier = ranks_barrier, .buffer = buffer};
  rank = number;
  return coll_obey(&lib, rank, nranks);
}

static int read_options(int argc, char **argv)
{
  int i = 1;
  char *end = NULL;
  if (i < argc && argv[i][0] >= '0' && argv[i][0] <= '9') {
    long n = strtol(argv[i++], &end, 10);
    nranks = n > MAX_RANKS ? 0 : (int)n;
  }
  cached = i < argc && strcmp(argv[i], "cached") == 0;
  return i + cached == argc && nranks >= 2 && nranks <= MAX_RANKS && (end == NULL || *end == 0);
}

int main(int argc, char **argv)
{
  if (!read_options(argc, argv)) {
    fprintf(stderr, "usage: coll_floor [RANKS, 2 to %d] [cached]\n", MAX_RANKS);
    return 2;
  }
  workers = nranks < bench_cores() ? nranks : bench_cores();
  return ranks_run(nranks, 1, run_rank);
}
