// arena_test.c: pieces are zeroed, aligned and apart; what fails stays noted; one end.
#include "base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"

static void pieces_are_apart(void **state)
{
  (void)state;
  enum { PIECES = 2000 };
  tt_arena a = {0};
  unsigned char *piece[PIECES];
  for (int i = 0; i < PIECES; i++) {
    size_t n = (size_t)(i * 7 % 300);
    TT_ARENA_NEW(&a, piece[i], n);
    assert_non_null(piece[i]);
    assert_int_equal((uintptr_t)piece[i] % 16, 0);
    for (size_t k = 0; k < n; k++) {
      assert_int_equal(piece[i][k], 0);
    }
    memset(piece[i], i, n);
  }
  for (int i = 0; i < PIECES; i++) {
    for (size_t k = 0; k < (size_t)(i * 7 % 300); k++) {
      assert_int_equal(piece[i][k], i & 0xff);
    }
  }
  assert_string_equal(tt_arena_text(&a, "a text", 4), "a te");
  assert_false(a.failed);
  tt_arena_clear(&a);
  assert_null(a.blocks);
  tt_arena_clear(&a);
}

static void failures_stay_noted(void **state)
{
  (void)state;
  tt_arena a = {0};
  int *small, *big;
  TT_ARENA_NEW(&a, small, 4);
  assert_non_null(small);
  tt_alloc_fail_at(1);
  TT_ARENA_NEW(&a, big, 1 << 20);
  assert_int_equal(tt_alloc_fail_at(0), 0);
  assert_null(big);
  TT_ARENA_NEW(&a, big, 1 << 20);
  assert_non_null(big);
  assert_true(a.failed);
  tt_arena_clear(&a);
  assert_false(a.failed);
  assert_null(tt_arena_get(&a, SIZE_MAX / 2, 3)); // the product is no size
  assert_null(tt_arena_get(&a, 1, SIZE_MAX));
  assert_true(a.failed);
  tt_arena_clear(&a);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pieces_are_apart),
      cmocka_unit_test(failures_stay_noted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
