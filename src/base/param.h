// param.h: every NCCL_… variable, read once into one immutable struct.
//
// params.def holds one row per variable: P(field, TYPE, "NCCL_NAME", default, flags, "doc"). From it come the struct
// below, the parser, docs/params.md, the ncclParam… API and the warning with the nearest name for an unknown NCCL_…
// variable. Value order: environment, then configuration file (NCCL_CONF_FILE, or ~/.nccl.conf without it; then
// /etc/nccl.conf), then ncclConfig_t, then default. An empty value counts as not set. This is the only module that
// calls getenv. An environment plugin (plugin/env.h) takes the environment's place, but for NCCL_ENV_PLUGIN and
// NCCL_CONF_FILE.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/result.h"

typedef int64_t tt_param_INT;     // decimal, 0x…, k/m/g suffixes
typedef int64_t tt_param_BOOL;    // 0 or 1
typedef const char *tt_param_STR; // NULL when unset

typedef struct tt_params {
#define P(field, TYPE, name, def, flags, doc) tt_param_##TYPE field;
#include "params.def"
#undef P
} tt_params;

// Flags of a row.
enum {
  TT_PARAM_PUBLIC = 1,  // documented by NCCL or by us
  TT_PARAM_HIDDEN = 2,  // shown only with NCCL_PARAM_DUMP_ALL
  TT_PARAM_IGNORED = 4, // accepted, means nothing here; said at INFO when set
  TT_PARAM_EMPTY = 8,   // an empty text is a value; elsewhere it counts as not set
  TT_PARAM_ELSEWHERE =
      16, // a plugin reads it from the environment; the row is for the nearest name and for docs/params.md
  TT_PARAM_PROFILER = 64, // beside ELSEWHERE: the plugin is a profiler; said when the variable is set and there is none
  TT_PARAM_SECRET = 32,   // a text that is never shown: TT_PARAM_NOT_SHOWN stands in its place in the log, in dumps and
                          // in tt_param_text
};

#define TT_PARAM_NOT_SHOWN "(not shown)"

// The process's parameters. First call reads environment and files; later calls return the same struct. Any thread.
const tt_params *tt_params_get(void);

// Was this field given by the environment or a file? `field` is a member of the struct returned by tt_params_get().
#define tt_param_is_set(field) tt_param_is_set_at(offsetof(tt_params, field))
bool tt_param_is_set_at(size_t offset);

// Path of a file below the user's home folder; false: there is none, or the path is too long.
bool tt_param_home(const char *file, char *out, size_t size);
// The same below the folder for what can be made anew: $XDG_CACHE_HOME where that is an absolute path, else ~/.cache.
bool tt_param_cache(const char *file, char *out, size_t size);

// ---- The registry behind the ncclParam… functions. Rows are constant and live as long as the process. ----

typedef enum { TT_PARAM_TYPE_INT, TT_PARAM_TYPE_BOOL, TT_PARAM_TYPE_STR } tt_param_type;
typedef enum { TT_PARAM_FROM_DEFAULT, TT_PARAM_FROM_ENV, TT_PARAM_FROM_FILE } tt_param_origin;

typedef struct tt_param_row {
  const char *name; // "NCCL_…", the key
  const char *doc;
  const char *def_text; // default as written in params.def
  tt_param_type type;
  unsigned flags; // TT_PARAM_…
  size_t offset;  // of the field in tt_params
} tt_param_row;

// Number of rows, and row number i (0 … count-1, in the order of params.def). NULL beyond the end.
size_t tt_param_count(void);
const tt_param_row *tt_param_row_at(size_t i);

// Row of a key such as "NCCL_DEBUG" or "TUTTI_TRACE_DIR"; NULL when there is none.
const tt_param_row *tt_param_find(const char *key);

// Where the row's value came from.
tt_param_origin tt_param_origin_of(const tt_param_row *row);

