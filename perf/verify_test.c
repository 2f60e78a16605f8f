// The data and the checker: exact for every type, operation and order of reduction, and not blind.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "types.h"
#include "verify.h"

static void test_small_floats_round_trip(void **state)
{
  (void)state;
  static const int types[] = {6, 9, 10, 11};
  for (int i = 0; i < 4; i++) {
    unsigned patterns = 1u << (8 * perf_type_info(types[i])->size);
    unsigned finite = 0;
    for (unsigned bits = 0; bits < patterns; bits++) {
      double v = perf_decode(types[i], bits);
      if (isfinite(v)) {
        assert_int_equal(perf_encode(types[i], v), bits);
        finite++;
      }
    }
    assert_true(finite > patterns * 9 / 10);
  }
  assert_true(perf_decode(6, 0x3c00) == 1 && perf_decode(6, 0x7bff) == 65504 && perf_decode(6, 1) == ldexp(1, -24));
  assert_true(perf_decode(9, 0x3f80) == 1 && perf_decode(10, 0x38) == 1 && perf_decode(10, 0x7e) == 448 &&
              perf_decode(11, 0x7b) == 57344);
  assert_true(isnan(perf_decode(10, 0x7f)) && isinf(perf_decode(11, 0x7c)));
}

static void test_rounding(void **state)
{
  (void)state;
  assert_int_equal(perf_encode(6, 2049), 0x6800); // tie to even
  assert_int_equal(perf_encode(6, 2051), 0x6802);
  assert_int_equal(perf_encode(6, 1e9), 0x7c00); // infinity
  assert_int_equal(perf_encode(10, 1e9), 0x7e);  // the greatest value: there is no infinity
  assert_int_equal(perf_encode(11, -1e9), 0xfc);
  assert_int_equal(perf_encode(6, ldexp(1, -25)), 0); // tie to even, to zero
  assert_int_equal(perf_encode(6, ldexp(1.5, -25)), 1);
  for (int i = 0; i < 20000; i++) {
    double v = (double)(int64_t)perf_mix((uint64_t)i, 1) * ldexp(1, -(i % 200));
    float f = (float)v;
    uint32_t fbits;
    uint64_t dbits;
    memcpy(&fbits, &f, 4);
    memcpy(&dbits, &v, 8);
    assert_int_equal(perf_encode(7, v), fbits);
    assert_int_equal(perf_encode(8, v), dbits);
    assert_true(perf_decode(7, fbits) == f);
  }
}

static uint64_t truth(int type, bool v)
{
  return perf_type_info(type)->cls == PERF_FLOATING ? perf_encode(type, v) : v;
}

// What a library would compute: combines a and b in the type, rounding once.
static uint64_t combine(int type, int op, uint64_t a, uint64_t b)
{
  bool floating = perf_type_info(type)->cls == PERF_FLOATING;
  double x = perf_decode(type, a), y = perf_decode(type, b);
  bool p = x != 0, q = y != 0;
  switch (op) {
  case PERF_BITAND: return a & b;
  case PERF_BITAND + 1: return a | b;
  case PERF_BITAND + 2: return a ^ b;
  case PERF_LOGICALAND: return truth(type, p && q);
  case PERF_LOGICALAND + 1: return truth(type, p || q);
  case PERF_LOGICALAND + 2: return truth(type, p != q);
  case 1: return floating ? perf_encode(type, x * y) : a * b;
  case 2:
  case 3: {
    int64_t i = perf_extend(type, a), j = perf_extend(type, b);
    bool less = floating ? x < y : perf_type_info(type)->cls == PERF_SIGNED ? i < j : (uint64_t)i < (uint64_t)j;
    return (op == 2) == less ? b : a;
  }
  default: return floating ? perf_encode(type, x + y) : a + b;
  }
}

