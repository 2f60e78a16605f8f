// proxy.c: the object: its place in the table, life, links, posting operations, their states; and what a forked child
// forgets.
#include <stdio.h>

#include "base/param.h"
#include "base/result.h"
#include "device/device.h"
#include "os/clock.h"
#include "os/proc.h"
#include "proxy/far.h"
#include "proxy/relay.h"

#define TABLE_CHUNK 16
#define TABLE_CHUNKS 4096
#define LINK_NAP_NS 200000ull // between two looks at links that come up

// All proxies ever made, in chunks that never move. `count` grows under `table_lock` (release) and is read without
// (acquire).
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static tt_proxy *table[TABLE_CHUNKS];
static _Atomic int count;
static tt_proxy *free_places; // places that are free again, by next_free; under `table_lock`
static pthread_once_t hook_once = PTHREAD_ONCE_INIT;

static inline tt_proxy *proxy_at(int i)
{
  return &table[i / TABLE_CHUNK][i % TABLE_CHUNK];
}

void tt_proxy_each(void (*visit)(tt_proxy *p, void *arg), void *arg)
{
  int n = atomic_load_explicit(&count, memory_order_acquire);
  for (int i = 0; i < n; i++) {
    visit(proxy_at(i), arg);
  }
}

// A place for a new proxy, or NULL. Caller holds `table_lock`.
static tt_proxy *table_take(void)
{
  int n = atomic_load_explicit(&count, memory_order_relaxed);
  if (free_places != NULL) {
    tt_proxy *p = free_places;
    free_places = p->next_free;
    return p;
  }
  if (n == TABLE_CHUNK * TABLE_CHUNKS) {
    return NULL;
  }
  if (n % TABLE_CHUNK == 0) {
    table[n / TABLE_CHUNK] = tt_calloc_line(TABLE_CHUNK * sizeof(tt_proxy));
    if (table[n / TABLE_CHUNK] == NULL) {
      return NULL;
    }
  }
  atomic_store_explicit(&count, n + 1, memory_order_release);
  return proxy_at(n);
}

// ---- fork

static void forget_one(tt_proxy *p, void *unused)
{
  (void)unused;
  if (atomic_load_explicit(&p->life, memory_order_relaxed) == TT_PROXY_FREE) {
    return;
  }
  tt_proxy_service_forget(p);
  tt_relay_forget(p);
  tt_client_forget(p);
  if (p->ctx != NULL && p->net->forget != NULL) {
    p->net->forget(p->ctx);
  }
}

// A child has no proxies: the parent's are the parent's, and their peers shall see it die. Descriptors are closed,
// memory is left alone.
static void proxy_in_child(void)
{
  tt_proxy_each(forget_one, NULL);
  tt_proxy_thread_forget();
  pthread_mutex_init(&table_lock, NULL);
  for (int c = 0; c < TABLE_CHUNKS; c++) {
    table[c] = NULL;
  }
  atomic_store(&count, 0);
  free_places = NULL;
}

static void hook(void)
{
  static tt_fork_hook own = {.fn = proxy_in_child};
  tt_proc_on_fork(&own);
}

// ---- life

void tt_proxy_conn_close(tt_proxy_conn *c)
{
  const tt_net_ops *net = c->proxy->net;
  tt_proxy_mrs_close(c);
  for (int k = 0; k < TT_PROXY_FIFOS; k++) {
    if (c->fifo[k].mhandle != NULL) {
      net->dereg_mr(c->comm, c->fifo[k].mhandle);
      c->fifo[k].mhandle = NULL;
    }
  }
  (c->send ? net->close_send : net->close_recv)(c->comm);
  c->comm = NULL;
  tt_prof_net_close(c->net_prof); // the plugin has used its records until now
  c->net_prof = NULL;
}

static void free_peers(tt_proxy *p)
{
  for (int i = 0; p->peers != NULL && i < p->nranks; i++) {
    tt_proxy_peer *peer = tt_proxy_peer_find(p, i);
    if (peer != NULL) {
      tt_proxy_conn_close(&peer->send);
      tt_proxy_conn_close(&peer->recv);
      tt_free(peer->ties);
      tt_free(peer);
    }
  }
  tt_puts_free(p);
  tt_proxy_regions_free(p);
  tt_proxy_pools_free(p);
  tt_free(p->peers);
  p->peers = NULL;
}

