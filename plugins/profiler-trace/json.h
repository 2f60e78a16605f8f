// json.h: pieces of JSON, put one behind the other. Each function writes at `p` and gives back where it has stopped.
#pragma once
#include <stdint.h>
#include <string.h>

static inline char *tt_put(char *p, const char *text)
{
  size_t n = strlen(text);
  memcpy(p, text, n);
  return p + n;
}

static inline char *tt_put_u64(char *p, uint64_t v)
{
  char digits[20];
  int n = 0;
  do {
    digits[n++] = (char)('0' + v % 10);
    v /= 10;
  } while (v != 0);
  while (n > 0) {
    *p++ = digits[--n];
  }
  return p;
}

static inline char *tt_put_i64(char *p, int64_t v)
{
  if (v < 0) {
    *p++ = '-';
    return tt_put_u64(p, (uint64_t)-v);
  }
  return tt_put_u64(p, (uint64_t)v);
}

// Nanoseconds as microseconds with three decimals, as time stamps are.
static inline char *tt_put_us(char *p, uint64_t ns)
{
  p = tt_put_u64(p, ns / 1000);
  *p++ = '.';
  *p++ = (char)('0' + ns / 100 % 10);
  *p++ = (char)('0' + ns / 10 % 10);
  *p++ = (char)('0' + ns % 10);
  return p;
}

// At most 128 bytes of a text, without quotes around it; what JSON does not take as it is becomes '?'.
static inline char *tt_put_text(char *p, const char *text)
{
  for (int i = 0; text != NULL && text[i] != '\0' && i < 128; i++) {
    unsigned char c = (unsigned char)text[i];
    *p++ = c < 32 || c > 126 || c == '"' || c == '\\' ? '?' : (char)c;
  }
  return p;
}

static inline char *tt_put_hex(char *p, uint64_t v)
{
  for (int shift = 60; shift >= 0; shift -= 4) {
    *p++ = "0123456789abcdef"[v >> shift & 15];
  }
  return p;
}

// A name: 0x and 16 digits, in quotes.
static inline char *tt_put_name(char *p, uint64_t v)
{
  return tt_put(tt_put_hex(tt_put(p, "\"0x"), v), "\"");
}
