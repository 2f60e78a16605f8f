// events_test.c: what wakes, what does not, and that an event which comes before the wait is not lost.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
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
  // A set in a set, as networks' sets are in the progress thread's.
  assert_int_equal(tt_events_add(set, inner, true), 0);
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

static void expect_owners(int set, int room, void *first, void *second)
{
  void *owners[2] = {NULL, NULL};
  assert_int_equal(tt_events_take(set, owners, room), (first != NULL) + (second != NULL));
  assert_true((owners[0] == first && owners[1] == second) || (owners[0] == second && owners[1] == first));
}

// What is ready is named by its owner: again and again as long as it is ready, or once.
static void test_owners(void **state)
{
  (void)state;
  int set = -1, level = -1, edge = -1;
  assert_int_equal(tt_events_open(&set), 0);
  assert_int_equal(tt_ring_open(&level), 0);
  assert_int_equal(tt_ring_open(&edge), 0);
  assert_true(tt_events_watch(set, 1 << 20, TT_EVENTS_IN, &set) < 0);
  assert_int_equal(tt_events_watch(set, level, TT_EVENTS_IN, &level), 0);
  assert_int_equal(tt_events_watch(set, edge, TT_EVENTS_IN | TT_EVENTS_EDGE, &edge), 0);
  expect_owners(set, 2, NULL, NULL);
  tt_ring(level);
  tt_ring(edge);
  expect_owners(set, 2, &level, &edge);
  expect_owners(set, 2, &level, NULL);
  tt_ring(edge);
  void *one = NULL, *other = NULL; // no room for both: each is told by a call of its own
  assert_int_equal(tt_events_take(set, &one, 1), 1);
  assert_int_equal(tt_events_take(set, &other, 1), 1);
  assert_true(one != other);
  tt_ring_clear(level);
  expect_owners(set, 2, NULL, NULL);
  assert_int_equal(tt_events_watch(set, level, TT_EVENTS_IN | TT_EVENTS_OUT, &set), 0); // changed
  expect_owners(set, 2, &set, NULL);
  tt_events_remove(set, level);
  tt_ring(level);
  expect_owners(set, 2, NULL, NULL);
  tt_fd_close(level);
  tt_fd_close(edge);
  tt_fd_close(set);
}

static void test_timers(void **state)
{
  (void)state;
  static const uint64_t times[] = {5, 9, 9, 1, UINT64_MAX, 7};
  tt_span t[TT_COUNT(times)] = {{.size = 0}}, *set = NULL;
  assert_null(tt_timer_first(set));
  for (size_t i = 0; i < TT_COUNT(times); i++) {
    tt_timer_set(&set, &t[i], times[i]);
  }
  assert_ptr_equal(tt_timer_first(set), &t[3]);
  tt_timer_set(&set, &t[3], 0);
  tt_timer_set(&set, &t[3], 0); // is not set
  assert_ptr_equal(tt_timer_first(set), &t[0]);
  tt_timer_set(&set, &t[0], 8);
  assert_ptr_equal(tt_timer_first(set), &t[5]);
  for (size_t left = TT_COUNT(times) - 1, last = 0; left > 0; left--) {
    tt_span *first = tt_timer_first(set);
    assert_true(first->start >= last);
    last = first->start;
    tt_timer_set(&set, first, 0);
  }
  assert_null(set);
}

static bool is_open_fd(int fd)
{
  return fcntl(fd, F_GETFD) >= 0;
}

// In a child: sets in sets, a whole chain of them, and what they watch; not what has the number of something that was
// watched.
static void test_close_watched(void **state)
{
  (void)state;
  int set = -1, inner[20], pipes[2], other[2], kept = -1;
  assert_int_equal(tt_events_open(&set), 0);
  assert_int_equal(pipe(pipes), 0);
  assert_int_equal(pipe(other), 0);
  for (int i = 0; i < 20; i++) {
    assert_int_equal(tt_events_open(&inner[i]), 0);
    assert_int_equal(tt_events_add(i % 4 == 0 ? set : inner[i - 1], inner[i], true), 0);
  }
  assert_int_equal(tt_events_add(inner[3], pipes[0], true), 0);
  assert_int_equal(tt_events_add(inner[19], other[0], true), 0);
  kept = dup(other[0]); // so that the set goes on watching a number that is somebody else's
  assert_int_equal(dup2(pipes[1], other[0]), other[0]);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    tt_events_close_watched(set);
    bool good =
        !is_open_fd(set) && !is_open_fd(pipes[0]) && is_open_fd(pipes[1]) && is_open_fd(other[0]) && is_open_fd(kept);
    for (int i = 0; i < 20; i++) {
      good &= !is_open_fd(inner[i]);
    }
    _exit(good ? 0 : 1);
  }
  int status = -1;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  assert_false(tells(set));
  assert_int_equal(write(pipes[1], "x", 1), 1); // the parent's set is whole
  assert_true(tells(set));
  int all[] = {set, pipes[0], pipes[1], other[0], other[1], kept};
  for (size_t i = 0; i < TT_COUNT(all); i++) {
    tt_fd_close(all[i]);
  }
  for (int i = 0; i < 20; i++) {
    tt_fd_close(inner[i]);
  }
}

// Eventfds and sets have one inode, all of them: what has the number of one that was watched is another.
static void test_close_watched_alike(void **state)
{
  (void)state;
  int set = -1, other = -1, sets[2] = {-1, -1}, rings[4];
  assert_int_equal(tt_events_open(&set), 0);
  assert_int_equal(tt_events_open(&other), 0);
  for (int i = 0; i < 4; i++) {
    assert_int_equal(tt_ring_open(&rings[i]), 0);
  }
  for (int i = 0; i < 2; i++) {
    assert_int_equal(tt_events_open(&sets[i]), 0);
    assert_int_equal(tt_events_add(set, rings[i], true), 0);
    assert_int_equal(tt_events_add(set, sets[i], true), 0);
  }
  assert_int_equal(tt_events_add(other, rings[2], true), 0);
  int kept[2] = {dup(rings[1]), dup(sets[1])};
  assert_int_equal(dup2(rings[3], rings[1]), rings[1]);
  assert_int_equal(dup2(other, sets[1]), sets[1]);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    tt_events_close_watched(set);
    bool gone = !is_open_fd(set) && !is_open_fd(rings[0]) && !is_open_fd(sets[0]);
    bool there = is_open_fd(rings[1]) && is_open_fd(sets[1]) && is_open_fd(rings[2]) && is_open_fd(rings[3]) &&
                 is_open_fd(kept[0]) && is_open_fd(kept[1]);
    _exit(gone && there ? 0 : 1);
  }
  int status = -1;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  assert_false(tells(set));
  tt_ring(rings[1]);
  assert_false(tells(set)); // the child has left nothing in it
  tt_ring(kept[0]);
  assert_true(tells(set)); // and taken nothing out of it
  int all[] = {set, other, sets[0], sets[1], rings[0], rings[1], rings[2], rings[3], kept[0], kept[1]};
  for (size_t i = 0; i < TT_COUNT(all); i++) {
    tt_fd_close(all[i]);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_ring),          cmocka_unit_test(test_set),
                                     cmocka_unit_test(test_owners),        cmocka_unit_test(test_timers),
                                     cmocka_unit_test(test_close_watched), cmocka_unit_test(test_close_watched_alike)};
  return cmocka_run_group_tests_name("events", tests, NULL, NULL);
}
