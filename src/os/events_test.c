// events_test.c: what wakes, what does not, and that an event which comes before the wait is not lost.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>

#include "os/clock.h"
#include "os/events.h"
#include "os/shm.h"
#include "os/thread.h"

static void *ring_later(void *fd)
{
  tt_sleep_ns(2 * TT_NS_PER_MS);
  tt_ring(*(int *)fd);
  return NULL;
}

static void test_ring(void **state)
{
  (void)state;
  int fd = -1;
  tt_thread t = {0};
  assert_int_equal(tt_ring_open(&fd), 0);
  tt_ring_clear(fd); // not rung: returns at once
  tt_ring_wait(fd, TT_NS_PER_MS);
  tt_ring(fd);
  tt_ring(fd);
  tt_ring_wait(fd, TT_EVENTS_FOREVER);
  tt_ring_wait(fd, TT_EVENTS_FOREVER);
  tt_ring_clear(fd);
  assert_int_equal(tt_thread_start(&t, "ringer", ring_later, &fd), 0);
  tt_ring_wait(fd, TT_EVENTS_FOREVER);
  tt_thread_join(&t);
  tt_fd_close(fd);
}

// Has the set something to tell?
static bool tells(int set)
{
  struct pollfd p = {.fd = set, .events = POLLIN};
  return poll(&p, 1, 0) == 1;
}

static void test_set(void **state)
{
  (void)state;
  int set = -1, inner = -1, fd = -1;
  tt_thread t = {0};
  assert_int_equal(tt_events_open(&set), 0);
  assert_int_equal(tt_events_open(&inner), 0);
  assert_int_equal(tt_ring_open(&fd), 0);
  tt_ring(fd); // before it is added
  assert_int_equal(tt_events_add(inner, fd, true), 0);
  assert_int_equal(tt_events_add(set, inner, true), 0); // a set in a set, as networks' sets are in the progress thread's
  assert_true(tt_events_add(set, inner, true) < 0);
  assert_true(tt_events_add(set, 1 << 20, true) < 0);
  tt_events_wait(set, TT_EVENTS_FOREVER);
  tt_events_wait(set, 1); // still readable, but nothing new: ends by its time
  assert_false(tells(set));
  tt_ring(fd); // new, although it was readable all the time
  tt_events_wait(set, TT_EVENTS_FOREVER);
  assert_int_equal(tt_thread_start(&t, "ringer", ring_later, &fd), 0);
  tt_events_wait(set, TT_EVENTS_FOREVER);
  tt_thread_join(&t);
  tt_ring(fd);
  assert_true(tells(set));
  tt_events_wait(set, 0);
  assert_false(tells(set));
  tt_events_remove(set, inner);
  tt_ring(fd);
  assert_false(tells(set));
  tt_fd_close(fd);
  tt_fd_close(inner);
  tt_fd_close(set);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_ring), cmocka_unit_test(test_set)};
  return cmocka_run_group_tests_name("events", tests, NULL, NULL);
}
