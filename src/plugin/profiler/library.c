// library.c: the profilers' libraries: opened with the process's first communicator, closed with the last one. Nothing
// is remembered beyond that, so what could not be used is looked for again by the next one that comes then.
#include <assert.h>
#include <pthread.h>

#include "base/advice.h"
#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "base/util.h"
#include "os/proc.h"
#include "plugin/profiler/profiler_priv.h"

// One per process: a plugin has one mask for all its contexts, and often one state. Under `lock`, which is held while
// libraries come and go.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t row_locks[TT_PROFILERS] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                                                  PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static struct {
  tt_profiler_library rows[TT_PROFILERS];
  int users;
} libraries;

// A forked child keeps what is open: its own communicators go on with it, in the state in which the fork has left it.
static void forked(void)
{
  pthread_mutex_init(&lock, NULL);
  for (int i = 0; i < TT_PROFILERS; i++) {
    pthread_mutex_init(&row_locks[i], NULL);
  }
  tt_profilers_forget();
}

void tt_profiler_row_lock(int i)
{
  pthread_mutex_lock(&row_locks[i]);
}

void tt_profiler_row_unlock(int i)
{
  pthread_mutex_unlock(&row_locks[i]);
}

static bool is_twice(const void *table)
{
  for (int i = 0; i < TT_PROFILERS; i++) {
    if (libraries.rows[i].plugin != NULL && libraries.rows[i].table == table) {
      return true;
    }
  }
  return false;
}

// Opens one row. Whatever cannot be used leaves it empty, and has been named.
static ncclResult_t open_row(int i, const char *wish, const tt_plugin_fallback *net)
{
  tt_plugin *plugin = NULL;
  TT_TRY(tt_plugin_open(TT_PLUGIN_PROFILER, wish, net, &plugin));
  if (plugin == NULL) {
    return ncclSuccess;
  }
  const tt_profiler_adapter *adapter = tt_profiler_adapter_of(tt_plugin_version(plugin));
  const void *table = tt_plugin_table(plugin);
  if (is_twice(table)) {
    tt_info(TT_INIT | TT_PROFILE, "PROFILER/Plugin: %s stands twice in NCCL_PROFILER_PLUGIN; once is enough",
            tt_plugin_path(plugin));
  } else if (tt_plugin_complete(TT_PLUGIN_PROFILER, plugin, adapter->members, adapter->nmembers)) {
    const char *name = *(const char *const *)table; // the first member of all versions
    libraries.rows[i] = (tt_profiler_library){
        .plugin = plugin, .adapter = adapter, .table = table, .name = name != NULL ? name : tt_plugin_path(plugin)};
    return ncclSuccess;
  }
  tt_plugin_close(plugin);
  return ncclSuccess;
}

// What is said of a profiler's variables when there is no profiler. One that was asked for and is not there has been
// named.
static void say_unread(void)
{
  for (size_t i = 0; i < tt_param_count(); i++) {
    const tt_param_row *row = tt_param_row_at(i);
    if ((row->flags & TT_PARAM_PROFILER) != 0 && tt_param_origin_of(row) == TT_PARAM_FROM_ENV) {
      tt_advise_job("%s is set, but no profiler plugin is there to read it: set NCCL_PROFILER_PLUGIN, too", row->name);
    }
  }
}

static ncclResult_t profiler_open_all(const tt_plugin_fallback *net)
{
  tt_plugin_wishes w = {.kind = TT_PLUGIN_PROFILER, .list = tt_params_get()->profiler_plugin, .most = TT_PROFILERS};
  for (int i = 0; tt_plugin_next_wish(&w); i++) {
    TT_TRY(open_row(i, w.wish, net));
  }
  if (w.list == NULL && libraries.rows[0].plugin == NULL) {
    say_unread();
  }
  return ncclSuccess;
}

static void profiler_close_all(void)
{
  for (int i = 0; i < TT_PROFILERS; i++) {
    tt_plugin_close(libraries.rows[i].plugin);
    libraries.rows[i] = (tt_profiler_library){0};
  }
}

ncclResult_t tt_profiler_libraries_use(const tt_plugin_fallback *net, tt_profiler_library **rows)
{
  ncclResult_t res = ncclSuccess;
  pthread_mutex_lock(&lock);
  static tt_fork_hook hook = {.fn = forked};
  tt_proc_on_fork(&hook);
  if (libraries.users++ == 0) {
    res = profiler_open_all(net);
  }
  pthread_mutex_unlock(&lock);
  *rows = libraries.rows;
  return res;
}

void tt_profiler_libraries_share(void)
{
  pthread_mutex_lock(&lock);
  libraries.users++;
  pthread_mutex_unlock(&lock);
}

void tt_profiler_libraries_leave(void)
{
  pthread_mutex_lock(&lock);
  assert(libraries.users > 0);
  if (--libraries.users == 0) {
    profiler_close_all();
  }
  pthread_mutex_unlock(&lock);
}

void tt_profilers_mask(uint32_t mask)
{
  pthread_mutex_lock(&lock);
  for (int i = 0; i < TT_PROFILERS; i++) {
    if (libraries.rows[i].plugin != NULL) {
      __atomic_store_n(&libraries.rows[i].mask, (int)mask, __ATOMIC_RELAXED);
    }
  }
  pthread_mutex_unlock(&lock);
}
