// conn_test.c: sealed notes arrive as they were sent, or not at all.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/util.h"
#include "bootstrap/conn.h"

static const tt_key key = {.b = {1}};

typedef struct {
  tt_conn a, b;
  int wire; // with make_tapped: what a sends is read here...
  int tap;  // ...and what is written here comes to b
} pair;

static tt_hello some_hello(uint8_t nonce)
{
  return (tt_hello){.kind = TT_HELLO_JOIN, .nonce = {nonce}};
}

static void connect_pair(pair *p)
{
  int fds[2];
  tt_hello h = some_hello(1);
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
  p->wire = p->tap = -1;
  assert_int_equal(tt_conn_open(&p->a, fds[0], &key, &h, false), 0);
  assert_int_equal(tt_conn_open(&p->b, fds[1], &key, &h, true), 0);
}

static void make_tapped(pair *p, uint8_t nonce_of_b)
{
  int fds[4];
  tt_hello h = some_hello(1), other = some_hello(nonce_of_b);
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds + 2), 0);
  assert_int_equal(tt_conn_open(&p->a, fds[0], &key, &h, false), 0);
  p->wire = fds[1];
  p->tap = fds[2];
  assert_int_equal(tt_conn_open(&p->b, fds[3], &key, &other, true), 0);
}

static void close_pair(pair *p)
{
  tt_conn_close(&p->a);
  tt_conn_close(&p->b);
  tt_sock_close(&p->wire);
  tt_sock_close(&p->tap);
}

static void test_both_ways(void **state)
{
  (void)state;
  pair p;
  static tt_note n;
  uint8_t body[TT_NOTE_MAX];
  connect_pair(&p);
  memset(body, 7, sizeof(body));
  assert_int_equal(tt_note_recv(&p.b, &n), 0);
  static const size_t sizes[] = {0, 1, 100, TT_NOTE_MAX};
  for (int round = 0; round < 10; round++) {
    for (uint32_t i = 0; i < 4; i++) {
      assert_int_equal(tt_note_send(&p.a, i, body, sizes[i]), 0);
      assert_int_equal(tt_note_send(&p.b, 10 + i, body, sizes[i]), 0);
    }
    for (uint32_t i = 0; i < 4; i++) {
      assert_int_equal(tt_note_recv(&p.b, &n), 1);
      assert_true(n.frame.kind == i && n.frame.size == sizes[i] && memcmp(n.body, body, n.frame.size) == 0);
      assert_int_equal(tt_note_recv(&p.a, &n), 1);
      assert_true(n.frame.kind == 10 + i && n.frame.size == sizes[i]);
    }
  }
  assert_int_equal(tt_note_send(&p.a, 1, body, TT_NOTE_MAX + 1), -EMSGSIZE);
  tt_conn_close(&p.a);
  assert_int_equal(tt_note_recv(&p.b, &n), -ECONNRESET);
  close_pair(&p);
  assert_int_equal(tt_note_send(&p.a, 1, NULL, 0), -ECONNRESET);
}

// Sends two notes and gives b their bytes; returns their number, with the size of one in *one.
static size_t record_notes(pair *p, uint8_t *bytes, size_t *one)
{
  ssize_t n;
  assert_int_equal(tt_note_send(&p->a, 1, "abc", 3), 0);
  n = tt_sock_recv(p->wire, bytes, 1000);
  *one = (size_t)n;
  assert_int_equal(tt_note_send(&p->a, 1, "abd", 3), 0);
  assert_int_equal(tt_sock_recv(p->wire, bytes + n, 1000), n);
  return 2 * (size_t)n;
}

static int first_answer(pair *p, const void *bytes, size_t size)
{
  static tt_note n;
  assert_int_equal(tt_sock_send(p->tap, bytes, size), size);
  int e = tt_note_recv(&p->b, &n);
  close_pair(p);
  return e;
}

static void test_changes(void **state)
{
  (void)state;
  uint8_t bytes[2000];
  size_t one = 0;
  pair p;
  make_tapped(&p, 1);
  record_notes(&p, bytes, &one);
  assert_int_equal(first_answer(&p, bytes, one), 1);
  make_tapped(&p, 1);
  record_notes(&p, bytes, &one);
  assert_int_equal(first_answer(&p, bytes + one, one), -EBADMSG); // the first one is left out
  make_tapped(&p, 2);
  record_notes(&p, bytes, &one);
  assert_int_equal(first_answer(&p, bytes, one), -EBADMSG); // another connection
  for (size_t bit = 0; bit < 8 * one; bit++) {
    make_tapped(&p, 1);
    record_notes(&p, bytes, &one);
    bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    int e = first_answer(&p, bytes, one);
    // Waits for more.
    assert_true(e == -EBADMSG || (e == 0 && bit / 8 >= offsetof(tt_frame, size) && bit / 8 < sizeof(tt_frame)));
  }
  make_tapped(&p, 1);
  record_notes(&p, bytes, &one);
  assert_int_equal(first_answer(&p, bytes, one - 1), 0);
}

static void test_repeated_and_reflected(void **state)
{
  (void)state;
  uint8_t bytes[2000];
  size_t one = 0;
  static tt_note n;
  pair p;
  make_tapped(&p, 1);
  record_notes(&p, bytes, &one);
  assert_int_equal(tt_sock_send(p.tap, bytes, one), one);
  assert_int_equal(tt_note_recv(&p.b, &n), 1);
  assert_int_equal(tt_sock_send(p.tap, bytes, one), one);
  assert_int_equal(tt_note_recv(&p.b, &n), -EBADMSG);
  assert_int_equal(tt_sock_send(p.wire, bytes, one), one); // back to where it came from
  assert_int_equal(tt_note_recv(&p.a, &n), -EBADMSG);
  close_pair(&p);
}

static void test_in_pieces(void **state)
{
  (void)state;
  uint8_t bytes[2000];
  size_t one = 0;
  static tt_note n;
  pair p;
  make_tapped(&p, 1);
  size_t all = record_notes(&p, bytes, &one);
  int notes = 0;
  for (size_t i = 0; i < all; i++) {
    assert_int_equal(tt_sock_send(p.tap, bytes + i, 1), 1);
    int e = tt_note_recv(&p.b, &n);
    assert_int_equal(e, (i + 1) % one == 0);
    notes += e;
  }
  assert_int_equal(notes, 2);
  close_pair(&p);
}

// Memory is taken when a connection opens, so that a thread with many of them never waits for it when notes come.
static void test_without_memory(void **state)
{
  (void)state;
  static tt_note n;
  pair p;
  tt_hello h = some_hello(1);
  connect_pair(&p);
  tt_alloc_fail_at(1);
  assert_int_equal(tt_note_send(&p.a, 1, "abc", 3), 0);
  assert_int_equal(tt_note_recv(&p.b, &n), 1);
  assert_int_equal(tt_alloc_fail_at(1), 1);
  tt_conn more;
  assert_int_equal(tt_conn_open(&more, p.a.fd, &key, &h, true), -ENOMEM);
  assert_int_equal(more.fd, -1);
  tt_conn_close(&more);
  assert_int_equal(tt_note_send(&p.a, 1, "abd", 3), 0); // the descriptor is still the first one's
  close_pair(&p);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_both_ways),
      cmocka_unit_test(test_changes),
      cmocka_unit_test(test_repeated_and_reflected),
      cmocka_unit_test(test_in_pieces),
      cmocka_unit_test(test_without_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
