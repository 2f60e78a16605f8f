// comm.h: the communicator: its struct, what holds while a call uses it, its configuration (comm.c). Front door of
// src/comm.
//
// A communicator is a small struct of what each layer owns. init.h creates it. An operation (task.h) goes group.h
// (collects) -> launch.h (decide.h: algorithm and schedules; inline.h: runs a small one at once) -> the stream's queue.
#pragma once
#include <stdatomic.h>
#include <stdbool.h>

#include "base/spans.h"
#include "bootstrap/bootstrap.h"
#include "coll/coll.h"
#include "comm/ranks.h"
#include "comm/reuse.h"
#include "comm/turns.h"
#include "device/device.h"
#include "device/program.h"
#include "nccl.h"
#include "os/barrier.h"
#include "plugin/profiler/profiler.h"
#include "ras/ras.h"
#include "transport/transport.h"

struct tt_cached;
struct tt_call_options;
struct tt_comm_collnet;
struct tt_decision;
struct tt_job;
struct tt_topology;
struct tt_tuning;
struct tt_userop;

// ncclConfig_t after defaults and environment.
typedef struct tt_config {
  int blocking, split_share, shrink_share;
  int min_ctas, max_ctas;
  char name[64];
  char net_name[64];
  int traffic_class; // TT_NET_ANY_CLASS: not set
  int collnet_enable;
  int rma_contexts, rma_signals; // of one-sided operations; signals: of each context
  int rma_eager;
} tt_config;

enum { TT_COMM_STARTING, TT_COMM_READY, TT_COMM_FINALIZED, TT_COMM_BROKEN, TT_COMM_SUSPENDED };

// Has a communicator in this state its page and its links, and looks whether its peers live?
static inline bool tt_comm_stands(int state)
{
  return state == TT_COMM_READY || state == TT_COMM_SUSPENDED;
}

// What a communicator holds, by its user. The parts are members by value, so that the struct stays one allocation.

// The profilers' contexts. Opened and closed by the init steps; not changed in between.
typedef struct tt_comm_profiling {
  tt_profilers *profilers; // NULL: there are none
  bool counted;            // tt_profilers_open has been called, tt_profilers_close has not: one user of their libraries
} tt_comm_profiling;

// Of the flight recorder in the port (flight.c).
typedef struct tt_comm_recorder {
  struct ncclComm *next; // of the process's
  bool inherits;         // `job_rank` is the parent's
  int job_rank;
  tt_moment opened;
} tt_comm_recorder;

// The way to ranks without memory in common. Made and freed by the init steps; not changed in between.
typedef struct tt_comm_network {
  bool needed;                    // some pair has no memory in common
  int64_t mbits;                  // Mbit/s of the rank whose devices carry least; 0: not known
  const tt_net_ops *ops;          // the chosen network; NULL: no pair needs it
  tt_proxy *proxy;                // NULL: the same
  struct tt_comm_collnet *reduce; // NULL: the network does not reduce (collnet.h)
} tt_comm_network;

// Facts about the machines and their ranks. Written by the init steps; not changed afterwards.
typedef struct tt_comm_machine {
  int local_ranks;     // ranks on this machine
  int ranks_on_cores;  // ranks on the cores of this machine: those of fake nodes (NCCL_HOSTID), too
  int per_core;        // ranks per core of this machine where it is crowded; else 0
  bool crowded;        // more ranks on some machine than cores
  bool shares;         // some machine has several ranks
  bool all_local;      // every pair shares an address space
  bool can_read;       // every pair can read each other's memory
  bool gpus;           // some rank is on a GPU,
  bool can_write;      // and each can write the memory of those of its machine that are on the host
  size_t stream_bytes; // results from this size on are not kept in the caches, unless they are there (reuse.h)
} tt_comm_machine;

// Schedules that have been written, by a hash (schedules.c). The launching thread's; kept until the communicator is
// freed.
typedef struct tt_comm_schedule_cache {
  struct tt_cached **buckets; // [room]; NULL: nothing has been written yet
  unsigned room, n;           // n: schedules in it
  int *newest_row;            // [2 * peer + send]; NULL: nothing goes over the network yet
} tt_comm_schedule_cache;

