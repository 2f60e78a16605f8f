// reduce_kernels.c: compiled once per instruction set, with -DTT_ISA=plain|avx2|avx512 and that set's compiler flags, always with
// -ffp-contract=off. Gives one table, tt_kernels_<isa>.
//
// Plain loops that compilers vectorise well serve the wide types; the narrow ones are written in the vocabulary of
// reduce_{avx512,avx2,scalar}.h. Every result that is a NaN becomes the NaN with all bits but the sign set: which of two NaNs an
// addition passes on would otherwise depend on how the compiler ordered its operands.
#include <string.h>

#include "device/host/reduce_priv.h"
#if defined(__AVX512BW__)
#include "device/host/reduce_avx512.h"
#elif defined(__AVX2__)
#include "device/host/reduce_avx2.h"
#else
#include "device/host/reduce_scalar.h"
#endif
#ifdef __SSE2__
#include <emmintrin.h>
#endif

// No iteration depends on another one, even where the destination is a source.
#ifdef __clang__
#pragma clang diagnostic ignored "-Wpass-failed" // loops over vectors need no further vectorising
#define TT_VECTOR_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define TT_VECTOR_LOOP _Pragma("GCC ivdep")
#endif

// Elements as they lie in users' memory: at any address.
#define TT_ELEMENT __attribute__((aligned(1), may_alias))
typedef int8_t tt_i8 TT_ELEMENT;
typedef uint8_t tt_u8 TT_ELEMENT;
typedef int32_t tt_i32 TT_ELEMENT;
typedef uint32_t tt_u32 TT_ELEMENT;
typedef int64_t tt_i64 TT_ELEMENT;
typedef uint64_t tt_u64 TT_ELEMENT;
typedef float tt_f32 TT_ELEMENT;
typedef double tt_f64 TT_ELEMENT;

// ---- Lines ----

enum {
  TT_LINE = 64,
  TT_CHUNK = TT_RED_CHUNK, // of the loops with prefetch: long enough that the compiler keeps and vectorises the loop inside
  TT_AHEAD = 1024,         // bytes by which a long loop prefetches its sources: the hardware's prefetchers stop at the end of a page
  TT_LONG_LOOP = 4096,     // bytes per buffer from which on it does
};

// A whole aligned line, around the caches.
#if defined(__AVX512BW__)
TT_INLINE void stream_line(uint8_t *d, const uint8_t *s)
{
  _mm512_stream_si512((void *)d, _mm512_loadu_si512(s));
}
#elif defined(__AVX2__)
TT_INLINE void stream_line(uint8_t *d, const uint8_t *s)
{
  _mm256_stream_si256((__m256i *)(void *)d, _mm256_loadu_si256((const __m256i *)(const void *)s));
  _mm256_stream_si256((__m256i *)(void *)(d + 32), _mm256_loadu_si256((const __m256i *)(const void *)(s + 32)));
}
#elif defined(__SSE2__)
TT_INLINE void stream_line(uint8_t *d, const uint8_t *s)
{
  for (int i = 0; i < TT_LINE; i += 16) {
    _mm_stream_si128((__m128i *)(void *)(d + i), _mm_loadu_si128((const __m128i *)(const void *)(s + i)));
  }
}
#else
TT_INLINE void stream_line(uint8_t *d, const uint8_t *s)
{
  memcpy(d, s, TT_LINE);
}
#endif

TT_INLINE void stream_chunk(void *d, const void *s)
{
  for (int i = 0; i < TT_CHUNK; i += TT_LINE) {
    stream_line((uint8_t *)d + i, (const uint8_t *)s + i);
  }
}

TT_INLINE void chunk_ahead(const void *x, const void *y)
{
  for (int i = 0; i < TT_CHUNK; i += TT_LINE) {
    __builtin_prefetch((const char *)x + TT_AHEAD + i);
    __builtin_prefetch((const char *)y + TT_AHEAD + i);
  }
}

// ---- Operations of the wide types: <op>_<type>(a, b), fin_<type>(result), one_<type>(scalar) ----

