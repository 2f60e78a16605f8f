// proxy_priv.h: what the files of this folder share.
//
// README.md lists the files.
#pragma once
#include <pthread.h>

#include "base/spans.h"
#include "proxy/messages.h"
#include "proxy/proxy.h"

typedef struct tt_proxy_conn tt_proxy_conn;
struct tt_relay;
struct tt_relay_client;
typedef struct tt_proxy_peer tt_proxy_peer;
typedef struct tt_proxy_prof tt_proxy_prof;
typedef struct tt_proxy_puts tt_proxy_puts;

enum {
  TT_PROXY_FIFOS = 2,   // TT_SIMPLE and TT_LL
  TT_PROXY_HEAD = 20,   // bytes of a message before its payload or padding: size, fingerprint, count
  TT_PROXY_WHOLE = 0,   // tag of a message, or of its header,
  TT_PROXY_PAYLOAD = 1, // and of a payload that is a message of its own
  TT_PROXY_BUFFERS = 8, // staging buffers of one connection, at most
  TT_PROXY_EXTRAS = 16, // staging buffers of all connections of a direction beyond the first of each, at most
  TT_PROXY_ITEMS = 64   // places for operations that are allocated at once
};

// A posted operation. The launching thread owns it until it is posted, then the run flag's holder until it is retired.
// Items are never given back to the system: they stay with the proxy's place in the table.
typedef struct tt_proxy_item {
  struct tt_proxy_item *after; // it is used after this one, in the ring of all. The launching thread's
  struct tt_proxy_item *next;  // list of incoming ones, or queue of its connection
  _Atomic bool busy;           // it is posted; false (release) returns it to the launching thread
  bool agreed; // receive: a message with the same fingerprint and count has come, so the peer is in the same call
  tt_proxy_conn *conn;
  tt_proxy_op op;
  tt_proxy_prof *prof;                          // its profiler events; NULL: no profiler wants them
  uint32_t posted, received, transmitted, done; // as in tt_proxy_op_state; done: sends only
  uint32_t base;                                // receives: number, in its FIFO, of the first message
  uint64_t started_ns;                          // 0: just now
} tt_proxy_item;

// The proxy's view of a FIFO of a link.
typedef struct tt_proxy_fifo {
  char *slots;
  _Atomic uint32_t *head; // send: written by the proxy; receive: read
  uint32_t stride, mask;
  uint32_t at;       // bytes from a slot's start to its payload
  uint32_t capacity; // payload bytes per slot
  uint32_t next;     // number of the next message: to be given to the network, or to be received into
  uint32_t seen;     // receive: last value of head it has read
  void *mhandle;
} tt_proxy_fifo;

// Memory of the user's that a connection's network knows. It is found in two sets, until it is gone.
typedef struct tt_proxy_mr {
  tt_span in_conn, in_proxy; // its extent, in tt_proxy_conn.mrs and in tt_proxy.mrs
  tt_proxy_conn *conn;
  void *mhandle;
  uint32_t users;           // messages under way in it
  bool failed;              // the network does not want it
  bool gone;                // to be deregistered as soon as nobody uses it; found by nobody
  struct tt_proxy_mr *next; // gone: of the connection's list
} tt_proxy_mr;

// Room for one payload in memory that connections share (pool.c).
typedef struct tt_proxy_buffer {
  struct tt_proxy_buffer *next; // free list
  struct tt_proxy_slab *slab;
  char *data;
  uint32_t number; // of the message in it
  tt_proxy_mr *mr; // its memory, on the connection that has it
} tt_proxy_buffer;

typedef struct tt_proxy_slab {
  struct tt_proxy_slab *next;
  char *base;
  size_t size;
  tt_proxy_buffer buffers[16];
} tt_proxy_slab;

// What the connections of one direction share. The run flag's holder's.
typedef struct tt_proxy_pool {
  tt_proxy_slab *slabs;
  tt_proxy_buffer *free;
  size_t bytes;           // of a staging buffer; 0: there are none
  uint32_t extras;        // staging buffers that are given out, but for the first of each connection
  uint32_t collected;     // round in which all connections were last looked at
  tt_proxy_conn *holders; // connections that have staging buffers, or had some
} tt_proxy_pool;

