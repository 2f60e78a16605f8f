// reduce_test.c: every instruction set that this machine has, against a scalar reference that shares no code with the
// kernels: it decodes with ldexp and encodes by searching a sorted table of the type's values.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/opcode.h"
#include "device/reduce_convert.h"
#include "device/host/reduce_priv.h"

enum { MAX_SRC = 64, MAX_COUNT = 4097, ELEMENT = 8, GUARD = 64, SLOT = MAX_COUNT * ELEMENT + 2 * GUARD + 64 };

static const char *const isas[] = {"plain", "avx2", "avx512", "avx512bf16"};
static const size_t sizes[TT_RED_TYPES] = {
#define T(id, word, bytes, ...) [nccl##id] = bytes,
#include "base/types.def"
};

// ---- Random numbers ----

static uint64_t seed = 88172645463325252ULL;

static uint64_t rnd(void)
{
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return seed * 0x2545F4914F6CDD1DULL;
}

static unsigned rnd_below(unsigned n)
{
  return (unsigned)((rnd() >> 33) % n);
}

// ---- The reference: floating formats ----

typedef struct format {
  int ebits, mbits;
  int saturates;  // fp8
  double *values; // of the non-negative finite codes, ascending
  unsigned nvalues;
} format;

static format formats[TT_RED_TYPES] = {
    [ncclFloat16] = {5, 10, 0, NULL, 0},
    [ncclBfloat16] = {8, 7, 0, NULL, 0},
    [ncclFloat8e4m3] = {4, 3, 1, NULL, 0},
    [ncclFloat8e5m2] = {5, 2, 1, NULL, 0},
};

static int is_narrow(int type)
{
  return formats[type].ebits != 0;
}

static int is_floating(int type)
{
  return is_narrow(type) || type == ncclFloat32 || type == ncclFloat64;
}

// e4m3 alone has no infinity: its last exponent holds numbers, its very last code is the NaN.
static double decode(int type, uint64_t code)
{
  const format *f = &formats[type];
  unsigned mag = (unsigned)code & ((1U << (f->ebits + f->mbits)) - 1), man = mag & ((1U << f->mbits) - 1),
           exp = mag >> f->mbits;
  int bias = (1 << (f->ebits - 1)) - 1;
  unsigned top = (1U << f->ebits) - 1;
  double sign = code >> (f->ebits + f->mbits) & 1 ? -1 : 1;
  if (type == ncclFloat8e4m3 ? mag == 0x7f : exp == top && man) {
    return NAN;
  }
  if (type != ncclFloat8e4m3 && exp == top) {
    return sign * (double)INFINITY;
  }
  return sign * (exp ? ldexp((1U << f->mbits) + man, (int)exp - bias - f->mbits) : ldexp(man, 1 - bias - f->mbits));
}

static void formats_fill(void)
{
  for (int t = 0; t < TT_RED_TYPES; t++) {
    format *f = &formats[t];
    if (!f->ebits || f->values) {
      continue;
    }
    unsigned codes = 1U << (f->ebits + f->mbits);
    f->values = calloc(codes, sizeof *f->values);
    for (unsigned c = 0; c < codes && isfinite(decode(t, c)); c++) {
      f->values[f->nvalues++] = decode(t, c);
    }
  }
}

static uint64_t nan_code(int type)
{
  return ~0ULL >> (65 - 8 * sizes[type]);
}

// Nearest value, ties to the even code.
static uint64_t encode(int type, double x)
{
  const format *f = &formats[type];
  if (isnan(x)) {
    return nan_code(type);
  }
  uint64_t sign = (uint64_t)(signbit(x) != 0) << (f->ebits + f->mbits);
  double a = fabs(x), last = f->values[f->nvalues - 1];
  if (a >= last) {
    double half = (last - f->values[f->nvalues - 2]) / 2;
    return sign | (f->saturates || a < last + half ? f->nvalues - 1 : f->nvalues);
  }
  unsigned lo = 0, hi = f->nvalues - 1; // values[lo] <= a < values[hi]
  while (hi - lo > 1) {
    unsigned mid = (lo + hi) / 2;
    *(f->values[mid] <= a ? &lo : &hi) = mid;
  }
  double below = a - f->values[lo], above = f->values[hi] - a;
  return sign | (below < above || (below == above && lo % 2 == 0) ? lo : hi);
}

