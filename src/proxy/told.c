// told.c: what profilers are told of an operation and its messages (plugin/profiler/profiler.h).
//
//   ProxyOp    from when the run flag's holder takes the operation on until it is retired, however it ended; InProgress when its first message's turn comes
//   ProxyStep  sends: from when its slot's turn comes: SendGPUWait, SendPeerWait (the executor has filled it), SendWait (the network has it); until it is sent
//              receives: from when a slot is given to the network: RecvWait, RecvFlushWait (it is here), RecvGPUWait (the executor is shown it), which ends it
//   ProxyCtrl  taking on operations; the progress thread
//
// An operation that a neighbour's proxy sends is told by that one, with the owner's handles and the owner's process id: only there are the messages seen.
// In one process the owner's profilers are held meanwhile, because profilers follow a handle to the parent when its process id is their own; an operation
// whose owner's have gone before the neighbour saw it is told without a parent.
//
// What the network tells of a message hangs below its ProxyStep. Its records (tt_prof_net) are the connection's, because a plugin may be late.
#include "base/util.h"
#include "os/proc.h"
#include "proxy/relay.h"

struct tt_proxy_told {
  tt_profilers *owner;       // of a neighbour's operation, held: the parent is theirs. NULL: ours, or of another process
  tt_prof_transfer transfer; // its profilers are held; rank: of the operation's owner
  tt_proxy_event from;
  bool begun;
  bool waits, ready;                    // sends: a message's step has begun that the network has not got; its slot is filled
  uint32_t first, end;                  // steps under way: [first, end)
  tt_prof_event steps[TT_NET_REQUESTS]; // message n at n modulo their number
};

tt_proxy_told *tt_proxy_told_new(tt_profilers *p, const tt_proxy_event *from)
{
  tt_proxy_told *t = tt_profilers_want(p, ncclProfileProxyOp) ? tt_calloc(1, sizeof *t) : NULL;
  if (t != NULL) {
    t->transfer.profilers = tt_profilers_hold(p);
    t->from = *from;
  }
  return t;
}

tt_proxy_told *tt_proxy_told_new_for(tt_profilers *p, const tt_proxy_event *from, bool foreign)
{
  tt_proxy_told *t = tt_proxy_told_new(p, from);
  if (t == NULL) {
    return NULL;
  }
  t->owner = foreign ? NULL : tt_profilers_find(from->owner);
  // Another process may have the same number in another container; profilers would take its handles for their own.
  bool mistaken = foreign && from->pid == tt_proc_self().pid;
  if (mistaken || (!foreign && t->owner == NULL)) {
    t->from.event = (tt_prof_event){0};
  }
  return t;
}

const tt_proxy_event *tt_proxy_told_event(const tt_proxy_told *t)
{
  return &t->from;
}

void tt_proxy_told_begin(tt_proxy_item *i)
{
  tt_proxy_told *t = i->told;
  const tt_proxy_conn *c = i->conn;
  tt_proxy_op op;
  if (t->begun) {
    return;
  }
  tt_proxy_item_op(i, &op);
  t->begun = true;
  t->transfer.rank = op.behalf != 0 ? (int)op.behalf - 1 : c->proxy->rank;
  tt_prof_descr d = {.proxyOp = {.pid = t->from.pid,
                                 .channelId = op.channel,
                                 .peer = c->peer->rank,
                                 .nSteps = (int)i->nsteps,
                                 .chunkSize = (int)TT_MIN(op.chunk, (uint32_t)INT32_MAX),
                                 .isSend = c->send}};
  tt_prof_transfer_start(&t->transfer, &d, &t->from.event);
}

static tt_prof_event *step_of(tt_proxy_told *t, uint32_t n)
{
  return &t->steps[n % TT_NET_REQUESTS];
}

static void start_step(tt_proxy_item *i, uint32_t n, ncclProfilerEventState_t state)
{
  tt_proxy_told *t = i->told;
  tt_proxy_told_begin(i);
  t->end = n + 1;
  tt_prof_step_start(&t->transfer, n, state, step_of(t, n));
}

static void step_state(tt_proxy_told *t, uint32_t n, ncclProfilerEventState_t state, size_t bytes)
{
  tt_prof_step_state(&t->transfer, step_of(t, n), state, bytes);
}

static void stop_step(tt_proxy_told *t, uint32_t n)
{
  tt_profilers_stop(t->transfer.profilers, step_of(t, n));
  t->first = n + 1;
}

