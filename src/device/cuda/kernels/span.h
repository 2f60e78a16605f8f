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
  uint32_t lines;     // of each message in lines; 0: there is none
  tt_cuda_call call;
  uint64_t stop; // address of the stop word
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
  s.lines = c.combine.lines;
  s.call = c.call;
  s.stop = c.port.stop;
  return s;
}

#define OPERAND(s, k, member) \
  ((s).operands + (uint64_t)(k) * sizeof(tt_cuda_operand) + __builtin_offsetof(tt_cuda_operand, member))

// Address of operand k in this launch.
TT_INLINE uint64_t span_operand(tt_span s, uint32_t k)
{
  return gpu_load8(OPERAND(s, k, at)) + s.first;
}

TT_INLINE uint32_t span_scaled(tt_span s, uint32_t k)
{
  return gpu_load4(OPERAND(s, k, scaled));
}

TT_INLINE uint64_t span_scalar(tt_span s, uint32_t k)
{
  return gpu_load8(OPERAND(s, k, scalar));
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
// outside. Of messages in lines they are the lines' (span_line_pack).
typedef struct tt_packs {
  uint64_t each, lead, number;
} tt_packs;

typedef struct tt_pack {
  uint64_t number, first; // its first element
  uint32_t present;       // those that belong to the operands, a bit for each
} tt_pack;

TT_INLINE tt_packs span_packs(tt_span s, const uint32_t size)
{
  tt_packs p;
  p.each = TT_CUDA_PACK / size;
  p.lead = span_operand(s, s.nsrc) % TT_CUDA_PACK / size;
  p.number = s.count == 0 ? 0 : (s.count + p.lead + p.each - 1) / p.each;
#ifdef TT_WALK
  if (s.lines != 0) { // whole warps: their threads look together
    p.number = ((uint64_t)s.lines * (TT_CUDA_LINE / TT_CUDA_PACK) + TT_CUDA_WARP - 1) / TT_CUDA_WARP * TT_CUDA_WARP;
  }
#endif
  return p;
}

#ifdef TT_WALK
// Eight packs are a line. The first one of a message has the call; the last one of each line is half one.
TT_INLINE tt_pack span_line_pack(tt_span s, uint64_t number, const uint32_t size)
{
  const uint64_t lanes = TT_CUDA_LINE / TT_CUDA_PACK, lane = number % lanes, all = s.count * size,
                 at = number / lanes * TT_CUDA_LINE_DATA + lane * TT_CUDA_PACK - sizeof(tt_cuda_call),
                 room = lane == lanes - 1 ? TT_CUDA_PACK / 2 : TT_CUDA_PACK;
  const uint64_t bytes = number == 0 || at >= all ? 0 : all - at < room ? all - at : room;
  tt_pack p;
  p.number = number;
  p.first = at / size;
  p.present = (1u << bytes / size) - 1;
  return p;
}
#endif

TT_INLINE tt_pack span_pack(tt_span s, tt_packs packs, uint64_t number, const uint32_t size)
{
#ifdef TT_WALK
  if (s.lines != 0) {
    return span_line_pack(s, number, size);
  }
#endif
  const uint64_t left = s.count + packs.lead - number * packs.each;
  const uint32_t upto = (1u << (left < packs.each ? left : packs.each)) - 1;
  tt_pack p;
  p.number = number;
  p.first = number * packs.each - packs.lead;
  p.present = number == 0 ? upto & ~((1u << packs.lead) - 1) : upto;
  (void)size;
  return p;
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

// At a multiple of 8: is each half of the pack present as a whole or not at all?
TT_INLINE bool span_has_halves(uint64_t at, uint32_t present, const uint32_t size)
{
  const uint32_t half = (1u << TT_CUDA_PACK / 2 / size) - 1;
  return at % 8 == 0 && (present == half || present == (1u << TT_CUDA_PACK / size) - 1);
}

// A pack of elements of `size` bytes, to and from registers.
TT_INLINE void span_load(uint32_t w[4], uint64_t at, uint32_t present, const uint32_t size)
{
  if (span_is_whole(at, present, size)) {
    gpu_load16(w, at);
  } else if (span_has_halves(at, present, size)) {
    span_load_pieces(w, at, present, 8, size);
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
  } else if (span_has_halves(at, present, size)) {
    span_store_pieces(at, w, present, 8, size);
  } else if (at % size == 0) {
    span_store_pieces(at, w, present, size, size);
  } else {
    span_store_pieces(at, w, present, 1, size);
  }
}

#ifdef TT_WALK
// Is the thread's pack one of the message's lines? Else it only comes along with its warp.
TT_INLINE bool span_in_lines(tt_span s, uint64_t number)
{
  return number < (uint64_t)s.lines * (TT_CUDA_LINE / TT_CUDA_PACK);
}

// Does the pack end with the line's flag?
TT_INLINE bool span_has_flag(uint64_t number)
{
  return number % (TT_CUDA_LINE / TT_CUDA_PACK) == TT_CUDA_LINE / TT_CUDA_PACK - 1;
}

// Reads a pack of lines when they have come. All threads of the warp do, and get the same answer. False: the port has
// stopped, or the lines are of another call.
TT_INLINE bool span_take_line(uint32_t w[4], tt_span s, uint64_t lines, uint64_t flag, uint64_t number)
{
  const bool here = span_in_lines(s, number), ends = here && span_has_flag(number),
             looks = gpu_thread() % TT_CUDA_WARP == 0;
  gpu_warp_meet();
  for (;;) {
    if (here) {
      gpu_look_line(w, lines + number * TT_CUDA_PACK);
    }
    if (!gpu_warp_any(ends && (w[2] != (uint32_t)flag || w[3] != (uint32_t)(flag >> 32)))) {
      return true;
    }
    // A message of another call may have fewer lines, but it has the first one.
    const uint64_t its = looks ? gpu_look8(lines + TT_CUDA_LINE_DATA) : 0;
    const bool other = (uint32_t)its == (uint32_t)flag && its >> 32 != 0 && its != flag;
    if (gpu_warp_any(looks && (other || gpu_look(s.stop) != 0))) {
      return false;
    }
  }
}

// Writes a pack of lines: the result's, or the call, and the flag. All threads of the warp do.
TT_INLINE void span_put_line(tt_span s, uint64_t lines, uint64_t flag, uint64_t number, const uint32_t w[4])
{
  const uint64_t first = number == 0 ? s.call.sig : (uint64_t)w[1] << 32 | w[0],
                 second = number == 0             ? s.call.count
                          : span_has_flag(number) ? flag
                                                  : (uint64_t)w[3] << 32 | w[2];
  const uint32_t x[4] = {(uint32_t)first, (uint32_t)(first >> 32), (uint32_t)second, (uint32_t)(second >> 32)};
  gpu_warp_meet();
  if (span_in_lines(s, number)) {
    gpu_mark_line(lines + number * TT_CUDA_PACK, x);
  }
}
#endif

// Reads a pack of operand k. False: it does not come.
TT_INLINE bool span_take(uint32_t w[4], tt_span s, uint32_t k, tt_pack p, const uint32_t size)
{
#ifdef TT_WALK
  const uint64_t flag = s.lines == 0 ? 0 : gpu_load8(OPERAND(s, k, lines));
  if (flag != 0) {
    return span_take_line(w, s, span_operand(s, k), flag, p.number);
  }
#endif
  span_load(w, span_operand(s, k) + p.first * size, p.present, size);
  return true;
}

// Writes a pack to all destinations.
TT_INLINE void span_write(tt_span s, const uint32_t w[4], tt_pack p, const uint32_t size)
{
  for (uint32_t k = s.nsrc; k < s.nsrc + s.ndst; k++) {
#ifdef TT_WALK
    const uint64_t flag = s.lines == 0 ? 0 : gpu_load8(OPERAND(s, k, lines));
    if (flag != 0) {
      span_put_line(s, span_operand(s, k), flag, p.number, w);
      continue;
    }
#endif
    span_store(span_operand(s, k) + p.first * size, w, p.present, size);
  }
}

// From the one source to the destinations; the thread's part. False: the source does not come.
TT_INLINE bool span_copy(tt_span s)
{
  const tt_packs packs = span_packs(s, 1);
  for (uint64_t i = span_index(s); i < packs.number; i += span_threads(s)) {
    const tt_pack p = span_pack(s, packs, i, 1);
    uint32_t w[4];
    if (!span_take(w, s, 0, p, 1)) {
      return false;
    }
    span_write(s, w, p, 1);
  }
  return true;
}