void tt_proxy_destroy(tt_proxy *p)
{
  if (p == NULL || tt_proxy_service_leave(p)) {
    return;
  }
  tt_proxy_service_stop(p);
  tt_proxy_bury(p);
}

void tt_proxy_bury(tt_proxy *p)
{
  tt_proxy_seize(p);
  tt_proxy_prof_leave(p);
  tt_client_free(p);
  tt_relay_free(p);
  tt_proxy_thread_unwatch(p->events_fd);
  tt_proxy_service_free(p);
  free_peers(p);
  if (p->ctx != NULL) {
    p->net->finalize(p->ctx);
    p->ctx = NULL;
  }
  p->events_fd = -1;
  pthread_mutex_destroy(&p->lock);
  atomic_store_explicit(&p->life, TT_PROXY_FREE, memory_order_release);
  tt_proxy_unseize(p); // before the place is given away: from then on the flag means the next one
  pthread_mutex_lock(&table_lock);
  p->next_free = free_places;
  free_places = p;
  pthread_mutex_unlock(&table_lock);
  tt_proxy_thread_left();
}

static void disown_conn(tt_proxy_conn *c)
{
  tt_proxy_conn_drop(c);
  tt_proxy_conn_close(c);
  atomic_store_explicit(&c->attached, false, memory_order_relaxed);
}

void tt_proxy_disown(tt_proxy *p)
{
  tt_relay_detach(p);
  tt_proxy_prof_leave(p);
  for (int i = 0; i < p->nranks; i++) {
    tt_proxy_peer *peer = tt_proxy_peer_find(p, i);
    if (peer != NULL) {
      disown_conn(&peer->send);
      disown_conn(&peer->recv);
    }
  }
  tt_puts_disown(p);
  tt_proxy_active_clear(p);
  p->lone = (tt_port){.rank = p->rank, .page = &p->lone.lone_page};
  atomic_store_explicit(&p->lone.lone_page.state, TT_RANK_GONE, memory_order_relaxed);
  p->port = &p->lone;
}

// What a proxy starts with. Items of an earlier life are used again.
static void proxy_init(tt_proxy *p, const tt_proxy_env *env)
{
  int64_t every = tt_params_get()->progress_appendop_freq;
  p->rank = env->rank;
  p->nranks = env->nranks;
  p->hash = env->hash;
  p->port = env->port;
  p->row = env->port->row;
  p->net = env->net;
  p->ctx = NULL;
  p->events_fd = -1;
  p->append_every = (uint32_t)TT_CLAMP(every, 1, 1 << 20);
  p->dropped = p->memory.said = false;
  atomic_store_explicit(&p->unsent, 0, memory_order_relaxed);
  p->rounds = 0;
  p->active[false] = p->active[true] = NULL;
  p->memory.regions = p->memory.mrs = p->pxn.client_pairs = NULL;
  p->sums = NULL;
  p->puts.rma = NULL;
  atomic_store_explicit(&p->puts.list, NULL, memory_order_relaxed);
  atomic_store_explicit(&p->standing, 0, memory_order_relaxed);
  p->round = 1;
  p->memory.max_extras = TT_PROXY_EXTRAS;
  p->memory.shares = tt_params_get()->net_shared_buffers != 0;
  atomic_store_explicit(&p->memory.registers, env->net->reg_mr != NULL && tt_params_get()->local_register,
                        memory_order_relaxed);
  atomic_store_explicit(&p->left, false, memory_order_relaxed);
  atomic_store_explicit(&p->refused, false, memory_order_relaxed);
  atomic_store_explicit(&p->rests, false, memory_order_relaxed);
  atomic_store_explicit(&p->pxn.orphan, false, memory_order_relaxed);
  pthread_mutex_init(&p->lock, NULL);
  p->profilers = tt_profilers_hold(env->profilers); // last: the progress thread looks at this alone
}

