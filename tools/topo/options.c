// options.c: see options.h.
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/param.h"
#include "base/util.h"
#include "topo/paths.h"

typedef enum { ARG_FLAG, ARG_INT, ARG_SIZE, ARG_TEXT } arg_kind;

typedef struct row {
  char letter; // 0: none
  const char *name;
  arg_kind kind;
  size_t at; // of the member in xp_options
  int lo, hi;
  int commands;
  const char *argument, *help;
} row;

#define AT(member) offsetof(xp_options, member)

static const row rows[] = {
    {'N', "nodes", ARG_INT, AT(nodes), 1, XP_MAX_NODES, XP_SEARCH, "M", "so many of this machine, over the network (default 1)"},
    {0, "hosts", ARG_INT, AT(hosts), 1, XP_MAX_HOSTS, XP_MACHINE, "H", "so many of this machine in one NVLink domain (default 1)"},
    {0, "ranks", ARG_INT, AT(ranks), 1, 1024, XP_MACHINE, "N", "without FILE and GPUs: ranks on this computer"},
    {0, "collnet", ARG_FLAG, AT(collnet), 0, 0, XP_SEARCH, NULL, "the network reduces, on every port"},
    {0, "format", ARG_TEXT, AT(format), 0, 0, XP_SHOW | XP_CHANNELS | XP_TUNING, "NAME", "what is written (see above)"},
    {'o', "output", ARG_TEXT, AT(output), 0, 0, XP_EVERY, "FILE", "write there, not to standard output"},
    {0, "table", ARG_FLAG, AT(table), 0, 0, XP_GRAPHS, NULL, "a table for people, not XML"},
    {0, "matrix", ARG_FLAG, AT(matrix), 0, 0, XP_PATHS, NULL, "types of all GPUs and network devices as a matrix"},
    {0, "ways", ARG_FLAG, AT(ways), 0, 0, XP_PATHS, NULL, "also what the path leads through"},
    {0, "from", ARG_TEXT, AT(from), 0, 0, XP_PATHS, "NAME", "paths from there only: GPU3, NET0, CPU/1, NVS; GPU means all of them"},
    {0, "to", ARG_TEXT, AT(to), 0, 0, XP_PATHS, "NAME", "paths to there only"},
    {0, "rank", ARG_INT, AT(rank), 0, INT_MAX, XP_GRAPHS | XP_CHANNELS, "R",
     "of this rank: its node's graphs, its trees, rings from it on"},
    {0, "channel", ARG_INT, AT(channel), 0, 63, XP_CHANNELS, "C", "this channel only"},
    {0, "coll", ARG_TEXT, AT(coll), 0, 0, XP_TUNING | XP_EXPLAIN | XP_SIMULATE, "NAME",
     "allreduce (default), allgather, reducescatter, broadcast, reduce"},
    {0, "bytes", ARG_SIZE, AT(bytes), 0, 0, XP_EXPLAIN, "SIZE", "of the larger of a rank's two buffers (default 1M)"},
    {'b', "minbytes", ARG_SIZE, AT(min_bytes), 0, 0, XP_TUNING | XP_SIMULATE, "SIZE", "first size (default 8)"},
    {'e', "maxbytes", ARG_SIZE, AT(max_bytes), 0, 0, XP_TUNING | XP_SIMULATE, "SIZE", "last size (default 8G)"},
    {'f', "stepfactor", ARG_INT, AT(factor), 1, INT_MAX, XP_TUNING | XP_SIMULATE, "FACTOR", "from size to size (default 4; simulate 2)"},
    {'i', "stepbytes", ARG_SIZE, AT(step), 0, 0, XP_TUNING | XP_SIMULATE, "SIZE", "add this from size to size instead (with -f 1)"},
    {'d', "datatype", ARG_TEXT, AT(type), 0, 0, XP_EXPLAIN | XP_SIMULATE, "TYPE",
     "int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2 (default float)"},
    {0, "type", ARG_TEXT, AT(type), 0, 0, XP_EXPLAIN | XP_SIMULATE, "TYPE", "the same"},
    {0, "op", ARG_TEXT, AT(op), 0, 0, XP_EXPLAIN | XP_SIMULATE, "OP", "sum (default), prod, min, max, avg, mulsum"},
    {'r', "root", ARG_INT, AT(root), 0, INT_MAX, XP_SIMULATE, "RANK", "of broadcast and reduce (default 0)"},
    {0, "color", ARG_TEXT, AT(colour), 0, 0, XP_EVERY, "always|never|auto", "auto: on a terminal, unless NO_COLOR is set"},
    {0, "ascii", ARG_FLAG, AT(ascii), 0, 0, XP_EVERY, NULL, "no lines and arrows beyond ASCII"},
    {0, "width", ARG_INT, AT(width), 20, 10000, XP_SHOW | XP_TUNING | XP_EXPLAIN, "COLUMNS",
     "no longer lines than that (default: the terminal's width)"},
    {'h', "help", ARG_FLAG, AT(help), 0, 0, XP_EVERY, NULL, "this text"},
};
enum { ROWS = TT_COUNT(rows) };

