// text.c: the file's text: see figures.h.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/param.h"
#include "base/text.h"
#include "base/util.h"
#include "figures/figures.h"

// A file being read. The first thing that is wrong stays in `why`.
typedef struct reading {
  const tt_machine_kind *kind;
  tt_figures f;
  uint32_t seen; // bit i: figure i
  bool version, machine[3], bad;
  char *why;
} reading;

static const char *const machine_names[] = {"cpu", "cores", "kernel"};

__attribute__((format(printf, 2, 3))) static void refuse(reading *r, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  if (!r->bad) {
    tt_vformat(r->why, TT_FIGURES_WHY, format, args);
  }
  va_end(args);
  r->bad = true;
}

static void take_version(reading *r, const tt_conf_line *line)
{
  int64_t v;
  if (r->version || !tt_param_parse_value(TT_PARAM_TYPE_INT, line->value, &v)) {
    refuse(r, "line %d: one number is expected as the version, found %.32s", line->number, line->value);
  } else if (v != TT_FIGURES_VERSION) {
    refuse(r, "it is of version %lld, this library reads version %d", (long long)v, TT_FIGURES_VERSION);
  }
  r->version = true;
}

// The machine it was measured on, item `i` of machine_names.
static void take_machine(reading *r, const tt_conf_line *line, int i)
{
  char cores[16];
  if (r->machine[i]) {
    refuse(r, "line %d: %s stands there twice", line->number, line->key);
  }
  r->machine[i] = true;
  if (r->kind != NULL) {
    snprintf(cores, sizeof cores, "%d", r->kind->cores);
    const char *here = i == 0 ? r->kind->cpu : i == 1 ? cores : r->kind->kernel;
    if (strcmp(line->value, here) != 0) {
      refuse(r, "it is of another machine: %s %.40s, this one has %.40s", line->key, line->value, here);
    }
  }
}

static void take_figure(reading *r, const tt_conf_line *line, tt_figure f)
{
  const tt_figure_row *row = tt_figure_row_at(f);
  int64_t x = -1;
  bool number = tt_param_parse_value(TT_PARAM_TYPE_INT, line->value, &x);
  if ((r->seen >> f & 1) != 0) {
    refuse(r, "line %d: %s stands there twice", line->number, row->name);
  } else if (!number || x < row->least || x > row->most) {
    refuse(r, "line %d: %s is expected from %u to %u, found %.32s", line->number, row->name, row->least, row->most,
           line->value);
  }
  r->seen |= 1u << f;
  r->f.value[f] = (uint32_t)x;
}

// The number of the name in a list; -1: it is not there.
static int find_figure(const char *name)
{
  int i = TT_FIGURES - 1;
  while (i >= 0 && strcmp(tt_figure_row_at((tt_figure)i)->name, name) != 0) {
    i--;
  }
  return i;
}

static int find_machine(const char *name)
{
  int i = (int)TT_COUNT(machine_names) - 1;
  while (i >= 0 && strcmp(machine_names[i], name) != 0) {
    i--;
  }
  return i;
}

static void take_line(void *arg, const tt_conf_line *line)
{
  reading *r = arg;
  int figure = find_figure(line->key), machine = find_machine(line->key);
  if (line->problem != NULL) {
    refuse(r, "line %d: %.80s", line->number, line->problem);
  } else if (!r->version && strcmp(line->key, "version") != 0) {
    // Before a newer one's lines are judged.
    refuse(r, "line %d: the version is expected first, found %.32s", line->number, line->key);
  } else if (strcmp(line->key, "version") == 0) {
    take_version(r, line);
  } else if (figure >= 0) {
    take_figure(r, line, (tt_figure)figure);
  } else if (machine >= 0) {
    take_machine(r, line, machine);
  } else if (strcmp(line->key, "measured") == 0) {
    int64_t when;
    if (!tt_param_parse_value(TT_PARAM_TYPE_INT, line->value, &when) || when <= 0) {
      refuse(r, "line %d: measured is expected to be seconds since 1970, found %.32s", line->number, line->value);
    } else {
      r->f.when = when;
    }
  } else if (strcmp(line->key, "host") != 0) {
    refuse(r, "line %d: there is no figure %.32s", line->number, line->key);
  }
}

// Everything that a file must say.
static void check_complete(reading *r)
{
  for (int i = 0; i < TT_FIGURES; i++) {
    if ((r->seen >> i & 1) == 0) {
      refuse(r, "%s is missing", tt_figure_row_at((tt_figure)i)->name);
    }
  }
  for (int i = 0; i < (int)TT_COUNT(machine_names); i++) {
    if (!r->machine[i]) {
      refuse(r, "%s is missing", machine_names[i]);
    }
  }
  if (r->f.when == 0) {
    refuse(r, "measured is missing");
  }
}

bool tt_figures_parse(const char *text, size_t size, const tt_machine_kind *kind, tt_figures *out,
                      char why[TT_FIGURES_WHY])
{
  reading r = {.kind = kind, .f = {.version = TT_FIGURES_VERSION, .measured = 1}, .why = why};
  if (size >= TT_FIGURES_MAX_BYTES) {
    refuse(&r, "it is longer than %d bytes", TT_FIGURES_MAX_BYTES - 1);
    return false;
  }
  tt_param_parse_conf(text, size, take_line, &r);
  if (!r.version) {
    refuse(&r, "it is no file of figures: it does not begin with a version");
  }
  check_complete(&r);
  if (r.bad) {
    return false;
  }
  *out = r.f;
  return true;
}
