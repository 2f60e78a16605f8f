// mem.c: see mem.h.
#include "device/host/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/result.h"
#include "device/host/device.h"
#include "device/host/heap.h"
#include "os/shm.h"

#define IMPORT_WAIT_MS 5000 // the descriptor was pushed before the token was sent, so it is there at once

typedef struct alloc {
  char *base;
  size_t size;
  uint32_t serial;
  int fd;
  struct alloc *next;
} alloc;

// The process's shareable allocations. `list` and `serials` under `lock`; `live` and `freed` are written under it and read without.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static alloc *list;
static uint32_t serials;
static _Atomic uint32_t live, freed;
static void (*_Atomic on_free)(void *base, size_t size); // NULL: nobody is told. Set once

ncclResult_t tt_mem_alloc(size_t size, void **ptr)
{
  alloc *a = tt_calloc(1, sizeof *a);
  if (a == NULL) {
    return tt_fail(ncclSystemError, "no memory for the record of an allocation of %zu bytes", size);
  }
  a->fd = -1;
  a->size = TT_ROUND_UP(TT_MAX(size, 1), 4096);
  ncclResult_t res = ncclSuccess;
  TT_TRY_GOTO(tt_shm_create("tutti-mem", a->size, &a->fd), res);
  TT_TRY_GOTO(tt_shm_map(a->fd, a->size, (void **)&a->base), res);
  tt_block b = {.base = a->base, .size = a->size, .kind = tuttiMemoryDevice, .owner = TT_BLOCK_NCCL, .device = tt_host_device(), .fd = -1};
  TT_TRY_GOTO(tt_heap_note(&b), res);
  pthread_mutex_lock(&lock);
  a->serial = ++serials;
  a->next = list;
  list = a;
  atomic_fetch_add_explicit(&live, 1, memory_order_release);
  pthread_mutex_unlock(&lock);
  *ptr = a->base;
  return ncclSuccess;
fail:
  tt_shm_unmap(a->base, a->size);
  tt_fd_close(a->fd);
  tt_free(a);
  return res;
}

ncclResult_t tt_mem_free(void *ptr)
{
  pthread_mutex_lock(&lock);
  alloc **p = &list;
  while (*p != NULL && (*p)->base != ptr) {
    p = &(*p)->next;
  }
  alloc *a = *p;
  if (a != NULL) {
    *p = a->next;
    atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&freed, 1, memory_order_relaxed);
  }
  pthread_mutex_unlock(&lock);
  if (a == NULL) {
    return tt_fail(ncclInvalidArgument, "ncclMemFree: %p was not allocated by ncclMemAlloc, or has been freed", ptr);
  }
  void (*tell)(void *base, size_t size) = atomic_load_explicit(&on_free, memory_order_acquire);
  if (tell != NULL) {
    tell(a->base, a->size);
  }
  tt_heap_forget(a->base, TT_BLOCK_NCCL);
  tt_shm_unmap(a->base, a->size);
  tt_fd_close(a->fd);
  tt_free(a);
  return ncclSuccess;
}

void tt_mem_on_free(void (*fn)(void *base, size_t size))
{
  atomic_store_explicit(&on_free, fn, memory_order_release);
}

int tt_mem_descriptor(const void *base)
{
  int fd = -1;
  pthread_mutex_lock(&lock);
  for (const alloc *a = list; a != NULL; a = a->next) {
    if (a->base == base) {
      fd = a->fd;
    }
  }
  pthread_mutex_unlock(&lock);
  return fd;
}

// The allocation that holds [p, p + size), or NULL. Caller holds `lock`.
static const alloc *holder_of(const char *p, size_t size)
{
  const alloc *a = list;
  while (a != NULL && !(p >= a->base && p < a->base + a->size && size <= (size_t)(a->base + a->size - p))) {
    a = a->next;
  }
  return a;
}

uint32_t tt_mem_find(const void *ptr, size_t size, uint64_t *offset)
{
  uint32_t serial = 0;
  if (atomic_load_explicit(&live, memory_order_acquire) == 0) {
    return 0;
  }
  pthread_mutex_lock(&lock);
  const alloc *a = holder_of(ptr, size);
  if (a != NULL) {
    serial = a->serial;
    *offset = (uint64_t)((const char *)ptr - a->base);
  }
  pthread_mutex_unlock(&lock);
  return serial;
}

bool tt_mem_range(const void *ptr, size_t size, void **base, size_t *bytes)
{
  if (atomic_load_explicit(&live, memory_order_acquire) == 0) {
    return false;
  }
  pthread_mutex_lock(&lock);
  const alloc *a = holder_of(ptr, size);
  if (a != NULL) {
    *base = a->base;
    *bytes = a->size;
  }
  pthread_mutex_unlock(&lock);
  return a != NULL;
}

// The descriptor of a live allocation, duplicated so that it stays valid; -1 when it is gone.
static int dup_serial(uint32_t serial)
{
  int fd = -1;
  pthread_mutex_lock(&lock);
  for (const alloc *a = list; a != NULL; a = a->next) {
    if (a->serial == serial) {
      fd = fcntl(a->fd, F_DUPFD_CLOEXEC, 0);
    }
  }
  pthread_mutex_unlock(&lock);
  return fd;
}

