// text.h: a text that grows.
#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

// Zeroed it is empty.
typedef struct ras_text {
  char *data; // with a zero behind it; NULL: nothing has been added
  size_t size, room;
  bool failed; // no memory: what was added since is lost
} ras_text;

// Adds a formatted text, in the C locale.
void ras_add(ras_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Adds `value` as a JSON string with its quotation marks.
void ras_add_string(ras_text *t, const char *value);
// Frees it and leaves it empty.
void ras_text_free(ras_text *t);
