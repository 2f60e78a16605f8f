// tuning.h: chooses algorithm, protocol, chunk size and number of channels of an operation (tuning.c; by a plugin:
// tuner.c).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bootstrap/bootstrap.h"
#include "coll/coll.h"
#include "coll/cost.h"
#include "coll/crossing.h"
#include "comm/task.h"
#include "figures/figures.h"

struct ncclComm;
typedef struct tt_tuning tt_tuning;

// Algorithm, protocol and chunk size for an operation (tuning.c).
typedef struct tt_choice {
  int algo;       // row of the algorithm table
  tt_proto proto; // FIFO geometry
  size_t chunk;   // bytes per chunk
  int channels;   // how many share the message, from the first on
  bool direct;    // ranks reach each other's memory
  bool fetches;   // ranks read results from each other's output
  bool networked; // some of its messages go over the network
  bool tiny;      // LL's messages are so short that they go through the FIFO with more slots (TT_TINY)
  bool decided;   // by a tuner plugin: not what the library would have chosen
} tt_choice;

// Its chunks in elements, and the geometry of its FIFOs.
static inline size_t tt_chunk_elements(const tt_choice *c, size_t esize)
{
  return TT_MAX(c->chunk >> __builtin_ctzl(esize), 1);
}

static inline tt_proto tt_choice_fifo(const tt_choice *c)
{
  return c->tiny ? TT_TINY : c->proto;
}

// The sizes from which choices change on a machine with these figures. Rank 0 computes them for all. Errors:
// ncclSystemError.
ncclResult_t tt_tuning_limits(const tt_figures *f, tt_limits *out);

// What this rank reports of the network's delay (tt_peer.net_delay).
uint64_t tt_tuning_delay(const tt_bootstrap *boot);

// Whether ranks may use each other's memory, and NCCL_PROTO names LL128 (tt_algo_filter): tt_port.gpu_access, ll128.
// Errors: ncclInvalidUsage.
ncclResult_t tt_tuning_gpus(tt_port *port);

// Reads NCCL_ALGO, NCCL_PROTO and thresholds for a communicator. Free with tt_tuning_destroy.
ncclResult_t tt_tuning_create(const struct ncclComm *comm, tt_tuning **out);
void tt_tuning_destroy(tt_tuning *t);
// TUTTI_REPRODUCIBLE: leaves of the algorithms that NCCL_ALGO allows for sums those that sum in the order of the ranks.
// Where that is none, all such are allowed, and INFO says so. Call it once it is known whether ranks reach each other's
// memory, before the first operation.
void tt_tuning_keep_order(struct ncclComm *comm);
// Chooses for one operation, the same on every rank. `bytes`: size of the larger buffer, as the perf programs show it.
// `in_network`: the network may reduce it (tt_comm_collnet_allows). Errors: ncclInvalidUsage when NCCL_ALGO or
// NCCL_PROTO leave nothing.
ncclResult_t tt_tuning_choose(const struct ncclComm *comm, tt_func func, size_t bytes, int peer, bool in_network,
                              tt_choice *out);

// The time in microseconds that so many bytes take about: by direct access of a peer on this machine (the machine's
// figures), or over the network (the model's). At most a millisecond: beside that, the time to wake up does not count.
uint32_t tt_tuning_takes_us(const struct ncclComm *comm, size_t bytes);
// The identity of the tuner plugin and of the file that it reads; 0: none. Equal on ranks where both are equal. All
// ranks use the plugin, or none does (`agreed`): call tt_tuning_agree once, before the first operation. Errors: those
// of the model that is made with the plugin's constants.
uint64_t tt_tuning_plugin(const struct ncclComm *comm);
ncclResult_t tt_tuning_agree(struct ncclComm *comm, bool agreed);
// Like tt_tuning_choose for a collective: where there is a tuner plugin it is asked. `ops`: collectives of the group.
// The launching thread.
ncclResult_t tt_tuning_choose_task(struct ncclComm *comm, const tt_task *task, size_t ops, tt_choice *out);
// The cost model's time in microseconds of a collective with this choice of algorithm and protocol, at the best chunk
// size. The first call makes the model. Errors: ncclSystemError (no memory). The launching thread.
ncclResult_t tt_tuning_estimate(struct ncclComm *comm, tt_func func, size_t bytes, const tt_choice *choice, double *us);
// The table of costs that all ranks use for choices and estimates.
tt_cost_env tt_tuning_costs(const struct ncclComm *comm);
