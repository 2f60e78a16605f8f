// proxy_rig.h: ranks made by hand for the tests of this folder: a port, a proxy and FIFOs to the two neighbours in a
// ring; and a stand-in for the executor, which fills and checks messages.
#pragma once
#include "proxy/fake_net.h"

#include "device/device.h"
#include "os/fdbox.h"
#include "os/shm.h"
#include "proxy/proxy_priv.h"

#define RIG_WAIT_NS (100 * TT_NS_PER_S) // only a hang takes longer

// Waits until `cond` holds; ends the program after a long time.
#define UNTIL(cond)                                                                  \
  do {                                                                               \
    uint64_t until_end_ = tt_now_ns() + RIG_WAIT_NS;                                 \
    while (!(cond)) {                                                                \
      if (tt_now_ns() > until_end_) {                                                \
        fprintf(stderr, "%s:%d: it never came to: %s\n", __FILE__, __LINE__, #cond); \
        abort();                                                                     \
      }                                                                              \
      tt_sleep_ns(200000);                                                           \
    }                                                                                \
  } while (0)

#ifndef RIG_BIG
#define RIG_BIG 2048 // bytes of a SIMPLE slot: too few for payloads that travel alone
#endif

enum { RIG_MAX = 8, RIG_LL_BYTES = 256, RIG_LL_SLOTS = 32, RIG_BIG_BYTES = RIG_BIG, RIG_BIG_SLOTS = 8 };

// One direction: slots with their payload behind the header.
typedef struct rig_window {
  _Alignas(TT_CACHE_LINE) _Atomic uint32_t ll_head;
  _Alignas(TT_CACHE_LINE) _Atomic uint32_t big_head;
  _Alignas(TT_CACHE_LINE) char ll[RIG_LL_SLOTS][RIG_LL_BYTES];
  _Alignas(TT_CACHE_LINE) char big[RIG_BIG_SLOTS][sizeof(tt_slot) + RIG_BIG_BYTES];
} rig_window;

typedef struct rig_rank {
  tt_port port;
  tt_proxy *proxy;
  tt_proxy_where where;
  tt_link links[RIG_MAX], *table[RIG_MAX]; // by peer
  rig_window out[RIG_MAX], in[RIG_MAX];
  rig_window *shared[RIG_MAX]; // in place of `out` where a neighbour sends; mapped TT_PROXY_SHARE_HEAD bytes before
} rig_rank;

typedef struct rig {
  int n;
  tt_key key;
  const tt_net_ops *net;
  int node_size; // ranks in a row that share a machine; 0: nobody knows of machines
  char mailbox[TT_FDBOX_NAME];
  rig_rank ranks[RIG_MAX];
} rig;

FAKE void rig_fifos(rig_window *w, tt_fifo *fifos)
{
  size_t at = offsetof(tt_slot, data);
  fifos[TT_LL] = (tt_fifo){.slots = w->ll[0],
                           .data = w->ll[0] + at,
                           .head = &w->ll_head,
                           .stride = RIG_LL_BYTES,
                           .data_stride = RIG_LL_BYTES,
                           .mask = RIG_LL_SLOTS - 1,
                           .capacity = RIG_LL_BYTES - (uint32_t)at};
  fifos[TT_SIMPLE] = (tt_fifo){.slots = w->big[0],
                               .data = w->big[0] + sizeof(tt_slot),
                               .head = &w->big_head,
                               .stride = sizeof w->big[0],
                               .data_stride = sizeof w->big[0],
                               .mask = RIG_BIG_SLOTS - 1,
                               .capacity = RIG_BIG_BYTES};
}

FAKE tt_profilers *rig_profilers[RIG_MAX]; // of the ranks that are made from now on

FAKE tt_proxy_env rig_env(rig *r, int rank)
{
  tt_proxy_env e = {.rank = rank,
                    .nranks = r->n,
                    .hash = 4711,
                    .key = r->key,
                    .port = &r->ranks[rank].port,
                    .net = r->net,
                    .profilers = rig_profilers[rank]};
  if (r->node_size > 0) {
    e.node = rank / r->node_size;
    e.place = rank % r->node_size;
    e.mailbox = r->mailbox;
  }
  return e;
}

FAKE void rig_port(rig *r, int rank)
{
  rig_rank *k = &r->ranks[rank];
  memset(k, 0, sizeof *k);
  k->port =
      (tt_port){.rank = rank, .nranks = r->n, .row = &tt_device_host, .page = &k->port.lone_page, .links = k->table};
  atomic_store(&k->port.page->state, TT_RANK_RUNNING);
}

// With machines of `node_size` ranks.
FAKE rig *rig_open_nodes(int n, int node_size, const tt_net_ops *net)
{
  rig *r = tt_calloc_line(sizeof *r);
  FAKE_DEMAND(r != NULL && n <= RIG_MAX);
  r->n = n;
  r->net = net;
  r->node_size = node_size;
  FAKE_DEMAND(node_size == 0 || tt_fdbox_open(r->mailbox) == ncclSuccess);
  memset(r->key.b, 7, sizeof r->key.b);
  for (int i = 0; i < n; i++) {
    rig_port(r, i);
    tt_proxy_env e = rig_env(r, i);
    FAKE_DEMAND(tt_proxy_create(&e, &r->ranks[i].proxy, &r->ranks[i].where) == ncclSuccess);
    r->ranks[i].port.mover = &tt_proxy_mover;
    r->ranks[i].port.mover_self = r->ranks[i].proxy;
  }
  return r;
}

FAKE rig *rig_open(int n, const tt_net_ops *net)
{
  return rig_open_nodes(n, 0, net);
}

// A rank goes.
FAKE void rig_leave(rig *r, int rank)
{
  rig_rank *k = &r->ranks[rank];
  tt_proxy_destroy(k->proxy);
  k->proxy = NULL;
  for (int i = 0; i < RIG_MAX; i++) {
    tt_shm_unmap(k->shared[i] == NULL ? NULL : (char *)k->shared[i] - TT_PROXY_SHARE_HEAD,
                 TT_PROXY_SHARE_HEAD + sizeof(rig_window));
    k->shared[i] = NULL;
  }
}

FAKE void rig_count(tt_proxy *p, void *n)
{
  *(int *)n += atomic_load(&p->life) != TT_PROXY_FREE;
}

// How many proxies there are, those included whose rank has gone.
FAKE int rig_proxies(void)
{
  int n = 0;
  tt_proxy_each(rig_count, &n);
  return n;
}

FAKE void rig_close(rig *r)
{
  for (int i = 0; i < r->n; i++) {
    rig_leave(r, i);
  }
  if (r->node_size > 0) { // those that send for others end when these have left
    UNTIL(rig_proxies() == 0);
  }
  tt_free(r);
}

// Takes the link on, through a neighbour's proxy where that is the way.
FAKE ncclResult_t rig_connect(tt_proxy *p, tt_link *l, rig_window **shared)
{
  tt_proxy_share share = {.via = tt_proxy_relay_of(p, l->peer), .size = TT_PROXY_SHARE_HEAD + sizeof(rig_window)};
  if (share.via < 0) {
    return tt_proxy_connect(p, l);
  }
  FAKE_DEMAND(tt_shm_create("rig", share.size, &share.fd) == ncclSuccess);
  FAKE_DEMAND(tt_shm_map(share.fd, share.size, (void **)&share.base) == ncclSuccess);
  *shared = (rig_window *)(void *)(share.base + TT_PROXY_SHARE_HEAD);
  rig_fifos(*shared, l->send);
  return tt_proxy_connect_shared(p, l, &share);
}

// Rank's link to `peer`; `connect`: by the service threads, else by rig_wire.
FAKE tt_link *rig_link(rig *r, int rank, int peer, bool connect)
{
  rig_rank *k = &r->ranks[rank];
  tt_link *l = &k->links[peer];
  *l = (tt_link){.rank = rank, .peer = peer};
  rig_fifos(&k->out[peer], l->send);
  rig_fifos(&k->in[peer], l->recv);
  FAKE_DEMAND((connect ? rig_connect(k->proxy, l, &k->shared[peer]) : tt_proxy_attach(k->proxy, l)) == ncclSuccess);
  __atomic_store_n(&k->table[peer], l, __ATOMIC_RELEASE);
  return l;
}

// All ranks learn where the others are.
FAKE void rig_meet(rig *r)
{
  tt_proxy_where all[RIG_MAX];
  for (int i = 0; i < r->n; i++) {
    all[i] = r->ranks[i].where;
  }
  for (int i = 0; i < r->n; i++) {
    FAKE_DEMAND(tt_proxy_meet(r->ranks[i].proxy, all) == ncclSuccess);
  }
}

// Connects from -> to without the service threads.
FAKE void rig_wire(rig *r, int from, int to)
{
  tt_proxy *a = r->ranks[from].proxy, *b = r->ranks[to].proxy;
  char handle[TT_NET_HANDLE];
  void *listener = NULL, *send = NULL, *recv = NULL;
  FAKE_DEMAND(r->net->listen(b->ctx, 0, handle, &listener) == ncclSuccess);
  while (send == NULL || recv == NULL) {
    FAKE_DEMAND(send != NULL || r->net->connect(a->ctx, 0, handle, &send) == ncclSuccess);
    FAKE_DEMAND(recv != NULL || r->net->accept(listener, &recv) == ncclSuccess);
  }
  r->net->close_listen(listener);
  tt_proxy_conn_ready(&tt_proxy_peer_get(a, to)->send, send, fake.flush);
  tt_proxy_peer_get(b, from)->recv.groups = fake.groups;
  tt_proxy_conn_ready(&tt_proxy_peer_get(b, from)->recv, recv, fake.flush);
}

// The group's setup of a test that drives by itself: no thread of a proxy runs.
FAKE int rig_hold(void **state)
{
  (void)state;
  atomic_store(&tt_proxy_thread_tests.held, true);
  return 0;
}

// ---- the executor's part

FAKE tt_proxy_op rig_op(int peer, bool send, tt_proto proto, uint32_t nsteps)
{
  return (tt_proxy_op){
      .peer = peer, .send = send, .proto = (uint8_t)proto, .nsteps = nsteps, .sig = 0x100000000ull, .count = 77};
}

// Size and contents of a message are functions of sender, FIFO and number.
FAKE uint32_t rig_size(int from, tt_proto proto, uint32_t number, uint32_t capacity)
{
  uint32_t h = (uint32_t)tt_hash(&(uint32_t[3]){(uint32_t)from, proto, number}, 12, 1);
  return h % 5 == 0 ? 0 : h % 5 == 1 ? capacity : h / 5 % (capacity + 1);
}

FAKE char rig_byte(int from, uint32_t number, uint32_t k)
{
  return (char)(from * 31 + (int)(number * 7 + k));
}

// Puts the next message into the FIFO; false: no room.
FAKE bool rig_put(int from, tt_fifo *f, tt_proto proto, uint64_t sig, uint64_t count)
{
  if (!tt_fifo_room(f)) {
    return false;
  }
  uint32_t n = f->next, size = rig_size(from, proto, n, f->capacity);
  char *data = tt_fifo_data(f);
  for (uint32_t k = 0; k < size; k++) {
    data[k] = rig_byte(from, n, k);
  }
  tt_fifo_publish(f, size, sig, count);
  return true;
}

// Takes the next message out of the FIFO and checks it; false: none there.
FAKE bool rig_get(int from, tt_fifo *f, tt_proto proto, uint64_t sig, uint64_t count)
{
  if (!tt_fifo_arrived(f)) {
    return false;
  }
  const tt_slot *s = tt_fifo_slot(f);
  uint32_t n = f->next;
  const char *data = tt_fifo_data(f);
  FAKE_DEMAND(s->sig == sig && s->count == count);
  FAKE_DEMAND(s->bytes == rig_size(from, proto, n, f->capacity));
  for (uint32_t k = 0; k < s->bytes; k++) {
    FAKE_DEMAND(data[k] == rig_byte(from, n, k));
  }
  tt_fifo_release(f);
  return true;
}

// The counts of a rank's only operation.
FAKE tt_proxy_op_state rig_state(rig *r, int rank)
{
  tt_proxy_op_state s;
  memset(&s, 0, sizeof s);
  FAKE_DEMAND(tt_proxy_states(r->ranks[rank].proxy, &s, 1) == 1);
  return s;
}
