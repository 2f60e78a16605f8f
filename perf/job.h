// job.h: one run of one program, as this process sees it; how it is set up, run and taken down. Private to the engine.
#pragma once
#include <pthread.h>

#include "json.h"
#include "launch.h"
#include "monitor.h"
#include "pattern.h"
#include "perf.h"
#include "report.h"
#include "team.h"
#include "tutti.h"
#include "verify.h"

// A rank that lives in this process.
typedef struct perf_rank {
  int world_rank;   // among all ranks of the job
  int group;        // colour of NCCL_TESTS_SPLIT
  int rank, nranks; // in its group: the numbers of its communicator
  int device;
  int sharing; // GPUs: ranks of the job on this one
  ncclUniqueId id;
  ncclComm_t comm;
  cudaStream_t stream;             // NULL with -y
  char *send_memory, *recv_memory; // whole allocations, guards included
  void *send_handle, *recv_handle; // of -R
  perf_buffers buffers;            // as moved by -u
  perf_pattern *pattern;
  void *tables; // of the pattern, in the device's memory (device.h); else NULL
  perf_case c;
  tuttiEvent_t *events;  // during a measurement with -I; of the device's kind (device.h)
  tuttiGraphExec_t exec; // with -G, what is being launched, of the device's kind; else NULL
} perf_rank;

enum { PERF_MEMORY_START, PERF_MEMORY_COMMS, PERF_MEMORY_BUFFERS, PERF_MEMORY_END, PERF_MEMORY_MARKS };

typedef struct perf_job {
  const perf_coll *coll;
  perf_options o;
  const char *program;
  perf_world world;
  perf_team *team;
  perf_monitor *monitor;
  perf_patterns *patterns;
  perf_json *json;    // process 0 with -J, else NULL
  int nworld, nlocal; // ranks of the job, and of this process
  perf_rank *ranks;   // [nlocal]
  int64_t memory[PERF_MEMORY_MARKS];
  size_t steps_done, steps_total;
  double bw_sum; // of thread 0's rows
  long bw_count;
  long errors; // failed checks of the job; valid at the end
} perf_job;

// A thread of this process. Thread 0 of process 0 prints.
typedef struct perf_thread {
  perf_job *job;
  int index;
  perf_rank *ranks; // [o.gpus]
  long errors;
  uint64_t rep; // repetition, the same on all threads
  bool prints;
  pthread_t id;
} perf_thread;

// Dies unless all processes were started alike and the job is one that this program can do.
void perf_check_job(perf_job *j);

// Numbers the ranks, groups them, gives each its device and its group's unique id. Dies when that is impossible.
void perf_plan_ranks(perf_job *j);

// Reduces o.max_bytes to what memory holds (the same on all processes), and says so; dies when nothing useful is left.
void perf_plan_memory(perf_job *j);

// Gathers and prints the device lines, and starts the JSON document's body.
void perf_print_devices(perf_job *j);

// Communicators and streams, then buffers and their registration, of `count` local ranks from number `first` on.
// Collective over the job.
void perf_make_comms(perf_job *j, int first, int count);
void perf_make_buffers(perf_job *j, int first, int count);

// Gives everything of the local ranks back. Collective.
void perf_unmake(perf_job *j);

// All tests of one thread: every type, operation, root, cycle and size.
void perf_run_thread(perf_thread *t);

// Remembers how much memory the process has now (a PERF_MEMORY_ number).
void perf_mark_memory(perf_job *j, int mark);
