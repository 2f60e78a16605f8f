// comm.h: the communicator, and what the API asks of it. Front door of src/comm.
//
// A communicator is a small struct of what each layer owns. Creation is a table of steps {name, do, undo} (init.c). Operations go
// group.c (collect) -> launch.c (choose algorithm, make lanes) -> the stream's queue.
#pragma once
#include <stdatomic.h>
#include <stdbool.h>

#include "base/spans.h"
#include "bootstrap/bootstrap.h"
#include "coll/coll.h"
#include "coll/cost.h"
#include "comm/pages.h"
#include "comm/ranks.h"
#include "comm/reuse.h"
#include "comm/turns.h"
#include "device/device.h"
#include "device/program.h"
#include "nccl.h"
#include "os/barrier.h"
#include "plugin/profiler/profiler.h"
#include "transport/transport.h"

typedef struct tt_tuning tt_tuning;
typedef struct tt_topology tt_topology;
struct tt_comm_collnet;

// An operation as the API received it, arguments checked.
typedef struct tt_task {
  tt_func func;
  ncclDataType_t type;
  const void *in;
  void *out;
  size_t count; // elements of one block, of `type`
  ncclRedOp_t op;
  int root; // root, or peer of SEND and RECV
  struct ncclComm *comm;
  cudaStream_t stream;
  const void *device_scalar; // of a user's `op`, tt_op_take's: what it was at the call. When the task is launched the handle may be gone
  uint64_t scalar;           // the same
  struct tt_task_events *events; // what profilers are told of it; NULL: nothing (profile.h)
  uint32_t place;                // group.c's: where it belongs in the group
  tt_program_state state;        // which steps tt_comm_run has run
  bool begun, over;              // it has been called; all of them
  uint64_t kind;                 // tt_task_kind
  struct tt_decision *known;     // what tt_comm_recall found for it; NULL: nothing. By now it may be of another one (tt_task_is_known)
} tt_task;

// A user-defined operation.
typedef struct tt_userop {
  bool live;
  int next_free; // as tt_comm_userops.first_free
  ncclDataType_t type;
  const void *device_scalar; // read when the plan starts; NULL: `scalar` is it
  uint64_t scalar;
} tt_userop;

// ncclConfig_t after defaults and environment.
typedef struct tt_config {
  int blocking, split_share;
  int min_ctas, max_ctas;
  char name[64];
  char net_name[64];
  int traffic_class; // TT_NET_ANY_CLASS: not set
  int collnet_enable;
} tt_config;

// A schedule and what goes with it, made once per (function, algorithm, root or peer, channel).
typedef struct tt_cached {
  struct tt_cached *next;
  struct tt_cached *next_channel; // that of the same with the next channel, when that has been made
  tt_func func;
  int algo, root, channel;
  bool lent; // schedule and traffic are those of an earlier channel that has the same
  tt_schedule *sched;
  struct tt_traffic *traffic; // what one pass moves over the network
  int ntraffic, *traffic_of;  // traffic_of: [strand]: number of its first row; one more: where the last one's end
  struct tt_nearby *nearby;   // and in common memory: profile_shm.c's. NULL: nobody has asked yet
  int nnearby;
} tt_cached;

// Messages between this rank and one peer over the network in one pass of a strand.
typedef struct tt_traffic {
  int strand, peer;
  bool send;
  uint32_t messages;
  uint32_t *steps; // receives: which step takes each message
} tt_traffic;

enum { TT_COMM_STARTING, TT_COMM_READY, TT_COMM_FINALIZED, TT_COMM_BROKEN };

// Algorithm, protocol and chunk size for an operation (tuning.c).
typedef struct tt_choice {
  int algo;       // row of the algorithm table
  tt_proto proto; // FIFO geometry
  size_t chunk;   // bytes per chunk
  int channels;   // how many share the message, from the first on
  bool direct;    // ranks reach each other's memory
  bool fetches;   // ranks read results from each other's output
  bool networked; // some of its messages go over the network
  bool tiny;      // LL's messages are so short that they go through the FIFO with more slots (TT_TINY)
  bool decided;   // by a tuner plugin: not what the library would have chosen
} tt_choice;

// Its chunks in elements, and the geometry of its FIFOs.
static inline size_t tt_chunk_elements(const tt_choice *c, size_t esize)
{
  return TT_MAX(c->chunk >> __builtin_ctzl(esize), 1);
}

