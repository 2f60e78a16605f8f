// proxy.h: moves messages between a rank's FIFOs and the network (seed 001). Front door of src/proxy.
//
// A proxy belongs to one rank of one communicator. Its service thread makes connections and exchanges states with the
// proxies of other ranks. The thread that runs the rank's plan drives its operations too. When there is none, the
// process's progress thread does.
//
// A link over the network has ordinary FIFOs (device/fifo.h) in memory of this process. Sending, the proxy is their
// reader: it waits for slot seq, sends [bytes, sig, count, data] as one message, gives the slot back. Receiving, it is
// their writer. Which FIFO the next message of a connection belongs to, and how many there will be, say operations:
// both sides post the same ones in the same order.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "device/lane.h"
#include "net/net.h"
#include "os/fdbox.h"
#include "plugin/profiler/profiler.h"
#include "os/socket.h"

typedef struct tt_proxy tt_proxy;
struct tt_rma;
struct tt_rma_link;

typedef struct tt_proxy_env {
  int rank, nranks;
  uint64_t hash; // names the communicator
  tt_key key;    // known to its ranks only
  tt_port *port; // stopped (tt_port_stop) when a connection fails; its page and bell are the rank's
  struct tt_bootstrap
      *ring; // of the communicator; looked after between its calls; outlives the rank's proxy. NULL: none
  const tt_net_ops *net;
  int device; // of the network, to begin with (modulo the number there is); others are tried when it leads nowhere
  // Which ranks have memory in common, for those that send through a neighbour's proxy: number of the node, and the
  // rank's place among its ranks. Where all ranks have the same number of devices, and more than one, `place` is added
  // to `device`.
  int node, place;
  const int *gpus;         // device that each rank was created on, for the log; copied. NULL: 0 for all
  const char *mailbox;     // of the process (os/fdbox.h); NULL: no descriptors are passed
  tt_profilers *profilers; // of the rank; held. NULL: none
} tt_proxy_env;

// Where a proxy's service listens, and what else its peers must know. Travels over the bootstrap network.
typedef struct tt_proxy_where {
  tt_addrs addrs;
  int32_t node, place, ndevices, pid;
  int64_t mbits; // Mbit/s of all its devices, as far as they say
  char mailbox[TT_FDBOX_NAME];
} tt_proxy_where;
static_assert(sizeof(tt_proxy_where) == 264, "tt_proxy_where is sent as it is");

// Starts to listen and starts the service thread (and the process's progress thread, once). Errors: ncclSystemError.
// Calling thread: init.
ncclResult_t tt_proxy_create(const tt_proxy_env *env, tt_proxy **out, tt_proxy_where *where);
// Says where the others are: `all` by rank, copied. Before the first tt_proxy_connect.
ncclResult_t tt_proxy_meet(tt_proxy *p, const tt_proxy_where *all);
// Tells connected peers the port's last state, ends the service thread, closes everything. A proxy that sends for
// neighbours does so until these have left, without its rank: then it only forgets the rank, and ends later by itself.
// Operations that are not done are dropped (wait for tt_proxy_idle first where they matter: a plan can be complete
// before its last messages are sent). Waits for no peer, but for at most 100 ms until the last words are sent. Before
// the links' FIFOs are freed; the links' pages go with the proxy. NULL is allowed.
void tt_proxy_destroy(tt_proxy *p);

// Takes on a link: link->send and link->recv[SIMPLE, LL] are laid out (each payload directly behind its header:
// data_stride is stride); sets link->page to a copy of the peer's page that the service thread keeps. Returns at once;
// the connection comes up behind the scenes, or stops the port. Launching thread. Errors: ncclSystemError (no memory),
// ncclInternalError (another layout).
ncclResult_t tt_proxy_connect(tt_proxy *p, tt_link *link);

// Waits until all links that were taken on can send (a neighbour's proxy that takes the messages counts as that), or
// one cannot: the port has stopped, its peer has ended, the abort flag is set, or `timeout_ns` have passed. Peers that
// do not answer meanwhile stop the port (tt_proxy_probe). Launching thread. Errors: that of the port, ncclRemoteError,
// ncclInternalError (aborted).
ncclResult_t tt_proxy_await_links(tt_proxy *p, uint64_t timeout_ns);

// Memory of the user's that will be sent from and received into again. A network that wants memory registered gets it
// when a connection first uses it (regs.c). Other memory, but for that of ncclMemAlloc, goes by way of the slots. Each
// call undoes one of the other. A message that is using the memory goes on using it. Any thread; they wait for the time
// of a look when another thread drives the proxy. Errors: ncclSystemError (no memory).
ncclResult_t tt_proxy_register(tt_proxy *p, void *base, size_t size);
void tt_proxy_deregister(tt_proxy *p, void *base, size_t size);

// The rank whose proxy sends this rank's messages to `peer`, or -1: its own. By NCCL_PXN_DISABLE and
// NCCL_P2P_PXN_LEVEL: a neighbour whose device is that of the peer, when there are several. After tt_proxy_meet. Any
// thread.
int tt_proxy_relay_of(const tt_proxy *p, int peer);

// One-sided operations with ranks that share no memory (device/rma_link.h). What peers send for the windows of `rma` is
// taken from here on, by whichever thread drives the proxy, until tt_proxy_puts_end returns: before `rma` is freed.
// Launching thread.
void tt_proxy_puts_begin(tt_proxy *p, struct tt_rma *rma);
void tt_proxy_puts_end(tt_proxy *p);
// Where messages for this peer are written, of a link that was taken on. Returns at once: they wait there until the
// connection stands. Launching thread. Errors: ncclSystemError (no memory).
ncclResult_t tt_proxy_puts_open(tt_proxy *p, int rank, struct tt_rma_link **out);

