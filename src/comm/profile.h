// profile.h: what a communicator tells its profilers (plugin/profiler/profiler.h) of calls, launches and the channels
// that run. For src/comm alone.
//
// Order of one collective on its own, with all kinds wanted; brackets are start and stop, > and < those of GroupApi:
//
//   the calling thread   > GroupStartApiStop [CollApi] GroupEndApiStart [Group [Coll]] [KernelLaunch] <
//   the thread that runs it   KernelCh of each channel: all starts, then KernelChStop and stop of each
//   the thread that moves its messages over the network (src/proxy)   ProxyOp, ProxyStep …, children of Coll
//
// A Coll ends when the operation is queued. The thread that runs the operation reports a KernelCh. It reports the
// starts when it leaves the operation for the first time after all channels have begun: all starts come before the
// first stop, because profilers count. It reports the stops when the operation has ended, right after it has woken
// waiters. So events come when things happen, also when no thread waits, and their time stamps are those of the channel
// itself.
//
// In a group each collective is a plan of its own, with its own Group and KernelLaunch; the sends and receives of the
// group are one. An operation that no profiler watches costs one branch.
#pragma once
#include "comm/decide.h"
#include "comm/task.h"
#include "plugin/profiler/profiler.h"

// The messages of a group count as so many channels, to profilers: some have no room for more.
#define TT_MESSAGE_CHANNELS 32

// What is known of one call: its events, and those of its channels. Owned by the task, then by the plan.
typedef struct tt_task_events tt_task_events;

// The calling thread's open group. Zeroed: nothing told yet.
typedef struct tt_group_events {
  tt_profilers *profilers; // held; those of the first operation's communicator. NULL: no GroupApi event
  tt_prof_event api;
  bool reported; // some of its tasks have events
  bool captured; // a launch of a graph makes its calls; else it is seen by the stream of each
} tt_group_events;

// Does some profiler of the communicator want events? GroupApi is the ancestor of all.
static inline bool tt_profile_wanted(const struct ncclComm *comm)
{
  return TT_UNLIKELY(comm->profiling.profilers != NULL) &&
         tt_profilers_want(comm->profiling.profilers, ncclProfileGroupApi);
}

// If so: starts the group's event with the first operation, then the call's; t->events stays NULL when there is no
// memory. `depth`: groups that are open.
void tt_profile_call_start(tt_group_events *g, tt_task *t, int depth);
// The call returns. NULL is allowed.
void tt_profile_call_stop(tt_task_events *e);
// These tasks will not be launched, or have been: what no plan has taken goes.
void tt_profile_drop(tt_task *tasks, size_t n);
// ncclGroupEnd has been called; it returns.
void tt_profile_group_ends(tt_group_events *g);
void tt_profile_group_stop(tt_group_events *g);

// A launch.
typedef struct tt_launch_events {
  struct ncclComm *comm;
  tt_plan *plan;
  tt_prof_event group, launch;
  const tt_prof_event *api; // of the group
  bool begun;
  tt_task_events *first, **last;
} tt_launch_events;

// A plan is being made that profilers watch: fills *l, which the calls below take, in their order. The
// launching thread.
void tt_profile_plan_start(tt_launch_events *l, struct ncclComm *comm, tt_plan *p);
// Starts the event of task t's operation, and the plan takes the task's events over. Before its lanes are added.
// `channel`: number of the first one it uses.
void tt_profile_op_start(tt_launch_events *l, tt_task *t, const tt_decision *d, int channel);
// Its lanes are there, from number `first` on. `d` NULL: they are those of one channel, whose single messages in common
// memory are not told.
void tt_profile_op_lanes(const tt_launch_events *l, const tt_call *c, const tt_decision *d, int first);
// All operations are there: the plan is pushed to `stream` after this. The event lasts as long as the push.
void tt_profile_push_start(tt_launch_events *l, cudaStream_t stream);
void tt_profile_push_stop(tt_launch_events *l);
// In place of these two: the plan will not run.
void tt_profile_plan_drop(tt_launch_events *l);

// ---- one-sided operations (profile_rma.c)

struct tt_rma_call;
struct tt_rma_batch;
// What is known of one call; its calls' owner frees it.
typedef struct tt_rma_call_events tt_rma_call_events;

// As tt_profile_call_start: sets c->events, which stays NULL when there is no memory.
void tt_profile_rma_start(tt_group_events *g, struct tt_rma_call *c, int depth);
// The call returns.
void tt_profile_rma_stop(const struct tt_rma_call *c);
// The call goes. NULL is allowed.
void tt_profile_rma_drop(tt_rma_call_events *e);

// A launch of a batch.
typedef struct tt_rma_launch_events {
  tt_profilers *profilers; // held
  tt_prof_event group, launch;
} tt_rma_launch_events;

// The operations of these calls are in the batch, which is pushed to their stream after this; the batch tells of itself
// from then on. The launching thread.
void tt_profile_batch_start(tt_rma_launch_events *l, struct tt_rma_batch *b, const struct tt_rma_call *calls);
// It has been pushed, and may be over.
void tt_profile_batch_stop(tt_rma_launch_events *l);
// The batch is over. The thread that has completed it.
void tt_profile_batch_over(struct tt_rma_batch *b);

// Starts the group's event with the first operation. Is this one captured in a graph, or made by the launch of one?
bool tt_profile_group_start(tt_group_events *g, struct ncclComm *comm, cudaStream_t stream, int depth);

// The event that messages of this call belong to. NULL: none.
const tt_prof_event *tt_profile_event(const tt_call *c);
