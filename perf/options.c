#include "options.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { ARG_INT, ARG_SIZE, ARG_OP, ARG_TYPE, ARG_ROOT, ARG_STRING, ARG_NONE } arg_kind;

typedef struct option_row {
  char letter;
  const char *name;
  arg_kind kind;
  size_t offset; // of the member in perf_options
  long min, max; // ARG_INT, ARG_ROOT
  const char *argument, *help;
} option_row;

#define AT(member) offsetof(perf_options, member)

// The names of the types, each after a space.
static const char type_list[] = ""
#define T(id, word, ...) " " word
#include "base/types.def"
    ;
static const char not_a_type[] = "not a type: want"
#define T(id, word, ...) " " word
#include "base/types.def"
                                 " all";

static const option_row rows[] = {
    {'P', "procs", ARG_INT, AT(procs), 1, PERF_MAX_RANKS, "processes",
     "number of processes to start on this machine (default 1)"},
    {'B', "bind", ARG_INT, AT(bind), 0, 1, "0/1",
     "with -P: bind each process to its own cores, if there is a core per rank (default 1)"},
    {'t', "nthreads", ARG_INT, AT(threads), 1, PERF_MAX_RANKS, "threads", "threads per process (default 1)"},
    {'g', "ngpus", ARG_INT, AT(gpus), 1, PERF_MAX_RANKS, "devices",
     "ranks per thread, each on its own host device, or on the GPUs in turn (default 1)"},
    {'b', "minbytes", ARG_SIZE, AT(min_bytes), 0, 0, "size", "first size (default 32M)"},
    {'e', "maxbytes", ARG_SIZE, AT(max_bytes), 0, 0, "size", "last size (default 32M)"},
    {'i', "stepbytes", ARG_SIZE, AT(step_bytes), 0, 0, "size", "add this to get the next size (default 1M)"},
    {'f', "stepfactor", ARG_INT, AT(step_factor), 1, INT_MAX, "factor",
     "multiply by this to get the next size (default 1: off)"},
    {'n', "iters", ARG_INT, AT(iters), 1, INT_MAX / 4, "count", "timed iterations (default 20)"},
    {'m', "agg_iters", ARG_INT, AT(agg_iters), 1, INT_MAX / 4, "count",
     "operations in one group per iteration (default 1)"},
    {'w', "warmup_iters", ARG_INT, AT(warmup_iters), 0, INT_MAX / 4, "count",
     "untimed iterations before each size (default 1)"},
    {'N', "run_cycles", ARG_INT, AT(cycles), 0, INT_MAX, "count",
     "number of passes over all sizes (default 1; 0: endless)"},
    {'p', "parallel_init", ARG_INT, AT(parallel_init), 0, 1, "0/1",
     "each thread creates its own communicators, all at the same time"},
    {'c', "check", ARG_INT, AT(check), 0, INT_MAX / 4, "count",
     "iterations whose results are checked (default 1; 0: none)"},
    {'o', "op", ARG_OP, AT(op), 0, 0, "sum/prod/min/max/avg/mulsum/all",
     "reduction operation (default sum); also bitand bitor bitxor (integer types), logicaland logicalor logicalxor; "
     "all: the first six"},
    {'d', "datatype", ARG_TYPE, AT(type), 0, 0, "type/all", type_list + 1},
    {'r', "root", ARG_ROOT, AT(root), -1, PERF_MAX_RANKS - 1, "rank/all", "root rank (default 0)"},
    {'z', "blocking", ARG_INT, AT(blocking), 0, 3, "0/1/2/3",
     "1: wait and barrier after each operation, 2: wait only, 3: both after each -n iteration"},
    {'y', "stream_null", ARG_INT, AT(stream_null), 0, 1, "0/1", "use the NULL stream"},
    {'T', "timeout", ARG_INT, AT(timeout), 0, INT_MAX, "seconds",
     "stop with an error when one wait lasts longer (default 0: no limit)"},
    {'G', "cudagraph", ARG_INT, AT(graph), 0, INT_MAX, "launches",
     "capture the iterations in a graph and launch it this many times"},
    {'C', "report_cputime", ARG_INT, AT(cputime), 0, 1, "0/1",
     "report the time to issue the calls, not the time to complete them"},
    {'S', "report_timestamps", ARG_INT, AT(timestamps), 0, 1, "0/1", "add date and time to the end of each line"},
    {'J', "output_file", ARG_STRING, AT(output_file), 0, 0, "file.json", "also write the results as JSON"},
    {'a', "average", ARG_INT, AT(average), 0, 3, "0/1/2/3",
     "time reported: 0 of rank 0, 1 average, 2 minimum, 3 maximum (default 1)"},
    {'R', "local_register", ARG_INT, AT(local_register), 0, 2, "0/1/2",
     "register buffers: 1 with ncclCommRegister, 2 as symmetric windows"},
    {'x', "cta_policy", ARG_INT, AT(cta_policy), 0, 2, "0/1/2", "no effect: of thread blocks"},
    {'D', "device_implementation", ARG_INT, AT(device_impl), 0, INT_MAX, "number", "unavailable (default 0)"},
    {'V', "device_cta_count", ARG_INT, AT(device_ctas), INT_MIN, INT_MAX, "count",
     "no effect: of device implementations"},
    {'M', "memory", ARG_INT, AT(memory), 0, 1, "0/1", "report memory use per phase"},
    {'u', "unalign", ARG_INT, AT(unalign), 0, 1 << 20, "elements",
     "move the start of the buffers by this many elements"},
    {'I', "per_iter_timing", ARG_INT, AT(per_iter), INT_MIN, INT_MAX, "0/1",
     "time each iteration and print four more columns"},
    {'K', "per_iter_skip", ARG_INT, AT(per_iter_skip), 0, INT_MAX, "count",
     "number of first iterations that the columns of -I leave out"},
    {'U', "report_tuning", ARG_INT, AT(tuning), 0, 1, "0/1",
     "say how each size is carried out: algorithm, protocol, channels, chunk"},
    {'h', "help", ARG_NONE, 0, 0, 0, NULL, "this text"},
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static const char launching[] =
    "Several processes, each with (-t times -g) ranks: use -P on this machine, or one of these on one or more "
    "machines\n"
    "\tmpirun -np 8 %s ...   Open MPI or MPICH\n"
    "\tsrun -n 8 %s ...      Slurm\n"
    "\ttorchrun --no-python --nnodes 2 --nproc-per-node 4 --rdzv-endpoint HOST:PORT --rdzv-backend c10d %s ...\n"
    "\tRANK=0 WORLD_SIZE=8 MASTER_ADDR=HOST MASTER_PORT=PORT %s ...   by hand, with RANK=0 to 7; process 0 runs on "
    "HOST\n";

static const char *const type_names[PERF_TYPES] = {
#define T(id, word, ...) [nccl##id] = word,
#include "base/types.def"
};
static const char *const op_names[PERF_ALL_OPS] = {
    "sum", "prod", "max", "min", "avg", "mulsum", "bitand", "bitor", "bitxor", "logicaland", "logicalor", "logicalxor"};

const char *perf_type_name(int type)
{
  return type_names[type];
}

const char *perf_op_name(int op)
{
  return op_names[op];
}

void perf_text_add(perf_text *t, const char *fmt, ...)
{
  size_t room = sizeof(t->buf) - t->len;
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(t->buf + t->len, room, fmt, ap);
  va_end(ap);
  if (n > 0) {
    t->len += (size_t)n < room ? (size_t)n : room - 1;
  }
}

static size_t unit_bytes(const char *unit)
{
  static const char letters[] = "kKmMgG";
  if (unit[0] == '\0') {
    return 1;
  }
  const char *at = strchr(letters, unit[0]);
  if (!at || (unit[1] && strcmp(unit + 1, "B") != 0 && strcmp(unit + 1, "iB") != 0)) {
    return 0;
  }
  return (size_t)1 << (10 * ((at - letters) / 2 + 1));
}

bool perf_parse_size(const char *s, size_t *out)
{
  char *end;
  double v = strtod(s, &end);
  if (end == s) {
    return false;
  }
  end += strspn(end, " ");
  size_t unit = unit_bytes(end);
  double bytes = v * (double)unit;
  // Written so that NaN fails. The limit keeps every later product of a few sizes within 64 bits.
  if (unit == 0 || !(bytes >= 0 && bytes <= (double)((size_t)1 << 50))) {
    return false;
  }
  *out = (size_t)bytes;
  return true;
}

static bool parse_long(const char *s, long *out)
{
  char *end;
  errno = 0;
  *out = strtol(s, &end, 0);
  return end != s && *end == '\0' && errno == 0;
}

bool perf_parse_count(const char *s, int max, int *out)
{
  char *end;
  errno = 0;
  long v = strtol(s, &end, 10);
  if (*s < '0' || *s > '9' || *end != '\0' || errno != 0 || v > max) {
    return false;
  }
  *out = (int)v;
  return true;
}

static bool parse_name(const char *s, const char *const *names, int count, int *out)
{
  if (strcmp(s, "all") == 0) {
    *out = PERF_ALL;
    return true;
  }
  for (int i = 0; i < count; i++) {
    if (strcmp(s, names[i]) == 0) {
      *out = i;
      return true;
    }
  }
  return false;
}

static bool bad(perf_text *text, const option_row *row, const char *value, const char *want)
{
  text->len = 0;
  perf_text_add(text, "-%c,--%s '%.200s': %s", row->letter, row->name, value, want);
  return false;
}

static bool set_int(perf_options *o, const option_row *row, const char *value, perf_text *text)
{
  long v;
  if (row->kind == ARG_ROOT && strcmp(value, "all") == 0) {
    v = PERF_ALL;
  } else if (!parse_long(value, &v)) {
    return bad(text, row, value, "not a whole number");
  }
  if (v < row->min || v > row->max) {
    char want[64];
    snprintf(want, sizeof(want), "must be %ld to %ld", row->min, row->max);
    return bad(text, row, value, want);
  }
  *(int *)((char *)o + row->offset) = (int)v;
  return true;
}

static bool set_value(perf_options *o, const option_row *row, const char *value, perf_text *text)
{
  void *at = (char *)o + row->offset;
  switch (row->kind) {
  case ARG_SIZE:
    return perf_parse_size(value, at) ||
           bad(text, row, value, "not a size: want a number up to 2^50 bytes with an optional K, M or G");
  case ARG_OP:
    return parse_name(value, op_names, PERF_ALL_OPS, at) ||
           bad(text, row, value,
               "not an operation: want sum prod max min avg mulsum all bitand bitor bitxor logicaland logicalor "
               "logicalxor");
  case ARG_TYPE: return parse_name(value, type_names, PERF_TYPES, at) || bad(text, row, value, not_a_type);
  case ARG_STRING: *(const char **)at = value; return *value != '\0' || bad(text, row, value, "empty");
  default: return set_int(o, row, value, text);
  }
}

static const option_row *row_of_letter(char c)
{
  for (int i = 0; i < ROWS; i++) {
    if (rows[i].letter == c) {
      return &rows[i];
    }
  }
  return NULL;
}

// The row of a long name of `len` characters, which may be shortened as long as it fits one row only.
static const option_row *row_of_name(const char *name, size_t len)
{
  const option_row *found = NULL;
  for (int i = 0; i < ROWS; i++) {
    if (strncmp(rows[i].name, name, len) != 0) {
      continue;
    }
    if (rows[i].name[len] == '\0') {
      return &rows[i];
    }
    if (found) {
      return NULL;
    }
    found = &rows[i];
  }
  return len ? found : NULL;
}

// Splits one argument into its row and the value attached to it (NULL when none is attached).
static const option_row *split_argument(const char *arg, const char **value)
{
  *value = NULL;
  if (arg[0] != '-' || arg[1] == '\0') {
    return NULL;
  }
  if (arg[1] != '-') {
    const option_row *row = row_of_letter(arg[1]);
    if (arg[2]) {
      *value = arg + 2;
    }
    return row;
  }
  const char *equals = strchr(arg, '=');
  size_t len = equals ? (size_t)(equals - arg) - 2 : strlen(arg + 2);
  if (equals) {
    *value = equals + 1;
  }
  return row_of_name(arg + 2, len);
}

static void set_defaults(perf_options *o)
{
  *o = (perf_options){
      .procs = 1,
      .bind = 1,
      .threads = 1,
      .gpus = 1,
      .min_bytes = 32 << 20,
      .max_bytes = 32 << 20,
      .step_bytes = 1 << 20,
      .step_factor = 1,
      .iters = 20,
      .agg_iters = 1,
      .warmup_iters = 1,
      .cycles = 1,
      .check = 1,
      .type = 7,
      .average = 1,
      .cta_policy = -1,
      .device_ctas = 16,
  };
}

static bool error_text(perf_text *text, const char *line)
{
  text->len = 0;
  perf_text_add(text, "%s", line);
  return false;
}

static bool is_integer(int type)
{
  static const bool integers[PERF_TYPES] = {
#define T(id, word, bytes, cls, exponent, ...) [nccl##id] = (exponent) == 0,
#include "base/types.def"
  };
  return type != PERF_ALL && integers[type];
}

// What no single option can tell.
static bool check_together(perf_options *o, perf_text *text)
{
  if (o->min_bytes > o->max_bytes) {
    text->len = 0;
    perf_text_add(text, "invalid sizes for 'minbytes' and 'maxbytes': %zu > %zu", o->min_bytes, o->max_bytes);
    return false;
  }
  if (o->step_factor == 1 && o->step_bytes == 0 && o->min_bytes < o->max_bytes) {
    return error_text(text,
                      "-i,--stepbytes 0 never gets from 'minbytes' to 'maxbytes': give a step or -f,--stepfactor");
  }
  if (o->op >= PERF_BITAND && o->op < PERF_LOGICALAND && !is_integer(o->type)) {
    text->len = 0;
    perf_text_add(text, "-o %s is for integer types: name one with -d, such as -d int32", op_names[o->op]);
    return false;
  }
  if (o->device_impl > 0 && o->local_register != 2) {
    return error_text(text, "device implementation (-D > 0) requires enabling symmetric memory registration (-R 2)");
  }
  if (o->graph && (o->blocking == 1 || o->blocking == 2 || o->stream_null)) {
    return error_text(text, "-G: neither -z 1, -z 2 nor -y 1: a stream that is captured cannot be waited for, and the "
                            "NULL stream not be captured");
  }
  if ((long)o->iters * o->agg_iters > INT_MAX / 2) {
    text->len = 0;
    perf_text_add(text, "-n %d x -m %d: more than %d operations", o->iters, o->agg_iters, INT_MAX / 2);
    return false;
  }
  if ((long)o->procs * o->threads > PERF_MAX_RANKS || (long)o->procs * o->threads * o->gpus > PERF_MAX_RANKS) {
    text->len = 0;
    perf_text_add(text, "-P %d x -t %d x -g %d: more than %d ranks", o->procs, o->threads, o->gpus, PERF_MAX_RANKS);
    return false;
  }
  return true;
}

// Values that nccl-tests replaces, and says so.
static void replace_values(perf_options *o, perf_text *text)
{
  if (o->device_ctas <= 0 || o->device_ctas > 128) {
    perf_text_add(text, "-V %d: the number of thread blocks must be 1 to 128. Using the default, 16.\n",
                  o->device_ctas);
    o->device_ctas = 16;
  }
  if (o->per_iter != 0 && o->per_iter != 1) {
    perf_text_add(text, "-I %d: per-iteration timing is 0 (off) or 1 (on). Disabling.\n", o->per_iter);
    o->per_iter = 0;
  }
  if (o->per_iter && o->graph) {
    perf_text_add(text, "per-iteration timing (-I) does not go together with CUDA graphs (-G). Disabling.\n");
    o->per_iter = 0;
  }
  if (o->blocking == 3 && o->graph) {
    perf_text_add(text, "-z 3 does not go together with CUDA graphs (-G). Using -z 0.\n");
    o->blocking = 0;
  }
}

static void add_notes(perf_options *o, perf_text *text)
{
  replace_values(o, text);
  if (o->cta_policy >= 0) {
    perf_text_add(text, "# -x %d: thread blocks have no counterpart here; passed on to the library only\n",
                  o->cta_policy);
  }
  if (o->device_ctas != 16) {
    perf_text_add(text, "# -V %d: there are no device implementations (-D); ignored\n", o->device_ctas);
  }
  if (o->per_iter_skip >= o->iters) {
    perf_text_add(text, "per-iteration skip (-K) must be between 0 and %d. Disabling.\n", o->iters - 1);
    o->per_iter_skip = 0;
  }
  if (o->per_iter_skip && !o->per_iter) {
    perf_text_add(text, "per-iteration skip (-K) requires per-iteration timing (-I 1). Disabling.\n");
    o->per_iter_skip = 0;
  }
}

// Takes the option at argv[*i] (and its value behind it) and moves *i to its last argument.
static perf_parse_result take_one(perf_options *o, int argc, char *const *argv, int *i, perf_text *text)
{
  const char *arg = argv[*i];
  const char *value;
  const option_row *row = split_argument(arg, &value);
  if (!row) {
    text->len = 0;
    perf_text_add(text, "%s '%.200s'; -h lists the options", arg[0] == '-' ? "unknown option" : "unexpected argument",
                  arg);
    return PERF_BAD;
  }
  if (row->kind == ARG_NONE) {
    return PERF_HELP;
  }
  if (!value) {
    if (*i + 1 >= argc) {
      text->len = 0;
      perf_text_add(text, "-%c,--%s: its value <%s> is missing", row->letter, row->name, row->argument);
      return PERF_BAD;
    }
    value = argv[++*i];
  }
  return set_value(o, row, value, text) ? PERF_RUN : PERF_BAD;
}

perf_parse_result perf_options_parse(perf_options *o, int argc, char *const *argv, perf_text *text)
{
  set_defaults(o);
  text->len = 0;
  text->buf[0] = '\0';
  for (int i = 1; i < argc; i++) {
    perf_parse_result r = take_one(o, argc, argv, &i, text);
    if (r != PERF_RUN) {
      return r;
    }
  }
  if (!check_together(o, text)) {
    return PERF_BAD;
  }
  add_notes(o, text);
  return PERF_RUN;
}

uint64_t perf_options_hash(const perf_options *o)
{
  uint64_t h = 1;
  for (int i = 0; i < ROWS; i++) {
    const char *at = (const char *)o + rows[i].offset;
    if (rows[i].kind != ARG_STRING && rows[i].kind != ARG_NONE) {
      uint64_t v =
          rows[i].kind == ARG_SIZE ? *(const size_t *)(const void *)at : (uint64_t) * (const int *)(const void *)at;
      h = (h ^ v) * 0x9e3779b97f4a7c15u;
      h ^= h >> 31;
    }
  }
  return h;
}

void perf_options_usage(const char *program, char *buf, size_t size)
{
  size_t len = 0;
  int n = snprintf(buf, size, "USAGE: %s \n", program);
  for (int i = 0; i < ROWS && n > 0 && (size_t)n < size - len; i++) {
    len += (size_t)n;
    char head[80];
    if (rows[i].argument) {
      snprintf(head, sizeof(head), "[-%c,--%s <%s>]", rows[i].letter, rows[i].name, rows[i].argument);
    } else {
      snprintf(head, sizeof(head), "[-%c,--%s]", rows[i].letter, rows[i].name);
    }
    n = snprintf(buf + len, size - len, "\t%-44s %s\n", head, rows[i].help);
  }
  if (n > 0 && (size_t)n < size - len) {
    len += (size_t)n;
    snprintf(buf + len, size - len, launching, program, program, program, program);
  }
}

size_t perf_next_size(const perf_options *o, size_t size)
{
  size_t next;
  if (o->step_factor > 1) {
    // Sizes are at most 2^50 and the factor below 2^31: the product may wrap, the division cannot.
    size_t factor = (size_t)o->step_factor;
    next = size == 0 ? factor : size > o->max_bytes / factor ? 0 : size * factor;
  } else {
    next = size + o->step_bytes;
  }
  return next > size && next <= o->max_bytes ? next : 0;
}

size_t perf_size_count(const perf_options *o)
{
  if (o->step_factor == 1) {
    return o->step_bytes ? (o->max_bytes - o->min_bytes) / o->step_bytes + 1 : 1;
  }
  size_t count = 1;
  for (size_t size = o->min_bytes; (size = perf_next_size(o, size)) != 0;) {
    count++;
  }
  return count;
}
