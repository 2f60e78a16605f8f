// cuda_fp8.h: numbers of 8 bits on the host: e4m3 (4 bits of exponent, no infinity, up to 448) and e5m2 (5 bits, up to
// 57344). C and C++ have the conversions __nv_cvt_*; C++ also has the types, alone, in pairs and in fours, which
// saturate. Results are those of CUDA's header on the host.
#ifndef HOSTCUDA_CUDA_FP8_H_
#define HOSTCUDA_CUDA_FP8_H_

#include "cuda_bf16.h"
#include "cuda_fp16.h"

#define __CUDA_FP8_H__
#define __CUDA_FP8_TYPES_EXIST__

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short int __nv_fp8x2_storage_t;
typedef unsigned int __nv_fp8x4_storage_t;

// What is too large becomes infinity (e5m2) or NaN (e4m3), or the largest finite number.
typedef enum __nv_saturation_t {
  __NV_NOSAT = 0,
  __NV_SATFINITE = 1,
} __nv_saturation_t;

typedef enum __nv_fp8_interpretation_t {
  __NV_E4M3 = 0,
  __NV_E5M2 = 1,
} __nv_fp8_interpretation_t;

// ---- Conversions; of pairs, x becomes the low byte ----

static inline hostcudaFormat hostcudaFp8(__nv_fp8_interpretation_t kind)
{
  return kind == __NV_E4M3 ? hostcudaE4m3() : hostcudaE5m2();
}

static inline __nv_fp8_storage_t hostcudaToFp8(hostcudaNumber number, __nv_saturation_t saturate,
                                               __nv_fp8_interpretation_t kind)
{
  return (__nv_fp8_storage_t)hostcudaRound(hostcudaFp8(kind), number, cudaRoundNearest, saturate == __NV_SATFINITE);
}

// Unlike a float's, a NaN keeps its sign, and in e5m2 the second bit of its mantissa.
static inline __nv_fp8_storage_t __nv_cvt_double_to_fp8(const double x, const __nv_saturation_t saturate,
                                                        const __nv_fp8_interpretation_t kind)
{
  hostcudaNumber number = hostcudaOfDouble(x);
  if (number.special != 2) {
    return hostcudaToFp8(number, saturate, kind);
  }
  unsigned code = kind == __NV_E4M3 ? 0x7f : 0x7e | (unsigned)(number.mantissa >> 50 & 1);
  return (__nv_fp8_storage_t)(code | (number.negative ? 0x80 : 0));
}

static inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(const float x, const __nv_saturation_t saturate,
                                                       const __nv_fp8_interpretation_t kind)
{
  return hostcudaToFp8(hostcudaOfDouble(x), saturate, kind);
}

static inline __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(const __half_raw x, const __nv_saturation_t saturate,
                                                         const __nv_fp8_interpretation_t kind)
{
  return hostcudaToFp8(hostcudaOfDouble(hostcudaValue(hostcudaHalf(), x.x)), saturate, kind);
}

static inline __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(const __nv_bfloat16_raw x,
                                                             const __nv_saturation_t saturate,
                                                             const __nv_fp8_interpretation_t kind)
{
  return hostcudaToFp8(hostcudaOfDouble(hostcudaValueOfBfloat16(x.x)), saturate, kind);
}

static inline __nv_fp8x2_storage_t hostcudaFp8x2(__nv_fp8_storage_t low, __nv_fp8_storage_t high)
{
  return (__nv_fp8x2_storage_t)(low | high << 8);
}

static inline __nv_fp8x2_storage_t __nv_cvt_double2_to_fp8x2(const double2 x, const __nv_saturation_t saturate,
                                                             const __nv_fp8_interpretation_t kind)
{
  return hostcudaFp8x2(__nv_cvt_double_to_fp8(x.x, saturate, kind), __nv_cvt_double_to_fp8(x.y, saturate, kind));
}

static inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(const float2 x, const __nv_saturation_t saturate,
                                                            const __nv_fp8_interpretation_t kind)
{
  return hostcudaFp8x2(__nv_cvt_float_to_fp8(x.x, saturate, kind), __nv_cvt_float_to_fp8(x.y, saturate, kind));
}

