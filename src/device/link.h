// link.h: what a rank needs to run programs: its port, and one link per peer.
//
// Transports fill links; executors use them. A port is one rank of one communicator seen from below: it knows nothing
// of groups or schedules' meaning.
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "device/fifo.h"
#include "device/flight.h"
#include "nccl.h"
#include "os/bell.h"
#include "os/proc.h"

typedef enum {
  TT_ACCESS_NONE,  // FIFOs only
  TT_ACCESS_COPY,  // the kernel copies between the two processes (process_vm_readv); allocations that were shared are
                   // mapped
  TT_ACCESS_LOCAL, // same address space: a pointer is a pointer
} tt_access;

// State of a rank as its peers see it, in memory they all map.
// The last three are never a rank's own word. LOST: the copy of a page that comes over the network says so when the
// connection has ended without a word. KILLED and EXITED: its process has ended without ncclCommDestroy; EXITED: in
// order.
enum {
  TT_RANK_INIT,
  TT_RANK_RUNNING,
  TT_RANK_FAILED,
  TT_RANK_ABORTED,
  TT_RANK_REVOKED,
  TT_RANK_GONE,
  TT_RANK_LOST,
  TT_RANK_KILLED,
  TT_RANK_EXITED
};
enum { TT_REVOKED = 2 }; // abort_flag of a port that is being revoked; 1: aborted

// The rank that a failure began with, and what became of it: 1 + rank, and TT_RANK_… in the upper half. 0: not known.
typedef uint64_t tt_culprit;

static inline tt_culprit tt_culprit_of(int rank, uint32_t how)
{
  return (uint64_t)how << 32 | ((uint32_t)rank + 1);
}

static inline int tt_culprit_rank(tt_culprit c)
{
  return (int)(uint32_t)c - 1;
}

static inline uint32_t tt_culprit_how(tt_culprit c)
{
  return (uint32_t)(c >> 32);
}

// Has its process ended, as far as one can see? Then every rank of the communicator has lost it.
static inline bool tt_culprit_died(tt_culprit c)
{
  return tt_culprit_how(c) >= TT_RANK_LOST;
}

// An operation that a rank has begun: its fingerprint and count (lane.h). `sig` is 0 while the two are written.
typedef struct tt_shown {
  _Atomic uint64_t sig, count;
} tt_shown;

// What a rank waits for, once its plan has not moved for a while (device/stall.h). Times are of this machine's
// monotonic clock.
typedef struct tt_wait {
  uint64_t version;    // of what is shown; odd while it is written
  uint64_t since_ns;   // the plan has not moved since; 0: it does not wait
  uint64_t seen_ns;    // then it looked the last time
  uint64_t sig, count; // what it waits in; BEHIND: the other communicator's operation
  uint64_t hash;       // BEHIND: of that communicator; 0: it is no operation. Else 1 + the rank that it finds to be
                       // the cause; LEAST: as tt_wait_least packs it
  uint32_t peer;       // for which rank; BEHIND: this rank's number in that communicator
  uint32_t how;        // TT_WAIT_…
  uint32_t number;     // of this wait among the rank's; it ends when the plan moves
  uint32_t after;      // number of the peer's wait that was seen before this rank has looked the last time; 0: none
} tt_wait;

enum { TT_WAIT_FIELDS = sizeof(tt_wait) / sizeof(uint64_t) };

