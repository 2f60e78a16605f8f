// values.c: see values.h.
#include "base/values.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/util.h"

#define FIRST_BYTES 4096
#define TEXT_MOST 2048

// Opcodes of a pickle, by the names that Python's pickletools has for them.
enum {
  PICKLE_PROTO = 0x80,
  PICKLE_TRUE = 0x88,
  PICKLE_FALSE = 0x89,
  PICKLE_LONG1 = 0x8a,
  PICKLE_EMPTY_DICT = '}',
  PICKLE_EMPTY_LIST = ']',
  PICKLE_MARK = '(',
  PICKLE_SETITEMS = 'u',
  PICKLE_APPENDS = 'e',
  PICKLE_BININT = 'J',
  PICKLE_BINFLOAT = 'G',
  PICKLE_BINUNICODE = 'X',
  PICKLE_NONE = 'N',
  PICKLE_STOP = '.'
};

static void values_put(tt_values *v, const void *bytes, size_t n)
{
  if (v->length + n > v->room) {
    size_t room = TT_MAX(TT_MAX(2 * v->room, (size_t)FIRST_BYTES), v->length + n);
    char *text = v->failed ? NULL : realloc(v->text, room);
    if (text == NULL) {
      v->failed = true;
      return;
    }
    v->text = text;
    v->room = room;
  }
  memcpy(v->text + v->length, bytes, n);
  v->length += n;
}

static void values_put_byte(tt_values *v, int byte)
{
  char c = (char)byte;
  values_put(v, &c, 1);
}

// Least significant byte first.
static void values_put_number(tt_values *v, uint64_t n, int bytes)
{
  for (int i = 0; i < bytes; i++) {
    values_put_byte(v, (int)(n >> 8 * i & 0xff));
  }
}

// A value or key follows: JSON separates it from the one before. Returns whether the format is JSON.
static bool values_next(tt_values *v)
{
  if (v->format == TT_VALUES_JSON && v->comma) {
    values_put_byte(v, ',');
  }
  v->comma = true;
  return v->format == TT_VALUES_JSON;
}

static void values_begin(tt_values *v, bool list)
{
  if (values_next(v)) {
    values_put_byte(v, list ? '[' : '{');
  } else {
    values_put_byte(v, list ? PICKLE_EMPTY_LIST : PICKLE_EMPTY_DICT);
    values_put_byte(v, PICKLE_MARK);
  }
  v->comma = false;
  v->failed |= v->depth == TT_VALUES_DEPTH;
  v->is_list[TT_MIN(v->depth, TT_VALUES_DEPTH - 1)] = list;
  v->depth += v->depth < TT_VALUES_DEPTH;
}

void tt_values_dict(tt_values *v)
{
  values_begin(v, false);
}

void tt_values_list(tt_values *v)
{
  values_begin(v, true);
}

void tt_values_end(tt_values *v)
{
  v->failed |= v->depth == 0;
  v->depth -= v->depth > 0;
  bool list = v->is_list[v->depth], json = v->format == TT_VALUES_JSON;
  values_put_byte(v, json ? (list ? ']' : '}') : list ? PICKLE_APPENDS : PICKLE_SETITEMS);
  v->comma = true;
}

// Bytes of the UTF-8 character at `s`; 0: it is none.
static size_t values_character(const char *s)
{
  unsigned char c = (unsigned char)*s;
  size_t n = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe1 && c < 0xed ? 3 : c >= 0xf1 && c < 0xf4 ? 4 : 0;
  for (size_t i = 1; i < n; i++) {
    if (((unsigned char)s[i] & 0xc0) != 0x80) {
      return 0;
    }
  }
  return n;
}

// Replaces what is no UTF-8.
static void values_clean(char *text)
{
  for (size_t n; *text != 0; text += TT_MAX(n, (size_t)1)) {
    n = values_character(text);
    *text = n == 0 ? '?' : *text;
  }
}

