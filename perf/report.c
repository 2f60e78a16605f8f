#include "report.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl.h"

#define NCCL_TESTS_LEVEL "2.21.0" // whose options and columns these are

// A string being appended to.
typedef struct text {
  char *buf;
  size_t size, len;
} text;

static void add(text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(text *t, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(t->buf + t->len, t->size - t->len, fmt, ap);
  va_end(ap);
  if (n > 0) {
    t->len = (size_t)n < t->size - t->len ? t->len + (size_t)n : t->size - 1;
  }
}

static text text_in(char *buf, size_t size)
{
  buf[0] = '\0';
  return (text){buf, size, 0};
}

void perf_format_fixed(double value, int width, char *buf)
{
  size_t size = (size_t)width + 1;
  for (int decimals = 2; decimals >= 0; decimals--) {
    if (snprintf(buf, size, "%*.*f", width, decimals, value) <= width) {
      return;
    }
  }
  snprintf(buf, size, "%*.*e", width, width >= 7 ? 1 : 0, value);
}

static int ascending(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double nearest_rank(const double *sorted, int n, int percent)
{
  int i = (int)(((long)n * percent + 99) / 100) - 1;
  return sorted[i < n - 1 ? i : n - 1];
}

bool perf_iter_statistics(const double *times, int n, perf_iter_stats *out)
{
  double *sorted = malloc((size_t)n * sizeof(*sorted));
  if (!sorted) {
    return false;
  }
  memcpy(sorted, times, (size_t)n * sizeof(*sorted));
  qsort(sorted, (size_t)n, sizeof(*sorted), ascending);
  double sum = 0, squares = 0;
  for (int i = 0; i < n; i++) {
    sum += sorted[i];
  }
  for (int i = 0; i < n; i++) {
    squares += (sorted[i] - sum / n) * (sorted[i] - sum / n);
  }
  *out = (perf_iter_stats){.min = sorted[0],
                           .max = sorted[n - 1],
                           .avg = sum / n,
                           .p50 = sorted[n / 2],
                           .p95 = nearest_rank(sorted, n, 95),
                           .p99 = nearest_rank(sorted, n, 99),
                           .stdev = sqrt(squares / n)};
  free(sorted);
  return true;
}

static void add_modes(text *t, const perf_options *o)
{
  static const char *const blocking[] = {
      NULL,
      "# Blocking Enabled: wait and barrier after each inner iteration (-m) \n",
      "# Blocking Enabled: wait after each inner iteration (-m), no barrier \n",
      "# Blocking Enabled: wait and barrier after each outer iteration (-n); time excludes barrier \n",
  };
  if (o->blocking) {
    add(t, "%s", blocking[o->blocking]);
  }
  if (o->per_iter) {
    add(t, "# Per-Iteration Report: event timing; i_* uses max over process rows");
    if (o->per_iter_skip) {
      add(t, "; summary skips first %d iterations", o->per_iter_skip);
    }
    add(t, " \n");
  }
  if (o->parallel_init) {
    add(t, "# Parallel Init Enabled: threads call into NcclInitRank concurrently \n");
  }
}

void perf_report_start(const perf_options *o, const char *program, int library_version, char *buf, size_t size)
{
  text t = text_in(buf, size);
  bool factor = o->step_factor > 1;
  add(&t, "# nccl-tests version %s nccl-headers=%d nccl-library=%d\n", NCCL_TESTS_LEVEL, NCCL_VERSION_CODE,
      library_version);
  add(&t, "# Collective test starting: %s\n", program);
  add(&t,
      "# nThread %d nGpus %d minBytes %zu maxBytes %zu step: %zu(%s) warmup iters: %d iters: %d agg iters: %d "
      "validation: %d graph: %d "
      "unalign: %d\n",
      o->threads, o->gpus, o->min_bytes, o->max_bytes, factor ? (size_t)o->step_factor : o->step_bytes,
      factor ? "factor" : "bytes", o->warmup_iters, o->iters, o->agg_iters, o->check, o->graph, o->unalign);
  add_modes(&t, o);
  add(&t, "#\n# Using devices\n");
}

void perf_report_device(const perf_device *d, char *buf, size_t size)
{
  text t = text_in(buf, size);
  add(&t, "#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s\n", d->rank, d->group, d->pid, d->host, d->device,
      d->bus, d->info);
}

static void add_columns(text *t, const perf_options *o, const char *const *five, const char *const *measured,
                        const char *const *tuning, const char *stamp)
{
  add(t, "# %10s  %12s  %8s  %6s  %6s", five[0], five[1], five[2], five[3], five[4]);
  for (int side = 0; side < 2; side++) {
    add(t, "  %7s  %6s  %6s  %6s", measured[0], measured[1], measured[2], measured[3]);
    for (int i = 4; o->per_iter && i < 8; i++) {
      add(t, "  %7s", measured[i]);
    }
  }
  if (o->tuning) {
    add(t, "  %14s  %14s  %6s  %21s  %9s  %6s  %8s", tuning[0], tuning[1], tuning[2], tuning[3], tuning[4], tuning[5],
        tuning[6]);
  }
  add(t, " %*s\n", o->timestamps ? 19 : 0, o->timestamps ? stamp : "");
}

void perf_report_columns(const perf_options *o, char *buf, size_t size)
{
  static const char *const five[] = {"size", "count", "type", "redop", "root"};
  static const char *const units[] = {"(B)", "(elements)", "", "", ""};
  const char *const names[] = {
      o->cputime ? "cputime" : "time", "algbw", "busbw", "#wrong", "i_min", "i_max", "i_p99", "i_cv%"};
  static const char *const measured[] = {"(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)", "(us)", "(%)"};
  static const char *const tuning[] = {"implementation", "algo", "proto", "variant", "#channels", "#warps", "chunk"};
  static const char *const tuning_units[] = {"", "", "", "", "", "", "(B)"};
  text t = text_in(buf, size);
  add(&t, "#\n# %10s  %12s  %8s  %6s  %6s", "", "", "", "", "");
  if (o->per_iter) {
    add(&t, "%14sout-of-place (+ per-iteration)%32sin-place (+ per-iteration)\n", "", "");
  } else {
    add(&t, "%11sout-of-place%23sin-place%10s\n", "", "", "");
  }
  add_columns(&t, o, five, names, tuning, "timestamp");
  add_columns(&t, o, units, measured, tuning_units, "%Y-%m-%d %H:%M:%S");
}

static void add_result(text *t, const perf_options *o, const perf_result *r)
{
  char usec[8], alg[7], bus[7];
  perf_format_fixed(r->usec, 7, usec);
  perf_format_fixed(r->alg_bw, 6, alg);
  perf_format_fixed(r->bus_bw, 6, bus);
  add(t, "  %7s  %6s  %6s", usec, alg, bus);
  if (r->checked) {
    add(t, "  %6g", (double)r->wrong);
  } else {
    add(t, "  %6s", "N/A");
  }
  if (!o->per_iter) {
    return;
  }
  const perf_iter_stats *s = &r->stats;
  double four[] = {s->min * 1e6, s->max * 1e6, s->p99 * 1e6, s->avg > 0 ? s->stdev / s->avg * 100 : 0};
  for (int i = 0; i < 4; i++) {
    char one[8];
    perf_format_fixed(four[i], 7, one);
    add(t, "  %7s", one);
  }
}

static void add_word(text *t, int width, const char *word)
{
  add(t, "  %*s", width, *word ? word : "N/A");
}

static void add_count(text *t, int width, int count)
{
  char digits[16];
  snprintf(digits, sizeof(digits), "%d", count);
  add_word(t, width, count ? digits : "");
}

static void add_tuning(text *t, const perf_tuning *u)
{
  add_word(t, 14, u->implementation);
  add_word(t, 14, u->algo);
  add_word(t, 6, u->proto);
  add_word(t, 21, u->variant);
  add_count(t, 9, u->channels);
  add_count(t, 6, u->warps);
  add_count(t, 8, u->chunk);
}

void perf_report_row(const perf_options *o, const perf_row *row, const char *stamp, char *buf, size_t size)
{
  text t = text_in(buf, size);
  add(&t, "%12zu  %12zu  %8s  %6s  %6d", row->bytes, row->count, row->type, row->op, row->root);
  add_result(&t, o, &row->result[0]);
  add_result(&t, o, &row->result[1]);
  if (o->tuning) {
    add_tuning(&t, &row->tuning);
  }
  if (stamp) {
    add(&t, "%21s", stamp);
  }
  add(&t, "\n");
}

void perf_report_footer(const char *program, long errors, double bus_bw, double min_bw, char *buf, size_t size)
{
  text t = text_in(buf, size);
  const char *verdict = min_bw == -1 ? "" : bus_bw < min_bw * 0.9 ? "FAILED" : "OK";
  add(&t, "# %-20s : %ld %s\n", "Out of bounds values", errors, errors ? "FAILED" : "OK");
  add(&t, "# %-20s : %g %s\n", "Avg bus bandwidth", bus_bw, verdict);
  add(&t, "#\n# Collective test concluded: %s\n", program);
}

static void add_bytes(text *t, int64_t bytes)
{
  static const char *const units[] = {"B", "KB", "MB", "GB"};
  double v = (double)bytes;
  int unit = 0;
  while (unit < 3 && fabs(v) >= 1024) {
    v /= 1024;
    unit++;
  }
  add(t, "%.*f %s ", fabs(v) < 10 ? 2 : fabs(v) < 100 ? 1 : 0, v, units[unit]);
}

void perf_report_memory(const perf_memory *m, int count, char *buf, size_t size)
{
  text t = text_in(buf, size);
  int64_t total = 0;
  add(&t, "# %-20s : ", "Memory usage");
  for (int i = 0; i < count; i++) {
    add(&t, "%s ", m[i].phase);
    add_bytes(&t, m[i].bytes);
    add(&t, "| ");
    total += m[i].bytes;
  }
  add(&t, "Total ");
  add_bytes(&t, total);
  add(&t, "\n");
}
