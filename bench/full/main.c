// main.c: the report of `make bench-full`, from what its parts measured.
//
//   coll_full [-l limits] [-t tables] [-o json] [-m markdown] [-p folder] [part.json …]
//     -l  what `limits sizes` printed
//     -o  everything as JSON
//     -m  the tables once more as markdown
//     -p  folder for the pictures
//     -t  tables that -m wrote: draws their pictures anew
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "full.h"

static int read_limits(full_run *r, const char *path)
{
  FILE *in = fopen(path, "r");
  if (in == NULL || limit_read(in, &r->limits) != 0) {
    fprintf(stderr, "coll_full: %s: no rates or hand-overs in it; there will be no limits\n", path);
    r->limits = (limit_table){0};
  }
  if (in != NULL) {
    fclose(in);
  }
  return 0;
}

// A picture for each collective and number of ranks: all_reduce-2.svg.
static int write_plots(const full_run *r, const char *folder)
{
  char path[4096];
  int res = 0;
  for (int from = 0, end; from < r->npoints && res == 0; from = end) {
    const full_point *p = &r->points[from];
    end = full_table_end(r, from);
    if (end < r->npoints && r->points[end].ranks == p->ranks && r->points[end].kind == p->kind) {
      end = full_table_end(r, end);
    }
    snprintf(path, sizeof path, "%s/%s-%d.svg", folder, full_kinds[p->kind], p->ranks);
    FILE *out = fopen(path, "w");
    if (out == NULL) {
      perror(path);
      return 1;
    }
    full_plot(r, out, from, end);
    res = fclose(out) != 0;
  }
  return res;
}

static int write_markdown(const full_run *r, const char *path)
{
  FILE *out = fopen(path, "w");
  if (out == NULL) {
    perror(path);
    return 1;
  }
  full_print(r, out, 1);
  return fclose(out) != 0;
}

int main(int argc, char **argv)
{
  static full_run r;
  const char *json = NULL, *markdown = NULL, *folder = NULL;
  int res = 0;
  bool usage = false;
  for (int c; (c = getopt(argc, argv, "l:t:o:m:p:")) != -1;) {
    switch (c) {
    case 'l': res |= read_limits(&r, optarg); break;
    case 't': res |= full_load_tables(&r, optarg); break;
    case 'o': json = optarg; break;
    case 'm': markdown = optarg; break;
    case 'p': folder = optarg; break;
    default: usage = true;
    }
  }
  if (usage || (optind >= argc && r.npoints == 0 && res == 0)) {
    fprintf(stderr, "usage: coll_full [-l limits] [-t tables] [-o json] [-m markdown] [-p folder] [part.json ...]\n");
    return 2;
  }
  if (res != 0) {
    return res; // said already
  }
  for (; optind < argc; optind++) {
    res |= full_load(&r, argv[optind]);
  }
  full_columns(&r);
  full_print(&r, stdout, 0);
  res |= json != NULL && full_json(&r, json) != 0;
  res |= markdown != NULL && write_markdown(&r, markdown) != 0;
  res |= folder != NULL && write_plots(&r, folder) != 0;
  full_free(&r);
  return res;
}