const char *const xp_variables[] = {
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_NTHREADS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_CTAS",
    "NCCL_MAX_CTAS",
    "NCCL_CROSS_NIC",
    "NCCL_NVLS_ENABLE",
    "NCCL_COLLNET_ENABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_P2P_DISABLE",
    "NCCL_SHM_DISABLE",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_NET_GDR_READ",
    "NCCL_NET_GDR_C2C",
    "NCCL_PXN_DISABLE",
    "NCCL_PXN_C2C",
    "NCCL_NVB_DISABLE",
    "NCCL_NET_DISABLE_INTRA",
    "NCCL_NETDEVS_POLICY",
    "NCCL_GRAPH_FILE",
    "NCCL_COLLNET_NODE_THRESHOLD",
    NULL,
};

// ---- Names ----

// Letters to insert, remove or change.
static int distance(const char *a, const char *b)
{
  enum { LONGEST = 64 };
  int line[LONGEST + 1];
  size_t n = strlen(b);
  if (n > LONGEST || strlen(a) > LONGEST) {
    return INT_MAX;
  }
  for (size_t k = 0; k <= n; k++) {
    line[k] = (int)k;
  }
  for (size_t i = 0; a[i] != 0; i++) {
    int corner = line[0]++;
    for (size_t k = 0; k < n; k++) {
      int change = corner + (a[i] != b[k]), least = TT_MIN(line[k], line[k + 1]) + 1;
      corner = line[k + 1];
      line[k + 1] = TT_MIN(change, least);
    }
  }
  return line[n];
}

const char *xp_nearest(const char *name, const char *(*names)(void *arg, int i), void *arg)
{
  int best = -1, least = TT_MIN(3, (int)strlen(name) / 2) + 1;
  for (int i = 0; names(arg, i) != NULL; i++) {
    int d = distance(name, names(arg, i));
    if (d < least) {
      least = d;
      best = i;
    }
  }
  return best < 0 ? NULL : names(arg, best);
}

// NCCL_CROSS_NIC as --cross-nic has it, without the dashes.
static void option_of(const char *variable, char out[64])
{
  size_t n = 0;
  for (const char *c = variable + strlen("NCCL_"); *c != 0 && n + 1 < 64; c++) {
    out[n++] = *c == '_' ? '-' : (char)tolower((unsigned char)*c);
  }
  out[n] = 0;
}

typedef struct lookup {
  int command;
  char text[64];
} lookup;

// Names of the command's options: those of the table, then the variables.
static const char *name_at(void *arg, int i)
{
  lookup *l = arg;
  for (int k = 0; k < ROWS; k++) {
    if ((rows[k].commands & l->command) != 0 && i-- == 0) {
      return rows[k].name;
    }
  }
  if ((l->command & XP_MACHINE) == 0 || xp_variables[i] == NULL) {
    return NULL;
  }
  option_of(xp_variables[i], l->text);
  return l->text;
}

// Which option `name` (of n letters) means: its place, as name_at counts; -1: none, or several that begin so.
static int find_name(int command, const char *name, size_t n)
{
  lookup l = {.command = command};
  int found = -1, count = 0;
  const char *have;
  for (int i = 0; (have = name_at(&l, i)) != NULL; i++) {
    if (strncmp(have, name, n) == 0 && have[n] == 0) {
      return i;
    }
    if (n > 0 && strncmp(have, name, n) == 0) {
      found = i;
      count++;
    }
  }
  return count == 1 ? found : -1;
}

// The row, or NULL and the variable, of the option with that place.
static const row *row_at(int command, int place, const char **variable)
{
  for (int k = 0; k < ROWS; k++) {
    if ((rows[k].commands & command) != 0 && place-- == 0) {
      return &rows[k];
    }
  }
  *variable = xp_variables[place];
  return NULL;
}

