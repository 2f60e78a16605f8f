// pool.c: memory that the staged payloads of all connections of a rank share (NCCL_NET_SHARED_BUFFERS).
//
// There is one pool per direction. It consists of staging buffers for one payload each. A payload uses one if three
// things hold: it travels alone (`two`), its operation may share, and the network can neither send it from nor receive
// it into the user's memory. Everything else has its place in the FIFO's own slots. Payloads in staging buffers do not
// touch the pages of those slots.
//
// No connection waits for ever. A connection without a staging buffer always gets one, if need be a new one. So it goes
// on as if its FIFO had at least one slot, and no FIFO of any schedule needs more (tools/verify.h). Only further
// buffers are counted, and refused once TT_PROXY_EXTRAS are in use. A connection that is refused one has another, which
// comes back by the work of its own peer and executor alone. So there is at most one for each connection that stages
// at the same time, and TT_PROXY_EXTRAS. They are kept for later payloads.
//
// A staging buffer returns to the pool when the network has sent its payload, or the executor has used it (its FIFO's
// head says so). The executor does not notify the proxy. So a pool without a free buffer looks at the connections that
// have some, once per round.
#include "base/result.h"
#include "os/shm.h"
#include "proxy/proxy_priv.h"

static void pool_put(tt_proxy_conn *c, unsigned at)
{
  tt_proxy_pool *pool = &c->proxy->memory.pools[c->send];
  tt_proxy_buffer *b = c->staging.buffers[at];
  c->staging.buffers[at] = NULL;
  b->next = pool->free;
  pool->free = b;
  pool->extras -= --c->staging.n > 0;
}

void tt_proxy_buffer_leave(tt_proxy_conn *c, uint32_t number)
{
  unsigned at = number % TT_PROXY_BUFFERS;
  if (c->staging.buffers[at] != NULL) {
    pool_put(c, at);
  }
}

// Takes back what the executor has used.
static void pool_collect(tt_proxy_conn *c)
{
  const tt_proxy_fifo *f = &c->fifo[TT_SIMPLE];
  uint32_t used = atomic_load_explicit(f->head, memory_order_acquire);
  for (unsigned at = 0; at < TT_PROXY_BUFFERS && c->staging.n > 0; at++) {
    if (c->staging.buffers[at] != NULL && (int32_t)(used - c->staging.buffers[at]->number) > 0) {
      pool_put(c, at);
    }
  }
}

// Takes back what can be taken back from all connections that receive.
static void pool_collect_all(tt_proxy *p, tt_proxy_pool *pool)
{
  if (pool->collected == p->round) {
    return;
  }
  pool->collected = p->round;
  for (tt_proxy_conn **at = &pool->holders, *c; (c = *at) != NULL;) {
    if (!c->send) {
      pool_collect(c);
    }
    if (c->staging.n == 0) {
      *at = c->staging.next;
      c->staging.listed = false;
    } else {
      at = &c->staging.next;
    }
  }
}

// Makes more staging buffers. False: no memory.
static bool pool_grow(tt_proxy_pool *pool, size_t bytes)
{
  tt_proxy_slab *s = tt_calloc(1, sizeof *s);
  size_t each = TT_ROUND_UP(bytes, (size_t)4096);
  if (s == NULL || tt_shm_map(-1, each * TT_COUNT(s->buffers), (void **)&s->base) != ncclSuccess) {
    tt_free(s);
    return false;
  }
  s->size = each * TT_COUNT(s->buffers);
  s->next = pool->slabs;
  pool->slabs = s;
  pool->bytes = bytes;
  for (size_t i = TT_COUNT(s->buffers);
       i-- > 0;) { // the first one on top: pages of others are not touched before they are needed
    s->buffers[i] = (tt_proxy_buffer){.next = pool->free, .slab = s, .data = s->base + i * each};
    pool->free = &s->buffers[i];
  }
  return true;
}

bool tt_proxy_buffer_again(tt_proxy_conn *c, tt_proxy_step *st)
{
  const tt_proxy_buffer *b = c->staging.buffers[st->number % TT_PROXY_BUFFERS];
  if (b == NULL || b->number != st->number) {
    return false;
  }
  st->place = b->data;
  st->mr = b->mr;
  st->staged = true;
  return true;
}

// May the connection have one more? Looks for those that were used meanwhile.
static bool pool_grants(tt_proxy_conn *c, tt_proxy_pool *pool)
{
  if (!c->send && c->staging.n > 0) {
    pool_collect(c);
  }
  if (c->staging.n > 0 && pool->extras >= c->proxy->memory.max_extras) {
    pool_collect_all(c->proxy, pool);
  }
  return c->staging.n == 0 || pool->extras < c->proxy->memory.max_extras;
}

static bool pool_has_free(tt_proxy_conn *c, tt_proxy_pool *pool, const tt_proxy_fifo *f)
{
  if (pool->free == NULL) {
    pool_collect_all(c->proxy, pool);
  }
  return pool->free != NULL || pool_grow(pool, f->capacity);
}

tt_proxy_buffer_result tt_proxy_buffer_take(tt_proxy_conn *c, const tt_proxy_fifo *f, tt_proxy_step *st)
{
  tt_proxy_pool *pool = &c->proxy->memory.pools[c->send];
  if (tt_proxy_buffer_again(c, st)) {
    return TT_BUFFER_OK;
  }
  if (f->mask >= TT_PROXY_BUFFERS || (pool->bytes != 0 && pool->bytes < f->capacity)) {
    return TT_BUFFER_NONE;
  }
  if (!pool_grants(c, pool)) {
    return TT_BUFFER_LATER;
  }
  if (!pool_has_free(c, pool, f)) {
    return TT_BUFFER_NONE;
  }
  tt_proxy_buffer *b = pool->free;
  b->mr = NULL;
  if (c->proxy->net->reg_mr != NULL && !tt_proxy_know(c, b->slab->base, b->slab->size, &b->mr)) {
    return TT_BUFFER_NONE;
  }
  pool->free = b->next;
  b->number = st->number;
  c->staging.buffers[st->number % TT_PROXY_BUFFERS] = b;
  pool->extras += c->staging.n++ > 0;
  if (!c->staging.listed) {
    c->staging.listed = true;
    c->staging.next = pool->holders;
    pool->holders = c;
  }
  tt_proxy_buffer_again(c, st);
  return TT_BUFFER_OK;
}

void tt_proxy_pools_free(tt_proxy *p)
{
  for (size_t k = 0; k < TT_COUNT(p->memory.pools); k++) {
    while (p->memory.pools[k].slabs != NULL) {
      tt_proxy_slab *s = p->memory.pools[k].slabs;
      p->memory.pools[k].slabs = s->next;
      tt_shm_unmap(s->base, s->size);
      tt_free(s);
    }
    p->memory.pools[k] = (tt_proxy_pool){.slabs = NULL};
  }
}