// ---- The reference: operations. One element of any type as its bits ----

static double fold_double(int kind, double a, double b)
{
  switch (kind) {
  case TT_RED_SUM: return a + b;
  case TT_RED_PROD: return a * b;
  case TT_RED_MAX: return isnan(a) || isnan(b) ? NAN : a > b || (a == b && signbit(b)) ? a : b;
  default: return isnan(a) || isnan(b) ? NAN : a < b || (a == b && signbit(a)) ? a : b;
  }
}

// Sums and products of two floats, rounded once to double and once more to float, are the correctly rounded floats (53
// >= 2 * 24 + 2).
static double fold_floating(int type, int kind, double a, double b)
{
  double r = fold_double(kind, a, b);
  return type == ncclFloat64 ? r : (double)(float)r;
}

static double to_double(int type, uint64_t bits)
{
  if (is_narrow(type)) {
    return decode(type, bits);
  }
  if (type == ncclFloat32) {
    float f;
    uint32_t u = (uint32_t)bits;
    memcpy(&f, &u, 4);
    return f;
  }
  double d;
  memcpy(&d, &bits, 8);
  return d;
}

static uint64_t from_double(int type, double x)
{
  if (isnan(x)) {
    return nan_code(type);
  }
  if (is_narrow(type)) {
    return encode(type, x);
  }
  uint64_t bits = 0;
  float f = (float)x;
  memcpy(&bits, type == ncclFloat32 ? (void *)&f : (void *)&x, sizes[type]);
  return bits;
}

static __int128 to_wide(int type, uint64_t bits)
{
  switch (type) {
  case ncclInt8: return (int8_t)bits;
  case ncclInt32: return (int32_t)bits;
  case ncclInt64: return (int64_t)bits;
  default: return bits;
  }
}

static uint64_t fold_int(int type, int kind, uint64_t a, uint64_t b)
{
  uint64_t mask = ~0ULL >> (64 - 8 * sizes[type]);
  int less = to_wide(type, a) < to_wide(type, b);
  switch (kind) {
  case TT_RED_SUM: return (a + b) & mask;
  case TT_RED_PROD: return (a * b) & mask;
  case TT_RED_MAX: return less ? b : a;
  default: return less ? a : b;
  }
}

static uint64_t get(const void *p, int type, size_t i)
{
  uint64_t v = 0;
  memcpy(&v, (const char *)p + i * sizes[type], sizes[type]);
  return v;
}

static uint64_t expect_int(const tt_redop *op, int nsrc, const void *const *src, const uint64_t *const *scale, size_t i)
{
  int t = op->type;
  uint64_t acc = 0;
  for (int k = 0; k < nsrc; k++) {
    uint64_t x = get(src[k], t, i);
    x = scale && scale[k] ? fold_int(t, TT_RED_PROD, x, *scale[k]) : x;
    acc = k ? fold_int(t, op->kind, acc, x) : x;
  }
  if (op->divisor > 1) {
    acc = (uint64_t)(to_wide(t, acc) / op->divisor) & ~0ULL >> (64 - 8 * sizes[t]);
  }
  return acc;
}

static uint64_t expect(const tt_redop *op, int nsrc, const void *const *src, const uint64_t *const *scale, size_t i)
{
  int t = op->type;
  if (!is_floating(t)) {
    return expect_int(op, nsrc, src, scale, i);
  }
  if (nsrc == 1 && !(scale && scale[0])) {
    return get(src[0], t, i);
  }
  double acc = 0;
  for (int k = 0; k < nsrc; k++) {
    double x = to_double(t, get(src[k], t, i));
    if (scale && scale[k]) { // rounded as if it had been stored
      x = to_double(t, from_double(t, fold_floating(t, TT_RED_PROD, x, to_double(t, *scale[k]))));
    }
    acc = k ? fold_floating(t, op->kind, acc, x) : x;
  }
  return from_double(t, acc);
}

