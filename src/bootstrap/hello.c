// hello.c: see hello.h.
#include "bootstrap/hello.h"

#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <string.h>

#include "base/util.h"
#include "os/proc.h"
#include "os/random.h"
#include "os/sockuser.h"

static_assert(sizeof(((tt_key *)0)->b) <= crypto_generichash_KEYBYTES_MAX && TT_SECRET_BYTES >= crypto_generichash_KEYBYTES_MIN,
              "keys fit");
static_assert(sizeof(tt_seal) <= crypto_generichash_BYTES_MAX && sizeof(tt_seal) >= crypto_generichash_BYTES_MIN, "seals fit");

// Really one per process: whether libsodium is set up. libsodium does that under a lock of its own, which a child forked meanwhile would find taken
// for ever: so it happens under ours, which forks wait for. `started` is set under the lock, and read without it.
static pthread_mutex_t sodium_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool started;

__attribute__((constructor)) static void at_start(void)
{
  tt_proc_hold_at_fork(&sodium_lock);
}

static void start_sodium(void)
{
  if (atomic_load_explicit(&started, memory_order_acquire)) {
    return;
  }
  pthread_mutex_lock(&sodium_lock);
  if (sodium_init() >= 0) {
    atomic_store_explicit(&started, true, memory_order_release);
  } // else it has no random bytes: hashes need none, and tt_random has its own
  pthread_mutex_unlock(&sodium_lock);
}

static void add_part(crypto_generichash_state *s, const void *data, size_t size)
{
  uint64_t length = size;
  crypto_generichash_update(s, (const unsigned char *)&length, sizeof(length));
  if (size > 0) {
    crypto_generichash_update(s, data, size);
  }
}

static tt_seal seal_parts(const void *key, size_t key_size, const char *label, const tt_part *parts, int n)
{
  crypto_generichash_state s;
  tt_seal out;
  crypto_generichash_init(&s, key, key_size, sizeof(out));
  add_part(&s, label, strlen(label));
  for (int i = 0; i < n; i++) {
    add_part(&s, parts[i].data, parts[i].size);
  }
  crypto_generichash_final(&s, out.b, sizeof(out.b));
  sodium_memzero(&s, sizeof(s));
  return out;
}

static tt_key key_from(const tt_seal *s)
{
  tt_key k = {.is_public = false};
  static_assert(sizeof(k.b) == sizeof(*s), "a key is a hash");
  memcpy(k.b, s->b, sizeof(k.b));
  return k;
}

tt_key tt_key_of(const uint8_t secret[TT_SECRET_BYTES])
{
  start_sodium();
  tt_seal s = seal_parts(secret, TT_SECRET_BYTES, "tutti id", NULL, 0);
  return key_from(&s);
}

tt_key tt_key_derive(const tt_key *key, const char *purpose, const void *data, size_t size)
{
  tt_part parts[] = {{purpose, strlen(purpose)}, {data, size}};
  tt_seal s = tt_key_seal(key, "tutti key", parts, 2);
  tt_key k = key_from(&s);
  k.is_public = key->is_public;
  return k;
}

uint64_t tt_key_name(const tt_key *key)
{
  uint64_t name;
  tt_seal s = tt_key_seal(key, "tutti name", NULL, 0);
  memcpy(&name, s.b, sizeof(name));
  return name;
}

tt_seal tt_key_seal(const tt_key *key, const char *label, const tt_part *parts, int n)
{
  return seal_parts(key->b, sizeof(key->b), label, parts, n);
}

bool tt_seal_same(const tt_seal *a, const tt_seal *b)
{
  return sodium_memcmp(a->b, b->b, sizeof(a->b)) == 0;
}

void tt_greeting_make(tt_greeting *g)
{
  memset(g, 0, sizeof(*g));
  g->magic = TT_GREETING_MAGIC;
  g->version = TT_HELLO_VERSION;
  tt_random(g->nonce, sizeof(g->nonce));
}

static bool begins_with_magic(const void *message, size_t got, uint64_t magic)
{
  return memcmp(message, &magic, TT_MIN(got, sizeof(magic))) == 0;
}

int tt_greeting_check(const tt_greeting *g, size_t got)
{
  if (!begins_with_magic(g, got, TT_GREETING_MAGIC)) {
    return -EPROTO;
  }
  return got >= offsetof(tt_greeting, zero) && g->version != TT_HELLO_VERSION ? -EPROTONOSUPPORT : 0;
}

static tt_seal hello_seal(const tt_hello *h, const tt_key *key, const tt_greeting *g)
{
  tt_part parts[] = {{g, sizeof(*g)}, {h, offsetof(tt_hello, seal)}};
  return tt_key_seal(key, "tutti hello", parts, 2);
}

void tt_hello_seal(tt_hello *h, const tt_key *key, const tt_greeting *g)
{
  h->magic = TT_HELLO_MAGIC;
  h->version = TT_HELLO_VERSION;
  tt_random(h->nonce, sizeof(h->nonce));
  h->seal = hello_seal(h, key, g);
}

