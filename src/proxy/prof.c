// prof.c: profiler events of an operation and its messages (plugin/profiler/profiler.h).
//
//   ProxyOp    begins when the run flag's holder takes the operation on, and ends when it is retired.
//              InProgress: the turn of its first message has come.
//   ProxyStep  of a send. SendGPUWait: its slot's turn. SendPeerWait: the executor has filled the slot. SendWait: the
//              network has it. It ends when the message is sent.
//   ProxyStep  of a receive. RecvWait: the network has the slot. RecvFlushWait: the message has arrived. RecvGPUWait:
//              it is published. Then it ends.
//   ProxyCtrl  taking on operations; what the progress thread does.
//
// A relay that sends an operation reports it too, because only the relay sees the messages. It uses the
// owner's handles and the owner's process id. Profilers follow a handle to the parent when its process id is their own.
// So in one process the owner's profilers are held meanwhile. If they have gone before the relay saw the operation,
// its events have no parent.
//
// The network's events of a message are children of its ProxyStep. Their records (tt_prof_net) belong to the
// connection, because a plugin may be late.
#include "base/util.h"
#include "os/proc.h"
#include "proxy/relay.h"

struct tt_proxy_prof {
  // Of a neighbour's operation, held: they own the parent. NULL: this rank's, or of another process.
  tt_profilers *owner;
  tt_prof_transfer transfer; // its profilers are held; rank: of the operation's owner
  tt_proxy_event from;
  bool begun;
  uint32_t first, end;                  // steps under way: [first, end)
  ncclProfilerEventState_t state;       // of the newest
  tt_prof_event steps[TT_NET_REQUESTS]; // message n at n modulo their number
};

tt_proxy_prof *tt_proxy_prof_new(tt_profilers *p, const tt_proxy_event *from)
{
  tt_proxy_prof *t = tt_profilers_want(p, ncclProfileProxyOp) ? tt_calloc(1, sizeof *t) : NULL;
  if (t != NULL) {
    t->transfer.profilers = tt_profilers_hold(p);
    t->from = *from;
  }
  return t;
}

tt_proxy_prof *tt_proxy_prof_new_for(tt_profilers *p, const tt_proxy_event *from, bool foreign)
{
  tt_proxy_prof *t = tt_proxy_prof_new(p, from);
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

const tt_proxy_event *tt_proxy_prof_event(const tt_proxy_prof *t)
{
  return &t->from;
}

void tt_proxy_prof_begin(tt_proxy_item *i)
{
  tt_proxy_prof *t = i->prof;
  const tt_proxy_conn *c = i->conn;
  const tt_proxy_op *op = &i->op;
  if (t->begun) {
    return;
  }
  t->begun = true;
  t->transfer.rank = op->behalf != 0 ? (int)op->behalf - 1 : c->proxy->rank;
  tt_prof_descr d = {.proxyOp = {.pid = t->from.pid,
                                 .channelId = op->channel,
                                 .peer = c->peer->rank,
                                 .nSteps = (int)op->nsteps,
                                 .chunkSize = (int)TT_MIN(op->chunk, (uint32_t)INT32_MAX),
                                 .isSend = c->send}};
  tt_prof_transfer_start(&t->transfer, &d, &t->from.event);
}

static tt_prof_event *prof_step(tt_proxy_prof *t, uint32_t n)
{
  return &t->steps[n % TT_NET_REQUESTS];
}

void tt_proxy_prof_start(tt_proxy_item *i, uint32_t n, ncclProfilerEventState_t state)
{
  tt_proxy_prof *t = i->prof;
  if (t->end != n + 1) {
    tt_proxy_prof_begin(i);
    t->end = n + 1;
    t->state = state;
    tt_prof_step_start(&t->transfer, n, state, prof_step(t, n));
  }
}

void tt_proxy_prof_state(tt_proxy_item *i, uint32_t n, ncclProfilerEventState_t state, size_t bytes)
{
  tt_proxy_prof *t = i->prof;
  bool newest = n + 1 == t->end;
  if (!newest || t->state != state) {
    t->state = newest ? state : t->state;
    tt_prof_step_state(&t->transfer, prof_step(t, n), state, bytes);
  }
}

void tt_proxy_prof_stop(tt_proxy_item *i, uint32_t n)
{
  tt_proxy_prof *t = i->prof;
  tt_profilers_stop(t->transfer.profilers, prof_step(t, n));
  t->first = n + 1;
}

void *tt_proxy_prof_handle(tt_proxy_item *i)
{
  tt_proxy_prof *t = i->prof;
  tt_proxy_conn *c = i->conn;
  if (!tt_profilers_want(t->transfer.profilers, ncclProfileNetPlugin)) {
    return NULL;
  }
  c->net_prof = c->net_prof != NULL ? c->net_prof : tt_prof_net_open(t->transfer.profilers);
  const tt_prof_event *step = prof_step(t, c->send ? i->transmitted : i->posted);
  return c->net_prof != NULL ? tt_prof_net_message(c->net_prof, c->posted, step, t->transfer.rank) : NULL;
}

void tt_proxy_prof_forget(tt_proxy_conn *c)
{
  for (tt_proxy_item *i = c->first; i != NULL; i = i->next) {
    if (i->prof != NULL) {
      tt_proxy_prof_end(i);
    }
  }
  if (c->net_prof != NULL) {
    tt_prof_net_leave(c->net_prof);
  }
}

void tt_proxy_prof_end(tt_proxy_item *i)
{
  tt_proxy_prof *t = i->prof;
  while (t->first != t->end) {
    tt_proxy_prof_stop(i, t->first);
  }
  tt_profilers_stop(t->transfer.profilers, &t->transfer.op);
  tt_profilers_release(t->transfer.profilers);
  tt_profilers_release(t->owner);
  tt_free(t);
  i->prof = NULL;
}

// ---- ProxyCtrl

void tt_proxy_prof_ctrl_start(tt_proxy *p, tt_prof_event *e, ncclProfilerEventState_t state)
{
  *e = (tt_prof_event){0};
  if (tt_profilers_want(p->profilers, ncclProfileProxyCtrl)) {
    tt_prof_descr d = {.type = ncclProfileProxyCtrl};
    tt_profilers_start(p->profilers, &d, NULL, NULL, e);
    tt_profilers_state(p->profilers, e, state, &(tt_prof_args){0});
  }
}

void tt_proxy_prof_ctrl_stop(tt_proxy *p, tt_prof_event *e, ncclProfilerEventState_t state, int ops)
{
  if (tt_prof_is_on(e)) {
    const tt_prof_args args = {.proxyCtrl = {.appendedProxyOps = ops}};
    tt_profilers_state(p->profilers, e, state, &args);
    tt_profilers_stop(p->profilers, e);
  }
}

void tt_proxy_prof_leave(tt_proxy *p)
{
  tt_profilers *mine = atomic_exchange(&p->profilers, NULL);
  if (mine != NULL) {
    tt_client_prof_leave(p);
    tt_profilers_stop(mine, &p->asleep);
    tt_profilers_release(mine);
  }
}