// Value of an INT or BOOL row. Returns false for a STR row.
bool tt_param_int(const tt_param_row *row, int64_t *out);

// Value as text in a buffer of `size` bytes: a number in decimal, "" for a text that is not set, TT_PARAM_NOT_SHOWN for
// a secret that is. Returns the length of the whole text, which may be `size` or more, as snprintf.
size_t tt_param_text(const tt_param_row *row, char *out, size_t size);

// Writes name, value and origin of the documented rows, or of all rows, one line each, to where the log goes.
void tt_param_dump(bool all);

// What the environment says now, else what a file said, else the default; NULL when there is none. For the log, which
// can be reset while the process runs; all others use tt_params_get(). The text is valid until the environment changes.
const char *tt_param_now(const char *name);

// ---- Something that stands in place of the process's environment ----

// `get`: the value of a variable or NULL; called by one thread at a time, its text is copied or used up before the next
// call. `name` is for messages.
typedef struct tt_param_source {
  const char *(*get)(const char *name);
  const char *name;
} tt_param_source;

// Finds out whether there is such a source, from what NCCL_ENV_PLUGIN says (NULL: nothing). Called once, by the first
// reader; what it logs goes where the environment and the files say. NULL: there is none. The answer is good until
// tt_param_end_source.
typedef const tt_param_source *tt_param_opener(const char *wish);

// Before main.
void tt_param_set_opener(tt_param_opener *fn);

// The source goes: what is read from now on comes from the environment. When the library ends.
void tt_param_end_source(void);

// ---- Pure functions, also for the fuzz programs ----

enum {
  TT_CONF_MAX_BYTES = 1 << 20, // longest configuration file
  TT_CONF_MAX_LINE = 4096,     // longest line in it, without its end
};

// Reads a value: INT decimal or 0x… with one of k, m, g (1024, 1024², 1024³) behind it, 0x… up to 64 bits as they
// stand; BOOL also yes/no, true/false, on/off, and any number but 0 is 1. Blanks around it are allowed. False, *out
// untouched, when malformed. STR: true when the text has no control characters; *out untouched.
bool tt_param_parse_value(tt_param_type type, const char *text, int64_t *out);

enum { TT_PARAM_EXPECTED = 96 };

// False: the row has a range or a list of words, and the value is outside of it. `number`: of a row of numbers, whose
// default is always good (the caller knows it); `text`: of a row of texts. `expected` (written only where the row has
// one) says what is wanted, for messages.
bool tt_param_means(const tt_param_row *row, const char *text, int64_t number, char expected[TT_PARAM_EXPECTED]);

// What a value of that type has to look like, for messages.
const char *tt_param_expected(tt_param_type type);

// One line of a configuration file: key and value, or what is wrong with it (then key and value are "").
// Texts are valid during the call only.
typedef struct tt_conf_line {
  int number; // from 1
  const char *key;
  const char *value;
  const char *problem; // NULL when the line is good
} tt_conf_line;
typedef void tt_conf_fn(void *arg, const tt_conf_line *line);

// Splits `len` bytes of text (any bytes, no final 0 needed) into NAME=VALUE lines and calls fn for each, and for each
// malformed one. Empty lines and lines that begin with # are skipped; blanks around name and value too; lines end in LF
// or CRLF. Returns ncclInvalidArgument when a line was malformed or len is above TT_CONF_MAX_BYTES (then fn gets one
// call, line 0). Logs nothing.
ncclResult_t tt_param_parse_conf(const char *text, size_t len, tt_conf_fn *fn, void *arg);

// The known name with the same prefix (NCCL_ or TUTTI_) that is nearest to `name`; the first one where several are
// equally near. NULL: all are too far, which is more than three and a half letters, or more than a third of the name
// without the prefix and half a letter. A letter that differs, is missing or is extra counts as one. A whole word
// between underscores counts as two and a half where it is missing, as three and a half where it is extra at the end.
const char *tt_param_nearest(const char *name);