// ---- Inputs ----

static uint64_t random_element(int type)
{
  uint64_t bits = rnd() & ~0ULL >> (64 - 8 * sizes[type]);
  if (!is_floating(type) || rnd_below(40) == 0) {
    return bits;
  }
  int e = (int)rnd_below(8) - 5;
  double x = ldexp((double)(int64_t)bits, e - (int)(8 * sizes[type]) + 1);
  x = sizes[type] == 8 ? x : ldexp((double)(int32_t)rnd(), e - 31);
  return from_double(type, rnd_below(50) ? x : 0 * x);
}

static char *arena;    // sources, then their in-place copies
static void *expected; // results
static uint64_t scalars[MAX_SRC];

static void *slot(int k)
{
  return arena + (size_t)k * SLOT;
}

static void fill(void *p, int type, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    uint64_t v = random_element(type);
    memcpy((char *)p + i * sizes[type], &v, sizes[type]);
  }
}

// ---- One call with guard bytes ----

typedef struct call {
  tt_redop op;
  int type; // ncclDataType_t
  int nsrc, ndst;
  int inplace; // index of the source that is destination 0 too, or -1
  size_t count;
  unsigned flags;
  unsigned skew; // bytes off alignment
  const uint64_t *const *scale;
} call;

static void check_bytes(const call *c, const char *isa, int d, const char *p)
{
  size_t bytes = c->count * sizes[c->type];
  int bad = memcmp(p, expected, bytes) != 0;
  for (int i = 1; i <= GUARD; i++) {
    bad |= (uint8_t)p[-i] != 0xa5 || (uint8_t)p[bytes + (size_t)i - 1] != 0xa5;
  }
  if (!bad) {
    return;
  }
  size_t i = 0;
  while (i < c->count && get(p, c->type, i) == get(expected, c->type, i)) {
    i++;
  }
  print_error("%s: type %d kind %d nsrc %d dst %d/%d in-place %d count %zu skew %u scaled %d divisor %u flags %u\n",
              isa, c->type, c->op.kind, c->nsrc, d, c->ndst, c->inplace, c->count, c->skew, c->scale != NULL,
              c->op.divisor, c->flags);
  if (i == c->count) {
    fail_msg("bytes beside the destination changed");
  }
  fail_msg("element %zu is %llx not %llx", i, (unsigned long long)get(p, c->type, i),
           (unsigned long long)get(expected, c->type, i));
}

static void run_call(const call *c, const char *isa)
{
  static char out[3][SLOT];
  const void *src[MAX_SRC];
  void *dst[3];
  size_t bytes = c->count * sizes[c->type];
  for (int d = 0; d < c->ndst; d++) {
    size_t skew = (c->skew * (unsigned)(d + 1)) % 64;
    dst[d] = out[d] + GUARD + skew;
    memset((char *)dst[d] - GUARD, 0xa5, bytes + 2 * (size_t)GUARD);
  }
  for (int k = 0; k < c->nsrc; k++) {
    src[k] = slot(k);
  }
  if (c->inplace >= 0) {
    memcpy(dst[0], src[c->inplace], bytes);
    src[c->inplace] = dst[0];
  }
  tt_reduce(&c->op, c->ndst, dst, c->nsrc, src, c->scale, c->count, c->flags);
  for (int d = 0; d < c->ndst; d++) {
    check_bytes(c, isa, d, dst[d]);
  }
}

// ---- Tests ----

static const size_t counts[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 1000, 4097};
enum { NCOUNTS = sizeof counts / sizeof counts[0] };

static void run_counts(call c, const char *isa, size_t limit)
{
  for (int i = 0; i < NCOUNTS; i++) {
    c.count = counts[i] < limit ? counts[i] : limit;
    for (c.ndst = 1; c.ndst <= 3; c.ndst++) {
      c.inplace = (int)rnd_below(3) - 1;
      c.inplace = c.inplace == 1 ? (int)rnd_below((unsigned)c.nsrc) : c.inplace;
      c.skew = rnd_below(2) ? 0 : rnd_below(64);
      run_call(&c, isa);
    }
  }
}

