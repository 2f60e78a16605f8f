// faults_test.c: strangers, wrong keys, bad handles, peers that die or fall silent at every stage, want of memory and
// descriptors, forks: a named error or nothing, never a hang, a leak or a wrong byte.
#define _GNU_SOURCE
#include "pair_rig.h"

#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/result.h"
#include "tools/sockets.h"

#define LONG_NS (100 * TT_NS_PER_S) // only a hang takes longer

static void *faults_post(pair *p, void *data, size_t room)
{
  int tag = 0;
  void *r = NULL;
  assert_int_equal(NET->irecv(p->recv, 1, &data, &room, &tag, NULL, NULL, &r), ncclSuccess);
  assert_non_null(r);
  return r;
}

// Tests until the request is done or fails.
static ncclResult_t outcome(void *request, size_t *got)
{
  int done = 0;
  ncclResult_t res = ncclSuccess;
  uint64_t end = tt_now_ns() + LONG_NS;
  while (!done && res == ncclSuccess) {
    res = NET->test(request, &done, got);
    assert_true(tt_now_ns() < end);
  }
  return res;
}

static void assert_text(const char *what)
{
  if (strstr(tt_last_error(), what) == NULL) {
    fail_msg("\"%s\" is not in \"%s\"", what, tt_last_error());
  }
}

// The connection works: a message goes through.
static void assert_works(pair *p)
{
  char in[100] = "", out[100] = "hello";
  void *s = NULL, *r = faults_post(p, in, sizeof(in));
  size_t got = 0;
  assert_int_equal(NET->isend(p->send, out, sizeof(out), 0, NULL, NULL, &s), ncclSuccess);
  assert_int_equal(outcome(s, NULL), ncclSuccess);
  assert_int_equal(outcome(r, &got), ncclSuccess);
  assert_string_equal(in, out);
}

static void contexts(pair *p, int threads, int sockets)
{
  memset(p, 0, sizeof(*p));
  for (int i = 0; i < 2; i++) {
    p->net[i] = pair_context(i, threads, sockets);
  }
  pair_listen(p);
}

static void test_wrong_key(void **state)
{
  (void)state;
  pair p;
  contexts(&p, 1, 2);
  p.net[0]->base.env.key.b[5] ^= 1;
  ncclResult_t res = ncclSuccess;
  while (res == ncclSuccess) {
    res = NET->connect(p.net[0], 0, p.handle, &p.send);
    assert_null(p.send);
    assert_int_equal(NET->accept(p.listener, &p.recv), ncclSuccess);
    assert_null(p.recv);
  }
  assert_int_equal(res, ncclRemoteError);
  assert_text("rank 0: cannot connect to rank 1 at 127.0.0.1:");
  p.net[0]->base.env.key.b[5] ^= 1;
  pair_connect(&p);
  assert_works(&p);
  pair_close(&p);
}

// Connects to the listener and sends `size` bytes.
static int stranger(const pair *p, const void *data, size_t size)
{
  tt_addrs to;
  int fd = -1;
  tt_rdv_handle_addrs((const tt_rdv_handle *)p->handle, &p->net[0]->base.devs[0], &to);
  assert_int_equal(tt_tcp_connect(&to.a[0], &(tt_until){.deadline_ns = tt_now_ns() + LONG_NS}, &fd), 0);
  if (size > 0) {
    tt_sock_send(fd, data, size);
  }
  return fd;
}

// Addresses of the handle: a socket listens on each.
static uint32_t door_count(const pair *p)
{
  tt_addrs to;
  tt_rdv_handle_addrs((const tt_rdv_handle *)p->handle, &p->net[0]->base.devs[0], &to);
  return to.n;
}

