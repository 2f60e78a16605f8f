// flight.c: dumps of flight recorders (docs/hangs.md) as time lines, so that every command can show them.
#include <stdlib.h>
#include <string.h>

#include "trace_tool.h"

// Where the time lines' clock begins, in nanoseconds since 1970: microseconds from there keep their fractions.
#define EPOCH_NS 1577836800000000000ll
#define LAST_NS (EPOCH_NS + 900000000000000000ll)

// Names that torch's analyzer knows, and those of the calls.
static const struct {
  const char *recorded, *name;
} flight_names[] = {{"all_reduce", "AllReduce"},
                    {"broadcast", "Broadcast"},
                    {"reduce", "Reduce"},
                    {"_all_gather_base", "AllGather"},
                    {"_reduce_scatter_base", "ReduceScatter"},
                    {"all_to_all", "AlltoAll"},
                    {"all_gather_v", "AllGatherV"},
                    {"reduce_scatter_v", "ReduceScatterV"},
                    {"gather", "Gather"},
                    {"scatter", "Scatter"}};

static const struct {
  const char *name;
  int size;
} flight_types[] = {{"Char", 1},  {"Byte", 1},     {"Float8_e4m3fn", 1}, {"Float8_e5m2", 1},
                    {"Half", 2},  {"BFloat16", 2}, {"Int", 4},           {"UInt32", 4},
                    {"Float", 4}, {"Long", 8},     {"UInt64", 8},        {"Double", 8}};

static bool flight_is_time(const json_t *v)
{
  return json_is_integer(v) && json_integer_value(v) >= EPOCH_NS && json_integer_value(v) < LAST_NS;
}

static double flight_us(json_int_t ns)
{
  return (double)(ns - EPOCH_NS) / 1e3;
}

// Place of `rank` in a list such as "[0, 1]", and the length of the list. -1: it is not there.
static int flight_place(const char *list, json_int_t rank, int *length)
{
  int place = -1, n = 0;
  const char *s = list + strspn(list, "[ ");
  for (char *end; n < INT32_MAX; s = end + strspn(end, ", ")) {
    long v = strtol(s, &end, 10);
    if (end == s) {
      break;
    }
    place = v == rank && place < 0 ? n : place;
    n++;
  }
  *length = n;
  return place;
}

// When the dump was made: an operation that has not ended lasts until then. Without the key: its last time.
static json_int_t flight_last(const json_t *dump)
{
  static const char *const keys[] = {"time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns"};
  const json_t *entries = json_object_get(dump, "entries"), *at = json_object_get(dump, "time_ns");
  json_int_t last = flight_is_time(at) ? json_integer_value(at) : 0;
  for (size_t i = 0; i < json_array_size(entries); i++) {
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
      const json_t *v = json_object_get(json_array_get(entries, i), keys[k]);
      last = flight_is_time(v) && json_integer_value(v) > last ? json_integer_value(v) : last;
    }
  }
  return last;
}

// ---- one communicator: a time line without events

static json_t *flight_line(const json_t *dump, const char *comm, const json_t *config, json_int_t last)
{
  const json_t *rank = json_object_get(dump, "rank"), *pid = json_object_get(dump, "pid");
  const char *ranks = json_string_value(json_object_get(config, "ranks"));
  const char *name = json_string_value(json_object_get(config, "desc"));
  const char *host = json_string_value(json_object_get(dump, "host"));
  int n, place = ranks != NULL && json_is_integer(rank) ? flight_place(ranks, json_integer_value(rank), &n) : -1;
  if (place < 0) {
    return NULL;
  }
  return json_pack("{s:[],s:{},s:{s:i,s:i,s:i,s:s,s:s,s:s,s:I,s:s,s:I,s:I,s:i,s:i}}", "traceEvents", "counts",
                   "otherData", "tutti_trace", 1, "rank", place, "ranks", n, "comm", comm, "name",
                   name != NULL && strcmp(name, "undefined") != 0 ? name : "", "host", host != NULL ? host : "", "pid",
                   json_is_integer(pid) ? json_integer_value(pid) : 0, "clock", "wall", "realtime_minus_monotonic_ns",
                   (json_int_t)EPOCH_NS, "began_us", last > 0 ? (last - EPOCH_NS) / 1000 : (json_int_t)0,
                   "lost_ring_full", 0, "lost_disk", 0);
}

