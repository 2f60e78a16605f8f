// star.h: the processes of a job, each connected by TCP with process 0, and what they exchange that way before they
// have a communicator.
//
// All functions but perf_star_stop are called by one thread at a time. Where one fails it has said why on standard
// error, with the number of this process; the others are told, and fail too.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PERF_STAR_PORTS = 8 };

typedef struct perf_star perf_star;

typedef struct perf_star_plan {
  int proc, procs;
  const char *host;                   // where process 0 listens
  int ports[PERF_STAR_PORTS], nports; // the first that is free there
  uint64_t identity;                  // the same in all processes of the job. A peer that does not know it is not heard
  int seconds;                        // how long to wait for each other
  const char *seconds_name;           // the variable that changes that, for messages
  const char *hint;                   // added to the message when somebody did not come; "" for none
} perf_star_plan;

// Returns when all processes of the job have found each other. NULL: they have not. Free with perf_star_leave.
perf_star *perf_star_join(const perf_star_plan *plan);

// Process 0 gets what everybody gives, `size` bytes each, one after the other in `all` (which the others may leave
// NULL). A perf_star_spread must follow: a rank that has given is watched, and should say nothing until then.
bool perf_star_gather(perf_star *s, const void *mine, void *all, size_t size);

// Process 0 gets the data of process `from` (not 0 itself). The others do nothing.
bool perf_star_fetch(perf_star *s, void *data, size_t size, int from);

// Everybody gets the data of process 0.
bool perf_star_spread(perf_star *s, void *data, size_t size);

// This process ends before its time: tells the others why, if that goes at once. Any thread.
void perf_star_stop(perf_star *s, const char *why);

// Closes the connections. NULL is allowed.
void perf_star_leave(perf_star *s);
