// ofi_test.c: two contexts of the network OFI in one process, over libfabric's tcp provider: what arrives is what was
// sent, strangers are dropped, and nothing is left behind.
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/result.h"
#include "base/util.h"
#include "net/net.h"
#include "os/clock.h"

#define NET (&tt_net_ofi)

typedef struct pair {
  void *net[2]; // rank 0 sends, rank 1 receives
  void *listener, *send, *recv;
  char handle[TT_NET_HANDLE];
} pair;

static void *context(int rank, uint8_t secret)
{
  tt_net_env env = {.rank = rank, .nranks = 2, .comm_hash = 7, .key = {.b = {secret, 2, 3}}};
  void *ctx = NULL;
  assert_int_equal(NET->init(&env, &ctx), ncclSuccess);
  return ctx;
}

static void ofi_listen_at(pair *p)
{
  p->listener = p->send = p->recv = NULL;
  assert_int_equal(NET->listen(p->net[1], 0, p->handle, &p->listener), ncclSuccess);
}

static void connect_both(pair *p)
{
  uint64_t end = tt_now_ns() + 100 * TT_NS_PER_S;
  while (p->send == NULL || p->recv == NULL) {
    if (p->send == NULL) {
      assert_int_equal(NET->connect(p->net[0], 0, p->handle, &p->send), ncclSuccess);
    }
    if (p->recv == NULL) {
      assert_int_equal(NET->accept(p->listener, &p->recv), ncclSuccess);
    }
    assert_true(tt_now_ns() < end);
  }
}

static void ofi_pair_open(pair *p)
{
  memset(p, 0, sizeof *p);
  p->net[0] = context(0, 1);
  p->net[1] = context(1, 1);
  ofi_listen_at(p);
  connect_both(p);
}

static void ofi_pair_close(pair *p)
{
  assert_int_equal(NET->close_send(p->send), ncclSuccess);
  assert_int_equal(NET->close_recv(p->recv), ncclSuccess);
  assert_int_equal(NET->close_listen(p->listener), ncclSuccess);
  assert_int_equal(NET->finalize(p->net[0]), ncclSuccess);
  assert_int_equal(NET->finalize(p->net[1]), ncclSuccess);
}

static char ofi_byte_of(int message, size_t i)
{
  return (char)(message * 131 + (int)i * 7 + (int)(i >> 8));
}

static void ofi_drive(void **request, size_t *size)
{
  int done = 0;
  if (*request != NULL) {
    assert_int_equal(NET->test(*request, &done, size), ncclSuccess);
    *request = done ? NULL : *request;
  }
}

// `n` messages of these sizes at once.
static void ofi_exchange(pair *p, int n, const size_t *sizes)
{
  enum { MOST = TT_NET_REQUESTS };
  char *out[MOST], *in[MOST];
  void *sreq[MOST] = {0}, *rreq[MOST] = {0};
  size_t got[MOST] = {0};
  int sent = 0, posted = 0, open;
  uint64_t end = tt_now_ns() + 100 * TT_NS_PER_S;
  assert_in_range(n, 1, MOST);
  for (int i = 0; i < n; i++) {
    out[i] = malloc(sizes[i] + 1);
    in[i] = calloc(1, sizes[i] + 1);
    for (size_t k = 0; k < sizes[i]; k++) {
      out[i][k] = ofi_byte_of(i, k);
    }
  }
  do {
    if (sent < n) {
      assert_int_equal(NET->isend(p->send, out[sent], sizes[sent], 0, NULL, NULL, &sreq[sent]), ncclSuccess);
      sent += sreq[sent] != NULL;
    }
    if (posted < n) {
      void *data = in[posted];
      size_t room = sizes[posted];
      int tag = 0;
      assert_int_equal(NET->irecv(p->recv, 1, &data, &room, &tag, NULL, NULL, &rreq[posted]), ncclSuccess);
      posted += rreq[posted] != NULL;
    }
    open = 2 * n - sent - posted;
    for (int i = 0; i < n; i++) {
      ofi_drive(&sreq[i], NULL);
      ofi_drive(&rreq[i], &got[i]);
      open += (sreq[i] != NULL) + (rreq[i] != NULL);
    }
    assert_true(tt_now_ns() < end);
  } while (open > 0);
  for (int i = 0; i < n; i++) {
    assert_int_equal(got[i], sizes[i]);
    for (size_t k = 0; k < sizes[i]; k++) {
      assert_int_equal(in[i][k], ofi_byte_of(i, k));
    }
    free(out[i]);
    free(in[i]);
  }
}

