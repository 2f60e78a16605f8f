// progress.c: the threads that move a proxy's messages, and one round over its operations (seed 001, part 5).
//
// No thread owns a proxy. The holder of its run flag moves what can be moved, and leaves. The rules are those of a
// stream (device/host/stream.c).
#include <stdio.h>

#include "base/result.h"
#include "os/clock.h"
#include "proxy/puts.h"
#include "proxy/relay.h"

#define MAX_CHANGED 8 // peers of one round whose sleepers are told apart
#ifndef STAMP_AFTER
// Rounds after which operations get their time: a reading of the clock costs as much as moving a small message.
#define STAMP_AFTER 16
#endif

// ---- operations

void tt_proxy_retire(tt_proxy_conn *c)
{
  tt_proxy *p = c->proxy;
  tt_proxy_item *i = c->first;
  if (TT_UNLIKELY(i->prof != NULL)) {
    tt_proxy_prof_end(i);
  }
  c->first = i->next;
  if (c->first == NULL) {
    c->last = &c->first;
  }
  atomic_store_explicit(&i->busy, false, memory_order_release);
  if (TT_LIKELY(c->counts)) {
    atomic_store_explicit(&p->finished, tt_proxy_count(&p->finished) + 1, memory_order_release);
  }
}

void tt_proxy_items_drop(tt_proxy_conn *c)
{
  c->poster = NULL;
  if (c->send) {
    atomic_store_explicit(&c->proxy->unsent, tt_proxy_count(&c->proxy->unsent) - (c->posted - c->finished),
                          memory_order_relaxed);
  }
  if (c->abroad >
      0) { // the memory is the user's again when this returns: no thread or adapter of the network's may be at it
    c->abroad = 0;
    c->usable = false;
    tt_proxy_conn_close(c);
  }
  c->owes = c->unsure = false;
  c->finished = c->received = c->posted;
  while (c->first != NULL) {
    tt_proxy_retire(c);
  }
}

// Puts an operation at the end of its connection's queue.
static void enqueue_item(tt_proxy *p, tt_proxy_item *i)
{
  tt_proxy_conn *c = i->conn;
  i->next = NULL;
  *c->last = i;
  c->last = &i->next;
  if (c->poster == NULL) {
    c->poster = i;
  }
  if (TT_UNLIKELY(i->prof != NULL) && c->relay == NULL) { // else the neighbour tells
    tt_proxy_prof_begin(i);
  }
  if (atomic_load_explicit(&c->stage, memory_order_relaxed) == TT_CONN_BROKEN) {
    tt_proxy_items_drop(c);
  } else if (!c->active) {
    tt_proxy_conn **list = &p->active[c->send];
    c->active = true;
    c->next_active = *list;
    *list = c;
  }
}

// Takes on what has been posted. True when there was anything.
static bool append_incoming(tt_proxy *p)
{
  tt_proxy_item *i = atomic_exchange_explicit(&p->incoming, NULL, memory_order_acquire), *ordered = NULL;
  p->rounds = 0;
  if (i == NULL) {
    return false;
  }
  p->unstamped = STAMP_AFTER;
  tt_prof_event event = {0};
  int n = 0;
  if (TT_UNLIKELY(p->profilers != NULL)) {
    tt_proxy_prof_ctrl_start(p, &event, ncclProfilerProxyCtrlAppend);
  }
  while (i != NULL) { // newest first: reverse
    tt_proxy_item *next = i->next;
    i->next = ordered;
    ordered = i;
    i = next;
  }
  while (ordered != NULL) {
    tt_proxy_item *next = ordered->next;
    enqueue_item(p, ordered);
    ordered = next;
    n++;
  }
  if (TT_UNLIKELY(p->profilers != NULL)) {
    tt_proxy_prof_ctrl_stop(p, &event, ncclProfilerProxyCtrlAppendEnd, n);
  }
  return true;
}

static inline bool has_incoming(const tt_proxy *p)
{
  return atomic_load_explicit(&p->incoming, memory_order_relaxed) != NULL;
}

// ---- connections

