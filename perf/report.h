// report.h: the table on standard output, column for column that of nccl-tests 2.21. Everything is formatted into
// strings.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options.h"

// Statistics of per-iteration times, in seconds.
typedef struct perf_iter_stats {
  double min, max, avg, p50, p95, p99, stdev;
} perf_iter_stats;

// One measurement: out of place or in place.
typedef struct perf_result {
  double usec, alg_bw, bus_bw; // microseconds, GB/s
  int64_t wrong;
  bool checked;          // else #wrong is N/A
  perf_iter_stats stats; // with -I
  double *times;         // with -I: seconds per iteration, greatest over all ranks
  double *rows;          // with -I and several processes: procs * iters, greatest over each process's ranks
} perf_result;

// How the library carried an operation out, out of place (-U). A text that is "" and a number that is 0: not known, or
// without a meaning.
typedef struct perf_tuning {
  char implementation[16]; // "collective", "symmetric" (windows), "p2p" (made of sends and receives)
  char algo[24], proto[16], variant[40];
  int channels, warps;
  int chunk; // bytes of a message, at most
} perf_tuning;

// One line.
typedef struct perf_row {
  size_t bytes, count;
  const char *type, *op;
  int root;
  perf_result result[2]; // out of place, in place
  perf_tuning tuning;    // with -U
} perf_row;

// One rank's device.
typedef struct perf_device {
  int rank, group, pid, device;
  char host[64];
  char bus[16]; // "0000:03:00", made from the device number
  char info[96];
} perf_device;

// Memory of one phase.
typedef struct perf_memory {
  const char *phase;
  int64_t bytes;
} perf_memory;

// `value` in `width` characters with as many decimals (two at most) as fit. buf: width + 1 bytes at least.
void perf_format_fixed(double value, int width, char *buf);

// Statistics of n > 0 times. p95 and p99 are nearest-rank. False: no memory.
bool perf_iter_statistics(const double *times, int n, perf_iter_stats *out);

// Each appends to nothing but buf (size bytes, always terminated).
void perf_report_start(const perf_options *o, const char *program, int library_version, char *buf, size_t size);
void perf_report_device(const perf_device *d, char *buf, size_t size);
void perf_report_columns(const perf_options *o, char *buf, size_t size);
// `stamp`: with -S, else NULL.
void perf_report_row(const perf_options *o, const perf_row *row, const char *stamp, char *buf, size_t size);
// min_bw: NCCL_TESTS_MIN_BW, or -1.
void perf_report_footer(const char *program, long errors, double bus_bw, double min_bw, char *buf, size_t size);
void perf_report_memory(const perf_memory *m, int count, char *buf, size_t size);
