// limit.h: how fast a collective could be on this machine at most, from what bench/limits.c measured.
//
// Every byte of every rank's input is read once, every byte of every rank's output is written once, by both cores at
// the rate that they have for a working set of that size (cold: for the largest). Before that, a cache line is handed
// over.
#pragma once
#include <stddef.h>
#include <stdio.h>

#include "../coll/coll_bench.h"

#define LIMIT_SIZES 32

typedef struct limit_table {
  double cores, exchange_ns, stream_ns; // hand-over: each way at once; in one direction, many under way
  int n;                                // working sets, from small to large
  double bytes[LIMIT_SIZES], copy[LIMIT_SIZES], add[LIMIT_SIZES]; // GB/s, read and written
} limit_table;

// Reads rows "name value …" as `limits sizes` prints them; unknown ones are skipped. 0 on success, 1 when rates or
// hand-overs are missing.
int limit_read(FILE *in, limit_table *t);

// Bytes that a collective has to read and write among n ranks; `bytes` are those of the large buffer.
double limit_traffic(coll_kind kind, int n, double bytes);

// Microseconds. Where there are more ranks than cores the hand-over is left out: it depends on the scheduler. 0 without
// a table.
double limit_us(const limit_table *t, coll_kind kind, int n, double bytes, int cold);

// What of the time is bandwidth as the perf programs define it, in GB/s; 0 when us is.
double limit_bus(coll_kind kind, int n, double bytes, double us);