enum {
  TT_WAIT_RECEIVES = 1,  // for a message, else for room for one
  TT_WAIT_ALONE = 2,     // all lanes of the plan wait for that peer
  TT_WAIT_BEHIND = 4,    // none of these: the plan stands in its stream behind other work
  TT_WAIT_SURE = 8,      // with `after`: this wait cannot end before that one has
  TT_WAIT_EMPTY = 16,    // in a copy alone: all messages that the rank had made for this one are here
  TT_WAIT_SIGNAL = 32,   // in a one-sided operation: RECEIVES: for a signal
  TT_WAIT_SHUT = 64,     // in a copy alone: until the wait ends the rank takes no message of this one from the network
  TT_WAIT_LEAST = 128,   // the cause is not known, but the least of the ranks that the waits lead to, as far as that is
  TT_WAIT_ROUND = 256,   // with LEAST: and the waits lead into a circle
  TT_WAIT_AT = 512,      // the rank says where: tt_wait_at
  TT_WAIT_TOKEN = 1024,  // with AT: RECEIVES: for a token; else until the peer has given one back
  TT_WAIT_REPLAY = 2048, // in a launch of a graph, of an operation that was captured
};

// In `how`, with TT_WAIT_AT: the channel and the step of its schedule, as far as there is room for them.
enum { TT_WAIT_CHANNEL_BITS = 6, TT_WAIT_STEP_BITS = 14, TT_WAIT_CHANNEL_AT = 12, TT_WAIT_STEP_AT = 18 };

static inline uint32_t tt_wait_at(uint32_t channel, uint32_t step)
{
  return TT_WAIT_AT | (channel & ((1u << TT_WAIT_CHANNEL_BITS) - 1)) << TT_WAIT_CHANNEL_AT |
         TT_MIN(step, (1u << TT_WAIT_STEP_BITS) - 1) << TT_WAIT_STEP_AT;
}

static inline uint32_t tt_wait_channel(uint32_t how)
{
  return how >> TT_WAIT_CHANNEL_AT & ((1u << TT_WAIT_CHANNEL_BITS) - 1);
}

static inline uint32_t tt_wait_step(uint32_t how)
{
  return how >> TT_WAIT_STEP_AT;
}

// What a rank with TT_WAIT_LEAST has found: that rank, so many waits away. A number that nobody renews dies when it has
// gone round as many waits as there are ranks.
static inline uint64_t tt_wait_least(int rank, int hops)
{
  return (uint64_t)(uint32_t)hops << 32 | (uint32_t)(rank + 1);
}

// What stands in its stream behind the one-sided wait that a page shows, and so has to wait for that.
enum {
  TT_HELD_PLANS = 1, // the communicator's next plan, and with it all later ones
  TT_HELD = 14       // a page has room for; what is left out proves nothing
};

// The rank's next put or signal to this peer in this context, and with it all later ones.
static inline uint32_t tt_held_put(int peer, int ctx)
{
  return ((uint32_t)peer + 1) << 8 | (uint32_t)ctx;
}

#define TT_SHOWN 16 // operations with a number that a page keeps, so that ranks which are not so far apart compare them

// Why a rank has failed, where that concerns all ranks alike: their calls do not match, or wait for each other or for a
// rank that is late or gone. Then all end with this text and code. code 0: nothing of that kind.
typedef struct tt_why {
  uint32_t code; // ncclResult_t
  char text[508];
} tt_why;

// What a rank shows to its peers. `bell` by the rules of bell.h; the rest is written by the rank alone and read by its
// peers.
typedef struct tt_rank_page {
  tt_bell bell;
  // 1 + the only peer whose post can move this rank; 0: any (tt_page_ring).
  _Alignas(TT_CACHE_LINE) _Atomic uint32_t want;
  _Atomic uint32_t writes; // 1 + the peer whose output this rank is writing into; 0: nobody's (owner.h)
  _Atomic uint32_t now;    // which of `shown` it has begun last
  _Alignas(TT_CACHE_LINE) _Atomic uint32_t state; // TT_RANK_…; peers look at it often, and it hardly ever changes
  _Atomic uint32_t exits;                         // 1: the process runs its exit handlers
  tt_culprit culprit; // why it has FAILED, if not by its own fault; written before. By __atomic_…
  // The last message, and behind it the last operations by their numbers (tt_shown_at).
  _Alignas(TT_CACHE_LINE) tt_shown shown[1 + TT_SHOWN];
  _Alignas(TT_CACHE_LINE) _Atomic uint64_t wait[TT_WAIT_FIELDS];     // a tt_wait, by tt_wait_show
  tt_why why;                                                        // written before the state FAILED, once
  _Alignas(TT_CACHE_LINE) _Atomic uint64_t rma_wait[TT_WAIT_FIELDS]; // the same of one-sided operations
  _Atomic uint64_t held_ns;                                          // something was added to `held` then
  _Atomic uint32_t held[TT_HELD]; // TT_HELD_… and tt_held_put; 0: none. Written by the one that `rma_wait` shows
  // What the rank's process waits for in another communicator: `hash`, where it is rank `number`. Not in copies.
  // Written with the lock of elsewhere.c held.
  _Alignas(TT_CACHE_LINE) _Atomic uint64_t elsewhere[TT_WAIT_FIELDS];
} tt_rank_page;
_Static_assert(sizeof(tt_rank_page) == 1280, "shared memory layout");

