// tuning.h: how the library carries an operation out (-U). The program is its own profiler: the library tells it of one
// operation per size that is not timed. While times are taken its mask is 0, so -U changes no time.
//
// begin and end: one thread of the process, the one that prints. The profiler's callbacks: any thread.
#pragma once
#include "report.h"

// Names this program in NCCL_PROFILER_PLUGIN, behind the profilers that stand there. Before the library is used, and
// before processes are forked. False: no memory.
bool perf_tuning_prepare(void);

// The next operation that the calling thread issues is watched, on its first rank.
void perf_tuning_begin(void);

// It has completed: *out says how it was carried out. What nobody told is "" or 0; says once on standard error if the
// library does not use this profiler.
void perf_tuning_end(perf_tuning *out);
