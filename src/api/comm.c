// comm.c: life of a communicator.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_priv.h"
#include "base/log.h"
#include "base/result.h"
#include "comm/comm.h"
#include "comm/group.h"
#include "comm/init.h"
#include "os/socket.h"
#include "tutti.h"

// What an init or split job needs; freed by release_init.
typedef struct init_job {
  tt_init_args args;
  struct ncclComm *comm;
  ncclComm_t *out; // where a blocking call leaves the handle
  tt_turn turn;    // among the parent's splits
  bool nonblocking;
  bool dropped;       // the user has no handle of it
  ncclUniqueId ids[]; // args.ids, when there are several: the user may overwrite the call's
} init_job;

// What the job is for. After an abort, which the steps of creation report without a text, says so.
static ncclResult_t comm_create(init_job *j)
{
  struct ncclComm *parent = j->args.parent;
  char text[96];
  ncclResult_t res = parent == NULL ? ncclSuccess : tt_turns_await(&parent->splits.turns, &j->turn);
  if (res == ncclSuccess) {
    res = parent != NULL ? tt_comm_split(j->comm, &j->args) : tt_comm_init(j->comm, &j->args);
  }
  if (res != ncclSuccess && tt_aborted(&j->comm->port.abort_flag)) {
    snprintf(text, sizeof text, "%s on rank %d: ended by ncclCommAbort",
             parent != NULL ? "ncclCommSplit" : "creating the communicator",
             parent != NULL ? parent->rank : j->args.rank);
    tt_last_error_set(text);
  }
  return res;
}

// The split uses its parent no more. An abort of that which came too late for the child has no business with it.
static void leave_parent(init_job *j, ncclResult_t res)
{
  struct ncclComm *parent = j->args.parent;
  if (parent != NULL) {
    bool orphan = res == ncclSuccess && tt_aborted(&parent->port.abort_flag);
    tt_turns_leave(&parent->splits.turns, &j->turn, parent->boot);
    if (orphan) {
      __atomic_store_n(&j->comm->port.abort_flag, 0, __ATOMIC_RELEASE);
    }
  }
}

static ncclResult_t run_init(void *arg)
{
  init_job *j = arg;
  bool member = j->args.parent == NULL || j->args.color != NCCL_SPLIT_NOCOLOR;
  ncclResult_t res = comm_create(j);
  if (res == ncclSuccess && member && !j->nonblocking) {
    *j->out = j->comm;
  } else if (res != ncclSuccess && member && j->nonblocking) {
    atomic_store(&j->comm->state, TT_COMM_BROKEN); // the user frees the handle
  } else if (res != ncclSuccess || !member) {
    j->dropped = true;
  }
  leave_parent(j, res);
  return res;
}

static void release_init(void *arg, bool ran)
{
  init_job *j = arg;
  if (!ran) {
    leave_parent(j, ncclInternalError);
    *j->out = NULL;
  }
  if (!ran || j->dropped) {
    tt_comm_free(j->comm);
  }
  free(j);
}

// Makes the handle and submits the job that brings it to life.
static ncclResult_t submit_init(ncclComm_t *out, const tt_init_args *args, const tt_config *config)
{
  struct ncclComm *comm;
  size_t nids = args->nids > 1 ? (size_t)args->nids : 0;
  init_job *j = calloc(1, sizeof *j + nids * sizeof *j->ids);
  if (j == NULL) {
    return tt_fail(ncclSystemError, "no memory to create a communicator");
  }
  ncclResult_t res = tt_comm_new(args->parent == NULL ? tt_device_row() : args->parent->port.row, &comm);
  if (res != ncclSuccess) {
    free(j);
    return res;
  }
  comm->config = *config;
  bool nonblocking = !config->blocking, alone = args->parent != NULL && args->color == NCCL_SPLIT_NOCOLOR;
  *j = (init_job){.args = *args, .comm = comm, .out = out, .nonblocking = nonblocking};
  j->args.ids = nids > 0 ? memcpy(j->ids, args->ids, nids * sizeof *j->ids) : NULL;
  if (args->parent == NULL) {
    tt_comm_name(comm, args);
  } else if (!tt_turns_add(&args->parent->splits.turns, &j->turn, &comm->port.abort_flag)) {
    tt_comm_free(comm);
    free(j);
    return tt_fail(ncclInvalidArgument, "ncclCommSplit on rank %d: the communicator is being aborted",
                   args->parent->rank);
  }
  *out = nonblocking && !alone ? comm : NULL;
  tt_job_desc d = {.fn = run_init,
                   .release = release_init,
                   .arg = j,
                   .serial = args->parent,
                   .comm = comm,
                   .nonblocking = nonblocking,
                   .detached = alone};
  return tt_job_submit(&d);
}

