// maxflow.h: maximum flows in a network of arcs with whole capacities. Dinitz, "Algorithm for solution of a problem of
// maximum flow in networks with power estimation" (1970).
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/result.h"

#define TT_MAXFLOW_ANY (INT64_MAX / 8) // a capacity that nothing fills; as a limit: none

// Arcs come in pairs: 2 i as it was added, 2 i + 1 the way back for what flows.
typedef struct tt_maxflow_arc {
  int to, next;       // next arc of the same node; -1: none
  int64_t room, left; // capacity, which callers may change between flows; what the last flow left of it
} tt_maxflow_arc;

typedef struct tt_maxflow {
  int nnodes, narcs, arc_room;
  tt_maxflow_arc *arcs;    // [narcs]
  int *first;              // [nnodes]: a node's first arc; -1: none
  int *level, *queue, *at; // of tt_maxflow_run: after a flow that met no limit, level[n] >= 0 before a least cut
  tt_arena arena;
} tt_maxflow;

// A network without arcs. Free what it has with tt_maxflow_clear, also after errors. Errors: no memory.
ncclResult_t tt_maxflow_make(int nnodes, tt_maxflow *out);

// Frees what it has; the struct is the caller's and may be all zero.
void tt_maxflow_clear(tt_maxflow *net);

// Adds an arc, whose number is narcs before the call. Errors: no memory.
ncclResult_t tt_maxflow_add(tt_maxflow *net, int from, int to, int64_t room);

// Takes the last arcs away until `narcs` are left.
void tt_maxflow_cut(tt_maxflow *net, int narcs);

// The maximum flow from one node to another one; where it is more than `limit`, the limit.
int64_t tt_maxflow_run(tt_maxflow *net, int from, int to, int64_t limit);
