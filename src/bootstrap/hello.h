// hello.h: keys, and the three messages by which both ends of a connection prove that they know one (conn.h sends
// them).
//
//   greeting   accepting side, at once: a nonce that has never been used before.
//   hello      connecting side: its rank, a nonce of its own, and a seal (keyed hash) over greeting and hello.
//   proof      accepting side: a seal over greeting and hello under another label.
//
// All three have a fixed size. The secret itself never travels. A process without it can neither make nor change a
// hello or a proof. A recording is worthless, because nonces differ. Hashes are BLAKE2b (libsodium's
// crypto_generichash).
#pragma once
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TT_GREETING_MAGIC 0x7465657267747574ull // "tutgreet" in a little-endian dump
#define TT_HELLO_MAGIC 0x6f6c6c6568747574ull    // "tuthello"
#define TT_HELLO_VERSION 5

enum { TT_SECRET_BYTES = 16, TT_NONCE_BYTES = 16 };

// What the ranks of one ring, or of one unique id, share.
typedef struct tt_key {
  uint8_t b[32];
  bool is_public; // every process can compute it, so the handshake also refuses other users of this network namespace
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
  TT_HELLO_JOIN = 1,         // rank to root. Sealed notes follow (conn.h)
  TT_HELLO_RING = 4,         // rank to its successor
  TT_HELLO_PROXY = 16,       // rank to a rank's proxy service
  TT_HELLO_NET = 32,         // connection of the socket network
  TT_HELLO_RAS = 64,         // between the RAS threads of two processes (src/ras). Sealed notes follow
  TT_HELLO_DIFFERS = 1 << 15 // with any of them: the sender has not the encryption key that the greeting names
} tt_hello_kind;

typedef struct tt_greeting {
  uint64_t magic;
  uint16_t version;
  uint16_t zero;
  uint32_t crypt; // names the listener's encryption key (crypt.h); 0: it has none
  uint8_t nonce[TT_NONCE_BYTES];
} tt_greeting;
static_assert(sizeof(tt_greeting) == 32, "tt_greeting is sent as it is");

// The user of the handshake fills kind, rank, to, nranks, tag and cookie.
typedef struct tt_hello {
  uint64_t magic;
  uint16_t version;
  uint16_t kind;   // tt_hello_kind
  int32_t rank;    // the sender's
  int32_t to;      // the receiver's, as the sender believes; -1: root
  int32_t nranks;  // as the sender believes
  uint64_t tag;    // JOIN: tt_key_name of the unique id's key. RAS: of the communicator's. PROXY, NET, RING: theirs
  uint64_t cookie; // PROXY, NET, RING: theirs. RAS: the process's
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
// 0 when the first `got` bytes may be (or, complete, are) a greeting; -EPROTO: of something else, -EPROTONOSUPPORT: of
// another version. Pure.
int tt_greeting_check(const tt_greeting *g, size_t got);
// Fills magic, version, nonce and, last, the seal; everything else stays as it is.
void tt_hello_seal(tt_hello *h, const tt_key *key, const tt_greeting *g);
// NULL when the first `got` bytes of `h` may be (or, complete, are) an answer to `g` under `key`; otherwise why not.
// Pure.
const char *tt_hello_check(const tt_hello *h, size_t got, const tt_key *key, const tt_greeting *g);
// The proof that answers a hello. Pure.
tt_seal tt_proof_make(const tt_hello *h, const tt_key *key, const tt_greeting *g);
