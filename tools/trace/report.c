// report.c: the page's data. Texts of files go into it as JSON in which no "<" stands, so that nothing in them can be
// taken for the page.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trace_tool.h"

enum { MOST_SLICES = 200000 };

// Every how many operations and other slices are shown; texts, each once: slices have their numbers.
typedef struct page {
  size_t op_stride, stride;
  json_t *texts, *numbers;
} page;

static int put_safely(const char *text, size_t n, void *arg)
{
  FILE *out = arg;
  for (size_t i = 0; i < n; i++) {
    if (text[i] == '<') {
      fputs("\\u003c", out);
    } else {
      fputc(text[i], out);
    }
  }
  return ferror(out) ? -1 : 0;
}

static bool write_json(json_t *v, FILE *out)
{
  bool good = v != NULL &&
              json_dump_callback(v, put_safely, out, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15)) == 0;
  json_decref(v);
  return good;
}

static json_int_t number_of(page *p, const char *text)
{
  const json_t *known = json_object_get(p->numbers, text);
  if (known != NULL) {
    return json_integer_value(known);
  }
  json_int_t n = (json_int_t)json_array_size(p->texts);
  json_array_append_new(p->texts, json_string(text));
  json_object_set_new(p->numbers, text, json_integer(n));
  return n;
}

static double rounded(double us)
{
  return round(us * 1e3) / 1e3;
}

// Tracks of a rank that the page shows below its operations, with their slices.
static bool is_shown(const char *cat)
{
  return strcmp(cat, "channel") == 0 || strcmp(cat, "message") == 0 || strcmp(cat, "proxy") == 0 ||
         strcmp(cat, "phase") == 0 || strcmp(cat, "call") == 0;
}

static json_t *thread_names(const xt_trace *t)
{
  json_t *names = json_object();
  for (size_t k = 0; k < json_array_size(t->events); k++) {
    const json_t *e = json_array_get(t->events, k), *tid = json_object_get(e, "tid");
    const char *title = json_string_value(json_object_get(json_object_get(e, "args"), "name"));
    if (strcmp(json_string_value(json_object_get(e, "name")), "thread_name") == 0 && title != NULL &&
        json_is_integer(tid)) {
      char key[32];
      snprintf(key, sizeof key, "%lld", (long long)json_integer_value(tid));
      json_object_set_new(names, key, json_string(title));
    }
  }
  return names;
}

// [start, duration, name, tid] of what is shown; every `stride`th.
static json_t *slices(page *p, const xt_job *job, const xt_trace *t)
{
  json_t *list = json_array();
  size_t seen = 0;
  for (size_t k = 0; k < json_array_size(t->events); k++) {
    const json_t *e = json_array_get(t->events, k);
    const char *cat = json_string_value(json_object_get(e, "cat"));
    if (xt_is_phase(e, "X") && is_shown(cat) && seen++ % p->stride == 0) {
      double at = xt_time(t, json_number_value(json_object_get(e, "ts"))) - job->begin;
      json_array_append_new(list, json_pack("[f,f,I,I]", rounded(at), json_number_value(json_object_get(e, "dur")),
                                            number_of(p, json_string_value(json_object_get(e, "name"))),
                                            json_integer_value(json_object_get(e, "tid"))));
    }
  }
  return list;
}

// State, unless it is over, algorithm, protocol, kernel variant, type, channels and tag of an operation, as far as its
// file tells them.
static json_int_t how_of(page *p, const xt_op *op)
{
  static const char *const keys[] = {"state", "algo", "proto", "variant", "type"};
  const json_t *channels = json_object_get(op->args, "channels");
  const char *tag = json_string_value(json_object_get(op->args, "tag"));
  char text[512] = "";
  size_t n = 0;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const char *value = json_string_value(json_object_get(op->args, keys[i]));
    if (value != NULL && value[0] != '\0' && strlen(value) < 64) {
      n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n > 0 ? ", " : "", value);
    }
  }
  if (json_is_integer(channels)) {
    long long many = json_integer_value(channels);
    n += (size_t)snprintf(text + n, sizeof text - n, "%s%lld channel%s", n > 0 ? ", " : "", many, many == 1 ? "" : "s");
  }
  if (tag != NULL && strlen(tag) < 24) {
    snprintf(text + n, sizeof text - n, "%stag %s", n > 0 ? ", " : "", tag);
  }
  return number_of(p, text);
}