// The network's context, and its descriptor under the eyes of the progress thread.
static ncclResult_t open_net(tt_proxy *p, const tt_proxy_env *env)
{
  tt_net_env e = {.rank = env->rank,
                  .nranks = env->nranks,
                  .comm_hash = env->hash,
                  .traffic_class = TT_NET_ANY_CLASS,
                  .net = p->net,
                  .key = tt_key_derive(&env->key, "proxy: network", &env->hash, sizeof env->hash)};
  TT_TRY(p->net->init(&e, &p->ctx));
  int fd = p->net->events_fd == NULL ? -1 : p->net->events_fd(p->ctx);
  p->events_fd = tt_proxy_thread_watch(p->net, p->ctx, fd) ? fd : -1;
  return ncclSuccess;
}

ncclResult_t tt_proxy_create(const tt_proxy_env *env, tt_proxy **out, tt_proxy_where *where)
{
  ncclResult_t res = ncclSuccess;
  pthread_once(&hook_once, hook);
  env->port->row->on_free(tt_proxy_memory_goes);
  pthread_mutex_lock(&table_lock);
  tt_proxy *p = table_take();
  if (p != NULL) {
    proxy_init(p, env);
    p->peers = tt_calloc((size_t)env->nranks, sizeof *p->peers);
    atomic_store_explicit(&p->life, TT_PROXY_LIVE, memory_order_release);
  }
  pthread_mutex_unlock(&table_lock);
  if (p == NULL || p->peers == NULL) {
    res = tt_fail(ncclSystemError, "rank %d: no memory for the proxy of %d ranks", env->rank, env->nranks);
    goto fail;
  }
  TT_TRY_GOTO(tt_proxy_thread_start(env->port->crowded), res);
  TT_TRY_GOTO(open_net(p, env), res);
  TT_TRY_GOTO(tt_proxy_service_start(p, env, where), res);
  *out = p;
  return ncclSuccess;

fail:
  tt_proxy_destroy(p);
  return res;
}

// ---- peers and links

void tt_proxy_conn_init(tt_proxy *p, tt_proxy_peer *peer, tt_proxy_conn *c, bool send)
{
  c->proxy = p;
  c->peer = peer;
  c->send = send;
  c->last = &c->first;
}

static tt_proxy_peer *peer_new(tt_proxy *p, int rank)
{
  tt_proxy_peer *peer = tt_calloc_line(sizeof *peer);
  if (peer == NULL) {
    return NULL;
  }
  peer->rank = rank;
  tt_proxy_conn_init(p, peer, &peer->send, true);
  tt_proxy_conn_init(p, peer, &peer->recv, false);
  peer->send.counts = peer->recv.counts = true;
  peer->ties = tt_proxy_ties_new(peer);
  if (peer->ties == NULL) {
    tt_free(peer);
    return NULL;
  }
  return peer;
}

tt_proxy_peer *tt_proxy_peer_get(tt_proxy *p, int rank)
{
  if (rank < 0 || rank >= p->nranks) {
    return NULL;
  }
  tt_proxy_peer *peer = tt_proxy_peer_find(p, rank);
  if (peer != NULL) {
    return peer;
  }
  pthread_mutex_lock(&p->lock);
  peer = tt_proxy_peer_find(p, rank);
  if (peer == NULL) {
    peer = peer_new(p, rank);
    atomic_store_explicit(&p->peers[rank], peer, memory_order_release);
  }
  pthread_mutex_unlock(&p->lock);
  return peer;
}

static bool layout_fits(const tt_fifo *fifos)
{
  for (int k = 0; k < TT_PROXY_FIFOS; k++) {
    const tt_fifo *f = &fifos[k];
    if (f->data_stride != f->stride || f->data < f->slots + offsetof(tt_slot, data) ||
        (size_t)(f->data - f->slots) + f->capacity > f->stride) {
      return false;
    }
  }
  return true;
}

tt_proxy_fifo tt_proxy_fifo_view(const tt_fifo *f)
{
  return (tt_proxy_fifo){.slots = f->slots,
                         .head = f->head,
                         .stride = f->stride,
                         .mask = f->mask,
                         .at = (uint32_t)(f->data - f->slots),
                         .capacity = f->capacity};
}

