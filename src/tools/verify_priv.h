// verify_priv.h: the verifier's parts: form (verify_form.c), values (verify_value.c), memory and its races
// (verify_memory.c), steps and the run (verify.c).
#pragma once
#include <stdbool.h>

#include "tools/verify.h"

// What a piece of memory or a message holds. Immutable once made; shared by all its copies. Passes are counted on from
// stage to stage (tt_verify_pass).
typedef struct tt_value {
  int pass;
  uint32_t chunk;         // of the contributors' inputs
  bool scaled, final;     // every contribution pre-scaled once; final division applied
  bool in_order;          // one step has summed all ranks' contributions, in the order 0 to n-1
  int only;               // the one rank that contributes, or -1: see counts
  const uint16_t *counts; // how often each rank contributes
  uint64_t expr;          // hash of the expression: operands, their order, where results are rounded
} tt_value;

typedef struct tt_access {
  struct tt_access *next;
  int actor;
  uint32_t time; // 1 + steps the actor had taken before
} tt_access;

// One chunk of memory: contents, the last write and the reads since.
typedef struct tt_cell {
  const tt_value *value; // NULL: never written
  tt_access write;       // time 0: none
  tt_access *reads;
} tt_cell;

typedef struct tt_message {
  const tt_value *value; // of a token: the copy that comes along; NULL: none does
  const uint32_t *clock; // the sender's, when it sent
  uint32_t chunk;
  uint8_t offer; // of a token
} tt_message;

// One direction of a connection, for messages or for tokens.
typedef struct tt_queue {
  struct tt_queue *next; // of all
  int from, to;          // ranks; n + k: network k
  bool token;
  int *writer, *reader; // by stage: actors, -1: none
  int head, count;
  int marked; // last step seen using it, to find a step that uses it twice
  // Tokens: the reader's clock after the step that took the last one without a copy; NULL: there was none.
  const uint32_t *taken;
  tt_message slot[]; // slots of them
} tt_queue;

// What a step may want of a connection.
typedef enum {
  TT_NEED_MESSAGE, // one to receive
  TT_NEED_ROOM,    // a free slot
  TT_NEED_DRAINED, // nothing left that the reader has not taken, but copies
} tt_need;

// A strand being run.
typedef struct tt_actor {
  int id, sched, strand, stage;
  int pos, pass;       // next step
  uint32_t *clock;     // per actor: how many of its steps happened before this one's next. Own entry: steps taken
  int *heard;          // per rank: 1 + pass of the last token from it
  tt_queue *waits_for; // what its next step was found to lack when last looked at, and what of it
  tt_need need;
} tt_actor;

// Memory of one call.
typedef struct tt_memory {
  tt_cell *in, **out, *tmp; // in and out: pass * chunks + chunk. In place, out points into in
  int first_actor;          // of the schedule; its strands follow one another
  int running;              // of them: not at their end
} tt_memory;

// Which TT_STEP_PUTs find the peer's output mapped: a run for each, because the executor may find any.
typedef enum {
  TT_REACH_NOBODY,
  TT_REACH_ALL,
  TT_REACH_LATER,
  TT_REACH_COUNT
} tt_reach; // later: outputs of ranks with a larger number

typedef struct tt_verifier {
  const tt_schedule *const *all;
  const tt_verify_options *o;
  int n, nscheds, nstages, nactors, max_sources;
  int ends; // ranks, and behind them the networks that reduce
  tt_actor *actors;
  tt_queue **queues; // (from * ends + to) * 2 + token; NULL: not used
  tt_queue *all_queues;
  tt_memory *memory;    // per schedule
  int *in_at, *out_at;  // per rank: the schedule (of the first stage) that has its input, its output; -1: none
  uint32_t *last_touch; // schedule * nactors + actor: last access of the actor to the buffers of the schedule's call
  struct tt_operand *operands; // max_sources: scratch of the step being run
  // Per rank: the copy that came with the token which the step being run has taken from it, until it is read.
  const tt_value **along;
  struct tt_block *blocks; // arena
  size_t block_used, block_size;
  tt_reach reach; // which gifts are made
  bool copies; // what tokens offer comes along as a copy. There are runs with and without: the executor may do either
  char *why;
  size_t whylen;
  ncclResult_t res;
} tt_verifier;