// Where a page shows the operation with this number; 0: messages, which have none.
static inline uint32_t tt_shown_at_number(uint32_t number) // which is not 0
{
  return 1 + number % TT_SHOWN;
}

static inline uint32_t tt_shown_at(uint32_t number)
{
  return number == 0 ? 0 : tt_shown_at_number(number);
}

// Shows the peers that this rank begins an operation, at the place of its number. The run flag's holder, or the
// launching thread when the port has no plan.
static inline void tt_page_show_at(tt_rank_page *page, uint32_t at, uint64_t sig, uint64_t count)
{
  tt_shown *s = &page->shown[at];
  // So that nobody takes the new count for that of the operation before.
  atomic_store_explicit(&s->sig, 0, memory_order_relaxed);
  atomic_thread_fence(memory_order_release);
  atomic_store_explicit(&s->count, count, memory_order_relaxed);
  atomic_store_explicit(&s->sig, sig, memory_order_release);
  atomic_store_explicit(&page->now, at, memory_order_release);
}

static inline void tt_page_show(tt_rank_page *page, uint64_t sig, uint64_t count)
{
  tt_page_show_at(page, tt_shown_at((uint32_t)(sig >> 32)), sig, count);
}

// Reads what a page shows. False: it is being written.
static inline bool tt_shown_read(const tt_shown *s, uint64_t *sig, uint64_t *count)
{
  *sig = atomic_load_explicit(&s->sig, memory_order_acquire);
  *count = atomic_load_explicit(&s->count, memory_order_acquire);
  return *sig != 0 && atomic_load_explicit(&s->sig, memory_order_relaxed) == *sig;
}

// What the page's rank has begun as the operation with this number. False: nothing yet, or it is long ago, or it begins
// another one at this moment.
static inline bool tt_page_shown(const tt_rank_page *page, uint32_t number, uint64_t *sig, uint64_t *count)
{
  return tt_shown_read(&page->shown[tt_shown_at(number)], sig, count) && *sig >> 32 == number;
}

// Shows what a rank waits for, in its page's `wait` or `rma_wait`; since_ns 0: for nothing. The run flag's holder; of
// the copy of another machine's page the service thread.
static inline void tt_wait_show(_Atomic uint64_t shown[TT_WAIT_FIELDS], const tt_wait *w)
{
  uint64_t fields[TT_WAIT_FIELDS], version = atomic_load_explicit(&shown[0], memory_order_relaxed);
  memcpy(fields, w, sizeof fields);
  atomic_store_explicit(&shown[0], version + 1, memory_order_relaxed); // so that nobody mixes two waits
  atomic_thread_fence(memory_order_release);
  for (int i = 1; i < TT_WAIT_FIELDS; i++) {
    atomic_store_explicit(&shown[i], fields[i], memory_order_relaxed);
  }
  atomic_store_explicit(&shown[0], version + 2, memory_order_release);
}

