// reduce_narrow.h: the kernels of half, bfloat16 and fp8, in the vocabulary of reduce_{avx512,avx2,scalar}.h. Part of
// reduce_kernels.c.
//
// What is common to all is here: chunks with prefetch, tails, several sources. The conversions and operations come as
// constants, which inlining removes. Sums and products go through float; the maximum and minimum of two codes are found
// among the codes.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/host/reduce_isa.h"

typedef tt_vf tt_ld_fn(const void *p);
typedef void tt_st_fn(void *p, tt_vf v);
typedef tt_vf tt_op_fn(tt_vf x, tt_vf y);
typedef tt_vf tt_rnd_fn(tt_vf v);
typedef float tt_scalar_fn(const uint64_t *s);

typedef struct tt_narrow_type {
  tt_ld_fn *ld;
  tt_st_fn *st;
  tt_rnd_fn *rnd; // what st and ld together give
  tt_scalar_fn *scalar;
  size_t size;
} tt_narrow_type;

// d = a op b for `bytes` bytes: elements of `size`.
typedef struct tt_pair {
  void (*fn)(void *d, const void *a, const void *b);
  size_t bytes, size;
} tt_pair;

TT_INLINE void narrow_chunk(tt_pair op, uint8_t *to, const uint8_t *x, const uint8_t *y)
{
  chunk_ahead(x, y);
  TT_VECTOR_LOOP
  for (size_t k = 0; k < TT_CHUNK; k += op.bytes) {
    op.fn(to + k, x + k, y + k);
  }
}

TT_INLINE void narrow_chunks(tt_pair op, uint8_t *r, const uint8_t *x, const uint8_t *y, size_t bytes)
{
  for (size_t i = 0; i < bytes; i += TT_CHUNK) {
    narrow_chunk(op, r + i, x + i, y + i);
  }
}

// Around the caches, to one or two destinations (r2 NULL: one).
TT_INLINE void narrow_chunks_nt(tt_pair op, uint8_t *r, uint8_t *r2, const uint8_t *x, const uint8_t *y, size_t bytes)
{
  for (size_t i = 0; i < bytes; i += TT_CHUNK) {
    _Alignas(TT_LINE) uint8_t chunk[TT_CHUNK];
    narrow_chunk(op, chunk, x + i, y + i);
    stream_chunk(r + i, chunk);
    if (r2 != NULL) {
      stream_chunk(r2 + i, chunk);
    }
  }
}

TT_INLINE void narrow_fold2(tt_pair op, void *dst, const void *a, const void *b, size_t n)
{
  uint8_t *r = dst;
  const uint8_t *x = a, *y = b;
  const size_t bytes = n * op.size;
  size_t i = bytes < TT_LONG_LOOP ? 0 : bytes & ~(size_t)(TT_CHUNK - 1);
  narrow_chunks(op, r, x, y, i);
  TT_VECTOR_LOOP
  for (; i + (op.bytes - 1) < bytes; i += op.bytes) {
    op.fn(r + i, x + i, y + i);
  }
  if (op.bytes > op.size && i < bytes) {
    uint8_t p[64], q[64];
    tt_tail_in(p, x + i, bytes - i);
    tt_tail_in(q, y + i, bytes - i);
    op.fn(p, p, q);
    tt_tail_out(r + i, p, bytes - i);
  }
}

// ---- Any number of sources, folded in registers ----

enum { TT_MANY = TT_W > 1 ? 4 : 64 }; // vectors that are folded side by side

// Elements times their factor, rounded as if they had been stored: an input that a peer scaled and sent is equal to one
// that is scaled here.
TT_INLINE tt_vf narrow_scaled(tt_narrow_type t, tt_vf factor, const void *p)
{
  return t.rnd(tt_vf_prod(t.ld(p), factor));
}

TT_INLINE const uint64_t *narrow_scalar(const tt_many *m, int k)
{
  return m->scale ? m->scale[k] : NULL;
}

// Source k: `vectors` vectors from byte `i` on.
TT_INLINE void narrow_source(tt_narrow_type t, tt_vf *v, const tt_many *m, int k, size_t i, int vectors)
{
  const size_t step = TT_W * t.size;
  const uint8_t *p = (const uint8_t *)m->src[k] + m->first + i;
  const uint64_t *s = narrow_scalar(m, k);
  if (s == NULL) {
    TT_VECTOR_LOOP
    for (int w = 0; w < vectors; w++) {
      v[w] = t.ld(p + (size_t)w * step);
    }
    return;
  }
  const tt_vf factor = tt_vf_set(t.scalar(s));
  TT_VECTOR_LOOP
  for (int w = 0; w < vectors; w++) {
    v[w] = narrow_scaled(t, factor, p + (size_t)w * step);
  }
}

