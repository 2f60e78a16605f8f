// mem.c: see mem.h.
#include "device/host/mem.h"
#include "device/host/handover.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/result.h"
#include "base/spans.h"
#include "device/host/device.h"
#include "device/host/heap.h"
#include "os/map.h"
#include "os/shm.h"

#define NAME "tutti-mem"

typedef struct alloc {
  char *base;
  size_t size;
  int fd;
  bool shown; // somebody else's, by tt_mem_move
  tt_span span;
} alloc;

// Stands behind the memory in its file, for peers: what they have opened.
typedef struct record {
  uint64_t cookie; // of the process
  uint64_t base;   // address there
  uint64_t size;
} record;

// The process's shareable allocations. `allocs` and `inherited` under `lock`; `live` and `freed` are written under it
// and read without.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tt_span *allocs;
static tt_span *inherited; // in a forked child: its own copies of the parent's allocations, which no peer maps
static _Atomic uint32_t live, freed;
static void (*_Atomic on_free)(void *base, size_t size); // NULL: nobody is told. Set once

static ncclResult_t write_record(int fd, const void *base, size_t size)
{
  record r = {.cookie = tt_proc_self().cookie, .base = (uint64_t)(uintptr_t)base, .size = size};
  return tt_shm_put(fd, size, &r, sizeof r)
             ? ncclSuccess
             : tt_fail(ncclSystemError, "cannot write behind %zu bytes of shared memory", size);
}

// Makes the memory and its record.
static ncclResult_t mem_make(alloc *a)
{
  TT_TRY(tt_shm_create(NAME, a->size + sizeof(record), &a->fd));
  TT_TRY(tt_shm_map(a->fd, a->size, (void **)&a->base));
  return write_record(a->fd, a->base, a->size);
}

// Caller holds `lock`.
static void mem_list(alloc *a)
{
  a->span = (tt_span){.start = (uintptr_t)a->base, .size = a->size};
  tt_spans_add(&allocs, &a->span);
  atomic_fetch_add_explicit(&live, 1, memory_order_release);
}

static void mem_add(alloc *a)
{
  pthread_mutex_lock(&lock);
  mem_list(a);
  pthread_mutex_unlock(&lock);
}

ncclResult_t tt_mem_alloc(size_t size, void **ptr)
{
  alloc *a = tt_calloc(1, sizeof *a);
  if (a == NULL) {
    return tt_fail(ncclSystemError, "no memory for the record of an allocation of %zu bytes", size);
  }
  a->fd = -1;
  a->size = TT_ROUND_UP(TT_MAX(TT_MIN(size, PTRDIFF_MAX), 1), 4096); // more is refused all the same
  ncclResult_t res = ncclSuccess;
  TT_TRY_GOTO(mem_make(a), res);
  tt_block b = {.base = a->base,
                .size = a->size,
                .kind = tuttiMemoryDevice,
                .owner = TT_BLOCK_NCCL,
                .device = tt_host_device(),
                .fd = -1};
  TT_TRY_GOTO(tt_heap_note(&b), res);
  mem_add(a);
  *ptr = a->base;
  return ncclSuccess;
fail:
  tt_shm_unmap(a->base, a->size);
  tt_fd_close(a->fd);
  tt_free(a);
  return res;
}

// The allocation that holds [p, p + size), or NULL. Caller holds `lock`.
static alloc *holder_of(const void *p, size_t size)
{
  tt_span *s = tt_spans_holder(allocs, (uintptr_t)p, TT_MAX(size, 1));
  return s == NULL ? NULL : TT_SPAN_OWNER(s, alloc, span);
}

static alloc *beginning_at(const void *base, bool shown)
{
  alloc *a = holder_of(base, 1);
  return a != NULL && a->base == base && a->shown == shown ? a : NULL;
}

// Nobody finds it any more. NULL: there is no such one.
static alloc *mem_take_out(const void *base, bool shown)
{
  pthread_mutex_lock(&lock);
  alloc *a = beginning_at(base, shown);
  if (a != NULL) {
    tt_spans_remove(&allocs, &a->span);
    atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&freed, 1, memory_order_relaxed);
  }
  pthread_mutex_unlock(&lock);
  return a;
}

