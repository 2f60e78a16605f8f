// children.c: communicators made from others, and what goes before that: split, shrink, growth, revocation.
#include <stdio.h>
#include <string.h>

#include "api/api_priv.h"
#include "api/create.h"
#include "base/param.h"
#include "base/result.h"
#include "comm/children.h"

// Has it come to life, and is nothing under way that ncclCommGetAsyncError tells of?
static ncclResult_t check_made(const struct ncclComm *comm, const char *what)
{
  int state = atomic_load(&comm->state);
  if (atomic_load(&comm->async) == ncclInProgress) {
    return tt_fail(ncclInvalidArgument, "%s: the communicator's previous call is still in progress", what);
  }
  return tt_comm_stands(state) ? ncclSuccess
                               : tt_fail(ncclInvalidArgument, "%s on rank %d: the communicator %s", what, comm->rank,
                                         state == TT_COMM_FINALIZED ? "has been finalized" : "was never initialised");
}

// May it have children? A revoked one may; with `stopped` one that has failed, too.
static ncclResult_t check_parent(const struct ncclComm *comm, const char *what, bool stopped)
{
  return stopped || atomic_load(&comm->revoked) ? check_made(comm, what) : tt_comm_check(comm, what, true);
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
  TT_TRY(check_parent(comm, "ncclCommSplit", false));
  TT_TRY(tt_config_read(config, comm, &cfg));
  tt_init_args args = {.origin = TT_BY_SPLIT, .parent = comm, .color = color, .key = key};
  return tt_create_submit(newcomm, &args, &cfg);
}

TT_TWIN(ncclCommSplit);
TT_EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)
{
  ncclResult_t res = tt_comm_begin(comm, "ncclCommSplit", false);
  if (res == ncclSuccess) {
    res = comm_split(comm, color, key, newcomm, config);
    tt_comm_leave(comm);
  }
  return tt_create_noted(res);
}

// The turn of a call that stops the communicator (tt_comm_take_end). On an error it has none.
static ncclResult_t begin_stop(struct ncclComm *comm, const char *what)
{
  TT_TRY(tt_comm_check(comm, what, false));
  TT_TRY(tt_create_check_caller(comm, what));
  if (!tt_comm_take_end(comm, TT_ENDING_STOP)) {
    return tt_fail(ncclInvalidArgument,
                   "%s on rank %d: another thread is destroying or aborting the communicator (ncclCommAbort ends a "
                   "destruction that waits)",
                   what, comm->rank);
  }
  ncclResult_t res = tt_comm_lives(comm) ? check_made(comm, what) : tt_comm_dead(comm, what);
  if (res != ncclSuccess) {
    tt_comm_give_end(comm);
  }
  return res;
}

// Marks who survives; writes their list, which has room for all. Returns how many, or -1 after an error.
static int list_survivors(const struct ncclComm *comm, const int *out, int n, int *members)
{
  int count = 0;
  for (int i = 0; i < comm->nranks; i++) {
    members[i] = 1;
  }
  for (int i = 0; i < n; i++) {
    const char *why = out[i] < 0 || out[i] >= comm->nranks ? "does not exist"
                      : out[i] == comm->rank               ? "is the calling one"
                      : members[out[i]] == 0               ? "is there twice"
                                                           : NULL;
    if (why != NULL) {
      (void)tt_fail(ncclInvalidArgument,
                    "ncclCommShrink on rank %d: rank %d, number %d of the %d to be excluded, %s (the communicator has "
                    "ranks 0 to %d)",
                    comm->rank, out[i], i, n, why, comm->nranks - 1);
      return -1;
    }
    members[out[i]] = 0;
  }
  for (int i = 0; i < comm->nranks; i++) {
    if (members[i] != 0) {
      members[count++] = i;
    }
  }
  return count;
}

// What ncclCommShrink is given, and what becomes of it: *args, with members to free, also after an error.
typedef struct shrink_call {
  const int *out;
  int n;
  ncclComm_t *newcomm;
  const ncclConfig_t *config;
  bool stops;
  tt_init_args args;
} shrink_call;

