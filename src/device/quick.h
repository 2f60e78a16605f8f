// quick.h: a small call, made ready: the steps of one pass with their addresses worked out, run inside the call that launches it.
//
// A program that repeats a small call spends more time on making a plan than on moving its bytes. So a schedule that takes few steps, over
// FIFOs in shared memory alone, is translated once: each reference becomes a buffer and an offset, or a FIFO. The steps are those of the
// schedule, strand by strand in its order, with the meaning that program.h gives them. A step whose messages have not come ends its strand's
// quick run; a plan goes on where it ended (tt_lane_skip). Nothing is queued before that, so a call that need not wait costs neither plan nor
// queue.
//
// Rule: the launching thread runs it, while the port has no plan that is not complete (only then do the FIFOs belong to it).
#pragma once
#include "device/lane.h"

enum { TT_QUICK_STRANDS = 2, TT_QUICK_STEPS = 32, TT_QUICK_REFS = 64, TT_QUICK_PAGES = 16, TT_QUICK_BYTES = 16 << 10 };

// One reference of a step. fifo NULL: in the user's input or output.
typedef struct tt_quick_ref {
  tt_fifo *fifo;
  size_t offset; // into the buffer, bytes
  bool out;
} tt_quick_ref;

typedef enum { TT_QUICK_COPY, TT_QUICK_FOLD, TT_QUICK_ANY } tt_quick_kind; // one to one, two to one without more ado, the others

typedef struct tt_quick_step {
  uint8_t kind; // tt_quick_kind
  uint8_t nsrc, ndst;
  uint8_t first; // source; the destinations follow the sources
  bool reduce;
  uint8_t flags; // for tt_reduce
  uint32_t count, bytes;
} tt_quick_step;

typedef struct tt_quick {
  int nstrands, nsteps, npages;
  tt_quick_kind single; // kind of the only step; TT_QUICK_ANY: it may be of any, and there may be more
  bool claims;          // nobody is waited for: the line of the next message may be claimed (tt_fifo_claim)
  bool pauses; // between two looks, because peers wait for this rank as well: else their stores and its looks are in each other's way
  int first[TT_QUICK_STRANDS + 1]; // step of each strand, and one behind the last
  tt_redop op;
  tt_quick_step steps[TT_QUICK_STEPS];
  tt_quick_ref refs[TT_QUICK_REFS];
  tt_rank_page *pages[TT_QUICK_PAGES]; // of the peers that messages or free slots go to
} tt_quick;

// How much of a call has been run: steps of each strand.
typedef struct tt_quick_done {
  uint8_t steps[TT_QUICK_STRANDS];
} tt_quick_done;

// Translates what a call's lanes would run, which have just been made (tt_lane_init), one for each strand of their schedule. False: there are too many steps
// or bytes, or there are tokens, scratch, a network or scalars. The links that the schedule mentions must be there, and stay.
bool tt_quick_make(const tt_port *port, const tt_lane *lanes, tt_quick *q);

// What changes from call to call.
typedef struct tt_quick_call {
  const char *in;
  char *out;
  uint64_t sig, sig_count; // as in tt_call
  bool silent;             // peers that sleep are not told of it: the caller does that (tt_quick_tell), within microseconds
} tt_quick_call;

// Runs the steps that `done` has not, as long as nothing has to be waited for longer than `looks` looks, and counts them there. Returns whether none is left. A
// message of another call ends it too: whoever goes on reports that.
bool tt_quick_run(tt_port *port, const tt_quick *q, const tt_quick_call *call, unsigned looks, tt_quick_done *done);

// Tells the peers of some quick calls that something was published or given back.
void tt_quick_tell(const tt_port *port, const tt_quick *const *quicks, int n);

// Bytes of its messages, about: of the first step's, and for each step.
static inline size_t tt_quick_bytes(const tt_quick *q)
{
  return (size_t)q->nsteps * q->steps[0].bytes;
}
