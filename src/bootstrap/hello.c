// hello.c: see hello.h.
#include "bootstrap/hello.h"

#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <string.h>

#include "base/util.h"
#include "bootstrap/crypt.h"
#include "os/proc.h"
#include "os/random.h"

static_assert(sizeof(((tt_key *)0)->b) <= crypto_generichash_KEYBYTES_MAX &&
                  TT_SECRET_BYTES >= crypto_generichash_KEYBYTES_MIN,
              "keys fit");
static_assert(sizeof(tt_seal) <= crypto_generichash_BYTES_MAX && sizeof(tt_seal) >= crypto_generichash_BYTES_MIN,
              "seals fit");

// One per process: is libsodium set up? libsodium does that under a lock of its own, which a child forked meanwhile
// would find taken for ever. So it happens under our lock, which forks wait for. The flag is read without it.
static pthread_mutex_t sodium_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool sodium_started;

__attribute__((constructor)) static void hold_sodium_at_fork(void)
{
  tt_proc_hold_at_fork(&sodium_lock);
}

static void start_sodium(void)
{
  if (!atomic_load_explicit(&sodium_started, memory_order_acquire)) {
    pthread_mutex_lock(&sodium_lock);
    // If this fails, it has no random bytes: hashes need none, and tt_random has its own.
    atomic_store_explicit(&sodium_started, sodium_init() >= 0, memory_order_release);
    pthread_mutex_unlock(&sodium_lock);
  }
}

static void hash_part(crypto_generichash_state *s, const void *data, size_t size)
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
  hash_part(&s, label, strlen(label));
  for (int i = 0; i < n; i++) {
    hash_part(&s, parts[i].data, parts[i].size);
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
  g->crypt = tt_crypt_name(g->nonce);
}

static bool has_magic(const void *message, size_t got, uint64_t magic)
{
  return memcmp(message, &magic, TT_MIN(got, sizeof(magic))) == 0;
}

int tt_greeting_check(const tt_greeting *g, size_t got)
{
  if (!has_magic(g, got, TT_GREETING_MAGIC)) {
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
  if (!has_magic(h, got, TT_HELLO_MAGIC)) {
    return "not a message of this library";
  }
  if (got >= offsetof(tt_hello, kind) && h->version != TT_HELLO_VERSION) {
    return "another version of this library";
  }
  if (got < sizeof(*h)) {
    return NULL;
  }
  tt_seal want = hello_seal(h, key, g);
  return tt_seal_same(&want, &h->seal)
             ? NULL
             : "a rank of another job, or with a unique id that is used up (its secret is not ours)";
}

tt_seal tt_proof_make(const tt_hello *h, const tt_key *key, const tt_greeting *g)
{
  tt_part parts[] = {{g, sizeof(*g)}, {h, sizeof(*h)}};
  return tt_key_seal(key, "tutti proof", parts, 2);
}
