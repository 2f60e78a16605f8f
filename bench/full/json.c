// json.c: the report as JSON: every figure, every setting, what was best, the limit.
#include <jansson.h>

#include "full.h"

static json_t *number(double value)
{
  return value > 0 ? json_real(value) : json_null();
}

static json_t *column_json(const full_run *r, const full_point *p, int column)
{
  int player;
  json_t *o = json_object();
  double us = full_us(r, p, column, &player);
  json_object_set_new(o, "us", number(us));
  json_object_set_new(o, "busbw", number(limit_bus((coll_kind)p->kind, p->ranks, p->bytes, us)));
  if (player >= 0) {
    json_object_set_new(o, "setting", json_string(r->players[player]));
    json_object_set_new(o, "rounds", json_integer(p->rounds[player]));
  }
  if (r->columns[column].own) {
    full_verdict v = full_judge(r, p, column);
    json_object_set_new(o, "ratio", number(v.ratio));
    json_object_set_new(o, "share_of_limit", number(v.share));
  }
  return o;
}

static json_t *point_json(const full_run *r, const full_point *p)
{
  json_t *o = json_object(), *columns = json_object();
  full_verdict v = full_judge(r, p, 0);
  json_object_set_new(o, "ranks", json_integer(p->ranks));
  json_object_set_new(o, "collective", json_string(full_kinds[p->kind]));
  json_object_set_new(o, "cold", json_boolean(p->cold));
  json_object_set_new(o, "bytes", json_integer((json_int_t)p->bytes));
  json_object_set_new(o, "limit_us", number(v.limit));
  json_object_set_new(o, "best_peer", v.by < 0 ? json_null() : json_string(r->columns[v.by].name));
  for (int i = 0; i < r->ncolumns; i++) {
    if (full_us(r, p, i, NULL) > 0) {
      json_object_set_new(columns, r->columns[i].name, column_json(r, p, i));
    }
  }
  json_object_set_new(o, "columns", columns);
  return o;
}

static json_t *mean_json(const full_run *r, const full_summary *m)
{
  json_t *o = json_object();
  json_object_set_new(o, "warm", number(stats_geometric(&m->heat[0])));
  json_object_set_new(o, "cold", number(stats_geometric(&m->heat[1])));
  json_object_set_new(o, "both", number(stats_geometric(&m->all)));
  json_object_set_new(o, "worst", number(m->all.worst));
  json_object_set_new(o, "worst_bytes", json_integer((json_int_t)r->points[m->all.where].bytes));
  json_object_set_new(o, "worst_collective", json_string(full_kinds[r->points[m->all.where].kind]));
  json_object_set_new(o, "worst_cold", json_boolean(r->points[m->all.where].cold));
  return o;
}

static void add_summaries(const full_run *r, json_t *list, int own, int ranks)
{
  for (int kind = -1; kind < COLL_COUNT; kind++) {
    full_summary m = full_summarise(r, own, ranks, kind);
    if (m.all.n > 0) {
      json_t *o = mean_json(r, &m);
      json_object_set_new(o, "ranks", json_integer(ranks));
      json_object_set_new(o, "column", json_string(r->columns[own].name));
      json_object_set_new(o, "collective", json_string(kind < 0 ? "all" : full_kinds[kind]));
      json_array_append_new(list, o);
    }
  }
}

static json_t *limits_json(const limit_table *t)
{
  json_t *o = json_object(), *sizes = json_array();
  json_object_set_new(o, "cores", number(t->cores));
  json_object_set_new(o, "line_exchange_ns", number(t->exchange_ns));
  json_object_set_new(o, "line_stream_ns", number(t->stream_ns));
  for (int i = 0; i < t->n; i++) {
    json_array_append_new(sizes,
                          json_pack("{s:f, s:f, s:f}", "bytes", t->bytes[i], "copy", t->copy[i], "add", t->add[i]));
  }
  json_object_set_new(o, "rates", sizes);
  return o;
}

static json_t *machine_object(const machine *m)
{
  json_t *o = json_object();
  for (int i = 0; i < m->n; i++) {
    json_object_set_new(o, m->rows[i].name, json_string(m->rows[i].value));
  }
  return o;
}

int full_json(const full_run *r, const char *path)
{
  json_t *root = json_object(), *points = json_array(), *summaries = json_array();
  for (int i = 0; i < r->npoints; i++) {
    json_array_append_new(points, point_json(r, &r->points[i]));
    for (int own = 0; own < r->ncolumns && (i == 0 || r->points[i].ranks != r->points[i - 1].ranks); own++) {
      if (r->columns[own].own) {
        add_summaries(r, summaries, own, r->points[i].ranks);
      }
    }
  }
  json_t *machines = json_array();
  for (int i = 0; i < r->nmachines; i++) {
    json_array_append_new(machines, machine_object(&r->machines[i]));
  }
  json_object_set_new(root, "machines", machines);
  json_object_set_new(root, "limits", limits_json(&r->limits));
  json_object_set_new(root, "points", points);
  json_object_set_new(root, "means", summaries);
  int res = json_dump_file(root, path, JSON_INDENT(1) | JSON_REAL_PRECISION(5));
  json_decref(root);
  if (res != 0) {
    fprintf(stderr, "coll_full: %s cannot be written\n", path);
  }
  return res != 0;
}
