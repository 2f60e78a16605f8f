// ras.h: reliability, availability, serviceability: answers questions about the communicators of a running job.
//
// Each process with a communicator has one RAS thread. It listens for clients on NCCL_RAS_ADDR, which the processes of
// a user share, and for the other processes of the job on a port of its own. A client that asks one process gets a
// report of all processes that share communicators with it (docs/ras.md has the protocol).
//
// comm/ joins each communicator here and leaves before it frees what `read` looks at. Any thread.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "bootstrap/hello.h"
#include "os/proc.h"
#include "os/socket.h"

enum {
  TT_RAS_FUNCS = 5, // functions with a count: Broadcast, Reduce, AllGather, ReduceScatter, AllReduce
  TT_RAS_WHY = 440  // bytes of a verdict's sentence: two ranks fill a note
};

// What one rank of a communicator is known by.
typedef struct tt_ras_member {
  tt_proc_id proc;
  tt_addr at;         // where its process's RAS thread listens for processes; family 0: it has none
  uint64_t host;      // names its machine
  uint64_t pid_space; // tt_proc_pid_space of its process
  int32_t device;
} tt_ras_member;

// What a rank does at this moment.
typedef struct tt_ras_state {
  int32_t init_state;  // ncclResult_t of its creation; ncclInProgress: it is under way
  int32_t async_error; // ncclResult_t of the communicator
  bool finalize_called, destroy_flag, abort_flag;
  uint64_t counts[TT_RAS_FUNCS]; // operations launched
  uint64_t sequence;             // number of the last collective that was launched
  uint64_t wait_ms;              // so long it has waited for another rank; 0: it does not, or not long yet
  int32_t wait_peer;             // for which rank
  uint32_t wait_how;             // TT_WAIT_… (device/link.h)
  uint64_t wait_sig, wait_count; // the operation that waits (tt_call_describe)
  uint64_t last_sig, last_count; // the last call; both 0: none yet
  uint32_t verdict;              // number of its class (tt_ras_class_number); 0: none
  int32_t cause;                 // the rank that is the cause; -1: none
  char why[TT_RAS_WHY];          // the verdict's sentence, ends with 0
} tt_ras_state;

// One rank of a communicator, for tt_ras_join.
typedef struct tt_ras_env {
  uint64_t hash;
  int rank, nranks;
  const tt_ras_member *members; // by rank; copied
  tt_key key;                   // that its ranks share
  // Writes the rank's state. The RAS thread calls it under a lock that tt_ras_leave takes as well.
  void (*read)(const void *comm, tt_ras_state *out);
  // Returns the flight recorder's dump as JSON, with at most `most` operations of each communicator, which the caller
  // frees with free(). NULL: another communicator's dump has the operations of this one, or no memory. As `read`.
  char *(*record)(const void *comm, size_t most);
  const void *comm;
} tt_ras_env;

typedef struct tt_ras_entry tt_ras_entry;

// Number of a verdict's class, for tt_ras_state. 0: "none". Pure.
uint32_t tt_ras_class_number(const char *class);

// Starts the RAS thread of this process unless it runs, on behalf of a communicator that is being made, and writes
// where it listens for other processes. NCCL_RAS_ENABLE=0, or no thread to be had (said at INFO): family 0. The caller
// calls tt_ras_release once.
void tt_ras_hold(tt_addr *at);
// The communicator has ended, or was not made. The last one ends the thread, and waits for that.
void tt_ras_release(void);

// Adds a rank to the reports. NULL: no memory, or there is no RAS thread; it is missing in reports then.
tt_ras_entry *tt_ras_join(const tt_ras_env *env);
// Takes it out. NULL is allowed. Afterwards `read` is not called any more.
void tt_ras_leave(tt_ras_entry *entry);