static void attach_fifos(tt_proxy_conn *c, const tt_fifo *fifos)
{
  for (int k = 0; k < TT_PROXY_FIFOS; k++) {
    c->fifo[k] = tt_proxy_fifo_view(&fifos[k]);
  }
  atomic_store_explicit(&c->attached, true, memory_order_release);
}

ncclResult_t tt_proxy_attach(tt_proxy *p, tt_link *link)
{
  if (!layout_fits(link->send) || !layout_fits(link->recv)) {
    return tt_fail(ncclInternalError, "rank %d: the FIFOs of the link to rank %d are not laid out for the network",
                   p->rank, link->peer);
  }
  tt_proxy_peer *peer = tt_proxy_peer_get(p, link->peer);
  if (peer == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for the connection to rank %d", p->rank, link->peer);
  }
  attach_fifos(&peer->send, link->send);
  attach_fifos(&peer->recv, link->recv);
  link->page = &peer->page;
  return ncclSuccess;
}

ncclResult_t tt_proxy_connect(tt_proxy *p, tt_link *link)
{
  TT_TRY(tt_proxy_attach(p, link));
  tt_proxy_want(tt_proxy_peer_find(p, link->peer), TT_MSG_INIT);
  return ncclSuccess;
}

static bool link_has_ended(const tt_proxy_peer *peer)
{
  return atomic_load_explicit(&peer->page.state, memory_order_acquire) >= TT_RANK_FAILED;
}

// A link that was taken on and cannot send yet. NULL: none.
static tt_proxy_peer *unconnected(const tt_proxy *p)
{
  for (int i = 0; i < p->nranks; i++) {
    tt_proxy_peer *peer = tt_proxy_peer_find(p, i);
    if (peer != NULL && atomic_load_explicit(&peer->send.attached, memory_order_relaxed) &&
        atomic_load_explicit(&peer->send.stage, memory_order_acquire) != TT_CONN_READY) {
      return peer;
    }
  }
  return NULL;
}

ncclResult_t tt_proxy_await_links(tt_proxy *p, uint64_t timeout_ns)
{
  uint64_t end = tt_now_ns() + timeout_ns;
  for (tt_proxy_peer *peer; (peer = unconnected(p)) != NULL; tt_sleep_ns(LINK_NAP_NS)) {
    ncclResult_t status = tt_port_status(p->port);
    if (status != ncclSuccess) {
      tt_last_error_set(tt_port_error(p->port));
      return status;
    }
    if (tt_aborted(&p->port->abort_flag)) {
      return tt_fail(ncclInternalError, "rank %d: aborted while it connects to rank %d", p->rank, peer->rank);
    }
    if (link_has_ended(peer) || tt_now_ns() >= end) {
      return tt_fail(ncclRemoteError, "rank %d cannot connect to rank %d: %s", p->rank, peer->rank,
                     link_has_ended(peer) ? "it has left the communicator, or cannot be reached any more"
                                          : "that takes too long (NCCL_NET_TIMEOUT)");
    }
    tt_proxy_probe(p, peer->rank);
  }
  return tt_port_status(p->port);
}

// ---- operations

// A free item: in the ring of all, the oldest one comes after the newest one, and is the first to be done. NULL: no
// memory.
static tt_proxy_item *item_take(tt_proxy *p)
{
  tt_proxy_item *newest = p->newest, *i = newest;
  while (i != NULL) {
    i = i->after;
    if (!atomic_load_explicit(&i->busy, memory_order_acquire)) {
      p->newest = i;
      return i;
    }
    i = i == newest ? NULL : i;
  }
  tt_proxy_item *more = tt_calloc(TT_PROXY_ITEMS, sizeof *more);
  if (more == NULL) {
    return NULL;
  }
  for (int k = 0; k < TT_PROXY_ITEMS; k++) {
    more[k].after = &more[(k + 1) % TT_PROXY_ITEMS];
  }
  if (newest != NULL) {
    more[TT_PROXY_ITEMS - 1].after = newest->after;
    newest->after = more;
  }
  p->newest = more;
  return more;
}

