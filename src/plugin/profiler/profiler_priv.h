// profiler_priv.h: what the files of this folder share.
//
// profiler.c  the profilers of a communicator: contexts, telling all of them
// library.c   the libraries, one row per process
// net.c       what network plugins tell
// versions.c  one adapter per version
#pragma once
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

// The adapter of a version from 1 to 7.
const tt_profiler_adapter *tt_profiler_adapter_of(int version);

// Does a profiler with this mask want events of a kind (ncclProfile…), be it for the sake of their children?
bool tt_profiler_mask_wants(uint32_t mask, uint64_t type);

// An open library.
typedef struct tt_profiler_library {
  tt_plugin *plugin; // NULL: none, or not yet
  const tt_profiler_adapter *adapter;
  const void *table;
  const char *name;
  int mask; // the plugin's: it may write there whenever it likes
} tt_profiler_library;

// One more user of the libraries; the first one opens them. Row i is that of the list's item i; a row without plugin
// cannot be used. Rows stay as they are until the last user leaves. Users are communicators, whether they have
// profilers or not, and profilers until they are finalized. Any thread. Errors: ncclSystemError: then there is a user
// more all the same.
ncclResult_t tt_profiler_libraries_use(const tt_plugin_fallback *net, tt_profiler_library **rows);
// One more, beside others: nothing is opened. One user less: the last one closes them.
void tt_profiler_libraries_share(void);
void tt_profiler_libraries_leave(void);
// Held while init or finalize of row `i` runs: one at a time per library, because the first init sets the mask that
// those after it find, and because plugin authors are promised it. A library that is slow delays its own communicators
// only.
void tt_profiler_row_lock(int i);
void tt_profiler_row_unlock(int i);
// Called by a forked child. profiler.c.
void tt_profilers_forget(void);
