// init.h: creates and ends communicators: a table of steps {name, run, undo} (init.c), memory of handles
// (pool.c).
#pragma once
#include "device/device.h"
#include "nccl.h"

// Where a call fails because a rank is gone: how long to wait for the news of who has died, and between two looks. Each
// rank that the news passes may have to wait for its turn on a core.
#define TT_NEWS_NS (300 * TT_NS_PER_MS)
#define TT_NEWS_NAP_NS TT_NS_PER_MS

// Makes a zeroed communicator of a rank on such a device, at an address that was never used for one, state
// TT_COMM_STARTING. Errors: ncclSystemError.
ncclResult_t tt_comm_new(const tt_device_ops *row, struct ncclComm **out);

// How a communicator comes to life.
typedef enum {
  TT_BY_ID,
  TT_BY_SPLIT,
  TT_BY_SHRINK,
  TT_BY_GROW, // an existing rank; a new one comes by the id
} tt_origin;

typedef struct tt_init_args {
  tt_origin origin;
  ncclUniqueId id;
  const ncclUniqueId *ids; // nids > 1: all of them, in place of id; they live as long as the job
  int nids;
  int nranks, rank, device;
  struct ncclComm *parent; // NULL: by unique id
  int color, key;          // of a split
  const int *members;      // of a shrink: the parent's ranks that survive, in ascending order
  int nmembers;            // 0: it is no shrink
  bool has_id;             // in a grow: this rank brings the id
} tt_init_args;
// Runs the init steps; on failure undoes them in reverse order.
ncclResult_t tt_comm_init(struct ncclComm *comm, const tt_init_args *args);
// Writes rank, number of ranks and device into a new communicator. tt_comm_init does it where it was not done before.
void tt_comm_name(struct ncclComm *comm, const tt_init_args *args);

// Tells peers that still wait for this rank that it is gone. After a failure they have learned it already.
void tt_comm_announce_gone(struct ncclComm *comm);
// Frees what tt_comm_init made, after operations have ended.
void tt_comm_take_down(struct ncclComm *comm);
// Frees everything; the handle is dead afterwards. Operations have been flushed or aborted.
void tt_comm_free(struct ncclComm *comm);
// The same after an abort: waits for a call that another thread is in, never for work that others have queued before
// ours. Memory that cannot be freed yet is freed later.
void tt_comm_free_aborted(struct ncclComm *comm);
