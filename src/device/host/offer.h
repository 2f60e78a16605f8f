// offer.h: tokens, and what comes along with them.
//
// A token may offer a chunk of the sender's memory (schedule.h). If the receiver would need the kernel's help to read
// it, the data come along in one of two ways:
//   COPY   the sender copies them into its outbox, memory that both ranks map, and the receiver reads them there. The
//          sender's own memory is free after the step: a drain (TT_DRAIN) does not wait for such a token. If the outbox
//          is full, the token waits, as it would for room in its FIFO.
//   PAGES  the sender passes its pages through a pipe, and the receiver copies them out (os/pagepipe.h). What does not
//          fit into the pipe the receiver reads from the sender's memory. This is one copy instead of two, but the
//          kernel's, and the sender's memory must not change meanwhile.
// Which takes less time depends on whether the cores share a cache, on the size, and on where the data are. A virtual
// machine's cores may move. So the rank that reads tries both now and then (device/host/trial.h). It says in a word of
// the window which sizes it wants as pages, and the sender follows, chunk by chunk. Both ways carry the same bytes, so
// results do not depend on the choice. NCCL_HOST_COPIES fixes it.
#pragma once
#include "device/host/handover.h"
#include "device/program.h"
#include "os/clock.h"

// Takes the token that has arrived from the peer, which is in the same call, for a step that reads `bytes` bytes of
// what the token offers, if anything. Errors: ncclRemoteError, ncclSystemError.
ncclResult_t tt_token_take(tt_port *port, const tt_lane *l, tt_link *link, size_t bytes);

// To be called when the step that took the link's token has read what it offered.
void tt_offer_taken(tt_link *link);

// May a token be sent, which may offer `bytes` bytes? Not while the outbox has no room for its copy.
bool tt_offer_room(tt_link *link, const tt_call *c, const tt_program_ref *token, size_t bytes);

// For a step that would write the chunk of this rank's next token into the peer's output, but cannot reach that:
// returns where in the outbox it may write instead, if the peer wants copies. NULL: nowhere.
void *tt_offer_lay(tt_link *link, const tt_call *c, size_t bytes);

// Should offers of so many bytes to the peer be copies?
bool tt_offer_copies(const tt_link *link, const tt_call *c, size_t bytes);

// Fills in the token that is about to be sent, which offers `bytes` bytes if it offers anything.
void tt_token_fill(const tt_lane *l, const tt_program_ref *token, size_t bytes, tt_link *link);

// Has the peer read all that this rank's tokens have offered from this rank's own memory?
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
  h->held = f->seen; // so that it is never behind by half the range of numbers
  h->timing.until = h->timing.since != 0 ? tt_now_ns() : 0;
  return true;
}