static void test_faults_strangers(void **state)
{
  (void)state;
  enum { N = 60 };
  pair p;
  int fds[N];
  char junk[300];
  contexts(&p, 0, 3);
  srand(5);
  for (int i = 0; i < N; i++) {
    for (size_t k = 0; k < sizeof(junk); k++) {
      junk[k] = (char)rand();
    }
    fds[i] = stranger(&p, junk, (size_t)(i % 5) * 60);
    assert_int_equal(NET->accept(p.listener, &p.recv), ncclSuccess);
    if (i % 3 == 0) {
      tt_sock_close(&fds[i]);
    }
  }
  pair_connect(&p);
  assert_works(&p);
  for (int i = 0; i < N; i++) {
    tt_sock_close(&fds[i]);
  }
  pair_close(&p);
}

// The handle's first address is a port on which nobody listens: the next one is taken.
static void test_unreachable_first(void **state)
{
  (void)state;
  pair p;
  tt_rdv_handle h;
  tt_addr dead;
  tt_addrs to, with = {.n = 0};
  int fd = -1;
  contexts(&p, 1, 2);
  assert_int_equal(tt_tcp_listen(&(tt_addr){.family = AF_INET, .ip = {127, 0, 0, 1}}, &fd, &dead), 0);
  tt_sock_close(&fd);
  memcpy(&h, p.handle, sizeof(h));
  tt_rdv_handle_addrs(&h, &p.net[0]->base.devs[0], &to);
  tt_addrs_add(&with, &dead);
  tt_addrs_add(&with, &to.a[0]);
  h.more = tt_addrs_pack(&with, h.addrs);
  memcpy(p.handle, &h, sizeof(h));
  pair_connect(&p);
  assert_works(&p);
  pair_close(&p);
}

// A listener is reached at every address of its interface. (With ::1, where the machine has IPv6, loopback has two.)
static void test_every_address(void **state)
{
  (void)state;
  pair p;
  tt_rdv_handle h;
  tt_addrs all;
  contexts(&p, 0, 0);
  memcpy(&h, p.handle, sizeof(h));
  tt_rdv_handle_addrs(&h, &p.net[0]->base.devs[0], &all);
  int ends = 0, count = 0;
  tt_netif *list = NULL;
  assert_int_equal(tt_netif_list(&list, &count), ncclSuccess);
  for (int i = 0; i < count; i++) {
    ends += list[i].loopback;
  }
  tt_free(list);
  assert_int_equal(all.n + all.more, ends);
  for (uint32_t i = 0; i < all.n; i++) {
    tt_addrs one = tt_addrs_one(&all.a[i]);
    h.more = tt_addrs_pack(&one, h.addrs);
    memcpy(p.handle, &h, sizeof(h));
    pair_connect(&p);
    assert_true(tt_addr_same_ip(&((tt_snet_conn *)p.send)->at, &all.a[i]));
    assert_works(&p);
    NET->close_send(p.send);
    NET->close_recv(p.recv);
    p.send = p.recv = NULL;
  }
  pair_close(&p);
}

static void test_nobody_listens(void **state)
{
  (void)state;
  pair p;
  contexts(&p, 0, 0);
  NET->close_listen(p.listener);
  p.listener = NULL;
  ncclResult_t res = ncclSuccess;
  while (res == ncclSuccess) {
    res = NET->connect(p.net[0], 0, p.handle, &p.send);
  }
  assert_int_equal(res, ncclRemoteError);
  assert_text("nobody listens there");
  pair_close(&p);
}

static void test_bad_handles(void **state)
{
  (void)state;
  pair p;
  char good[TT_NET_HANDLE];
  contexts(&p, 0, 0);
  NET->close_listen(p.listener);
  p.listener = NULL;
  p.net[0]->base.timeout_s = 1;
  memcpy(good, p.handle, sizeof(good));
  static const size_t vital[] = {0, 1, 2, 3, 7, 16, 17, 19, 110, 111, 127};
  for (size_t i = 0; i < TT_COUNT(vital); i++) {
    memcpy(p.handle, good, sizeof(good));
    p.handle[vital[i]] = (char)(p.handle[vital[i]] ^ 0x80);
    assert_int_equal(NET->connect(p.net[0], 0, p.handle, &p.send), ncclRemoteError);
    assert_null(p.send);
  }
  assert_int_equal(NET->connect(p.net[0], 1, good, &p.send), ncclInvalidUsage);
  assert_int_equal(NET->connect(p.net[0], -1, good, &p.send), ncclInvalidUsage);
  assert_int_equal(NET->listen(p.net[0], 9, good, &p.listener), ncclInvalidUsage);
  p.listener = NULL;
  pair_close(&p);
}

