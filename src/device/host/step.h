// step.h: what the executor's files share: where a lane stands (lane.c), the data of steps that tokens, peers' memory
// or a network take part in (step.c), and the check of fingerprints.
#pragma once
#include "device/program.h"

// After the last pass: has the network taken everything that was lent to it? Goes over the steps once more. A FIFO that
// other steps use too is asked for no more than this lane has put in.
bool tt_lane_drained(const tt_port *port, tt_lane *l);

// A step that has no program to lie in. Lanes that wait keep theirs here, so that a plan which looks at each of them in
// turn resolves a step once: those with few references in one of the first TT_RESOLVED places, by the lane's address;
// those with more in the last one, with the references among the rows of operands.
enum { TT_RESOLVED = 16, TT_RESOLVED_REFS = 3, TT_POINTER_ROWS = 7 }; // rows of nranks + 2: operands
typedef struct tt_resolved {
  const tt_lane *lane; // whose next step it is, if that says so (tt_lane.resolved)
  tt_program_step step;
  tt_program_ref refs[TT_RESOLVED_REFS];
} tt_resolved;

_Static_assert(TT_OPERAND_ROWS * sizeof(void *) >=
                   TT_POINTER_ROWS * sizeof(void *) + TT_STEP_REFS * sizeof(tt_program_ref),
               "the rows hold the operands and the references of any step");
_Static_assert(TT_OPERANDS(-2) * sizeof(void *) >= (TT_RESOLVED + 1) * sizeof(tt_resolved),
               "and a step for each place");

// The place of that number.
static inline tt_resolved *tt_port_resolved(const tt_port *port, unsigned number)
{
  return (tt_resolved *)(port->operands + TT_OPERAND_ROWS * ((size_t)port->nranks + 2)) + number;
}

// Where the references of a step lie that has more than TT_RESOLVED_REFS.
static inline tt_program_ref *tt_port_refs(const tt_port *port)
{
  return (tt_program_ref *)(port->operands + TT_POINTER_ROWS * ((size_t)port->nranks + 2));
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
