// far.c: see far.h.
#include "device/far.h"

#include "base/result.h"

ncclResult_t tt_far_differs(int rank, int peer, uint32_t number, const tt_fifo_shape *own, const tt_fifo_shape *its)
{
  return tt_fail(ncclInvalidUsage,
                 "ranks have captured different operations: number %u between ranks %d and %d is %u messages of up to "
                 "%u bytes for rank %d, and %u of up to %u for rank %d; all ranks must capture the same calls in the "
                 "same order",
                 number, rank, peer, own->messages, own->bytes, rank, its->messages, its->bytes, peer);
}