// Registers the FIFOs' memory. True when the connection can be used from now on.
static bool make_usable(tt_proxy_conn *c)
{
  const tt_net_ops *net = c->proxy->net;
  if (c->relay != NULL) { // the neighbour's proxy does that
    c->usable = atomic_load_explicit(&c->attached, memory_order_acquire);
    return c->usable;
  }
  if (atomic_load_explicit(&c->stage, memory_order_acquire) != TT_CONN_READY ||
      !atomic_load_explicit(&c->attached, memory_order_acquire)) {
    return false;
  }
  for (int k = 0; k < TT_PROXY_FIFOS && net->reg_mr != NULL; k++) {
    tt_proxy_fifo *f = &c->fifo[k];
    if (f->slots == NULL) { // one-sided operations have one
      continue;
    }
    ncclResult_t res = net->reg_mr(c->comm, f->slots, ((size_t)f->mask + 1) * f->stride, TT_NET_PTR_HOST, &f->mhandle);
    if (res != ncclSuccess) {
      tt_proxy_conn_fail(c, res);
      return false;
    }
  }
  bool parts = net->reg_mr == NULL && net->has_parts != NULL && net->has_parts(c->comm); // the same at both ends
  c->parts = parts && !c->flush;
  c->split = !parts;
  c->depth = c->split ? TT_NET_REQUESTS / 2 : TT_NET_REQUESTS;
  c->usable = true;
  return true;
}

bool tt_proxy_conn_usable(tt_proxy_conn *c)
{
  return TT_LIKELY(c->usable) || make_usable(c);
}

void tt_proxy_conn_drop(tt_proxy_conn *c)
{
  c->usable = false;
  tt_proxy_items_drop(c);
  atomic_store_explicit(&c->stage, TT_CONN_BROKEN, memory_order_release);
}

void tt_proxy_conn_ready(tt_proxy_conn *c, void *comm, bool flush)
{
  c->comm = comm;
  c->flush = flush;
  atomic_store_explicit(&c->stage, TT_CONN_READY, memory_order_release);
  tt_bell_fence(); // either this look finds an operation that was just posted, or its look finds the connection ready
  tt_proxy_look(c->proxy);
  tt_proxy_kick(c->proxy, false);
}

void tt_proxy_conn_fail(tt_proxy_conn *c, ncclResult_t code)
{
  const tt_proxy_item *i = c->first;
  c->code = code;
  char far[64] = "";
  if (i != NULL) {
    tt_proxy_item_text(i, far, sizeof far);
  }
  snprintf(c->text, sizeof c->text, "%s%s", tt_last_error(), far);
  tt_proxy_conn_drop(c);
  tt_proxy_alert(c);
}

// ---- rounds

static void stamp(const tt_proxy_conn *c, uint64_t now)
{
  for (; c != NULL; c = c->next_active) {
    for (tt_proxy_item *i = c->first; i != NULL; i = i->next) {
      i->started_ns = i->started_ns != 0 ? i->started_ns : now;
    }
  }
}

static bool send_round(tt_proxy_conn *c)
{
  return TT_UNLIKELY(c->relay != NULL) ? tt_relay_round(c) : tt_proxy_send_round(c);
}

// Goes over the connections of a list, takes out those without operations, and notes whose FIFOs have changed. Returns
// how many.
static int round_over(tt_proxy_conn **list, bool (*round)(tt_proxy_conn *c), int *changed)
{
  int n = 0;
  for (tt_proxy_conn **at = list, *c; (c = *at) != NULL;) {
    if (tt_proxy_conn_usable(c) && round(c)) {
      changed[n++ % MAX_CHANGED] = c->peer->rank;
    }
    if (c->first == NULL) {
      *at = c->next_active;
      c->active = false;
    } else {
      at = &c->next_active;
    }
  }
  return n;
}

// Wakes the threads that wait for these peers' messages or slots.
static void ring_rank(const tt_proxy *p, const int *changed, int n)
{
  tt_rank_page *page = p->port->page;
  for (int i = 0; i < TT_MIN(n, MAX_CHANGED); i++) {
    tt_page_ring(page, changed[i]);
  }
  if (n > MAX_CHANGED) {
    tt_bell_ring(&page->bell);
  }
}

