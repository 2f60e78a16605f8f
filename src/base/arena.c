// arena.c: blocks of pieces; the newest block is where the next piece goes.
#include "base/arena.h"

#include "base/util.h"

#ifdef TT_ASAN
enum { BLOCK_BYTES = 0 }; // a block for each piece: accesses behind it are noticed
#else
enum { BLOCK_BYTES = 16 << 10 };
#endif

struct tt_arena_block {
  struct tt_arena_block *next;
  size_t used, size;
  _Alignas(16) char bytes[];
};

void *tt_arena_get(tt_arena *a, size_t n, size_t size)
{
  struct tt_arena_block *b = a->blocks;
  size_t bytes;
  bool fits = !__builtin_mul_overflow(n, size, &bytes) && bytes <= SIZE_MAX / 2;
  bytes = fits ? TT_ROUND_UP(TT_MAX(bytes, 1), 16) : 0;
  if (fits && (b == NULL || b->size - b->used < bytes)) {
    size_t room = TT_MAX(bytes, (size_t)BLOCK_BYTES);
    b = tt_calloc(1, sizeof(*b) + room);
    if (b != NULL) {
      b->size = room;
      b->next = a->blocks;
      a->blocks = b;
    }
  }
  if (!fits || b == NULL) {
    a->failed = true;
    return NULL;
  }
  void *p = b->bytes + b->used;
  b->used += bytes;
  return p;
}

const char *tt_arena_text(tt_arena *a, const char *text, size_t size)
{
  char *p = tt_arena_get(a, size + 1, 1);
  if (p != NULL) {
    memcpy(p, text, size);
  }
  return p;
}

void tt_arena_clear(tt_arena *a)
{
  for (struct tt_arena_block *b = a->blocks, *next; b != NULL; b = next) {
    next = b->next;
    tt_free(b);
  }
  *a = (tt_arena){0};
}
