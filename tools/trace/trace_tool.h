// trace_tool.h: what tutti-trace makes of time lines. For tools/trace alone.
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// One file. Times are microseconds of its own clock.
typedef struct xt_trace {
  const char *path;
  json_t *root;
  const json_t *events;
  int rank, ranks, pid;
  uint64_t born;                          // when its process was made; 0: not known
  const char *comm, *host, *name, *clock; // of root
  double skew;                            // CLOCK_REALTIME minus its clock
  double began;                           // when its communicator began
  double ahead;                           // of the machine's clock, in a time namespace of its own
  bool knows_ahead;
  int at_job;          // number of its job
  int at_clock;        // number of its clock in the job
  double shift, drift; // what brings it to the job's time (xt_time)
  uint64_t lost;       // events, for any reason
} xt_trace;

// An operation of a rank.
typedef struct xt_op {
  const xt_trace *trace;
  int at; // number of the trace
  const char *func;
  uint64_t bytes, seq; // bytes: count * size of the type, as the call had them
  int peer;            // -1: a collective
  bool send;
  double start, end;  // the job's
  const json_t *args; // of its event
} xt_op;

typedef enum { XT_CLOCK_FIRST, XT_CLOCK_MEASURED, XT_CLOCK_WALL } xt_clock_how;

// How the clock of some traces was brought to that of the first.
typedef struct xt_clock {
  const char *name, *host;
  size_t length; // of the name
  xt_clock_how how;
  double shift, drift; // time t of this clock is t + shift + drift * t of the first
  double error;        // measured: what it may be wrong by, from first to last
  double first, last;  // from when to when its traces last, as it shows it
  bool tried;          // with messages to and from known ones
} xt_clock;

// Ranks that belong together: of one communicator, or of one process.
typedef struct xt_job {
  xt_trace *traces; // of xt_jobs: sorted by communicator and rank
  int n;
  double began; // first of its traces by the wall clock, microseconds since 1970
  xt_op *ops;   // sorted: those that belong together stand together
  size_t nops;
  xt_clock *clocks;
  int nclocks;
  double begin, end; // of all operations; 0, 0: there are none
  double *waited;    // n x n: microseconds that the row has waited for the column
} xt_job;

// Everything that was read; jobs are sorted by when they began.
typedef struct xt_jobs {
  xt_trace *traces;
  int ntraces;
  xt_job *list;
  int n;
} xt_jobs;

// How the bandwidth of an operation is counted, as the perf programs do: its bytes times `size` by its time is algbw,
// times `bus` is busbw.
typedef struct xt_factors {
  double size, bus;
} xt_factors;

// Are the files together as small as memory wants them: a sixteenth of the machine's, at most 2 GB? False: said so.
bool xt_fit(char *const *paths, int n);
// Reads and checks a file, and adds its time lines to `jobs`: a file of the profiler is one, a dump of a flight
// recorder one of each communicator. On failure a message names the file and the place; false.
bool xt_load(xt_jobs *jobs, const char *path);
// The same of what stands in a file, which it frees.
bool xt_take(xt_jobs *jobs, const char *path, json_t *root);
// Says what is wrong with a file, or with an item of it; false.
bool xt_refuse(const char *path, const char *what);
bool xt_refuse_item(const char *path, const char *kind, size_t i, const char *what);
// flight.c: is this a dump of a flight recorder, or the RAS thread's answer with several?
bool xt_is_flight(const json_t *root);
// Its time lines, which are to be checked as those of the profiler. The caller's. NULL: said why.
json_t *xt_flight_lines(const char *path, const json_t *root);
void xt_unload(xt_trace *t);

// Reads all files and splits them into jobs. The files of a job are on one clock. False: said why.
bool xt_jobs_open(xt_jobs *jobs, char *const *paths, int n);
void xt_jobs_close(xt_jobs *jobs);
// The second half of that: splits what was loaded, of which there is at least one.
bool xt_jobs_sort(xt_jobs *jobs);
// The job's operations and which rank waited for which, once its clocks are set. False: no memory.
bool xt_job_collect(xt_job *job);
// Writes ranks, hosts, processes and start of the job.
void xt_job_title(const xt_job *job, FILE *out);
// The most files that the job has of one communicator, and that communicator.
int xt_job_ranks(const xt_job *job, const char **comm);
xt_factors xt_bandwidth(const char *func, int ranks);
// Phase of an event: "X", "s", "f", "M".
bool xt_is_phase(const json_t *e, const char *phase);
// A time of this file in the job's.
double xt_time(const xt_trace *t, double at);

// clocks.c: names the clocks and brings all traces to that of the first. False: no memory.
bool xt_set_clocks(xt_job *job);
// What brings a time of one job to the time of another: nothing on one machine, else what the wall clocks say.
double xt_job_shift(const xt_job *job, const xt_job *to);

// Do these two belong to the same operation (a collective of a communicator, or a send and its receive)?
bool xt_same_op(const xt_op *a, const xt_op *b);

// The commands' work. False: the output failed.
bool xt_summary(xt_jobs *jobs, FILE *out);
bool xt_merge(xt_jobs *jobs, FILE *out);
bool xt_report(xt_jobs *jobs, FILE *out);
bool xt_workload(xt_jobs *jobs, FILE *out);
// The summary of one job.
void xt_job_summary(const xt_job *job, FILE *out);

// page.css, page.html and page.js, put into the program by CMake.
extern const char xt_page_css[], xt_page_html[], xt_page_js[];