// Sends first: a receive that finds nothing costs as much as a message that is sent.
static bool round_once(tt_proxy *p)
{
  if (atomic_load_explicit(&p->refused, memory_order_relaxed)) {
    atomic_store_explicit(&p->refused, false, memory_order_relaxed);
  }
  p->rounds++;
  p->round++;
  int sends[MAX_CHANGED], recvs[MAX_CHANGED];
  int nsends = round_over(&p->active[true], send_round, sends),
      nrecvs = round_over(&p->active[false], tt_proxy_recv_round, recvs);
  if (nsends + nrecvs > 0) {
    tt_bell_fence();
    ring_rank(p, sends, nsends);
    ring_rank(p, recvs, nrecvs);
  }
  if (p->unstamped > 0 && --p->unstamped == 0) {
    uint64_t now = tt_now_ns();
    stamp(p->active[true], now);
    stamp(p->active[false], now);
  }
  bool sent = p->pxn.clients != NULL && tt_client_round(p);
  sent |= TT_UNLIKELY(p->sums != NULL) && tt_proxy_sums_round(p->sums);
  sent |= TT_UNLIKELY(atomic_load_explicit(&p->puts.list, memory_order_relaxed) != NULL) && tt_puts_round(p);
  return sent || nsends + nrecvs > 0;
}

void tt_proxy_active_clear(tt_proxy *p)
{
  for (int send = 0; send < 2; send++) {
    for (tt_proxy_conn *c = p->active[send]; c != NULL; c = c->next_active) {
      tt_proxy_items_drop(c);
      c->active = false;
    }
    p->active[send] = NULL;
  }
}

// The port is stopped: what its executor had sent before still goes out as far as the network takes it at once; all the
// rest is dropped.
static void drop_operations(tt_proxy *p)
{
  int unused[MAX_CHANGED];
  append_incoming(p);
  for (int i = 0; !p->dropped && i < TT_NET_REQUESTS && round_over(&p->active[true], send_round, unused) > 0; i++) {
  }
  tt_puts_drop(p);
  p->dropped = true;
  tt_proxy_active_clear(p);
  if (p->sums != NULL) {
    tt_proxy_sums_drop(p->sums);
  }
  tt_client_drop(p);
}

// The progress thread is going to rest: relayed connections and clients ask to be rung, before the look that follows.
static void announce_rest(tt_proxy *p)
{
  atomic_store_explicit(&p->rests, false, memory_order_relaxed);
  tt_relay_rest(p);
  tt_client_rest(p);
  tt_bell_fence();
}

// One look at everything. Run flag held. False only when nothing can move until something happens outside: an event of
// the network, a message of the executor, a new operation.
static bool progress_look(tt_proxy *p)
{
  if (atomic_load_explicit(&p->life, memory_order_acquire) != TT_PROXY_LIVE) {
    return false;
  }
  if (TT_UNLIKELY(tt_port_status(p->port) != ncclSuccess)) {
    drop_operations(p);
    return false;
  }
  if (TT_UNLIKELY(atomic_load_explicit(&p->rests, memory_order_relaxed))) {
    announce_rest(p);
  }
  if (has_incoming(p) && ((p->active[true] == NULL && p->active[false] == NULL) || p->rounds >= p->append_every)) {
    append_incoming(p);
  }
  bool moved = round_once(p);
  if (!moved && has_incoming(p) && append_incoming(p)) {
    moved = round_once(p);
  }
  return moved;
}

// ---- the run flag

bool tt_proxy_run_release(tt_proxy *p)
{
  bool moved = false;
  int taken = 1;
  while (!atomic_compare_exchange_strong(&p->run, &taken, 0)) {
    atomic_exchange(&p->run, 1); // an exchange: the look that follows must not be earlier
    moved |= progress_look(p);
    taken = 1;
  }
  return moved;
}

bool tt_proxy_run_take(tt_proxy *p, bool insist)
{
  int state = 0;
  if (atomic_compare_exchange_strong_explicit(&p->run, &state, 1, memory_order_seq_cst, memory_order_relaxed)) {
    return true;
  }
  if (!insist || atomic_exchange(&p->run, 2) != 0) {
    return false; // the holder will find the 2
  }
  return true; // the holder has gone meanwhile: the flag is ours, and a 2 asks for a second look
}

static bool look_and_release(tt_proxy *p)
{
  bool moved = progress_look(p);
  return tt_proxy_run_release(p) || moved;
}

bool tt_proxy_look(tt_proxy *p)
{
  return tt_proxy_busy(p) && tt_proxy_run_take(p, true) && look_and_release(p);
}