// The call with every instruction set and many counts.
static void run_isas(const call *c, size_t limit)
{
  for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
    if (tt_reduce_select(isas[i])) {
      run_counts(*c, isas[i], limit);
    }
  }
}

static void run_case(const tt_redop *op, int nsrc, const uint64_t *const *scale)
{
  const void *src[MAX_SRC];
  size_t limit = nsrc <= 3 ? MAX_COUNT : nsrc <= 8 ? 2500 : 300;
  for (int k = 0; k < nsrc; k++) {
    src[k] = slot(k);
  }
  for (size_t i = 0; i < limit; i++) {
    uint64_t v = expect(op, nsrc, src, scale, i);
    memcpy((char *)expected + i * sizes[op->type], &v, sizes[op->type]);
  }
  call c = {.op = *op, .type = op->type, .nsrc = nsrc, .scale = scale, .flags = op->divisor ? TT_REDUCE_FINAL : 0};
  run_isas(&c, limit);
}

static void test_kind(int type, int kind, int nsrc)
{
  static const uint32_t divisors[] = {2, 3, 7, 10, 64, 255, 257, 1000003, 0x80000001, 0xffffffff};
  const uint64_t *scale[MAX_SRC];
  for (int k = 0; k < nsrc; k++) {
    scalars[k] = random_element(type);
    scale[k] = k && rnd_below(3) == 0 ? NULL : &scalars[k];
  }
  tt_redop op = {.type = (uint8_t)type, .kind = (uint8_t)kind};
  run_case(&op, nsrc, NULL);
  op.prescale = 1;
  run_case(&op, nsrc, scale);
  op.prescale = 0;
  for (int i = 0; i < 3 && !is_floating(type) && kind == TT_RED_SUM; i++) {
    op.divisor = divisors[rnd_below(sizeof divisors / sizeof divisors[0])];
    run_case(&op, nsrc, NULL);
  }
}

static void test_type(int type)
{
  static const int nsrcs[] = {1, 2, 3, 4, 5, 6, 8, 17, 64};
  for (int k = 0; k < MAX_SRC; k++) {
    fill(slot(k), type, k < 8 ? MAX_COUNT : 300);
  }
  for (int kind = 0; kind < TT_RED_KINDS; kind++) {
    for (size_t i = 0; i < sizeof nsrcs / sizeof nsrcs[0]; i++) {
      test_kind(type, kind, nsrcs[i]);
    }
  }
}

static void test_all_types(void **state)
{
  (void)state;
  for (int type = 0; type < TT_RED_TYPES; type++) {
    test_type(type);
  }
}

// ---- Bitwise and logical operations ----

static const ncclRedOp_t bit_ops[] = {tuttiBitAnd,     tuttiBitOr,     tuttiBitXor,
                                      tuttiLogicalAnd, tuttiLogicalOr, tuttiLogicalXor};

static int is_true(int type, uint64_t code)
{
  return is_floating(type) ? to_double(type, code) != 0 : code != 0;
}

static uint64_t fold_bits(int op, int type, uint64_t a, uint64_t b)
{
  int x = is_true(type, a), y = is_true(type, b), r = op == 3 ? x && y : op == 4 ? x || y : x != y;
  switch (op) {
  case 0: return a & b;
  case 1: return a | b;
  case 2: return a ^ b;
  default: return is_floating(type) ? from_double(type, r) : (uint64_t)r;
  }
}

static void test_bit_op(int type, int op, int nsrc)
{
  size_t limit = nsrc <= 8 ? MAX_COUNT : 300;
  for (size_t i = 0; i < limit; i++) {
    uint64_t v = get(slot(0), type, i);
    for (int k = 1; k < nsrc; k++) {
      v = fold_bits(op, type, v, get(slot(k), type, i));
    }
    memcpy((char *)expected + i * sizes[type], &v, sizes[type]);
  }
  call c = {.type = type, .nsrc = nsrc};
  tt_redop_builtin(&c.op, (ncclDataType_t)type, bit_ops[op], 3);
  for (int i = 0; i < 3; i++) {
    c.flags = i == 0 ? 0 : TT_REDUCE_FINAL | TT_REDUCE_STREAM | (i == 1 ? 0 : TT_REDUCE_KEEP_FIRST);
    run_isas(&c, limit);
  }
}

