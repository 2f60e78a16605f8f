// regs.c: the user's memory and networks that want memory registered.
//
// The network may use memory of the user's when its extent is known: the user has registered it (ncclCommRegister), or
// it is an allocation of ncclMemAlloc's. A connection registers it with the network when a message first lies in it,
// and keeps that. It deregisters it when the user does, when the memory is freed, or when it is closed itself. But
// never while a message is under way in it.
#include "base/log.h"
#include "base/result.h"
#include "device/device.h"
#include "proxy/proxy_priv.h"

// ---- what a connection has registered

static void mr_free(tt_proxy_mr *m)
{
  if (!m->failed) {
    m->conn->proxy->net->dereg_mr(m->conn->comm, m->mhandle);
  }
  tt_free(m);
}

// From now on nobody finds it. It is deregistered when no message is under way in it any more.
static void mr_drop(tt_proxy_mr *m)
{
  tt_proxy_conn *c = m->conn;
  tt_spans_remove(&c->mrs, &m->in_conn);
  tt_spans_remove(&c->proxy->memory.mrs, &m->in_proxy);
  if (m->users == 0) {
    mr_free(m);
    return;
  }
  m->gone = true;
  m->next = c->gone;
  c->gone = m;
}

// The last message in it is through. There are fewer such ones than messages may be under way.
static void mr_leave_gone(tt_proxy_mr *m)
{
  tt_proxy_mr **at = &m->conn->gone;
  while (*at != m) {
    at = &(*at)->next;
  }
  *at = m->next;
  mr_free(m);
}

void tt_proxy_mrs_close(tt_proxy_conn *c)
{
  while (c->mrs != NULL) {
    mr_drop(TT_SPAN_OWNER(c->mrs, tt_proxy_mr, in_conn));
  }
  while (c->gone != NULL) {
    tt_proxy_mr *m = c->gone;
    c->gone = m->next;
    mr_free(m);
  }
}

// The known extent of the memory around a payload.
static bool find_extent(const tt_proxy *p, const char *data, size_t bytes, void **base, size_t *size)
{
  const tt_span *r = tt_spans_holder(p->memory.regions, (uintptr_t)data, bytes);
  if (r != NULL) {
    *base = (void *)r->start;
    *size = r->size;
    return true;
  }
  return p->row->range(data, bytes, base, size);
}

static tt_proxy_mr *mr_new(tt_proxy_conn *c, void *base, size_t size)
{
  tt_proxy *p = c->proxy;
  tt_proxy_mr *m = tt_calloc(1, sizeof *m);
  if (m == NULL) {
    return NULL;
  }
  const tt_span extent = {.start = (uintptr_t)base, .size = size};
  *m = (tt_proxy_mr){.in_conn = extent, .in_proxy = extent, .conn = c};
  m->failed = p->net->reg_mr(c->comm, base, size, TT_NET_PTR_HOST, &m->mhandle) != ncclSuccess;
  tt_spans_add(&c->mrs, &m->in_conn);
  tt_spans_add(&p->memory.mrs, &m->in_proxy);
  if (m->failed && !p->memory.said) {
    p->memory.said = true;
    tt_info(TT_PROXY | TT_NET, "rank %d: network %s does not register %zu bytes at %p (%s); messages there are copied",
            p->rank, p->net->name, size, base, tt_last_error());
  }
  return m;
}

// What the connection has registered around a payload, or tried to; NULL: nothing.
static tt_proxy_mr *mr_find(const tt_proxy_conn *c, const char *data, size_t bytes)
{
  tt_span *s = tt_spans_holder(c->mrs, (uintptr_t)data, bytes);
  return s == NULL ? NULL : TT_SPAN_OWNER(s, tt_proxy_mr, in_conn);
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
  if (!atomic_load_explicit(&c->proxy->memory.registers, memory_order_relaxed)) {
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
    mr_leave_gone(mr);
  }
}

// ---- what the user says

// Drops what all connections have registered and `find` finds: of this extent (tt_spans_same), or within memory that
// goes (tt_spans_overlap). Run flag held.
static void drop_memory(tt_proxy *p, tt_span *(*find)(tt_span *root, uintptr_t start, size_t size), const void *base,
                        size_t size)
{
  for (tt_span *s; (s = find(p->memory.mrs, (uintptr_t)base, size)) != NULL;) {
    mr_drop(TT_SPAN_OWNER(s, tt_proxy_mr, in_proxy));
  }
}

ncclResult_t tt_proxy_register(tt_proxy *p, void *base, size_t size)
{
  if (!atomic_load_explicit(&p->memory.registers, memory_order_relaxed)) {
    return ncclSuccess;
  }
  tt_span *r = tt_calloc(1, sizeof *r);
  if (r == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for the registration of a buffer", p->rank);
  }
  *r = (tt_span){.start = (uintptr_t)base, .size = size};
  tt_proxy_run_hold(p);
  tt_spans_add(&p->memory.regions, r);
  tt_proxy_run_release(p);
  return ncclSuccess;
}

void tt_proxy_deregister(tt_proxy *p, void *base, size_t size)
{
  if (!atomic_load_explicit(&p->memory.registers, memory_order_relaxed)) {
    return;
  }
  tt_proxy_run_hold(p);
  tt_span *r = tt_spans_same(p->memory.regions, (uintptr_t)base, size);
  if (r != NULL) {
    tt_spans_remove(&p->memory.regions, r);
  }
  if (r != NULL && tt_spans_same(p->memory.regions, (uintptr_t)base, size) == NULL) { // it was not said twice
    drop_memory(p, tt_spans_same, base, size);
  }
  tt_proxy_run_release(p);
  tt_free(r);
}

void tt_proxy_regions_free(tt_proxy *p)
{
  while (p->memory.regions != NULL) {
    tt_span *r = p->memory.regions;
    tt_spans_remove(&p->memory.regions, r);
    tt_free(r);
  }
}

// The memory cannot be found any more (tt_device_ops.on_free). So a look for it after this finds nothing.
static void drop_extent(tt_proxy *p, void *arg)
{
  const tt_span *extent = arg;
  if (atomic_load_explicit(&p->life, memory_order_acquire) != TT_PROXY_LIVE ||
      !atomic_load_explicit(&p->memory.registers, memory_order_relaxed)) {
    return;
  }
  tt_proxy_run_hold(p);
  if (atomic_load_explicit(&p->life, memory_order_acquire) == TT_PROXY_LIVE) {
    drop_memory(p, tt_spans_overlap, (void *)extent->start, extent->size);
  }
  tt_proxy_run_release(p);
}

void tt_proxy_memory_goes(void *base, size_t size)
{
  tt_proxy_each(drop_extent, &(tt_span){.start = (uintptr_t)base, .size = size});
}
