#include "base/text.h"

#include <locale.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

void tt_list_add(char *list, size_t size, const char *format, ...)
{
  char item[256];
  size_t used = strlen(list);
  const char *comma = used > 0 ? ", " : "";
  va_list args;
  va_start(args, format);
  tt_vformat(item, sizeof item, format, args);
  va_end(args);
  if (used >= 3 && strcmp(list + used - 3, "...") == 0) {
    return;
  }
  bool fits = used + strlen(comma) + strlen(item) + sizeof ", ..." <= size;
  snprintf(list + used, size - used, "%s%s", comma, fits ? item : "...");
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
