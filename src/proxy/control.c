// control.c: control connections between service threads: dial, let in, read and write messages.
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "os/events.h"
#include "proxy/puts.h"
#include "proxy/relay.h"

// ---- one connection

tt_proxy_talk *tt_proxy_talk_new(tt_proxy_service *s, int fd, int rank, bool outgoing)
{
  tt_proxy_talk *k = tt_calloc(1, sizeof *k);
  if (k == NULL || tt_events_watch(s->events, fd, TT_EVENTS_IN, &k->watched) != 0) {
    tt_warn("rank %d: no memory for a control connection with rank %d", s->proxy->rank, rank);
    tt_free(k);
    tt_sock_close(&fd);
    return NULL;
  }
  *k = (tt_proxy_talk){.watched = TT_WATCHED_TALK, .fd = fd, .rank = rank, .outgoing = outgoing, .known = outgoing};
  k->next = s->talks;
  k->at = &s->talks;
  if (k->next != NULL) {
    k->next->at = &k->next;
  }
  s->talks = k;
  tt_sock_patience(fd, tt_net_patience());
  return k;
}

// Why the connection with the peer has ended.
static const char *why_lost(const tt_proxy_ties *t)
{
  uint32_t shown = atomic_load_explicit(&t->peer->page.state, memory_order_relaxed);
  switch (t->last.state != 0 ? t->last.state : shown) {
  case TT_RANK_FAILED: return "that rank has failed";
  case TT_RANK_ABORTED: return "that rank has aborted its communicator";
  case TT_RANK_REVOKED: return "that rank has revoked its communicator";
  case TT_RANK_GONE: return "that rank has destroyed its communicator, and its process has ended";
  default: return "the connection to it has ended without a last word: its process may have died";
  }
}

// Closes the socket; the entry goes with the next sweep. `lost`: the peer may have died. The set is told first, as a
// forked child may have a copy of the descriptor.
static void talk_end(tt_proxy_service *s, tt_proxy_talk *k, bool lost)
{
  int fd = k->fd;
  if (fd < 0) {
    return;
  }
  tt_events_remove(s->events, fd);
  k->ended = s->ended;
  s->ended = k;
  k->fd = -1; // before the number can be somebody else's: a forked child closes what it finds here
  tt_sock_close(&fd);
  tt_proxy_peer *peer = tt_proxy_peer_find(s->proxy, k->rank);
  tt_proxy_ties *t = peer == NULL ? NULL : peer->ties;
  if (t == NULL || !k->known || (t->out != k && t->in != k)) {
    return;
  }
  *(k->outgoing ? &t->out : &t->in) = NULL;
  tt_proxy_census_answered(s, t); // there will be no answer
  tt_proxy_ties_due(s, t);
  tt_proxy_setup_end(s, t, k->outgoing);
  if (k->outgoing) {
    tt_proxy_guests_due(s, k->rank);
    tt_relay_lost(s, k->rank, why_lost(t));
  } else {
    tt_client_gone(s, k->rank);
  }
  if (lost && !k->closing) {
    tt_proxy_state_lost(s, t);
  }
}

static void damaged(tt_proxy_service *s, tt_proxy_talk *k, const char *why)
{
  tt_warn("rank %d: %s on the control connection with rank %d, which is closed", s->proxy->rank, why, k->rank);
  talk_end(s, k, true);
}

// ---- writing

// While something is left to be written, the set tells when there is room.
static void watch_room(const tt_proxy_service *s, tt_proxy_talk *k)
{
  bool out = k->out_end > 0;
  if (k->fd >= 0 && k->watch_out != out &&
      tt_events_watch(s->events, k->fd, TT_EVENTS_IN | (out ? (unsigned)TT_EVENTS_OUT : 0), &k->watched) == 0) {
    k->watch_out = out;
  }
}

// Does not end a connection that the peer has closed: the peer's last message may be there, unread. The reader ends it.
static void flush_talk(tt_proxy_service *s, tt_proxy_talk *k)
{
  while (k->fd >= 0 && k->out_at < k->out_end) {
    ssize_t n = tt_sock_send(k->fd, k->out + k->out_at, k->out_end - k->out_at);
    if (n == -EAGAIN) {
      watch_room(s, k);
      return;
    }
    if (n == -EPIPE || n == -ECONNRESET) {
      k->deaf = true;
      break;
    }
    if (n < 0) {
      talk_end(s, k, true);
      return;
    }
    k->out_at += (size_t)n;
  }
  k->out_at = k->out_end = 0;
  watch_room(s, k);
}

