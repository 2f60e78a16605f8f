// puts.c: see puts.h.
#include "proxy/puts.h"

#include "base/result.h"
#include "device/owner.h"
#include "os/clock.h"
#include "os/shm.h"
#include "proxy/far.h"

// ---- the pair of a peer

// From `g` on.
static tt_proxy_puts *puts_from(tt_proxy_puts *g, int rank, uint32_t behalf)
{
  while (g != NULL && (g->link.peer != rank || (behalf != 0 && g->ties.setup.behalf != behalf))) {
    g = g->next;
  }
  return g;
}

tt_proxy_puts *tt_puts_find(const tt_proxy *p, int rank, uint32_t behalf)
{
  return puts_from(atomic_load_explicit(&p->puts.list, memory_order_acquire), rank, behalf);
}

// Is there somebody to take what comes? Not when the rank has gone (tt_puts_disown). Run flag held, or `lock`.
static bool puts_is_used(const tt_proxy *p, const tt_proxy_puts *g)
{
  return tt_puts_is_far(g) ? p->port != &p->lone : p->puts.rma != NULL;
}

static void puts_attach(tt_proxy *p, tt_proxy_puts *g)
{
  atomic_store_explicit(&g->peer.send.attached, true, memory_order_release);
  atomic_store_explicit(&g->peer.recv.attached, true, memory_order_release);
  atomic_fetch_add(&p->standing, 1);
}

static bool puts_map(tt_proxy_puts *g)
{
  size_t one = tt_rma_fifo_bytes();
  g->size = 2 * one + TT_ROUND_UP(TT_WINDOWS * sizeof *g->link.known, 4096);
  if (tt_shm_map(-1, g->size, (void **)&g->memory) != ncclSuccess) {
    return false;
  }
  g->link.send = tt_rma_fifo(g->memory);
  g->recv = tt_rma_fifo(g->memory + one);
  g->link.known = (uint64_t *)(void *)(g->memory + 2 * one);
  return true;
}

static tt_proxy_puts *puts_new(tt_proxy *p, int rank, uint32_t behalf)
{
  tt_proxy_puts *g = tt_calloc_line(sizeof *g);
  if (g == NULL || !puts_map(g)) {
    tt_free(g);
    return NULL;
  }
  pthread_mutex_init(&g->link.lock, NULL);
  g->link.peer = g->peer.rank = rank;
  tt_proxy_conn_init(p, &g->peer, &g->peer.send, true);
  tt_proxy_conn_init(p, &g->peer, &g->peer.recv, false);
  g->peer.send.fifo[TT_SIMPLE] = tt_proxy_fifo_view(&g->link.send);
  g->peer.recv.fifo[TT_SIMPLE] = tt_proxy_fifo_view(&g->recv);
  g->ties.peer = &g->peer;
  g->ties.setup.behalf = behalf;
  return g;
}

// The pair with this peer, made when it is not there yet. NULL: no memory.
static tt_proxy_puts *puts_get(tt_proxy *p, int rank, uint32_t behalf)
{
  tt_proxy_peer *peer = tt_proxy_peer_get(p, rank);
  pthread_mutex_lock(&p->lock);
  tt_proxy_puts *g = tt_puts_find(p, rank, behalf);
  if (g == NULL && peer != NULL && (g = puts_new(p, rank, behalf)) != NULL) {
    g->ties.whose = peer->ties;
    g->next = atomic_load_explicit(&p->puts.list, memory_order_relaxed);
    if (puts_is_used(p, g)) {
      puts_attach(p, g);
    }
    atomic_store_explicit(&p->puts.list, g, memory_order_release);
  }
  pthread_mutex_unlock(&p->lock);
  return g;
}

// ---- the launching thread

void tt_proxy_puts_begin(tt_proxy *p, struct tt_rma *rma)
{
  tt_proxy_run_hold(p);
  pthread_mutex_lock(&p->lock);
  p->puts.rma = rma;
  for (tt_proxy_puts *g = atomic_load_explicit(&p->puts.list, memory_order_relaxed); g != NULL; g = g->next) {
    if (!tt_puts_is_far(g)) {
      puts_attach(p, g); // what has come waits in the network
    }
  }
  pthread_mutex_unlock(&p->lock);
  tt_proxy_run_release(p);
  tt_proxy_look(p);
  tt_proxy_kick(p, false);
}

void tt_proxy_puts_end(tt_proxy *p)
{
  tt_proxy_run_hold(p);
  pthread_mutex_lock(&p->lock);
  for (tt_proxy_puts *g = p->puts.rma == NULL ? NULL : atomic_load(&p->puts.list); g != NULL; g = g->next) {
    atomic_fetch_sub(&p->standing, !tt_puts_is_far(g));
  }
  p->puts.rma = NULL;
  pthread_mutex_unlock(&p->lock);
  tt_proxy_run_release(p);
}

