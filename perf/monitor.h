// monitor.h: one thread per process that watches the others: -T (gives up on a wait that lasts too long) and the
// progress line.
#pragma once
#include <stdbool.h>
#include <stddef.h>

typedef struct perf_monitor perf_monitor;

// Watches `threads` threads. timeout: seconds, 0 for none. progress: show a progress line on standard error once the
// run lasts 2 seconds. No thread is started when there is nothing to watch. NULL: no memory. Free with
// perf_monitor_destroy (NULL allowed).
perf_monitor *perf_monitor_create(int threads, int timeout, bool progress);
void perf_monitor_destroy(perf_monitor *m);

// Brackets a wait of thread `thread` for `what` (a string that stays). A wait longer than the timeout ends the process
// with status 4.
void perf_monitor_begin(perf_monitor *m, int thread, const char *what);
void perf_monitor_end(perf_monitor *m, int thread);

// Says how far the job is: `done` of `total` steps (total 0: endless), now at `size` bytes.
void perf_monitor_progress(perf_monitor *m, size_t done, size_t total, size_t size);

// Writes `text` to standard output, where no half progress line may stand in its way.
void perf_monitor_print(perf_monitor *m, const char *text);