void tt_proxy_say(tt_proxy_service *s, tt_proxy_talk *k, tt_msg_type type, uint32_t id, const void *body)
{
  tt_proxy_say_for(s, k, type, id, 0, body);
}

void tt_proxy_say_for(tt_proxy_service *s, tt_proxy_talk *k, tt_msg_type type, uint32_t id, uint32_t behalf,
                      const void *body)
{
  tt_msg_head h = {
      .type = (uint16_t)type, .size = (uint16_t)tt_msg_size(type), .id = id, .from = s->proxy->rank, .behalf = behalf};
  if (k->fd < 0 || k->deaf) {
    return;
  }
  if (sizeof k->out - k->out_end < sizeof h + h.size) {
    if (type == TT_MSG_STATE || type == TT_MSG_PROBE) {
      k->owes |= TT_WANT(type); // the newest one will do
    } else {
      damaged(s, k, "no room, since the peer does not read,");
    }
    return;
  }
  memcpy(k->out + k->out_end, &h, sizeof h);
  if (h.size > 0) {
    memcpy(k->out + k->out_end + sizeof h, body, h.size);
  }
  k->out_end += sizeof h + h.size;
  flush_talk(s, k);
}

// ---- reading

// The first message of an incoming connection. A connection that ends before it has said nothing of importance: the
// dialling side may have made another.
static void take_init(tt_proxy_service *s, tt_proxy_talk *k, tt_proxy_ties *t, const tt_msg *m)
{
  const tt_proxy *p = s->proxy;
  if (m->head.type != TT_MSG_INIT || k->known) {
    damaged(s, k, "a message out of order");
    return;
  }
  if (m->init.hash != p->hash || m->init.nranks != p->nranks || m->init.version != TT_MSG_VERSION) {
    damaged(s, k, "another communicator or version");
    return;
  }
  if (t->in != NULL) {
    talk_end(s, t->in, false);
  }
  k->known = true;
  t->in = k;
  tt_proxy_tell(s, k);
}

// A message about a data connection. One on behalf of a third rank is about the connection from that one, an answer to
// it about the client's; an answer on behalf of this rank comes from the proxy that shall send for it.
static void dispatch_setup(tt_proxy_service *s, tt_proxy_talk *k, tt_proxy_ties *t, const tt_msg *m)
{
  const tt_proxy *p = s->proxy;
  if (m->head.behalf == 0) {
    tt_proxy_setup_message(s, k, t, m);
    return;
  }
  if (m->head.behalf == TT_MSG_PUTS || m->head.behalf == TT_MSG_GRAPHS) {
    const uint32_t behalf = m->head.behalf;
    tt_proxy_puts *puts = k->outgoing ? tt_puts_find(p, k->rank, behalf) : tt_puts_wanted(s, k->rank, behalf);
    if (puts != NULL) {
      tt_proxy_setup_message(s, k, &puts->ties, m);
      tt_proxy_ties_due(s, &puts->ties);
    }
    return;
  }
  int rank = (int)(m->head.behalf - 1);
  if (rank < 0 || rank >= p->nranks || rank == k->rank || (rank == p->rank && !k->outgoing)) {
    damaged(s, k, "a message on behalf of an invalid rank");
    return;
  }
  if (rank == p->rank) {
    tt_relay_answer(s, k->rank, m);
    return;
  }
  tt_relay_client *g = k->outgoing ? tt_client_find(p, rank, k->rank) : NULL;
  tt_proxy_ties *about = k->outgoing ? g == NULL ? NULL : &g->ties : tt_proxy_ties_get(s, rank);
  if (about != NULL) { // else the client has left, or there is no memory
    tt_proxy_setup_message(s, k, about, m);
    tt_proxy_ties_due(s, about);
  }
}

