// stats.h: the arithmetic of the reports, without any input or output.
#pragma once
#include <stddef.h>

// Median of the values above 0 (others were not measured); 0 when there is none. n at most STATS_MAX.
#define STATS_MAX 64
double stats_median(const double *v, int n);

// A geometric mean that grows value by value, and the least of the values with a number that says where it was.
typedef struct stats_mean {
  double logs, worst;
  int n, where; // where: what stats_add was told with the worst value
} stats_mean;
// Values of 0 and less are missing ones: left out.
void stats_add(stats_mean *m, double value, int where);
// 0 when there was no value.
double stats_geometric(const stats_mean *m);

// Index of the least value above 0 among n; -1 when all are missing.
int stats_least(const double *v, int n);

// theirs / ours; 0 when one of them is missing.
double stats_ratio(double theirs, double ours);

// "8 B", "64 KiB", "256 MiB", into text.
const char *stats_size(size_t bytes, char text[24]);