ncclResult_t tt_puts_open(tt_proxy *p, int rank, uint32_t behalf, tt_proxy_puts **out)
{
  *out = puts_get(p, rank, behalf);
  if (*out == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for %s operations with rank %d", p->rank,
                   behalf == TT_MSG_PUTS ? "one-sided" : "captured", rank);
  }
  tt_proxy_want(tt_proxy_peer_find(p, rank), TT_MSG_START);
  return ncclSuccess;
}

ncclResult_t tt_proxy_puts_open(tt_proxy *p, int rank, struct tt_rma_link **out)
{
  tt_proxy_puts *g;
  TT_TRY(tt_puts_open(p, rank, TT_MSG_PUTS, &g));
  *out = &g->link;
  return ncclSuccess;
}

// ---- the run flag's holder

// Gives the connection an operation that does not end: one that has (after 2^32 messages) begins again.
static void puts_arm(const tt_proxy_puts *g, tt_proxy_conn *c, tt_proxy_item *i)
{
  if (TT_LIKELY(c->first != NULL)) {
    return;
  }
  const uint64_t sig = tt_puts_is_far(g) ? TT_FAR_SIG : TT_RMA_SIG;
  const tt_proxy_op op = {.peer = c->peer->rank, .send = c->send, .nsteps = UINT32_MAX, .sig = sig};
  tt_proxy_item_fill(i, c, &op);
  i->next = NULL;
  c->first = c->poster = i;
  c->last = &i->next;
}

static bool puts_send(tt_proxy_puts *g)
{
  tt_proxy_conn *c = &g->peer.send;
  if (!tt_proxy_conn_usable(c)) {
    return false;
  }
  puts_arm(g, c, &g->items[true]);
  return tt_proxy_send_round(c);
}

static bool puts_receive(tt_proxy_puts *g)
{
  tt_proxy_conn *c = &g->peer.recv;
  if (!tt_proxy_conn_usable(c)) {
    return false;
  }
  puts_arm(g, c, &g->items[false]);
  return tt_proxy_recv_round(c);
}

// Does what has come. After an error, or a put that cannot be done, nothing more of this peer.
static bool puts_take(tt_proxy *p, tt_proxy_puts *g)
{
  bool moved = false;
  while (!g->deaf && tt_fifo_arrived(&g->recv)) {
    const tt_slot *s = tt_fifo_slot(&g->recv);
    const char *payload = tt_fifo_data(&g->recv);
    ncclResult_t res = tt_puts_is_far(g) ? tt_far_take(g, s, payload) : tt_rma_take(p->puts.rma, &g->link, s, payload);
    if (res != ncclSuccess) {
      tt_port_stop(p->port, res);
    }
    g->deaf = res != ncclSuccess || atomic_load_explicit(&g->link.refuses, memory_order_relaxed);
    tt_fifo_release(&g->recv);
    moved = true;
  }
  return moved;
}

// Writes what captured operations send. Or says what is to be said of windows, unless a thread is writing just now:
// that says it itself, or looks again here. True: kernels' FIFOs have changed.
static bool puts_tell(tt_proxy *p, tt_proxy_puts *g)
{
  bool moved = false;
  if (tt_puts_is_far(g)) {
    const ncclResult_t res = g->deaf ? ncclSuccess : tt_far_tell(g, &moved);
    if (res != ncclSuccess) {
      tt_port_stop(p->port, res);
    }
  } else if (tt_rma_link_owes(p->puts.rma, &g->link) && pthread_mutex_trylock(&g->link.lock) == 0) {
    tt_rma_link_tell(p->puts.rma, &g->link);
    pthread_mutex_unlock(&g->link.lock);
  }
  return moved;
}

// One round over a pair. True when something has moved.
static bool puts_move(tt_proxy *p, tt_proxy_puts *g)
{
  bool moved = puts_receive(g);
  moved |= puts_take(p, g);
  moved |= puts_tell(p, g);
  return puts_send(g) || moved;
}

bool tt_puts_round(tt_proxy *p)
{
  bool moved = false;
  for (tt_proxy_puts *g = atomic_load_explicit(&p->puts.list, memory_order_acquire); g != NULL; g = g->next) {
    moved |= puts_is_used(p, g) && puts_move(p, g);
  }
  if (moved) {
    tt_bell_fence();
    tt_bell_ring(&p->port->page->bell);
  }
  return moved;
}

void tt_puts_drop(tt_proxy *p)
{
  for (tt_proxy_puts *g = atomic_load_explicit(&p->puts.list, memory_order_acquire); g != NULL; g = g->next) {
    if (!p->dropped && puts_is_used(p, g)) {
      puts_tell(p, g);
      puts_send(g);
    }
    tt_proxy_items_drop(&g->peer.send);
    tt_proxy_items_drop(&g->peer.recv);
  }
}

