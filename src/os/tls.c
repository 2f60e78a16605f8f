// tls.c: see tls.h. OpenSSL works on memory; this file moves records between that and the socket.
#include "os/tls.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#include "base/result.h"
#include "base/util.h"
#include "os/openssl.h"
#include "os/proc.h"
#include "os/retry.h"

enum {
  HEAD = 5,                  // bytes in front of a record: type, version 2, size 2
  PLAIN_MOST = 16384,        // contents of a record
  OVERHEAD = 17,             // tag and type: what a record of data is longer than its contents
  BODY_MOST = 16384 + 256,   // as RFC 8446 has it
  RECORDS_PER_KEY = 1 << 16, // records after which the sender takes a new key: AES-GCM allows 2^24
  PAGE = 4096,
  PAGES = 256,
  // OpenSSL's numbers.
  SSL_ERROR_WANT_READ = 2,
  SSL_ERROR_ZERO_RETURN = 6,
  SSL_CTRL_MODE = 33,
  SSL_CTRL_SET_MIN_PROTO_VERSION = 123,
  SSL_MODE_RELEASE_BUFFERS = 0x10,
  TLS1_3_VERSION = 0x0304,
  BIO_CTRL_RESET = 1,
  BIO_CTRL_INFO = 3,
  OPENSSL_INIT_NO_LOAD_CONFIG = 0x80,
  OPENSSL_INIT_NO_ATEXIT = 0x80000, // threads of this library may still talk while the process exits
};

struct tt_tls {
  int fd;
  uint32_t generation; // tt_proc_generation of the process that may use it
  void *ssl, *in, *out;
  bool open;               // the handshake is done
  int error;               // of receiving, once there was one
  uint8_t key[TT_TLS_KEY]; // until the handshake is done
  // Receiving: `got` bytes of the record under way; contents that were not taken; is a byte of their record still in
  // the kernel?
  size_t got, at, end;
  bool held;
  // Sending: bytes of `out` that have gone, its contents that the caller has not been counted of, records so far.
  size_t gone, ahead;
  uint32_t records;
  uint8_t record[HEAD + BODY_MOST];
  uint8_t plain[2 * PLAIN_MOST];
};

bool tt_tls_used;

// Of the process: OpenSSL and its settings for all sockets, set up once under the lock; by descriptor the encrypted
// sockets, whose pages are never freed. A page is published with release, an entry too.
static pthread_mutex_t tls_lock = PTHREAD_MUTEX_INITIALIZER;
static tt_openssl ossl;
static void *tls_settings; // NULL: not set up yet. By __atomic_… outside the lock
static tt_tls **tls_pages[PAGES];

__attribute__((constructor)) static void hold_tls_at_fork(void)
{
  tt_proc_hold_at_fork(&tls_lock);
}

// ---- The key

static const unsigned char identity[] = "tutti";

// The session that stands for the key. NULL without memory.
static void *key_session(void *ssl)
{
  static const unsigned char aes_128_gcm_sha256[] = {0x13, 0x01};
  const tt_tls *t = ossl.SSL_get_ex_data(ssl, 0);
  const void *cipher = ossl.SSL_CIPHER_find(ssl, aes_128_gcm_sha256);
  void *s = ossl.SSL_SESSION_new();
  if (s == NULL || cipher == NULL || ossl.SSL_SESSION_set1_master_key(s, t->key, sizeof(t->key)) != 1 ||
      ossl.SSL_SESSION_set_cipher(s, cipher) != 1 || ossl.SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION) != 1) {
    ossl.SSL_SESSION_free(s);
    return NULL;
  }
  return s;
}

// The accepting side: which key has this name?
static int find_psk(void *ssl, const unsigned char *name, size_t size, void **session)
{
  bool ours = size == sizeof(identity) - 1 && memcmp(name, identity, size) == 0;
  *session = ours ? key_session(ssl) : NULL;
  return !ours || *session != NULL;
}

