// pool.c: memory that the staged payloads of all connections of a rank share (NCCL_NET_SHARED_BUFFERS): one pool per direction, made of
// berths for one payload each. It is used for payloads that travel alone (`two`), belong to operations that may share, and can neither be
// sent from nor received into the user's memory. Everything else has its place in the FIFO's own slots, whose pages are not touched by such
// payloads.
//
// Why nothing waits for ever: a connection that has no berth always gets one, if need be a new one. So each connection goes on as if its
// FIFO had at least one slot, and no FIFO of any schedule needs more (tools/verify.h). Only further berths are counted, and denied when
// TT_PROXY_EXTRAS are given out: who is denied one has another, which comes back without anybody's help but that of its own peer and
// executor.
// How many there will be: one for each connection that is staging at the same time, and TT_PROXY_EXTRAS. They are kept for the next ones.
//
// A berth is given back when the network has sent what is in it, or the executor has used it (its FIFO's head says so). The executor does
// not tell the proxy, so a pool without a free berth looks at the connections that have some, once per round.
#include "base/result.h"
#include "os/shm.h"
#include "proxy/proxy_priv.h"

static void give_back(tt_proxy_conn *c, unsigned at)
{
  tt_proxy_pool *pool = &c->proxy->pools[c->send];
  tt_proxy_berth *b = c->berths[at];
  c->berths[at] = NULL;
  b->next = pool->free;
  pool->free = b;
  pool->extras -= --c->nberths > 0;
}

void tt_proxy_berth_leave(tt_proxy_conn *c, uint32_t number)
{
  unsigned at = number % TT_PROXY_BERTHS;
  if (c->berths[at] != NULL) {
    give_back(c, at);
  }
}

// Takes back what the executor has used.
static void collect(tt_proxy_conn *c)
{
  const tt_proxy_fifo *f = &c->fifo[TT_SIMPLE];
  uint32_t used = atomic_load_explicit(f->head, memory_order_acquire);
  for (unsigned at = 0; at < TT_PROXY_BERTHS && c->nberths > 0; at++) {
    if (c->berths[at] != NULL && (int32_t)(used - c->berths[at]->number) > 0) {
      give_back(c, at);
    }
  }
}

// Takes back what can be taken back from all connections that receive.
static void collect_all(tt_proxy *p, tt_proxy_pool *pool)
{
  if (pool->collected == p->round) {
    return;
  }
  pool->collected = p->round;
  for (tt_proxy_conn **at = &pool->holders, *c; (c = *at) != NULL;) {
    if (!c->send) {
      collect(c);
    }
    if (c->nberths == 0) {
      *at = c->next_holder;
      c->holds = false;
    } else {
      at = &c->next_holder;
    }
  }
}

// Makes more berths. False: no memory.
static bool grow(tt_proxy_pool *pool, size_t bytes)
{
  tt_proxy_slab *s = tt_calloc(1, sizeof *s);
  size_t each = TT_ROUND_UP(bytes, (size_t)4096);
  if (s == NULL || tt_shm_map(-1, each * TT_COUNT(s->berths), (void **)&s->base) != ncclSuccess) {
    tt_free(s);
    return false;
  }
  s->size = each * TT_COUNT(s->berths);
  s->next = pool->slabs;
  pool->slabs = s;
  pool->bytes = bytes;
  for (size_t i = TT_COUNT(s->berths); i-- > 0;) { // the first one on top: pages of others are not touched before they are needed
    s->berths[i] = (tt_proxy_berth){.next = pool->free, .slab = s, .data = s->base + i * each};
    pool->free = &s->berths[i];
  }
  return true;
}

bool tt_proxy_berth_again(tt_proxy_conn *c, tt_proxy_step *st)
{
  const tt_proxy_berth *b = c->berths[st->number % TT_PROXY_BERTHS];
  if (b == NULL || b->number != st->number) {
    return false;
  }
  st->place = b->data;
  st->mr = b->mr;
  st->staged = true;
  return true;
}

// May the connection have one more? Looks for those that were used meanwhile.
static bool is_granted(tt_proxy_conn *c, tt_proxy_pool *pool)
{
  if (!c->send && c->nberths > 0) {
    collect(c);
  }
  if (c->nberths > 0 && pool->extras >= c->proxy->max_extras) {
    collect_all(c->proxy, pool);
  }
  return c->nberths == 0 || pool->extras < c->proxy->max_extras;
}

static bool has_free(tt_proxy_conn *c, tt_proxy_pool *pool, const tt_proxy_fifo *f)
{
  if (pool->free == NULL) {
    collect_all(c->proxy, pool);
  }
  return pool->free != NULL || grow(pool, f->capacity);
}

tt_proxy_berthing tt_proxy_berth_take(tt_proxy_conn *c, const tt_proxy_fifo *f, tt_proxy_step *st)
{
  tt_proxy_pool *pool = &c->proxy->pools[c->send];
  if (tt_proxy_berth_again(c, st)) {
    return TT_BERTH_OK;
  }
  if (f->mask >= TT_PROXY_BERTHS || (pool->bytes != 0 && pool->bytes < f->capacity)) {
    return TT_BERTH_NONE;
  }
  if (!is_granted(c, pool)) {
    return TT_BERTH_LATER;
  }
  if (!has_free(c, pool, f)) {
    return TT_BERTH_NONE;
  }
  tt_proxy_berth *b = pool->free;
  b->mr = NULL;
  if (c->proxy->net->reg_mr != NULL && !tt_proxy_know(c, b->slab->base, b->slab->size, &b->mr)) {
    return TT_BERTH_NONE;
  }
  pool->free = b->next;
  b->number = st->number;
  c->berths[st->number % TT_PROXY_BERTHS] = b;
  pool->extras += c->nberths++ > 0;
  if (!c->holds) {
    c->holds = true;
    c->next_holder = pool->holders;
    pool->holders = c;
  }
  tt_proxy_berth_again(c, st);
  return TT_BERTH_OK;
}

void tt_proxy_pools_free(tt_proxy *p)
{
  for (size_t k = 0; k < TT_COUNT(p->pools); k++) {
    while (p->pools[k].slabs != NULL) {
      tt_proxy_slab *s = p->pools[k].slabs;
      p->pools[k].slabs = s->next;
      tt_shm_unmap(s->base, s->size);
      tt_free(s);
    }
    p->pools[k] = (tt_proxy_pool){.slabs = NULL};
  }
}
