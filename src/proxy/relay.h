// relay.h: a rank that sends through a neighbour's proxy, its relay (seed 001: the proxy's rank is the one nearest to
// the network device; NCCL calls it PXN).
//
//   sender (relay.c)                                 relay (client.c)                                   receiver
//   its executor fills slots in memory that both map -> the relay's proxy gives them to its network  -> as from anybody
//   its proxy forwards operations through a ring     -> they become operations of the relay's proxy
//   its proxy retires operations                     <- the relay counts messages that are done, and moves the heads
//
// To the relay the sender is a client: a connection whose FIFOs are the client's. The thread that drives the relay's
// proxy drives it too. The two proxies wake each other by doorbells. Before a progress thread rests, it says so in the
// shared memory (`rests`), fences, and looks once more. A thread that has published something fences, and rings the
// other process's progress thread if that rests. So either the thread's look sees what was published, or the publisher
// sees that it rests (the protocol of os/bell.h). A proxy that an attending thread drives says nothing: that thread
// looks by itself.
//
// The relay stays until its clients have left: a proxy that is destroyed before them lives on without its rank
// (client.c), in the same process. A relay that is unavailable does no harm: until it has taken the sender on, the
// sender can still connect by itself.
#pragma once
#include "os/events.h"
#include "proxy/service_priv.h"

enum { TT_RELAY_RING = 32 };

// An operation on its way to the relay. Pointers in it mean nothing there.
typedef struct tt_relay_op {
  tt_proxy_op op;
  tt_proxy_event event; // pid 0: no profiler follows it
} tt_relay_op;

// What the two share, at the start of the memory. Each side writes its own line, but for `rests`, which the other side
// takes back.
typedef struct tt_relay_shared {
  _Alignas(TT_CACHE_LINE) _Atomic uint32_t posted; // sender: operations put into the ring (release)
  _Atomic uint32_t sender_rests;
  _Alignas(TT_CACHE_LINE) _Atomic uint32_t taken; // relay: operations taken out of it (release)
  _Atomic uint32_t transmitted, done;             // relay: messages given to the network; sent (release)
  _Atomic uint32_t relay_rests;
  _Alignas(TT_CACHE_LINE) tt_relay_op ops[TT_RELAY_RING];
} tt_relay_shared;
_Static_assert(sizeof(tt_relay_op) == 136 && sizeof(tt_relay_shared) <= TT_PROXY_SHARE_HEAD, "shared memory layout");

// The sender's half.
typedef struct tt_relay {
  struct tt_relay *next; // of the proxy; the launching thread adds
  tt_proxy_conn *conn;   // NULL: the rank does without
  int via, peer;
  tt_span pair; // relay and peer, in tt_proxy.relay_pairs; size 0: not there. The service thread's
  tt_relay_shared *shared;
  char *base; // of the memory: the transport's
  size_t size;
  int fd;           // of the memory, until it is handed over. The service's from the link on
  _Atomic int bell; // the relay's doorbell; -1: not known yet. Written by the service thread
  // Written by the service thread; text before ended (release).
  bool asked, taken_on;
  _Atomic bool ended; // the relay sends no more
  char text[256];
  // The run flag's holder's:
  uint32_t forwarded;               // operations put into the ring
  uint32_t done;                    // messages
  uint32_t noticed[TT_PROXY_FIFOS]; // messages that the executor was seen to have published
} tt_relay;

// The relay's half.
typedef struct tt_relay_client {
  struct tt_relay_client *next,
      **at;          // of the proxy; at: what points to it. Changed by the service thread with the run flag held
  tt_span pair, end; // sender and receiver, in tt_proxy.client_pairs; the other way round, in tt_proxy.client_ends
  int rank;          // the sender
  bool foreign;      // which is in another process
  tt_relay_shared *shared;
  size_t size;
  int bell;                           // the sender's doorbell
  tt_proxy_peer peer;                 // the receiver: its rank and the connection to it; the rest is not used
  uint32_t taken;                     // operations taken out of the ring. The run flag's holder's, as are the items
  tt_proxy_item items[TT_RELAY_RING]; // each at its operation's number modulo TT_RELAY_RING
  // The service thread's:
  tt_proxy_ties ties; // the sending end of the connection's setup; `out` is borrowed from the relay's own ties
  bool refused;       // the sender knows that the relay sends no more
  bool leaving;       // the next step forgets it
} tt_relay_client;

