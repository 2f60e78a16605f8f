// reduce_kernels.c: compiled once per instruction set, with -DTT_ISA=plain|avx2|avx512|avx512bf16 and that set's
// compiler flags, always with -ffp-contract=off. Gives one table, tt_kernels_<isa>.
//
// Plain loops that compilers vectorise well serve the wide types; the narrow ones are in reduce_narrow.h. Every result
// that is a NaN becomes the NaN with all bits but the sign set: which of two NaNs an addition passes on would otherwise
// depend on how the compiler ordered its operands.
#include <string.h>

#include "device/host/reduce_isa.h"
#include "device/host/reduce_narrow.h"
#include "device/host/reduce_priv.h"
#include "device/reduce_element.h"

// Elements as they lie in users' memory: at any address.
#define TT_ELEMENT __attribute__((aligned(1), may_alias))
typedef int8_t tt_i8 TT_ELEMENT;
typedef uint8_t tt_u8 TT_ELEMENT;
typedef uint16_t tt_u16 TT_ELEMENT;
typedef int32_t tt_i32 TT_ELEMENT;
typedef uint32_t tt_u32 TT_ELEMENT;
typedef int64_t tt_i64 TT_ELEMENT;
typedef uint64_t tt_u64 TT_ELEMENT;
typedef float tt_f32 TT_ELEMENT;
typedef double tt_f64 TT_ELEMENT;

#define DIVIDE(T, ELEM, FN, BITS)                               \
  static void divide_##T(void *dst, size_t n, uint32_t divisor) \
  {                                                             \
    ELEM *r = dst;                                              \
    const tt_div d = div_make(divisor, BITS);                   \
    for (size_t i = 0; i < n; i++) {                            \
      r[i] = (T)FN(r[i], d);                                    \
    }                                                           \
  }

// ---- Kernels of the wide types ----

#define FOLD_OP(T, ELEM, OP)                                                                                    \
  TT_INLINE void chunks_##OP##_##T(ELEM *r, ELEM *r2, const ELEM *x, const ELEM *y, size_t n, bool nt)          \
  {                                                                                                             \
    enum { L = TT_CHUNK / sizeof(T) };                                                                          \
    for (size_t i = 0; i < n; i += L) {                                                                         \
      _Alignas(TT_LINE) T chunk[L];                                                                             \
      ELEM *to = nt ? chunk : r + i;                                                                            \
      chunk_ahead(x + i, y + i);                                                                                \
      TT_VECTOR_LOOP                                                                                            \
      for (size_t k = 0; k < L; k++) {                                                                          \
        to[k] = RESULT_##OP(T, x[i + k], y[i + k]);                                                             \
      }                                                                                                         \
      if (nt) {                                                                                                 \
        stream_chunk(r + i, chunk);                                                                             \
      }                                                                                                         \
      if (r2 != NULL) {                                                                                         \
        stream_chunk(r2 + i, chunk);                                                                            \
      }                                                                                                         \
    }                                                                                                           \
  }                                                                                                             \
  static void fold2_##OP##_##T(void *dst, const void *a, const void *b, size_t n)                               \
  {                                                                                                             \
    ELEM *r = dst;                                                                                              \
    const ELEM *x = a, *y = b;                                                                                  \
    size_t i = n < TT_LONG_LOOP / sizeof(T) ? 0 : n & ~(TT_CHUNK / sizeof(T) - 1);                              \
    chunks_##OP##_##T(r, NULL, x, y, i, false);                                                                 \
    TT_VECTOR_LOOP                                                                                              \
    for (; i < n; i++) {                                                                                        \
      r[i] = RESULT_##OP(T, x[i], y[i]);                                                                        \
    }                                                                                                           \
  }                                                                                                             \
  static void fold2nt_##OP##_##T(void *dst, void *dst2, const void *a, const void *b, size_t n)                 \
  {                                                                                                             \
    chunks_##OP##_##T(dst, dst2, a, b, n, true);                                                                \
  }                                                                                                             \
  static void fold3_##OP##_##T(void *dst, const void *a, const void *b, const void *c, size_t n)                \
  {                                                                                                             \
    ELEM *r = dst;                                                                                              \
    const ELEM *x = a, *y = b, *z = c;                                                                          \
    TT_VECTOR_LOOP                                                                                              \
    for (size_t i = 0; i < n; i++) {                                                                            \
      r[i] = RESULT_##OP(T, OP##_##T(x[i], y[i]), z[i]);                                                        \
    }                                                                                                           \
  }                                                                                                             \
  static void fold4_##OP##_##T(void *dst, const void *a, const void *b, const void *c, const void *d, size_t n) \
  {                                                                                                             \
    ELEM *r = dst;                                                                                              \
    const ELEM *x = a, *y = b, *z = c, *w = d;                                                                  \
    TT_VECTOR_LOOP                                                                                              \
    for (size_t i = 0; i < n; i++) {                                                                            \
      r[i] = RESULT_##OP(T, OP##_##T(OP##_##T(x[i], y[i]), z[i]), w[i]);                                        \
    }                                                                                                           \
  }

