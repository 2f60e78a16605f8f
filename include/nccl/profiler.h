// nccl/profiler.h: the profiler's interface in all versions; the newest under the plain names. profiler_common.h tells
// how a profiler lives.
#ifndef TUTTI_NCCL_PROFILER_H
#define TUTTI_NCCL_PROFILER_H

#include "profiler_net.h"
#include "profiler_v1.h"
#include "profiler_v2.h"
#include "profiler_v3.h"
#include "profiler_v4.h"
#include "profiler_v5.h"
#include "profiler_v6.h"
#include "profiler_v7.h"

typedef ncclProfiler_v7_t ncclProfiler_t;
typedef ncclProfilerEventDescr_v7_t ncclProfilerEventDescr_t;
typedef ncclProfilerEventStateArgs_v7_t ncclProfilerEventStateArgs_t;

#endif