// `steps` steps towards a connection.
static void half_make(pair *p, int steps)
{
  for (int i = 0; i < steps && p->send == NULL; i++) {
    assert_int_equal(NET->connect(p->net[0], 0, p->handle, &p->send), ncclSuccess);
    if (i % 2 == 1 && p->recv == NULL) {
      assert_int_equal(NET->accept(p->listener, &p->recv), ncclSuccess);
    }
  }
}

// The connector gives up or dies in the middle: the next connector gets through.
static void test_connector_gives_up(void **state)
{
  (void)state;
  for (int steps = 0; steps < 24; steps++) {
    pair p;
    contexts(&p, 1, 4);
    half_make(&p, steps);
    if (p.send == NULL) {
      NET->finalize(p.net[0]);
      p.net[0] = pair_context(0, 1, 4);
    }
    pair_connect(&p);
    assert_works(&p);
    pair_close(&p);
  }
}

// Everything can be closed at any time.
static void test_closed_half_made(void **state)
{
  (void)state;
  int before = pair_descriptors();
  for (int steps = 0; steps < 24; steps++) {
    pair p;
    contexts(&p, 1, 4);
    half_make(&p, steps);
    if (steps % 3 == 0) {
      NET->close_listen(p.listener);
      p.listener = NULL;
      p.net[0]->base.timeout_s = 1;
      for (int i = 0; i < 5 && p.send == NULL; i++) {
        (void)NET->connect(p.net[0], 0, p.handle, &p.send);
      }
    }
    pair_close(&p);
  }
  assert_int_equal(pair_descriptors(), before);
}

// The connector gives it up itself: nothing of it is left, others go on.
static void test_cancelled(void **state)
{
  (void)state;
  pair p;
  char other[TT_NET_HANDLE];
  void *listener = NULL, *send = NULL;
  contexts(&p, 1, 4);
  int before = pair_descriptors();
  for (int steps = 0; steps < 24; steps++) {
    half_make(&p, steps); // another step each time: where it is, it is given up
    NET->cancel(p.net[0], 0, p.handle);
    NET->cancel(p.net[0], 0, p.handle);
    assert_null(p.net[0]->base.calls);
    NET->close_send(p.send);
    NET->close_recv(p.recv);
    p.send = p.recv = NULL;
    NET->close_listen(p.listener);
    pair_listen(&p);
    int now = pair_descriptors();
    assert_int_equal(now, before);
  }
  assert_int_equal(NET->listen(p.net[1], 0, other, &listener), ncclSuccess);
  half_make(&p, 1);
  assert_int_equal(NET->connect(p.net[0], 0, other, &send), ncclSuccess);
  assert_null(send);
  NET->cancel(p.net[0], 0, other);
  pair_connect(&p);
  assert_works(&p);
  NET->close_listen(listener);
  pair_close(&p);
}

// Says the same again, with the same text.
static void assert_stays_failed(pair *p, bool send, void *request)
{
  char text[400], byte = 0;
  void *r = NULL, *data = &byte;
  size_t room = 1;
  int done, tag = 0;
  snprintf(text, sizeof(text), "%s", tt_last_error());
  tt_last_error_set("");
  assert_int_equal(NET->test(request, &done, NULL), ncclRemoteError);
  assert_string_equal(tt_last_error(), text);
  tt_last_error_set("");
  if (send) {
    assert_int_equal(NET->isend(p->send, &byte, 1, 0, NULL, NULL, &r), ncclRemoteError);
  } else {
    assert_int_equal(NET->irecv(p->recv, 1, &data, &room, &tag, NULL, NULL, &r), ncclRemoteError);
  }
  assert_string_equal(tt_last_error(), text);
}