static inline tt_proto tt_choice_fifo(const tt_choice *c)
{
  return c->tiny ? TT_TINY : c->proto;
}

// What was chosen for an operation, and compiled. An application that repeats a call pays for the choice once.
typedef struct tt_decision {
  size_t count;    // which operation: elements, and
  uint64_t kind;   // tt_task_kind
  bool made;       // the choice and the schedules are there
  bool used;       // since a place for another one was last looked for
  bool in_network; // the network may reduce it
  tt_choice choice;
  tt_cached *cached;   // of the first channel
  int lanes, ntmp;     // strands of all channels' schedules; the most scratch slots that one has
  uint32_t takes_us;   // about how long peers are at it (tt_tuning_takes_us)
  tt_program *program; // compiled; NULL: it has none (program.h), or there was no memory
} tt_decision;

// A job that needs other ranks: init, split, finalize (group.c runs them).
typedef struct tt_job tt_job;

#define TT_INLINE_LOOKS \
  512 // at a message that has not come, before a plan waits for it: half a microsecond to two, about what a plan takes
#define TT_MESSAGE_CHANNELS 32 // the messages of a group count as so many channels, to profilers: some have no room for more

// What a communicator holds, by who uses it. The parts are members by value, so that the struct stays one allocation.

// The profilers' contexts. Opened and closed by the init steps; not changed in between.
typedef struct tt_comm_profiling {
  tt_profilers *profilers; // NULL: there are none
  bool counted;            // tt_profilers_open has been called, tt_profilers_close has not: one user of their libraries
} tt_comm_profiling;

// The way to ranks without memory in common. Made and freed by the init steps; not changed in between.
typedef struct tt_comm_network {
  bool needed;                    // some pair has no memory in common
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
  size_t stream_bytes; // results from this size on are not kept in the caches, unless they are there (reuse.h)
} tt_comm_machine;

// Schedules that have been written, by a hash (schedules.c). The launching thread's; kept until the communicator is freed.
typedef struct tt_comm_schedule_cache {
  tt_cached **buckets; // [room]; NULL: nothing has been written yet
  unsigned room, n;    // n: schedules in it
  int *newest_row;     // [2 * peer + send]; NULL: nothing goes over the network yet
} tt_comm_schedule_cache;

enum { TT_KNOWN_SETS = 64, TT_KNOWN_WAYS = 4 };

// Decisions by operation, TT_KNOWN_WAYS in each set that exists. A full set gives up a decision that was not used lately. The launching thread's.
typedef struct tt_comm_decisions {
  tt_decision *sets[TT_KNOWN_SETS];
  unsigned hand;                      // where a place for the next one is looked for
  tt_program *retired, *last_retired; // programs of decisions that have gone (decide.c), the oldest first
} tt_comm_decisions;

// How calls fared that waited inside for their peers where cores are short (inline.c). The launching thread's.
typedef struct tt_comm_attempts {
  uint32_t failed; // in a row
  uint32_t skip;   // so many more calls do not wait
} tt_comm_attempts;

// Plans of the communicator. The launching thread's, but for the two atomics.
typedef struct tt_comm_plans {
  uint64_t issued;             // plans made
  uint64_t finished;           // of these: complete before their launch returned
  tt_plan *spare;              // ready for the next launch
  tt_lane **flows;             // launch.c's, two for each peer
  _Atomic(tt_plan *) returned; // plans that are complete, put here by the thread that completed them
  _Atomic uint64_t recycled;   // plans completed later; TT_FLUSHING is set while a thread waits for them
} tt_comm_plans;

// Collectives launched. The launching thread's.
typedef struct tt_comm_counts {
  uint32_t sequence;
  uint64_t calls[TT_NFUNCS]; // per function
} tt_comm_counts;

// Communicators split off. `n`: the launching thread's; `turns` has its own lock (turns.h).
typedef struct tt_comm_splits {
  uint64_t n;
  tt_turns turns; // splits under way
} tt_comm_splits;

// What is remembered of large results. The launching thread's.
typedef struct tt_comm_results {
  tt_pages huge_pages; // under large buffers
  tt_reuse reuse;
} tt_comm_results;

// User-defined operations (redop.c). The launching thread's; freed with the communicator.
typedef struct tt_comm_userops {
  tt_userop *ops;
  int n, first_free; // first_free: the first free one plus one; 0: none
} tt_comm_userops;

