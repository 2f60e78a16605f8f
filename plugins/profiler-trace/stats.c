// stats.c: a table of operations by function and size: histograms of fixed size, and for whom they waited.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trace.h"

enum { ROWS = 256, STEP = 32, WAITS = 8 };

typedef struct row {
  const char *func;
  uint64_t bytes, count, sum, least, most, waited;
  uint64_t *histogram;
} row;

struct tt_stats {
  int nranks, n;
  uint64_t others; // operations of which no row was left
  uint64_t *waits; // per peer
  row rows[ROWS];
};

int tt_histogram_index(uint64_t ns)
{
  if (ns < 2 * STEP) {
    return (int)ns;
  }
  int exponent = 63 - __builtin_clzll(ns) - 5; // ns >> exponent is 32 … 63
  int index = exponent * STEP + (int)(ns >> exponent);
  return index < TT_HISTOGRAM ? index : TT_HISTOGRAM - 1;
}

uint64_t tt_histogram_value(int index)
{
  if (index < 2 * STEP) {
    return (uint64_t)index;
  }
  int exponent = index / STEP - 1;
  uint64_t low = (uint64_t)(index - exponent * STEP) << exponent;
  return low + ((UINT64_C(1) << exponent) - 1) / 2;
}

tt_stats *tt_stats_create(int nranks)
{
  tt_stats *s = calloc(1, sizeof *s);
  if (s != NULL) {
    s->nranks = nranks;
    s->waits = calloc((size_t)nranks, sizeof *s->waits);
  }
  if (s != NULL && s->waits == NULL) {
    tt_stats_destroy(s);
    return NULL;
  }
  return s;
}

void tt_stats_destroy(tt_stats *s)
{
  for (int i = 0; s != NULL && i < s->n; i++) {
    free(s->rows[i].histogram);
  }
  if (s != NULL) {
    free(s->waits);
    free(s);
  }
}

static row *row_of(tt_stats *s, const tt_op *op)
{
  for (int i = 0; i < s->n; i++) {
    if (s->rows[i].bytes == op->bytes && strcmp(s->rows[i].func, op->func) == 0) {
      return &s->rows[i];
    }
  }
  uint64_t *histogram = s->n < ROWS ? calloc(TT_HISTOGRAM, sizeof *histogram) : NULL;
  if (histogram == NULL) {
    return NULL;
  }
  s->rows[s->n] = (row){.func = op->func, .bytes = op->bytes, .least = UINT64_MAX, .histogram = histogram};
  return &s->rows[s->n++];
}

void tt_stats_op(tt_stats *s, const tt_op *op)
{
  if (op->func == NULL || op->stop <= op->start) {
    return;
  }
  row *r = row_of(s, op);
  uint64_t ns = op->stop - op->start;
  if (r == NULL) {
    s->others++;
    return;
  }
  r->count++;
  r->sum += ns;
  r->least = ns < r->least ? ns : r->least;
  r->most = ns > r->most ? ns : r->most;
  r->waited += op->waited / (op->nchannels > 0 ? op->nchannels : 1);
  r->histogram[tt_histogram_index(ns)]++;
}

void tt_stats_wait(tt_stats *s, int peer, uint64_t ns)
{
  if (peer >= 0 && peer < s->nranks) {
    s->waits[peer] += ns;
  }
}

// The least duration that `share` of the operations do not exceed.
static uint64_t quantile(const row *r, double share)
{
  uint64_t wanted = (uint64_t)ceil(share * (double)r->count), seen = 0;
  for (int i = 0; i < TT_HISTOGRAM; i++) {
    seen += r->histogram[i];
    if (seen >= wanted) {
      uint64_t v = tt_histogram_value(i);
      return v < r->least ? r->least : v > r->most ? r->most : v;
    }
  }
  return r->most;
}

static int by_name(const void *a, const void *b)
{
  const row *x = *(const row *const *)a, *y = *(const row *const *)b;
  int c = strcmp(x->func, y->func);
  return c != 0 ? c : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static void print_waits(const tt_stats *s, FILE *out)
{
  uint64_t all = 0;
  for (int i = 0; i < s->nranks; i++) {
    all += s->waits[i];
  }
  int last = -1; // the peer printed before
  for (int k = 0; all > 0 && k < WAITS; k++) {
    int most = -1;
    for (int i = 0; i < s->nranks; i++) {
      bool left = last < 0 || s->waits[i] < s->waits[last] || (s->waits[i] == s->waits[last] && i > last);
      most = left && (most < 0 || s->waits[i] > s->waits[most]) ? i : most;
    }
    if (most < 0 || s->waits[most] == 0) {
      break;
    }
    fprintf(out, "waited for messages of rank %d: %.3f ms, %.1f %% of all waiting for messages\n", most,
            (double)s->waits[most] / 1e6, 100.0 * (double)s->waits[most] / (double)all);
    last = most;
  }
}

void tt_stats_print(const tt_stats *s, FILE *out)
{
  const row *sorted[ROWS];
  for (int i = 0; i < s->n; i++) {
    sorted[i] = &s->rows[i];
  }
  qsort(sorted, (size_t)s->n, sizeof *sorted, by_name);
  fprintf(out, "%-16s %14s %10s %12s %12s %12s %12s %10s %8s\n", "operation", "bytes", "count", "mean us", "p50 us",
          "p99 us", "max us", "GB/s", "waiting");
  for (int i = 0; i < s->n; i++) {
    const row *r = sorted[i];
    double mean = (double)r->sum / (double)r->count;
    char waiting[16] = "-"; // nothing is known of messages
    if (r->waited > 0) {
      snprintf(waiting, sizeof waiting, "%.1f%%", 100.0 * fmin(1.0, (double)r->waited / (double)r->sum));
    }
    fprintf(out, "%-16s %14llu %10llu %12.2f %12.2f %12.2f %12.2f %10.3f %8s\n", r->func, (unsigned long long)r->bytes,
            (unsigned long long)r->count, mean / 1e3, (double)quantile(r, 0.5) / 1e3, (double)quantile(r, 0.99) / 1e3,
            (double)r->most / 1e3, (double)r->bytes / mean, waiting);
  }
  if (s->others > 0) {
    fprintf(out, "and %llu operations of other sizes: the table has room for %d\n", (unsigned long long)s->others,
            (int)ROWS);
  }
  print_waits(s, out);
}
