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

static bool is_open(int fd)
{
  return fcntl(fd, F_GETFD) >= 0;
}

// In a child: sets in sets, a whole chain of them, and what they watch; not what has the number of something that was watched.
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
    bool good = !is_open(set) && !is_open(pipes[0]) && is_open(pipes[1]) && is_open(other[0]) && is_open(kept);
    for (int i = 0; i < 20; i++) {
      good &= !is_open(inner[i]);
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
    bool gone = !is_open(set) && !is_open(rings[0]) && !is_open(sets[0]);
    bool there = is_open(rings[1]) && is_open(sets[1]) && is_open(rings[2]) && is_open(rings[3]) && is_open(kept[0]) && is_open(kept[1]);
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_ring), cmocka_unit_test(test_set), cmocka_unit_test(test_close_watched),
                                     cmocka_unit_test(test_close_watched_alike)};
  return cmocka_run_group_tests_name("events", tests, NULL, NULL);
}
