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
  const char *comm, *host, *name, *clock; // of root
  double skew;                            // CLOCK_REALTIME minus its clock
  double ahead;                           // of the machine's clock, in a time namespace of its own
  bool knows_ahead;
  int at_clock;        // number of its clock
  double shift, drift; // what brings it to the job's time (xt_time)
  uint64_t lost;       // events, for any reason
} xt_trace;

// An operation of a rank.
typedef struct xt_op {
  const xt_trace *trace;
  int at; // number of the trace
  const char *func;
  uint64_t bytes, seq;
  int peer; // -1: a collective
  bool send;
  double start, end; // the job's
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

typedef struct xt_job {
  xt_trace *traces;
  int n;
  xt_op *ops; // sorted: those that belong together stand together
  size_t nops;
  xt_clock *clocks;
  int nclocks;
  double begin, end; // of all operations; 0, 0: there are none
  double *waited;    // n x n: microseconds that the row has waited for the column
} xt_job;

// Are the files together as small as memory wants them: a sixteenth of the machine's, at most 2 GB? False: said so.
bool xt_fit(char *const *paths, int n);
// Reads and checks a file. On failure a message names the file and the place; false.
bool xt_load(const char *path, xt_trace *out);
void xt_unload(xt_trace *t);

// All files, on one clock, with their operations and who waited for whom. False: said why.
bool xt_job_open(xt_job *job, char *const *paths, int n);
void xt_job_close(xt_job *job);
// Phase of an event: "X", "s", "f", "M".
bool xt_is_phase(const json_t *e, const char *phase);
// A time of this file in the job's.
double xt_time(const xt_trace *t, double at);

// clocks.c: names the clocks and brings all traces to that of the first. False: no memory.
bool xt_set_clocks(xt_job *job);

// Do these two belong to the same operation (a collective of a communicator, or a send and its receive)?
bool xt_same_op(const xt_op *a, const xt_op *b);

// The commands' work. False: the output failed.
void xt_summary(const xt_job *job, FILE *out);
bool xt_merge(xt_job *job, FILE *out);
bool xt_report(const xt_job *job, FILE *out);

// page.c
extern const char xt_page_style[], xt_page_body[], xt_page_script[];
