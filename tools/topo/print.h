// print.h: where a command writes: colour, line characters, width; texts from files made harmless.
#pragma once
#include <stdio.h>

#include "options.h"

typedef struct xp_print {
  FILE *f;
  bool colour, utf8;
  int width;        // columns of the terminal; 0: no limit
  const char *name; // of the file, for messages
  char *target;     // file that is written beside it and takes its place at the end; NULL: written directly
  char *beside;
} xp_print;

// Opens what the options say: standard output or a file. What the file has stays until the end: it may be what the
// command reads. False: a message was written.
bool xp_print_open(const xp_options *o, xp_print *out);

// Closes it; unless `good`, a file stays as it was. False when anything could not be written (full disk, closed pipe):
// a message was written.
bool xp_print_close(xp_print *p, bool good);

typedef enum { XP_PLAIN, XP_BOLD, XP_DIM, XP_GPU, XP_NET, XP_CPU, XP_PCI, XP_GOOD, XP_BAD } xp_colour;

// The terminal's sequence for a colour, "" without colour. XP_PLAIN ends what was begun.
const char *xp_ansi(const xp_print *p, xp_colour c);

// An arrow to the right, as the terminal can show it.
const char *xp_arrow(const xp_print *p);

// A text that grows. Where its room ends, "..." stands behind the last word that fits, and nothing is added any more.
typedef struct xp_text {
  char buf[1024];
  size_t n;
  bool full;
} xp_text;

// Adds to it.
__attribute__((format(printf, 2, 3))) void xp_add(xp_text *t, const char *fmt, ...);

// Columns that a text in UTF-8 takes; sequences of xp_ansi take none.
int xp_columns(const char *text);

// Writes a text's words and ends the line, which has `at` columns so far; two blanks come between. What would pass the
// width goes to the next line: below where the text began, or where little room is left there, `indent` columns in.
void xp_flow(const xp_print *p, int at, int indent, const char *text);

// The same of a text that is made first, at the begin of a line.
__attribute__((format(printf, 3, 4))) void xp_say(const xp_print *p, int indent, const char *fmt, ...);

// Copies a text from a file: control characters and what a terminal may take for a command become "?". Returns out.
const char *xp_clean(const char *text, char *out, size_t size);

// Writes a text as a JSON string, with its quotes.
void xp_json_text(FILE *f, const char *text);

// A time, a bandwidth in at most `width` columns. Returns out.
const char *xp_fixed(double value, int width, char *out, size_t size);

// "1048576" as "1 MiB" where that is exact; else bytes. Returns out.
const char *xp_bytes(size_t bytes, char *out, size_t size);
