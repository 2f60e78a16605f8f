// xml_value.c: attributes as numbers, and what is wrong with them.
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "topo/xml.h"

void tt_xml_plain(char *text)
{
  for (unsigned char *c = (unsigned char *)text; *c != 0; c++) {
    bool c1 = c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0; // of two bytes
    *c = *c < ' ' || *c == 0x7f || c1 ? ' ' : *c;
    if (c1) {
      *++c = ' ';
    }
  }
}

ncclResult_t tt_xml_fail_at(const tt_xml_node *node, const char *file, int line, const char *fmt, ...)
{
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  tt_vformat(text, sizeof(text), fmt, ap);
  va_end(ap);
  tt_xml_plain(text);
  return tt_fail_at(ncclInvalidArgument, file, line, "%s:%d: <%.64s>: %s", node->file, node->line, node->tag, text);
}

ncclResult_t tt_xml_need(const tt_xml_node *node, const char *name, const char **out)
{
  const char *value = tt_xml_get(node, name);
  if (value == NULL) {
    return tt_xml_fail(node, "attribute %s is missing", name);
  }
  *out = value;
  return ncclSuccess;
}

// Is there nothing but blanks from here?
static bool only_blanks(const char *s)
{
  while (isspace((unsigned char)*s)) {
    s++;
  }
  return *s == 0;
}

// A whole number, decimal or 0x…; octal is not meant by a leading 0.
static bool read_int(const char *text, long long *out)
{
  while (isspace((unsigned char)*text)) {
    text++;
  }
  const char *digits = *text == '-' || *text == '+' ? text + 1 : text;
  int base = digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X') ? 16 : 10;
  char *end = NULL;
  errno = 0;
  long long value = strtoll(text, &end, base);
  if (end == text || errno != 0 || !only_blanks(end)) {
    return false;
  }
  *out = value;
  return true;
}

static ncclResult_t parse_int(const tt_xml_node *node, const char *name, const long long range[2], long long *out)
{
  const char *text = tt_xml_get(node, name);
  long long value;
  if (!read_int(text, &value) || value < range[0] || value > range[1]) {
    return tt_xml_fail(node, "%s=\"%.64s\": a whole number from %lld to %lld is expected", name, text, range[0], range[1]);
  }
  *out = value;
  return ncclSuccess;
}

ncclResult_t tt_xml_int(const tt_xml_node *node, const char *name, long long lo, long long hi, long long *out)
{
  const char *text;
  TT_TRY(tt_xml_need(node, name, &text));
  return parse_int(node, name, (long long[]){lo, hi}, out);
}

static bool unset(const tt_xml_node *node, const char *name)
{
  const char *text = tt_xml_get(node, name);
  return text == NULL || only_blanks(text);
}

ncclResult_t tt_xml_int_or(const tt_xml_node *node, const char *name, long long def, const long long range[2], long long *out)
{
  if (unset(node, name)) {
    *out = def;
    return ncclSuccess;
  }
  return parse_int(node, name, range, out);
}

ncclResult_t tt_xml_float_or(const tt_xml_node *node, const char *name, float def, const float range[2], float *out)
{
  if (unset(node, name)) {
    *out = def;
    return ncclSuccess;
  }
  const char *text = tt_xml_get(node, name);
  char *end = NULL;
  float value = tt_strtof(text, &end);
  if (end == text || !only_blanks(end) || !isfinite(value) || value < range[0] || value > range[1]) {
    return tt_xml_fail(node, "%s=\"%.64s\": a number from %g to %g is expected", name, text, (double)range[0], (double)range[1]);
  }
  *out = value;
  return ncclSuccess;
}

ncclResult_t tt_xml_hex_or(const tt_xml_node *node, const char *name, uint64_t def, uint64_t *out)
{
  if (unset(node, name)) {
    *out = def;
    return ncclSuccess;
  }
  const char *text = tt_xml_get(node, name);
  char *end = NULL;
  errno = 0;
  uint64_t value = strtoull(text, &end, 16);
  if (end == text || errno != 0 || !only_blanks(end) || strchr(text, '-') != NULL) {
    return tt_xml_fail(node, "%s=\"%.64s\": a number of up to 64 bits in hexadecimal is expected", name, text);
  }
  *out = value;
  return ncclSuccess;
}
