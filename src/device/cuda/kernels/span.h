// span.h: what the kernels that make data have in common: their operands, the part of each thread.
//
// An operand is a run of bytes at any address. Threads take packs of 16 bytes in turn, which begin where the first
// destination is aligned, so that the first and the last one may be in part outside. A pack that is whole and aligned
// in its operand is one access, others are one for each element, or for each byte where elements are not aligned.
#pragma once
#include "kernels.h"
#include "gpu.h"

// What a thread of such a kernel knows of its launch.
typedef struct tt_span {
  uint64_t operands, first, count;
  uint32_t nsrc, ndst, kind;
  uint32_t cta, ctas; // of those that make the data; 0: all of the launch
} tt_span;

TT_INLINE tt_span span_of(tt_cuda_step c)
{
  tt_span s;
  s.operands = c.operands;
  s.first = c.combine.first;
  s.count = c.combine.count;
  s.nsrc = c.combine.nsrc;
  s.ndst = c.combine.ndst;
  s.kind = c.combine.kind;
  s.cta = c.combine.cta;
  s.ctas = c.combine.ctas;
  return s;
}

// Address of operand k in this launch.
TT_INLINE uint64_t span_operand(tt_span s, uint32_t k)
{
  return gpu_load8(s.operands + (uint64_t)k * sizeof(tt_cuda_operand)) + s.first;
}

TT_INLINE uint32_t span_scaled(tt_span s, uint32_t k)
{
  return gpu_load4(s.operands + (uint64_t)k * sizeof(tt_cuda_operand) + 16);
}

TT_INLINE uint64_t span_scalar(tt_span s, uint32_t k)
{
  return gpu_load8(s.operands + (uint64_t)k * sizeof(tt_cuda_operand) + 8);
}

// The number of this thread among those that make the data, and how many there are.
TT_INLINE uint64_t span_index(tt_span s)
{
  return (uint64_t)(s.ctas != 0 ? s.cta : gpu_cta()) * gpu_threads() + gpu_thread();
}

TT_INLINE uint64_t span_threads(tt_span s)
{
  return (uint64_t)(s.ctas != 0 ? s.ctas : gpu_ctas()) * gpu_threads();
}

// The packs of a launch, of `each` elements. Pack p holds elements from p * each - lead on, of which some may be
// outside.
typedef struct tt_packs {
  uint64_t each, lead, number;
} tt_packs;

TT_INLINE tt_packs span_packs(tt_span s, const uint32_t size)
{
  tt_packs p;
  p.each = TT_CUDA_PACK / size;
  p.lead = span_operand(s, s.nsrc) % TT_CUDA_PACK / size;
  p.number = s.count == 0 ? 0 : (s.count + p.lead + p.each - 1) / p.each;
  return p;
}

// The first element of pack p.
TT_INLINE uint64_t span_first(tt_packs packs, uint64_t p)
{
  return p * packs.each - packs.lead;
}

// The elements of pack p that belong to the operands, a bit for each.
TT_INLINE uint32_t span_present(tt_span s, tt_packs packs, uint64_t p)
{
  const uint64_t left = s.count + packs.lead - p * packs.each;
  const uint32_t upto = (1u << (left < packs.each ? left : packs.each)) - 1;
  return p == 0 ? upto & ~((1u << packs.lead) - 1) : upto;
}

// An element of `size` bytes (1, 2, 4, 8), at a multiple of that.
TT_INLINE uint64_t span_load_element(uint64_t at, const uint32_t size)
{
  return size == 1 ? gpu_load1(at) : size == 2 ? gpu_load2(at) : size == 4 ? gpu_load4(at) : gpu_load8(at);
}

TT_INLINE void span_store_element(uint64_t at, uint64_t x, const uint32_t size)
{
  if (size == 1) {
    gpu_store1(at, (uint32_t)x);
  } else if (size == 2) {
    gpu_store2(at, (uint32_t)x);
  } else if (size == 4) {
    gpu_store4(at, (uint32_t)x);
  } else {
    gpu_store8(at, x);
  }
}

// The present ones of the pieces of `piece` bytes that a pack is made of; elements have `size` bytes. What is absent is
// not touched; a register has 0 for it.
TT_INLINE void span_load_pieces(uint32_t w[4], uint64_t at, uint32_t present, const uint32_t piece, const uint32_t size)
{
  TT_UNROLL
  for (uint32_t i = 0; i < TT_CUDA_PACK; i += piece) {
    const uint64_t x = present >> i / size & 1 ? span_load_element(at + i, piece) : 0;
    w[i / 4] = i % 4 == 0 ? (uint32_t)x : w[i / 4] | (uint32_t)x << 8 * (i % 4);
    if (piece == 8) {
      w[i / 4 + 1] = (uint32_t)(x >> 32);
    }
  }
}

TT_INLINE void span_store_pieces(uint64_t at, const uint32_t w[4], uint32_t present, const uint32_t piece,
                                 const uint32_t size)
{
  TT_UNROLL
  for (uint32_t i = 0; i < TT_CUDA_PACK; i += piece) {
    const uint64_t high = piece == 8 ? (uint64_t)w[i / 4 + 1] << 32 : 0;
    if (present >> i / size & 1) {
      span_store_element(at + i, high | w[i / 4] >> 8 * (i % 4), piece);
    }
  }
}

TT_INLINE bool span_is_whole(uint64_t at, uint32_t present, const uint32_t size)
{
  return at % TT_CUDA_PACK == 0 && present == (1u << TT_CUDA_PACK / size) - 1;
}

// A pack of elements of `size` bytes, to and from registers.
TT_INLINE void span_load(uint32_t w[4], uint64_t at, uint32_t present, const uint32_t size)
{
  if (span_is_whole(at, present, size)) {
    gpu_load16(w, at);
  } else if (at % size == 0) {
    span_load_pieces(w, at, present, size, size);
  } else {
    span_load_pieces(w, at, present, 1, size);
  }
}

TT_INLINE void span_store(uint64_t at, const uint32_t w[4], uint32_t present, const uint32_t size)
{
  if (span_is_whole(at, present, size)) {
    gpu_store16(at, w);
  } else if (at % size == 0) {
    span_store_pieces(at, w, present, size, size);
  } else {
    span_store_pieces(at, w, present, 1, size);
  }
}

// Writes a pack to all destinations.
TT_INLINE void span_write(tt_span s, const uint32_t w[4], uint64_t i, uint32_t present, const uint32_t size)
{
  for (uint32_t k = 0; k < s.ndst; k++) {
    span_store(span_operand(s, s.nsrc + k) + i * size, w, present, size);
  }
}

// From the one source to the destinations; the thread's part.
TT_INLINE void span_copy(tt_span s)
{
  const tt_packs packs = span_packs(s, 1);
  for (uint64_t p = span_index(s); p < packs.number; p += span_threads(s)) {
    const uint64_t at = span_first(packs, p);
    const uint32_t present = span_present(s, packs, p);
    uint32_t w[4];
    span_load(w, span_operand(s, 0) + at, present, 1);
    span_write(s, w, at, present, 1);
  }
}
