#include "base/param.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/advice.h"
#include "base/log.h"
#include "base/text.h"
#include "base/trust.h"
#include "base/util.h"

extern char **environ;

// The rows, in the order of params.def.
static const tt_param_row rows[] = {
#define P(field_, TYPE_, name_, def_, flags_, doc_) \
  {.name = name_,                                   \
   .doc = doc_,                                     \
   .def_text = #def_,                               \
   .type = TT_PARAM_TYPE_##TYPE_,                   \
   .flags = (flags_),                               \
   .offset = offsetof(tt_params, field_)},
#include "base/params.def"
#undef P
};
enum { ROWS = TT_COUNT(rows) };

static const tt_params defaults = {
#define P(field_, TYPE_, name_, def_, flags_, doc_) .field_ = (def_),
#include "base/params.def"
#undef P
};

// Everything that the process knows of its parameters. Written once, under `once`; constant afterwards.
static struct {
  pthread_once_t once;
  tt_params values;
  unsigned char origin[ROWS]; // tt_param_origin
  char reported;
} state = {.once = PTHREAD_ONCE_INIT};

// Texts of parameters. Those without room here are allocated, and a program that unloads the library leaks them.
static struct {
  size_t used;
  char room[8192];
} texts;

// Lines for the log, written when loading is over, because the log needs parameters itself. A full list says so.
enum { NOTES = 64, NOTE_BYTES = 400, FILE_NOTES = 8 };
typedef struct note {
  tt_log_level level;
  char text[NOTE_BYTES];
} note;
typedef struct note_list {
  size_t count;
  note notes[NOTES];
} note_list;
static note_list *pending;

// What stands in place of the environment (an environment plugin), and the function that finds out. It is set before
// main.
static tt_param_opener *opener;
static const tt_param_source *source;
static _Thread_local bool loading; // this thread is reading the parameters just now

static void __attribute__((format(printf, 2, 3))) note_add(tt_log_level level, const char *fmt, ...)
{
  if (pending == NULL || pending->count == NOTES) {
    return; // without memory, or full: the values are still read
  }
  note *n = &pending->notes[pending->count++];
  va_list args;
  n->level = level;
  va_start(args, fmt);
  tt_vformat(n->text, sizeof n->text, fmt, args);
  va_end(args);
}

static void notes_say(void)
{
  note_list *list = pending;
  pending = NULL;
  for (size_t i = 0; list != NULL && i < list->count; i++) {
    if (list->notes[i].level == TT_LOG_WARN) {
      tt_advise("%s", list->notes[i].text);
    } else {
      tt_info(TT_ENV, "%s", list->notes[i].text);
    }
  }
  if (list != NULL && list->count == NOTES) {
    tt_warn("there are more faults in the NCCL_ variables than are reported; correct these first");
  }
  free(list);
}

// A copy of a text that lives as long as the process. Not tt_strdup: tests inject failures there.
static char *text_keep(const char *text)
{
  size_t size = strlen(text) + 1;
  if (size > sizeof texts.room - texts.used) {
    return strdup(text);
  }
  char *copy = memcpy(texts.room + texts.used, text, size);
  texts.used += size;
  return copy;
}

// The value as messages may show it.
static const char *shown(const tt_param_row *row, const char *text)
{
  return row->flags & TT_PARAM_SECRET ? TT_PARAM_NOT_SHOWN : text;
}

// Says which value is not usable, and what is used instead.
static void note_bad(const tt_param_row *row, const char *text, const char *where, const char *expected)
{
  bool none = strcmp(row->def_text, "NULL") == 0 || strcmp(row->def_text, "UNSET") == 0;
  note_add(TT_LOG_WARN, "%s=%.64s (%s): expected %s; %s%s", row->name, shown(row, text), where, expected,
           none ? "it counts as not set" : "using the default ", none ? "" : row->def_text);
}

