// lane.h: a call that is being executed.
//
// A plan is what one launch gives to a device: the calls of one communicator rank that run together. Each call has
// lanes, one per strand and channel; a lane runs until a FIFO makes it wait, then gives the CPU back. It never blocks a
// thread. Its steps are those of a program (program.h), or are resolved from the schedule when the lane comes to them.
#pragma once
#include <stdatomic.h>

#include "base/opcode.h"
#include "device/link.h"
#include "device/schedule.h"
#include "device/reduce.h"
#include "device/work.h"

// One operation as the executor needs it. Counts are elements of one block (schedule.h).
typedef struct tt_call {
  const char *in;
  char *out;
  size_t count; // elements per block
  size_t esize; // bytes per element, a power of two
  tt_redop op;
  const void *scalar;          // device scalar of the operation, read when the plan starts; NULL: op.scalar is it
  uint64_t sig;                // fingerprint (tt_sig…),
  char *tmp;                   // scratch, ntmp slots of `chunk` elements; channels take turns with it
  uint64_t sig_count;          // and its count; apart from it, as in tt_task
  tt_mappable in_mem, out_mem; // memory of the buffers that peers can map (tt_device_ops.find)
  bool stream;                 // large, and nobody reads the result soon: keep it out of the caches
  bool fetched;                // peers read the output while the call runs
  bool empty;                  // it has no elements, and sends its messages nevertheless: peers expect them
  bool stream_put; // the same of a step all of whose gifts are made or laid out as copies, and of one that reads such a
                   // copy
  // Its plan has begun: the output is its own, so the network may write there. Written by the plan (release).
  _Atomic bool open;
  void *event; // its profilers' event, where the communicator has profilers; else not looked at. comm/profile.c's
} tt_call;

// Can peers map `bytes` bytes at `offset` of the call's input or output?
static inline bool tt_call_maps(const tt_call *c, bool out, size_t offset, size_t bytes)
{
  const tt_mappable *m = out ? &c->out_mem : &c->in_mem;
  size_t at = (uintptr_t)(out ? c->out : c->in) + offset - m->from;
  return at < m->size && bytes <= m->size - at;
}

// When one channel of a call ran, for the plan's watcher: nanoseconds of CLOCK_MONOTONIC, or of the device's own clock
// (tt_device_ops.clock); 0: not yet. Belongs to the watcher; written by the thread that runs the plan.
typedef struct tt_stamp {
  uint64_t start, stop;
  // Only with `phases`: when a turn began that first moved something, and when one ended that last did. Between start
  // and `first` the channel waits for its peers; behind `last` for them to be done with what it has lent.
  uint64_t first, last;
  bool phases;
  int lanes;             // of the channel that are not done
  struct tt_stamp *next; // in the plan's list of those that have begun
  void *owner;           // the watcher's
  // A device with a clock of its own writes start and stop here; NULL: nowhere. `timed`: something that has been
  // submitted writes the start.
  _Atomic uint64_t *times;
  bool timed;
} tt_stamp;

#define TT_LANE_UNRESOLVED UINT8_MAX

