// write_why.c: the report as a graph of waits: each rank, whom it waits for, and the verdicts.
#include "base/text.h"
#include "base/util.h"
#include "ras/report.h"

static void why_add_rank(ras_text *out, const ras_rank *r)
{
  const tt_ras_state *s = &r->state;
  char host[TT_ADDR_TEXT], call[TT_CALL_TEXT];
  ras_add(out, "  rank %d, process %d on %s: ", r->rank, r->pid, ras_host_text(&r->host, host));
  if (s->wait_ms == 0) {
    ras_add(out, "does not wait");
  } else if (s->wait_how & TT_WAIT_BEHIND) {
    ras_add(out, "waits for %.1f s behind other work of its stream", (double)s->wait_ms / 1e3);
  } else {
    ras_add(out, "waits for %.1f s to %s rank %d", (double)s->wait_ms / 1e3, tt_wait_verb(s->wait_how), s->wait_peer);
  }
  ras_last_text(s, call);
  ras_add(out, "; %s%s\n", call[0] != '\0' ? "last call: " : "no call yet", call);
}

static void why_add_missing(ras_text *out, const ras_missing *m)
{
  char host[TT_ADDR_TEXT];
  if (m->pid < 0) {
    ras_add(out, "  rank %d: no answer; its process is not known\n", m->rank);
  } else {
    ras_add(out, "  rank %d, process %d on %s: %s\n", m->rank, m->pid, ras_host_text(&m->host, host),
            m->dead ? "is dead" : "no answer");
  }
}

// Has a rank before this one the same verdict? Several ranks mostly wait for one cause.
static bool why_is_said(const ras_comm *c, int at)
{
  const tt_ras_state *s = &c->ranks[at].state;
  for (int i = 0; i < at; i++) {
    if (c->ranks[i].state.verdict == s->verdict && c->ranks[i].state.cause == s->cause) {
      return true;
    }
  }
  return false;
}

static void why_add_comm(ras_text *out, const ras_report *r, const ras_comm *c)
{
  bool any = false;
  ras_add(out, "communicator %#llx: %d ranks, %d answered\n", (unsigned long long)c->ranks[0].hash, c->size, c->n);
  for (int i = 0; i < c->n; i++) {
    why_add_rank(out, &c->ranks[i]);
  }
  ras_report_missing(r, c, why_add_missing, out);
  for (int i = 0; i < c->n; i++) {
    const tt_ras_state *s = &c->ranks[i].state;
    if (s->wait_ms > 0 && s->verdict != 0 && !why_is_said(c, i)) {
      ras_add(out, "  %s: %s\n", ras_class_text(s), s->why);
      any = true;
    }
  }
  if (!any) {
    ras_add(out, "  no rank that answered waits for another\n");
  }
}

void ras_write_why(const ras_report *r, ras_text *out)
{
  for (int i = 0; i < r->ncomms; i++) {
    why_add_comm(out, r, &r->comms[i]);
  }
  if (r->ncomms == 0) {
    ras_add(out, "no communicator\n");
  }
}