// Registered buffers and their handles (comm.c). The launching thread's; freed with the communicator.
typedef struct tt_comm_registrations {
  tt_span *buffers, *handles;
} tt_comm_registrations;

// group.c's, while a group with several communicators is launched. The launching thread's.
typedef struct tt_comm_group {
  uint32_t tasks, place;
} tt_comm_group;

struct ncclComm {
  // The handle: each call reads it. Any thread may.
  _Atomic uint64_t magic; // TT_COMM_MAGIC while the handle is good. No address is used for a second communicator, nor for anything else
  uint32_t generation;    // tt_proc_generation at creation: a forked child's differs
  _Atomic int state;      // TT_COMM_…
  _Atomic int async;      // ncclResult_t: ncclInProgress while a non-blocking job runs, then its result
  int rank, nranks, device;
  uint64_t hash;              // names the communicator in logs; the same on all ranks
  _Atomic uintptr_t launcher; // the thread that is in a call just now (tt_comm_enter); 0: none
  // What the init steps make, in this order; each step's undo frees its own. Not changed in between, but for the port, which has rules of its own (device/link.h).
  tt_config config;
  tt_bootstrap *boot;
  tt_peer *peers;    // by rank
  tt_layout *layout; // nodes: ranks that have memory in common
  tt_segment *segment;
  tt_comm_machine machine;
  tt_comm_profiling profiling;
  tt_comm_network network;
  tt_wiring wiring;
  tt_port port;
  tt_topology *topology; // the machines and the channels on them (topology.h)
  tt_tuning *tuning;
  bool tuned; // a tuner plugin is asked for each collective
  // Below: used by the thread that launches. A communicator is used from one thread at a time.
  tt_comm_decisions decisions; // this and the next three are in each call's way: keep them together
  tt_comm_attempts attempts;
  tt_comm_counts counts;
  tt_comm_plans plans;
  tt_comm_schedule_cache schedules;
  tt_comm_splits splits;
  tt_comm_results results;
  tt_comm_userops userops;
  tt_comm_registrations registered;
  tt_comm_group group;
  tt_job *job;       // a non-blocking job that is still running; joined by the next one
  tt_deferred grave; // while an aborted communicator waits to be freed: the worker's
};

#define TT_FLUSHING (1ull << 63)

// The number of the next collective.
static inline uint32_t tt_comm_next(const struct ncclComm *c)
{
  return c->counts.sequence + 1 != 0 ? c->counts.sequence + 1 : 1;
}

// Plans that are not complete. The launching thread's, or when nothing is launched any more.
static inline uint64_t tt_comm_outstanding(const struct ncclComm *c)
{
  return c->plans.issued - c->plans.finished - (atomic_load_explicit(&c->plans.recycled, memory_order_acquire) & ~TT_FLUSHING);
}
#define TT_COMM_MAGIC 0x7475747469636f6dull

// --- life (init.c, pool.c, comm.c)

// Makes a zeroed communicator of a rank on such a device, at an address that was never used for one, state TT_COMM_STARTING. Errors: ncclSystemError.
ncclResult_t tt_comm_new(const tt_device_ops *row, struct ncclComm **out);
// Runs the init steps; on failure undoes them in reverse order. `parent` NULL: by unique id.
typedef struct tt_init_args {
  ncclUniqueId id;
  const ncclUniqueId *ids; // nids > 1: all of them, in place of id; they live as long as the job
  int nids;
  int nranks, rank, device;
  struct ncclComm *parent;
  int color, key;
} tt_init_args;
ncclResult_t tt_comm_init(struct ncclComm *comm, const tt_init_args *args);
// Writes rank, number of ranks and device into a new communicator. tt_comm_init does it where it was not done before.
void tt_comm_name(struct ncclComm *comm, const tt_init_args *args);
// As a member of a split: decides with the parent's other ranks. With NCCL_SPLIT_NOCOLOR `comm` stays as it was.
ncclResult_t tt_comm_split(struct ncclComm *comm, const tt_init_args *args);
// Says at INFO what the communicator takes at most, by sums of what it allocates (src/transport/README.md, "What a communicator takes").
void tt_comm_log_memory(const struct ncclComm *comm);
// Waits until every operation of the communicator is complete (or it has failed). Helps.
ncclResult_t tt_comm_flush(struct ncclComm *comm);
// Says goodbye: peers that still wait for this rank learn that it is gone. After a failure they have been told that already.
void tt_comm_announce_gone(struct ncclComm *comm);
// Frees what tt_comm_init made, after operations have ended.
void tt_comm_take_down(struct ncclComm *comm);
// Frees everything; the handle is dead afterwards. Operations have been flushed or aborted.
void tt_comm_free(struct ncclComm *comm);
// The same after an abort: waits for a call that another thread is in, never for work that others have queued before ours; what cannot be freed yet is freed
// later.
void tt_comm_free_aborted(struct ncclComm *comm);

