// profiler.h: the profilers of one communicator's rank: several plugins, of several versions, that all see the same
// events. Front door of plugin/profiler.
//
// An event is described once, in the newest form; each profiler is told of it in its own version's terms (one adapter
// per version), if its mask wants it. Its name is a row of handles, one per profiler. A profiler that gave no handle
// hears nothing more of the event, and its children come to it without a parent.
//
// NCCL_PROFILER_PLUGIN lists up to TT_PROFILERS libraries. They are opened once per process, with the first
// communicator, and closed with the last one; a profiler has one mask for the whole process, as with NCCL. What cannot
// be used is looked for again when all communicators have gone. include/nccl/profiler_common.h tells what plugins may
// expect.
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
typedef ncclProfilerEventDescr_v7_t tt_prof_descr;
typedef ncclProfilerEventStateArgs_v7_t tt_prof_args;

// A communicator's rank as profilers are told of it. Copied.
typedef struct tt_profilers_env {
  const char *name; // the user's name for the communicator; NULL or "": none
  uint64_t hash;
  int nnodes, nranks, rank;
  const tt_plugin_fallback *net; // network plugins' libraries, looked into last; NULL: none
} tt_profilers_env;

// Opens the profilers that NCCL_PROFILER_PLUGIN names, and tells them of the communicator. *out is NULL when there are
// none: the log has said why. A profiler that cannot be used, or whose init fails, is done without. Must be closed,
// also when there are none, or on errors: ncclSystemError (no memory). The thread that creates the communicator.
ncclResult_t tt_profilers_open(const tt_profilers_env *env, tt_profilers **out);
// The communicator goes: exactly once for each open. Unless somebody holds them, its profilers' contexts are finalized
// before this returns. NULL: it has none.
void tt_profilers_close(tt_profilers *p);

// A caller that may still tell of events holds them; the contexts are finalized with the last one. A last release
// leaves that to a thread of its own, because a plugin's finalize may block, and the caller may not. Both allow NULL.
// Any thread.
tt_profilers *tt_profilers_hold(tt_profilers *p);
void tt_profilers_release(tt_profilers *p);

// Memory that goes with an operation, zeroed; NULL: there is none. Blocks are kept for the next one: always ask for the
// same size. Given back by any thread that holds the profilers; taken by one thread at a time.
void *tt_profilers_take(tt_profilers *p, size_t size);
void tt_profilers_give(tt_profilers *p, void *block);
// A number that no other profilers of this process have or had. find: those of the number, held; NULL: they have been
// finalized, or are going to be. For a caller that gets the name of an event from another rank, and may use it as a
// parent only while its owner is there. Any thread.
uint64_t tt_profilers_id(const tt_profilers *p);
tt_profilers *tt_profilers_find(uint64_t id);

// Does any profiler want events of this kind (ncclProfile…), be it for the sake of their children? NULL: nobody does.
// Any thread, as all below.
bool tt_profilers_want(const tt_profilers *p, uint64_t type);

// Starts an event: *out becomes its name. `d` is filled in but for parentObj and parentGroup, which come from `parent`
// and `group` (NULL: none), and is used up.
void tt_profilers_start(tt_profilers *p, tt_prof_descr *d, const tt_prof_event *parent, const tt_prof_event *group,
                        tt_prof_event *out);
// The event has a new state. `args` may be NULL where the state has none.
void tt_profilers_state(tt_profilers *p, const tt_prof_event *e, ncclProfilerEventState_t state,
                        const tt_prof_args *args);
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

// Messages of an operation with one peer in one direction: a ProxyOp, below which each message is a ProxyStep. Both
// emitters of messages use it: the proxy (over the network) and comm/profile_shm.c (in common memory). Zeroed: there is
// none.
typedef struct tt_prof_transfer {
  tt_profilers *profilers; // held by the owner of this struct
  tt_prof_event op;
  int rank;         // of the operation's owner
  bool in_progress; // the turn of its first message has come
} tt_prof_transfer;

// Starts the ProxyOp of t->rank. `d` has its members of proxyOp, and is used up. One thread at a time, as the next two.
void tt_prof_transfer_start(tt_prof_transfer *t, tt_prof_descr *d, const tt_prof_event *parent);
// The turn of message `number` has come: starts its ProxyStep in this state. The first one brings the ProxyOp to
// InProgress.
void tt_prof_step_start(tt_prof_transfer *t, uint32_t number, ncclProfilerEventState_t state, tt_prof_event *step);
// The ProxyStep has a new state, after so many bytes.
void tt_prof_step_state(const tt_prof_transfer *t, const tt_prof_event *step, ncclProfilerEventState_t state,
                        size_t bytes);

// What a network plugin may tell of the messages of one connection: a record for each, whose address isend and irecv
// give to the plugin (`phandle`). A plugin may use it from any thread until its closeSend or closeRecv has returned,
// also when the message is long done or has failed. A record belongs to its message until TT_PROF_NET_MESSAGES later
// ones have begun; an event that is started later still hangs below the one that has the record then.
typedef struct tt_prof_net tt_prof_net;
enum { TT_PROF_NET_MESSAGES = 64 };

// For one connection; holds the profilers. NULL: no memory.
tt_prof_net *tt_prof_net_open(tt_profilers *p);
// Message `number` of the connection begins, or is tried again: its `phandle`. `step`: its ProxyStep; `rank`: whose
// message it is. One thread at a time.
void *tt_prof_net_message(tt_prof_net *n, uint32_t number, const tt_prof_event *step, int rank);
// The profilers hear no more of the connection: events that are not stopped are stopped, and the profilers given back.
// Handles stay good for the plugin.
void tt_prof_net_leave(tt_prof_net *n);
// The plugin has closed the connection: the same, and they are good no more. NULL is allowed.
void tt_prof_net_close(tt_prof_net *n);

// ncclProfilerCallback_t for network plugins; any thread.
ncclResult_t tt_profilers_net_callback(void **event, int type, void *phandle, int64_t plugin_id, void *data);

// Sets the mask (ncclProfile…) of every profiler of this process, in place of what the plugins asked for. Any thread.
void tt_profilers_mask(uint32_t mask);
