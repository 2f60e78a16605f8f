#include "plugin/loader.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/advice.h"
#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "base/util.h"
#include "os/library.h"

struct tt_plugin {
  tt_library *lib;
  char *name; // what the library was opened as; NULL: the program
  int version;
  const void *table;
};

enum {
  NAME_BYTES = 4096,
  LIST_BYTES = 1024,
  LOOKED_AHEAD = 8, // versions newer and older than the known ones that are recognised
};

static const tt_plugin_info kinds[TT_PLUGIN_KINDS] = {
    [TT_PLUGIN_NET] = {"NET", "net", "NCCL_NET_PLUGIN", "ncclNetPlugin_v%d", 12, 6, TT_INIT | TT_NET},
    [TT_PLUGIN_COLLNET] = {"COLLNET", NULL, NULL, "ncclCollNetPlugin_v%d", 12, 6, TT_INIT | TT_NET},
    [TT_PLUGIN_TUNER] = {"TUNER", "tuner", "NCCL_TUNER_PLUGIN", "ncclTunerPlugin_v%d", 6, 2, TT_INIT | TT_TUNING},
    [TT_PLUGIN_PROFILER] = {"PROFILER", "profiler", "NCCL_PROFILER_PLUGIN", "ncclProfiler_v%d", 7, 1,
                            TT_INIT | TT_PROFILE},
    [TT_PLUGIN_ENV] = {"ENV", "env", "NCCL_ENV_PLUGIN", "ncclEnvPlugin_v%d", 2, 1, TT_INIT | TT_ENV},
    [TT_PLUGIN_GIN] = {"GIN", "gin", "NCCL_GIN_PLUGIN", "ncclGinPlugin_v%d", 0, 0, TT_INIT | TT_NET},
    [TT_PLUGIN_RMA] = {"RMA", "rma", "NCCL_RMA_PLUGIN", "ncclRmaPlugin_v%d", 0, 0, TT_INIT | TT_NET},
};

const tt_plugin_info *tt_plugin_kind_info(tt_plugin_kind kind)
{
  return &kinds[kind];
}

// ---- What is in a library ----

static const void *table_of(tt_library *lib, const tt_plugin_info *info, int version)
{
  char symbol[64];
  snprintf(symbol, sizeof symbol, info->symbol, version);
  return tt_library_symbol(lib, symbol);
}

// The newest version from `newest` down to `oldest`; 0: none.
static int version_in(tt_library *lib, const tt_plugin_info *info, int newest, int oldest)
{
  for (int v = newest; v >= oldest && v > 0; v--) {
    if (table_of(lib, info, v) != NULL) {
      return v;
    }
  }
  return 0;
}

// Versions from which a kind is recognised; GIN and RMA began at 11.
static int newest_version_of(const tt_plugin_info *info)
{
  return TT_MAX(info->newest, 12) + LOOKED_AHEAD;
}

// What the library has, "NET version 8, TUNER version 3"; "" when it is no plugin at all.
static void loader_describe(tt_library *lib, char *out, size_t size)
{
  out[0] = '\0';
  for (int k = 0; k < TT_PLUGIN_KINDS; k++) {
    int v = version_in(lib, &kinds[k], newest_version_of(&kinds[k]), 1);
    if (v > 0) {
      tt_list_add(out, size, "%s version %d", kinds[k].title, v);
    }
  }
}

// ---- One search ----

// `absent`: the names that were not there, with a space before each.
typedef struct plugin_search {
  const tt_plugin_info *info;
  bool quiet; // nothing is told
  bool asked; // the user named it: what is wrong with it is the user's to mend
  char absent[LIST_BYTES];
  size_t used;
} plugin_search;

static void note_absent(plugin_search *s, const char *name)
{
  if (s->used < sizeof s->absent) {
    s->used += (size_t)snprintf(s->absent + s->used, sizeof s->absent - s->used, " %s", name);
  }
}

