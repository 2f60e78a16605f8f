// crypt.h: the process's encryption key (ncclSetEncryption), and how both ends of a connection find out that they have
// the same one.
//
// A greeting names the listener's key, by a hash over it and the greeting's nonce. The connecting side compares it with
// its own. Where they differ, its hello says so under its seal, so that both sides can name the rank, and neither goes
// on. Where they are the same, TLS begins behind the proof (conn.c). Its key is a hash of the encryption key, the
// greeting and the hello: a connection cannot be continued by another one. All calls: any thread.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "bootstrap/hello.h"
#include "nccl.h"

// Connections that begin from now on are encrypted under a key made from this text, of which no copy is kept; NULL:
// they are not encrypted. Errors: ncclSystemError (no OpenSSL); nothing has changed then.
ncclResult_t tt_crypt_set(const char *text);
// Is there a key?
bool tt_crypt_is_on(void);
// Names the key to those that know it; 0: there is none.
uint32_t tt_crypt_name(const uint8_t nonce[TT_NONCE_BYTES]);
// Encrypts `fd` behind this handshake. 0 or -errno; -ENOKEY: the key has been erased meanwhile.
int tt_crypt_start(int fd, const tt_greeting *g, const tt_hello *h, bool accepting);
