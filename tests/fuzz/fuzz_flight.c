// fuzz_flight.c: any bytes as a dump of a flight recorder: what tutti-trace accepts, every command can show.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "trace_tool.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static bool (*const commands[])(xt_jobs * jobs, FILE * out) = {xt_report, xt_merge, xt_summary};
  json_t *root = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
  xt_jobs jobs = {0};
  if (root == NULL || !xt_is_flight(root)) {
    json_decref(root);
    return 0;
  }
  bool good = xt_take(&jobs, "input", root) && jobs.ntraces > 0 && jobs.ntraces < 64 && xt_jobs_sort(&jobs);
  for (size_t i = 0; good && i < sizeof commands / sizeof *commands; i++) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL || !commands[i](&jobs, out) || fclose(out) != 0 || length == 0) {
      abort();
    }
    free(text);
  }
  xt_jobs_close(&jobs);
  return 0;
}
