// rma_link.h: one-sided operations with a rank that shares no memory: the messages that travel instead.
//
// Two ranks have a connection for them in each direction, whose receiver takes what comes without having been asked
// (proxy/puts.h). Each message lies in a slot of a FIFO (fifo.h). Of a put that does not fit one slot, the last message
// counts the signal up. Messages arrive in the order in which they were written, so a signal stands behind its data,
// and what a rank says of its windows stands in order with both.
#pragma once
#include "device/one_sided.h"

enum {
  TT_RMA_SLOTS = 8,               // of a FIFO
  TT_RMA_SLOT_BYTES = 128u << 10, // payload of a slot
};

enum {
  TT_RMA_PUT = 1, // payload: for the receiver's window
  TT_RMA_SIGNAL,  // the same, and then a signal is counted up
  TT_RMA_NOTES,   // payload: what has become of the sender's windows, a tt_rma_note each
  TT_RMA_REFUSED  // the sender could not do this put, which the receiver has sent
};

// Stands in a slot behind `count`, and travels as it is.
typedef struct tt_rma_head {
  uint64_t elsewhere; // tt_slot's
  uint16_t kind;      // TT_RMA_…
  uint16_t ctx, sig;  // SIGNAL
  uint16_t closed;    // REFUSED: the window has been deregistered; 0: the place lies outside of it
  // PUT, SIGNAL, REFUSED: number of the window; NOTES: all windows up to this number have been told; 0: more will come
  uint64_t window;
  uint64_t offset; // PUT, SIGNAL, REFUSED: in the window
  uint64_t bytes;  // REFUSED: of the message. NOTES, PUT, SIGNAL: 0
} tt_rma_head;
_Static_assert(sizeof(tt_rma_head) == 40, "lies in a slot");

typedef struct tt_rma_note {
  uint64_t number, size; // size 0: it has been closed
} tt_rma_note;

// What a rank sends to one peer.
typedef struct tt_rma_link {
  int peer;
  // Over the three that follow. Held for the copy of one message; no other lock is taken meanwhile.
  pthread_mutex_t lock;
  tt_fifo send;
  uint64_t *known;          // [TT_WINDOWS]: numbers of the windows that the peer knows to be open
  uint64_t sent_changes;    // tt_rma.changes that the peer knows of
  _Atomic uint32_t written; // messages so far. Written under the lock (release)
  // The receiving thread's (tt_rma_take), until `refuses` is set (release); then those of the lock's holder.
  _Atomic bool refuses;
  tt_rma_head refused;
} tt_rma_link;

// Bytes of memory for the FIFO of one direction.
size_t tt_rma_fifo_bytes(void);
// A view of the FIFO in this memory, which starts zeroed. Payloads lie directly behind their headers.
tt_fifo tt_rma_fifo(char *memory);
// Writes up to `bytes` bytes for window `window` of the peer, from `offset` on, into the FIFO of payloads that the two
// ranks have in memory which both map (tt_rma_peer.put), as far as there is room. Returns how many. Any thread; holds
// the peer's lock.
size_t tt_rma_box_put(tt_rma_peer *peer, const tt_rma_op *op, size_t bytes);
// Hands what has come from the peer that way to rma->place. True: there was something. One thread at a time.
bool tt_rma_box_take(const tt_rma *rma, tt_rma_peer *peer);

// The fingerprint of all these messages. Their count is 0.
#define TT_RMA_SIG 0x74757474692d7075ull

// Has the peer been given all messages?
bool tt_rma_link_idle(const tt_rma_link *l);
// Says what the peer does not know of the own windows, and what could not be done for it, as far as there is room.
// False: there was not enough. Lock held.
bool tt_rma_link_tell(tt_rma *rma, tt_rma_link *l);
// Is there something for tt_rma_link_tell? Any thread.
bool tt_rma_link_owes(const tt_rma *rma, const tt_rma_link *l);
// Writes what there is room for of a put or signal: moves on `from`, `offset`, `bytes`, and sets `passed` when all is
// written. From TT_LEND_MIN on the payload stays where it is, and is `lent` until the FIFO's head has come to `until`.
// The runner of the batch.
void tt_rma_link_put(tt_rma *rma, tt_rma_link *l, tt_rma_op *op);

// A message from the peer of this link has come: `s` and `payload` are its slot's. Does what it says, or notes in the
// link that it cannot be done (`refuses`): after that nothing more of this peer may be taken. One thread at a time.
// Errors: ncclRemoteError (no such message: nothing is written), ncclInvalidUsage (this rank's put was refused).
ncclResult_t tt_rma_take(tt_rma *rma, tt_rma_link *l, const tt_slot *s, const char *payload);
