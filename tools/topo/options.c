// options.c: see options.h.
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/param.h"
#include "base/util.h"
#include "coll/select.h"
#include "topo/model.h"
#include "topo/paths.h"

typedef enum { ARG_FLAG, ARG_INT, ARG_SIZE, ARG_REAL, ARG_TEXT } arg_kind;

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

// Begins with a space.
static const char type_help[] = ""
#define T(id, word, ...) " " word
#include "base/types.def"
                                " (default float)";

static const row rows[] = {
    {'N', "nodes", ARG_INT, AT(nodes), 1, XP_MAX_NODES, XP_SEARCH, "M",
     "number of such machines, connected by the network (default 1)"},
    {0, "hosts", ARG_INT, AT(hosts), 1, XP_MAX_HOSTS, XP_MACHINE, "H",
     "number of such machines in one NVLink domain (default 1)"},
    {0, "ranks", ARG_INT, AT(ranks), 1, 1024, XP_MACHINE | XP_HOST, "N",
     "number of ranks on a computer without GPUs, if there is no FILE (host: 2)"},
    {0, "collnet", ARG_FLAG, AT(collnet), 0, 0, XP_SEARCH, NULL, "assume a network that reduces, on every port"},
    {0, "rails", ARG_FLAG, AT(rails), 0, 0, XP_FABRIC, NULL,
     "a leaf switch joins one port of each machine, those of a rail (default: all ports)"},
    {0, "leaf", ARG_INT, AT(leaf), 1, XP_MAX_NODES, XP_FABRIC, "M", "machines below one leaf switch (default: all)"},
    {0, "oversubscription", ARG_REAL, AT(oversubscription), 1, 1000, XP_FABRIC, "R",
     "bandwidth of a leaf switch's ports is R times that of its uplinks (default 1)"},
    {0, "measured", ARG_FLAG, AT(measured), 0, 0, XP_SIMULATE, NULL,
     "ranks on host memory of machines like this one (no FILE; --ranks: of each)"},
    {0, "link", ARG_TEXT, AT(link), 0, 0, XP_SIMULATE, "NAME=NUMBER,...",
     "with --measured: the network between machines: gbit=10,ms=0.5 and others"},
    {0, "memory", ARG_TEXT, AT(memory), 0, 0, XP_SIMULATE, "NAME=NUMBER,...",
     "with --measured: costs of shared memory: way=0.1,kib=0.05 and others"},
    {0, "workload", ARG_TEXT, AT(workload), 0, 0, XP_SIMULATE, "FILE",
     "predict the collectives of a job, as `tutti-trace workload` lists them"},
    {'n', "iters", ARG_INT, AT(iters), 1, 1000000, XP_SIMULATE, "COUNT",
     "with --measured: operations one behind the other (default 20)"},
    {0, "format", ARG_TEXT, AT(format), 0, 0, XP_SHOW | XP_CHANNELS | XP_TUNING | XP_EXPLAIN, "NAME",
     "form of the output (see above)"},
    {'o', "output", ARG_TEXT, AT(output), 0, 0, XP_EVERY, "FILE", "write to FILE instead of standard output"},
    {0, "title", ARG_TEXT, AT(title), 0, 0, XP_SHOW, "TEXT", "title of svg, html and json (default: the file's name)"},
    {0, "table", ARG_FLAG, AT(table), 0, 0, XP_GRAPHS, NULL, "print a table instead of XML"},
    {0, "packed", ARG_FLAG, AT(packed), 0, 0, XP_GRAPHS, NULL,
     "print trees packed by flow, for NCCL_ALGO=Packed, and what they reach of the bound"},
    {0, "matrix", ARG_FLAG, AT(matrix), 0, 0, XP_PATHS, NULL,
     "path types between all GPUs and network devices as a matrix"},
    {0, "ways", ARG_FLAG, AT(ways), 0, 0, XP_PATHS | XP_GRAPHS, NULL,
     "also the links and nodes of each path; graphs --packed: of each edge"},
    {0, "from", ARG_TEXT, AT(from), 0, 0, XP_PATHS, "NAME",
     "only paths from there: GPU3, NET0, CPU/1, NVS; GPU means all GPUs"},
    {0, "to", ARG_TEXT, AT(to), 0, 0, XP_PATHS, "NAME", "only paths to there"},
    {0, "rank", ARG_INT, AT(rank), 0, INT_MAX, XP_GRAPHS | XP_CHANNELS, "R",
     "graphs of the rank's node; its trees, and rings that begin with it"},
    {0, "channel", ARG_INT, AT(channel), 0, 63, XP_CHANNELS, "C", "only this channel"},
    {0, "coll", ARG_TEXT, AT(coll), 0, 0, XP_TUNING | XP_EXPLAIN | XP_SIMULATE | XP_HOST, "NAME",
     "allreduce (default), allgather, reducescatter, broadcast, reduce, alltoall (simulate: --measured)"},
    {0, "bytes", ARG_SIZE, AT(bytes), 0, 0, XP_EXPLAIN, "SIZE",
     "size of the larger of a rank's two buffers (default 1M)"},
    {'b', "minbytes", ARG_SIZE, AT(min_bytes), 0, 0, XP_TUNING | XP_SIMULATE | XP_HOST, "SIZE",
     "first size (default 8)"},
    {'e', "maxbytes", ARG_SIZE, AT(max_bytes), 0, 0, XP_TUNING | XP_SIMULATE | XP_HOST, "SIZE",
     "last size (default 8G)"},
    {'f', "stepfactor", ARG_INT, AT(factor), 1, INT_MAX, XP_TUNING | XP_SIMULATE | XP_HOST, "FACTOR",
     "multiply by this to get the next size (default 4; simulate 2)"},
    {'i', "stepbytes", ARG_SIZE, AT(step), 0, 0, XP_TUNING | XP_SIMULATE | XP_HOST, "SIZE",
     "with -f 1: add this to get the next size"},
    {'d', "datatype", ARG_TEXT, AT(type), 0, 0, XP_EXPLAIN | XP_SIMULATE, "TYPE", type_help + 1},
    {0, "type", ARG_TEXT, AT(type), 0, 0, XP_EXPLAIN | XP_SIMULATE, "TYPE", "same as --datatype"},
    {0, "op", ARG_TEXT, AT(op), 0, 0, XP_EXPLAIN | XP_SIMULATE, "OP", "sum (default), prod, min, max, avg, mulsum"},
    {'r', "root", ARG_INT, AT(root), 0, INT_MAX, XP_SIMULATE, "RANK", "root rank of broadcast and reduce (default 0)"},
    {0, "color", ARG_TEXT, AT(colour), 0, 0, XP_EVERY, "always|never|auto",
     "colours; auto (default): on a terminal, unless NO_COLOR is set"},
    {0, "ascii", ARG_FLAG, AT(ascii), 0, 0, XP_EVERY, NULL, "use only ASCII characters for lines and arrows"},
    {0, "width", ARG_INT, AT(width), 20, 10000, XP_SHOW | XP_TUNING | XP_EXPLAIN, "COLUMNS",
     "maximum length of a line (default: the terminal's width)"},
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

// Numbers that mean something. In the environment others are taken as NCCL takes them: cut to these, or ignored.
static const struct {
  const char *variable;
  int lo, hi, step;
} ranges[] = {
    {"NCCL_NTHREADS", 64, 512, 32},   {"NCCL_MIN_NCHANNELS", 1, 64, 1},
    {"NCCL_MAX_NCHANNELS", 1, 64, 1}, {"NCCL_MIN_CTAS", 1, 64, 1},
    {"NCCL_MAX_CTAS", 1, 64, 1},      {"NCCL_CROSS_NIC", 0, 2, 1},
    {"NCCL_NVLS_ENABLE", 0, 2, 1},    {"NCCL_COLLNET_ENABLE", 0, 1, 1},
    {"NCCL_NET_GDR_READ", 0, 1, 1},   {"NCCL_COLLNET_NODE_THRESHOLD", 0, XP_MAX_NODES, 1},
};

// The commands by their bits.
static const char *const command_names[] = {"show",     "paths",  "graphs", "channels", "tuning", "explain",
                                            "simulate", "gather", "lint",   "diff",     "host"};

// What users of the perf programs may try, and what there is instead.
static const struct {
  const char *letters, *names;
  int commands;
  const char *hint;
} perf_hints[] = {
    {"befi", " minbytes maxbytes stepfactor stepbytes ", XP_EXPLAIN,
     "one size is explained, --bytes SIZE; tuning and simulate go from -b to -e"},
    {"gtP", " ngpus procs ", XP_CONNECT, "each GPU of the machine is a rank; --nodes M takes M machines"},
    {"mwczapTCJGDRxyVS", " agg_iters warmup_iters check blocking average timeout report_cputime cudagraph ", XP_CONNECT,
     "an option of the perf programs; nothing is run here"},
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

// The commands that have an option of exactly that name.
static int commands_of(const char *name, size_t n)
{
  int commands = 0;
  for (int k = 0; k < ROWS; k++) {
    commands |= strncmp(rows[k].name, name, n) == 0 && rows[k].name[n] == 0 ? rows[k].commands : 0;
  }
  return commands;
}

// Which option `name` (of n letters) means: its place, as name_at counts; -1: none, or several that begin so, or one of
// another command.
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
  return count == 1 && commands_of(name, n) == 0 ? found : -1;
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
  end += end != text && *end == 'B';
  if (end == text) {
    return false;
  }
  const char *unit = *end != 0 ? strchr(units, *end) : NULL;
  if (*end != 0 && end[-1] == 'B') {
    return false;
  }
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
  snprintf(why, 256, "%.60s '%.60s': %.120s", option, value, want);
  return false;
}

static bool parse_real(const char *text, int lo, int hi, double *out)
{
  char *end;
  double v = strtod(text, &end);
  bool good = end != text && *end == 0 && v >= lo && v <= hi; // not for what is no number
  *out = good ? v : *out;
  return good;
}

// `letter`: it was given by its letter.
static bool set_row(const row *r, bool letter, const char *value, xp_options *o, char why[256])
{
  char *at = (char *)o + r->at, *end, name[72], want[64];
  if (letter) {
    snprintf(name, sizeof(name), "-%c", r->letter);
  } else {
    snprintf(name, sizeof(name), "--%s", r->name);
  }
  if (r->kind == ARG_FLAG) {
    *(bool *)at = true;
    return true;
  }
  if (r->kind == ARG_TEXT) {
    *(const char **)at = value;
    return value[0] != 0 || bad(why, name, value, "empty");
  }
  if (r->kind == ARG_SIZE) {
    return parse_size(value, (size_t *)at) ||
           bad(why, name, value, "a size is expected: a number up to 2^50, with K, M, G or T behind it");
  }
  if (r->kind == ARG_REAL) {
    snprintf(want, sizeof(want), "a number from %d to %d is expected", r->lo, r->hi);
    return parse_real(value, r->lo, r->hi, (double *)at) || bad(why, name, value, want);
  }
  errno = 0;
  long v = strtol(value, &end, strncmp(value, "0x", 2) == 0 ? 16 : 10);
  if (end == value || *end != 0 || errno != 0 || v < r->lo || v > r->hi) {
    snprintf(want, sizeof(want), "a whole number from %d to %d is expected", r->lo, r->hi);
    return bad(why, name, value, want);
  }
  *(int *)at = (int)v;
  return true;
}

// Are all names of NCCL_ALGO or NCCL_PROTO known? `option` is named in the message.
static bool check_list(const char *option, bool algo, const char *value, char why[256])
{
  const char *names[TT_MODEL_ALGOS];
  int allow[TT_MODEL_FUNCS * TT_MODEL_ALGOS], n = algo ? (int)TT_MODEL_ALGOS : (int)TT_MODEL_PROTOS;
  for (int i = 0; i < n; i++) {
    names[i] = algo ? tt_model_algo_name((tt_model_algo)i) : tt_model_proto_name((tt_model_proto)i);
  }
  if (tt_model_allow(option, value, names, n, allow) != ncclSuccess) {
    snprintf(why, 256, "%.255s", tt_last_error());
    return false;
  }
  return true;
}

// Which value a variable wants; NULL: this one is good. `room` is for the text.
static const char *wanted(const tt_param_row *p, const char *value, char room[64])
{
  int64_t number = 0;
  if (strstr(p->name, "_LEVEL") != NULL) {
    return tt_topo_level(value) >= 0
               ? NULL
               : "LOC, NVL, NVB, C2C, PIX, PXB, P2C, PXN, PHB or SYS is expected, or a number from 0 to 4";
  }
  if (strcmp(p->name, "NCCL_NETDEVS_POLICY") == 0) {
    bool most = strncasecmp(value, "MAX:", 4) == 0 && value[4] != 0 && value[4 + strspn(value + 4, "0123456789")] == 0;
    long ports = most ? strtol(value + 4, NULL, 10) : 0; // too long for a number: LONG_MAX
    bool good = (ports >= 1 && ports <= 64) || strcasecmp(value, "AUTO") == 0 || strcasecmp(value, "ALL") == 0;
    return good ? NULL : "AUTO, ALL or MAX:n is expected, n from 1 to 64";
  }
  if (!tt_param_parse_value(p->type, value, &number)) {
    number = INT64_MIN;
  }
  for (size_t i = 0; i < TT_COUNT(ranges); i++) {
    bool fits = number >= ranges[i].lo && number <= ranges[i].hi && number % ranges[i].step == 0;
    if (strcmp(ranges[i].variable, p->name) == 0 && !fits) {
      int n = ranges[i].step > 1 ? snprintf(room, 64, "a multiple of %d", ranges[i].step)
                                 : snprintf(room, 64, "a whole number");
      snprintf(room + n, 64 - (size_t)n, " from %d to %d is expected", ranges[i].lo, ranges[i].hi);
      return room;
    }
  }
  return number == INT64_MIN ? tt_param_expected(p->type) : NULL;
}

// A variable: the environment has it from now on.
static bool set_variable(int command, const char *variable, const char *value, char why[256])
{
  const tt_param_row *p = tt_param_find(variable);
  char option[72] = "--", room[64];
  option_of(variable, option + 2);
  const char *want = p == NULL || value[0] == 0 ? "a value is expected" : wanted(p, value, room);
  if (want != NULL) {
    return bad(why, option, value, want);
  }
  bool algo = strcmp(variable, "NCCL_ALGO") == 0;
  bool proto = strcmp(variable, "NCCL_PROTO") == 0;
  tt_algo_filter own; // simulate --measured knows this library's algorithms too
  bool ours = command == XP_SIMULATE && (algo || proto) &&
              tt_algo_filter_parse(algo ? value : NULL, algo ? NULL : value, &own) == ncclSuccess;
  if ((algo || proto) && !ours && !check_list(option, algo, value, why)) {
    return false;
  }
  return setenv(variable, value, 1) == 0 || bad(why, option, value, "no memory");
}

// ---- Arguments ----

typedef struct reader {
  int command, argc, at;
  char *const *argv;
  xp_options *o;
  char *why;
} reader;

// Adds two texts and returns where the text ends; what does not fit is left out.
static size_t add_name(char out[256], size_t at, const char *before, const char *name)
{
  size_t b = strlen(before), n = strlen(name);
  if (at + b + n < 256) {
    memcpy(out + at, before, b);
    memcpy(out + at + b, name, n + 1);
    return at + b + n;
  }
  return at;
}

static const char *hint_for(int command, const char *name)
{
  char spaced[72];
  bool letter = name[0] == '-' && name[1] != '-';
  snprintf(spaced, sizeof(spaced), " %.64s ", letter ? "?" : name + 2);
  for (size_t i = 0; i < TT_COUNT(perf_hints); i++) {
    bool named = letter ? strchr(perf_hints[i].letters, name[1]) != NULL : strstr(perf_hints[i].names, spaced) != NULL;
    if (named && (perf_hints[i].commands & command) != 0) {
      return perf_hints[i].hint;
    }
  }
  return NULL;
}

// Names the options that begin so, or else those that are nearest. Returns how many there are.
static int name_near(const reader *r, const char *name, size_t *at)
{
  lookup l = {.command = r->command};
  size_t n = strlen(name);
  int count = 0, least = TT_MIN(3, (int)n / 2) + 1;
  const char *have;
  for (int i = 0; n > 0 && (have = name_at(&l, i)) != NULL; i++) {
    if (strncmp(have, name, n) == 0) {
      *at = add_name(r->why, *at, count++ == 0 ? ": it may be --" : ", --", have);
    }
  }
  for (int i = 0; count == 0 && (have = name_at(&l, i)) != NULL; i++) {
    least = TT_MIN(least, distance(name, have));
  }
  bool near = least < TT_MIN(3, (int)n / 2) + 1;
  for (int i = 0, more = 0; count == 0 && near && (have = name_at(&l, i)) != NULL; i++) {
    if (distance(name, have) == least) {
      *at = add_name(r->why, *at, more++ == 0 ? "; the nearest is --" : ", --", have);
    }
  }
  return count;
}

static bool unknown(const reader *r, const char *arg)
{
  char text[64];
  snprintf(text, sizeof(text), "%.*s", (int)TT_MIN(strcspn(arg, "="), sizeof(text) - 1), arg);
  bool letter = text[1] != '-';
  size_t end = 2; // of the letter, whatever number of bytes it has in UTF-8
  while (letter && ((unsigned char)text[1] & 0xc0) == 0xc0 && ((unsigned char)text[end] & 0xc0) == 0x80) {
    end++;
  }
  text[end] = letter ? 0 : text[end];
  const char *hint = hint_for(r->command, text);
  int commands = letter ? 0 : commands_of(text + 2, strlen(text + 2));
  for (int k = 0; k < ROWS && letter; k++) {
    commands |= rows[k].letter == text[1] ? rows[k].commands : 0;
  }
  size_t at = add_name(r->why, 0, "unknown option ", text);
  if (hint != NULL) {
    add_name(r->why, at, ": ", hint);
    return false;
  }
  for (int i = 0, n = 0; i < (int)TT_COUNT(command_names) && commands != 0; i++) {
    if ((commands & 1 << i) != 0) {
      at = add_name(r->why, at, n++ == 0 ? "; only these have it: " : ", ", command_names[i]);
    }
  }
  if (letter || commands != 0 || name_near(r, text + 2, &at) == 0) {
    add_name(r->why, at, "", "; -h lists them");
  }
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
    char name[72];
    snprintf(name, sizeof(name), "--%s", found->name);
    return attached == NULL ? set_row(found, false, NULL, r->o, r->why)
                            : bad(r->why, name, attached, "this option has no value");
  }
  if (!value_of(r, attached, &value)) {
    return false;
  }
  return found != NULL ? set_row(found, false, value, r->o, r->why) : set_variable(r->command, variable, value, r->why);
}

