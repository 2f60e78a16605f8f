// twin_test.c: two connections of one pair of ranks, there and back, share a control socket whenever it can be
// arranged; they work in any case, and each lives and dies by itself.
#include "pair_rig.h"

#include "base/result.h"
#include "base/util.h"

// Rank i sends by send[i] and receives by recv[i].
typedef struct {
  tt_snet *net[2];
  void *listener[2], *send[2], *recv[2];
  char handle[2][TT_NET_HANDLE]; // of listener[i]
} couple;

static void couple_listen(couple *c, int threads, int sockets)
{
  memset(c, 0, sizeof(*c));
  for (int i = 0; i < 2; i++) {
    c->net[i] = pair_context(i, threads, sockets);
    assert_int_equal(NET->listen(c->net[i], 0, c->handle[i], &c->listener[i]), ncclSuccess);
  }
}

// One step of four: rank i connects or accepts.
static void couple_step(couple *c, int what)
{
  int i = what & 1;
  if ((what & 2) == 0 && c->send[i] == NULL) {
    assert_int_equal(NET->connect(c->net[i], 0, c->handle[!i], &c->send[i]), ncclSuccess);
  } else if ((what & 2) != 0 && c->recv[i] == NULL) {
    assert_int_equal(NET->accept(c->listener[i], &c->recv[i]), ncclSuccess);
  }
}

static bool couple_stands(const couple *c)
{
  return c->send[0] != NULL && c->send[1] != NULL && c->recv[0] != NULL && c->recv[1] != NULL;
}

static bool couple_shares(const couple *c)
{
  const tt_snet_conn *s = c->send[0], *r = c->recv[0];
  return s->share.twin == r && r->share.twin == s && s->share.wire == r->share.wire;
}

static void couple_close(couple *c)
{
  for (int i = 0; i < 2; i++) {
    NET->close_listen(c->listener[i]);
    NET->finalize(c->net[i]);
  }
}

// A message of `size` from each to the other, at the same time.
static void twin_exchange(couple *c, size_t size, unsigned number)
{
  void *s[2], *r[2];
  char *out[2], *in[2];
  uint64_t end = tt_now_ns() + 100 * TT_NS_PER_S;
  for (int i = 0; i < 2; i++) {
    int tag = 0;
    out[i] = malloc(size + 1);
    in[i] = malloc(size + 1);
    void *data = in[i];
    pair_pattern(out[i], size, number + (unsigned)i);
    assert_int_equal(NET->irecv(c->recv[i], 1, &data, &size, &tag, NULL, NULL, &r[i]), ncclSuccess);
    assert_int_equal(NET->isend(c->send[i], out[i], size, 0, NULL, NULL, &s[i]), ncclSuccess);
  }
  for (int left = 4; left > 0;) {
    for (int i = 0; i < 2; i++) {
      int done = 0;
      size_t got = size;
      if (s[i] != NULL) {
        assert_int_equal(NET->test(s[i], &done, NULL), ncclSuccess);
        s[i] = done ? NULL : s[i];
        left -= done;
      }
      done = 0;
      if (r[i] != NULL) {
        assert_int_equal(NET->test(r[i], &done, &got), ncclSuccess);
        r[i] = done ? NULL : r[i];
        left -= done;
      }
      assert_int_equal(got, size);
    }
    assert_true(tt_now_ns() < end);
  }
  for (int i = 0; i < 2; i++) {
    assert_true(pair_pattern_holds(in[i], size, number + (unsigned)!i));
    free(in[i]);
    free(out[i]);
  }
}

// Steps in every kind of disorder: the connections stand, and carry messages.
static void test_any_order(void **state)
{
  (void)state;
  int before = pair_descriptors(), shared = 0;
  enum { N = 150 };
  srand(3);
  for (int n = 0; n < N; n++) {
    couple c;
    uint64_t end = tt_now_ns() + 100 * TT_NS_PER_S;
    int favour = rand() % 8; // one step comes more often than the others, or none does
    couple_listen(&c, n % 2, n % 2 * 2);
    while (!couple_stands(&c)) {
      couple_step(&c, rand() % 3 == 0 ? favour & 3 : rand() & 3);
      assert_true(tt_now_ns() < end);
    }
    shared += couple_shares(&c);
    for (unsigned k = 0; k < 5; k++) {
      twin_exchange(&c, k == 4 ? 300000 : 8, k);
    }
    couple_close(&c);
  }
  assert_int_equal(pair_descriptors(), before);
  assert_true(shared > 0);
}

// Makes both connections; rank `first` before the other (2: side by side). A busy machine may make one side impatient:
// once in a while they do not share.
static void twin_make(couple *c, int first, int threads)
{
  for (int turn = 0; turn < 50; turn++) {
    couple_listen(c, threads, 2 * threads);
    for (int i = 0; first < 2 && (c->send[first] == NULL || c->recv[!first] == NULL); i++) {
      couple_step(c, i % 2 ? first : 2 + !first);
    }
    for (int i = 0; !couple_stands(c); i++) {
      couple_step(c, i);
    }
    if (couple_shares(c)) {
      return;
    }
    couple_close(c);
  }
  fail_msg("they never share a socket");
}