static void every_size_arrives(void **state)
{
  (void)state;
  static const size_t sizes[] = {0,     1,     8,     63,    64,     65,      4095,         4096,
                                 16383, 16384, 16385, 65536, 131071, 1 << 20, (4 << 20) + 3};
  pair p;
  ofi_pair_open(&p);
  for (size_t i = 0; i < TT_COUNT(sizes); i++) {
    ofi_exchange(&p, 1, &sizes[i]);
    ofi_exchange(&p, 3, (size_t[]){sizes[i], 8, sizes[i]});
  }
  ofi_pair_close(&p);
}

static void many_messages_keep_their_order(void **state)
{
  (void)state;
  pair p;
  ofi_pair_open(&p);
  for (int round = 0; round < 50; round++) {
    size_t sizes[TT_NET_REQUESTS];
    for (int i = 0; i < TT_NET_REQUESTS; i++) {
      sizes[i] = (size_t)(round * 7919 + i * 104729) % (i % 5 == 0 ? 200000 : i % 2 == 0 ? 3000 : 17);
    }
    ofi_exchange(&p, TT_NET_REQUESTS, sizes);
  }
  ofi_pair_close(&p);
}

static void what_does_not_fit_is_refused(void **state)
{
  (void)state;
  pair p;
  ofi_pair_open(&p);
  char out[1000] = {0}, in[900], *data = in;
  void *sreq = NULL, *rreq = NULL;
  size_t room = sizeof in;
  int tag = 0, done = 0;
  assert_int_equal(NET->irecv(p.recv, 1, (void **)&data, &room, &tag, NULL, NULL, &rreq), ncclSuccess);
  uint64_t end = tt_now_ns() + 100 * TT_NS_PER_S;
  ncclResult_t res = ncclSuccess;
  bool sent = false;
  while (res == ncclSuccess && !done && tt_now_ns() < end) {
    if (!sent) { // the provider connects with the first message: until then it says "not now"
      assert_int_equal(NET->isend(p.send, out, sizeof out, 0, NULL, NULL, &sreq), ncclSuccess);
      sent = sreq != NULL;
    }
    ofi_drive(&sreq, NULL);
    res = NET->test(rreq, &done, NULL);
  }
  assert_int_equal(res, ncclInvalidUsage);
  assert_non_null(strstr(tt_last_error(), "a message from rank 0 over OFI does not fit"));
  // The connection stays failed.
  assert_int_equal(NET->irecv(p.recv, 1, (void **)&data, &room, &tag, NULL, NULL, &rreq), ncclRemoteError);
  assert_non_null(strstr(tt_last_error(), "does not fit"));
  ofi_pair_close(&p);
}

static void a_stranger_does_no_harm(void **state)
{
  (void)state;
  pair p = {.net = {context(0, 9), context(1, 1)}}; // another secret
  ofi_listen_at(&p);
  uint64_t end = tt_now_ns() + 20 * TT_NS_PER_S;
  ncclResult_t res = ncclSuccess;
  while (res == ncclSuccess && tt_now_ns() < end) {
    res = NET->connect(p.net[0], 0, p.handle, &p.send);
    assert_int_equal(NET->accept(p.listener, &p.recv), ncclSuccess);
  }
  assert_int_equal(res, ncclRemoteError);
  assert_non_null(strstr(tt_last_error(), "secret"));
  assert_null(p.send);
  assert_null(p.recv);
  void *stranger = p.net[0];
  NET->cancel(stranger, 0, p.handle);
  p.net[0] = context(0, 1);
  connect_both(&p); // the listener still listens
  ofi_exchange(&p, 2, (size_t[]){100, 70000});
  assert_int_equal(NET->finalize(stranger), ncclSuccess);
  ofi_pair_close(&p);
}

