// crossing.h: the sizes from which another way is the cheaper one, on a machine with such figures.
//
// The cost model is asked where two ways of an all-reduce of two ranks, a core each, cost the same. What a byte and a
// call cost follows from figures that were measured; without them the limits that were found on another machine hold.
#pragma once
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

#include "figures/figures.h"
#include "nccl.h"

typedef struct tt_limits {
  size_t ll;           // bytes up to which protocol LL is cheaper than Simple
  size_t direct_copy;  // bytes from which direct access through the kernel is cheaper than messages
  size_t direct_local; // the same where ranks share an address space
  size_t direct_chunk; // of an all-reduce that fetches: less with a small second-level cache, where what is summed is
                       // fetched from
} tt_limits;
static_assert(sizeof(tt_limits) == 32, "travels between ranks (transport/transport.h)");

enum { TT_LIMIT_MOST = 8 << 20 };

// Could they have come from tt_limits_find? What another rank has sent is asked. Pure.
bool tt_limits_good(const tt_limits *l);

// Puts the limits that follow from measured figures in the place of *limits; the library's own figures change nothing.
// Each stays within a sixteenth and sixteen times what it was. direct_local, for which no figure stands alone, grows
// and shrinks as the model's does; direct_chunk only shrinks. One rank asks, and tells the others: logarithms differ in
// their last bit between one C library or processor and another, and then a limit may. Errors: ncclSystemError when out
// of memory; *limits stays.
ncclResult_t tt_limits_find(const tt_figures *f, tt_limits *limits);