// Logical operations of one rank leave 0 or 1.
static void test_alone(int type, int op)
{
  for (size_t i = 0; i < MAX_COUNT; i++) {
    uint64_t x = get(slot(0), type, i), v = op < 3 ? x : fold_bits(4, type, x, x);
    memcpy((char *)expected + i * sizes[type], &v, sizes[type]);
  }
  call c = {.type = type, .nsrc = 1, .flags = TT_REDUCE_FINAL};
  tt_redop_builtin(&c.op, (ncclDataType_t)type, bit_ops[op], 1);
  run_isas(&c, MAX_COUNT);
}

// Any bits, and zeros of both signs among them.
static void fill_bits(void *p, int type, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    uint64_t sign = is_floating(type) && rnd_below(2) ? 1ULL << (8 * sizes[type] - 1) : 0;
    uint64_t v = rnd_below(3) == 0 ? sign : rnd();
    memcpy((char *)p + i * sizes[type], &v, sizes[type]);
  }
}

static void test_bits(void **state)
{
  (void)state;
  static const int nsrcs[] = {1, 2, 3, 4, 5, 6, 8, 17};
  for (int type = 0; type < TT_RED_TYPES; type++) {
    for (int k = 0; k < 17; k++) {
      fill_bits(slot(k), type, k < 8 ? MAX_COUNT : 300);
    }
    for (int op = is_floating(type) ? 3 : 0; op < 6; op++) {
      for (size_t i = 0; i < sizeof nsrcs / sizeof nsrcs[0]; i++) {
        test_bit_op(type, op, nsrcs[i]);
      }
      test_alone(type, op);
    }
  }
}

// ---- A program's function ----

// The halves of a code are a factor and a term of t -> factor * t + term: first b, then a. Does not commute.
static uint64_t compose(int type, uint64_t a, uint64_t b)
{
  unsigned half = 4 * (unsigned)sizes[type];
  uint64_t low = (1ULL << half) - 1, x = a >> half & low;
  return (x * (b >> half & low) & low) << half | ((x * (b & low) + (a & low)) & low);
}

static void compose_all(const void *in, void *inout, size_t count, ncclDataType_t type, void *arg)
{
  *(size_t *)arg += count;
  for (size_t i = 0; i < count; i++) {
    uint64_t v = compose((int)type, get(in, (int)type, i), get(inout, (int)type, i));
    memcpy((char *)inout + i * sizes[type], &v, sizes[type]);
  }
}

static void test_function(void **state)
{
  (void)state;
  static const int types[] = {ncclInt8, ncclFloat16, ncclFloat32, ncclUint64}, nsrcs[] = {1, 2, 3, 8, 17};
  for (int n = 0; n < 4 * 5; n++) {
    size_t calls = 0, limit = nsrcs[n / 4] <= 8 ? MAX_COUNT : 300;
    call c = {.type = types[n % 4], .nsrc = nsrcs[n / 4]};
    c.op = (tt_redop){.type = (uint8_t)c.type, .fn = compose_all, .arg = &calls};
    for (int k = 0; k < c.nsrc; k++) {
      fill_bits(slot(k), c.type, limit);
    }
    for (size_t i = 0; i < limit; i++) {
      uint64_t v = get(slot(0), c.type, i);
      for (int k = 1; k < c.nsrc; k++) {
        v = compose(c.type, v, get(slot(k), c.type, i));
      }
      memcpy((char *)expected + i * sizes[c.type], &v, sizes[c.type]);
    }
    c.flags = n % 2 ? TT_REDUCE_STREAM : TT_REDUCE_FINAL;
    run_isas(&c, limit);
    assert_true((calls > 0) == (c.nsrc > 1));
  }
}

