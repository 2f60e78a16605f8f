// create.h: how the functions of this folder make communicators.
#pragma once
#include "comm/comm.h"
#include "comm/init.h"

// Makes the handle and submits the job that brings it to life; of args->ids and args->members it takes copies. *out:
// the handle, at once where the communicator is non-blocking, else when the job has succeeded. Errors: ncclSystemError,
// ncclInvalidArgument (the parent is being aborted), those of the job.
ncclResult_t tt_create_submit(ncclComm_t *out, const tt_init_args *args, const tt_config *config);
// A new rank, or one of ncclCommInitRank, for function `what`: checks the arguments and submits. Errors:
// ncclInvalidArgument, those of tt_create_submit.
ncclResult_t tt_create_rank(const char *what, ncclComm_t *out, tt_init_args *args, const ncclConfig_t *config);
// The result of a call that may stand in a group, which remembers an error.
ncclResult_t tt_create_noted(ncclResult_t res);
// The communicator cannot go, or be stopped, while a split of it, or a call that a signal handler has interrupted,
// waits for the calling thread: ncclInvalidUsage.
ncclResult_t tt_create_check_caller(const struct ncclComm *comm, const char *what);