// Is it a handle of a communicator that lives, made by this process?
static inline bool tt_comm_lives(const struct ncclComm *c)
{
  return c != NULL && ((uintptr_t)c & (TT_CACHE_LINE - 1)) == 0 && atomic_load_explicit(&c->magic, memory_order_acquire) == TT_COMM_MAGIC &&
         c->generation == tt_proc_generation;
}

// Would tt_comm_check accept a handle that lives for operations?
static inline bool tt_comm_usable(const struct ncclComm *c)
{
  return atomic_load_explicit(&c->async, memory_order_acquire) == ncclSuccess &&
         atomic_load_explicit(&c->state, memory_order_acquire) == TT_COMM_READY && tt_port_status(&c->port) == ncclSuccess;
}

// Checks a handle for function `what`: alive, made by this process, not waiting for a job. `usable`: must be ready for operations too.
ncclResult_t tt_comm_check(const struct ncclComm *comm, const char *what, bool usable);

// A call that uses what the communicator owns stands between enter and leave: ncclCommAbort, which may come from another thread at any time, stops the port,
// makes the handle a dead one, and frees nothing before the call that it finds inside has left. Rules: tt_comm_lives before entering (the struct itself is
// never freed); after entering ask once more, by tt_comm_usable or tt_comm_check, and leave at once if that says no; who is inside does not wait for peers
// (but for TT_INLINE_LOOKS looks, or some yields: run_yielding in inline.c), or looks at port.stop and port.abort_flag while it does. One thread at a time, as all calls
// on a communicator but for the abort.
static inline void tt_comm_mark(struct ncclComm *c) // the first half of entering: several marks need one barrier
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
// For the abort, when the handle is dead and the port stopped: waits until nobody is inside.
void tt_comm_expel(struct ncclComm *comm);

// Reads a user's configuration of any older size. `parent` NULL or where unset fields come from. Errors: ncclInvalidArgument.
ncclResult_t tt_config_read(const ncclConfig_t *user, const struct ncclComm *parent, tt_config *out);

// Buffers the user has registered, as windows or not. A handle is good until it is deregistered, as what it was registered, or the communicator is freed.
// Errors: ncclSystemError (no memory), those of the network; ncclInvalidArgument for a handle that is not one, or is of the other kind.
ncclResult_t tt_comm_register(struct ncclComm *comm, void *buff, size_t size, bool window, void **handle);
ncclResult_t tt_comm_deregister(struct ncclComm *comm, void *handle, bool window);
// Does a buffer of so many bytes lie in a registered one?
bool tt_comm_is_registered(const struct ncclComm *comm, const void *buff, size_t size);
// The buffer behind a window's handle. Errors: as tt_comm_deregister.
ncclResult_t tt_comm_window(const struct ncclComm *comm, const void *handle, void **buff);
void tt_comm_free_registrations(struct ncclComm *comm);

// --- operations (group.c, launch.c)

// Adds an operation to the open group, or launches it at once when there is none.
ncclResult_t tt_task_add(tt_task *task);
// Launches the operations of one communicator, in order, but for those that are over; small ones look `looks` times for each message that has not come. Takes
// the events of those it launches (profile.h).
ncclResult_t tt_comm_launch(struct ncclComm *comm, tt_task *tasks, size_t n, unsigned looks);
// Some stream of the process is captured (tt_capturing): if the tasks' streams are, records them in the graph, and they are not to be launched. Errors:
// ncclInvalidUsage where only some of them are.
ncclResult_t tt_comm_capture(struct ncclComm *comm, const tt_task *tasks, size_t n, bool *captured);
// Bytes of an operation's larger buffer: what the perf programs show.
size_t tt_task_bytes(const tt_task *t);
// What a task does, but for how many elements, in a word. Arguments that have not been checked give what no checked ones give, or the same arguments.
static inline uint64_t tt_task_kind(tt_func func, ncclDataType_t type, ncclRedOp_t op, int root)
{
  return (uint64_t)func | (uint64_t)TT_MIN((unsigned)type, UINT8_MAX) << 8 | (uint64_t)TT_MIN((unsigned)op, (unsigned)ncclNumOps) << 16 |
         (uint64_t)(uint32_t)root << 32; // user-defined operations come and go, and are decided alike
}

