// The table of algorithms: what profilers are told of each row.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "coll/coll.h"

static void every_algorithm_has_a_name(void **state)
{
  (void)state;
  int count = 0;
  const tt_algorithm *table = tt_algorithms(&count);
  for (int i = 0; i < count; i++) {
    const char *name = table[i].id;
    if (strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") != strlen(name)) {
      fail_msg("algorithm %s has no name of its own for profilers: %s", table[i].name, name);
    }
    for (int k = 0; k < i; k++) {
      assert_string_not_equal(name, table[k].id);
    }
  }
}

static void shared_ones_are_named_as_nccl_does(void **state)
{
  (void)state;
  const char *const rows[][2] = {{"Ring", "RING"},
                                 {"Tree", "TREE"},
                                 {"PAT", "PAT"},
                                 {"CollNetChain", "COLLNET_CHAIN"},
                                 {"CollNetDirect", "COLLNET_DIRECT"}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    assert_string_equal(tt_algorithms(NULL)[tt_algorithm_find(rows[i][0])].id, rows[i][1]);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_algorithm_has_a_name),
                                     cmocka_unit_test(shared_ones_are_named_as_nccl_does)};
  return cmocka_run_group_tests_name("table", tests, NULL, NULL);
}
