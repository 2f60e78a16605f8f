// alike_test.c: the first of each kind, against a search; and how often two items are compared.
#include "base/alike.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/util.h"

typedef struct item {
  int number, kind;
} item;

static long compared;

static int by_kind(const void *a, const void *b)
{
  int x = (*(const item *const *)a)->kind, y = (*(const item *const *)b)->kind;
  compared++;
  return (x > y) - (x < y);
}

static int search(const item *items, int i)
{
  int k = 0;
  while (items[k].kind != items[i].kind) {
    k++;
  }
  return k;
}

static void first_of_each_kind(void **state)
{
  (void)state;
  enum { MOST = 300 };
  item items[MOST];
  int first[MOST];
  srand(7);
  for (int n = 0; n <= MOST; n += 1 + n / 8) {
    for (int kinds = 1; kinds <= n + 1; kinds *= 2) {
      for (int i = 0; i < n; i++) {
        items[i] = (item){.number = i, .kind = rand() % kinds};
      }
      assert_int_equal(tt_alike(items, sizeof *items, n, by_kind, first), ncclSuccess);
      for (int i = 0; i < n; i++) {
        assert_int_equal(first[i], search(items, i));
      }
    }
  }
}

// Items of n kinds, of one, and of n kinds in falling order.
static void few_comparisons(void **state)
{
  (void)state;
  enum { N = 1 << 12, LOG = 12 };
  static item items[N];
  static int first[N];
  for (int how = 0; how < 3; how++) {
    for (int i = 0; i < N; i++) {
      items[i] = (item){.number = i, .kind = how == 0 ? i : how == 1 ? 0 : N - i};
    }
    compared = 0;
    assert_int_equal(tt_alike(items, sizeof *items, N, by_kind, first), ncclSuccess);
    assert_in_range(compared, N - 1, 3 * N * LOG);
    assert_int_equal(first[N - 1], how == 1 ? 0 : N - 1);
  }
}

static void no_memory(void **state)
{
  (void)state;
  item one = {.kind = 1};
  int first = 5;
  tt_alloc_fail_at(1);
  assert_int_equal(tt_alike(&one, sizeof one, 1, by_kind, &first), ncclSystemError);
  tt_alloc_fail_at(0);
  assert_int_equal(first, 5);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(first_of_each_kind),
      cmocka_unit_test(few_comparisons),
      cmocka_unit_test(no_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