// A source of a step: its value, and whether the step itself pre-scales it.
typedef struct tt_operand {
  const tt_value *value;
  bool raw; // IN or PEER_IN
} tt_operand;

// Number of a schedule's pass among all passes of the row.
static inline int tt_verify_pass(const tt_verifier *v, int sched, int pass)
{
  return v->nstages > 1 ? sched / v->n * v->o->loops + pass : pass;
}

// Zeroed memory that lives as long as the verifier; NULL (and v->res set) when there is none left.
void *tt_verify_alloc(tt_verifier *v, size_t n, size_t size);

// Records the fault: "rank 1 strand 0 step 3 pass 0: " (unless `a` is NULL) and the text. Always false.
bool tt_verify_blame(tt_verifier *v, tt_verify_class c, const tt_actor *a, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));

// The connection from one end to another, for messages or for tokens; NULL in it: not used.
static inline tt_queue **tt_queue_place(const tt_verifier *v, int from, int to, bool token)
{
  return &v->queues[((size_t)from * (size_t)v->ends + (size_t)to) * 2 + token];
}

static inline bool tt_is_data(const tt_ref *ref)
{
  return ref->kind != TT_TOKEN && ref->kind != TT_DRAIN;
}

static inline bool tt_is_queue(const tt_ref *ref)
{
  return ref->kind == TT_FIFO || ref->kind == TT_TOKEN;
}

// verify_form.c. Both return false on a fault.
// Places the ranks and their buffers; do the schedules fit each other and the function?
bool tt_form_place(tt_verifier *v);
// Checks every step, and makes the connections that it names.
bool tt_form_check(tt_verifier *v);

// verify_value.c. All return false (fault recorded) or NULL on a fault.
// The value of input chunk `chunk` of `rank` in `pass`.
const tt_value *tt_value_leaf(tt_verifier *v, int rank, int pass, uint32_t chunk);
// What the step makes of v->operands[0..count).
const tt_value *tt_value_combine(tt_verifier *v, const tt_actor *a, unsigned flags, int count);
// Does every output hold what the function promises?
bool tt_value_check_outputs(tt_verifier *v);

// verify_memory.c.
// Makes the cells of all calls.
bool tt_memory_create(tt_verifier *v);
// Reads or writes the memory that `ref` of the actor's current step means. A written value equal in place to what is
// copied is no access.
bool tt_memory_read(tt_verifier *v, const tt_actor *a, const tt_ref *ref, const tt_value **value);
bool tt_memory_write(tt_verifier *v, const tt_actor *a, const tt_ref *ref, const tt_value *value);
// Do both references of the actor's current step mean the same memory?
bool tt_memory_same(const tt_verifier *v, const tt_actor *a, const tt_ref *x, const tt_ref *y);
// After all strands have ended: did every access to a call's buffers happen before the call's end?
bool tt_memory_check_owners(tt_verifier *v);

// Schedule and next step of an actor.
static inline const tt_schedule *tt_actor_schedule(const tt_verifier *v, const tt_actor *a)
{
  return v->all[a->sched];
}

static inline const tt_step *tt_actor_step(const tt_verifier *v, const tt_actor *a)
{
  const tt_schedule *s = v->all[a->sched];
  return &s->steps[s->strands[a->strand].first + (uint32_t)a->pos];
}

// The connection that a TT_DRAIN reference looks at: the actor's own tokens to the peer.
static inline tt_queue *tt_actor_drain(const tt_verifier *v, const tt_actor *a, const tt_ref *ref)
{
  return *tt_queue_place(v, tt_actor_schedule(v, a)->rank, ref->peer, true);
}
