// load.c: reads the parts' JSON.
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "full.h"

int full_player(full_run *r, const char *name)
{
  for (int i = 0; i < r->nplayers; i++) {
    if (strcmp(r->players[i], name) == 0) {
      return i;
    }
  }
  if (r->nplayers == FULL_PLAYERS || strlen(name) >= FULL_NAME) {
    return -1;
  }
  strcpy(r->players[r->nplayers], name);
  return r->nplayers++;
}

full_point *full_at(full_run *r, int ranks, int kind, int cold, double bytes)
{
  for (int i = 0; i < r->npoints; i++) {
    full_point *p = &r->points[i];
    if (p->ranks == ranks && p->kind == kind && p->cold == cold && p->bytes == bytes) {
      return p;
    }
  }
  full_point *more = realloc(r->points, (size_t)(r->npoints + 1) * sizeof *more);
  if (more == NULL) {
    return NULL;
  }
  r->points = more;
  more[r->npoints] = (full_point){.ranks = ranks, .kind = kind, .cold = cold, .bytes = bytes};
  return &more[r->npoints++];
}

void full_free(full_run *r)
{
  free(r->points);
  r->points = NULL;
  r->npoints = 0;
}

static int complain(const char *path, const char *what, const char *which)
{
  fprintf(stderr, "coll_full: %s: %s%s\n", path, what, which);
  return 1;
}

static int count_rounds(const json_t *rounds)
{
  int n = 0;
  for (size_t i = 0; i < json_array_size(rounds); i++) {
    n += json_number_value(json_array_get(rounds, i)) > 0;
  }
  return n;
}

static int load_point(full_run *r, const char *path, int ranks, int kind, json_t *o)
{
  const char *key;
  json_t *value;
  double bytes = json_number_value(json_object_get(o, "bytes"));
  full_point *p = bytes > 0 ? full_at(r, ranks, kind, json_is_true(json_object_get(o, "cold")), bytes) : NULL;
  if (p == NULL) {
    return complain(path, "a point without \"bytes\", or no memory", "");
  }
  json_object_foreach(o, key, value)
  {
    if (!json_is_object(value)) {
      continue;
    }
    int who = full_player(r, key);
    if (who < 0) {
      return complain(path, "too many players, or too long a name: ", key);
    }
    p->us[who] = json_number_value(json_object_get(value, "us"));
    p->rounds[who] = count_rounds(json_object_get(value, "rounds"));
  }
  return 0;
}

static int load_kind(full_run *r, const char *path, int ranks, const char *name, json_t *o)
{
  int kind = 0, res = 0;
  while (kind < COLL_COUNT && strcmp(full_kinds[kind], name) != 0) {
    kind++;
  }
  json_t *points = json_object_get(o, "points");
  if (kind == COLL_COUNT || !json_is_array(points)) {
    return complain(path, "no collective with points: ", name);
  }
  for (size_t i = 0; i < json_array_size(points) && res == 0; i++) {
    res = load_point(r, path, ranks, kind, json_array_get(points, i));
  }
  return res;
}

// The machine that measured the part, unless another part was measured there, too. Parts of older drivers do not say
// it.
static int load_machine(full_run *r, const char *path, json_t *o)
{
  const char *key;
  json_t *value;
  machine m = {0};
  json_object_foreach(o, key, value)
  {
    if (!json_is_string(value) || machine_add(&m, key, json_string_value(value)) != 0) {
      return complain(path, "no texts in \"machine\", or too many", "");
    }
  }
  for (int i = 0; i < r->nmachines; i++) {
    if (machine_same(&r->machines[i], &m)) {
      return 0;
    }
  }
  if (m.n > 0 && r->nmachines == MACHINE_MOST) {
    return complain(path, "measured on too many machines", "");
  }
  if (m.n > 0) {
    r->machines[r->nmachines++] = m;
  }
  return 0;
}

static int load_root(full_run *r, const char *path, json_t *root)
{
  const char *key;
  json_t *value, *players = json_object_get(root, "players");
  int ranks = (int)json_integer_value(json_object_get(root, "ranks")), res = 0;
  if (ranks < 1 || !json_is_array(players)) {
    return complain(path, "no \"ranks\" or no \"players\": not written by coll_drive", "");
  }
  for (size_t i = 0; i < json_array_size(players); i++) {
    const char *name = json_string_value(json_array_get(players, i));
    if (name == NULL || full_player(r, name) < 0) {
      return complain(path, "too many players, or too long a name: ", name == NULL ? "(none)" : name);
    }
  }
  res = load_machine(r, path, json_object_get(root, "machine"));
  json_object_foreach(json_object_get(root, "wrong"), key, value)
  {
    int who = full_player(r, key);
    if (who >= 0) {
      r->wrong[who] += (int)json_integer_value(value);
    }
  }
  json_object_foreach(json_object_get(root, "collectives"), key, value)
  {
    res = res != 0 ? res : load_kind(r, path, ranks, key, value);
  }
  return res;
}

int full_load(full_run *r, const char *path)
{
  json_error_t error;
  json_t *root = json_load_file(path, 0, &error);
  if (root == NULL) {
    fprintf(stderr, "coll_full: %s, line %d: %s\n", path, error.line, error.text);
    return 1;
  }
  int res = load_root(r, path, root);
  json_decref(root);
  return res;
}
