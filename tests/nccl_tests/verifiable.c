// verifiable.c: the library libverifiable.so that the programs of nccl-tests load for their check (-c 1), for host
// memory: the three functions of their verifiable.h. NVIDIA's are kernels for a GPU. Which values stand where, and
// which results are right, is perf/pattern.h's.
//
// Any thread may call them. Each waits for what the stream has to do, does its work itself and returns cudaSuccess (0);
// cudaErrorInvalidValue (1) for an unknown type, no memory or an error of the stream, and then has written nothing.
#include <tutti.h>

#include "options.h"
#include "pattern.h"
#include "types.h"

#define API __attribute__((visibility("default")))

// Their names and parameters in C++: data, elements, type, operation (from ncclNumOps on: a multiplied sum), ranks,
// [rank,] seed, index of the first element, stream.
API int tests_prepare_input(void *data, intptr_t count, int type, int op, int nranks, int rank, uint64_t seed,
                            intptr_t first,
                            cudaStream_t stream) __asm__("_Z26ncclVerifiablePrepareInputPvliiiimlP11CUstream_st");
API int tests_prepare_expected(void *data, intptr_t count, int type, int op, int nranks, uint64_t seed, intptr_t first,
                               cudaStream_t stream) __asm__("_Z29ncclVerifiablePrepareExpectedPvliiimlP11CUstream_st");
API int tests_verify(const void *results, const void *expected, intptr_t count, int type, int op, int nranks,
                     uint64_t seed, intptr_t first, int64_t *wrong,
                     cudaStream_t stream) __asm__("_Z20ncclVerifiableVerifyPKvS0_liiimlPlP11CUstream_st");

// All patterns of the process; kept until it ends, for they are few and asked for often.
static perf_patterns *patterns;

static __attribute__((constructor)) void create_patterns(void)
{
  patterns = perf_patterns_create();
}

// What the calls know of the data.
typedef struct series {
  const perf_pattern *pattern;
  const uint8_t *table;
  uint64_t seed;
  intptr_t first;
} series;

// The input of `rank`, or for -1 the result. One rank's sum is a copy: collectives that only move data ask for that.
// False: cudaErrorInvalidValue.
static bool open_series(series *s, int type, int op, int nranks, int rank)
{
  if (type < 0 || type >= ncclNumTypes || op < 0 || nranks < 1 || !patterns) {
    return false;
  }
  s->pattern = perf_pattern_acquire(patterns, type, op < ncclNumOps ? op : PERF_MULSUM, nranks, rank < 0 ? 0 : rank);
  if (!s->pattern) {
    return false;
  }
  s->table = nranks == 1 && op == ncclSum ? s->pattern->copy : rank < 0 ? s->pattern->reduced : s->pattern->input[rank];
  return true;
}

// The bits of element i.
static uint64_t element(const series *s, intptr_t i)
{
  size_t at = (size_t)(s->first + i), segment = at / PERF_PERIOD;
  return perf_load(s->table, perf_turn(s->seed, segment) + at % PERF_PERIOD, s->pattern->elt);
}

static int fill(const series *s, void *data, intptr_t count, cudaStream_t stream)
{
  if (tuttiStreamSynchronize(stream) != ncclSuccess) {
    return 1;
  }
  for (intptr_t i = 0; i < count; i++) {
    perf_store(data, (size_t)i, s->pattern->elt, element(s, i));
  }
  return 0;
}

int tests_prepare_input(void *data, intptr_t count, int type, int op, int nranks, int rank, uint64_t seed,
                        intptr_t first, cudaStream_t stream)
{
  series s = {.seed = seed, .first = first};
  return rank >= 0 && rank < nranks && open_series(&s, type, op, nranks, rank) ? fill(&s, data, count, stream) : 1;
}

int tests_prepare_expected(void *data, intptr_t count, int type, int op, int nranks, uint64_t seed, intptr_t first,
                           cudaStream_t stream)
{
  series s = {.seed = seed, .first = first};
  return open_series(&s, type, op, nranks, -1) ? fill(&s, data, count, stream) : 1;
}

// The distance of two codes, in units of the last place where both are positive floats.
static uint64_t distance(uint64_t a, uint64_t b)
{
  return a < b ? b - a : a - b;
}

int tests_verify(const void *results, const void *expected, intptr_t count, int type, int op, int nranks, uint64_t seed,
                 intptr_t first, int64_t *wrong, cudaStream_t stream)
{
  series s = {.seed = seed, .first = first};
  if (!open_series(&s, type, op, nranks, -1) || tuttiStreamSynchronize(stream) != ncclSuccess) {
    return 1;
  }
  int64_t found = 0;
  for (intptr_t i = 0; i < count; i++) {
    uint64_t want = expected ? perf_load(expected, (size_t)i, s.pattern->elt) : element(&s, i);
    found += distance(perf_load(results, (size_t)i, s.pattern->elt), want) > s.pattern->tolerance;
  }
  *wrong = found;
  return 0;
}