void tt_proxy_item_fill(tt_proxy_item *i, tt_proxy_conn *c, const tt_proxy_op *op)
{
  i->conn = c;
  i->op = *op;
  i->op.shared = op->shared && c->proxy->memory.shares;
  i->agreed = false;
  i->prof = NULL;
  i->posted = i->received = i->transmitted = i->done = i->base = 0;
  i->started_ns = 0;
  atomic_store_explicit(&i->busy, true, memory_order_relaxed);
}

ncclResult_t tt_proxy_post(tt_proxy *p, const tt_proxy_op *op)
{
  tt_proxy_peer *peer = op->peer >= 0 && op->peer < p->nranks ? tt_proxy_peer_find(p, op->peer) : NULL;
  tt_proxy_conn *c = peer == NULL ? NULL : op->send ? &peer->send : &peer->recv;
  if (TT_UNLIKELY(c == NULL || op->proto >= TT_PROXY_FIFOS ||
                  !atomic_load_explicit(&c->attached, memory_order_relaxed))) {
    return tt_fail(ncclInternalError, "rank %d: an operation with rank %d (protocol %d), to which there is no link",
                   p->rank, op->peer, op->proto);
  }
  if (op->nsteps == 0) {
    return ncclSuccess;
  }
  tt_proxy_item *i = item_take(p);
  if (i == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for an operation of the proxy", p->rank);
  }
  tt_proxy_item_fill(i, c, op);
  if (TT_UNLIKELY(op->event != NULL)) {
    tt_profilers *mine = p->profilers;
    i->prof = tt_proxy_prof_new(
        mine, &(tt_proxy_event){.event = *op->event, .pid = tt_proc_self().pid, .owner = tt_profilers_id(mine)});
  }
  atomic_store_explicit(&p->posted, tt_proxy_count(&p->posted) + 1, memory_order_release);
  i->next = atomic_load_explicit(&p->incoming, memory_order_relaxed);
  if (i->next == NULL) {
    atomic_store_explicit(&p->incoming, i, memory_order_release);
    return ncclSuccess;
  }
  while (
      !atomic_compare_exchange_weak_explicit(&p->incoming, &i->next, i, memory_order_release, memory_order_relaxed)) {
  }
  return ncclSuccess;
}

bool tt_proxy_idle(const tt_proxy *p)
{
  // `finished` first: it never overtakes `posted`, so when the two agree, all were done at the second look.
  uint32_t finished = atomic_load_explicit(&p->finished, memory_order_acquire);
  return finished == atomic_load_explicit(&p->posted, memory_order_acquire);
}

// What the executor has done says the FIFO's head: how much it may fill, or has used.
static tt_proxy_op_state item_state(const tt_proxy_item *i)
{
  const tt_proxy_conn *c = i->conn;
  const tt_proxy_fifo *f = &c->fifo[i->op.proto];
  tt_proxy_op_state s = {.op = i->op,
                         .posted = i->posted,
                         .received = i->received,
                         .transmitted = i->transmitted,
                         .done = i->done,
                         .connected = atomic_load_explicit(&c->stage, memory_order_acquire) == TT_CONN_READY,
                         .started_ns = i->started_ns != 0 ? i->started_ns : tt_now_ns()};
  if (c->send) {
    s.posted = TT_MIN(s.op.nsteps, s.done + f->mask + 1);
    return s;
  }
  int32_t used = (int32_t)(atomic_load_explicit(f->head, memory_order_acquire) - i->base);
  s.done = s.posted == 0 || used < 0 ? 0 : TT_MIN((uint32_t)used, s.transmitted);
  return s;
}

int tt_proxy_items_states(const tt_proxy_item *i, tt_proxy_op_state *out, int n, int max)
{
  for (; i != NULL; i = i->next) {
    if (i->conn->relay != NULL) {
      continue;
    }
    if (n < max) {
      out[n] = item_state(i);
    }
    n++;
  }
  return n;
}

int tt_proxy_states(tt_proxy *p, tt_proxy_op_state *out, int max)
{
  tt_proxy_run_hold(p);
  int n = tt_proxy_items_states(atomic_load_explicit(&p->incoming, memory_order_acquire), out, 0, max);
  for (int send = 0; send < 2; send++) {
    for (const tt_proxy_conn *c = p->active[send]; c != NULL; c = c->next_active) {
      n = tt_proxy_items_states(c->first, out, n, max);
    }
  }
  n = tt_client_states(p, out, n, max);
  tt_proxy_run_release(p);
  return n;
}