static void test_sender_dies(void **state)
{
  (void)state;
  // Bytes of frame and payload that still arrive: nothing, half a frame, a frame, half a payload.
  static const size_t arrive[] = {0, 5, sizeof(tt_snet_frame), sizeof(tt_snet_frame) + 20000};
  for (size_t i = 0; i < TT_COUNT(arrive); i++) {
    pair p;
    char *in = calloc(1, 100000), *out = calloc(1, 100000);
    pair_open(&p, 0, 0);
    assert_works(&p);
    tt_snet_frame f = {.check = TT_SNET_FRAME_MAGIC ^ 1, .size = 50000};
    memcpy(out, &f, sizeof(f));
    if (arrive[i] > 0) {
      assert_int_equal(tt_sock_send(((tt_snet_conn *)p.send)->fd, out, arrive[i]), arrive[i]);
    }
    void *r = faults_post(&p, in, 100000);
    NET->close_send(p.send);
    p.send = NULL;
    assert_int_equal(outcome(r, NULL), ncclRemoteError);
    assert_text("rank 1: connection to rank 0 at 127.0.0.1:");
    assert_text("over lo: the peer has closed it");
    assert_stays_failed(&p, false, r);
    pair_close(&p);
    free(in);
    free(out);
  }
}

// What was complete before the peer died is received.
static void test_last_words(void **state)
{
  (void)state;
  pair p;
  char in[3][50000], *out = calloc(1, 50000);
  void *s;
  size_t got;
  pair_open(&p, 0, 0);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(NET->isend(p.send, out, i == 1 ? 50000 : 8, 0, NULL, NULL, &s), ncclSuccess);
    assert_int_equal(outcome(s, NULL), ncclSuccess);
  }
  NET->close_send(p.send);
  p.send = NULL;
  void *r[4];
  for (int i = 0; i < 3; i++) {
    r[i] = faults_post(&p, in[i], 50000);
  }
  r[3] = faults_post(&p, out, 50000);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(outcome(r[i], &got), ncclSuccess);
    assert_int_equal(got, i == 1 ? 50000 : 8);
  }
  assert_int_equal(outcome(r[3], &got), ncclRemoteError);
  pair_close(&p);
  free(out);
}

// Could a helper thread go on, if it came to it? Else the kernel has taken as much as it likes.
static bool could_go_on(const pair *p)
{
  const tt_snet_conn *c = p->send;
  struct pollfd fds[TT_RDV_SOCKS];
  nfds_t n = 0;
  for (int i = 0; i < c->data.nsocks; i++) {
    if (__atomic_load_n(&c->data.socks[i].head, __ATOMIC_RELAXED) != c->data.socks[i].tail) {
      fds[n++] = (struct pollfd){.fd = c->data.socks[i].fd, .events = POLLOUT};
    }
  }
  return poll(fds, n, 0) > 0;
}

// Sends until nothing more goes, for a while. Returns a request that is not done.
static void *faults_fill(pair *p, char *data, size_t size)
{
  uint64_t end = tt_now_ns() + LONG_NS;
  for (;;) {
    void *s = NULL;
    int done = 0;
    assert_int_equal(NET->isend(p->send, data, size, 0, NULL, NULL, &s), ncclSuccess);
    for (int quiet = 0; quiet < 300 && !done; quiet = could_go_on(p) ? 0 : quiet + 1) {
      assert_int_equal(NET->test(s, &done, NULL), ncclSuccess);
      assert_true(tt_now_ns() < end);
      tt_sleep_ns(done ? 0 : TT_NS_PER_MS);
    }
    if (!done) {
      return s;
    }
  }
}

