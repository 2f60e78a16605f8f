#include "json.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "system.h"

extern char **environ;

struct perf_json {
  pthread_mutex_t lock;
  FILE *file;
  json_t *top, *results;
};

// A string of the document. What is not UTF-8 loses its odd bytes rather than the whole entry.
static json_t *string_of(const char *s)
{
  json_t *v = json_string(s);
  if (v) {
    return v;
  }
  char *plain = strdup(s);
  for (char *c = plain; c && *c; c++) {
    if ((unsigned char)*c >= 0x80) {
      *c = '?';
    }
  }
  v = plain ? json_string(plain) : NULL;
  free(plain);
  return v;
}

static json_t *boolean(bool v)
{
  return json_string(v ? "true" : "false"); // strings, as in nccl-tests' files
}

static json_t *number(double v)
{
  return isfinite(v) ? json_real(v) : json_string(isnan(v) ? "nan" : "inf");
}

static json_t *now(void)
{
  char stamp[32];
  perf_timestamp(stamp, sizeof(stamp));
  return json_string(stamp);
}

static bool named_json(const char *path)
{
  const char *dot = strrchr(path, '.');
  const char *slash = strrchr(path, '/');
  return dot && dot > (slash ? slash : path - 1) && strcasecmp(dot, ".json") == 0;
}

static FILE *create(const char *path, char *used, size_t size)
{
  snprintf(used, size, "%s", path);
  FILE *f = fopen(used, "wx");
  for (int i = 0; !f && errno == EEXIST && i < 100000; i++) {
    snprintf(used, size, "%s.%d", path, i);
    f = fopen(used, "wx");
  }
  return f;
}

// The environment, but for the values of secrets: files of results are handed on.
static json_t *environment_list(void)
{
  json_t *list = json_array();
  for (char *const *e = environ; *e != NULL; e++) {
    size_t n = strcspn(*e, "=");
    bool secret = n >= 7 && strncmp(*e + n - 7, "_SECRET", 7) == 0;
    json_array_append_new(list, secret ? json_sprintf("%.*s=(not shown)", (int)n, *e) : string_of(*e));
  }
  return list;
}

static json_t *string_list(int count, char *const *strings)
{
  json_t *list = json_array();
  for (int i = 0; i < count; i++) {
    json_array_append_new(list, string_of(strings[i]));
  }
  return list;
}

perf_json *perf_json_open(const char *path, int argc, char *const *argv, int library_version, char *note, size_t size)
{
  if (!named_json(path)) {
    snprintf(note, size, "# -J %s: only files named .json are written; skipping\n", path);
    return NULL;
  }
  perf_json *j = calloc(1, sizeof(*j));
  char used[4096];
  j = j && (j->file = create(path, used, sizeof(used))) ? j : (free(j), NULL);
  if (!j) {
    snprintf(note, size, "# skipping json output; %s not accessible: %s\n", path, strerror(errno));
    return NULL;
  }
  snprintf(note, size, "# Writing JSON output to %s\n", used);
  pthread_mutex_init(&j->lock, NULL);
  j->top = json_object();
  json_object_set_new(j->top, "version", json_integer(4));
  json_object_set_new(j->top, "start_time", now());
  json_object_set_new(j->top, "args", string_list(argc, argv));
  json_object_set_new(j->top, "env", environment_list());
  json_object_set_new(j->top, "nccl_version", json_integer(library_version));
  return j;
}

static json_t *device_list(const perf_device *devices, int count)
{
  json_t *list = json_array();
  for (int i = 0; i < count; i++) {
    json_t *d = json_object();
    json_object_set_new(d, "rank", json_integer(devices[i].rank));
    json_object_set_new(d, "group", json_integer(devices[i].group));
    json_object_set_new(d, "pid", json_integer(devices[i].pid));
    json_object_set_new(d, "hostname", string_of(devices[i].host));
    json_object_set_new(d, "device", json_integer(devices[i].device));
    json_object_set_new(d, "device_hex", string_of(devices[i].bus));
    json_object_set_new(d, "device_info", string_of(devices[i].info));
    json_array_append_new(list, d);
  }
  return list;
}

