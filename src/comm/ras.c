// ras.c: see ras.h.
#include "comm/ras.h"

#include "base/text.h"
#include "base/util.h"
#include "comm/flight.h"
#include "os/clock.h"

void tt_comm_ras_hold(struct ncclComm *c, tt_peer *me)
{
  c->ras.held = true;
  tt_ras_hold(&me->ras);
}

static void read_wait(const struct ncclComm *c, tt_ras_state *out)
{
  tt_wait w;
  uint64_t now = tt_now_ns();
  if (c->port.page != NULL && tt_wait_read(c->port.page, &w) && w.since_ns < now) {
    out->wait_ms = TT_MAX((now - w.since_ns) / TT_NS_PER_MS, 1u);
    out->wait_peer = (int32_t)w.peer;
    out->wait_how = w.how;
    out->wait_sig = w.sig;
    out->wait_count = w.count;
  }
}

static void read_last(const struct ncclComm *c, tt_ras_state *out)
{
  tt_rank_view view;
  if (c->port.row->view(&c->port, c->rank, &view)) {
    out->last_sig = view.sig;
    out->last_count = view.count;
  }
}

// Costs some reads of /proc, of a rank that waits.
static void read_verdict(const struct ncclComm *c, tt_ras_state *out)
{
  tt_verdict v;
  c->port.row->tell(&c->port, &v);
  out->verdict = tt_ras_class_number(v.class);
  out->cause = v.cause;
  tt_format(out->why, sizeof out->why, "%s", v.text);
}

static char *ras_record(const void *comm, size_t most)
{
  const struct ncclComm *c = comm;
  char *text = NULL;
  size_t length;
  return tt_comm_flight_speaks(c) && tt_comm_flight_text(c, TT_VALUES_JSON, most, &text, &length) == ncclSuccess ? text
                                                                                                                 : NULL;
}

// The page stands from state READY on until the communicator has left.
static void read_state(const void *comm, tt_ras_state *out)
{
  const struct ncclComm *c = comm;
  int state = atomic_load_explicit(&c->state, memory_order_acquire);
  int async = atomic_load_explicit(&c->async, memory_order_acquire);
  *out = (tt_ras_state){.init_state = state == TT_COMM_STARTING ? (int)ncclInProgress : (int)ncclSuccess,
                        .async_error = async,
                        .finalize_called = state == TT_COMM_FINALIZED,
                        .destroy_flag = atomic_load_explicit(&c->magic, memory_order_acquire) != TT_COMM_MAGIC,
                        .abort_flag = __atomic_load_n(&c->port.abort_flag, __ATOMIC_RELAXED) != 0,
                        .cause = -1,
                        .sequence = __atomic_load_n(&c->counts.sequence, __ATOMIC_RELAXED)};
  for (int f = 0; f < TT_RAS_FUNCS; f++) {
    out->counts[f] = __atomic_load_n(&c->counts.calls[f], __ATOMIC_RELAXED);
  }
  if (tt_comm_stands(state) || state == TT_COMM_FINALIZED) {
    ncclResult_t failed = tt_port_status(&c->port);
    out->async_error = failed != ncclSuccess ? (int)failed : async;
    read_wait(c, out);
    read_last(c, out);
    if (out->wait_ms > 0) {
      read_verdict(c, out);
    }
  }
}
static_assert((int)TT_FUNC_BROADCAST == 0 && (int)TT_FUNC_ALLREDUCE + 1 == (int)TT_RAS_FUNCS, "order of the counts");

static tt_key ras_key(const struct ncclComm *c)
{
  tt_key key = tt_key_of(tt_bootstrap_secret(c->boot));
  key.is_public = tt_bootstrap_is_public(c->boot);
  return tt_key_derive(&key, "ras", &c->nranks, sizeof c->nranks);
}

void tt_comm_ras_join(struct ncclComm *c)
{
  tt_ras_member *members = tt_calloc((size_t)c->nranks, sizeof *members);
  if (members == NULL || c->peers[c->rank].ras.family == 0) {
    tt_free(members);
    return;
  }
  for (int i = 0; i < c->nranks; i++) {
    const tt_peer *p = &c->peers[i];
    members[i] = (tt_ras_member){
        .proc = p->at.proc, .at = p->ras, .host = p->at.host, .pid_space = p->pid_space, .device = p->at.device};
  }
  const tt_ras_env env = {.hash = c->hash,
                          .rank = c->rank,
                          .nranks = c->nranks,
                          .members = members,
                          .key = ras_key(c),
                          .read = read_state,
                          .record = ras_record,
                          .comm = c};
  c->ras.entry = tt_ras_join(&env);
  tt_free(members);
}

void tt_comm_ras_leave(struct ncclComm *c)
{
  if (c->ras.held) {
    tt_ras_leave(c->ras.entry);
    tt_ras_release();
    c->ras.entry = NULL;
    c->ras.held = false;
  }
}
