// step.cu: the module of steps that only copy, or that have no data.
#include "kernels.h"
#include "parts.h"
#include "span.h"

TT_INLINE bool copy_all(const tt_cuda_step c)
{
  return span_copy(span_of(c));
}

TT_STEP(copy, copy_all)
