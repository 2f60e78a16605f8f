// ops.h: small work on the host device, as entries for tt_stream_push. NULL when there is no memory; the stream frees them.
#pragma once
#include "device/work.h"

// Calls fn(arg) on whichever thread runs the stream.
tt_work *tt_host_function(void (*fn)(void *arg), void *arg);
// Copies `size` bytes; the ranges may overlap.
tt_work *tt_host_copy(void *dst, const void *src, size_t size);
tt_work *tt_host_fill(void *dst, int value, size_t size);
