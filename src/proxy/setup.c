// setup.c: data connections. The sender's service asks the receiver's to listen (SETUP), connects to the handle that
// comes back, and says so (CONNECT). The receiver takes its end into use only then. So a failed attempt can be followed
// by one over other devices.
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/result.h"
#include "proxy/service_priv.h"

#define PAUSE_NS 100000ull              // before the network is called again,
#define PAUSE_MAX_NS (5 * TT_NS_PER_MS) // doubled each time up to this

void tt_proxy_log_channel(const tt_proxy_service *s, int from, int to, int device, int relay)
{
  char through[16] = "";
  if (relay >= 0) {
    snprintf(through, sizeof through, "(%d)", relay);
  }
  tt_info(TT_INIT | TT_NET, "Channel 00/0 : %d[%d] -> %d[%d] [%s] via NET/%s/%d%s", from, s->gpus[from], to,
          s->gpus[to], from == s->proxy->rank ? "send" : "receive", s->proxy->net->name, device, through);
}

// ---- the sending end

// The devices of attempt k: first each device of the peer with one of ours in step, then shifted.
static int own_device(const tt_proxy_service *s, const tt_proxy_ties *t)
{
  uint32_t n = (uint32_t)TT_MAX(t->setup.ndevices, 1);
  return (int)(((uint32_t)s->device + t->setup.attempt % n + t->setup.attempt / n) % (uint32_t)s->ndevices);
}

static void setup_request(tt_proxy_service *s, tt_proxy_ties *t)
{
  int n = TT_MAX(t->setup.ndevices, 1);
  tt_msg_setup m = {.device = s->device + (int)(t->setup.attempt % (uint32_t)n)};
  t->setup.stage = TT_SETUP_ASKED;
  t->setup.since_ns = tt_now_ns();
  tt_proxy_say_for(s, t->out, TT_MSG_SETUP, t->setup.attempt, t->setup.behalf, &m);
}

void tt_proxy_setup_cancel(const tt_proxy_service *s, tt_proxy_ties *t)
{
  const tt_proxy *p = s->proxy;
  if (t->setup.stage == TT_SETUP_CONNECTING && t->setup.tried && p->net->cancel != NULL) {
    p->net->cancel(p->ctx, own_device(s, t), t->setup.handle);
  }
  t->setup.stage = TT_SETUP_NONE;
}

// No device reaches the peer. It may just have gone: states.c finds that out.
static void setup_fail(const tt_proxy_service *s, tt_proxy_ties *t, const char *why)
{
  tt_proxy_setup_cancel(s, t);
  if (why != t->setup.text) {
    snprintf(t->setup.text, sizeof t->setup.text, "%s", why);
  }
  t->setup.stage = TT_SETUP_FAILED;
}

ncclResult_t tt_proxy_setup_error(const tt_proxy_service *s, const tt_proxy_ties *t)
{
  return tt_fail(ncclRemoteError,
                 "rank %d cannot connect to rank %d over network %s (%u attempts, %d devices here, %d there): %s. "
                 "Check that the machines "
                 "reach each other over these interfaces (firewalls, NCCL_SOCKET_IFNAME, NCCL_NET)",
                 s->proxy->rank, t->peer->rank, s->proxy->net->name, t->setup.attempt + 1, s->ndevices,
                 t->setup.ndevices, t->setup.text);
}

static bool has_more(const tt_proxy_service *s, const tt_proxy_ties *t)
{
  return t->setup.attempt + 1 < (uint32_t)s->ndevices * (uint32_t)TT_MAX(t->setup.ndevices, 1);
}

// The attempt has failed, t->setup.text says why.
static void next_attempt(tt_proxy_service *s, tt_proxy_ties *t)
{
  tt_info(TT_PROXY | TT_NET, "rank %d: attempt %u to connect to rank %d failed: %s", s->proxy->rank,
          t->setup.attempt + 1, t->peer->rank, t->setup.text);
  if (!has_more(s, t)) {
    setup_fail(s, t, t->setup.text);
    return;
  }
  tt_proxy_setup_cancel(s, t);
  t->setup.attempt++;
  setup_request(s, t);
}