static ncclResult_t init_rank(const char *what, ncclComm_t *comm, tt_init_args *args, const ncclConfig_t *config)
{
  tt_config cfg;
  if (comm == NULL) {
    return tt_fail(ncclInvalidArgument, "%s: comm is NULL", what);
  }
  if (args->nranks < 1) {
    return tt_fail(ncclInvalidArgument, "%s on rank %d: nranks is %d; it must be at least 1", what, args->rank,
                   args->nranks);
  }
  if (args->rank < 0 ||
      args->rank >= args->nranks) { // no message is sent: the id stays good for the rank that was meant
    return tt_fail(ncclInvalidArgument, "%s: rank is %d; with %d ranks it must lie between 0 and %d", what, args->rank,
                   args->nranks, args->nranks - 1);
  }
  TT_TRY(tt_config_read(config, NULL, &cfg));
  args->device = tt_device_row()->current();
  return submit_init(comm, args, &cfg);
}

static ncclResult_t noted(ncclResult_t res)
{
  if (res != ncclSuccess && res != ncclInProgress) {
    tt_group_note(res);
  }
  return res;
}

TT_TWIN(ncclGetUniqueId);
TT_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId)
{
  if (uniqueId == NULL) {
    return tt_fail(ncclInvalidArgument, "ncclGetUniqueId: uniqueId is NULL");
  }
  return tt_bootstrap_id(uniqueId);
}

TT_TWIN(ncclCommInitRank);
TT_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
  tt_init_args args = {.id = commId, .nranks = nranks, .rank = rank};
  return noted(init_rank("ncclCommInitRank", comm, &args, NULL));
}

TT_TWIN(ncclCommInitRankConfig);
TT_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
                                              ncclConfig_t *config)
{
  tt_init_args args = {.id = commId, .nranks = nranks, .rank = rank};
  return noted(init_rank("ncclCommInitRankConfig", comm, &args, config));
}

TT_TWIN(ncclCommInitRankScalable);
TT_EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId,
                                                ncclUniqueId *commIds, ncclConfig_t *config)
{
  if (commIds == NULL || nId < 1 || nId > nranks) {
    return noted(tt_fail(ncclInvalidArgument,
                         "ncclCommInitRankScalable on rank %d: %d unique ids at %p for %d ranks; there must be at "
                         "least one, and not more than "
                         "ranks",
                         myrank, nId, (void *)commIds, nranks));
  }
  tt_init_args args = {.id = commIds[0], .ids = commIds, .nids = nId, .nranks = nranks, .rank = myrank};
  return noted(init_rank("ncclCommInitRankScalable", newcomm, &args, config));
}

// Initialises all ranks of one process as one group; on failure frees those that came up.
static ncclResult_t init_all(ncclComm_t *comms, int ndev, const int *devlist)
{
  ncclUniqueId id;
  tt_config cfg;
  TT_TRY(tt_config_read(NULL, NULL, &cfg));
  cfg.blocking = 1;
  TT_TRY(tt_bootstrap_id(&id));
  TT_TRY(tt_group_start());
  for (int i = 0; i < ndev; i++) {
    tt_init_args args = {.id = id, .nranks = ndev, .rank = i, .device = devlist == NULL ? i : devlist[i]};
    comms[i] = NULL;
    ncclResult_t r = submit_init(&comms[i], &args, &cfg);
    if (r != ncclSuccess) {
      tt_group_note(r);
    }
  }
  ncclResult_t res = tt_group_end();
  for (int i = 0; i < ndev && res != ncclSuccess; i++) {
    if (comms[i] != NULL) {
      tt_comm_free(comms[i]);
      comms[i] = NULL;
    }
  }
  return res;
}

