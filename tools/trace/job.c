// job.c: one job: its operations, which rank waited for which, its title.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "trace_tool.h"

// ---- operations

static bool is_message(const xt_op *op)
{
  return op->send || strcmp(op->func, "Recv") == 0;
}

static int from_of(const xt_op *op)
{
  return op->peer < 0 ? -1 : op->send ? op->trace->rank : op->peer;
}

static int to_of(const xt_op *op)
{
  return op->peer < 0 ? -1 : op->send ? op->peer : op->trace->rank;
}

// A message is the same at both ends. A one-sided operation has no second end: no other rank has its function, peer and
// number.
static int compare(const xt_op *a, const xt_op *b)
{
  int c = strcmp(a->trace->comm, b->trace->comm);
  c = c != 0 ? c : is_message(b) - is_message(a);
  c = c != 0 || is_message(a) ? c : strcmp(a->func, b->func);
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
                 .args = args,
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

// ---- waiting: a rank that comes early waits until the last one has come

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

bool xt_job_collect(xt_job *job)
{
  return collect_ops(job) && find_waits(job);
}

// ---- what is said of a job

int xt_job_ranks(const xt_job *job, const char **comm)
{
  int most = 0;
  for (int i = 0, n; i < job->n; i += n) {
    for (n = 1; i + n < job->n && strcmp(job->traces[i].comm, job->traces[i + n].comm) == 0; n++) {
    }
    if (n > most) {
      most = n;
      *comm = job->traces[i].comm;
    }
  }
  return most;
}

static int count_comms(const xt_job *job)
{
  int n = 0;
  for (int i = 0; i < job->n; i++) {
    n += i == 0 || strcmp(job->traces[i - 1].comm, job->traces[i].comm) != 0;
  }
  return n;
}

// Hosts, each once, and the least and greatest process id.
static void print_places(const xt_job *job, FILE *out)
{
  int least = job->traces[0].pid, most = least;
  fputs(" on ", out);
  for (int i = 0, hosts = 0; i < job->n; i++) {
    bool new = true;
    for (int k = 0; new &&k < i; k++) {
      new = strcmp(job->traces[k].host, job->traces[i].host) != 0;
    }
    if (new &&hosts++ < 4) {
      fprintf(out, "%s%s", hosts == 1 ? "" : ", ", hosts == 4 ? "..." : job->traces[i].host);
    }
    least = job->traces[i].pid < least ? job->traces[i].pid : least;
    most = job->traces[i].pid > most ? job->traces[i].pid : most;
  }
  fprintf(out, least == most ? ", pid %d" : ", pids %d to %d", least, most);
}

void xt_job_title(const xt_job *job, FILE *out)
{
  char when[64] = "";
  time_t began = (time_t)(job->began / 1e6);
  struct tm utc;
  const char *comm = "";
  int here = xt_job_ranks(job, &comm), ranks = 0, comms = count_comms(job);
  for (int i = 0; i < job->n; i++) {
    ranks = strcmp(job->traces[i].comm, comm) == 0 ? job->traces[i].ranks : ranks;
  }
  fprintf(out, here == ranks ? "%d ranks" : "%d of %d ranks", here, ranks);
  print_places(job, out);
  if (comms > 1) {
    fprintf(out, ", %d communicators", comms);
  }
  if (gmtime_r(&began, &utc) != NULL && strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S UTC", &utc) > 0) {
    fprintf(out, ", %s", when);
  }
}

// Functions that are not in the table move what their calls say: broadcast, reduce, send, receive.
xt_factors xt_bandwidth(const char *func, int ranks)
{
  static const struct {
    const char *func;
    bool each; // bytes are those of each rank's part
    int times; // that (n - 1) / n of all goes over the busiest link
  } table[] = {{"AllReduce", false, 2}, {"AllGather", true, 1},   {"ReduceScatter", true, 1},
               {"AlltoAll", true, 1},   {"Gather", true, 1},      {"Scatter", true, 1},
               {"AlltoAllV", false, 1}, {"AllGatherV", false, 1}, {"ReduceScatterV", false, 1}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (strcasecmp(func, table[i].func) == 0) {
      return (xt_factors){table[i].each ? ranks : 1, table[i].times * (ranks - 1.0) / ranks};
    }
  }
  return (xt_factors){1, 1};
}
