// spans.h: a set of spans of addresses (or other numbers), which may overlap. Every function takes time in proportion
// to the logarithm of their number.
//
// The set is a tree of members that stand in the caller's objects: it allocates nothing, so nothing here fails. `root`
// is NULL for the empty set. No locks: the caller's.
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef struct tt_span {
  uintptr_t start;
  size_t size;                 // at least 1
  struct tt_span *less, *more; // subtrees
  uintptr_t end;               // the largest end in this subtree
} tt_span;

// The object that a span stands in. `span` is not NULL.
#define TT_SPAN_OWNER(span, type, member) ((type *)(void *)((char *)(span)-offsetof(type, member)))

// Adds a span whose start and size are set; they stay as they are while it is in the set.
void tt_spans_add(tt_span **root, tt_span *s);
// Takes out a span that is in the set.
void tt_spans_remove(tt_span **root, tt_span *s);

// One that holds all of [start, start + size), that overlaps it, or that is just that; NULL: there is none.
tt_span *tt_spans_holder(tt_span *root, uintptr_t start, size_t size);
tt_span *tt_spans_overlap(tt_span *root, uintptr_t start, size_t size);
tt_span *tt_spans_same(tt_span *root, uintptr_t start, size_t size);
// The first member, by start and then by size, that does not come before this one; NULL: there is none.
tt_span *tt_spans_from(tt_span *root, uintptr_t start, size_t size);
