// team.h: barrier and small reductions over all threads of all processes of the job.
#pragma once
#include "launch.h"

typedef struct perf_team perf_team;

typedef enum {
  PERF_FIRST,
  PERF_AVERAGE,
  PERF_LEAST,
  PERF_GREATEST,
  PERF_TOTAL
} perf_how; // the first four are -a's numbers

// For `threads` threads of this process. Returns NULL without memory. Free with perf_team_destroy (NULL allowed).
perf_team *perf_team_create(int threads, perf_world *w);
void perf_team_destroy(perf_team *t);

// Returns when all threads of the job have called it. Ends the process when another process is gone.
void perf_team_barrier(perf_team *t, int thread);

// Every thread gives a value, all get the same result.
double perf_team_reduce(perf_team *t, int thread, double value, perf_how how);

// Every thread gives `count` values, overwritten by the greatest over all threads of the job. `rows` (thread 0 only,
// may be NULL): gets the greatest over each process's threads, procs * count values.
void perf_team_greatest(perf_team *t, int thread, double *values, int count, double *rows);
