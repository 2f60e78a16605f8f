// bits.cu: the module of bitwise and logical operations, whatever the type: of bytes; of codes of 1, 2, 4 and 8 bytes.
#include "kernels.h"
#include "parts.h"
#include "span.h"

// w = w op x.
TT_INLINE void bits_fold(uint32_t kind, uint32_t w[4], const uint32_t x[4])
{
  TT_UNROLL
  for (int j = 0; j < 4; j++) {
    w[j] = kind == TT_CUDA_AND ? w[j] & x[j] : kind == TT_CUDA_OR ? w[j] | x[j] : w[j] ^ x[j];
  }
}

TT_INLINE bool bits_all(const tt_cuda_step c)
{
  const tt_span s = span_of(c);
  const tt_packs packs = span_packs(s, 1);
  for (uint64_t i = span_index(s); i < packs.number; i += span_threads(s)) {
    const tt_pack p = span_pack(s, packs, i, 1);
    uint32_t w[4], x[4];
    bool come = span_take(w, s, 0, p, 1);
    for (uint32_t k = 1; k < s.nsrc && come; k++) {
      come = span_take(x, s, k, p, 1);
      bits_fold(s.kind, w, x);
    }
    if (!come) {
      return false;
    }
    span_write(s, w, p, 1);
  }
  return true;
}

// The truths of a pack's codes of `size` bytes, a bit for each.
TT_INLINE uint32_t logic_truths(const uint32_t w[4], uint64_t mask, const uint32_t size)
{
  uint32_t truths = 0;
  TT_UNROLL
  for (uint32_t i = 0; i < TT_CUDA_PACK; i += size) {
    const uint64_t high = size == 8 ? (uint64_t)w[i / 4 + 1] << 32 : 0;
    const uint64_t code = high | w[i / 4] >> 8 * (i % 4);
    truths |= (uint32_t)((code & mask) != 0) << i / size;
  }
  return truths;
}

TT_INLINE void logic_codes(uint32_t w[4], uint32_t truths, uint64_t one, const uint32_t size)
{
  TT_UNROLL
  for (uint32_t i = 0; i < TT_CUDA_PACK; i += size) {
    const uint64_t code = truths >> i / size & 1 ? one : 0;
    w[i / 4] = i % 4 == 0 ? (uint32_t)code : w[i / 4] | (uint32_t)code << 8 * (i % 4);
    if (size == 8) {
      w[i / 4 + 1] = (uint32_t)(code >> 32);
    }
  }
}

// A single source becomes codes of 0 and 1: the end of a logical operation of one rank.
TT_INLINE bool logic_all(tt_cuda_step c, const uint32_t size)
{
  const tt_span s = span_of(c);
  const tt_packs packs = span_packs(s, size);
  for (uint64_t i = span_index(s); i < packs.number; i += span_threads(s)) {
    const tt_pack p = span_pack(s, packs, i, size);
    uint32_t w[4], truths = 0;
    for (uint32_t k = 0; k < s.nsrc; k++) {
      if (!span_take(w, s, k, p, size)) {
        return false;
      }
      const uint32_t x = logic_truths(w, c.combine.mask, size);
      truths = k == 0 ? x : s.kind == TT_CUDA_AND ? truths & x : s.kind == TT_CUDA_OR ? truths | x : truths ^ x;
    }
    logic_codes(w, truths, c.combine.one, size);
    span_write(s, w, p, size);
  }
  return true;
}

#define LOGIC1(S) logic_all(S, 1)
#define LOGIC2(S) logic_all(S, 2)
#define LOGIC4(S) logic_all(S, 4)
#define LOGIC8(S) logic_all(S, 8)

TT_STEP(bitwise, bits_all)
TT_STEP(logical1, LOGIC1)
TT_STEP(logical2, LOGIC2)
TT_STEP(logical4, LOGIC4)
TT_STEP(logical8, LOGIC8)