static void drop(tt_map *m)
{
  tt_shm_unmap(m->base, m->size);
  *m = (tt_map){0};
}

static tt_map *find(tt_maplist *l, uint32_t serial)
{
  for (int i = 0; i < TT_LINK_MAPS; i++) {
    if (l->map[i].serial == serial) {
      return &l->map[i];
    }
  }
  return NULL;
}

// Makes room for `serial` by dropping the oldest entry, but not `keep`, which the same token uses.
static tt_map *insert(tt_maplist *l, uint32_t serial, uint32_t keep)
{
  tt_map *m = &l->map[l->next++ % TT_LINK_MAPS];
  if (keep != 0 && m->serial == keep) {
    m = &l->map[l->next++ % TT_LINK_MAPS];
  }
  drop(m);
  m->serial = serial;
  return m;
}

// Both sides empty their lists when the owner has freed something since the last token.
static void follow_frees(tt_maplist *l, uint32_t now)
{
  if (l->freed != now) {
    for (int i = 0; i < TT_LINK_MAPS; i++) {
      drop(&l->map[i]);
    }
    l->next = 0;
    l->freed = now;
  }
}

static tt_fdkey key_of(uint64_t cookie, int peer, uint32_t serial)
{
  tt_fdkey key = {0};
  memcpy(key.bytes, &cookie, 8);
  memcpy(key.bytes + 8, &serial, 4);
  memcpy(key.bytes + 12, &peer, 4);
  return key;
}

// Could its descriptor not be passed to the peer? Another attempt may take a second, so each allocation gets one.
static bool was_refused(const tt_maplist *l, uint32_t serial)
{
  for (int i = 0; i < TT_LINK_MAPS; i++) {
    if (l->refused[i] == serial) {
      return true;
    }
  }
  return false;
}

// Sees to it that the peer's process has a descriptor of `serial`. False: it cannot have it, use the address.
static bool share(tt_link *link, uint32_t serial, uint32_t keep)
{
  if (find(&link->shared, serial) != NULL) {
    return true;
  }
  int fd = was_refused(&link->shared, serial) ? -1 : dup_serial(serial);
  if (fd < 0) {
    return false;
  }
  tt_fdkey key = key_of(tt_proc_self().cookie, link->peer, serial);
  ncclResult_t res = tt_fdbox_push(link->mailbox, &key, fd);
  tt_fd_close(fd);
  if (res != ncclSuccess) {
    link->shared.refused[link->shared.nrefused++ % TT_LINK_MAPS] = serial;
    return false;
  }
  insert(&link->shared, serial, keep);
  return true;
}

ncclResult_t tt_mem_export(tt_link *link, const tt_call *call, tt_desc *d)
{
  follow_frees(&link->shared, atomic_load_explicit(&freed, memory_order_relaxed));
  d->freed = link->shared.freed;
  if (call->in_mem != 0 && share(link, call->in_mem, 0)) {
    d->in_mem = call->in_mem;
    d->in = call->in_off;
  }
  if (call->out_mem != 0 && share(link, call->out_mem, d->in_mem)) {
    d->out_mem = call->out_mem;
    d->out = call->out_off;
  }
  return ncclSuccess;
}

static ncclResult_t map_serial(tt_link *link, uint32_t serial, uint32_t keep, const volatile uint32_t *abort_flag, char **base)
{
  tt_map *m = find(&link->mapped, serial);
  if (m == NULL) {
    tt_fdkey key = key_of(link->proc.cookie, link->rank, serial);
    int fd;
    TT_TRY(tt_fdbox_take(&key, IMPORT_WAIT_MS, abort_flag, &fd));
    size_t size = tt_shm_size(fd);
    void *p = NULL;
    ncclResult_t res = tt_shm_map(fd, size, &p);
    tt_fd_close(fd);
    TT_TRY(res);
    m = insert(&link->mapped, serial, keep);
    m->base = p;
    m->size = size;
  }
  *base = m->base;
  return ncclSuccess;
}

ncclResult_t tt_mem_import(tt_link *link, const tt_desc *d, const volatile uint32_t *abort_flag)
{
  char *base;
  follow_frees(&link->mapped, d->freed);
  link->in = link->out = NULL;
  if (d->in_mem != 0) {
    TT_TRY(map_serial(link, d->in_mem, 0, abort_flag, &base));
    link->in = base + d->in;
  }
  if (d->out_mem != 0) {
    TT_TRY(map_serial(link, d->out_mem, d->in_mem, abort_flag, &base));
    link->out = base + d->out;
  }
  return ncclSuccess;
}

void tt_mem_forget(tt_link *link)
{
  for (int i = 0; i < TT_LINK_MAPS; i++) {
    drop(&link->mapped.map[i]);
    drop(&link->shared.map[i]);
  }
}

__attribute__((constructor)) static void at_start(void)
{
  tt_proc_hold_at_fork(&lock);
}
