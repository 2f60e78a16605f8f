// hostcuda_floats.h: half, bfloat16 and fp8 from and to wider numbers: what cuda_fp16.h, cuda_bf16.h and cuda_fp8.h are
// made of.
//
// One table row per format and one rounding for all. The results, those of NaNs and of what is too large included, are
// the ones that CUDA's headers give on the host. Pure functions, for any thread; nothing fails.
#ifndef HOSTCUDA_FLOATS_H_
#define HOSTCUDA_FLOATS_H_

#include <string.h>

#include "device_types.h"

// A format: sign, exponent, `mantissa` bits below it. Codes are without the sign.
typedef struct hostcudaFormat {
  int mantissa;
  int bias;          // of the exponent
  unsigned largest;  // the code of the largest finite number
  unsigned overflow; // what larger ones become: infinity; in a format without one, NaN
  unsigned nan;      // what a NaN becomes; it loses its sign
  unsigned sign;     // the sign's bit
} hostcudaFormat;

// A number before it is rounded: ±mantissa × 2^exponent.
typedef struct hostcudaNumber {
  int negative;
  unsigned long long mantissa;
  int exponent;
  int special; // 0: finite; 1: infinity; 2: NaN
} hostcudaNumber;

static inline hostcudaFormat hostcudaHalf(void)
{
  hostcudaFormat format = {10, 15, 0x7bff, 0x7c00, 0x7fff, 0x8000};
  return format;
}

static inline hostcudaFormat hostcudaBfloat16(void)
{
  hostcudaFormat format = {7, 127, 0x7f7f, 0x7f80, 0x7fff, 0x8000};
  return format;
}

static inline hostcudaFormat hostcudaE4m3(void)
{
  hostcudaFormat format = {3, 7, 0x7e, 0x7f, 0x7f, 0x80};
  return format;
}

static inline hostcudaFormat hostcudaE5m2(void)
{
  hostcudaFormat format = {2, 15, 0x7b, 0x7c, 0x7f, 0x80};
  return format;
}

static inline hostcudaNumber hostcudaOfDouble(double value)
{
  hostcudaNumber number;
  unsigned long long bits;
  memcpy(&bits, &value, sizeof bits);
  int exponent = (int)(bits >> 52 & 0x7ff);
  number.negative = (int)(bits >> 63);
  number.mantissa = bits & 0xfffffffffffffULL;
  number.special = exponent < 0x7ff ? 0 : number.mantissa == 0 ? 1 : 2;
  if (exponent > 0) {
    number.mantissa |= 1ULL << 52;
  }
  number.exponent = (exponent > 0 ? exponent : 1) - 1075;
  return number;
}

static inline hostcudaNumber hostcudaOfUnsigned(unsigned long long value)
{
  hostcudaNumber number = {0, 0, 0, 0};
  number.mantissa = value;
  return number;
}

static inline hostcudaNumber hostcudaOfSigned(long long value)
{
  hostcudaNumber number = hostcudaOfUnsigned(value < 0 ? 0 - (unsigned long long)value : (unsigned long long)value);
  number.negative = value < 0;
  return number;
}

// `mantissa` without its lowest `drop` bits, and one more where these bits are rounded upwards (in magnitude).
static inline unsigned long long hostcudaShift(unsigned long long mantissa, int drop, enum cudaRoundMode mode,
                                               int negative)
{
  if (drop <= 0) {
    return mantissa << -drop;
  }
  // Beyond 64 bits nothing is kept, and what is dropped is below one half.
  unsigned long long kept = drop < 64 ? mantissa >> drop : 0;
  unsigned long long half = drop <= 64 ? 1ULL << (drop - 1) : ~0ULL;
  unsigned long long rest = drop < 64 ? mantissa & ((half << 1) - 1) : mantissa;
  switch (mode) {
  case cudaRoundNearest: return kept + (rest > half || (rest == half && (kept & 1) != 0));
  case cudaRoundPosInf: return kept + (rest != 0 && !negative);
  case cudaRoundMinInf: return kept + (rest != 0 && negative);
  default: return kept;
  }
}

// The code of a finite number's magnitude as if exponents had no end.
static inline unsigned hostcudaMagnitude(hostcudaFormat format, hostcudaNumber number, enum cudaRoundMode mode)
{
  if (number.mantissa == 0) {
    return 0;
  }
  int leading = number.exponent + 63 - __builtin_clzll(number.mantissa); // the exponent of the highest bit
  int least = 1 - format.bias;                                           // of normal numbers
  int base = leading < least ? least : leading;
  unsigned long long kept =
      hostcudaShift(number.mantissa, base - format.mantissa - number.exponent, mode, number.negative);
  // The implicit one of a normal number, kept's highest bit, counts as one in the exponent.
  return ((unsigned)(base - least) << format.mantissa) + (unsigned)kept;
}

// The code of `number` in the format. `saturate`: what is too large, infinity too, becomes the largest finite number.
static inline unsigned hostcudaRound(hostcudaFormat format, hostcudaNumber number, enum cudaRoundMode mode,
                                     int saturate)
{
  if (number.special == 2) {
    return format.nan;
  }
  unsigned code = number.special == 1 ? format.overflow : hostcudaMagnitude(format, number, mode);
  if (number.special == 1 || code > format.largest) {
    int inwards = mode == cudaRoundZero || mode == (number.negative ? cudaRoundPosInf : cudaRoundMinInf);
    code = saturate || (inwards && number.special == 0) ? format.largest : format.overflow;
  }
  return code | (number.negative ? format.sign : 0);
}

// The value of a code, exactly. Every NaN becomes 0x7fffffff. Not for bfloat16, whose codes are the upper halves of
// floats.
static inline float hostcudaValue(hostcudaFormat format, unsigned code)
{
  unsigned magnitude = code & (format.sign - 1), bits;
  float value;
  if (magnitude < 1u << format.mantissa) { // subnormal: a multiple of the smallest number
    bits = (unsigned)(128 - format.bias - format.mantissa) << 23;
    memcpy(&value, &bits, sizeof value);
    value *= (float)magnitude;
    memcpy(&bits, &value, sizeof bits);
  } else if (magnitude <= format.largest) {
    bits = (magnitude << (23 - format.mantissa)) + ((unsigned)(127 - format.bias) << 23);
  } else {
    bits = magnitude == format.overflow && format.overflow != format.nan ? 0x7f800000 : 0x7fffffff;
  }
  bits |= (code & format.sign) != 0 && bits != 0x7fffffff ? 0x80000000 : 0;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline float hostcudaValueOfBfloat16(unsigned short code)
{
  unsigned bits = (unsigned)code << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

#ifdef __cplusplus
// Towards zero; what is out of range becomes the nearest number of the type. A NaN becomes 0, in 64 bits only the
// highest bit.
template <class T> static inline T hostcudaInteger(float value)
{
  const bool has_sign = T(-1) < T(0);
  const T high = T(1ULL << (sizeof(T) * 8 - 1)), least = has_sign ? high : T(0), most = has_sign ? T(~high) : T(-1);
  if (value != value) {
    return sizeof(T) == 8 ? high : T(0);
  }
  float end = (float)(1ULL << (sizeof(T) * 8 - 1)) * (has_sign ? 1 : 2); // the first number beyond
  return value >= end ? most : value <= (has_sign ? -end : 0) ? least : T(value);
}
#endif

#endif