typedef struct tt_lane {
  const struct tt_program *program;    // what is left of it; NULL: each step is resolved when the lane comes to it
  const struct tt_program_step *steps; // the program's, of `strand` in all passes
  const tt_schedule *sched;
  const tt_strand *strand;
  tt_call *call;
  size_t pos, end;  // elements of each block still to do
  size_t begin;     // where it began
  size_t chunk;     // elements per chunk in this pass
  size_t max_chunk; // and in a full pass
  char *tmp;        // the scratch,
  size_t slot;      // bytes from one slot of it to the next
  uint32_t pc;      // the next step: of `steps`, or of the strand in this pass;
  uint32_t stop;    // and how many there are
  uint8_t fifo;     // tt_proto of its FIFO references
  uint8_t
      lends; // TT_STEP_…: steps with one of these flags leave what they send over the network where it is; 0: none do
  uint8_t places;   // the same for what they receive straight into the output
  bool lent;        // something was; then the lane is done when all of it has gone
  bool drains;      // everything else is
  uint8_t resolved; // where its next step lies in the port's scratch (device/host/step.h), unless that of another lane
                    // does; TT_LANE_UNRESOLVED: nowhere
  bool done;
  bool receives; // it waits for a message or token, not for room for one
  int waits_for; // peer that made it wait, -1: none
  int after; // lane of the same plan (another channel's) that must have taken all its steps before this one begins; -1:
             // none
  int nafter;    // so many lanes, of which `after` is the last
  uint32_t turn; // for devices that take a plan's steps one after the other: those of a lower turn first. Of a channel,
                 // of a message among those of its flow, of a sum: the same on all ranks that it concerns
  uint8_t group; // for the CUDA device, of a walk: the group of CTAs that takes its steps (cuda/work/walk.h)
  struct tt_lane *next;     // in the plan's list
  struct tt_lane *follower; // takes its place there when it is done: the next message on the same connection and
                            // direction. NULL: none
  tt_stamp *stamp;          // of its channel, where the plan is watched; else not looked at
  void *
      reported; // the same: the watcher's, of a lane whose steps are told one by one (tt_plan.step); NULL: they are not
} tt_lane;

_Static_assert(ncclNumTypes <= 16, "the fingerprint has 4 bits for the type");
_Static_assert(TT_OPCODES <= 16, "the fingerprint has 4 bits for the operation");

// Fingerprint of a call. `op`: a tt_opcode. `seq`: the communicator's operation number (0 for send/recv, which pair by
// order).
static inline uint64_t tt_sig_make(uint32_t seq, int func, int type, int op, int root)
{
  return (uint64_t)seq << 32 | (uint64_t)(root & 0xffff) << 16 | (uint64_t)(op & 0xf) << 8 |
         (uint64_t)(type & 0xf) << 4 | (uint64_t)(func & 0xf);
}

// What stands in place of the function in the fingerprint of a one-sided operation that waits, which is never compared.
enum {
  TT_SIG_PUT = 10,  // for the peer's window; the count is its number
  TT_SIG_ROOM = 11, // until the peer takes messages
  TT_SIG_WAIT = 12  // for a signal; the count: how many have come in the upper half, are needed in the lower one
};

// A call whose blocks have lengths of their own has this bit in its fingerprint. Each of its messages carries the count
// of its block. A page shows the call as a whole, with TT_COUNT_OF_BLOCKS.
#define TT_SIG_BLOCKS (1ull << 12)
#define TT_COUNT_OF_BLOCKS UINT64_MAX

static inline bool tt_sig_has_blocks(uint64_t sig)
{
  return (sig & TT_SIG_BLOCKS) != 0 && (sig & 15) < TT_SIG_PUT;
}

// The count that a page shows for a call.
static inline uint64_t tt_sig_shown(uint64_t sig, uint64_t count)
{
  return tt_sig_has_blocks(sig) ? TT_COUNT_OF_BLOCKS : count;
}

// Where a tuner plugin is asked, the counts that travel carry in upper bits what was chosen, so that ranks notice which
// choose differently. `choice`: any hash of the choice. The bit above tells whether the plugin has decided: for the
// error's text alone, two ranks with the same choice are in the same call.
#define TT_SIG_COUNT_BITS 43
#define TT_SIG_COUNT(count) ((count) & ((1ull << TT_SIG_COUNT_BITS) - 1))
#define TT_SIG_DECIDED (1ull << 63)

// A count that carries a choice: has the plugin decided?
static inline uint64_t tt_sig_count_decide(uint64_t marked, bool decided)
{
  return (marked & ~TT_SIG_DECIDED) | (decided ? TT_SIG_DECIDED : 0);
}

// A count with a choice.
static inline uint64_t tt_sig_count_mark(uint64_t count, uint64_t choice, bool decided)
{
  return tt_sig_count_decide(TT_SIG_COUNT(count) | choice << TT_SIG_COUNT_BITS, decided);
}

static inline bool tt_sig_count_same(uint64_t a, uint64_t b)
{
  return ((a ^ b) & ~TT_SIG_DECIDED) == 0;
}