static uint64_t pre(int type, int op, int n, int rank, uint64_t v)
{
  bool floating = perf_type_info(type)->cls == PERF_FLOATING;
  uint64_t scalar = op == PERF_MULSUM ? perf_mulsum_scalar(type, rank) : 0;
  if (op == 4 && floating) {
    scalar = perf_encode(type, 1.0 / n);
  } else if (op != PERF_MULSUM) {
    return v;
  }
  return floating ? perf_encode(type, perf_decode(type, v) * perf_decode(type, scalar)) : v * scalar;
}

// Reduces position k over all ranks in an order drawn by `seed`: random pairs, as any tree or ring might.
static uint64_t reduce_somehow(const perf_pattern *p, size_t k, uint64_t seed, int without)
{
  uint64_t v[128];
  int n = 0;
  for (int rank = 0; rank < p->nranks; rank++) {
    if (rank != without) {
      v[n++] = pre(p->type, p->op, p->nranks, rank, perf_load(p->input[rank], k, p->elt));
    }
  }
  while (n > 1) {
    int a = (int)(perf_mix(seed, (uint64_t)n) % (unsigned)n);
    uint64_t x = v[a];
    v[a] = v[--n];
    int b = (int)(perf_mix(seed + 1, (uint64_t)n) % (unsigned)n);
    v[b] = combine(p->type, p->op, x, v[b]);
  }
  if (p->op == 4 && perf_type_info(p->type)->cls != PERF_FLOATING) {
    v[0] = (uint64_t)(perf_extend(p->type, v[0]) / p->nranks);
  }
  if (p->op >= PERF_LOGICALAND && p->nranks == 1) {
    v[0] = truth(p->type, perf_decode(p->type, v[0]) != 0);
  }
  return v[0];
}

static bool same(const perf_pattern *p, uint64_t got, size_t k)
{
  uint64_t mask = ~(uint64_t)0 >> (64 - 8 * p->elt);
  uint64_t want = perf_load(p->reduced, k, p->elt);
  return ((got - want) & mask) == 0 || (p->tolerance && got - want + p->tolerance <= 2 * p->tolerance);
}

static void try_pattern(perf_patterns *set, int type, int op, int n)
{
  perf_pattern *p[128];
  for (int rank = 0; rank < n; rank++) {
    p[rank] = perf_pattern_acquire(set, type, op, n, rank);
    assert_non_null(p[rank]);
  }
  int noticed = 0;
  for (size_t k = 0; k<PERF_PERIOD; k += n> 20 ? 31 : 11) {
    if (!same(p[0], reduce_somehow(p[0], k, k, -1), k)) {
      fail_msg("%s %s n %d k %zu: %llx, want %llx", perf_type_name(type), perf_op_name(op), n, k,
               (unsigned long long)reduce_somehow(p[0], k, k, -1),
               (unsigned long long)perf_load(p[0]->reduced, k, p[0]->elt));
    }
    noticed += n > 1 && n < 20 && !same(p[0], reduce_somehow(p[0], k, k, n / 2), k);
  }
  if (n > 1 && n < 20 && noticed == 0) {
    fail_msg("%s %s n %d: nobody misses a rank", perf_type_name(type), perf_op_name(op), n);
  }
  for (int rank = 0; rank < n; rank++) {
    perf_pattern_release(set, p[rank]);
  }
}

static void test_exact_in_any_order(void **state)
{
  (void)state;
  static const int sizes[] = {1, 2, 3, 5, 13, 40};
  perf_patterns *set = perf_patterns_create();
  for (int type = 0; type < PERF_TYPES; type++) {
    bool floating = perf_type_info(type)->cls == PERF_FLOATING;
    for (int op = 0; op < PERF_ALL_OPS; op += floating && op + 1 == PERF_BITAND ? 4 : 1) {
      for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        try_pattern(set, type, op, sizes[i]);
      }
    }
  }
  perf_patterns_destroy(set);
}

// An all-gather of 3 ranks as the case to check.
static void gather_input(const perf_case *c, perf_layout *l)
{
  perf_put_copy(l, 0, c->count, c->rank, 0);
}

static void gather_output(const perf_case *c, perf_layout *l)
{
  for (int r = 0; r < c->nranks; r++) {
    perf_put_copy(l, (size_t)r * c->count, c->count, r, 0);
  }
}

