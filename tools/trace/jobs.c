// jobs.c: reads all files and splits them into jobs. Two runs of a program in one folder are two jobs.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trace_tool.h"

static bool is_twice(const xt_trace *traces, int n)
{
  for (int i = 0; i < n; i++) {
    if (traces[i].rank == traces[n].rank && strcmp(traces[i].comm, traces[n].comm) == 0) {
      fprintf(stderr, "tutti-trace: %s and %s are both of rank %d of communicator %s: give one of them\n",
              traces[i].path, traces[n].path, traces[n].rank, traces[n].comm);
      return true;
    }
  }
  return false;
}

static bool belong_together(const xt_trace *a, const xt_trace *b)
{
  bool known = a->born != 0 && b->born != 0; // numbers of processes come again
  bool process = a->pid == b->pid && (!known || a->born == b->born) && strcmp(a->host, b->host) == 0 &&
                 strcmp(a->clock, b->clock) == 0;
  return process || strcmp(a->comm, b->comm) == 0;
}

// Gives each trace the number of the first one that it belongs together with, whatever stands between them.
static void number_jobs(xt_trace *traces, int n)
{
  for (int i = 0; i < n; i++) {
    traces[i].at_job = i;
    for (int k = 0; k < i; k++) {
      int from = traces[i].at_job, to = traces[k].at_job;
      bool join = from != to && belong_together(&traces[i], &traces[k]);
      for (int j = 0; join && j <= i; j++) {
        traces[j].at_job = traces[j].at_job == from ? to : traces[j].at_job;
      }
    }
  }
}

// By job, by communicator, then by rank as a number: names of files would put rank 10 before rank 2.
static int by_rank(const void *a, const void *b)
{
  const xt_trace *x = a, *y = b;
  int c = (x->at_job > y->at_job) - (x->at_job < y->at_job);
  c = c != 0 ? c : strcmp(x->comm, y->comm);
  return c != 0 ? c : (x->rank > y->rank) - (x->rank < y->rank);
}

static int by_began(const void *a, const void *b)
{
  const xt_job *x = a, *y = b;
  return (x->began > y->began) - (x->began < y->began);
}

static bool split(xt_jobs *jobs)
{
  jobs->list = calloc(jobs->ntraces > 0 ? (size_t)jobs->ntraces : 1, sizeof *jobs->list);
  if (jobs->list == NULL) {
    return false;
  }
  number_jobs(jobs->traces, jobs->ntraces);
  qsort(jobs->traces, (size_t)jobs->ntraces, sizeof *jobs->traces, by_rank);
  for (int i = 0; i < jobs->ntraces; i++) {
    xt_trace *t = &jobs->traces[i];
    double began = t->began + t->skew;
    if (i == 0 || t->at_job != t[-1].at_job) {
      jobs->list[jobs->n++] = (xt_job){.traces = t, .began = began};
    }
    xt_job *job = &jobs->list[jobs->n - 1];
    job->n++;
    job->began = fmin(job->began, began);
  }
  qsort(jobs->list, (size_t)jobs->n, sizeof *jobs->list, by_began);
  return true;
}

bool xt_jobs_sort(xt_jobs *jobs)
{
  for (int i = 0; i < jobs->ntraces; i++) {
    if (is_twice(jobs->traces, i)) {
      return false;
    }
  }
  bool good = split(jobs);
  for (int i = 0; good && i < jobs->n; i++) {
    good = xt_set_clocks(&jobs->list[i]) && xt_job_collect(&jobs->list[i]);
  }
  if (!good) {
    fprintf(stderr, "tutti-trace: no memory\n");
  }
  return good;
}

bool xt_jobs_open(xt_jobs *jobs, char *const *paths, int n)
{
  *jobs = (xt_jobs){0};
  bool good = xt_fit(paths, n);
  for (int i = 0; good && i < n; i++) {
    good = xt_load(jobs, paths[i]);
  }
  if (good && jobs->ntraces == 0) {
    good = xt_refuse(paths[0], "the flight recorder has no communicator");
  }
  good = good && xt_jobs_sort(jobs);
  if (!good) {
    xt_jobs_close(jobs);
  }
  return good;
}

void xt_jobs_close(xt_jobs *jobs)
{
  for (int i = 0; i < jobs->ntraces; i++) {
    xt_unload(&jobs->traces[i]);
  }
  for (int i = 0; i < jobs->n; i++) {
    free(jobs->list[i].ops);
    free(jobs->list[i].clocks);
    free(jobs->list[i].waited);
  }
  free(jobs->list);
  free(jobs->traces);
  *jobs = (xt_jobs){0};
}
