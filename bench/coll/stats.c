// stats.c: medians, geometric means, the least of several.
#include "stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double stats_median(const double *v, int n)
{
  double sorted[STATS_MAX] = {0};
  int have = 0;
  for (int i = 0; i < n && have < STATS_MAX; i++) {
    if (v[i] > 0) {
      sorted[have++] = v[i];
    }
  }
  if (have == 0) {
    return 0;
  }
  qsort(sorted, (size_t)have, sizeof sorted[0], by_value);
  return have % 2 == 1 ? sorted[have / 2] : (sorted[have / 2 - 1] + sorted[have / 2]) / 2;
}

void stats_add(stats_mean *m, double value, int where)
{
  if (!(value > 0)) {
    return;
  }
  m->logs += log(value);
  if (m->n++ == 0 || value < m->worst) {
    m->worst = value;
    m->where = where;
  }
}

double stats_geometric(const stats_mean *m)
{
  return m->n == 0 ? 0 : exp(m->logs / m->n);
}

int stats_least(const double *v, int n)
{
  int least = -1;
  for (int i = 0; i < n; i++) {
    if (v[i] > 0 && (least < 0 || v[i] < v[least])) {
      least = i;
    }
  }
  return least;
}

double stats_ratio(double theirs, double ours)
{
  return theirs > 0 && ours > 0 ? theirs / ours : 0;
}

const char *stats_size(size_t bytes, char text[24])
{
  const char *unit = bytes >= 1u << 20 ? "MiB" : bytes >= 1u << 10 ? "KiB" : "B";
  snprintf(text, 24, "%zu %s", bytes >= 1u << 20 ? bytes >> 20 : bytes >= 1u << 10 ? bytes >> 10 : bytes, unit);
  return text;
}
