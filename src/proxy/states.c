// states.c: states. The own one is told to the peers; theirs go into the copies of their pages, which the executor
// reads as if the peers were on this machine (device/host/plan.c).
//
// A last word (FAILED, ABORTED, GONE) may overtake data on another connection. It says how many messages were sent
// before it, and how many had come. It is shown when the ones are here and this rank knows that the others are sent, or
// when nothing has moved for the time of grace (much longer where it must). A control connection that ends without a
// last word says LOST, after the time of grace: a word may be on its way. So does a data connection that fails: the
// peer's own word explains more than the network's.
#include <string.h>

#include "base/log.h"
#include "base/result.h"
#include "proxy/puts.h"

#define SAMPLE_NS (20 * TT_NS_PER_MS) // between two looks whether messages still come

// ---- the own state

// What the rank waits for, with times as ages; nothing: zeroes.
static tt_wait states_wait(tt_proxy *p, int rank)
{
  tt_wait w;
  if (!tt_wait_read(p->port->page, &w)) {
    return (tt_wait){0};
  }
  uint64_t now = tt_now_ns();
  w.since_ns = now - TT_MIN(now, w.since_ns);
  w.seen_ns = now - TT_MIN(now, w.seen_ns);
  w.how |= tt_proxy_has_passed(p, rank) ? TT_WAIT_EMPTY : 0; // after the wait was read, and before `sent` is
  w.how |= tt_proxy_is_shut(p, rank) ? TT_WAIT_SHUT : 0;
  return w;
}

void tt_proxy_tell(tt_proxy_service *s, tt_proxy_talk *k)
{
  tt_proxy *p = s->proxy;
  const tt_rank_page *page = p->port->page;
  const tt_proxy_peer *peer = tt_proxy_peer_find(p, k->rank);
  tt_msg_state m = {.state = atomic_load_explicit(&page->state, memory_order_acquire), .wait = states_wait(p, k->rank)};
  if (m.state >= TT_RANK_FAILED) {
    m.why = page->why;
    tt_proxy_settle(s->proxy); // what the executor had sent before is on its way now, and counted
  }
  m.culprit = __atomic_load_n(&page->culprit, __ATOMIC_RELAXED);
  m.sent = peer == NULL ? 0 : atomic_load_explicit(&peer->send.counted, memory_order_acquire);
  m.came = peer == NULL ? 0 : atomic_load_explicit(&peer->recv.counted, memory_order_acquire);
  m.puts = tt_puts_sent(p, k->rank, TT_MSG_PUTS);
  m.graphs = tt_puts_sent(p, k->rank, TT_MSG_GRAPHS);
  m.now = atomic_load_explicit(&page->now, memory_order_acquire);
  for (int i = 0; i <= TT_SHOWN; i++) {
    uint64_t sig, count;
    if (tt_shown_read(&page->shown[i], &sig, &count)) {
      m.shown[i].sig = sig;
      m.shown[i].count = count;
    }
  }
  tt_proxy_say(s, k, TT_MSG_STATE, 0, &m);
}

void tt_proxy_tell_all(tt_proxy_service *s)
{
  for (tt_proxy_talk *k = s->talks; k != NULL; k = k->next) {
    if (k->fd >= 0 && k->known) {
      tt_proxy_tell(s, k);
    }
  }
}

// ---- the peers' states

static void ring_waiters(tt_proxy_service *s)
{
  tt_bell_fence();
  tt_bell_alarm(&s->proxy->port->page->bell);
}

static void show_state(tt_proxy_service *s, tt_proxy_ties *t, uint32_t state)
{
  atomic_store_explicit(&t->peer->page.state, state, memory_order_release);
  ring_waiters(s);
}

static bool is_final(const tt_proxy_ties *t)
{
  return atomic_load_explicit(&t->peer->page.state, memory_order_relaxed) >= TT_RANK_FAILED;
}

// Shows what the peer waits for, in the time of this machine; `came`: all that it has sent is here.
static void take_peers_wait(tt_rank_page *page, tt_wait w, bool came)
{
  uint64_t now = tt_now_ns();
  w.seen_ns = now - TT_MIN(now, w.seen_ns);
  w.since_ns = w.since_ns == 0 ? 0 : now - TT_MIN(now - 1, w.since_ns);
  w.how &= came ? UINT32_MAX : ~(uint32_t)TT_WAIT_EMPTY;
  tt_wait_show(page->wait, &w);
}

