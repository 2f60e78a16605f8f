// job.c: the files of a job: its operations, who waited for whom.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trace_tool.h"

// ---- operations

static int from_of(const xt_op *op)
{
  return op->peer < 0 ? -1 : op->send ? op->trace->rank : op->peer;
}

static int to_of(const xt_op *op)
{
  return op->peer < 0 ? -1 : op->send ? op->peer : op->trace->rank;
}

static int compare(const xt_op *a, const xt_op *b)
{
  int c = strcmp(a->trace->comm, b->trace->comm);
  c = c != 0 ? c : (a->peer < 0) - (b->peer < 0);
  c = c != 0 || a->peer >= 0 ? c : strcmp(a->func, b->func);
  c = c != 0 ? c : (from_of(a) > from_of(b)) - (from_of(a) < from_of(b));
  c = c != 0 ? c : (to_of(a) > to_of(b)) - (to_of(a) < to_of(b));
  return c != 0 ? c : (a->seq > b->seq) - (a->seq < b->seq);
}

static int by_operation(const void *a, const void *b)
{
  const xt_op *x = a, *y = b;
  int c = compare(x, y);
  return c != 0 ? c : (x->at > y->at) - (x->at < y->at);
}

bool xt_is_phase(const json_t *e, const char *phase)
{
  return strcmp(json_string_value(json_object_get(e, "ph")), phase) == 0;
}

double xt_time(const xt_trace *t, double at)
{
  return at + t->shift + t->drift * at;
}

bool xt_same_op(const xt_op *a, const xt_op *b)
{
  return compare(a, b) == 0;
}

static bool is_op(const json_t *e)
{
  const char *cat = json_string_value(json_object_get(e, "cat"));
  return xt_is_phase(e, "X") && strcmp(cat, "op") == 0;
}

static xt_op op_of(const xt_job *job, int i, const json_t *e)
{
  const json_t *args = json_object_get(e, "args"), *peer = json_object_get(args, "peer");
  const xt_trace *t = &job->traces[i];
  double start = xt_time(t, json_number_value(json_object_get(e, "ts")));
  const char *func = json_string_value(json_object_get(e, "name"));
  return (xt_op){.trace = t,
                 .at = i,
                 .func = func,
                 .bytes = (uint64_t)json_integer_value(json_object_get(args, "bytes")),
                 .seq = (uint64_t)json_integer_value(json_object_get(args, "seq")),
                 .peer = peer != NULL ? (int)json_integer_value(peer) : -1,
                 .send = strcmp(func, "Send") == 0,
                 .start = start,
                 .end = start + json_number_value(json_object_get(e, "dur"))};
}

static bool collect_ops(xt_job *job)
{
  size_t most = 1;
  for (int i = 0; i < job->n; i++) {
    most += json_array_size(job->traces[i].events);
  }
  job->ops = malloc(most * sizeof *job->ops);
  for (int i = 0; job->ops != NULL && i < job->n; i++) {
    for (size_t k = 0; k < json_array_size(job->traces[i].events); k++) {
      const json_t *e = json_array_get(job->traces[i].events, k);
      if (is_op(e)) {
        xt_op op = op_of(job, i, e);
        job->begin = job->nops == 0 ? op.start : fmin(job->begin, op.start);
        job->end = job->nops == 0 ? op.end : fmax(job->end, op.end);
        job->ops[job->nops++] = op;
      }
    }
  }
  if (job->ops != NULL) {
    qsort(job->ops, job->nops, sizeof *job->ops, by_operation);
  }
  return job->ops != NULL;
}

// ---- waiting: whoever comes early waits until the last one has come

static void count_waits(xt_job *job, const xt_op *first, size_t n)
{
  const xt_op *last = first;
  for (size_t i = 1; i < n; i++) {
    last = first[i].start > last->start ? &first[i] : last;
  }
  for (size_t i = 0; i < n; i++) {
    double wait = fmin(last->start, first[i].end) - first[i].start;
    if (first[i].at != last->at && wait > 0) {
      job->waited[(size_t)first[i].at * (size_t)job->n + (size_t)last->at] += wait;
    }
  }
}

static bool find_waits(xt_job *job)
{
  job->waited = calloc((size_t)job->n * (size_t)job->n, sizeof *job->waited);
  for (size_t i = 0, n; job->waited != NULL && i < job->nops; i += n) {
    for (n = 1; i + n < job->nops && xt_same_op(&job->ops[i], &job->ops[i + n]); n++) {
    }
    count_waits(job, &job->ops[i], n);
  }
  return job->waited != NULL;
}

static bool is_twice(const xt_job *job, int n)
{
  for (int i = 0; i < n; i++) {
    if (job->traces[i].rank == job->traces[n].rank && strcmp(job->traces[i].comm, job->traces[n].comm) == 0) {
      fprintf(stderr, "tutti-trace: %s and %s are both of rank %d of communicator %s: give one of them\n", job->traces[i].path,
              job->traces[n].path, job->traces[n].rank, job->traces[n].comm);
      return true;
    }
  }
  return false;
}

// By communicator, then by rank as a number: names of files would put rank 10 before rank 2.
static int by_rank(const void *a, const void *b)
{
  const xt_trace *x = a, *y = b;
  int c = strcmp(x->comm, y->comm);
  return c != 0 ? c : (x->rank > y->rank) - (x->rank < y->rank);
}

bool xt_job_open(xt_job *job, char *const *paths, int n)
{
  *job = (xt_job){.traces = calloc((size_t)n, sizeof(xt_trace))};
  bool good = job->traces != NULL && xt_fit(paths, n);
  for (int i = 0; good && i < n; i++) {
    good = xt_load(paths[i], &job->traces[i]);
    job->n += good;
    good = good && !is_twice(job, i);
  }
  if (!good) {
    xt_job_close(job);
    return false;
  }
  qsort(job->traces, (size_t)job->n, sizeof *job->traces, by_rank);
  if (!xt_set_clocks(job) || !collect_ops(job) || !find_waits(job)) {
    fprintf(stderr, "tutti-trace: no memory\n");
    xt_job_close(job);
    return false;
  }
  return true;
}

void xt_job_close(xt_job *job)
{
  for (int i = 0; i < job->n; i++) {
    xt_unload(&job->traces[i]);
  }
  free(job->traces);
  free(job->ops);
  free(job->clocks);
  free(job->waited);
  *job = (xt_job){0};
}
