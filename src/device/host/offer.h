// offer.h: tokens, and what comes along with them.
//
// A token may offer a chunk of the sender's memory (schedule.h). Where the receiver would need the kernel's help to read it, the data come along in one of two
// ways:
//   COPY   the sender lays a copy into its outbox, memory that both map, and the receiver reads that. The sender needs its own memory no longer than the step
//          takes: a drain (TT_DRAIN) does not wait for such a token. Where the ring is full the token waits, as for room in its FIFO.
//   PAGES  the sender hands its pages over through a pipe, and the receiver copies them out (os/pagepipe.h); what the pipe does not hold the receiver
//          reads from the sender's memory. One copy instead of two, but the kernel's, and the sender's memory must stay as it is.
// Which takes less time depends on whether the cores share a cache, on the size, and on where the data are; a virtual machine's cores may move. So whoever
// reads tries both now and then (device/host/trial.h), and says in a word of the window which sizes it wants as pages. The sender does as it is told, chunk by
// chunk. Both carry the same bytes: results do not depend on it. NCCL_HOST_COPIES leaves one.
#pragma once
#include "device/host/handover.h"
#include "device/lane.h"
#include "os/clock.h"

// Takes the token that has arrived from the peer, for a step that reads `bytes` bytes of what it offers, if it offers anything. Errors: ncclInvalidUsage
// (the peer is in another call), ncclRemoteError, ncclSystemError.
ncclResult_t tt_token_take(tt_port *port, const tt_lane *l, tt_link *link, size_t bytes);

// The step that has taken the link's token has read what it offered.
void tt_offer_taken(tt_link *link);

// May the token be sent? Not while the outbox has no room for the copy that it would lay there.
bool tt_offer_room(tt_link *link, const tt_call *c, const tt_ref *token, size_t bytes);

// A step that would write the chunk which this rank's next token offers into the peer's output, but cannot reach it: where in the outbox it may write that
// instead, if the peer wants copies. NULL: nowhere.
void *tt_offer_lay(tt_link *link, const tt_call *c, size_t bytes);

// Should offers of so many bytes to the peer be copies?
bool tt_offer_copies(const tt_link *link, const tt_call *c, size_t bytes);

// Fills in the token that is about to be sent, which offers `bytes` bytes if it offers anything.
void tt_token_give(const tt_lane *l, const tt_step *step, const tt_ref *token, size_t bytes, tt_link *link);

// Has the peer no need of this rank's own memory any more for what the tokens have offered so far?
static inline bool tt_offers_drained(tt_link *link)
{
  tt_handover *h = link->handover;
  tt_fifo *f = &link->send[TT_TOK];
  if ((int32_t)(f->seen - h->held) < 0) {
    f->seen = atomic_load_explicit(f->head, memory_order_acquire);
  }
  if ((int32_t)(f->seen - h->held) < 0) {
    return false;
  }
  h->held = f->seen; // so that it never is half the numbers behind
  h->timing.until = h->timing.since != 0 ? tt_now_ns() : 0;
  return true;
}
