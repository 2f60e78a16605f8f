// selection.h: ncclCollConfig_t.algSelection: which algorithms and protocols one call may use.
//
// Syntax: terms separated by ',' of which any may hold; factors of a term joined by '+', of which all must hold; '^' in
// front of a factor means all but that. A factor is the beginning of names such as RING_LL: "ring" names RING_LL,
// RING_LL128 and RING_SIMPLE. Case does not matter, blanks are passed over.
#pragma once
#include <stdbool.h>

#include "coll/coll.h"

// Rows of tt_algorithms (bit i: row i) that are allowed, by the protocol of their messages. Rows that use direct access
// or the network's sums are among `simple`.
typedef struct tt_selection {
  uint32_t ll, simple;
} tt_selection;

// What `text` selects for the function, of what the table has for it. LL128 means LL, as in NCCL_PROTO. False: a word
// is not known, a term is empty or contradicts itself, or nothing is left for the function; `why` (of `size` bytes)
// gets a text that names the part. *out is written only on success. Any thread.
bool tt_selection_parse(const char *text, tt_func func, tt_selection *out, char *why, size_t size);