void perf_json_config(perf_json *j, const perf_options *o, const perf_device *devices, int count)
{
  if (!j) {
    return;
  }
  pthread_mutex_lock(&j->lock);
  json_t *c = json_object();
  json_object_set_new(c, "nthreads", json_integer(o->threads));
  json_object_set_new(c, "ngpus", json_integer(o->gpus));
  json_object_set_new(c, "minimum_bytes", json_integer((json_int_t)o->min_bytes));
  json_object_set_new(c, "maximum_bytes", json_integer((json_int_t)o->max_bytes));
  if (o->step_factor > 1) {
    json_object_set_new(c, "step_factor", json_integer(o->step_factor));
  } else {
    json_object_set_new(c, "step_bytes", json_integer((json_int_t)o->step_bytes));
  }
  json_object_set_new(c, "warmup_iters", json_integer(o->warmup_iters));
  json_object_set_new(c, "iterations", json_integer(o->iters));
  json_object_set_new(c, "aggregated_iterations", json_integer(o->agg_iters));
  json_object_set_new(c, "validation", json_integer(o->check));
  json_object_set_new(c, "graph", json_integer(o->graph));
  json_object_set_new(c, "blocking_collectives", boolean(o->blocking));
  json_object_set_new(c, "per_iter_timing", boolean(o->per_iter));
  json_object_set_new(c, "per_iter_skip", json_integer(o->per_iter_skip));
  json_object_set_new(c, "parallel_init", boolean(o->parallel_init));
  json_object_set_new(c, "devices", device_list(devices, count));
  json_object_set_new(j->top, "config", c);
  j->results = json_array();
  json_object_set_new(j->top, "results", j->results);
  pthread_mutex_unlock(&j->lock);
}

static json_t *microseconds(const double *seconds, int n)
{
  json_t *list = json_array();
  for (int i = 0; i < n; i++) {
    json_array_append_new(list, number(seconds[i] * 1e6));
  }
  return list;
}

static json_t *result_object(const perf_options *o, const perf_result *r)
{
  json_t *v = json_object();
  json_object_set_new(v, o->cputime ? "cpu_time" : "time", number(r->usec));
  json_object_set_new(v, "alg_bw", number(r->alg_bw));
  json_object_set_new(v, "bus_bw", number(r->bus_bw));
  json_object_set_new(v, "nwrong", r->checked ? number((double)r->wrong) : json_null());
  return v;
}

static json_t *iterations_object(const perf_options *o, const perf_result *r, int procs)
{
  const perf_iter_stats *s = &r->stats;
  json_t *v = json_object();
  json_object_set_new(v, "skipped_iterations", json_integer(o->per_iter_skip));
  json_object_set_new(v, "min_us", number(s->min * 1e6));
  json_object_set_new(v, "max_us", number(s->max * 1e6));
  json_object_set_new(v, "avg_us", number(s->avg * 1e6));
  json_object_set_new(v, "p50_us", number(s->p50 * 1e6));
  json_object_set_new(v, "p95_us", number(s->p95 * 1e6));
  json_object_set_new(v, "p99_us", number(s->p99 * 1e6));
  json_object_set_new(v, "stdev_us", number(s->stdev * 1e6));
  json_object_set_new(v, "cv_pct", number(s->avg > 0 ? s->stdev / s->avg * 100 : 0));
  json_object_set_new(v, "times_us", microseconds(r->times, o->iters));
  if (r->rows && procs > 1) {
    json_t *rows = json_array();
    for (int p = 0; p < procs; p++) {
      json_array_append_new(rows, microseconds(r->rows + (size_t)p * (size_t)o->iters, o->iters));
    }
    json_object_set_new(v, "per_process_max_times_us", rows);
  }
  return v;
}