const char *tt_hello_check(const tt_hello *h, size_t got, const tt_key *key, const tt_greeting *g)
{
  if (!begins_with_magic(h, got, TT_HELLO_MAGIC)) {
    return "not a message of this library";
  }
  if (got >= offsetof(tt_hello, kind) && h->version != TT_HELLO_VERSION) {
    return "another version of this library";
  }
  if (got < sizeof(*h)) {
    return NULL;
  }
  tt_seal want = hello_seal(h, key, g);
  return tt_seal_same(&want, &h->seal) ? NULL : "a rank of another job, or with a unique id that is used up (its secret is not ours)";
}

tt_seal tt_proof_make(const tt_hello *h, const tt_key *key, const tt_greeting *g)
{
  tt_part parts[] = {{g, sizeof(*g)}, {h, sizeof(*h)}};
  return tt_key_seal(key, "tutti proof", parts, 2);
}

// ---- both sides

// Goes on with a message of fixed size. 1: it is complete; 0: not yet; < 0: the connection's error.
static int pass_message(tt_shake *s, void *message, size_t size, bool send)
{
  while (s->at < size) {
    char *from = (char *)message + s->at;
    ssize_t n = send ? tt_sock_send(s->fd, from, size - s->at) : tt_sock_recv(s->fd, from, size - s->at);
    if (n < 0) {
      return n == -EAGAIN ? 0 : n == -EPIPE ? -ECONNRESET : (int)n;
    }
    s->at += (size_t)n;
  }
  return 1;
}

// Of a message for which a connection that has sent no more than the handshake has room.
static int send_whole(int fd, const void *message, size_t size)
{
  ssize_t n = tt_sock_send(fd, message, size);
  return n == (ssize_t)size ? 0 : n < 0 ? (int)n : -ENOBUFS;
}

int tt_shake_greet(tt_shake *s, int fd)
{
  *s = (tt_shake){.fd = fd};
  tt_greeting_make(&s->greeting);
  return send_whole(fd, &s->greeting, sizeof(s->greeting));
}

// Somebody speaks our language with another secret, or wants somebody else: it shall know at once, and not try again. A wrong proof says
// so.
static int refuse_hello(const tt_shake *s)
{
  static const tt_seal none;
  (void)send_whole(s->fd, &none, sizeof(none));
  return -EACCES;
}

// NULL: so far this may be one of those who are welcome, or, complete, is one, and *key is the one that it knows.
static const char *judge_hello(const tt_shake *s, const tt_welcome *welcome, tt_key *key)
{
  const tt_hello *h = &s->hello;
  bool whole = s->at == sizeof(*h);
  *key = welcome->key;
  if (whole && welcome->find != NULL) {
    welcome->find(welcome->arg, h, key);
  }
  const char *wrong = tt_hello_check(h, s->at, key, &s->greeting);
  if (wrong == NULL && whole && ((h->kind & welcome->kinds) == 0 || h->to != welcome->to)) {
    wrong = "a rank that wanted another socket";
  } else if (wrong == NULL && whole && key->is_public && tt_sock_is_strangers(s->fd)) {
    wrong = "a process of another user of this machine (NCCL_COMM_ID without TUTTI_COMM_ID_SECRET)";
  }
  return wrong;
}

int tt_shake_accept(tt_shake *s, const tt_welcome *welcome, const char **why)
{
  tt_key key;
  int e = pass_message(s, &s->hello, sizeof(s->hello), false);
  const char *wrong = judge_hello(s, welcome, &key);
  if (wrong != NULL) {
    *why = wrong;
    return e == 1 ? refuse_hello(s) : -EPROTO;
  }
  if (e < 0) {
    *why = s->at == 0 ? "it closed without a word" : "it closed before its hello was complete";
  } else if (e == 1) {
    s->proof = tt_proof_make(&s->hello, &key, &s->greeting);
    int sent = send_whole(s->fd, &s->proof, sizeof(s->proof));
    *why = sent < 0 ? "it closed before the proof could be sent" : *why;
    e = sent < 0 ? sent : 1;
  }
  return e;
}

static int hear_greeting(tt_shake *s, const tt_key *key)
{
  int e = pass_message(s, &s->greeting, sizeof(s->greeting), false), wrong = tt_greeting_check(&s->greeting, s->at);
  return wrong != 0 ? wrong : e == 1 && key->is_public && tt_sock_is_strangers(s->fd) ? -EKEYREJECTED : e;
}

static int hear_proof(tt_shake *s, const tt_key *key)
{
  int e = pass_message(s, &s->proof, sizeof(s->proof), false);
  if (e != 1) {
    return e;
  }
  tt_seal want = tt_proof_make(&s->hello, key, &s->greeting);
  return tt_seal_same(&want, &s->proof) ? 1 : -EACCES;
}

int tt_shake_connect(tt_shake *s, const tt_key *key, const tt_hello *hello, bool speak)
{
  int e = 1;
  while (e == 1) {
    switch (s->stage) {
    case TT_SHAKE_GREETING: e = hear_greeting(s, key); break;
    case TT_SHAKE_SILENT:
      if (!speak) {
        return 0;
      }
      s->hello = *hello;
      tt_hello_seal(&s->hello, key, &s->greeting);
      break;
    case TT_SHAKE_HELLO: e = pass_message(s, &s->hello, sizeof(s->hello), true); break;
    case TT_SHAKE_PROOF: return hear_proof(s, key);
    }
    if (e == 1) {
      s->stage++;
      s->at = 0;
    }
  }
  return e;
}
