// util.h: arithmetic and memory helpers that know nothing of collectives.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// Which sanitizer the code is compiled for: TT_TSAN, TT_ASAN.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TT_TSAN 1
#endif
#if __has_feature(address_sanitizer)
#define TT_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) && !defined(TT_TSAN)
#define TT_TSAN 1
#endif
#if defined(__SANITIZE_ADDRESS__) && !defined(TT_ASAN)
#define TT_ASAN 1
#endif

#define TT_COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define TT_MIN(a, b) ((a) < (b) ? (a) : (b))
#define TT_MAX(a, b) ((a) > (b) ? (a) : (b))
#define TT_CLAMP(x, lo, hi) TT_MIN(TT_MAX((x), (lo)), (hi))
#define TT_DIV_UP(a, b) (((a) + (b)-1) / (b))
#define TT_ROUND_UP(a, b) (TT_DIV_UP(a, b) * (b))
#define TT_CACHE_LINE 64
#define TT_LIKELY(x) __builtin_expect(!!(x), 1)
#define TT_UNLIKELY(x) __builtin_expect(!!(x), 0)
// For the declaration of a variable that calls read: other libraries cannot replace it, so it is read without a table.
#define TT_HIDDEN __attribute__((visibility("hidden")))

// Zeroed memory for `n` objects of `size` bytes, or NULL (logged by the caller with tt_fail). Free with tt_free.
// Tests make the k-th call fail: tt_alloc_fail_at(k).
void *tt_calloc(size_t n, size_t size);
// As tt_calloc, aligned to a cache line.
void *tt_calloc_line(size_t size);
// Makes room for `more` elements behind the `used` ones of the array that *array points to (a pointer of any type):
// twice the room, at least
// 64. False without memory; nothing has changed then.
bool tt_grow(void *array, int used, int more, int *room, size_t size);
// What elements that begin with such a struct are sorted by: the key, then the place. tt_order_compare is for qsort.
typedef struct tt_order {
  int64_t key;
  int place;
} tt_order;
int tt_order_compare(const void *a, const void *b);
// Copy of a string (NULL gives NULL).
char *tt_strdup(const char *s);
// Frees what tt_calloc, tt_calloc_line and tt_strdup gave. NULL is allowed.
void tt_free(void *p);
// The k-th allocation from now (1 = the next) returns NULL, once; 0 switches that off. Returns how many were left until
// the failure ordered before: above 0, when it never came to that. Tests only; any thread.
long tt_alloc_fail_at(long k);

// 64-bit hash of bytes (FNV-1a with a final mix); the same on every machine.
uint64_t tt_hash(const void *data, size_t size, uint64_t seed);

// Number of bytes of one element of an ncclDataType_t value; 0 when `type` is not one.
size_t tt_type_size(int type);
// "ncclFloat32", ... for messages; "?" when unknown.
const char *tt_type_name(int type);
