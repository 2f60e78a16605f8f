// place.h: what the environment says about this process's place in a job: which launcher started it, its number, and
// where the processes meet. A pure function of the variables.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "options.h"

typedef enum { PERF_BY_NOBODY, PERF_BY_TORCHRUN, PERF_BY_SLURM, PERF_BY_PMIX, PERF_BY_OPENMPI, PERF_BY_MPICH } perf_by;

typedef struct perf_place {
  perf_by by;
  int proc, procs;          // 0 and 1 when nobody launched this process; procs 0: only the PMIx server knows
  const char *rank_name;    // the variables that say so, for messages ("RANK"); "" when by is PERF_BY_NOBODY
  const char *size_name;    //
  char host[256];           // where process 0 listens; "" when that cannot be told
  int port;                 // and at which port; 0 when that cannot be told
  bool derived;             // the port was made up from the job's name: it may be taken, so others are tried
  uint64_t job;             // hash of what names the job: the same in all its processes, another in other jobs
  bool has_server;          // PERF_BY_PMIX: there is a server to ask
  bool one_machine_assumed; // host is the loopback because nothing names another one
  char missing[160];        // when host or port cannot be told: why, and what to set; else ""
} perf_place;

// Value of a variable, or NULL.
typedef const char *(*perf_lookup)(const char *name);

// Reads the variables of the launchers, in the order of perf_by. `lookup` also answers "(hydra)": what names the Hydra
// proxy that started this process, or NULL. True: *out is complete and `text` is "" or a note. False: they are
// incomplete or contradict each other, and `text` is one line that names them. Pure but for `lookup`.
bool perf_place_find(perf_lookup lookup, perf_place *out, perf_text *text);

// "Open MPI", "Slurm".
const char *perf_by_name(perf_by by);

// First host of a list as Slurm writes them, "node[07-09,12],login" gives "node07". False when it is none, or does not
// fit. Pure.
bool perf_first_host(const char *list, char *host, size_t size);

// Port number `i` of those to try for `job`: below the range from which the system takes ports for outgoing
// connections.
int perf_derived_port(uint64_t job, int i);

// Hash of a text (NULL as ""), continuing from `seed`. Keeps jobs apart that meet by mistake; no secret is safe in it.
uint64_t perf_hash(const char *text, uint64_t seed);
