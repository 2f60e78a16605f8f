// profiler_priv.h: what the files of this folder share.
//
// profiler.c  the profilers of a communicator: contexts, telling all of them
// library.c   the libraries, one row per process
// net.c       what network plugins tell
// v1.c … v6.c one adapter per version
#pragma once
#include <pthread.h>

#include "plugin/profiler/profiler.h"

// How a version of the interface is told of things. `table` is the plugin's, of that version.
typedef struct tt_profiler_adapter {
  const tt_plugin_member *members; // that the table must have
  size_t nmembers;
  // Errors: the plugin's.
  ncclResult_t (*init)(const void *table, const tt_profilers_env *env, int *mask, void **ctx);
  void (*start)(const void *table, void *ctx, void **handle, tt_prof_descr *d);
  void (*stop)(const void *table, void *handle);
  void (*state)(const void *table, void *handle, ncclProfilerEventState_t state, const tt_prof_args *args);
  void (*finalize)(const void *table, void *ctx);
} tt_profiler_adapter;

extern const tt_profiler_adapter tt_profiler_v1, tt_profiler_v2, tt_profiler_v3, tt_profiler_v4, tt_profiler_v5, tt_profiler_v6;

// An open library.
typedef struct tt_profiler_library {
  tt_plugin *plugin; // NULL: none, or not yet
  const tt_profiler_adapter *adapter;
  const void *table;
  const char *name;
  int mask; // the plugin's: it may write there whenever it likes
} tt_profiler_library;

// Opens the libraries unless they are open: one more user. Row i is that of the list's item i; a row without plugin cannot be used. Caller holds the lock.
// Errors: ncclSystemError.
ncclResult_t tt_profiler_libraries_use(const tt_plugin *net, tt_profiler_library **rows);
// One user less. Caller holds the lock.
void tt_profiler_libraries_leave(void);
// Held while libraries come and go, and while plugins' init and finalize run: some cannot do with two at a time.
void tt_profiler_lock(void);
void tt_profiler_unlock(void);

// net.c: events of network plugins that are not stopped yet.
typedef struct tt_prof_net_event {
  struct tt_prof_net_event *next, **back;
  tt_profilers *profilers;
  tt_prof_event event;
} tt_prof_net_event;

// The list of them, with its lock.
typedef struct tt_prof_net_list {
  pthread_mutex_t lock;
  tt_prof_net_event *first;
} tt_prof_net_list;

tt_prof_net_list *tt_profilers_net_list(tt_profilers *p);
// Stops all that are left.
void tt_prof_net_end(tt_prof_net_list *list);

// Members that the tables of all versions must have.
#define TT_PROFILER_MEMBERS(type)                                                                        \
  {                                                                                                      \
    TT_PLUGIN_MEMBER(type, init), TT_PLUGIN_MEMBER(type, startEvent), TT_PLUGIN_MEMBER(type, stopEvent), \
        TT_PLUGIN_MEMBER(type, recordEventState), TT_PLUGIN_MEMBER(type, finalize)                       \
  }
enum { TT_PROFILER_NMEMBERS = 5 };