// The communicator is not freed meanwhile.
static ncclResult_t read_shrink(struct ncclComm *comm, shrink_call *c)
{
  int *members;
  if (c->newcomm == NULL || c->out == NULL || c->n <= 0) {
    return tt_fail(
        ncclInvalidArgument,
        "ncclCommShrink on rank %d: %d ranks to exclude at %p, newcomm is %p: both pointers and at least one "
        "rank are needed",
        comm->rank, c->n, (const void *)c->out, (const void *)c->newcomm);
  }
  TT_TRY(TT_NEW(members, comm->nranks, "ncclCommShrink on rank %d: no memory for %d ranks", comm->rank, comm->nranks));
  int n = list_survivors(comm, c->out, c->n, members);
  c->args = (tt_init_args){.origin = TT_BY_SHRINK, .parent = comm, .members = members, .nmembers = n};
  return n < 0 ? ncclInvalidArgument : ncclSuccess;
}

// `comm` has been entered.
static ncclResult_t comm_shrink(struct ncclComm *comm, shrink_call *c)
{
  tt_config cfg;
  TT_TRY(c->args.members == NULL ? read_shrink(comm, c) : ncclSuccess);
  ncclResult_t status = tt_port_status(&comm->port);
  if (status != ncclSuccess && !c->stops && !atomic_load(&comm->revoked)) {
    return tt_fail(status,
                   "ncclCommShrink on rank %d: the communicator has failed before: %s. Pass NCCL_SHRINK_ABORT, which "
                   "shrinks it all the same",
                   comm->rank, tt_port_error(&comm->port));
  }
  TT_TRY(check_parent(comm, "ncclCommShrink", c->stops));
  TT_TRY(tt_config_read(c->config, comm, &cfg));
  return tt_create_submit(c->newcomm, &c->args, &cfg);
}

static ncclResult_t stop_parent(struct ncclComm *comm, shrink_call *c)
{
  TT_TRY(begin_stop(comm, "ncclCommShrink"));
  ncclResult_t res = read_shrink(comm, c);
  if (res == ncclSuccess) {
    tt_last_error_set("the communicator's operations were ended by ncclCommShrink (NCCL_SHRINK_ABORT)");
    tt_comm_stop(comm, ncclInternalError, 1);
  }
  tt_comm_give_end(comm);
  return res;
}

static ncclResult_t shrink(struct ncclComm *comm, shrink_call *c)
{
  TT_TRY(c->stops ? stop_parent(comm, c) : ncclSuccess);
  TT_TRY(tt_comm_begin(comm, "ncclCommShrink", false));
  ncclResult_t res = comm_shrink(comm, c);
  tt_comm_leave(comm);
  return res;
}

TT_TWIN(ncclCommShrink);
TT_EXPORT ncclResult_t ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount,
                                      ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags)
{
  shrink_call c = {.out = excludeRanksList,
                   .n = excludeRanksCount,
                   .newcomm = newcomm,
                   .config = config,
                   .stops = (shrinkFlags & NCCL_SHRINK_ABORT) != 0};
  ncclResult_t res = shrink(comm, &c);
  tt_free((void *)(uintptr_t)c.args.members);
  return tt_create_noted(res);
}

static ncclResult_t comm_unique_id(struct ncclComm *comm, ncclUniqueId *out)
{
  const char *fixed = tt_params_get()->comm_id;
  TT_TRY(tt_comm_check(comm, "ncclCommGetUniqueId", true));
  if (out == NULL) {
    return tt_fail(ncclInvalidArgument, "ncclCommGetUniqueId on rank %d: uniqueId is NULL", comm->rank);
  }
  if (comm->growth.made) {
    return tt_fail(ncclInvalidUsage,
                   "ncclCommGetUniqueId on rank %d: the id of an earlier call has not been used: each is for one "
                   "ncclCommGrow",
                   comm->rank);
  }
  if (fixed != NULL && *fixed != '\0') {
    return tt_fail(
        ncclInvalidUsage,
        "ncclCommGetUniqueId on rank %d: NCCL_COMM_ID is set, which names one root for all unique ids; unset "
        "it to grow communicators",
        comm->rank);
  }
  TT_TRY(tt_bootstrap_id(out));
  comm->growth = (tt_comm_growth){.id = *out, .made = true};
  return ncclSuccess;
}

