// step.cu: the module of steps that only copy, or that have no data.
#include "kernels.h"
#include "parts.h"
#include "span.h"

TT_INLINE void copy_all(const tt_cuda_step c)
{
  const tt_span s = span_of(c);
  const tt_packs packs = span_packs(s, 1);
  for (uint64_t p = span_index(); p < packs.number; p += span_threads()) {
    const uint64_t i = span_first(packs, p);
    const uint32_t present = span_present(s, packs, p);
    uint32_t w[4];
    span_load(w, span_operand(s, 0) + i, present, 1);
    span_write(s, w, i, present, 1);
  }
}

TT_STEP(copy, copy_all)