TT_TWIN(ncclCommInitAll);
TT_EXPORT ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
  int count = tt_device_row()->count();
  if (comm == NULL || ndev < 1) {
    return tt_fail(ncclInvalidArgument,
                   "ncclCommInitAll: comm is %p, ndev is %d; comm must be an array, ndev at least 1", (void *)comm,
                   ndev);
  }
  for (int i = 0; i < ndev; i++) {
    int dev = devlist == NULL ? i : devlist[i];
    if (dev < 0 || dev >= count) {
      return tt_fail(ncclInvalidArgument,
                     "ncclCommInitAll: device %d of rank %d does not exist; there are %d (NCCL_HOST_DEVICES)", dev, i,
                     count);
    }
  }
  if (tt_group_open()) {
    return noted(tt_fail(ncclInvalidUsage, "ncclCommInitAll: cannot be called inside a group; it makes its own"));
  }
  return init_all(comm, ndev, devlist);
}

// Of a parent that has been entered.
static ncclResult_t comm_split(struct ncclComm *comm, int color, int key, ncclComm_t *newcomm,
                               const ncclConfig_t *config)
{
  tt_config cfg;
  if (newcomm == NULL) {
    return tt_fail(ncclInvalidArgument, "ncclCommSplit on rank %d: newcomm is NULL", comm->rank);
  }
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR) {
    return tt_fail(ncclInvalidArgument,
                   "ncclCommSplit on rank %d: color is %d; it must be at least 0, or NCCL_SPLIT_NOCOLOR", comm->rank,
                   color);
  }
  TT_TRY(tt_config_read(config, comm, &cfg));
  tt_init_args args = {.parent = comm, .color = color, .key = key};
  return submit_init(newcomm, &args, &cfg);
}

TT_TWIN(ncclCommSplit);
TT_EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)
{
  ncclResult_t res = tt_comm_begin(comm, "ncclCommSplit", true);
  if (res == ncclSuccess) {
    res = comm_split(comm, color, key, newcomm, config);
    tt_comm_leave(comm);
  }
  return noted(res);
}

static ncclResult_t run_finalize(void *arg)
{
  struct ncclComm *comm = arg;
  bool blocking = comm->config.blocking != 0; // else the abort waits for the job
  if (blocking) {
    TT_TRY(tt_comm_begin(comm, "ncclCommFinalize", true));
  }
  ncclResult_t res = tt_comm_flush(comm);
  if (res == ncclSuccess) {
    atomic_store(&comm->state, TT_COMM_FINALIZED);
  }
  if (blocking) {
    tt_comm_leave(comm);
  }
  return res;
}

TT_TWIN(ncclCommFinalize);
TT_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
  ncclResult_t res = tt_comm_begin(comm, "ncclCommFinalize", true);
  if (res != ncclSuccess) {
    return noted(res);
  }
  tt_job_desc d = {.fn = run_finalize, .arg = comm, .comm = comm, .nonblocking = !comm->config.blocking};
  res = tt_job_submit(&d);
  tt_comm_leave(comm);
  return noted(res);
}

// The communicator cannot go while a split of it, or a call that a signal handler has interrupted, waits for the
// calling thread.
static ncclResult_t check_caller(const struct ncclComm *comm, const char *what)
{
  if (tt_turns_busy(&comm->splits.turns) && tt_group_open()) {
    return tt_fail(ncclInvalidUsage, "%s on rank %d: a split of the communicator waits for the end of the open group",
                   what, comm->rank);
  }
  if (comm->port.row->awaiting() || atomic_load(&comm->launcher) == (uintptr_t)__builtin_thread_pointer()) {
    return tt_fail(ncclInvalidUsage,
                   "%s on rank %d: the calling thread is inside another call, which a signal handler or a plugin "
                   "cannot end; call it from another "
                   "thread, or after that call",
                   what, comm->rank);
  }
  return ncclSuccess;
}

TT_TWIN(ncclCommDestroy);
TT_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
  if (comm == NULL) {
    return ncclSuccess;
  }
  TT_TRY(tt_comm_check(comm, "ncclCommDestroy", false));
  TT_TRY(check_caller(comm, "ncclCommDestroy"));
  tt_turns_drain(&comm->splits.turns); // splits use their parent
  tt_job_join(comm);
  if (atomic_load(&comm->state) == TT_COMM_READY) {
    tt_comm_flush(comm); // after a failure this only waits for the plans to be dropped
  }
  tt_comm_free(comm);
  return ncclSuccess;
}