// Reads it. False: nothing is shown, or it is being changed. Any thread.
static inline bool tt_wait_read_at(const _Atomic uint64_t shown[TT_WAIT_FIELDS], tt_wait *w)
{
  uint64_t fields[TT_WAIT_FIELDS];
  fields[0] = atomic_load_explicit(&shown[0], memory_order_acquire);
  for (int i = 1; i < TT_WAIT_FIELDS; i++) {
    fields[i] = atomic_load_explicit(&shown[i], memory_order_relaxed);
  }
  atomic_thread_fence(memory_order_acquire);
  memcpy(w, fields, sizeof fields);
  return w->since_ns != 0 && w->version % 2 == 0 && atomic_load_explicit(&shown[0], memory_order_relaxed) == w->version;
}

// What the page's rank waits for: its plan, else its one-sided operation. Any thread.
static inline bool tt_wait_read(const tt_rank_page *page, tt_wait *w)
{
  return tt_wait_read_at(page->wait, w) || tt_wait_read_at(page->rma_wait, w);
}

// "receive from", by `how` of a wait that is not BEHIND. Pure.
static inline const char *tt_wait_verb(uint32_t how)
{
  bool receives = (how & TT_WAIT_RECEIVES) != 0;
  return how & TT_WAIT_SIGNAL ? (receives ? "get a signal from" : "put to") : receives ? "receive from" : "send to";
}

// Wakes the sleepers of a peer's page unless they wait for somebody else. After publishing and tt_bell_fence(). With
// many ranks and few cores this saves most wake-ups: a rank that waits for all others in turn sleeps through the posts
// of those it does not look at yet. Rule: `want` is written by the holder of the run flag of the stream that runs the
// rank's plan, before it looks for the last time (device/host/plan.c), so a poster that sees a sleeper sees what it
// waits for.
static inline void tt_page_ring(tt_rank_page *page, int poster)
{
  if (TT_UNLIKELY(atomic_load_explicit(&page->bell.sleepers, memory_order_acquire) != 0)) {
    uint32_t want = atomic_load_explicit(&page->want, memory_order_relaxed);
    if (want == 0 || want == (uint32_t)poster + 1) {
      tt_bell_wake(&page->bell);
    }
  }
}

// The ranks behind a link to a network that reduces: it waits for their messages; and the copies of their pages.
typedef struct tt_behind {
  int n;
  const int *ranks;
  tt_rank_page *const *pages;
} tt_behind;

// Everything between this rank and one peer that its transport, its executor and the proxy share. Used by the thread
// that runs the rank's plan.
typedef struct tt_link {
  int peer;
  int rank; // own rank
  tt_access access;
  tt_fifo send[TT_NFIFOS], recv[TT_NFIFOS];
  tt_rank_page *page; // the peer's
  tt_proc_id proc;
  bool watched;           // the peer is another process whose end can be noticed:
  int life;               // descriptor of memory in which its process holds a lock while it lives (tt_proc_holds)
  struct tt_board *board; // the peer's, for one-sided operations (one_sided.h); NULL: this rank cannot reach it
  struct tt_signal_row *out, *in; // of one-sided operations: what this rank writes for the peer, and the peer for this
  bool networked;                 // messages go over the network: port->mover moves them, `page` is a copy
  const tt_behind *behind; // the peer is a network that reduces (schedule.h): `page` is a rank's that never changes;
                           // NULL: it is a rank
  bool staged; // networked, and a neighbour's proxy sends: every payload lies in its slot, which both processes map
  const void *transport; // which one made the link
  void *own;             // and what it keeps there
  struct tt_handover
      *handover; // the device's: tokens and what they offer (tt_device_ops.connect); NULL where no tokens go
} tt_link;

