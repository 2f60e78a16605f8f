// client.c: the relay's half of a connection through a neighbour's proxy, and the life of a relay that outlives its
// rank. See relay.h.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/result.h"
#include "os/clock.h"
#include "os/events.h"
#include "os/shm.h"
#include "proxy/relay.h"

#define IDLE_NS (5 * TT_NS_PER_S)   // how long a process that ends waits for clients which have nothing to send,
#define STUCK_NS (60 * TT_NS_PER_S) // and for those whose messages do not move
#define TAKE_MS 200                 // the sender has pushed its descriptors before it asked

// ---- the run flag's holder

static void client_enqueue(tt_relay_client *g, tt_proxy_item *i, const tt_relay_op *from)
{
  tt_proxy_conn *c = &g->peer.send;
  tt_proxy_op op = from->op; // what means something in the sender's process alone goes
  op.peer = g->peer.rank;
  op.send = true;
  op.shared = false;
  op.behalf = (uint32_t)g->rank + 1;
  op.event = NULL;
  op.place = (tt_proxy_place){.lane = NULL};
  tt_proxy_item_fill(i, c, &op);
  if (TT_UNLIKELY(from->event.pid != 0)) {
    i->prof = tt_proxy_prof_new_for(c->proxy->profilers, &from->event, g->foreign);
  }
  if (TT_UNLIKELY(i->prof != NULL)) {
    tt_proxy_prof_begin(i);
  }
  i->started_ns = tt_now_ns();
  i->next = NULL;
  *c->last = i;
  c->last = &i->next;
  c->poster = c->poster != NULL ? c->poster : i;
}

// Takes operations out of the ring.
static void client_take_ops(tt_relay_client *g)
{
  uint32_t posted = atomic_load_explicit(&g->shared->posted, memory_order_acquire);
  for (; g->taken != posted; g->taken++) {
    tt_proxy_item *i = &g->items[g->taken % TT_RELAY_RING];
    if (atomic_load_explicit(&i->busy, memory_order_relaxed)) {
      break; // the oldest one is not done
    }
    tt_relay_op op = g->shared->ops[g->taken % TT_RELAY_RING]; // a copy: nobody changes it after the check
    if (TT_UNLIKELY(op.op.proto >= TT_PROXY_FIFOS || op.op.nsteps == 0)) {
      tt_proxy_conn_fail(&g->peer.send, tt_fail(ncclInternalError, "rank %d: an operation of rank %d is damaged",
                                                g->peer.send.proxy->rank, g->rank));
      return;
    }
    client_enqueue(g, i, &op);
  }
  atomic_store_explicit(&g->shared->taken, g->taken, memory_order_release);
}

static bool client_one_round(tt_relay_client *g)
{
  tt_proxy_conn *c = &g->peer.send;
  if (atomic_load_explicit(&c->stage, memory_order_relaxed) == TT_CONN_BROKEN) {
    return false;
  }
  client_take_ops(g);
  if (c->first == NULL || !tt_proxy_conn_usable(c)) {
    return false;
  }
  uint32_t posted = c->posted;
  bool moved = tt_proxy_send_round(c);
  if (atomic_load_explicit(&c->stage, memory_order_relaxed) == TT_CONN_BROKEN) {
    return false; // its counts are not true any more
  }
  if (moved || c->posted != posted) {
    atomic_store_explicit(&g->shared->transmitted, c->posted, memory_order_relaxed);
    atomic_store_explicit(&g->shared->done, c->finished, memory_order_release);
  }
  if (moved) {
    tt_relay_knock(&g->shared->sender_rests, g->bell);
  }
  return moved;
}

bool tt_client_round(tt_proxy *p)
{
  bool moved = false, sending = false;
  for (tt_relay_client *g = p->pxn.clients; g != NULL; g = g->next) {
    moved |= client_one_round(g);
    sending |= g->peer.send.first != NULL;
  }
  if (sending != atomic_load_explicit(&p->pxn.sending, memory_order_relaxed)) {
    atomic_store_explicit(&p->pxn.sending, sending, memory_order_relaxed);
  }
  return moved;
}

