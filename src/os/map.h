// map.h: private memory straight from the kernel, shared memory in place of it, and how much memory there is.
#pragma once
#include <stddef.h>

#include "nccl.h"

// Maps `size` bytes (a multiple of the page size) that belong to this process alone: zeroed, committed when touched.
// Errors: ncclSystemError.
ncclResult_t tt_map_private(size_t size, void **addr);

// Puts `size` bytes of `fd`, shared, in the place of what is mapped at `addr`. Errors: ncclSystemError; what was there then still is.
ncclResult_t tt_map_replace(int fd, size_t size, void *addr);

// Unmaps. NULL is allowed.
void tt_map_free(void *addr, size_t size);

// Tells AddressSanitizer, where the program was built with it, that [addr, addr + size) must not (or may again) be touched: so overruns
// of memory are found that its own allocator does not know. Does nothing in other programs.
void tt_map_forbid(const void *addr, size_t size);
void tt_map_allow(const void *addr, size_t size);

// Bytes of memory that the process could still take (of the machine, or of its control group where that is less), and all there are.
void tt_map_memory(size_t *available, size_t *total);
