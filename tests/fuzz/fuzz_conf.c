// fuzz_conf.c: any bytes as a configuration file. Checks what parse_conf promises about every line that it gives.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/param.h"

typedef struct seen {
  int last;
  int problems;
} seen;

static void check(int condition)
{
  if (!condition) {
    abort();
  }
}

static void on_line(void *arg, const tt_conf_line *line)
{
  seen *s = arg;
  int64_t value;
  check(line->number > s->last || (line->number == 0 && line->problem != NULL));
  s->last = line->number;
  s->problems += line->problem != NULL;
  check((line->key[0] == '\0') == (line->problem != NULL));
  check(strlen(line->key) + strlen(line->value) < TT_CONF_MAX_LINE);
  check(strchr(line->key, '=') == NULL && strchr(line->value, '\n') == NULL);
  if (strncmp(line->key, "NCCL_", 5) == 0) {
    tt_param_nearest(line->key);
  }
  const tt_param_row *row = tt_param_find(line->key);
  if (row != NULL) {
    tt_param_parse_value(row->type, line->value, &value);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  seen s = {0};
  ncclResult_t res = tt_param_parse_conf((const char *)data, size, on_line, &s);
  check((res == ncclInvalidArgument) == (s.problems > 0));
  return 0;
}