// The conversions of reduce_convert.h: every code both ways, and random floats down.
static void test_convert_codes(void **state)
{
  (void)state;
  for (unsigned c = 0; c < 65536; c++) {
    float h = tt_f32_from_f16((uint16_t)c), b = tt_f32_from_bf16((uint16_t)c);
    double want = decode(ncclFloat16, c), want_b = decode(ncclBfloat16, c);
    assert_true(isnan(want) ? isnan(h) : (double)h == want && !signbit(h) == !signbit(want));
    assert_true(isnan(want_b) ? isnan(b) : (double)b == want_b);
    assert_int_equal(tt_f16_from_f32(h), isnan(want) ? 0x7fff : c);
    assert_int_equal(tt_bf16_from_f32(b), isnan(want_b) ? 0x7fff : c);
  }
  for (unsigned c = 0; c < 256; c++) {
    float x = tt_f32_from_e4m3((uint8_t)c), y = tt_f32_from_e5m2((uint8_t)c);
    double want = decode(ncclFloat8e4m3, c), want_y = decode(ncclFloat8e5m2, c);
    assert_true(isnan(want) ? isnan(x) : (double)x == want && !signbit(x) == !signbit(want));
    assert_true(isnan(want_y) ? isnan(y) : (double)y == want_y && !signbit(y) == !signbit(want_y));
    assert_int_equal(tt_e4m3_from_f32(x), isnan(want) ? 0x7f : c);
    assert_int_equal(tt_e5m2_from_f32(y), isnan(want_y) ? 0x7f : isinf(want_y) ? c - 1 : c);
  }
}

static void test_convert_random(void **state)
{
  (void)state;
  for (int i = 0; i < 200000; i++) {
    uint32_t u = (uint32_t)rnd();
    u = i % 2 ? u : (u & 0x80ffffff) | (0x60 + rnd_below(0x40)) << 23; // half of them near the range of the small types
    u = i % 3 ? u : u & 0xfffff000;                                    // and many ties
    float f = tt_f32_of_bits(u);
    assert_int_equal(tt_f16_from_f32(f), encode(ncclFloat16, f));
    assert_int_equal(tt_bf16_from_f32(f), encode(ncclBfloat16, f));
    assert_int_equal(tt_e4m3_from_f32(f), encode(ncclFloat8e4m3, f));
    assert_int_equal(tt_e5m2_from_f32(f), encode(ncclFloat8e5m2, f));
  }
}

// 65536 elements through every kernel of two sources. scale: NULL or two; then sums alone.
static void check_codes(int type, const void *x, const void *y, const uint64_t *const *scale)
{
  static char want[65536 * 2], got[65536 * 2];
  const void *src[] = {x, y};
  void *dst[] = {got};
  for (int kind = 0; kind < (scale ? 1 : TT_RED_KINDS); kind++) {
    tt_redop op = {.type = (uint8_t)type, .kind = (uint8_t)kind, .prescale = scale != NULL};
    for (size_t i = 0; i < 65536; i++) {
      uint64_t v = expect(&op, 2, src, scale, i);
      memcpy(want + i * sizes[type], &v, sizes[type]);
    }
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
      if (tt_reduce_select(isas[i])) {
        tt_reduce(&op, 1, dst, 2, src, scale, 65536, 0);
        assert_memory_equal(got, want, 65536 * sizes[type]);
      }
    }
  }
}

// With factors: ordinary ones, the ends of the range in which bfloat16's products are known to be exact, far outside
// it, zeros, NaN.
static void check_scaled_codes(int type, const void *x, const void *y)
{
  static const double factors[] = {0.5, 1.0 / 3, 1, 0x1p-9, 0x1p-10, 1.5, -0.75, 0x1p120, 0x1p-120, 0.0, -0.0, NAN};
  for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
    uint64_t f = from_double(type, factors[i]), third = from_double(type, 1.0 / 3);
    const uint64_t *const both[] = {&f, &third}, *const one[] = {NULL, &f};
    check_codes(type, x, y, both);
    check_codes(type, x, y, one);
  }
}

