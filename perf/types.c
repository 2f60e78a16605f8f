#include "types.h"

#include "nccl.h"

#include <math.h>
#include <string.h>

static const perf_type infos[] = {
#define SIGNED PERF_SIGNED, false
#define UNSIGNED PERF_UNSIGNED, false
#define FLOATING PERF_FLOATING, false
#define FINITE PERF_FLOATING, true
#define T(id, word, bytes, cls, exponent, mantissa, kernels) [nccl##id] = {bytes, cls, exponent, mantissa},
#include "base/types.def"
};
_Static_assert(sizeof infos / sizeof infos[0] == ncclNumTypes, "one row per type");

const perf_type *perf_type_info(int type)
{
  return &infos[type];
}

// Largest finite pattern without sign.
static uint64_t greatest(const perf_type *t)
{
  uint64_t ones = ((uint64_t)1 << (t->exponent_bits + t->mantissa_bits)) - 1;
  return t->finite_only ? ones - 1 : ones - ((uint64_t)1 << t->mantissa_bits);
}

uint64_t perf_encode(int type, double v)
{
  const perf_type *t = &infos[type];
  int bias = (1 << (t->exponent_bits - 1)) - 1;
  uint64_t sign = signbit(v) ? (uint64_t)1 << (t->exponent_bits + t->mantissa_bits) : 0;
  double a = fabs(v);
  if (a == 0) {
    return sign;
  }
  int e;
  frexp(a, &e);
  // Below: subnormal, all with the exponent of the least normal value.
  int exponent = e - 1 < 1 - bias ? 1 - bias : e - 1;
  if (isinf(v) || exponent > bias + 1) {
    return sign | (greatest(t) + !t->finite_only);
  }
  double units = nearbyint(ldexp(a, t->mantissa_bits - exponent)); // default rounding mode: nearest, ties to even
  // Pattern of the exponent plus the units: a carry out of the mantissa gives the next exponent by itself.
  uint64_t hidden = (uint64_t)1 << t->mantissa_bits;
  uint64_t bits = ((uint64_t)(exponent + bias) << t->mantissa_bits) + (uint64_t)units - hidden;
  if (bits > greatest(t)) {
    bits = greatest(t) + !t->finite_only;
  }
  return sign | bits;
}

double perf_decode(int type, uint64_t bits)
{
  const perf_type *t = &infos[type];
  if (t->cls != PERF_FLOATING) {
    return t->cls == PERF_SIGNED ? (double)perf_extend(type, bits) : (double)(uint64_t)perf_extend(type, bits);
  }
  int bias = (1 << (t->exponent_bits - 1)) - 1;
  uint64_t hidden = (uint64_t)1 << t->mantissa_bits;
  uint64_t mantissa = bits & (hidden - 1);
  int exponent = (int)(bits >> t->mantissa_bits) & ((1 << t->exponent_bits) - 1);
  bool negative = bits >> (t->exponent_bits + t->mantissa_bits) & 1;
  uint64_t magnitude = bits & ((hidden << t->exponent_bits) - 1);
  double a;
  if (magnitude > greatest(t)) {
    a = !t->finite_only && mantissa == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    a = ldexp((double)mantissa, 1 - bias - t->mantissa_bits);
  } else {
    a = ldexp((double)(mantissa + hidden), exponent - bias - t->mantissa_bits);
  }
  return negative ? -a : a;
}

double perf_exact_integers(int type)
{
  return ldexp(1, infos[type].mantissa_bits + 1);
}

uint64_t perf_load(const void *array, size_t i, size_t size)
{
  uint64_t bits = 0;
  memcpy(&bits, (const char *)array + i * size, size);
  return bits;
}

void perf_store(void *array, size_t i, size_t size, uint64_t bits)
{
  memcpy((char *)array + i * size, &bits, size);
}

int64_t perf_extend(int type, uint64_t bits)
{
  unsigned shift = 64 - 8u * infos[type].size;
  uint64_t up = bits << shift;
  return infos[type].cls == PERF_SIGNED ? (int64_t)up >> shift : (int64_t)(up >> shift);
}
