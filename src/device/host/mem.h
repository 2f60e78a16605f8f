// mem.h: memory of the host device. Shareable allocations (ncclMemAlloc) are memfds that peers map; ordinary ones are
// not.
//
// A token names an allocation by a handle: its descriptor's number in the sender's process, plus 1. The receiver opens
// that descriptor by /proc, which takes less than the right to read the sender's memory, and reads behind the memory
// whose it is and where it lies there. The sender does nothing and waits for nothing, and other users take no part in
// it. What cannot be opened is read by its address.
#pragma once
#include "device/lane.h"

// Allocates `size` bytes that peers can map, page-aligned, zeroed. Errors: ncclSystemError. Any thread.
ncclResult_t tt_mem_alloc(size_t size, void **ptr);
// Frees it. Errors: ncclInvalidArgument when `ptr` did not come from tt_mem_alloc. Peers let go of it when they next
// hear from this process.
ncclResult_t tt_mem_free(void *ptr);

// The descriptor of the allocation that begins at `base`, which keeps it; -1 when there is none.
int tt_mem_descriptor(const void *base);

// Finds the shareable allocation that holds [ptr, ptr + size). Returns its handle; 0 when there is none. Any thread;
// costs one load when there are no shareable allocations.
uint32_t tt_mem_find(const void *ptr, size_t size);

// How many shareable allocations this process has freed, for its tokens: where that has changed, handles may mean other
// allocations. Any thread.
uint32_t tt_mem_freed(void);

// The whole shareable allocation that holds [ptr, ptr + size). False: there is none. Any thread; costs as tt_mem_find.
bool tt_mem_range(const void *ptr, size_t size, void **base, size_t *bytes);

// From now on `fn` is called with every allocation that is freed, when nobody can find it any more and before its
// memory goes, by the thread that frees it. One such function per process.
void tt_mem_on_free(void (*fn)(void *base, size_t size));

// Reads what a token from `link` says of allocations: fills in/out where they are mapped, now or from an earlier token;
// NULL: use the address.
void tt_mem_import(tt_link *link, const tt_desc *d);
// Unmaps all that the link has mapped.
void tt_mem_forget(tt_link *link);