// All codes of the two-byte types: with random ones, themselves, their opposites, and what is special. All pairs of the
// one-byte types.
static void test_codes(void **state)
{
  (void)state;
  static const unsigned special[] = {0,      0x8000, 1,      0x8001, 0x80,   0x400,  0x3c00, 0x7bff,
                                     0x7c00, 0xfc00, 0x7c01, 0x7f7f, 0x7f80, 0xff80, 0x7fff};
  static uint16_t x[65536], y[65536], z[65536];
  static uint8_t p[65536], q[65536];
  for (unsigned i = 0; i < 65536; i++) {
    x[i] = (uint16_t)i;
    y[i] = (uint16_t)(i ^ (rnd() & (i % 2 ? 0xffff : 0x07ff)));
    p[i] = (uint8_t)i;
    q[i] = (uint8_t)(i >> 8);
  }
  for (int t = 0; t < 2; t++) {
    int wide = t ? ncclBfloat16 : ncclFloat16, narrow = t ? ncclFloat8e5m2 : ncclFloat8e4m3;
    check_codes(wide, x, y, NULL);
    check_codes(wide, x, x, NULL);
    check_scaled_codes(wide, x, y);
    check_codes(narrow, p, q, NULL);
    check_scaled_codes(narrow, p, q);
    for (size_t k = 0; k <= sizeof special / sizeof special[0]; k++) {
      for (unsigned i = 0; i < 65536; i++) {
        z[i] = (uint16_t)(k ? special[k - 1] : i ^ 0x8000);
      }
      check_codes(wide, x, z, NULL);
      check_codes(wide, z, x, NULL);
    }
    for (unsigned i = 0; i < 65536; i++) {
      z[i] = 0x4380; // bfloat16: 256, which 2^120 takes out of float's range, though not its sum with a large negative
                     // number
    }
    check_scaled_codes(wide, x, z);
  }
}

// Large enough for non-temporal stores: odd addresses, several destinations, in place.
static void check_stream(int type, int nsrc, int ndst, int inplace, unsigned skew, unsigned flags)
{
  size_t size = sizes[type], count = (600 * 1024 + 24) / size, bytes = count * size;
  char *mem[6];
  void *dst[3];
  const void *src[3];
  for (int i = 0; i < nsrc + ndst; i++) {
    mem[i] = malloc(bytes + 256);
    memset(mem[i], 0xa5, bytes + 256);
  }
  for (int k = 0; k < nsrc; k++) {
    src[k] = mem[k] + 64 + (inplace == k ? skew : 0);
    fill(mem[k] + 64 + (inplace == k ? skew : 0), type, count);
  }
  for (int d = 0; d < ndst; d++) {
    dst[d] = inplace >= 0 && d == 0 ? mem[inplace] + 64 + skew : mem[nsrc + d] + 64 + skew * (unsigned)(d + 1) % 64;
  }
  tt_redop op = {.type = (uint8_t)type, .kind = TT_RED_SUM};
  char *want = malloc(bytes);
  for (size_t i = 0; i < count; i++) {
    uint64_t v = expect(&op, nsrc, src, NULL, i);
    memcpy(want + i * size, &v, size);
  }
  tt_reduce(&op, ndst, dst, nsrc, src, NULL, count, TT_REDUCE_STREAM | flags);
  for (int d = 0; d < ndst; d++) {
    assert_memory_equal(dst[d], want, bytes);
    assert_int_equal(((uint8_t *)dst[d])[-1], 0xa5);
    assert_int_equal(((uint8_t *)dst[d])[bytes], 0xa5);
  }
  free(want);
  for (int i = 0; i < nsrc + ndst; i++) {
    free(mem[i]);
  }
}

