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
static bool xml_blank(const char *s)
{
  while (isspace((unsigned char)*s)) {
    s++;
  }
  return *s == 0;
}

// A whole number, decimal or 0x…; octal is not meant by a leading 0.
static bool xml_read_int(const char *text, long long *out)
{
  while (isspace((unsigned char)*text)) {
    text++;
  }
  const char *digits = *text == '-' || *text == '+' ? text + 1 : text;
  int base = digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X') ? 16 : 10;
  char *end = NULL;
  errno = 0;
  long long value = strtoll(text, &end, base);
  if (end == text || errno != 0 || !xml_blank(end)) {
    return false;
  }
  *out = value;
  return true;
}

ncclResult_t tt_xml_int(const tt_xml_node *node, const char *name, tt_xml_range range, int *out)
{
  const char *text = NULL;
  long long value;
  TT_TRY(tt_xml_need(node, name, &text));
  if (!xml_read_int(text, &value) || value < range.lo || value > range.hi) {
    return tt_xml_fail(node, "%s=\"%.64s\": a whole number from %d to %d is expected", name, text, range.lo, range.hi);
  }
  *out = (int)value;
  return ncclSuccess;
}

// The text of an attribute; NULL when it is missing or empty.
static const char *xml_filled(const tt_xml_node *node, const char *name)
{
  const char *text = tt_xml_get(node, name);
  return text == NULL || xml_blank(text) ? NULL : text;
}

ncclResult_t tt_xml_int_or(const tt_xml_node *node, const char *name, int def, tt_xml_range range, int *out)
{
  if (xml_filled(node, name) != NULL) {
    return tt_xml_int(node, name, range, out);
  }
  *out = def;
  return ncclSuccess;
}

ncclResult_t tt_xml_float_or(const tt_xml_node *node, const char *name, float def, float most, float *out)
{
  const char *text = xml_filled(node, name);
  char *end = NULL;
  float value = text != NULL ? tt_strtof(text, &end) : def;
  if (text != NULL && (end == text || !xml_blank(end) || !isfinite(value) || value < 0 || value > most)) {
    return tt_xml_fail(node, "%s=\"%.64s\": a number from 0 to %g is expected", name, text, (double)most);
  }
  *out = value;
  return ncclSuccess;
}

ncclResult_t tt_xml_hex_or(const tt_xml_node *node, const char *name, uint64_t def, uint64_t *out)
{
  const char *text = xml_filled(node, name);
  char *end = NULL;
  errno = 0;
  uint64_t value = text != NULL ? strtoull(text, &end, 16) : def;
  if (text != NULL && (end == text || errno != 0 || !xml_blank(end) || strchr(text, '-') != NULL)) {
    return tt_xml_fail(node, "%s=\"%.64s\": a number of up to 64 bits in hexadecimal is expected", name, text);
  }
  *out = value;
  return ncclSuccess;
}