static void values_quote(tt_values *v, const char *text)
{
  values_put_byte(v, '"');
  for (const char *s = text; *s != 0; s++) {
    if ((unsigned char)*s < ' ') {
      char escape[8];
      values_put(v, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", (unsigned)*s));
    } else if (*s == '"' || *s == '\\') {
      values_put_byte(v, '\\');
      values_put_byte(v, *s);
    } else {
      values_put_byte(v, *s);
    }
  }
  values_put_byte(v, '"');
}

static void values_put_text(tt_values *v, const char *text)
{
  if (values_next(v)) {
    values_quote(v, text);
    return;
  }
  size_t n = strlen(text);
  values_put_byte(v, PICKLE_BINUNICODE);
  values_put_number(v, n, 4);
  values_put(v, text, n);
}

void tt_values_key(tt_values *v, const char *key)
{
  values_put_text(v, key);
  if (v->format == TT_VALUES_JSON) {
    values_put_byte(v, ':');
    v->comma = false;
  }
}

static void __attribute__((format(printf, 2, 0))) values_format_text(tt_values *v, const char *format, va_list args)
{
  char text[TEXT_MOST];
  tt_vformat(text, sizeof text, format, args);
  values_clean(text);
  values_put_text(v, text);
}

void tt_values_string(tt_values *v, const char *ascii)
{
  values_put_text(v, ascii);
}

void tt_values_text(tt_values *v, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  values_format_text(v, format, args);
  va_end(args);
}

void tt_values_int(tt_values *v, int64_t n)
{
  if (values_next(v)) {
    char text[24];
    values_put(v, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)n));
  } else if (n >= INT32_MIN && n <= INT32_MAX) {
    values_put_byte(v, PICKLE_BININT);
    values_put_number(v, (uint64_t)n, 4);
  } else {
    values_put_byte(v, PICKLE_LONG1);
    values_put_byte(v, 8);
    values_put_number(v, (uint64_t)n, 8);
  }
}

void tt_values_float(tt_values *v, double x)
{
  if (values_next(v)) {
    char text[40];
    values_put(v, text, (size_t)tt_format(text, sizeof text, "%.6f", x));
    return;
  }
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  values_put_byte(v, PICKLE_BINFLOAT);
  values_put_number(v, __builtin_bswap64(bits), 8); // this one has the most significant byte first
}

void tt_values_bool(tt_values *v, bool b)
{
  if (values_next(v)) {
    values_put(v, b ? "true" : "false", b ? 4 : 5);
  } else {
    values_put_byte(v, b ? PICKLE_TRUE : PICKLE_FALSE);
  }
}

void tt_values_null(tt_values *v)
{
  if (values_next(v)) {
    values_put(v, "null", 4);
  } else {
    values_put_byte(v, PICKLE_NONE);
  }
}

void tt_values_put_int(tt_values *v, const char *key, int64_t n)
{
  tt_values_key(v, key);
  tt_values_int(v, n);
}

void tt_values_put_bool(tt_values *v, const char *key, bool b)
{
  tt_values_key(v, key);
  tt_values_bool(v, b);
}

void tt_values_put_text(tt_values *v, const char *key, const char *format, ...)
{
  va_list args;
  tt_values_key(v, key);
  va_start(args, format);
  values_format_text(v, format, args);
  va_end(args);
}

void tt_values_open(tt_values *v, tt_values_format format)
{
  *v = (tt_values){.format = format};
  if (format == TT_VALUES_PICKLE) {
    values_put_byte(v, PICKLE_PROTO);
    values_put_byte(v, 2);
  }
}

char *tt_values_close(tt_values *v, size_t *length)
{
  values_put_byte(v, v->format == TT_VALUES_PICKLE ? PICKLE_STOP : '\n');
  *length = v->length;
  values_put_byte(v, 0);
  if (v->failed || v->depth != 0) {
    free(v->text);
    v->text = NULL;
  }
  return v->text;
}