static void test_twin_shares(void **state)
{
  (void)state;
  for (int first = 0; first < 3; first++) {
    couple c;
    twin_make(&c, first, 0);
    twin_exchange(&c, 100, 1);
    couple_close(&c);
  }
}

// A message from rank `from`; gives the receiver's outcome.
static ncclResult_t one_way(couple *c, int from, size_t size)
{
  char *out = calloc(1, size), *in = malloc(size);
  void *s = NULL, *r = NULL, *data = in;
  int tag = 0, sent = 0, came = 0;
  size_t got;
  assert_int_equal(NET->irecv(c->recv[!from], 1, &data, &size, &tag, NULL, NULL, &r), ncclSuccess);
  ncclResult_t res = c->send[from] != NULL ? NET->isend(c->send[from], out, size, 0, NULL, NULL, &s) : ncclSuccess;
  while (res == ncclSuccess && !came) {
    if (s != NULL && !sent) {
      (void)NET->test(s, &sent, NULL);
    }
    res = NET->test(r, &came, &got);
  }
  free(out);
  free(in);
  return res;
}

// The end of one direction does not touch the other.
static void test_each_ends_alone(void **state)
{
  (void)state;
  for (int from = 0; from < 2; from++) {
    couple c;
    twin_make(&c, 2, 1);
    NET->close_send(c.send[from]);
    c.send[from] = NULL;
    assert_int_equal(one_way(&c, from, 8), ncclRemoteError); // its receiver is told
    NET->close_recv(c.recv[!from]);
    assert_int_equal(one_way(&c, !from, 8), ncclSuccess);
    assert_int_equal(one_way(&c, !from, 500000), ncclSuccess);
    NET->close_recv(c.recv[from]);
    uint64_t end = tt_now_ns() + 100 * TT_NS_PER_S;
    char byte = 0;
    ncclResult_t res = ncclSuccess;
    while (res == ncclSuccess) { // nobody uses the socket there any more: its sender is told
      void *s = NULL;
      int done = 0;
      res = NET->isend(c.send[!from], &byte, 1, 0, NULL, NULL, &s);
      while (res == ncclSuccess && !done) {
        res = NET->test(s, &done, NULL);
      }
      assert_true(tt_now_ns() < end);
    }
    assert_int_equal(res, ncclRemoteError);
    couple_close(&c);
  }
}

// A rank that goes away is noticed on both.
static void test_peer_gone(void **state)
{
  (void)state;
  couple c;
  twin_make(&c, 2, 1);
  NET->finalize(c.net[1]);
  c.net[1] = NULL;
  c.listener[1] = NULL;
  char byte = 0;
  void *r = NULL, *data = &byte;
  size_t one = 1;
  int done = 0, tag = 0;
  assert_int_equal(NET->irecv(c.recv[0], 1, &data, &one, &tag, NULL, NULL, &r), ncclSuccess);
  ncclResult_t res = ncclSuccess;
  while (res == ncclSuccess) {
    res = NET->test(r, &done, NULL);
    assert_int_equal(done, 0);
  }
  assert_int_equal(res, ncclRemoteError);
  for (res = ncclSuccess; res == ncclSuccess;) {
    void *s = NULL;
    res = NET->isend(c.send[0], &byte, 1, 0, NULL, NULL, &s);
    for (done = 0; res == ncclSuccess && !done;) {
      res = NET->test(s, &done, NULL);
    }
  }
  assert_int_equal(res, ncclRemoteError);
  couple_close(&c);
}

// The connection whose socket was to be used is closed before the other end hears of it.
static void test_twin_gone(void **state)
{
  (void)state;
  couple c;
  couple_listen(&c, 0, 0);
  for (int i = 0; c.send[0] == NULL || c.recv[1] == NULL; i++) {
    couple_step(&c, i % 2 ? 0 : 3);
  }
  for (int i = 0; c.send[1] == NULL; i++) { // accept as long as the other end needs it to connect
    couple_step(&c, 1);
    if (c.send[1] == NULL) {
      couple_step(&c, 2);
    }
  }
  if (c.recv[0] == NULL) {
    NET->close_send(c.send[0]);
    for (int i = 0; i < 100; i++) {
      couple_step(&c, 2);
      assert_null(c.recv[0]);
    }
  }
  couple_close(&c);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_any_order), cmocka_unit_test(test_twin_shares), cmocka_unit_test(test_each_ends_alone),
      cmocka_unit_test(test_peer_gone), cmocka_unit_test(test_twin_gone),
  };
  setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
