// openssl.h: the few functions of OpenSSL 3 that tls.c calls. The library is opened at run time, so its headers are not
// needed to build. For the files of this folder.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "nccl.h"

// Names as in OpenSSL's own interface, whose types are opaque here.
typedef int (*tt_ssl_find_fn)(void *ssl, const unsigned char *name, size_t size, void **session);
typedef int (*tt_ssl_use_fn)(void *ssl, const void *digest, const unsigned char **name, size_t *size, void **session);

#define TT_OPENSSL_FUNCTIONS(F)                                                               \
  F(int, OPENSSL_init_ssl, (uint64_t options, const void *settings))                          \
  F(void *, OSSL_LIB_CTX_new, (void))                                                         \
  F(const void *, TLS_method, (void))                                                         \
  F(void *, SSL_CTX_new_ex, (void *library, const char *properties, const void *method))      \
  F(void, SSL_CTX_free, (void *ctx))                                                          \
  F(long, SSL_CTX_ctrl, (void *ctx, int command, long value, void *data))                     \
  F(int, SSL_CTX_set_ciphersuites, (void *ctx, const char *names))                            \
  F(int, SSL_CTX_set_num_tickets, (void *ctx, size_t count))                                  \
  F(void, SSL_CTX_set_psk_find_session_callback, (void *ctx, tt_ssl_find_fn fn))              \
  F(void, SSL_CTX_set_psk_use_session_callback, (void *ctx, tt_ssl_use_fn fn))                \
  F(void *, SSL_new, (void *ctx))                                                             \
  F(void, SSL_free, (void *ssl))                                                              \
  F(void, SSL_set_bio, (void *ssl, void *in, void *out))                                      \
  F(void, SSL_set_accept_state, (void *ssl))                                                  \
  F(void, SSL_set_connect_state, (void *ssl))                                                 \
  F(int, SSL_set_ex_data, (void *ssl, int index, void *data))                                 \
  F(void *, SSL_get_ex_data, (const void *ssl, int index))                                    \
  F(int, SSL_do_handshake, (void *ssl))                                                       \
  F(int, SSL_read, (void *ssl, void *data, int size))                                         \
  F(int, SSL_write, (void *ssl, const void *data, int size))                                  \
  F(int, SSL_get_error, (const void *ssl, int result))                                        \
  F(int, SSL_key_update, (void *ssl, int kind))                                               \
  F(const void *, SSL_CIPHER_find, (void *ssl, const unsigned char *number))                  \
  F(void *, SSL_SESSION_new, (void))                                                          \
  F(void, SSL_SESSION_free, (void *session))                                                  \
  F(int, SSL_SESSION_set1_master_key, (void *session, const unsigned char *key, size_t size)) \
  F(int, SSL_SESSION_set_cipher, (void *session, const void *cipher))                         \
  F(int, SSL_SESSION_set_protocol_version, (void *session, int version))                      \
  F(const void *, BIO_s_mem, (void))                                                          \
  F(void *, BIO_new, (const void *method))                                                    \
  F(int, BIO_free, (void *bio))                                                               \
  F(int, BIO_write, (void *bio, const void *data, int size))                                  \
  F(long, BIO_ctrl, (void *bio, int command, long value, void *data))                         \
  F(void, ERR_clear_error, (void))

#define TT_OPENSSL_MEMBER(result, name, arguments) result(*name) arguments;
typedef struct tt_openssl {
  TT_OPENSSL_FUNCTIONS(TT_OPENSSL_MEMBER)
} tt_openssl;
#undef TT_OPENSSL_MEMBER

// Opens libssl.so.3, which stays open, and fills *out. Errors: ncclSystemError, whose text names the package.
ncclResult_t tt_openssl_open(tt_openssl *out);
