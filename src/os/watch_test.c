// watch_test.c: what wakes, what does not, and that a change which comes before the wait is not lost.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "os/clock.h"
#include "os/shm.h"
#include "os/thread.h"
#include "os/watch.h"

static void *set_later(void *fd)
{
  tt_sleep_ns(2 * TT_NS_PER_MS);
  tt_wake_set(*(int *)fd);
  return NULL;
}

static void test_wake(void **state)
{
  (void)state;
  int fd = -1;
  tt_thread t = {0};
  assert_int_equal(tt_wake_open(&fd), 0);
  tt_wake_clear(fd); // not set: returns at once
  tt_wake_wait(fd, TT_NS_PER_MS);
  tt_wake_set(fd);
  tt_wake_set(fd);
  tt_wake_wait(fd, TT_WATCH_FOREVER);
  tt_wake_clear(fd);
  assert_int_equal(tt_thread_start(&t, "setter", set_later, &fd), 0);
  tt_wake_wait(fd, TT_WATCH_FOREVER);
  tt_thread_join(&t);
  tt_fd_close(fd);
}

static void test_set(void **state)
{
  (void)state;
  int set = -1, level = -1, edge = -1;
  tt_thread t = {0};
  assert_int_equal(tt_watch_open(&set), 0);
  assert_int_equal(tt_wake_open(&level), 0);
  assert_int_equal(tt_wake_open(&edge), 0);
  tt_wake_set(edge); // before it is added
  assert_int_equal(tt_watch_add(set, level, false), 0);
  assert_int_equal(tt_watch_add(set, edge, true), 0);
  assert_true(tt_watch_add(set, edge, true) < 0);
  assert_true(tt_watch_add(set, 1 << 20, true) < 0);
  tt_watch_wait(set, TT_WATCH_FOREVER);
  tt_watch_wait(set, 1); // still readable, but not changed: ends by its time
  tt_wake_set(edge);     // changed, although it was readable all the time
  tt_watch_wait(set, TT_WATCH_FOREVER);
  assert_int_equal(tt_thread_start(&t, "setter", set_later, &edge), 0);
  tt_watch_wait(set, TT_WATCH_FOREVER);
  tt_thread_join(&t);
  tt_watch_remove(set, edge);
  tt_wake_set(level);
  tt_watch_wait(set, TT_WATCH_FOREVER);
  tt_watch_wait(set, TT_WATCH_FOREVER);
  tt_fd_close(level);
  tt_fd_close(edge);
  tt_fd_close(set);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_wake), cmocka_unit_test(test_set)};
  return cmocka_run_group_tests_name("watch", tests, NULL, NULL);
}
