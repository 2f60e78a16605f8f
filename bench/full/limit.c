// limit.c: the machine's limits for whole messages.
#include "limit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void add_rate(limit_table *t, double bytes, double *which, double value)
{
  if (t->n == 0 || t->bytes[t->n - 1] < bytes) {
    if (t->n == LIMIT_SIZES) {
      return;
    }
    t->bytes[t->n++] = bytes;
  }
  which[t->n - 1] = value;
}

int limit_read(FILE *in, limit_table *t)
{
  char name[64];
  double value;
  *t = (limit_table){0};
  while (fscanf(in, "%63s %lf%*[^\n]", name, &value) == 2) {
    if (strncmp(name, "copy_", 5) == 0) {
      add_rate(t, atof(name + 5), t->copy, value);
    } else if (strncmp(name, "add_", 4) == 0) {
      add_rate(t, atof(name + 4), t->add, value);
    } else if (strcmp(name, "line_exchange") == 0) {
      t->exchange_ns = value;
    } else if (strcmp(name, "line_stream") == 0) {
      t->stream_ns = value;
    } else if (strcmp(name, "cores") == 0) {
      t->cores = value;
    }
  }
  int whole = t->n > 0 && t->exchange_ns > 0 && t->stream_ns > 0 && t->cores > 0;
  for (int i = 0; i < t->n; i++) {
    whole = whole && t->copy[i] > 0 && t->add[i] > 0;
  }
  return !whole;
}

double limit_traffic(coll_kind kind, int n, double bytes)
{
  switch (kind) {
  case COLL_REDUCE_SCATTER:
  case COLL_ALL_GATHER:
  case COLL_REDUCE: return (n + 1) * bytes;
  case COLL_BROADCAST: return n * bytes;
  default: return 2 * n * bytes;
  }
}

// Between two measured sizes: straight in the logarithms. Outside: the nearest.
static double rate_at(const limit_table *t, const double *rate, double bytes)
{
  int i = 0;
  while (i < t->n && t->bytes[i] < bytes) {
    i++;
  }
  if (i == 0 || i == t->n) {
    return rate[i == 0 ? 0 : t->n - 1];
  }
  double part = log(bytes / t->bytes[i - 1]) / log(t->bytes[i] / t->bytes[i - 1]);
  return exp(log(rate[i - 1]) * (1 - part) + log(rate[i]) * part);
}

double limit_us(const limit_table *t, coll_kind kind, int n, double bytes, int cold)
{
  if (t->n == 0) {
    return 0;
  }
  int reduces = kind == COLL_ALL_REDUCE || kind == COLL_REDUCE_SCATTER || kind == COLL_REDUCE;
  int pipelined = kind == COLL_BROADCAST || kind == COLL_REDUCE; // no rank waits for an answer
  double traffic = limit_traffic(kind, n, bytes);
  double gbs = rate_at(t, reduces ? t->add : t->copy, cold ? t->bytes[t->n - 1] : traffic);
  double hand_over = n > t->cores ? 0 : pipelined ? t->stream_ns : t->exchange_ns;
  return 1e-3 * hand_over + 1e-3 * traffic / gbs;
}

double limit_bus(coll_kind kind, int n, double bytes, double us)
{
  double part = (n - 1.0) / n;
  double factor = kind == COLL_ALL_REDUCE                                                             ? 2 * part
                  : kind == COLL_REDUCE_SCATTER || kind == COLL_ALL_GATHER || kind == COLL_ALL_TO_ALL ? part
                                                                                                      : 1;
  return us > 0 ? 1e-3 * bytes * factor / us : 0;
}