// A message under way.
typedef struct tt_proxy_step {
  void *request; // the network's; receive: first that of irecv, then that of iflush (NULL: nothing to wait for)
  tt_proxy_item *item;
  tt_slot *slot;
  uint32_t number; // in its FIFO
  bool two;        // header and payload are messages of the network's own
  bool unsure;     // receive: the header will say whether it is `two`
  bool headed;     // receive: the header, or the whole of it, has come
  bool grouped;    // receive: two, and `request` is that of both
  void *payload;   // two: the request of the payload; NULL: none yet, or done
  char *place;     // where the payload goes, or (two) comes from; NULL: the slot
  size_t room;     // receive: and how much of it
  bool staged;     // two: the place is a staging buffer, not the user's
  tt_proxy_mr *mr; // two: whose memory that is; NULL: it need not be known
  void *phandle;   // goes to the network with the message (tt_proxy_prof_handle)
} tt_proxy_step;

enum { TT_CONN_NONE, TT_CONN_READY, TT_CONN_BROKEN };

// One direction of traffic with one peer.
struct tt_proxy_conn {
  tt_proxy *proxy;
  tt_proxy_peer *peer;
  bool send;
  bool counts; // its operations are of those that tt_proxy_post has counted
  // The service thread writes comm, flush and groups, then stage READY (release). The run flag's holder turns it into
  // BROKEN (release), after code and text.
  _Atomic uint32_t stage;
  bool flush;  // the network wants a flush after every receive
  bool groups; // receive: one irecv takes several buffers
  void *comm;
  ncclResult_t code;
  char text[256];
  _Atomic bool attached;    // fifo[] is filled in. Written by the launching thread (release)
  _Atomic uint32_t counted; // messages given to the network, or published, so far. Written by the run flag's holder,
                            // read by the service thread
  _Atomic uint32_t freed;   // sending: messages whose slots the lanes have back, so far. The same
  _Atomic(struct tt_relay *) relay; // a neighbour's proxy does the sending. Written before `attached`, taken away by
                                    // the service thread with the run flag held
  struct tt_relay_client *client;   // the messages are those of this neighbour
  // The run flag's holder alone:
  bool usable; // ready, attached, memory registered
  bool parts;  // the network takes messages in two parts
  bool split;  // it does not: payloads from TT_LEND_MIN on are messages of their own, at both ends
  bool owes;   // split: the last message's header is given to the network, its payload is not yet
  bool unsure; // receive, split: the last message may be one in two; nothing more is posted before its header is here
  bool jammed; // receive, split: the peer is in another call; what else it sends cannot be told apart
  bool active; // in the proxy's list: first != NULL
  tt_proxy_conn *next_active;
  uint32_t depth;    // messages that may be under way
  uint32_t abroad;   // split: of these with a payload in the user's memory
  tt_span *mrs;      // what it has registered of that, or tried to
  tt_proxy_mr *gone; // of that, what was taken away while messages were under way in it
  struct {
    tt_proxy_buffer *buffers[TT_PROXY_BUFFERS]; // each at its message's number modulo TT_PROXY_BUFFERS; NULL: none
    uint32_t n;
    bool listed; // in its pool's list
    tt_proxy_conn *next;
  } staging;
  tt_proxy_fifo fifo[TT_PROXY_FIFOS];
  tt_proxy_item *first, *poster,
      **last; // operations in order; `poster` is the one that gives messages to the network now (NULL: all have)
  // Messages given to the network, received, finished with; place in steps[] is the number modulo TT_NET_REQUESTS.
  uint32_t posted, received, finished;
  tt_proxy_step steps[TT_NET_REQUESTS];
  tt_prof_net *net_prof; // what the network may tell of its messages; NULL: nobody has wanted to know yet
};

struct tt_proxy_peer {
  tt_rank_page page; // the copy that link->page points to: state, sig, count. Written by the service thread
  int rank;
  tt_proxy_conn send, recv;
  // What the peer has said last: messages that it has sent to this rank, and, in the upper half, got from it. The
  // service thread writes, any reads.
  _Atomic uint64_t counts;
  _Atomic bool gone;          // that was its last word: it has left in order
  struct tt_proxy_ties *ties; // the service's part
};

