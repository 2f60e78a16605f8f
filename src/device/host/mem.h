// mem.h: memory of the host device. Shareable allocations (ncclMemAlloc) are memfds that peers map; ordinary ones are not.
//
// An address crosses processes only as (serial, offset). Serials are never used again, so a freed allocation can't be mistaken for another.
#pragma once
#include "device/lane.h"

// Allocates `size` bytes that peers can map, page-aligned, zeroed. Errors: ncclSystemError. Any thread.
ncclResult_t tt_mem_alloc(size_t size, void **ptr);
// Frees it. Errors: ncclInvalidArgument when `ptr` did not come from tt_mem_alloc. Peers let go of it when they next hear from this
// process.
ncclResult_t tt_mem_free(void *ptr);

// The descriptor of the allocation that begins at `base`, which keeps it; -1 when there is none.
int tt_mem_descriptor(const void *base);

// Finds the shareable allocation that holds [ptr, ptr + size). Returns its serial and writes the offset; 0 when there is none. Any thread;
// costs one load when there are no shareable allocations.
uint32_t tt_mem_find(const void *ptr, size_t size, uint64_t *offset);

// The whole shareable allocation that holds [ptr, ptr + size). False: there is none. Any thread; costs as tt_mem_find.
bool tt_mem_range(const void *ptr, size_t size, void **base, size_t *bytes);

// From now on `fn` is called with every allocation that is freed, when nobody can find it any more and before its memory goes, by the thread that frees
// it. One such function per process.
void tt_mem_on_free(void (*fn)(void *base, size_t size));

// Puts the call's buffers into a token for `link`, sharing their allocations with the peer's process when it does not have them yet.
ncclResult_t tt_mem_export(tt_link *link, const tt_call *call, tt_desc *d);
// Reads a token from `link`: fills in/out (mapped) or in_remote/out_remote.
ncclResult_t tt_mem_import(tt_link *link, const tt_desc *d, const volatile uint32_t *abort_flag);
// Unmaps all that the link has mapped.
void tt_mem_forget(tt_link *link);
