// reduce.h: elementwise reduction kernels for host memory: all types, all operations, several sources and destinations
// at once.
//
// One set of kernels per instruction set, chosen once per process (NCCL_HOST_ISA overrides): avx512bf16 (AVX-512 with
// VBMI and BF16), avx512 (F, BW, DQ, VL), avx2 (with FMA and F16C), plain. All sets give the same bits, and an
// element's result depends on its operands alone, not on its place or on the length of the call. Half, bfloat16 and
// fp8: a scaled source is multiplied in float and rounded to the type, so that it is the same whether a peer scaled it
// and sent it or it is scaled here. Then all sources of one call are accumulated in float and rounded once (to nearest
// even). Integers wrap. fp8 results saturate: what is too large, infinity too, becomes the largest finite value (e4m3
// 448, e5m2 57344), as with CUDA's __NV_SATFINITE. A NaN in any source gives a NaN, for min and max too; every NaN that
// was computed has all bits but the sign set (0x7fffffff, 0x7fff, 0x7f). -0 is smaller than +0: max of both is +0 and
// min is -0, in any order. One source that is neither scaled nor divided is copied bit by bit.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "tutti.h"

typedef enum { TT_RED_SUM, TT_RED_PROD, TT_RED_MAX, TT_RED_MIN } tt_red_kind;
// The kinds of the bitwise and of the logical operations.
typedef enum { TT_RED_AND, TT_RED_OR, TT_RED_XOR } tt_red_bit_kind;

// Rows of kernels: one for the arithmetic of each type, one for the bits of all types, one for each type's truth.
enum { TT_RED_BITS = ncclNumTypes, TT_RED_TRUTH, TT_RED_ROWS = TT_RED_TRUTH + ncclNumTypes };

// The operation of one call, as the kernels need it.
typedef struct tt_redop {
  uint8_t type;      // row of kernels: ncclDataType_t; of bitwise operations TT_RED_BITS; of logical ones TT_RED_TRUTH
                     // and the ncclDataType_t on top of it
  uint8_t kind;      // tt_red_kind; of bitwise and logical operations tt_red_bit_kind
  uint8_t prescale;  // sources marked by `scale` are multiplied by their scalar first
  uint8_t shift;     // bitwise operations: log2 of an element's bytes, which the kernels count; else 0
  uint32_t divisor;  // final integer division (avg of integers); 0 or 1: none. Of a logical operation of one rank 2:
                     // the final step makes 0 or 1 of an element
  uint64_t scalar;   // own pre-scaling factor, in the bits of `type` (low bytes)
  tuttiRedOpFn_t fn; // a program's function, which combines elements of `type`, with `arg`; NULL: kernels do
  void *arg;
} tt_redop;

// Fills `op` for an operation that is no handle (base/opcode.h), and is one of the type's. Avg of floating types
// pre-scales by 1/nranks (rounded to the type), avg of integers divides at the end, as NCCL does. Avg over one rank
// does neither.
void tt_redop_builtin(tt_redop *op, ncclDataType_t type, ncclRedOp_t red, int nranks);

enum {
  TT_REDUCE_FINAL = 1, // apply op->divisor, towards zero
  TT_REDUCE_STREAM =
      2, // the destinations will not be read soon: non-temporal stores where they pay (a copy; several destinations;
         // two sources to one destination; never into a source), complete when the call returns
  TT_REDUCE_KEEP_FIRST = 4, // with the former, and several destinations: but the first one will be read soon
};

// dst[j][i] = post(op over k of pre_k(src[k][i])) for i < count, k < nsrc (nsrc >= 1), j < ndst (ndst >= 1), folded in
// the order of k; by a program's function from the last one on, so that each of its calls makes a longer end of the
// row. scale: NULL, or nsrc pointers to a scalar of op->type (NULL entry: not scaled); looked at only if
// op->prescale. A destination may be identical to a source (same address), never partly overlap one. No alignment is
// required, elements need not be aligned to their size. Never fails. Any thread.
void tt_reduce(const tt_redop *op, int ndst, void *const *dst, int nsrc, const void *const *src,
               const uint64_t *const *scale, size_t count, unsigned flags);

// Copies `bytes` to every destination. flags: TT_REDUCE_STREAM. Source and destination do not overlap, or are the same.
void tt_copy(int ndst, void *const *dst, const void *src, size_t bytes, unsigned flags);
