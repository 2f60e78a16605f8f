// topology.h: the communicator knows its machine: channels with their rings and trees, the cost model. A step of
// init.c.
//
// One rank of each node, its leader, works out the node's graphs (machine.h) and tells all others; every rank connects
// the nodes by itself. Where no rank has a file that describes its machine or sits on a GPU, nothing is read and
// nothing travels: each rank knows from the peers' list who sits where, and a plain host has one channel. Whatever
// fails on one rank fails on all, with the same text.
#pragma once
#include "coll/layout.h"
#include "comm/ranks.h"
#include "comm/shapes.h"
#include "topo/model.h"

struct ncclComm;

// Immutable once made; any thread may read.
typedef struct tt_topology {
  bool plain;          // no file describes any of the machines, and no rank sits on a GPU
  tt_connect *connect; // rings, trees, heads; the numbers of NETs in it are those of each node's machine (`dev`)
  // Of what the machine's GPUs would do; all zero when plain. NCCL_ALGO and NCCL_PROTO are not in it: they name the
  // host's algorithms.
  tt_model model;
  tt_p2p_channels p2p;
  tt_node_shapes *kinds; // [nkinds]: the connection's graphs are theirs
  int nkinds;
} tt_topology;

// What this rank tells of itself in the peers' exchange: which machine it sees, where it sits, its settings.
void tt_topology_describe(const struct ncclComm *comm, tt_peer *me);

// Does some rank see more than a plain host?
bool tt_topology_anything_to_see(const struct ncclComm *comm);

// The variable on which a rank differs from rank 0, and must not where some rank sees more than a plain host, since
// every rank connects the nodes by it; NULL: none. What nodes are searched by may differ: the first rank's holds for
// its node.
const char *tt_topology_differs(const struct ncclComm *comm, int rank);

// Makes the topology; all ranks of the communicator call it. After peers, layout and segment (which says whether
// some pair needs the network), before anything that follows the channels. Free *out
// with tt_topology_destroy. Errors: those of the files, of the network; no memory; a peer that has gone.
ncclResult_t tt_topology_create(const struct ncclComm *comm, tt_topology **out);

// Frees it. NULL is allowed.
void tt_topology_destroy(tt_topology *t);

// Channels that operations may use, at most. 1 where no machine is described.
int tt_topology_channels(const tt_topology *t);

// The order of all ranks in each channel's ring, from rank 0: orders[channel * nranks + i]. *out is tt_free's. Errors:
// no memory.
ncclResult_t tt_topology_rings(const tt_topology *t, int *nchannels, int **out);

// Gives the layout the channels that operations follow. Where no machine is described it keeps its one. Before
// schedules are written. Errors: no memory.
ncclResult_t tt_topology_give(const tt_topology *t, tt_layout *layout);

// Which algorithm the described machine would take for an operation of so many bytes, among those that the host device
// has too: ring, tree and PAT. `model`: another one of this machine than the topology's (a tuner plugin has changed its
// constants), or NULL. TT_MODEL_ALGOS: no machine is described, or none of them can do it.
tt_model_algo tt_topology_algo(const tt_topology *t, const tt_model *model, tt_model_func func, size_t bytes);

// Logs rings and trees as NCCL does (machine_log.c).
void tt_topology_log(const tt_topology *t, int rank);