TT_INLINE void narrow_many_block(tt_narrow_type t, tt_op_fn *op, uint8_t *r, const tt_many *m, size_t i, int vectors)
{
  tt_vf acc[TT_MANY], x[TT_MANY];
  narrow_source(t, acc, m, 0, i, vectors);
  for (int k = 1; k < m->nsrc; k++) {
    narrow_source(t, x, m, k, i, vectors);
    TT_VECTOR_LOOP
    for (int v = 0; v < vectors; v++) {
      acc[v] = op(acc[v], x[v]);
    }
  }
  TT_VECTOR_LOOP
  for (int v = 0; v < vectors; v++) {
    t.st(r + i + (size_t)v * TT_W * t.size, acc[v]);
  }
}

TT_INLINE tt_vf narrow_tail_source(tt_narrow_type t, const tt_many *m, int k, size_t i, size_t bytes)
{
  uint8_t p[64];
  const uint64_t *s = narrow_scalar(m, k);
  tt_tail_in(p, (const uint8_t *)m->src[k] + m->first + i, bytes);
  return s == NULL ? t.ld(p) : narrow_scaled(t, tt_vf_set(t.scalar(s)), p);
}

// The last elements, fewer than a vector.
TT_INLINE void narrow_many_tail(tt_narrow_type t, tt_op_fn *op, uint8_t *r, const tt_many *m, size_t i, size_t bytes)
{
  uint8_t p[64];
  tt_vf acc = narrow_tail_source(t, m, 0, i, bytes);
  for (int k = 1; k < m->nsrc; k++) {
    acc = op(acc, narrow_tail_source(t, m, k, i, bytes));
  }
  t.st(p, acc);
  tt_tail_out(r + i, p, bytes);
}

TT_INLINE void narrow_many(tt_narrow_type t, tt_op_fn *op, uint8_t *r, const tt_many *m, size_t n)
{
  const size_t bytes = n * t.size, step = TT_W * t.size;
  size_t i = 0;
  for (; i + TT_MANY * step <= bytes; i += TT_MANY * step) {
    narrow_many_block(t, op, r, m, i, TT_MANY);
  }
  for (; i + step <= bytes; i += step) {
    narrow_many_block(t, op, r, m, i, 1);
  }
  if (TT_W > 1 && i < bytes) {
    narrow_many_tail(t, op, r, m, i, bytes - i);
  }
}

// Two sources, which of them is scaled as constants.
TT_INLINE void narrow_two(tt_narrow_type t, tt_op_fn *op, uint8_t *r, const tt_many *m, size_t n, int scaled)
{
  const size_t bytes = n * t.size, step = TT_W * t.size;
  const uint8_t *x = (const uint8_t *)m->src[0] + m->first, *y = (const uint8_t *)m->src[1] + m->first;
  const tt_vf fx = tt_vf_set(scaled & 1 ? t.scalar(m->scale[0]) : 1),
              fy = tt_vf_set(scaled & 2 ? t.scalar(m->scale[1]) : 1);
  size_t i = 0;
  TT_VECTOR_LOOP
  for (; i + (step - 1) < bytes; i += step) {
    tt_vf a = scaled & 1 ? narrow_scaled(t, fx, x + i) : t.ld(x + i);
    t.st(r + i, op(a, scaled & 2 ? narrow_scaled(t, fy, y + i) : t.ld(y + i)));
  }
  if (TT_W > 1 && i < bytes) {
    narrow_many_tail(t, op, r, m, i, bytes - i);
  }
}

// Sums are what is scaled, mostly of two sources. One element at a time the loops over many are as fast.
TT_INLINE void narrow_scaled_sum(tt_narrow_type t, uint8_t *r, const tt_many *m, size_t n)
{
  const int scaled = m->nsrc == 2 && TT_W > 1 ? (m->scale[0] != NULL) + 2 * (m->scale[1] != NULL) : 0;
  switch (scaled) {
  case 1: narrow_two(t, tt_vf_sum, r, m, n, 1); break;
  case 2: narrow_two(t, tt_vf_sum, r, m, n, 2); break;
  case 3: narrow_two(t, tt_vf_sum, r, m, n, 3); break;
  default: narrow_many(t, tt_vf_sum, r, m, n);
  }
}

#define SCALED_sum(T, dst, m, n) narrow_scaled_sum(TYPE_##T, dst, m, n)
#define SCALED_prod(T, dst, m, n) narrow_many(TYPE_##T, tt_vf_prod, dst, m, n)
#define SCALED_max(T, dst, m, n) narrow_many(TYPE_##T, tt_vf_max, dst, m, n)
#define SCALED_min(T, dst, m, n) narrow_many(TYPE_##T, tt_vf_min, dst, m, n)

// ---- The kernels of one operation and one type ----

