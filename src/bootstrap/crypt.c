// crypt.c: see crypt.h.
#include "bootstrap/crypt.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/result.h"
#include "base/util.h"
#include "os/proc.h"
#include "os/tls.h"

// One per process: the encryption key, under its lock, which is held across a fork. `crypt_on` is read without it
// first.
static pthread_mutex_t crypt_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool crypt_on;
static tt_key crypt_key;

__attribute__((constructor)) static void hold_crypt_at_fork(void)
{
  tt_proc_hold_at_fork(&crypt_lock);
}

ncclResult_t tt_crypt_set(const char *text)
{
  static const uint8_t none[TT_SECRET_BYTES];
  tt_key key = {.is_public = false};
  if (text != NULL) {
    TT_TRY(tt_tls_load());
    tt_key base = tt_key_of(none);
    key = tt_key_derive(&base, "encryption", text, strlen(text));
  }
  pthread_mutex_lock(&crypt_lock);
  crypt_key = key;
  atomic_store(&crypt_on, text != NULL);
  pthread_mutex_unlock(&crypt_lock);
  explicit_bzero(&key, sizeof(key));
  return ncclSuccess;
}

bool tt_crypt_is_on(void)
{
  return atomic_load_explicit(&crypt_on, memory_order_relaxed);
}

// False: there is none.
static bool copy_crypt_key(tt_key *key)
{
  if (!tt_crypt_is_on()) {
    return false;
  }
  pthread_mutex_lock(&crypt_lock);
  bool on = tt_crypt_is_on();
  *key = crypt_key;
  pthread_mutex_unlock(&crypt_lock);
  return on;
}

uint32_t tt_crypt_name(const uint8_t nonce[TT_NONCE_BYTES])
{
  tt_key key;
  uint32_t name;
  if (!copy_crypt_key(&key)) {
    return 0;
  }
  tt_seal s = tt_key_seal(&key, "tutti encryption", &(tt_part){nonce, TT_NONCE_BYTES}, 1);
  memcpy(&name, s.b, sizeof(name));
  return name != 0 ? name : 1;
}

int tt_crypt_start(int fd, const tt_greeting *g, const tt_hello *h, bool accepting)
{
  tt_key key;
  tt_part parts[] = {{g, sizeof(*g)}, {h, sizeof(*h)}};
  if (!copy_crypt_key(&key)) {
    return -ENOKEY;
  }
  tt_seal s = tt_key_seal(&key, "tutti tls", parts, 2);
  static_assert(sizeof(s.b) == TT_TLS_KEY, "a key of TLS is a hash");
  return tt_tls_start(fd, s.b, accepting);
}
