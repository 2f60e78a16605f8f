// shapes.h: what one node's machine gave, as the ranks tell it each other: groups of ranks that reach each other
// without the network, and each group's graphs. Private to comm/ (machine.h makes it, topology.h uses it).
//
// Ranks are counted within the node, in ascending order, so that equal nodes have equal bytes.
#pragma once
#include "topo/connect.h"
#include "topo/source.h"

typedef struct tt_node_group {
  tt_plan_shape shape; // nets are numbers of NETs (`dev`)
  tt_plan_machine machine;
  int p2p_wanted; // of tt_p2p_wanted
  // Trees of "Packed", where they are asked for and these are all ranks: [tree * ngpus + rank] is the rank above, -1
  // the root's.
  int npacked;
  int *packed, *packed_memory; // the latter of who has made them
} tt_node_group;

typedef struct tt_node_shapes {
  int nranks, ngroups;
  int *group_of; // [nranks]
  tt_node_group *group;
} tt_node_shapes;

// Room for so many; all zero. Free what it has with tt_node_shapes_clear, also after an error. Errors: no memory.
ncclResult_t tt_node_shapes_room(int nranks, int ngroups, tt_node_shapes *out);
void tt_node_shapes_clear(tt_node_shapes *s);

// A node of hosts that no file describes: one channel, in the order of ranks. `inter`: there are other nodes.
ncclResult_t tt_node_shapes_plain(const tt_source_rank *ranks, int nranks, bool inter, tt_node_shapes *out);

// As bytes, and back. Free *out with tt_free. Reading believes nothing. Errors: no memory; ncclInternalError: not such
// bytes.
ncclResult_t tt_node_shapes_write(const tt_node_shapes *s, char **out, size_t *size);
ncclResult_t tt_node_shapes_read(const char *bytes, size_t size, tt_node_shapes *out);
