// create.c: the jobs that make communicators. See create.h.
#include "api/create.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/result.h"
#include "comm/children.h"
#include "comm/group.h"
#include "os/socket.h"

// What an init or split job needs; freed by release_init.
typedef struct init_job {
  tt_init_args args; // with copies of ids and members, behind the job
  struct ncclComm *comm;
  ncclComm_t *out; // where a blocking call leaves the handle
  tt_turn turn;    // among the parent's splits
  bool nonblocking;
  bool dropped;                     // the user has no handle of it
  _Alignas(int) ncclUniqueId ids[]; // args.ids, when there are several; then args.members
} init_job;

// Runs the job. After an abort, which the steps of creation report without a text, says so.
static ncclResult_t comm_create(init_job *j)
{
  struct ncclComm *parent = j->args.parent;
  char text[96];
  ncclResult_t res = parent == NULL ? ncclSuccess : tt_turns_await(&parent->splits.turns, &j->turn);
  if (res == ncclSuccess) {
    res = parent != NULL ? tt_child_create(j->comm, &j->args) : tt_comm_init(j->comm, &j->args);
  }
  if (res != ncclSuccess && tt_aborted(&j->comm->port.abort_flag)) {
    snprintf(text, sizeof text, "%s on rank %d: ended by ncclCommAbort", tt_child_call(j->args.origin),
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
    tt_turns_leave(&parent->splits.turns, &j->turn, parent->boot);
    if (res == ncclSuccess && j->turn.stopped) {
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

// A job with its own copies. NULL: no memory.
static init_job *new_init_job(const tt_init_args *args)
{
  size_t nids = args->nids > 1 ? (size_t)args->nids : 0, nmembers = (size_t)args->nmembers;
  init_job *j = calloc(1, sizeof *j + nids * sizeof *j->ids + nmembers * sizeof(int));
  if (j == NULL) {
    (void)tt_fail(ncclSystemError, "no memory to create a communicator");
    return NULL;
  }
  int *members = (int *)(void *)(j->ids + nids);
  j->args = *args;
  j->args.ids = nids > 0 ? memcpy(j->ids, args->ids, nids * sizeof *j->ids) : NULL;
  j->args.members = nmembers > 0 ? memcpy(members, args->members, nmembers * sizeof *members) : NULL;
  return j;
}

ncclResult_t tt_create_submit(ncclComm_t *out, const tt_init_args *args, const tt_config *config)
{
  struct ncclComm *comm;
  init_job *j = new_init_job(args);
  if (j == NULL) {
    return ncclSystemError;
  }
  ncclResult_t res = tt_comm_new(args->parent == NULL ? tt_device_row() : args->parent->port.row, &comm);
  if (res != ncclSuccess) {
    free(j);
    return res;
  }
  comm->config = *config;
  bool nonblocking = !config->blocking, alone = args->parent != NULL && args->color == NCCL_SPLIT_NOCOLOR;
  j->comm = comm;
  j->out = out;
  j->nonblocking = nonblocking;
  if (args->parent == NULL) {
    tt_comm_name(comm, args);
  } else if (!tt_turns_add(&args->parent->splits.turns, &j->turn, &comm->port.abort_flag,
                           args->origin == TT_BY_SHRINK)) {
    tt_comm_free(comm);
    free(j);
    return tt_fail(ncclInvalidArgument, "%s on rank %d: the communicator is being aborted", tt_child_call(args->origin),
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

ncclResult_t tt_create_rank(const char *what, ncclComm_t *comm, tt_init_args *args, const ncclConfig_t *config)
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
  return tt_create_submit(comm, args, &cfg);
}

ncclResult_t tt_create_noted(ncclResult_t res)
{
  if (res != ncclSuccess && res != ncclInProgress) {
    tt_group_note(res);
  }
  return res;
}

ncclResult_t tt_create_check_caller(const struct ncclComm *comm, const char *what)
{
  if ((tt_turns_busy(&comm->splits.turns) && tt_group_open()) || tt_group_has_job(comm)) {
    return tt_fail(ncclInvalidUsage, "%s on rank %d: %s of the communicator waits for the end of the open group", what,
                   comm->rank, tt_group_has_job(comm) ? "a call" : "a split");
  }
  if (comm->port.row->awaiting() || tt_comm_is_inside(comm)) {
    return tt_fail(ncclInvalidUsage,
                   "%s on rank %d: the calling thread is inside another call, which a signal handler or a plugin "
                   "cannot end; call it from another "
                   "thread, or after that call",
                   what, comm->rank);
  }
  return ncclSuccess;
}
