// text.h: numbers and words in the C locale, whatever locale the program has set (setlocale, uselocale). A library
// cannot change the program's locale, and files, variables and log lines must not depend on it. In src/ these replace
// strtod, strtof, atof, strcasecmp, strncasecmp, and every printf with %e, %f or %g; scripts/check_locale looks for the
// others.
#pragma once
#include <stdarg.h>
#include <stddef.h>

// As strtof. Any thread.
float tt_strtof(const char *text, char **end);

// As vsnprintf and snprintf. Any thread.
int tt_vformat(char *out, size_t size, const char *format, va_list args) __attribute__((format(printf, 3, 0)));
int tt_format(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
// Adds a formatted item of less than 256 bytes to the list in `list`, a text of at most size - 1 bytes: "a, b". Where
// one has no room, the list ends in "...", and takes no more. `list` is "" at first. Any thread.
void tt_list_add(char *list, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

// As strcasecmp and strncasecmp, for ASCII letters alone: in Turkish "i" is not the small "I". Any thread.
int tt_casecmp(const char *a, const char *b);
int tt_ncasecmp(const char *a, const char *b, size_t n);
