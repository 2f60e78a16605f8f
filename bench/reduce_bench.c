// reduce_bench.c: speed of the reduction kernels on this machine: GB/s of memory touched (sources read and destinations written) and
// nanoseconds of small calls, for each instruction set.
//
//   reduce_bench [isa [type]]      isa: plain, avx2, avx512, or all; type: number of an ncclDataType_t, or all
//
// Large buffers are walked as a ring of windows, so that nothing is in a cache when it is needed again.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/host/reduce_priv.h"

static const char *const type_names[TT_RED_TYPES] = {"int8", "uint8", "int32",  "uint32", "int64", "uint64",
                                                     "half", "float", "double", "bf16",   "e4m3",  "e5m2"};
static const size_t type_sizes[TT_RED_TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

enum { MAX_BUFS = 6 };

static char *bufs[MAX_BUFS];
static const size_t buf_bytes = (size_t)128 << 20;

typedef struct shape {
  const char *name;
  int kind, nsrc, ndst;
  int inplace, scaled, divisor;
} shape;

// Of the thread's own time, so that a busy machine disturbs less.
static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Runs `calls` calls of `bytes` per buffer; call i uses the window that begins at i * step.
static double run(const shape *s, int type, size_t bytes, size_t step, long calls, unsigned flags)
{
  static uint64_t scalar = 0;
  tt_redop op = {.type = (uint8_t)type, .kind = (uint8_t)s->kind, .prescale = (uint8_t)s->scaled, .divisor = (uint32_t)s->divisor};
  const uint64_t *scale[MAX_BUFS] = {s->scaled ? &scalar : NULL};
  const void *src[MAX_BUFS];
  void *dst[MAX_BUFS];
  double t0 = now();
  for (long i = 0; i < calls; i++) {
    size_t at = step ? (size_t)i * step % (buf_bytes - bytes + step) : 0;
    for (int k = 0; k < s->nsrc; k++) {
      src[k] = bufs[k] + at;
    }
    for (int d = 0; d < s->ndst; d++) {
      dst[d] = s->inplace && d == 0 ? bufs[0] + at : bufs[s->nsrc + d] + at;
    }
    tt_reduce(&op, s->ndst, dst, s->nsrc, src, s->scaled ? scale : NULL, bytes / type_sizes[type], flags | TT_REDUCE_FINAL);
  }
  return (now() - t0) / (double)calls;
}

// Best of several.
static double rate(const shape *s, int type, size_t bytes, size_t step, unsigned flags)
{
  size_t volume = step ? buf_bytes / 2 : 8 * bytes;
  long calls = (long)(volume / bytes) > 0 ? (long)(volume / bytes) : 1;
  double best = 1e9;
  for (int i = 0; i < (step ? 4 : 12); i++) {
    double t = run(s, type, bytes, step, calls, flags);
    best = t < best ? t : best;
  }
  return (double)bytes * (s->nsrc + s->ndst) / best * 1e-9;
}

static double latency(const shape *s, int type, size_t count)
{
  double best = 1e9;
  for (int i = 0; i < 20; i++) {
    double t = run(s, type, count * type_sizes[type], 0, 1000, 0);
    best = t < best ? t : best;
  }
  return best * 1e9;
}

static void row(const char *isa, int type, const shape *s)
{
  const size_t cold = (size_t)1 << 20;
  printf("%-7s %-7s %-12s", isa, type_names[type], s->name);
  printf(" %8.1f %8.1f", rate(s, type, 64 << 10, 0, 0), rate(s, type, 4 << 20, 0, 0));
  printf(" %8.1f %8.1f", rate(s, type, cold, cold, 0), rate(s, type, cold, cold, TT_REDUCE_STREAM));
  printf(" %8.1f %8.1f %8.1f\n", latency(s, type, 2), latency(s, type, 16), latency(s, type, 256));
  fflush(stdout);
}

static void table(const char *isa, int type)
{
  static const shape shapes[] = {
      {"sum", TT_RED_SUM, 2, 1, 0, 0, 0},      {"sum in place", TT_RED_SUM, 2, 1, 1, 0, 0}, {"sum 2->2", TT_RED_SUM, 2, 2, 0, 0, 0},
      {"max", TT_RED_MAX, 2, 1, 0, 0, 0},      {"prod", TT_RED_PROD, 2, 1, 0, 0, 0},        {"sum scaled", TT_RED_SUM, 2, 1, 0, 1, 0},
      {"sum 3->1", TT_RED_SUM, 3, 1, 0, 0, 0}, {"sum 4->1", TT_RED_SUM, 4, 1, 0, 0, 0},     {"sum divided", TT_RED_SUM, 2, 1, 0, 0, 3},
      {"copy", TT_RED_SUM, 1, 1, 0, 0, 0},
  };
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
    row(isa, type, &shapes[i]);
  }
}

int main(int argc, char **argv)
{
  static const char *const isas[] = {"plain", "avx2", "avx512"};
  const char *want = argc > 1 ? argv[1] : "all";
  int only = argc > 2 && strcmp(argv[2], "all") != 0 ? atoi(argv[2]) : -1;
  for (int i = 0; i < MAX_BUFS; i++) {
    bufs[i] = aligned_alloc(4096, buf_bytes);
    if (!bufs[i]) {
      fprintf(stderr, "reduce_bench: no memory for %d buffers of %zu bytes\n", MAX_BUFS, buf_bytes);
      return 1;
    }
    memset(bufs[i], 0x11 * (i + 2), buf_bytes); // numbers of ordinary size in every type
  }
  printf("GB/s touched: 64 KiB and 4 MiB per buffer, warm; 1 MiB calls over %zu MiB, cached and non-temporal stores.\n", buf_bytes >> 20);
  printf("ns per call: 2, 16, 256 elements.\n");
  printf("%-7s %-7s %-12s %8s %8s %8s %8s %8s %8s %8s\n", "isa", "type", "what", "64K", "4M", "cold", "cold NT", "ns 2", "ns 16", "ns 256");
  for (int i = 0; i < 3; i++) {
    if ((strcmp(want, "all") != 0 && strcmp(want, isas[i]) != 0) || !tt_reduce_select(isas[i])) {
      continue;
    }
    for (int t = 0; t < TT_RED_TYPES; t++) {
      if (only < 0 || only == t) {
        table(isas[i], t);
      }
    }
  }
  return 0;
}