void tt_proxy_setup_begin(tt_proxy_service *s, tt_proxy_ties *t)
{
  if (t->setup.stage != TT_SETUP_NONE || t->peer->send.relay != NULL) {
    return;
  }
  tt_proxy_ties_due(s, t);
  if (s->ndevices <= 0) {
    setup_fail(s, t, "this rank has no network device");
    return;
  }
  setup_request(s, t);
}

static void take_answer(tt_proxy_service *s, tt_proxy_ties *t, const tt_msg *m)
{
  if (m->head.id != t->setup.attempt || (t->setup.stage != TT_SETUP_ASKED && t->setup.stage != TT_SETUP_CONNECTING)) {
    return; // to an earlier attempt
  }
  t->setup.ndevices = m->answer.ndevices;
  if (m->answer.code != ncclSuccess) {
    snprintf(t->setup.text, sizeof t->setup.text, "%s", m->answer.text);
    next_attempt(s, t);
  } else if (t->setup.stage == TT_SETUP_ASKED) {
    memcpy(t->setup.handle, m->answer.handle, sizeof t->setup.handle);
    t->setup.stage = TT_SETUP_CONNECTING;
    t->setup.tried = false;
    t->setup.pause_ns = PAUSE_NS;
    t->setup.try_ns = 0;
  }
}

static void setup_stands(tt_proxy_service *s, tt_proxy_ties *t, void *comm)
{
  t->setup.stage = TT_SETUP_UP;
  if (t->setup.behalf == 0) { // else it is the line of the rank whose messages go here
    tt_proxy_log_channel(s, s->proxy->rank, t->peer->rank, own_device(s, t), -1);
  }
  tt_proxy_say_for(s, t->out, TT_MSG_CONNECT, t->setup.attempt, t->setup.behalf, NULL);
  tt_proxy_conn_ready(&t->peer->send, comm, false);
}

// Said before the first call of connect, which may wait for the peer's accept. False: the control connection has ended
// over that, and with it the attempt.
static bool say_try(tt_proxy_service *s, tt_proxy_ties *t)
{
  const tt_proxy_talk *k = t->out;
  tt_proxy_say_for(s, t->out, TT_MSG_TRY, t->setup.attempt, t->setup.behalf, NULL);
  t->setup.tried = t->setup.stage == TT_SETUP_CONNECTING && k->fd >= 0;
  return t->setup.tried;
}

static void setup_connect_step(tt_proxy_service *s, tt_proxy_ties *t, uint64_t now)
{
  void *comm = NULL;
  if (!t->setup.tried && !say_try(s, t)) {
    return;
  }
  ncclResult_t res = s->proxy->net->connect(s->proxy->ctx, own_device(s, t), t->setup.handle, &comm);
  if (res != ncclSuccess && res != ncclInProgress) {
    snprintf(t->setup.text, sizeof t->setup.text, "%s", tt_last_error());
    next_attempt(s, t);
  } else if (comm != NULL) {
    setup_stands(s, t, comm);
  } else if (has_more(s, t) && now >= t->setup.since_ns + s->limits.attempt_ns) {
    snprintf(t->setup.text, sizeof t->setup.text, "no connection within %llu ms",
             (unsigned long long)(s->limits.attempt_ns / TT_NS_PER_MS));
    next_attempt(s, t);
  } else {
    t->setup.try_ns = now + t->setup.pause_ns;
    t->setup.pause_ns = TT_MIN(2 * t->setup.pause_ns, PAUSE_MAX_NS);
  }
}

