// fuzz_handshake.c: both sides of the handshake read what strangers send. No bytes may harm them; only a right seal
// gets through, and nothing behind the hello is touched. Input: a byte that says which side and how, then what the
// other end says.
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "bootstrap/conn.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const tt_key key = {.b = {1}};
static const tt_welcome welcome = {.key = {.b = {1}}, .kinds = TT_HELLO_NET, .to = 5};

static void demand(bool good)
{
  if (!good) {
    abort();
  }
}

static void make_pair(int fds[2])
{
  demand(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
}

static void say(int fd, const void *data, size_t size)
{
  demand(size == 0 || tt_sock_send(fd, data, size) == (ssize_t)size);
}

// Says `data` in one piece, or byte by byte, and lets the accepting side read.
static int feed_in(tt_conn *s, int fd, const uint8_t *data, size_t size, bool slowly)
{
  const char *why = NULL;
  int e = 0;
  for (size_t at = 0; at < size && e == 0;) {
    size_t n = slowly ? 1 : size;
    say(fd, data + at, n);
    at += n;
    e = tt_conn_accept(s, &welcome, &why);
    demand((e < 0) == (why != NULL));
  }
  return e;
}

static void accept_raw(const uint8_t *data, size_t size, bool slowly)
{
  int fds[2];
  tt_conn s;
  make_pair(fds);
  demand(tt_conn_greet(&s, fds[0]) == 0);
  demand(feed_in(&s, fds[1], data, size < 4096 ? size : 4096, slowly) <= 0);
  tt_sock_close(&fds[0]);
  tt_sock_close(&fds[1]);
}

// A hello with these contents and a right seal; then a wrong one.
static void accept_sealed(const uint8_t *data, size_t size, bool spoil)
{
  int fds[2];
  uint8_t rest[9] = {0};
  tt_conn s;
  tt_greeting g;
  tt_hello h;
  make_pair(fds);
  demand(tt_conn_greet(&s, fds[0]) == 0);
  demand(tt_sock_recv(fds[1], &g, sizeof(g)) == sizeof(g));
  memset(&h, 0, sizeof(h));
  memcpy(&h, data, size < sizeof(h) ? size : sizeof(h));
  tt_hello_seal(&h, &key, &g);
  if (spoil) {
    ((uint8_t *)&h)[(size > 0 ? data[size - 1] : 0) % sizeof(h)] ^= 4;
  }
  uint8_t all[sizeof(h) + 8];
  memcpy(all, &h, sizeof(h));
  memset(all + sizeof(h), 7, 8);
  int e = feed_in(&s, fds[1], all, sizeof(all), false);
  bool same = (h.kind & TT_HELLO_DIFFERS) == 0; // the encryption key
  demand((e == 1) == (!spoil && same && (h.kind & TT_HELLO_NET) != 0 && h.to == 5));
  if (e == 1) {
    demand(tt_sock_recv(fds[0], rest, sizeof(rest)) == 8 && rest[0] == 7 && rest[7] == 7);
    demand(memcmp(&s.hello, &h, sizeof(h)) == 0);
  }
  tt_sock_close(&fds[0]);
  tt_sock_close(&fds[1]);
}

// The connecting side reads: with `good`, a greeting of ours with this nonce before the rest.
static void connect_to(const uint8_t *data, size_t size, bool good, bool slowly)
{
  int fds[2], e = 0;
  tt_hello h = {.kind = TT_HELLO_NET, .rank = 1, .to = 5, .nranks = 8};
  uint8_t all[4096];
  size_t n = 0;
  tt_greeting g;
  make_pair(fds);
  if (good) {
    tt_greeting_make(&g);
    memcpy(g.nonce, data, size < sizeof(g.nonce) ? size : sizeof(g.nonce));
    memcpy(all, &g, sizeof(g));
    n = sizeof(g);
  }
  size_t more = size < sizeof(all) - n ? size : sizeof(all) - n;
  memcpy(all + n, data, more);
  n += more;
  tt_conn s = {.fd = fds[0], .stage = TT_CONN_GREETING};
  for (size_t at = 0; at < n && e == 0;) {
    size_t part = slowly ? 1 : n;
    say(fds[1], all + at, part);
    at += part;
    e = tt_conn_connect(&s, &key, &h, true);
  }
  bool other_key = e == -ENOKEY && s.greeting.crypt != 0; // of encryption: this process has none
  demand(e == 0 || e == -EPROTO || e == -EPROTONOSUPPORT || e == -EACCES || other_key);
  demand(!good || n < sizeof(g) + sizeof(tt_seal) || e == -EACCES);
  // Nothing is said to whom has not greeted.
  demand(e != 0 || s.stage == (n < sizeof(g) ? TT_CONN_GREETING : TT_CONN_PROOF));
  tt_sock_close(&fds[0]);
  tt_sock_close(&fds[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (size == 0) {
    return 0;
  }
  uint8_t how = data[0];
  bool slowly = (how & 8) != 0;
  data++;
  size--;
  switch (how % 8) {
  case 0: accept_raw(data, size, slowly); break;
  case 1: accept_sealed(data, size, false); break;
  case 2: accept_sealed(data, size, true); break;
  case 3: connect_to(data, size, true, slowly); break;
  default: connect_to(data, size, false, slowly); break;
  }
  return 0;
}