// A proxy. Lives in a table that is never given back to the system, so that the progress thread and helpers may look at
// one that was just destroyed: they find no operations.
struct tt_proxy {
  // 0 free, 1 taken, 2 taken and somebody asked meanwhile: the holder looks again before it leaves.
  _Alignas(TT_CACHE_LINE) _Atomic int run;
  _Atomic uint32_t finished; // operations done or dropped. Written by the run flag's holder (release)
  _Atomic uint32_t driven;   // calls of tt_proxy_progress that held the flag; by the holder
  _Atomic bool left;         // kicked, and not driven since: the progress thread need not stand back
  _Atomic bool refused; // the network said "not now" to a connection with nothing under way: no event will tell when to
                        // try again
  _Atomic uint32_t unsent; // messages that the network has taken and not sent yet. Written by the run flag's holder
  // The holder's, up to `memory`:
  bool dropped;               // the port is stopped, and the operations have been dropped
  uint32_t rounds;            // since new operations were last taken on
  uint32_t round;             // counts rounds
  int unstamped;              // rounds until new operations get their time
  tt_proxy_conn *active[2];   // connections with operations: that receive, that send
  struct tt_proxy_sums *sums; // the link with a network that reduces; NULL: none
  struct {
    _Atomic bool registers; // the network wants memory registered, and the user does not mind. Written by create
    bool shares;            // NCCL_NET_SHARED_BUFFERS
    bool said;              // that the network does not want some memory
    uint32_t max_extras;    // staging buffers that a pool may give out as further ones; 0 to … Written by create
    tt_span *regions;       // what the user has registered
    tt_span *mrs;           // what all connections have registered with the network
    tt_proxy_pool pools[2]; // of receives and of sends
  } memory;

  _Alignas(TT_CACHE_LINE) _Atomic uint32_t posted; // operations posted. Written by the launching thread (release)
  // Newest first. The launching thread adds, the holder takes all. So an empty list can be set without a compare and
  // exchange.
  _Atomic(tt_proxy_item *) incoming;
  tt_proxy_item *newest; // in the ring of all items, which only grows, also over lives. The launching thread's

  struct tt_proxy *next_free;               // of the table's free places; under its lock
  _Alignas(TT_CACHE_LINE) _Atomic int life; // TT_PROXY_…: under the table's lock, and read without
  int rank, nranks;
  uint64_t hash;
  tt_port *port;
  const struct tt_device_ops *row; // of its device: the port's, and still there when the port has gone
  const tt_net_ops *net;
  void *ctx;                         // the network's
  _Atomic(tt_profilers *) profilers; // NULL: none, or the rank has gone. Taken away with the run flag held
  tt_prof_event asleep;              // the progress thread sleeps. The run flag's holder's
  _Atomic int events_fd;             // the network's, watched by the progress thread; -1: none
  uint32_t append_every;
  pthread_mutex_t lock;             // of making peers
  _Atomic(tt_proxy_peer *) *peers;  // by rank; NULL until needed; published with release
  struct tt_proxy_service *service; // written by create and destroy
  // Sending through relays, and as one. Clients are changed by the service thread with the run flag held.
  struct {
    _Atomic(struct tt_relay *) relays; // this rank's connections through relays: the launching thread adds
    tt_span *relay_pairs;              // those that the service thread has begun with, by relay and receiver. Its own
    struct tt_relay_client *clients;   // neighbours' connections
    tt_span *client_pairs;             // the same clients, by sender and receiver,
    tt_span *client_ends;              // and by receiver and sender. The service thread's
    _Atomic int nclients;
    _Atomic bool sending; // clients have operations. Written by the run flag's holder
    _Atomic bool orphan;  // the rank has gone, clients have not
  } pxn;
  // Connections for one-sided and captured operations (puts.h).
  struct {
    _Atomic(tt_proxy_puts *) list; // grows under `lock`
    struct tt_rma *rma;            // whose windows they write into; NULL: nothing is taken. Changed by the launching
                                   // thread with the run flag and `lock` held
  } puts;
  _Atomic int standing; // clients, and pairs of connections of `puts` that are used: for one-sided operations where
                        // there is an `rma`
  _Atomic bool rests;   // the progress thread is going to rest: set before its look, taken by the holder
  tt_port lone;         // in place of the rank's port when that has gone before its clients
  // The progress thread's notes.
  struct {
    uint32_t driven;
    uint64_t ns;
    bool busy; // stays when a rank takes the place of another
  } seen;
};