// [start, duration, name, bytes, number, peer, how, queued before]
static json_t *operation(page *p, const xt_job *job, const xt_op *op)
{
  return json_pack("[f,f,I,I,I,i,I,f]", rounded(op->start - job->begin), rounded(op->end - op->start),
                   number_of(p, op->func), (json_int_t)op->bytes, (json_int_t)op->seq, op->peer, how_of(p, op),
                   rounded(json_number_value(json_object_get(op->args, "queued_us"))));
}

// Each rank's operations, every `stride`th, all ranks' the same ones; and of each function that it used [size, bus] of
// its bandwidth.
static void add_operations(page *p, const xt_job *job, json_t *ranks)
{
  size_t group = 0;
  for (size_t i = 0; i < job->nops; i++) {
    const xt_op *op = &job->ops[i];
    json_t *rank = json_array_get(ranks, (size_t)op->at), *factors = json_object_get(rank, "factors");
    group += i > 0 && !xt_same_op(&job->ops[i - 1], op);
    if (json_object_get(factors, op->func) == NULL) {
      xt_factors f = xt_bandwidth(op->func, op->trace->ranks);
      json_object_set_new(factors, op->func, json_pack("[f,f]", f.size, f.bus));
    }
    if (group % p->op_stride == 0) {
      json_array_append_new(json_object_get(rank, "ops"), operation(p, job, op));
    }
  }
}

static json_t *waits(const xt_job *job)
{
  json_t *rows = json_array();
  for (int i = 0; i < job->n; i++) {
    json_t *row = json_array();
    for (int k = 0; k < job->n; k++) {
      json_array_append_new(row, json_real(rounded(job->waited[(size_t)i * (size_t)job->n + (size_t)k])));
    }
    json_array_append_new(rows, row);
  }
  return rows;
}

// What `print` writes of the job.
static json_t *text_of(const xt_job *job, void (*print)(const xt_job *job, FILE *out))
{
  char *text = NULL;
  size_t size = 0;
  FILE *memory = open_memstream(&text, &size);
  if (memory == NULL) {
    return json_string("");
  }
  print(job, memory);
  fclose(memory);
  json_t *v = json_string(text);
  free(text);
  return v;
}

static json_t *rank_of(page *p, const xt_job *job, int at)
{
  const xt_trace *t = &job->traces[at];
  return json_pack("{s:i,s:s,s:s,s:s,s:i,s:I,s:o,s:o,s:o,s:o}", "rank", t->rank, "comm", t->comm, "name", t->name,
                   "host", t->host, "pid", t->pid, "lost", (json_int_t)t->lost, "names", thread_names(t), "factors",
                   json_object(), "ops", json_array(), "slices", slices(p, job, t));
}

static json_t *job_of(page *p, const xt_job *job)
{
  const char *comm;
  json_t *ranks = json_array();
  for (int i = 0; i < job->n; i++) {
    json_array_append_new(ranks, rank_of(p, job, i));
  }
  add_operations(p, job, ranks);
  return json_pack("{s:o,s:f,s:i,s:o,s:o,s:o}", "title", text_of(job, xt_job_title), "length", job->end - job->begin,
                   "width", xt_job_ranks(job, &comm), "ranks", ranks, "waited", waits(job), "summary",
                   text_of(job, xt_job_summary));
}

static size_t stride_of(size_t n)
{
  return n / MOST_SLICES + 1;
}

static bool write_data(const xt_jobs *jobs, FILE *out)
{
  size_t ops = 0, events = 0;
  for (int i = 0; i < jobs->n; i++) {
    ops += jobs->list[i].nops;
  }
  for (int i = 0; i < jobs->ntraces; i++) {
    events += json_array_size(jobs->traces[i].events);
  }
  page p = {.op_stride = stride_of(ops), .stride = stride_of(events), .texts = json_array(), .numbers = json_object()};
  json_t *list = json_array();
  for (int i = 0; i < jobs->n; i++) {
    json_array_append_new(list, job_of(&p, &jobs->list[i]));
  }
  json_decref(p.numbers);
  return write_json(json_pack("{s:I,s:I,s:o,s:o}", "opStride", (json_int_t)p.op_stride, "stride", (json_int_t)p.stride,
                              "texts", p.texts, "jobs", list),
                    out);
}

bool xt_report(xt_jobs *jobs, FILE *out)
{
  fputs(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n"
      "<title>Tutti: time lines</title>\n<style>\n",
      out);
  fprintf(out, "%s</style>\n</head>\n<body>\n%s<script type=\"application/json\" id=\"data\">", xt_page_css,
          xt_page_html);
  bool good = write_data(jobs, out);
  fprintf(out, "</script>\n<script>\n%s</script>\n</body>\n</html>\n", xt_page_js);
  return good && ferror(out) == 0;
}
