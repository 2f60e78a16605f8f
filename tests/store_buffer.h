// store_buffer.h: a thread's store buffer (total store order, as on x86) and a hash of states, for the tests that walk every interleaving of a protocol
// (*_model_test.c). A plain store becomes visible later than the loads that follow it; what has to be seen at once waits until the buffer is empty.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef STORES
#define STORES 3 // in a buffer
#endif

typedef struct store {
  uint8_t word, value;
} store;

typedef struct store_buffer {
  uint8_t n;
  store at[STORES]; // oldest first; unused entries are zero
} store_buffer;

// What a thread sees in a word of memory: its own latest store first.
static inline uint8_t buffer_load(const store_buffer *b, const uint8_t *memory, int word)
{
  for (int i = b->n; i-- > 0;) {
    if (b->at[i].word == word) {
      return b->at[i].value;
    }
  }
  return memory[word];
}

// A plain store. False: the buffer is full, the step cannot be made now.
static inline bool buffer_put(store_buffer *b, int word, uint8_t value)
{
  if (b->n == STORES) {
    return false;
  }
  b->at[b->n++] = (store){(uint8_t)word, value};
  return true;
}

// Takes the oldest store out of the buffer, on its way to memory. False: there is none.
static inline bool buffer_take(store_buffer *b, store *oldest)
{
  if (b->n == 0) {
    return false;
  }
  *oldest = b->at[0];
  memmove(&b->at[0], &b->at[1], sizeof b->at[0] * (STORES - 1));
  b->at[--b->n] = (store){0, 0};
  return true;
}

// FNV-1a of a state, which has no padding.
static inline uint64_t state_hash(const void *state, size_t size)
{
  uint64_t h = 14695981039346656037ull;
  for (size_t i = 0; i < size; i++) {
    h = (h ^ ((const uint8_t *)state)[i]) * 1099511628211ull;
  }
  return h;
}