static const perf_coll gather_coll = {.redop = "none", .input = gather_input, .output = gather_output};

typedef struct fixture {
  perf_patterns *set;
  perf_pattern *p;
  char *memory[2];
  perf_buffers b;
  perf_case c;
} fixture;

enum { COUNT = 10000 };

static int set_up(void **state)
{
  fixture *f = calloc(1, sizeof(*f));
  f->set = perf_patterns_create();
  f->p = perf_pattern_acquire(f->set, 7, 0, 3, 1);
  f->b.size = 3 * COUNT * 4;
  for (int i = 0; i < 2; i++) {
    f->memory[i] = malloc(f->b.size + 2 * PERF_GUARD);
  }
  f->b.send = f->memory[0] + PERF_GUARD;
  f->b.recv = f->memory[1] + PERF_GUARD;
  f->c = (perf_case){.rank = 1,
                     .nranks = 3,
                     .type = ncclFloat,
                     .elt = 4,
                     .count = COUNT,
                     .send_count = COUNT,
                     .recv_count = 3 * COUNT,
                     .send_offset = COUNT};
  *state = f;
  return 0;
}

static int tear_down(void **state)
{
  fixture *f = *state;
  perf_pattern_release(f->set, f->p);
  perf_patterns_destroy(f->set);
  free(f->memory[0]);
  free(f->memory[1]);
  free(f);
  return 0;
}

// Does what the library would: puts every rank's block where it belongs.
static void gather_correctly(fixture *f, uint64_t rep)
{
  perf_case c = f->c;
  perf_buffers b = {
      .send = malloc(f->b.size + 2 * PERF_GUARD), .recv = malloc(f->b.size + 2 * PERF_GUARD), .size = f->b.size};
  char *memory[2] = {b.send, b.recv};
  b.send += PERF_GUARD;
  b.recv += PERF_GUARD;
  c.in_place = false;
  for (c.rank = 0; c.rank < 3; c.rank++) {
    perf_fill(&gather_coll, &c, f->p, &b, rep);
    memcpy(f->b.recv + (size_t)c.rank * COUNT * 4, b.send, COUNT * 4);
  }
  free(memory[0]);
  free(memory[1]);
}

static size_t check(fixture *f, uint64_t rep, perf_mismatch *m)
{
  return perf_check(&gather_coll, &f->c, f->p, &f->b, rep, m);
}

static void test_accepts_what_is_right(void **state)
{
  fixture *f = *state;
  perf_mismatch m;
  for (int in_place = 0; in_place < 2; in_place++) {
    f->c.in_place = in_place;
    perf_fill(&gather_coll, &f->c, f->p, &f->b, 5);
    gather_correctly(f, 5);
    assert_int_equal(check(f, 5, &m), 0);
  }
}

static void test_finds_what_is_wrong(void **state)
{
  fixture *f = *state;
  perf_mismatch m;
  perf_fill(&gather_coll, &f->c, f->p, &f->b, 5);
  assert_int_equal(check(f, 5, &m), 3 * COUNT); // nothing written at all
  gather_correctly(f, 4);                       // left from the repetition before
  assert_true(check(f, 5, &m) > 3 * COUNT * 9 / 10);
  gather_correctly(f, 5);
  f->b.recv[4 * 12345 + 2] ^= 1; // one bit
  assert_int_equal(check(f, 5, &m), 1);
  assert_int_equal(m.element, 12345);
  assert_string_equal(m.where, "output");
}

