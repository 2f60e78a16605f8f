// Names, lists, file names and time stamps of the log: pure functions.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log_priv.h"
#include "base/text.h"
#include "base/util.h"

typedef struct bit_name {
  const char *name;
  unsigned bits;
} bit_name;

// In the order in which a level includes those before it.
static const bit_name level_names[] = {
    {"NONE", 1u << TT_LOG_NONE},   {"VERSION", 1u << TT_LOG_VERSION},
    {"WARN", 1u << TT_LOG_WARN},   {"ATTN", 1u << TT_LOG_ATTN},
    {"INFO", 1u << TT_LOG_INFO},   {"ABORT", 1u << TT_LOG_ABORT},
    {"TRACE", 1u << TT_LOG_TRACE}, {"ALL", ~0u},
};

static const bit_name subsys_names[] = {
    {"INIT", TT_INIT},
    {"COLL", TT_COLL},
    {"P2P", TT_P2P},
    {"SHM", TT_SHM},
    {"NET", TT_NET},
    {"GRAPH", TT_GRAPH},
    {"TUNING", TT_TUNING},
    {"ENV", TT_ENV},
    {"ALLOC", TT_ALLOC},
    {"CALL", TT_CALL},
    {"PROXY", TT_PROXY},
    {"NVLS", TT_NVLS},
    {"BOOTSTRAP", TT_BOOTSTRAP},
    {"REG", TT_REG},
    {"PROFILE", TT_PROFILE},
    {"RAS", TT_RAS},
    {"DESTROY", TT_DESTROY},
    {"ALLOC_HOST", TT_ALLOC_HOST},
    {"ALL", ~0u},
};

// Bits of the name of `len` characters; 0 when it is not in the table.
static unsigned bits_of(const bit_name *table, size_t count, const char *name, size_t len)
{
  for (size_t i = 0; i < count; i++) {
    if (strlen(table[i].name) == len && tt_ncasecmp(table[i].name, name, len) == 0) {
      return table[i].bits;
    }
  }
  return 0;
}

static unsigned log_parse_list(const bit_name *table, size_t count, const char *text, char *unknown, size_t size)
{
  unsigned bits = 0;
  bool negated = *text == '^';
  unknown[0] = '\0';
  text += negated;
  while (*text != '\0') {
    size_t token = strcspn(text, ",");
    size_t skip = strspn(text, " \t");
    size_t start = TT_MIN(skip, token);
    size_t end = token;
    while (end > start && (text[end - 1] == ' ' || text[end - 1] == '\t')) {
      end--;
    }
    unsigned found = bits_of(table, count, text + start, end - start);
    if (found == 0 && end > start && unknown[0] == '\0') {
      snprintf(unknown, size, "%.*s", (int)TT_MIN(end - start, size), text + start);
    }
    bits |= found;
    text += token + (text[token] == ',');
  }
  return negated ? ~bits : bits;
}

bool tt_log_parse_level(const char *text, tt_log_level *out)
{
  unsigned bits = bits_of(level_names, TT_COUNT(level_names) - 1, text, strlen(text));
  if (bits == 0) {
    return false;
  }
  *out = (tt_log_level)__builtin_ctz(bits);
  return true;
}

unsigned tt_log_levels_to(tt_log_level level)
{
  unsigned bits = 0;
  for (size_t i = 0; i < TT_COUNT(level_names) - 1 && (bits & 1u << level) == 0; i++) {
    bits |= level_names[i].bits;
  }
  return bits;
}

unsigned tt_log_parse_subsys(const char *text, char *unknown, size_t size)
{
  return log_parse_list(subsys_names, TT_COUNT(subsys_names), text, unknown, size);
}

unsigned tt_log_parse_levels(const char *text, char *unknown, size_t size)
{
  return log_parse_list(level_names, TT_COUNT(level_names), text, unknown, size);
}

bool tt_log_expand(const char *pattern, const char *host, int pid, char *out, size_t size)
{
  size_t used = 0;
  for (const char *p = pattern; *p != '\0'; p++) {
    char piece[3] = {*p, '\0', '\0'};
    char number[16];
    const char *add = piece;
    if (p[0] == '%' && p[1] != '\0') {
      p++;
      snprintf(number, sizeof number, "%d", pid);
      piece[1] = *p == '%' ? '\0' : *p; // an unknown sequence stays as it is
      add = *p == 'h' ? host : *p == 'p' ? number : piece;
    }
    size_t len = strlen(add);
    if (len >= size - used) {
      out[used] = '\0';
      return false;
    }
    memcpy(out + used, add, len);
    used += len;
  }
  out[used] = '\0';
  return true;
}

// Copies `format` with its first %1f … %9f replaced by that many digits of the second's fraction, and _ by a space.
static bool fill_fraction(const char *format, long nsec, char *out, size_t size)
{
  bool done = false;
  size_t used = 0;
  for (const char *p = format; *p != '\0'; p++) {
    char digits[10] = {*p == '_' ? ' ' : *p, '\0'};
    if (p[0] == '%' && p[1] == '%') {
      digits[1] = *++p;
    } else if (!done && p[0] == '%' && p[1] >= '1' && p[1] <= '9' && p[2] == 'f') {
      snprintf(digits, sizeof digits, "%09ld", nsec);
      digits[p[1] - '0'] = '\0';
      done = true;
      p += 2;
    }
    size_t len = strlen(digits);
    if (len >= size - used) {
      return false;
    }
    memcpy(out + used, digits, len);
    used += len;
  }
  out[used] = '\0';
  return true;
}

size_t tt_log_stamp(const char *format, long long sec, long nsec, char *out, size_t size)
{
  time_t t = (time_t)sec;
  struct tm tm = {0};
  char filled[256];
  size_t len = 0;
  localtime_r(&t, &tm);
  if (format[0] != '\0' && fill_fraction(format, TT_CLAMP(nsec, 0, 999999999), filled, sizeof filled)) {
    len = strftime(out, size, filled, &tm);
  }
  if (len == 0 && format[0] != '\0') {
    len = strftime(out, size, "[%F %T] ", &tm);
  }
  if (len == 0) {
    out[0] = '\0'; // strftime leaves rubbish when it fails
  }
  return len;
}
