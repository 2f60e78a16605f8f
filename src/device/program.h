// program.h: the resolved program of a small call: its steps in order, with every address worked out.
//
// A decision (algorithm, protocol, chunk) is compiled once. Each reference of each step becomes a buffer and an offset,
// or a FIFO. The steps are those of the schedule, strand by strand, over all passes, with the meaning that schedule.h
// gives them. Large calls, networks and tokens have no program: the lanes of their plans interpret the schedule
// (lane.h).
//
// The calling thread runs the program first, as far as that takes no waiting (tt_program_run). tt_program_state counts
// the steps that are done. If any are left, lanes of a plan go on from there (tt_lane_resume), with the same code. A
// call that need not wait has neither plan nor queue.
//
// Rule: the calling thread runs it only while the port has no plan that is not complete, afterwards the thread that
// runs the plan: the FIFOs belong to it.
#pragma once
#include "device/lane.h"

enum {
  TT_PROGRAM_STRANDS = 2,
  TT_PROGRAM_STEPS = 32,
  TT_PROGRAM_REFS = 64,
  TT_PROGRAM_PAGES = 16,
  TT_PROGRAM_BYTES = 16 << 10 // of a step, and of all scratch
};

// One reference of a step.
typedef struct tt_program_ref {
  tt_fifo *fifo;  // NULL: in a buffer
  size_t offset;  // into the buffer, bytes
  int peer;       // the FIFO's
  uint8_t buffer; // TT_IN, TT_OUT, TT_TMP
} tt_program_ref;

typedef enum {
  TT_PROGRAM_COPY,
  TT_PROGRAM_FOLD,
  TT_PROGRAM_ANY
} tt_program_kind; // one to one, two to one without more ado, the others

typedef struct tt_program_step {
  uint8_t kind; // tt_program_kind
  uint8_t nsrc, ndst;
  uint8_t first; // source; the destinations follow the sources
  bool reduce;
  uint8_t flags; // for tt_reduce
  uint32_t count, bytes;
} tt_program_step;

typedef struct tt_program {
  int nstrands, nsteps, npages;
  tt_program_kind single; // kind of the only step; TT_PROGRAM_ANY: it may be of any, and there may be more
  bool claims;            // nobody is waited for: the line of the next message may be claimed (tt_fifo_claim)
  bool pauses; // between two looks, because peers wait for this rank as well: else their stores and its looks are in
               // each other's way
  int first[TT_PROGRAM_STRANDS + 1]; // step of each strand, and one behind the last
  uint64_t sig, sig_count;           // the call's fingerprint, without a sequence number
  tt_redop op;
  const tt_schedule *sched; // what it was compiled from,
  size_t chunk;             // in chunks of so many elements,
  tt_proto fifo;            // with FIFOs of this geometry
  struct tt_program *next;  // the owner's list, and
  uint64_t until;           // the owner's number of the first plan that does not use it any more
  tt_program_step *steps;
  char *scratch;        // of one call at a time; NULL: its steps need none
  tt_rank_page **pages; // of the peers that messages or free slots go to
} tt_program;           // the references of all steps lie behind it

// How much of a call has been run: steps of each strand.
typedef struct tt_program_state {
  uint8_t steps[TT_PROGRAM_STRANDS];
} tt_program_state;

// Compiles the schedule for calls like `call`, in chunks of `chunk` elements, with FIFO references of geometry `fifo`.
// The schedule, and the links that it mentions, must be there and stay. Free with tt_free. `call` has no device scalar.
// NULL: there are too many steps or bytes, tokens, or a network; or there is no memory.
tt_program *tt_program_compile(const tt_port *port, const tt_schedule *sched, tt_call *call, size_t chunk,
                               tt_proto fifo);

// What changes from call to call.
typedef struct tt_program_call {
  char *buffers[TT_TMP + 1]; // TT_IN, TT_OUT, TT_TMP: the program's scratch
  uint64_t sig, sig_count;   // as in tt_call
  bool silent; // peers that sleep are not told of it: the caller does that (tt_program_ring), within microseconds
} tt_program_call;

// Runs the steps that `state` has not, as long as nothing has to be waited for longer than `looks` looks, and counts
// them there. Returns whether none is left. A message of another call ends it too: the plan that goes on reports that.
bool tt_program_run(tt_port *port, const tt_program *p, const tt_program_call *call, unsigned looks,
                    tt_program_state *state);

// Runs a lane that has a program (tt_lane_resume), as tt_lane_run does.
tt_run tt_program_run_lane(tt_port *port, tt_lane *l, size_t *budget);

// Tells the peers of some programs that something was published or given back.
void tt_program_ring(const tt_port *port, const tt_program *const *programs, int n);

// Bytes of its messages, about: of the first step's, and for each step.
static inline size_t tt_program_bytes(const tt_program *p)
{
  return (size_t)p->nsteps * p->steps[0].bytes;
}
