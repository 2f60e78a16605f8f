#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/text.h"
#include "base/util.h"
#include "nccl.h"

static void arithmetic(void **unused)
{
  (void)unused;
  assert_int_equal(TT_DIV_UP(0, 4), 0);
  assert_int_equal(TT_DIV_UP(9, 4), 3);
  assert_int_equal(TT_ROUND_UP(9, 4), 12);
  assert_int_equal(TT_CLAMP(-3, 0, 7), 0);
  assert_int_equal(TT_CLAMP(9, 0, 7), 7);
}

static void allocations_are_zeroed_and_aligned(void **unused)
{
  (void)unused;
  for (size_t size = 0; size < 300; size += 37) {
    unsigned char *p = tt_calloc_line(size);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % TT_CACHE_LINE, 0);
    for (size_t i = 0; i < size; i++) {
      assert_int_equal(p[i], 0);
    }
    tt_free(p);
  }
  // Sizes that no machine has, hidden from the compiler, which would warn.
  volatile size_t huge = SIZE_MAX;
  assert_null(tt_calloc(huge / 2, 4));
  assert_null(tt_calloc_line(huge - 8));
  tt_free(NULL);
}

static void kth_allocation_fails(void **unused)
{
  (void)unused;
  for (long k = 1; k <= 3; k++) {
    tt_alloc_fail_at(k);
    void *p[4] = {tt_calloc(1, 1), tt_calloc_line(1), tt_strdup("x"), tt_calloc(1, 1)};
    for (long i = 0; i < 4; i++) {
      assert_int_equal(p[i] == NULL, i == k - 1);
      tt_free(p[i]);
    }
  }
  assert_true(tt_alloc_fail_at(2) <= 0); // the last of them came
  void *p[2] = {tt_calloc(1, 1), NULL};
  assert_int_equal(tt_alloc_fail_at(0), 1);
  p[1] = tt_calloc(1, 1);
  assert_true(p[0] != NULL && p[1] != NULL);
  tt_free(p[0]);
  tt_free(p[1]);
}

static void strdup_copies(void **unused)
{
  (void)unused;
  assert_null(tt_strdup(NULL));
  char *copy = tt_strdup("tutti");
  assert_string_equal(copy, "tutti");
  tt_free(copy);
}

static void hash_is_stable_and_spreads(void **unused)
{
  (void)unused;
  // Processes on different machines compare hashes: these values may not change.
  assert_true(tt_hash("", 0, 0) == UINT64_C(0xefd01f60ba992926));
  assert_true(tt_hash("tutti", 5, 0) == UINT64_C(0x9c23835b03e5a226));
  assert_true(tt_hash("a", 1, 0) != tt_hash("a", 1, 1));
  unsigned seen[256] = {0};
  for (int i = 0; i < 4096; i++) {
    seen[tt_hash(&i, sizeof i, 0) >> 56]++;
  }
  for (int i = 0; i < 256; i++) {
    assert_in_range(seen[i], 1, 48); // 16 on average
  }
}

static void types_and_names(void **unused)
{
  (void)unused;
  static const size_t sizes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  for (int i = 0; i < ncclNumTypes; i++) {
    assert_int_equal(tt_type_size(i), sizes[i]);
    assert_string_not_equal(tt_type_name(i), "?");
  }
  assert_int_equal(tt_type_size(-1), 0);
  assert_int_equal(tt_type_size(ncclNumTypes), 0);
  assert_string_equal(tt_type_name(ncclBfloat16), "ncclBfloat16");
  assert_string_equal(tt_type_name(-1), "?");
}

// A list is whole, or ends in "..." and stays so; it never passes its room.
static void test_lists(void **state)
{
  (void)state;
  char list[24] = "";
  tt_list_add(list, sizeof list, "%s", "eth0");
  assert_string_equal(list, "eth0");
  tt_list_add(list, sizeof list, "%d-%d", 3, 7);
  assert_string_equal(list, "eth0, 3-7");
  tt_list_add(list, sizeof list, "%s", "longer than fits");
  assert_string_equal(list, "eth0, 3-7, ...");
  tt_list_add(list, sizeof list, "%s", "x");
  assert_string_equal(list, "eth0, 3-7, ...");
  for (size_t size = 8; size <= sizeof list; size++) {
    memset(list, 'z', sizeof list);
    list[0] = '\0';
    for (int i = 0; i < 9; i++) {
      tt_list_add(list, size, "%d", i);
    }
    assert_true(strlen(list) < size && strcmp(list + strlen(list) - 3, "...") == 0);
    assert_true(size == sizeof list || list[size] == 'z');
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(arithmetic),
      cmocka_unit_test(allocations_are_zeroed_and_aligned),
      cmocka_unit_test(kth_allocation_fails),
      cmocka_unit_test(strdup_copies),
      cmocka_unit_test(hash_is_stable_and_spreads),
      cmocka_unit_test(types_and_names),
      cmocka_unit_test(test_lists),
  };
  return cmocka_run_group_tests_name("util", tests, NULL, NULL);
}