// What reports of the RAS thread show of the rank (ras.c). Joined and left by the init steps.
typedef struct tt_comm_ras {
  tt_ras_entry *entry; // NULL: there is no RAS thread
  bool held;           // tt_ras_hold has been called, tt_ras_release has not
} tt_comm_ras;

enum { TT_DECISION_SETS = 64, TT_DECISION_WAYS = 4 };

// Decisions by operation, TT_DECISION_WAYS in each set that exists. A full set gives up a decision that was not used
// lately. The launching thread's.
typedef struct tt_comm_decisions {
  struct tt_decision *sets[TT_DECISION_SETS];
  unsigned hand;                      // where a place for the next one is looked for
  tt_program *retired, *last_retired; // programs of decisions that have gone (decide.c), the oldest first
  struct tt_call_options *options;    // that calls have had, by number (options.h)
  int noptions, options_room;
} tt_comm_decisions;

// How calls fared that waited inside for their peers where cores are short (inline.c). The launching thread's.
typedef struct tt_comm_attempts {
  uint32_t failed; // in a row
  uint32_t skip;   // so many more calls do not wait
  uint64_t now;    // tt_shortcut_ops.free_at, of the last attempt of this launch; 0: none, or the stream was not free
} tt_comm_attempts;

// Plans of the communicator. The launching thread's, but for the two atomics.
typedef struct tt_comm_plans {
  uint64_t issued;             // plans made
  uint64_t finished;           // of these: complete before their launch returned
  uint64_t batches;            // of one-sided operations, made
  tt_plan *spare;              // ready for the next launch
  tt_lane **flows;             // launch.c's, two for each peer
  _Atomic(tt_plan *) returned; // plans that are complete, put here by the thread that completed them
  _Atomic uint64_t recycled;   // plans completed later, and batches; TT_FLUSHING is set while a thread waits for them
} tt_comm_plans;

// Collectives launched. The launching thread's; the RAS thread reads them, so they are written by tt_comm_count.
typedef struct tt_comm_counts {
  uint32_t sequence;
  uint64_t calls[TT_NCALLS]; // per function
} tt_comm_counts;

// Communicators that share with each other (family.h). Under the lock of family.c.
typedef struct tt_comm_family {
  struct ncclComm *parent, *first, *next; // first: of its children; next: of its parent's
} tt_comm_family;

// For the next growth (ncclCommGrow). The launching thread's.
typedef struct tt_comm_growth {
  ncclUniqueId id;
  bool made; // this rank has made the id, and no growth has used it
} tt_comm_growth;

// Adds one.
static inline void tt_comm_count(uint64_t *n)
{
  __atomic_store_n(n, *n + 1, __ATOMIC_RELAXED);
}

// Communicators split off. `n`: the launching thread's; `turns` has its own lock (turns.h).
typedef struct tt_comm_splits {
  uint64_t n;
  tt_turns turns; // splits under way
} tt_comm_splits;

// User-defined operations (redop.c). The launching thread's; freed with the communicator.
typedef struct tt_comm_userops {
  struct tt_userop *ops; // [room]; NULL: there has been none yet
  int room;              // a power of two, at least twice `live`
  int live;
  int next; // the number of the next one's handle
} tt_comm_userops;

// Registered buffers and their handles (register.c). The launching thread's; freed with the communicator.
typedef struct tt_comm_registrations {
  tt_span *buffers, *handles;
  tt_span *windows;        // the buffers among them that are windows
  uint64_t windows_opened; // so far
  uint64_t moved_bytes;    // of registrations, moved to where peers can map them (tt_device_ops.map)
} tt_comm_registrations;

// group.c's, while a group with several communicators is launched. The launching thread's.
typedef struct tt_comm_group {
  uint32_t tasks, place;
} tt_comm_group;

