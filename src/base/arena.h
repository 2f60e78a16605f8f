// arena.h: memory that is given back together: many pieces, which never move, and one end.
#pragma once
#include <stdbool.h>
#include <stddef.h>

// Zeroed: an arena without pieces. One thread at a time may use it.
typedef struct tt_arena {
  struct tt_arena_block *blocks;
  bool failed; // there was no memory for some piece
} tt_arena;

// Zeroed memory for `n` objects of `size` bytes, aligned to 16 bytes. NULL without memory: then `failed` is set, so a
// caller may take all its pieces and look once. Several small pieces share an allocation, except under
// AddressSanitizer.
void *tt_arena_get(tt_arena *a, size_t n, size_t size);

// Makes `p` point to zeroed memory of the arena for `n` of what it points to.
#define TT_ARENA_NEW(a, p, n) ((p) = tt_arena_get((a), (size_t)(n), sizeof *(p)))

// A copy of `size` bytes of text, with a 0 behind; NULL without memory.
const char *tt_arena_text(tt_arena *a, const char *text, size_t size);

// Frees all pieces; the arena is as new.
void tt_arena_clear(tt_arena *a);
