#include "verify.h"

#include <string.h>

#include "types.h"

enum { POISON = 0xa5 };

// A visitor of pieces: writes them, or compares what it finds.
struct perf_layout {
  const perf_case *c;
  const perf_pattern *p;
  char *base;
  uint64_t rep;
  bool checking;
  size_t end; // elements covered so far
  bool gaps_are_poison;
  const char *where;
  perf_mismatch *first;
  size_t wrong;
};

static uint64_t poison_bits(size_t elt)
{
  uint64_t bits = 0;
  memset(&bits, POISON, elt);
  return bits;
}

static void note(perf_layout *l, size_t element, uint64_t got, uint64_t want)
{
  if (l->wrong++ == 0 && l->first->wrong == 0) {
    *l->first = (perf_mismatch){.element = element, .got = got, .want = want, .where = l->where};
  }
}

// Counts elements of one width that differ by more than `tolerance`. Bit patterns of positive floats are ordered like
// the numbers, so this is a distance in units of the last place. One function per width, for the compiler to vectorise.
#define DEFINE_COUNT(bits)                                                                                 \
  static size_t count_wrong_##bits(const char *got, const uint8_t *want, size_t count, unsigned tolerance) \
  {                                                                                                        \
    size_t wrong = 0;                                                                                      \
    for (size_t i = 0; i < count; i++) {                                                                   \
      uint##bits##_t g, w;                                                                                 \
      memcpy(&g, got + i * sizeof(g), sizeof(g));                                                          \
      memcpy(&w, want + i * sizeof(w), sizeof(w));                                                         \
      wrong += (uint##bits##_t)(g - w + tolerance) > (uint##bits##_t)(2 * tolerance);                      \
    }                                                                                                      \
    return wrong;                                                                                          \
  }
DEFINE_COUNT(8)
DEFINE_COUNT(16)
DEFINE_COUNT(32)
DEFINE_COUNT(64)

static size_t count_wrong(size_t elt, const char *got, const uint8_t *want, size_t count, unsigned tolerance)
{
  switch (elt) {
  case 1: return count_wrong_8(got, want, count, tolerance);
  case 2: return count_wrong_16(got, want, count, tolerance);
  case 4: return count_wrong_32(got, want, count, tolerance);
  default: return count_wrong_64(got, want, count, tolerance);
  }
}

static void compare(perf_layout *l, size_t offset, size_t count, const uint8_t *want, unsigned tolerance)
{
  size_t elt = l->p->elt;
  const char *got = l->base + offset * elt;
  if (memcmp(got, want, count * elt) == 0) {
    return;
  }
  size_t wrong = count_wrong(elt, got, want, count, tolerance);
  if (wrong == 0) {
    return;
  }
  size_t at = 0;
  while (count_wrong(elt, got + at * elt, want + at * elt, 1, tolerance) == 0) {
    at++;
  }
  note(l, offset + at, perf_load(got, at, elt), perf_load(want, at, elt));
  l->wrong += wrong - 1;
}

static void check_poison(perf_layout *l, size_t offset, size_t count)
{
  size_t elt = l->p->elt;
  for (size_t i = offset; i < offset + count; i++) {
    uint64_t got = perf_load(l->base, i, elt);
    if (got != poison_bits(elt)) {
      note(l, i, got, poison_bits(elt));
    }
  }
}

static void gap_until(perf_layout *l, size_t offset)
{
  if (l->checking && l->gaps_are_poison && offset > l->end) {
    const char *where = l->where;
    l->where = "untouched output";
    check_poison(l, l->end, offset - l->end);
    l->where = where;
  }
}

// One piece: `count` elements from number `index` of the data whose turns come from `seed`.
static void put(perf_layout *l, size_t offset, size_t count, const uint8_t *table, uint64_t seed, size_t index)
{
  gap_until(l, offset);
  l->end = offset + count;
  unsigned tolerance = table == l->p->reduced ? l->p->tolerance : 0;
  size_t elt = l->p->elt;
  while (count > 0) {
    size_t in_segment = index % PERF_PERIOD;
    size_t n = PERF_PERIOD - in_segment < count ? PERF_PERIOD - in_segment : count;
    const uint8_t *from = table + (perf_turn(seed, index / PERF_PERIOD) + in_segment) * elt;
    if (l->checking) {
      compare(l, offset, n, from, tolerance);
    } else {
      memcpy(l->base + offset * elt, from, n * elt);
    }
    offset += n;
    index += n;
    count -= n;
  }
}

void perf_put_copy(perf_layout *l, size_t offset, size_t count, int source, size_t index)
{
  put(l, offset, count, l->p->copy, perf_mix(l->rep, (uint64_t)source + 1), index);
}

void perf_put_input(perf_layout *l, size_t offset, size_t count, int rank, size_t index)
{
  put(l, offset, count, l->p->input[rank], perf_mix(l->rep, 0), index);
}

void perf_put_reduced(perf_layout *l, size_t offset, size_t count, size_t index)
{
  put(l, offset, count, l->p->reduced, perf_mix(l->rep, 0), index);
}

char *perf_send_at(const perf_case *c, const perf_buffers *b)
{
  return c->in_place ? b->recv + c->send_offset * c->elt : b->send;
}

char *perf_recv_at(const perf_case *c, const perf_buffers *b)
{
  return c->in_place ? b->recv + c->recv_offset * c->elt : b->recv;
}

size_t perf_send_extent(const perf_case *c)
{
  return c->in_place ? 0 : c->send_count * c->elt;
}

size_t perf_recv_extent(const perf_case *c)
{
  size_t count = c->in_place && c->send_count > c->recv_count ? c->send_count : c->recv_count;
  return count * c->elt;
}

static void poison_around(char *from, size_t extent)
{
  memset(from - PERF_GUARD, POISON, PERF_GUARD);
  memset(from + extent, POISON, PERF_GUARD);
}

static size_t bytes_changed(const char *from, size_t *first)
{
  size_t wrong = 0;
  for (size_t i = PERF_GUARD; i-- > 0;) {
    if ((uint8_t)from[i] != POISON) {
      *first = i;
      wrong++;
    }
  }
  return wrong;
}

static void check_guard(perf_layout *l, const char *from)
{
  size_t at = 0;
  size_t wrong = bytes_changed(from, &at);
  if (wrong) {
    l->where = "guard";
    note(l, (size_t)-1, (uint8_t)from[at], POISON);
    l->wrong += wrong - 1;
  }
}

void perf_fill(const perf_coll *coll, const perf_case *c, const perf_pattern *p, const perf_buffers *b, uint64_t rep)
{
  memset(b->recv, POISON, perf_recv_extent(c));
  poison_around(b->recv, perf_recv_extent(c));
  poison_around(b->send, perf_send_extent(c));
  perf_layout l = {.c = c, .p = p, .base = perf_send_at(c, b), .rep = rep};
  coll->input(c, &l);
}

size_t perf_check(const perf_coll *coll, const perf_case *c, const perf_pattern *p, const perf_buffers *b, uint64_t rep,
                  perf_mismatch *first)
{
  perf_mismatch found = {0};
  perf_layout l = {
      .c = c, .p = p, .base = perf_recv_at(c, b), .rep = rep, .checking = true, .first = &found, .where = "output"};
  l.gaps_are_poison = !c->in_place;
  if (!c->in_place || !coll->no_in_place) {
    coll->output(c, &l);
    gap_until(&l, c->recv_count);
  }
  check_guard(&l, b->recv - PERF_GUARD);
  check_guard(&l, b->recv + perf_recv_extent(c));
  check_guard(&l, b->send - PERF_GUARD);
  if (!c->in_place) {
    check_guard(&l, b->send + c->send_count * c->elt);
    l.base = perf_send_at(c, b);
    l.gaps_are_poison = false;
    l.end = 0;
    l.where = "input";
    coll->input(c, &l);
  }
  if (l.wrong) {
    found.wrong = l.wrong;
    *first = found;
  }
  return l.wrong;
}