#define INT_OPS(T, ELEM, UNSIGNED)          \
  TT_INLINE T sum_##T(T a, T b)             \
  {                                         \
    return (T)((UNSIGNED)a + (UNSIGNED)b);  \
  }                                         \
  TT_INLINE T prod_##T(T a, T b)            \
  {                                         \
    return (T)((UNSIGNED)a * (UNSIGNED)b);  \
  }                                         \
  TT_INLINE T max_##T(T a, T b)             \
  {                                         \
    return a > b ? a : b;                   \
  }                                         \
  TT_INLINE T min_##T(T a, T b)             \
  {                                         \
    return a < b ? a : b;                   \
  }                                         \
  TT_INLINE T fin_##T(T a)                  \
  {                                         \
    return a;                               \
  }                                         \
  TT_INLINE T scalar_##T(const uint64_t *s) \
  {                                         \
    return s ? (T)*s : (T)1;                \
  }

#define FLOAT_OPS(T, NAN_T)                         \
  TT_INLINE T sum_##T(T a, T b)                     \
  {                                                 \
    return a + b;                                   \
  }                                                 \
  TT_INLINE T prod_##T(T a, T b)                    \
  {                                                 \
    return a * b;                                   \
  }                                                 \
  TT_INLINE T max_##T(T a, T b)                     \
  {                                                 \
    T r = a > b ? a : b;                            \
    return __builtin_isunordered(a, b) ? NAN_T : r; \
  }                                                 \
  TT_INLINE T min_##T(T a, T b)                     \
  {                                                 \
    T r = a < b ? a : b;                            \
    return __builtin_isunordered(a, b) ? NAN_T : r; \
  }                                                 \
  TT_INLINE T fin_##T(T a)                          \
  {                                                 \
    return a != a ? NAN_T : a;                      \
  }

INT_OPS(int8_t, tt_i8, uint32_t)
INT_OPS(uint8_t, tt_u8, uint32_t)
INT_OPS(int32_t, tt_i32, uint32_t)
INT_OPS(uint32_t, tt_u32, uint32_t)
INT_OPS(int64_t, tt_i64, uint64_t)
INT_OPS(uint64_t, tt_u64, uint64_t)
FLOAT_OPS(float, TT_NAN_F32)
FLOAT_OPS(double, TT_NAN_F64)

TT_INLINE float scalar_float(const uint64_t *s)
{
  return s ? tt_f32_of_bits((uint32_t)*s) : 1.0F;
}

TT_INLINE double scalar_double(const uint64_t *s)
{
  double d = 1;
  if (s) {
    memcpy(&d, s, sizeof d);
  }
  return d;
}

// ---- Kernels of the wide types ----

