// tls.h: TLS 1.3 with a key that both ends share, over connected TCP sockets, by OpenSSL 3.
//
// A socket is named by its descriptor as before: once tt_tls_start has been called, the calls of socket.h encrypt what
// they send and decrypt what they receive, with the same results. It polls readable when something can be read: the
// last byte of a record stays in the kernel while a part of its contents has not been taken. Without any such socket
// each of these calls costs one look at a word that never changes. Cipher: TLS_AES_128_GCM_SHA256; the key is mixed
// with a Diffie-Hellman exchange, so that who learns it later cannot read what was sent.
//
// One socket is used by one thread at a time, as in socket.h. A forked child can close it, and nothing else.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "nccl.h"

enum { TT_TLS_KEY = 32, TT_TLS_PEEK = 8192 };

typedef struct tt_tls tt_tls;

// Opens OpenSSL, once per process. Any thread. Errors: ncclSystemError, which names what is missing.
ncclResult_t tt_tls_load(void);
// What `fd` carries from now on is encrypted under `key`. After tt_tls_load. 0, -ENOMEM or -EMFILE.
int tt_tls_start(int fd, const uint8_t key[TT_TLS_KEY], bool accepting);
// Goes on with the handshake, without waiting. 1: it is done, and data may follow; 0: not before more has come;
// -EPROTO: something else has come, or the other end has another key; else the connection's error.
int tt_tls_shake(int fd);

// ---- For socket.c

// Has this process encrypted any socket? Set once. Relaxed: a thread that uses such a socket got it from the thread
// that has encrypted it.
extern bool tt_tls_used;
// That of `fd`; NULL: it is not encrypted.
tt_tls *tt_tls_find(int fd);
static inline tt_tls *tt_tls_of(int fd)
{
  return __builtin_expect(__atomic_load_n(&tt_tls_used, __ATOMIC_RELAXED), 0) ? tt_tls_find(fd) : NULL;
}
// As sendmsg and recvmsg: bytes, or -errno; tt_tls_recv: 0 at the end. -EAGAIN only when the kernel has said so. What
// was not sent is passed again by the next call.
ssize_t tt_tls_send(tt_tls *t, const struct iovec *parts, int n);
ssize_t tt_tls_recv(tt_tls *t, const struct iovec *parts, int n);
// Copies up to TT_TLS_PEEK bytes that the next tt_tls_recv will return.
ssize_t tt_tls_peek(tt_tls *t, void *data, size_t size);
// The descriptor is about to be closed, or is a new one.
void tt_tls_end(int fd);
