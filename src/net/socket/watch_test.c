// watch_test.c: which sockets are in a context's set of events, and that nothing is missed by them coming late.
#include "net/socket/pair_rig.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/events.h"

// The sockets that the set watches, by what the kernel says; the ring does not count.
static int in_set(const tt_snet *net)
{
  char name[64], line[256];
  int n = 0;
  snprintf(name, sizeof name, "/proc/self/fdinfo/%d", net->base.events);
  FILE *f = fopen(name, "r");
  assert_non_null(f);
  while (fgets(line, sizeof line, f) != NULL) {
    int fd = -1;
    n += sscanf(line, "tfd: %d", &fd) == 1 && fd != net->base.ring;
  }
  fclose(f);
  return n;
}

// The other direction, from rank 1 to rank 0, by the socket of the first. Rank 1 knows of it first.
static void connect_back(pair *p, pair *back)
{
  *back = (pair){.net = {p->net[1], p->net[0]}};
  pair_listen(back);
  pair_connect(back);
}

static void close_back(const pair *back)
{
  NET->close_send(back->send);
  NET->close_recv(back->recv);
  NET->close_listen(back->listener);
}

static void test_on_and_off(void **state)
{
  (void)state;
  pair p, late;
  pair_open(&p, 0, 3);
  assert_int_equal(in_set(p.net[1]), 4); // at first it is on
  assert_int_equal(NET->watch_events(p.net[1], true), 0);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(NET->watch_events(p.net[1], false), 0);
    assert_int_equal(NET->watch_events(p.net[1], false), 0);
    assert_int_equal(in_set(p.net[1]), 0);
    assert_int_equal(NET->watch_events(p.net[1], true), 4);
    assert_int_equal(in_set(p.net[1]), 4);
  }
  connect_back(&p, &late); // made while it is on in both contexts
  assert_int_equal(in_set(p.net[0]), 8);
  assert_int_equal(in_set(p.net[1]), 8);
  close_back(&late);
  assert_int_equal(in_set(p.net[0]), 4); // although the first connection goes on, by the same control socket
  assert_int_equal(in_set(p.net[1]), 4);
  NET->watch_events(p.net[1], false);
  connect_back(&p, &late);
  assert_int_equal(in_set(p.net[1]), 0);
  assert_int_equal(NET->watch_events(p.net[1], true), 8);
  NET->watch_events(p.net[1], false);
  close_back(&late);
  assert_int_equal(NET->watch_events(p.net[1], true), 4);
  pair_close(&p);
}

static void test_helpers(void **state)
{
  (void)state;
  pair p;
  pair_open(&p, 2, 4);
  tt_snet_conn *c = p.recv;
  assert_int_equal(in_set(p.net[1]), 1); // the threads look after the others
  tt_snet_conn_unhelped(c);
  assert_int_equal(in_set(p.net[1]), 5);
  NET->watch_events(p.net[1], false);
  assert_int_equal(in_set(p.net[1]), 0);
  assert_int_equal(NET->watch_events(p.net[1], true), 5);
  tt_snet_conn *s = p.send;
  NET->watch_events(p.net[0], false);
  tt_snet_conn_unhelped(s);
  assert_int_equal(in_set(p.net[0]), 0);
  assert_int_equal(NET->watch_events(p.net[0], true), 5);
  pair_close(&p);
}

static bool watched_told(int outer)
{
  return poll(&(struct pollfd){.fd = outer, .events = POLLIN}, 1, 0) == 1;
}

// What the receiver's socket has, and nobody reads in this test.
static int watched_unread(const pair *p)
{
  int n = 0;
  assert_int_equal(ioctl(((tt_snet_conn *)p->recv)->fd, FIONREAD, &n), 0);
  return n;
}

// Returns once it is there.
static void send_byte(pair *p)
{
  int before = watched_unread(p);
  char byte = 1;
  void *r = NULL;
  int done = 0;
  assert_int_equal(NET->isend(p->send, &byte, 1, 0, NULL, NULL, &r), ncclSuccess);
  while (!done) {
    assert_int_equal(NET->test(r, &done, NULL), ncclSuccess);
  }
  while (watched_unread(p) == before) {
    tt_sleep_ns(10000);
  }
}

