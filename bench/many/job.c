// job.c: the ranks of a measurement: as processes, as threads of one, or all in one thread.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "many.h"

double many_now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int many_failed(ncclResult_t res, const char *what, int rank)
{
  if (res != ncclSuccess) {
    fprintf(stderr, "many: rank %d: %s: %s (%s)\n", rank, what, ncclGetErrorString(res), ncclGetLastError(NULL));
  }
  return res != ncclSuccess;
}

void many_meet(many_job *job)
{
  int all = job->mode == MANY_ONE_THREAD ? 1 : job->nranks, round = atomic_load(&job->round);
  if (atomic_fetch_add(&job->arrived, 1) == all - 1) {
    atomic_store(&job->arrived, 0);
    atomic_store(&job->round, round + 1);
    return;
  }
  while (atomic_load(&job->round) == round) {
    sched_yield();
  }
}

int many_open(many_rank *r)
{
  int res = many_failed(ncclGroupStart(), "ncclGroupStart", r->rank);
  for (int i = 0; i < r->n && res == 0; i++) {
    res = many_failed(tuttiSetDevice(r->rank + i), "tuttiSetDevice", r->rank + i) ||
          many_failed(ncclCommInitRank(&r->comm[i], r->job->nranks, r->job->id, r->rank + i), "ncclCommInitRank",
                      r->rank + i);
  }
  res |= many_failed(ncclGroupEnd(), "ncclGroupEnd", r->rank);
  for (int i = 0; i < r->n && res == 0; i++) {
    res = many_failed(tuttiStreamCreate(&r->stream[i], TUTTI_STREAM_NON_BLOCKING), "tuttiStreamCreate", r->rank + i);
    r->in[i] = malloc(r->job->bytes);
    r->out[i] = malloc(r->job->bytes);
    if (res != 0 || r->in[i] == NULL || r->out[i] == NULL) {
      return 1;
    }
    for (size_t k = 0; k < r->job->bytes / sizeof(float); k++) {
      r->in[i][k] = (float)(k % 61);
    }
    memset(r->out[i], 0, r->job->bytes);
  }
  return res;
}

static ncclResult_t ring_shift(const many_rank *r, int i, size_t count)
{
  int n = r->job->nranks, rank = r->rank + i;
  ncclGroupStart();
  ncclSend(r->in[i], count, ncclFloat32, (rank + 1) % n, r->comm[i], r->stream[i]);
  ncclRecv(r->out[i], count, ncclFloat32, (rank + n - 1) % n, r->comm[i], r->stream[i]);
  return ncclGroupEnd();
}

static ncclResult_t call_one(const many_rank *r, int i)
{
  size_t count = r->job->bytes / sizeof(float), part = count / (size_t)r->job->nranks;
  float *in = r->in[i], *out = r->out[i];
  switch (r->job->kind) {
  case MANY_ALL_REDUCE: return ncclAllReduce(in, out, count, ncclFloat32, ncclSum, r->comm[i], r->stream[i]);
  case MANY_REDUCE_SCATTER: return ncclReduceScatter(in, out, part, ncclFloat32, ncclSum, r->comm[i], r->stream[i]);
  case MANY_ALL_GATHER: return ncclAllGather(in, out, part, ncclFloat32, r->comm[i], r->stream[i]);
  case MANY_BROADCAST: return ncclBroadcast(out, out, count, ncclFloat32, 0, r->comm[i], r->stream[i]);
  case MANY_REDUCE: return ncclReduce(in, out, count, ncclFloat32, ncclSum, 0, r->comm[i], r->stream[i]);
  case MANY_ALL_TO_ALL: return ncclAlltoAll(in, out, part, ncclFloat32, r->comm[i], r->stream[i]);
  default: return ring_shift(r, i, count);
  }
}

int many_call(many_rank *r)
{
  int res = 0;
  if (r->n > 1) {
    ncclGroupStart();
  }
  for (int i = 0; i < r->n && res == 0; i++) {
    res = many_failed(call_one(r, i), "a call", r->rank + i);
  }
  return r->n > 1 ? many_failed(ncclGroupEnd(), "ncclGroupEnd", r->rank) || res : res;
}

int many_settle(many_rank *r)
{
  int res = 0;
  for (int i = 0; i < r->n && res == 0; i++) {
    res = many_failed(tuttiStreamSynchronize(r->stream[i]), "tuttiStreamSynchronize", r->rank + i);
  }
  return res;
}

int many_close(many_rank *r)
{
  int res = 0;
  for (int i = 0; i < r->n; i++) {
    res |= many_failed(tuttiStreamDestroy(r->stream[i]), "tuttiStreamDestroy", r->rank + i);
    free(r->in[i]);
    free(r->out[i]);
  }
  many_failed(ncclGroupStart(), "ncclGroupStart", r->rank);
  for (int i = 0; i < r->n; i++) {
    res |= many_failed(ncclCommDestroy(r->comm[i]), "ncclCommDestroy", r->rank + i);
  }
  return res | many_failed(ncclGroupEnd(), "ncclGroupEnd", r->rank);
}

typedef struct thread_arg {
  many_rank rank;
  many_body body;
  pthread_t thread;
} thread_arg;

static void *thread_main(void *arg)
{
  thread_arg *a = arg;
  if (a->body(&a->rank) != 0) {
    atomic_fetch_add(&a->rank.job->failed, 1);
    kill(0, SIGTERM); // the others would wait for ever
  }
  return NULL;
}

static void run_threads(many_job *job, many_body body)
{
  int n = job->mode == MANY_THREADS ? job->nranks : 1, each = job->mode == MANY_THREADS ? 1 : job->nranks;
  thread_arg *a = calloc((size_t)n, sizeof *a);
  int made = 0;
  for (; a != NULL && made < n; made++) {
    a[made] = (thread_arg){.rank = {.job = job, .rank = made, .n = each}, .body = body};
    if (pthread_create(&a[made].thread, NULL, thread_main, &a[made]) != 0) {
      kill(0, SIGTERM);
    }
  }
  for (int i = 0; i < made; i++) {
    pthread_join(a[i].thread, NULL);
  }
  free(a);
}

static void run_processes(many_job *job, many_body body)
{
  for (int i = 0; i < job->nranks; i++) {
    if (fork() == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      many_rank r = {.job = job, .rank = i, .n = 1};
      _exit(body(&r) != 0);
    }
  }
  for (int status; wait(&status) > 0;) {
    if (status != 0 && atomic_fetch_add(&job->failed, 1) == 0) {
      signal(SIGTERM, SIG_IGN);
      kill(0, SIGTERM);
    }
  }
}

int many_run(many_job *job, many_body body)
{
  atomic_store(&job->failed, 0);
  atomic_store(&job->arrived, 0);
  if (many_failed(ncclGetUniqueId(&job->id), "ncclGetUniqueId", 0)) {
    return 1;
  }
  if (job->mode == MANY_PROCESSES) {
    run_processes(job, body);
  } else {
    run_threads(job, body);
  }
  return atomic_load(&job->failed);
}

static int by_value(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double many_median(double *v, int n)
{
  qsort(v, (size_t)n, sizeof *v, by_value);
  return v[n / 2];
}
