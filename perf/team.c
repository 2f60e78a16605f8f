#include "team.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

typedef struct partial {
  double first, sum, least, greatest;
} partial;

struct perf_team {
  int threads;
  perf_world *world;
  pthread_barrier_t local;
  double *given;   // [threads]
  double **arrays; // [threads]
  double result;
  double *shared; // of perf_team_greatest, made by thread 0
  partial *all;   // [procs]
};

perf_team *perf_team_create(int threads, perf_world *w)
{
  perf_team *t = calloc(1, sizeof(*t));
  if (!t) {
    return NULL;
  }
  t->threads = threads;
  t->world = w;
  pthread_barrier_init(&t->local, NULL, (unsigned)threads);
  t->given = calloc((size_t)threads, sizeof(*t->given));
  t->arrays = calloc((size_t)threads, sizeof(*t->arrays));
  t->all = calloc((size_t)w->procs, sizeof(*t->all));
  if (!t->given || !t->arrays || !t->all) {
    perf_team_destroy(t);
    return NULL;
  }
  return t;
}

void perf_team_destroy(perf_team *t)
{
  if (!t) {
    return;
  }
  pthread_barrier_destroy(&t->local);
  free(t->given);
  free(t->arrays);
  free(t->all);
  free(t);
}

static void must(bool ok)
{
  if (!ok) {
    perf_die(PERF_EXIT_INTERNAL); // the launcher has said who is gone
  }
}

void perf_team_barrier(perf_team *t, int thread)
{
  pthread_barrier_wait(&t->local);
  if (t->world->procs == 1) {
    return;
  }
  if (thread == 0) {
    must(t->world->launcher->barrier(t->world));
  }
  pthread_barrier_wait(&t->local);
}

static partial combine(partial a, partial b)
{
  return (partial){.first = a.first,
                   .sum = a.sum + b.sum,
                   .least = b.least < a.least ? b.least : a.least,
                   .greatest = b.greatest > a.greatest ? b.greatest : a.greatest};
}

static double finish(partial p, perf_how how, int count)
{
  switch (how) {
  case PERF_FIRST: return p.first;
  case PERF_AVERAGE: return p.sum / count;
  case PERF_LEAST: return p.least;
  case PERF_GREATEST: return p.greatest;
  default: return p.sum;
  }
}

static void reduce_given(perf_team *t, perf_how how)
{
  partial mine = {t->given[0], t->given[0], t->given[0], t->given[0]};
  for (int i = 1; i < t->threads; i++) {
    mine = combine(mine, (partial){t->given[i], t->given[i], t->given[i], t->given[i]});
  }
  must(t->world->launcher->allgather(t->world, &mine, t->all, sizeof(mine)));
  partial sum = t->all[0];
  for (int p = 1; p < t->world->procs; p++) {
    sum = combine(sum, t->all[p]);
  }
  t->result = finish(sum, how, t->world->procs * t->threads);
}

double perf_team_reduce(perf_team *t, int thread, double value, perf_how how)
{
  t->given[thread] = value;
  pthread_barrier_wait(&t->local);
  if (thread == 0) {
    reduce_given(t, how);
  }
  pthread_barrier_wait(&t->local);
  return t->result; // not overwritten before all threads have come to the next call's first barrier
}

static void take_greatest(double *into, const double *from, int count)
{
  for (int i = 0; i < count; i++) {
    into[i] = from[i] > into[i] ? from[i] : into[i];
  }
}

static void greatest_of_all(perf_team *t, int count, double *rows)
{
  size_t bytes = (size_t)count * sizeof(double);
  int procs = t->world->procs;
  for (int i = 1; i < t->threads; i++) {
    take_greatest(t->arrays[0], t->arrays[i], count);
  }
  double *all = rows ? rows : malloc((size_t)procs * bytes);
  must(all != NULL);
  must(t->world->launcher->allgather(t->world, t->arrays[0], all, bytes));
  for (int p = 0; p < procs; p++) {
    take_greatest(t->arrays[0], all + (size_t)p * (size_t)count, count);
  }
  if (!rows) {
    free(all);
  }
}

void perf_team_greatest(perf_team *t, int thread, double *values, int count, double *rows)
{
  t->arrays[thread] = values;
  pthread_barrier_wait(&t->local);
  if (thread == 0) {
    greatest_of_all(t, count, rows);
    t->shared = t->arrays[0];
  }
  pthread_barrier_wait(&t->local);
  if (thread != 0) {
    memcpy(values, t->shared, (size_t)count * sizeof(*values));
  }
  pthread_barrier_wait(&t->local); // thread 0 may free its array now
}
