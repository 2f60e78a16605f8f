// load.c: one file, with everything checked that the rest relies on.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace_tool.h"

// Parsed, a file takes some ten times its size.
enum { MOST_MB = 2048, PARSED = 16 };

bool xt_refuse(const char *path, const char *what)
{
  fprintf(stderr, "tutti-trace: %s: %s\n", path, what);
  return false;
}

bool xt_refuse_item(const char *path, const char *kind, size_t i, const char *what)
{
  fprintf(stderr, "tutti-trace: %s: %s %zu: %s\n", path, kind, i, what);
  return false;
}

static bool bad_event(const char *path, size_t i, const char *what)
{
  return xt_refuse_item(path, "event", i, what);
}

static bool is_time(const json_t *v)
{
  double t = json_number_value(v);
  return json_is_number(v) && isfinite(t) && t >= 0 && t < 1e15;
}

static bool is_count(const json_t *v)
{
  return json_is_integer(v) && json_integer_value(v) >= 0;
}

// An operation's arguments.
static bool check_op(const char *path, size_t i, const json_t *e)
{
  const json_t *args = json_object_get(e, "args"), *peer = json_object_get(args, "peer");
  if (!is_count(json_object_get(args, "bytes")) || !is_count(json_object_get(args, "seq"))) {
    return bad_event(path, i, "an operation needs args.bytes and args.seq, numbers that are not negative");
  }
  if (peer != NULL && (!is_count(peer) || json_integer_value(peer) > INT32_MAX)) {
    return bad_event(path, i, "args.peer is no rank");
  }
  return true;
}

static bool check_event(const char *path, size_t i, const json_t *e)
{
  const char *ph = json_string_value(json_object_get(e, "ph")), *cat = json_string_value(json_object_get(e, "cat"));
  if (!json_is_object(e) || ph == NULL || json_string_value(json_object_get(e, "name")) == NULL) {
    return bad_event(path, i, "needs ph and name, texts");
  }
  if (strcmp(ph, "M") == 0) {
    return json_is_object(json_object_get(e, "args")) || bad_event(path, i, "needs args, an object");
  }
  if (!json_is_integer(json_object_get(e, "pid")) || !json_is_integer(json_object_get(e, "tid")) ||
      !is_time(json_object_get(e, "ts"))) {
    return bad_event(path, i, "needs pid, tid and ts, numbers");
  }
  if (strcmp(ph, "X") == 0 && (!is_time(json_object_get(e, "dur")) || cat == NULL)) {
    return bad_event(path, i, "needs dur, a number that is not negative, and cat");
  }
  if (strcmp(ph, "s") == 0 || strcmp(ph, "f") == 0) {
    return json_is_string(json_object_get(e, "id")) || bad_event(path, i, "an arrow needs id, a text");
  }
  if (strcmp(ph, "X") != 0) {
    return bad_event(path, i, "ph is none of M, X, s, f");
  }
  return strcmp(cat, "op") != 0 || check_op(path, i, e);
}

static bool get_count(const json_t *other, const char *key, uint64_t *out)
{
  const json_t *v = json_object_get(other, key);
  *out = is_count(v) ? (uint64_t)json_integer_value(v) : 0;
  return is_count(v);
}

static bool read_head(const char *path, xt_trace *t)
{
  const json_t *other = json_object_get(t->root, "otherData");
  uint64_t version, rank, ranks, pid, skew, full, disk, began;
  if (!json_is_object(other) || !get_count(other, "tutti_trace", &version)) {
    return xt_refuse(path, "is JSON, but neither a time line of libnccl-profiler-trace.so (no otherData.tutti_trace) "
                           "nor a dump of a flight recorder");
  }
  if (version != 1) {
    return xt_refuse(path, "is of a newer format than this program knows (otherData.tutti_trace is not 1)");
  }
  t->comm = json_string_value(json_object_get(other, "comm"));
  t->host = json_string_value(json_object_get(other, "host"));
  t->name = json_string_value(json_object_get(other, "name"));
  t->clock = json_string_value(json_object_get(other, "clock"));
  bool good = get_count(other, "rank", &rank) && get_count(other, "ranks", &ranks) && get_count(other, "pid", &pid) &&
              get_count(other, "realtime_minus_monotonic_ns", &skew) && get_count(other, "lost_ring_full", &full) &&
              get_count(other, "lost_disk", &disk) && get_count(other, "began_us", &began);
  if (!good || t->comm == NULL || t->host == NULL || t->name == NULL || t->clock == NULL || rank >= ranks ||
      ranks > INT32_MAX || pid > INT32_MAX) {
    return xt_refuse(path, "otherData lacks something, or its rank is not below its number of ranks");
  }
  t->rank = (int)rank;
  t->ranks = (int)ranks;
  t->pid = (int)pid;
  t->skew = (double)skew / 1e3;
  t->lost = full + disk;
  get_count(other, "process_start", &t->born);
  t->began = (double)began;
  const json_t *ahead = json_object_get(other, "clock_ahead_ns");
  if (ahead != NULL && !json_is_integer(ahead)) {
    return xt_refuse(path, "otherData.clock_ahead_ns is no number");
  }
  t->knows_ahead = ahead != NULL;
  t->ahead = (double)json_integer_value(ahead) / 1e3;
  return true;
}

