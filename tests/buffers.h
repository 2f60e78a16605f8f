// buffers.h: inputs and outputs whose sums are known, for tests of groups and of communicators' lives.
#pragma once
#include "harness.h"

enum { N = 8, COUNT = 300, LARGE = 200000 };

typedef struct buffers {
  float *in[MAX_RANKS], *out[MAX_RANKS];
  size_t count;
} buffers;

static inline void buffers_open(buffers *b, int n, size_t count)
{
  b->count = count;
  for (int i = 0; i < n; i++) {
    b->in[i] = malloc(count * sizeof(float));
    b->out[i] = calloc(count, sizeof(float));
    for (size_t k = 0; k < count; k++) {
      b->in[i][k] = (float)(i + 1) * (float)(k % 3 + 1);
    }
  }
}

static inline void buffers_close(buffers *b, int n)
{
  for (int i = 0; i < n; i++) {
    free(b->in[i]);
    free(b->out[i]);
  }
}

// Every element of `out` is factor * (1 + k % 3).
static inline void expect(const float *out, size_t count, float factor, const char *what, int rank)
{
  for (size_t k = 0; k < count; k++) {
    CHECK(out[k] == factor * (float)(k % 3 + 1), "%s, rank %d, element %zu: %g, not %g", what, rank, k, (double)out[k],
          (double)(factor * (float)(k % 3 + 1)));
  }
}

static inline void expect_sum(buffers *b, int n, const char *what)
{
  for (int i = 0; i < n; i++) {
    expect(b->out[i], b->count, (float)(n * (n + 1) / 2), what, i);
    memset(b->out[i], 0, b->count * sizeof(float));
  }
}

static inline ncclResult_t sum(const world *w, buffers *b, int i)
{
  return ncclAllReduce(b->in[i], b->out[i], b->count, ncclFloat, ncclSum, w->comm[i], w->stream[i]);
}

// --- Communicators of any size and state

HARNESS bool going(ncclResult_t res)
{
  return res == ncclSuccess || res == ncclInProgress;
}

HARNESS ncclResult_t await_state(ncclComm_t comm)
{
  ncclResult_t state = ncclInProgress;
  for (double end = seconds_now() + GENEROUS(10); state == ncclInProgress; sleep_ms(0.2)) {
    OK(ncclCommGetAsyncError(comm, &state));
    CHECK(seconds_now() < end, "still in progress");
  }
  return state;
}

// An all-reduce of `count` floats: every rank adds 1 + its rank. Returns the first error.
HARNESS ncclResult_t sum_once(ncclComm_t comm, cudaStream_t s, size_t count)
{
  int rank, n;
  float *x = malloc(count * sizeof *x);
  OK(ncclCommUserRank(comm, &rank));
  OK(ncclCommCount(comm, &n));
  for (size_t i = 0; i < count; i++) {
    x[i] = (float)(1 + rank) * (float)(i % 5 + 1);
  }
  ncclResult_t res = ncclAllReduce(x, x, count, ncclFloat, ncclSum, comm, s);
  res = res == ncclInProgress ? await_state(comm) : res;
  ncclResult_t end = tuttiStreamSynchronize(s);
  res = res != ncclSuccess ? res : end;
  for (size_t i = 0; i < count && res == ncclSuccess; i++) {
    float want = (float)(n * (n + 1) / 2) * (float)(i % 5 + 1);
    CHECK(x[i] == want, "rank %d of %d, element %zu: %g, not %g", rank, n, i, (double)x[i], (double)want);
  }
  free(x);
  return res;
}

HARNESS cudaStream_t new_stream(void)
{
  cudaStream_t s;
  OK(tuttiStreamCreate(&s, TUTTI_STREAM_NON_BLOCKING));
  return s;
}