void tt_puts_disown(tt_proxy *p)
{
  for (tt_proxy_puts *g = atomic_load_explicit(&p->puts.list, memory_order_acquire); g != NULL; g = g->next) {
    tt_proxy_conn_drop(&g->peer.send);
    tt_proxy_conn_drop(&g->peer.recv);
    tt_proxy_conn_close(&g->peer.send);
    tt_proxy_conn_close(&g->peer.recv);
    atomic_fetch_sub(&p->standing, tt_puts_is_far(g)); // others were taken off before
  }
}

void tt_puts_free(tt_proxy *p)
{
  tt_proxy_puts *g = atomic_exchange(&p->puts.list, NULL), *next;
  for (; g != NULL; g = next) {
    next = g->next;
    tt_proxy_conn_close(&g->peer.send);
    tt_proxy_conn_close(&g->peer.recv);
    tt_far_free(g);
    pthread_mutex_destroy(&g->link.lock);
    tt_shm_unmap(g->memory, g->size);
    tt_free(g);
  }
  p->puts.rma = NULL;
}

// ---- any thread

uint32_t tt_puts_sent(const tt_proxy *p, int rank, uint32_t behalf)
{
  const tt_proxy_puts *g = tt_puts_find(p, rank, behalf);
  return g == NULL ? 0 : atomic_load_explicit(&g->peer.send.counted, memory_order_acquire);
}

uint32_t tt_puts_came(const tt_proxy *p, int rank, uint32_t behalf)
{
  const tt_proxy_puts *g = tt_puts_find(p, rank, behalf);
  return g == NULL ? 0 : atomic_load_explicit(&g->peer.recv.counted, memory_order_acquire);
}

bool tt_puts_complete(const tt_proxy *p, int rank, uint32_t behalf, uint32_t sent)
{
  const tt_proxy_puts *g = tt_puts_find(p, rank, behalf);
  return g == NULL || !atomic_load_explicit(&g->peer.recv.attached, memory_order_acquire) ||
         atomic_load_explicit(&g->peer.recv.stage, memory_order_acquire) == TT_CONN_BROKEN ||
         (int32_t)(tt_puts_came(p, rank, behalf) - sent) >= 0;
}

bool tt_puts_idle(tt_proxy *p)
{
  bool idle = true, far;
  for (tt_proxy_puts *g = atomic_load_explicit(&p->puts.list, memory_order_acquire); g != NULL; g = g->next) {
    tt_proxy_run_hold(p);
    far = tt_far_idle(g);
    tt_proxy_run_release(p);
    bool over = (far && tt_rma_link_idle(&g->link)) ||
                atomic_load_explicit(&g->peer.send.stage, memory_order_acquire) == TT_CONN_BROKEN ||
                tt_page_stopped(&g->ties.whose->peer->page);
    if (!over) {
      tt_proxy_probe(p, g->link.peer);
    }
    idle &= over;
  }
  return idle;
}

// ---- the service thread

tt_proxy_puts *tt_puts_wanted(tt_proxy_service *s, int rank, uint32_t behalf)
{
  tt_proxy_puts *g = puts_get(s->proxy, rank, behalf);
  tt_proxy_ties *own = g == NULL ? NULL : tt_proxy_ties_get(s, rank);
  if (own != NULL) {
    tt_proxy_dial(s, own);
  }
  return own == NULL ? NULL : g;
}

void tt_puts_due(tt_proxy_service *s, int rank)
{
  for (tt_proxy_puts *g = tt_puts_find(s->proxy, rank, 0); g != NULL; g = puts_from(g->next, rank, 0)) {
    tt_proxy_ties_due(s, &g->ties);
  }
}

void tt_puts_step(tt_proxy_service *s, tt_proxy_puts *g, uint64_t now)
{
  const tt_proxy_ties *own = g->ties.whose;
  uint64_t wake_ns = 0;
  g->ties.out = own->out;
  if (g->ties.out == NULL) {
    tt_proxy_setup_end(s, &g->ties, true);
  } else if (g->ties.setup.stage == TT_SETUP_NONE && !s->left) {
    g->ties.linked_ns = now;
    tt_proxy_setup_begin(s, &g->ties);
  }
  tt_proxy_setup_step(s, &g->ties, now, &wake_ns);
  tt_proxy_failures_step(s, &g->ties, now, &wake_ns);
  tt_proxy_ties_wake(s, &g->ties, wake_ns == 0 ? 0 : TT_MAX(wake_ns, now + 1));
}

void tt_puts_cancel(tt_proxy_service *s)
{
  for (tt_proxy_puts *g = atomic_load(&s->proxy->puts.list); g != NULL; g = g->next) {
    tt_proxy_setup_close(s, &g->ties);
    tt_proxy_setup_cancel(s, &g->ties);
    g->ties.failures[0].judged = g->ties.failures[1].judged = g->ties.failures[2].judged = true;
  }
}
