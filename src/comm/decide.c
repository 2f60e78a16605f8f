// decide.c: which algorithm an operation takes: chosen, compiled and remembered once for each kind of call.
#include "comm/decide.h"

#include "base/result.h"
#include "comm/collnet.h"
#include "comm/comm.h"
#include "comm/options.h"
#include "comm/redop.h"
#include "comm/schedules.h"
#include "comm/task.h"
#include "comm/tuning.h"

void tt_call_fill(const tt_task *t, uint32_t seq, tt_call *c)
{
  size_t esize = tt_type_size(t->type);
  int op = TT_OP_NONE;
  c->in = t->in;
  c->out = t->out;
  c->in_mem = c->out_mem = (tt_mappable){.handle = 0};
  c->scalar = NULL;
  c->tmp = NULL;
  c->event = t->events;
  c->fetched = c->empty = false;
  atomic_store_explicit(&c->open, false, memory_order_relaxed);
  if (tt_func_reduces(t->func)) {
    op = tt_kind_opcode(t->kind);
    c->count = t->count;
    c->esize = esize;
    tt_op_resolve(t, &c->op, &c->scalar);
  } else {
    c->count = t->count * esize;
    c->esize = 1;
    c->op.prescale = 0;
    c->op.scalar = 0;
  }
  if (tt_func_is_message(t->func)) {
    c->sig = tt_sig_make(0, TT_FUNC_SEND, ncclInt8, op, 0);
    c->sig_count = c->count;
  } else {
    c->sig = tt_sig_make(seq, t->func, t->type, op, t->root);
    c->sig_count = t->count;
  }
}

void tt_call_mark(const tt_task *t, const tt_choice *d, tt_call *call)
{
  const tt_call_options *o = tt_task_options(t);
  if (t->comm->tuned || (o != NULL && ((o->algos.ll | o->algos.simple) != 0 || o->max_channels > 0))) {
    uint64_t parts[] = {(uint64_t)d->algo, (uint64_t)d->proto, d->chunk, (uint64_t)d->channels};
    call->sig_count = tt_sig_count_mark(call->sig_count, tt_hash(parts, sizeof parts, 12), d->decided);
  }
}

// --- programs

// The decision has gone. Plans that have been made may still run its program: it is freed when they are complete.
static void retire_program(struct ncclComm *comm, tt_program *p)
{
  p->until = comm->plans.issued;
  *(comm->decisions.retired == NULL ? &comm->decisions.retired : &comm->decisions.last_retired->next) = p;
  comm->decisions.last_retired = p;
  uint64_t done = atomic_load_explicit(&comm->port.done, memory_order_acquire);
  for (p = comm->decisions.retired; p != NULL && p->until <= done; p = comm->decisions.retired) {
    comm->decisions.retired = p->next;
    tt_free(p);
  }
}

// Compiles what has been decided, if its steps are few.
static void compile(struct ncclComm *comm, const tt_task *t, tt_decision *d)
{
  tt_call c = {.in = NULL};
  if (comm->port.shortcut == NULL || d->choice.channels > 1 || d->choice.networked ||
      tt_opcode_of(t->op) == TT_OP_SCALED) {
    return;
  }
  tt_call_fill(t, 0, &c);
  tt_call_mark(t, &d->choice, &c);
  d->program = tt_program_compile(&comm->port, d->cached->sched, &c, tt_chunk_elements(&d->choice, c.esize),
                                  tt_choice_fifo(&d->choice));
  if (d->program != NULL && tt_func_is_message(t->func)) { // a rank that sends mostly receives as well
    d->program->claims = false;
    d->program->pauses = true;
  }
}

// --- decisions

static bool same_choice(const tt_choice *a, const tt_choice *b)
{
  return a->algo == b->algo && a->proto == b->proto && a->chunk == b->chunk && a->channels == b->channels;
}

static void forget_decision(struct ncclComm *comm, tt_decision *d)
{
  d->made = false;
  if (d->program != NULL) {
    retire_program(comm, d->program);
    d->program = NULL;
  }
}

