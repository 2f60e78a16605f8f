// verify.h: fills inputs and checks outputs of one rank, and watches the bytes around them.
#pragma once
#include <stdint.h>

#include "pattern.h"
#include "perf.h"

// Bytes in front of and behind every buffer that nobody may write.
enum { PERF_GUARD = 4096 };

// What every byte is that nothing has written since perf_fill.
enum { PERF_POISON = 0xa5 };

// Elements in a row, and what they should be: from number `index` of the data that a table makes with this seed.
typedef struct perf_piece {
  char *at;
  size_t count, elt;
  const uint8_t *table; // of the pattern; NULL: poison
  uint64_t seed;
  size_t index;
  unsigned tolerance; // as in perf_pattern
} perf_piece;

typedef struct perf_finding {
  size_t wrong;
  size_t first; // which element of the piece
  uint64_t got; // its bits
} perf_finding;

// Writes and compares pieces in memory of a device. `arg`: of the buffers. A piece has an element at least. Where
// nothing is wrong, compare writes 0 to `wrong` alone.
typedef struct perf_reach {
  void (*write)(void *arg, const perf_piece *piece);
  void (*compare)(void *arg, const perf_piece *piece, perf_finding *out);
} perf_reach;

// The bits of an element of poison.
uint64_t perf_poison(size_t elt);

// One rank's buffers. `size` usable bytes each; PERF_GUARD more on both sides.
typedef struct perf_buffers {
  char *send, *recv;
  size_t size;
  const perf_reach *reach; // NULL: the program reads and writes them itself
  void *arg;
} perf_buffers;

typedef struct perf_mismatch {
  size_t element;     // in the output; (size_t)-1: a byte outside it
  size_t wrong;       // how many in all
  uint64_t got, want; // bits of the first
  const char *where;  // "output", "untouched output", "input", "guard"
} perf_mismatch;

// Writes the input (into the send buffer, or in place), poison into the output and the guards. `rep` varies the data.
void perf_fill(const perf_coll *coll, const perf_case *c, const perf_pattern *p, const perf_buffers *b, uint64_t rep);

// Number of elements that are wrong after the operation ran on what perf_fill wrote with the same arguments: wrong
// results, outputs that should be untouched, changed inputs (out of place), bytes written outside. *first tells about
// the first; untouched when there is none.
size_t perf_check(const perf_coll *coll, const perf_case *c, const perf_pattern *p, const perf_buffers *b, uint64_t rep,
                  perf_mismatch *first);

// Where the input and output of this case start.
char *perf_send_at(const perf_case *c, const perf_buffers *b);
char *perf_recv_at(const perf_case *c, const perf_buffers *b);
