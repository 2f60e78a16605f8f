// summary.c: the job as text: clocks, a table of operations, which rank waited for which.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trace_tool.h"

enum { MOST_LATE = 8 }; // ranks that are named

static int by_row(const void *a, const void *b)
{
  const xt_op *x = *(const xt_op *const *)a, *y = *(const xt_op *const *)b;
  int c = strcmp(x->func, y->func);
  c = c != 0 ? c : (x->bytes > y->bytes) - (x->bytes < y->bytes);
  c = c != 0 ? c : (x->trace->ranks > y->trace->ranks) - (x->trace->ranks < y->trace->ranks);
  double dx = x->end - x->start, dy = y->end - y->start;
  return c != 0 ? c : (dx > dy) - (dx < dy);
}

static bool same_row(const xt_op *a, const xt_op *b)
{
  return a->bytes == b->bytes && a->trace->ranks == b->trace->ranks && strcmp(a->func, b->func) == 0;
}

// `ops`: of one row, by duration. The slowest rank is the one with the longest time in sum.
static void print_row(const xt_job *job, const xt_op *const *ops, size_t n, double *sums, FILE *out)
{
  double sum = 0;
  int slowest = 0;
  memset(sums, 0, (size_t)job->n * sizeof *sums);
  for (size_t i = 0; i < n; i++) {
    sum += ops[i]->end - ops[i]->start;
    sums[ops[i]->at] += ops[i]->end - ops[i]->start;
  }
  for (int i = 1; i < job->n; i++) {
    slowest = sums[i] > sums[slowest] ? i : slowest;
  }
  double mean = sum / (double)n;
  const xt_op *p50 = ops[(n - 1) / 2], *p99 = ops[(size_t)(ceil(0.99 * (double)n)) - 1];
  xt_factors factors = xt_bandwidth(ops[0]->func, ops[0]->trace->ranks);
  double algbw = mean > 0 ? (double)ops[0]->bytes * factors.size / mean / 1e3 : 0;
  fprintf(out, "%-16s %14llu %10zu %12.2f %12.2f %12.2f %10.3f %10.3f %6d %8d\n", ops[0]->func,
          (unsigned long long)ops[0]->bytes, n, mean, p50->end - p50->start, p99->end - p99->start, algbw,
          algbw * factors.bus, ops[0]->trace->ranks, job->traces[slowest].rank);
}

static void print_table(const xt_job *job, FILE *out)
{
  const xt_op **sorted = malloc((job->nops + 1) * sizeof *sorted);
  double *sums = malloc((size_t)job->n * sizeof *sums);
  fprintf(out, "%-16s %14s %10s %12s %12s %12s %10s %10s %6s %8s\n", "operation", "bytes", "count", "mean us", "p50 us",
          "p99 us", "algbw GB/s", "busbw GB/s", "ranks", "slowest");
  for (size_t i = 0; sorted != NULL && i < job->nops; i++) {
    sorted[i] = &job->ops[i];
  }
  if (sorted != NULL && sums != NULL) {
    qsort(sorted, job->nops, sizeof *sorted, by_row);
    for (size_t i = 0, n; i < job->nops; i += n) {
      for (n = 1; i + n < job->nops && same_row(sorted[i], sorted[i + n]); n++) {
      }
      print_row(job, sorted + i, n, sums, out);
    }
  }
  free(sorted);
  free(sums);
}

static void print_waits(const xt_job *job, FILE *out)
{
  for (int i = 0; i < job->n; i++) {
    const double *row = &job->waited[(size_t)i * (size_t)job->n];
    int most = i == 0 && job->n > 1 ? 1 : 0;
    double sum = 0;
    for (int k = 0; k < job->n; k++) {
      most = row[k] > row[most] ? k : most;
      sum += row[k];
    }
    if (sum > 0) {
      fprintf(out, "rank %d of %s waited %.3f ms for others to come, most for rank %d: %.3f ms\n", job->traces[i].rank,
              job->traces[i].comm, sum / 1e3, job->traces[most].rank, row[most] / 1e3);
    }
  }
}

// How long all others waited for a rank, longest first.
typedef struct late {
  int at;
  double sum;
} late;

static int by_sum(const void *a, const void *b)
{
  const late *x = a, *y = b;
  return x->sum != y->sum ? (x->sum < y->sum) - (x->sum > y->sum) : x->at - y->at;
}

static void print_late(const xt_job *job, FILE *out)
{
  late *list = calloc((size_t)job->n, sizeof *list);
  double all = 0;
  for (size_t i = 0; list != NULL && i < (size_t)job->n * (size_t)job->n; i++) {
    late *l = &list[i % (size_t)job->n];
    *l = (late){(int)(i % (size_t)job->n), l->sum + job->waited[i]};
    all += job->waited[i];
  }
  if (all > 0) {
    qsort(list, (size_t)job->n, sizeof *list, by_sum);
  }
  for (int i = 0; all > 0 && i < MOST_LATE && i < job->n && list[i].sum > 0; i++) {
    const xt_trace *t = &job->traces[list[i].at];
    fprintf(out, "%s rank %d of %s: %.3f ms, %.1f %% of all waiting\n",
            i == 0 ? "most waited for:" : "           then:", t->rank, t->comm, list[i].sum / 1e3,
            100 * list[i].sum / all);
  }
  free(list);
}

// What the clock is shifted by when the job begins.
static void print_clock(const xt_job *job, const xt_clock *c, FILE *out)
{
  double begin = (job->begin - c->shift) / (1 + c->drift);
  fprintf(out, "clock of %s: shifted by %.3f us, ", c->host, c->shift + c->drift * begin);
  if (c->how == XT_CLOCK_WALL) {
    fprintf(out, "as the wall clocks say (no messages there and back, or they contradict each other)\n");
    return;
  }
  if (c->drift != 0) {
    fprintf(out, "and %.3f us each second, ", c->drift * 1e6);
  }
  fprintf(out, "measured with messages, within %.3f us\n", c->error);
}

void xt_job_summary(const xt_job *job, FILE *out)
{
  uint64_t lost = 0;
  for (int i = 0; i < job->n; i++) {
    lost += job->traces[i].lost;
  }
  fprintf(out, "%d time lines, %zu operations in %.3f s; %llu events were lost\n", job->n, job->nops,
          (job->end - job->begin) / 1e6, (unsigned long long)lost);
  for (int i = 1; i < job->nclocks; i++) {
    const xt_clock *c = &job->clocks[i];
    print_clock(job, c, out);
  }
  print_table(job, out);
  print_late(job, out);
  print_waits(job, out);
}

bool xt_summary(xt_jobs *jobs, FILE *out)
{
  for (int i = 0; i < jobs->n; i++) {
    fputs(i > 0 ? "\n" : "", out);
    if (jobs->n > 1) {
      fprintf(out, "job %d of %d: ", i + 1, jobs->n);
    }
    xt_job_title(&jobs->list[i], out);
    fputc('\n', out);
    xt_job_summary(&jobs->list[i], out);
  }
  return true;
}
