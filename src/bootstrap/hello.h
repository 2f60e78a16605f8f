// hello.h: keys, the three messages by which two ends of a connection prove to each other that they know one, and both sides of that
// handshake on one connected socket, without ever waiting.
//
//   greeting   accepting side, at once: a nonce that has never been used before
//   hello      connecting side: who it is, a nonce of its own, and a seal (keyed hash) over greeting and hello
//   proof      accepting side: a seal over greeting and hello under another label
//
// All three have a fixed size. The secret itself never travels; whoever does not know it can neither make nor change a hello or a proof,
// and what was recorded is worthless, because nonces differ. Hashes are BLAKE2b (libsodium's crypto_generichash).
#pragma once
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os/socket.h"

#define TT_GREETING_MAGIC 0x7465657267747574ull // "tutgreet" in a little-endian dump
#define TT_HELLO_MAGIC 0x6f6c6c6568747574ull    // "tuthello"
#define TT_HELLO_VERSION 3

enum { TT_SECRET_BYTES = 16, TT_NONCE_BYTES = 16 };

// What the ranks of one ring, or those who know one unique id, share.
typedef struct tt_key {
  uint8_t b[32];
  bool is_public; // everybody can compute it, so the handshake also refuses other users' processes of this network namespace
} tt_key;

// A keyed hash.
typedef struct tt_seal {
  uint8_t b[32];
} tt_seal;

// One of several parts of what is sealed.
typedef struct tt_part {
  const void *data;
  size_t size;
} tt_part;

typedef enum {
  TT_HELLO_JOIN = 1,   // rank to root: here I am. Sealed notes follow (note.h)
  TT_HELLO_RING = 4,   // rank to its successor
  TT_HELLO_PROXY = 16, // rank to a rank's proxy service
  TT_HELLO_NET = 32,   // connection of the socket network
} tt_hello_kind;

typedef struct tt_greeting {
  uint64_t magic;
  uint16_t version;
  uint16_t zero[3];
  uint8_t nonce[TT_NONCE_BYTES];
} tt_greeting;
static_assert(sizeof(tt_greeting) == 32, "tt_greeting is sent as it is");

// Who uses the handshake fills kind, rank, to, nranks, tag and cookie.
typedef struct tt_hello {
  uint64_t magic;
  uint16_t version;
  uint16_t kind;   // tt_hello_kind
  int32_t rank;    // the sender's
  int32_t to;      // the receiver's, as the sender believes; -1: root
  int32_t nranks;  // as the sender believes
  uint64_t tag;    // JOIN: tt_key_name of the unique id's key. PROXY, NET: theirs
  uint64_t cookie; // PROXY, NET: theirs
  uint8_t nonce[TT_NONCE_BYTES];
  tt_seal seal;
} tt_hello;
static_assert(sizeof(tt_hello) == 88, "tt_hello is sent as it is");

// The key of a unique id's secret. Any thread. Pure but for setting up libsodium, once in a process.
tt_key tt_key_of(const uint8_t secret[TT_SECRET_BYTES]);
// A key for another purpose: hash of `purpose` (a text) and `size` bytes under `key`, public if that is. Pure.
tt_key tt_key_derive(const tt_key *key, const char *purpose, const void *data, size_t size);
// A name of `key`, by which a listener with many keys finds it. Says nothing about the key. Pure.
uint64_t tt_key_name(const tt_key *key);
// Keyed hash of `label` (a text) and `n` parts, each with its length, so that no two lists of parts are alike. Pure.
tt_seal tt_key_seal(const tt_key *key, const char *label, const tt_part *parts, int n);
// True when they are equal. Takes the same time wherever they differ. Pure.
bool tt_seal_same(const tt_seal *a, const tt_seal *b);

// A new greeting.
void tt_greeting_make(tt_greeting *g);
// 0 when the first `got` bytes may be (or, complete, are) a greeting; -EPROTO: of something else, -EPROTONOSUPPORT: of another version.
// Pure.
int tt_greeting_check(const tt_greeting *g, size_t got);
// Fills magic, version, nonce and, last, the seal; everything else stays as it is.
void tt_hello_seal(tt_hello *h, const tt_key *key, const tt_greeting *g);
// NULL when the first `got` bytes of `h` may be (or, complete, are) an answer to `g` under `key`; otherwise why not. Pure.
const char *tt_hello_check(const tt_hello *h, size_t got, const tt_key *key, const tt_greeting *g);
// The proof that answers a hello. Pure.
tt_seal tt_proof_make(const tt_hello *h, const tt_key *key, const tt_greeting *g);

// ---- both sides

// One side of a handshake. The socket is the caller's.
typedef struct tt_shake {
  int fd;
  enum { TT_SHAKE_GREETING, TT_SHAKE_SILENT, TT_SHAKE_HELLO, TT_SHAKE_PROOF } stage; // connecting side; SILENT: greeted, may not speak yet
  size_t at;                                                                         // bytes of the message under way
  tt_greeting greeting;
  tt_hello hello; // connecting side: sealed once it may speak
  tt_seal proof;
} tt_shake;

// Who is let in.
typedef struct tt_welcome {
  tt_key key;
  unsigned kinds; // tt_hello_kind bits
  int to;         // the listener's own rank; -1: root
  // Writes the key that a complete hello has to know, and leaves *key alone when it names none. `key` is then one that nobody knows. NULL:
  // `key` is the only one.
  void (*find)(void *arg, const tt_hello *h, tt_key *key);
  void *arg;
} tt_welcome;

// The accepting side: greets. 0 or -errno.
int tt_shake_greet(tt_shake *s, int fd);
// Reads what has come; a complete hello of one who is welcome is answered by the proof. 1: done; 0: not yet; < 0: this is not one of us,
// `*why` says what it was (a text; untouched otherwise). Nothing beyond the hello is read.
int tt_shake_accept(tt_shake *s, const tt_welcome *welcome, const char **why);

// The connecting side, which begins with {.fd = …}. Goes on as far as possible. After the greeting it waits until `speak`, then says `hello`
// under `key`. 1: the other end has proved itself; 0: not yet; < 0: -EPROTO, -EPROTONOSUPPORT (no greeting of ours), -EACCES (the proof is
// wrong, or the other end says that our hello is), -EKEYREJECTED (a public key, and another user's process of this machine),
// or the connection's error: -ECONNRESET before the proof means that it was dropped unread, for want of room, and may be tried again.
int tt_shake_connect(tt_shake *s, const tt_key *key, const tt_hello *hello, bool speak);