// Is the value valid? If not, a note says so. *number: the value of a row of numbers.
static bool is_good(const tt_param_row *row, const char *text, const char *where, int64_t *number)
{
  char expected[TT_PARAM_EXPECTED];
  if (!tt_param_parse_value(row->type, text, number)) {
    note_bad(row, text, where, tt_param_expected(row->type));
    return false;
  }
  bool usual = row->type != TT_PARAM_TYPE_STR && *number == *(const int64_t *)((const char *)&defaults + row->offset);
  if (!usual && !tt_param_means(row, text, *number, expected)) {
    note_bad(row, text, where, expected);
    return false;
  }
  return true;
}

// Puts one value in its place. `where`: "environment" or "file:line", for messages.
static void apply(const tt_param_row *row, const char *text, tt_param_origin origin, const char *where)
{
  void *field = (char *)&state.values + row->offset;
  int64_t number = 0;
  if (text[0] == '\0' && (row->flags & TT_PARAM_EMPTY) == 0) {
    return;
  }
  if (!is_good(row, text, where, &number)) {
    return;
  }
  if (row->type == TT_PARAM_TYPE_STR) {
    char *copy = text_keep(text);
    if (copy == NULL) {
      note_add(TT_LOG_WARN, "%s (%s): no memory for its value; using the default %s", row->name, where, row->def_text);
      return;
    }
    *(const char **)field = copy;
  } else {
    *(int64_t *)field = number;
  }
  state.origin[row - rows] = (unsigned char)origin;
  if (row->flags & TT_PARAM_IGNORED) {
    note_add(TT_LOG_INFO, "%s=%.64s (%s) is accepted, but means nothing here", row->name, shown(row, text), where);
  } else {
    note_add(TT_LOG_INFO, "%s set by %s to %.128s", row->name, where, shown(row, text));
  }
}

static bool starts_with(const char *text, const char *prefix)
{
  return strncmp(text, prefix, strlen(prefix)) == 0;
}

// A TUTTI_ name that resembles none of ours may belong to another program of this project: nothing is said about it.
static void note_unknown(const char *name, const char *where)
{
  if (pending == NULL || pending->count == NOTES) {
    return; // looking for the nearest name costs time, and a file can hold thousands of unknown ones
  }
  const char *nearest = tt_param_nearest(name);
  if (nearest != NULL) {
    note_add(TT_LOG_WARN, "%.64s (%s) is not known; did you mean %s?", name, where, nearest);
  } else if (starts_with(name, "NCCL_")) {
    note_add(TT_LOG_INFO, "%.64s (%s) is not known and has no effect", name, where);
  }
}

static bool is_our_variable(const char *name)
{
  return (starts_with(name, "NCCL_") && !starts_with(name, "NCCL_TESTS_")) || starts_with(name, "TUTTI_");
}

// Variables that the source itself needs are read from the process's environment.
static bool is_own(const char *name)
{
  return strcmp(name, "NCCL_ENV_PLUGIN") == 0 || strcmp(name, "NCCL_CONF_FILE") == 0;
}

static const char *environment(const char *name)
{
  const tt_param_source *s = __atomic_load_n(&source, __ATOMIC_ACQUIRE);
  return s != NULL && !is_own(name) ? s->get(name) : getenv(name);
}

static void load_environment(void)
{
  char where[128] = "environment";
  if (source != NULL) {
    snprintf(where, sizeof where, "environment plugin %.80s", source->name);
  }
  for (size_t i = 0; i < ROWS; i++) {
    const char *text = environment(rows[i].name);
    if (text != NULL) {
      apply(&rows[i], text, TT_PARAM_FROM_ENV, is_own(rows[i].name) ? "environment" : where);
    }
  }
}

static void note_unknown_environment(void)
{
  for (char **e = environ; e != NULL && *e != NULL; e++) {
    size_t len = strcspn(*e, "=");
    char name[80];
    if (!is_our_variable(*e) || len >= sizeof name) {
      continue;
    }
    memcpy(name, *e, len);
    name[len] = '\0';
    if (tt_param_find(name) == NULL) {
      note_unknown(name, "environment");
    }
  }
}

typedef struct conf_load {
  const char *path;
  int problems;
} conf_load;

