// proxy.h: moves messages between a rank's FIFOs and the network (seed 001). Front door of src/proxy.
//
// A proxy belongs to one rank of one communicator. Its service thread makes connections and exchanges states with the proxies of other ranks;
// its operations are driven by whoever runs the rank's plan, and by the process's progress thread when nobody does.
//
// A link over the network has ordinary FIFOs (device/fifo.h) in memory of this process. Sending, the proxy is their reader: it waits for slot
// seq, sends [bytes, sig, count, data] as one message, gives the slot back. Receiving, it is their writer. Which FIFO the next message of a
// connection belongs to, and how many there will be, say operations: both sides post the same ones in the same order.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "device/link.h"
#include "net/net.h"
#include "os/socket.h"

typedef struct tt_proxy tt_proxy;

typedef struct tt_proxy_env {
  int rank, nranks;
  uint64_t hash; // names the communicator
  tt_key key;    // known to its ranks only
  tt_port *port; // stopped (tt_port_stop) when a connection fails; its page and bell are the rank's
  const tt_net_ops *net;
} tt_proxy_env;

// Where a proxy's service listens. Travels over the bootstrap network.
typedef struct tt_proxy_where {
  tt_addrs addrs;
} tt_proxy_where;

// Starts to listen and starts the service thread (and the process's progress thread, once). Errors: ncclSystemError. Calling thread: init.
ncclResult_t tt_proxy_create(const tt_proxy_env *env, tt_proxy **out, tt_proxy_where *where);
// Says where the others are: `all` by rank, copied. Before the first tt_proxy_connect.
ncclResult_t tt_proxy_meet(tt_proxy *p, const tt_proxy_where *all);
// Tells connected peers the port's last state, ends the threads, closes everything. Operations that are not done are dropped. NULL is allowed.
void tt_proxy_destroy(tt_proxy *p);

// Takes on a link: link->send and link->recv[SIMPLE, LL] are laid out (tt_net_window_view: each payload follows its header line); sets
// link->page to a copy of the peer's page that the service thread keeps. Returns at once; the connection comes up behind the scenes, or stops the
// port. Launching thread. Errors: ncclSystemError (no memory).
ncclResult_t tt_proxy_connect(tt_proxy *p, tt_link *link);

// What a plan will send to, or receive from, one peer.
typedef struct tt_proxy_op {
  int peer;
  bool send;
  uint8_t proto;    // TT_SIMPLE or TT_LL
  uint8_t channel;  // lane of the plan, for profilers
  uint32_t nsteps;  // messages
  uint64_t nbytes;  // all of them together, about
  uint64_t opcount; // number of the plan
  uint64_t sig;     // fingerprint of the call
} tt_proxy_op;

// Adds an operation. Those of one peer and direction are executed in the order of the calls. Launching thread. Errors: ncclSystemError (no memory).
ncclResult_t tt_proxy_post(tt_proxy *p, const tt_proxy_op *op);

// Moves what can be moved; never waits. True when anything did. `insist`: if another thread is at it, make it look again. Any thread.
bool tt_proxy_progress(tt_proxy *p, bool insist);
// Are all operations done? Any thread.
bool tt_proxy_idle(const tt_proxy *p);
// Makes sure that the progress thread looks after operations that nobody drives. Any thread. Costs a load when it is awake.
void tt_proxy_kick(void);
// Threads that wait for streams, and so drive proxies, come (+1) and go or fall asleep (-1). While there are any, the progress thread stands back; when
// the last one leaves and operations are left, it is woken.
void tt_proxy_attend(int delta);

// The port's page has a new state: tell the peers. Any thread; returns at once.
void tt_proxy_state_changed(tt_proxy *p);
// Asks the peer's proxy for its state and the operation it is in; the link's page shows them when the answer is here. Any thread; returns at once;
// at most one question per peer and 50 ms.
void tt_proxy_ask(tt_proxy *p, int peer);

// One operation as it stands. Counts are messages; those of the seed: send posted >= transmitted >= done, receive posted >= received >= transmitted >=
// done.
typedef struct tt_proxy_op_state {
  tt_proxy_op op;
  uint32_t posted, received, transmitted, done;
  bool connected;
  uint64_t started_ns;
} tt_proxy_op_state;
// Copies the states of at most `max` operations that are not done; returns how many there are. Any thread.
int tt_proxy_states(tt_proxy *p, tt_proxy_op_state *out, int max);