static void dispatch_message(tt_proxy_service *s, tt_proxy_talk *k, const tt_msg *m)
{
  tt_proxy_ties *t = tt_proxy_ties_get(s, k->rank);
  if (t == NULL) {
    damaged(s, k, "no memory for the peer");
    return;
  }
  if (!k->known || m->head.type == TT_MSG_INIT) {
    take_init(s, k, t, m);
    return;
  }
  switch (m->head.type) {
  case TT_MSG_STATE:
    k->asked = false; // if it was said before the question came, there will be another one
    tt_proxy_state_take(s, t, &m->state);
    break;
  case TT_MSG_PROBE: tt_proxy_tell(s, k); break;
  case TT_MSG_CLOSE:
    k->closing = true;
    tt_proxy_state_close(t);
    break;
  case TT_MSG_GET_FD: tt_client_message(s, k, m); break;
  default: dispatch_setup(s, k, t, m); break;
  }
}

// Takes the complete messages out of the buffer.
void tt_proxy_talk_feed(tt_proxy_service *s, tt_proxy_talk *k)
{
  size_t at = 0;
  while (k->fd >= 0) {
    tt_msg m;
    const char *why = NULL;
    int n = tt_msg_read(k->in + at, k->got - at, k->rank, k->outgoing, &m, &why);
    if (n < 0) {
      damaged(s, k, why);
    }
    if (n <= 0) {
      break;
    }
    at += (size_t)n;
    dispatch_message(s, k, &m);
  }
  k->got -= at;
  memmove(k->in, k->in + at, k->got);
}

static void read_talk(tt_proxy_service *s, tt_proxy_talk *k)
{
  ssize_t n = tt_sock_recv(k->fd, k->in + k->got, sizeof k->in - k->got);
  if (n == -EAGAIN) {
    return;
  }
  if (n < 0) {
    talk_end(s, k, true);
    return;
  }
  k->got += (size_t)n;
  tt_proxy_talk_feed(s, k);
}

static void talk_ready(tt_proxy_service *s, tt_proxy_talk *k)
{
  if (k->fd >= 0) {
    read_talk(s, k);
    flush_talk(s, k);
  }
  uint32_t owes = k->fd >= 0 && k->out_end == 0 ? k->owes : 0;
  k->owes &= ~owes;
  if (owes & TT_WANT(TT_MSG_STATE)) {
    tt_proxy_tell(s, k);
  }
  if (owes & TT_WANT(TT_MSG_PROBE)) {
    tt_proxy_say(s, k, TT_MSG_PROBE, 0, NULL);
  }
}

static void talk_free(tt_proxy_talk *k)
{
  *k->at = k->next;
  if (k->next != NULL) {
    k->next->at = k->at;
  }
  tt_free(k);
}

void tt_proxy_talk_step(tt_proxy_service *s)
{
  void *ready[TT_EVENTS_AT_ONCE];
  int n = tt_events_take(s->events, ready, TT_EVENTS_AT_ONCE);
  for (int i = 0; i < n; i++) {
    if (*(tt_proxy_watched *)ready[i] == TT_WATCHED_DIAL) {
      tt_proxy_ties_due(s, TT_SPAN_OWNER(ready[i], tt_proxy_ties, watched));
    } else {
      talk_ready(s, TT_SPAN_OWNER(ready[i], tt_proxy_talk, watched));
    }
  }
  while (s->ended != NULL) {
    tt_proxy_talk *k = s->ended;
    s->ended = k->ended;
    talk_free(k);
  }
}

// ---- letting in

void tt_proxy_admit(tt_proxy_service *s)
{
  const tt_proxy *p = s->proxy;
  tt_hello h;
  int fd;
  while (tt_greeter_next(&s->door, &h, &fd)) {
    if (h.rank < 0 || h.rank >= p->nranks || h.rank == p->rank || h.nranks != p->nranks || h.tag != p->hash) {
      tt_warn("rank %d: a control connection of rank %d of %d is not of this communicator", p->rank, h.rank, h.nranks);
      tt_sock_close(&fd);
      continue;
    }
    tt_proxy_talk_new(s, fd, h.rank, false);
  }
}

// ---- dialling