// ---- Values ----

static bool parse_size(const char *text, size_t *out)
{
  static const char units[] = "kKmMgGtT";
  char *end;
  double v = strtod(text, &end);
  if (end == text) {
    return false;
  }
  const char *unit = *end != 0 ? strchr(units, *end) : NULL;
  if (*end != 0 && (unit == NULL || (end[1] != 0 && strcmp(end + 1, "B") != 0 && strcmp(end + 1, "iB") != 0))) {
    return false;
  }
  double bytes = v * (double)(unit != NULL ? (size_t)1 << (10 * ((unit - units) / 2 + 1)) : 1);
  if (!(bytes >= 0 && bytes <= (double)((size_t)1 << 50))) { // so that no number fails, too
    return false;
  }
  *out = (size_t)bytes;
  return true;
}

static bool bad(char why[256], const char *option, const char *value, const char *want)
{
  snprintf(why, 256, "%.60s '%.80s': %.100s", option, value, want);
  return false;
}

static bool set_row(const row *r, const char *value, xp_options *o, char why[256])
{
  char *at = (char *)o + r->at, *end, name[72], want[64];
  snprintf(name, sizeof(name), "--%s", r->name);
  if (r->kind == ARG_FLAG) {
    *(bool *)at = true;
    return true;
  }
  if (r->kind == ARG_TEXT) {
    *(const char **)at = value;
    return value[0] != 0 || bad(why, name, value, "empty");
  }
  if (r->kind == ARG_SIZE) {
    return parse_size(value, (size_t *)at) || bad(why, name, value, "a size is expected: a number up to 2^50, with K, M, G or T behind it");
  }
  errno = 0;
  long v = strtol(value, &end, 0);
  if (end == value || *end != 0 || errno != 0 || v < r->lo || v > r->hi) {
    snprintf(want, sizeof(want), "a whole number from %d to %d is expected", r->lo, r->hi);
    return bad(why, name, value, want);
  }
  *(int *)at = (int)v;
  return true;
}

// A variable: the environment has it from now on.
static bool set_variable(const char *variable, const char *value, char why[256])
{
  const tt_param_row *p = tt_param_find(variable);
  int64_t number;
  bool level = strstr(variable, "_LEVEL") != NULL;
  if (p == NULL || value[0] == 0) {
    return bad(why, variable, value, "a value is expected");
  }
  if (level && tt_topo_level(value) < 0) {
    return bad(why, variable, value, "a type of path is expected: LOC, NVL, PIX, PXB, PHB, SYS");
  }
  if (!tt_param_parse_value(p->type, value, &number)) {
    return bad(why, variable, value, tt_param_expected(p->type));
  }
  return setenv(variable, value, 1) == 0 || bad(why, variable, value, "no memory");
}

// ---- Arguments ----

typedef struct reader {
  int command, argc, at;
  char *const *argv;
  xp_options *o;
  char *why;
} reader;

static bool unknown(const reader *r, const char *name)
{
  lookup l = {.command = r->command};
  size_t n = strcspn(name, "=");
  char text[64];
  snprintf(text, sizeof(text), "%.*s", (int)TT_MIN(n, sizeof(text) - 1), name);
  const char *near = name[0] == '-' && name[1] == '-' ? xp_nearest(text + 2, name_at, &l) : NULL;
  snprintf(r->why, 256, "unknown option %s%s%s; -h lists them", text, near != NULL ? "; the nearest is --" : "", near != NULL ? near : "");
  return false;
}

static bool value_of(reader *r, const char *attached, const char **value)
{
  if (attached == NULL && r->at + 1 >= r->argc) {
    snprintf(r->why, 256, "%.80s: its value is missing", r->argv[r->at]);
    return false;
  }
  *value = attached != NULL ? attached : r->argv[++r->at];
  return true;
}

static bool take_long(reader *r, const char *arg)
{
  const char *equals = strchr(arg, '='), *value = NULL, *variable = NULL;
  int place = find_name(r->command, arg + 2, equals != NULL ? (size_t)(equals - arg - 2) : strlen(arg + 2));
  if (place < 0) {
    return unknown(r, arg);
  }
  const row *found = row_at(r->command, place, &variable);
  const char *attached = equals != NULL ? equals + 1 : NULL;
  if (found != NULL && found->kind == ARG_FLAG) {
    return attached == NULL ? set_row(found, NULL, r->o, r->why) : bad(r->why, arg, attached, "this option has no value");
  }
  if (!value_of(r, attached, &value)) {
    return false;
  }
  return found != NULL ? set_row(found, value, r->o, r->why) : set_variable(variable, value, r->why);
}