// Are two calls the same, one of which a page shows?
static inline bool tt_sig_same_call(uint64_t a, uint64_t a_count, uint64_t b, uint64_t b_count)
{
  return a == b && (tt_sig_has_blocks(a) || tt_sig_count_same(a_count, b_count));
}

// An operation over several channels has lanes for each. Those of a channel run for a part of each block
// (tt_lane_share), and begin when the ones before have taken all their steps: so schedules may use the same links,
// FIFOs and scratch.

// Prepares a lane to run one strand of the schedule for the whole of each block, in chunks of `chunk` elements. `fifo`:
// geometry of its FIFO references (TT_TOK when it has none). The lane starts done when there is nothing to do.
void tt_lane_init(tt_lane *l, const tt_schedule *sched, int strand, tt_call *call, size_t chunk, tt_proto fifo)
    __attribute__((nonnull));

// Bytes of the lane's longest chunk: whole elements.
static inline size_t tt_lane_longest(const tt_lane *l)
{
  return TT_MIN(l->max_chunk, TT_DIV_UP(l->end - l->begin, (size_t)l->sched->nsub)) * l->call->esize;
}

// Gives the lane a part of each block, elements [begin, end). Right after tt_lane_init.
void tt_lane_share(tt_lane *l, size_t begin, size_t end);

// Bytes from which on a message over the network is left where it is, or received where it belongs: below, two parts
// cost more than a copy.
#define TT_LEND_MIN (8u << 10)

// Where in the call's output the message belongs that `step` (a number in the schedule) copies there in a pass (from 0
// on), and how long it is. NULL: it has to go by way of its slot. Any thread that knows that the lane is not done:
// reads only what tt_lane_init and tt_lane_share have written.
char *tt_lane_place(const tt_lane *l, uint32_t step, uint64_t pass, size_t *bytes);

// Bytes of the message that `step` (a number in the schedule) takes or makes in a pass. Rules as for tt_lane_place.
size_t tt_lane_message(const tt_lane *l, uint32_t step, uint64_t pass);

// The step before which a lane stands that is not done; *bytes: what it moves. NULL: all have been taken. The thread
// that runs the plan.
const tt_step *tt_lane_step(const tt_lane *l, size_t *bytes);

// Has what a step takes by this source arrived, or is what it waits for there? The thread that runs the plan.
bool tt_lane_source_ready(const tt_port *port, const tt_lane *l, const tt_ref *source);

// What the lane's next step lacks (tt_lane_step), as tt_lane_run finds it. The thread that runs the plan.
typedef enum { TT_LACKS_NOTHING, TT_LACKS_SOURCE, TT_LACKS_ROOM } tt_lack;
tt_lack tt_lane_lack_of(const tt_port *port, tt_lane *l);

// Runs the lane until it is done, must wait, or has moved *budget bytes (which it decreases). TT_RUN_FAILED:
// tt_port_stop has been called.
tt_run tt_lane_run(tt_port *port, tt_lane *l, size_t *budget);

// How long a plan, or a batch of one-sided operations, has not moved (stall.h). Zeroed: it has not been looked at.
// The runner's.
typedef struct tt_stall {
  uint64_t since_ns, seen_ns; // the last look that found it moved was over, and the newest look began
  uint64_t waited_ns;         // since then, without the time in which this process did not run
  uint64_t next_ns;           // the time of waiting after which the next report is due
  uint64_t mark;              // where its lanes were
  int cause;                  // rank that the last look found to be the cause; -1: none yet
  uint64_t hash;              // what the last look found, as the rank's page shows it (tt_wait),
  uint32_t how;               // with LEAST and ROUND
  uint32_t number;            // of this wait (tt_wait)
  tt_wait next;               // what the rank that is waited for showed at the last look; since_ns 0: nothing
  int next_rank;              // that rank
  bool said;                  // this rank has reported it
  bool batch;                 // one-sided operations, not a plan
} tt_stall;

