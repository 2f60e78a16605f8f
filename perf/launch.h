// launch.h: the processes of a job and what they exchange before they have a communicator.
//
// A launcher is a row of functions: `single` (one process), `fork` (-P, local processes); an MPI row can join them.
// All functions but init are called by one thread of a process at a time. Those that return bool return false when a process is gone:
// the caller ends.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "options.h"

typedef struct perf_world perf_world;

typedef struct perf_launcher {
  const char *name;
  // Is this the launcher for these options and this environment? The first that says yes is taken.
  bool (*wanted)(const perf_options *o);
  // Makes this process part of a job and fills *w (all of it). Called once, before any library call and before any thread. May fork:
  // the process that only supervises gets w->supervisor and w->status, and must exit with that. False: impossible, and said so.
  bool (*init)(const perf_options *o, perf_world *w);
  // Returns when all processes have called it.
  bool (*barrier)(perf_world *w);
  // all[i] = what process i gave; `size` bytes each.
  bool (*allgather)(perf_world *w, const void *mine, void *all, size_t size);
  // data of process `root` to all.
  bool (*bcast)(perf_world *w, void *data, size_t size, int root);
  // Last call: this process is about to exit with `status` in good order.
  void (*finalize)(perf_world *w, int status);
} perf_launcher;

struct perf_world {
  const perf_launcher *launcher;
  int proc, procs; // number of this process, and how many
  int local_proc;  // its number among the processes of this machine
  int local_procs;
  bool supervisor; // not a process of the job
  int status;      // of the supervisor
  void *state;     // of the launcher
};

extern const perf_launcher perf_launch_fork, perf_launch_single;

// Chooses a launcher and calls its init. Argument and result as there.
bool perf_launch(const perf_options *o, perf_world *w);
