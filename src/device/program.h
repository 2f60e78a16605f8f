// program.h: the resolved steps of a call: which buffers, FIFOs and peers each of them uses, worked out from the
// schedule. There is one executor of such steps (host/program.c).
//
// A program holds the steps of a small call, strand by strand over all passes, compiled once for each kind of call. The
// calling thread runs it first, as far as that takes no waiting (tt_program_run). tt_program_state counts the steps
// that are done. If any are left, lanes of a plan go on from there (tt_lane_resume). A call that need not wait has
// neither plan nor queue.
//
// Other calls always have a plan. Where their steps are few, lanes run them from a program too (tt_program.queued).
// Where they are many, or a network takes part, lanes resolve each step when they come to it (tt_lane_resolve), into
// the port's scratch, and keep it until it has been run.
//
// Rule: the calling thread runs a program only while the port has no plan that is not complete, afterwards the thread
// that runs the plan: FIFOs and scratch belong to it.
#pragma once
#include "device/lane.h"

// The most of a program.
enum {
  TT_PROGRAM_STRANDS = 2,
  TT_PROGRAM_REFS = 64,       // of all steps, of which each has one at least
  TT_PROGRAM_BYTES = 16 << 10 // of a step that the calling thread runs, and of all scratch
};

// One reference of a step.
typedef struct tt_program_ref {
  tt_fifo *fifo; // of a message or token; NULL: it is neither
  size_t offset; // into the buffer, own or the peer's, bytes; of a token: of what it offers
  int peer;      // the FIFO's, or whose memory it is
  uint8_t kind;  // tt_ref_kind
  uint8_t offer; // of a token that is sent: TT_OFFER_…
} tt_program_ref;

typedef enum {
  TT_PROGRAM_COPY, // one source, one destination
  TT_PROGRAM_FOLD, // two sources, one destination; nothing is scaled or divided
  TT_PROGRAM_ANY,  // other steps between own buffers and FIFOs
  TT_PROGRAM_FAR   // tokens, peers' memory, a network, results that bypass the caches, no data: host/step.c
} tt_program_kind;

typedef struct tt_program_step {
  const tt_program_ref *refs; // sources, then destinations
  size_t count, bytes;        // elements, and their size
  uint16_t nsrc, ndst;
  uint16_t flags; // the schedule's, TT_STEP_…
  uint8_t kind;   // tt_program_kind
  bool reduce;    // combines, or scales or divides its one source; not looked at in steps of kind TT_PROGRAM_FAR
} tt_program_step;

// What changes from call to call.
typedef struct tt_program_call {
  const tt_redop *op;
  char *buffers[TT_TMP + 1]; // TT_IN, TT_OUT, TT_TMP: the scratch
  uint64_t sig;              // as in tt_call
  bool silent; // peers that sleep are not told of it: the caller does that (tt_program_ring), within microseconds
  uint64_t sig_count; // apart from `sig`, which was stored a moment ago: a load of both at once would wait for that
} tt_program_call;

typedef struct tt_program {
  int nstrands, nsteps, npages;
  tt_program_kind single; // kind of the only step; TT_PROGRAM_ANY: it may be of any, and there may be more
  bool queued;            // its steps use tokens or peers' memory, or are large: only lanes run it
  bool claims;            // nobody is waited for: the line of the next message may be claimed (tt_fifo_claim)
  bool pauses; // between two looks, because peers wait for this rank as well: else their stores and its looks are in
               // each other's way
  int first[TT_PROGRAM_STRANDS + 1]; // step of each strand, and one behind the last
  uint64_t sig;                      // the call's fingerprint, without a sequence number
  tt_redop op;
  tt_program_call
      call; // made but for its buffers, `sig` and `silent`: for the caller of tt_program_run, which fills it in
  const tt_schedule *sched; // what it was compiled from,
  size_t chunk;             // in chunks of so many elements,
  tt_proto fifo;            // with FIFOs of this geometry
  struct tt_program *next;  // the owner's list, and
  uint64_t until;           // the owner's number of the first plan that does not use it any more
  tt_program_step *steps;
  tt_rank_page **pages; // of the peers that messages or free slots go to
} tt_program;

// How much of a call has been run: steps of each strand.
typedef struct tt_program_state {
  uint8_t steps[TT_PROGRAM_STRANDS];
} tt_program_state;

// Compiles the schedule for calls like `call`, in chunks of `chunk` elements, with FIFO references of geometry `fifo`.
// The schedule, and the links that it mentions, must be there and stay. Free with tt_free. `call` has no device scalar.
// NULL: there are too many steps, or much scratch, or a network, or scratch together with steps that only lanes run,
// which use their plan's. Or there is no memory.
tt_program *tt_program_compile(const tt_port *port, const tt_schedule *sched, tt_call *call, size_t chunk,
                               tt_proto fifo);

// Runs the steps that `state` has not, as long as nothing has to be waited for longer than `looks` looks, and counts
// them there. Returns whether none is left. A message of another call ends it too: the plan that goes on reports that.
bool tt_program_run(tt_port *port, const tt_program *p, const tt_program_call *call, unsigned looks,
                    tt_program_state *state);

// Works out the step before which the lane stands, which is not done and does not drain. `refs`: room for as many as
// the step has.
void tt_lane_resolve(const tt_port *port, const tt_lane *l, tt_program_step *s, tt_program_ref *refs);

// The lane has taken that step.
void tt_lane_advance(tt_lane *l);

// Prepares a lane to run what is left of one strand of a program, of which `steps` steps have been run. It starts done
// when nothing is. The program stays until the plan is complete. One that is queued is not for calls with `stream_put`.
void tt_lane_resume(tt_lane *l, const tt_program *program, int strand, tt_call *call, int steps);

// Tells the peers of some programs that something was published or given back.
void tt_program_ring(const tt_port *port, const tt_program *const *programs, int n);

// Bytes of its messages, about: of the first step's, and for each step.
static inline size_t tt_program_bytes(const tt_program *p)
{
  return (size_t)p->nsteps * p->steps[0].bytes;
}