void tt_client_rest(tt_proxy *p)
{
  for (tt_relay_client *g = p->pxn.clients; g != NULL; g = g->next) {
    atomic_store_explicit(&g->shared->relay_rests, 1, memory_order_relaxed);
  }
}

void tt_client_prof_leave(tt_proxy *p)
{
  for (tt_relay_client *g = p->pxn.clients; g != NULL; g = g->next) {
    tt_proxy_prof_forget(&g->peer.send);
  }
}

void tt_client_drop(tt_proxy *p)
{
  for (tt_relay_client *g = p->pxn.clients; g != NULL; g = g->next) {
    tt_proxy_conn *c = &g->peer.send;
    if (atomic_load_explicit(&c->stage, memory_order_relaxed) != TT_CONN_BROKEN) {
      snprintf(c->text, sizeof c->text, "that rank has stopped: %.200s", p->port->error);
      tt_proxy_conn_drop(c);
      tt_proxy_alert(c); // the sender has to be told
    }
  }
}

// ---- coming

tt_relay_client *tt_client_find(const tt_proxy *p, int rank, int peer)
{
  tt_span key = tt_pair(rank, peer), *s = tt_spans_same(p->pxn.client_pairs, key.start, key.size);
  return s == NULL ? NULL : TT_SPAN_OWNER(s, tt_relay_client, pair);
}

// Does the FIFO lie within the memory, in a way that the proxy can use?
static bool client_fits(const tt_msg_fifo *f, uint64_t size)
{
  uint64_t slots = (uint64_t)f->mask + 1, all = slots * f->stride;
  return (slots & f->mask) == 0 && slots <= 4096 && f->stride >= sizeof(tt_slot) && f->stride % 8 == 0 &&
         f->slots_at % 8 == 0 && f->slots_at <= size && all <= size - f->slots_at && f->head_at % 4 == 0 &&
         f->head_at <= size - sizeof(uint32_t) && f->at >= offsetof(tt_slot, data) && f->at <= f->stride &&
         f->capacity <= f->stride - f->at;
}

static bool is_sensible(const tt_proxy_service *s, int rank, const tt_msg *m)
{
  const tt_msg_get_fd *f = &m->get_fd;
  return m->head.id < (uint32_t)s->proxy->nranks && (int)m->head.id != rank && (int)m->head.id != s->proxy->rank &&
         f->size >= TT_PROXY_SHARE_HEAD && client_fits(&f->fifo[0], f->size) && client_fits(&f->fifo[1], f->size);
}

static ncclResult_t fetch(const tt_proxy_service *s, int what, int rank, int peer, int *fd)
{
  tt_fdkey key = tt_relay_key(&s->key, what, rank, peer);
  return tt_fdbox_take(&key, TAKE_MS, NULL, fd);
}

// Maps the memory and gets hold of the doorbell.
static ncclResult_t open_shared(const tt_proxy_service *s, tt_relay_client *g, size_t size)
{
  int fd = -1;
  void *base = NULL;
  TT_TRY(fetch(s, TT_RELAY_MEMORY, g->rank, g->peer.rank, &fd));
  ncclResult_t res = ncclSuccess;
  if (tt_shm_size(fd) < size) {
    res = tt_fail(ncclInternalError, "rank %d: the memory of rank %d's FIFOs has %zu bytes, not %zu", s->proxy->rank,
                  g->rank, tt_shm_size(fd), size);
  } else {
    res = tt_shm_map(fd, size, &base);
  }
  tt_fd_close(fd);
  TT_TRY(res);
  g->shared = base;
  g->size = size;
  return fetch(s, TT_RELAY_SENDER_BELL, g->rank, g->peer.rank, &g->bell);
}