static json_t *word_or_null(const char *word)
{
  return *word ? string_of(word) : json_null();
}

static json_t *count_or_null(int count)
{
  return count ? json_integer(count) : json_null();
}

static json_t *tuning_object(const perf_tuning *t)
{
  json_t *v = json_object();
  json_object_set_new(v, "implementation", word_or_null(t->implementation));
  json_object_set_new(v, "algo", word_or_null(t->algo));
  json_object_set_new(v, "proto", word_or_null(t->proto));
  json_object_set_new(v, "variant", word_or_null(t->variant));
  json_object_set_new(v, "#channels", count_or_null(t->channels));
  json_object_set_new(v, "#warps", count_or_null(t->warps));
  json_object_set_new(v, "chunk", count_or_null(t->chunk));
  return v;
}

void perf_json_row(perf_json *j, const perf_options *o, const perf_row *row, int procs)
{
  static const char *const names[] = {"out_of_place", "in_place"};
  static const char *const iteration_names[] = {"out_of_place_per_iter", "in_place_per_iter"};
  if (!j) {
    return;
  }
  pthread_mutex_lock(&j->lock);
  char root[16];
  snprintf(root, sizeof(root), "%6d", row->root);
  json_t *v = json_object();
  json_object_set_new(v, "size", json_integer((json_int_t)row->bytes));
  json_object_set_new(v, "count", json_integer((json_int_t)row->count));
  json_object_set_new(v, "type", json_string(row->type));
  json_object_set_new(v, "redop", json_string(row->op));
  json_object_set_new(v, "root", json_string(root));
  for (int i = 0; i < 2; i++) {
    json_object_set_new(v, names[i], result_object(o, &row->result[i]));
    if (row->result[i].times) {
      json_object_set_new(v, iteration_names[i], iterations_object(o, &row->result[i], procs));
    }
  }
  if (o->tuning) {
    json_object_set_new(v, "tuning", tuning_object(&row->tuning));
  }
  json_object_set_new(v, "actual_iterations", json_integer(o->iters));
  json_object_set_new(v, "experiment_name", json_string(""));
  json_array_append_new(j->results, v);
  pthread_mutex_unlock(&j->lock);
}

void perf_json_footer(perf_json *j, long errors, double bus_bw, double min_bw)
{
  if (!j) {
    return;
  }
  pthread_mutex_lock(&j->lock);
  json_t *bounds = json_object();
  json_object_set_new(bounds, "count", json_integer(errors));
  json_object_set_new(bounds, "okay", boolean(errors == 0));
  json_object_set_new(j->top, "out_of_bounds", bounds);
  json_t *average = json_object();
  json_object_set_new(average, "bandwidth", number(bus_bw));
  json_object_set_new(average, "okay", min_bw == -1 ? json_string("unchecked") : boolean(bus_bw >= min_bw * 0.9));
  json_object_set_new(j->top, "average_bus_bandwidth", average);
  pthread_mutex_unlock(&j->lock);
}

void perf_json_errors(perf_json *j, const char *last_error)
{
  if (!j) {
    return;
  }
  pthread_mutex_lock(&j->lock);
  json_t *list = json_array();
  if (*last_error) {
    json_array_append_new(list, string_of(last_error));
  }
  json_object_set_new(j->top, "errors", list);
  pthread_mutex_unlock(&j->lock);
}

bool perf_json_close(perf_json *j)
{
  if (!j) {
    return true;
  }
  pthread_mutex_lock(&j->lock);
  json_object_set_new(j->top, "end_time", now());
  bool ok = json_dumpf(j->top, j->file, JSON_INDENT(1)) == 0;
  ok = fputc('\n', j->file) != EOF && ok;
  ok = fclose(j->file) == 0 && ok;
  json_decref(j->top);
  pthread_mutex_unlock(&j->lock);
  pthread_mutex_destroy(&j->lock);
  free(j);
  return ok;
}
