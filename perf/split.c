#include "split.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// Numbers of units are not negative: of a mask only so many bits count.
static bool parse_value(const char *s, int base, bool mask, int *out)
{
  s += strspn(s, " \t");
  if (base == 0 && strncasecmp(s, "0b", 2) == 0) {
    s += 2;
    base = 2;
  }
  char *end;
  errno = 0;
  unsigned long long v = strtoull(s, &end, base);
  if (end == s || *end || errno || strchr("+-", *s) || (v > INT_MAX && !mask)) {
    return false;
  }
  *out = (int)(v & INT_MAX);
  return true;
}

bool perf_split_parse(const char *split, const char *mask, perf_split *out)
{
  static const struct {
    const char *name;
    perf_split_kind kind;
  } names[] = {
      {"AND", PERF_SPLIT_AND}, {"&", PERF_SPLIT_AND}, {"OR", PERF_SPLIT_OR},   {"|", PERF_SPLIT_OR},
      {"MOD", PERF_SPLIT_MOD}, {"%", PERF_SPLIT_MOD}, {"DIV", PERF_SPLIT_DIV}, {"/", PERF_SPLIT_DIV},
  };
  *out = (perf_split){PERF_SPLIT_NONE, 0};
  if (mask) {
    out->kind = PERF_SPLIT_AND;
    return parse_value(mask, 16, true, &out->value);
  }
  if (!split) {
    return true;
  }
  for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    size_t len = strlen(names[i].name);
    if (strncasecmp(split, names[i].name, len) == 0) {
      out->kind = names[i].kind;
      bool divides = out->kind == PERF_SPLIT_MOD || out->kind == PERF_SPLIT_DIV;
      return parse_value(split + len, 0, out->kind == PERF_SPLIT_AND, &out->value) && !(divides && out->value == 0);
    }
  }
  return false;
}

int perf_split_color(const perf_split *s, int unit)
{
  switch (s->kind) {
  case PERF_SPLIT_AND: return unit & s->value;
  case PERF_SPLIT_OR: return unit | s->value;
  case PERF_SPLIT_MOD: return unit % s->value;
  case PERF_SPLIT_DIV: return unit / s->value;
  default: return 0;
  }
}
