// probe_test.c: peers that do not answer, and peers that do, but later than one would like.
#include "proxy/visit_rig.h"
#include "tools/sockets.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

// For an answer: on a busy machine, the answering thread may have to wait for a processor for some of it.
#define PATIENCE_NS (5 * TT_NS_PER_S)
#define LONGER_NS (PATIENCE_NS + 2 * TT_NS_PER_S)

static ncclResult_t status(rig *r, int rank)
{
  return tt_port_status(&r->ranks[rank].port);
}

static void set_patience(rig *r, int rank, uint64_t ns)
{
  r->ranks[rank].proxy->service->limits.silent_ns = ns;
}

// Rank 0 waits for rank 1, as plan_check does, for so long or until its port is stopped. Returns for how long.
static uint64_t wait_for_peer(rig *r, uint64_t ns)
{
  uint64_t began = tt_now_ns(), passed = 0;
  while (passed < ns && status(r, 0) == ncclSuccess) {
    tt_proxy_mover.probe(r->ranks[0].proxy, 1);
    tt_sleep_ns(5 * TT_NS_PER_MS);
    passed = tt_now_ns() - began;
  }
  return passed;
}

static void expect_error(rig *r, const char *who)
{
  assert_int_equal(status(r, 0), ncclRemoteError);
  if (strstr(r->ranks[0].port.error, who) == NULL || strstr(r->ranks[0].port.error, "has not answered for") == NULL) {
    fail_msg("%s", r->ranks[0].port.error);
  }
  assert_int_equal(atomic_load(&r->ranks[0].port.page->state), TT_RANK_FAILED);
}

// Two ranks, the second of which is played by the test.
static rig *open_visited(int *fd)
{
  rig *r = rig_open(2, &fake_net);
  rig_meet(r);
  *fd = visit(r, 2, 4711, 1);
  say_init(*fd);
  return r;
}

// Messages of this type that have come meanwhile.
static int count_messages(int fd, unsigned type)
{
  char buf[4096];
  int n = 0;
  ssize_t got = tt_sock_recv(fd, buf, sizeof buf);
  for (ssize_t at = 0; at + (ssize_t)sizeof(tt_msg_head) <= got;) {
    tt_msg_head h;
    memcpy(&h, buf + at, sizeof h);
    n += h.type == type;
    at += (ssize_t)(sizeof h + h.size);
  }
  return n;
}

static void no_answer(void **state)
{
  (void)state;
  fake_start(1);
  int fd;
  rig *r = open_visited(&fd);
  set_patience(r, 0, TT_NS_PER_S);
  assert_true(wait_for_peer(r, RIG_WAIT_NS) >= TT_NS_PER_S);
  expect_error(r, "rank 0 waits for rank 1 (PID ");
  assert_int_equal(count_messages(fd, TT_MSG_PROBE), 1); // they do not pile up
  tt_sock_close(&fd);
  rig_close(r);
  fake_stop();
}

// For ever, if the user wants that.
static void no_limit(void **state)
{
  (void)state;
  fake_start(2);
  int fd;
  rig *r = open_visited(&fd);
  set_patience(r, 0, 0);
  wait_for_peer(r, TT_NS_PER_S);
  assert_int_equal(status(r, 0), ncclSuccess);
  tt_sock_close(&fd);
  rig_close(r);
  fake_stop();
}

// The service answers, whatever the rank's own thread is at, or how late it is.
static void late(void **state)
{
  (void)state;
  fake_start(3);
  rig *r = rig_open(2, &fake_net);
  rig_meet(r);
  rig_link(r, 0, 1, true);
  set_patience(r, 0, PATIENCE_NS);
  tt_proxy_op op = rig_op(1, false, TT_LL, 1);
  assert_int_equal(tt_proxy_post(r->ranks[0].proxy, &op), ncclSuccess);
  assert_true(wait_for_peer(r, LONGER_NS) >= LONGER_NS);
  assert_int_equal(status(r, 0), ncclSuccess);
  rig_close(r);
  fake_stop();
}

// Nobody waits for the peer that has been asked: that is no error, until somebody does.
static void nobody_waits(void **state)
{
  (void)state;
  fake_start(4);
  int fd;
  rig *r = open_visited(&fd);
  set_patience(r, 0, 8 * TT_NS_PER_S); // much longer than the last question counts
  UNTIL((wait_for_peer(r, 10 * TT_NS_PER_MS), count_messages(fd, TT_MSG_PROBE) == 1));
  tt_sleep_ns(9 * TT_NS_PER_S);
  assert_int_equal(status(r, 0), ncclSuccess);
  wait_for_peer(r, RIG_WAIT_NS);
  expect_error(r, "rank 0 waits for rank 1");
  tt_sock_close(&fd);
  rig_close(r);
  fake_stop();
}