enum { TT_PROXY_FREE, TT_PROXY_LIVE };

// ---- pairs of ranks, in sets of base/spans.h: by the first rank, and then by the second

static inline tt_span tt_pair(int first, int second)
{
  return (tt_span){.start = (uintptr_t)first, .size = (size_t)second + 1};
}

// The pair after `last` (which need not be in the set) with this first rank; `last` NULL: the first one. NULL: there is
// none.
static inline tt_span *tt_pair_next(tt_span *root, int first, const tt_span *last)
{
  tt_span *s = tt_spans_from(root, (uintptr_t)first, last == NULL ? 0 : last->size + 1);
  return s != NULL && s->start == (uintptr_t)first ? s : NULL;
}

// ---- proxy.c

// Calls visit(p, arg) for every place of the table, whatever its life.
void tt_proxy_each(void (*visit)(tt_proxy *p, void *arg), void *arg);
// The peer's entry, made when it is not there yet. NULL: no memory, or no such rank. Any thread that may use a live
// proxy.
tt_proxy_peer *tt_proxy_peer_get(tt_proxy *p, int rank);
// A connection before it is attached and ready. Its other members are zero.
void tt_proxy_conn_init(tt_proxy *p, tt_proxy_peer *peer, tt_proxy_conn *c, bool send);
// The proxy's view of a FIFO that has not been used.
tt_proxy_fifo tt_proxy_fifo_view(const tt_fifo *f);
// The part of tt_proxy_connect that connects nothing. Errors as there.
ncclResult_t tt_proxy_attach(tt_proxy *p, tt_link *link);
// Fills a free item for the connection.
void tt_proxy_item_fill(tt_proxy_item *i, tt_proxy_conn *c, const tt_proxy_op *op);
// Adds the states of the items from `i` on to `out`, where there is room for `max` and there are `n` already. Items of
// connections through a relay are left out: the relay shows them. Returns how many there are then. Run flag held.
int tt_proxy_items_states(const tt_proxy_item *i, tt_proxy_op_state *out, int n, int max);
// Writes how far the operation is, " (12 of 40 messages received from rank 3)", into buf, and returns it. Run flag
// held.
const char *tt_proxy_item_text(const tt_proxy_item *i, char *buf, size_t room);
// The same for the oldest operation with a rank; "" when there is none. Run flag not held.
const char *tt_proxy_oldest_text(tt_proxy *p, int rank, char *buf, size_t room);
// Drops the operations of the own rank and closes its connections; from now on the port is p->lone. Service thread, run
// flag held.
void tt_proxy_disown(tt_proxy *p);
// The rest of tt_proxy_destroy: the service thread has ended, or is the caller.
void tt_proxy_bury(tt_proxy *p);
// The peer's entry, or NULL.
static inline tt_proxy_peer *tt_proxy_peer_find(const tt_proxy *p, int rank)
{
  return atomic_load_explicit(&p->peers[rank], memory_order_acquire);
}

// Closes a connection, also with requests under way; what it has registered goes first. Run flag held.
void tt_proxy_conn_close(tt_proxy_conn *c);

// ---- prof.c. Run flag held, but for tt_proxy_prof_new.

// The event that an operation belongs to. Its handles are valid in process `pid`, as long as the profilers `owner`
// (tt_profilers_id) exist.
typedef struct tt_proxy_event {
  tt_prof_event event;
  int32_t pid;
  uint64_t owner;
} tt_proxy_event;

