// verify.h: the verifier. Runs the schedules of all ranks on sets of contributions instead of numbers, and proves what
// executors rely on.
//
// What is proved, for a given number of slots per connection and of passes over the schedule (loops):
//   form      every reference names a chunk that exists; a step copies one source or reduces some; inputs are never
//             written; each end of a connection belongs to one strand; a peer's memory is touched only by a strand that
//             has a token of this peer in this pass.
//   deadlock  every strand comes to its end. If not, the text says which rank waits for which.
//   contents  every output chunk ends with exactly the right contributions, each once, each pre-scaled once if the
//             function reduces, the final division applied once and last; both ends of a FIFO mean the same chunk. In
//             an all-reduce every rank's chunk comes from the same expression (same operands, order and roundings),
//             hence has the same bits. With in_order, every output is made by one step that sums the ranks' parts in
//             the order 0 to n-1, with one rounding: whatever the size and the layout, the bits are the same.
//   race      any two accesses to the same memory, one of them a write, are ordered by happens-before; and whatever
//             others do to a rank's buffers happens before that rank's call completes. With in_place, input and output
//             are one memory where NCCL says so.
//   leftover  no message and no token remains in any connection.
//
// An operation over several channels is a row of schedules: the stages. A rank goes on to the next when all its strands
// of the one before have ended. The stages have parts of the message of their own, and connections and scratch in
// common. What is proved of a row: the same.
//
// What the executor is free to do is run either way: gifts that are made, and that are not; offers that are read in the
// peer's memory, and that come along as copies. A copy is made when the token is sent, and nothing the peer does with
// it concerns its owner: no drain waits for it, or learns from it that the peer has got so far. Of one connection some
// may be copies and some not: its drains wait for the last that is none, and so for those before. Not tried: that a
// rank copies for one peer and not for another, which matters to a rank that learns from the one's drain how far the
// other is.
//
// Why one interleaving is enough. Strands share no memory that matters (that is what "race" proves); they meet in
// connections, each with one writing and one reading strand, both blocking and both sequential. That is a Kahn process
// network (G. Kahn, "The semantics of a simple language for parallel programming", 1974): the messages on each
// connection are the same in every interleaving. So are the contents, the number of steps each strand can take and
// therefore whether it gets stuck. Bounded connections keep this, since room behaves like a connection the other way.
// Races do depend on the interleaving; so they are not looked for by luck but with vector clocks, which hold what is
// ordered in every interleaving: the order within a strand, and from sending to receiving. That a full connection makes
// its sender wait also orders things, but only for one number of slots; no order is drawn from it.
#pragma once
#include <stddef.h>

#include "coll/coll.h"

// What kind of fault was found.
typedef enum {
  TT_VERIFY_FORM,
  TT_VERIFY_DEADLOCK,
  TT_VERIFY_CONTENTS,
  TT_VERIFY_RACE,
  TT_VERIFY_LEFTOVER,
  TT_VERIFY_NCLASSES
} tt_verify_class;

typedef struct tt_verify_options {
  tt_func func;
  int root;     // of rooted functions
  int slots;    // messages a connection holds, and separately tokens; at least 1
  int loops;    // passes over the schedules; at least 1
  int stages;   // schedules of each rank, one after the other: all[stage * nranks + rank], `loops` passes each. 0: one
  int in_order; // of functions that reduce: also prove that outputs are sums in the order of the ranks (below)
  int in_place; // the call's buffers overlap as NCCL defines it for this function (all-to-all, send, recv: no effect)
  int count; // schedules in `all`; 0 for collectives: one per rank, all[r] that of rank r. Send, recv: 2, the two ends
  int *count_classes; // NULL, or TT_VERIFY_NCLASSES counters; that of the fault found is increased
} tt_verify_options;

// Verifies the schedules all[0..]. ncclSuccess when they are right. ncclInternalError when they are not: the fault
// found first stands in `why` (one line, cut at whylen; untouched otherwise). ncclSystemError when out of memory,
// ncclInvalidArgument for senseless options. Several stages are for collectives through messages, without tokens and
// direct access. Faults are not logged. Any thread; time and memory grow with steps times strands.
ncclResult_t tt_verify(const tt_schedule *const *all, const tt_verify_options *o, char *why, size_t whylen);

// "deadlock", "race", ...
const char *tt_verify_class_name(tt_verify_class c);