static bool check_all(const char *path, xt_trace *t)
{
  t->events = json_object_get(t->root, "traceEvents");
  if (!json_is_array(t->events)) {
    return xt_refuse(path, "has no traceEvents");
  }
  if (!read_head(path, t)) {
    return false;
  }
  for (size_t i = 0; i < json_array_size(t->events); i++) {
    if (!check_event(path, i, json_array_get(t->events, i))) {
      return false;
    }
  }
  return true;
}

// Bytes of all files together.
static uint64_t most_bytes(void)
{
  uint64_t most = (uint64_t)MOST_MB << 20,
           memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / PARSED;
  return memory < most ? memory : most;
}

bool xt_fit(char *const *paths, int n)
{
  uint64_t sum = 0;
  for (int i = 0; i < n; i++) {
    struct stat st;
    sum += stat(paths[i], &st) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    if (sum > most_bytes()) {
      fprintf(stderr,
              "tutti-trace: %s: the files up to this one have %llu MB, more than the %llu MB that this machine has "
              "memory for: trace less "
              "(TUTTI_TRACE_MASK), or the last events only (TUTTI_TRACE_RING=1), or give fewer files\n",
              paths[i], (unsigned long long)(sum >> 20), (unsigned long long)(most_bytes() >> 20));
      return false;
    }
  }
  return true;
}

// Adds a time line, which belongs to it from now on.
static bool load_line(xt_jobs *jobs, const char *path, json_t *root)
{
  xt_trace t = {.path = path, .root = root};
  xt_trace *more = realloc(jobs->traces, ((size_t)jobs->ntraces + 1) * sizeof *more);
  if (more == NULL) {
    json_decref(root);
    return xt_refuse(path, "no memory");
  }
  jobs->traces = more;
  if (!check_all(path, &t)) {
    json_decref(root);
    return false;
  }
  jobs->traces[jobs->ntraces++] = t;
  return true;
}

bool xt_take(xt_jobs *jobs, const char *path, json_t *root)
{
  json_t *lines = xt_is_flight(root) ? xt_flight_lines(path, root) : json_pack("[O]", root), *line;
  bool good = lines != NULL;
  size_t i;
  json_array_foreach(lines, i, line)
  {
    good = good && load_line(jobs, path, json_incref(line));
  }
  json_decref(lines);
  json_decref(root);
  return good;
}

// Begins as Python's pickles of protocol 2 and later do?
static bool load_is_pickle(const char *path)
{
  FILE *f = fopen(path, "re");
  bool is = f != NULL && fgetc(f) == 0x80;
  if (f != NULL) {
    (void)fclose(f);
  }
  return is;
}

bool xt_load(xt_jobs *jobs, const char *path)
{
  struct stat st;
  json_error_t error;
  if (stat(path, &st) != 0) {
    return xt_refuse(path, strerror(errno));
  }
  if (!S_ISREG(st.st_mode)) {
    return xt_refuse(path, "is no file");
  }
  if (load_is_pickle(path)) {
    return xt_refuse(path, "is a pickle: have the flight recorder write JSON (NCCL_FLIGHT_RECORDER_FORMAT=JSON)");
  }
  json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
  if (root == NULL) {
    bool memory = error.text[0] == '\0' || json_error_code(&error) == json_error_out_of_memory;
    fprintf(stderr, "tutti-trace: %s:%d:%d: %s\n", path, error.line, error.column, memory ? "no memory" : error.text);
    return false;
  }
  return xt_take(jobs, path, root);
}

void xt_unload(xt_trace *t)
{
  json_decref(t->root);
  t->root = NULL;
}