static void client_attach(tt_relay_client *g, const tt_msg_get_fd *m)
{
  tt_proxy_conn *c = &g->peer.send;
  char *base = (char *)g->shared;
  for (int k = 0; k < TT_PROXY_FIFOS; k++) {
    const tt_msg_fifo *f = &m->fifo[k];
    c->fifo[k] = (tt_proxy_fifo){.slots = base + f->slots_at,
                                 .head = (_Atomic uint32_t *)(void *)(base + f->head_at),
                                 .stride = f->stride,
                                 .mask = f->mask,
                                 .at = f->at,
                                 .capacity = f->capacity};
  }
  c->client = g;
  atomic_store_explicit(&c->attached, true, memory_order_release);
  g->ties.peer = &g->peer;
  g->ties.setup.behalf = (uint32_t)g->rank + 1;
  g->ties.linked_ns = tt_now_ns();
}

static void client_free(tt_relay_client *g)
{
  if (g != NULL) {
    tt_proxy_conn_close(&g->peer.send);
    tt_shm_unmap(g->shared, g->size);
    tt_fd_close(g->bell);
    tt_free(g);
  }
}

static ncclResult_t client_new(tt_proxy_service *s, int rank, const tt_msg *m, tt_relay_client **out)
{
  tt_relay_client *g = tt_calloc_line(sizeof *g);
  if (g == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory to send for rank %d", s->proxy->rank, rank);
  }
  const tt_proxy_where *own = &s->where[s->proxy->rank], *sender = &s->where[rank];
  g->rank = rank;
  g->foreign = strcmp(sender->mailbox, own->mailbox) != 0;
  g->peer.rank = (int)m->head.id;
  g->bell = -1;
  tt_proxy_conn_init(s->proxy, &g->peer, &g->peer.send, true);
  ncclResult_t res = ncclSuccess;
  TT_TRY_GOTO(open_shared(s, g, m->get_fd.size), res);
  tt_fdkey key = tt_relay_key(&s->key, TT_RELAY_BELL, rank, g->peer.rank);
  TT_TRY_GOTO(tt_fdbox_push(s->where[rank].mailbox, &key, tt_proxy_thread_bell()), res);
  client_attach(g, &m->get_fd);
  *out = g;
  return ncclSuccess;
fail:
  client_free(g);
  return res;
}

static void move_in(tt_proxy *p, tt_relay_client *g)
{
  tt_proxy_run_hold(p);
  g->next = p->pxn.clients;
  g->at = &p->pxn.clients;
  if (g->next != NULL) {
    g->next->at = &g->next;
  }
  p->pxn.clients = g;
  g->pair = tt_pair(g->rank, g->peer.rank);
  g->end = tt_pair(g->peer.rank, g->rank);
  tt_spans_add(&p->pxn.client_pairs, &g->pair);
  tt_spans_add(&p->pxn.client_ends, &g->end);
  atomic_store(&p->pxn.nclients, atomic_load(&p->pxn.nclients) + 1);
  atomic_fetch_add(&p->standing, 1);
  tt_proxy_run_release(p);
  tt_proxy_look(p);
  tt_proxy_kick(p, false);
}

// The last look at it; then it is forgotten.
static void move_out(tt_proxy *p, tt_relay_client *g)
{
  tt_proxy_run_hold(p);
  if (atomic_load_explicit(&g->peer.send.stage, memory_order_relaxed) != TT_CONN_BROKEN) {
    client_one_round(g); // what the executor had published
  }
  tt_proxy_conn_drop(&g->peer.send);
  tt_proxy_mrs_close(&g->peer.send); // the set of all of them is the holder's
  *g->at = g->next;
  if (g->next != NULL) {
    g->next->at = g->at;
  }
  tt_spans_remove(&p->pxn.client_pairs, &g->pair);
  tt_spans_remove(&p->pxn.client_ends, &g->end);
  atomic_store(&p->pxn.nclients, atomic_load(&p->pxn.nclients) - 1);
  atomic_fetch_sub(&p->standing, 1);
  tt_proxy_run_release(p);
  tt_proxy_setup_cancel(p->service, &g->ties);
  tt_timer_set(&p->service->timers, &g->ties.timer, 0);
  client_free(g);
}

// ---- the service thread