static bool take_letter(reader *r, const char *arg)
{
  const char *value = NULL;
  for (int k = 0; k < ROWS; k++) {
    if (rows[k].letter != arg[1] || (rows[k].commands & r->command) == 0) {
      continue;
    }
    if (rows[k].kind == ARG_FLAG) {
      return arg[2] == 0 ? set_row(&rows[k], NULL, r->o, r->why) : unknown(r, arg);
    }
    return value_of(r, arg[2] != 0 ? arg + 2 : NULL, &value) && set_row(&rows[k], value, r->o, r->why);
  }
  return unknown(r, arg);
}

static bool take_file(reader *r, const char *arg)
{
  int most = r->command == XP_DIFF ? 2 : r->command == XP_GATHER ? 0 : 1;
  if (r->o->nfiles == most) {
    snprintf(r->why, 256, "unexpected argument '%.120s': %s", arg,
             most == 0 ? "this command takes no file" : "there are more files than the command takes");
    return false;
  }
  if (arg[0] == 0) {
    return bad(r->why, "FILE", arg, "empty");
  }
  r->o->file[r->o->nfiles++] = arg;
  return true;
}

static bool check_together(const xp_options *o, char why[256])
{
  if (o->min_bytes > o->max_bytes) {
    snprintf(why, 256, "-b %zu is more than -e %zu", o->min_bytes, o->max_bytes);
    return false;
  }
  size_t steps = o->factor == 1 && o->step > 0 ? (o->max_bytes - o->min_bytes) / o->step : 0;
  if (steps > 1000000) {
    snprintf(why, 256, "-i %zu from -b %zu to -e %zu: more than a million sizes", o->step, o->min_bytes, o->max_bytes);
    return false;
  }
  if (o->colour != NULL && strcmp(o->colour, "always") != 0 && strcmp(o->colour, "never") != 0 && strcmp(o->colour, "auto") != 0) {
    return bad(why, "--color", o->colour, "always, never or auto is expected");
  }
  return true;
}

bool xp_options_parse(int command, int argc, char *const *argv, xp_options *o, char why[256])
{
  reader r = {.command = command, .argc = argc, .argv = argv, .o = o, .why = why};
  *o = (xp_options){.nodes = 1,
                    .hosts = 1,
                    .rank = -1,
                    .channel = -1,
                    .bytes = 1 << 20,
                    .min_bytes = 8,
                    .max_bytes = 8ul << 30,
                    .step = 1 << 20,
                    .factor = command == XP_SIMULATE ? 2 : 4};
  bool files_only = false;
  for (r.at = 1; r.at < argc; r.at++) {
    const char *arg = argv[r.at];
    bool file = files_only || arg[0] != '-' || arg[1] == 0;
    if (!file && strcmp(arg, "--") == 0) {
      files_only = true;
    } else if (!(file ? take_file(&r, arg) : arg[1] == '-' ? take_long(&r, arg) : take_letter(&r, arg))) {
      return false;
    }
  }
  return check_together(o, why);
}

void xp_options_help(int command, char *out, size_t size)
{
  size_t at = 0;
  out[0] = 0;
  for (int k = 0; k < ROWS; k++) {
    char head[80], letter[8] = "    ";
    if ((rows[k].commands & command) == 0) {
      continue;
    }
    if (rows[k].letter != 0) {
      snprintf(letter, sizeof(letter), "-%c, ", rows[k].letter);
    }
    snprintf(head, sizeof(head), "%s--%s %s", letter, rows[k].name, rows[k].argument != NULL ? rows[k].argument : "");
    int n = snprintf(out + at, size - at, "  %-30s %s\n", head, rows[k].help);
    at = n > 0 && (size_t)n < size - at ? at + (size_t)n : at;
  }
  if ((command & XP_MACHINE) != 0) {
    snprintf(out + at, size - at, "  Variables, also as options (--cross-nic 1 is NCCL_CROSS_NIC=1): see the man page, tutti-topo(1).\n");
  }
}
