// values.h: writes nested values, dicts and lists, as JSON or as a Python pickle (protocol 2), into memory that grows.
//
// Between tt_values_dict and its tt_values_end stand a key and a value in turn, between tt_values_list and its end
// values. Without memory the writer goes on writing nothing, and tt_values_close returns NULL. One thread at a time.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { TT_VALUES_JSON, TT_VALUES_PICKLE } tt_values_format;

enum { TT_VALUES_DEPTH = 16 }; // dicts and lists within each other

// Use it by the functions below; tt_values_open makes it.
typedef struct tt_values {
  tt_values_format format;
  char *text; // NULL: empty
  size_t length, room;
  bool failed, comma;
  int depth;
  bool is_list[TT_VALUES_DEPTH];
} tt_values;

// Begins; the writer may hold anything before. Ends with tt_values_close.
void tt_values_open(tt_values *v, tt_values_format format);
// Ends the text. The caller frees it with free(). JSON ends with 0, which *length does not count. NULL: no memory.
char *tt_values_close(tt_values *v, size_t *length);

// A dict or a list begins.
void tt_values_dict(tt_values *v);
void tt_values_list(tt_values *v);
// The newest one ends.
void tt_values_end(tt_values *v);

// The key of the next value in a dict.
void tt_values_key(tt_values *v, const char *key);

// A value. Of a text (at most 2047 bytes), what is no UTF-8 becomes "?".
void tt_values_int(tt_values *v, int64_t n);
void tt_values_float(tt_values *v, double x);
void tt_values_bool(tt_values *v, bool b);
void tt_values_null(tt_values *v);
void tt_values_string(tt_values *v, const char *ascii); // of any length
void tt_values_text(tt_values *v, const char *format, ...) __attribute__((format(printf, 2, 3)));

// The same with their keys.
void tt_values_put_int(tt_values *v, const char *key, int64_t n);
void tt_values_put_bool(tt_values *v, const char *key, bool b);
void tt_values_put_text(tt_values *v, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));