// A launch: calls and lanes of one port. Made by src/comm, given to tt_stream_push.
typedef struct tt_plan {
  tt_work work; // first member
  tt_port *port;
  uint64_t ticket; // runs when port->done == ticket
  uint32_t number; // the CUDA device's: of its work
  bool started;
  bool in_graph;          // it becomes a part of a graph (tt_device_ops.in_graph)
  int32_t stall_error_ms; // in place of NCCL_STALL_ERROR_MS; 0: as that says, -1: never
  int recorded;           // operations of it that the flight recorder has,
  uint64_t record;        // of which the first one is there (tt_flight_queue)
  // The thread that submits it, until that is done; 0: none does. Relaxed: it is compared with the caller alone.
  _Atomic uintptr_t submitter;
  int ncalls, nlanes;
  int max_calls, max_lanes;
  tt_lane *turns;      // the lanes that take turns, in their order; NULL: all are done
  tt_lane **turns_end; // where the next one is added, until the plan starts
  tt_call *calls;
  tt_lane *lanes;
  const void *stage_src; // copied to `scratch` when the plan starts (an input that the output overwrites)
  size_t stage_bytes;
  char *scratch; // backs tmp of the calls; kept between uses of the plan
  size_t scratch_size;
  struct tt_plan *next;               // free list of the owner
  void (*recycle)(struct tt_plan *p); // takes the plan back when it is complete
  void *owner;
  tt_stall stall; // the runner's
  // Where `work` has tt_plan_watched_ops. Called by the thread that runs the plan: when it leaves a plan that is not
  // complete, and once when the plan has ended, however that was, before it is recycled. Never waits.
  void (*watch)(struct tt_plan *p, bool ended);
  void *watcher;
  void *times;     // the CUDA device's: room for tt_stamp.times; NULL: there is none
  tt_stamp *begun; // of channels that have begun since the watcher has last emptied the list, newest first
  // Of lanes with `told`: before the lane tries a step, which moves `bytes`, perhaps more than once; when it has taken
  // it. Never waits.
  void (*step)(const struct tt_plan *p, tt_lane *l, const tt_step *step, size_t bytes, bool taken);
} tt_plan;

// Adds a lane, which is not done, to those that take turns, or behind the lane `before` of the same flow. Before the
// plan starts.
static inline void tt_plan_add(tt_plan *p, tt_lane *l, tt_lane *before)
{
  l->next = l->follower = NULL;
  if (before != NULL) {
    before->follower = l;
    return;
  }
  *p->turns_end = l;
  p->turns_end = &l->next;
}

enum { TT_CALL_TEXT = 160 };

static inline uint64_t tt_sig_rma(int what, int ctx, int signal)
{
  return (uint64_t)signal << 16 | (uint64_t)ctx << 4 | (uint64_t)what;
}

static inline int tt_sig_ctx(uint64_t sig)
{
  return (int)(sig >> 4 & 0xfff);
}

// Describes a call in words, for messages, by its fingerprint and count: "operation 3 AllReduce type ncclFloat32 op sum
// root 0 count 12", of one block of several lengths "… count 12 with rank 1", or of a message "Send/Recv with rank 1 of
// 12 bytes"; `with`: the other rank, -1: not known. Returns `text`, which has TT_CALL_TEXT bytes. Pure.
const char *tt_call_describe(char *text, uint64_t sig, uint64_t count, int with);

// Is the call, by its fingerprint, a collective one that no rank can complete before all have begun it? Pure.
bool tt_call_needs_all(uint64_t sig);

// Reports that a peer is in another call than this rank's: names both calls. Returns ncclInvalidUsage.
ncclResult_t tt_call_mismatch(const tt_port *port, const tt_call *call, int peer, uint64_t sig, uint64_t count);

// All of the rank's operations are over, and no more will come: are there messages that nobody receives, from a peer or
// for one that has left? ncclInvalidUsage, said: the calls do not match. All are found if the rank has said before
// that it leaves. Over a network asks the peers, and waits for answers for 400 ms at most (tt_mover.census); a peer
// that does not answer in time is not seen. The thread that has waited for the operations.
ncclResult_t tt_call_unread(const tt_port *port);

// Functions of a plan in a stream's queue.
extern const tt_work_ops tt_plan_ops;
// The same for a plan that is watched: its lanes' stamps are written.
extern const tt_work_ops tt_plan_watched_ops;
