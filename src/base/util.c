#include "base/util.h"

#include <stdlib.h>

#include "nccl.h"

// Allocations left until one fails; 0 when no failure is wanted.
static long alloc_fail_in;

long tt_alloc_fail_at(long k)
{
  return __atomic_exchange_n(&alloc_fail_in, k, __ATOMIC_RELAXED);
}

static int alloc_must_fail(void)
{
  if (TT_LIKELY(__atomic_load_n(&alloc_fail_in, __ATOMIC_RELAXED) <= 0)) {
    return 0;
  }
  return __atomic_sub_fetch(&alloc_fail_in, 1, __ATOMIC_RELAXED) == 0;
}

void *tt_calloc(size_t n, size_t size)
{
  size_t total;
  if (__builtin_mul_overflow(n, size, &total) || alloc_must_fail()) {
    return NULL; // checked here, since sanitizers make calloc's own check fatal
  }
  return calloc(1, total);
}

void *tt_calloc_line(size_t size)
{
  if (alloc_must_fail() || size > SIZE_MAX - TT_CACHE_LINE) {
    return NULL;
  }
  // aligned_alloc wants a multiple of the alignment; 0 bytes still give a pointer of their own.
  size_t rounded = TT_ROUND_UP(TT_MAX(size, (size_t)1), (size_t)TT_CACHE_LINE);
  void *p = aligned_alloc(TT_CACHE_LINE, rounded);
  if (p != NULL) {
    memset(p, 0, rounded);
  }
  return p;
}

bool tt_grow(void *array, int used, int more, int *room, size_t size)
{
  if (used + more <= *room) {
    return true;
  }
  int wanted = TT_MAX(TT_MAX(2 * *room, used + more), 64);
  void *old = NULL, *bigger = tt_calloc((size_t)wanted, size);
  if (bigger == NULL) {
    return false;
  }
  memcpy(&old, array, sizeof(old)); // the pointer has another type there
  if (used > 0) {
    memcpy(bigger, old, (size_t)used * size);
  }
  memcpy(array, &bigger, sizeof(bigger));
  tt_free(old);
  *room = wanted;
  return true;
}

int tt_order_compare(const void *a, const void *b)
{
  const tt_order *x = a, *y = b;
  return x->key != y->key ? (x->key < y->key ? -1 : 1) : (x->place > y->place) - (x->place < y->place);
}

char *tt_strdup(const char *s)
{
  if (s == NULL) {
    return NULL;
  }
  size_t size = strlen(s) + 1;
  char *copy = tt_calloc(1, size);
  if (copy != NULL) {
    memcpy(copy, s, size);
  }
  return copy;
}

void tt_free(void *p)
{
  free(p);
}

uint64_t tt_hash(const void *data, size_t size, uint64_t seed)
{
  const unsigned char *p = data;
  uint64_t h = UINT64_C(0xcbf29ce484222325) ^ seed;
  for (size_t i = 0; i < size; i++) {
    h = (h ^ p[i]) * UINT64_C(0x100000001b3);
  }
  // FNV leaves the high bits of short inputs nearly constant; the finaliser of MurmurHash3 spreads them.
  h = (h ^ (h >> 33)) * UINT64_C(0xff51afd7ed558ccd);
  h = (h ^ (h >> 33)) * UINT64_C(0xc4ceb9fe1a85ec53);
  return h ^ (h >> 33);
}

static const struct {
  const char *name;
  size_t size;
} types[] = {
#define T(id, word, bytes, ...) [nccl##id] = {"nccl" #id, bytes},
#include "base/types.def"
};
_Static_assert(TT_COUNT(types) == ncclNumTypes, "one row per type");

size_t tt_type_size(int type)
{
  return type >= 0 && type < (int)TT_COUNT(types) ? types[type].size : 0;
}

const char *tt_type_name(int type)
{
  return type >= 0 && type < (int)TT_COUNT(types) ? types[type].name : "?";
}