// Memory that the neighbour's proxy maps too: the first TT_PROXY_SHARE_HEAD bytes are the proxies', then come the FIFOs
// of link->send.
enum { TT_PROXY_SHARE_HEAD = 8192 };
typedef struct tt_proxy_share {
  int via; // of tt_proxy_relay_of
  int fd;  // the proxy closes it
  char *base;
  size_t size;
} tt_proxy_share;
// As tt_proxy_connect, for a link whose messages the relay sends. Every payload lies in its slot (link->staged). A
// rank whose relay is unavailable connects by itself. The memory stays mapped until the proxy is destroyed.
ncclResult_t tt_proxy_connect_shared(tt_proxy *p, tt_link *link, const tt_proxy_share *share);

// How to find out where the messages of a receive belong: message k is taken by step steps[k % messages] of the lane's
// schedule in pass k / messages (tt_lane_place). The lane stays as long as the operation is not done, and so do its
// call's buffers. lane NULL: all go into the FIFO.
typedef struct tt_proxy_place {
  const tt_lane *lane;
  const uint32_t *steps;
  uint32_t messages;
} tt_proxy_place;

// What a plan will send to, or receive from, one peer.
typedef struct tt_proxy_op {
  int peer;
  bool send;
  uint8_t proto;   // TT_SIMPLE or TT_LL
  uint8_t channel; // of the operation; messages of a group count as so many channels
  // What is staged may lie in memory that all connections of the rank share: for operations with many peers.
  bool shared;
  uint32_t nsteps;            // messages
  uint32_t behalf;            // 1 + the rank whose operation this is, when the proxy sends for a neighbour; 0: its own
  uint32_t chunk;             // bytes of the longest of them
  uint64_t nbytes;            // all of them together, about
  uint64_t opcount;           // number of the plan
  uint64_t sig;               // fingerprint of the call
  uint64_t count;             // and its count, as messages carry them
  const tt_prof_event *event; // the profilers' event that it belongs to, copied; NULL: nobody wants to know of it
  tt_proxy_place place;
} tt_proxy_op;

// Adds an operation on a link that was taken on. Those of one peer and direction are executed in the order of the
// calls. Nobody is woken: tt_proxy_progress or tt_proxy_kick must follow. Launching thread (one at a time). Errors:
// ncclSystemError (no memory).
ncclResult_t tt_proxy_post(tt_proxy *p, const tt_proxy_op *op);

// Moves what can be moved; never waits. True when a FIFO has changed: messages arrived or slots were given back.
// `insist`: if another thread is at it, make it look again. Any thread; also for a proxy that was just destroyed.
bool tt_proxy_progress(tt_proxy *p, bool insist);
// Are all operations done (everything sent, everything received in the FIFOs; or dropped, when the port is stopped)?
// Any thread.
bool tt_proxy_idle(const tt_proxy *p);
// The caller leaves, and nobody drives this proxy's operations from here: the progress thread shall. Costs two loads
// when there are none. To be called after tt_proxy_progress, when a plan is left blocked or is complete before its
// operations are. Any thread.
//
// `lazily`: the caller will probably come back to wait, and attend. Then the progress thread finds the operations when
// it looks next, within a tick; it is only woken when it would not look at all.
void tt_proxy_kick(tt_proxy *p, bool lazily);
// Threads that wait for streams, or run them for others (the worker), and so drive proxies, come (+1) and go or fall
// asleep (-1; before their last look). While there are any, the progress thread stands back; when the last one leaves
// and operations are left, it is woken. Any thread.
void tt_proxy_attend(int delta);
// The functions of a port that has a proxy; `self` is the tt_proxy.
extern const tt_mover tt_proxy_mover;

// The port's page has a new state: tell the peers. Any thread; returns at once.
void tt_proxy_state_changed(tt_proxy *p);
// The rank waits for this peer, on whichever machine. Asks the peer's proxy for its state and the operation it is in; a
// network link's page shows them when the answer is here. When there is no answer for NCCL_NET_TIMEOUT while the rank
// keeps waiting (and asking), the port is stopped with ncclRemoteError: the peer's process does not run, or cannot be
// reached. Any thread; returns at once; at most one question per peer, and four to all peers, in 50 ms: the others have
// to be tried again.
void tt_proxy_probe(tt_proxy *p, int peer);

// Can nothing of what the network has taken for this peer, and has not sent, move on until the peer takes some? False
// also where nobody knows: no connection yet, a neighbour's proxy, a network that cannot tell. Any thread.
bool tt_proxy_stands(tt_proxy *p, int peer);
// Asks all connected peers how many messages they have sent to this rank and got from it; waits for the answers, but
// 200 ms at most (up to 400 where threads wait for cores), and not when the port is stopped or aborted. One thread at a
// time.
void tt_proxy_census(tt_proxy *p);
// What is lost of this rank's messages with the peer, as far as the peer has said (tt_unread). When all operations of
// this rank are over. Any thread.
tt_unread tt_proxy_unread(tt_proxy *p, int peer);

// One operation as it stands. Counts are messages, each at most the one before, as in the seed.
//   Send:    posted (slots that the executor may have filled), transmitted (the network has them), done (sent, and the
//            slot returned).
//   Receive: posted (the network has the slots), received, transmitted (flushed and published), done (the executor has
//            returned the slot).
typedef struct tt_proxy_op_state {
  tt_proxy_op op;
  uint32_t posted, received, transmitted, done;
  bool connected;
  uint64_t started_ns;
} tt_proxy_op_state;
// Copies the states of at most `max` operations that are not done; returns how many there are. Any thread.
int tt_proxy_states(tt_proxy *p, tt_proxy_op_state *out, int max);
