// command.c: see command.h.
#include "ras/command.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/util.h"

enum { RECORDER_DEFAULT = 100 }; // operations

// Kinds of events of profilers, by number of their bit.
static const char *const kinds[] = {"group",     "coll",         "p2p",       "proxyop",  "proxystep",
                                    "proxyctrl", "kernelch",     "netplugin", "groupapi", "collapi",
                                    "p2papi",    "kernellaunch", "cecoll",    "cesync",   "cebatch"};
#define ALL_KINDS ((1u << TT_COUNT(kinds)) - 1)

static const char *skip_blanks(const char *s)
{
  return s + strspn(s, " \t");
}

// What stands behind the words of `phrase` at the beginning of `line`; NULL: it does not begin so.
static const char *behind(const char *line, const char *phrase)
{
  line = skip_blanks(line);
  while (*phrase != '\0') {
    size_t n = strcspn(phrase, " ");
    if (tt_ncasecmp(line, phrase, n) != 0 || (line[n] != '\0' && strchr(" \t", line[n]) == NULL)) {
      return NULL;
    }
    line = skip_blanks(line + n);
    phrase += n;
    phrase += strspn(phrase, " ");
  }
  return line;
}

static void read_timeout(ras_command *c)
{
  char *end;
  c->seconds = (double)tt_strtof(c->arg, &end);
  c->bad = end == c->arg || *skip_blanks(end) != '\0' || !isfinite(c->seconds) || c->seconds < 0;
}

static void read_format(ras_command *c)
{
  c->json = tt_casecmp(c->arg, "json") == 0;
  c->bad = !c->json && tt_casecmp(c->arg, "text") != 0;
}

static void read_most(ras_command *c)
{
  char *end;
  unsigned long v = strtoul(c->arg, &end, 10);
  c->most = *c->arg == '\0' ? RECORDER_DEFAULT : (uint32_t)TT_MIN(v, 1ul << 30);
  c->bad = *c->arg != '\0' && (*c->arg < '0' || *c->arg > '9' || *end != '\0' || v == 0);
}

static void read_groups(ras_command *c)
{
  static const struct {
    const char *name;
    unsigned groups;
  } rows[] = {{"lifecycle", RAS_LIFECYCLE}, {"trace", RAS_TRACE}, {"all", RAS_LIFECYCLE | RAS_TRACE}};
  c->groups = *c->arg == '\0' ? RAS_LIFECYCLE : 0;
  for (const char *s = c->arg; *s != '\0' && !c->bad; s += *s == ',') {
    size_t n = strcspn(s, ","), i = 0;
    while (i < TT_COUNT(rows) && (strlen(rows[i].name) != n || tt_ncasecmp(s, rows[i].name, n) != 0)) {
      i++;
    }
    c->bad = i == TT_COUNT(rows);
    c->groups |= c->bad ? 0 : rows[i].groups;
    c->arg = c->bad ? s : c->arg; // the group that is none
    s += n;
  }
}

// Adds one name; false: it is none.
static bool add_kind(const char *name, size_t n, uint32_t *mask)
{
  for (unsigned i = 0; i < TT_COUNT(kinds); i++) {
    if (strlen(kinds[i]) == n && tt_ncasecmp(name, kinds[i], n) == 0) {
      *mask |= 1u << i;
      return true;
    }
  }
  return false;
}

static void read_profiler_mask(ras_command *c)
{
  if (tt_casecmp(c->arg, "none") == 0 || tt_casecmp(c->arg, "all") == 0) {
    c->mask = tt_casecmp(c->arg, "all") == 0 ? ALL_KINDS : 0;
    return;
  }
  if (*c->arg >= '0' && *c->arg <= '9') {
    char *end;
    unsigned long v = strtoul(c->arg, &end, tt_ncasecmp(c->arg, "0x", 2) == 0 ? 16 : 10);
    c->bad = *end != '\0' || v > ALL_KINDS;
    c->mask = c->bad ? 0 : (uint32_t)v;
    return;
  }
  c->bad = *c->arg == '\0';
  for (const char *s = c->arg; *s != '\0' && !c->bad; s += *s == ',') {
    size_t n = strcspn(s, ",");
    c->bad = !add_kind(s, n, &c->mask);
    s += n;
  }
}

ras_command ras_command_read(const char *line)
{
  static const struct {
    const char *phrase;
    ras_verb verb;
    bool argument; // it may have one
    void (*read)(ras_command *c);
  } rows[] = {
      {"CLIENT PROTOCOL", RAS_PROTOCOL, true, NULL},
      {"TIMEOUT", RAS_TIMEOUT, true, read_timeout},
      {"SET FORMAT", RAS_FORMAT, true, read_format},
      {"STATUS", RAS_STATUS, false, NULL},
      {"VERBOSE STATUS", RAS_STATUS, false, NULL},
      {"MONITOR", RAS_MONITOR, true, read_groups},
      {"DIAGNOSTICS", RAS_DIAGNOSTICS, false, NULL},
      {"CONTROL PROFILER_MASK", RAS_PROFILER_MASK, true, read_profiler_mask},
      {"CONTROL", RAS_CONTROL, true, NULL},
      {"WHY", RAS_WHY, false, NULL},
      {"RECORDER", RAS_RECORDER, true, read_most},
  };
  for (size_t i = 0; i < TT_COUNT(rows); i++) {
    const char *arg = behind(line, rows[i].phrase);
    if (arg != NULL && (rows[i].argument || *arg == '\0')) {
      ras_command c = {.verb = rows[i].verb, .arg = arg, .verbose = rows[i].phrase[0] == 'V'};
      if (rows[i].read != NULL) {
        rows[i].read(&c);
      }
      return c;
    }
  }
  return (ras_command){.verb = RAS_UNKNOWN, .arg = line};
}
