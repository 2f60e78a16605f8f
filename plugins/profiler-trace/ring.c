#include "ring.h"

#include <stdlib.h>
#include <string.h>

enum {
  TRIES = 8, // slots that are looked at for a free one: some events last
};

static const uint64_t any_done = 0x8080808080808080u;

static uint8_t *state_of(const tt_ring *r, size_t i)
{
  return (uint8_t *)r->states + i;
}

static uint8_t state(const tt_ring *r, size_t i)
{
  return __atomic_load_n(state_of(r, i), __ATOMIC_ACQUIRE);
}

static void set_state(const tt_ring *r, size_t i, uint8_t to)
{
  __atomic_store_n(state_of(r, i), to, __ATOMIC_RELEASE);
}

static bool change(const tt_ring *r, size_t i, uint8_t from, uint8_t to)
{
  return __atomic_compare_exchange_n(state_of(r, i), &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

bool tt_ring_create(tt_ring *r, size_t n, bool keeps)
{
  *r = (tt_ring){.n = 8, .keeps = keeps};
  while (r->n < n) {
    r->n *= 2;
  }
  r->states = calloc(r->n, 1);
  r->records = calloc(r->n, sizeof *r->records);
  if (r->states == NULL || r->records == NULL) {
    tt_ring_destroy(r);
    return false;
  }
  atomic_store(&r->next, 1);
  return true;
}

void tt_ring_destroy(tt_ring *r)
{
  free(r->states);
  free(r->records);
  r->states = NULL;
  r->records = NULL;
}

// Takes slot i if it is free, or may be overwritten.
static bool claim(tt_ring *r, size_t i)
{
  uint8_t s = state(r, i);
  bool free_now = s == TT_SLOT_FREE || (r->keeps && (s == TT_SLOT_KEPT || s == TT_SLOT_DONE));
  if (!free_now || !change(r, i, s, TT_SLOT_BUSY)) {
    return false;
  }
  if (s == TT_SLOT_DONE) {
    atomic_fetch_add_explicit(&r->overwritten, 1, memory_order_relaxed);
  }
  return true;
}

tt_record *tt_ring_start(tt_ring *r)
{
  for (int i = 0; i < TRIES; i++) {
    uint64_t number = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed);
    size_t slot = number & (r->n - 1);
    if (claim(r, slot)) {
      tt_record *e = &r->records[slot];
      __atomic_store_n(&e->number, number, __ATOMIC_RELAXED); // others may still look at the slot for the one before
      tt_ring_set_way(e, 0);
      memset(&e->parent, 0, sizeof *e - offsetof(tt_record, parent));
      return e;
    }
  }
  atomic_fetch_add_explicit(&r->lost, 1, memory_order_relaxed);
  return NULL;
}

void tt_ring_started(tt_ring *r, tt_record *e)
{
  set_state(r, (size_t)(e - r->records), TT_SLOT_OPEN);
}

tt_record *tt_ring_find(tt_ring *r, uint64_t number)
{
  size_t slot = number & (r->n - 1);
  tt_record *e = &r->records[slot];
  return state(r, slot) == TT_SLOT_OPEN && __atomic_load_n(&e->number, __ATOMIC_RELAXED) == number ? e : NULL;
}

// A thread that sees the way of an event sees its number, too.
void tt_ring_set_way(tt_record *e, uint64_t way)
{
  __atomic_store_n(&e->way, way, __ATOMIC_RELEASE);
}

bool tt_ring_way(tt_ring *r, uint64_t number, uint64_t *way)
{
  const tt_record *e = tt_ring_find(r, number);
  *way = e != NULL ? __atomic_load_n(&e->way, __ATOMIC_ACQUIRE) : 0;
  return e != NULL && tt_ring_find(r, number) == e;
}

void tt_ring_stop(tt_ring *r, tt_record *e)
{
  set_state(r, (size_t)(e - r->records), TT_SLOT_DONE);
}

// In a ring that keeps, a slot is taken while it is looked at: nobody overwrites it meanwhile.
static bool see_slot(tt_ring *r, size_t i, bool again, void (*see)(void *, const tt_record *), void *arg)
{
  uint8_t s = state(r, i);
  if (s != (again ? TT_SLOT_KEPT : TT_SLOT_DONE) || !change(r, i, s, TT_SLOT_BUSY)) {
    return false;
  }
  see(arg, &r->records[i]);
  set_state(r, i, r->keeps ? TT_SLOT_KEPT : TT_SLOT_FREE);
  return true;
}

size_t tt_ring_drain(tt_ring *r, bool again, void (*see)(void *arg, const tt_record *e), void *arg)
{
  size_t n = 0;
  size_t first = atomic_load_explicit(&r->next, memory_order_relaxed) & (r->n - 1) & ~(size_t)7;
  for (size_t k = 0; k < r->n; k += 8) {
    size_t i = (first + k) & (r->n - 1);
    uint64_t eight = __atomic_load_n(&r->states[i / 8], __ATOMIC_RELAXED);
    for (size_t j = 0; ((eight & any_done) != 0 || (again && eight != 0)) && j < 8; j++) {
      n += see_slot(r, i + j, again, see, arg);
    }
  }
  return n;
}
