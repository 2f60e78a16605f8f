// workload.c: a job's collectives, as `tutti-trace workload` lists them, predicted on another machine.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/result.h"
#include "commands.h"

enum { LINE_MOST = 256, NAME_MOST = 32 };

// A line of the file.
typedef struct row {
  char name[NAME_MOST];
  size_t bytes;
  int ranks;
  double count, us; // us: of all together
} row;

typedef struct totals {
  double count, us, predicted;
  int lines, others, unknown; // others: of another number of ranks
} totals;

static const char head[] = "coll,bytes,ranks,count,us";

// False: the line is none.
static bool workload_read(const char *line, row *r)
{
  int end = 0;
  double bytes, ranks;
  bool good = sscanf(line, "%31[A-Za-z_],%lf,%lf,%lf,%lf %n", r->name, &bytes, &ranks, &r->count, &r->us, &end) == 5 &&
              line[end] == 0 && bytes >= 0 && bytes <= (double)((size_t)1 << 50) && ranks >= 1 && ranks <= 1 << 30 &&
              r->count > 0 && r->count <= 1e15 && r->us >= 0 && r->us <= 1e18;
  if (good) {
    r->bytes = (size_t)bytes;
    r->ranks = (int)ranks;
  }
  return good;
}

// A tt_model_func or XP_ALL_TO_ALL; -1: not known.
static int workload_func(const char *name)
{
  int func = XP_ALL_TO_ALL;
  while (func >= 0 && strcasecmp(name, xp_func_name(func)) != 0) {
    func--;
  }
  return func;
}

static int complain_at(const char *path, int line, const char *what)
{
  fprintf(stderr, "tutti-topo: %s:%d: %s\n", path, line, what);
  return 2;
}

// Rows of another number of ranks than those that are predicted are shown, but compare with nothing.
static int workload_write(const xp_predict *p, const row *r, totals *t, FILE *f)
{
  double one = 0;
  char predicted[32] = "-", error[16] = "";
  if (p->predict(p->arg, workload_func(r->name), r->bytes, &one) != ncclSuccess) {
    return xp_complain(1);
  }
  bool other = r->ranks != p->nranks, known = !isnan(one);
  if (known) {
    snprintf(predicted, sizeof predicted, "%.1f", one);
  }
  if (known && !other && r->us > 0) {
    snprintf(error, sizeof error, "%+.1f%%", 100 * (one * r->count / r->us - 1));
  }
  fprintf(f, "%-14s %14zu %6d %10.0f %14.1f %14s %9s\n", xp_func_name(workload_func(r->name)), r->bytes, r->ranks,
          r->count, r->us / r->count, predicted, other ? "*" : error);
  t->others += other;
  t->unknown += !known;
  if (known) {
    *t = (totals){t->count + r->count, t->us + r->us, t->predicted + one * r->count, t->lines, t->others, t->unknown};
  }
  t->lines++;
  return 0;
}

static int workload_line(const char *path, int number, const char *line, const xp_predict *p, totals *t, FILE *f)
{
  row r;
  if (line[0] == '#' || line[0] == 0 || strcmp(line, head) == 0) {
    return 0;
  }
  if (!workload_read(line, &r)) {
    return complain_at(path, number, "coll,bytes,ranks,count,us is expected, as tutti-trace workload writes it");
  }
  if (workload_func(r.name) < 0) {
    return complain_at(path, number, "this collective is not known");
  }
  return workload_write(p, &r, t, f);
}

static void workload_sum(const totals *t, const xp_predict *p, FILE *f)
{
  if (t->unknown > 0) {
    fprintf(f, "# -: no model predicts these; they are not in the sum\n");
  }
  if (t->others > 0) {
    fprintf(f, "# *: of another number of ranks than the %d that are predicted\n", p->nranks);
  }
  fprintf(f, "# all: %.0f collectives took %.3f ms, predicted %.3f ms", t->count, t->us / 1e3, t->predicted / 1e3);
  if (t->us > 0 && t->others == 0) {
    fprintf(f, " (%+.1f%%)", 100 * (t->predicted / t->us - 1));
  }
  fputc('\n', f);
}

static int workload_lines(const char *path, FILE *in, const xp_predict *p, FILE *f)
{
  char line[LINE_MOST];
  int number = 0, code = 0;
  bool begins = true, comment = false;
  totals t = {0};
  while (code == 0 && fgets(line, sizeof line, in) != NULL) {
    size_t n = strlen(line);
    bool whole = n > 0 && line[n - 1] == '\n';
    comment = begins ? line[0] == '#' : comment;
    number += begins;
    begins = whole || feof(in);
    if (comment) {
      continue;
    }
    if (!begins) {
      return complain_at(path, number, "the line is too long, or no text");
    }
    line[strcspn(line, "\r\n")] = 0;
    code = workload_line(path, number, line, p, &t, f);
  }
  if (code == 0 && (ferror(in) || t.lines == 0)) {
    fprintf(stderr, "tutti-topo: %s: %s\n", path, ferror(in) ? strerror(errno) : "there is no collective");
    return 2;
  }
  if (code == 0) {
    workload_sum(&t, p, f);
  }
  return code;
}

int xp_write_workload(const char *path, const xp_predict *p, FILE *f)
{
  FILE *in = fopen(path, "re");
  if (in == NULL) {
    fprintf(stderr, "tutti-topo: %s: %s\n", path, strerror(errno));
    return 2;
  }
  fprintf(f, "# %-12s %14s %6s %10s %14s %14s %9s\n", "collective", "bytes", "ranks", "count", "measured us",
          "predicted us", "error");
  int code = workload_lines(path, in, p, f);
  fclose(in);
  return code;
}
