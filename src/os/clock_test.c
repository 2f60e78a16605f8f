// clock_test.c: spans that users have written.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "os/clock.h"

static void spans_are_sane(void **state)
{
  (void)state;
  assert_true(tt_span_ns(3, TT_NS_PER_S) == 3 * TT_NS_PER_S);
  assert_true(tt_span_ns(0, TT_NS_PER_S) == TT_NS_PER_S && tt_span_ns(INT64_MIN, TT_NS_PER_MS) == TT_NS_PER_MS);
  assert_true(tt_span_ns(INT64_MAX, TT_NS_PER_S) == TT_LONGEST_NS && tt_span_ns(INT64_MAX, 1) == TT_LONGEST_NS);
  uint64_t now = tt_now_ns();
  assert_true(now + 2 * tt_span_ns(INT64_MAX, TT_NS_PER_S) > now); // no deadline lies in the past
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(spans_are_sane)};
  return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
