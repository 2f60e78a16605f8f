// link.h: what a rank needs to run programs: its port, and one link per peer.
//
// Transports fill links; executors use them. A port is one rank of one communicator seen from below: it knows nothing
// of groups or schedules' meaning.
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "device/fifo.h"
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
// LOST is never a rank's own word: the copy of a page that comes over the network says so when the connection has ended
// without a word.
enum { TT_RANK_INIT, TT_RANK_RUNNING, TT_RANK_FAILED, TT_RANK_ABORTED, TT_RANK_GONE, TT_RANK_LOST };

// An operation that a rank has begun: its fingerprint and count (lane.h). `sig` is 0 while the two are written.
typedef struct tt_shown {
  _Atomic uint64_t sig, count;
} tt_shown;

// What a rank waits for, once its plan has not moved for a while (device/host/stall.h). Times are of this machine's
// monotonic clock.
typedef struct tt_wait {
  uint64_t version;    // of what is shown; odd while it is written
  uint64_t since_ns;   // the plan has not moved since; 0: it does not wait
  uint64_t seen_ns;    // then it looked the last time
  uint64_t sig, count; // what it waits in; BEHIND: the other communicator's operation
  uint64_t hash;       // BEHIND: of that communicator; 0: it is no operation
  uint32_t peer;       // for which rank
  uint32_t how;        // TT_WAIT_…
} tt_wait;

enum { TT_WAIT_FIELDS = sizeof(tt_wait) / sizeof(uint64_t) };

enum {
  TT_WAIT_RECEIVES = 1, // for a message, else for room for one
  TT_WAIT_ALONE = 2,    // all lanes of the plan wait for that peer
  TT_WAIT_BEHIND = 4,   // none of these: the plan stands in its stream behind other work
};

#define TT_SHOWN 16 // operations with a number that a page keeps, so that ranks which are not so far apart compare them

// What a rank shows to its peers. `bell` by the rules of bell.h; the rest is written by the rank alone and read by its
// peers.
typedef struct tt_rank_page {
  tt_bell bell;
  // 1 + the only peer whose post can move this rank; 0: any (tt_page_ring).
  _Alignas(TT_CACHE_LINE) _Atomic uint32_t want;
  _Atomic uint32_t writes; // 1 + the peer whose output this rank is writing into; 0: nobody's (owner.h)
  _Atomic uint32_t now;    // which of `shown` it has begun last
  _Alignas(TT_CACHE_LINE) _Atomic uint32_t state; // TT_RANK_…; peers look at it often, and it hardly ever changes
  // The last message, and behind it the last operations by their numbers (tt_shown_at).
  _Alignas(TT_CACHE_LINE) tt_shown shown[1 + TT_SHOWN];
  _Alignas(TT_CACHE_LINE) _Atomic uint64_t wait[TT_WAIT_FIELDS]; // a tt_wait, by tt_wait_show
} tt_rank_page;
_Static_assert(sizeof(tt_rank_page) == 576, "shared memory layout");

// Where a page shows the operation with this number; 0: messages, which have none.
static inline uint32_t tt_shown_at(uint32_t number)
{
  return number == 0 ? 0 : 1 + number % TT_SHOWN;
}

// Shows the peers that this rank begins an operation. The run flag's holder, or the launching thread when the port has
// no plan.
static inline void tt_page_show(tt_rank_page *page, uint64_t sig, uint64_t count)
{
  uint32_t at = tt_shown_at((uint32_t)(sig >> 32));
  tt_shown *s = &page->shown[at];
  // So that nobody takes the new count for that of the operation before.
  atomic_store_explicit(&s->sig, 0, memory_order_relaxed);
  atomic_thread_fence(memory_order_release);
  atomic_store_explicit(&s->count, count, memory_order_relaxed);
  atomic_store_explicit(&s->sig, sig, memory_order_release);
  atomic_store_explicit(&page->now, at, memory_order_release);
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

// Shows what the page's rank waits for; since_ns 0: for nothing. The run flag's holder; of the copy of another
// machine's page the service thread.
static inline void tt_wait_show(tt_rank_page *page, const tt_wait *w)
{
  uint64_t fields[TT_WAIT_FIELDS], version = atomic_load_explicit(&page->wait[0], memory_order_relaxed);
  memcpy(fields, w, sizeof fields);
  atomic_store_explicit(&page->wait[0], version + 1, memory_order_relaxed); // so that nobody mixes two waits
  atomic_thread_fence(memory_order_release);
  for (int i = 1; i < TT_WAIT_FIELDS; i++) {
    atomic_store_explicit(&page->wait[i], fields[i], memory_order_relaxed);
  }
  atomic_store_explicit(&page->wait[0], version + 2, memory_order_release);
}

// Reads it. False: the rank shows nothing, or is changing it. Any thread.
static inline bool tt_wait_read(const tt_rank_page *page, tt_wait *w)
{
  uint64_t fields[TT_WAIT_FIELDS];
  fields[0] = atomic_load_explicit(&page->wait[0], memory_order_acquire);
  for (int i = 1; i < TT_WAIT_FIELDS; i++) {
    fields[i] = atomic_load_explicit(&page->wait[i], memory_order_relaxed);
  }
  atomic_thread_fence(memory_order_acquire);
  memcpy(w, fields, sizeof fields);
  return w->since_ns != 0 && w->version % 2 == 0 &&
         atomic_load_explicit(&page->wait[0], memory_order_relaxed) == w->version;
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
  bool watched;            // the peer is another process whose end can be noticed:
  int life;                // descriptor of memory in which its process holds a lock while it lives (tt_proc_holds)
  bool networked;          // messages go over the network: port->mover moves them, `page` is a copy
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
} tt_link_env;

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
} tt_mover;