const char *tt_proxy_item_text(const tt_proxy_item *i, char *buf, size_t room)
{
  const tt_proxy_conn *c = i->conn;
  const char *way = c->send ? "sent to" : "received from";
  uint32_t n = c->send ? i->done : i->transmitted;
  if (c->counts || c->client != NULL) {
    snprintf(buf, room, " (%u of %u messages %s rank %d)", n, i->op.nsteps, way, c->peer->rank);
  } else {
    const char *what = i->op.sig == TT_FAR_SIG ? "captured" : "one-sided";
    snprintf(buf, room, " (%u %s messages %s rank %d)", n, what, way, c->peer->rank);
  }
  return buf;
}

// The older of two operations, each of which may be NULL: there is none.
static const tt_proxy_item *older_item(const tt_proxy_item *a, const tt_proxy_item *b)
{
  return a == NULL || (b != NULL && b->op.opcount < a->op.opcount) ? b : a;
}

const char *tt_proxy_oldest_text(tt_proxy *p, int rank, char *buf, size_t room)
{
  buf[0] = 0;
  tt_proxy_run_hold(p);
  const tt_proxy_peer *peer = tt_proxy_peer_find(p, rank);
  const tt_proxy_item *oldest = NULL, *first = NULL, *posted = NULL;
  if (peer != NULL) {
    oldest = older_item(peer->send.relay != NULL ? NULL : peer->send.first, peer->recv.first);
    posted = atomic_load_explicit(&p->incoming, memory_order_acquire);
  }
  for (; posted != NULL; posted = posted->next) { // newest first; of one call the one that was posted first counts
    bool its = posted->conn->peer == peer && posted->conn->relay == NULL;
    first = its ? older_item(posted, first) : first;
  }
  oldest = older_item(oldest, first);
  if (oldest != NULL) {
    tt_proxy_item_text(oldest, buf, room);
  }
  tt_proxy_run_release(p);
  return buf;
}

// ---- as a port's mover

static bool mover_progress(void *self, bool insist)
{
  return tt_proxy_progress(self, insist);
}

// The caller waits until it is so: for peers that take what is sent.
static bool mover_idle(void *self)
{
  bool idle = tt_proxy_idle(self);
  if (!idle) {
    tt_proxy_probe_pending(self);
  }
  return tt_puts_idle(self) && idle;
}

// A plan that is complete leaves receives of later plans behind, which somebody will come for; only what is still to be
// sent is urgent.
static void mover_kick(void *self, bool lazily)
{
  tt_proxy *p = self;
  bool urgent = !lazily && (tt_proxy_count(&p->unsent) != 0 || atomic_load_explicit(&p->refused, memory_order_relaxed));
  tt_proxy_kick(p, !urgent);
}

static void mover_state_changed(void *self)
{
  tt_proxy_state_changed(self);
}

static void mover_probe(void *self, int peer)
{
  tt_proxy_probe(self, peer);
}

static void mover_settle(void *self)
{
  tt_proxy_settle(self);
}

static bool mover_stands(void *self, int peer)
{
  return tt_proxy_stands(self, peer);
}

static void mover_census(void *self)
{
  tt_proxy_census(self);
}

static tt_unread mover_unread(void *self, int peer)
{
  return tt_proxy_unread(self, peer);
}

static ncclResult_t mover_attach(void *self, const tt_far_end *end, tt_far_fifo **out)
{
  return tt_far_attach(self, end, out);
}

static void mover_detach(void *self, tt_far_fifo *f)
{
  tt_far_detach(self, f);
}

const tt_mover tt_proxy_mover = {.progress = mover_progress,
                                 .idle = mover_idle,
                                 .kick = mover_kick,
                                 .state_changed = mover_state_changed,
                                 .probe = mover_probe,
                                 .settle = mover_settle,
                                 .stands = mover_stands,
                                 .census = mover_census,
                                 .unread = mover_unread,
                                 .attach = mover_attach,
                                 .detach = mover_detach};
