// fabric.h: what a collective puts on the links that machines share: ports, and the uplinks of the switches behind
// them. For the explorer and tests.
//
// The cost model (topo/model.h) knows one machine's links and counts the network as a full crossbar. Here the network
// has leaf switches, and uplinks from each leaf to a spine. Every rank and every channel counts: nothing is taken from
// symmetry. A ring's or tree's steps are not walked: each sends an equal part over the same edges, so an edge carries
// their sum. The spine itself is as wide as all uplinks, and uplinks of one leaf share their traffic evenly.
#pragma once
#include "topo/model.h"

typedef struct tt_fabric_plan {
  bool rails;              // a leaf joins the ports of one rail; else all ports of its machines
  int leaf;                // machines below a leaf; 0: all
  double oversubscription; // GB/s of a leaf's ports, by those of its uplinks
} tt_fabric_plan;

typedef struct tt_fabric_input {
  const tt_connect *connect; // must live as long as the result; node n is of machine n / nshapes
  const tt_topo *topo; // a machine. Its groups, of which the shapes' graphs name the NETs, have the same NETs behind
                       // their GPUs
  tt_fabric_plan plan;
} tt_fabric_input;

typedef struct tt_fabric tt_fabric;

// Errors: no memory. Free *out with tt_fabric_destroy.
ncclResult_t tt_fabric_create(const tt_fabric_input *in, tt_fabric **out);

// Frees it. NULL is allowed.
void tt_fabric_destroy(tt_fabric *f);

typedef enum { TT_FABRIC_OUT, TT_FABRIC_IN, TT_FABRIC_UP, TT_FABRIC_DOWN, TT_FABRIC_KINDS } tt_fabric_kind;

// The link that takes longest.
typedef struct tt_fabric_limit {
  double us_per_byte; // of the operation's size; 0: nothing leaves a machine
  int kind;           // tt_fabric_kind: a port out or in, a leaf's uplinks up or down
  int machine, port;  // OUT and IN; the port as the machine counts them
  int leaf, rail;     // UP and DOWN
} tt_fabric_limit;

typedef struct tt_fabric_op {
  tt_model_func func;
  tt_model_algo algo;
  int root; // of broadcast and reduce
} tt_fabric_op;

// Writes to limits[k - 1] what holds when the first k channels are used, for k up to `channels` and
// TT_GRAPH_MAX_CHANNELS. ncclInvalidArgument: a rank has no port to other machines.
ncclResult_t tt_fabric_limits(tt_fabric *f, tt_fabric_op op, int channels, tt_fabric_limit *limits);

// Microseconds of an operation: those of the cost model, `us`, but that the transfer takes at least as long as the
// limit's link. Protocols' flags count as bytes on it.
double tt_fabric_time(const tt_model *m, const tt_model_op *op, tt_model_algo algo, tt_model_proto proto,
                      const tt_fabric_limit *limit);

// All-to-all: adds messages of each machine's port `from` (as tt_fabric_port counts) to the port `to` of every other
// machine, `messages` to each. Loads begin at zero again with tt_fabric_clear.
void tt_fabric_clear(tt_fabric *f);
void tt_fabric_add_pairs(tt_fabric *f, const int ports[2], double messages);

// Microseconds per byte of a message of what was added since.
tt_fabric_limit tt_fabric_most(const tt_fabric *f);

// The port of NET number `net` (from 0) of the machine, the same for all NETs of one port.
int tt_fabric_port(const tt_fabric *f, int net);