static void test_receiver_dies(void **state)
{
  (void)state;
  static const int sockets[][2] = {{0, 0}, {0, 2}, {2, 4}};
  enum { SIZE = 4 << 20 };
  char *data = calloc(1, SIZE);
  for (size_t i = 0; i < TT_COUNT(sockets); i++) {
    pair p;
    pair_open(&p, sockets[i][0], sockets[i][1]);
    void *s = faults_fill(&p, data, SIZE);
    NET->close_recv(p.recv);
    p.recv = NULL;
    assert_int_equal(outcome(s, NULL), ncclRemoteError);
    assert_text("rank 0: connection to rank 1 at 127.0.0.1:");
    assert_stays_failed(&p, true, s);
    pair_close(&p);
  }
  free(data);
}

// A peer that does not read is late, not lost: its machine answers. It goes on where it stood; or everything can be
// closed.
static void test_peer_does_not_read(void **state)
{
  (void)state;
  static const int sockets[][2] = {{0, 0}, {2, 4}};
  enum { SIZE = 4 << 20 };
  char *data = calloc(1, SIZE), *in = malloc(SIZE);
  for (int i = 0; i < 4; i++) {
    pair p;
    int done = 0;
    pair_open(&p, sockets[i % 2][0], sockets[i % 2][1]);
    p.net[0]->base.timeout_s = 1;
    pair_pattern(data, SIZE, 3);
    void *s = faults_fill(&p, data, SIZE);
    for (int k = 0; k < 35; k++) {
      assert_int_equal(NET->test(s, &done, NULL), ncclSuccess);
      assert_int_equal(done, 0);
      tt_sleep_ns(100 * TT_NS_PER_MS);
    }
    while (i < 2 && !done) {
      size_t got = 0;
      assert_int_equal(outcome(faults_post(&p, in, SIZE), &got), ncclSuccess);
      assert_int_equal(got, SIZE);
      assert_true(pair_pattern_holds(in, SIZE, 3));
      assert_int_equal(NET->test(s, &done, NULL), ncclSuccess);
    }
    pair_close(&p);
  }
  free(data);
  free(in);
}

static void test_closed_under_way(void **state)
{
  (void)state;
  static const int sockets[][2] = {{0, 0}, {0, 3}, {1, 1}, {4, 8}};
  enum { SIZE = 2 << 20 };
  int before = pair_descriptors();
  char *out = calloc(1, SIZE), *in = calloc(3, SIZE);
  for (size_t i = 0; i < TT_COUNT(sockets); i++) {
    for (int turn = 0; turn < 10; turn++) {
      pair p;
      void *s, *r[3];
      size_t got;
      pair_open(&p, sockets[i][0], sockets[i][1]);
      for (int k = 0; k < 3; k++) {
        r[k] = faults_post(&p, in + (size_t)k * SIZE, SIZE);
        assert_int_equal(NET->isend(p.send, out, SIZE, 0, NULL, NULL, &s), ncclSuccess);
      }
      for (int k = 0, sent = 0, came = 0; k < turn; k++) {
        if (!came) {
          (void)NET->test(r[0], &came, &got);
        }
        if (!sent) {
          (void)NET->test(s, &sent, NULL);
        }
      }
      if (turn % 2) {
        NET->close_recv(p.recv);
        p.recv = NULL;
      }
      pair_close(&p);
    }
  }
  free(out);
  free(in);
  assert_int_equal(pair_descriptors(), before);
}