// Memory that a link's two ranks map, for what goes along with tokens. Zeroed: there is none. The segment's, which
// outlives the link.
typedef struct tt_link_env {
  char *outbox;                   // this rank writes,
  const char *inbox;              // and reads what the peer has written
  uint32_t box_bytes;             // of each, a power of two
  _Atomic uint32_t *wants;        // a word that only this rank writes,
  const _Atomic uint32_t *wanted; // and the peer's
  char *windows[2];               // where the FIFOs of both directions lie, which may be one place: whole pages,
  size_t window_bytes;            // of each
} tt_link_env;

// Messages between a rank that has nothing more to do and one peer, which nobody receives any more.
typedef struct tt_unread {
  int in;  // from the peer, not received by this rank
  int out; // from this rank, not received by the peer, which has left in order
} tt_unread;

struct tt_far_end;
struct tt_far_fifo;

// What moves a port's messages over the network (src/proxy). The thread that runs the rank's plan drives it.
typedef struct tt_mover {
  // Moves what can be moved, never waits; true when anything did. Any thread; `insist`: if another thread is at it,
  // make it look again.
  bool (*progress)(void *self, bool insist);
  bool (*idle)(void *self); // nothing left to move
  // The caller leaves, and operations may be left: another thread shall go on. `lazily`: within about a millisecond is
  // soon enough, because the caller will probably come back to wait.
  void (*kick)(void *self, bool lazily);
  void (*state_changed)(void *self);   // the port's page has a new state: tell the peers
  void (*probe)(void *self, int peer); // bring the copy of the peer's page up to date, soon
  // Moves what can be moved, as `progress`, but for sure: waits for the thread that does so already (which never
  // waits), then looks itself. When the port is stopped, no thread reads or writes the buffers of its operations
  // afterwards. Any thread.
  void (*settle)(void *self);
  // Can nothing of what the network has for that peer move on until the peer takes some? False: it may, or nobody
  // knows. Any thread.
  bool (*stands)(void *self, int peer);
  // Asks the connected peers what they have sent and got, and waits for the answers, 200 ms at most (up to 400 where
  // threads wait for cores). One thread.
  void (*census)(void *self);
  // What is lost with that peer, as far as it has said. When the port's plans are over. Any thread.
  tt_unread (*unread)(void *self, int peer);
  // Is the other side of a captured operation's FIFO from now on, until `detach` returns: moves its messages in each
  // replay, and in any order with all others. What a sender has put there by then is sent. Any thread. Errors:
  // ncclInvalidUsage (the peer has captured another operation), ncclSystemError. If the peer captures later, and
  // another one, the port is stopped.
  ncclResult_t (*attach)(void *self, const struct tt_far_end *end, struct tt_far_fifo **out);
  void (*detach)(void *self, struct tt_far_fifo *f);
} tt_mover;

// What a rank's device asks of another one's, in memory that both map: one request at a time. The words of the first
// two lines are the asking rank's, those of the last one the other's. Zeroed: nothing was asked. What a request says is
// the device's.
typedef struct tt_mail {
  _Alignas(TT_CACHE_LINE) _Atomic uint32_t asked; // how many requests; written behind the rest (release)
  uint64_t body[15];
  _Alignas(TT_CACHE_LINE) _Atomic uint32_t answered; // how many have been answered; behind the answer (release)
  uint32_t answer;
  _Atomic uint32_t served; // 0: no answers come; else the device's word for what is answered
  uint32_t reply[12];      // goes with the answer
} tt_mail;
_Static_assert(sizeof(tt_mail) == 192, "shared memory layout");

// A rank of the communicator, connected or not.
typedef struct tt_neighbor {
  tt_rank_page *page; // NULL: the rank is on another machine
  tt_mail *to, *from; // with the page: what this rank asks of it, and it of this rank
  int32_t pid;        // 0: this process cannot look for it in /proc
  int32_t number;     // of its process, as that sees it; for messages
  uint64_t cookie;    // of its process (tt_proc_id)
  const char *host;   // its name; the communicator's
  bool alike;         // it is on a device of the same kind
  bool beside;        // another rank, on the same device as this one, as far as one can tell
} tt_neighbor;

