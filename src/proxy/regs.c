// regs.c: the user's memory and networks that want memory registered.
//
// The network may use memory of the user's when its extent is known: the user has registered it (ncclCommRegister), or it is an allocation
// of ncclMemAlloc's. A connection registers it with the network when a message first lies in it, keeps that, and deregisters it when the
// user does, when the memory is freed, or when it is closed itself; but not while a message is under way in it.
#include "base/log.h"
#include "base/result.h"
#include "device/host/mem.h"
#include "proxy/proxy_priv.h"

static inline bool covers(const char *base, size_t size, const char *data, size_t bytes)
{
  return data >= base && bytes <= size && (size_t)(data - base) <= size - bytes;
}

// ---- what a connection has registered

static void mr_free(tt_proxy_conn *c, tt_proxy_mr **at)
{
  tt_proxy_mr *m = *at;
  *at = m->next;
  if (!m->failed) {
    c->proxy->net->dereg_mr(c->comm, m->mhandle);
  }
  tt_free(m);
}

// Frees what is gone and used by nobody.
static void sweep(tt_proxy_conn *c)
{
  for (tt_proxy_mr **at = &c->mrs; *at != NULL;) {
    if ((*at)->gone && (*at)->users == 0) {
      mr_free(c, at);
    } else {
      at = &(*at)->next;
    }
  }
}

void tt_proxy_mrs_close(tt_proxy_conn *c)
{
  while (c->mrs != NULL) {
    mr_free(c, &c->mrs);
  }
}

// The known extent of the memory around a payload.
static bool find_extent(const tt_proxy *p, const char *data, size_t bytes, void **base, size_t *size)
{
  for (const tt_proxy_region *r = p->regions; r != NULL; r = r->next) {
    if (covers(r->base, r->size, data, bytes)) {
      *base = r->base;
      *size = r->size;
      return true;
    }
  }
  return tt_mem_range(data, bytes, base, size);
}

static tt_proxy_mr *mr_new(tt_proxy_conn *c, void *base, size_t size)
{
  tt_proxy *p = c->proxy;
  tt_proxy_mr *m = tt_calloc(1, sizeof *m);
  if (m == NULL) {
    return NULL;
  }
  *m = (tt_proxy_mr){.next = c->mrs, .base = base, .size = size};
  m->failed = p->net->reg_mr(c->comm, base, size, TT_NET_PTR_HOST, &m->mhandle) != ncclSuccess;
  c->mrs = m;
  if (m->failed && !p->said) {
    p->said = true;
    tt_info(TT_PROXY | TT_NET, "rank %d: network %s does not register %zu bytes at %p (%s); messages there are copied", p->rank,
            p->net->name, size, base, tt_last_error());
  }
  return m;
}

// What the connection has registered around a payload, or tried to; NULL: nothing.
static tt_proxy_mr *mr_find(const tt_proxy_conn *c, const char *data, size_t bytes)
{
  tt_proxy_mr *m = c->mrs;
  while (m != NULL && (m->gone || !covers(m->base, m->size, data, bytes))) {
    m = m->next;
  }
  return m;
}

static bool is_usable(tt_proxy_mr *m, tt_proxy_mr **mr)
{
  *mr = m == NULL || m->failed ? NULL : m;
  return *mr != NULL;
}

bool tt_proxy_know(tt_proxy_conn *c, void *base, size_t size, tt_proxy_mr **mr)
{
  tt_proxy_mr *m = mr_find(c, base, size);
  return is_usable(m != NULL ? m : mr_new(c, base, size), mr);
}

bool tt_proxy_reach(tt_proxy_conn *c, const void *data, size_t bytes, tt_proxy_mr **mr)
{
  *mr = NULL;
  if (c->proxy->net->reg_mr == NULL) {
    return true;
  }
  if (!atomic_load_explicit(&c->proxy->registers, memory_order_relaxed)) {
    return false;
  }
  tt_proxy_mr *m = mr_find(c, data, bytes);
  void *base;
  size_t size;
  if (m == NULL && find_extent(c->proxy, data, bytes, &base, &size)) {
    m = mr_new(c, base, size);
  }
  return is_usable(m, mr);
}

