// alu_quick.h: the instructions of which kernels have most. The interpreter's loop has each of them inline; ptx_alu.run
// of such an instruction is the function alu_run_NAME around the same lines (alu_int.c and others).
#ifndef TUTTI_TESTS_CUDASIM_ALU_QUICK_H
#define TUTTI_TESTS_CUDASIM_ALU_QUICK_H

#include "alu_priv.h"

// Those with one result.
#define ALU_QUICK(Q) Q(add) Q(sub) Q(mul) Q(and) Q(or) Q(xor) Q(not ) Q(shl) Q(shr) Q(selp)

#define ALU_QUICK_RUN(name) alu_run alu_run_##name;
typedef void alu_run(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[]);
ALU_QUICK(ALU_QUICK_RUN)
alu_run alu_run_setp; // of integers, without another predicate

// Of a comparison, ALU_OP is the set of orders (1 << less, equal, greater, from 0 on) that make it true.
static inline bool alu_compare_ints(const struct ptx_alu *alu, uint64_t a, uint64_t b)
{
  uint64_t bias = (uint64_t)alu->detail[ALU_SIGNED] << (alu->detail[ALU_BITS] - 1);
  a ^= bias;
  b ^= bias;
  return alu->detail[ALU_OP] >> ((a >= b) + (a > b)) & 1;
}

// The operands that an instruction has not are not looked at.
#define ALU_BODY(name) static inline uint64_t alu_##name(const struct ptx_alu *alu, uint64_t a, uint64_t b, uint64_t c)

ALU_BODY(add)
{
  (void)c;
  return (a + b) & alu_mask(alu->detail[ALU_BITS]);
}

ALU_BODY(sub)
{
  (void)c;
  return (a - b) & alu_mask(alu->detail[ALU_BITS]);
}

// The bits of the product that .lo, .hi and .wide select.
ALU_BODY(mul)
{
  int bits = alu->detail[ALU_BITS], flags = alu->detail[ALU_FLAGS];
  (void)c;
  a = alu_extend(a, bits, alu->detail[ALU_SIGNED]);
  b = alu_extend(b, bits, alu->detail[ALU_SIGNED]);
  if (flags & ALU_WIDE)
    return (a * b) & alu_mask(2 * bits);
  if (!(flags & ALU_HI))
    return (a * b) & alu_mask(bits);
  if (bits < 64)
    return (a * b) >> bits & alu_mask(bits);
  uint64_t high = (uint64_t)((alu_wide)a * b >> 64);
  if (alu->detail[ALU_SIGNED]) // a negative factor was taken as 2^64 more than it is
    high -= ((int64_t)a < 0 ? b : 0) + ((int64_t)b < 0 ? a : 0);
  return high;
}

ALU_BODY(and)
{
  (void)alu, (void)c;
  return a & b;
}

ALU_BODY(or)
{
  (void)alu, (void)c;
  return a | b;
}

ALU_BODY(xor)
{
  (void)alu, (void)c;
  return a ^ b;
}

ALU_BODY(not )
{
  (void)b, (void)c;
  return ~a & alu_mask(alu->detail[ALU_BITS]);
}

// Counts above the width are as the width: nothing of the value, or of its sign, is left.
ALU_BODY(shl)
{
  int bits = alu->detail[ALU_BITS];
  (void)c;
  return b >= (unsigned)bits ? 0 : a << b & alu_mask(bits);
}

ALU_BODY(shr)
{
  int bits = alu->detail[ALU_BITS];
  unsigned most = alu->detail[ALU_SIGNED] ? (unsigned)bits - 1 : (unsigned)bits;
  unsigned count = b < most ? (unsigned)b : most;
  (void)c;
  if (alu->detail[ALU_SIGNED])
    return (uint64_t)((int64_t)alu_extend(a, bits, true) >> count) & alu_mask(bits);
  return count == 64 ? 0 : a >> count;
}

ALU_BODY(selp)
{
  (void)alu;
  return c ? a : b;
}

// Defines alu_run_NAME.
#define ALU_RUN(name)                                                                 \
  void alu_run_##name(const struct ptx_alu *alu, const uint64_t in[], uint64_t out[]) \
  {                                                                                   \
    out[0] = alu_##name(alu, in[0], in[1], in[2]);                                    \
  }

#endif