static void dial_start(tt_proxy_service *s, tt_proxy_ties *t)
{
  const tt_proxy *p = s->proxy;
  tt_hello h = {.kind = TT_HELLO_PROXY, .rank = p->rank, .to = t->peer->rank, .nranks = p->nranks, .tag = p->hash};
  int e = tt_dial_start(&s->where[t->peer->rank].addrs, &s->key, &h, t->linked_ns + s->limits.connect_ns,
                        &t->dial.under_way);
  t->dial.stage = TT_DIAL_ON;
  tt_proxy_ties_due(s, t);
  if (e == 0) {
    tt_dial_watch(t->dial.under_way, s->events, &t->watched);
  } else {
    tt_proxy_dial_failed(s, t, e);
  }
}

void tt_proxy_link(tt_proxy_service *s, tt_proxy_ties *t)
{
  tt_relay *r = t->peer->send.relay;
  t->own = true;
  if (t->dial.stage == TT_DIAL_FAILED) { // that was a neighbour's trouble, now it is ours
    t->dial.stage = TT_DIAL_NONE;
    t->dial.count = 0;
  }
  if (t->dial.stage != TT_DIAL_NONE) {
    t->linked_ns = tt_now_ns();
    if (t->out != NULL) {
      tt_proxy_setup_begin(s, t);
    }
  }
  tt_proxy_dial(s, t);
  if (r != NULL) {
    tt_relay_begin(s, r);
  }
}

void tt_proxy_dial(tt_proxy_service *s, tt_proxy_ties *t)
{
  if (t->dial.stage == TT_DIAL_NONE) {
    t->linked_ns = tt_now_ns();
    dial_start(s, t);
  }
}

// May another dial lead somewhere? As NCCL does, it rests longer each time. A refusal is nearly always final: services
// listen before anybody knows where.
static bool dial_again(const tt_proxy_service *s, tt_proxy_ties *t, int e, uint64_t now)
{
  const tt_params *q = tt_params_get();
  bool final =
      e == -EMFILE || e == -ENFILE || e == -EAFNOSUPPORT || e == -EACCES || e == -EPROTONOSUPPORT || e == -EINVAL;
  uint64_t pause = tt_span_ns(q->socket_retry_sleep_msec, (uint64_t)++t->dial.count * TT_NS_PER_MS);
  uint64_t end = t->linked_ns + (e == -ECONNREFUSED ? s->limits.refused_ns : s->limits.connect_ns);
  t->dial.rest_ns = now + pause;
  return !final && t->dial.count <= q->socket_retry_cnt && t->dial.rest_ns <= end;
}

// What is wrong, and what to do about it.
static const char *describe_dial_error(int e, const char **advice)
{
  if (tt_sock_is_shortage(e)) {
    return tt_sock_error_text(e);
  }
  switch (e) {
  case -ECONNREFUSED: *advice = "Its process has ended, or a firewall refuses the connection"; return strerror(-e);
  case -EACCES:
    *advice = "Two jobs may be using one port";
    return "the listener there is another rank, or a rank of another communicator";
  case -ETIMEDOUT:
    *advice = "Its process may be stopped (SIGSTOP, a debugger), or a firewall drops what is sent there (ping, "
              "NCCL_SOCKET_IFNAME); "
              "NCCL_NET_TIMEOUT says how long to wait";
    return "no answer";
  default:
    *advice = "Check that the machines reach each other there (ping, firewalls, NCCL_SOCKET_IFNAME)";
    return strerror(-e);
  }
}

void tt_proxy_dial_failed(tt_proxy_service *s, tt_proxy_ties *t, int e)
{
  char at[TT_ADDRS_TEXT];
  int rank = s->proxy->rank, peer = t->peer->rank;
  tt_dial_cancel(t->dial.under_way);
  t->dial.under_way = NULL;
  if (dial_again(s, t, e, tt_now_ns())) {
    t->dial.stage = TT_DIAL_RESTING;
    tt_proxy_ties_wake(s, t, t->dial.rest_ns);
    return;
  }
  t->dial.stage = TT_DIAL_FAILED;
  if (t->last.state != 0 || atomic_load_explicit(&t->peer->page.state, memory_order_relaxed) >= TT_RANK_FAILED) {
    return; // that is known already, and why
  }
  const char *advice = "", *why = describe_dial_error(e, &advice);
  ncclResult_t res = tt_fail(tt_sock_is_shortage(e) ? ncclSystemError : ncclRemoteError,
                             "rank %d cannot reach the proxy of rank %d at %s: %s%s%s", rank, peer,
                             tt_addrs_text(&s->where[peer].addrs, at), why, advice[0] != 0 ? ". " : "", advice);
  tt_client_unreachable(s, peer);
  tt_relay_lost(s, peer, "it cannot be reached");
  if (t->own || tt_puts_find(s->proxy, peer, 0) != NULL) {
    tt_proxy_stop_port(s, res);
    return;
  }
  const tt_proxy_ties *waits = e == -ETIMEDOUT ? tt_proxy_waiting_peer(s, peer, tt_now_ns()) : NULL;
  if (waits != NULL && s->limits.silent_ns != 0) { // it was dialled to be asked
    tt_proxy_silent(s, waits, peer);
  }
}