static inline unsigned tt_known_set(size_t count, uint64_t kind)
{
  return (unsigned)((count + (kind ^ kind >> 30)) * 0x9e3779b97f4a7c15u >> 58);
}

// Has the task a decision, which still is of such a task?
static inline bool tt_task_is_known(const tt_task *t)
{
  return TT_LIKELY(t->known != NULL) && TT_LIKELY(t->known->count == t->count && t->known->kind == t->kind);
}

// Looks for a decision for such a task. The launching thread, inside, once it has found the communicator usable.
static inline void tt_comm_recall(const struct ncclComm *c, tt_task *t)
{
  t->known = c->decisions.sets[tt_known_set(t->count, t->kind)];
  for (int way = 1; TT_LIKELY(t->known != NULL) && !tt_task_is_known(t); way++) {
    t->known = way < TT_KNOWN_WAYS ? t->known + 1 : NULL;
  }
}

// The task's program; NULL: it has none, or is still to be decided.
static inline tt_program *tt_task_program(const tt_task *t)
{
  return tt_task_is_known(t) ? t->known->program : NULL;
}

// Finds the task's decision, `known`: that of the last task like it, or a new one, which is chosen, compiled, and has its schedules and links made. `ops`:
// collectives of the group. The launching thread. Errors: ncclSystemError (no memory), those of tt_tuning_choose_task and tt_comm_schedules.
ncclResult_t tt_comm_decide(struct ncclComm *comm, tt_task *t, size_t ops);
// Frees all decisions. No plan is left.
void tt_comm_free_decisions(struct ncclComm *comm);
// What a call passes to the executor, but for scratch and memory of peers. Functions that only copy count in bytes, so that both sides cut messages alike
// whatever their types. `seq`: the operation's number; 0: a message.
void tt_call_fill(const tt_task *t, uint32_t seq, tt_call *c);

// Runs the task's program inside the call, as far as that takes no waiting; tt_comm_launch does the rest of it. Returns whether nothing is left. Looks `looks`
// times for a message that has not come; 0: once, and never waits. The launching thread.
bool tt_comm_run(tt_task *t, unsigned looks);
// The same for tasks of one group, if they are of different communicators on different streams: they may wait for each other. Errors: those of tt_comm_decide;
// then none has begun.
ncclResult_t tt_comm_run_together(tt_task *tasks, size_t n);
// The messages among a communicator's tasks of one group: decides them, then runs each as above, in the order of their directions, where all are on one stream;
// no look is allowed, too. *left: how many are not over. Errors: those of tt_comm_decide; then none has begun.
ncclResult_t tt_comm_run_messages(tt_task *tasks, size_t n, unsigned looks, int *left);
// Some task has failed with `res`, which this returns. What peers have got of a task that has begun cannot be taken back: that ends the communicator.
ncclResult_t tt_comm_run_failed(struct ncclComm *comm, const tt_task *tasks, size_t n, ncclResult_t res);
// Frees plans that are complete.
void tt_comm_free_plans(struct ncclComm *comm);
// Puts the schedules of all channels that the decision wants into it; writes and connects those that are not there yet. Errors: those of connecting;
// ncclSystemError (no memory).
ncclResult_t tt_comm_schedules(struct ncclComm *comm, tt_func func, int root, tt_decision *d);
// Frees all of them.
void tt_comm_free_schedules(struct ncclComm *comm);