#define WIDE_OP(T, ELEM, OP)                                                                                               \
  TT_INLINE void chunks_##OP##_##T(ELEM *r, const ELEM *x, const ELEM *y, size_t n, bool nt)                               \
  {                                                                                                                        \
    enum { L = TT_CHUNK / sizeof(T) };                                                                                     \
    for (size_t i = 0; i < n; i += L) {                                                                                    \
      _Alignas(TT_LINE) T chunk[L];                                                                                        \
      ELEM *to = nt ? chunk : r + i;                                                                                       \
      chunk_ahead(x + i, y + i);                                                                                           \
      TT_VECTOR_LOOP                                                                                                       \
      for (size_t k = 0; k < L; k++) {                                                                                     \
        to[k] = fin_##T(OP##_##T(x[i + k], y[i + k]));                                                                     \
      }                                                                                                                    \
      if (nt) {                                                                                                            \
        stream_chunk(r + i, chunk);                                                                                        \
      }                                                                                                                    \
    }                                                                                                                      \
  }                                                                                                                        \
  static void fold2_##OP##_##T(void *dst, const void *a, const void *b, size_t n)                                          \
  {                                                                                                                        \
    ELEM *r = dst;                                                                                                         \
    const ELEM *x = a, *y = b;                                                                                             \
    size_t i = n < TT_LONG_LOOP / sizeof(T) ? 0 : n & ~(TT_CHUNK / sizeof(T) - 1);                                         \
    chunks_##OP##_##T(r, x, y, i, false);                                                                                  \
    TT_VECTOR_LOOP                                                                                                         \
    for (; i < n; i++) {                                                                                                   \
      r[i] = fin_##T(OP##_##T(x[i], y[i]));                                                                                \
    }                                                                                                                      \
  }                                                                                                                        \
  static void fold2nt_##OP##_##T(void *dst, const void *a, const void *b, size_t n)                                        \
  {                                                                                                                        \
    chunks_##OP##_##T(dst, a, b, n, true);                                                                                 \
  }                                                                                                                        \
  static void fold2s_##OP##_##T(void *dst, const void *a, const void *b, const uint64_t *sa, const uint64_t *sb, size_t n) \
  {                                                                                                                        \
    ELEM *r = dst;                                                                                                         \
    const ELEM *x = a, *y = b;                                                                                             \
    const T p = scalar_##T(sa), q = scalar_##T(sb);                                                                        \
    TT_VECTOR_LOOP                                                                                                         \
    for (size_t i = 0; i < n; i++) {                                                                                       \
      r[i] = fin_##T(OP##_##T(prod_##T(x[i], p), prod_##T(y[i], q)));                                                      \
    }                                                                                                                      \
  }                                                                                                                        \
  static void fold3_##OP##_##T(void *dst, const void *a, const void *b, const void *c, size_t n)                           \
  {                                                                                                                        \
    ELEM *r = dst;                                                                                                         \
    const ELEM *x = a, *y = b, *z = c;                                                                                     \
    TT_VECTOR_LOOP                                                                                                         \
    for (size_t i = 0; i < n; i++) {                                                                                       \
      r[i] = fin_##T(OP##_##T(OP##_##T(x[i], y[i]), z[i]));                                                                \
    }                                                                                                                      \
  }                                                                                                                        \
  static void fold4_##OP##_##T(void *dst, const void *a, const void *b, const void *c, const void *d, size_t n)            \
  {                                                                                                                        \
    ELEM *r = dst;                                                                                                         \
    const ELEM *x = a, *y = b, *z = c, *w = d;                                                                             \
    TT_VECTOR_LOOP                                                                                                         \
    for (size_t i = 0; i < n; i++) {                                                                                       \
      r[i] = fin_##T(OP##_##T(OP##_##T(OP##_##T(x[i], y[i]), z[i]), w[i]));                                                \
    }                                                                                                                      \
  }                                                                                                                        \
  static void step_##OP##_##T(void *acc, const void *src, const uint64_t *s, size_t n)                                     \
  {                                                                                                                        \
    ELEM *r = acc;                                                                                                         \
    const ELEM *x = src;                                                                                                   \
    const T p = scalar_##T(s);                                                                                             \
    TT_VECTOR_LOOP                                                                                                         \
    for (size_t i = 0; i < n; i++) {                                                                                       \
      r[i] = OP##_##T(r[i], prod_##T(x[i], p));                                                                            \
    }                                                                                                                      \
  }

#define WIDE_TYPE(T, ELEM)                                                      \
  WIDE_OP(T, ELEM, sum)                                                         \
  WIDE_OP(T, ELEM, prod)                                                        \
  WIDE_OP(T, ELEM, max)                                                         \
  WIDE_OP(T, ELEM, min)                                                         \
  static void open_##T(void *acc, const void *src, const uint64_t *s, size_t n) \
  {                                                                             \
    ELEM *r = acc;                                                              \
    const ELEM *x = src;                                                        \
    const T p = scalar_##T(s);                                                  \
    TT_VECTOR_LOOP                                                              \
    for (size_t i = 0; i < n; i++) {                                            \
      r[i] = prod_##T(x[i], p);                                                 \
    }                                                                           \
  }                                                                             \
  static void close_##T(void *dst, const void *acc, size_t n)                   \
  {                                                                             \
    ELEM *r = dst;                                                              \
    const ELEM *x = acc;                                                        \
    TT_VECTOR_LOOP                                                              \
    for (size_t i = 0; i < n; i++) {                                            \
      r[i] = fin_##T(x[i]);                                                     \
    }                                                                           \
  }

WIDE_TYPE(int8_t, tt_i8)
WIDE_TYPE(uint8_t, tt_u8)
WIDE_TYPE(int32_t, tt_i32)
WIDE_TYPE(uint32_t, tt_u32)
WIDE_TYPE(int64_t, tt_i64)
WIDE_TYPE(uint64_t, tt_u64)
WIDE_TYPE(float, tt_f32)
WIDE_TYPE(double, tt_f64)

// ---- Division by a number known only at run time, as a multiplication (Granlund and Montgomery, "Division by invariant integers
// using multiplication", 1994, figure 4.1). `shift` is ceil(log2 d) - 1; exact for every numerator ----

typedef struct tt_div {
  uint64_t mul;
  int shift;
} tt_div;

