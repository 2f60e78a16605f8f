// socket_priv.h: the socket network's objects. For src/net/socket alone; README.md of src/net has the picture.
//
// A connection goes one way. Its control socket carries frames, each followed by its payload. With data sockets, a
// message longer than inline_max leaves only its frame there. frame.piece is the size of its pieces, piece i goes over
// data socket (data.next + i) % nsocks, where data.next goes on by the number of pieces on both sides. So each data
// socket carries a sequence of pieces without any header.
//
// Threads: a connection belongs to its caller (net.h: one thread at a time). Helper threads touch their data
// sockets, the requests' `left` and the connection's data.error, nothing else. The context's lists are changed under
// its lock, by single stores, so that a forked child can walk them without it.
#pragma once
#include "net/rendezvous/rendezvous.h"
#include "os/socket.h"
#include "os/thread.h"

enum {
  TT_SNET_AHEAD = 32 << 10, // bytes a receiver reads ahead
  TT_SNET_BULK = 8 << 10,   // from messages of this size on it reads no more ahead than the next frame,
  TT_SNET_EARLY = TT_SNET_AHEAD -
                  32, // and the payload with it, if no longer than this: read-ahead has room for what is not its own
  TT_SNET_RING = TT_NET_REQUESTS,    // a power of two
  TT_SNET_FRAME_MAGIC = 0x746e6574,  // "tent"
  TT_SNET_HANDLE_MAGIC = 0x32746e74, // "tnt2"
};

// Before each message. Host byte order: ranks of one job run on machines of one kind.
typedef struct tt_snet_frame {
  uint32_t check; // TT_SNET_FRAME_MAGIC ^ the message's number
  uint32_t piece; // 0: the payload follows; else bytes of each piece but the last
  uint64_t size;
} tt_snet_frame;
static_assert(sizeof(tt_snet_frame) == 16, "tt_snet_frame is sent as it is");
static_assert(TT_SNET_EARLY + 2 * sizeof(tt_snet_frame) <= TT_SNET_AHEAD, "what was read early has room there");

typedef struct tt_snet_conn tt_snet_conn;

typedef struct tt_snet {
  tt_rdv base; // its set of events: all sockets that no helper thread looks after, while `watched`; helper threads ring
               // its ring
  size_t inline_max, min_piece;
  bool watched; // under the lock
  int one_way;  // large messages sent since a receive for one was posted; of all connections; relaxed
  tt_snet_conn *conns;
} tt_snet;

// One isend or irecv. Free: conn is NULL.
typedef struct tt_snet_req {
  tt_snet_conn *conn;
  uint32_t number; // of the message
  uint32_t left;   // pieces under way; release on the last one's end, acquire by test
  char *data;      // first part
  char *rest;      // second part
  size_t split;    // bytes of the first part
  size_t room;     // send: bytes of the message; receive: of the buffer
  size_t size;     // bytes of the message
  uint32_t piece;  // as in the frame
  bool spare;      // as in net.h
} tt_snet_req;

// What one data socket moves for one message.
typedef struct tt_snet_piece {
  char *data;
  size_t size;
  size_t keep; // bytes of it that fit the buffer; the rest is read and dropped
  tt_snet_req *req;
} tt_snet_piece;

// The caller owns `tail`; the thread that drives the socket owns `head` and `moved`. A request has one piece per socket
// at most, so the ring never overflows.
typedef struct tt_snet_sock {
  int fd;
  uint32_t tail; // release on push, acquire by the driver
  uint32_t head; // relaxed
  size_t moved;  // of the first piece
  tt_snet_piece ring[TT_SNET_RING];
} tt_snet_sock;

// A helper thread, and how it sleeps: the caller pushes pieces, raises `work`, then looks at `asleep`; the thread sets
// `asleep`, then looks at `work`, then polls. Both are sequentially consistent, so one of the two sees the other.
typedef struct tt_snet_helper {
  tt_thread thread;
  tt_snet_conn *conn;
  int index; // looks after sockets index, index + nthreads, …
  int ring;  // rung to wake it
  uint32_t work;
  uint32_t asleep;
  uint32_t stop;
} tt_snet_helper;

