// comm.c: life of a communicator.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_priv.h"
#include "api/create.h"
#include "base/log.h"
#include "base/result.h"
#include "comm/children.h"
#include "comm/comm.h"
#include "comm/family.h"
#include "comm/group.h"
#include "os/clock.h"
#include "os/socket.h"
#include "tutti.h"

#define ENDING_LOOK_NS 200000ull // between two looks whether another thread has ended a communicator

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
  return tt_create_noted(tt_create_rank("ncclCommInitRank", comm, &args, NULL));
}

TT_TWIN(ncclCommInitRankConfig);
TT_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
                                              ncclConfig_t *config)
{
  tt_init_args args = {.id = commId, .nranks = nranks, .rank = rank};
  return tt_create_noted(tt_create_rank("ncclCommInitRankConfig", comm, &args, config));
}

TT_TWIN(ncclCommInitRankScalable);
TT_EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId,
                                                ncclUniqueId *commIds, ncclConfig_t *config)
{
  if (commIds == NULL || nId < 1 || nId > nranks) {
    return tt_create_noted(
        tt_fail(ncclInvalidArgument,
                "ncclCommInitRankScalable on rank %d: %d unique ids at %p for %d ranks; there must be at "
                "least one, and not more than "
                "ranks",
                myrank, nId, (void *)commIds, nranks));
  }
  tt_init_args args = {.id = commIds[0], .ids = commIds, .nids = nId, .nranks = nranks, .rank = myrank};
  return tt_create_noted(tt_create_rank("ncclCommInitRankScalable", newcomm, &args, config));
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
    ncclResult_t r = tt_create_submit(&comms[i], &args, &cfg);
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
    return tt_create_noted(
        tt_fail(ncclInvalidUsage, "ncclCommInitAll: cannot be called inside a group; it makes its own"));
  }
  return init_all(comm, ndev, devlist);
}

// Says that the rank has left, then looks for messages that nobody receives: of two ranks that leave at once, at least
// one sees that the other has.
static ncclResult_t leave_job(struct ncclComm *comm)
{
  tt_comm_announce_gone(comm); // so that peers that still call do not wait for ever
  return tt_call_unread(&comm->port);
}

// Non-blocking: an abort waits for the job.
static ncclResult_t run_finalize(void *arg)
{
  struct ncclComm *comm = arg;
  ncclResult_t res = tt_comm_flush(comm);
  if (res == ncclSuccess && (res = tt_call_unread(&comm->port)) != ncclSuccess) {
    tt_port_stop(&comm->port, res); // the peers see why
  }
  if (res == ncclSuccess) {
    atomic_store(&comm->state, TT_COMM_FINALIZED);
    res = leave_job(comm);
  }
  return res;
}

static ncclResult_t run_finalize_inside(void *arg)
{
  struct ncclComm *comm = arg;
  TT_TRY(tt_comm_begin(comm, "ncclCommFinalize", true)); // another thread may have ended it since the group was opened
  ncclResult_t res = run_finalize(comm);
  tt_comm_leave(comm);
  return res;
}

TT_TWIN(ncclCommFinalize);
TT_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
  ncclResult_t res = tt_comm_begin(comm, "ncclCommFinalize", true);
  if (res != ncclSuccess) {
    return tt_create_noted(res);
  }
  bool blocking = comm->config.blocking != 0;
  tt_job_desc d = {
      .fn = blocking ? run_finalize_inside : run_finalize, .arg = comm, .comm = comm, .nonblocking = !blocking};
  res = tt_job_submit(&d);
  tt_comm_leave(comm);
  return tt_create_noted(res);
}

// One thread ends a communicator. *first: it is this one.
static ncclResult_t begin_end(struct ncclComm *comm, const char *what, bool *first)
{
  TT_TRY(tt_comm_check(comm, what, false));
  TT_TRY(tt_create_check_caller(comm, what));
  *first = tt_comm_take_end(comm, TT_ENDING_FREE);
  if (*first && !tt_comm_lives(comm)) { // it was ended after the check
    atomic_store(&comm->ending, TT_ENDING_NOT);
    return tt_comm_dead(comm, what);
  }
  return ncclSuccess;
}

static void stop_for_abort(struct ncclComm *comm)
{
  tt_last_error_set("the communicator was aborted by ncclCommAbort");
  tt_port_stop(&comm->port, ncclInternalError);
}

