// spans.c: see spans.h. A treap: a search tree by start and size that is also a heap by a random number, the hash of
// each member's address. So its depth is logarithmic whatever the order of insertion. Each node knows the largest end
// below it, which lets a search leave out subtrees that end too early.
#include "base/spans.h"

#include <stdbool.h>

#include "base/util.h"

static uintptr_t end_of(uintptr_t start, size_t size)
{
  return size > UINTPTR_MAX - start ? UINTPTR_MAX : start + size;
}

// splitmix64's finalizer: neighbouring addresses give unrelated numbers.
static uint64_t heap_key(const tt_span *s)
{
  uint64_t x = (uintptr_t)s;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

// Of spans that are the same, the one at the smaller address.
static bool comes_before(const tt_span *a, const tt_span *b)
{
  return a->start != b->start ? a->start < b->start
         : a->size != b->size ? a->size < b->size
                              : (uintptr_t)a < (uintptr_t)b;
}

static void find_end(tt_span *s)
{
  s->end = end_of(s->start, s->size);
  s->end = s->less != NULL ? TT_MAX(s->end, s->less->end) : s->end;
  s->end = s->more != NULL ? TT_MAX(s->end, s->more->end) : s->end;
}

// Divides a tree into what comes before `s` and what comes after it.
static void split_span(tt_span *t, const tt_span *s, tt_span **less, tt_span **more)
{
  if (t == NULL) {
    *less = *more = NULL;
  } else if (comes_before(t, s)) {
    split_span(t->more, s, &t->more, more);
    *less = t;
    find_end(t);
  } else {
    split_span(t->less, s, less, &t->less);
    *more = t;
    find_end(t);
  }
}

// Of two trees, of which all of `a` comes before all of `b`, makes one.
static tt_span *join_spans(tt_span *a, tt_span *b)
{
  if (a == NULL || b == NULL) {
    return a == NULL ? b : a;
  }
  tt_span *top = heap_key(a) > heap_key(b) ? a : b;
  if (top == a) {
    a->more = join_spans(a->more, b);
  } else {
    b->less = join_spans(a, b->less);
  }
  find_end(top);
  return top;
}

static tt_span *add_span(tt_span *t, tt_span *s)
{
  if (t == NULL || heap_key(s) > heap_key(t)) {
    split_span(t, s, &s->less, &s->more);
    find_end(s);
    return s;
  }
  tt_span **side = comes_before(s, t) ? &t->less : &t->more;
  *side = add_span(*side, s);
  find_end(t);
  return t;
}

static tt_span *take_out_span(tt_span *t, tt_span *s)
{
  if (t == s) {
    return join_spans(s->less, s->more);
  }
  tt_span **side = comes_before(s, t) ? &t->less : &t->more;
  *side = take_out_span(*side, s);
  find_end(t);
  return t;
}

void tt_spans_add(tt_span **root, tt_span *s)
{
  *root = add_span(*root, s);
}

void tt_spans_remove(tt_span **root, tt_span *s)
{
  *root = take_out_span(*root, s);
}

tt_span *tt_spans_holder(tt_span *root, uintptr_t start, size_t size)
{
  uintptr_t end = end_of(start, size);
  tt_span *t = root;
  while (t != NULL && t->end >= end) {
    if (t->start <= start && end_of(t->start, t->size) >= end) {
      return t;
    }
    // All to the left of one that does not start too late start early enough: when one of them ends late enough, it is
    // a holder.
    t = t->start > start || (t->less != NULL && t->less->end >= end) ? t->less : t->more;
  }
  return NULL;
}

tt_span *tt_spans_overlap(tt_span *root, uintptr_t start, size_t size)
{
  uintptr_t end = end_of(start, size);
  tt_span *t = root;
  while (t != NULL && (t->start >= end || end_of(t->start, t->size) <= start)) {
    // When all that end late enough on the left start too late, so do all on the right.
    t = t->less != NULL && t->less->end > start ? t->less : t->more;
  }
  return t;
}

tt_span *tt_spans_same(tt_span *root, uintptr_t start, size_t size)
{
  tt_span *t = root;
  while (t != NULL && (t->start != start || t->size != size)) {
    t = start < t->start || (start == t->start && size < t->size) ? t->less : t->more;
  }
  return t;
}

tt_span *tt_spans_from(tt_span *root, uintptr_t start, size_t size)
{
  tt_span *t = root, *found = NULL;
  while (t != NULL) {
    bool before = t->start < start || (t->start == start && t->size < size);
    found = before ? found : t;
    t = before ? t->more : t->less;
  }
  return found;
}