// ---- one operation

// Name of the call. *peer: of a message or a one-sided operation, else -1.
static const char *flight_name(const char *recorded, json_t *entry, json_int_t *peer)
{
  const char *name = strchr(recorded, ':') != NULL ? strchr(recorded, ':') + 1 : recorded;
  bool send = strncmp(name, "send ", 5) == 0, receive = strncmp(name, "recv ", 5) == 0;
  const json_t *with = json_object_get(entry, "peer");
  bool signals = strstr(name, "Signal") != NULL; // one-sided
  *peer = (send || receive || signals) && json_is_integer(with) ? json_integer_value(with) : -1;
  for (size_t i = 0; i < sizeof flight_names / sizeof *flight_names; i++) {
    name = strcmp(flight_names[i].recorded, name) == 0 ? flight_names[i].name : name;
  }
  return send ? "Send" : receive ? "Recv" : name;
}

static json_int_t flight_elements(const json_t *entry, const char *key)
{
  const json_t *n = json_array_get(json_array_get(json_object_get(entry, key), 0), 0);
  return json_is_integer(n) && json_integer_value(n) > 0 ? json_integer_value(n) : 0;
}

// Bytes of the call: of an all-gather or a scatter those of one rank's part.
static json_int_t flight_bytes(const json_t *entry, const char *name, int nranks, const char **type)
{
  json_int_t in = flight_elements(entry, "input_sizes"), out = flight_elements(entry, "output_sizes");
  json_int_t n = in < out ? in : out;
  int size = 1;
  *type = json_string_value(json_array_get(json_object_get(entry, "input_dtypes"), 0));
  for (size_t i = 0; *type != NULL && i < sizeof flight_types / sizeof *flight_types; i++) {
    size = strcmp(flight_types[i].name, *type) == 0 ? flight_types[i].size : size;
  }
  n = strcmp(name, "AlltoAll") == 0 && nranks > 0 ? n / nranks : n;
  return n < INT64_MAX / 8 ? n * size : 0;
}

// The number by which the ranks' operations belong together. Messages are counted for each peer and direction.
static json_int_t flight_number(const json_t *entry, json_t *counts, const char *name, json_int_t peer)
{
  const json_t *seq = json_object_get(entry, "collective_seq_id");
  char key[48];
  if (peer < 0) {
    return json_is_integer(seq) && json_integer_value(seq) >= 0 ? json_integer_value(seq) : 0;
  }
  snprintf(key, sizeof key, "%s %lld", name, (long long)peer);
  json_int_t n = json_integer_value(json_object_get(counts, key));
  json_object_set_new(counts, key, json_integer(n + 1));
  return n;
}

