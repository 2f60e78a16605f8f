// preview.h: what a communicator would choose, and how long it would take, without making one: for the explorer and
// tests.
#pragma once
#include "comm/tuning.h"

// The network between machines, and what of the machines counts there. What is 0 is as the figures have it: TCP on one
// machine. Times in microseconds.
typedef struct tt_preview_link {
  double gbit;        // Gbit/s of a machine's way out, and of its way in
  double ms;          // milliseconds that a message needs for the wire
  double way;         // beside that: from one rank to the other
  double rouse;       // of a core, for a rank that had nothing to do to go on
  double idle, wake;  // if it had nothing to do for longer than `idle`, it goes on by `wake` later, too
  double work, kib;   // of a core, at each end: for a message (with `fetch` to send it alone), and for each KiB of it
  double fetch, each; // of a core, for a call that fetches what has come over a connection; for each message in it
  double own;         // of a core, to read or write a KiB of its own memory
  double sum;         // beside that: to add a KiB to another one
  double change;      // of a core, to go on with another rank
  double slice;       // for so long a rank keeps a core that others want
  // The machines are namespaces of one, and share its cores. A thread with a core beside these carries each message,
  // and each KiB of it.
  double carry, carry_kib;
} tt_preview_link;

// What shared memory costs. What is 0 is as usual, for a machine with these figures. Microseconds.
typedef struct tt_preview_memory {
  double way;            // from one rank to the other, in a message of one cache line
  double work, kib;      // at each end: for a message, and for each KiB of it
  double call, call_kib; // to reach into a peer's memory, and for each KiB of that
  double step;           // for each step of a schedule
  double own;            // to read or write a KiB of own memory
} tt_preview_memory;

// So many ranks of a machine of `cores` cores with these figures, or as many on each of `nodes` such machines.
typedef struct tt_preview_env {
  tt_figures figures;
  int nranks, cores; // of a machine
  int nodes;         // 0 and 1: one machine
  tt_preview_link link;
  tt_preview_memory memory;
  bool one_process; // threads of one process; else each is a process
} tt_preview_env;

typedef struct tt_preview tt_preview;

// NCCL_ALGO, NCCL_PROTO and thresholds of this process hold. Errors: ncclSystemError, and those of tt_tuning_create.
ncclResult_t tt_preview_create(const tt_preview_env *env, tt_preview **out);
// NULL is allowed.
void tt_preview_destroy(tt_preview *p);
// What the library would run with if this algorithm and protocol were the only ones (TT_SIMPLE where it needs direct
// access). out->algo -1: the algorithm cannot do it, or options leave it out. Errors: those of tt_tuning_choose.
ncclResult_t tt_preview_offer(tt_preview *p, tt_func func, size_t bytes, int algo, tt_proto proto, tt_choice *out);
// How long each of `times` operations with this choice would take, one behind the other, as perf programs measure:
// microseconds. HUGE_VAL: it cannot be done. Errors: those of tt_cost_of_run.
ncclResult_t tt_preview_time(tt_preview *p, tt_func func, size_t bytes, const tt_choice *choice, int times, double *us);
// What a collective would run with, and for how many microseconds by the cost model. Errors: those of tt_tuning_choose
// and tt_tuning_estimate.
ncclResult_t tt_preview_choose(tt_preview *p, tt_func func, size_t bytes, tt_choice *choice, double *us);
