// reuse.h: is a call's result still in a cache from the last time it was there?
//
// Results of large calls bypass the caches, so that they need not be read before they are written. Where the same
// buffers come back while the caches still hold them, that costs more than it saves: each call drives out what the next
// one reads. So a communicator remembers how many bytes its calls have gone through since it last wrote to a buffer.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TT_REUSE_SEEN 64 // results that are remembered

// Of a communicator: the launching thread's. Zeroed: no cache.
typedef struct tt_reuse {
  size_t cache;    // bytes of the last-level cache that are a rank's share
  uint64_t passed; // bytes that its large calls have read and written
  struct {
    const void *result;
    uint64_t at; // `passed` after its last use
  } seen[TT_REUSE_SEEN];
} tt_reuse;

// A large call reads and writes `bytes` bytes, and `result` is where it begins to write. Is that in a cache, as far as
// this rank's calls tell?
bool tt_reuse_cached(tt_reuse *r, const void *result, size_t bytes);