static int use_psk(void *ssl, const void *digest, const unsigned char **name, size_t *size, void **session)
{
  (void)digest;
  *name = identity;
  *size = sizeof(identity) - 1;
  *session = key_session(ssl);
  return *session != NULL;
}

// ---- OpenSSL

// Under the lock, with the functions in place. With a library context of its own: neither the program's settings nor
// the system's reach it.
static ncclResult_t set_up_tls(void)
{
  void *library = NULL, *ctx = NULL;
  if (ossl.OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT | OPENSSL_INIT_NO_LOAD_CONFIG, NULL) == 1) {
    library = ossl.OSSL_LIB_CTX_new();
    ctx = library == NULL ? NULL : ossl.SSL_CTX_new_ex(library, NULL, ossl.TLS_method());
  }
  if (ctx == NULL || ossl.SSL_CTX_ctrl(ctx, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, NULL) != 1 ||
      ossl.SSL_CTX_set_ciphersuites(ctx, "TLS_AES_128_GCM_SHA256") != 1 || ossl.SSL_CTX_set_num_tickets(ctx, 0) != 1) {
    if (ctx != NULL) {
      ossl.SSL_CTX_free(ctx);
    }
    return tt_fail(ncclSystemError, "encryption: OpenSSL cannot set up TLS 1.3 with AES-128-GCM");
  }
  ossl.SSL_CTX_ctrl(ctx, SSL_CTRL_MODE, SSL_MODE_RELEASE_BUFFERS, NULL);
  ossl.SSL_CTX_set_psk_find_session_callback(ctx, find_psk);
  ossl.SSL_CTX_set_psk_use_session_callback(ctx, use_psk);
  __atomic_store_n(&tls_settings, ctx, __ATOMIC_RELEASE);
  return ncclSuccess;
}

ncclResult_t tt_tls_load(void)
{
  if (__atomic_load_n(&tls_settings, __ATOMIC_ACQUIRE) != NULL) {
    return ncclSuccess;
  }
  tt_openssl found;
  TT_TRY(tt_openssl_open(&found)); // before the lock: a fork, too, takes that of libraries first (library.c)
  pthread_mutex_lock(&tls_lock);
  ncclResult_t res = ncclSuccess;
  if (tls_settings == NULL) {
    ossl = found;
    res = set_up_tls();
  }
  pthread_mutex_unlock(&tls_lock);
  return res;
}

// ---- By descriptor

// Where the socket of `fd` stands; NULL: nowhere. `make`: without a page, tries to make one.
static tt_tls **place_of(int fd, bool make)
{
  if (fd < 0 || fd >= PAGE * PAGES) {
    return NULL;
  }
  tt_tls ***page = &tls_pages[fd / PAGE];
  tt_tls **p = __atomic_load_n(page, __ATOMIC_ACQUIRE);
  if (p == NULL && make) {
    pthread_mutex_lock(&tls_lock);
    p = *page == NULL ? tt_calloc(PAGE, sizeof(p[0])) : *page;
    __atomic_store_n(page, p, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&tls_lock);
  }
  return p == NULL ? NULL : &p[fd % PAGE];
}