// The set in another, as the progress thread has it, whichever of the two gets its member first. What came before is
// told at once, and what comes then; what comes while nobody watches is not told until somebody does.
static void test_tells(void **state)
{
  (void)state;
  for (int first = 0; first < 2; first++) {
    pair p;
    int outer = -1;
    pair_open(&p, 0, 0);
    assert_int_equal(tt_events_open(&outer), 0);
    NET->watch_events(p.net[1], false);
    for (int i = 0; i < 3; i++) {
      if (first == 0) {
        assert_int_equal(tt_events_add(outer, NET->events_fd(p.net[1]), true), 0);
      }
      send_byte(&p);
      assert_false(watched_told(outer));
      assert_int_equal(NET->watch_events(p.net[1], true), 1);
      if (first == 1) {
        assert_int_equal(tt_events_add(outer, NET->events_fd(p.net[1]), true), 0);
      }
      assert_true(watched_told(outer));
      tt_events_wait(outer, 0);
      assert_false(watched_told(outer));
      send_byte(&p);
      assert_true(watched_told(outer));
      tt_events_remove(outer, NET->events_fd(p.net[1]));
      NET->watch_events(p.net[1], false);
    }
    close(outer);
    pair_close(&p);
  }
}

// A socket that the set does not take: none is in it, and the next time all are.
static void test_refusal(void **state)
{
  (void)state;
  pair p, back;
  pair_open(&p, 0, 2);
  connect_back(&p, &back);
  tt_snet_conn *c = p.recv;
  int fd = c->data.socks[1].fd;
  NET->watch_events(p.net[1], false);
  c->data.socks[1].fd = -1;
  assert_int_equal(NET->watch_events(p.net[1], true), -EBADF);
  assert_int_equal(in_set(p.net[1]), 0);
  c->data.socks[1].fd = fd;
  assert_int_equal(NET->watch_events(p.net[1], true), 6);
  close_back(&back);
  pair_close(&p);
}

// A connection that the set does not take is none, on or off.
static void test_refused_connection(void **state)
{
  (void)state;
  pair p;
  pair_open(&p, 0, 0);
  for (int on = 0; on < 2; on++) {
    tt_snet_conn *c = NULL;
    tt_rdv_ends ends = {.send = true, .peer = 1, .nsocks = 1, .fds = {dup(((tt_snet_conn *)p.send)->fd), -1}};
    NET->watch_events(p.net[0], on);
    assert_int_equal(tt_snet_conn_create(p.net[0], &ends, &c), ncclSystemError);
    assert_int_equal(in_set(p.net[0]), on);
    assert_true(fcntl(ends.fds[0], F_GETFD) >= 0); // still the caller's
    tt_sock_close(&ends.fds[0]);
  }
  pair_close(&p);
}

static _Atomic bool stop;

static void *toggle(void *net)
{
  for (bool on = false; !atomic_load(&stop); on = !on) {
    assert_true(NET->watch_events(net, on) >= 0);
  }
  NET->watch_events(net, true);
  return NULL;
}

// Connections come and go while it is switched.
static void test_beside(void **state)
{
  (void)state;
  pair p, back;
  pthread_t t[2];
  pair_open(&p, 0, 1);
  atomic_store(&stop, false);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(pthread_create(&t[i], NULL, toggle, p.net[i]), 0);
  }
  for (int i = 0; i < 30; i++) {
    connect_back(&p, &back);
    close_back(&back);
  }
  connect_back(&p, &back);
  atomic_store(&stop, true);
  for (int i = 0; i < 2; i++) {
    pthread_join(t[i], NULL);
    assert_int_equal(in_set(p.net[i]), 4);
  }
  close_back(&back);
  pair_close(&p);
}

int main(void)
{
  setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_on_and_off),
      cmocka_unit_test(test_helpers),
      cmocka_unit_test(test_tells),
      cmocka_unit_test(test_refusal),
      cmocka_unit_test(test_refused_connection),
      cmocka_unit_test(test_beside),
  };
  return cmocka_run_group_tests_name("watch", tests, NULL, NULL);
}
