// verify.h: fills inputs and checks outputs of one rank, and watches the bytes around them.
#pragma once
#include <stdint.h>

#include "pattern.h"
#include "perf.h"

// Bytes in front of and behind every buffer that nobody may write.
enum { PERF_GUARD = 4096 };

// One rank's buffers. `size` usable bytes each; PERF_GUARD more on both sides.
typedef struct perf_buffers {
  char *send, *recv;
  size_t size;
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

// Bytes of the send and of the receive buffer that the operation may touch: what perf_fill writes and perf_check reads,
// and PERF_GUARD on both sides.
size_t perf_send_extent(const perf_case *c);
size_t perf_recv_extent(const perf_case *c);

// Where the input and output of this case start.
char *perf_send_at(const perf_case *c, const perf_buffers *b);
char *perf_recv_at(const perf_case *c, const perf_buffers *b);
