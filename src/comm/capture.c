// capture.c: operations on captured streams become parts of a graph (tt_device_ops.record).
//
// A part has the operations of one communicator in one group, as tasks. Each launch of the graph hands copies of them
// to tt_comm_launch, as the calls would, outside of any group that is open; so everything that a launch counts is
// counted then.
#include "base/result.h"
#include "comm/blocks.h"
#include "comm/comm.h"
#include "comm/decide.h"
#include "comm/inline.h"
#include "comm/launch.h"
#include "comm/profile.h"
#include "comm/task.h"

typedef struct calls {
  tt_recorded recorded;
  struct ncclComm *comm;
  uint64_t hash; // of the communicator: the handle may have been given to another one
  int rank;
  size_t n;
  tt_task *copies; // of the launch that is being issued, behind the tasks
  tt_task tasks[];
} calls;

// Does the communicator live that the operations were captured for?
static ncclResult_t check_calls(const tt_recorded *r)
{
  const calls *n = (const calls *)r;
  if (tt_comm_lives(n->comm) && n->comm->hash == n->hash && n->comm->rank == n->rank) {
    return ncclSuccess;
  }
  return tt_fail(ncclInvalidArgument,
                 "launch of a graph: rank %d's communicator, whose %s was captured, has been destroyed or aborted",
                 n->rank, tt_func_name(n->tasks->func));
}

// Profilers see the captured calls once more at each launch.
static void tell_calls(tt_group_events *g, tt_task *tasks, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    tt_profile_call_start(g, &tasks[i], 0);
    tt_profile_call_stop(tasks[i].events);
  }
  tt_profile_group_ends(g);
}

static ncclResult_t capture_launch(const calls *n)
{
  tt_group_events events = {.captured = true};
  bool reported = tt_profile_wanted(n->comm);
  TT_TRY(tt_comm_check(n->comm, "launch of a graph", true));
  for (size_t i = 0; i < n->n; i++) {
    tt_comm_recall(n->comm, &n->copies[i]);
  }
  if (reported) {
    tell_calls(&events, n->copies, n->n);
  }
  ncclResult_t res = tt_comm_launch(n->comm, n->copies, n->n, TT_INLINE_LOOKS);
  if (reported) {
    tt_profile_drop(n->copies, n->n);
    tt_profile_group_stop(&events);
  }
  return res;
}

static ncclResult_t issue_calls(tt_recorded *r, cudaStream_t stream)
{
  calls *n = (calls *)r;
  TT_TRY(check_calls(r));
  for (size_t i = 0; i < n->n; i++) {
    n->copies[i] = n->tasks[i];
    n->copies[i].stream = stream;
  }
  tt_comm_enter(n->comm);
  ncclResult_t res = capture_launch(n);
  tt_comm_leave(n->comm);
  return res;
}

static void drop_calls(tt_recorded *r)
{
  const calls *n = (const calls *)r;
  for (size_t i = 0; i < n->n; i++) {
    tt_blocks_drop(n->tasks[i].blocks);
  }
  tt_free(r);
}

// NULL: there is no memory.
static tt_recorded *make_calls(struct ncclComm *comm, const tt_task *tasks, size_t n)
{
  calls *c = tt_calloc(1, sizeof *c + 2 * n * sizeof *tasks);
  if (c == NULL) {
    return NULL;
  }
  *c = (calls){.recorded = {.check = check_calls, .issue = issue_calls, .drop = drop_calls},
               .comm = comm,
               .hash = comm->hash,
               .rank = comm->rank,
               .n = n,
               .copies = c->tasks + n};
  for (size_t i = 0; i < n; i++) {
    c->tasks[i] = tasks[i];
    c->tasks[i].events = NULL;
    tt_blocks_hold(tasks[i].blocks);
  }
  return &c->recorded;
}

ncclResult_t tt_comm_capture(struct ncclComm *comm, const tt_task *tasks, size_t n, bool *captured)
{
  tt_stream_use *uses;
  TT_TRY(TT_NEW(uses, n, "rank %d: no memory to capture %zu operations", comm->rank, n));
  for (size_t i = 0; i < n; i++) {
    uses[i] = (tt_stream_use){.stream = tasks[i].stream, .what = tt_func_name(tasks[i].func)};
  }
  ncclResult_t res = comm->port.row->record(uses, n, comm->device, make_calls(comm, tasks, n), captured);
  tt_free(uses);
  return res;
}