struct ncclComm {
  // The handle: each call reads it. Any thread may.
  _Atomic uint64_t magic; // TT_COMM_MAGIC while the handle is good. Its address is never used for anything else
  uint32_t generation;    // tt_proc_generation at creation: a forked child's differs
  _Atomic int state;      // TT_COMM_…
  _Atomic int async;      // ncclResult_t: ncclInProgress while a non-blocking job runs, then its result
  int rank, nranks, device;
  uint64_t hash;              // names the communicator in logs; the same on all ranks
  _Atomic uintptr_t launcher; // the thread that is in a call just now (tt_comm_enter); 0: none
  _Atomic int lookers;        // threads that look at it just now (tt_comm_look)
  // What the init steps make, in this order; each step's undo frees its own. Not changed in between, except the port
  // (rules: device/link.h).
  tt_config config;
  tt_bootstrap *boot;
  tt_peer *peers; // by rank
  tt_comm_ras ras;
  tt_layout *layout; // nodes: ranks that have memory in common
  tt_segment *segment;
  tt_comm_machine machine;
  tt_comm_profiling profiling;
  tt_comm_network network;
  tt_wiring wiring;
  tt_port port;
  tt_comm_recorder recorder;
  struct tt_topology *topology; // the machines and the channels on them (topology.h)
  struct tt_tuning *tuning;
  bool tuned; // a tuner plugin is asked for each collective
  // Below: used by the thread that launches. A communicator is used from one thread at a time.
  tt_comm_decisions decisions; // this and the next three are in each call's way: keep them together
  tt_comm_attempts attempts;
  tt_comm_counts counts;
  tt_comm_plans plans;
  tt_comm_schedule_cache schedules;
  tt_comm_splits splits;
  tt_reuse reuse; // of results that may still be in a cache
  tt_comm_userops userops;
  tt_comm_registrations registered;
  tt_rma *rma; // one-sided operations (one_sided.h); NULL: there are none yet. The launching thread's
  tt_comm_group group;
  uint64_t suspended_bytes; // given back by a suspension (suspend.h)
  tt_comm_growth growth;
  tt_comm_family family;
  _Atomic bool revoked; // by ncclCommRevoke: its port is stopped. Any thread
  _Atomic int ending;   // TT_ENDING_…: which thread stops or frees it, others wait for that. By tt_comm_take_end
  // A non-blocking job, put here by the launching thread. The next job, or the end, takes it out and joins it. Any
  // thread.
  _Atomic(struct tt_job *) job;
  char job_error[512]; // why the last one failed: written before `async` says so
  tt_deferred grave;   // while an aborted communicator waits to be freed: the worker's
};

#define TT_FLUSHING (1ull << 63)

// The number of the next collective.
static inline uint32_t tt_comm_next(const struct ncclComm *c)
{
  return c->counts.sequence + 1 != 0 ? c->counts.sequence + 1 : 1;
}

// Plans and batches that are not complete. The launching thread's, or when nothing is launched any more.
static inline uint64_t tt_comm_outstanding(const struct ncclComm *c)
{
  return c->plans.issued + c->plans.batches - c->plans.finished -
         (atomic_load_explicit(&c->plans.recycled, memory_order_acquire) & ~TT_FLUSHING);
}
#define TT_COMM_MAGIC 0x7475747469636f6dull

// Logs at INFO that it is complete, in NCCL's form: the handle, the device under each of its names, and what is the
// same on all ranks.
void tt_comm_log_complete(const struct ncclComm *comm);
// Logs at INFO how much memory the communicator takes at most (src/transport/README.md, "What a communicator takes").
void tt_comm_log_memory(const struct ncclComm *comm);
// All ranks call it while the communicator is made: *all, a pointer to any type, becomes the array of what each rank
// has in `mine` (`size` bytes, the same on all ranks), by rank; tt_free's. On an error it is NULL: ncclSystemError (no
// memory), those of the bootstrap.
ncclResult_t tt_comm_exchange(const struct ncclComm *comm, const void *mine, size_t size, void *all);
// Waits until every operation of the communicator is complete, or the communicator has failed, or is being aborted; the
// result says which. Helps.
ncclResult_t tt_comm_flush(struct ncclComm *comm);
// The port is stopped. Afterwards no operation of the communicator touches a user's buffer; those that have not begun
// may still stand in streams, behind work of others. Waits for no peer.
void tt_comm_drop_plans(struct ncclComm *comm);

// Is it a handle of a communicator that lives, made by this process?
static inline bool tt_comm_lives(const struct ncclComm *c)
{
  return c != NULL && ((uintptr_t)c & (TT_CACHE_LINE - 1)) == 0 &&
         atomic_load_explicit(&c->magic, memory_order_acquire) == TT_COMM_MAGIC && c->generation == tt_proc_generation;
}

