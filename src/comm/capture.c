// capture.c: operations on captured streams become nodes of a graph (device/host/capture.h).
//
// A node has the operations of one communicator in one group, as tasks. Each launch of the graph hands copies of them to tt_comm_launch, as the calls
// would, outside of any group that is open; so everything that a launch counts is counted then.
#include "base/result.h"
#include "comm/comm.h"
#include "comm/profile.h"
#include "device/host/capture.h"

typedef struct nccl_node {
  tt_node node;
  struct ncclComm *comm;
  uint64_t hash; // of the communicator: the handle may have been given to another one
  int rank;
  size_t n;
  tt_task *tasks, *copies; // copies: of the launch that is being issued
} nccl_node;

// Does the communicator live that the operations were captured for?
static ncclResult_t check_node(const tt_node *node)
{
  const nccl_node *n = (const nccl_node *)node;
  if (tt_comm_lives(n->comm) && n->comm->hash == n->hash && n->comm->rank == n->rank) {
    return ncclSuccess;
  }
  return tt_fail(ncclInvalidArgument, "launch of a graph: rank %d's communicator, whose %s was captured, has been destroyed or aborted",
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

static ncclResult_t launch(const nccl_node *n)
{
  tt_group_events events = {.captured = true};
  bool told = n->comm->profilers != NULL && tt_profilers_want(n->comm->profilers, ncclProfileGroupApi);
  TT_TRY(tt_comm_check(n->comm, "launch of a graph", true));
  if (told) {
    tell_calls(&events, n->copies, n->n);
  }
  ncclResult_t res = tt_comm_launch(n->comm, n->copies, n->n, TT_QUICK_LOOKS);
  if (told) {
    tt_profile_drop(n->copies, n->n);
    tt_profile_group_stop(&events);
  }
  return res;
}

static ncclResult_t issue_node(tt_node *node, tt_stream *s)
{
  nccl_node *n = (nccl_node *)node;
  TT_TRY(check_node(node));
  for (size_t i = 0; i < n->n; i++) {
    n->copies[i] = n->tasks[i];
    tt_comm_recall(n->copies[i].comm, &n->copies[i]);
    n->copies[i].stream = (cudaStream_t)s;
  }
  tt_comm_enter(n->comm);
  ncclResult_t res = launch(n);
  tt_comm_leave(n->comm);
  return res;
}

static void drop_node(tt_node *node)
{
  nccl_node *n = (nccl_node *)node;
  tt_free(n->tasks);
  tt_free(n->copies);
  tt_free(n);
}

// NULL: there is no memory.
static nccl_node *make_node(struct ncclComm *comm, const tt_task *tasks, size_t n)
{
  static const tt_node_ops ops = {.kind = tuttiNodeNccl, .check = check_node, .issue = issue_node, .drop = drop_node};
  nccl_node *node = (nccl_node *)tt_node_new(sizeof *node, &ops);
  if (node == NULL) {
    return NULL;
  }
  node->comm = comm;
  node->hash = comm->hash;
  node->rank = comm->rank;
  node->n = n;
  node->tasks = tt_calloc(n, sizeof *tasks);
  node->copies = tt_calloc(n, sizeof *tasks);
  if (node->tasks == NULL || node->copies == NULL) {
    tt_node_drop(&node->node);
    return NULL;
  }
  for (size_t i = 0; i < n; i++) {
    node->tasks[i] = tasks[i];
    node->tasks[i].events = NULL;
  }
  return node;
}

// The streams of the tasks, and whether all, some or none of them are captured.
static ncclResult_t find_streams(const struct ncclComm *comm, const tt_task *tasks, size_t n, tt_stream **streams, size_t *captured)
{
  *captured = 0;
  for (size_t i = 0; i < n; i++) {
    TT_TRY(tt_stream_look(tasks[i].stream, comm->device, &streams[i]));
    *captured += tt_stream_captures(streams[i]);
  }
  for (size_t i = 0; i < n && *captured == 0; i++) {
    TT_TRY(tt_capture_refuse_legacy(streams[i], tt_func_name(tasks[i].func)));
  }
  return ncclSuccess;
}

ncclResult_t tt_comm_capture(struct ncclComm *comm, const tt_task *tasks, size_t n, bool *captured)
{
  size_t count;
  tt_stream *one[1], **streams = n == 1 ? one : tt_calloc(n, sizeof *streams);
  if (streams == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory to capture %zu operations", comm->rank, n);
  }
  ncclResult_t res = find_streams(comm, tasks, n, streams, &count);
  if (res == ncclSuccess && count > 0) {
    res = tt_capture_add(streams, n, (tt_node *)make_node(comm, tasks, n));
  }
  *captured = count > 0;
  if (streams != one) {
    tt_free(streams);
  }
  return res;
}
