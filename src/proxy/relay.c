// relay.c: the sender's half of a connection through a neighbour's proxy. See relay.h.
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "os/clock.h"
#include "os/events.h"
#include "os/shm.h"
#include "proxy/relay.h"

#define BELL_MS 1000 // the relay has pushed its doorbell before it answered

tt_fdkey tt_relay_key(const tt_key *key, int what, int sender, int peer)
{
  const int32_t data[3] = {what, sender, peer};
  tt_key k = tt_key_derive(key, "proxy: relay", data, sizeof data);
  tt_fdkey out;
  static_assert(sizeof out <= sizeof k, "a part of the hash will do");
  memcpy(&out, &k, sizeof out);
  return out;
}

// ---- which relay

static int rank_device(const tt_proxy_service *s, int rank)
{
  return s->where[rank].place % s->rails;
}

// May this rank's proxy send for its neighbours on this node?
static bool is_relay(const tt_proxy_service *s, int rank)
{
  return s->where[rank].node == s->where[s->proxy->rank].node && s->where[rank].mailbox[0] != 0;
}

void tt_relay_find(tt_proxy_service *s)
{
  int *end = s->relays_end, n = s->proxy->nranks;
  memset(s->relays_end, 0, sizeof s->relays_end);
  if (s->rails <= 1) {
    return;
  }
  for (int i = 0; i < n; i++) {
    end[rank_device(s, i) + 1] += is_relay(s, i);
  }
  for (int rail = 0; rail < s->rails; rail++) {
    end[rail + 1] += end[rail]; // now end[rail] is where its relays begin; it moves to their end as they are listed
  }
  for (int i = 0; i < n; i++) {
    if (is_relay(s, i)) {
      s->relays[end[rank_device(s, i)]++] = i;
    }
  }
}

// Sockets reach every device of the peer's machine alike: there a neighbour is one more thread on the way, and gains
// nothing.
static long level_of(const tt_proxy *p)
{
  const tt_params *q = tt_params_get();
  return q->pxn_disable ? 0 : q->p2p_pxn_level >= 0 ? q->p2p_pxn_level : p->net->reg_mr != NULL;
}

int tt_proxy_relay_of(const tt_proxy *p, int peer)
{
  const tt_proxy_service *s = p->service;
  const tt_proxy_where *me = &s->where[p->rank];
  long level = level_of(p);
  if (s->rails <= 1 || level <= 0 || s->where[peer].node == me->node) {
    return -1;
  }
  int rail = rank_device(s, peer);
  bool always = level >= 2;
  if (rank_device(s, p->rank) == rail && !always) {
    return -1;
  }
  int begin = rail == 0 ? 0 : s->relays_end[rail - 1], n = s->relays_end[rail] - begin;
  if (n == 0) {
    return -1;
  }
  // Always: one for all, so that everything for one rail leaves from one proxy. Otherwise the neighbours share the
  // work.
  int via = s->relays[begin + (always ? 0 : me->place / s->rails % n)];
  return via == p->rank ? -1 : via;
}

// ---- the run flag's holder

// Puts operations into the ring. True when there were any.
static bool forward(tt_proxy_conn *c)
{
  tt_relay *r = c->relay;
  uint32_t before = r->forwarded, taken = atomic_load_explicit(&r->shared->taken, memory_order_acquire);
  for (tt_proxy_item *i = c->poster; i != NULL && r->forwarded - taken < TT_RELAY_RING; c->poster = i = i->next) {
    tt_relay_op *to = &r->shared->ops[r->forwarded++ % TT_RELAY_RING];
    to->op = i->op;
    to->event = i->prof != NULL ? *tt_proxy_prof_event(i->prof) : (tt_proxy_event){.pid = 0};
  }
  atomic_store_explicit(&r->shared->posted, r->forwarded, memory_order_release);
  return r->forwarded != before;
}