// The peer has stopped because of a rank whose process has ended: this rank has lost it as well, and says so to its
// peers.
static void take_culprit(tt_proxy_service *s, tt_proxy_ties *t, const tt_msg_state *m)
{
  __atomic_store_n(&t->peer->page.culprit, m->culprit, __ATOMIC_RELAXED);
  if (m->state == TT_RANK_FAILED && tt_culprit_died(m->culprit)) {
    tt_proxy_stop_for(s, m->culprit);
  }
}

// How many messages it has sent and got, for the census; the last word is the last count.
static void take_counts(tt_proxy_service *s, tt_proxy_ties *t, const tt_msg_state *m)
{
  atomic_store_explicit(&t->peer->counts, (uint64_t)m->came << 32 | m->sent, memory_order_release);
  if (m->state == TT_RANK_GONE) {
    atomic_store_explicit(&t->peer->gone, true, memory_order_release);
  }
  tt_proxy_census_answered(s, t);
}

void tt_proxy_state_take(tt_proxy_service *s, tt_proxy_ties *t, const tt_msg_state *m)
{
  take_counts(s, t, m);
  for (int i = 0; i <= TT_SHOWN; i++) {
    uint64_t sig = m->shown[i].sig;
    if (sig != 0 && tt_shown_at((uint32_t)(sig >> 32)) == (uint32_t)i) {
      tt_page_show(&t->peer->page, sig, m->shown[i].count);
    }
  }
  atomic_store_explicit(&t->peer->page.now, m->now, memory_order_release);
  uint32_t came = atomic_load_explicit(&t->peer->recv.counted, memory_order_acquire);
  take_peers_wait(&t->peer->page, m->wait, (int32_t)(came - m->sent) >= 0);
  take_culprit(s, t, m);
  if (is_final(t) || t->last.state != 0) {
    return;
  }
  t->last.sent = m->sent;
  t->last.came = m->came;
  t->last.puts = m->puts;
  t->last.graphs = m->graphs;
  if (m->state < TT_RANK_FAILED) {
    show_state(s, t, m->state);
    return;
  }
  t->peer->page.why = m->why;
  t->last.state = m->state;
  t->last.ns = tt_now_ns();
}

void tt_proxy_state_close(tt_proxy_ties *t)
{
  if (!is_final(t) && t->last.state == 0) { // its last state did not say that it was the last
    t->last.state = TT_RANK_GONE;
    t->last.ns = tt_now_ns();
  }
}

void tt_proxy_state_lost(tt_proxy_service *s, tt_proxy_ties *t)
{
  if (!is_final(t) && t->last.state == 0 && t->last.lost_ns == 0) {
    t->last.lost_ns = tt_now_ns();
    tt_info(TT_PROXY, "rank %d: the control connection with rank %d has ended without a last word", s->proxy->rank,
            t->peer->rank);
  }
}

static bool is_stage(const tt_proxy_conn *c, uint32_t stage)
{
  return atomic_load_explicit(&c->stage, memory_order_acquire) == stage;
}

// Are all messages here that the peer had sent before its last word? Or none come any more.
static bool have_come(const tt_proxy_ties *t)
{
  const tt_proxy_conn *c = &t->peer->recv;
  return (int32_t)(atomic_load_explicit(&c->counted, memory_order_acquire) - t->last.sent) >= 0 ||
         is_stage(c, TT_CONN_BROKEN);
}

// Does this rank know of all messages which the peer had got before its last word that they are sent?
static bool are_sent(const tt_proxy_ties *t)
{
  const tt_proxy_conn *c = &t->peer->send;
  return (int32_t)(atomic_load_explicit(&c->freed, memory_order_acquire) - t->last.came) >= 0 ||
         is_stage(c, TT_CONN_BROKEN);
}

// The same as have_come, of one-sided and of captured operations.
static bool puts_have_come(const tt_proxy *p, const tt_proxy_ties *t)
{
  const int rank = t->peer->rank;
  return tt_puts_complete(p, rank, TT_MSG_PUTS, t->last.puts) &&
         tt_puts_complete(p, rank, TT_MSG_GRAPHS, t->last.graphs);
}

