// types.h: the element types as numbers: sizes, limits, exact conversion. Independent of the library's kernels, which
// it checks.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { PERF_SIGNED, PERF_UNSIGNED, PERF_FLOATING } perf_class;

typedef struct perf_type {
  uint8_t size;          // bytes
  uint8_t cls;           // perf_class
  bool finite_only;      // no infinities, one NaN pattern: all ones (f8e4m3)
  uint8_t exponent_bits; // floating types
  uint8_t mantissa_bits; // stored ones
} perf_type;

// Properties of an ncclDataType_t value (in range).
const perf_type *perf_type_info(int type);

// Bits of the value of floating type `type` nearest to `v`: ties to even; too large gives infinity, or the greatest
// value where there is none.
uint64_t perf_encode(int type, double v);

// The number that `bits` stand for; f8e4m3's NaN gives NaN. Integers too; exact for |value| < 2^53.
double perf_decode(int type, uint64_t bits);

// Largest N such that every integer from 0 to N is a value of the floating type.
double perf_exact_integers(int type);

// Reads and writes element number `i` of an array of `size`-byte elements, aligned or not.
uint64_t perf_load(const void *array, size_t i, size_t size);
void perf_store(void *array, size_t i, size_t size, uint64_t bits);

// Sign-extends the low bytes of `bits` (signed types) or clears what lies above them.
int64_t perf_extend(int type, uint64_t bits);
