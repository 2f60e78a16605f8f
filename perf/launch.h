// launch.h: the processes of a job and what they exchange before they have a communicator.
//
// A launcher is a row of functions: `fork` (-P, local processes), `mpi` (what mpirun started), `env` (what any other
// launcher started, or mpirun where MPI's library was not built in), `single` (one process). All functions but init and
// abort are called by one thread of a process at a time. Those that return bool return false when a process is gone:
// the caller ends.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "options.h"
#include "place.h"

typedef struct perf_world perf_world;

typedef enum { PERF_LAUNCHED, PERF_LAUNCH_NEXT, PERF_LAUNCH_FAILED } perf_launch_result;

typedef struct perf_launcher {
  const char *name;
  // Is this the launcher for these options and this place in a job? The first that says yes is taken.
  bool (*wanted)(const perf_options *o, const perf_place *p);
  // Makes this process part of a job and fills launcher, proc, procs and state of *w (zeroed). Called once, before any
  // library call and before any thread. May fork: the process that only supervises gets w->supervisor and w->status,
  // and must exit with that. PERF_LAUNCH_NEXT: not possible here, and said so; another launcher may do.
  // PERF_LAUNCH_FAILED: not possible at all, and said so.
  perf_launch_result (*init)(const perf_options *o, const perf_place *p, perf_world *w);
  // Returns when all processes have called it.
  bool (*barrier)(perf_world *w);
  // all[i] = what process i gave; `size` bytes each.
  bool (*allgather)(perf_world *w, const void *mine, void *all, size_t size);
  // data of process `root` to all.
  bool (*bcast)(perf_world *w, void *data, size_t size, int root);
  // Last call: this process is about to exit with `status` in good order, and so are all others.
  void (*finalize)(perf_world *w, int status);
  // This process is about to exit with `status` and has said why: makes the others end, too. Any thread, any time; need
  // not return. NULL: they notice by themselves.
  void (*abort)(perf_world *w, int status);
} perf_launcher;

struct perf_world {
  const perf_launcher *launcher;
  int proc, procs; // number of this process, and how many
  int local_proc;  // its number among the processes of this node: same host name and NCCL_HOSTID
  int local_procs;
  int machine_procs; // processes on this machine, whatever NCCL_HOSTID says
  int cores;         // that each process of -P has to itself; 0: it goes where the system puts it
  bool supervisor;   // not a process of the job
  int status;        // of the supervisor
  void *state;       // of the launcher
};

extern const perf_launcher perf_launch_fork, perf_launch_mpi, perf_launch_env, perf_launch_single;

// The environment as perf_place_find wants it.
const char *perf_launch_lookup(const char *name);

// This process's place in a job, as the environment has it, and names the process accordingly (perf_name_process).
// False: the variables are wrong, and that is said. What they only hint at is a note in `text`.
bool perf_find_place(const perf_options *o, perf_place *p, perf_text *text);

// Chooses a launcher, calls its init and fills *w. False: impossible, and said so.
bool perf_launch(const perf_options *o, const perf_place *p, perf_world *w);