// Has the executor published messages since the last look?
static bool notice(const tt_proxy_conn *c)
{
  tt_relay *r = c->relay;
  bool any = false;
  for (int k = 0; k < TT_PROXY_FIFOS; k++) {
    const tt_proxy_fifo *f = &c->fifo[k];
    while (atomic_load_explicit(&tt_proxy_slot(f, r->noticed[k])->seq, memory_order_acquire) == r->noticed[k] + 1) {
      r->noticed[k]++;
      any = true;
    }
  }
  return any;
}

// Retires what the relay has done. True when there was anything.
static bool retire(tt_proxy_conn *c)
{
  tt_relay *r = c->relay;
  uint32_t done = atomic_load_explicit(&r->shared->done, memory_order_acquire), before = r->done;
  while (c->first != NULL && c->first != c->poster && r->done != done) {
    tt_proxy_item *i = c->first;
    uint32_t n = TT_MIN(done - r->done, i->op.nsteps - i->done);
    r->done += n;
    i->done += n;
    i->transmitted = i->done;
    if (i->done == i->op.nsteps) {
      tt_proxy_retire(c);
    }
  }
  atomic_store_explicit(&c->counted, atomic_load_explicit(&r->shared->transmitted, memory_order_relaxed),
                        memory_order_release);
  atomic_store_explicit(&c->freed, r->done, memory_order_release);
  return r->done != before;
}

bool tt_relay_round(tt_proxy_conn *c)
{
  tt_relay *r = c->relay;
  bool ended = atomic_load_explicit(&r->ended, memory_order_acquire); // before the last look at what is done
  bool moved = retire(c), news = forward(c);
  news |= notice(c);
  if (news) {
    tt_relay_knock(&r->shared->relay_rests, atomic_load_explicit(&r->bell, memory_order_acquire));
  }
  if (TT_UNLIKELY(ended && c->first != NULL)) {
    tt_proxy_conn_fail(c, tt_fail(ncclRemoteError, "%s", r->text));
  }
  return moved;
}

void tt_relay_rest(tt_proxy *p)
{
  for (tt_relay *r = atomic_load_explicit(&p->pxn.relays, memory_order_acquire); r != NULL; r = r->next) {
    atomic_store_explicit(&r->shared->sender_rests, 1, memory_order_relaxed);
  }
}

// ---- the link

static tt_msg_fifo describe_fifo(const tt_relay *r, const tt_proxy_fifo *f)
{
  return (tt_msg_fifo){.slots_at = (uint64_t)(f->slots - r->base),
                       .head_at = (uint64_t)((char *)f->head - r->base),
                       .stride = f->stride,
                       .mask = f->mask,
                       .at = f->at,
                       .capacity = f->capacity};
}

ncclResult_t tt_proxy_connect_shared(tt_proxy *p, tt_link *link, const tt_proxy_share *share)
{
  tt_relay *r = tt_calloc(1, sizeof *r);
  if (r == NULL) {
    tt_fd_close(share->fd);
    return tt_fail(ncclSystemError, "rank %d: no memory for the connection to rank %d", p->rank, link->peer);
  }
  *r = (tt_relay){.via = share->via,
                  .shared = (tt_relay_shared *)share->base,
                  .base = share->base,
                  .size = share->size,
                  .fd = share->fd};
  atomic_init(&r->bell, -1);
  ncclResult_t res = ncclSuccess;
  tt_proxy_peer *peer = tt_proxy_peer_get(p, link->peer);
  if (peer == NULL) {
    res = tt_fail(ncclSystemError, "rank %d: no memory for the connection to rank %d", p->rank, link->peer);
    goto fail;
  }
  r->conn = &peer->send;
  r->peer = link->peer;
  peer->send.relay = r;
  TT_TRY_GOTO(tt_proxy_attach(p, link), res);
  r->next = atomic_load_explicit(&p->pxn.relays, memory_order_relaxed);
  atomic_store_explicit(&p->pxn.relays, r, memory_order_release);
  atomic_store_explicit(&peer->send.stage, TT_CONN_READY, memory_order_release); // the ring is there
  tt_proxy_want(peer, TT_MSG_INIT);
  return ncclSuccess;
fail:
  if (peer != NULL) {
    peer->send.relay = NULL;
  }
  tt_fd_close(r->fd);
  tt_free(r);
  return res;
}

