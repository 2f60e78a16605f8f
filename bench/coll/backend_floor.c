// backend_floor.c: no library: the least that an all-reduce of large buffers has to do. Two threads, each of which reads its half of both inputs once and
// writes the sums once into both outputs, around the caches: 4 bytes of memory traffic per byte of the buffer, and two barriers.
//
//   coll_floor [cached]    cached: ordinary stores, for buffers that fit the caches
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "coll_bench.h"
#include "ranks.h"

enum { RANKS = 2 };

// What each rank has posted of its call.
typedef struct posts {
  const float *_Atomic in[RANKS];
  float *_Atomic out[RANKS];
} posts;

static int cached;
static _Thread_local int rank;

static void sum_plain(const float *a, const float *b, float *x, float *y, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    float sum = a[i] + b[i];
    x[i] = sum;
    y[i] = sum;
  }
}

#if defined(__x86_64__)
// Returns how many it has done; buffers are mapped, halves are multiples of a line in all sizes that are large.
__attribute__((target("avx2"))) static size_t sum_stream(const float *a, const float *b, float *x, float *y, size_t n)
{
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m256 lo = _mm256_add_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i));
    __m256 hi = _mm256_add_ps(_mm256_loadu_ps(a + i + 8), _mm256_loadu_ps(b + i + 8));
    _mm256_stream_ps(x + i, lo);
    _mm256_stream_ps(x + i + 8, hi);
    _mm256_stream_ps(y + i, lo);
    _mm256_stream_ps(y + i + 8, hi);
  }
  _mm_sfence();
  return i;
}
#endif

static int call(const coll_call *c)
{
  posts *p = ranks_area();
  atomic_store(&p->in[rank], c->in);
  atomic_store(&p->out[rank], c->out);
  ranks_barrier();
  size_t half = c->count / 2 / 16 * 16, from = rank == 0 ? 0 : half, n = rank == 0 ? half : c->count - half, done = 0;
  const float *a = p->in[0] + from, *b = p->in[1] + from;
  float *x = p->out[0] + from, *y = p->out[1] + from;
#if defined(__x86_64__)
  if (!cached && ((size_t)x | (size_t)y) % 32 == 0 && __builtin_cpu_supports("avx2")) {
    done = sum_stream(a, b, x, y, n);
  }
#endif
  sum_plain(a + done, b + done, x + done, y + done, n - done);
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
  const coll_library lib = {.lacks = ~(1u << COLL_ALL_REDUCE), .call = call, .settle = settle, .barrier = ranks_barrier, .buffer = buffer};
  rank = number;
  return coll_obey(&lib, rank, RANKS);
}

int main(int argc, char **argv)
{
  cached = argc > 1 && strcmp(argv[1], "cached") == 0;
  if (argc > 2 || (argc == 2 && !cached)) {
    fprintf(stderr, "usage: coll_floor [cached]\n");
    return 2;
  }
  return ranks_run(RANKS, 1, run_rank);
}