// A place in a set: a free one; else, going round, that of the first decision which was not used since the last search.
static tt_decision *place_in(struct ncclComm *comm, tt_decision *set)
{
  for (tt_decision *d = set; d < set + TT_DECISION_WAYS; d++) {
    if (!d->made) {
      return d;
    }
  }
  tt_decision *d = &set[++comm->decisions.hand % TT_DECISION_WAYS];
  for (; d->used; d = &set[++comm->decisions.hand % TT_DECISION_WAYS]) {
    d->used = false;
  }
  return d;
}

// Gives the task a decision that is still to be made.
static ncclResult_t claim_decision(struct ncclComm *comm, tt_task *t)
{
  tt_decision **set = &comm->decisions.sets[tt_decision_set(t->count, t->kind)];
  if (*set == NULL) {
    *set = tt_calloc(TT_DECISION_WAYS, sizeof **set);
  }
  if (*set == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for the choice of an algorithm of %s", comm->rank,
                   tt_func_name(t->func));
  }
  tt_decision *d = place_in(comm, *set);
  forget_decision(comm, d);
  d->count = t->count;
  d->kind = t->kind;
  t->decision = d;
  return ncclSuccess;
}

// Chooses, and finds the schedules, unless the choice is the same as before. `asks`: a tuner plugin, each time.
static __attribute__((noinline)) ncclResult_t choose_decision(struct ncclComm *comm, const tt_task *t, size_t ops,
                                                              bool asks, tt_decision *d)
{
  size_t bytes = tt_task_bytes(t);
  tt_choice c;
  TT_TRY(asks ? tt_tuning_choose_task(comm, t, ops, &c)
              : tt_tuning_choose(comm, t->func, bytes, t->root, d->in_network, &c));
  const tt_call_options *o = tt_task_options(t);
  if (o != NULL) {
    TT_TRY(tt_options_choose(t, o, d->in_network, &c));
  }
  if (!d->made || !same_choice(&d->choice, &c)) {
    forget_decision(comm, d);
    d->choice = c;
    TT_TRY(tt_comm_schedules(comm, t->func, t->root, d));
    d->takes_us = tt_tuning_takes_us(comm, bytes);
    d->made = true;
    compile(comm, t, d);
  }
  d->choice.decided = c.decided;
  if (asks && d->program != NULL) {
    d->program->call.sig_count = tt_sig_count_decide(d->program->call.sig_count, c.decided);
  }
  return ncclSuccess;
}

ncclResult_t tt_comm_decide(struct ncclComm *comm, tt_task *t, size_t ops)
{
  bool in_network = TT_UNLIKELY(comm->network.reduce != NULL) && !tt_func_is_message(t->func) &&
                    tt_comm_collnet_allows(comm, t->func, t->type, tt_kind_opcode(t->kind));
  bool asks = TT_UNLIKELY(comm->tuned) && !tt_func_is_message(t->func);
  if (TT_UNLIKELY(!tt_task_is_decided(t))) { // one may have been made since
    tt_comm_recall(comm, t);
  }
  if (TT_UNLIKELY(t->decision == NULL)) {
    TT_TRY(claim_decision(comm, t));
  }
  tt_decision *d = t->decision;
  d->used = true;
  if (TT_UNLIKELY(d->in_network != in_network)) { // of user-defined operations some may be summed there
    forget_decision(comm, d);
    d->in_network = in_network;
  }
  return TT_LIKELY(d->made && !asks) ? ncclSuccess : choose_decision(comm, t, ops, asks, d);
}

void tt_comm_free_decisions(struct ncclComm *comm)
{
  for (int i = 0; i < TT_DECISION_SETS; i++) {
    for (int k = 0; comm->decisions.sets[i] != NULL && k < TT_DECISION_WAYS; k++) {
      tt_free(comm->decisions.sets[i][k].program);
    }
    tt_free(comm->decisions.sets[i]);
    comm->decisions.sets[i] = NULL;
  }
  for (tt_program *p = comm->decisions.retired, *next; p != NULL; p = next) {
    next = p->next;
    tt_free(p);
  }
  comm->decisions.retired = NULL;
  tt_free(comm->decisions.options);
  comm->decisions.options = NULL;
  comm->decisions.noptions = comm->decisions.options_room = 0;
}
