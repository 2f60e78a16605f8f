// flight.c: see flight.h.
#include "device/flight.h"

#define MOST_OPS (1u << 20)

void tt_flight_open(tt_flight *f, size_t most)
{
  size_t room = 1;
  while (room <= TT_MIN(most, (size_t)MOST_OPS)) { // the place of one more may just be taken
    room *= 2;
  }
  f->ops = most == 0 ? NULL : tt_calloc_line(room * sizeof(tt_flight_op));
  f->mask = f->ops == NULL ? 0 : (room - 1) * sizeof(tt_flight_op);
  f->ops = f->ops == NULL ? (char *)&f->none : f->ops;
}

void tt_flight_close(tt_flight *f)
{
  if (f->ops != (char *)&f->none) {
    tt_free(f->ops);
  }
  *f = (tt_flight){.ops = (char *)&f->none};
}

uint64_t tt_flight_queue(tt_flight *f, uint64_t kind, uint64_t count, const void *stream, uint32_t sequence,
                         uint64_t now)
{
  uint64_t n = atomic_load_explicit(&f->n, memory_order_relaxed);
  tt_flight_op *o = tt_flight_next(f);
  atomic_store_explicit(&o->added, now, memory_order_relaxed);
  atomic_store_explicit(&o->started, TT_FLIGHT_NOT_YET, memory_order_relaxed);
  atomic_store_explicit(&o->ended, TT_FLIGHT_NOT_YET, memory_order_relaxed);
  atomic_store_explicit(&o->thread, (uintptr_t)__builtin_thread_pointer(), memory_order_relaxed);
  tt_flight_put(f, o, kind, count, stream, sequence);
  return n;
}

// Is the operation still in the ring?
static inline bool flight_has(const tt_flight *f, uint64_t n)
{
  return atomic_load_explicit(&f->n, memory_order_acquire) - n <= f->mask + sizeof(tt_flight_op);
}

void tt_flight_start(const tt_flight *f, uint64_t first, int n, bool at_once)
{
  const uint64_t now = at_once ? 0 : tt_flight_now(f), end = first + (uint64_t)n * sizeof(tt_flight_op);
  for (uint64_t i = first; i != end && flight_has(f, i); i += sizeof(tt_flight_op)) {
    tt_flight_op *o = tt_flight_at(f, i);
    uint64_t added = atomic_load_explicit(&o->added, memory_order_relaxed);
    atomic_store_explicit(&o->started, at_once ? added : now, memory_order_relaxed);
  }
}

void tt_flight_end(const tt_flight *f, uint64_t first, int n, bool at_once)
{
  const uint64_t now = at_once ? 0 : tt_flight_now(f), end = first + (uint64_t)n * sizeof(tt_flight_op);
  for (uint64_t i = first; i != end && flight_has(f, i); i += sizeof(tt_flight_op)) {
    tt_flight_op *o = tt_flight_at(f, i);
    uint64_t started = atomic_load_explicit(&o->started, memory_order_relaxed);
    atomic_store_explicit(&o->ended, at_once ? started : now, memory_order_relaxed);
  }
}

static tt_flight_entry flight_entry(const tt_flight *f, uint64_t number)
{
  tt_flight_op *o = tt_flight_at(f, number * sizeof *o);
  tt_flight_entry e = {.number = number,
                       .kind = atomic_load_explicit(&o->kind, memory_order_relaxed),
                       .count = atomic_load_explicit(&o->count, memory_order_relaxed),
                       .stream = atomic_load_explicit(&o->stream, memory_order_relaxed),
                       .sequence = atomic_load_explicit(&o->sequence, memory_order_relaxed),
                       .added = atomic_load_explicit(&o->added, memory_order_relaxed),
                       .started = atomic_load_explicit(&o->started, memory_order_relaxed),
                       .ended = atomic_load_explicit(&o->ended, memory_order_relaxed),
                       .thread = atomic_load_explicit(&o->thread, memory_order_relaxed)};
  if (e.ended == 0) { // it was over at once
    e.started = e.ended = e.added;
    e.thread = 0;
  }
  return e;
}

size_t tt_flight_copy(const tt_flight *f, tt_flight_entry **out)
{
  const uint64_t size = sizeof(tt_flight_op);
  uint64_t end = atomic_load_explicit(&f->n, memory_order_acquire) / size, room = f->mask / size + 1;
  uint64_t first = end - TT_MIN(end, room);
  *out = NULL;
  if (f->mask == 0 || end == 0) {
    return 0;
  }
  tt_flight_entry *all = tt_calloc(end - first, sizeof *all);
  for (uint64_t i = first; all != NULL && i < end; i++) {
    all[i - first] = flight_entry(f, i);
  }
  atomic_thread_fence(memory_order_acquire);
  // Those whose places may have been taken meanwhile, or are just being taken, are left out.
  uint64_t now = atomic_load_explicit(&f->n, memory_order_relaxed) / size + 1, from = now - TT_MIN(now, room);
  uint64_t lost = TT_MIN(TT_MAX(from, first), end) - first;
  for (uint64_t i = lost; all != NULL && i < end - first; i++) {
    all[i - lost] = all[i];
  }
  *out = all;
  return all == NULL ? 0 : end - first - lost;
}