// Says why a library is not used.
static void __attribute__((format(printf, 2, 3))) say_unused(const plugin_search *s, const char *fmt, ...)
{
  char text[LIST_BYTES + TT_LIBRARY_WHY];
  va_list args;
  va_start(args, fmt);
  tt_vformat(text, sizeof text, fmt, args);
  va_end(args);
  if (s->asked) {
    tt_advise("%s/Plugin: %s", s->info->title, text);
  } else if (!s->quiet) {
    tt_info(s->info->subsystem, "%s/Plugin: %s", s->info->title, text);
  }
}

static void say_useless(const plugin_search *s, tt_library *lib, const char *name)
{
  const tt_plugin_info *info = s->info;
  char has[LIST_BYTES];
  char range[64] = "";
  loader_describe(lib, has, sizeof has);
  if (info->newest > 0) {
    snprintf(range, sizeof range, " of versions %d to %d", info->oldest, info->newest);
  }
  say_unused(s, "%s is not used: it has no %s plugin%s; it has %s", name, info->title, range,
             has[0] != '\0' ? has : "nothing that is a plugin");
}

static ncclResult_t loader_make(tt_library *lib, const char *name, int version, const void *table, tt_plugin **out)
{
  tt_plugin *p = tt_calloc(1, sizeof *p);
  char *copy = tt_strdup(name);
  if (p == NULL || (copy == NULL && name != NULL)) {
    tt_free(p);
    tt_free(copy);
    return tt_fail(ncclSystemError, "Out of memory for the plugin %s", name != NULL ? name : "of the program");
  }
  *p = (tt_plugin){.lib = lib, .name = copy, .version = version, .table = table};
  *out = p;
  return ncclSuccess;
}

// The table of the newest version in an open library, which is closed when there is none.
static ncclResult_t loader_take(const plugin_search *s, tt_library *lib, const char *name, tt_plugin **out)
{
  const tt_plugin_info *info = s->info;
  int version = version_in(lib, info, info->newest, info->oldest);
  ncclResult_t res = ncclSuccess;
  if (version > 0) {
    res = loader_make(lib, name, version, table_of(lib, info, version), out);
  } else if (!s->quiet) {
    say_useless(s, lib, name != NULL ? tt_library_path(lib) : "the program");
  }
  if (*out == NULL) {
    tt_library_close(lib);
  }
  return res;
}

// Where the dynamic linker finds nothing of that name, the library's own folder is looked into: bundled plugins stand
// there.
static tt_library_state open_named(const char *name, tt_library **out, char *why)
{
  char beside[NAME_BYTES];
  tt_library_state state = tt_library_open(name, out, why);
  bool bare = name != NULL && strchr(name, '/') == NULL;
  return state == TT_LIBRARY_ABSENT && bare && tt_library_beside(name, beside, sizeof beside)
             ? tt_library_open(beside, out, why)
             : state;
}

// Tries one name. *done: there is such a file, so no other name is tried.
static ncclResult_t loader_attempt(plugin_search *s, const char *name, bool *done, tt_plugin **out)
{
  const tt_plugin_info *info = s->info;
  char why[TT_LIBRARY_WHY];
  tt_library *lib = NULL;
  tt_library_state state = open_named(name, &lib, why);
  *done = state != TT_LIBRARY_ABSENT;
  if (state == TT_LIBRARY_ABSENT) {
    note_absent(s, name);
    return ncclSuccess;
  }
  if (state == TT_LIBRARY_REFUSED) {
    say_unused(s, "%s is there but cannot be loaded: %s", name != NULL ? name : "the program", why);
    return ncclSuccess;
  }
  TT_TRY(loader_take(s, lib, name, out));
  if (*out != NULL && !s->quiet) {
    tt_info(info->subsystem, "%s/Plugin: loaded %s, version %d of the interface", info->title, tt_plugin_path(*out),
            (*out)->version);
    if (why[0] != '\0') {
      tt_info(info->subsystem,
              "%s/Plugin: not all that it needs is here (%s); used all the same, as long as it does not call that",
              info->title, why);
    }
  }
  return ncclSuccess;
}

