// hostcuda_half.h: the C++ type of a 16-bit number, its pair, and all functions of both. cuda_fp16.h and cuda_bf16.h
// include it, once each, with these macros, which it undefines; without them it is empty. HC_CONVERSIONS and
// HC_OPERATORS, HC_OPERATORS2 (of pairs) are left out where the program asks for it, as with NVIDIA's headers.
//
//   HC_WORD    the type's name within those of functions: half, bfloat16
//   HC_T HC_T2 HC_RAW HC_RAW2   the types: __half, __half2, __half_raw, __half2_raw
//   HC_OTHER   the other 16-bit type
//   HC_FORMAT  its row of hostcuda_floats.h
//   HC_VALUE   the float of a code
#include "hostcuda_floats.h"

#if defined(HC_WORD) && defined(__cplusplus)

#define HC_JOIN_(a, b, c) a##b##c
#define HC_JOIN(a, b, c) HC_JOIN_(a, b, c)
#define HC_NAME(before, after) HC_JOIN(before, HC_WORD, after)
#define HC_NAME2_(a, b, c, d, e) a##b##c##d##e
#define HC_NAME2(before, w, between, after) HC_NAME2_(before, w, between, w, after)

struct HC_OTHER;
struct HC_T;

static inline HC_T HC_NAME(__float2, )(const float a);
static inline HC_T HC_NAME(__double2, )(const double a);
static inline float HC_NAME(__, 2float)(const HC_T a);

// ---- The number and its pair ----

struct __attribute__((aligned(2))) HC_T {
protected:
  unsigned short __x;

public:
  HC_T() = default;
  constexpr HC_T(const HC_RAW &raw) : __x(raw.x) {}
  HC_T &operator=(const HC_RAW &raw)
  {
    __x = raw.x;
    return *this;
  }
  volatile HC_T &operator=(const HC_RAW &raw) volatile
  {
    __x = raw.x;
    return *this;
  }
  volatile HC_T &operator=(const volatile HC_RAW &raw) volatile
  {
    __x = raw.x;
    return *this;
  }
  operator HC_RAW() const
  {
    HC_RAW raw = {__x};
    return raw;
  }
  operator HC_RAW() const volatile
  {
    HC_RAW raw = {__x};
    return raw;
  }
#if HC_CONVERSIONS
  explicit HC_T(const HC_OTHER other);
  HC_T(const float value) : __x(HC_RAW(HC_NAME(__float2, )(value)).x) {}
  HC_T(const double value) : __x(HC_RAW(HC_NAME(__double2, )(value)).x) {}
  HC_T &operator=(const float value)
  {
    return *this = HC_T(value);
  }
  HC_T &operator=(const double value)
  {
    return *this = HC_T(value);
  }
  operator float() const
  {
    return HC_VALUE(__x);
  }
  constexpr operator bool() const
  {
    return (__x & 0x7fff) != 0;
  }
  operator char() const
  {
    return hostcudaInteger<char>(HC_VALUE(__x));
  }
  operator signed char() const
  {
    return hostcudaInteger<signed char>(HC_VALUE(__x));
  }
  operator unsigned char() const
  {
    return hostcudaInteger<unsigned char>(HC_VALUE(__x));
  }
// To and from one type of integers.
#define HC_INTEGER(type, of)                                                                                \
  HC_T(const type value) : __x((unsigned short)hostcudaRound(HC_FORMAT, of(value), cudaRoundNearest, 0)) {} \
  operator type() const                                                                                     \
  {                                                                                                         \
    return hostcudaInteger<type>(HC_VALUE(__x));                                                            \
  }                                                                                                         \
  HC_T &operator=(const type value)                                                                         \
  {                                                                                                         \
    return *this = HC_T(value);                                                                             \
  }
  HC_INTEGER(short, hostcudaOfSigned)
  HC_INTEGER(unsigned short, hostcudaOfUnsigned)
  HC_INTEGER(int, hostcudaOfSigned)
  HC_INTEGER(unsigned int, hostcudaOfUnsigned)
  HC_INTEGER(long, hostcudaOfSigned)
  HC_INTEGER(unsigned long, hostcudaOfUnsigned)
  HC_INTEGER(long long, hostcudaOfSigned)
  HC_INTEGER(unsigned long long, hostcudaOfUnsigned)
#undef HC_INTEGER
#endif
};