void tt_proxy_mr_use(tt_proxy_conn *c, tt_proxy_mr *mr)
{
  c->abroad++;
  if (mr != NULL) {
    mr->users++;
  }
}

void tt_proxy_mr_leave(tt_proxy_conn *c, tt_proxy_mr *mr)
{
  c->abroad--;
  if (mr != NULL && --mr->users == 0 && mr->gone) {
    sweep(c);
  }
}

// ---- what the user says

// Marks what lies in memory that goes, or (exactly) is one registration of the user's.
static void drop_memory(tt_proxy_conn *c, const char *base, size_t size, bool exactly)
{
  for (tt_proxy_mr *m = c->mrs; m != NULL; m = m->next) {
    bool same = m->base == base && m->size == size;
    m->gone |= exactly ? same : m->base < base + size && base < m->base + m->size;
  }
  sweep(c);
}

// Run flag held, the proxy is alive.
static void drop_everywhere(const tt_proxy *p, const char *base, size_t size, bool exactly)
{
  for (int i = 0; i < p->nranks; i++) {
    tt_proxy_peer *peer = tt_proxy_peer_find(p, i);
    if (peer != NULL) {
      drop_memory(&peer->send, base, size, exactly);
      drop_memory(&peer->recv, base, size, exactly);
    }
  }
}

ncclResult_t tt_proxy_register(tt_proxy *p, void *base, size_t size)
{
  if (!atomic_load_explicit(&p->registers, memory_order_relaxed)) {
    return ncclSuccess;
  }
  tt_proxy_region *r = tt_calloc(1, sizeof *r);
  if (r == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for the registration of a buffer", p->rank);
  }
  tt_proxy_run_hold(p);
  *r = (tt_proxy_region){.next = p->regions, .base = base, .size = size};
  p->regions = r;
  tt_proxy_run_release(p);
  return ncclSuccess;
}

// Takes a region of exactly this extent out of the list. *others: there are more like it.
static tt_proxy_region *take_region(tt_proxy *p, const char *base, size_t size, bool *others)
{
  tt_proxy_region *found = NULL;
  *others = false;
  for (tt_proxy_region **at = &p->regions; *at != NULL;) {
    tt_proxy_region *r = *at;
    bool same = r->base == base && r->size == size;
    if (same && found == NULL) {
      found = r;
      *at = r->next;
      continue;
    }
    *others |= same;
    at = &r->next;
  }
  return found;
}

void tt_proxy_deregister(tt_proxy *p, void *base, size_t size)
{
  bool others;
  if (!atomic_load_explicit(&p->registers, memory_order_relaxed)) {
    return;
  }
  tt_proxy_run_hold(p);
  tt_proxy_region *r = take_region(p, base, size, &others);
  if (r != NULL && !others) {
    drop_everywhere(p, base, size, true);
  }
  tt_proxy_run_release(p);
  tt_free(r);
}

void tt_proxy_regions_free(tt_proxy *p)
{
  while (p->regions != NULL) {
    tt_proxy_region *r = p->regions;
    p->regions = r->next;
    tt_free(r);
  }
}

typedef struct extent {
  char *base;
  size_t size;
} extent;

// The memory cannot be found any more (tt_mem_on_free), so who looks for it after this has held the run flag finds nothing.
static void tell_one(tt_proxy *p, void *arg)
{
  const extent *e = arg;
  if (atomic_load_explicit(&p->life, memory_order_acquire) != TT_PROXY_LIVE || !atomic_load_explicit(&p->registers, memory_order_relaxed)) {
    return;
  }
  tt_proxy_run_hold(p);
  if (atomic_load_explicit(&p->life, memory_order_acquire) == TT_PROXY_LIVE && p->peers != NULL) {
    drop_everywhere(p, e->base, e->size, false);
  }
  tt_proxy_run_release(p);
}

void tt_proxy_memory_goes(void *base, size_t size)
{
  tt_proxy_each(tell_one, &(extent){.base = base, .size = size});
}