#define SCALED_OP(T, ELEM, OP)                                                                                   \
  static void fold2s_##OP##_##T(void *dst, const void *a, const void *b, const uint64_t *sa, const uint64_t *sb, \
                                size_t n)                                                                        \
  {                                                                                                              \
    ELEM *r = dst;                                                                                               \
    const ELEM *x = a, *y = b;                                                                                   \
    const T p = scalar_##T(sa), q = scalar_##T(sb);                                                              \
    TT_VECTOR_LOOP                                                                                               \
    for (size_t i = 0; i < n; i++) {                                                                             \
      r[i] = RESULT_##OP(T, prod_##T(x[i], p), prod_##T(y[i], q));                                               \
    }                                                                                                            \
  }                                                                                                              \
  static void step_##OP##_##T(void *acc, const void *src, const uint64_t *s, size_t n)                           \
  {                                                                                                              \
    ELEM *r = acc;                                                                                               \
    const ELEM *x = src;                                                                                         \
    const T p = scalar_##T(s);                                                                                   \
    TT_VECTOR_LOOP                                                                                               \
    for (size_t i = 0; i < n; i++) {                                                                             \
      r[i] = OP##_##T(r[i], prod_##T(x[i], p));                                                                  \
    }                                                                                                            \
  }

#define WIDE_OP(T, ELEM, OP) FOLD_OP(T, ELEM, OP) SCALED_OP(T, ELEM, OP)

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

#define INT_TYPE(T, ELEM, DIV, BITS) \
  WIDE_TYPE(T, ELEM)                 \
  DIVIDE(T, ELEM, DIV, BITS)

INT_TYPE(int8_t, tt_i8, div_i32, 32)
INT_TYPE(uint8_t, tt_u8, div_u32, 32)
INT_TYPE(int32_t, tt_i32, div_i32, 32)
INT_TYPE(uint32_t, tt_u32, div_u32, 32)
INT_TYPE(int64_t, tt_i64, div_i64, 64)
INT_TYPE(uint64_t, tt_u64, div_u64, 64)
WIDE_TYPE(float, tt_f32)
WIDE_TYPE(double, tt_f64)

// ---- Bitwise operations: of bytes, whatever the type ----

#define RESULT_bitand(T, A, B) bitand_##T(A, B)
#define RESULT_bitor(T, A, B) bitor_##T(A, B)
#define RESULT_bitxor(T, A, B) bitxor_##T(A, B)

#define BIT_OP(OP, SIGN)                               \
  TT_INLINE uint8_t OP##_uint8_t(uint8_t a, uint8_t b) \
  {                                                    \
    return (uint8_t)(a SIGN b);                        \
  }                                                    \
  FOLD_OP(uint8_t, tt_u8, OP)

BIT_OP(bitand, &)
BIT_OP(bitor, |)
BIT_OP(bitxor, ^)

// ---- Logical operations: of codes. MASK has what makes an element true, ONE is the code of 1 ----