TT_TWIN(ncclCommAbort);
TT_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
  if (comm == NULL) {
    return ncclSuccess;
  }
  TT_TRY(tt_comm_check(comm, "ncclCommAbort", false));
  TT_TRY(check_caller(comm, "ncclCommAbort"));
  __atomic_store_n(&comm->port.abort_flag, 1, __ATOMIC_RELEASE);
  tt_turns_abort(&comm->splits.turns);
  tt_turns_drain(&comm->splits.turns);
  tt_job_join(comm);
  if (comm->port.page != NULL) {
    tt_last_error_set("the communicator was aborted by ncclCommAbort");
    tt_port_stop(&comm->port, ncclInternalError);
    tt_port_await_writers(&comm->port); // the buffers are the user's as soon as this returns
  }
  tt_comm_free_aborted(comm);
  return ncclSuccess;
}

static ncclResult_t async_error(struct ncclComm *comm)
{
  ncclResult_t async = (ncclResult_t)atomic_load_explicit(&comm->async, memory_order_acquire),
               status = tt_port_status(&comm->port);
  return status != ncclSuccess ? status : tt_turns_busy(&comm->splits.turns) ? ncclInProgress : async;
}

static bool is_settled(void *comm)
{
  return async_error(comm) != ncclInProgress;
}

TT_TWIN(ncclCommGetAsyncError);
TT_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
  TT_TRY(tt_comm_check(comm, "ncclCommGetAsyncError", false));
  if (asyncError == NULL) {
    return tt_fail(ncclInvalidArgument, "ncclCommGetAsyncError on rank %d: asyncError is NULL", comm->rank);
  }
  comm->port.row->poll(is_settled, comm);
  *asyncError = async_error(comm);
  return ncclSuccess;
}

#define QUERY(what, out)                                                                                \
  TT_TRY(tt_comm_check(comm, what, false));                                                             \
  if ((out) == NULL) {                                                                                  \
    return tt_fail(ncclInvalidArgument, "%s on rank %d: the output pointer is NULL", what, comm->rank); \
  }                                                                                                     \
  if (atomic_load_explicit(&comm->async, memory_order_acquire) == ncclInProgress) {                     \
    return tt_fail(ncclInvalidArgument, "%s: the communicator is still being created", what);           \
  }

static tuttiProxyState_t public_state(const tt_proxy_op_state *s, int rank)
{
  const tt_proxy_op *o = &s->op;
  return (tuttiProxyState_t){.peer = o->peer,
                             .send = o->send,
                             .protocol = o->proto == TT_LL,
                             .channel = o->channel,
                             .connected = s->connected,
                             .behalf = o->behalf != 0 ? (int)o->behalf - 1 : rank,
                             .steps = o->nsteps,
                             .posted = s->posted,
                             .transmitted = o->send ? s->transmitted : s->received,
                             .received = o->send ? s->transmitted : s->received,
                             .flushed = s->transmitted,
                             .done = s->done,
                             .bytes = o->nbytes,
                             .operation = o->opcount,
                             .startedNs = s->started_ns};
}

__attribute__((visibility("default"))) ncclResult_t tuttiCommProxyStates(ncclComm_t comm, tuttiProxyState_t *states,
                                                                         int max, int *count)
{
  QUERY("tuttiCommProxyStates", count);
  if (max < 0 || (max > 0 && states == NULL)) {
    return tt_fail(ncclInvalidArgument, "tuttiCommProxyStates on rank %d: no room is given for %d states", comm->rank,
                   max);
  }
  int n = comm->network.proxy == NULL ? 0 : tt_proxy_states(comm->network.proxy, NULL, 0), room = TT_MIN(n, max);
  tt_proxy_op_state *all = room == 0 ? NULL : tt_calloc((size_t)room, sizeof *all);
  if (all == NULL && room > 0) {
    return tt_fail(ncclSystemError, "tuttiCommProxyStates on rank %d: no memory for %d states", comm->rank, room);
  }
  n = room == 0 ? n : tt_proxy_states(comm->network.proxy, all, room);
  for (int i = 0; i < TT_MIN(n, room); i++) {
    states[i] = public_state(&all[i], comm->rank);
  }
  tt_free(all);
  *count = room < max ? TT_MIN(n, room) : n; // some may have begun since they were counted
  return ncclSuccess;
}

TT_TWIN(ncclCommCount);
TT_EXPORT ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
  QUERY("ncclCommCount", count);
  *count = comm->nranks;
  return ncclSuccess;
}

TT_TWIN(ncclCommCuDevice);
TT_EXPORT ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
  QUERY("ncclCommCuDevice", device);
  *device = comm->device;
  return ncclSuccess;
}

TT_TWIN(ncclCommUserRank);
TT_EXPORT ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
  QUERY("ncclCommUserRank", rank);
  *rank = comm->rank;
  return ncclSuccess;
}
