// decide.h: what was chosen for a kind of call, and its program (decide.c). An operation that is repeated pays for the
// choice once.
#pragma once
#include "comm/comm.h"
#include "comm/schedules.h"
#include "comm/task.h"
#include "comm/tuning.h"

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

// The set of tt_comm_decisions where such a task belongs.
static inline unsigned tt_decision_set(size_t count, uint64_t kind)
{
  return (unsigned)((count + (kind ^ kind >> 30)) * 0x9e3779b97f4a7c15u >> 58);
}

// Has the task a decision, and is this still a decision for such a task?
static inline bool tt_task_is_decided(const tt_task *t)
{
  return TT_LIKELY(t->decision != NULL) && TT_LIKELY(t->decision->count == t->count && t->decision->kind == t->kind);
}

// Looks for a decision for such a task. The launching thread, inside, once it has found the communicator usable.
static inline void tt_comm_recall(const struct ncclComm *c, tt_task *t)
{
  t->decision = c->decisions.sets[tt_decision_set(t->count, t->kind)];
  for (int way = 1; TT_LIKELY(t->decision != NULL) && !tt_task_is_decided(t); way++) {
    t->decision = way < TT_DECISION_WAYS ? t->decision + 1 : NULL;
  }
}

// The task's program that the calling thread may run; NULL: it has none, or is still to be decided.
static inline tt_program *tt_task_program(const tt_task *t)
{
  tt_program *p = tt_task_is_decided(t) ? t->decision->program : NULL;
  return p != NULL && !p->queued ? p : NULL;
}

// Finds the task's decision, `known`: that of the last task like it, or a new one, which is chosen, compiled, and has
// its schedules and links made. `ops`: collectives of the group. The launching thread. Errors: ncclSystemError (no
// memory), those of tt_tuning_choose_task and tt_comm_schedules.
ncclResult_t tt_comm_decide(struct ncclComm *comm, tt_task *t, size_t ops);
// Frees all decisions. No plan is left.
void tt_comm_free_decisions(struct ncclComm *comm);
// What a call passes to the executor, but for scratch and memory of peers. Functions that only copy count in bytes, so
// that both sides cut messages alike whatever their types. `seq`: the operation's number; 0: a message.
void tt_call_fill(const tt_task *t, uint32_t seq, tt_call *c);
// Where a tuner plugin or the call's options decide, lets the choice travel with the call's messages: ranks that have
// chosen differently notice.
void tt_call_mark(const tt_task *t, const tt_choice *d, tt_call *call);