static void client_answer(tt_proxy_service *s, tt_proxy_talk *k, int peer, ncclResult_t code, const char *text)
{
  tt_msg_answer a = {.code = code, .ndevices = 1};
  snprintf(a.text, sizeof a.text, "%s", code == ncclSuccess ? "" : text);
  tt_proxy_say_for(s, k, TT_MSG_ANSWER, (uint32_t)peer, (uint32_t)k->rank + 1, &a);
}

// Closes what the sender has passed on.
static void client_refuse(tt_proxy_service *s, tt_proxy_talk *k, int peer, const char *why)
{
  int fd = -1;
  for (int what = TT_RELAY_MEMORY; what <= TT_RELAY_SENDER_BELL; what++) {
    tt_fdkey key = tt_relay_key(&s->key, what, k->rank, peer);
    if (tt_fdbox_take(&key, 0, NULL, &fd) == ncclSuccess) {
      tt_fd_close(fd);
    }
  }
  client_answer(s, k, peer, ncclSystemError, why);
}

static void take_on(tt_proxy_service *s, tt_proxy_talk *k, const tt_msg *m)
{
  tt_proxy *p = s->proxy;
  tt_relay_client *g = NULL;
  int rank = k->rank, peer = (int)m->head.id;
  if (!is_sensible(s, rank, m) || tt_client_find(p, rank, peer) != NULL) {
    tt_warn("rank %d: rank %d asks this proxy to send for it to rank %d, with an invalid request", p->rank, rank, peer);
    client_refuse(s, k, peer, "an invalid request");
    return;
  }
  tt_proxy_ties *t = tt_proxy_ties_get(s, peer);
  ncclResult_t res = tt_port_status(p->port);
  if (res != ncclSuccess || t == NULL || s->left) {
    client_refuse(s, k, peer, t == NULL ? "no memory" : "that rank has stopped");
    return;
  }
  res = client_new(s, rank, m, &g);
  if (res != ncclSuccess) {
    client_refuse(s, k, peer, tt_last_error());
    return;
  }
  tt_info(TT_PROXY | TT_NET, "rank %d sends for rank %d to rank %d", p->rank, rank, peer);
  move_in(p, g);
  tt_proxy_ties_due(s, &g->ties);
  client_answer(s, k, peer, ncclSuccess, NULL);
  tt_proxy_dial(s, t);
}

static void client_leave(tt_proxy_service *s, tt_relay_client *g)
{
  g->leaving = true;
  tt_proxy_ties_due(s, &g->ties);
}

void tt_client_message(tt_proxy_service *s, tt_proxy_talk *k, const tt_msg *m)
{
  if (m->get_fd.size != 0) {
    take_on(s, k, m);
    return;
  }
  tt_relay_client *g = tt_client_find(s->proxy, k->rank, (int)m->head.id);
  if (g != NULL) {
    client_leave(s, g);
  }
}

// Tells the sender that it goes no more, and why.
static void client_tell(tt_proxy_service *s, tt_relay_client *g, const char *why)
{
  const tt_proxy_peer *sender = tt_proxy_peer_find(s->proxy, g->rank);
  g->refused = true;
  if (sender != NULL && sender->ties->in != NULL) {
    client_answer(s, sender->ties->in, g->peer.rank, ncclRemoteError, why);
  }
}

void tt_client_step(tt_proxy_service *s, tt_relay_client *g, uint64_t now)
{
  const tt_proxy_ties *own = tt_proxy_peer_find(s->proxy, g->peer.rank)->ties;
  tt_proxy_conn *c = &g->peer.send;
  uint64_t wake_ns = 0;
  if (g->leaving) {
    move_out(s->proxy, g);
    return;
  }
  g->ties.out = own->out;
  if (g->ties.out == NULL) {
    tt_proxy_setup_end(s, &g->ties, true);
  } else {
    tt_proxy_setup_begin(s, &g->ties);
  }
  tt_proxy_setup_step(s, &g->ties, now, &wake_ns);
  tt_proxy_ties_wake(s, &g->ties, wake_ns == 0 ? 0 : TT_MAX(wake_ns, now + 1));
  if (g->refused) {
    return;
  }
  if (g->ties.setup.stage == TT_SETUP_FAILED) {
    tt_proxy_setup_error(s, &g->ties);
    client_tell(s, g, tt_last_error());
  } else if (atomic_load_explicit(&c->stage, memory_order_acquire) == TT_CONN_BROKEN) {
    client_tell(s, g, c->text);
  }
}