static inline __nv_fp8x2_storage_t __nv_cvt_halfraw2_to_fp8x2(const __half2_raw x, const __nv_saturation_t saturate,
                                                              const __nv_fp8_interpretation_t kind)
{
  __half_raw low = {x.x}, high = {x.y};
  return hostcudaFp8x2(__nv_cvt_halfraw_to_fp8(low, saturate, kind), __nv_cvt_halfraw_to_fp8(high, saturate, kind));
}

static inline __nv_fp8x2_storage_t __nv_cvt_bfloat16raw2_to_fp8x2(const __nv_bfloat162_raw x,
                                                                  const __nv_saturation_t saturate,
                                                                  const __nv_fp8_interpretation_t kind)
{
  __nv_bfloat16_raw low = {x.x}, high = {x.y};
  return hostcudaFp8x2(__nv_cvt_bfloat16raw_to_fp8(low, saturate, kind),
                       __nv_cvt_bfloat16raw_to_fp8(high, saturate, kind));
}

// Exact. A NaN becomes 0x7fff.
static inline __half_raw __nv_cvt_fp8_to_halfraw(const __nv_fp8_storage_t x, const __nv_fp8_interpretation_t kind)
{
  double value = hostcudaValue(hostcudaFp8(kind), x);
  __half_raw raw = {(unsigned short)hostcudaRound(hostcudaHalf(), hostcudaOfDouble(value), cudaRoundNearest, 0)};
  return raw;
}

static inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(const __nv_fp8x2_storage_t x, const __nv_fp8_interpretation_t kind)
{
  __half2_raw raw;
  raw.x = __nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)x, kind).x;
  raw.y = __nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)(x >> 8), kind).x;
  return raw;
}

// ---- The types of C++ ----

#ifdef __cplusplus

// One number, two, and four of a kind. Conversions are explicit. To integers: towards zero, the nearest one of the
// type.
#define HOSTCUDA_FP8_OF(name, kind, type, of) \
  explicit name(const type value) : __x(hostcudaToFp8(of(value), __NV_SATFINITE, kind)) {}
#define HOSTCUDA_FP8_TO(type)                   \
  explicit operator type() const                \
  {                                             \
    return hostcudaInteger<type>(float(*this)); \
  }
#define HOSTCUDA_FP8_INTEGER(name, kind, type, of) \
  HOSTCUDA_FP8_OF(name, kind, type, of)            \
  HOSTCUDA_FP8_TO(type)

#define HOSTCUDA_FP8(name, kind)                                                                                \
  struct name {                                                                                                 \
    __nv_fp8_storage_t __x;                                                                                     \
                                                                                                                \
    name() = default;                                                                                           \
    explicit name(const __half value) : __x(__nv_cvt_halfraw_to_fp8(value, __NV_SATFINITE, kind)) {}            \
    explicit name(const __nv_bfloat16 value) : __x(__nv_cvt_bfloat16raw_to_fp8(value, __NV_SATFINITE, kind)) {} \
    HOSTCUDA_FP8_OF(name, kind, float, hostcudaOfDouble)                                                        \
    explicit name(const double value) : __x(__nv_cvt_double_to_fp8(value, __NV_SATFINITE, kind)) {}             \
    HOSTCUDA_FP8_INTEGER(name, kind, short, hostcudaOfSigned)                                                   \
    HOSTCUDA_FP8_INTEGER(name, kind, unsigned short, hostcudaOfUnsigned)                                        \
    HOSTCUDA_FP8_INTEGER(name, kind, int, hostcudaOfSigned)                                                     \
    HOSTCUDA_FP8_INTEGER(name, kind, unsigned int, hostcudaOfUnsigned)                                          \
    HOSTCUDA_FP8_INTEGER(name, kind, long, hostcudaOfSigned)                                                    \
    HOSTCUDA_FP8_INTEGER(name, kind, unsigned long, hostcudaOfUnsigned)                                         \
    HOSTCUDA_FP8_INTEGER(name, kind, long long, hostcudaOfSigned)                                               \
    HOSTCUDA_FP8_INTEGER(name, kind, unsigned long long, hostcudaOfUnsigned)                                    \
    HOSTCUDA_FP8_TO(char)                                                                                       \
    HOSTCUDA_FP8_TO(signed char)                                                                                \
    HOSTCUDA_FP8_TO(unsigned char)                                                                              \
    explicit operator __half() const                                                                            \
    {                                                                                                           \
      return __half(__nv_cvt_fp8_to_halfraw(__x, kind));                                                        \
    }                                                                                                           \
    explicit operator __nv_bfloat16() const                                                                     \
    {                                                                                                           \
      return __float2bfloat16(float(*this));                                                                    \
    }                                                                                                           \
    explicit operator float() const                                                                             \
    {                                                                                                           \
      return hostcudaValue(hostcudaFp8(kind), __x);                                                             \
    }                                                                                                           \
    explicit operator double() const                                                                            \
    {                                                                                                           \
      return double(float(*this));                                                                              \
    }                                                                                                           \
    explicit operator bool() const                                                                              \
    {                                                                                                           \
      return (__x & 0x7f) != 0;                                                                                 \
    }                                                                                                           \
  };