// An operation that has not started has no length and stands at the end: what started late is waited for. NULL: good.
// Else what is wrong with the entry.
static const char *flight_add(json_t *entry, const json_t *lines, json_int_t last)
{
  const char *comm = json_string_value(json_array_get(json_object_get(entry, "process_group"), 0));
  const char *recorded = json_string_value(json_object_get(entry, "profiling_name")), *type;
  const json_t *line = comm != NULL ? json_object_get(lines, comm) : NULL;
  const json_t *added = json_object_get(entry, "time_created_ns"),
               *started = json_object_get(entry, "time_discovered_started_ns"),
               *ended = json_object_get(entry, "time_discovered_completed_ns");
  if (line == NULL || recorded == NULL || !flight_is_time(added)) {
    return "needs process_group, one of pg_config, profiling_name and time_created_ns";
  }
  json_int_t begin = flight_is_time(started) ? json_integer_value(started) : last, peer;
  json_int_t end = flight_is_time(ended) ? json_integer_value(ended) : last;
  const char *name = flight_name(recorded, entry, &peer);
  json_t *other = json_object_get(line, "otherData");
  json_int_t began = (json_integer_value(added) - EPOCH_NS) / 1000;
  if (json_array_size(json_object_get(line, "traceEvents")) == 0 ||
      began < json_integer_value(json_object_get(other, "began_us"))) {
    json_object_set_new(other, "began_us", json_integer(began));
  }
  int nranks = (int)json_integer_value(json_object_get(other, "ranks"));
  json_int_t bytes = flight_bytes(entry, name, nranks, &type);
  json_int_t number = flight_number(entry, json_object_get(line, "counts"), name, peer);
  json_t *args =
      json_pack("{s:I,s:I,s:s,s:s}", "bytes", bytes, "seq", number, "type", type != NULL ? type : "", "state",
                flight_is_time(ended)     ? ""
                : flight_is_time(started) ? "not completed"
                                          : "not started");
  if (peer >= 0) {
    json_object_set_new(args, "peer", json_integer(peer));
  }
  json_array_append_new(json_object_get(line, "traceEvents"),
                        json_pack("{s:s,s:s,s:s,s:i,s:i,s:f,s:f,s:o}", "name", name, "cat", "op", "ph", "X", "pid", 0,
                                  "tid", 1, "ts", flight_us(begin), "dur",
                                  end > begin ? (double)(end - begin) / 1e3 : 0.0, "args", args));
  return NULL;
}

// ---- dumps

// Adds the operations of one of the dump's lists.
static bool flight_add_all(const char *path, const json_t *entries, const json_t *lines, json_int_t last)
{
  json_t *entry;
  size_t i = 0;
  json_array_foreach((json_t *)entries, i, entry)
  {
    const char *wrong = flight_add(entry, lines, last);
    if (wrong != NULL) {
      return xt_refuse_item(path, "entry", i, wrong);
    }
  }
  return true;
}

static bool flight_dump(const char *path, const json_t *dump, json_t *out)
{
  const json_t *config = json_object_get(dump, "pg_config"), *v;
  json_t *lines = json_object();
  const char *key;
  json_int_t last = flight_last(dump);
  json_object_foreach((json_t *)config, key, v)
  {
    json_t *line = flight_line(dump, key, v, last);
    if (line == NULL) {
      json_decref(lines);
      return xt_refuse(path, "is a dump of a flight recorder whose rank is in no list of pg_config's ranks");
    }
    json_object_set_new(lines, key, line);
    json_array_append(out, line);
  }
  bool good = flight_add_all(path, json_object_get(dump, "entries"), lines, last) &&
              flight_add_all(path, json_object_get(dump, "one_sided"), lines, last);
  json_decref(lines);
  return good;
}

static bool flight_is_dump(const json_t *v)
{
  return json_is_array(json_object_get(v, "entries")) && json_is_object(json_object_get(v, "pg_config"));
}

bool xt_is_flight(const json_t *root)
{
  return flight_is_dump(root) || json_is_array(json_object_get(json_object_get(root, "tutti"), "flight_recorder"));
}

json_t *xt_flight_lines(const char *path, const json_t *root)
{
  const json_t *all = json_object_get(json_object_get(root, "tutti"), "flight_recorder");
  json_t *out = json_array();
  size_t n = flight_is_dump(root) ? 1 : json_array_size(all);
  for (size_t i = 0; i < n; i++) {
    const json_t *dump = flight_is_dump(root) ? root : json_array_get(all, i);
    bool good = flight_is_dump(dump) ? flight_dump(path, dump, out)
                                     : xt_refuse_item(path, "flight_recorder", i, "is no dump of a flight recorder");
    if (!good) {
      json_decref(out);
      return NULL;
    }
  }
  return out;
}
