// Each case is a child: the parameters, the log and what was advised exist once in a process.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/advice.h"
#include "base/param.h"
#include "base/test_child.h"
#include "base/util.h"

// Standard error beside standard output; then what the process reads first, and whether it speaks for its job.
static void both(void)
{
  dup2(STDOUT_FILENO, STDERR_FILENO);
}

static void reads_and_speaks(void)
{
  both();
  tt_advice_speak();
  tt_advice_speak();
}

static void reads_only(void)
{
  both();
  tt_params_get();
}

static void advises(void)
{
  both();
  for (int i = 0; i < 3; i++) {
    tt_advise("X=%d is not in 0 ... 9", 12);
  }
  tt_advice_speak();
  tt_advise("X=%d is not in 0 ... 9", 12);
  tt_advise("Y=%s is unknown", "z");
}

static void advises_much(void)
{
  both();
  char text[2 * TT_ADVICE_BYTES];
  memset(text, 'a', sizeof text);
  text[sizeof text - 1] = '\0';
  tt_advise("%s", text);
  for (int i = 0; i < 100; i++) {
    tt_advise("number %d", i);
  }
  tt_advice_speak();
}

static void advises_at_length(void)
{
  both();
  tt_advise("%*s the end", 2 * TT_ADVICE_BYTES, "a");
}

static void who_speaks_says_each_fault_once(void **unused)
{
  (void)unused;
  char out[8192];
  child_run(CHILD_ENV("NCCL_DEBG=INFO", "TUTTI_TRACE_DRI=/tmp", "TUTTI_BUILD=x", "NCCL_BUFFSIZE=abc", "NCCL_XYZZY=1"),
            reads_and_speaks, out, sizeof out);
  assert_contains(out, "NCCL WARN NCCL_DEBG (environment) is not known; did you mean NCCL_DEBUG?\n");
  assert_contains(out, "NCCL WARN TUTTI_TRACE_DRI (environment) is not known; did you mean TUTTI_TRACE_DIR?\n");
  assert_contains(out, "NCCL WARN NCCL_BUFFSIZE=abc (environment): expected a whole number");
  assert_int_equal(count_of(out, "\n"), 3);
  child_run(CHILD_ENV("PATH=/bin"), advises, out, sizeof out);
  assert_string_equal(out, "NCCL WARN X=12 is not in 0 ... 9\nNCCL WARN Y=z is unknown\n");
}

static void others_are_silent(void **unused)
{
  (void)unused;
  char out[8192];
  child_run(CHILD_ENV("NCCL_DEBG=INFO"), reads_only, out, sizeof out);
  assert_string_equal(out, "");
  child_run(CHILD_ENV("NCCL_DEBUG=VERSION", "NCCL_DEBG=INFO"), reads_and_speaks, out, sizeof out);
  assert_string_equal(out, "");
  child_run(CHILD_ENV("NCCL_HOSTID=a", "NCCL_DEBUG_SUBSYS=ALL"), reads_and_speaks, out, sizeof out);
  assert_string_equal(out, "");
}

static void a_log_that_shows_warnings_has_them(void **unused)
{
  (void)unused;
  char out[8192];
  child_run(CHILD_ENV("NCCL_DEBUG=WARN", "NCCL_DEBG=INFO"), reads_only, out, sizeof out);
  assert_contains(out, "NCCL WARN NCCL_DEBG (environment) is not known");
  child_run(CHILD_ENV("NCCL_DEBUG=WARN", "NCCL_DEBG=INFO"), reads_and_speaks, out, sizeof out);
  assert_int_equal(count_of(out, "NCCL_DEBG"), 1);
  child_run(CHILD_ENV("NCCL_DEBUG=WARN"), advises_at_length, out, sizeof out);
  assert_contains(out, " a the end\n");
}

static void bounded(void **unused)
{
  (void)unused;
  char out[1 << 14];
  child_run(CHILD_ENV("PATH=/bin"), advises_much, out, sizeof out);
  assert_int_equal(count_of(out, "\n"), TT_ADVICE_LINES);
  assert_true(strcspn(out, "\n") == TT_ADVICE_BYTES - 2);
  assert_contains(out, "number 6\n");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(who_speaks_says_each_fault_once),
      cmocka_unit_test(others_are_silent),
      cmocka_unit_test(a_log_that_shows_warnings_has_them),
      cmocka_unit_test(bounded),
  };
  return cmocka_run_group_tests_name("advice", tests, NULL, NULL);
}
