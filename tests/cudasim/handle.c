// handle.c: handles are numbers, so that one that has ended, or is of another kind, is told from one that lives.
#include <stdlib.h>

#include "sim.h"

static struct entry {
  enum sim_kind kind;
  bool alive;
  void *object;
} * table;
static size_t used, room;

// No address of a program: what dereferences a handle ends.
static const uintptr_t base = (uintptr_t)0xcda0 << 48;
enum { SHIFT = 8 };

static const char *kind_name(enum sim_kind kind)
{
  static const char *const names[] = {
      "nothing",        "a context",           "a stream",     "an event", "a module", "a function", "a graph",
      "a graph's node", "an executable graph", "a user object"};
  return names[kind];
}

void *sim_handle_new(enum sim_kind kind, void *object)
{
  if (used == room) {
    size_t more = room == 0 ? 1024 : 2 * room;
    struct entry *bigger = realloc(table, more * sizeof *bigger);
    if (bigger == NULL) {
      return NULL;
    }
    table = bigger;
    room = more;
  }
  table[used] = (struct entry){kind, true, object};
  return (void *)(base | ++used << SHIFT); // NOLINT(performance-no-int-to-ptr): never followed
}

static struct entry *entry_of(const void *handle)
{
  uintptr_t number = (uintptr_t)handle;
  size_t index = (number & ~base) >> SHIFT;
  if ((number & base) != base || number % (1 << SHIFT) != 0 || index == 0 || index > used) {
    return NULL;
  }
  return &table[index - 1];
}

void *sim_object(enum sim_kind kind, const void *handle)
{
  const struct entry *entry = entry_of(handle);
  if (entry == NULL) {
    sim_misuse(CUDA_ERROR_INVALID_HANDLE, "%p is not %s", handle, kind_name(kind));
    return NULL;
  }
  if (entry->kind != kind) {
    sim_misuse(CUDA_ERROR_INVALID_HANDLE, "%p is not %s but %s", handle, kind_name(kind), kind_name(entry->kind));
    return NULL;
  }
  if (!entry->alive) {
    sim_misuse(CUDA_ERROR_INVALID_HANDLE, "%s that has been destroyed or unloaded: %p", kind_name(kind), handle);
    return NULL;
  }
  return entry->object;
}

void sim_handle_end(const void *handle)
{
  struct entry *entry = entry_of(handle);
  if (entry != NULL) {
    entry->alive = false;
  }
}

void sim_handle_renew(const void *handle, void *object)
{
  struct entry *entry = entry_of(handle);
  if (entry != NULL) {
    entry->object = object;
  }
}