static void test_stream(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
    if (!tt_reduce_select(isas[i])) {
      continue;
    }
    for (int n = 0; n < 6; n++) {
      int ndst = n % 3 + 1;
      unsigned flags = n < 3 ? 0 : TT_REDUCE_KEEP_FIRST;
      check_stream(ncclFloat32, 2, ndst, -1, 0, flags);
      check_stream(ncclFloat32, 2, ndst, 1, 3, flags);
      check_stream(ncclFloat64, 1, ndst, -1, 20, flags);
    }
    static const ncclDataType_t types[] = {ncclFloat32, ncclFloat16, ncclFloat8e4m3, ncclInt64};
    for (size_t k = 0; k < sizeof types / sizeof types[0];
         k++) { // two outputs: from the sum to both, where they lie alike
      check_stream(types[k], 2, 2, -1, 0, 0);
      check_stream(types[k], 2, 2, -1, 64, TT_REDUCE_KEEP_FIRST);
      check_stream(types[k], 2, 2, 0, 0, 0);
      check_stream(types[k], 2, 2, 1, 8, 0);
    }
    check_stream(ncclFloat16, 3, 2, -1, 6, 0);
    check_stream(ncclInt8, 2, 2, 0, 7, 0);
  }
}

static void test_copy(void **state)
{
  (void)state;
  static char src[400000], out[3][400064];
  fill(src, ncclUint8, sizeof src);
  static const size_t lengths[] = {0, 1, 63, 64, 65, 5000, 399999};
  for (int i = 0; i < 7 * 3 * 2; i++) {
    size_t n = lengths[i % 7];
    int ndst = i / 7 % 3 + 1;
    void *dst[] = {out[0] + i, out[1] + 1, out[2] + 2};
    memset(out, 0, sizeof out);
    tt_copy(ndst, dst, src, n, i < 21 ? 0 : i % 2 == 0 ? TT_REDUCE_STREAM : TT_REDUCE_STREAM | TT_REDUCE_KEEP_FIRST);
    for (int d = 0; d < ndst; d++) {
      assert_memory_equal(dst[d], src, n);
      assert_int_equal(((char *)dst[d])[n], 0);
    }
  }
  void *same[] = {src};
  tt_copy(1, same, src, sizeof src, TT_REDUCE_STREAM); // nothing to do
}

static void test_builtin(void **state)
{
  (void)state;
  static const ncclRedOp_t reds[] = {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg};
  for (int type = 0; type < TT_RED_TYPES; type++) {
    for (int i = 0; i < 5; i++) {
      tt_redop op;
      tt_redop_builtin(&op, (ncclDataType_t)type, reds[i], 3);
      assert_int_equal(op.type, type);
      assert_int_equal(op.kind, reds[i] == ncclAvg ? TT_RED_SUM : i);
      assert_int_equal(op.prescale, reds[i] == ncclAvg && is_floating(type));
      assert_int_equal(op.divisor, reds[i] == ncclAvg && !is_floating(type) ? 3 : 0);
      assert_true(op.scalar == (op.prescale ? from_double(type, 1.0 / 3) : 0));
    }
  }
  // The division waits for the last step.
  int32_t a = -7, b = -1, r = 0;
  void *dst[] = {&r};
  const void *src[] = {&a, &b};
  tt_redop op;
  tt_redop_builtin(&op, ncclInt32, ncclAvg, 3);
  tt_reduce(&op, 1, dst, 2, src, NULL, 1, 0);
  assert_int_equal(r, -8);
  tt_reduce(&op, 1, dst, 2, src, NULL, 1, TT_REDUCE_FINAL);
  assert_int_equal(r, -2);
}

static void test_select(void **state)
{
  (void)state;
  assert_null(tt_reduce_select("pentium"));
  assert_string_equal(tt_reduce_select("plain"), "plain");
  const char *best = tt_reduce_select(NULL);
  assert_non_null(best);
  print_message("best instruction set: %s\n", best);
}

int main(void)
{
  formats_fill();
  arena = calloc(MAX_SRC, SLOT);
  expected = calloc(MAX_COUNT, ELEMENT);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_select),         cmocka_unit_test(test_builtin),   cmocka_unit_test(test_convert_codes),
      cmocka_unit_test(test_convert_random), cmocka_unit_test(test_codes),     cmocka_unit_test(test_copy),
      cmocka_unit_test(test_stream),         cmocka_unit_test(test_all_types), cmocka_unit_test(test_bits),
      cmocka_unit_test(test_function),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  for (int t = 0; t < TT_RED_TYPES; t++) {
    free(formats[t].values);
  }
  free(arena);
  free(expected);
  return failed;
}