static void conf_apply(void *arg, const tt_conf_line *line)
{
  conf_load *load = arg;
  char where[PATH_MAX + 16];
  snprintf(where, sizeof where, "%s:%d", load->path, line->number);
  if (line->problem != NULL) {
    if (load->problems++ < FILE_NOTES) {
      note_add(TT_LOG_WARN, "%.256s: %s; the line is skipped", where, line->problem);
    }
    return;
  }
  const tt_param_row *row = tt_param_find(line->key);
  if (row == NULL) {
    if (is_our_variable(line->key)) {
      note_unknown(line->key, where);
    }
    return;
  }
  if (row->flags & TT_PARAM_ELSEWHERE) {
    note_add(TT_LOG_WARN, "%s (%s) has no effect in a file: a plugin reads it from the environment", row->name, where);
    return;
  }
  // The environment came first, and so did an earlier file; inside one file the first line of a name counts.
  if (state.origin[row - rows] == TT_PARAM_FROM_DEFAULT) {
    apply(row, line->value, TT_PARAM_FROM_FILE, where);
  }
}

static void load_open_file(const char *path, FILE *file)
{
  conf_load load = {.path = path};
  struct stat st;
  if (fstat(fileno(file), &st) != 0 || S_ISDIR(st.st_mode)) {
    note_add(TT_LOG_WARN, "configuration file %.256s is not a file that can be read", path);
    return;
  }
  char *text = malloc(TT_CONF_MAX_BYTES + 1);
  size_t len = text != NULL ? fread(text, 1, TT_CONF_MAX_BYTES + 1, file) : 0;
  if (text == NULL || ferror(file)) {
    note_add(TT_LOG_WARN, "configuration file %.256s: %s", path, strerror(errno));
  } else {
    tt_param_parse_conf(text, len, conf_apply, &load);
  }
  if (load.problems > FILE_NOTES) {
    note_add(TT_LOG_WARN, "%.256s: %d more malformed lines", path, load.problems - FILE_NOTES);
  }
  free(text);
}

// `required`: the user named this file, so that its absence is worth a warning.
static void load_file(const char *path, bool required)
{
  char why[TT_TRUST_WHY];
  // Without O_NONBLOCK a FIFO of that name would hold up the program.
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
  if (file == NULL) {
    if (required || errno != ENOENT) {
      note_add(TT_LOG_WARN, "cannot read configuration file %.256s: %s", path, strerror(errno));
    }
    if (fd >= 0) {
      close(fd);
    }
    return;
  }
  if (tt_trust_contents(fd, required, why)) {
    load_open_file(path, file);
  } else {
    note_add(TT_LOG_WARN, "configuration file %.256s is not read: %s", path, why);
  }
  fclose(file);
}

bool tt_param_home(const char *file, char *out, size_t size)
{
  const char *home = getenv("HOME");
  return home != NULL && snprintf(out, size, "%s/%s", home, file) < (int)size;
}

bool tt_param_cache(const char *file, char *out, size_t size)
{
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (cache != NULL && cache[0] == '/') {
    return snprintf(out, size, "%s/%s", cache, file) < (int)size;
  }
  return home != NULL && home[0] == '/' && snprintf(out, size, "%s/.cache/%s", home, file) < (int)size;
}

static void load_files(void)
{
  char path[PATH_MAX];
  if (state.values.conf_file != NULL) {
    load_file(state.values.conf_file, true);
  } else if (tt_param_home(".nccl.conf", path, sizeof path)) {
    load_file(path, false);
  }
  load_file("/etc/nccl.conf", false);
}

static void read_all(void)
{
  state.values = defaults;
  if (pending != NULL) {
    pending->count = 0;
  }
  load_environment();
  load_files();
  note_unknown_environment();
}

// Forgets what was read.
static void forget(void)
{
  for (size_t i = 0; i < ROWS; i++) {
    char **text = (char **)((char *)&state.values + rows[i].offset);
    bool kept = rows[i].type == TT_PARAM_TYPE_STR && state.origin[i] != TT_PARAM_FROM_DEFAULT;
    if (kept && (*text < texts.room || *text >= texts.room + sizeof texts.room)) {
      free(*text);
    }
    state.origin[i] = TT_PARAM_FROM_DEFAULT;
  }
  texts.used = 0;
}