// Moves [base, base + size), of whose bytes the first `used` matter, into a file with a record: in place.
static ncclResult_t mem_move(alloc *a, size_t used)
{
  ncclResult_t res = ncclSuccess;
  void *p = NULL;
  a->fd = -1;
  TT_TRY_GOTO(tt_shm_create(NAME, a->size + sizeof(record), &a->fd), res);
  TT_TRY_GOTO(write_record(a->fd, a->base, a->size), res);
  TT_TRY_GOTO(tt_shm_map(a->fd, a->size, &p), res);
  tt_heap_copy(p, a->base, used);
  TT_TRY_GOTO(tt_map_move(p, a->size, a->base), res);
  return ncclSuccess;
fail:
  tt_shm_unmap(p, a->size);
  tt_fd_close(a->fd);
  a->fd = -1;
  return res;
}

ncclResult_t tt_mem_move(void *base, size_t size, size_t used, int *fd)
{
  alloc *a = tt_calloc(1, sizeof *a);
  if (a == NULL) {
    return tt_fail(ncclSystemError, "no memory for the record of %zu bytes that peers can map", size);
  }
  *a = (alloc){.base = base, .size = size, .shown = true};
  ncclResult_t res = mem_move(a, used);
  if (res != ncclSuccess) {
    tt_free(a);
    return res;
  }
  *fd = a->fd;
  mem_add(a);
  return ncclSuccess;
}

void tt_mem_hide(const void *base)
{
  tt_free(mem_take_out(base, true));
}

// What the parent had allocated before the fork. NULL: there is no such one. Caller holds `lock`.
static alloc *inherited_at(const void *base)
{
  tt_span *s = tt_spans_holder(inherited, (uintptr_t)base, 1);
  return s != NULL && s->start == (uintptr_t)base ? TT_SPAN_OWNER(s, alloc, span) : NULL;
}

static alloc *inherited_take_out(const void *base)
{
  pthread_mutex_lock(&lock);
  alloc *a = inherited_at(base);
  if (a != NULL) {
    tt_spans_remove(&inherited, &a->span);
  }
  pthread_mutex_unlock(&lock);
  return a;
}

ncclResult_t tt_mem_free(void *ptr)
{
  alloc *a = mem_take_out(ptr, false);
  a = a != NULL ? a : inherited_take_out(ptr);
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
  pthread_mutex_lock(&lock);
  const alloc *a = beginning_at(base, false);
  int fd = a != NULL ? a->fd : -1;
  pthread_mutex_unlock(&lock);
  return fd;
}

ncclResult_t tt_mem_share(const void *base, int *fd)
{
  ncclResult_t res = ncclSuccess;
  pthread_mutex_lock(&lock);
  alloc *a = beginning_at(base, false), *copy = a == NULL ? inherited_at(base) : NULL;
  if (copy != NULL && (res = mem_move(copy, copy->size)) == ncclSuccess) {
    tt_spans_remove(&inherited, &copy->span);
    mem_list(copy);
    a = copy;
  }
  if (a != NULL) {
    *fd = a->fd;
  }
  pthread_mutex_unlock(&lock);
  return a != NULL || res != ncclSuccess
             ? res
             : tt_fail(ncclInvalidArgument, "%p was not allocated by ncclMemAlloc, or has been freed", base);
}

tt_mappable tt_mem_find(const void *ptr, size_t size)
{
  tt_mappable m = {.handle = 0};
  if (atomic_load_explicit(&live, memory_order_acquire) == 0) {
    return m;
  }
  pthread_mutex_lock(&lock);
  tt_span *s = tt_spans_overlap(allocs, (uintptr_t)ptr, TT_MAX(size, 1));
  if (s != NULL) {
    m = (tt_mappable){.handle = (uint32_t)TT_SPAN_OWNER(s, alloc, span)->fd + 1, .from = s->start, .size = s->size};
  }
  pthread_mutex_unlock(&lock);
  return m;
}

uint32_t tt_mem_freed(void)
{
  return atomic_load_explicit(&freed, memory_order_relaxed);
}

bool tt_mem_range(const void *ptr, size_t size, void **base, size_t *bytes)
{
  if (atomic_load_explicit(&live, memory_order_acquire) == 0) {
    return false;
  }
  pthread_mutex_lock(&lock);
  const alloc *a = holder_of(ptr, size);
  bool found = a != NULL && !a->shown;
  if (found) {
    *base = a->base;
    *bytes = a->size;
  }
  pthread_mutex_unlock(&lock);
  return found;
}

static void mem_drop(tt_map *m)
{
  tt_shm_unmap(m->base, m->size);
  *m = (tt_map){0};
}

static tt_map *mem_find(tt_maplist *l, uint32_t handle)
{
  for (int i = 0; i < TT_LINK_MAPS; i++) {
    if (l->map[i].handle == handle) {
      return &l->map[i];
    }
  }
  return NULL;
}

