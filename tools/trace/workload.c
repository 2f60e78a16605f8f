// workload.c: the job's collectives as a list that `tutti-topo simulate --workload` reads: how many there are of each
// function and size, and how long they took.
//
// An operation takes as long as for the rank that came last: the others also waited for that one. A rank's operation
// begins when it is called and all have ended that this rank began before. Operations that have not ended are left out.
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "trace_tool.h"

typedef struct work {
  const char *func;
  uint64_t bytes;
  int ranks;
  uint64_t count;
  double us; // sum
} work;

static const char *const known[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "AlltoAll"};

static bool workload_knows(const xt_op *op)
{
  bool found = false;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    found |= op->peer < 0 && strcasecmp(op->func, known[i]) == 0;
  }
  return found;
}

// Is it an operation that had not ended when a flight recorder was dumped?
static bool workload_unfinished(const xt_op *op)
{
  const char *state = json_string_value(json_object_get(op->args, "state"));
  return state != NULL && state[0] != '\0';
}

static int workload_by_start(const void *a, const void *b)
{
  const xt_op *x = *(const xt_op *const *)a, *y = *(const xt_op *const *)b;
  int c = (x->at > y->at) - (x->at < y->at);
  return c != 0 ? c : (x->start > y->start) - (x->start < y->start);
}

// When each of the job's operations could begin, in the order of job->ops. NULL: no memory. The caller's.
static double *workload_begins(const xt_job *job)
{
  const xt_op **order = malloc((job->nops + 1) * sizeof *order);
  double *begin = malloc((job->nops + 1) * sizeof *begin), ended = 0;
  for (size_t i = 0; order != NULL && i < job->nops; i++) {
    order[i] = &job->ops[i];
  }
  if (order != NULL && begin != NULL) {
    qsort(order, job->nops, sizeof *order, workload_by_start);
    for (size_t i = 0; i < job->nops; i++) {
      ended = i == 0 || order[i]->at != order[i - 1]->at ? order[i]->start : ended;
      begin[order[i] - job->ops] = order[i]->start > ended ? order[i]->start : ended;
      ended = order[i]->end > ended ? order[i]->end : ended;
    }
  } else {
    free(begin);
    begin = NULL;
  }
  free(order);
  return begin;
}

// The time of an operation of n ranks; negative: a rank has not ended it.
static double workload_time(const xt_op *ops, const double *begin, size_t n)
{
  double least = -1;
  for (size_t i = 0; i < n; i++) {
    if (workload_unfinished(&ops[i])) {
      return -1;
    }
    double us = ops[i].end > begin[i] ? ops[i].end - begin[i] : 0;
    least = least < 0 || us < least ? us : least;
  }
  return least;
}

static int work_order(const void *a, const void *b)
{
  const work *x = a, *y = b;
  int c = strcasecmp(x->func, y->func);
  c = c != 0 ? c : (x->bytes > y->bytes) - (x->bytes < y->bytes);
  return c != 0 ? c : x->ranks - y->ranks;
}

static void write_work(const work *list, size_t n, FILE *out)
{
  for (size_t i = 0; i < n; i++) {
    for (const char *c = list[i].func; *c != '\0'; c++) {
      fputc(tolower((unsigned char)*c), out);
    }
    fprintf(out, ",%llu,%d,%llu,%.2f\n", (unsigned long long)list[i].bytes, list[i].ranks,
            (unsigned long long)list[i].count, list[i].us);
  }
}

// Operations of one row become one.
static size_t add_up(work *list, size_t n)
{
  size_t rows = 0;
  qsort(list, n, sizeof *list, work_order);
  for (size_t i = 0; i < n; i++) {
    if (rows > 0 && work_order(&list[rows - 1], &list[i]) == 0) {
      list[rows - 1].count += list[i].count;
      list[rows - 1].us += list[i].us;
    } else {
      list[rows++] = list[i];
    }
  }
  return rows;
}

static void write_left_out(size_t others, size_t unfinished, FILE *out)
{
  if (others > 0) {
    fprintf(out, "# left out: %zu sends, receives and other operations\n", others);
  }
  if (unfinished > 0) {
    fprintf(out, "# left out: %zu collectives that had not ended\n", unfinished);
  }
}

static bool write_job(const xt_job *job, FILE *out)
{
  work *list = calloc(job->nops + 1, sizeof *list);
  double *begin = workload_begins(job);
  size_t rows = 0, others = 0, unfinished = 0;
  bool good = list != NULL && begin != NULL;
  for (size_t i = 0, n; good && i < job->nops; i += n) {
    const xt_op *op = &job->ops[i];
    for (n = 1; i + n < job->nops && xt_same_op(op, op + n); n++) {
    }
    double us = workload_time(op, begin + i, n), bytes = (double)op->bytes;
    if (!workload_knows(op)) {
      others++;
    } else if (us < 0) {
      unfinished++;
    } else {
      bytes *= xt_bandwidth(op->func, op->trace->ranks).size;
      list[rows++] = (work){op->func, (uint64_t)bytes, op->trace->ranks, 1, us};
    }
  }
  if (good) {
    write_work(list, add_up(list, rows), out);
    write_left_out(others, unfinished, out);
  }
  free(list);
  free(begin);
  return good;
}

bool xt_workload(xt_jobs *jobs, FILE *out)
{
  bool good = true;
  fputs("# collectives, for `tutti-topo simulate --workload`; bytes: of the larger buffer; us: of all together\n"
        "coll,bytes,ranks,count,us\n",
        out);
  for (int i = 0; i < jobs->n && good; i++) {
    fputs("# ", out);
    xt_job_title(&jobs->list[i], out);
    fputc('\n', out);
    good = write_job(&jobs->list[i], out);
  }
  return good;
}
