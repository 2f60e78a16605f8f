// fuzz_env.c: any text as the value of a variable, for each parser that reads one: numbers, switches, log lists, the
// name of a log file, the format of a time stamp. What reads as a number must read as the same number when it is
// printed and read again.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log_priv.h"
#include "base/param.h"

static void check(int condition)
{
  if (!condition) {
    abort();
  }
}

static void numbers(const char *text)
{
  int64_t value = 0;
  int64_t again = 0;
  char printed[32];
  if (tt_param_parse_value(TT_PARAM_TYPE_INT, text, &value)) {
    snprintf(printed, sizeof printed, "%lld", (long long)value);
    check(tt_param_parse_value(TT_PARAM_TYPE_INT, printed, &again) && again == value);
    check(tt_param_parse_value(TT_PARAM_TYPE_BOOL, text, &again) && again == (value != 0));
  }
  if (tt_param_parse_value(TT_PARAM_TYPE_BOOL, text, &value)) {
    check(value == 0 || value == 1);
  }
  tt_param_parse_value(TT_PARAM_TYPE_STR, text, &value);
}

static void log_settings(const char *text)
{
  char out[80];
  tt_log_level level = TT_LOG_NONE;
  tt_log_parse_level(text, &level);
  check(level <= TT_LOG_ATTN);
  tt_log_parse_subsys(text, out, 16);
  check(strlen(out) < 16);
  tt_log_parse_levels(text, out, 16);
  tt_log_expand(text, "host", 4711, out, sizeof out);
  check(strlen(out) < sizeof out);
  check(tt_log_stamp(text, 1700000000, 123456789, out, sizeof out) < sizeof out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  char *text = malloc(size + 1);
  check(text != NULL);
  memcpy(text, data, size);
  text[size] = '\0';
  numbers(text);
  log_settings(text);
  tt_param_nearest(text);
  free(text);
  return 0;
}