static void send_step(tt_proxy_service *s, tt_proxy_ties *t, uint64_t now, uint64_t *wake_ns)
{
  if (t->setup.stage != TT_SETUP_ASKED && t->setup.stage != TT_SETUP_CONNECTING) {
    return;
  }
  uint64_t end = t->linked_ns + s->limits.connect_ns;
  if (now >= end) {
    setup_fail(s, t,
               t->setup.stage == TT_SETUP_ASKED ? "its proxy does not answer"
               : t->setup.text[0] != 0          ? t->setup.text
                                                : "the connection did not come up");
    return;
  }
  if (t->setup.stage == TT_SETUP_CONNECTING && now >= t->setup.try_ns) {
    setup_connect_step(s, t, now);
  }
  tt_wake_by(wake_ns, t->setup.stage == TT_SETUP_CONNECTING ? TT_MAX(t->setup.try_ns, 1) : end);
}

// ---- the receiving end

void tt_proxy_setup_close(tt_proxy_service *s, tt_proxy_ties *t)
{
  const tt_net_ops *net = s->proxy->net;
  net->close_listen(t->accept.listener);
  net->close_recv(t->accept.comm);
  t->accept.listener = t->accept.comm = NULL;
  t->accept.on = t->accept.connected = t->accept.begun = false;
  if (t->accept.asker.size != 0) {
    tt_spans_remove(&s->askers, &t->accept.asker);
    t->accept.asker.size = 0;
  }
}

// Answers an attempt: with the handle, or with the thread's last error.
static void setup_answer(tt_proxy_service *s, tt_proxy_talk *k, const tt_proxy_ties *t, ncclResult_t code,
                         const char *handle)
{
  int rank = t->peer->rank;
  tt_msg_answer a = {.code = code, .ndevices = TT_CLAMP(s->ndevices, 1, TT_MSG_DEVICES)};
  if (code == ncclSuccess) {
    memcpy(a.handle, handle, sizeof a.handle);
  } else {
    snprintf(a.text, sizeof a.text, "%s", tt_last_error());
  }
  uint32_t behalf = t->whose != NULL ? t->setup.behalf : rank == k->rank ? 0 : (uint32_t)rank + 1;
  tt_proxy_say_for(s, k, TT_MSG_ANSWER, t->accept.attempt, behalf, &a);
}

static ncclResult_t setup_listen(tt_proxy_service *s, tt_proxy_ties *t, int wish, char *handle)
{
  const tt_proxy *p = s->proxy;
  tt_net_props props;
  if (s->left) {
    return tt_fail(ncclRemoteError, "rank %d has destroyed its communicator", p->rank);
  }
  if (s->ndevices <= 0) {
    return tt_fail(ncclSystemError, "rank %d has no device of network %s", p->rank, p->net->name);
  }
  if (atomic_load_explicit(&t->peer->recv.stage, memory_order_relaxed) != TT_CONN_NONE) {
    return tt_fail(ncclInvalidUsage, "rank %d is connected with rank %d already", p->rank, t->peer->rank);
  }
  memset(&props, 0, sizeof props);
  TT_TRY(p->net->get_properties(p->ctx, wish % s->ndevices, &props));
  t->accept.flush = props.force_flush && p->net->iflush != NULL;
  t->accept.groups = props.max_recvs > 1;
  return p->net->listen(p->ctx, wish % s->ndevices, handle, &t->accept.listener);
}

static void take_setup(tt_proxy_service *s, tt_proxy_talk *k, tt_proxy_ties *t, const tt_msg *m)
{
  _Alignas(16) char handle[TT_NET_HANDLE] = {0};
  tt_proxy_setup_close(s, t);
  ncclResult_t res = setup_listen(s, t, m->setup.device, handle);
  t->accept.device = m->setup.device % TT_MAX(s->ndevices, 1);
  t->accept.on = res == ncclSuccess;
  t->accept.attempt = m->head.id;
  t->accept.by = k->rank;
  if (t->accept.on) {
    t->accept.asker = tt_pair(k->rank, t->whose == NULL ? t->peer->rank : s->proxy->nranks + t->peer->rank);
    tt_spans_add(&s->askers, &t->accept.asker);
  }
  t->accept.try_ns = 0;
  t->accept.pause_ns = PAUSE_NS;
  setup_answer(s, k, t, res, handle);
}

