#include "base/text.h"

#include <locale.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// Puts the calling thread into the C locale; returns the locale before it. The C library has this locale as a constant:
// nothing is allocated.
static locale_t enter_c_locale(void)
{
  return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

float tt_strtof(const char *text, char **end)
{
  locale_t before = enter_c_locale();
  float value = strtof(text, end);
  uselocale(before);
  return value;
}

int tt_vformat(char *out, size_t size, const char *format, va_list args)
{
  locale_t before = enter_c_locale();
  int n = vsnprintf(out, size, format, args);
  uselocale(before);
  return n;
}

int tt_format(char *out, size_t size, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  int n = tt_vformat(out, size, format, args);
  va_end(args);
  return n;
}

static int small_letter(char c)
{
  return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : (unsigned char)c;
}

int tt_ncasecmp(const char *a, const char *b, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    int x = small_letter(a[i]), y = small_letter(b[i]);
    if (x != y || x == 0) {
      return x - y;
    }
  }
  return 0;
}

int tt_casecmp(const char *a, const char *b)
{
  return tt_ncasecmp(a, b, SIZE_MAX);
}
