// probe.c: questions to the peers' services (PROBE). The answers (STATE) keep the copies of the peers' pages up to
// date. No answer means that the peer's process does not run, or cannot be reached.
//
// A service thread answers whatever its rank computes, so a peer that is late answers, however late it is. One whose
// process is stopped does not, though its kernel takes what is sent; nor does one whose machine or network has failed.
// A question that stays unanswered for NCCL_NET_TIMEOUT ends this rank's port, if the rank still waits for that peer.
// One question at a time is under way on a connection, so they do not pile up.
//
// This rank may have been stopped as well, with the whole job or its machine: only time in which the service thread
// itself was awake counts.
//
// Peers on the same machine are asked, too: nothing else shows that a rank is stopped, and a rank may have no other
// peers. As a rule there is no connection with their services. So one is made when a lane has waited for some time.
#include <stdio.h>

#include "base/param.h"
#include "base/result.h"
#include "os/clock.h"
#include "os/events.h"
#include "proxy/relay.h"

#define PROBE_EVERY_NS (50 * TT_NS_PER_MS)
#define PROBE_BURST 4 // questions in that time, to all peers together
// And two of plan_check's intervals. A thread that has not asked for so long does not wait any more.
#define STALE_NS (2 * TT_NS_PER_S)
#define ACQUAINT_NS (2 * TT_NS_PER_S) // a wait after which a connection is made, if there is none
#define LOOK_NS (500 * TT_NS_PER_MS)  // between two looks at a question without an answer,
#define LOOKS 8                       // of which there are so many at least

// ---- any thread

static uint64_t stale_ns(void)
{
  return STALE_NS + 2 * (uint64_t)TT_CLAMP(tt_params_get()->peer_check_ms, 0, 1 << 20) * TT_NS_PER_MS;
}

// A rank that waits for many peers shall not ask all of them at once: where there are many such ranks, their questions
// keep each other waiting.
static bool may_probe(tt_proxy_service *s, uint64_t now)
{
  const uint64_t each = PROBE_EVERY_NS / PROBE_BURST;
  uint64_t at = atomic_load_explicit(&s->probe_ns, memory_order_relaxed);
  return at <= now && atomic_compare_exchange_strong(&s->probe_ns, &at, TT_MAX(at, now - PROBE_EVERY_NS) + each);
}

// Notes that somebody waits for the peer.
static void note_wait(tt_proxy_ties *t, uint64_t now)
{
  if (now - atomic_load_explicit(&t->wanted_ns, memory_order_relaxed) >= stale_ns()) {
    atomic_store_explicit(&t->since_ns, now, memory_order_relaxed);
  }
  atomic_store_explicit(&t->wanted_ns, now, memory_order_relaxed);
}

void tt_proxy_probe(tt_proxy *p, int rank)
{
  tt_proxy_peer *peer = rank == p->rank ? NULL : tt_proxy_peer_get(p, rank);
  if (peer == NULL) {
    return;
  }
  uint64_t now = tt_now_ns(), last = atomic_load_explicit(&peer->ties->asked_ns, memory_order_relaxed);
  uint64_t turn = (uint64_t)p->nranks * (PROBE_EVERY_NS / PROBE_BURST); // so that every peer comes to be asked
  note_wait(peer->ties, now);
  if (now - last >= TT_MAX(turn, PROBE_EVERY_NS) && may_probe(p->service, now) &&
      atomic_compare_exchange_strong(&peer->ties->asked_ns, &last, now)) {
    tt_proxy_want(peer, TT_MSG_PROBE);
  }
}

void tt_proxy_probe_pending(tt_proxy *p)
{
  tt_proxy_service *s = p->service;
  uint64_t now = tt_now_ns(), at = atomic_load_explicit(&s->pending_ns, memory_order_relaxed);
  if (now < at || !atomic_compare_exchange_strong(&s->pending_ns, &at, now + PROBE_EVERY_NS)) {
    return;
  }
  tt_proxy_op_state some[8];
  int n = TT_MIN(tt_proxy_states(p, some, TT_COUNT(some)), (int)TT_COUNT(some));
  for (int i = 0; i < n; i++) {
    if (some[i].op.behalf == 0) {
      tt_proxy_probe(p, some[i].op.peer);
    }
  }
}

// ---- the service thread

// There is no connection with the peer's service. Where the launching thread has taken on a link, one is being made.
static void acquaint(tt_proxy_service *s, tt_proxy_ties *t, uint64_t now)
{
  uint64_t since = atomic_load_explicit(&t->since_ns, memory_order_relaxed), limit = s->limits.silent_ns;
  if (t->dial.stage == TT_DIAL_NONE && limit != 0 && now - since >= TT_MIN(ACQUAINT_NS, limit / 4)) {
    tt_proxy_dial(s, t);
  }
}

static void probe_one(tt_proxy_service *s, tt_proxy_ties *t)
{
  tt_proxy_talk *k = t->out != NULL ? t->out : t->in;
  uint64_t now = tt_now_ns();
  if (k == NULL) {
    acquaint(s, t, now);
  } else if (!k->asked) {
    k->asked = true;
    k->silent_ns = 0;
    k->looked_ns = now;
    tt_proxy_ties_due(s, t);
    tt_proxy_say(s, k, TT_MSG_PROBE, 0, NULL);
  }
}

