// graph.h: graphs of work on the host device, and graphs that can be launched. capture.h records them.
//
// A graph is a list of nodes. A node knows how to queue its work again, on any stream, and which nodes of the graph it
// comes after: all of these stand before it in the list. Launching queues the nodes in this order as the calls that
// were recorded would have; so what a call takes from the moment it is made (sequence numbers, tickets) is taken at
// each launch.
#pragma once
#include <pthread.h>
#include <stdatomic.h>

#include "device/host/event.h"
#include "device/host/stream.h"
#include "tutti.h"

// What is queued at each launch. Nobody changes it once it is in a graph. A graph and what was instantiated from it
// share their nodes.
typedef struct tt_node {
  tuttiNodeKind_t kind;
  void *what; // by kind: a tt_recorded, tt_event, tt_exec or tt_work; NULL: nothing. The node owns it
  _Atomic uint32_t refs;
  const struct tt_graph *graph; // that it was added to, not to be used when that has gone
  uint32_t number;              // place in its graph
  uint32_t home;                // nodes of one home run one after the other, on one stream
  uint32_t *deps;               // numbers of the nodes that it comes after
  uint32_t ndeps;
} tt_node;

// Some nodes of one graph. Settled, they are in order of their numbers, each once. Adding n of them in any order and
// settling takes n log n.
typedef struct tt_nodes {
  tt_node **at;
  uint32_t n, room;
  bool mixed; // not settled
} tt_nodes;

// Makes room for `n` more; may settle the set. False: there is no memory.
bool tt_nodes_reserve(tt_nodes *set, uint32_t n);
// Adds a node where there is room.
void tt_nodes_add(tt_nodes *set, tt_node *n);
void tt_nodes_settle(tt_nodes *set);
void tt_nodes_free(tt_nodes *set);

// One thread at a time uses a graph.
typedef struct tt_graph {
  tt_nodes nodes;
  uint32_t homes; // numbers given
} tt_graph;

// A node of any kind but those of events and graphs. It owns `what`: a tt_work (pushed anew by tt_work_ops.again), a
// tt_recorded, NULL for tuttiNodeEmpty. NULL, with `what` freed: there is no memory.
tt_node *tt_node_new(tuttiNodeKind_t kind, void *what);
// Drops one reference; NULL is allowed.
void tt_node_drop(tt_node *n);
// A node that records or waits for an event when it is issued.
tt_node *tt_node_of_event(tt_event *e, bool record);
// A node that launches a graph, with what it holds now.
struct tt_exec;
tt_node *tt_node_of_exec(struct tt_exec *x);

// Errors: ncclSystemError.
ncclResult_t tt_graph_create(tt_graph **out);
void tt_graph_destroy(tt_graph *g);
// Takes the node over, behind those in `deps`, which are settled. Errors: ncclSystemError; then the caller keeps it.
ncclResult_t tt_graph_add(tt_graph *g, tt_node *n, const tt_nodes *deps, uint32_t home);
// Is every node of `some` in `set`, or one that a node of `set` comes after? False also where there is no memory to
// find out.
bool tt_graph_covers(const tt_graph *g, const tt_nodes *set, const tt_nodes *some);

// A graph that can be launched; it keeps what it needs of the graph it was made from.
typedef struct tt_exec tt_exec;

// `device`: of the streams that it makes for itself. Errors: ncclSystemError.
ncclResult_t tt_exec_create(const tt_graph *g, int device, tt_exec **out);
// Work that was launched still runs.
void tt_exec_destroy(tt_exec *x);
// Queues all nodes: after what was pushed to `s`, before what is pushed to it later, and after the earlier launches of
// `x`. Never waits; any thread. Errors: those of the nodes' checks, with nothing queued; of an issue, with the nodes
// before it queued.
ncclResult_t tt_exec_launch(tt_exec *x, tt_stream *s);
// Launches do what `g` says from now on, which must have the same nodes as regards kinds and order: *changed is 1 + the
// number of the first node that differs, and 0 when it was done.
void tt_exec_update(tt_exec *x, const tt_graph *g, uint32_t *changed);