TT_TWIN(ncclCommGetUniqueId);
TT_EXPORT ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *uniqueId)
{
  ncclResult_t res = tt_comm_begin(comm, "ncclCommGetUniqueId", false);
  if (res == ncclSuccess) {
    res = comm_unique_id(comm, uniqueId);
    tt_comm_leave(comm);
  }
  return tt_create_noted(res);
}

// An existing rank, entered.
static ncclResult_t comm_grow(struct ncclComm *comm, int nranks, const ncclUniqueId *id, ncclComm_t *newcomm,
                              const ncclConfig_t *config)
{
  tt_config cfg;
  TT_TRY(tt_comm_check(comm, "ncclCommGrow", true));
  TT_TRY(tt_config_read(config, comm, &cfg));
  tt_init_args args = {.origin = TT_BY_GROW, .parent = comm, .nranks = nranks};
  args.has_id = id != NULL || comm->growth.made;
  if (args.has_id) {
    args.id = id != NULL ? *id : comm->growth.id;
  }
  comm->growth.made = false; // it is for one growth
  return tt_create_submit(newcomm, &args, &cfg);
}

static ncclResult_t grow_existing(struct ncclComm *comm, int nranks, const ncclUniqueId *id, int rank,
                                  ncclComm_t *newcomm, const ncclConfig_t *config)
{
  TT_TRY(tt_comm_begin(comm, "ncclCommGrow", false));
  ncclResult_t res;
  if (newcomm == NULL || nranks <= comm->nranks || rank != -1) {
    res =
        tt_fail(ncclInvalidArgument,
                "ncclCommGrow on rank %d of %d: grows to %d ranks, as rank %d, newcomm is %p: there must be more ranks "
                "than before, newcomm is needed, and an existing rank passes -1 as its rank, because it keeps its own",
                comm->rank, comm->nranks, nranks, rank, (void *)newcomm);
  } else {
    res = comm_grow(comm, nranks, id, newcomm, config);
  }
  tt_comm_leave(comm);
  return res;
}

static ncclResult_t grow_new(int nranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm,
                             const ncclConfig_t *config)
{
  if (id == NULL) {
    return tt_fail(ncclInvalidArgument,
                   "ncclCommGrow: a new rank (comm is NULL) needs the unique id that ncclCommGetUniqueId has made");
  }
  tt_init_args args = {.id = *id, .nranks = nranks, .rank = rank};
  return tt_create_rank("ncclCommGrow", newcomm, &args, config);
}

TT_TWIN(ncclCommGrow);
TT_EXPORT ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank,
                                    ncclComm_t *newcomm, ncclConfig_t *config)
{
  return tt_create_noted(comm == NULL ? grow_new(nRanks, uniqueId, rank, newcomm, config)
                                      : grow_existing(comm, nRanks, uniqueId, rank, newcomm, config));
}

TT_TWIN(ncclCommRevoke);
TT_EXPORT ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags)
{
  if (comm == NULL) {
    return ncclSuccess;
  }
  if (revokeFlags != 0) {
    TT_TRY(tt_comm_check(comm, "ncclCommRevoke", false));
    return tt_fail(ncclInvalidArgument, "ncclCommRevoke on rank %d: the flags are %d; only 0 is allowed", comm->rank,
                   revokeFlags);
  }
  TT_TRY(begin_stop(comm, "ncclCommRevoke"));
  bool before = atomic_exchange(&comm->revoked, true);
  if (!before) {
    tt_last_error_set("the communicator was revoked by ncclCommRevoke");
    tt_comm_stop(comm, ncclInvalidUsage, TT_REVOKED);
  }
  tt_comm_give_end(comm);
  return before ? tt_fail(ncclInvalidArgument, "ncclCommRevoke on rank %d: the communicator has been revoked before",
                          comm->rank)
                : ncclSuccess;
}
