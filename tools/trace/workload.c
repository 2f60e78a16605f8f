// workload.c: the job's collectives as a list that `tutti-topo simulate --workload` reads: how many there are of each
// function and size, and how long they took.
//
// An operation takes as long as for the rank that came last: the others also waited for that one. A rank's operation
// begins when it is called and the one before has ended.
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

static bool is_known(const xt_op *op)
{
  bool found = false;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    found |= op->peer < 0 && strcasecmp(op->func, known[i]) == 0;
  }
  return found;
}

// The time of an operation of n ranks; moves on when each rank's last one ended.
static double time_of(const xt_op *ops, size_t n, double *ended)
{
  double least = -1;
  for (size_t i = 0; i < n; i++) {
    double begin = ops[i].start > ended[ops[i].at] ? ops[i].start : ended[ops[i].at];
    double us = ops[i].end > begin ? ops[i].end - begin : 0;
    least = least < 0 || us < least ? us : least;
    ended[ops[i].at] = ops[i].end > ended[ops[i].at] ? ops[i].end : ended[ops[i].at];
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

static bool write_job(const xt_job *job, FILE *out)
{
  work *list = calloc(job->nops + 1, sizeof *list);
  double *ended = calloc((size_t)job->n, sizeof *ended);
  size_t rows = 0, others = 0;
  bool good = list != NULL && ended != NULL;
  for (size_t i = 0, n; good && i < job->nops; i += n) {
    const xt_op *op = &job->ops[i];
    for (n = 1; i + n < job->nops && xt_same_op(op, op + n); n++) {
    }
    double us = time_of(op, n, ended);
    if (!is_known(op)) {
      others++;
      continue;
    }
    double bytes = (double)op->bytes * xt_bandwidth(op->func, op->trace->ranks).size;
    list[rows++] = (work){op->func, (uint64_t)bytes, op->trace->ranks, 1, us};
  }
  if (good) {
    write_work(list, add_up(list, rows), out);
  }
  if (others > 0) {
    fprintf(out, "# left out: %zu sends, receives and other operations\n", others);
  }
  free(list);
  free(ended);
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