TT_INLINE tt_div div_make(uint32_t d, int bits)
{
  int log = 32 - __builtin_clz(d - 1); // d >= 2
  unsigned __int128 num = (((unsigned __int128)1 << log) - d) << bits;
  return (tt_div){(uint64_t)(num / d) + 1, log - 1};
}

TT_INLINE uint32_t div_u32(uint32_t x, tt_div d)
{
  uint32_t hi = (uint32_t)((x * (uint64_t)(uint32_t)d.mul) >> 32);
  return (hi + ((x - hi) >> 1)) >> d.shift;
}

TT_INLINE uint64_t div_u64(uint64_t x, tt_div d)
{
  uint64_t hi = (uint64_t)(((unsigned __int128)x * d.mul) >> 64);
  return (hi + ((x - hi) >> 1)) >> d.shift;
}

TT_INLINE int32_t div_i32(int32_t x, tt_div d)
{
  uint32_t sign = x < 0 ? ~0U : 0, q = div_u32(((uint32_t)x ^ sign) - sign, d);
  return (int32_t)((q ^ sign) - sign);
}

TT_INLINE int64_t div_i64(int64_t x, tt_div d)
{
  uint64_t sign = x < 0 ? ~0ULL : 0, q = div_u64(((uint64_t)x ^ sign) - sign, d);
  return (int64_t)((q ^ sign) - sign);
}

#define DIVIDE(T, ELEM, FN, BITS)                               \
  static void divide_##T(void *dst, size_t n, uint32_t divisor) \
  {                                                             \
    ELEM *r = dst;                                              \
    const tt_div d = div_make(divisor, BITS);                   \
    for (size_t i = 0; i < n; i++) {                            \
      r[i] = (T)FN(r[i], d);                                    \
    }                                                           \
  }

DIVIDE(int8_t, tt_i8, div_i32, 32)
DIVIDE(uint8_t, tt_u8, div_u32, 32)
DIVIDE(int32_t, tt_i32, div_i32, 32)
DIVIDE(uint32_t, tt_u32, div_u32, 32)
DIVIDE(int64_t, tt_i64, div_i64, 64)
DIVIDE(uint64_t, tt_u64, div_u64, 64)

// ---- Kernels of the narrow types. The conversions and the operation come as constants, which inlining removes ----

typedef tt_vf tt_ld_fn(const void *p);
typedef void tt_st_fn(void *p, tt_vf v);
typedef tt_vf tt_op_fn(tt_vf x, tt_vf y);

typedef struct tt_narrow_type {
  tt_ld_fn *ld;
  tt_st_fn *st;
  float (*scalar)(const uint64_t *s);
  size_t size;
} tt_narrow_type;

TT_INLINE void narrow_chunks(tt_narrow_type t, tt_op_fn *op, uint8_t *r, const uint8_t *x, const uint8_t *y, size_t bytes, bool nt)
{
  for (size_t i = 0; i < bytes; i += TT_CHUNK) {
    _Alignas(TT_LINE) uint8_t chunk[TT_CHUNK];
    uint8_t *to = nt ? chunk : r + i;
    chunk_ahead(x + i, y + i);
    TT_VECTOR_LOOP
    for (size_t k = 0; k < TT_CHUNK; k += TT_W * t.size) {
      t.st(to + k, op(t.ld(x + i + k), t.ld(y + i + k)));
    }
    if (nt) {
      stream_chunk(r + i, chunk);
    }
  }
}

TT_INLINE void narrow_fold2(tt_narrow_type t, tt_op_fn *op, void *dst, const void *a, const void *b, size_t n)
{
  uint8_t *r = dst;
  const uint8_t *x = a, *y = b;
  size_t i = n * t.size < TT_LONG_LOOP ? 0 : n & ~(TT_CHUNK / t.size - 1);
  narrow_chunks(t, op, r, x, y, i * t.size, false);
  TT_VECTOR_LOOP
  for (; i + (TT_W - 1) < n; i += TT_W) {
    t.st(r + i * t.size, op(t.ld(x + i * t.size), t.ld(y + i * t.size)));
  }
  if (TT_W > 1 && i < n) {
    uint8_t p[64], q[64];
    size_t rest = (n - i) * t.size;
    tt_tail_in(p, x + i * t.size, rest);
    tt_tail_in(q, y + i * t.size, rest);
    t.st(p, op(t.ld(p), t.ld(q)));
    tt_tail_out(r + i * t.size, p, rest);
  }
}