// NULL: no profiler wants the operation, or there is no memory. Any thread.
tt_proxy_prof *tt_proxy_prof_new(tt_profilers *p, const tt_proxy_event *from);
// The same for a neighbour's operation; the neighbour's profilers are held until it is retired. `foreign`: the
// neighbour is in another process.
tt_proxy_prof *tt_proxy_prof_new_for(tt_profilers *p, const tt_proxy_event *from, bool foreign);
const tt_proxy_event *tt_proxy_prof_event(const tt_proxy_prof *t);
// All for an item with `prof`. The operation is taken on; it is retired.
void tt_proxy_prof_begin(tt_proxy_item *i);
void tt_proxy_prof_end(tt_proxy_item *i);
// The turn of message `n` has come; it has a new state, after so many bytes; it is over. The first two do nothing where
// that was reported before.
void tt_proxy_prof_start(tt_proxy_item *i, uint32_t n, ncclProfilerEventState_t state);
void tt_proxy_prof_state(tt_proxy_item *i, uint32_t n, ncclProfilerEventState_t state, size_t bytes);
void tt_proxy_prof_stop(tt_proxy_item *i, uint32_t n);
// The handle that a network plugin gets with the next message (`phandle`), valid until the connection is closed. NULL:
// no profiler wants its events.
void *tt_proxy_prof_handle(tt_proxy_item *i);
// Ends the profiler events of the connection's operations and of its network.
void tt_proxy_prof_forget(tt_proxy_conn *c);
// An event of the progress thread's own, with its first and last state.
void tt_proxy_prof_ctrl_start(tt_proxy *p, tt_prof_event *e, ncclProfilerEventState_t state);
void tt_proxy_prof_ctrl_stop(tt_proxy *p, tt_prof_event *e, ncclProfilerEventState_t state, int ops);
// The rank leaves: ends the proxy's own events and releases the rank's profilers.
void tt_proxy_prof_leave(tt_proxy *p);

// ---- regs.c. Run flag held.

// May the network send from, or receive into, this memory? *mr (NULL: it need not be known) must then be given back, if
// it is used (tt_proxy_mr_use).
bool tt_proxy_reach(tt_proxy_conn *c, const void *data, size_t size, tt_proxy_mr **mr);
// Memory of the library's own: has it registered once, whatever the user thinks of registering. False: the network does
// not take it.
bool tt_proxy_know(tt_proxy_conn *c, void *base, size_t size, tt_proxy_mr **mr);
// A message under way uses the user's memory, or no more.
void tt_proxy_mr_use(tt_proxy_conn *c, tt_proxy_mr *mr);
void tt_proxy_mr_leave(tt_proxy_conn *c, tt_proxy_mr *mr);
// Deregisters all that the connection has registered.
void tt_proxy_mrs_close(tt_proxy_conn *c);
// Forgets what the user has registered.
void tt_proxy_regions_free(tt_proxy *p);
// This memory goes: no proxy of the process uses it from now on, but for messages that are under way.
void tt_proxy_memory_goes(void *base, size_t size);

// ---- pool.c. Run flag held.

typedef enum {
  TT_BUFFER_OK,    // *data and *mr are for the payload of message `number`
  TT_BUFFER_LATER, // the connection has others, and has to go on with them
  TT_BUFFER_NONE,  // there is none for this FIFO: the payload goes into its slot
} tt_proxy_buffer_result;
// Takes a staging buffer for a step; the step's number is set.
tt_proxy_buffer_result tt_proxy_buffer_take(tt_proxy_conn *c, const tt_proxy_fifo *f, tt_proxy_step *st);
// The step's staging buffer, if it was taken before. False: there is none.
bool tt_proxy_buffer_again(tt_proxy_conn *c, tt_proxy_step *st);
// The message is sent: gives its staging buffer back, if it has one. (Receives: when the executor has used the slot, by
// itself.)
void tt_proxy_buffer_leave(tt_proxy_conn *c, uint32_t number);
void tt_proxy_pools_free(tt_proxy *p);

// ---- progress.c

