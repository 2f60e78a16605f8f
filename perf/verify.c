#include "verify.h"

#include <string.h>

#include "types.h"

// A visitor of pieces: writes them, or compares what it finds.
struct perf_layout {
  const perf_case *c;
  const perf_pattern *p;
  const perf_buffers *b;
  char *base;
  uint64_t rep;
  bool checking;
  size_t end; // elements covered so far
  bool gaps_are_poison;
  const char *where;
  perf_mismatch *first;
  size_t wrong;
};

// ---- Pieces in memory of the host ----

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

// Where the data of element `index` lie in the table.
static const uint8_t *table_at(const perf_piece *p, size_t index)
{
  return p->table + (perf_turn(p->seed, index / PERF_PERIOD) + index % PERF_PERIOD) * p->elt;
}

// How many elements from `done` on lie in a row in the table.
static size_t in_a_row(const perf_piece *p, size_t done)
{
  size_t n = PERF_PERIOD - (p->index + done) % PERF_PERIOD;
  return n < p->count - done ? n : p->count - done;
}

static void host_write(const perf_piece *p)
{
  if (!p->table) {
    memset(p->at, PERF_POISON, p->count * p->elt);
    return;
  }
  for (size_t done = 0, n; done < p->count; done += n) {
    n = in_a_row(p, done);
    memcpy(p->at + done * p->elt, table_at(p, p->index + done), n * p->elt);
  }
}

// Adds what is wrong with n elements from `done` on, whose data are `want`.
static void compare_row(const perf_piece *p, size_t done, size_t n, const uint8_t *want, perf_finding *out)
{
  const char *got = p->at + done * p->elt;
  if (memcmp(got, want, n * p->elt) == 0) {
    return;
  }
  size_t wrong = count_wrong(p->elt, got, want, n, p->tolerance), at = 0;
  if (wrong != 0 && out->wrong == 0) {
    while (count_wrong(p->elt, got + at * p->elt, want + at * p->elt, 1, p->tolerance) == 0) {
      at++;
    }
    out->first = done + at;
    out->got = perf_load(got, at, p->elt);
  }
  out->wrong += wrong;
}

static void host_compare(const perf_piece *p, perf_finding *out)
{
  uint8_t poison[512];
  memset(poison, PERF_POISON, sizeof(poison));
  for (size_t done = 0, n; done < p->count; done += n) {
    const size_t left = p->count - done, most = sizeof(poison) / p->elt;
    n = p->table ? in_a_row(p, done) : left < most ? left : most;
    compare_row(p, done, n, p->table ? table_at(p, p->index + done) : poison, out);
  }
}

// ---- Pieces wherever they are ----

static void write_piece(const perf_buffers *b, const perf_piece *p)
{
  if (p->count == 0) {
    return;
  }
  if (b->reach) {
    b->reach->write(b->arg, p);
  } else {
    host_write(p);
  }
}

uint64_t perf_poison(size_t elt)
{
  uint64_t bits = 0;
  memset(&bits, PERF_POISON, elt);
  return bits;
}

static uint64_t wanted(const perf_piece *p, size_t element)
{
  return p->table ? perf_load(table_at(p, p->index + element), 0, p->elt) : perf_poison(p->elt);
}

// `element`: number of the piece's first one, for the report; (size_t)-1: all are outside the buffer.
static void check_piece(perf_layout *l, const perf_piece *p, size_t element)
{
  perf_finding f = {0};
  if (p->count == 0) {
    return;
  }
  if (l->b->reach) {
    l->b->reach->compare(l->b->arg, p, &f);
  } else {
    host_compare(p, &f);
  }
  if (f.wrong != 0 && l->wrong == 0) {
    *l->first = (perf_mismatch){.element = element == (size_t)-1 ? element : element + f.first,
                                .got = f.got,
                                .want = wanted(p, f.first),
                                .where = l->where};
  }
  l->wrong += f.wrong;
}

static void gap_until(perf_layout *l, size_t offset)
{
  if (l->checking && l->gaps_are_poison && offset > l->end) {
    const char *where = l->where;
    const size_t elt = l->p->elt;
    l->where = "untouched output";
    check_piece(l, &(perf_piece){.at = l->base + l->end * elt, .count = offset - l->end, .elt = elt}, l->end);
    l->where = where;
  }
}

// One piece: `count` elements from number `index` of the data whose turns come from `seed`.
static void put(perf_layout *l, size_t offset, size_t count, const uint8_t *table, uint64_t seed, size_t index)
{
  const perf_piece p = {.at = l->base + offset * l->p->elt,
                        .count = count,
                        .elt = l->p->elt,
                        .table = table,
                        .seed = seed,
                        .index = index,
                        .tolerance = table == l->p->reduced ? l->p->tolerance : 0};
  gap_until(l, offset);
  l->end = offset + count;
  if (l->checking) {
    check_piece(l, &p, offset);
  } else {
    write_piece(l->b, &p);
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

static size_t send_extent(const perf_case *c)
{
  return c->in_place ? 0 : c->send_count * c->elt;
}

static size_t recv_extent(const perf_case *c)
{
  size_t count = c->in_place && c->send_count > c->recv_count ? c->send_count : c->recv_count;
  return count * c->elt;
}

static void put_poison(const perf_buffers *b, char *from, size_t bytes)
{
  write_piece(b, &(perf_piece){.at = from, .count = bytes, .elt = 1});
}

static void check_guard(perf_layout *l, char *from)
{
  l->where = "guard";
  check_piece(l, &(perf_piece){.at = from, .count = PERF_GUARD, .elt = 1}, (size_t)-1);
}

void perf_fill(const perf_coll *coll, const perf_case *c, const perf_pattern *p, const perf_buffers *b, uint64_t rep)
{
  put_poison(b, b->recv - PERF_GUARD, recv_extent(c) + 2 * (size_t)PERF_GUARD);
  put_poison(b, b->send - PERF_GUARD, PERF_GUARD);
  put_poison(b, b->send + send_extent(c), PERF_GUARD);
  perf_layout l = {.c = c, .p = p, .b = b, .base = perf_send_at(c, b), .rep = rep};
  coll->input(c, &l);
}

size_t perf_check(const perf_coll *coll, const perf_case *c, const perf_pattern *p, const perf_buffers *b, uint64_t rep,
                  perf_mismatch *first)
{
  perf_mismatch found = {0};
  perf_layout l = {.c = c, .p = p, .b = b, .base = perf_recv_at(c, b), .rep = rep, .checking = true, .first = &found};
  l.where = "output";
  l.gaps_are_poison = !c->in_place;
  if (!c->in_place || !coll->no_in_place) {
    coll->output(c, &l);
    gap_until(&l, c->recv_count);
  }
  check_guard(&l, b->recv - PERF_GUARD);
  check_guard(&l, b->recv + recv_extent(c));
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