TT_TWIN(ncclCommDestroy);
TT_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
  bool first;
  if (comm == NULL) {
    return ncclSuccess;
  }
  TT_TRY(begin_end(comm, "ncclCommDestroy", &first));
  if (!first) {
    return tt_fail(ncclInvalidArgument,
                   "ncclCommDestroy on rank %d: another thread is destroying or aborting the communicator", comm->rank);
  }
  tt_turns_drain(&comm->splits.turns); // splits use their parent
  tt_job_join(comm);
  bool ready = atomic_load(&comm->state) == TT_COMM_READY;
  if (!ready || tt_comm_flush(comm) == ncclSuccess) {
    ncclResult_t res = ready ? leave_job(comm) : ncclSuccess; // else ncclCommFinalize has looked
    tt_comm_free(comm);
    return res;
  }
  if (tt_port_status(&comm->port) == ncclSuccess) {
    stop_for_abort(comm); // another thread's abort, which has not come to it yet
  }
  tt_port_await_writers(&comm->port);
  tt_comm_free_aborted(comm); // its operations may stand in streams behind work that does not end
  return ncclSuccess;
}

// Another thread is in ncclCommDestroy, and waits for operations: it ends them now. Returns when it has freed them.
static void abort_destruction(struct ncclComm *comm)
{
  atomic_fetch_add(&comm->lookers, 1); // meanwhile nothing is freed
  if (tt_comm_lives(comm)) {
    int state = atomic_load(&comm->state);
    __atomic_store_n(&comm->port.abort_flag, 1, __ATOMIC_RELEASE);
    tt_turns_abort(&comm->splits.turns);
    if (tt_comm_stands(state) || state == TT_COMM_FINALIZED) {
      stop_for_abort(comm);
      tt_family_stop(comm);
    }
  }
  atomic_fetch_sub(&comm->lookers, 1);
  while (atomic_load(&comm->ending) != TT_ENDING_NOT) {
    tt_sleep_ns(ENDING_LOOK_NS);
  }
}

TT_TWIN(ncclCommAbort);
TT_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
  bool first;
  if (comm == NULL) {
    return ncclSuccess;
  }
  TT_TRY(begin_end(comm, "ncclCommAbort", &first));
  if (!first) {
    abort_destruction(comm);
    return ncclSuccess;
  }
  __atomic_store_n(&comm->port.abort_flag, 1, __ATOMIC_RELEASE);
  tt_turns_abort(&comm->splits.turns);
  tt_job_join(comm);
  tt_turns_drain(&comm->splits.turns);
  if (comm->port.page != NULL) {
    stop_for_abort(comm);
    tt_family_stop(comm);
    tt_port_await_writers(&comm->port); // the buffers are the user's as soon as this returns
  }
  tt_comm_free_aborted(comm);
  return ncclSuccess;
}

static ncclResult_t async_error(struct ncclComm *comm)
{
  ncclResult_t async = (ncclResult_t)atomic_load_explicit(&comm->async, memory_order_acquire),
               status = atomic_load(&comm->revoked) ? ncclSuccess : tt_port_status(&comm->port);
  return status != ncclSuccess ? status : tt_turns_busy(&comm->splits.turns) ? ncclInProgress : async;
}

static bool is_settled(void *comm)
{
  return async_error(comm) != ncclInProgress;
}

TT_TWIN(ncclCommGetAsyncError);
TT_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
  TT_TRY(tt_comm_look(comm, "ncclCommGetAsyncError"));
  ncclResult_t res = ncclSuccess;
  if (asyncError != NULL) {
    tt_comm_watch(comm);
    comm->port.row->poll(is_settled, comm);
    *asyncError = async_error(comm);
    const char *why = *asyncError != ncclSuccess && *asyncError != ncclInProgress ? tt_comm_error(comm) : NULL;
    if (why != NULL) {
      tt_last_error_set(why); // programs ask ncclGetLastError(NULL) next
    }
  } else {
    res = tt_fail(ncclInvalidArgument, "ncclCommGetAsyncError on rank %d: asyncError is NULL", comm->rank);
  }
  tt_comm_look_away(comm);
  return res;
}

// What the functions read behind it stays as it is, also where another thread ends the communicator.
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

static ncclResult_t read_proxy_states(ncclComm_t comm, tuttiProxyState_t *states, int max, int *count)
{
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

__attribute__((visibility("default"))) ncclResult_t tuttiCommProxyStates(ncclComm_t comm, tuttiProxyState_t *states,
                                                                         int max, int *count)
{
  QUERY("tuttiCommProxyStates", count);
  TT_TRY(tt_comm_look(comm, "tuttiCommProxyStates"));
  ncclResult_t res = read_proxy_states(comm, states, max, count);
  tt_comm_look_away(comm);
  return res;
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
