// heap.c: see heap.h.
#include "device/host/heap.h"

#include <pthread.h>

#include "base/result.h"
#include "base/spans.h"
#include "base/util.h"
#include "device/host/mem.h"
#include "os/map.h"
#include "os/proc.h"
#include "os/shm.h"

#define PAGE 4096

// A block that is known.
typedef struct heap_entry {
  tt_span span;
  tt_block block;
} heap_entry;

// All blocks, none of which overlap. Under `lock`.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tt_span *blocks;

static heap_entry *heap_entry_of(tt_span *s)
{
  return s == NULL ? NULL : TT_SPAN_OWNER(s, heap_entry, span);
}

// The block that holds `p`, or NULL. Caller holds `lock`.
static tt_block *holder(const void *p)
{
  heap_entry *k = heap_entry_of(tt_spans_holder(blocks, (uintptr_t)p, 1));
  return k == NULL ? NULL : &k->block;
}

static void remove_block(tt_block *b)
{
  heap_entry *k = (heap_entry *)(void *)((char *)b - offsetof(heap_entry, block));
  tt_spans_remove(&blocks, &k->span);
  tt_free(k);
}

// Caller holds `lock`.
static ncclResult_t heap_insert(const tt_block *b)
{
  heap_entry *other = heap_entry_of(tt_spans_overlap(blocks, (uintptr_t)b->base, b->size));
  while (b->owner != TT_BLOCK_REGISTERED && other != NULL && other->block.owner == TT_BLOCK_REGISTERED) {
    // The kernel has just given us these addresses: the user has unmapped what was registered there.
    remove_block(&other->block);
    other = heap_entry_of(tt_spans_overlap(blocks, (uintptr_t)b->base, b->size));
  }
  if (other != NULL) {
    return tt_fail(ncclInvalidArgument,
                   "memory at %p, %zu bytes, overlaps %zu bytes at %p that the device knows already", (void *)b->base,
                   b->size, other->block.size, (void *)other->block.base);
  }
  heap_entry *k = tt_calloc(1, sizeof *k);
  if (k == NULL) {
    return tt_fail(ncclSystemError, "no memory for the record of %zu bytes", b->size);
  }
  *k = (heap_entry){.span = {.start = (uintptr_t)b->base, .size = b->size}, .block = *b};
  tt_spans_add(&blocks, &k->span);
  return ncclSuccess;
}

// Takes out the block that begins at `base`. False when there is none of that owner. Caller holds `lock`.
static bool heap_take_out(const void *base, tt_block_owner owner, tt_block *out)
{
  tt_block *b = base == NULL ? NULL : holder(base);
  if (b == NULL || b->base != base || b->owner != owner) {
    return false;
  }
  *out = *b;
  remove_block(b);
  return true;
}

static void unmap(const tt_block *b)
{
  tt_mem_hide(b->base);
  tt_map_allow(b->base, b->room);
  tt_shm_unmap(b->base, b->room);
  tt_fd_close(b->fd);
}

ncclResult_t tt_heap_alloc(size_t size, tuttiMemory_t kind, int device, unsigned flags, void **out)
{
  tt_block b = {
      .size = TT_MAX(size, 1), .kind = kind, .owner = TT_BLOCK_HEAP, .device = device, .flags = flags, .fd = -1};
  if (size > SIZE_MAX - PAGE) {
    return tt_fail(ncclSystemError, "no memory for %zu bytes", size);
  }
  b.room = TT_ROUND_UP(b.size, PAGE);
  TT_TRY(tt_map_private(b.room, (void **)&b.base));
  tt_map_forbid(b.base + b.size, b.room - b.size);
  pthread_mutex_lock(&lock);
  ncclResult_t res = heap_insert(&b);
  pthread_mutex_unlock(&lock);
  if (res != ncclSuccess) {
    unmap(&b);
    return res;
  }
  *out = b.base;
  return ncclSuccess;
}

ncclResult_t tt_heap_free(void *ptr)
{
  tt_block b;
  pthread_mutex_lock(&lock);
  bool found = heap_take_out(ptr, TT_BLOCK_HEAP, &b);
  pthread_mutex_unlock(&lock);
  if (!found) {
    return tt_fail(ncclInvalidArgument,
                   "%p is not the beginning of memory that was allocated here, or it has been freed", ptr);
  }
  unmap(&b);
  return ncclSuccess;
}

ncclResult_t tt_heap_note(const tt_block *b)
{
  pthread_mutex_lock(&lock);
  ncclResult_t res = heap_insert(b);
  pthread_mutex_unlock(&lock);
  return res;
}

bool tt_heap_forget(const void *base, tt_block_owner owner)
{
  tt_block b;
  pthread_mutex_lock(&lock);
  bool found = heap_take_out(base, owner, &b);
  pthread_mutex_unlock(&lock);
  return found;
}

bool tt_heap_find(const void *ptr, tt_block *out)
{
  pthread_mutex_lock(&lock);
  const tt_block *b = holder(ptr);
  if (b != NULL) {
    *out = *b;
  }
  pthread_mutex_unlock(&lock);
  return b != NULL;
}

bool tt_heap_allocation(const void *ptr, void **base, size_t *size)
{
  tt_block b;
  if (!tt_heap_find(ptr, &b) || b.kind != tuttiMemoryDevice || b.owner == TT_BLOCK_IMPORTED) {
    return false;
  }
  *base = b.base;
  *size = b.size;
  return true;
}

void tt_heap_copy(char *to, const char *from, size_t size)
{
  static const char zeros[PAGE];
  for (size_t at = 0; at < size; at += PAGE) {
    size_t n = TT_MIN(size - at, PAGE);
    if (memcmp(from + at, zeros, n) != 0) {
      memcpy(to + at, from + at, n);
    }
  }
}

ncclResult_t tt_heap_share(const void *ptr, tt_block *out)
{
  ncclResult_t res = ncclSuccess;
  pthread_mutex_lock(&lock);
  tt_block *b = holder(ptr);
  if (b == NULL || b->owner != TT_BLOCK_HEAP) {
    res = tt_fail(ncclInvalidArgument, "%p does not point into memory that was allocated here: it cannot be shared",
                  (const void *)ptr);
  } else if (b->fd < 0) {
    res = tt_mem_move(b->base, b->room, b->size, &b->fd);
  }
  if (res == ncclSuccess) {
    *out = *b;
  }
  pthread_mutex_unlock(&lock);
  return res;
}

ncclResult_t tt_heap_show(tt_block *b)
{
  return b->owner == TT_BLOCK_NCCL ? tt_mem_share(b->base, &b->fd) : tt_heap_share(b->base, b);
}

// The child has a copy of the memory and of its list. What was shared becomes the child's own, too: the parent and its
// peers go on with the shared memory. Where the system has no memory for that, the two share it.
static void heap_in_child(void)
{
  for (tt_span *s = tt_spans_from(blocks, 0, 0); s != NULL; s = tt_spans_from(blocks, s->start, s->size + 1)) {
    tt_block *b = &heap_entry_of(s)->block;
    if (b->fd >= 0 && tt_map_own(b->fd, b->room, b->base) == ncclSuccess) {
      tt_mem_hide(b->base);
      tt_fd_close(b->fd);
      b->fd = -1;
    }
  }
}

// Before those without a number: mem.c's lock is taken inside.
__attribute__((constructor(202))) static void heap_at_start(void)
{
  tt_proc_hold_at_fork(&lock);
  static tt_fork_hook hook = {.fn = heap_in_child};
  tt_proc_on_fork(&hook);
}
