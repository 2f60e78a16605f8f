// moved.h: ordinary memory of the program that peers can map (mem.h): its pages are moved into shared memory, in place.
//
// Only whole pages that lie in the buffer move: what else is on its first and last page is not this library's. The
// bytes are the same before, meanwhile and after, so other threads may read. What a thread writes while the pages are
// moved, there or back, may be lost. A forked child has its own copy of what it writes.
#pragma once
#include <stdbool.h>
#include <stddef.h>

typedef struct tt_moved tt_moved;

// Has peers map [ptr, ptr + size), as far as that can be had; else the log says at INFO why not, and the memory is
// reached by its address. Memory of tt_heap_alloc becomes shared as a whole when its device's streams are empty, and
// stays so until it is freed; other memory only if `ordinary` is set. Returns what tt_moved_give undoes, and how many
// bytes have moved; NULL: there is nothing to undo. Any thread.
tt_moved *tt_moved_take(void *ptr, size_t size, bool ordinary, size_t *bytes);
// When the last user of the pages gives them back, they become private again, with their contents. NULL is allowed.
void tt_moved_give(tt_moved *m);