// Rings if the other side rests. After publishing.
static inline void tt_relay_knock(_Atomic uint32_t *rests, int bell)
{
  tt_bell_fence();
  if (TT_UNLIKELY(atomic_load_explicit(rests, memory_order_relaxed) != 0) && bell >= 0 &&
      atomic_exchange(rests, 0) != 0) {
    tt_ring(bell);
  }
}

// Descriptors travel under keys that only ranks of the communicator can know. What they are: TT_RELAY_….
enum { TT_RELAY_MEMORY = 1, TT_RELAY_SENDER_BELL, TT_RELAY_BELL };
tt_fdkey tt_relay_key(const tt_key *key, int what, int sender, int peer);

// ---- relay.c; run flag held

// One round over a connection that goes through a relay. True when slots have come back.
bool tt_relay_round(tt_proxy_conn *c);
// The progress thread will rest: relays and clients shall ring. A fence must follow.
void tt_relay_rest(tt_proxy *p);

// ---- relay.c; service thread

// Finds the neighbours that may send for this rank, by device; tt_proxy_meet calls it, in the launching thread.
void tt_relay_find(tt_proxy_service *s);
// A link through a relay was taken on.
void tt_relay_begin(tt_proxy_service *s, tt_relay *r);
// The relay has been reached, and is asked to take this rank on.
void tt_relay_reached(tt_proxy_service *s, int via);
// The relay cannot be reached (any more): `why`. A rank that it has not taken on connects by itself.
void tt_relay_lost(tt_proxy_service *s, int via, const char *why);
// The relay has answered.
void tt_relay_answer(tt_proxy_service *s, int via, const tt_msg *m);
// The rank leaves its relays, and tells them: after tt_relay_detach, which needs the run flag, and after which its
// connections go through nobody.
void tt_relay_leave(tt_proxy_service *s);
void tt_relay_detach(tt_proxy *p);
// Frees the halves of a proxy that nobody drives any more; the memory is the transport's.
void tt_relay_free(tt_proxy *p);
void tt_relay_forget(tt_proxy *p);

// ---- client.c; run flag held

// One round over all clients. True when anything was sent.
bool tt_client_round(tt_proxy *p);
void tt_client_rest(tt_proxy *p);
// The port is stopped: nothing of the clients' is sent any more.
void tt_client_drop(tt_proxy *p);
// Ends the clients' events at the rank's profilers.
void tt_client_prof_leave(tt_proxy *p);
// Adds the states of the clients' operations, as tt_proxy_items_states.
int tt_client_states(const tt_proxy *p, tt_proxy_op_state *out, int n, int max);

// ---- client.c; service thread

// GET_FD has come.
void tt_client_message(tt_proxy_service *s, tt_proxy_talk *k, const tt_msg *m);
// Goes on with a client's connection, or forgets a client that leaves.
void tt_client_step(tt_proxy_service *s, tt_relay_client *g, uint64_t now);
// The next step looks at the clients that send to the peer.
void tt_client_due(tt_proxy_service *s, int peer);
// The client for whom an ANSWER of `peer` is, or NULL.
tt_relay_client *tt_client_find(const tt_proxy *p, int rank, int peer);
// Are there clients? Forgets those that have left.
bool tt_client_any(tt_proxy_service *s);
// The control connection of a rank has ended: its clients leave.
void tt_client_gone(tt_proxy_service *s, int rank);
// The peer cannot be reached: the thread's last error says why. Tells the senders of clients for it.
void tt_client_unreachable(tt_proxy_service *s, int peer);
// Frees all. Nobody drives the proxy any more.
void tt_client_free(tt_proxy *p);
void tt_client_forget(tt_proxy *p);

// ---- client.c; any thread

// The rank has gone: when the process ends in good order, it shall do so after the clients that other processes have
// here. Those that have nothing to send are waited for a few seconds.
void tt_client_outlive(tt_proxy *p);
