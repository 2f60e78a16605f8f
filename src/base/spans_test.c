// spans_test.c: sets of spans beside a plain list of the same spans, and how deep they get.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdlib.h>

#include "base/spans.h"
#include "base/util.h"

enum { SPANS = 200, ROUNDS = 4000, MANY = 100000 };

static tt_span spans[SPANS];
static bool in[SPANS];
static tt_span *root;

static uint32_t next_random(void)
{
  static uint64_t state = 1;
  state = tt_hash(&state, sizeof state, 7);
  return (uint32_t)(state >> 32);
}

static bool is_holder(const tt_span *s, uintptr_t start, size_t size)
{
  return start >= s->start && start + size <= s->start + s->size;
}

static bool does_overlap(const tt_span *s, uintptr_t start, size_t size)
{
  return start < s->start + s->size && s->start < start + size;
}

static bool is_same(const tt_span *s, uintptr_t start, size_t size)
{
  return s->start == start && s->size == size;
}

// What a search finds must be in the set and fit; it finds nothing only when nothing fits.
static void compare(tt_span *found, bool (*fits)(const tt_span *s, uintptr_t start, size_t size), uintptr_t start,
                    size_t size)
{
  bool some = false;
  for (int i = 0; i < SPANS; i++) {
    some |= in[i] && fits(&spans[i], start, size);
  }
  assert_int_equal(found != NULL, some);
  if (found != NULL) {
    assert_true(in[found - spans]);
    assert_true(fits(found, start, size));
  }
}

static bool comes_from(const tt_span *s, uintptr_t start, size_t size)
{
  return s->start != start ? s->start > start : s->size >= size;
}

// Nothing between the two is in the set.
static void compare_first(const tt_span *found, uintptr_t start, size_t size)
{
  for (int i = 0; i < SPANS && found != NULL; i++) {
    assert_true(!in[i] || !comes_from(&spans[i], start, size) || comes_from(&spans[i], found->start, found->size));
  }
}

// In a small range, so that spans meet, are nested and are the same.
static void searches_find_what_a_list_finds(void **state)
{
  (void)state;
  for (int round = 0; round < ROUNDS; round++) {
    int i = (int)(next_random() % SPANS);
    if (in[i]) {
      tt_spans_remove(&root, &spans[i]);
    } else {
      spans[i].start = 100 + next_random() % 300;
      spans[i].size = 1 + next_random() % (round % 2 == 0 ? 4 : 60);
      tt_spans_add(&root, &spans[i]);
    }
    in[i] = !in[i];
    uintptr_t start = 90 + next_random() % 320;
    size_t size = 1 + next_random() % 20;
    compare(tt_spans_holder(root, start, size), is_holder, start, size);
    compare(tt_spans_overlap(root, start, size), does_overlap, start, size);
    compare(tt_spans_same(root, start, size), is_same, start, size);
    compare(tt_spans_from(root, start, size), comes_from, start, size);
    compare_first(tt_spans_from(root, start, size), start, size);
  }
  for (int i = 0; i < SPANS; i++) {
    if (in[i]) {
      assert_ptr_equal(TT_SPAN_OWNER(&spans[i].size, tt_span, size), &spans[i]);
      tt_spans_remove(&root, &spans[i]);
    }
  }
  assert_null(root);
}

// A span may be said to go on behind the last address.
static void ends_do_not_wrap(void **state)
{
  (void)state;
  tt_span all = {.start = 4096, .size = SIZE_MAX}, *set = NULL;
  tt_spans_add(&set, &all);
  assert_ptr_equal(tt_spans_holder(set, 8192, 10), &all);
  assert_ptr_equal(tt_spans_overlap(set, UINTPTR_MAX - 8, 4), &all);
  assert_null(tt_spans_holder(set, 4095, 10));
}

static int depth(const tt_span *t)
{
  if (t == NULL) {
    return 0;
  }
  int less = depth(t->less), more = depth(t->more);
  return 1 + TT_MAX(less, more);
}

// Also in the order of addresses, rising or falling, from which a plain search tree becomes a list.
static void many_stay_shallow(void **state)
{
  (void)state;
  tt_span *many = calloc(MANY, sizeof *many), *set = NULL;
  assert_non_null(many);
  for (int falling = 0; falling < 2; falling++) {
    for (int i = 0; i < MANY; i++) {
      many[i].start = (uintptr_t)(falling ? MANY - i : i + 1) * 64;
      many[i].size = 64;
      tt_spans_add(&set, &many[i]);
    }
    assert_in_range(depth(set), 17, 64);
    for (int i = 0; i < MANY; i++) {
      assert_ptr_equal(tt_spans_holder(set, many[i].start + 5, 10), &many[i]);
    }
    for (int i = 0; i < MANY; i++) {
      tt_spans_remove(&set, &many[i]);
    }
    assert_null(set);
  }
  free(many);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(searches_find_what_a_list_finds),
                                     cmocka_unit_test(ends_do_not_wrap), cmocka_unit_test(many_stay_shallow)};
  return cmocka_run_group_tests_name("spans", tests, NULL, NULL);
}
