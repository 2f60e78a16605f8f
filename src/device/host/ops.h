// ops.h: small work on the host device, as entries for tt_stream_push. NULL when there is no memory; the stream frees
// them.
//
// Copies and fills move at most the budget at a time, so that a large one neither keeps the thread that queues it nor
// the one that helps.
#pragma once
#include "device/work.h"
#include "tutti.h"

// Calls fn(arg) on a thread of its own kind (hostcall.h), never on one that queues, waits or helps. What follows in the
// stream waits for it.
tt_work *tt_host_function(void (*fn)(void *arg), void *arg);
// The same with a copy of `size` bytes of `arg`, made now; 0: with `arg` itself.
tt_work *tt_host_function_staged(void (*fn)(void *arg), void *arg, size_t size);

// Copies `size` bytes; the ranges may overlap.
tt_work *tt_host_copy(void *dst, const void *src, size_t size);
// The same, but reads `src` now: it may be changed as soon as this has returned. For small sizes.
tt_work *tt_host_copy_staged(void *dst, const void *src, size_t size);
// Copies rows; source and destination do not overlap.
tt_work *tt_host_copy_rows(const tuttiRows_t *r);
// Sets every byte to `value`.
tt_work *tt_host_fill(void *dst, int value, size_t size);
// Sets every element of `size` bytes (1, 2 or 4) of the rows, whose width is a multiple of it, to `value`.
tt_work *tt_host_fill_rows(const tuttiRows_t *r, uint32_t value, size_t size);

// Gives memory of tt_heap_alloc back.
tt_work *tt_host_release(void *ptr);