// As tt_proxy_progress, which insists, for threads that do not count as drivers: progress and service thread.
bool tt_proxy_look(tt_proxy *p);
// Makes a connection usable: `comm` is the network's. Service thread.
void tt_proxy_conn_ready(tt_proxy_conn *c, void *comm, bool flush);
// A connection has failed with the thread's last error: drops its operations and tells the service thread. Run flag
// held.
void tt_proxy_conn_fail(tt_proxy_conn *c, ncclResult_t code);
// The network has said "not now". Without a request under way, no event will tell when to try again. Run flag held.
static inline void tt_proxy_conn_refused(tt_proxy_conn *c)
{
  if (c->posted == c->finished) {
    atomic_store_explicit(&c->proxy->refused, true, memory_order_relaxed);
  }
}
// Drops all operations of the proxy's own rank. Run flag held.
void tt_proxy_active_clear(tt_proxy *p);
// Forgets a connection's operations. Its requests under way are the network's until it is closed. Run flag held.
void tt_proxy_items_drop(tt_proxy_conn *c);
// Drops its operations without a word, and takes it out of use. Run flag held.
void tt_proxy_conn_drop(tt_proxy_conn *c);
// Can it be used, as far as that is known? Registers its memory when it has just come up. Run flag held.
bool tt_proxy_conn_usable(tt_proxy_conn *c);
// Takes the run flag if no thread has it. `insist`: else makes its holder look once more. Any thread, not the holder.
bool tt_proxy_run_take(tt_proxy *p, bool insist);
// The same, and waits for the holder, which never waits.
void tt_proxy_run_hold(tt_proxy *p);

// Gives the network what it takes, and looks: has it got all messages for the rank that the executor had made before
// the call? Those are counted then (tt_proxy_conn.counted). False also where a neighbour's proxy sends. Any thread.
bool tt_proxy_has_passed(tt_proxy *p, int rank);
// Does this rank take no message of that one from the network until its plans move on? False also where it could, or
// where an operation may still be posted that would. Any thread.
bool tt_proxy_is_shut(tt_proxy *p, int rank);
// The same of a connection: the run flag's holder.
bool tt_proxy_recv_shut(tt_proxy_conn *c);
// Gives the flag back, after a look if others have asked meanwhile. True when that has moved something.
bool tt_proxy_run_release(tt_proxy *p);
// Is there something that may have to be moved: operations, or what needs none?
static inline bool tt_proxy_busy(const tt_proxy *p)
{
  return !tt_proxy_idle(p) || atomic_load_explicit(&p->standing, memory_order_relaxed) != 0;
}
// Does it take what peers send without having been asked, as no event or neighbour may tell of that?
static inline bool tt_proxy_takes_puts(const tt_proxy *p)
{
  return atomic_load_explicit(&p->standing, memory_order_relaxed) !=
         atomic_load_explicit(&p->pxn.nclients, memory_order_relaxed);
}
// The connection's first operation is finished. Run flag held.
void tt_proxy_retire(tt_proxy_conn *c);
// One whole look that begins after the call: waits for the holder of the run flag, which never waits. A port that is
// stopped loses its operations.
void tt_proxy_settle(tt_proxy *p);
// Takes the run flag for good, then drops all operations: for destroy.
void tt_proxy_seize(tt_proxy *p);
void tt_proxy_unseize(tt_proxy *p);

// ---- sums.c. Run flag held.

// One round. True when the executor's FIFOs have changed, whose waiters are woken here.
bool tt_proxy_sums_round(struct tt_proxy_sums *s);
// The port is stopped: its messages do not count any more.
void tt_proxy_sums_drop(struct tt_proxy_sums *s);

// ---- send.c, recv.c: one round over one connection. True when its FIFO has changed (then the caller rings the rank's
// bell). Run flag held.
bool tt_proxy_send_round(tt_proxy_conn *c);
bool tt_proxy_recv_round(tt_proxy_conn *c);

// Messages have `moved`, so there is room again: gives the network more of them. `res`: what became of the round so
// far.
static inline ncclResult_t tt_proxy_again(tt_proxy_conn *c, ncclResult_t res, bool moved,
                                          ncclResult_t (*give)(tt_proxy_conn *c))
{
  return res == ncclSuccess && moved && !c->jammed && (c->poster != NULL || c->owes) ? give(c) : res;
}

// Is this message given to the network in two?
static inline bool tt_proxy_is_two(const tt_proxy_conn *c, const tt_proxy_fifo *f, size_t bytes)
{
  return c->split && bytes >= TT_LEND_MIN && f->at == sizeof(tt_slot);
}