// The connection stands: tells the peer this rank's name and state.
static void dial_done(tt_proxy_service *s, tt_proxy_ties *t, int fd, const tt_addr *at)
{
  const tt_proxy *p = s->proxy;
  char text[TT_ADDR_TEXT];
  tt_dial_cancel(t->dial.under_way);
  t->dial.under_way = NULL;
  t->dial.stage = TT_DIAL_DONE;
  tt_proxy_talk *k = tt_proxy_talk_new(s, fd, t->peer->rank, true);
  t->out = k;
  if (k == NULL) {
    tt_proxy_stop_port(
        s, tt_fail(ncclSystemError, "rank %d: no memory for the connection to rank %d", p->rank, t->peer->rank));
    return;
  }
  tt_info(TT_PROXY, "rank %d: reached the proxy of rank %d at %s", p->rank, t->peer->rank, tt_addr_text(at, text));
  tt_msg_init init = {.hash = p->hash, .nranks = p->nranks, .version = TT_MSG_VERSION};
  tt_proxy_say(s, k, TT_MSG_INIT, 0, &init);
  if (t->out != NULL) { // not when that has failed
    tt_proxy_tell(s, t->out);
  }
  if (t->out != NULL && t->own) {
    tt_proxy_setup_begin(s, t);
  }
  tt_proxy_guests_due(s, t->peer->rank);
  tt_relay_reached(s, t->peer->rank);
}

void tt_proxy_dial_step(tt_proxy_service *s, tt_proxy_ties *t, uint64_t now)
{
  int fd = -1;
  tt_addr at;
  if (t->dial.stage == TT_DIAL_RESTING && now >= t->dial.rest_ns) {
    dial_start(s, t);
  }
  if (t->dial.stage != TT_DIAL_ON) {
    return;
  }
  int e = tt_dial_step(t->dial.under_way, &fd, &at);
  if (e > 0) {
    dial_done(s, t, fd, &at);
  } else if (e < 0) {
    tt_proxy_dial_failed(s, t, e);
  }
}

// ---- the end

// What was said still arrives: the peer's unread messages are taken first, since closing over them would reset the
// connection.
static void talk_bye(tt_proxy_talk *k)
{
  char rest[1024];
  tt_sock_finish(k->fd);
  for (int i = 0; i < 64 && tt_sock_recv(k->fd, rest, sizeof rest) > 0; i++) {
  }
  int fd = k->fd;
  k->fd = -1;
  tt_sock_close(&fd);
}

void tt_proxy_talks_close(tt_proxy_service *s, uint64_t until_ns)
{
  for (tt_proxy_talk *k = s->talks; k != NULL; k = k->next) {
    tt_proxy_tell(s, k); // also who has not said INIT yet: its hello has told who it is
    tt_proxy_say(s, k, TT_MSG_CLOSE, 0, NULL);
  }
  for (tt_proxy_talk *k = s->talks; k != NULL; k = k->next) {
    while (k->fd >= 0 && k->out_end > 0 && tt_now_ns() < until_ns) {
      struct pollfd f = {.fd = k->fd, .events = POLLOUT};
      tt_until until = {.deadline_ns = until_ns};
      tt_sock_poll(&f, 1, &until);
      flush_talk(s, k);
    }
    if (k->fd >= 0) {
      talk_bye(k);
    }
  }
  while (s->talks != NULL) {
    talk_free(s->talks);
  }
}