static bool is_static(const char *wish)
{
  return tt_casecmp(wish, "STATIC_PLUGIN") == 0;
}

// Neither a path nor "lib….so": the middle of a name.
static bool is_middle(const char *wish)
{
  size_t n = strlen(wish);
  bool whole = strncmp(wish, "lib", 3) == 0 && n > 3 && strcmp(wish + n - 3, ".so") == 0;
  return strchr(wish, '/') == NULL && !whole;
}

// Name number `i` that `wish` can mean; false: no more. "" stands for the program.
static bool candidate(const tt_plugin_info *info, const char *wish, int i, char *out)
{
  static const char *const families[] = {"libnccl", "librccl"};
  bool named = wish != NULL && wish[0] != '\0';
  if (!named) {
    return i < 2 && snprintf(out, NAME_BYTES, "%s-%s.so", families[i], info->file) > 0;
  }
  if (i == 0) {
    snprintf(out, NAME_BYTES, "%s", is_static(wish) ? "" : wish);
    return true;
  }
  return i <= 2 && !is_static(wish) && is_middle(wish) &&
         snprintf(out, NAME_BYTES, "%s-%s-%s.so", families[i - 1], info->file, wish) > 0;
}

static ncclResult_t try_fallback(const tt_plugin_info *info, tt_plugin_kind kind, const tt_plugin_fallback *fallback,
                                 tt_plugin **out)
{
  TT_TRY(fallback->open(fallback->arg, kind, out));
  if (*out != NULL) {
    tt_info(info->subsystem, "%s/Plugin: loaded from the network plugin %s, version %d of the interface", info->title,
            tt_plugin_path(*out), (*out)->version);
  }
  return ncclSuccess;
}

// All names that `wish` can mean, until there is such a file (*done).
static ncclResult_t try_names(plugin_search *s, const char *wish, bool *done, tt_plugin **out)
{
  char name[NAME_BYTES];
  for (int i = 0; !*done && candidate(s->info, wish, i, name); i++) {
    TT_TRY(loader_attempt(s, name[0] != '\0' ? name : NULL, done, out));
  }
  return ncclSuccess;
}

ncclResult_t tt_plugin_peek(tt_plugin_kind kind, const char *wish, tt_plugin **out)
{
  plugin_search s = {.info = &kinds[kind], .quiet = true};
  bool done = false;
  *out = NULL;
  return wish != NULL && tt_plugin_is_none(wish) ? ncclSuccess : try_names(&s, wish, &done, out);
}

ncclResult_t tt_plugin_open(tt_plugin_kind kind, const char *wish, const tt_plugin_fallback *fallback, tt_plugin **out)
{
  plugin_search s = {.info = &kinds[kind], .asked = wish != NULL && wish[0] != '\0'};
  *out = NULL;
  if (wish != NULL && tt_plugin_is_none(wish)) {
    tt_info(s.info->subsystem, "%s/Plugin: none, as %s says", s.info->title, s.info->variable);
    return ncclSuccess;
  }
  bool done = false;
  TT_TRY(try_names(&s, wish, &done, out));
  if (*out == NULL && fallback != NULL) {
    TT_TRY(try_fallback(s.info, kind, fallback, out));
  }
  if (*out == NULL && !done && s.asked) {
    say_unused(&s, "%s asks for %s, which is not there; looked for:%s", s.info->variable, wish, s.absent);
  }
  return ncclSuccess;
}

ncclResult_t tt_plugin_also(const tt_plugin *plugin, tt_plugin_kind kind, tt_plugin **out)
{
  char why[TT_LIBRARY_WHY];
  tt_library *lib = NULL;
  *out = NULL;
  // Not by the name that was given: it may be another file by now, seen from another folder.
  if (tt_library_open(plugin->name != NULL ? tt_library_path(plugin->lib) : NULL, &lib, why) != TT_LIBRARY_OPEN) {
    return ncclSuccess;
  }
  return loader_take(&(plugin_search){.info = &kinds[kind], .quiet = true}, lib, plugin->name, out);
}