// ---- the service thread

static tt_relay *relay_find(const tt_proxy_service *s, int via, int peer)
{
  tt_span key = tt_pair(via, peer), *r = tt_spans_same(s->proxy->pxn.relay_pairs, key.start, key.size);
  return r == NULL || TT_SPAN_OWNER(r, tt_relay, pair)->conn == NULL ? NULL : TT_SPAN_OWNER(r, tt_relay, pair);
}

// The relay does not take this rank on: it connects by itself, over its own device.
static void do_without(tt_proxy_service *s, tt_relay *r, const char *why)
{
  tt_proxy *p = s->proxy;
  tt_proxy_conn *c = r->conn;
  tt_info(TT_PROXY | TT_NET, "rank %d: not through the proxy of rank %d to rank %d, but directly: %s", p->rank, r->via,
          r->peer, why);
  tt_proxy_run_hold(p);
  r->conn = NULL;
  c->relay = NULL;
  c->usable = false;
  c->poster = c->first;
  atomic_store_explicit(&c->stage, TT_CONN_NONE, memory_order_release);
  tt_proxy_run_release(p);
  tt_fd_close(r->fd);
  r->fd = -1;
  if (c->peer->ties->out != NULL) {
    tt_proxy_setup_begin(s, c->peer->ties);
  }
}

// The relay will send no more. That matters when there is something to send.
static void relay_end(tt_proxy_service *s, tt_relay *r, const char *why)
{
  if (r->conn == NULL || atomic_load_explicit(&r->ended, memory_order_relaxed)) {
    return;
  }
  if (!r->taken_on) {
    do_without(s, r, why);
    return;
  }
  snprintf(r->text, sizeof r->text, "rank %d cannot send to rank %d through the proxy of rank %d any more: %s",
           s->proxy->rank, r->peer, r->via, why);
  tt_info(TT_PROXY | TT_NET, "%s", r->text);
  atomic_store_explicit(&r->ended, true, memory_order_release);
  tt_proxy_look(s->proxy);
}

static ncclResult_t relay_hand_over(const tt_proxy_service *s, tt_relay *r)
{
  const char *box = s->where[r->via].mailbox;
  int me = s->proxy->rank, peer = r->peer;
  tt_fdkey memory = tt_relay_key(&s->key, TT_RELAY_MEMORY, me, peer),
           bell = tt_relay_key(&s->key, TT_RELAY_SENDER_BELL, me, peer);
  TT_TRY(tt_fdbox_push(box, &memory, r->fd));
  return tt_fdbox_push(box, &bell, tt_proxy_thread_bell());
}

static void relay_request(tt_proxy_service *s, tt_relay *r, tt_proxy_talk *k)
{
  if (r->conn == NULL || r->asked) {
    return;
  }
  r->asked = true;
  if (relay_hand_over(s, r) != ncclSuccess) {
    do_without(s, r, tt_last_error());
    return;
  }
  tt_fd_close(r->fd);
  r->fd = -1;
  tt_msg_get_fd m = {.size = r->size};
  for (int i = 0; i < TT_PROXY_FIFOS; i++) {
    m.fifo[i] = describe_fifo(r, &r->conn->fifo[i]);
  }
  tt_proxy_say(s, k, TT_MSG_GET_FD, (uint32_t)r->peer, &m);
}

void tt_relay_begin(tt_proxy_service *s, tt_relay *r)
{
  if (r->pair.size == 0) {
    r->pair = tt_pair(r->via, r->peer);
    tt_spans_add(&s->proxy->pxn.relay_pairs, &r->pair);
  }
  tt_proxy_ties *t = tt_proxy_ties_get(s, r->via);
  if (t == NULL) {
    do_without(s, r, "no memory");
    return;
  }
  tt_proxy_dial(s, t);
  if (t->out != NULL) {
    relay_request(s, r, t->out);
  } else if (t->dial.stage == TT_DIAL_DONE || t->dial.stage == TT_DIAL_FAILED) {
    do_without(s, r, "it cannot be reached");
  }
}

