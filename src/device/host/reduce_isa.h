// reduce_isa.h: what the kernels of every type share, for the instruction set that is compiled for: its vocabulary
// (reduce_avx512.h says what the words mean), loops, lines of the cache.
#pragma once
#include <stdint.h>
#include <string.h>

#include "device/host/reduce_priv.h"
#if defined(__AVX512BW__)
#include "device/host/reduce_avx512.h"
#elif defined(__AVX2__)
#include "device/host/reduce_avx2.h"
#else
#include "device/host/reduce_scalar.h"
#endif
#ifdef __SSE2__
#include <emmintrin.h>
#endif

// No iteration depends on another one, even where the destination is a source.
#ifdef __clang__
#pragma clang diagnostic ignored "-Wpass-failed" // loops over vectors need no further vectorising
#define TT_VECTOR_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define TT_VECTOR_LOOP _Pragma("GCC ivdep")
#endif

// ---- Lines ----

enum {
  TT_LINE = 64,
  TT_CHUNK =
      TT_RED_CHUNK, // of the loops with prefetch: long enough that the compiler keeps and vectorises the loop inside
  TT_AHEAD =
      1024, // bytes by which a long loop prefetches its sources: the hardware's prefetchers stop at the end of a page
  TT_LONG_LOOP = 4096, // bytes per buffer from which on it does
};

// A whole aligned line, around the caches.
#if defined(__AVX512BW__)
TT_INLINE void stream_line(uint8_t *d, const uint8_t *s)
{
  _mm512_stream_si512((void *)d, _mm512_loadu_si512(s));
}
#elif defined(__AVX2__)
TT_INLINE void stream_line(uint8_t *d, const uint8_t *s)
{
  _mm256_stream_si256((__m256i *)(void *)d, _mm256_loadu_si256((const __m256i *)(const void *)s));
  _mm256_stream_si256((__m256i *)(void *)(d + 32), _mm256_loadu_si256((const __m256i *)(const void *)(s + 32)));
}
#elif defined(__SSE2__)
TT_INLINE void stream_line(uint8_t *d, const uint8_t *s)
{
  for (int i = 0; i < TT_LINE; i += 16) {
    _mm_stream_si128((__m128i *)(void *)(d + i), _mm_loadu_si128((const __m128i *)(const void *)(s + i)));
  }
}
#else
TT_INLINE void stream_line(uint8_t *d, const uint8_t *s)
{
  memcpy(d, s, TT_LINE);
}
#endif

TT_INLINE void stream_chunk(void *d, const void *s)
{
  for (int i = 0; i < TT_CHUNK; i += TT_LINE) {
    stream_line((uint8_t *)d + i, (const uint8_t *)s + i);
  }
}

TT_INLINE void chunk_ahead(const void *x, const void *y)
{
  for (int i = 0; i < TT_CHUNK; i += TT_LINE) {
    __builtin_prefetch((const char *)x + TT_AHEAD + i);
    __builtin_prefetch((const char *)y + TT_AHEAD + i);
  }
}