// Two sources and their scalars: what fold2s gets besides its destination.
typedef struct tt_scaled_pair {
  const uint8_t *x, *y;
  tt_vf p, q;
} tt_scaled_pair;

TT_INLINE void narrow_fold2s(tt_narrow_type t, tt_op_fn *op, uint8_t *r, tt_scaled_pair s, size_t n)
{
  size_t i = 0;
  TT_VECTOR_LOOP
  for (; i + (TT_W - 1) < n; i += TT_W) {
    t.st(r + i * t.size, op(tt_vf_prod(t.ld(s.x + i * t.size), s.p), tt_vf_prod(t.ld(s.y + i * t.size), s.q)));
  }
  if (TT_W > 1 && i < n) {
    uint8_t p[64], q[64];
    size_t rest = (n - i) * t.size;
    tt_tail_in(p, s.x + i * t.size, rest);
    tt_tail_in(q, s.y + i * t.size, rest);
    t.st(p, op(tt_vf_prod(t.ld(p), s.p), tt_vf_prod(t.ld(q), s.q)));
    tt_tail_out(r + i * t.size, p, rest);
  }
}

// acc = acc op src * p; without `op`, acc = src * p.
TT_INLINE void narrow_step(tt_narrow_type t, tt_op_fn *op, float *acc, const uint8_t *x, tt_vf p, size_t n)
{
  size_t i = 0;
  TT_VECTOR_LOOP
  for (; i + (TT_W - 1) < n; i += TT_W) {
    tt_vf v = tt_vf_prod(t.ld(x + i * t.size), p);
    tt_vf_store(acc + i, op ? op(tt_vf_load(acc + i), v) : v);
  }
  if (TT_W > 1 && i < n) {
    uint8_t q[64];
    tt_tail_in(q, x + i * t.size, (n - i) * t.size);
    tt_vf v = tt_vf_prod(t.ld(q), p);
    tt_vf_store(acc + i, op ? op(tt_vf_load(acc + i), v) : v);
  }
}

TT_INLINE void narrow_close(tt_narrow_type t, uint8_t *r, const float *acc, size_t n)
{
  size_t i = 0;
  TT_VECTOR_LOOP
  for (; i + (TT_W - 1) < n; i += TT_W) {
    t.st(r + i * t.size, tt_vf_load(acc + i));
  }
  if (TT_W > 1 && i < n) {
    uint8_t p[64];
    t.st(p, tt_vf_load(acc + i));
    tt_tail_out(r + i * t.size, p, (n - i) * t.size);
  }
}

