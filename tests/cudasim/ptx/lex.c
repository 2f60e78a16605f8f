// lex.c: tokens of PTX.
#include "ptx_priv.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ptx_fail(struct ptx_parser *p, const char *format, ...)
{
  if (!p->failed) {
    char text[PTX_TEXT / 2];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    snprintf(p->why, PTX_TEXT, "line %d: %.100s%s%s", p->token_line, p->opcode ? p->opcode : "", p->opcode ? ": " : "",
             text);
  }
  p->failed = true;
  p->kind = PTX_END;
  p->token[0] = 0;
  return false;
}

// By hand: the functions of <ctype.h> would be half of the time that reading takes.
static bool is_ptx_digit(char c)
{
  return c >= '0' && c <= '9';
}

static bool in_word(char c)
{
  return is_ptx_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '.';
}

static bool is_ptx_blank(char c)
{
  return c == ' ' || (c >= '\t' && c <= '\r');
}

// The end of the line. The text is long, and AddressSanitizer's strcspn looks at all of it each time.
static const char *line_end(const char *at)
{
  while (*at && *at != '\n') {
    at++;
  }
  return at;
}

static void skip_blanks(struct ptx_parser *p)
{
  for (;; p->at++) {
    if (p->at[0] == '/' && p->at[1] == '/') {
      p->at = line_end(p->at);
    } else if (p->at[0] == '/' && p->at[1] == '*') {
      for (p->at += 2; *p->at && (p->at[0] != '*' || p->at[1] != '/'); p->at++) {
        p->line += *p->at == '\n';
      }
      p->at += *p->at != 0;
      continue;
    }
    p->line += *p->at == '\n';
    if (!is_ptx_blank(*p->at)) {
      return;
    }
  }
}

// Bytes of the token at s; "::" belongs to words ("L1::no_allocate"), a single colon ends a label.
static size_t token_length(const char *s, enum ptx_token *kind)
{
  size_t n = 1;
  if (*s == '"') {
    *kind = PTX_STRING;
    while (s[n] && s[n] != '"' && s[n] != '\n') {
      n++;
    }
    return n + (s[n] == '"');
  }
  *kind = is_ptx_digit(*s) ? PTX_NUMBER : in_word(*s) || *s == '%' ? PTX_WORD : PTX_PUNCT;
  if (*kind == PTX_PUNCT) {
    return 1;
  }
  for (;;) {
    if (in_word(s[n])) {
      n++;
    } else if (*kind == PTX_WORD && s[n] == ':' && s[n + 1] == ':' && isalnum((unsigned char)s[n + 2])) {
      n += 2;
    } else {
      return n;
    }
  }
}

void ptx_next(struct ptx_parser *p)
{
  if (p->failed) {
    return;
  }
  skip_blanks(p);
  p->token_line = p->line;
  p->token_at = p->at;
  p->token[0] = 0;
  p->kind = PTX_END;
  if (*p->at == 0) {
    return;
  }
  size_t n = token_length(p->at, &p->kind);
  if (n >= sizeof p->token) {
    ptx_fail(p, "a word of %zu characters", n);
    return;
  }
  memcpy(p->token, p->at, n);
  p->token[n] = 0;
  p->at += n;
}

void ptx_skip_line(struct ptx_parser *p)
{
  if (!p->failed) {
    p->at = line_end(p->token_at);
    p->line = p->token_line;
    ptx_next(p);
  }
}

bool ptx_is(const struct ptx_parser *p, const char *text)
{
  return p->kind != PTX_END && p->kind != PTX_STRING && ptx_same(p->token, text);
}

bool ptx_accept(struct ptx_parser *p, const char *text)
{
  if (!ptx_is(p, text)) {
    return false;
  }
  ptx_next(p);
  return true;
}

bool ptx_expect(struct ptx_parser *p, const char *text)
{
  return ptx_accept(p, text) || ptx_fail(p, "'%s' expected, not '%.60s'", text, p->token);
}

bool ptx_integer(struct ptx_parser *p, int64_t *value)
{
  bool minus = ptx_accept(p, "-");
  uint64_t bits;
  if (p->kind != PTX_NUMBER) {
    return ptx_fail(p, "a number expected, not '%.60s'", p->token);
  }
  if (!ptx_number_bits(p, p->token, 8, &bits)) {
    return false;
  }
  *value = (int64_t)(minus ? -bits : bits);
  ptx_next(p);
  return true;
}

static uint64_t float_bits(double value, int bytes)
{
  uint64_t bits = 0;
  float f = (float)value;
  memcpy(&bits, bytes == 4 ? (void *)&f : (void *)&value, bytes == 4 ? 4 : 8);
  return bits;
}

static double bits_float(uint64_t bits, bool is_double)
{
  double d;
  float f;
  uint32_t low = (uint32_t)bits;
  memcpy(&d, &bits, 8);
  memcpy(&f, &low, 4);
  return is_double ? d : (double)f;
}

bool ptx_number_bits(struct ptx_parser *p, const char *text, int bytes, uint64_t *bits)
{
  bool minus = *text == '-';
  const char *s = text + minus;
  char *end;
  int kind = s[0] == '0' ? tolower((unsigned char)s[1]) : 0;
  if (kind == 'f' || kind == 'd') {
    *bits = strtoull(s + 2, &end, 16);
    bool is_double = kind == 'd';
    if (bytes == 4 || bytes == 8) {
      *bits = is_double == (bytes == 8) ? *bits : float_bits(bits_float(*bits, is_double), bytes);
    }
    *bits ^= minus ? UINT64_C(1) << (bytes * 8 - 1) : 0;
  } else if (kind != 'x' && strpbrk(s, ".eE")) {
    *bits = float_bits(minus ? -strtod(s, &end) : strtod(s, &end), bytes);
  } else {
    *bits = kind == 'b' ? strtoull(s + 2, &end, 2) : strtoull(s, &end, 0);
    *bits = minus ? -*bits : *bits;
    end += *end == 'U';
  }
  if (*end) {
    return ptx_fail(p, "'%.60s' is no number", text);
  }
  if (bytes < 8) {
    *bits &= bytes ? (UINT64_C(1) << (8 * bytes)) - 1 : 1;
  }
  return true;
}