// Would tt_comm_check accept a handle that lives for operations?
static inline bool tt_comm_usable(const struct ncclComm *c)
{
  return atomic_load_explicit(&c->async, memory_order_acquire) == ncclSuccess &&
         atomic_load_explicit(&c->state, memory_order_acquire) == TT_COMM_READY &&
         tt_port_status(&c->port) == ncclSuccess;
}

// Checks a handle for function `what`: alive, made by this process, not waiting for a job. `usable`: must be ready for
// operations too.
ncclResult_t tt_comm_check(const struct ncclComm *comm, const char *what, bool usable);

// A call that uses what the communicator owns stands between enter and leave. ncclCommAbort may come from another
// thread at any time. It stops the port, makes the handle a dead one, and frees nothing before the call inside has
// left. Rules:
// - Check tt_comm_lives before entering (the struct itself is never freed).
// - Check again after entering, by tt_comm_usable or tt_comm_check. If that fails, leave at once.
// - A thread inside does not wait for peers, except for TT_INLINE_LOOKS looks or some yields (run_yielding in
// inline.c).
//   If it does wait, it looks at port.stop and port.abort_flag meanwhile.
// - One thread at a time, as for all calls on a communicator except the abort.
// tt_comm_mark is the first half of entering: several marks need one barrier.
static inline void tt_comm_mark(struct ncclComm *c)
{
  atomic_store_explicit(&c->launcher, (uintptr_t)__builtin_thread_pointer(), memory_order_relaxed);
}

static inline void tt_comm_enter(struct ncclComm *c)
{
  tt_comm_mark(c);
  tt_barrier_often();
}

static inline void tt_comm_leave(struct ncclComm *c)
{
  atomic_store_explicit(&c->launcher, 0, memory_order_release);
}

// The error of a handle that does not live.
ncclResult_t tt_comm_dead(const struct ncclComm *comm, const char *what);
// Checks the handle and enters: the caller leaves. On an error it has not entered.
ncclResult_t tt_comm_begin(struct ncclComm *comm, const char *what, bool usable);
// A query of another thread than the communicator's stands between look and look_away: nothing is freed meanwhile, so
// it waits for nothing. Errors: those of tt_comm_check; then it does not look.
ncclResult_t tt_comm_look(struct ncclComm *comm, const char *what);
void tt_comm_look_away(struct ncclComm *comm);
// Is the calling thread inside (tt_comm_enter), or does it look? Then it cannot end the communicator: that would wait
// for it. So it is in a signal handler, or in a plugin, that is called meanwhile.
bool tt_comm_is_inside(const struct ncclComm *comm);
enum {
  TT_ENDING_NOT,
  TT_ENDING_STOP, // a thread stops it, for a revocation or a shrink: about a second at most
  TT_ENDING_FREE, // a thread is in ncclCommDestroy or ncclCommAbort
};
// Takes the turn to stop or to free the communicator; waits while another thread stops it. False: another one frees it.
// With STOP the calling thread is inside (tt_comm_is_inside) until tt_comm_give_end; with FREE, freeing it ends the
// turn.
bool tt_comm_take_end(struct ncclComm *comm, int how);
void tt_comm_give_end(struct ncclComm *comm);
// Why the communicator has failed, in words; NULL: it has not. As long as the communicator lives. Any thread.
const char *tt_comm_error(const struct ncclComm *comm);
// Has a rank died? Looks each NCCL_PEER_CHECK_MS at most, and then stops the port. Between look and look_away.
void tt_comm_watch(struct ncclComm *comm);
// Waits until no thread is in there; the handle is dead. Takes as long as a query, which waits for no peer.
void tt_comm_await_lookers(struct ncclComm *comm);
// For the abort, when the handle is dead and the port stopped: waits until no thread is inside.
void tt_comm_expel(struct ncclComm *comm);

// Reads a user's configuration of any older size. `parent`: where unset fields come from, or NULL. Errors:
// ncclInvalidArgument.
ncclResult_t tt_config_read(const ncclConfig_t *user, const struct ncclComm *parent, tt_config *out);
