// moved.c: see moved.h.
#include "device/host/moved.h"

#include <pthread.h>

#include "base/log.h"
#include "base/result.h"
#include "base/spans.h"
#include "device/host/heap.h"
#include "device/host/mem.h"
#include "device/host/stream.h"
#include "os/map.h"
#include "os/proc.h"
#include "os/shm.h"

#define PAGE 4096

static const char no_memory[] = "there is no shared memory for them";

struct tt_moved {
  tt_span span;
  char *base;
  size_t size;
  int fd;    // -1: the memory has been unmapped since, or the process has been forked
  int users; // registrations
};

// All that have moved and have a descriptor, none of which overlap. Under `lock`, with their members.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tt_span *all_moved;

// Nobody finds it any more. Caller holds `lock`.
static void moved_end(tt_moved *m)
{
  tt_spans_remove(&all_moved, &m->span);
  tt_mem_hide(m->base);
  tt_fd_close(m->fd);
  m->fd = -1;
}

// Caller holds `lock`.
static ncclResult_t moved_make(tt_moved *m)
{
  TT_TRY(tt_mem_move(m->base, m->size, m->size, &m->fd));
  m->span = (tt_span){.start = (uintptr_t)m->base, .size = m->size};
  tt_spans_add(&all_moved, &m->span);
  return ncclSuccess;
}

// The pages become private again; what the program has unmapped since is left alone. Caller holds `lock`.
static void move_back(const tt_moved *m)
{
  void *p;
  if (!tt_map_shows(m->base, m->size, m->fd)) {
    tt_info(TT_REG, "%zu bytes at %p are not put back: they were unmapped before they were deregistered", m->size,
            (void *)m->base);
    return;
  }
  if (tt_map_private(m->size, &p) == ncclSuccess) {
    tt_heap_copy(p, m->base, m->size);
    if (tt_map_move(p, m->size, m->base) != ncclSuccess) {
      tt_shm_unmap(p, m->size);
    }
  }
}

// One that has the pages already. NULL: there is none; *why: nor can there be. Caller holds `lock`.
static tt_moved *moved_before(void *base, size_t size, const char **why)
{
  tt_span *s = tt_spans_overlap(all_moved, (uintptr_t)base, size);
  for (; s != NULL; s = tt_spans_overlap(all_moved, (uintptr_t)base, size)) {
    tt_moved *m = TT_SPAN_OWNER(s, tt_moved, span);
    if (tt_map_shows(m->base, m->size, m->fd)) {
      bool holds = tt_spans_holder(all_moved, (uintptr_t)base, size) == s;
      *why = holds ? *why : "a part of them was moved for another registration";
      return holds ? m : NULL;
    }
    moved_end(m); // the program has unmapped it, and is to deregister it yet
  }
  return NULL;
}

// Caller holds `lock`.
static tt_moved *moved_take(void *base, size_t size, const char **why)
{
  tt_moved *m = moved_before(base, size, why);
  if (m != NULL) {
    m->users++;
    return m;
  }
  if (*why == NULL && !tt_map_is_ordinary(base, size)) {
    *why = "not all of them are private memory of no file, readable and writable, in small pages, off the main stack";
  }
  if (*why != NULL) {
    return NULL;
  }
  m = tt_calloc(1, sizeof *m);
  if (m != NULL) {
    *m = (tt_moved){.base = base, .size = size, .fd = -1, .users = 1};
  }
  if (m == NULL || moved_make(m) != ncclSuccess) {
    *why = no_memory;
    tt_free(m);
    return NULL;
  }
  return m;
}

// Memory that the device knows. False: it is other memory.
static bool take_allocated(const void *ptr, const char **why)
{
  tt_block b;
  if (!tt_heap_find(ptr, &b) || b.owner == TT_BLOCK_REGISTERED) {
    return false;
  }
  bool shared =
      b.owner == TT_BLOCK_IMPORTED || (b.owner == TT_BLOCK_HEAP && b.fd >= 0) || tt_mem_descriptor(b.base) >= 0;
  if (!shared && (tt_stream_wait_device(b.device, false) != ncclSuccess || tt_heap_show(&b) != ncclSuccess)) {
    *why = no_memory;
  }
  return true;
}

tt_moved *tt_moved_take(void *ptr, size_t size, bool ordinary, size_t *bytes)
{
  uintptr_t from = TT_ROUND_UP((uintptr_t)ptr, PAGE), to = ((uintptr_t)ptr + size) & ~(uintptr_t)(PAGE - 1);
  const char *why = NULL;
  tt_moved *m = NULL;
  if (!take_allocated(ptr, &why) && ordinary) {
    if (from < to) {
      pthread_mutex_lock(&lock);
      m = moved_take((void *)from, to - from, &why);
      pthread_mutex_unlock(&lock);
    } else {
      why = "no whole page lies in it";
    }
  }
  if (why != NULL) {
    tt_info(TT_REG, "peers cannot map the pages of %zu bytes at %p: %s", size, ptr, why);
  }
  *bytes = m != NULL ? m->size : 0;
  return m;
}

void tt_moved_give(tt_moved *m)
{
  if (m == NULL) {
    return;
  }
  pthread_mutex_lock(&lock);
  bool last = --m->users == 0;
  if (last && m->fd >= 0) {
    move_back(m);
    moved_end(m);
  }
  pthread_mutex_unlock(&lock);
  if (last) {
    tt_free(m);
  }
}

// The parent goes on with the shared memory: what the child writes is its own.
static void moved_in_child(void)
{
  while (all_moved != NULL) {
    tt_moved *m = TT_SPAN_OWNER(all_moved, tt_moved, span);
    if (tt_map_shows(m->base, m->size, m->fd)) {
      (void)tt_map_own(m->fd, m->size, m->base);
    }
    moved_end(m);
  }
}

// Before heap.c and mem.c, whose locks are taken inside.
__attribute__((constructor(201))) static void moved_at_start(void)
{
  tt_proc_hold_at_fork(&lock);
  static tt_fork_hook hook = {.fn = moved_in_child};
  tt_proc_on_fork(&hook);
}