// One rank of one communicator, as the executors see it.
typedef struct tt_port {
  int rank, nranks;
  uint64_t hash;                        // the communicator's, for messages
  const tt_neighbor *neighbors;         // by rank; NULL: there is no other rank
  int life;                             // as tt_link's, of all ranks of this machine; -1: they are in this process
  tt_culprit exited;                    // the rank that has exited, as the ring says; 0: none. By __atomic_…
  uint64_t watched_ns;                  // when it was looked last while nothing was waited for. By __atomic_…
  _Atomic uint32_t looked;              // the rank whose process was looked at last (tt_port_look)
  _Atomic unsigned slow_waits;          // waits that were reported and went on (stall.c). Relaxed
  _Atomic uint32_t waits;               // waits that were shown (tt_wait.number). Relaxed
  _Atomic(struct tt_stall *) rma_shown; // whose wait page->rma_wait shows, which alone writes it; NULL: none's
  struct tt_port *elsewhere_next;       // elsewhere.c
  int device;
  const struct tt_device_ops *row;        // of that kind of device (device.h),
  const struct tt_shortcut_ops *shortcut; // and the row's
  tt_rank_page *page;                     // own; ring page->bell to wake the threads that wait for this rank
  tt_rank_page lone_page;                 // used when there is nobody to share a page with
  tt_link **links; // by peer; NULL until connected. Behind the ranks the networks that reduce, as many as there are
                   // ranks at most
  const tt_mover *mover; // NULL: no link goes over the network
  void *mover_self;
  bool gpu_access;           // ranks may use memory of other GPUs (NCCL_P2P_DISABLE)
  bool ll128;                // and NCCL_PROTO names LL128
  bool crowded;              // more ranks on this machine than cores: do not spin
  _Atomic uint64_t done;     // plans completed, in order. Written by the thread that runs the plan (release)
  _Atomic uint32_t stop;     // ncclResult_t when the rank must not go on (abort, failed peer); first writer wins
  _Atomic uint32_t stopping; // 1 while a thread writes `stop` and what goes with it: held for a few instructions
  _Atomic bool unwritten;    // has stopped, and no peer writes into its outputs any more, or it waits no longer
  uint64_t writer_ns; // when a stopped rank has first found a peer alive that still writes; 0: never. By __atomic_…
  volatile uint32_t abort_flag; // not 0: an abort, or TT_REVOKED; waits outside of plans poll it
  char *bounce;                 // staging for process_vm_readv, made when first needed
  void **operands;              // scratch of the executor: TT_OPERANDS(nranks) pointers
  size_t large;                 // bytes of a call whose buffers the device wants to see (tt_device_ops.use_buffers)
  struct tt_pages *pages;       // the host device's: huge pages under such buffers
  struct tt_gpu_rank *gpu;      // the CUDA device's
  tt_flight flight;             // the last operations (flight.h)
  void (*alarm)(struct tt_port *port); // the port has failed, or a wait was reported; NULL: nobody wants to know. Any
                                       // thread; never waits for a plan
  const char *tuner;                   // name of the plugin that chooses algorithms, for messages; NULL: none
  char error[512];                     // why `stop` was set; written before it
  char root[512];                      // the rank whose death explains that, if it became known later
  _Atomic bool rooted;                 // `root` is written. Set once, with `stopping` held
} tt_port;

// Has the peer's process ended? Looks anew: one system call. Ask before you read the state on its page: a rank that
// leaves in good order says so there before it lets go. Any thread.
static inline bool tt_link_ended(const tt_link *link)
{
  return link->watched && !tt_proc_holds(link->life, link->proc.cookie);
}

// What has become of the peer, as far as this rank sees now: its state, or KILLED or EXITED where its process has ended
// without a word. Any thread.
static inline uint32_t tt_link_state(const tt_link *link)
{
  bool ended = tt_link_ended(link);
  uint32_t state = atomic_load_explicit(&link->page->state, memory_order_acquire);
  bool exits = atomic_load_explicit(&link->page->exits, memory_order_acquire) != 0;
  return !ended || state >= TT_RANK_FAILED ? state : exits ? TT_RANK_EXITED : TT_RANK_KILLED;
}

