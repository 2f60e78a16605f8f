// init.h: creates, splits and ends communicators: a table of steps {name, run, undo} (init.c), memory of handles
// (pool.c).
#pragma once
#include "device/device.h"
#include "nccl.h"

// Makes a zeroed communicator of a rank on such a device, at an address that was never used for one, state
// TT_COMM_STARTING. Errors: ncclSystemError.
ncclResult_t tt_comm_new(const tt_device_ops *row, struct ncclComm **out);
// Runs the init steps; on failure undoes them in reverse order. `parent` NULL: by unique id.
typedef struct tt_init_args {
  ncclUniqueId id;
  const ncclUniqueId *ids; // nids > 1: all of them, in place of id; they live as long as the job
  int nids;
  int nranks, rank, device;
  struct ncclComm *parent;
  int color, key;
} tt_init_args;
ncclResult_t tt_comm_init(struct ncclComm *comm, const tt_init_args *args);
// Writes rank, number of ranks and device into a new communicator. tt_comm_init does it where it was not done before.
void tt_comm_name(struct ncclComm *comm, const tt_init_args *args);
// As a member of a split: decides with the parent's other ranks. With NCCL_SPLIT_NOCOLOR `comm` stays as it was.
ncclResult_t tt_comm_split(struct ncclComm *comm, const tt_init_args *args);

// Tells peers that still wait for this rank that it is gone. After a failure they have learned it already.
void tt_comm_announce_gone(struct ncclComm *comm);
// Frees what tt_comm_init made, after operations have ended.
void tt_comm_take_down(struct ncclComm *comm);
// Frees everything; the handle is dead afterwards. Operations have been flushed or aborted.
void tt_comm_free(struct ncclComm *comm);
// The same after an abort: waits for a call that another thread is in, never for work that others have queued before
// ours. Memory that cannot be freed yet is freed later.
void tt_comm_free_aborted(struct ncclComm *comm);
