// puts.h: connections for one-sided operations, and others for captured operations: from each of two ranks to the
// other, beside those of tt_proxy_connect.
//
// Nothing is posted for them. A connection lasts: the holder of the run flag sends what stands in the FIFO of
// tt_rma_link, and receives as long as there are free slots. What has come it hands to tt_rma_take or tt_far_take, in
// place of an executor. So a rank's progress thread does what peers ask of it, whatever the rank computes, and a sender
// has no more under way than the slots of both FIFOs and what the network holds.
//
// A pair of connections is made when one of the two ranks first wants it: the other one's service thread makes its own
// end, and connects back. They are set up over the control connections as any other (setup.c); `behalf` of these
// messages, TT_MSG_PUTS or TT_MSG_GRAPHS, says what they are for. No neighbour's proxy sends for them.
#pragma once
#include "device/far.h"
#include "device/rma_link.h"
#include "proxy/service_priv.h"

// FIFOs of captured operations of two ranks: all that this one has, or of which the peer has told (far.c).
enum { TT_FAR_BUCKETS = 64, TT_FAR_EARLY = 65536 };
typedef struct tt_far_set {
  struct tt_far_fifo *first[TT_FAR_BUCKETS];
  struct tt_far_fifo *busy;  // those that each round looks at
  struct tt_far_rest *rests; // this rank's kernels may begin to send there: a round looks whether they have
  int nrests, room;
  uint32_t early; // those that this rank has not had yet: TT_FAR_EARLY at most
} tt_far_set;

struct tt_proxy_puts {
  struct tt_proxy_puts *next; // of the proxy, newest first; stays until the proxy is destroyed
  tt_rma_link link;
  tt_fifo recv;           // what has come. The run flag's holder's
  bool deaf;              // takes nothing any more: the same
  tt_proxy_peer peer;     // rank and connections; the rest is not used
  tt_proxy_item items[2]; // the connections' standing operations: that receives, that sends
  char *memory;
  size_t size;
  tt_proxy_ties ties; // of the setup; `out` is borrowed from the peer's own. The service thread's
  tt_far_set far;     // with TT_MSG_GRAPHS. The run flag's holder's
};

// Is it for captured operations, and not for one-sided ones?
static inline bool tt_puts_is_far(const tt_proxy_puts *g)
{
  return g->ties.setup.behalf == TT_MSG_GRAPHS;
}

// ---- any thread

// The peer's pair for that; NULL: there is none. `behalf` 0: whatever for.
tt_proxy_puts *tt_puts_find(const tt_proxy *p, int rank, uint32_t behalf);
// The same, made and connected when there is none. Of a link that was taken on. Errors: ncclSystemError.
ncclResult_t tt_puts_open(tt_proxy *p, int rank, uint32_t behalf, tt_proxy_puts **out);
// Messages of that pair so far: given to the network for the peer; come from it.
uint32_t tt_puts_sent(const tt_proxy *p, int rank, uint32_t behalf);
uint32_t tt_puts_came(const tt_proxy *p, int rank, uint32_t behalf);
// Have all that the peer has sent to that pair come, or will no more come?
bool tt_puts_complete(const tt_proxy *p, int rank, uint32_t behalf, uint32_t sent);
// Is everything sent that can be? Asks peers that do not take it.
bool tt_puts_idle(tt_proxy *p);

// ---- run flag held

// One round over all. True when something has moved; the rank's bell has been rung then.
bool tt_puts_round(tt_proxy *p);
// The port is stopped: what was sent before goes out as far as the network takes it, the rest is dropped.
void tt_puts_drop(tt_proxy *p);
// The rank goes before its clients: closes the connections.
void tt_puts_disown(tt_proxy *p);
void tt_puts_free(tt_proxy *p);

// ---- the service thread

// The pair with a peer that asks for it; NULL: no memory.
tt_proxy_puts *tt_puts_wanted(tt_proxy_service *s, int rank, uint32_t behalf);
// The next step looks at the pairs with this peer.
void tt_puts_due(tt_proxy_service *s, int rank);
void tt_puts_step(tt_proxy_service *s, tt_proxy_puts *g, uint64_t now);
// Gives up what is being set up.
void tt_puts_cancel(tt_proxy_service *s);
