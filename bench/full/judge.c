// judge.c: which library is best at a point, by how much, and how far from the limit.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "full.h"

const char *const full_kinds[COLL_COUNT] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                            "reduce",     "alltoall",       "sendrecv"};

static int by_place(const void *a, const void *b)
{
  const full_point *x = a, *y = b;
  if (x->ranks != y->ranks) {
    return x->ranks < y->ranks ? -1 : 1;
  }
  if (x->kind != y->kind) {
    return x->kind < y->kind ? -1 : 1;
  }
  if (x->cold != y->cold) {
    return x->cold < y->cold ? -1 : 1;
  }
  return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

// Length of the part of a name before the colon.
static size_t stem(const char *name)
{
  return strcspn(name, ":");
}

static int same_stem(const char *a, const char *b)
{
  return stem(a) == stem(b) && strncmp(a, b, stem(a)) == 0;
}

static full_column *add_column(full_run *r, const char *name, int length, const char *more)
{
  full_column *c = &r->columns[r->ncolumns++];
  *c = (full_column){.own = 0};
  snprintf(c->name, sizeof c->name, "%.*s%s", length, name, more);
  return c;
}

static void own_columns(full_run *r)
{
  for (int i = 0; i < r->nplayers; i++) {
    const char *name = r->players[i];
    if (same_stem(name, FULL_OURS)) {
      char variant[FULL_NAME + 1] = "";
      if (name[stem(name)] == ':') {
        snprintf(variant, sizeof variant, " %s", name + stem(name) + 1);
      }
      full_column *c = add_column(r, name, (int)stem(name), variant);
      c->own = 1;
      c->players[c->n++] = i;
    }
  }
}

// The columns of the peer whose first player is `first`: as installed, and tuned when more than one setting was tried.
static void peer_columns(full_run *r, int first)
{
  full_column *plain = NULL, tuned = {.own = 0};
  for (int i = first; i < r->nplayers; i++) {
    if (!same_stem(r->players[i], r->players[first])) {
      continue;
    }
    tuned.players[tuned.n++] = i;
    if (r->players[i][stem(r->players[i])] == '\0') {
      plain = add_column(r, r->players[i], (int)stem(r->players[i]), "");
      plain->players[plain->n++] = i;
    }
  }
  if (tuned.n > 1 || plain == NULL) {
    full_column *c = add_column(r, r->players[first], (int)stem(r->players[first]), " tuned");
    c->n = tuned.n;
    memcpy(c->players, tuned.players, sizeof c->players);
  }
}

void full_columns(full_run *r)
{
  r->ncolumns = 0;
  own_columns(r);
  for (int i = 0; i < r->nplayers; i++) {
    int seen = same_stem(r->players[i], FULL_OURS);
    for (int k = 0; k < i; k++) {
      seen |= same_stem(r->players[k], r->players[i]);
    }
    if (!seen) {
      peer_columns(r, i);
    }
  }
  if (r->npoints > 0) {
    qsort(r->points, (size_t)r->npoints, sizeof r->points[0], by_place);
  }
  for (int i = 0; i < r->npoints && r->limits.n > 0; i++) {
    full_point *p = &r->points[i];
    p->limit = limit_us(&r->limits, (coll_kind)p->kind, p->ranks, p->bytes, p->cold);
  }
}

double full_us(const full_run *r, const full_point *p, int column, int *player)
{
  const full_column *c = &r->columns[column];
  double us[FULL_PLAYERS];
  for (int i = 0; i < c->n; i++) {
    us[i] = p->us[c->players[i]];
  }
  int least = stats_least(us, c->n);
  if (player != NULL) {
    *player = least < 0 ? -1 : c->players[least];
  }
  return least < 0 ? 0 : us[least];
}

full_verdict full_judge(const full_run *r, const full_point *p, int own)
{
  double us[2 * FULL_PLAYERS] = {0};
  for (int i = 0; i < r->ncolumns; i++) {
    us[i] = r->columns[i].own ? 0 : full_us(r, p, i, NULL);
  }
  full_verdict v = {.ours = full_us(r, p, own, NULL), .by = stats_least(us, r->ncolumns)};
  v.best = v.by < 0 ? 0 : us[v.by];
  v.ratio = stats_ratio(v.best, v.ours);
  v.limit = p->limit;
  v.share = stats_ratio(v.limit, v.ours);
  return v;
}

full_summary full_summarise(const full_run *r, int own, int ranks, int kind)
{
  full_summary s = {.all = {0}};
  for (int i = 0; i < r->npoints; i++) {
    const full_point *p = &r->points[i];
    if (p->ranks == ranks && (kind < 0 || p->kind == kind)) {
      double ratio = full_judge(r, p, own).ratio;
      stats_add(&s.heat[p->cold], ratio, i);
      stats_add(&s.all, ratio, i);
    }
  }
  return s;
}

int full_table_end(const full_run *r, int from)
{
  int end = from;
  while (end < r->npoints && r->points[end].ranks == r->points[from].ranks &&
         r->points[end].kind == r->points[from].kind && r->points[end].cold == r->points[from].cold) {
    end++;
  }
  return end;
}
