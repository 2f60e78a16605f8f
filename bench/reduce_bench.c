// reduce_bench.c: speed of the reduction kernels on this machine, for each instruction set, in each level of the
// caches.
//
//   reduce_bench [isa [type]]          GB/s of memory touched (sources read and destinations written), and nanoseconds
//   of small calls reduce_bench ratio [isa [type]]    times over that of a two-source fp32 sum of the same bytes, and
//   over the type's own sum
//
//   isa: a name that tt_reduce_select accepts, or all; type: number of an ncclDataType_t, or all
//
// Ratios: what is compared runs in turn, 7 rounds, medians. Large buffers are walked as a ring of windows, so that
// nothing is in a cache when it is needed again.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/host/reduce_priv.h"
#include "coll/machine.h"

static const char *const type_names[TT_RED_TYPES] = {"int8", "uint8", "int32",  "uint32", "int64", "uint64",
                                                     "half", "float", "double", "bf16",   "e4m3",  "e5m2"};
static const size_t type_sizes[TT_RED_TYPES] = {
#define T(id, word, bytes, ...) [nccl##id] = bytes,
#include "base/types.def"
};

enum { MAX_BUFS = 9, ROUNDS = 7 };

static char *bufs[MAX_BUFS];
static const size_t buf_bytes = (size_t)64 << 20;

typedef struct shape {
  const char *name;
  int kind, nsrc, ndst;
  int inplace, scaled, divisor; // scaled: this many of the sources
} shape;

// How much is touched per buffer, and how far the next call moves on (0: warm).
typedef struct place {
  const char *name;
  size_t bytes, step;
  unsigned flags;
} place;

// Of the thread's own time, so that a busy machine disturbs less.
static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// One in the type's bits.
static uint64_t one_of(int type)
{
  static const uint64_t ones[TT_RED_TYPES] = {1,      1,    1,   1, 1, 1, 0x3c00, 0x3f800000, 0x3ff0000000000000,
                                              0x3f80, 0x38, 0x3c};
  return ones[type];
}

// Runs `calls` calls and returns the seconds of one; call i uses the window that begins at i * step.
static double run(const shape *s, int type, const place *p, long calls)
{
  uint64_t scalar = one_of(type);
  tt_redop op = {
      .type = (uint8_t)type, .kind = (uint8_t)s->kind, .prescale = s->scaled > 0, .divisor = (uint32_t)s->divisor};
  const uint64_t *scale[MAX_BUFS] = {NULL};
  const void *src[MAX_BUFS];
  void *dst[MAX_BUFS];
  for (int k = 0; k < s->scaled; k++) {
    scale[s->nsrc - 1 - k] = &scalar; // one's own input stands last in a ring
  }
  double t0 = now();
  for (long i = 0; i < calls; i++) {
    size_t at = p->step ? (size_t)i * p->step % (buf_bytes - p->bytes + p->step) : 0;
    for (int k = 0; k < s->nsrc; k++) {
      src[k] = bufs[k] + at;
    }
    for (int d = 0; d < s->ndst; d++) {
      dst[d] = s->inplace && d == 0 ? bufs[0] + at : bufs[s->nsrc + d] + at;
    }
    tt_reduce(&op, s->ndst, dst, s->nsrc, src, s->scaled ? scale : NULL, p->bytes / type_sizes[type],
              p->flags | TT_REDUCE_FINAL);
  }
  return (now() - t0) / (double)calls;
}

static long calls_for(const place *p, size_t volume)
{
  long calls = (long)(volume / p->bytes);
  return calls > 0 ? calls : 1;
}

// Best of several.
static double rate(const shape *s, int type, const place *p)
{
  double best = 1e9;
  for (int i = 0; i < (p->step ? 4 : 12); i++) {
    double t = run(s, type, p, calls_for(p, p->step ? buf_bytes : 8 * p->bytes));
    best = t < best ? t : best;
  }
  return (double)p->bytes * (s->nsrc + s->ndst) / best * 1e-9;
}

static double latency(const shape *s, int type, size_t count)
{
  const place p = {"", count * type_sizes[type], 0, 0};
  double best = 1e9;
  for (int i = 0; i < 20; i++) {
    double t = run(s, type, &p, 1000);
    best = t < best ? t : best;
  }
  return best * 1e9;
}