// A rank of this machine, connected or not.
typedef struct tt_neighbor {
  tt_rank_page *page; // NULL: the rank is on another machine
  int32_t pid;        // 0: this process cannot look for it in /proc
} tt_neighbor;

// One rank of one communicator, as the executors see it.
typedef struct tt_port {
  int rank, nranks;
  uint64_t hash;                // the communicator's, for messages
  const tt_neighbor *neighbors; // by rank; NULL: no other rank is on this machine
  unsigned slow_waits;          // waits that were reported and went on (host/stall.c). The runner's
  int device;
  const struct tt_device_ops *row;        // of that kind of device (device.h),
  const struct tt_shortcut_ops *shortcut; // and the row's
  tt_rank_page *page;                     // own; ring page->bell to wake the threads that wait for this rank
  tt_rank_page lone_page;                 // used when there is nobody to share a page with
  tt_link **links; // by peer; NULL until connected. Behind the ranks the networks that reduce, as many as there are
                   // ranks at most
  const tt_mover *mover; // NULL: no link goes over the network
  void *mover_self;
  bool crowded;                  // more ranks on this machine than cores: do not spin
  _Atomic uint64_t done;         // plans completed, in order. Written by the thread that runs the plan (release)
  _Atomic uint32_t stop;         // ncclResult_t when the rank must not go on (abort, failed peer); first writer wins
  _Atomic uint32_t stopping;     // 1 while a thread writes `stop` and what goes with it: held for a few instructions
  _Atomic bool unwritten;        // has stopped, and no peer writes into its outputs any more: never again, then
  _Atomic uint32_t writer_looks; // how often a stopped rank has found a peer alive that still writes
  volatile uint32_t abort_flag;  // set by abort; waits outside of plans poll it
  char *bounce;                  // staging for process_vm_readv, made when first needed
  void **operands;               // scratch of the executor: TT_OPERAND_ROWS * (nranks + 2) pointers
  size_t large;                  // bytes of a call whose buffers the device wants to see (tt_device_ops.use_buffers)
  struct tt_pages *pages;        // the host device's: huge pages under such buffers
  const char *tuner;             // name of the plugin that chooses algorithms, for messages; NULL: none
  char error[512];               // why `stop` was set; written before it
} tt_port;

// Has the peer's process ended? Looks anew: one system call. Ask before you read the state on its page: a rank that
// leaves in good order says so there before it lets go. Any thread.
static inline bool tt_link_ended(const tt_link *link)
{
  return link->watched && !tt_proc_holds(link->life, link->proc.cookie);
}

#define TT_BOUNCE_BYTES (256u << 10)
#define TT_OPERAND_ROWS 7

// Stops a port for good: its plans, queued and coming, end with `code`; peers see TT_RANK_FAILED (or ABORTED), and all
// ranks that wait for this rank wake. The text is the caller's tt_last_error(). Only the first call counts. Any thread.
void tt_port_stop(tt_port *port, ncclResult_t code);

// Rings every connected peer's bell.
void tt_port_ring_all(tt_port *port);

// The port is stopped: a peer that may still be writing into its outputs (owner.h); NULL: none is, and none will be. A
// peer whose process has ended counts only until a caller asks with `look`, which costs a system call for each peer
// concerned: for every 100 ms or so. One whose process is stopped (SIGSTOP) counts: it would write on when it
// continues. It rings this rank's bell when it has finished. Any thread.
const tt_link *tt_port_writer(tt_port *port, bool look);

// Waits, asleep, until there is none. Any thread that is not needed to run a peer's plan.
void tt_port_await_writers(tt_port *port);

// ncclSuccess, or why the port was stopped.
static inline ncclResult_t tt_port_status(const tt_port *port)
{
  return (ncclResult_t)atomic_load_explicit(&port->stop, memory_order_acquire);
}