static void test_finds_moved_blocks(void **state)
{
  fixture *f = *state;
  perf_mismatch m;
  perf_fill(&gather_coll, &f->c, f->p, &f->b, 5);
  gather_correctly(f, 5);
  memcpy(f->b.recv, f->b.recv + COUNT * 4, COUNT * 4); // block of rank 1 in the place of rank 0's
  assert_true(check(f, 5, &m) > COUNT * 9 / 10);
  for (size_t by = 1; by <= 5000; by = by * 3 + 1) { // a chunk from elsewhere in the same block
    gather_correctly(f, 5);
    memmove(f->b.recv, f->b.recv + by * 4, 64 * 4);
    assert_true(check(f, 5, &m) > 0);
  }
  gather_correctly(f, 5);
  memmove(f->b.recv, f->b.recv + PERF_PERIOD * 4, 64 * 4); // even from exactly one period away
  assert_true(check(f, 5, &m) > 0);
}

static void test_finds_stray_writes(void **state)
{
  fixture *f = *state;
  perf_mismatch m;
  char *const places[] = {f->b.recv - 1, f->b.recv + 3 * COUNT * 4, f->b.send - PERF_GUARD, f->b.send + COUNT * 4 + 17};
  for (int i = 0; i < 4; i++) {
    perf_fill(&gather_coll, &f->c, f->p, &f->b, 5);
    gather_correctly(f, 5);
    *places[i] ^= 0x10;
    assert_int_equal(check(f, 5, &m), 1);
    assert_string_equal(m.where, "guard");
  }
  perf_fill(&gather_coll, &f->c, f->p, &f->b, 5);
  gather_correctly(f, 5);
  f->b.send[COUNT * 4 - 1] ^= 1;
  assert_int_equal(check(f, 5, &m), 1);
  assert_string_equal(m.where, "input");
}

static void no_output(const perf_case *c, perf_layout *l)
{
  (void)c, (void)l;
}

static void test_untouched_output(void **state)
{
  fixture *f = *state;
  perf_mismatch m;
  perf_coll nothing = {.redop = "none", .input = gather_input, .output = no_output};
  perf_fill(&nothing, &f->c, f->p, &f->b, 5);
  assert_int_equal(perf_check(&nothing, &f->c, f->p, &f->b, 5, &m), 0);
  f->b.recv[4 * 29999] = 0;
  assert_int_equal(perf_check(&nothing, &f->c, f->p, &f->b, 5, &m), 1);
  assert_string_equal(m.where, "untouched output");
}

static void reduce_output(const perf_case *c, perf_layout *l)
{
  perf_put_reduced(l, 0, c->recv_count, 0);
}

static void test_tolerance(void **state)
{
  (void)state;
  perf_patterns *set = perf_patterns_create();
  perf_pattern *p = perf_pattern_acquire(set, 7, 4, 3, 0);
  assert_int_equal(p->tolerance, 5);
  char *memory[2] = {calloc(1, PERF_PERIOD * 4 + 2 * PERF_GUARD), calloc(1, PERF_PERIOD * 4 + 2 * PERF_GUARD)};
  perf_buffers b = {.send = memory[0] + PERF_GUARD, .recv = memory[1] + PERF_GUARD, .size = PERF_PERIOD * 4};
  perf_case c = {.nranks = 3, .type = ncclFloat, .elt = 4, .count = 1000, .recv_count = 1000};
  perf_coll coll = {.input = no_output, .output = reduce_output};
  perf_mismatch m;
  perf_fill(&coll, &c, p, &b, 1);
  size_t turn = perf_turn(perf_mix(1, 0), 0);
  for (size_t i = 0; i < 1000; i++) { // 0 to 6 units off: 6 is too much
    perf_store(b.recv, i, 4, perf_load(p->reduced, turn + i, 4) + i % 7);
  }
  assert_int_equal(perf_check(&coll, &c, p, &b, 1, &m), 142);
  assert_int_equal(m.element, 6);
  perf_pattern_release(set, p);
  perf_patterns_destroy(set);
  free(memory[0]);
  free(memory[1]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_small_floats_round_trip),
      cmocka_unit_test(test_rounding),
      cmocka_unit_test(test_exact_in_any_order),
      cmocka_unit_test_setup_teardown(test_accepts_what_is_right, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_finds_what_is_wrong, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_finds_moved_blocks, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_finds_stray_writes, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_untouched_output, set_up, tear_down),
      cmocka_unit_test(test_tolerance),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