static const shape shapes[] = {
    {"sum", TT_RED_SUM, 2, 1, 0, 0, 0},          {"sum in place", TT_RED_SUM, 2, 1, 1, 0, 0},
    {"sum 2->2", TT_RED_SUM, 2, 2, 0, 0, 0},     {"max", TT_RED_MAX, 2, 1, 0, 0, 0},
    {"min", TT_RED_MIN, 2, 1, 0, 0, 0},          {"prod", TT_RED_PROD, 2, 1, 0, 0, 0},
    {"sum 1 scaled", TT_RED_SUM, 2, 1, 0, 1, 0}, {"sum scaled", TT_RED_SUM, 2, 1, 0, 2, 0},
    {"sum divided", TT_RED_SUM, 2, 1, 0, 0, 3},  {"sum 3->1", TT_RED_SUM, 3, 1, 0, 0, 0},
    {"sum 4->1", TT_RED_SUM, 4, 1, 0, 0, 0},     {"sum 8->1", TT_RED_SUM, 8, 1, 0, 0, 0},
    {"copy", TT_RED_SUM, 1, 1, 0, 0, 0},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

// ---- Rates ----

static void rates(const char *isa, int type)
{
  static const place places[] = {{"8K", 8 << 10, 0, 0},
                                 {"64K", 64 << 10, 0, 0},
                                 {"4M", 4 << 20, 0, 0},
                                 {"cold", 1 << 20, 1 << 20, 0},
                                 {"cold NT", 1 << 20, 1 << 20, TT_REDUCE_STREAM}};
  for (int i = 0; i < SHAPES; i++) {
    printf("%-10s %-7s %-12s", isa, type_names[type], shapes[i].name);
    for (size_t k = 0; k < sizeof places / sizeof places[0]; k++) {
      printf(" %8.1f", rate(&shapes[i], type, &places[k]));
    }
    printf(" %8.1f %8.1f %8.1f\n", latency(&shapes[i], type, 2), latency(&shapes[i], type, 16),
           latency(&shapes[i], type, 256));
    fflush(stdout);
  }
}

// ---- Ratios ----

static int by_value(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double median(double *v)
{
  qsort(v, ROUNDS, sizeof *v, by_value);
  return v[ROUNDS / 2];
}

// Two ratios of medians: over the same shape in fp32 (a division and scalars left out), and over the type's sum of as
// many sources.
static void ratio(const shape *s, int type, const place *p)
{
  double own[ROUNDS], base[ROUNDS], sum[ROUNDS];
  const shape plain = {"", TT_RED_SUM, s->nsrc, s->ndst, s->inplace, 0, 0};
  long calls = calls_for(p, p->step ? buf_bytes / 2 : (size_t)2 << 20);
  for (int i = -1; i < ROUNDS; i++) { // once to warm up
    int k = i < 0 ? 0 : i;
    base[k] = run(&plain, ncclFloat32, p, calls);
    sum[k] = run(&plain, type, p, calls);
    own[k] = run(s, type, p, calls);
  }
  double t = median(own), b = median(base), u = median(sum);
  printf(" %7.2f %5.2f %5.2f", t * 1e9 / ((double)p->bytes / 64), t / b, t / u);
}

static void ratios(const char *isa, int type)
{
  static const place places[] = {{"L1", 8 << 10, 0, 0},
                                 {"L2", 128 << 10, 0, 0},
                                 {"L3", 2 << 20, 0, 0},
                                 {"memory", 1 << 20, 1 << 20, 0},
                                 {"memory NT", 1 << 20, 1 << 20, TT_REDUCE_STREAM}};
  for (int i = 0; i < SHAPES; i++) {
    printf("%-10s %-7s %-12s", isa, type_names[type], shapes[i].name);
    for (size_t k = 0; k < sizeof places / sizeof places[0]; k++) {
      ratio(&shapes[i], type, &places[k]);
    }
    printf("\n");
    fflush(stdout);
  }
}

static void heading(bool of_ratios)
{
  if (of_ratios) {
    printf("Per level of the caches: ns per 64 bytes of result; over fp32's sum of the same bytes; over the type's own "
           "sum.\n");
    printf("%-10s %-7s %-12s %19s %19s %19s %19s %19s\n", "isa", "type", "what", "L1 (8K)", "L2 (128K)", "L3 (2M)",
           "memory", "memory, NT");
  } else {
    printf("GB/s touched: 8 KiB, 64 KiB and 4 MiB per buffer, warm; 1 MiB calls over %zu MiB, cached and non-temporal "
           "stores.\n",
           buf_bytes >> 20);
    printf("ns per call: 2, 16, 256 elements.\n");
    printf("%-10s %-7s %-12s %8s %8s %8s %8s %8s %8s %8s %8s\n", "isa", "type", "what", "8K", "64K", "4M", "cold",
           "cold NT", "ns 2", "ns 16", "ns 256");
  }
}

int main(int argc, char **argv)
{
  static const char *const isas[] = {"plain", "avx2", "avx512", "avx512bf16"};
  bool of_ratios = argc > 1 && strcmp(argv[1], "ratio") == 0;
  argv += of_ratios;
  argc -= of_ratios;
  const char *want = argc > 1 ? argv[1] : "all";
  int only = argc > 2 && strcmp(argv[2], "all") != 0 ? atoi(argv[2]) : -1;
  for (int i = 0; i < MAX_BUFS; i++) {
    bufs[i] = aligned_alloc(4096, buf_bytes);
    if (!bufs[i]) {
      fprintf(stderr, "reduce_bench: no memory for %d buffers of %zu bytes\n", MAX_BUFS, buf_bytes);
      return 1;
    }
    memset(bufs[i], 0x11 * (i % 4 + 2), buf_bytes); // numbers of ordinary size in every type
  }
  machine_say(stdout);
  heading(of_ratios);
  for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
    if ((strcmp(want, "all") != 0 && strcmp(want, isas[i]) != 0) || !tt_reduce_select(isas[i])) {
      continue;
    }
    for (int t = 0; t < TT_RED_TYPES; t++) {
      if (only < 0 || only == t) {
        (of_ratios ? ratios : rates)(isas[i], t);
      }
    }
  }
  return 0;
}
