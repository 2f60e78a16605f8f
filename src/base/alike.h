// alike.h: which members of an array are alike.
#pragma once
#include <stddef.h>

#include "nccl.h"

// Sets first[i] to the number of the first of `n` items that is like item i; the first one of its kind has its own
// number. `items` is an array of items of `size` bytes; `compare` gets pointers to pointers to two of them, as for
// qsort over an array of pointers, and says 0 for items that are alike. At most about n log n comparisons. Errors:
// ncclSystemError: no memory. Any thread.
ncclResult_t tt_alike(const void *items, size_t size, int n, int (*compare)(const void *, const void *), int *first);