#define TT_BOUNCE_BYTES (256u << 10)
#define TT_OPERAND_ROWS 22
#define TT_OPERANDS(nranks) (TT_OPERAND_ROWS * ((size_t)(nranks) + 2) + 17 * 16) // device/host/step.h divides them

// Stops a port for good: its plans, queued and coming, end with `code`; peers see TT_RANK_FAILED (or ABORTED, REVOKED),
// and all ranks that wait for this rank wake. The text is the caller's tt_last_error(). Only the first call counts. Any
// thread.
void tt_port_stop(tt_port *port, ncclResult_t code);

// The same because of `culprit`, which the peers learn, too. 0: this rank's own fault.
void tt_port_stop_for(tt_port *port, ncclResult_t code, tt_culprit culprit);

// Alarms the ranks of this machine and all connected peers: they look after their peers at once.
void tt_port_ring_all(tt_port *port);

// Has the process of a rank of this machine ended without ncclCommDestroy? 0: not as far as one look shows, which asks
// for the life of TT_PORT_LOOKS processes at most (the next look for the next ones), and reads what the pages of all
// say. Any thread.
enum { TT_PORT_LOOKS = 16 };
tt_culprit tt_port_look(tt_port *port);

// The error that rank `rank` has stopped, which this rank waits for: `state` TT_RANK_FAILED or more, and its page,
// which says why. *culprit: where that began. Returns ncclRemoteError, or the code of what concerns all ranks alike
// (tt_why), said. Any thread.
ncclResult_t tt_port_accuse(const tt_port *port, int rank, const tt_rank_page *page, uint32_t state,
                            tt_culprit *culprit);

// As tt_port_look, and stops the port for it. False: it has. Any thread.
bool tt_port_watch(tt_port *port);
// The same, if the last time is so long ago; for a rank that waits for nothing.
void tt_port_watch_idle(tt_port *port, uint64_t every_ns);
// Stops the port because of `c`, whose process has ended, and logs it. False: it had stopped before; if that was an
// ncclRemoteError which names no dead rank, `c` is why, and its text takes the place of the first. Any thread.
bool tt_port_blame(tt_port *port, tt_culprit c);
// Can it be one of this communicator's? What others say is asked first. Pure.
bool tt_culprit_is_valid(const tt_port *port, tt_culprit c);

// "rank 5 (pid 123, host box) was killed, or left by _exit" into `out`, which it returns. `joint` stands before the
// verb: "", or ", which".
#define TT_CULPRIT_TEXT 224
const char *tt_culprit_text(char out[TT_CULPRIT_TEXT], const tt_port *port, tt_culprit c, const char *joint);

// The port is stopped: a peer that may still be writing into its outputs (owner.h); NULL: none is, and none will be. A
// peer whose process has ended counts only until a caller asks with `look`, which costs a system call for each peer
// concerned: for every 100 ms or so. One that does not finish for 800 ms (whose process is stopped: 300 ms) counts no
// longer, and a warning names it. It rings this rank's bell when it has finished. Any thread.
const tt_link *tt_port_writer(tt_port *port, bool look);

// Waits, asleep, until there is none. Any thread that is not needed to run a peer's plan.
void tt_port_await_writers(tt_port *port);

// Why the port was stopped, in words; "": it was not. As long as the port lives. Any thread.
static inline const char *tt_port_error(const tt_port *port)
{
  return atomic_load_explicit(&port->rooted, memory_order_acquire) ? port->root : port->error;
}

// ncclSuccess, or why the port was stopped.
static inline ncclResult_t tt_port_status(const tt_port *port)
{
  return (ncclResult_t)atomic_load_explicit(&port->stop, memory_order_acquire);
}