// How long nothing may move before the word is shown although messages are missing. A peer that has gone has waited
// until all of them were on their way: they come, however slow the network is or busy this rank, until a connection
// fails. One that has stopped leaves them where they are.
static uint64_t patience(const tt_proxy_service *s, const tt_proxy_ties *t)
{
  bool comes = have_come(t) || is_stage(&t->peer->recv, TT_CONN_READY) || t->accept.on;
  bool fails = is_stage(&t->peer->send, TT_CONN_BROKEN);
  return t->last.state == TT_RANK_GONE && comes && !fails ? s->limits.drain_ns : s->limits.grace_ns;
}

// A word or a loss that waits to be shown.
static void judge_peer(tt_proxy_service *s, tt_proxy_ties *t, uint64_t now, uint64_t *wake_ns)
{
  if (is_final(t) || (t->last.state == 0 && t->last.lost_ns == 0)) {
    return;
  }
  uint32_t came = atomic_load_explicit(&t->peer->recv.counted, memory_order_acquire);
  uint32_t freed = atomic_load_explicit(&t->peer->send.freed, memory_order_acquire);
  uint32_t moved = came + freed + tt_puts_came(s->proxy, t->peer->rank, TT_MSG_PUTS) +
                   tt_puts_came(s->proxy, t->peer->rank, TT_MSG_GRAPHS);
  if (moved != t->last.moved) {
    t->last.moved = moved;
    t->last.moved_ns = now;
  }
  bool complete = t->last.state != 0 && have_come(t) && are_sent(t) && puts_have_come(s->proxy, t);
  uint64_t since = TT_MAX(t->last.state != 0 ? t->last.ns : t->last.lost_ns, t->last.moved_ns);
  uint64_t end = since + patience(s, t);
  if (complete || now >= end) {
    show_state(s, t, t->last.state != 0 ? t->last.state : TT_RANK_LOST);
    tt_proxy_setup_close(s, t);
    return;
  }
  tt_wake_by(wake_ns, TT_MIN(end, now + SAMPLE_NS));
}

enum { SENDING, RECEIVING, SETUP };

static bool has_failed(const tt_proxy_ties *t, int which)
{
  if (which == SETUP) {
    return t->setup.stage == TT_SETUP_FAILED;
  }
  const tt_proxy_conn *c = which == SENDING ? &t->peer->send : &t->peer->recv;
  return atomic_load_explicit(&c->stage, memory_order_acquire) == TT_CONN_BROKEN;
}

static ncclResult_t why_failed(const tt_proxy_service *s, const tt_proxy_ties *t, int which)
{
  if (which == SETUP) {
    return tt_proxy_setup_error(s, t);
  }
  const tt_proxy_conn *c = which == SENDING ? &t->peer->send : &t->peer->recv;
  tt_last_error_set(c->text); // it was logged where it was found
  return c->code;
}

// A failed data connection stops the port, unless the peer's page explains it. What is this rank's own fault needs no
// explanation.
static void judge_conn(tt_proxy_service *s, tt_proxy_ties *t, int which, uint64_t now, uint64_t *wake_ns)
{
  const tt_proxy_ties *own = t->whose != NULL ? t->whose : t;
  if (t->failures[which].judged || !has_failed(t, which)) {
    return;
  }
  if (t->failures[which].ns == 0) {
    t->failures[which].ns = now;
  }
  bool remote = which == SETUP || (which == SENDING ? &t->peer->send : &t->peer->recv)->code == ncclRemoteError;
  uint64_t end = t->failures[which].ns + s->limits.grace_ns;
  if (remote && !is_final(own) && (own->last.state != 0 || own->last.lost_ns != 0 || now < end)) {
    tt_wake_by(wake_ns, TT_MAX(end, now + SAMPLE_NS));
    return;
  }
  t->failures[which].judged = true;
  if (!remote || !is_final(own)) {
    tt_proxy_stop_port(s, why_failed(s, t, which));
  }
}

void tt_proxy_failures_step(tt_proxy_service *s, tt_proxy_ties *t, uint64_t now, uint64_t *wake_ns)
{
  for (int which = SENDING; which <= SETUP; which++) {
    judge_conn(s, t, which, now, wake_ns);
  }
}

void tt_proxy_state_step(tt_proxy_service *s, tt_proxy_ties *t, uint64_t now, uint64_t *wake_ns)
{
  judge_peer(s, t, now, wake_ns);
  tt_proxy_failures_step(s, t, now, wake_ns);
}