// Opens a group, or one more level of the open one. The calling thread's.
// tt_group_end closes a level; the outermost one runs the jobs and launches the operations that were collected. Errors: ncclInvalidUsage where no group is open;
// the first error that a call inside the group reported, and then nothing is launched; those of the jobs and launches.
ncclResult_t tt_group_start(void);
ncclResult_t tt_group_end(void);
// Ends the open group without running anything. Outermost group: *us is how long its operations would take, in microseconds, and stays as it
// was when there are none. Errors: as tt_group_end; ncclInvalidUsage when the group creates or ends communicators, which is then not done;
// ncclInvalidArgument when `us` is NULL, which an inner group does not mind.
ncclResult_t tt_group_simulate(double *us);
// How long the operations of one communicator would take (simulate.c): collectives one after the other, then all messages side by side.
ncclResult_t tt_comm_simulate(struct ncclComm *comm, const tt_task *tasks, size_t n, double *us);
// Remembers a failure inside the open group, so that its end reports it and launches nothing.
void tt_group_note(ncclResult_t code);
// Is the calling thread inside a group?
bool tt_group_open(void);

// Runs fn(arg) as a job: at once, or at the end of the open group, beside the group's other jobs. Jobs with one `serial` run one after the
// other. nonblocking: the caller goes on; `comm->async` holds ncclInProgress until the job is done.
typedef struct tt_job_desc {
  ncclResult_t (*fn)(void *arg);
  void (*release)(void *arg, bool ran); // called once, after fn or when the job is dropped; frees `arg`. May be NULL
  void *arg;
  const void *serial;
  struct ncclComm *comm; // whose async state shows the job's progress; NULL: none
  bool nonblocking;
  bool detached; // with nonblocking: nobody joins it, nothing shows its progress
} tt_job_desc;
ncclResult_t tt_job_submit(const tt_job_desc *d);
// Waits for the communicator's non-blocking job, if any.
void tt_job_join(struct ncclComm *comm);

// --- choice (tuning.c)

// The sizes from which choices change on a machine with these figures. Rank 0 asks, for all. Errors: ncclSystemError.
ncclResult_t tt_tuning_limits(const tt_figures *f, tt_limits *out);

// Reads NCCL_ALGO, NCCL_PROTO and thresholds for a communicator. Free with tt_tuning_destroy.
ncclResult_t tt_tuning_create(const struct ncclComm *comm, tt_tuning **out);
void tt_tuning_destroy(tt_tuning *t);
// Chooses for one operation; `bytes`: the size the perf programs show (the larger buffer); `in_network`: the network may reduce it (tt_comm_collnet_allows).
// The same on every rank. Errors: ncclInvalidUsage when NCCL_ALGO or NCCL_PROTO leave nothing.
ncclResult_t tt_tuning_choose(const struct ncclComm *comm, tt_func func, size_t bytes, int peer, bool in_network, tt_choice *out);

// About how many microseconds a peer on this machine needs for so many bytes by direct access, by the machine's figures, or the network for them, by the
// model's; at most a millisecond, beside which waking up takes no time.
uint32_t tt_tuning_takes_us(const struct ncclComm *comm, size_t bytes);
// The identity of the tuner plugin and of what it reads, the same on ranks that have the same; 0: none. All ranks use it, or none does (`agreed`): call once,
// before the first operation. Errors: those of the model that is made with the plugin's constants.
uint64_t tt_tuning_plugin(const struct ncclComm *comm);
ncclResult_t tt_tuning_agree(struct ncclComm *comm, bool agreed);
// Like tt_tuning_choose for a collective: where there is a tuner plugin it is asked. `ops`: collectives of the group. The launching thread.
ncclResult_t tt_tuning_choose_task(struct ncclComm *comm, const tt_task *task, size_t ops, tt_choice *out);
// What the cost model says of a collective with this choice of algorithm and protocol, at the best size of chunk, in microseconds. The model is
// made at the first question. Errors:
// ncclSystemError when out of memory. The launching thread.
ncclResult_t tt_tuning_estimate(struct ncclComm *comm, tt_func func, size_t bytes, const tt_choice *choice, double *us);
// The table of costs that all ranks' choices and estimates are reckoned with.
tt_cost_env tt_tuning_costs(const struct ncclComm *comm);

// --- user-defined operations (redop.c)

// Checks the operation of a call, and keeps in the task what a user-defined one is now. Errors: ncclInvalidArgument (no live handle of this
// communicator, or of another type).
ncclResult_t tt_op_take(tt_task *t, const char *what);
// What the kernels need of a task's operation.
void tt_op_resolve(const tt_task *t, tt_redop *out, const void **device_scalar);
