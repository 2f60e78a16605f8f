// The rig that runs ranks as processes: what it prints, what it kills, what it counts.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/ranks_rig.h"

// Rank 1 fails, and rank 2 never ends; both write. The others end well.
static void mixed(int rank, void *arg)
{
  (void)arg;
  printf("output of rank %d\n", rank);
  while (rank == 2) {
    pause();
  }
  if (rank == 1) {
    exit(7);
  }
}

// Leaves a process behind.
static void leaves_a_process(int rank, void *arg)
{
  (void)rank;
  (void)arg;
  if (fork() == 0) {
    prctl(PR_SET_PDEATHSIG, 0);
    for (;;) {
      pause();
    }
  }
}

// What `fn` writes to stderr.
static void text_of(void (*fn)(void), char *text, size_t size)
{
  int kept = dup(STDERR_FILENO), file = ranks_output_file();
  fflush(NULL);
  dup2(file, STDERR_FILENO);
  fn();
  fflush(NULL);
  dup2(kept, STDERR_FILENO);
  ssize_t n = pread(file, text, size - 1, 0);
  text[n > 0 ? n : 0] = '\0';
  close(kept);
  close(file);
}

static void unexpected(void)
{
  ranks_set r;
  ranks_start(&r, &(ranks_job){.n = 3, .seconds = 60, .fn = mixed});
  assert_int_equal(ranks_wait(&r), 2);
  assert_true(r.late[2] && !r.late[1]);
}

static void expected(void)
{
  ranks_set r;
  ranks_start(&r, &(ranks_job){.n = 3, .seconds = 60, .fn = mixed});
  r.expected[1] = 7;
  assert_true(ranks_wait_one(&r, 1));
  ranks_kill(&r, 2);
  assert_int_equal(ranks_wait(&r), 0);
}

static void prints_what_is_unexpected(void **state)
{
  char text[4096];
  (void)state;
  if (getenv("RANKS_OUTPUT") != NULL) {
    skip();
  }
  text_of(unexpected, text, sizeof text);
  assert_null(strstr(text, "output of rank 0"));
  assert_non_null(strstr(text, "rank 1: exit status 7, expected exit status 0"));
  assert_non_null(strstr(text, "output of rank 1"));
  assert_non_null(strstr(text, "rank 2: signal 9, expected exit status 0: killed, as its time was up"));
  assert_non_null(strstr(text, "output of rank 2"));
  text_of(expected, text, sizeof text);
  assert_string_equal(text, "");
}

// A rank that is expected to die of SIGKILL does not do so by the time limit.
static void a_limit_is_no_expected_end(void **state)
{
  ranks_set r;
  (void)state;
  ranks_start(&r, &(ranks_job){.n = 3, .seconds = 1, .fn = mixed});
  r.expected[1] = 7;
  r.expected[2] = -SIGKILL;
  assert_int_equal(ranks_wait(&r), 1);
}

static void nothing_is_left(void **state)
{
  ranks_set r;
  (void)state;
  ranks_start(&r, &(ranks_job){.n = 4, .seconds = 60, .fn = leaves_a_process});
  assert_int_equal(ranks_wait(&r), 0);
  assert_int_equal(r.left_behind, 4);
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(prints_what_is_unexpected),
      cmocka_unit_test(a_limit_is_no_expected_end),
      cmocka_unit_test(nothing_is_left),
  };
  return cmocka_run_group_tests_name("ranks_rig", tests, NULL, NULL);
}