// The rank whose proxy brings the peer's messages here; -1: the peer's own.
static int incoming_relay(const tt_proxy_ties *t)
{
  bool any = t->accept.on || atomic_load_explicit(&t->peer->recv.stage, memory_order_relaxed) != TT_CONN_NONE;
  return any && t->accept.by != t->peer->rank ? t->accept.by : -1;
}

// The rank whose proxy takes this rank's messages to the peer; -1: the own one.
static int outgoing_relay(const tt_proxy_ties *t)
{
  const tt_relay *r = atomic_load_explicit(&t->peer->send.relay, memory_order_relaxed);
  return r != NULL ? r->via : -1;
}

void tt_proxy_question(tt_proxy_service *s, tt_proxy_ties *t)
{
  const int ranks[] = {t->peer->rank, incoming_relay(t), outgoing_relay(t)};
  for (size_t i = 0; i < TT_COUNT(ranks); i++) {
    tt_proxy_ties *one = ranks[i] < 0 || ranks[i] == s->proxy->rank ? NULL : tt_proxy_ties_get(s, ranks[i]);
    if (one != NULL) {
      probe_one(s, one);
    }
  }
}

void tt_proxy_census_start(tt_proxy_service *s)
{
  int n = 0;
  for (tt_proxy_ties *t = s->ties; t != NULL; t = t->next) {
    t->counting = (t->out != NULL || t->in != NULL) && t->last.state == 0;
    if (t->counting) {
      n++;
      probe_one(s, t);
    }
  }
  atomic_fetch_add_explicit(&s->unanswered, n - 1, memory_order_release);
}

void tt_proxy_census_answered(tt_proxy_service *s, tt_proxy_ties *t)
{
  if (t->counting) {
    t->counting = false;
    atomic_fetch_sub_explicit(&s->unanswered, 1, memory_order_release);
  }
}

static bool is_waited_for(const tt_proxy_ties *t, uint64_t now)
{
  bool known = t->last.state != 0 || t->last.lost_ns != 0 ||
               atomic_load_explicit(&t->peer->page.state, memory_order_relaxed) >= TT_RANK_FAILED;
  return !known && now - TT_MIN(atomic_load_explicit(&t->wanted_ns, memory_order_relaxed), now) < stale_ns();
}

const tt_proxy_ties *tt_proxy_waiting_peer(const tt_proxy_service *s, int rank, uint64_t now)
{
  const tt_proxy_ties *found = NULL;
  for (const tt_proxy_ties *t = s->ties; t != NULL; t = t->next) {
    if ((t->peer->rank == rank || incoming_relay(t) == rank || outgoing_relay(t) == rank) && is_waited_for(t, now)) {
      found = found == NULL || t->peer->rank == rank ? t : found;
    }
  }
  return found;
}

// "rank 2", or "rank 5, whose messages go by way of rank 2", and its process.
static const char *peer_text(const tt_proxy_service *s, const tt_proxy_ties *t, int rank, char *buf, size_t room)
{
  char at[TT_ADDRS_TEXT];
  int n = t->peer->rank == rank ? snprintf(buf, room, "rank %d", rank)
                                : snprintf(buf, room, "rank %d by way of rank %d", t->peer->rank, rank);
  snprintf(buf + n, room - (size_t)n, " (PID %d at %s)", s->where[rank].pid, tt_addrs_text(&s->where[rank].addrs, at));
  return buf;
}

void tt_proxy_silent(tt_proxy_service *s, const tt_proxy_ties *t, int rank)
{
  char who[TT_ADDRS_TEXT + 96], far[64];
  if (tt_port_status(s->proxy->port) == ncclSuccess) {
    tt_proxy_stop_port(s, tt_fail(ncclRemoteError,
                                  "rank %d waits for %s, whose process has not answered for %.1f s%s: it is stopped "
                                  "(SIGSTOP, a debugger), or its "
                                  "machine or network has failed. NCCL_NET_TIMEOUT says how long to wait; 0: for ever",
                                  s->proxy->rank, peer_text(s, t, rank, who, sizeof who),
                                  (double)s->limits.silent_ns / TT_NS_PER_S,
                                  tt_proxy_oldest_text(s->proxy, t->peer->rank, far, sizeof far)));
  }
}

// A control connection, on which a question may have no answer; NULL: there is none.
static void judge_question(tt_proxy_service *s, tt_proxy_talk *k, uint64_t now, uint64_t *wake_ns)
{
  const uint64_t limit = s->limits.silent_ns, pause = TT_MIN(LOOK_NS, limit / LOOKS);
  if (k == NULL || !k->asked || limit == 0 || s->left || tt_port_status(s->proxy->port) != ncclSuccess) {
    return;
  }
  k->silent_ns += TT_MIN(now - k->looked_ns, 2 * pause);
  k->looked_ns = now;
  const tt_proxy_ties *t = k->silent_ns >= limit ? tt_proxy_waiting_peer(s, k->rank, now) : NULL;
  if (t != NULL) {
    tt_proxy_silent(s, t, k->rank);
  } else {
    tt_wake_by(wake_ns, now + TT_MAX(pause, 1));
  }
}

void tt_proxy_question_step(tt_proxy_service *s, const tt_proxy_ties *t, uint64_t now, uint64_t *wake_ns)
{
  judge_question(s, t->out, now, wake_ns);
  judge_question(s, t->in, now, wake_ns);
}
