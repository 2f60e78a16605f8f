// report.h: what a STATUS shows, worked out from the ranks that have answered, and its two forms.
#pragma once
#include <stdlib.h>

#include "device/lane.h"
#include "ras/registry.h"
#include "ras/text.h"

// What libhostcuda.so stands in for, and says of its driver.
#define RAS_CUDA_VERSION 12090
#define RAS_CUDA_DRIVER_VERSION 13000

// A process of the job as the report sees it.
typedef struct ras_process {
  tt_ras_member who; // `device`: of one of its ranks
  bool answered, unresponsive, dead;
} ras_process;

typedef enum { RAS_NOCOMM, RAS_INIT, RAS_RUNNING, RAS_FINALIZE, RAS_ABORT } ras_status;
enum { RAS_INCOMPLETE = 1, RAS_ERROR = 2, RAS_MISMATCH = 4 }; // errors of a communicator

typedef struct ras_comm {
  const ras_rank *ranks; // that have answered, by rank
  int n, size;
  int nodes, least, most; // machines, and ranks on them
  ras_status status;      // the highest
  unsigned errors;
  int group, place; // of communicators alike
} ras_comm;

// Sorts; NULL is allowed where there is nothing.
static inline void ras_sort(void *all, int n, size_t each, int (*compare)(const void *a, const void *b))
{
  if (n > 1) {
    qsort(all, (size_t)n, each, compare);
  }
}

// Zeroed it is empty. Made by one thread, and freed by ras_report_free.
typedef struct ras_report {
  ras_rank *ranks; // tt_free's
  int nranks, rank_room;
  ras_kin *kin; // tt_free's: ranks of communicators that are not this process's
  int nkin, kin_room;
  ras_process *processes; // tt_free's; the first is the one that was asked
  int nprocesses;
  double seconds; // that it took to collect
  int timeouts;
  // By ras_report_sort:
  ras_comm *comms;
  int ncomms, ngroups;
} ras_report;

// Sorts the ranks into communicators and groups. False: no memory.
bool ras_report_sort(ras_report *r);
void ras_report_free(ras_report *r);

// A rank that has not answered; pid -1 where its process is not known.
typedef struct ras_missing {
  int rank, pid, device;
  tt_addr host;
  bool unresponsive, dead;
} ras_missing;
// Calls `fn` for each missing rank of a communicator, in order.
void ras_report_missing(const ras_report *r, const ras_comm *c, void (*fn)(ras_text *out, const ras_missing *m),
                        ras_text *out);

// Status of one rank. Pure.
ras_status ras_status_of(const tt_ras_state *s);

// Address of a process's host, without port: "10.0.0.1". Pure. Returns buf.
const char *ras_host_text(const tt_addr *host, char buf[TT_ADDR_TEXT]);
// The time of day: "YYYY-MM-DD HH:MM:SS", local. Returns buf.
const char *ras_time_text(char buf[32]);

// Class of a rank's verdict as a word: "none", "late". Pure.
const char *ras_class_text(const tt_ras_state *s);
// A rank's last call in words; "": none yet. Pure. Returns buf.
const char *ras_last_text(const tt_ras_state *s, char buf[TT_CALL_TEXT]);

extern const char *const ras_func_names[TT_RAS_FUNCS];

// Write the report.
void ras_write_text(const ras_report *r, bool verbose, ras_text *out);
// Which rank waits for which, and why.
void ras_write_why(const ras_report *r, ras_text *out);
void ras_write_json(const ras_report *r, ras_text *out);
