// full.h: the report of `make bench-full`: what the parts measured (load.c), compared (judge.c), as tables (print.c),
// JSON (json.c) and pictures (plot.c). Tables that were printed as markdown can be read again (tables.c).
//
// A player is what was measured under one name: "tutti" and "tutti:VARIANT" are this library, "NAME" is a peer as
// installed, "NAME:SETTING" the same peer with another setting. A column is what is printed: each of ours, each peer as
// installed, and "NAME tuned", the best of all its settings at each point.
#pragma once
#include <stddef.h>
#include <stdio.h>

#include "../coll/coll_bench.h"
#include "../coll/machine.h"
#include "../coll/stats.h"
#include "limit.h"

#define FULL_PLAYERS 32
#define FULL_NAME 40
#define FULL_OURS "tutti"

// One collective at one size.
typedef struct full_point {
  int ranks, kind, cold;
  double bytes;
  double limit;             // microseconds at least; 0: not known
  double us[FULL_PLAYERS];  // by player; 0: not measured
  int rounds[FULL_PLAYERS]; // that the median was made from
} full_point;

typedef struct full_column {
  char name[FULL_NAME + 8];
  int own;
  int n, players[FULL_PLAYERS]; // of which the best counts
} full_column;

typedef struct full_run {
  int nplayers, npoints, ncolumns;
  char players[FULL_PLAYERS][FULL_NAME];
  int wrong[FULL_PLAYERS]; // elements
  full_point *points;      // sorted: ranks, collective, warm or cold, size
  full_column columns[2 * FULL_PLAYERS];
  limit_table limits;
  int nmachines; // that measured
  machine machines[MACHINE_MOST];
} full_run;

// What came out at one point for one of our columns.
typedef struct full_verdict {
  double ours, best;   // microseconds; 0: missing
  int by;              // column of the best peer; -1: none
  double ratio;        // best / ours
  double limit, share; // microseconds; limit / ours
} full_verdict;

// Geometric means of ratios, and where the worst is.
typedef struct full_summary {
  stats_mean heat[2], all; // warm, cold, both; `where` is the number of a point
} full_summary;

extern const char *const full_kinds[COLL_COUNT];

// load.c. Adds what one part measured, a file as coll_drive writes it. 0 on success; what is wrong is said with the
// file's name.
int full_load(full_run *r, const char *path);
// The same of a file of tables, docs/bench/tables.md: medians as far as they were printed, and limits.
int full_load_tables(full_run *r, const char *path);
// Number of the player of that name, made when it is new; -1 when there are too many.
int full_player(full_run *r, const char *name);
// The point, made when it is new; NULL without memory.
full_point *full_at(full_run *r, int ranks, int kind, int cold, double bytes);
void full_free(full_run *r);

// judge.c. Makes columns, sorts points and sets their limits where the table is known, once everything is loaded.
void full_columns(full_run *r);
// A column's time at a point, 0 when missing; *player (may be NULL): whose.
double full_us(const full_run *r, const full_point *p, int column, int *player);
full_verdict full_judge(const full_run *r, const full_point *p, int own);
// Of all points with that many ranks and that collective (-1: any).
full_summary full_summarise(const full_run *r, int own, int ranks, int kind);
// Number of the first point from `from` on that belongs to another table (ranks, collective, warm or cold); one past a
// table's last.
int full_table_end(const full_run *r, int from);

// print.c. All tables and summaries; markdown: as such, else as text.
void full_print(const full_run *r, FILE *out, int markdown);
// json.c. 0 on success.
int full_json(const full_run *r, const char *path);
// plot.c. One picture of all points from `from` to before `end`, which are of one collective among as many ranks:
// bandwidth, time of small messages and the best peer's time over ours.
void full_plot(const full_run *r, FILE *out, int from, int end);
