// choose.c: from times to lines of the file.
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "tune.h"

const tn_config tn_configs[] = {{NULL, NULL, NULL},
                                {"Ring", "LL", "ring,ll"},
                                {"Ring", "Simple", "ring,simple"},
                                {"Tree", "LL", "tree,ll"},
                                {"Tree", "Simple", "tree,simple"},
                                {"PAT", "LL", "pat,ll"},
                                {"PAT", "Simple", "pat,simple"},
                                {"RD", "LL", "rd,ll"},
                                {"RD", "Simple", "rd,simple"},
                                {"Oneshot", "LL", "oneshot,ll"},
                                {"Oneshot", "Simple", "oneshot,simple"},
                                {"Direct", "Simple", "direct,simple"},
                                {"DirectWrite", "Simple", "direct_write,simple"}};
const int tn_nconfigs = (int)(sizeof tn_configs / sizeof *tn_configs);
const char *const tn_funcs[TN_FUNCS] = {"broadcast", "reduce", "allgather", "reducescatter", "allreduce"};

#define WORTH 0.95

void tn_times_begin(tn_times *t, int ranks, size_t max_bytes)
{
  memset(t, 0, sizeof *t);
  t->ranks = ranks;
  for (size_t bytes = 64; bytes <= max_bytes && t->nsizes < TN_SIZES; bytes *= 4, t->nsizes++) {
    for (int f = 0; f < TN_FUNCS; f++) {
      bool blocks = f == 2 || f == 3;
      size_t unit = sizeof(float) * (blocks ? (size_t)ranks : 1), units = bytes / unit;
      t->bytes[f][t->nsizes] = (units > 0 ? units : 1) * unit;
    }
  }
}

// The configuration for a size; 0: the library's own choice.
static int best(const tn_times *t, int f, int s)
{
  int at = 0;
  double least = t->us[0][f][s] * WORTH;
  for (int c = 1; c < tn_nconfigs; c++) {
    if (t->us[c][f][s] > 0 && t->us[c][f][s] < least) {
      least = t->us[c][f][s];
      at = c;
    }
  }
  return at;
}

// Half way between two sizes, as ratios go.
static size_t between(size_t a, size_t b)
{
  return (size_t)sqrt((double)a * (double)b);
}

int tn_write_choices(FILE *f, const tn_times *t)
{
  int lines = 0;
  for (int func = 0; func < TN_FUNCS; func++) {
    for (int s = 0, last; s < t->nsizes; s = last + 1) {
      int config = best(t, func, s);
      for (last = s; last + 1 < t->nsizes && best(t, func, last + 1) == config;) {
        last++;
      }
      if (config == 0) {
        continue;
      }
      size_t from = s == 0 ? 0 : between(t->bytes[func][s - 1], t->bytes[func][s]) + 1;
      size_t to = last + 1 == t->nsizes ? SIZE_MAX : between(t->bytes[func][last], t->bytes[func][last + 1]);
      fprintf(f, "# %zu bytes: %.1f us, by itself %.1f us\n", t->bytes[func][s], t->us[config][func][s],
              t->us[0][func][s]);
      fprintf(f, "%s,%zu,%zu,%s,-1,1,%d,-1,-1\n", tn_funcs[func], from, to, tn_configs[config].name, t->ranks);
      lines++;
    }
  }
  return lines;
}