// A message's payload is in the user's memory from here on, if it is there at all, and no more.
static inline void tt_proxy_step_begin(tt_proxy_conn *c, const tt_proxy_step *st)
{
  if (TT_UNLIKELY(st->two) && st->place != NULL && !st->staged) {
    tt_proxy_mr_use(c, st->mr);
  }
}

static inline void tt_proxy_step_end(tt_proxy_conn *c, const tt_proxy_step *st)
{
  if (TT_UNLIKELY(st->two) && st->place != NULL && !st->staged) {
    tt_proxy_mr_leave(c, st->mr);
  }
}

// The payload of a message in two: where it is, and the network's name for that memory.
static inline void tt_proxy_payload(const tt_proxy_step *st, const tt_proxy_fifo *f, void **data, void **mhandle)
{
  *data = st->place != NULL ? st->place : (char *)st->slot + f->at;
  *mhandle = st->place == NULL ? f->mhandle : st->mr == NULL ? NULL : st->mr->mhandle;
}

static inline tt_slot *tt_proxy_slot(const tt_proxy_fifo *f, uint32_t number)
{
  return (tt_slot *)(f->slots + (size_t)(number & f->mask) * f->stride);
}

// Where a message begins: everything but `seq` travels.
static inline void *tt_proxy_message(tt_slot *s)
{
  return &s->bytes;
}

static inline uint32_t tt_proxy_count(const _Atomic uint32_t *n)
{
  return atomic_load_explicit(n, memory_order_relaxed);
}

// ---- thread.c

// Starts the process's progress thread unless it runs, for a proxy that has its place in the table. `is_crowded`: the
// machine has more ranks than cores. Errors: ncclSystemError.
ncclResult_t tt_proxy_thread_start(bool is_crowded);
// A proxy's place in the table is free again, also one that started no thread. A second after the last one the thread
// ends. Any thread.
void tt_proxy_thread_left(void);
// Adds or removes a network's events_fd (negative: nothing to do). False: it cannot be watched. Between the two the
// thread may call the network's watch_events with `ctx`.
bool tt_proxy_thread_watch(const tt_net_ops *net, void *ctx, int fd);
void tt_proxy_thread_unwatch(int fd);
// The descriptor that wakes the thread (tt_ring), whatever it does.
int tt_proxy_thread_bell(void);
// For tests, which alone write the first two.
extern struct tt_proxy_thread_tests {
  _Atomic bool held;           // the thread drives nothing until it is let go, and some proxy is kicked
  _Atomic uint64_t longest_ns; // how long it sleeps at most on descriptors, and without a proxy
  _Atomic uint32_t rounds;     // how often it has looked around
} tt_proxy_thread_tests;
// Is there a progress thread?
bool tt_proxy_thread_runs(void);
// In a forked child: there is no thread any more.
void tt_proxy_thread_forget(void);

// ---- service.c

// Listens, says where, and starts the service thread. Errors: ncclSystemError.
ncclResult_t tt_proxy_service_start(tt_proxy *p, const tt_proxy_env *env, tt_proxy_where *where);
// The rank leaves while there are clients: the service thread stays for them, and buries the proxy at last. False:
// there are none.
bool tt_proxy_service_leave(tt_proxy *p);
// Says the last words and ends the thread. Also for a service that was never started. Afterwards tt_proxy_service_free.
void tt_proxy_service_stop(tt_proxy *p);
void tt_proxy_service_free(tt_proxy *p);
// The service's part of a peer, of which the rest is made; NULL: no memory. Freed with tt_free.
struct tt_proxy_ties *tt_proxy_ties_new(tt_proxy_peer *peer);
// A request to the service thread about a peer. INIT: a link was taken on, connect it. PROBE: ask the peer's service
// for its state. START: a connection has failed, look at it. Any thread.
void tt_proxy_want(const tt_proxy_peer *peer, tt_msg_type type);
// Asks the peers of operations that are not done (some of them). Any thread.
void tt_proxy_probe_pending(tt_proxy *p);
// The connection has failed: the service thread looks at its peer. Any thread.
void tt_proxy_alert(const tt_proxy_conn *c);
// In a forked child: closes the copies of the descriptors.
void tt_proxy_service_forget(tt_proxy *p);
