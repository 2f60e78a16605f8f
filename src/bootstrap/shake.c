// shake.c: see shake.h.
#include "bootstrap/shake.h"

#include <errno.h>
#include <string.h>

#include "os/sockuser.h"

int tt_shake_in_start(tt_shake_in *s, int fd)
{
  memset(s, 0, sizeof(*s));
  s->fd = fd;
  tt_greeting_make(&s->greeting);
  // A new connection has room for 32 bytes.
  ssize_t n = tt_sock_send(fd, &s->greeting, sizeof(s->greeting));
  return n == (ssize_t)sizeof(s->greeting) ? 0 : n < 0 ? (int)n : -ENOBUFS;
}

// Somebody speaks our language with another secret, or wants somebody else: it shall know at once, and not try again. A wrong proof says
// so.
static int refuse(tt_shake_in *s)
{
  static const tt_seal none;
  (void)tt_sock_send(s->fd, &none, sizeof(none));
  return -EACCES;
}

static int answer(tt_shake_in *s, const tt_key *key)
{
  tt_seal proof = tt_proof_make(&s->hello, key, &s->greeting);
  ssize_t n = tt_sock_send(s->fd, &proof, sizeof(proof));
  return n == (ssize_t)sizeof(proof) ? 1 : n < 0 ? (int)n : -ENOBUFS;
}

// NULL: so far this may be one of those who are welcome, or, complete, is one, and *key is the one that it knows.
static const char *look_at_hello(const tt_shake_in *s, const tt_welcome *welcome, tt_key *key)
{
  const tt_hello *h = &s->hello;
  bool whole = s->got == sizeof(*h);
  *key = welcome->key;
  if (whole && welcome->find != NULL) {
    welcome->find(welcome->arg, h, key);
  }
  const char *wrong = tt_hello_check(h, s->got, key, &s->greeting);
  bool astray = whole && ((h->kind & welcome->kinds) == 0 || h->to != welcome->to);
  return wrong == NULL && astray ? "a rank that wanted another socket" : wrong;
}

int tt_shake_in_step(tt_shake_in *s, const tt_welcome *welcome, const char **why)
{
  tt_key key = welcome->key;
  while (s->got < sizeof(s->hello)) {
    ssize_t n = tt_sock_recv(s->fd, (char *)&s->hello + s->got, sizeof(s->hello) - s->got);
    if (n == -EAGAIN) {
      return 0;
    }
    if (n < 0) {
      *why = s->got == 0 ? "it closed without a word" : "it closed before its hello was complete";
      return (int)n;
    }
    s->got += (size_t)n;
    const char *wrong = look_at_hello(s, welcome, &key);
    if (wrong != NULL) {
      *why = wrong;
      return s->got == sizeof(s->hello) ? refuse(s) : -EPROTO;
    }
  }
  if (key.is_public && tt_sock_is_strangers(s->fd)) {
    *why = "a process of another user of this machine (NCCL_COMM_ID without TUTTI_COMM_ID_SECRET)";
    return refuse(s);
  }
  int e = answer(s, &key);
  if (e < 0) {
    *why = "it closed before the proof could be sent";
  }
  return e;
}

void tt_shake_out_start(tt_shake_out *s, int fd)
{
  memset(s, 0, sizeof(*s));
  s->fd = fd;
}

// Reads on in a message of fixed size. 1: complete; 0: not yet; < 0: the connection's error.
static int read_on(tt_shake_out *s, void *message, size_t size)
{
  while (s->got < size) {
    ssize_t n = tt_sock_recv(s->fd, (char *)message + s->got, size - s->got);
    if (n < 0) {
      return n == -EAGAIN ? 0 : (int)n;
    }
    s->got += (size_t)n;
    int e = s->greeted ? 0 : tt_greeting_check(&s->greeting, s->got);
    if (e != 0) {
      return e;
    }
  }
  s->got = 0;
  return 1;
}

static int say_hello(tt_shake_out *s, const tt_key *key, const tt_hello *hello)
{
  if (!s->spoke) {
    s->spoke = true;
    s->hello = *hello;
    tt_hello_seal(&s->hello, key, &s->greeting);
  }
  while (s->sent < sizeof(s->hello)) {
    ssize_t n = tt_sock_send(s->fd, (const char *)&s->hello + s->sent, sizeof(s->hello) - s->sent);
    if (n < 0) {
      return n == -EAGAIN ? 0 : n == -EPIPE ? -ECONNRESET : (int)n;
    }
    s->sent += (size_t)n;
  }
  return 1;
}

int tt_shake_out_step(tt_shake_out *s, const tt_key *key, const tt_hello *hello, bool speak)
{
  int e = 1;
  if (!s->greeted) {
    e = read_on(s, &s->greeting, sizeof(s->greeting));
    s->greeted = e == 1;
    e = s->greeted && key->is_public && tt_sock_is_strangers(s->fd) ? -EKEYREJECTED : e;
  }
  if (e == 1 && s->sent < sizeof(s->hello)) {
    e = speak ? say_hello(s, key, hello) : 0;
  }
  if (e == 1) {
    e = read_on(s, &s->proof, sizeof(s->proof));
  }
  if (e == 1) {
    tt_seal want = tt_proof_make(&s->hello, key, &s->greeting);
    return tt_seal_same(&want, &s->proof) ? 1 : -EACCES;
  }
  return e;
}

bool tt_shake_out_writes(const tt_shake_out *s)
{
  return s->spoke && s->sent < sizeof(s->hello);
}
