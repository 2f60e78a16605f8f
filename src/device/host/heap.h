// heap.h: what memory of this process the host device knows: allocated here, registered by the user, or opened from
// another process.
//
// A pointer into it can be asked for its kind, device and allocation (tuttiPointerGetAttributes). Any other memory is
// good for communication too; it is only not known.
//
// A forked child has its own copy of what was allocated or registered in its parent, shared or not, and may free it or
// share it anew. Only what was opened from another process stays that process's.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "tutti.h"

typedef enum {
  TT_BLOCK_HEAP,       // tt_heap_alloc
  TT_BLOCK_NCCL,       // ncclMemAlloc; its owner frees it
  TT_BLOCK_REGISTERED, // the user's
  TT_BLOCK_IMPORTED,   // another process's (ipc.h)
} tt_block_owner;

typedef struct tt_block {
  char *base;
  size_t size; // as asked for
  size_t room; // as mapped; of TT_BLOCK_HEAP
  tuttiMemory_t kind;
  tt_block_owner owner;
  int device;
  unsigned flags; // the user's, only kept
  int fd;         // of TT_BLOCK_HEAP once it has been shared, else -1; a forked child's copy is not shared
} tt_block;

// At least `size` bytes on a page of their own, zeroed, for the calling process alone until they are exported. Free
// with tt_heap_free. Errors: ncclSystemError. Any thread, like all of these.
ncclResult_t tt_heap_alloc(size_t size, tuttiMemory_t kind, int device, unsigned flags, void **out);
// Errors: ncclInvalidArgument when `ptr` is not the beginning of a block of tt_heap_alloc.
ncclResult_t tt_heap_free(void *ptr);

// Makes [b->base, b->base + b->size), which somebody else owns, known. Errors: ncclInvalidArgument (overlaps what is
// known), ncclSystemError.
ncclResult_t tt_heap_note(const tt_block *b);
// Forgets it. Returns false when no block of that owner begins there.
bool tt_heap_forget(const void *base, tt_block_owner owner);

// Copies the block that holds `ptr` to *out. Returns false when the address is not known.
bool tt_heap_find(const void *ptr, tt_block *out);

// The block of device memory, allocated in this process, that holds `ptr`. Returns false when there is none.
bool tt_heap_allocation(const void *ptr, void **base, size_t *size);

// Turns the block of tt_heap_alloc that holds `ptr` into shared memory that peers can map (mem.h), in place and with
// its contents, and gives the descriptor (which stays the block's). It stays so until it is freed. Nobody may write to
// the block meanwhile. Errors: ncclInvalidArgument (not such a block), ncclSystemError.
ncclResult_t tt_heap_share(const void *ptr, tt_block *out);
// The same of a block that tt_heap_find has given, of tt_heap_alloc or tt_mem_alloc: sets its descriptor.
ncclResult_t tt_heap_show(tt_block *b);

// Copies memory to fresh memory, but leaves pages alone that hold only zeros: those of the new memory do so already,
// and take up no memory.
void tt_heap_copy(char *to, const char *from, size_t size);
