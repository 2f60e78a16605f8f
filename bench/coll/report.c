// report.c: medians over the rounds, ratios, tables, JSON.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "drive.h"
#include "machine.h"
#include "stats.h"

#define TWICE 0.5 // a peer's time over ours, from which on we are called slow

static const char *const heat[2] = {"warm", "cold"};

// Median over the rounds, in microseconds; 0 when nothing was measured.
static double figure(const run_options *o, const double us[MAX_ROUNDS])
{
  return stats_median(us, o->rounds);
}

// A player's time over ours at one point; 0 when one is missing.
static double ratio(const run_options *o, const results *r, int who, int kind, int size, int cold)
{
  double ours = figure(o, r->us[0][kind][size][cold]), theirs = figure(o, r->us[who][kind][size][cold]);
  return stats_ratio(theirs, ours);
}

static void print_us(double us)
{
  if (us <= 0) {
    printf(" %10s", "-");
  } else {
    printf(" %10.*f", us < 10 ? 2 : us < 1000 ? 1 : 0, us);
  }
}

static void print_head(const run_options *o, int kind)
{
  printf("\n%s, %d processes, microseconds; ratios are the other's time over ours (above 1: we are faster)\n%8s",
         coll_names[kind], o->nranks, "");
  for (int cold = o->cold == 2; cold < 1 + (o->cold > 0); cold++) {
    printf("%s %-*s", cold && o->cold == 1 ? " |" : "", 11 * o->nplayers + 9 * (o->nplayers - 1) - 1, heat[cold]);
  }
  printf("\n%8s", "size");
  for (int cold = o->cold == 2; cold < 1 + (o->cold > 0); cold++) {
    printf("%s", cold && o->cold == 1 ? " |" : "");
    for (int i = 0; i < o->nplayers; i++) {
      printf(" %10.10s", o->players[i].name);
    }
    for (int i = 1; i < o->nplayers; i++) {
      printf(" %8.8s", o->players[i].name);
    }
  }
  printf("\n");
}

static void print_half(const run_options *o, const results *r, int kind, int size, int cold)
{
  for (int i = 0; i < o->nplayers; i++) {
    print_us(figure(o, r->us[i][kind][size][cold]));
  }
  for (int i = 1; i < o->nplayers; i++) {
    double x = ratio(o, r, i, kind, size, cold);
    if (x > 0) {
      printf(" %7.2f%c", x, x < TWICE ? '!' : ' ');
    } else {
      printf(" %8s", "-");
    }
  }
}

static void print_rows(const run_options *o, const results *r, int kind)
{
  char text[24];
  for (int size = 0; size < o->nsizes; size++) {
    printf("%8s", stats_size(o->sizes[size], text));
    for (int cold = o->cold == 2; cold < 1 + (o->cold > 0); cold++) {
      printf("%s", cold && o->cold == 1 ? " |" : "");
      print_half(o, r, kind, size, cold);
    }
    printf("\n");
  }
}

// Worst ratio and geometric mean of one collective, over sizes, warm and cold.
typedef struct summary {
  double worst, mean;
  int worst_size, worst_cold;
} summary;

static summary summarise(const run_options *o, const results *r, int who, int kind)
{
  stats_mean m = {0};
  for (int size = 0; size < o->nsizes; size++) {
    for (int cold = 0; cold < 2; cold++) {
      stats_add(&m, ratio(o, r, who, kind, size, cold), 2 * size + cold);
    }
  }
  return (summary){.worst = m.worst, .mean = stats_geometric(&m), .worst_size = m.where / 2, .worst_cold = m.where % 2};
}

static void print_summary(const run_options *o, const results *r, int kind)
{
  char text[24];
  for (int i = 0; i < o->nplayers; i++) {
    if (r->wrong[i][kind] != 0) {
      printf("  %s: %d WRONG elements\n", o->players[i].name, r->wrong[i][kind]);
    }
    summary s = summarise(o, r, i, kind);
    if (i > 0 && s.worst > 0) {
      printf("  %s over %s: worst %.2f (%s %s), geometric mean %.2f\n", o->players[i].name, o->players[0].name, s.worst,
             stats_size(o->sizes[s.worst_size], text), heat[s.worst_cold], s.mean);
    }
  }
}