// Makes room for `handle` by dropping the oldest entry, but not `keep`, which the same token uses.
static tt_map *mem_insert(tt_maplist *l, uint32_t handle, uint32_t keep)
{
  tt_map *m = &l->map[l->next++ % TT_LINK_MAPS];
  if (keep != 0 && m->handle == keep) {
    m = &l->map[l->next++ % TT_LINK_MAPS];
  }
  mem_drop(m);
  m->handle = handle;
  return m;
}

// Empties the list when the owner has freed something since its last token.
static void follow_frees(tt_maplist *l, uint32_t now)
{
  if (l->freed != now) {
    for (int i = 0; i < TT_LINK_MAPS; i++) {
      mem_drop(&l->map[i]);
    }
    l->next = 0;
    l->freed = now;
  }
}

// Maps what `fd` holds, if its record says that it is an allocation of that process. False: it is not mapped.
static bool map_record(int fd, uint64_t cookie, tt_map *m)
{
  record r;
  void *p = NULL;
  size_t whole = tt_shm_size(fd), size = whole - TT_MIN(whole, sizeof r);
  bool ours = tt_shm_get(fd, size, &r, sizeof r) && r.cookie == cookie && r.size == size;
  if (!ours || tt_shm_map(fd, size, &p) != ncclSuccess) {
    return false;
  }
  m->base = p;
  m->size = size;
  m->remote = r.base;
  return true;
}

// Opens and maps the peer's allocation. Where that cannot be done the entry says so, so that the next token does not
// try it again.
static void mem_pull(tt_link *link, tt_map *m)
{
  int fd = -1, e = tt_proc_open_shm(link->proc.pid, (int)m->handle - 1, NAME, 0, &fd);
  if (e == 0 && !map_record(fd, link->proc.cookie, m)) {
    e = EINVAL;
  }
  tt_fd_close(fd);
  if (e != 0 && !link->handover->mapped.logged) {
    link->handover->mapped.logged = true;
    tt_info(TT_SHM, "rank %d reads memory of rank %d by address: /proc/%d/fd/%u cannot be mapped: %s (said once)",
            link->rank, link->peer, link->proc.pid, m->handle - 1, strerror(e));
  }
}

// The peer's allocation; NULL: there is none.
static const tt_map *mem_map_of(tt_link *link, uint32_t handle, uint32_t keep)
{
  if (handle == 0) {
    return NULL;
  }
  tt_map *m = mem_find(&link->handover->mapped, handle);
  if (m == NULL) {
    m = mem_insert(&link->handover->mapped, handle, keep);
    mem_pull(link, m);
  }
  return m;
}

void tt_mem_import(tt_link *link, const tt_desc *d)
{
  tt_handover *h = link->handover;
  follow_frees(&h->mapped, d->freed);
  h->in_map = mem_map_of(link, d->in_mem, 0);
  h->out_map = mem_map_of(link, d->out_mem, d->in_mem);
}

void tt_mem_map_window(const tt_link *link, const tt_window_note *note, tt_window_map *map)
{
  int fd = -1;
  tt_map m = {.handle = (uint32_t)note->mem};
  if (tt_proc_open_shm(link->proc.pid, (int)m.handle - 1, NAME, 0, &fd) == 0 && map_record(fd, link->proc.cookie, &m)) {
    map->whole = m.base;
    map->size = m.size;
    map->remote = m.remote;
  }
  tt_fd_close(fd);
}

void tt_mem_forget(tt_link *link)
{
  for (int i = 0; i < TT_LINK_MAPS; i++) {
    mem_drop(&link->handover->mapped.map[i]);
  }
}

// The parent goes on with the shared memory. What the child writes is its own, and its peers must not map the file.
// Where the system has no memory for that, the two share it.
static void mem_in_child(void)
{
  tt_span *kept = NULL;
  while (allocs != NULL) {
    alloc *a = TT_SPAN_OWNER(allocs, alloc, span);
    tt_spans_remove(&allocs, &a->span);
    bool own = !a->shown && tt_map_own(a->fd, a->size, a->base) == ncclSuccess;
    if (own) {
      tt_fd_close(a->fd);
      a->fd = -1;
      atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    }
    tt_spans_add(own ? &inherited : &kept, &a->span);
  }
  allocs = kept;
}

__attribute__((constructor)) static void mem_at_start(void)
{
  tt_proc_hold_at_fork(&lock);
  static tt_fork_hook hook = {.fn = mem_in_child};
  tt_proc_on_fork(&hook);
}