static void use_if_both_stand(tt_proxy_service *s, tt_proxy_ties *t)
{
  if (t->accept.comm != NULL && t->accept.connected) {
    void *comm = t->accept.comm;
    t->accept.comm = NULL;
    t->accept.on = false;
    if (t->whose == NULL) {
      tt_proxy_log_channel(s, t->peer->rank, s->proxy->rank, t->accept.device, -1);
    }
    t->peer->recv.groups = t->accept.groups;
    tt_proxy_conn_ready(&t->peer->recv, comm, t->accept.flush);
  }
}

// Not before the peer has begun to connect: there are plugins whose accept waits until it has, and two ranks that wait
// there for each other would do so for ever.
static void accept_step(tt_proxy_service *s, tt_proxy_ties *t, uint64_t now, uint64_t *wake_ns)
{
  if (!t->accept.on || !t->accept.begun || t->accept.comm != NULL) {
    return;
  }
  if (now >= t->accept.try_ns) {
    ncclResult_t res = s->proxy->net->accept(t->accept.listener, &t->accept.comm);
    if (res != ncclSuccess && res != ncclInProgress) {
      tt_proxy_talk *k = tt_proxy_peer_find(s->proxy, t->accept.by)->ties->in;
      if (k != NULL) {
        setup_answer(s, k, t, res, NULL);
      }
      tt_proxy_setup_close(s, t);
      return;
    }
    if (t->accept.comm != NULL) {
      s->proxy->net->close_listen(t->accept.listener);
      t->accept.listener = NULL;
      use_if_both_stand(s, t);
      return;
    }
    t->accept.try_ns = now + t->accept.pause_ns;
    t->accept.pause_ns = TT_MIN(2 * t->accept.pause_ns, PAUSE_MAX_NS);
  }
  tt_wake_by(wake_ns, t->accept.try_ns);
}

// ---- both

void tt_proxy_setup_message(tt_proxy_service *s, tt_proxy_talk *k, tt_proxy_ties *t, const tt_msg *m)
{
  switch (m->head.type) {
  case TT_MSG_ANSWER: take_answer(s, t, m); break;
  case TT_MSG_SETUP: take_setup(s, k, t, m); break;
  case TT_MSG_TRY:
  case TT_MSG_CONNECT:
    if (t->accept.on && m->head.id == t->accept.attempt && t->accept.by == k->rank) {
      t->accept.begun = true;
      t->accept.connected = t->accept.connected || m->head.type == TT_MSG_CONNECT;
      use_if_both_stand(s, t);
    }
    break;
  default: break;
  }
}

void tt_proxy_setup_step(tt_proxy_service *s, tt_proxy_ties *t, uint64_t now, uint64_t *wake_ns)
{
  send_step(s, t, now, wake_ns);
  accept_step(s, t, now, wake_ns);
}

void tt_proxy_setup_end(tt_proxy_service *s, tt_proxy_ties *t, bool outgoing)
{
  if (outgoing) {
    if (t->setup.stage == TT_SETUP_ASKED || t->setup.stage == TT_SETUP_CONNECTING) {
      setup_fail(s, t, "the control connection has ended");
    }
    return;
  }
  tt_span last = tt_pair(t->peer->rank, -1); // before any other
  for (tt_span *a; (a = tt_pair_next(s->askers, t->peer->rank, &last)) != NULL;) {
    tt_proxy_ties *u = TT_SPAN_OWNER(a, tt_proxy_ties, accept.asker);
    last = *a;
    // Where the other end stands, there may be messages in it already, the last ones of a peer that has gone.
    if (!u->accept.connected) {
      tt_proxy_setup_close(s, u);
      tt_proxy_ties_due(s, u);
    }
  }
}