// The points where a player is more than twice as fast.
static void print_slow(const run_options *o, const results *r, int who)
{
  char text[24];
  int n = 0;
  for (int kind = 0; kind < COLL_COUNT; kind++) {
    for (int size = 0; size < o->nsizes; size++) {
      for (int cold = 0; cold < 2; cold++) {
        double x = ratio(o, r, who, kind, size, cold);
        if (x > 0 && x < TWICE) {
          printf("%s %s %s %s (%.1fx)", n++ == 0 ? "" : ",", coll_names[kind], stats_size(o->sizes[size], text),
                 heat[cold], 1 / x);
        }
      }
    }
  }
  printf(n == 0 ? "none\n" : "\n");
}

void report_print(const run_options *o, const results *r)
{
  for (int kind = 0; kind < COLL_COUNT; kind++) {
    if (o->kinds & 1u << kind) {
      print_head(o, kind);
      print_rows(o, r, kind);
      print_summary(o, r, kind);
    }
  }
  printf("\n");
  for (int i = 1; i < o->nplayers; i++) {
    printf("slower than 2x %s:", o->players[i].name);
    print_slow(o, r, i);
  }
}

static void json_limits(FILE *f, const char *path)
{
  char key[64];
  double value;
  FILE *in = path == NULL ? NULL : fopen(path, "r");
  fprintf(f, "  \"limits\": {");
  for (int n = 0; in != NULL && fscanf(in, "%63s %lf%*[^\n]", key, &value) == 2; n++) {
    fprintf(f, "%s\n    \"%s\": %.4g", n == 0 ? "" : ",", key, value);
  }
  fprintf(f, "\n  },\n");
  if (in != NULL) {
    fclose(in);
  }
}

static void json_player(FILE *f, const run_options *o, const double us[MAX_ROUNDS], const char *name)
{
  fprintf(f, "\"%s\": {\"us\": %.4g, \"rounds\": [", name, figure(o, us));
  for (int i = 0; i < o->rounds; i++) {
    fprintf(f, "%s%.4g", i == 0 ? "" : ", ", us[i]);
  }
  fprintf(f, "]}");
}

static void json_points(FILE *f, const run_options *o, const results *r, int kind)
{
  int n = 0;
  for (int size = 0; size < o->nsizes; size++) {
    for (int cold = 0; cold < 2; cold++) {
      if (figure(o, r->us[0][kind][size][cold]) <= 0) {
        continue;
      }
      fprintf(f, "%s\n      {\"bytes\": %zu, \"cold\": %s", n++ == 0 ? "" : ",", o->sizes[size],
              cold ? "true" : "false");
      for (int i = 0; i < o->nplayers; i++) {
        fprintf(f, ", ");
        json_player(f, o, r->us[i][kind][size][cold], o->players[i].name);
      }
      fprintf(f, "}");
    }
  }
}

// How many elements were wrong, for players that had some.
static void json_wrong(FILE *f, const run_options *o, const results *r)
{
  int n = 0;
  fprintf(f, "  \"wrong\": {");
  for (int i = 0; i < o->nplayers; i++) {
    int wrong = 0;
    for (int kind = 0; kind < COLL_COUNT; kind++) {
      wrong += r->wrong[i][kind];
    }
    if (wrong != 0) {
      fprintf(f, "%s\"%s\": %d", n++ == 0 ? "" : ", ", o->players[i].name, wrong);
    }
  }
  fprintf(f, "},\n");
}

int report_json(const run_options *o, const results *r)
{
  FILE *f = fopen(o->json, "w");
  if (f == NULL) {
    perror(o->json);
    return 1;
  }
  fprintf(f, "{\n  \"ranks\": %d,\n  \"rounds\": %d,\n  \"players\": [", o->nranks, o->rounds);
  for (int i = 0; i < o->nplayers; i++) {
    fprintf(f, "%s\"%s\"", i == 0 ? "" : ", ", o->players[i].name);
  }
  fprintf(f, "],\n");
  machine m;
  machine_read(&m, "");
  fprintf(f, "  \"machine\": ");
  machine_json(&m, f);
  fprintf(f, ",\n");
  json_wrong(f, o, r);
  json_limits(f, o->limits);
  fprintf(f, "  \"collectives\": {");
  for (int kind = 0, n = 0; kind < COLL_COUNT; kind++) {
    if (o->kinds & 1u << kind) {
      fprintf(f, "%s\n    \"%s\": {\"points\": [", n++ == 0 ? "" : ",", coll_names[kind]);
      json_points(f, o, r, kind);
      fprintf(f, "\n    ]}");
    }
  }
  fprintf(f, "\n  }\n}\n");
  return fclose(f) != 0;
}