void tt_plugin_close(tt_plugin *plugin)
{
  if (plugin != NULL) {
    tt_library_close(plugin->lib);
    tt_free(plugin->name);
    tt_free(plugin);
  }
}

const char *tt_plugin_path(const tt_plugin *plugin)
{
  return plugin->name == NULL ? "the program" : tt_library_path(plugin->lib);
}

int tt_plugin_version(const tt_plugin *plugin)
{
  return plugin->version;
}

const void *tt_plugin_table(const tt_plugin *plugin)
{
  return plugin->table;
}

void *tt_plugin_symbol(const tt_plugin *plugin, const char *symbol)
{
  return tt_library_symbol(plugin->lib, symbol);
}

int tt_plugin_offers(const tt_plugin *plugin, tt_plugin_kind kind)
{
  return version_in(plugin->lib, &kinds[kind], newest_version_of(&kinds[kind]), 1);
}

static bool loader_is_set(const tt_plugin *plugin, const tt_plugin_member *member)
{
  const void *value;
  memcpy(&value, (const char *)plugin->table + member->offset, sizeof value);
  return value != NULL;
}

bool tt_plugin_lacks(const tt_plugin *plugin, const tt_plugin_member *members, size_t n)
{
  size_t i = 0;
  while (i < n && loader_is_set(plugin, &members[i])) {
    i++;
  }
  return i < n;
}

bool tt_plugin_complete(tt_plugin_kind kind, const tt_plugin *plugin, const tt_plugin_member *members, size_t n)
{
  char missing[LIST_BYTES];
  size_t used = 0;
  for (size_t i = 0; i < n && used < sizeof missing; i++) {
    if (!loader_is_set(plugin, &members[i])) {
      used += (size_t)snprintf(missing + used, sizeof missing - used, " %s", members[i].name);
    }
  }
  if (used > 0) {
    tt_info(kinds[kind].subsystem, "%s/Plugin: %s is not used: its table of version %d lacks:%s", kinds[kind].title,
            tt_plugin_path(plugin), plugin->version, missing);
  }
  return used == 0;
}

// ---- Small things ----

bool tt_plugin_is_none(const char *wish)
{
  return tt_casecmp(wish, "none") == 0;
}

// Item number `i` of a list, into `out`; false beyond the end.
static bool take_item(const char *list, int i, char *out, size_t size)
{
  for (const char *p = list; p != NULL && *p != '\0';) {
    p += strspn(p, ", \t");
    size_t n = strcspn(p, ",");
    size_t trimmed = n;
    while (trimmed > 0 && (p[trimmed - 1] == ' ' || p[trimmed - 1] == '\t')) {
      trimmed--;
    }
    if (trimmed > 0 && i-- == 0) {
      snprintf(out, size, "%.*s", (int)TT_MIN(trimmed, size - 1), p);
      return true;
    }
    p += n;
  }
  return false;
}

bool tt_plugin_next_wish(tt_plugin_wishes *w)
{
  if (w->next == 0 && w->kind != TT_PLUGIN_NET && w->list != NULL && !take_item(w->list, 0, w->item, sizeof w->item)) {
    w->list = NULL;
  }
  bool more = w->list != NULL ? take_item(w->list, w->next, w->item, sizeof w->item) : w->next == 0;
  w->wish = w->list != NULL ? w->item : NULL;
  if (more && w->next == w->most) {
    tt_advise("%s: only the first %d plugins of the list count, from %s on none does", kinds[w->kind].variable, w->most,
              w->item);
    return false;
  }
  w->next++;
  return more;
}

void tt_plugin_log(ncclDebugLogLevel level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
  const char *where = file != NULL ? file : "plugin";
  va_list args;
  va_start(args, fmt);
  if (level == NCCL_LOG_WARN) {
    tt_advise_v(where, line, fmt, args);
  } else if (tt_log_on((tt_log_level)level, (unsigned)flags)) {
    tt_log_line_v((tt_log_level)level, (unsigned)flags, where, line, fmt, args);
  }
  va_end(args);
}
