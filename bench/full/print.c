// print.c: tables and summaries, as text or as markdown.
#include <string.h>

#include "full.h"

static const char *const heat[2] = {"warm", "cold"};

// A table that is being written, cell by cell.
typedef struct sheet {
  FILE *out;
  int markdown;
} sheet;

static void cell(const sheet *s, const char *text)
{
  fprintf(s->out, s->markdown ? " %s |" : " %16s", text);
}

static void begin_row(const sheet *s, const char *first)
{
  fprintf(s->out, s->markdown ? "| %s |" : "%-15s", first);
}

static void end_row(const sheet *s)
{
  fprintf(s->out, "\n");
}

// Under the first row.
static void rule(const sheet *s, int cells)
{
  for (int i = 0; i <= cells && s->markdown; i++) {
    fprintf(s->out, "|---");
  }
  if (s->markdown) {
    fprintf(s->out, "|\n");
  }
}

static void number_cell(const sheet *s, double value, int digits)
{
  char text[32] = "-";
  if (value > 0) {
    snprintf(text, sizeof text, "%.*f", digits, value);
  }
  cell(s, text);
}

static void us_cell(const sheet *s, double us)
{
  number_cell(s, us, us < 10 ? 2 : us < 1000 ? 1 : 0);
}

static void title(const sheet *s, const full_run *r, const full_point *p)
{
  const char *more = p->ranks > r->limits.cores && r->limits.cores > 0 ? " (more ranks than cores)" : "";
  fprintf(s->out, "\n%s%s, %d ranks%s, %s\n\n", s->markdown ? "### " : "", full_kinds[p->kind], p->ranks, more,
          heat[p->cold]);
}

// Was this column measured anywhere in the table?
static int used(const full_run *r, int column, int from, int end)
{
  for (int i = from; i < end; i++) {
    if (full_us(r, &r->points[i], column, NULL) > 0) {
      return 1;
    }
  }
  return 0;
}

static void table_head(const sheet *s, const full_run *r, int from, int end)
{
  char text[FULL_NAME + 16];
  int cells = 2;
  begin_row(s, "us");
  for (int i = 0; i < r->ncolumns; i++) {
    if (used(r, i, from, end)) {
      cell(s, r->columns[i].name);
      cells += r->columns[i].own ? 3 : 1;
    }
  }
  cell(s, "best peer");
  cell(s, "limit");
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < r->ncolumns; i++) {
      if (r->columns[i].own && used(r, i, from, end)) {
        snprintf(text, sizeof text, "%s %s", pass ? "%" : "x", r->columns[i].name);
        cell(s, text);
      }
    }
  }
  end_row(s);
  rule(s, cells);
}

static void table_row(const sheet *s, const full_run *r, int row, int from, int end)
{
  const full_point *p = &r->points[row];
  char text[24];
  begin_row(s, stats_size((size_t)p->bytes, text));
  full_verdict v = full_judge(r, p, 0);
  for (int i = 0; i < r->ncolumns; i++) {
    if (used(r, i, from, end)) {
      us_cell(s, full_us(r, p, i, NULL));
    }
  }
  cell(s, v.by < 0 ? "-" : r->columns[v.by].name);
  us_cell(s, v.limit);
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < r->ncolumns; i++) {
      if (r->columns[i].own && used(r, i, from, end)) {
        v = full_judge(r, p, i);
        number_cell(s, pass ? 100 * v.share : v.ratio, pass ? 0 : 2);
      }
    }
  }
  end_row(s);
}

static void print_table(const sheet *s, const full_run *r, int from, int end)
{
  title(s, r, &r->points[from]);
  table_head(s, r, from, end);
  for (int i = from; i < end; i++) {
    table_row(s, r, i, from, end);
  }
}

static void worst_cell(const sheet *s, const full_run *r, const stats_mean *m, int own)
{
  char text[128] = "-", size[24];
  if (m->n > 0) {
    const full_point *p = &r->points[m->where];
    full_verdict v = full_judge(r, p, own);
    snprintf(text, sizeof text, "%.2f: %s %s %s, %s", m->worst, full_kinds[p->kind], stats_size((size_t)p->bytes, size),
             heat[p->cold], r->columns[v.by].name);
  }
  fprintf(s->out, s->markdown ? " %s |" : "  %s", text);
}

static void summary_row(const sheet *s, const full_run *r, int own, int ranks, int kind)
{
  full_summary m = full_summarise(r, own, ranks, kind);
  if (m.all.n == 0) {
    return;
  }
  begin_row(s, kind < 0 ? "all" : full_kinds[kind]);
  number_cell(s, stats_geometric(&m.heat[0]), 2);
  number_cell(s, stats_geometric(&m.heat[1]), 2);
  number_cell(s, stats_geometric(&m.all), 2);
  worst_cell(s, r, &m.all, own);
  end_row(s);
}

static void print_summary(const sheet *s, const full_run *r, int own, int ranks)
{
  full_summary m = full_summarise(r, own, ranks, -1);
  if (m.all.n == 0) {
    return;
  }
  fprintf(s->out, "\n%s%d ranks, %s: the best peer's time over ours, geometric means (above 1: ours is faster)\n\n",
          s->markdown ? "### " : "", ranks, r->columns[own].name);
  begin_row(s, "");
  cell(s, "warm");
  cell(s, "cold");
  cell(s, "both");
  fprintf(s->out, s->markdown ? " worst |\n" : "  worst\n");
  rule(s, 4);
  for (int kind = 0; kind < COLL_COUNT; kind++) {
    summary_row(s, r, own, ranks, kind);
  }
  summary_row(s, r, own, ranks, -1);
}

static void print_rounds(const sheet *s, const full_run *r)
{
  int least = 0, most = 0;
  for (int i = 0; i < r->npoints; i++) {
    for (int k = 0; k < r->nplayers; k++) {
      int n = r->points[i].rounds[k];
      least = n > 0 && (least == 0 || n < least) ? n : least;
      most = n > most ? n : most;
    }
  }
  if (most == 0) { // they are not known of tables that were read
    return;
  }
  fprintf(s->out,
          "\nMedians of %d to %d rounds. x: the best peer's time over ours; %%: the limit over ours, in percent.\n",
          least, most);
  for (int k = 0; k < r->nplayers; k++) {
    if (r->wrong[k] != 0) {
      fprintf(s->out, "%s: %d WRONG elements\n", r->players[k], r->wrong[k]);
    }
  }
}

void full_print(const full_run *r, FILE *out, int markdown)
{
  sheet s = {.out = out, .markdown = markdown};
  if (markdown) {
    fprintf(out, "# The whole comparison\n\nWritten by `make bench-full`, whose README (bench/full) says what was "
                 "measured and how. Microseconds.\n");
  }
  for (int i = 0; i < r->nmachines; i++) {
    fprintf(out, "\nMachine: ");
    machine_print(&r->machines[i], out);
  }
  print_rounds(&s, r);
  for (int from = 0, end; from < r->npoints; from = end) {
    end = full_table_end(r, from);
    print_table(&s, r, from, end);
  }
  for (int i = 0; i < r->npoints; i++) {
    for (int own = 0; own < r->ncolumns && (i == 0 || r->points[i].ranks != r->points[i - 1].ranks); own++) {
      if (r->columns[own].own) {
        print_summary(&s, r, own, r->points[i].ranks);
      }
    }
  }
}
