// fail.h: the end of a job that went wrong. The rank that detects an error says so and ends its process; the launcher
// ends the others.
#pragma once
#include <stdbool.h>

#include "launch.h"
#include "nccl.h"

// Exit statuses, nccl-tests' numbers.
enum {
  PERF_EXIT_OK = 0,
  PERF_EXIT_USAGE = 1,
  PERF_EXIT_INTERNAL = 1,
  PERF_EXIT_CUDA = 2,
  PERF_EXIT_NCCL = 3,
  PERF_EXIT_TIMEOUT = 4,
  PERF_EXIT_IMPOSSIBLE = 5,
  PERF_EXIT_WRONG = 7
};

// Says which process this is: from now on what processes other than 0 say starts with "process 2 (ranks 4-5): ".
// `ranks` is the number of ranks per process. Before any thread.
void perf_name_process(int proc, int procs, int ranks);

// "process 2 (ranks 4-5): ", or "" in process 0.
const char *perf_who(void);

// Prints a line to standard error, program and perf_who in front.
void perf_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// This process is part of a job now: if it dies, the launcher's abort is called. NULL: no longer.
void perf_in_job(perf_world *w);

// Ends the process at once with this status, after the hook below. Any thread; the first caller gets through, the
// others wait for the end.
_Noreturn void perf_die(int status);

// The same when all processes of the job do so for the same reason, from their main threads: it ends in good order.
_Noreturn void perf_quit(int status);

// Function to call once in perf_die (finishing the JSON file). NULL removes it.
void perf_on_death(void (*hook)(void *arg), void *arg);

// perf_say, then perf_die.
_Noreturn void perf_die_saying(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Prints "<host>: Test NCCL failure <file>:<line> '<result> / <last error>'" and dies. Process 0 prints to standard
// output.
_Noreturn void perf_nccl_failed(ncclResult_t result, const char *file, int line);

// Dies unless `call` gives ncclSuccess.
#define PERF_NCCL(call)                                        \
  do {                                                         \
    ncclResult_t perf_result_ = (call);                        \
    if (perf_result_ != ncclSuccess) {                         \
      perf_nccl_failed(perf_result_, __FILE_NAME__, __LINE__); \
    }                                                          \
  } while (0)

#ifndef __FILE_NAME__
#define __FILE_NAME__ __FILE__
#endif