// Which control socket a connection uses. Under the context's lock.
typedef struct tt_snet_share {
  uint32_t wire;      // the attempt that made it
  bool paired;        // no further connection may share it
  tt_snet_conn *twin; // the one that does
} tt_snet_share;

// The data sockets and the threads that look after them.
typedef struct tt_snet_data {
  int nsocks, nthreads;
  bool helped;    // helper threads run
  uint32_t next;  // socket of the next piece
  uint32_t error; // errno of a helper thread; set once, release; acquire by the caller
  tt_snet_sock *socks;
  tt_snet_helper *helpers;
} tt_snet_data;

// What a receiver has read ahead.
typedef struct tt_snet_ahead {
  char *bytes; // TT_SNET_AHEAD
  size_t at, end;
  size_t early;    // bytes behind the frame that lie in the front's buffer; 0 but between read_some and use_ahead
  bool have_frame; // the front's is complete
  bool bulk;       // the last message was a large one
} tt_snet_ahead;

// For how long nothing gets on.
typedef struct tt_snet_stall {
  uint64_t since_ns; // 0: something does
  uint64_t look_ns;  // when to look at the silence again
  unsigned looks;    // without success
} tt_snet_stall;

struct tt_snet_conn {
  tt_snet *net;
  tt_snet_conn *next;
  bool send;
  int peer, dev;
  int fd;     // control socket
  tt_addr at; // the peer's
  tt_snet_share share;
  tt_snet_data data;

  uint32_t posted;     // messages ever posted
  uint32_t front;      // the first of them that is not through with the control socket
  tt_snet_frame frame; // of the front
  // Send: bytes of frame and payload sent; receive: bytes of the payload received, when there is the frame.
  size_t moved;
  tt_snet_ahead ahead; // receive
  tt_snet_stall stall;
  ncclResult_t failed;
  char why[320];
  tt_snet_req reqs[TT_SNET_RING];
};

// ---- conn.c ---- Makes a connection of open sockets and adds it to the context's list. The sockets stay the caller's
// where this fails. Errors: ncclSystemError.
ncclResult_t tt_snet_conn_create(tt_snet *net, const tt_rdv_ends *ends, tt_snet_conn **out);
// Ends the helper threads and closes everything, also with requests under way. NULL is allowed.
void tt_snet_conn_destroy(tt_snet_conn *c);
// Finds a connection with `peer`, sending or not, that can share its control socket (with one called `wire`; 0: any),
// and copies the descriptor. Returns what it is called; 0: there is none. No other will share it.
uint32_t tt_snet_conn_share(tt_snet *net, int peer, bool send, uint32_t wire, int *fd);
// In a forked child: closes the descriptors.
void tt_snet_conn_forget(tt_snet_conn *c);
// The connection has failed with -errno (or a text of our own). Says so once; returns the code.
ncclResult_t tt_snet_conn_fail(tt_snet_conn *c, int e, const char *why);
// A failed connection's code again, with its text as the last error.
ncclResult_t tt_snet_conn_failed(const tt_snet_conn *c);
// The next request, with its memory: *out, NULL when all are in use. It is not under way before `posted` is raised.
// Errors: that of the connection.
ncclResult_t tt_snet_req_begin(tt_snet_conn *c, const tt_net_part parts[2], tt_snet_req **out);
// The number'th message's request.
static inline tt_snet_req *tt_snet_req_of(tt_snet_conn *c, uint32_t number)
{
  return &c->reqs[number % TT_SNET_RING];
}
// True when the control socket is through with it and no piece is under way.
static inline bool tt_snet_req_done(const tt_snet_req *r)
{
  return (int32_t)(r->conn->front - r->number) > 0 && __atomic_load_n(&r->left, __ATOMIC_ACQUIRE) == 0;
}

