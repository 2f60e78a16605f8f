// step.h: what the executor's files share: where a lane stands (lane.c), the data of steps that tokens, peers' memory
// or a network take part in (step.c), and the check of fingerprints.
#pragma once
#include "device/program.h"

// Works out the step before which the lane stands, which is not done and does not drain. `refs`: room for as many as
// the step has.
void tt_lane_resolve(const tt_port *port, const tt_lane *l, tt_program_step *s, tt_program_ref *refs);

// The lane has taken that step.
void tt_lane_advance(tt_lane *l);

// After the last pass: has the network taken everything that was lent to it? Goes over the steps once more. A FIFO that
// other steps use too is asked for no more than this lane has put in.
bool tt_lane_drained(const tt_port *port, tt_lane *l);

// Behind the rows of operands in the port's scratch: a step that has no program to lie in.
typedef struct tt_resolved {
  const tt_lane *lane; // whose next step it is, if that says so (tt_lane.resolved)
  tt_program_step step;
  tt_program_ref refs[];
} tt_resolved;

enum { TT_POINTER_ROWS = 7 }; // of nranks + 2: operands
_Static_assert(TT_OPERAND_ROWS * sizeof(void *) >=
                   TT_POINTER_ROWS * sizeof(void *) + sizeof(tt_resolved) / 3 + TT_STEP_REFS * sizeof(tt_program_ref),
               "rows of at least 3 pointers");

static inline tt_resolved *tt_port_resolved(const tt_port *port)
{
  return (tt_resolved *)(port->operands + TT_POINTER_ROWS * ((size_t)port->nranks + 2));
}

// A message or token of `peer` that has arrived must belong to the call that this rank is in: else ncclInvalidUsage.
static inline ncclResult_t tt_call_check(const tt_port *port, const tt_call *c, int peer, const tt_slot *s)
{
  bool same = s->sig == c->sig && tt_sig_count_same(s->count, c->sig_count);
  return TT_LIKELY(same) ? ncclSuccess : tt_call_mismatch(port, c, peer, s->sig, s->count);
}

// A step of kind TT_PROGRAM_FAR whose messages and tokens have arrived, and find room: what else it waits for. NULL:
// nothing.
const tt_program_ref *tt_step_missing(const tt_port *port, const tt_lane *l, const tt_program_step *s);

// Takes the tokens among the sources of a step of kind TT_PROGRAM_FAR, combines its data, and writes the tokens among
// its destinations. Everything it waits for is there. Nothing is published yet. Errors: ncclRemoteError,
// ncclSystemError; recorded with tt_fail.
ncclResult_t tt_step_run(tt_port *port, tt_lane *l, const tt_program_step *s);
