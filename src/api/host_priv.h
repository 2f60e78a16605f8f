// host_priv.h: what the files of the tutti… functions share.
#pragma once
#include "base/result.h"
#include "device/work.h"
#include "tutti.h"

struct tt_stream;

#define TUTTI_API __attribute__((visibility("default"))) ncclResult_t

// `pointers`: does function `what` have all pointers that must not be NULL? Otherwise ncclInvalidArgument.
static inline ncclResult_t tt_api_needs(const char *what, bool pointers)
{
  return TT_LIKELY(pointers) ? ncclSuccess : tt_fail(ncclInvalidArgument, "%s: a pointer argument is NULL", what);
}

// Queues `w`, or records it where the stream is captured. NULL: there was no memory for it. The entry is freed on an
// error.
ncclResult_t tt_api_push_to(const char *what, struct tt_stream *s, tt_work *w);
// The same for a handle.
ncclResult_t tt_api_push(const char *what, cudaStream_t stream, tt_work *w);