static void test_garbage_frames(void **state)
{
  (void)state;
  const tt_snet_frame bad[] = {
      {.check = 0, .size = 8},
      {.check = TT_SNET_FRAME_MAGIC ^ 1, .size = 8},
      {.check = TT_SNET_FRAME_MAGIC, .size = UINT64_MAX},
      {.check = TT_SNET_FRAME_MAGIC, .piece = 1, .size = 8},
      {.check = TT_SNET_FRAME_MAGIC, .piece = 100, .size = 0},
      {.check = TT_SNET_FRAME_MAGIC, .piece = UINT32_MAX, .size = UINT64_MAX / 2},
  };
  for (size_t i = 0; i < TT_COUNT(bad); i++) {
    pair p;
    char in[8];
    pair_open(&p, 0, 2);
    void *r = faults_post(&p, in, sizeof(in));
    assert_int_equal(tt_sock_send(((tt_snet_conn *)p.send)->fd, &bad[i], sizeof(bad[i])), sizeof(bad[i]));
    assert_int_equal(outcome(r, NULL), ncclRemoteError);
    assert_text("it carries something else than messages");
    assert_stays_failed(&p, false, r);
    pair_close(&p);
  }
}

// One life of a pair, whatever fails in it; nothing may be left.
static void try_life(pair *p)
{
  tt_net_env env = {.nranks = 2, .key = {.b = {9}}};
  uint64_t end = tt_now_ns() + 300 * TT_NS_PER_MS;
  memset(p, 0, sizeof(*p));
  for (int i = 0; i < 2; i++) {
    void *ctx = NULL;
    env.rank = i;
    if (NET->init(&env, &ctx) != ncclSuccess) {
      NET->finalize(p->net[0]);
      return;
    }
    p->net[i] = ctx;
    p->net[i]->base.timeout_s = 1;
    p->net[i]->base.devs[0].nthreads = 2;
    p->net[i]->base.devs[0].nsocks = 2;
  }
  ncclResult_t res = NET->listen(p->net[1], 0, p->handle, &p->listener);
  while (res == ncclSuccess && (p->send == NULL || p->recv == NULL) && tt_now_ns() < end) {
    res = p->send == NULL ? NET->connect(p->net[0], 0, p->handle, &p->send) : ncclSuccess;
    if (res == ncclSuccess && p->recv == NULL) {
      res = NET->accept(p->listener, &p->recv);
    }
  }
  if (p->send != NULL && p->recv != NULL) {
    static char in[200000], out[200000];
    size_t got;
    void *s = NULL, *r = faults_post(p, in, sizeof(in));
    if (NET->isend(p->send, out, sizeof(out), 0, NULL, NULL, &s) == ncclSuccess) {
      assert_int_equal(outcome(r, &got), ncclSuccess);
      assert_int_equal(outcome(s, NULL), ncclSuccess);
    }
  }
  pair_close(p);
}

static void test_faults_no_memory(void **state)
{
  (void)state;
  int before = pair_descriptors();
  for (long k = 1; k < 40; k++) {
    pair p;
    tt_alloc_fail_at(k);
    try_life(&p);
    tt_alloc_fail_at(0);
    assert_int_equal(pair_descriptors(), before);
  }
}

