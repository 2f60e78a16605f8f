// group.h: groups of operations and jobs of the calling thread (group.c).
#pragma once
#include "comm/task.h"

struct tt_rma_call;

// A job that needs other ranks: init, split, finalize (group.c runs them).
typedef struct tt_job tt_job;

// Adds an operation to the open group, or launches it at once when there is none.
ncclResult_t tt_task_add(tt_task *task);

// Records the event on the stream of a communicator's operation when the operation starts: at once outside of a group,
// else at the group's end, before anything is launched. Errors: ncclInvalidUsage (the group has an event of this
// communicator), ncclSystemError, those of tt_device_ops.record_event.
ncclResult_t tt_group_record(struct ncclComm *comm, cudaEvent_t event, cudaStream_t stream);

// What profilers are told of the calling thread's open group; *depth: groups that are open (profile.h).
struct tt_group_events *tt_group_profile(int *depth);

// Adds a one-sided operation (one_sided.h), which is the heap's, to the open group.
void tt_group_add_rma(struct tt_rma_call *call);

// Opens a group of the calling thread, or one more level of the open one.
// tt_group_end closes a level; the outermost one runs the jobs and launches the operations that were collected. Errors:
// ncclInvalidUsage where no group is open; the first error that a call inside the group reported, and then nothing is
// launched; those of the jobs and launches.
ncclResult_t tt_group_start(void);
ncclResult_t tt_group_end(void);
// Ends the open group without running anything. Outermost group: *us is the time that its operations would take, in
// microseconds. Without operations it stays as it was. Errors: as tt_group_end; ncclInvalidUsage when the group creates
// or ends communicators, which is then not done; ncclInvalidArgument when `us` is NULL in the outermost group.
ncclResult_t tt_group_simulate(double *us);

// Remembers a failure inside the open group, so that its end reports it and launches nothing.
void tt_group_note(ncclResult_t code);
// Is the calling thread inside a group?
bool tt_group_open(void);

// Runs fn(arg) as a job: at once, or at the end of the open group, beside the group's other jobs. Jobs with the same
// `serial` run one after the other. nonblocking: the caller goes on; `comm->async` holds ncclInProgress until the job
// is done.
typedef struct tt_job_desc {
  ncclResult_t (*fn)(void *arg);
  void (*release)(void *arg, bool ran); // called once, after fn or when the job is dropped; frees `arg`. May be NULL
  void *arg;
  const void *serial;    // NULL: none
  struct ncclComm *comm; // whose async state shows the job's progress; NULL: none
  bool alone;            // the group may have no operations of `comm`
  bool nonblocking;
  bool detached; // with nonblocking: no thread joins it, nothing shows its progress
} tt_job_desc;
ncclResult_t tt_job_submit(const tt_job_desc *d);
// Does the end of the calling thread's open group start a job of the communicator?
bool tt_group_has_job(const struct ncclComm *comm);
// Waits for the communicator's non-blocking job, if any. That looks at once whether it shall end (abort_flag). Any
// thread.
void tt_job_join(struct ncclComm *comm);
