// merge.c: all time lines as one: a process per file, times from the job's beginning.
#include <math.h>
#include <string.h>

#include "trace_tool.h"

// The first time in any file.
static double first_time(const xt_jobs *jobs)
{
  double first = INFINITY;
  for (int i = 0; i < jobs->ntraces; i++) {
    for (size_t k = 0; k < json_array_size(jobs->traces[i].events); k++) {
      const json_t *ts = json_object_get(json_array_get(jobs->traces[i].events, k), "ts");
      first = ts != NULL ? fmin(first, xt_time(&jobs->traces[i], json_number_value(ts))) : first;
    }
  }
  return isfinite(first) ? first : 0;
}

static bool write_event(const xt_jobs *jobs, int i, json_t *e, double zero, FILE *out)
{
  const json_t *ts = json_object_get(e, "ts");
  bool good = json_object_set_new(e, "pid", json_integer(i)) == 0;
  if (ts != NULL) {
    double at = xt_time(&jobs->traces[i], json_number_value(ts)) - zero;
    good = json_object_set_new(e, "ts", json_real(round(at * 1e3) / 1e3)) == 0 && good;
  }
  if (strcmp(json_string_value(json_object_get(e, "name")), "process_sort_index") == 0) {
    good =
        json_object_set_new(json_object_get(e, "args"), "sort_index", json_integer(jobs->traces[i].rank)) == 0 && good;
  }
  return good && json_dumpf(e, out, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15)) == 0;
}

bool xt_merge(xt_jobs *jobs, FILE *out)
{
  for (int i = 1; i < jobs->n; i++) {
    double shift = xt_job_shift(&jobs->list[i], &jobs->list[0]);
    for (int k = 0; k < jobs->list[i].n; k++) {
      jobs->list[i].traces[k].shift += shift;
    }
  }
  double zero = first_time(jobs);
  bool good = true, any = false;
  fputs("{\"traceEvents\":[\n", out);
  for (int i = 0; i < jobs->ntraces; i++) {
    for (size_t k = 0; good && k < json_array_size(jobs->traces[i].events); k++) {
      fputs(any ? ",\n" : "", out);
      any = true;
      good = write_event(jobs, i, json_array_get(jobs->traces[i].events, k), zero, out);
    }
  }
  fputs("\n],\"displayTimeUnit\":\"ns\",\"otherData\":{\"tutti_trace_job\":1,\"files\":[", out);
  for (int i = 0; good && i < jobs->ntraces; i++) {
    fputs(i > 0 ? "," : "", out);
    good = json_dumpf(json_object_get(jobs->traces[i].root, "otherData"), out, JSON_COMPACT | JSON_ENSURE_ASCII) == 0;
  }
  fputs("]}}\n", out);
  return good && ferror(out) == 0;
}