static void test_faults_few_descriptors(void **state)
{
  (void)state;
  int before = pair_descriptors();
  struct rlimit old;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
  for (int spare = 0; spare < 26; spare += 1 + spare / 8) {
    pair p;
    struct rlimit few = {.rlim_cur = (rlim_t)(before + spare), .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    try_life(&p);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(pair_descriptors(), before);
  }
}

// A forked child gives its copies back and lives on; the parent's connection is unharmed, and its end is seen at once.
static void test_faults_fork(void **state)
{
  (void)state;
  pair p;
  int pipes[2], idle[2];
  char byte = 0, in[8];
  pair_open(&p, 1, 2);
  tt_snet *net[2] = {p.net[0], p.net[1]};
  pair half;
  contexts(&half, 0, 0);
  half_make(&half, 1);
  assert_int_equal(pipe(pipes), 0);
  assert_int_equal(pipe(idle), 0);
  int before = pair_descriptors();
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    NET->forget(net[0]);
    NET->forget(net[1]);
    NET->forget(half.net[0]);
    NET->forget(half.net[1]);
    close(idle[1]);
    byte = (char)(before - pair_descriptors());
    _exit(write(pipes[1], &byte, 1) == 1 && read(idle[0], &byte, 1) == 0 ? 0 : 1); // stays until the parent lets go
  }
  assert_int_equal(read(pipes[0], &byte, 1), 1);
  // Two contexts of two descriptors, two ends of three sockets, the listener with a socket for each address; the same
  // for the other pair, whose one half-made socket stays; idle[1].
  int doors = (int)door_count(&half);
  assert_int_equal(byte, 2 * 2 + 2 * 3 + doors + 2 * 2 + doors + 1);
  assert_works(&p);
  void *r = faults_post(&p, in, sizeof(in));
  NET->close_send(p.send);
  p.send = NULL;
  assert_int_equal(outcome(r, NULL), ncclRemoteError);
  close(idle[1]);
  int status = -1;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  close(idle[0]);
  close(pipes[0]);
  close(pipes[1]);
  pair_close(&p);
  pair_close(&half);
}

// A rank that is killed, while small or large messages come from it.
static void faults_killed(int threads, int sockets, size_t size)
{
  pair p;
  int fds[2];
  memset(&p, 0, sizeof(p));
  p.net[1] = pair_context(1, threads, sockets);
  pair_listen(&p);
  assert_int_equal(pipe(fds), 0);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    char *data = calloc(1, size);
    NET->forget(p.net[1]);
    p.net[0] = pair_context(0, threads, sockets);
    while (p.send == NULL && NET->connect(p.net[0], 0, p.handle, &p.send) == ncclSuccess) {
    }
    for (;;) {
      void *r = NULL;
      int done = 0;
      if (NET->isend(p.send, data, size, 0, NULL, NULL, &r) != ncclSuccess) {
        _exit(1);
      }
      while (!done) {
        (void)NET->test(r, &done, NULL);
      }
    }
  }
  while (p.recv == NULL) {
    assert_int_equal(NET->accept(p.listener, &p.recv), ncclSuccess);
  }
  char *in = malloc(size);
  for (int i = 0; i < 20; i++) {
    assert_int_equal(outcome(faults_post(&p, in, size), NULL), ncclSuccess);
  }
  kill(pid, SIGKILL);
  ncclResult_t res = ncclSuccess;
  while (res == ncclSuccess) {
    res = outcome(faults_post(&p, in, size), NULL);
  }
  assert_int_equal(res, ncclRemoteError);
  assert_text("rank 1: connection to rank 0 at");
  assert_int_equal(waitpid(pid, NULL, 0), pid);
  NET->finalize(p.net[1]);
  close(fds[0]);
  close(fds[1]);
  free(in);
}

static void test_killed(void **state)
{
  (void)state;
  faults_killed(0, 0, 8);
  faults_killed(0, 0, 1 << 20);
  faults_killed(2, 4, 1 << 20);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_wrong_key),
      cmocka_unit_test(test_faults_strangers),
      cmocka_unit_test(test_unreachable_first),
      cmocka_unit_test(test_every_address),
      cmocka_unit_test(test_nobody_listens),
      cmocka_unit_test(test_bad_handles),
      cmocka_unit_test(test_connector_gives_up),
      cmocka_unit_test(test_closed_half_made),
      cmocka_unit_test(test_cancelled),
      cmocka_unit_test(test_sender_dies),
      cmocka_unit_test(test_last_words),
      cmocka_unit_test(test_receiver_dies),
      cmocka_unit_test(test_peer_does_not_read),
      cmocka_unit_test(test_closed_under_way),
      cmocka_unit_test(test_garbage_frames),
      cmocka_unit_test(test_faults_no_memory),
      cmocka_unit_test(test_faults_few_descriptors),
      cmocka_unit_test(test_faults_fork),
      cmocka_unit_test(test_killed),
  };
  setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