#define NARROW_OP(T, OP)                                                                                                   \
  static void fold2_##OP##_##T(void *dst, const void *a, const void *b, size_t n)                                          \
  {                                                                                                                        \
    narrow_fold2(TYPE_##T, tt_vf_##OP, dst, a, b, n);                                                                      \
  }                                                                                                                        \
  static void fold2nt_##OP##_##T(void *dst, const void *a, const void *b, size_t n)                                        \
  {                                                                                                                        \
    narrow_chunks(TYPE_##T, tt_vf_##OP, dst, a, b, n *TYPE_##T.size, true);                                                \
  }                                                                                                                        \
  static void fold2s_##OP##_##T(void *dst, const void *a, const void *b, const uint64_t *sa, const uint64_t *sb, size_t n) \
  {                                                                                                                        \
    const tt_scaled_pair s = {a, b, tt_vf_set(scalar_##T(sa)), tt_vf_set(scalar_##T(sb))};                                 \
    narrow_fold2s(TYPE_##T, tt_vf_##OP, dst, s, n);                                                                        \
  }                                                                                                                        \
  static void step_##OP##_##T(void *acc, const void *src, const uint64_t *s, size_t n)                                     \
  {                                                                                                                        \
    narrow_step(TYPE_##T, tt_vf_##OP, acc, src, tt_vf_set(scalar_##T(s)), n);                                              \
  }

#define NARROW_TYPE(T, CODE)                                                    \
  TT_INLINE float scalar_##T(const uint64_t *s)                                 \
  {                                                                             \
    return s ? tt_f32_from_##T((CODE)*s) : 1.0F;                                \
  }                                                                             \
  NARROW_OP(T, sum)                                                             \
  NARROW_OP(T, prod)                                                            \
  NARROW_OP(T, max)                                                             \
  NARROW_OP(T, min)                                                             \
  static void open_##T(void *acc, const void *src, const uint64_t *s, size_t n) \
  {                                                                             \
    narrow_step(TYPE_##T, NULL, acc, src, tt_vf_set(scalar_##T(s)), n);         \
  }                                                                             \
  static void close_##T(void *dst, const void *acc, size_t n)                   \
  {                                                                             \
    narrow_close(TYPE_##T, dst, acc, n);                                        \
  }

#define TYPE_f16 ((tt_narrow_type){tt_ld_f16, tt_st_f16, NULL, 2})
#define TYPE_bf16 ((tt_narrow_type){tt_ld_bf16, tt_st_bf16, NULL, 2})
#define TYPE_e4m3 ((tt_narrow_type){tt_ld_e4m3, tt_st_e4m3, NULL, 1})
#define TYPE_e5m2 ((tt_narrow_type){tt_ld_e5m2, tt_st_e5m2, NULL, 1})

NARROW_TYPE(f16, uint16_t)
NARROW_TYPE(bf16, uint16_t)
NARROW_TYPE(e4m3, uint8_t)
NARROW_TYPE(e5m2, uint8_t)

// ---- Streaming copy ----

// Whole lines of the destination go around the caches; the partial ones at its ends do not.
static void stream(void *dst, const void *src, size_t bytes)
{
  uint8_t *d = dst;
  const uint8_t *s = src;
  size_t head = -(uintptr_t)d % TT_LINE;
  head = head < bytes ? head : bytes;
  memcpy(d, s, head);
  size_t i = head;
  for (; i + TT_LINE <= bytes; i += TT_LINE) {
    __builtin_prefetch(s + i + TT_AHEAD);
    stream_line(d + i, s + i);
  }
  memcpy(d + i, s + i, bytes - i);
}

static void fence(void)
{
#ifdef __SSE2__
  _mm_sfence();
#endif
}

// ---- The table ----

#define ROW4(F, T)                                      \
  {                                                     \
    F##_sum_##T, F##_prod_##T, F##_max_##T, F##_min_##T \
  }
#define FOLD2_ROWS(T) ROW4(fold2, T), ROW4(fold2nt, T), ROW4(fold2s, T)
#define ACC_ROWS(T) open_##T, ROW4(step, T), close_##T
#define WIDE_ROW(T, DIV)                                                                  \
  {                                                                                       \
    sizeof(T), sizeof(T), FOLD2_ROWS(T), ROW4(fold3, T), ROW4(fold4, T), ACC_ROWS(T), DIV \
  }
#define NARROW_ROW(T, SIZE)                                               \
  {                                                                       \
    SIZE, sizeof(float), FOLD2_ROWS(T), {NULL}, {NULL}, ACC_ROWS(T), NULL \
  }

#define TT_PASTE2(a, b) a##b
#define TT_PASTE(a, b) TT_PASTE2(a, b)
#define TT_TEXT2(a) #a
#define TT_TEXT(a) TT_TEXT2(a)

const tt_kernels TT_PASTE(tt_kernels_, TT_ISA) = {
    .name = TT_TEXT(TT_ISA),
    .rows =
        {
            [ncclInt8] = WIDE_ROW(int8_t, divide_int8_t),
            [ncclUint8] = WIDE_ROW(uint8_t, divide_uint8_t),
            [ncclInt32] = WIDE_ROW(int32_t, divide_int32_t),
            [ncclUint32] = WIDE_ROW(uint32_t, divide_uint32_t),
            [ncclInt64] = WIDE_ROW(int64_t, divide_int64_t),
            [ncclUint64] = WIDE_ROW(uint64_t, divide_uint64_t),
            [ncclFloat16] = NARROW_ROW(f16, 2),
            [ncclFloat32] = WIDE_ROW(float, NULL),
            [ncclFloat64] = WIDE_ROW(double, NULL),
            [ncclBfloat16] = NARROW_ROW(bf16, 2),
            [ncclFloat8e4m3] = NARROW_ROW(e4m3, 1),
            [ncclFloat8e5m2] = NARROW_ROW(e5m2, 1),
        },
    .stream = stream,
    .fence = fence,
};
