// tls_test.c: tls.h over pairs of connected sockets.
#define _GNU_SOURCE // memmem
#include "os/tls.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"

#include "os/socket.h"

#define PATTERN "a text that must never be seen on the wire"

static const uint8_t some_key[TT_TLS_KEY] = {1, 2, 3};
static const uint8_t other_key[TT_TLS_KEY] = {1, 2, 4};

// Sockets 0 and 1 are connected with each other.
static void make_pair(int fd[2], int room)
{
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
  for (int i = 0; i < 2 && room > 0; i++) {
    setsockopt(fd[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  }
}

static void close_pair(int fd[2])
{
  tt_sock_close(&fd[0]);
  tt_sock_close(&fd[1]);
}

// The outcome of a handshake at both ends.
static void shake_hands(const int fd[2], const uint8_t *second, int e[2])
{
  assert_int_equal(tt_tls_load(), ncclSuccess);
  assert_int_equal(tt_tls_start(fd[0], some_key, true), 0);
  assert_int_equal(tt_tls_start(fd[1], second, false), 0);
  e[0] = e[1] = 0;
  for (int round = 0; round < 10 && (e[0] == 0 || e[1] == 0); round++) {
    for (int i = 1; i >= 0; i--) {
      e[i] = e[i] == 0 ? tt_tls_shake(fd[i]) : e[i];
    }
  }
}

static void make_tls_pair(int fd[2], int room)
{
  int e[2];
  make_pair(fd, room);
  shake_hands(fd, some_key, e);
  assert_int_equal(e[0], 1);
  assert_int_equal(e[1], 1);
}

static bool is_readable(int fd)
{
  struct pollfd p = {.fd = fd, .events = POLLIN};
  return poll(&p, 1, 0) == 1 && (p.revents & POLLIN) != 0;
}

static void messages_arrive(void **state)
{
  (void)state;
  int fd[2];
  char got[64] = "";
  make_tls_pair(fd, 0);
  for (int i = 0; i < 2; i++) {
    assert_false(is_readable(fd[i]));
    assert_int_equal(tt_sock_recv(fd[i], got, sizeof got), -EAGAIN);
    assert_int_equal(tt_sock_send_whole(fd[i], PATTERN, sizeof PATTERN), 0);
    assert_int_equal(tt_sock_recv(fd[1 - i], got, sizeof got), sizeof PATTERN);
    assert_string_equal(got, PATTERN);
  }
  int copy = -1;
  assert_int_equal(tt_sock_copy(fd[0], &copy), -EOPNOTSUPP);
  close_pair(fd);
}

// Byte by byte: the socket polls readable until the last one has been taken, and not longer.
static void polls_readable_until_taken(void **state)
{
  (void)state;
  int fd[2];
  char one, many[100];
  make_tls_pair(fd, 0);
  assert_int_equal(tt_sock_send(fd[0], "12345", 5), 5);
  assert_int_equal(tt_sock_send(fd[0], "678", 3), 3);
  for (int i = 0; i < 8; i++) {
    assert_true(is_readable(fd[1]));
    assert_int_equal(tt_sock_take(fd[1], many, sizeof many, true), 8 - i);
    assert_int_equal(many[0], '1' + i);
    assert_true(is_readable(fd[1]));
    assert_int_equal(tt_sock_recv(fd[1], &one, 1), 1);
    assert_int_equal(one, '1' + i);
  }
  assert_false(is_readable(fd[1]));
  assert_int_equal(tt_sock_take(fd[1], many, sizeof many, true), -EAGAIN);
  tt_sock_send(fd[0], "9", 1);
  tt_sock_finish(fd[0]);
  assert_int_equal(tt_sock_take(fd[1], many, sizeof many, true), 1);
  assert_true(tt_sock_ended(fd[1]));
  assert_int_equal(tt_sock_recv(fd[1], many, sizeof many), 1);
  assert_int_equal(tt_sock_take(fd[1], many, sizeof many, false), 0);
  assert_int_equal(tt_sock_recv(fd[1], many, sizeof many), -ECONNRESET);
  close_pair(fd);
}

static uint8_t byte_at(size_t i)
{
  return (uint8_t)(i * 2654435761u >> 13);
}

// A socket with little room takes records in parts; the two ends take turns in odd sizes and several pieces.
static void large_transfers_arrive_whole(void **state)
{
  (void)state;
  enum { SIZE = 3 << 20 };
  int fd[2];
  uint8_t *from = malloc(SIZE), *to = calloc(1, SIZE);
  size_t sent = 0, got = 0, step = 1, stuck = 0;
  make_tls_pair(fd, 4096);
  for (size_t i = 0; i < SIZE; i++) {
    from[i] = byte_at(i);
  }
  while (got < SIZE) {
    size_t left = SIZE - sent, first = TT_MIN(left, step % 977);
    struct iovec parts[] = {{from + sent, first}, {from + sent + first, left - first}};
    ssize_t n = left == 0 ? -EAGAIN : tt_sock_sendv(fd[0], parts, 2);
    assert_true(n > 0 || n == -EAGAIN);
    sent += n > 0 ? (size_t)n : 0;
    stuck += n == -EAGAIN && left > 0;
    size_t room = TT_MIN(SIZE - got, step % 40000 + 1), half = room / 2;
    struct iovec into[] = {{to + got, half}, {to + got + half, room - half}};
    n = tt_sock_recvv(fd[1], into, 2);
    assert_true(n > 0 || n == -EAGAIN);
    got += n > 0 ? (size_t)n : 0;
    step = step * 13 % 65521;
  }
  assert_true(stuck > 10); // the room was little
  assert_memory_equal(from, to, SIZE);
  assert_false(is_readable(fd[1]));
  free(from);
  free(to);
  close_pair(fd);
}

// More records than one key is for.
static void new_keys_are_taken(void **state)
{
  (void)state;
  int fd[2];
  make_tls_pair(fd, 0);
  for (int i = 0; i < (1 << 16) + 100; i++) {
    uint8_t b = byte_at((size_t)i), is = 0;
    assert_int_equal(tt_sock_send(fd[0], &b, 1), 1);
    assert_int_equal(tt_sock_recv(fd[1], &is, 1), 1);
    assert_int_equal(is, b);
  }
  close_pair(fd);
}

static void another_key_is_refused(void **state)
{
  (void)state;
  int fd[2], e[2];
  char byte;
  make_pair(fd, 0);
  shake_hands(fd, other_key, e);
  assert_int_equal(e[0], -EPROTO);
  assert_int_equal(e[1], -EPROTO); // the alert says so
  assert_int_equal(tt_tls_shake(fd[0]), -EPROTO);
  assert_int_equal(tt_sock_send(fd[0], "x", 1), -ENOTCONN);
  assert_int_equal(tt_sock_recv(fd[1], &byte, 1), -ENOTCONN);
  close_pair(fd);
}

// Whatever comes in place of a handshake: an error, or the wait for more.
static void garbage_is_refused(void **state)
{
  (void)state;
  for (int round = 0; round < 300; round++) {
    int fd[2], e;
    uint8_t junk[64];
    make_pair(fd, 0);
    assert_int_equal(tt_tls_start(fd[0], some_key, round % 2 == 0), 0);
    for (size_t i = 0; i < sizeof junk; i++) {
      junk[i] = byte_at(i + (size_t)round * 71);
    }
    if (round % 3 == 0) {
      memcpy(junk, "\x16\x03\x01\x00\x20", 5); // a record of a handshake
    }
    tt_sock_send(fd[1], junk, sizeof junk);
    tt_sock_finish(fd[1]);
    while ((e = tt_tls_shake(fd[0])) == 0) {
    }
    assert_true(e == -EPROTO || e == -ECONNRESET);
    close_pair(fd);
  }
}

// A byte of a record changes on its way, or the connection ends in the middle of one.
static void changed_and_cut_records_are_refused(void **state)
{
  (void)state;
  for (int round = 0; round < 2; round++) {
    int fd[2], raw;
    uint8_t record[256];
    make_tls_pair(fd, 0);
    raw = dup(fd[1]); // not encrypted
    assert_int_equal(tt_sock_send(fd[0], PATTERN, sizeof PATTERN), sizeof PATTERN);
    ssize_t n = recv(raw, record, sizeof record, 0);
    assert_true(n > (ssize_t)sizeof PATTERN);
    assert_null(memmem(record, (size_t)n, PATTERN, 8));
    record[20] ^= (uint8_t)(round == 0);
    raw = (close(raw), dup(fd[0]));
    assert_int_equal(send(raw, record, (size_t)n - (round == 1), 0), n - (round == 1));
    tt_sock_finish(raw);
    close(raw);
    assert_int_equal(tt_sock_recv(fd[1], record, sizeof record), round == 0 ? -EPROTO : -ECONNRESET);
    assert_int_equal(tt_sock_recv(fd[1], record, sizeof record), round == 0 ? -EPROTO : -ECONNRESET);
    close_pair(fd);
  }
}

static void a_child_only_closes(void **state)
{
  (void)state;
  int fd[2], status;
  char got[64];
  make_tls_pair(fd, 0);
  pid_t child = fork();
  if (child == 0) {
    bool refused = tt_sock_send(fd[0], "x", 1) == -EBADF && tt_sock_recv(fd[1], got, 1) == -EBADF;
    close_pair(fd);
    make_tls_pair(fd, 0); // with the same numbers
    bool works = tt_sock_send(fd[0], "x", 1) == 1 && tt_sock_recv(fd[1], got, 1) == 1;
    _exit(refused && works ? 0 : 1);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_int_equal(tt_sock_send(fd[0], PATTERN, sizeof PATTERN), sizeof PATTERN);
  assert_int_equal(tt_sock_recv(fd[1], got, sizeof got), sizeof PATTERN);
  close_pair(fd);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(messages_arrive),
      cmocka_unit_test(polls_readable_until_taken),
      cmocka_unit_test(large_transfers_arrive_whole),
      cmocka_unit_test(new_keys_are_taken),
      cmocka_unit_test(another_key_is_refused),
      cmocka_unit_test(garbage_is_refused),
      cmocka_unit_test(changed_and_cut_records_are_refused),
      cmocka_unit_test(a_child_only_closes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
