// diagnose.c: see diagnose.h. Reads pages and the flight recorder, and takes no lock.
#include "comm/diagnose.h"

#include "base/result.h"
#include "base/values.h"
#include "comm/comm.h"
#include "comm/flight.h"
#include "os/proc.h"

#define LAST_OPERATIONS 16

static const char *diagnose_state(const struct ncclComm *c)
{
  static const char *const states[] = {"starting", "ready", "finalized", "broken", "suspended"};
  int state = atomic_load_explicit(&c->state, memory_order_acquire);
  return tt_port_status(&c->port) != ncclSuccess ? "failed" : (unsigned)state < TT_COUNT(states) ? states[state] : "?";
}

static void diagnose_put_process(tt_values *v, int pid)
{
  char text[TT_PROC_TEXT] = "";
  tt_values_put_int(v, "pid", pid);
  if (pid != 0 && !tt_proc_describe(pid, text)) {
    text[0] = '\0';
  }
  tt_values_put_text(v, "process", "%s", text);
}

static void diagnose_put_wait(tt_values *v, const tt_rank_view *r)
{
  char call[TT_CALL_TEXT];
  bool behind = r->wait.how & TT_WAIT_BEHIND;
  tt_values_key(v, "waits");
  if (!r->waits) {
    tt_values_null(v);
    return;
  }
  tt_values_dict(v);
  tt_values_put_int(v, "for", behind ? -1 : (int64_t)r->wait.peer);
  tt_values_put_text(v, "to", "%s",
                     behind                           ? "run, behind other work of its stream"
                     : r->wait.how & TT_WAIT_SIGNAL   ? "signal"
                     : r->wait.how & TT_WAIT_RECEIVES ? "receive"
                                                      : "send");
  tt_values_put_text(v, "in", "%s",
                     r->wait.sig == 0 ? "" : tt_call_describe(call, r->wait.sig, r->wait.count, (int)r->wait.peer));
  tt_values_key(v, "seconds");
  tt_values_float(v, (double)r->waited_ns / 1e9);
  tt_values_end(v);
}

// The ranks of this machine, and those of others that this one is connected with.
static void diagnose_put_ranks(tt_values *v, const struct ncclComm *c)
{
  tt_rank_view r;
  tt_values_key(v, "ranks");
  tt_values_list(v);
  for (int i = 0; i < c->nranks; i++) {
    if (!c->port.row->view(&c->port, i, &r)) {
      continue;
    }
    tt_values_dict(v);
    tt_values_put_int(v, "rank", i);
    tt_values_put_bool(v, "local", c->layout->node_of[i] == c->layout->node_of[c->rank]);
    diagnose_put_process(v, r.pid);
    tt_values_put_text(v, "state", "%s", r.state);
    tt_values_put_int(v, "operation", r.number);
    tt_values_put_text(v, "call", "%s", r.call);
    diagnose_put_wait(v, &r);
    tt_values_end(v);
  }
  tt_values_end(v);
}

static void diagnose_put_verdict(tt_values *v, const struct ncclComm *c)
{
  tt_verdict t;
  c->port.row->tell(&c->port, &t);
  tt_values_key(v, "verdict");
  tt_values_dict(v);
  tt_values_put_text(v, "class", "%s", t.class);
  tt_values_put_int(v, "cause", t.cause);
  diagnose_put_process(v, t.pid);
  tt_values_key(v, "seconds");
  tt_values_float(v, (double)t.waited_ns / 1e9);
  tt_values_put_text(v, "text", "%s", t.text);
  tt_values_end(v);
}

static void diagnose_put_operations(tt_values *v, const struct ncclComm *c)
{
  tt_flight_entry *all;
  size_t n = tt_flight_copy(&c->port.flight, &all);
  tt_values_key(v, "operations");
  tt_values_list(v);
  for (size_t i = n - TT_MIN(n, (size_t)LAST_OPERATIONS); i < n; i++) {
    const tt_flight_entry *e = &all[i];
    tt_values_dict(v);
    tt_values_put_int(v, "record", (int64_t)e->number);
    tt_values_put_int(v, "operation", (int64_t)e->sequence);
    tt_values_put_text(v, "function", "%s", tt_comm_flight_name(e->kind & 0xff));
    tt_values_put_int(v, "peer", (int32_t)(e->kind >> 32));
    tt_values_put_int(v, "count", (int64_t)e->count);
    tt_values_put_text(v, "state", "%s",
                       e->started == TT_FLIGHT_NOT_YET ? "scheduled"
                       : e->ended == TT_FLIGHT_NOT_YET ? "started"
                                                       : "completed");
    tt_values_end(v);
  }
  tt_values_end(v);
  tt_free(all);
}

ncclResult_t tt_comm_diagnose(const struct ncclComm *comm, char **text, size_t *length)
{
  tt_values v;
  tt_values_open(&v, TT_VALUES_JSON);
  tt_values_dict(&v);
  tt_values_put_int(&v, "version", 1);
  tt_values_put_int(&v, "rank", comm->rank);
  tt_values_put_int(&v, "nranks", comm->nranks);
  tt_values_put_text(&v, "hash", "%#llx", (unsigned long long)comm->hash);
  tt_values_put_text(&v, "name", "%s", comm->config.name);
  tt_values_put_text(&v, "state", "%s", diagnose_state(comm));
  tt_values_put_text(&v, "error", "%s", tt_port_status(&comm->port) != ncclSuccess ? tt_port_error(&comm->port) : "");
  int state = atomic_load_explicit(&comm->state, memory_order_acquire);
  if (tt_comm_stands(state) || state == TT_COMM_FINALIZED) {
    diagnose_put_ranks(&v, comm);
    diagnose_put_verdict(&v, comm);
    diagnose_put_operations(&v, comm);
  }
  tt_values_end(&v);
  char *all = tt_values_close(&v, length);
  if (all == NULL) {
    return tt_fail(ncclSystemError, "tuttiCommDiagnose on rank %d: no memory", comm->rank);
  }
  *text = all;
  return ncclSuccess;
}