// With an environment plugin everything is read again: it may be named in a file, and what it logs while it is opened
// goes where the environment says.
static void load_params(void)
{
  int saved = errno;
  pending = calloc(1, sizeof *pending);
  loading = true;
  read_all();
  const tt_param_source *found = opener != NULL ? opener(state.values.env_plugin) : NULL;
  if (found != NULL) {
    forget();
    __atomic_store_n(&source, found, __ATOMIC_RELEASE);
    read_all();
    tt_log_reset();
  }
  loading = false;
  errno = saved;
}

void tt_param_set_opener(tt_param_opener *fn)
{
  opener = fn;
}

void tt_param_end_source(void)
{
  __atomic_store_n(&source, NULL, __ATOMIC_RELEASE);
}

const tt_params *tt_params_get(void)
{
  if (TT_UNLIKELY(loading)) {
    return &state.values;
  }
  pthread_once(&state.once, load_params);
  if (TT_UNLIKELY(!__atomic_load_n(&state.reported, __ATOMIC_RELAXED)) &&
      !__atomic_exchange_n(&state.reported, 1, __ATOMIC_ACQ_REL)) {
    notes_say();
  }
  return &state.values;
}

bool tt_param_is_set_at(size_t offset)
{
  tt_params_get();
  for (size_t i = 0; i < ROWS; i++) {
    if (rows[i].offset == offset) {
      return state.origin[i] != TT_PARAM_FROM_DEFAULT;
    }
  }
  return false;
}

size_t tt_param_count(void)
{
  return ROWS;
}

const tt_param_row *tt_param_row_at(size_t i)
{
  return i < ROWS ? &rows[i] : NULL;
}

const tt_param_row *tt_param_find(const char *key)
{
  if (!is_our_variable(key)) {
    return NULL;
  }
  for (size_t i = 0; i < ROWS; i++) {
    if (strcmp(rows[i].name, key) == 0) {
      return &rows[i];
    }
  }
  return NULL;
}

tt_param_origin tt_param_origin_of(const tt_param_row *row)
{
  tt_params_get();
  return (tt_param_origin)state.origin[row - rows];
}

bool tt_param_int(const tt_param_row *row, int64_t *out)
{
  if (row->type == TT_PARAM_TYPE_STR) {
    return false;
  }
  *out = *(const int64_t *)((const char *)tt_params_get() + row->offset);
  return true;
}

static const char *text_value(const tt_param_row *row)
{
  return *(const char *const *)((const char *)tt_params_get() + row->offset);
}

size_t tt_param_text(const tt_param_row *row, char *out, size_t size)
{
  int64_t number;
  if (tt_param_int(row, &number)) {
    return (size_t)snprintf(out, size, "%lld", (long long)number);
  }
  const char *text = text_value(row);
  return (size_t)snprintf(out, size, "%s", text != NULL ? shown(row, text) : "");
}

void tt_param_dump(bool all)
{
  static const char *const origins[] = {"default", "environment", "file"};
  for (size_t i = 0; i < ROWS; i++) {
    char line[TT_CONF_MAX_LINE];
    char value[512];
    if (!all && (rows[i].flags & TT_PARAM_HIDDEN)) {
      continue;
    }
    tt_param_text(&rows[i], value, sizeof value);
    int len = snprintf(line, sizeof line, "%s=%s (%s%s)\n", rows[i].name, value, origins[tt_param_origin_of(&rows[i])],
                       rows[i].flags & TT_PARAM_IGNORED ? ", means nothing here" : "");
    tt_log_raw(line, (size_t)len);
  }
}

const char *tt_param_now(const char *name)
{
  const tt_param_row *row = tt_param_find(name);
  const char *text = environment(name);
  if (text != NULL && text[0] != '\0') {
    return text;
  }
  if (row == NULL || row->type != TT_PARAM_TYPE_STR) {
    return NULL;
  }
  tt_params_get();
  // A value of the first reading that has left the environment counts no more.
  return state.origin[row - rows] == TT_PARAM_FROM_ENV ? *(const char *const *)((const char *)&defaults + row->offset)
                                                       : text_value(row);
}