void tt_proxy_told_turn(tt_proxy_item *i, bool filled)
{
  tt_proxy_told *t = i->told;
  uint32_t n = tt_proxy_count(&i->transmitted);
  if (!t->waits) {
    t->waits = true;
    t->ready = false;
    start_step(i, n, ncclProfilerProxyStepSendGPUWait);
  }
  if (filled && !t->ready) {
    t->ready = true;
    step_state(t, n, ncclProfilerProxyStepSendPeerWait_v4, 0);
  }
}

void tt_proxy_told_given(tt_proxy_item *i, size_t bytes)
{
  i->told->waits = false;
  step_state(i->told, tt_proxy_count(&i->transmitted), ncclProfilerProxyStepSendWait, bytes);
}

void tt_proxy_told_sent(tt_proxy_item *i)
{
  stop_step(i->told, tt_proxy_count(&i->done));
}

void tt_proxy_told_posting(tt_proxy_item *i)
{
  tt_proxy_told *t = i->told;
  uint32_t n = tt_proxy_count(&i->posted);
  if (t->end != n + 1) { // else the network has said "not now" before
    start_step(i, n, ncclProfilerProxyStepRecvWait);
  }
}

void tt_proxy_told_received(tt_proxy_item *i, size_t bytes)
{
  step_state(i->told, tt_proxy_count(&i->received), ncclProfilerProxyStepRecvFlushWait, bytes);
}

void tt_proxy_told_published(tt_proxy_item *i, size_t bytes)
{
  uint32_t n = tt_proxy_count(&i->transmitted);
  step_state(i->told, n, ncclProfilerProxyStepRecvGPUWait, bytes);
  stop_step(i->told, n);
}

void *tt_proxy_told_handle(tt_proxy_item *i)
{
  tt_proxy_told *t = i->told;
  tt_proxy_conn *c = i->conn;
  if (!tt_profilers_want(t->transfer.profilers, ncclProfileNetPlugin)) {
    return NULL;
  }
  c->net_told = c->net_told != NULL ? c->net_told : tt_prof_net_open(t->transfer.profilers);
  const tt_prof_event *step = step_of(t, tt_proxy_count(c->send ? &i->transmitted : &i->posted));
  return c->net_told != NULL ? tt_prof_net_message(c->net_told, c->posted, step, t->transfer.rank) : NULL;
}

void tt_proxy_told_forget(tt_proxy_conn *c)
{
  for (tt_proxy_item *i = c->first; i != NULL; i = i->next) {
    if (i->told != NULL) {
      tt_proxy_told_end(i);
    }
  }
  if (c->net_told != NULL) {
    tt_prof_net_leave(c->net_told);
  }
}

void tt_proxy_told_end(tt_proxy_item *i)
{
  tt_proxy_told *t = i->told;
  i->told = NULL;
  while (t->first != t->end) {
    stop_step(t, t->first);
  }
  tt_profilers_stop(t->transfer.profilers, &t->transfer.op);
  tt_profilers_release(t->transfer.profilers);
  tt_profilers_release(t->owner);
  tt_free(t);
}

// ---- ProxyCtrl

void tt_proxy_told_ctrl_start(tt_proxy *p, tt_prof_event *e, ncclProfilerEventState_t state)
{
  *e = (tt_prof_event){0};
  if (tt_profilers_want(p->profilers, ncclProfileProxyCtrl)) {
    tt_prof_descr d = {.type = ncclProfileProxyCtrl};
    tt_profilers_start(p->profilers, &d, NULL, NULL, e);
    tt_profilers_state(p->profilers, e, state, &(tt_prof_args){0});
  }
}

void tt_proxy_told_ctrl_end(tt_proxy *p, tt_prof_event *e)
{
  if (tt_prof_is_on(e)) {
    tt_profilers_stop(p->profilers, e);
  }
}

void tt_proxy_told_ctrl_stop(tt_proxy *p, tt_prof_event *e, ncclProfilerEventState_t state, int ops)
{
  if (tt_prof_is_on(e)) {
    const tt_prof_args args = {.proxyCtrl = {.appendedProxyOps = ops}};
    tt_profilers_state(p->profilers, e, state, &args);
    tt_profilers_stop(p->profilers, e);
  }
}

void tt_proxy_told_leave(tt_proxy *p)
{
  tt_profilers *mine = atomic_exchange(&p->profilers, NULL);
  if (mine != NULL) {
    tt_guest_told_leave(p);
    tt_profilers_stop(mine, &p->asleep);
    tt_profilers_release(mine);
  }
}