tt_tls *tt_tls_find(int fd)
{
  tt_tls **p = place_of(fd, false);
  return p == NULL ? NULL : __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static bool is_ours(const tt_tls *t)
{
  return t->generation == __atomic_load_n(&tt_proc_generation, __ATOMIC_RELAXED);
}

static void free_tls(tt_tls *t)
{
  explicit_bzero(t->key, sizeof(t->key));
  explicit_bzero(t->plain, sizeof(t->plain));
  ossl.SSL_free(t->ssl); // NULL is allowed; its ends with it
  tt_free(t);
}

// What was the parent's is forgotten: OpenSSL's locks may be in any state.
void tt_tls_end(int fd)
{
  tt_tls **p = __atomic_load_n(&tt_tls_used, __ATOMIC_RELAXED) ? place_of(fd, false) : NULL;
  tt_tls *t = p == NULL ? NULL : __atomic_exchange_n(p, NULL, __ATOMIC_ACQ_REL);
  if (t != NULL && is_ours(t)) {
    free_tls(t);
  }
}

int tt_tls_start(int fd, const uint8_t key[TT_TLS_KEY], bool accepting)
{
  tt_tls_end(fd);
  tt_tls **p = place_of(fd, true), *t = p == NULL ? NULL : tt_calloc(1, sizeof(*t));
  if (t == NULL) {
    return p == NULL ? -EMFILE : -ENOMEM;
  }
  t->fd = fd;
  t->generation = __atomic_load_n(&tt_proc_generation, __ATOMIC_RELAXED);
  memcpy(t->key, key, sizeof(t->key));
  t->ssl = ossl.SSL_new(tls_settings);
  t->in = ossl.BIO_new(ossl.BIO_s_mem());
  t->out = ossl.BIO_new(ossl.BIO_s_mem());
  if (t->ssl == NULL || t->in == NULL || t->out == NULL || ossl.SSL_set_ex_data(t->ssl, 0, t) != 1) {
    ossl.BIO_free(t->in);
    ossl.BIO_free(t->out);
    free_tls(t);
    return -ENOMEM;
  }
  ossl.SSL_set_bio(t->ssl, t->in, t->out); // which owns them now
  if (accepting) {
    ossl.SSL_set_accept_state(t->ssl);
  } else {
    ossl.SSL_set_connect_state(t->ssl);
  }
  __atomic_store_n(p, t, __ATOMIC_RELEASE);
  __atomic_store_n(&tt_tls_used, true, __ATOMIC_RELEASE);
  return 0;
}

// ---- Sending

// Sends what is encrypted. 0: all of it; -EAGAIN or the connection's error.
static int flush_records(tt_tls *t)
{
  char *from = NULL;
  long size = ossl.BIO_ctrl(t->out, BIO_CTRL_INFO, 0, &from);
  while ((size_t)size > t->gone) {
    ssize_t n;
    TT_RETRY(n, send(t->fd, from + t->gone, (size_t)size - t->gone, MSG_NOSIGNAL | MSG_DONTWAIT));
    if (n < 0) {
      return -errno;
    }
    t->gone += (size_t)n;
  }
  if (size > 0) {
    ossl.BIO_ctrl(t->out, BIO_CTRL_RESET, 0, NULL);
  }
  t->gone = 0;
  return 0;
}

// Up to `most` bytes from byte `from` of the parts on: where they lie if they lie together, else copied to `stage`.
static const void *gather_parts(const struct iovec *parts, size_t from, size_t most, uint8_t *stage)
{
  size_t got = 0;
  for (; from >= parts->iov_len; parts++) {
    from -= parts->iov_len;
  }
  if (parts->iov_len - from >= most) {
    return (const char *)parts->iov_base + from;
  }
  for (; got < most; parts++, from = 0) {
    size_t n = TT_MIN(parts->iov_len - from, most - got);
    memcpy(stage + got, (const char *)parts->iov_base + from, n);
    got += n;
  }
  return stage;
}

// Encrypts a record from byte `from` of the parts on. 0 or -EPROTO.
static int encrypt_record(tt_tls *t, const struct iovec *parts, size_t from, size_t total)
{
  uint8_t stage[PLAIN_MOST];
  size_t size = TT_MIN(total - from, sizeof(stage));
  const void *data = gather_parts(parts, from, size, stage);
  ossl.ERR_clear_error();
  if (++t->records % RECORDS_PER_KEY == 0 && ossl.SSL_key_update(t->ssl, 0) != 1) {
    return -EPROTO;
  }
  if (ossl.SSL_write(t->ssl, data, (int)size) != (int)size) {
    return -EPROTO;
  }
  t->ahead = size;
  return 0;
}

static size_t parts_size(const struct iovec *parts, int n)
{
  size_t size = 0;
  for (int i = 0; i < n; i++) {
    size += parts[i].iov_len;
  }
  return size;
}

// A record counts as sent when the kernel has all of it: until then the caller passes its contents again, and so knows
// that it has to call again.
ssize_t tt_tls_send(tt_tls *t, const struct iovec *parts, int n)
{
  size_t total = parts_size(parts, n), done = 0;
  int e = !is_ours(t) ? -EBADF : t->open ? 0 : -ENOTCONN;
  while (e == 0 && (e = flush_records(t)) == 0) {
    size_t counted = TT_MIN(t->ahead, total - done);
    t->ahead -= counted;
    done += counted;
    if (done == total) {
      break;
    }
    e = encrypt_record(t, parts, done, total);
  }
  return done > 0 ? (ssize_t)done : e;
}

// ---- Receiving

// One byte of a record whose contents were taken.
static void take_held(tt_tls *t)
{
  uint8_t last;
  ssize_t n;
  if (t->held) {
    TT_RETRY(n, recv(t->fd, &last, 1, MSG_DONTWAIT));
    t->held = false;
  }
}

// Reads on in the record under way, up to `end`. 1: it is there; 0: not yet; < 0: the end (-ENODATA between records)
// or the connection's error.
static int fill_to(tt_tls *t, size_t end, int flags)
{
  while (t->got < end) {
    ssize_t n;
    TT_RETRY(n, recv(t->fd, t->record + t->got, end - t->got, MSG_DONTWAIT | flags));
    if (n <= 0) {
      return n == 0 ? (t->got == 0 ? -ENODATA : -ECONNRESET) : errno == EAGAIN ? 0 : -errno;
    }
    t->got += (size_t)n;
  }
  return 1;
}

// Reads the next record. While the socket has to poll readable until its contents have been taken, which will not be
// at once if there is room for less, the kernel keeps the last byte. As fill_to.
static int read_record(tt_tls *t, size_t room)
{
  int e = fill_to(t, HEAD, 0);
  if (e <= 0) {
    return e;
  }
  size_t body = (size_t)t->record[3] << 8 | t->record[4], end = HEAD + body;
  if (body == 0 || body > BODY_MOST) {
    return -EPROTO;
  }
  if (body <= room + OVERHEAD) {
    return fill_to(t, end, 0);
  }
  e = t->got < end ? fill_to(t, end - 1, 0) : 1;
  e = e == 1 && t->got < end ? fill_to(t, end, MSG_PEEK) : e;
  t->held = e == 1;
  return e;
}

// Gives OpenSSL the record. 0 or -ENOMEM.
static int feed_record(tt_tls *t)
{
  int size = (int)t->got;
  t->got = 0;
  ossl.ERR_clear_error();
  return ossl.BIO_write(t->in, t->record, size) == size ? 0 : -ENOMEM;
}

static int decrypt_record(tt_tls *t)
{
  int e = feed_record(t);
  if (e != 0) {
    return e;
  }
  int n = ossl.SSL_read(t->ssl, t->plain + t->end, (int)(sizeof(t->plain) - t->end));
  if (n <= 0) {
    int why = ossl.SSL_get_error(t->ssl, n);
    take_held(t);
    return why == SSL_ERROR_WANT_READ ? 1 : why == SSL_ERROR_ZERO_RETURN ? -ENODATA : -EPROTO;
  }
  t->end += (size_t)n;
  return 1;
}

// Has the kernel more than the byte that it keeps?
static bool has_behind(int fd)
{
  char two[2];
  ssize_t n;
  TT_RETRY(n, recv(fd, two, sizeof(two), MSG_DONTWAIT | MSG_PEEK));
  return n == sizeof(two);
}

// Reads on until there are contents behind those that were not taken. `room`: how many bytes will be taken at once. As
// read_record; an error stays.
static int decrypt_more(tt_tls *t, size_t room)
{
  int e = t->error;
  size_t had = t->end - t->at;
  if (t->held && had > 0 && !has_behind(t->fd)) {
    return 0;
  }
  memmove(t->plain, t->plain + t->at, t->at > 0 ? had : 0);
  t->at = 0;
  t->end = had;
  take_held(t);
  while (e == 0 && t->end == had) {
    e = read_record(t, room - TT_MIN(room, had));
    e = e == 1 ? decrypt_record(t) : e;
    if (e == 0) {
      return 0;
    }
    t->error = TT_MIN(e, 0);
    e = t->error;
  }
  return e != 0 ? e : 1;
}

// Moves contents to byte `from` of the parts on; returns how many bytes.
static size_t scatter_plain(tt_tls *t, const struct iovec *parts, int n, size_t from)
{
  size_t moved = 0;
  for (int i = 0; i < n; i++) {
    size_t skip = TT_MIN(from, parts[i].iov_len), size = TT_MIN(parts[i].iov_len - skip, t->end - t->at);
    memcpy((char *)parts[i].iov_base + skip, t->plain + t->at, size);
    from -= skip;
    t->at += size;
    moved += size;
  }
  if (t->at == t->end) {
    t->at = t->end = 0;
    take_held(t);
  }
  return moved;
}

static int may_receive(const tt_tls *t)
{
  return !is_ours(t) ? -EBADF : t->open ? 1 : -ENOTCONN;
}

// As long as there is room, or the kernel has nothing more: a caller that got less than it asked for waits for the next
// event.
ssize_t tt_tls_recv(tt_tls *t, const struct iovec *parts, int n)
{
  size_t total = parts_size(parts, n), done = 0;
  int e = may_receive(t);
  while (e > 0 && done < total) {
    e = t->at == t->end ? decrypt_more(t, total - done) : 1;
    done += e > 0 ? scatter_plain(t, parts, n, done) : 0;
  }
  return done > 0 ? (ssize_t)done : e == 0 ? -EAGAIN : e == -ENODATA ? 0 : e;
}

ssize_t tt_tls_peek(tt_tls *t, void *data, size_t size)
{
  int e = may_receive(t);
  size = TT_MIN(size, (size_t)TT_TLS_PEEK);
  while (e > 0 && t->end - t->at < size) {
    e = decrypt_more(t, 0);
  }
  size_t n = TT_MIN(size, t->end - t->at);
  memcpy(data, t->plain + t->at, n);
  return n > 0 ? (ssize_t)n : e == 0 ? -EAGAIN : e == -ENODATA ? 0 : e;
}

// ---- The handshake

// One step with what OpenSSL has. 1: done; 0: it wants more; -EPROTO. What it says goes out in any case: an alert tells
// the other end why.
static int shake_step(tt_tls *t)
{
  ossl.ERR_clear_error();
  int n = ossl.SSL_do_handshake(t->ssl);
  int why = n == 1 ? 0 : ossl.SSL_get_error(t->ssl, n);
  int sent = flush_records(t);
  if (why != 0 && why != SSL_ERROR_WANT_READ) {
    return -EPROTO;
  }
  return sent != 0 ? (sent == -EAGAIN ? -ENOBUFS : sent == -EPIPE ? -ECONNRESET : sent) : n == 1;
}

int tt_tls_shake(int fd)
{
  tt_tls *t = tt_tls_of(fd);
  int e = t == NULL || !is_ours(t) ? -EBADF : t->error != 0 ? t->error : t->open ? 1 : shake_step(t);
  while (e == 0 && (e = read_record(t, BODY_MOST)) == 1) {
    e = feed_record(t);
    e = e == 0 ? shake_step(t) : e;
  }
  e = e == -ENODATA ? -ECONNRESET : e;
  if (e == 1 && !t->open) {
    t->open = true;
    explicit_bzero(t->key, sizeof(t->key));
  } else if (e < 0 && t != NULL) {
    t->error = e;
  }
  return e;
}
