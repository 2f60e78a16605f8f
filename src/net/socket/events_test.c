// events_test.c: what net.h promises of events_fd rests on: every event is told edge-triggered, also through a second
// set that watches the first and never reads it.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os/events.h"
#include "os/socket.h"

static int events_watch(int set)
{
  int outer = epoll_create1(0);
  assert_true(outer >= 0);
  assert_int_equal(epoll_ctl(outer, EPOLL_CTL_ADD, set, &(struct epoll_event){.events = EPOLLIN | EPOLLET}), 0);
  return outer;
}

static int events_told(int outer)
{
  struct epoll_event e;
  return epoll_wait(outer, &e, 1, 0);
}

static void test_events_ring(void **state)
{
  (void)state;
  int set = -1, ring = -1;
  assert_int_equal(tt_events_open(&set), 0);
  assert_int_equal(tt_ring_open(&ring), 0);
  assert_int_equal(tt_events_add(set, ring, true), 0);
  int outer = events_watch(set);
  assert_int_equal(events_told(outer), 0);
  for (int i = 0; i < 5; i++) { // without ever being cleared
    tt_ring(ring);
    assert_int_equal(events_told(outer), 1);
    assert_int_equal(events_told(outer), 0);
  }
  tt_ring_clear(ring);
  assert_int_equal(events_told(outer), 0);
  tt_events_remove(set, ring);
  tt_ring(ring);
  assert_int_equal(events_told(outer), 0);
  close(outer);
  close(ring);
  close(set);
}

static void test_sockets(void **state)
{
  (void)state;
  int set = -1, fds[2], copy = -1;
  char bytes[4096] = "";
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
  assert_int_equal(tt_sock_copy(fds[0], &copy), 0);
  assert_int_equal(tt_events_open(&set), 0);
  assert_int_equal(tt_events_add(set, fds[0], true), 0);
  assert_int_equal(tt_events_add(set, copy, false), 0); // the other direction of the same socket
  int outer = events_watch(set);
  (void)events_told(outer); // it can be written to
  assert_int_equal(events_told(outer), 0);
  for (int i = 0; i < 3; i++) { // unread data do not hide new ones
    assert_int_equal(tt_sock_send(fds[1], bytes, 1), 1);
    assert_int_equal(events_told(outer), 1);
    assert_int_equal(events_told(outer), 0);
  }
  while (tt_sock_send(copy, bytes, sizeof(bytes)) > 0) {
  }
  (void)events_told(outer);
  while (tt_sock_recv(fds[1], bytes, sizeof(bytes)) > 0) {
  }
  assert_int_equal(events_told(outer), 1); // room again
  tt_sock_close(&fds[1]);
  assert_int_equal(events_told(outer), 1); // the end
  tt_sock_close(&copy);
  tt_sock_close(&fds[0]);
  close(outer);
  close(set);
}

// Several pieces in one call, both ways.
static void test_events_pieces(void **state)
{
  (void)state;
  int fds[2];
  char a[3] = {1, 2, 3}, b[2] = {4, 5}, c[1], d[9];
  struct iovec out[2] = {{a, 3}, {b, 2}}, in[2] = {{c, 1}, {d, 9}};
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
  assert_int_equal(tt_sock_sendv(fds[0], out, 2), 5);
  assert_int_equal(tt_sock_recvv(fds[1], in, 2), 5);
  assert_int_equal(c[0], 1);
  assert_memory_equal(d, ((char[]){2, 3, 4, 5}), 4);
  assert_true(tt_sock_recvv(fds[1], in, 2) == -EAGAIN);
  assert_int_equal(tt_sock_silent_ms(fds[0]), 0);
  tt_sock_close(&fds[0]);
  assert_true(tt_sock_recvv(fds[1], in, 2) < 0);
  assert_true(tt_sock_sendv(fds[1], out, 2) < 0); // and no signal
  tt_sock_close(&fds[1]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_events_ring), cmocka_unit_test(test_sockets),
                                     cmocka_unit_test(test_events_pieces)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
