// profiler.h: the profilers of one communicator's rank: several plugins, of several versions, that all see the same events. Front door of plugin/profiler.
//
// An event is described once, in the newest form; each profiler is told of it in its own version's terms (one adapter per version), if its mask wants it. Its
// name is a row of handles, one per profiler. A profiler that gave no handle hears nothing more of the event, and its children come to it without a parent.
//
// NCCL_PROFILER_PLUGIN lists up to TT_PROFILERS libraries. They are opened once per process, with the first communicator, and closed with the last one; a
// profiler has one mask for the whole process, as with NCCL. include/nccl/profiler_common.h tells what plugins may expect.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "nccl/profiler.h"
#include "plugin/loader.h"

enum { TT_PROFILERS = 4 };

typedef struct tt_profilers tt_profilers;

// A running event. Zeroed: there is none.
typedef struct tt_prof_event {
  void *of[TT_PROFILERS];
} tt_prof_event;

// The internal form of a descriptor and of what goes with a state: the newest version's.
typedef ncclProfilerEventDescr_v6_t tt_prof_descr;
typedef ncclProfilerEventStateArgs_v6_t tt_prof_args;

// A communicator's rank as profilers are told of it. Copied.
typedef struct tt_profilers_env {
  const char *name; // the user's name for the communicator; NULL or "": none
  uint64_t hash;
  int nnodes, nranks, rank;
  const tt_plugin *net; // its library is looked into last; NULL: none
} tt_profilers_env;

// Opens the profilers that NCCL_PROFILER_PLUGIN names, and tells them of the communicator. *out is NULL when there are none: the log has said why. A profiler
// that cannot be used, or whose init fails, is done without. Errors: ncclSystemError (no memory). The thread that creates the communicator.
ncclResult_t tt_profilers_open(const tt_profilers_env *env, tt_profilers **out);

// Whoever may still tell of events holds them; the last release finalizes the contexts. Both allow NULL. Any thread.
tt_profilers *tt_profilers_hold(tt_profilers *p);
void tt_profilers_release(tt_profilers *p);

// Does any profiler want events of this kind (ncclProfile…), be it for the sake of their children? NULL: nobody does. Any thread, as all below.
bool tt_profilers_want(const tt_profilers *p, uint64_t type);

// Starts an event: *out becomes its name. `d` is filled in but for parentObj and parentGroup, which come from `parent` and `group` (NULL: none), and is used up.
void tt_profilers_start(tt_profilers *p, tt_prof_descr *d, const tt_prof_event *parent, const tt_prof_event *group, tt_prof_event *out);
// The event has a new state. `args` may be NULL where the state has none.
void tt_profilers_state(tt_profilers *p, const tt_prof_event *e, ncclProfilerEventState_t state, const tt_prof_args *args);
// Stops it, and forgets the name: nothing happens when it is stopped once more, or was never started.
void tt_profilers_stop(tt_profilers *p, tt_prof_event *e);

// Is anybody interested in this event?
static inline bool tt_prof_is_on(const tt_prof_event *e)
{
  void *any = NULL;
  for (int i = 0; i < TT_PROFILERS; i++) {
    any = any != NULL ? any : e->of[i];
  }
  return any != NULL;
}

// What isend and irecv give to a network plugin as `phandle`: the message's ProxyStep. Lives as long as the request.
typedef struct tt_prof_net {
  tt_profilers *profilers; // NULL: nobody listens
  tt_prof_event step;
  int rank;
} tt_prof_net;

// ncclProfilerCallback_t for network plugins. Events that a plugin does not stop are stopped before the contexts are finalized.
ncclResult_t tt_profilers_net_callback(void **event, int type, void *phandle, int64_t plugin_id, void *data);
