// reduce_element.h: what a reduction makes of one or two elements, in the type that it is folded in: for the kernels of
// every device, which give the same bits by it.
//
// Plain C without a library, of the part that C and C++ have in common: compilers for GPUs read it too.
#pragma once
#include "device/reduce_convert.h"

// ---- Operations of the wide types: <op>_<type>(a, b), fin_<type>(result), scalar_<type>(s). What max and min give
// needs no finish ----

#define INT_OPS(T, UNSIGNED)                \
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

// What compilers make of `a > b ? a : b` takes `b` of two zeros. The maximum has a sign only if `a` has one, the
// minimum has one if `a` has one: that is so of all other numbers anyway. So two operations on bits make +0 the larger
// zero, in any order.
#define SIGN_OPS(T, BITS)               \
  TT_INLINE T max_sign_##T(T r, T a)    \
  {                                     \
    BITS x, y;                          \
    __builtin_memcpy(&x, &r, sizeof x); \
    __builtin_memcpy(&y, &a, sizeof y); \
    x &= y | (BITS)-1 >> 1;             \
    __builtin_memcpy(&r, &x, sizeof r); \
    return r;                           \
  }                                     \
  TT_INLINE T min_sign_##T(T r, T a)    \
  {                                     \
    BITS x, y;                          \
    __builtin_memcpy(&x, &r, sizeof x); \
    __builtin_memcpy(&y, &a, sizeof y); \
    x |= y & ~((BITS)-1 >> 1);          \
    __builtin_memcpy(&r, &x, sizeof r); \
    return r;                           \
  }

#define FLOAT_OPS(T, NAN_T, BITS)          \
  TT_INLINE T sum_##T(T a, T b)            \
  {                                        \
    return a + b;                          \
  }                                        \
  TT_INLINE T prod_##T(T a, T b)           \
  {                                        \
    return a * b;                          \
  }                                        \
  SIGN_OPS(T, BITS)                        \
  TT_INLINE T max_##T(T a, T b)            \
  {                                        \
    T r = max_sign_##T(a > b ? a : b, a);  \
    return TT_UNORDERED(a, b) ? NAN_T : r; \
  }                                        \
  TT_INLINE T min_##T(T a, T b)            \
  {                                        \
    T r = min_sign_##T(a < b ? a : b, a);  \
    return TT_UNORDERED(a, b) ? NAN_T : r; \
  }                                        \
  TT_INLINE T fin_##T(T a)                 \
  {                                        \
    return a != a ? NAN_T : a;             \
  }

// The result of an operation, finished.
#define RESULT_sum(T, A, B) fin_##T(sum_##T(A, B))
#define RESULT_prod(T, A, B) fin_##T(prod_##T(A, B))
#define RESULT_max(T, A, B) max_##T(A, B)
#define RESULT_min(T, A, B) min_##T(A, B)

INT_OPS(int8_t, uint32_t)
INT_OPS(uint8_t, uint32_t)
INT_OPS(int32_t, uint32_t)
INT_OPS(uint32_t, uint32_t)
INT_OPS(int64_t, uint64_t)
INT_OPS(uint64_t, uint64_t)
FLOAT_OPS(float, TT_NAN_F32, uint32_t)
FLOAT_OPS(double, TT_NAN_F64, uint64_t)

TT_INLINE float scalar_float(const uint64_t *s)
{
  return s ? tt_f32_of_bits((uint32_t)*s) : 1.0F;
}

TT_INLINE double scalar_double(const uint64_t *s)
{
  double d = 1;
  if (s) {
    __builtin_memcpy(&d, s, sizeof d);
  }
  return d;
}

// ---- Division by a number known only at run time, as a multiplication (Granlund and Montgomery, "Division by
// invariant integers using multiplication", 1994, figure 4.1). `shift` is ceil(log2 d) - 1; exact for every numerator
// ----

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

// ---- Logical operations: of codes ----

// What makes an element true: its bits, without the sign of a floating type.
#define TT_TRUTH_MASK(bytes, exponent) (UINT64_MAX >> (64 - 8 * (bytes) + ((exponent) > 0)))
// The code of 1.
#define TT_TRUTH_ONE(exponent, mantissa) \
  ((exponent) > 0 ? ((UINT64_C(1) << ((exponent) > 0 ? (exponent)-1 : 0)) - 1) << (mantissa) : 1)
