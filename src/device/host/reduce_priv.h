// reduce_priv.h: the table that reduce_kernels.c gives once per instruction set, and how reduce.c, its test and its
// benchmark pick one.
//
// A kernel works on one contiguous run of elements and knows nothing of blocks, several destinations or streaming:
// reduce.c does that. No pointer has to be aligned. A destination may be identical to a source, or else not overlap it.
//
// "Narrow" types (half, bfloat16, fp8) give what folding in float and rounding once gives; all others are folded in
// their own type. A scaled source is rounded to the type before it is folded, in every kernel.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/reduce.h"

enum { TT_RED_TYPES = ncclNumTypes, TT_RED_KINDS = 4 };

// dst = a op b.
typedef void tt_fold2_fn(void *dst, const void *a, const void *b, size_t n);
// The same with non-temporal stores, to two destinations (dst2 NULL: one): aligned to a cache line, n elements are
// whole TT_RED_CHUNKs.
typedef void tt_fold2nt_fn(void *dst, void *dst2, const void *a, const void *b, size_t n);
// dst = a * *sa op b * *sb; a NULL scalar is one.
typedef void tt_fold2s_fn(void *dst, const void *a, const void *b, const uint64_t *sa, const uint64_t *sb, size_t n);
// Several sources: n elements of each, from byte `first` on; scale: NULL, or a scalar for each, of which NULL is one.
typedef struct tt_many {
  const void *const *src;
  const uint64_t *const *scale;
  int nsrc;
  size_t first;
} tt_many;
// dst = all of them folded in their order.
typedef void tt_many_fn(void *dst, const tt_many *sources, size_t n);
// dst = (a op b) op c, and so on.
typedef void tt_fold3_fn(void *dst, const void *a, const void *b, const void *c, size_t n);
typedef void tt_fold4_fn(void *dst, const void *a, const void *b, const void *c, const void *d, size_t n);
// Accumulator of a wide type: acc = src * *s; acc = acc op src * *s; dst = acc with NaNs as they should be.
typedef void tt_acc_src_fn(void *acc, const void *src, const uint64_t *s, size_t n);
typedef void tt_acc_close_fn(void *dst, const void *acc, size_t n);
// dst = dst / divisor, towards zero; divisor >= 2.
typedef void tt_divide_fn(void *dst, size_t n, uint32_t divisor);

enum { TT_RED_CHUNK = 256 }; // bytes

typedef struct tt_kernel_row {
  size_t size; // bytes of an element
  tt_fold2_fn *fold2[TT_RED_KINDS];
  tt_fold2nt_fn *fold2nt[TT_RED_KINDS]; // NULL from here on, but for `divide`, in the rows of logical operations
  tt_many_fn *many[TT_RED_KINDS];       // narrow types; NULL for the others
  tt_fold3_fn *fold3[TT_RED_KINDS];     // from here on: NULL for narrow types
  tt_fold4_fn *fold4[TT_RED_KINDS];
  tt_fold2s_fn *fold2s[TT_RED_KINDS]; // from here on: NULL for bitwise operations, which scale nothing
  tt_acc_src_fn *open, *step[TT_RED_KINDS];
  tt_acc_close_fn *close;
  tt_divide_fn *divide; // NULL for floating types; of logical operations: makes 0 or 1 of the elements
} tt_kernel_row;

typedef struct tt_kernels {
  const char *name;
  tt_kernel_row rows[TT_RED_ROWS];                          // index: tt_redop.type
  void (*stream)(void *dst, const void *src, size_t bytes); // copy with non-temporal stores, not fenced
  void (*fence)(void);                                      // orders those stores before later ones
} tt_kernels;

extern const tt_kernels tt_kernels_plain;
#ifdef __x86_64__
extern const tt_kernels tt_kernels_avx2, tt_kernels_avx512, tt_kernels_avx512bf16;
#endif

// Makes the named set ("avx512bf16", "avx512", "avx2", "plain") the process's, and returns its name; NULL: the best set
// of the machine. Returns NULL, and changes nothing, when the name is unknown or the machine lacks the set. Called at
// the first reduction; tests and benchmarks call it while no reduction runs.
const char *tt_reduce_select(const char *name);
