// pattern.h: which value stands where. Tables of inputs and of exact results, from which buffers are filled and checked
// at memcpy speed.
//
// Every buffer is described in segments of PERF_PERIOD elements (a prime). Within segment j, element k has the value
// table[turn(seed, j) + k], the turn being a hash: a block moved by any distance, taken from another rank, or left from
// an earlier repetition does not match. Three kinds of tables:
//   copy     random bytes; the seed of the turn contains the source rank (all-gather, broadcast, ...)
//   input    one per rank: values chosen so that the reduction over all ranks is exact in the type whatever its order
//   reduced  the result of that reduction, computed here with wide integers and doubles
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mix.h"

typedef struct perf_pattern {
  int type, op, nranks;
  size_t elt;    // bytes per element
  uint8_t *copy; // each table: 2 * PERF_PERIOD elements, the second half equal to the first
  uint8_t *reduced;
  uint8_t **input; // [nranks], NULL until asked for
  // 0: results must have these very bits. Otherwise results are positive floats that may differ by so many units in the
  // last place; only avg over a number of ranks that is not a power of two needs that, because 1/n is not exact.
  unsigned tolerance;
  int users;
  struct perf_pattern *next;
} perf_pattern;

typedef struct perf_patterns perf_patterns; // what the threads of a process share

// Creates the (empty) set of patterns, or NULL. Free with perf_patterns_destroy (NULL is allowed) when no pattern is in
// use.
perf_patterns *perf_patterns_create(void);
void perf_patterns_destroy(perf_patterns *set);

// The pattern of a type, operation (an op of options.h) and number of ranks, with the input table of `rank` made. Any
// thread; pair with perf_pattern_release. NULL: out of memory.
perf_pattern *perf_pattern_acquire(perf_patterns *set, int type, int op, int nranks, int rank);
void perf_pattern_release(perf_patterns *set, perf_pattern *p);

// The number by which `rank` multiplies its input in operation mulsum, in the bits of `type`.
uint64_t perf_mulsum_scalar(int type, int rank);
