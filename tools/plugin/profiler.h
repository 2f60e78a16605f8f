// profiler.h: a profiler put to the test: it is told of operations as the library tells of them, through the library's
// adapter of its version.
//
// profiler.c       the job: what is looked at, each in a process of its own
// profiler_play.c  operations, event by event
#pragma once
#include <stdatomic.h>

#include "plugin/profiler/profiler_priv.h"
#include "watch.h"

typedef enum {
  PROF_NOTHING,
  PROF_INIT,
  PROF_START,
  PROF_STOP,
  PROF_STATE,
  PROF_FINALIZE,
  PROF_FUNCTIONS
} prof_function;

extern const char *const prof_names[PROF_FUNCTIONS];

// What the processes of a job share.
typedef struct prof_board {
  _Atomic int now;
  _Atomic uint64_t blocked[PROF_FUNCTIONS]; // the longest, in nanoseconds
} prof_board;

// One rank of one communicator, as the plugin knows it.
typedef struct prof_rank {
  const tt_profiler_adapter *a;
  const void *table;
  prof_board *board;
  int *mask; // the process's
  void *ctx;
  int rank, peer;
  bool quiet;       // one of several threads: how long calls take is not looked at
  bool orphans;     // parents have no handles
  bool foreign;     // operations of the proxy belong to another process, whose addresses mean nothing here
  bool broken_off;  // operations are aborted: no states
  uint64_t seq;     // operations so far
  uint64_t started; // events
} prof_rank;

// init and finalize. *p is filled in but for the context; `env` says which rank it is.
ncclResult_t prof_begin(prof_rank *p, const tt_profilers_env *env);
void prof_end(prof_rank *p);

// An all-reduce over the network, a send, what a progress thread does besides: all kinds of events that there are on
// host memory.
void prof_allreduce(prof_rank *p);
void prof_send(prof_rank *p);
void prof_progress(prof_rank *p);