struct __attribute__((aligned(4))) HC_T2 {
  HC_T x;
  HC_T y;

  HC_T2() = default;
  constexpr HC_T2(const HC_T &a, const HC_T &b) : x(a), y(b) {}
  HC_T2(const HC_RAW2 &raw) : x(HC_RAW{raw.x}), y(HC_RAW{raw.y}) {}
  HC_T2 &operator=(const HC_RAW2 &raw)
  {
    return *this = HC_T2(raw);
  }
  operator HC_RAW2() const
  {
    HC_RAW2 raw = {HC_RAW(x).x, HC_RAW(y).x};
    return raw;
  }
};

static inline HC_T HC_NAME(hostcudaRoundTo, )(hostcudaNumber number, enum cudaRoundMode mode)
{
  HC_RAW raw = {(unsigned short)hostcudaRound(HC_FORMAT, number, mode, 0)};
  return HC_T(raw);
}

// ---- From and to other numbers ----

// In all four ways to round: _rn, _rz, _rd, _ru.
#define HC_FROM(type, word, of)                                 \
  static inline HC_T HC_NAME(__##word##2, _rn)(const type a)    \
  {                                                             \
    return HC_NAME(hostcudaRoundTo, )(of(a), cudaRoundNearest); \
  }                                                             \
  static inline HC_T HC_NAME(__##word##2, _rz)(const type a)    \
  {                                                             \
    return HC_NAME(hostcudaRoundTo, )(of(a), cudaRoundZero);    \
  }                                                             \
  static inline HC_T HC_NAME(__##word##2, _rd)(const type a)    \
  {                                                             \
    return HC_NAME(hostcudaRoundTo, )(of(a), cudaRoundMinInf);  \
  }                                                             \
  static inline HC_T HC_NAME(__##word##2, _ru)(const type a)    \
  {                                                             \
    return HC_NAME(hostcudaRoundTo, )(of(a), cudaRoundPosInf);  \
  }
#define HC_TO(type, word)                                    \
  static inline type HC_NAME(__, 2##word##_rz)(const HC_T a) \
  {                                                          \
    return hostcudaInteger<type>(HC_NAME(__, 2float)(a));    \
  }

HC_FROM(float, float, hostcudaOfDouble)
HC_FROM(short, short, hostcudaOfSigned)
HC_FROM(unsigned short, ushort, hostcudaOfUnsigned)
HC_FROM(int, int, hostcudaOfSigned)
HC_FROM(unsigned int, uint, hostcudaOfUnsigned)
HC_FROM(long long, ll, hostcudaOfSigned)
HC_FROM(unsigned long long, ull, hostcudaOfUnsigned)
HC_TO(signed char, char)
HC_TO(unsigned char, uchar)
HC_TO(short, short)
HC_TO(unsigned short, ushort)
HC_TO(int, int)
HC_TO(unsigned int, uint)
HC_TO(long long, ll)
HC_TO(unsigned long long, ull)
#undef HC_FROM
#undef HC_TO

static inline HC_T HC_NAME(__float2, )(const float a)
{
  return HC_NAME(hostcudaRoundTo, )(hostcudaOfDouble(a), cudaRoundNearest);
}

static inline HC_T HC_NAME(__double2, )(const double a)
{
  return HC_NAME(hostcudaRoundTo, )(hostcudaOfDouble(a), cudaRoundNearest);
}

static inline float HC_NAME(__, 2float)(const HC_T a)
{
  return HC_VALUE(HC_RAW(a).x);
}

static inline short HC_NAME(__, _as_short)(const HC_T a)
{
  return (short)HC_RAW(a).x;
}

static inline unsigned short HC_NAME(__, _as_ushort)(const HC_T a)
{
  return HC_RAW(a).x;
}

static inline HC_T HC_NAME(__ushort_as_, )(const unsigned short code)
{
  HC_RAW raw = {code};
  return HC_T(raw);
}

static inline HC_T HC_NAME(__short_as_, )(const short code)
{
  return HC_NAME(__ushort_as_, )((unsigned short)code);
}

// ---- Pairs: x is the low half, y the high one ----

static inline HC_T2 HC_NAME(make_, 2)(const HC_T x, const HC_T y)
{
  return HC_T2(x, y);
}

static inline HC_T2 HC_NAME(__halves2, 2)(const HC_T low, const HC_T high)
{
  return HC_T2(low, high);
}

static inline HC_T2 HC_NAME2(__, HC_WORD, 2, 2)(const HC_T a)
{
  return HC_T2(a, a);
}

static inline HC_T2 HC_NAME(__float2, 2_rn)(const float a)
{
  return HC_T2(HC_NAME(__float2, )(a), HC_NAME(__float2, )(a));
}

static inline HC_T2 HC_NAME(__floats2, 2_rn)(const float low, const float high)
{
  return HC_T2(HC_NAME(__float2, )(low), HC_NAME(__float2, )(high));
}

static inline HC_T2 HC_NAME(__float22, 2_rn)(const float2 a)
{
  return HC_NAME(__floats2, 2_rn)(a.x, a.y);
}

static inline float2 HC_NAME(__, 22float2)(const HC_T2 a)
{
  float2 f = {HC_NAME(__, 2float)(a.x), HC_NAME(__, 2float)(a.y)};
  return f;
}

static inline float __low2float(const HC_T2 a)
{
  return HC_NAME(__, 2float)(a.x);
}

static inline float __high2float(const HC_T2 a)
{
  return HC_NAME(__, 2float)(a.y);
}

static inline HC_T HC_NAME(__low2, )(const HC_T2 a)
{
  return a.x;
}

static inline HC_T HC_NAME(__high2, )(const HC_T2 a)
{
  return a.y;
}

static inline HC_T2 HC_NAME(__low2, 2)(const HC_T2 a)
{
  return HC_T2(a.x, a.x);
}

static inline HC_T2 HC_NAME(__high2, 2)(const HC_T2 a)
{
  return HC_T2(a.y, a.y);
}

static inline HC_T2 HC_NAME(__lows2, 2)(const HC_T2 a, const HC_T2 b)
{
  return HC_T2(a.x, b.x);
}

static inline HC_T2 HC_NAME(__highs2, 2)(const HC_T2 a, const HC_T2 b)
{
  return HC_T2(a.y, b.y);
}

static inline HC_T2 __lowhigh2highlow(const HC_T2 a)
{
  return HC_T2(a.y, a.x);
}

// ---- Arithmetic: in float, then rounded ----

// Clamped to [0, 1]; a NaN becomes 0.
static inline HC_T hostcudaSaturated(const HC_T a)
{
  float f = HC_NAME(__, 2float)(a);
  return f > 1 ? HC_NAME(__float2, )(1) : f > 0 ? a : HC_NAME(__float2, )(0);
}

// The function of numbers, of pairs, and both under the name that forbids contraction (which nobody does here).
#define HC_ARITHMETIC(name, operator)                                                   \
  static inline HC_T __h##name(const HC_T a, const HC_T b)                              \
  {                                                                                     \
    return HC_NAME(__float2, )(HC_NAME(__, 2float)(a) operator HC_NAME(__, 2float)(b)); \
  }
#define HC_ARITHMETIC2(name)                                     \
  static inline HC_T2 __h##name##2(const HC_T2 a, const HC_T2 b) \
  {                                                              \
    return HC_T2(__h##name(a.x, b.x), __h##name(a.y, b.y));      \
  }
#define HC_VARIANTS(name)                                               \
  static inline HC_T __h##name##_rn(const HC_T a, const HC_T b)         \
  {                                                                     \
    return __h##name(a, b);                                             \
  }                                                                     \
  static inline HC_T2 __h##name##2_rn(const HC_T2 a, const HC_T2 b)     \
  {                                                                     \
    return __h##name##2(a, b);                                          \
  }                                                                     \
  static inline HC_T __h##name##_sat(const HC_T a, const HC_T b)        \
  {                                                                     \
    return hostcudaSaturated(__h##name(a, b));                          \
  }                                                                     \
  static inline HC_T2 __h##name##2_sat(const HC_T2 a, const HC_T2 b)    \
  {                                                                     \
    return HC_T2(__h##name##_sat(a.x, b.x), __h##name##_sat(a.y, b.y)); \
  }

HC_ARITHMETIC(add, +)
HC_ARITHMETIC(sub, -)
HC_ARITHMETIC(mul, *)
HC_ARITHMETIC(div, /)
HC_ARITHMETIC2(add)
HC_ARITHMETIC2(sub)
HC_ARITHMETIC2(mul)
HC_VARIANTS(add)
HC_VARIANTS(sub)
HC_VARIANTS(mul)
#undef HC_ARITHMETIC
#undef HC_VARIANTS

static inline HC_T2 __h2div(const HC_T2 a, const HC_T2 b)
{
  return HC_T2(__hdiv(a.x, b.x), __hdiv(a.y, b.y));
}

static inline HC_T __hneg(const HC_T a)
{
  return HC_NAME(__float2, )(-HC_NAME(__, 2float)(a));
}

static inline HC_T __habs(const HC_T a)
{
  float f = HC_NAME(__, 2float)(a);
  return HC_RAW(a).x > 0x7fff ? HC_NAME(__float2, )(-f) : HC_NAME(__float2, )(f);
}

static inline HC_T2 __hneg2(const HC_T2 a)
{
  return HC_T2(__hneg(a.x), __hneg(a.y));
}

static inline HC_T2 __habs2(const HC_T2 a)
{
  return HC_T2(__habs(a.x), __habs(a.y));
}

// ---- Comparisons ----

static inline bool __hisnan(const HC_T a)
{
  return (HC_RAW(a).x & 0x7fff) > HC_FORMAT.overflow;
}

static inline int __hisinf(const HC_T a)
{
  return (HC_RAW(a).x & 0x7fff) != HC_FORMAT.overflow ? 0 : HC_RAW(a).x > 0x7fff ? -1 : 1;
}

static inline HC_T2 __hisnan2(const HC_T2 a)
{
  return HC_NAME(__floats2, 2_rn)(__hisnan(a.x), __hisnan(a.y));
}

// One comparison: of numbers; of pairs as 1 or 0, as ones or zeros in 16 bits each, and whether both hold.
#define HC_COMPARE(name, holds)                                                           \
  static inline bool __h##name(const HC_T a, const HC_T b)                                \
  {                                                                                       \
    float u = HC_NAME(__, 2float)(a), v = HC_NAME(__, 2float)(b);                         \
    return holds;                                                                         \
  }                                                                                       \
  static inline HC_T2 __h##name##2(const HC_T2 a, const HC_T2 b)                          \
  {                                                                                       \
    return HC_NAME(__floats2, 2_rn)(__h##name(a.x, b.x), __h##name(a.y, b.y));            \
  }                                                                                       \
  static inline unsigned int __h##name##2_mask(const HC_T2 a, const HC_T2 b)              \
  {                                                                                       \
    return (__h##name(a.x, b.x) ? 0xffffu : 0) | (__h##name(a.y, b.y) ? 0xffff0000u : 0); \
  }                                                                                       \
  static inline bool __hb##name##2(const HC_T2 a, const HC_T2 b)                          \
  {                                                                                       \
    return __h##name(a.x, b.x) && __h##name(a.y, b.y);                                    \
  }

HC_COMPARE(eq, u == v)
HC_COMPARE(ne, u<v || u> v)
HC_COMPARE(le, u <= v)
HC_COMPARE(ge, u >= v)
HC_COMPARE(lt, u < v)
HC_COMPARE(gt, u > v)
// With a NaN these hold.
HC_COMPARE(equ, !(u < v || u > v))
HC_COMPARE(neu, u != v)
HC_COMPARE(leu, !(u > v))
HC_COMPARE(geu, !(u < v))
HC_COMPARE(ltu, !(u >= v))
HC_COMPARE(gtu, !(u <= v))
#undef HC_COMPARE

// The larger and the smaller one, with -0 below +0. One NaN: the other number; with _nan, and of two NaNs: the
// canonical NaN.
#define HC_EXTREME(name, first)                                                                       \
  static inline HC_T __h##name##_nan(const HC_T a, const HC_T b)                                      \
  {                                                                                                   \
    if (__hisnan(a) || __hisnan(b)) {                                                                 \
      return HC_NAME(__ushort_as_, )(0x7fff);                                                         \
    }                                                                                                 \
    float u = HC_NAME(__, 2float)(a), v = HC_NAME(__, 2float)(b);                                     \
    bool tie = u == v, minus = HC_RAW(a).x > 0x7fff;                                                  \
    return (tie ? minus == (first) : first != (u > v)) ? a : b;                                       \
  }                                                                                                   \
  static inline HC_T __h##name(const HC_T a, const HC_T b)                                            \
  {                                                                                                   \
    return __hisnan(a) && !__hisnan(b) ? b : __hisnan(b) && !__hisnan(a) ? a : __h##name##_nan(a, b); \
  }                                                                                                   \
  static inline HC_T2 __h##name##2_nan(const HC_T2 a, const HC_T2 b)                                  \
  {                                                                                                   \
    return HC_T2(__h##name##_nan(a.x, b.x), __h##name##_nan(a.y, b.y));                               \
  }

HC_EXTREME(max, false)
HC_EXTREME(min, true)
HC_ARITHMETIC2(max)
HC_ARITHMETIC2(min)
#undef HC_EXTREME
#undef HC_ARITHMETIC2

// ---- Operators ----

#define HC_OPERATE(type, op, function)                         \
  static inline type operator op(const type &a, const type &b) \
  {                                                            \
    return function(a, b);                                     \
  }                                                            \
  static inline type &operator op##=(type &a, const type &b)   \
  {                                                            \
    return a = function(a, b);                                 \
  }
#define HC_STEP(type, op, function, one)             \
  static inline type &operator op(type &a)           \
  {                                                  \
    return a = function(a, one);                     \
  }                                                  \
  static inline type operator op(type &a, const int) \
  {                                                  \
    type before = a;                                 \
    a = function(a, one);                            \
    return before;                                   \
  }
#define HC_SIGN(type, op, result)               \
  static inline type operator op(const type &a) \
  {                                             \
    return result;                              \
  }
#define HC_RELATE(type, op, function)                          \
  static inline bool operator op(const type &a, const type &b) \
  {                                                            \
    return function(a, b);                                     \
  }

#if HC_OPERATORS
HC_OPERATE(HC_T, +, __hadd)
HC_OPERATE(HC_T, -, __hsub)
HC_OPERATE(HC_T, *, __hmul)
HC_OPERATE(HC_T, /, __hdiv)
HC_STEP(HC_T, ++, __hadd, HC_NAME(__float2, )(1))
HC_STEP(HC_T, --, __hsub, HC_NAME(__float2, )(1))
HC_SIGN(HC_T, +, a)
HC_SIGN(HC_T, -, __hneg(a))
HC_RELATE(HC_T, ==, __heq)
HC_RELATE(HC_T, !=, __hneu)
HC_RELATE(HC_T, <, __hlt)
HC_RELATE(HC_T, >, __hgt)
HC_RELATE(HC_T, <=, __hle)
HC_RELATE(HC_T, >=, __hge)
#endif
#if HC_OPERATORS2
HC_OPERATE(HC_T2, +, __hadd2)
HC_OPERATE(HC_T2, -, __hsub2)
HC_OPERATE(HC_T2, *, __hmul2)
HC_OPERATE(HC_T2, /, __h2div)
HC_STEP(HC_T2, ++, __hadd2, HC_NAME(__float2, 2_rn)(1))
HC_STEP(HC_T2, --, __hsub2, HC_NAME(__float2, 2_rn)(1))
HC_SIGN(HC_T2, +, a)
HC_SIGN(HC_T2, -, __hneg2(a))
HC_RELATE(HC_T2, ==, __hbeq2)
HC_RELATE(HC_T2, !=, __hbneu2)
HC_RELATE(HC_T2, <, __hblt2)
HC_RELATE(HC_T2, >, __hbgt2)
HC_RELATE(HC_T2, <=, __hble2)
HC_RELATE(HC_T2, >=, __hbge2)
#endif

#undef HC_OPERATE
#undef HC_STEP
#undef HC_SIGN
#undef HC_RELATE
#undef HC_JOIN_
#undef HC_JOIN
#undef HC_NAME
#undef HC_NAME2_
#undef HC_NAME2
#undef HC_WORD
#undef HC_T
#undef HC_T2
#undef HC_RAW
#undef HC_RAW2
#undef HC_OTHER
#undef HC_FORMAT
#undef HC_VALUE
#undef HC_CONVERSIONS
#undef HC_OPERATORS
#undef HC_OPERATORS2

#endif
