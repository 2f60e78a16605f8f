// mem.h: memory of the host device. Shareable allocations (ncclMemAlloc) are memfds that peers map; ordinary ones are
// not.
//
// A token names an allocation by a handle: its descriptor's number in the sender's process, plus 1. The receiver opens
// that descriptor by /proc, which takes less than the right to read the sender's memory, and reads behind the memory
// whose it is and where it lies there. The sender does nothing and waits for nothing, and other users take no part in
// it. What cannot be opened is read by its address.
#pragma once
#include "device/lane.h"
#include "device/one_sided.h"

// Allocates `size` bytes that peers can map, page-aligned, zeroed. Errors: ncclSystemError. Any thread. A child of fork
// has its own copy of what it writes, which no peer maps before tt_mem_share, and may free it; what its parent writes
// later, the child may see in pages that it has not written.
ncclResult_t tt_mem_alloc(size_t size, void **ptr);
// Frees it. Errors: ncclInvalidArgument when `ptr` did not come from tt_mem_alloc. Peers let go of it when they next
// hear from this process.
ncclResult_t tt_mem_free(void *ptr);

// The descriptor of the allocation that begins at `base`, which keeps it; -1 when there is none.
int tt_mem_descriptor(const void *base);

// The same of any allocation of this process, also of one that its parent made before the fork: that becomes memory
// which peers can map, in place and with its contents. Nobody may write to it meanwhile. Errors: ncclInvalidArgument
// (no allocation begins there), ncclSystemError.
ncclResult_t tt_mem_share(const void *base, int *fd);

// Has peers map [base, base + size) of somebody else, whole pages: moves it into shared memory, in place, with its
// first `used` bytes. Nobody may write to it meanwhile. The caller closes *fd behind tt_mem_hide. Errors:
// ncclSystemError.
ncclResult_t tt_mem_move(void *base, size_t size, size_t used, int *fd);
// No longer. Does nothing where no memory of tt_mem_move begins. Peers let go of it as after tt_mem_free.
void tt_mem_hide(const void *base);

// The memory of both kinds that holds [ptr, ptr + size), or some of it. Any thread; costs one load when there is none.
tt_mappable tt_mem_find(const void *ptr, size_t size);

// How many shareable allocations this process has freed, for its tokens: where that has changed, handles may mean other
// allocations. Any thread.
uint32_t tt_mem_freed(void);

// The whole allocation of tt_mem_alloc that holds [ptr, ptr + size). False: there is none. Any thread; costs as
// tt_mem_find.
bool tt_mem_range(const void *ptr, size_t size, void **base, size_t *bytes);

// From now on `fn` is called with every allocation that is freed, when nobody can find it any more and before its
// memory goes, by the thread that frees it. One such function per process.
void tt_mem_on_free(void (*fn)(void *base, size_t size));

// Reads what a token from `link` says of allocations: sets in_map and out_map, mapped now or for an earlier token.
void tt_mem_import(tt_link *link, const tt_desc *d);
// Maps the allocation that holds a window of the peer's, or some of it: fills `map`. Where it cannot be mapped,
// map->whole stays NULL.
void tt_mem_map_window(const tt_link *link, const tt_window_note *note, tt_window_map *map);
// Unmaps all that the link has mapped.
void tt_mem_forget(tt_link *link);