static void bad_arguments_are_named(void **state)
{
  (void)state;
  pair p = {.net = {context(0, 1), context(1, 1)}};
  tt_net_props props;
  int count = 0;
  assert_int_equal(NET->devices(p.net[0], &count), ncclSuccess);
  assert_true(count > 0);
  assert_int_equal(NET->get_properties(p.net[0], count, &props), ncclInvalidUsage);
  assert_int_equal(NET->get_properties(p.net[0], -1, &props), ncclInvalidUsage);
  assert_int_equal(NET->get_properties(p.net[0], 0, &props), ncclSuccess);
  assert_non_null(props.name);
  assert_true(props.speed > 0);
  assert_int_equal(NET->listen(p.net[1], count, p.handle, &p.listener), ncclInvalidUsage);
  memset(p.handle, 0x7f, sizeof p.handle);
  assert_int_equal(NET->connect(p.net[0], 0, p.handle, &p.send), ncclRemoteError);
  NET->cancel(p.net[0], 0, p.handle);
  NET->cancel(p.net[0], -1, p.handle);
  ofi_pair_close(&p); // all that was never made is NULL
}

static int ofi_open_descriptors(void)
{
  int n = 0;
  for (int fd = 0; fd < 4096; fd++) {
    n += fcntl(fd, F_GETFD) >= 0;
  }
  return n;
}

// Posted receives and half-made connections are taken back; the memory is the caller's again.
static void closing_in_the_middle_leaves_nothing(void **state)
{
  (void)state;
  int before = 0;
  for (int round = 0; round < 12; round++) {
    pair p;
    char buf[4096];
    void *data = buf, *request = NULL;
    size_t room = sizeof buf;
    int tag = 0;
    ofi_pair_open(&p);
    assert_int_equal(NET->irecv(p.recv, 1, &data, &room, &tag, NULL, NULL, &request), ncclSuccess);
    assert_non_null(request);
    if (round % 2 == 0) {
      NET->close_listen(p.listener);
      void *send = p.send;
      ofi_listen_at(&p); // a second listener, to which a connection is begun only
      void *second = NULL;
      assert_int_equal(NET->connect(p.net[0], 0, p.handle, &second), ncclSuccess);
      NET->close_send(send);
    }
    ofi_pair_close(&p);
    if (round == 2) {
      before = ofi_open_descriptors();
    }
  }
  assert_int_equal(ofi_open_descriptors(), before);
}

// Those that lead to somebody else: libfabric has pairs of its own, too.
static int ofi_sockets(void)
{
  int n = 0;
  for (int fd = 0; fd < 4096; fd++) {
    struct sockaddr_storage at = {0};
    socklen_t size = sizeof at;
    n += getsockname(fd, (struct sockaddr *)&at, &size) == 0 && (at.ss_family == AF_INET || at.ss_family == AF_INET6);
  }
  return n;
}

// A forked child gives its copies back and lives on; the parent's connection is unharmed.
static void a_forked_child_keeps_no_socket(void **state)
{
  (void)state;
  pair p;
  int before = ofi_sockets(), pipes[2], idle[2];
  char byte = 0;
  ofi_pair_open(&p);
  ofi_exchange(&p, 1, (size_t[]){70000}); // both ends have their sockets
  assert_true(ofi_sockets() > before);
  assert_int_equal(pipe(pipes), 0);
  assert_int_equal(pipe(idle), 0);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    NET->forget(p.net[0]);
    NET->forget(p.net[1]);
    close(idle[1]);
    byte = (char)(ofi_sockets() - before);
    _exit(write(pipes[1], &byte, 1) == 1 && read(idle[0], &byte, 1) == 0 ? 0 : 1); // stays until the parent lets go
  }
  assert_int_equal(read(pipes[0], &byte, 1), 1);
  assert_int_equal(byte, 0);
  ofi_exchange(&p, 3, (size_t[]){8, 70000, 16384});
  close(idle[1]);
  int status = -1;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  close(idle[0]);
  close(pipes[0]);
  close(pipes[1]);
  ofi_pair_close(&p);
}

int main(void)
{
#ifdef TT_TSAN
  return 77; // libfabric's threads are not instrumented
#endif
  setenv("NCCL_OFI_PROVIDER", "tcp", 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_size_arrives),
      cmocka_unit_test(many_messages_keep_their_order),
      cmocka_unit_test(what_does_not_fit_is_refused),
      cmocka_unit_test(a_stranger_does_no_harm),
      cmocka_unit_test(bad_arguments_are_named),
      cmocka_unit_test(closing_in_the_middle_leaves_nothing),
      cmocka_unit_test(a_forked_child_keeps_no_socket),
  };
  tt_net_env env = {.rank = 0, .nranks = 1};
  void *ctx = NULL;
  if (NET->init(&env, &ctx) != ncclSuccess) {
    return 77; // libfabric is not installed here, or has no tcp provider
  }
  NET->finalize(ctx);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
