// suspend.c: ncclCommSuspend, ncclCommResume, ncclCommMemStats.
#include <stdlib.h>

#include "api/api_priv.h"
#include "base/param.h"
#include "base/result.h"
#include "comm/comm.h"
#include "comm/group.h"
#include "comm/suspend.h"

typedef struct suspend_job {
  struct ncclComm *comm;
  bool resumes;
  tt_turn turn; // it uses the bootstrap ring, as splits do
} suspend_job;

static const char *name_of(const suspend_job *j)
{
  return j->resumes ? "ncclCommResume" : "ncclCommSuspend";
}

static void leave_ring(suspend_job *j)
{
  tt_turns_leave(&j->comm->splits.turns, &j->turn, j->comm->boot);
}

static ncclResult_t run_suspend(void *arg)
{
  suspend_job *j = arg;
  struct ncclComm *comm = j->comm;
  bool blocking = comm->config.blocking != 0; // else the abort waits for the job
  ncclResult_t res = blocking ? tt_comm_begin(comm, name_of(j), !j->resumes) : ncclSuccess;
  bool entered = blocking && res == ncclSuccess;
  res = res == ncclSuccess ? tt_turns_await(&comm->splits.turns, &j->turn) : res;
  if (res == ncclSuccess) {
    res = j->resumes ? tt_comm_resume(comm) : tt_comm_suspend(comm);
  }
  leave_ring(j);
  if (entered) {
    tt_comm_leave(comm);
  }
  return res;
}

static void release_suspend(void *arg, bool ran)
{
  if (!ran) {
    leave_ring(arg);
  }
  free(arg);
}

// Of a communicator that has been entered.
static ncclResult_t submit_suspend(struct ncclComm *comm, bool resumes)
{
  suspend_job *j = calloc(1, sizeof *j);
  if (j == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory to suspend or resume", comm->rank);
  }
  *j = (suspend_job){.comm = comm, .resumes = resumes};
  if (!tt_turns_add(&comm->splits.turns, &j->turn, &comm->port.abort_flag, false)) {
    ncclResult_t res =
        tt_fail(ncclInvalidArgument, "%s on rank %d: the communicator is being aborted", name_of(j), comm->rank);
    free(j);
    return res;
  }
  tt_job_desc d = {.fn = run_suspend,
                   .release = release_suspend,
                   .arg = j,
                   .serial = comm,
                   .comm = comm,
                   .alone = true,
                   .nonblocking = !comm->config.blocking};
  return tt_job_submit(&d);
}

static ncclResult_t check_manager(const struct ncclComm *comm, const char *what)
{
  return tt_params_get()->disable_mem_manager
             ? tt_fail(ncclInvalidUsage, "%s on rank %d: NCCL_DISABLE_MEM_MANAGER=1 forbids it", what, comm->rank)
             : ncclSuccess;
}

// The communicator lives, and no job and no failure is in the way.
static ncclResult_t check_resume(const struct ncclComm *comm)
{
  if (atomic_load_explicit(&comm->async, memory_order_acquire) == ncclInProgress) {
    return tt_fail(ncclInvalidArgument, "ncclCommResume: the communicator's previous call is still in progress: wait "
                                        "until ncclCommGetAsyncError says ncclSuccess");
  }
  ncclResult_t status = tt_port_status(&comm->port);
  if (status != ncclSuccess) {
    return tt_fail(status, "ncclCommResume on rank %d: the communicator has failed before: %s", comm->rank,
                   tt_port_error(&comm->port));
  }
  TT_TRY(check_manager(comm, "ncclCommResume"));
  return atomic_load(&comm->state) == TT_COMM_SUSPENDED
             ? ncclSuccess
             : tt_fail(ncclInvalidUsage, "ncclCommResume on rank %d: the communicator is not suspended", comm->rank);
}

static ncclResult_t check_suspend(const struct ncclComm *comm, int flags)
{
  TT_TRY(check_manager(comm, "ncclCommSuspend"));
  return flags == NCCL_SUSPEND_MEM
             ? ncclSuccess
             : tt_fail(ncclInvalidArgument, "ncclCommSuspend on rank %d: flags is 0x%x; it must be NCCL_SUSPEND_MEM",
                       comm->rank, (unsigned)flags);
}

static ncclResult_t noted_suspend(ncclResult_t res)
{
  if (res != ncclSuccess && res != ncclInProgress) {
    tt_group_note(res);
  }
  return res;
}

TT_TWIN(ncclCommSuspend);
TT_EXPORT ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags)
{
  ncclResult_t res = tt_comm_begin(comm, "ncclCommSuspend", true);
  if (res == ncclSuccess) {
    res = check_suspend(comm, flags);
    res = res == ncclSuccess ? submit_suspend(comm, false) : res;
    tt_comm_leave(comm);
  }
  return noted_suspend(res);
}

TT_TWIN(ncclCommResume);
TT_EXPORT ncclResult_t ncclCommResume(ncclComm_t comm)
{
  ncclResult_t res = tt_comm_begin(comm, "ncclCommResume", false);
  if (res == ncclSuccess) {
    res = check_resume(comm);
    res = res == ncclSuccess ? submit_suspend(comm, true) : res;
    tt_comm_leave(comm);
  }
  return noted_suspend(res);
}

static ncclResult_t mem_stat(const struct ncclComm *comm, ncclCommMemStat_t stat, uint64_t *value)
{
  if (value == NULL) {
    return tt_fail(ncclInvalidArgument, "ncclCommMemStats on rank %d: value is NULL", comm->rank);
  }
  TT_TRY(check_manager(comm, "ncclCommMemStats"));
  switch (stat) {
  case ncclStatGpuMemSuspend: *value = tt_comm_suspendable(comm); return ncclSuccess;
  case ncclStatGpuMemSuspended: *value = atomic_load(&comm->state) == TT_COMM_SUSPENDED; return ncclSuccess;
  case ncclStatGpuMemPersist: *value = tt_comm_persistent(comm); return ncclSuccess;
  case ncclStatGpuMemTotal: *value = tt_comm_suspendable(comm) + tt_comm_persistent(comm); return ncclSuccess;
  }
  return tt_fail(ncclInvalidArgument, "ncclCommMemStats on rank %d: stat is %d; it must be an ncclCommMemStat_t",
                 comm->rank, (int)stat);
}

TT_TWIN(ncclCommMemStats);
TT_EXPORT ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value)
{
  TT_TRY(tt_comm_begin(comm, "ncclCommMemStats", false));
  bool busy = atomic_load_explicit(&comm->async, memory_order_acquire) == ncclInProgress;
  ncclResult_t res =
      busy ? tt_fail(ncclInvalidArgument, "ncclCommMemStats: the communicator's previous call is still "
                                          "in progress: wait until ncclCommGetAsyncError says ncclSuccess")
           : mem_stat(comm, stat, value);
  tt_comm_leave(comm);
  return res;
}
