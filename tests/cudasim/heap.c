// heap.c: the memory of a device: a memfd of each process, of which other processes map parts. It begins with a table
// that has an entry for each granule, so that they see what was freed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim.h"

struct span {
  size_t first, count; // granules, with the guard
};

static struct heap {
  int fd;
  char *base;
  struct sim_heap_entry *table;
  uint64_t file;     // inode
  struct span *span; // sorted
  size_t spans, room;
  uint32_t serials;
} heaps[SIM_DEVICES];

static bool heap_open(struct heap *heap)
{
  struct stat st;
  size_t bytes = sim.modes.memory;
  int fd = memfd_create("cudasim-device", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, (off_t)(SIM_HEAP_TABLE + bytes)) != 0 || fstat(fd, &st) != 0) {
    return false;
  }
  void *table = mmap(NULL, SIM_HEAP_TABLE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  void *base = mmap(NULL, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, SIM_HEAP_TABLE);
  if (table == MAP_FAILED || base == MAP_FAILED) {
    return false;
  }
  heap->fd = fd;
  heap->base = base;
  heap->table = table;
  heap->file = st.st_ino;
  return true;
}

static struct heap *heap_of(int device)
{
  struct heap *heap = &heaps[device];
  return heap->base != NULL || heap_open(heap) ? heap : NULL;
}

// The first hole of so many granules: the span before which it lies.
static size_t find_hole(const struct heap *heap, size_t granules, size_t *first)
{
  size_t end = 0;
  for (size_t i = 0; i < heap->spans; i++) {
    if (heap->span[i].first - end >= granules) {
      *first = end;
      return i;
    }
    end = heap->span[i].first + heap->span[i].count;
  }
  *first = end;
  return heap->spans;
}

static bool insert_span(struct heap *heap, size_t at, struct span span)
{
  if (heap->spans == heap->room) {
    size_t room = heap->room == 0 ? 256 : 2 * heap->room;
    struct span *more = realloc(heap->span, room * sizeof *more);
    if (more == NULL) {
      return false;
    }
    heap->span = more;
    heap->room = room;
  }
  memmove(heap->span + at + 1, heap->span + at, (heap->spans - at) * sizeof span);
  heap->span[at] = span;
  heap->spans++;
  return true;
}

enum { JUNK = 0xcb }; // new memory holds no zeros

bool sim_heap_alloc(int device, size_t bytes, struct sim_range *range)
{
  struct heap *heap = heap_of(device);
  if (bytes > sim.modes.memory || box_used_by_all(device) + bytes > sim.modes.memory || heap == NULL) {
    return false;
  }
  size_t granules = (bytes + SIM_GRANULE - 1) / SIM_GRANULE, first = 0;
  size_t at = find_hole(heap, granules + 1, &first);
  char *base = heap->base + first * SIM_GRANULE;
  if ((first + granules + 1) * SIM_GRANULE > sim.modes.memory ||
      mprotect(base, granules * SIM_GRANULE, PROT_READ | PROT_WRITE) != 0 ||
      !insert_span(heap, at, (struct span){first, granules + 1})) {
    return false;
  }
  memset(base, JUNK, bytes < SIM_GRANULE ? bytes : SIM_GRANULE);
  range->base = (uint64_t)(uintptr_t)base;
  range->file = heap->file;
  range->offset = SIM_HEAP_TABLE + first * SIM_GRANULE;
  range->entry = &heap->table[first];
  range->serial = ++heap->serials;
  atomic_store(&range->entry->opens, 0);
  atomic_store(&range->entry->serial, range->serial);
  box_used(device, (int64_t)(granules * SIM_GRANULE));
  return true;
}

void sim_heap_free(const struct sim_range *range)
{
  struct heap *heap = &heaps[range->device];
  size_t first = (range->offset - SIM_HEAP_TABLE) / SIM_GRANULE;
  atomic_store(&range->entry->serial, 0);
  for (size_t i = 0; i < heap->spans; i++) {
    if (heap->span[i].first == first) {
      size_t bytes = (heap->span[i].count - 1) * SIM_GRANULE;
      mprotect(heap->base + first * SIM_GRANULE, bytes, PROT_NONE);
      fallocate(heap->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)range->offset, (off_t)bytes);
      box_used(range->device, -(int64_t)bytes);
      memmove(heap->span + i, heap->span + i + 1, (--heap->spans - i) * sizeof *heap->span);
      return;
    }
  }
}

int sim_heap_fd(int device)
{
  return heaps[device].fd;
}