#define CODE_1 tt_u8
#define CODE_2 tt_u16
#define CODE_4 tt_u32
#define CODE_8 tt_u64

#define TRUTH_OP(ID, CODE, OP, SIGN, MASK, ONE)                                                 \
  static void fold2_##OP##_##ID(void *dst, const void *a, const void *b, size_t n)              \
  {                                                                                             \
    CODE *r = dst;                                                                              \
    const CODE *x = a, *y = b;                                                                  \
    TT_VECTOR_LOOP                                                                              \
    for (size_t i = 0; i < n; i++) {                                                            \
      r[i] = (((x[i] & (CODE)(MASK)) != 0) SIGN((y[i] & (CODE)(MASK)) != 0)) ? (CODE)(ONE) : 0; \
    }                                                                                           \
  }

#define TRUTH_TYPE(ID, CODE, MASK, ONE)                         \
  TRUTH_OP(ID, CODE, and, &, MASK, ONE)                         \
  TRUTH_OP(ID, CODE, or, |, MASK, ONE)                          \
  TRUTH_OP(ID, CODE, xor, ^, MASK, ONE)                         \
  static void truth_##ID(void *dst, size_t n, uint32_t divisor) \
  {                                                             \
    (void)divisor;                                              \
    fold2_or_##ID(dst, dst, dst, n);                            \
  }

#define T(id, word, bytes, cls, exponent, mantissa, kernels) \
  TRUTH_TYPE(id, CODE_##bytes, TT_TRUTH_MASK(bytes, exponent), TT_TRUTH_ONE(exponent, mantissa))
#include "base/types.def"

// ---- Streaming copy ----

// Whole lines of the destination go around the caches; the partial ones at its ends do not.
static void stream_copy(void *dst, const void *src, size_t bytes)
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
#define ROW3(F, T)                          \
  {                                         \
    F##and_##T, F##or_##T, F##xor_##T, NULL \
  }
#define FOLD2_ROWS(T) ROW4(fold2, T), ROW4(fold2nt, T)
#define ACC_ROWS(T) open_##T, ROW4(step, T), close_##T
#define WIDE_ROW(T, DIV)                                                                                \
  {                                                                                                     \
    sizeof(T), FOLD2_ROWS(T), {NULL}, ROW4(fold3, T), ROW4(fold4, T), ROW4(fold2s, T), ACC_ROWS(T), DIV \
  }
#define BITS_ROW                                                                         \
  {                                                                                      \
    .size = 1, .fold2 = ROW3(fold2_bit, uint8_t), .fold2nt = ROW3(fold2nt_bit, uint8_t), \
    .fold3 = ROW3(fold3_bit, uint8_t), .fold4 = ROW3(fold4_bit, uint8_t)                 \
  }
#define TRUTH_ROW(ID, BYTES)                                         \
  {                                                                  \
    .size = (BYTES), .fold2 = ROW3(fold2_, ID), .divide = truth_##ID \
  }
#define NARROW_ROW(T, SIZE)                                                              \
  {                                                                                      \
    SIZE, FOLD2_ROWS(T), ROW4(many, T), {NULL}, {NULL}, {NULL}, NULL, {NULL}, NULL, NULL \
  }

#define TT_PASTE2(a, b) a##b
#define TT_PASTE(a, b) TT_PASTE2(a, b)
#define TT_TEXT2(a) #a
#define TT_TEXT(a) TT_TEXT2(a)

const tt_kernels TT_PASTE(tt_kernels_, TT_ISA) = {
    .name = TT_TEXT(TT_ISA),
    .rows =
        {
#define T(id, word, bytes, cls, exponent, mantissa, kernels) [nccl##id] = kernels,
#include "base/types.def"
            [TT_RED_BITS] = BITS_ROW,
#define T(id, word, bytes, ...) [TT_RED_TRUTH + nccl##id] = TRUTH_ROW(id, bytes),
#include "base/types.def"
        },
    .stream = stream_copy,
    .fence = fence,
};
