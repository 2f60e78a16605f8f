// report.c: the page's data. Texts of files go into it as JSON in which no "<" stands, so that nothing in them can be taken for the page.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trace_tool.h"

enum { MOST_SLICES = 200000 };

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
  bool good = v != NULL && json_dump_callback(v, put_safely, out, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15)) == 0;
  json_decref(v);
  return good;
}

static double rounded(double us)
{
  return round(us * 1e3) / 1e3;
}

// Tracks of a rank that the page shows below its operations, with their slices.
static bool is_shown(const char *cat)
{
  return strcmp(cat, "channel") == 0 || strcmp(cat, "message") == 0 || strcmp(cat, "proxy") == 0 || strcmp(cat, "call") == 0;
}

static json_t *thread_names(const xt_trace *t)
{
  json_t *names = json_object();
  for (size_t k = 0; k < json_array_size(t->events); k++) {
    const json_t *e = json_array_get(t->events, k), *tid = json_object_get(e, "tid");
    const char *title = json_string_value(json_object_get(json_object_get(e, "args"), "name"));
    if (strcmp(json_string_value(json_object_get(e, "name")), "thread_name") == 0 && title != NULL && json_is_integer(tid)) {
      char key[32];
      snprintf(key, sizeof key, "%lld", (long long)json_integer_value(tid));
      json_object_set_new(names, key, json_string(title));
    }
  }
  return names;
}

// [start, duration, name, tid] of what is shown; every `stride`th.
static json_t *slices(const xt_job *job, const xt_trace *t, size_t stride)
{
  json_t *list = json_array();
  size_t seen = 0;
  for (size_t k = 0; k < json_array_size(t->events); k++) {
    const json_t *e = json_array_get(t->events, k);
    const char *cat = json_string_value(json_object_get(e, "cat"));
    bool slice = strcmp(json_string_value(json_object_get(e, "ph")), "X") == 0;
    if (slice && is_shown(cat) && seen++ % stride == 0) {
      double at = xt_time(t, json_number_value(json_object_get(e, "ts"))) - job->begin;
      json_array_append_new(list, json_pack("[f,f,s,I]", rounded(at), json_number_value(json_object_get(e, "dur")),
                                            json_string_value(json_object_get(e, "name")), json_integer_value(json_object_get(e, "tid"))));
    }
  }
  return list;
}

// [start, duration, name, bytes, number, peer] of each operation; every `stride`th, all ranks' the same ones.
static json_t *operations(const xt_job *job, int at, size_t stride)
{
  json_t *list = json_array();
  size_t group = 0;
  for (size_t i = 0; i < job->nops; i++) {
    const xt_op *op = &job->ops[i];
    group += i > 0 && !xt_same_op(&job->ops[i - 1], op);
    if (op->at == at && group % stride == 0) {
      json_array_append_new(list, json_pack("[f,f,s,I,I,i]", rounded(op->start - job->begin), rounded(op->end - op->start), op->func,
                                            (json_int_t)op->bytes, (json_int_t)op->seq, op->peer));
    }
  }
  return list;
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

static size_t stride_of(size_t n)
{
  return n / MOST_SLICES + 1;
}

static size_t count_slices(const xt_job *job)
{
  size_t n = 0;
  for (int i = 0; i < job->n; i++) {
    n += json_array_size(job->traces[i].events);
  }
  return n;
}

static bool write_data(const xt_job *job, FILE *out)
{
  size_t op_stride = stride_of(job->nops), stride = stride_of(count_slices(job));
  json_t *ranks = json_array();
  for (int i = 0; i < job->n; i++) {
    const xt_trace *t = &job->traces[i];
    json_array_append_new(ranks, json_pack("{s:i,s:s,s:s,s:s,s:i,s:I,s:o,s:o,s:o}", "rank", t->rank, "comm", t->comm, "name", t->name,
                                           "host", t->host, "pid", t->pid, "lost", (json_int_t)t->lost, "names", thread_names(t), "ops",
                                           operations(job, i, op_stride), "slices", slices(job, t, stride)));
  }
  return write_json(json_pack("{s:f,s:I,s:I,s:o,s:o}", "length", job->end - job->begin, "opStride", (json_int_t)op_stride, "stride",
                              (json_int_t)stride, "ranks", ranks, "waited", waits(job)),
                    out);
}

static void write_text(const xt_job *job, FILE *out)
{
  char *text = NULL;
  size_t size = 0;
  FILE *memory = open_memstream(&text, &size);
  if (memory != NULL) {
    xt_summary(job, memory);
    fclose(memory);
    for (size_t i = 0; i < size; i++) {
      fputs(text[i] == '<' ? "&lt;" : text[i] == '&' ? "&amp;" : (char[2]){text[i], '\0'}, out);
    }
    free(text);
  }
}

bool xt_report(const xt_job *job, FILE *out)
{
  fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n"
        "<title>Tutti: time lines</title>\n<style>\n",
        out);
  fputs(xt_page_style, out);
  fputs("</style>\n</head>\n<body>\n", out);
  fputs(xt_page_body, out);
  fputs("<section aria-label=\"summary\">\n<h2>Summary</h2>\n<pre id=\"summary\">", out);
  write_text(job, out);
  fputs("</pre>\n</section>\n<script type=\"application/json\" id=\"data\">", out);
  bool good = write_data(job, out);
  fprintf(out, "</script>\n<script>\n%s</script>\n</body>\n</html>\n", xt_page_script);
  return good && ferror(out) == 0;
}