#define HOSTCUDA_FP8X2(name, kind)                                                                          \
  struct __attribute__((aligned(2))) name {                                                                 \
    __nv_fp8x2_storage_t __x;                                                                               \
                                                                                                            \
    name() = default;                                                                                       \
    explicit name(const __half2 v) : __x(__nv_cvt_halfraw2_to_fp8x2(v, __NV_SATFINITE, kind)) {}            \
    explicit name(const __nv_bfloat162 v) : __x(__nv_cvt_bfloat16raw2_to_fp8x2(v, __NV_SATFINITE, kind)) {} \
    explicit name(const float2 v) : __x(__nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, kind)) {}               \
    explicit name(const double2 v) : __x(__nv_cvt_double2_to_fp8x2(v, __NV_SATFINITE, kind)) {}             \
    explicit operator __half2() const                                                                       \
    {                                                                                                       \
      return __half2(__nv_cvt_fp8x2_to_halfraw2(__x, kind));                                                \
    }                                                                                                       \
    explicit operator float2() const                                                                        \
    {                                                                                                       \
      return __half22float2(__half2(*this));                                                                \
    }                                                                                                       \
  };
#define HOSTCUDA_FP8X4(name, pair)                                                                          \
  struct __attribute__((aligned(4))) name {                                                                 \
    __nv_fp8x4_storage_t __x;                                                                               \
                                                                                                            \
    name() = default;                                                                                       \
    explicit name(const __half2 low, const __half2 high) : __x(of(pair(low), pair(high))) {}                \
    explicit name(const __nv_bfloat162 low, const __nv_bfloat162 high) : __x(of(pair(low), pair(high))) {}  \
    explicit name(const float4 v) : __x(of(pair(make_float2(v.x, v.y)), pair(make_float2(v.z, v.w)))) {}    \
    explicit name(const double4 v) : __x(of(pair(make_double2(v.x, v.y)), pair(make_double2(v.z, v.w)))) {} \
    explicit operator float4() const                                                                        \
    {                                                                                                       \
      pair low, high;                                                                                       \
      low.__x = (__nv_fp8x2_storage_t)__x;                                                                  \
      high.__x = (__nv_fp8x2_storage_t)(__x >> 16);                                                         \
      float2 a = float2(low), b = float2(high);                                                             \
      return make_float4(a.x, a.y, b.x, b.y);                                                               \
    }                                                                                                       \
                                                                                                            \
  private:                                                                                                  \
    static __nv_fp8x4_storage_t of(pair low, pair high)                                                     \
    {                                                                                                       \
      return low.__x | (__nv_fp8x4_storage_t)high.__x << 16;                                                \
    }                                                                                                       \
  };

HOSTCUDA_FP8(__nv_fp8_e4m3, __NV_E4M3)
HOSTCUDA_FP8(__nv_fp8_e5m2, __NV_E5M2)
HOSTCUDA_FP8X2(__nv_fp8x2_e4m3, __NV_E4M3)
HOSTCUDA_FP8X2(__nv_fp8x2_e5m2, __NV_E5M2)
HOSTCUDA_FP8X4(__nv_fp8x4_e4m3, __nv_fp8x2_e4m3)
HOSTCUDA_FP8X4(__nv_fp8x4_e5m2, __nv_fp8x2_e5m2)
#undef HOSTCUDA_FP8_OF
#undef HOSTCUDA_FP8_TO
#undef HOSTCUDA_FP8_INTEGER
#undef HOSTCUDA_FP8
#undef HOSTCUDA_FP8X2
#undef HOSTCUDA_FP8X4

#endif

#endif
