// topology_priv.h: what follows for the topology step from what all ranks told in the peers' exchange. All of it gives
// the same answer on every rank.
#pragma once
#include "comm/topology.h"
#include "topo/source.h"

// Why a rank does not see a plain host: bits of tt_peer.sees.
enum {
  TT_SEES_FILE = 1,  // its machine is described by a file
  TT_SEES_ASKED = 2, // files with what is found are read or written
  TT_SEES_GPU = 4,   // it sits on a GPU
  TT_SEES_MACHINE = TT_SEES_FILE | TT_SEES_GPU
};

// The rank that works for its node: the first one.
int tt_topology_leader(const tt_layout *l, int node);

// Has no rank of the node a file that describes its machine, or a GPU?
bool tt_topology_is_plain(const struct ncclComm *c, int node);

// Do all ranks of the communicator share one GPU?
bool tt_topology_is_one_gpu(const struct ncclComm *c);

// Do two ranks see the same machine?
bool tt_topology_same_view(const struct ncclComm *c, int a, int b);

// Must a rank tell its node's leader what it sees? A plain node has nothing to tell, unless files with what is found
// are asked for.
bool tt_topology_has_view(const struct ncclComm *c, int rank);

// Must some rank of the node?
bool tt_topology_views_differ(const struct ncclComm *c, int node);

// Does a rank tell what it sees? The leader does, too, where somebody may have to write what all see together.
bool tt_topology_tells_view(const struct ncclComm *c, int rank);

// The places of a node's ranks; `out` has room for all of them. Returns how many.
int tt_topology_places(const struct ncclComm *c, int node, tt_source_rank *out);

// Says at INFO which ranks of a node were given other files or settings than its leader, whose hold.
void tt_topology_say_differences(const struct ncclComm *c, int node);
