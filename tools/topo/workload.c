// workload.c: a job's collectives, as `tutti-trace workload` lists them, predicted on another machine.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
  int lines;
} totals;

static const char head[] = "coll,bytes,ranks,count,us";

// False: the line is none.
static bool read_row(const char *line, row *r)
{
  int end = 0;
  return sscanf(line, "%31[A-Za-z_],%zu,%d,%lf,%lf %n", r->name, &r->bytes, &r->ranks, &r->count, &r->us, &end) == 5 &&
         line[end] == 0 && r->bytes <= (size_t)1 << 50 && r->ranks > 0 && r->count > 0 && r->us >= 0 &&
         r->count <= 1e15 && r->us <= 1e18;
}

static int complain_at(const char *path, int line, const char *what)
{
  fprintf(stderr, "tutti-topo: %s:%d: %s\n", path, line, what);
  return 2;
}

static int write_row(const xp_predict *p, const row *r, totals *t, FILE *f)
{
  double one = 0;
  char error[16] = "";
  int func = xp_func_of(r->name);
  if (func < 0) {
    return 2;
  }
  if (p->predict(p->arg, func, r->bytes, &one) != ncclSuccess) {
    return xp_complain(1);
  }
  if (r->us > 0) {
    snprintf(error, sizeof error, "%+.1f%%", 100 * (one * r->count / r->us - 1));
  }
  fprintf(f, "%-14s %14zu %6d %10.0f %14.1f %14.1f %9s\n", xp_func_name(func), r->bytes, r->ranks, r->count,
          r->us / r->count, one, error);
  *t = (totals){t->count + r->count, t->us + r->us, t->predicted + one * r->count, t->lines + 1};
  return 0;
}

static int write_rows(const char *path, FILE *in, const xp_predict *p, FILE *f)
{
  char line[LINE_MOST];
  int number = 0, code = 0;
  row r;
  totals t = {0};
  while (code == 0 && fgets(line, sizeof line, in) != NULL) {
    size_t n = strlen(line);
    number++;
    if (n > 0 && line[n - 1] != '\n' && !feof(in)) {
      return complain_at(path, number, "the line is too long");
    }
    line[strcspn(line, "\r\n")] = 0;
    if (line[0] == '#' || line[0] == 0 || strcmp(line, head) == 0) {
      continue;
    }
    code = read_row(line, &r)
               ? write_row(p, &r, &t, f)
               : complain_at(path, number, "coll,bytes,ranks,count,us is expected, as tutti-trace workload writes it");
  }
  if (code == 0 && (ferror(in) || t.lines == 0)) {
    return complain_at(path, number, ferror(in) ? strerror(errno) : "there is no collective");
  }
  if (code == 0) {
    fprintf(f, "# all: %.0f collectives took %.3f ms, predicted %.3f ms (%+.1f%%)\n", t.count, t.us / 1e3,
            t.predicted / 1e3, t.us > 0 ? 100 * (t.predicted / t.us - 1) : 0);
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
  int code = write_rows(path, in, p, f);
  fclose(in);
  return code;
}