// The larger or smaller of two codes; fp8's infinity becomes the largest number.
#define NARROW_PICK(T, SIZE, LAST, LARGEST)                          \
  TT_INLINE void pair_max_##T(void *d, const void *a, const void *b) \
  {                                                                  \
    tt_pick##SIZE(d, a, b, (tt_codes){LAST, LARGEST, true});         \
  }                                                                  \
  TT_INLINE void pair_min_##T(void *d, const void *a, const void *b) \
  {                                                                  \
    tt_pick##SIZE(d, a, b, (tt_codes){LAST, LARGEST, false});        \
  }

NARROW_PICK(f16, 16, 0x7c00, 0x7c00)
NARROW_PICK(e4m3, 8, 0x7e, 0x7e)
NARROW_PICK(e5m2, 8, 0x7c, 0x7b)

TT_INLINE void pair_max_bf16(void *d, const void *a, const void *b)
{
  tt_pick_bf16(d, a, b, true);
}

TT_INLINE void pair_min_bf16(void *d, const void *a, const void *b)
{
  tt_pick_bf16(d, a, b, false);
}

#define NARROW_PAIR(T, OP)                                              \
  TT_INLINE void pair_##OP##_##T(void *d, const void *a, const void *b) \
  {                                                                     \
    tt_st_##T(d, tt_vf_##OP(tt_ld_##T(a), tt_ld_##T(b)));               \
  }

#define NARROW_OP(T, OP, PAIR_BYTES)                                                            \
  static void fold2_##OP##_##T(void *dst, const void *a, const void *b, size_t n)               \
  {                                                                                             \
    const tt_pair op = {pair_##OP##_##T, PAIR_BYTES, TYPE_##T.size};                            \
    narrow_fold2(op, dst, a, b, n);                                                             \
  }                                                                                             \
  static void fold2nt_##OP##_##T(void *dst, void *dst2, const void *a, const void *b, size_t n) \
  {                                                                                             \
    const tt_pair op = {pair_##OP##_##T, PAIR_BYTES, TYPE_##T.size};                            \
    narrow_chunks_nt(op, dst, dst2, a, b, n *TYPE_##T.size);                                    \
  }                                                                                             \
  static void many_##OP##_##T(void *dst, const tt_many *m, size_t n)                            \
  {                                                                                             \
    const tt_many bare = {m->src, NULL, m->nsrc, m->first};                                     \
    if (m->scale) {                                                                             \
      SCALED_##OP(T, dst, m, n);                                                                \
    } else {                                                                                    \
      narrow_many(TYPE_##T, tt_vf_##OP, dst, &bare, n);                                         \
    }                                                                                           \
  }

#define NARROW_TYPE(T, CODE, PAIR_BYTES)          \
  TT_INLINE float scalar_##T(const uint64_t *s)   \
  {                                               \
    return tt_f32_from_##T((CODE)*s);             \
  }                                               \
  NARROW_OP(T, sum, PAIR_BYTES)                   \
  NARROW_OP(T, prod, PAIR_BYTES)                  \
  NARROW_OP(T, max, TT_PICK_BYTES(TYPE_##T.size)) \
  NARROW_OP(T, min, TT_PICK_BYTES(TYPE_##T.size))

#define TYPE_f16 ((tt_narrow_type){tt_ld_f16, tt_st_f16, tt_rnd_f16, scalar_f16, 2})
#define TYPE_bf16 ((tt_narrow_type){tt_ld_bf16, tt_st_bf16, tt_rnd_bf16, scalar_bf16, 2})
#define TYPE_e4m3 ((tt_narrow_type){tt_ld_e4m3, tt_st_e4m3, tt_rnd_e4m3, scalar_e4m3, 1})
#define TYPE_e5m2 ((tt_narrow_type){tt_ld_e5m2, tt_st_e5m2, tt_rnd_e5m2, scalar_e5m2, 1})

NARROW_PAIR(f16, sum)
NARROW_PAIR(f16, prod)
NARROW_PAIR(bf16, sum)
NARROW_PAIR(bf16, prod)
#ifdef TT_FP8_BYTES
#define TABLE_PAIR(T, OP)                                               \
  TT_INLINE void pair_##OP##_##T(void *d, const void *a, const void *b) \
  {                                                                     \
    tt_fp8_##OP(&tt_##T##_tables, d, a, b);                             \
  }
enum { FP8_BYTES = TT_FP8_BYTES };
TABLE_PAIR(e4m3, sum)
TABLE_PAIR(e4m3, prod)
TABLE_PAIR(e5m2, sum)
TABLE_PAIR(e5m2, prod)
#else
enum { FP8_BYTES = TT_W };
NARROW_PAIR(e4m3, sum)
NARROW_PAIR(e4m3, prod)
NARROW_PAIR(e5m2, sum)
NARROW_PAIR(e5m2, prod)
#endif

NARROW_TYPE(f16, uint16_t, 2 * TT_W)
NARROW_TYPE(bf16, uint16_t, 2 * TT_W)
NARROW_TYPE(e4m3, uint8_t, FP8_BYTES)
NARROW_TYPE(e5m2, uint8_t, FP8_BYTES)
