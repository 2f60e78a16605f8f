// far.h: the messages of captured operations, between each rank's FIFOs of them (device/far.h).
//
// Nothing is posted for a replay, as nobody knows when there is one. So all these FIFOs of two ranks share a pair of
// connections whose operations do not end (puts.h), and each message says which one it is of. Ranks may replay their
// graphs in any order: no FIFO may hold up another one's messages. So the receiving rank says when it has a FIFO, and
// how many messages its kernels have taken from there; the sending rank sends no more than there is room for.
//
// FIFOs are numbered from 0 on in each replay (device/cuda/work/fifos.h), messages here from the first one on.
//
// Between replays a FIFO rests. A round then reads the head of a sender's, which a replay's first message sets to 0,
// and nothing of a receiver's.
#pragma once
#include "device/far.h"
#include "proxy/puts.h"

// The fingerprint of all these messages. Their count is 0.
#define TT_FAR_SIG 0x7475747469666172ull

typedef struct tt_far_fifo tt_far_fifo;

// ---- any thread: tt_mover.attach and detach

// The proxy serves one side of a FIFO from here on. Takes the run flag. Errors: ncclSystemError (no memory).
ncclResult_t tt_far_attach(tt_proxy *p, const tt_far_end *end, tt_far_fifo **out);
// No longer; *f is gone. What was sent is still delivered. Takes the run flag.
void tt_far_detach(tt_proxy *p, tt_far_fifo *f);

// ---- run flag held

// A message has come. Errors, and then nothing more of this peer may be taken: ncclInvalidUsage (the peer has captured
// another operation), ncclRemoteError (there is no such message), ncclSystemError.
ncclResult_t tt_far_take(tt_proxy_puts *g, const tt_slot *s, const char *payload);
// Sends what kernels have sent, and says what they have taken, as far as there is room. *moved: some of it. Errors:
// ncclInternalError (no such message).
ncclResult_t tt_far_tell(tt_proxy_puts *g, bool *moved);
// Is all sent that has a receiver, or may still have one?
bool tt_far_idle(const tt_proxy_puts *g);
void tt_far_free(tt_proxy_puts *g);