// ---- watch.c ----
// net.h's watch_events.
int tt_snet_watch_events(void *ctx, bool on);
// The connection's sockets that no helper thread looks after join the set of events, if that is watched, or show that
// they can. 0 or -errno: then none has. Caller holds the context's lock, as for the next one.
int tt_snet_conn_join(const tt_snet_conn *c);
// They leave it. The descriptors are still open.
void tt_snet_conn_leave(const tt_snet_conn *c);
// The connection has no helper threads after all. Takes the lock.
void tt_snet_conn_unhelped(tt_snet_conn *c);

// ---- send.c, recv.c ----
ncclResult_t tt_snet_isend(void *comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request);
ncclResult_t tt_snet_irecv(void *comm, int n, void **data, const size_t *sizes, const int *tags, void **mhandles,
                           void **phandles, void **request);
ncclResult_t tt_snet_isend_parts(void *comm, const tt_net_part parts[2], int tag, void *phandle, void **request);
ncclResult_t tt_snet_irecv_parts(void *comm, const tt_net_part parts[2], int tag, void *phandle, void **request);
bool tt_snet_has_parts(void *comm);
ncclResult_t tt_snet_test(void *request, int *done, size_t *sizes);
// The pieces of memory between two bytes of the request's buffer. Returns how many.
static inline int tt_snet_req_pieces(const tt_snet_req *r, size_t from, size_t to, struct iovec pieces[2])
{
  int n = 0;
  if (from < TT_MIN(to, r->split)) {
    pieces[n++] = (struct iovec){.iov_base = r->data + from, .iov_len = TT_MIN(to, r->split) - from};
  }
  if (TT_MAX(from, r->split) < to) {
    from = TT_MAX(from, r->split);
    pieces[n++] = (struct iovec){.iov_base = r->rest + (from - r->split), .iov_len = to - from};
  }
  return n;
}
// Sends what the control socket takes. Receives what it has, for the requests that are posted.
ncclResult_t tt_snet_send_drive(tt_snet_conn *c);
ncclResult_t tt_snet_recv_drive(tt_snet_conn *c);

// ---- stripe.c ----
// Bytes of each piece of a message; 0: it is not cut. Pure.
uint32_t tt_snet_piece_size(const tt_snet *net, int nsocks, size_t size);
// True when a message of that size can be cut so over that many sockets. Pure.
bool tt_snet_piece_fits(uint32_t piece, uint64_t size, int nsocks);
// Gives the data sockets their pieces of a request; wakes the helper threads, or moves what can be moved at once.
ncclResult_t tt_snet_stripe(tt_snet_conn *c, tt_snet_req *r);
// Moves what can be moved on all data sockets, unless helper threads do. Reports what went wrong there.
ncclResult_t tt_snet_stripe_drive(tt_snet_conn *c);
// Can no piece on the data sockets move on until the peer reads? False also while a helper thread is at work.
bool tt_snet_stripe_stands(const tt_snet_conn *c);
// Moves what can be moved on one data socket. True in *moved when anything was; 0 or -errno.
int tt_snet_sock_drive(tt_snet_conn *c, tt_snet_sock *s, bool *moved);
// True when the socket has pieces to move.
static inline bool tt_snet_sock_busy(const tt_snet_sock *s)
{
  return __atomic_load_n(&s->tail, __ATOMIC_ACQUIRE) != __atomic_load_n(&s->head, __ATOMIC_RELAXED);
}

// ---- helper.c ---- Starts the connection's helper threads; without them (the machine refuses threads) the caller
// drives the data sockets. Once.
void tt_snet_helpers_start(tt_snet_conn *c);
void tt_snet_helpers_stop(tt_snet_conn *c);
void tt_snet_helpers_wake(tt_snet_conn *c);
// Do all of them sleep? Then what they have done before can be seen.
bool tt_snet_helpers_rest(const tt_snet_conn *c);

// ---- connect.c ----
// The rows of tt_net_ops (net/net.h) of these names, with the same arguments, threads and errors.
ncclResult_t tt_snet_accept(void *listen_comm, void **recv_comm);
ncclResult_t tt_snet_connect(void *ctx, int dev, void *handle, void **send_comm);
