#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>

#include "base/log.h"
#include "base/result.h"
#include "base/test_child.h"

static void texts(void **unused)
{
  (void)unused;
  assert_string_equal(tt_result_string(ncclSuccess), "no error");
  for (int i = 0; i < ncclNumResults; i++) {
    assert_string_not_equal(tt_result_string((ncclResult_t)i), "unknown result code");
  }
  assert_string_equal(tt_result_string((ncclResult_t)-1), "unknown result code");
  assert_string_equal(tt_result_string(ncclNumResults), "unknown result code");
}

static void *record(void *text)
{
  tt_fail(ncclSystemError, "%s", (const char *)text);
  return NULL;
}

static void *read_last(void *out)
{
  snprintf(out, 64, "%s", tt_last_error());
  return NULL;
}

static void in_thread(void *(*fn)(void *), void *arg)
{
  pthread_t t;
  assert_int_equal(pthread_create(&t, NULL, fn, arg), 0);
  pthread_join(t, NULL);
}

static void own_error_before_others(void **unused)
{
  (void)unused;
  char text[64];
  char first[] = "rank 3 is gone";
  char second[] = "rank 4 is gone";
  assert_string_equal(tt_last_error(), "");
  in_thread(record, first);
  assert_string_equal(tt_last_error(), "rank 3 is gone");
  errno = ENOENT;
  assert_int_equal(tt_fail(ncclInvalidArgument, "count %d", 7), ncclInvalidArgument);
  assert_int_equal(errno, ENOENT);
  in_thread(record, second);
  assert_string_equal(tt_last_error(), "count 7");
  in_thread(read_last, text);
  assert_string_equal(text, "rank 4 is gone");
}

static void last_error_may_be_an_argument(void **unused)
{
  (void)unused;
  tt_fail(ncclInternalError, "inner");
  tt_fail(ncclInternalError, "outer: %s", tt_last_error());
  assert_string_equal(tt_last_error(), "outer: inner");
}

static void long_text_is_cut(void **unused)
{
  (void)unused;
  tt_fail(ncclInternalError, "%5000d", 1);
  assert_int_equal(strlen(tt_last_error()), 1023);
}

static ncclResult_t passes(ncclResult_t code, int *reached)
{
  TT_TRY(code);
  *reached = 1;
  return ncclSuccess;
}

static void try_returns_errors_only(void **unused)
{
  (void)unused;
  int reached = 0;
  assert_int_equal(passes(ncclRemoteError, &reached), ncclRemoteError);
  assert_int_equal(reached, 0);
  assert_int_equal(passes(ncclInProgress, &reached), ncclSuccess);
  assert_int_equal(reached, 1);
}

static void *record_many(void *text)
{
  for (int i = 0; i < 2000; i++) {
    tt_fail(ncclSystemError, "%s", (const char *)text);
  }
  return NULL;
}

// Readers see one writer's text or the other's, never a mixture.
static void threads_do_not_mix(void **unused)
{
  (void)unused;
  char a[200];
  char b[200];
  memset(a, 'a', sizeof a - 1);
  memset(b, 'b', sizeof b - 1);
  a[199] = b[199] = '\0';
  pthread_t t[2];
  assert_int_equal(pthread_create(&t[0], NULL, record_many, a), 0);
  assert_int_equal(pthread_create(&t[1], NULL, record_many, b), 0);
  for (int i = 0; i < 200; i++) {
    char text[64];
    in_thread(read_last, text);
    assert_int_equal(strspn(text, text[0] == 'a' ? "a" : text[0] == 'b' ? "b" : text), strlen(text));
  }
  pthread_join(t[0], NULL);
  pthread_join(t[1], NULL);
}

// A connection breaks; then it becomes known that a rank has died.
static void a_death_explains_remote_errors(void **unused)
{
  (void)unused;
  tt_fail(ncclRemoteError, "connection reset");
  tt_last_error_root("rank 3 was killed");
  assert_string_equal(tt_last_error_explained(), "rank 3 was killed");
  assert_string_equal(tt_last_error(), "connection reset"); // what goes on within the library is of one communicator
  tt_fail(ncclRemoteError, "another connection reset");     // of what happens afterwards nothing is known
  assert_string_equal(tt_last_error_explained(), "another connection reset");
  tt_last_error_end(ncclRemoteError, "why it ended");
  tt_last_error_root("rank 4 was killed");
  assert_string_equal(tt_last_error_explained(), "rank 4 was killed");
  tt_fail(ncclInvalidArgument, "own fault");
  tt_last_error_root("rank 5 was killed");
  assert_string_equal(tt_last_error_explained(), "own fault");
}

static tt_error *kept;

static void *keep_one(void *unused)
{
  kept = tt_error_keep(); // nothing yet
  assert_null(kept);
  tt_fail(ncclRemoteError, "connection to rank 3 reset");
  kept = tt_error_keep();
  tt_fail(ncclInternalError, "a later error");
  return unused;
}

// A thread is told another one's error, whatever the process has met since.
static void an_error_is_handed_on(void **unused)
{
  (void)unused;
  tt_fail(ncclInvalidArgument, "own fault");
  in_thread(keep_one, NULL);
  tt_error_give(NULL);
  assert_string_equal(tt_last_error(), "own fault");
  tt_error_give(kept);
  assert_string_equal(tt_last_error(), "connection to rank 3 reset");
  tt_last_error_root("rank 3 was killed");
  assert_string_equal(tt_last_error_explained(), "rank 3 was killed");
  tt_free(kept);
}

static void fail_once(void)
{
  tt_fail(ncclInvalidUsage, "what went wrong");
}

static void failure_is_logged(void **unused)
{
  (void)unused;
  char out[1024];
  child_run(CHILD_ENV("NCCL_DEBUG=WARN"), fail_once, out, sizeof out);
  assert_contains(out, "result_test.c:");
  assert_contains(out, "NCCL WARN what went wrong\n");
  child_run(CHILD_ENV("NCCL_DEBUG=VERSION"), fail_once, out, sizeof out);
  assert_string_equal(out, "");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(failure_is_logged), // first: children start from a process without threads and with nothing read
      cmocka_unit_test(texts),
      cmocka_unit_test(own_error_before_others),
      cmocka_unit_test(last_error_may_be_an_argument),
      cmocka_unit_test(long_text_is_cut),
      cmocka_unit_test(try_returns_errors_only),
      cmocka_unit_test(threads_do_not_mix),
      cmocka_unit_test(a_death_explains_remote_errors),
      cmocka_unit_test(an_error_is_handed_on),
  };
  unsetenv("NCCL_DEBUG");
  return cmocka_run_group_tests_name("result", tests, NULL, NULL);
}
