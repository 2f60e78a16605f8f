// loader.h: finds plugin libraries and the tables in them. What a table of some version means is its adapter's
// business.
//
// Names, as NCCL and RCCL have them, for a kind such as "profiler" and the variable's value V:
//   none (any case)           no plugin, and nothing is looked for
//   not set, or empty         libnccl-profiler.so, then librccl-profiler.so, then `fallback` (the network plugins'
//                             libraries)
//   STATIC_PLUGIN (any case)  the program itself and what it is linked with
//   anything else             V as a name or path. If there is no such file, and V is neither a path nor of the form
//                             lib….so: libnccl-profiler-V.so, then librccl-profiler-V.so, then the fallback
//
// A name without a slash is looked for where the dynamic linker looks, then beside the library itself.
// Of the versions that a kind knows the newest that the library has is taken.
//
// What was found, refused, or asked for and not found is told in one line each at INFO, subsystem INIT and the kind's
// own. Nothing is remembered between calls: an open plugin is an object, opened and closed as often as one likes; the
// dynamic linker counts. Source: NCCL's plugin documentation, seed 000.
#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "nccl.h"
#include "nccl/common.h"

typedef enum {
  TT_PLUGIN_NET,
  TT_PLUGIN_COLLNET, // looked for in network libraries only
  TT_PLUGIN_TUNER,
  TT_PLUGIN_PROFILER,
  TT_PLUGIN_ENV,
  TT_PLUGIN_GIN, // recognised, not used
  TT_PLUGIN_RMA, // recognised, not used
  TT_PLUGIN_KINDS
} tt_plugin_kind;

// A kind of plugin.
typedef struct tt_plugin_info {
  const char *title;    // "PROFILER", as log lines begin: "PROFILER/Plugin: …"
  const char *file;     // "profiler": libnccl-profiler.so
  const char *variable; // "NCCL_PROFILER_PLUGIN"; NULL: none of its own
  const char *symbol;   // "ncclProfiler_v%d"
  int newest, oldest;   // versions that are used here; 0, 0: recognised only
  unsigned subsystem;   // TT_…, for the log
} tt_plugin_info;

// The row of a kind of plugin. Never NULL.
const tt_plugin_info *tt_plugin_kind_info(tt_plugin_kind kind);

// A library with a table of one kind and version.
typedef struct tt_plugin tt_plugin;

// Where a plugin is looked for at last. `open`: *out NULL: nothing of the kind is there, which nobody is told. Errors:
// ncclSystemError (no memory).
typedef struct tt_plugin_fallback {
  ncclResult_t (*open)(const void *arg, tt_plugin_kind kind, tt_plugin **out);
  const void *arg;
} tt_plugin_fallback;

// Opens the plugin that `wish` (one item of the variable's list; NULL: the variable is not set) names. *out is NULL
// when there is none, which is no error: the log has said why. `fallback`: asked only if nothing else is found; NULL:
// none. Errors: ncclSystemError (no memory). Any thread.
ncclResult_t tt_plugin_open(tt_plugin_kind kind, const char *wish, const tt_plugin_fallback *fallback, tt_plugin **out);

// The same without a word in the log, and without a fallback.
ncclResult_t tt_plugin_peek(tt_plugin_kind kind, const char *wish, tt_plugin **out);

// Opens the same library once more, for another kind; *out is NULL when it has nothing of that kind, which nobody is
// told. Errors: ncclSystemError.
ncclResult_t tt_plugin_also(const tt_plugin *plugin, tt_plugin_kind kind, tt_plugin **out);

// NULL is allowed.
void tt_plugin_close(tt_plugin *plugin);

// Path of its file, "the program" for STATIC_PLUGIN; version and address of the table. Valid until the plugin is
// closed.
const char *tt_plugin_path(const tt_plugin *plugin);
int tt_plugin_version(const tt_plugin *plugin);
const void *tt_plugin_table(const tt_plugin *plugin);

// Address of any symbol in it; NULL: none.
void *tt_plugin_symbol(const tt_plugin *plugin, const char *symbol);

// Version of `kind` that the plugin's library has beside its own table, the newest that is known here; 0: none.
int tt_plugin_offers(const tt_plugin *plugin, tt_plugin_kind kind);

// A member that a table must have.
typedef struct tt_plugin_member {
  size_t offset; // in the table, of a pointer
  const char *name;
} tt_plugin_member;

#define TT_PLUGIN_MEMBER(type, member) \
  {                                    \
    offsetof(type, member), #member    \
  }

// Are all of these set? If not, says at INFO which are missing: the plugin is of no use.
bool tt_plugin_complete(tt_plugin_kind kind, const tt_plugin *plugin, const tt_plugin_member *members, size_t n);

// Is one of them not set? Nothing is said.
bool tt_plugin_lacks(const tt_plugin *plugin, const tt_plugin_member *members, size_t n);

// The items of a variable's list, one after another. Begin with the first three members, and the others zero.
typedef struct tt_plugin_wishes {
  tt_plugin_kind kind;
  const char *list; // NULL: the variable is not set
  int most;         // items that count
  int next;
  const char *wish; // the item, as for tt_plugin_open
  char item[4096];
} tt_plugin_wishes;

// Goes to the next item: a part between commas, without the spaces around it, unless it is empty. A list that is not
// set has one item, NULL. So has one without items, as an empty text counts as not set; of networks that is a value: no
// plugin. False: there is none. If the list has too many, says so.
bool tt_plugin_next_wish(tt_plugin_wishes *w);

// Is it "none", in any case?
bool tt_plugin_is_none(const char *wish);

// The logger that plugins are given. What they warn of is advice (base/advice.h): the user asked for the plugin.
void tt_plugin_log(ncclDebugLogLevel level, unsigned long flags, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