void tt_relay_reached(tt_proxy_service *s, int via)
{
  const tt_proxy_peer *peer = tt_proxy_peer_find(s->proxy, via);
  for (tt_span *r = NULL; peer->ties->out != NULL && (r = tt_pair_next(s->proxy->pxn.relay_pairs, via, r)) != NULL;) {
    relay_request(s, TT_SPAN_OWNER(r, tt_relay, pair), peer->ties->out);
  }
}

void tt_relay_lost(tt_proxy_service *s, int via, const char *why)
{
  for (tt_span *r = NULL; (r = tt_pair_next(s->proxy->pxn.relay_pairs, via, r)) != NULL;) {
    relay_end(s, TT_SPAN_OWNER(r, tt_relay, pair), why);
  }
}

static void take_bell(const tt_proxy_service *s, tt_relay *r)
{
  tt_fdkey key = tt_relay_key(&s->key, TT_RELAY_BELL, s->proxy->rank, r->peer);
  int fd = -1;
  if (tt_fdbox_take(&key, BELL_MS, NULL, &fd) == ncclSuccess) {
    atomic_store_explicit(&r->bell, fd, memory_order_release);
    tt_ring(fd); // nobody could until now
  } else {
    tt_warn("rank %d: rank %d has not passed its doorbell on: messages will be slow", s->proxy->rank, r->via);
  }
}

void tt_relay_answer(tt_proxy_service *s, int via, const tt_msg *m)
{
  tt_relay *r = relay_find(s, via, (int)m->head.id);
  if (r == NULL || !r->asked) {
    return; // it does without
  }
  if (m->answer.code != ncclSuccess) {
    relay_end(s, r, m->answer.text);
  } else if (!r->taken_on) {
    r->taken_on = true;
    tt_proxy_log_channel(s, s->proxy->rank, r->peer, rank_device(s, r->peer), via);
    take_bell(s, r);
  }
}

void tt_relay_detach(tt_proxy *p)
{
  for (tt_relay *r = atomic_load_explicit(&p->pxn.relays, memory_order_acquire); r != NULL; r = r->next) {
    if (r->conn != NULL) {
      r->conn->relay = NULL;
    }
    atomic_store_explicit(&r->ended, true, memory_order_release);
  }
}

void tt_relay_leave(tt_proxy_service *s)
{
  const tt_msg_get_fd none = {.size = 0};
  for (tt_relay *r = atomic_load_explicit(&s->proxy->pxn.relays, memory_order_acquire); r != NULL; r = r->next) {
    const tt_proxy_peer *relay = tt_proxy_peer_find(s->proxy, r->via);
    if (r->conn != NULL && r->asked && relay != NULL && relay->ties->out != NULL) {
      tt_proxy_say(s, relay->ties->out, TT_MSG_GET_FD, (uint32_t)r->peer, &none);
    }
  }
  tt_proxy_run_hold(s->proxy);
  tt_relay_free(s->proxy);
  tt_proxy_run_release(s->proxy);
}

void tt_relay_forget(tt_proxy *p)
{
  for (tt_relay *r = atomic_load_explicit(&p->pxn.relays, memory_order_relaxed); r != NULL; r = r->next) {
    tt_fd_close(r->fd);
    tt_fd_close(atomic_load_explicit(&r->bell, memory_order_relaxed));
  }
}

void tt_relay_free(tt_proxy *p)
{
  tt_relay_forget(p);
  p->pxn.relay_pairs = NULL;
  tt_relay *r = atomic_exchange(&p->pxn.relays, NULL), *next;
  for (; r != NULL; r = next) {
    next = r->next;
    tt_free(r);
  }
}