// The perf programs have -o for operations.
static bool is_operation(const char *text)
{
  static const char *const names[] = {"sum", "prod", "max", "min", "avg", "mulsum", "all"};
  bool found = false;
  for (size_t i = 0; i < TT_COUNT(names); i++) {
    found = found || strcmp(text, names[i]) == 0;
  }
  return found;
}

static bool take_letter(reader *r, const char *arg)
{
  const char *value = NULL;
  for (int k = 0; k < ROWS; k++) {
    if (rows[k].letter != arg[1] || (rows[k].commands & r->command) == 0) {
      continue;
    }
    if (rows[k].kind == ARG_FLAG) {
      return arg[2] == 0 ? set_row(&rows[k], true, NULL, r->o, r->why) : unknown(r, arg);
    }
    if (!value_of(r, arg[2] != 0 ? arg + 2 : NULL, &value)) {
      return false;
    }
    return arg[1] == 'o' && (r->command & (XP_EXPLAIN | XP_SIMULATE)) != 0 && is_operation(value)
               ? bad(r->why, "-o", value, "a file to write is expected; the operation is --op here")
               : set_row(&rows[k], true, value, r->o, r->why);
  }
  return unknown(r, arg);
}

static bool take_file(reader *r, const char *arg)
{
  int most = r->command == XP_DIFF ? 2 : r->command == XP_GATHER || r->command == XP_HOST ? 0 : 1;
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
  if (o->colour != NULL && strcmp(o->colour, "always") != 0 && strcmp(o->colour, "never") != 0 &&
      strcmp(o->colour, "auto") != 0) {
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
  if ((command & XP_MACHINE) == 0) {
    return;
  }
  at += (size_t)snprintf(out + at, size - at,
                         "\nVariables of NCCL as options (--cross-nic 1 is NCCL_CROSS_NIC=1; tutti-topo(1) and "
                         "docs/params.md say more):\n");
  for (int i = 0, column = 0; xp_variables[i] != NULL && at < size; i++) {
    char name[64];
    option_of(xp_variables[i], name);
    bool fresh = column == 0 || column + 3 + (int)strlen(name) > 78;
    int n = snprintf(out + at, size - at, "%s--%s", column == 0 ? "  " : fresh ? "\n  " : " ", name);
    column = (fresh ? 0 : column) + n;
    at += (size_t)n;
  }
  if (at < size) {
    snprintf(out + at, size - at, "\n");
  }
}