bool tt_client_any(tt_proxy_service *s)
{
  for (tt_relay_client *g = s->proxy->pxn.clients, *next; g != NULL; g = next) {
    next = g->next;
    if (g->leaving) {
      move_out(s->proxy, g);
    }
  }
  return s->proxy->pxn.clients != NULL;
}

void tt_client_gone(tt_proxy_service *s, int rank)
{
  for (tt_span *g = NULL; (g = tt_pair_next(s->proxy->pxn.client_pairs, rank, g)) != NULL;) {
    client_leave(s, TT_SPAN_OWNER(g, tt_relay_client, pair));
  }
}

void tt_client_due(tt_proxy_service *s, int peer)
{
  for (tt_span *g = NULL; (g = tt_pair_next(s->proxy->pxn.client_ends, peer, g)) != NULL;) {
    tt_proxy_ties_due(s, &TT_SPAN_OWNER(g, tt_relay_client, end)->ties);
  }
}

void tt_client_unreachable(tt_proxy_service *s, int peer)
{
  for (tt_span *g = NULL; (g = tt_pair_next(s->proxy->pxn.client_ends, peer, g)) != NULL;) {
    client_tell(s, TT_SPAN_OWNER(g, tt_relay_client, end), tt_last_error());
  }
}

void tt_client_free(tt_proxy *p)
{
  while (p->pxn.clients != NULL) {
    tt_relay_client *g = p->pxn.clients;
    p->pxn.clients = g->next;
    client_free(g);
  }
  p->pxn.client_pairs = p->pxn.client_ends = NULL;
  atomic_fetch_sub(&p->standing, atomic_exchange(&p->pxn.nclients, 0));
  atomic_store(&p->pxn.sending, false);
}

void tt_client_forget(tt_proxy *p)
{
  for (tt_relay_client *g = p->pxn.clients; g != NULL; g = g->next) {
    tt_fd_close(g->bell);
  }
}

// ---- the end of the process

typedef struct lingering {
  bool any, pending;
  uint32_t moved; // changes when messages move
} lingering;

static void look_at_clients(tt_proxy *p, void *arg)
{
  lingering *l = arg;
  if (!atomic_load(&p->pxn.orphan)) {
    return;
  }
  tt_proxy_run_hold(p);
  for (const tt_relay_client *g = p->pxn.clients; g != NULL; g = g->next) {
    if (g->foreign) {
      l->any = true;
      l->pending |= g->peer.send.first != NULL || g->taken != atomic_load(&g->shared->posted);
      l->moved += g->taken + g->peer.send.posted + g->peer.send.finished;
    }
  }
  tt_proxy_run_release(p);
}

// The threads of the library still run.
static void await_clients(void)
{
  uint64_t since = tt_now_ns(), now = since;
  uint32_t moved = 0;
  for (lingering l = {.any = true}; l.any; now = tt_now_ns()) {
    l = (lingering){.any = false};
    tt_proxy_each(look_at_clients, &l);
    if (l.moved != moved) {
      moved = l.moved;
      since = now;
    }
    if (l.any && now - since >= (l.pending ? STUCK_NS : IDLE_NS)) {
      return;
    }
    tt_sleep_ns(l.any ? TT_NS_PER_MS : 0);
  }
}

static void at_exit(void)
{
  atexit(await_clients);
}

void tt_client_outlive(tt_proxy *p)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  atomic_store(&p->pxn.orphan, true);
  pthread_once(&once, at_exit);
}

// ---- states

int tt_client_states(const tt_proxy *p, tt_proxy_op_state *out, int n, int max)
{
  for (const tt_relay_client *g = p->pxn.clients; g != NULL; g = g->next) {
    n = tt_proxy_items_states(g->peer.send.first, out, n, max);
  }
  return n;
}