// A peer without a link, on the same machine for instance, is asked over a connection made for that.
static void without_link(void **state)
{
  (void)state;
  fake_start(5);
  rig *r = rig_open(2, &fake_net);
  rig_meet(r);
  set_patience(r, 0, PATIENCE_NS);
  wait_for_peer(r, LONGER_NS);
  assert_int_equal(status(r, 0), ncclSuccess);
  assert_non_null(tt_proxy_peer_find(r->ranks[0].proxy, 1)->ties->out);
  rig_close(r);

  // Its process does not even take the connection.
  tt_addr lo = {.family = AF_INET, .ip = {127, 0, 0, 1}}, at;
  int fd = -1;
  assert_int_equal(tt_tcp_listen(&lo, &fd, &at), 0);
  r = rig_open(2, &fake_net);
  r->ranks[1].where.addrs = tt_addrs_one(&at);
  rig_meet(r);
  set_patience(r, 0, TT_NS_PER_S);
  r->ranks[0].proxy->service->limits.connect_ns = TT_NS_PER_S;
  wait_for_peer(r, RIG_WAIT_NS);
  expect_error(r, "rank 0 waits for rank 1");
  tt_sock_close(&fd);
  rig_close(r);
  fake_stop();
}

// ---- a process that is stopped

typedef struct board {
  tt_proxy_where where[2];
  _Atomic int there[2];
} board;

static rig *open_half(board *b, int rank)
{
  fake_start(6);
  rig *r = tt_calloc_line(sizeof *r);
  r->n = 2;
  r->net = &tt_net_socket;
  rig_port(r, rank);
  tt_proxy_env e = rig_env(r, rank);
  FAKE_DEMAND(tt_proxy_create(&e, &r->ranks[rank].proxy, &b->where[rank]) == ncclSuccess);
  atomic_store(&b->there[rank], 1);
  UNTIL(atomic_load(&b->there[1 - rank]));
  FAKE_DEMAND(tt_proxy_meet(r->ranks[rank].proxy, b->where) == ncclSuccess);
  rig_link(r, rank, 1 - rank, true);
  UNTIL(atomic_load(&r->ranks[rank].links[1 - rank].page->state) == TT_RANK_RUNNING);
  return r;
}

// As one waits for the last messages before a communicator is destroyed.
static void stopped(void **state)
{
  (void)state;
#if defined(TT_TSAN)
  skip(); // it does not follow threads into a child
#endif
  board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(b != MAP_FAILED);
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    open_half(b, 1);
    sleep(60);
    _exit(1);
  }
  rig *r = open_half(b, 0);
  tt_proxy *p = r->ranks[0].proxy;
  tt_proxy_peer *peer = tt_proxy_peer_find(p, 1);
  UNTIL(atomic_load(&peer->send.stage) == TT_CONN_READY);
  set_patience(r, 0, TT_NS_PER_S);
  kill(pid, SIGSTOP);
  tt_proxy_op op = rig_op(1, true, TT_LL, 5); // nothing of it is ever in the slots: it cannot be sent
  assert_int_equal(tt_proxy_post(p, &op), ncclSuccess);
  UNTIL(tt_proxy_mover.idle(p) || status(r, 0) != ncclSuccess);
  expect_error(r, "rank 0 waits for rank 1 (PID ");
  char text[32];
  snprintf(text, sizeof text, "(PID %d at ", (int)pid);
  assert_non_null(strstr(r->ranks[0].port.error, text));
  assert_non_null(strstr(r->ranks[0].port.error, "(0 of 5 messages sent to rank 1)"));
  UNTIL(tt_proxy_idle(p));
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  tt_proxy_destroy(p);
  tt_free(r);
  fake_stop();
  munmap(b, sizeof *b);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(stopped), // first: its child starts with one thread
      cmocka_unit_test(no_answer),    cmocka_unit_test(no_limit),     cmocka_unit_test(late),
      cmocka_unit_test(nobody_waits), cmocka_unit_test(without_link),
  };
  return cmocka_run_group_tests_name("ask", tests, NULL, NULL);
}
