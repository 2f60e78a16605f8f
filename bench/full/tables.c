// tables.c: reads the tables that print.c wrote as markdown: pictures can be drawn anew from docs/bench/tables.md.
#include <stdlib.h>
#include <string.h>

#include "full.h"

enum { COLUMNS = 64, LINE = 4096 };

// The table that is being read. players[]: of each column; LIMIT, or NONE for what follows from the others.
typedef struct table {
  int ranks, kind, cold;
  int n, players[COLUMNS];
} table;

enum { NONE = -1, LIMIT = -2 };

// The cells of "| a | b |", without the blanks around them. Returns how many.
static int split_cells(char *text, char *cells[COLUMNS])
{
  int n = 0;
  char *end;
  for (char *at = text + 1; n < COLUMNS && (end = strchr(at, '|')) != NULL; at = end + 1) {
    *end = '\0';
    cells[n] = at + strspn(at, " ");
    for (size_t length = strlen(cells[n]); length > 0 && cells[n][length - 1] == ' '; length--) {
      cells[n][length - 1] = '\0';
    }
    n++;
  }
  return n;
}

// "### all_reduce, 4 ranks (more ranks than cores), warm". What is none begins no table.
static void read_title(table *t, const char *text)
{
  char name[32] = "";
  const char *heat = strrchr(text, ',');
  *t = (table){.kind = COLL_COUNT};
  if (sscanf(text, "### %31[^,], %d ranks", name, &t->ranks) != 2 || heat == NULL) {
    return;
  }
  for (t->kind = 0; t->kind < COLL_COUNT && strcmp(full_kinds[t->kind], name) != 0; t->kind++) {
  }
  t->cold = strncmp(heat, ", cold", 6) == 0;
}

// Players before "best peer"; a blank in a column's name stands where a player's has a colon.
static int read_head(full_run *r, table *t, char *cells[], int n)
{
  int who = 0, players = 1;
  t->n = n;
  for (int i = 0; i < n && who >= 0; i++) {
    players = players && strcmp(cells[i], "best peer") != 0;
    t->players[i] = strcmp(cells[i], "limit") == 0 ? LIMIT : NONE;
    if (i > 0 && players) {
      char *blank = strchr(cells[i], ' ');
      if (blank != NULL) {
        *blank = ':';
      }
      who = t->players[i] = full_player(r, cells[i]);
    }
  }
  return who < 0;
}

static double read_size(const char *text)
{
  char unit[8] = "";
  double size = 0;
  int n = sscanf(text, "%lf %7s", &size, unit);
  return n == 2 ? size * (unit[0] == 'M' ? 1 << 20 : unit[0] == 'K' ? 1 << 10 : 1) : 0;
}

static int read_row(full_run *r, const table *t, char *cells[], int n)
{
  double bytes = read_size(cells[0]);
  full_point *p = n == t->n && bytes > 0 ? full_at(r, t->ranks, t->kind, t->cold, bytes) : NULL;
  for (int i = 1; i < n && p != NULL; i++) {
    double us = atof(cells[i]);
    if (t->players[i] >= 0) {
      p->us[t->players[i]] = us;
    } else if (t->players[i] == LIMIT) {
      p->limit = us;
    }
  }
  return p == NULL;
}

int full_load_tables(full_run *r, const char *path)
{
  char line[LINE], *cells[COLUMNS];
  table t = {.kind = COLL_COUNT};
  int res = 0, before = r->npoints, number = 0;
  FILE *in = fopen(path, "r");
  if (in == NULL) {
    perror(path);
    return 1;
  }
  while (res == 0 && fgets(line, sizeof line, in) != NULL) {
    number++;
    int n = line[0] == '|' ? split_cells(line, cells) : 0;
    if (line[0] == '#') {
      read_title(&t, line);
    } else if (n > 0 && t.kind < COLL_COUNT && strncmp(cells[0], "---", 3) != 0) {
      res = t.n == 0 ? read_head(r, &t, cells, n) : read_row(r, &t, cells, n);
    }
  }
  if (res != 0 || r->npoints == before) {
    fprintf(stderr, "coll_full: %s, line %d: cannot be read as the tables of `make bench-full`\n", path, number);
    res = 1;
  }
  fclose(in);
  return res;
}
