// combine.cu: the kernel `combine` of one type, TT_TYPE (types.h): -DTT_TYPE=Float16 and so on.
//
// The order of the sources, each rounding and each NaN are those of device/reduce.h: the same bits as on the host. A
// single source that is neither scaled nor divided is not for this kernel: `copy` leaves its bits alone.
//
// One kernel serves all operations. Most of it is what they share (loads, conversions, stores), and a branch at which
// all threads go the same way costs little.
#include "kernels.h"
#include "parts.h"
#include "span.h"
#include "types.h"

#define TT_PASTE2(a, b) a##_##b
#define TT_PASTE(a, b) TT_PASTE2(a, b)
#define TT_OF_TYPE(name) TT_PASTE(name, TT_TYPE)
#ifdef TT_PTX // each type has a module of its own
#define TT_ENTRY combine
#else // a test includes this for each
#define TT_ENTRY TT_OF_TYPE(combine)
#endif
#define TT_STORED TT_OF_TYPE(stored)
#define TT_WORK TT_OF_TYPE(work)
#define TT_LANES (int)(TT_CUDA_PACK / sizeof(TT_STORED))

// acc = acc op x; of the first operand acc = x.
#define TT_FOLD(OP)                        \
  TT_UNROLL                                \
  for (int j = 0; j < TT_LANES; j++) {     \
    acc[j] = TT_OF_TYPE(OP)(acc[j], x[j]); \
  }

TT_INLINE void TT_OF_TYPE(fold)(uint32_t kind, TT_WORK acc[], const TT_WORK x[])
{
  switch (kind) {
  case TT_CUDA_FIRST:
    TT_UNROLL
    for (int j = 0; j < TT_LANES; j++) {
      acc[j] = x[j];
    }
    break;
  case TT_CUDA_SUM: TT_FOLD(sum) break;
  case TT_CUDA_PROD: TT_FOLD(prod) break;
  case TT_CUDA_MAX: TT_FOLD(max) break;
  default: TT_FOLD(min) break;
  }
}

// The pack of operand k, of which a part may be outside. False: it does not come.
TT_INLINE bool TT_OF_TYPE(open_pack)(TT_WORK x[], tt_span s, uint32_t k, tt_pack p)
{
  TT_STORED e[TT_CUDA_PACK / sizeof(TT_STORED)];
  uint32_t w[4];
  if (!span_take(w, s, k, p, sizeof(TT_STORED))) {
    return false;
  }
  __builtin_memcpy(e, w, sizeof e);
  TT_UNROLL
  for (int j = 0; j < TT_LANES; j++) {
    x[j] = TT_OF_TYPE(open)(e[j]);
  }
  if (span_scaled(s, k)) {
    const uint64_t factor = span_scalar(s, k);
    TT_UNROLL
    for (int j = 0; j < TT_LANES; j++) {
      x[j] = TT_OF_TYPE(scaled)(x[j], factor);
    }
  }
  return true;
}

// The bytes of a pack of the result.
TT_INLINE void TT_OF_TYPE(close_pack)(uint32_t w[4], const TT_WORK acc[], tt_div div)
{
  TT_STORED e[TT_CUDA_PACK / sizeof(TT_STORED)];
  TT_UNROLL
  for (int j = 0; j < TT_LANES; j++) {
    e[j] = TT_OF_TYPE(close)(acc[j]);
  }
  if (div.mul != 0) {
    TT_UNROLL
    for (int j = 0; j < TT_LANES; j++) {
      e[j] = TT_OF_TYPE(divide)(e[j], div);
    }
  }
  __builtin_memcpy(w, e, sizeof e);
}

TT_INLINE bool TT_OF_TYPE(combine_pack)(tt_span s, tt_div div, tt_pack p)
{
  TT_WORK acc[TT_CUDA_PACK / sizeof(TT_STORED)] = {0}, x[TT_CUDA_PACK / sizeof(TT_STORED)];
  uint32_t w[4];
  for (uint32_t k = 0; k < s.nsrc; k++) {
    if (!TT_OF_TYPE(open_pack)(x, s, k, p)) {
      return false;
    }
    TT_OF_TYPE(fold)(k == 0 ? TT_CUDA_FIRST : s.kind, acc, x);
  }
  TT_OF_TYPE(close_pack)(w, acc, div);
  span_write(s, w, p, sizeof(TT_STORED));
  return true;
}

TT_INLINE bool TT_OF_TYPE(combine_all)(const tt_cuda_step c)
{
  const tt_span s = span_of(c);
  tt_div div;
  div.mul = c.combine.mul;
  div.shift = (int)c.combine.shift;
  const tt_packs packs = span_packs(s, sizeof(TT_STORED));
  for (uint64_t i = span_index(s); i < packs.number; i += span_threads(s)) {
    if (!TT_OF_TYPE(combine_pack)(s, div, span_pack(s, packs, i, sizeof(TT_STORED)))) {
      return false;
    }
  }
  return true;
}

TT_STEP(TT_ENTRY, TT_OF_TYPE(combine_all))

#undef TT_PASTE2
#undef TT_PASTE
#undef TT_OF_TYPE
#undef TT_ENTRY
#undef TT_STORED
#undef TT_WORK
#undef TT_LANES
#undef TT_FOLD
#undef TT_TYPE