bool tt_proxy_progress(tt_proxy *p, bool insist)
{
  if (!tt_proxy_busy(p) || !tt_proxy_run_take(p, insist)) {
    return false;
  }
  atomic_store_explicit(&p->driven, tt_proxy_count(&p->driven) + 1, memory_order_relaxed);
  if (atomic_load_explicit(&p->left, memory_order_relaxed)) {
    atomic_store_explicit(&p->left, false, memory_order_relaxed);
  }
  return look_and_release(p);
}

void tt_proxy_run_hold(tt_proxy *p)
{
  while (!tt_proxy_run_take(p, false)) { // holders never wait for anything
    tt_sleep_ns(1000);
  }
}

// Also where nothing is left to do: the flag's holder may have finished the last operation, and not yet counted it.
void tt_proxy_settle(tt_proxy *p)
{
  tt_proxy_run_hold(p);
  look_and_release(p);
}

bool tt_proxy_has_passed(tt_proxy *p, int rank)
{
  const tt_proxy_peer *peer = tt_proxy_peer_find(p, rank);
  if (peer == NULL || !atomic_load_explicit(&peer->send.attached, memory_order_acquire)) {
    return true; // there is no FIFO to fill
  }
  const tt_proxy_conn *c = &peer->send;
  tt_proxy_run_hold(p);
  progress_look(p);
  bool whole = atomic_load_explicit(&c->relay, memory_order_relaxed) == NULL && !c->owes;
  for (int i = 0; i < TT_PROXY_FIFOS; i++) {
    const tt_proxy_fifo *f = &c->fifo[i];
    whole = whole && atomic_load_explicit(&tt_proxy_slot(f, f->next)->seq, memory_order_acquire) != f->next + 1;
  }
  tt_proxy_run_release(p);
  return whole;
}

bool tt_proxy_stands(tt_proxy *p, int rank)
{
  const tt_proxy_peer *peer = tt_proxy_peer_find(p, rank);
  const tt_proxy_conn *c = peer != NULL ? &peer->send : NULL;
  if (p->net->stands == NULL || c == NULL || atomic_load_explicit(&c->stage, memory_order_acquire) != TT_CONN_READY) {
    return false;
  }
  tt_proxy_run_hold(p);
  progress_look(p);
  bool stands = atomic_load_explicit(&c->stage, memory_order_acquire) == TT_CONN_READY && c->posted != c->finished &&
                atomic_load_explicit(&c->relay, memory_order_relaxed) == NULL && p->net->stands(c->comm);
  tt_proxy_run_release(p);
  return stands;
}

bool tt_proxy_is_shut(tt_proxy *p, int rank)
{
  tt_proxy_peer *peer = tt_proxy_peer_find(p, rank);
  if (peer == NULL || !atomic_load_explicit(&peer->recv.attached, memory_order_acquire)) {
    return false; // what comes first makes the connection
  }
  tt_proxy_run_hold(p);
  bool shut = tt_proxy_recv_shut(&peer->recv);
  tt_proxy_run_release(p);
  return shut;
}

tt_unread tt_proxy_unread(tt_proxy *p, int rank)
{
  const tt_proxy_peer *peer = tt_proxy_peer_find(p, rank);
  if (peer == NULL) {
    return (tt_unread){0};
  }
  bool gone = atomic_load_explicit(&peer->gone, memory_order_acquire);
  uint64_t theirs = atomic_load_explicit(&peer->counts, memory_order_acquire);
  tt_proxy_run_hold(p); // the holder counts a message after it has moved it
  int32_t in = (int32_t)((uint32_t)theirs - atomic_load_explicit(&peer->recv.counted, memory_order_relaxed));
  int32_t out = (int32_t)(atomic_load_explicit(&peer->send.counted, memory_order_relaxed) - (uint32_t)(theirs >> 32));
  tt_proxy_run_release(p);
  return (tt_unread){.in = TT_MAX(in, 0), .out = gone ? TT_MAX(out, 0) : 0};
}

void tt_proxy_seize(tt_proxy *p)
{
  tt_proxy_run_hold(p);
  if (p->peers != NULL) {
    drop_operations(p);
  }
}

void tt_proxy_unseize(tt_proxy *p)
{
  atomic_store(&p->run, 0); // a thread that has asked meanwhile would find nothing
}
