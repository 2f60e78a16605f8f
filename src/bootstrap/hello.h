// hello.h: the first message on every connection of the bootstrap, and the keyed hash that proves it.
//
// The secret itself never travels: a hello ends with a keyed hash over its fields, so a stranger can neither make one nor change one.
#pragma once
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os/socket.h"

#define TT_HELLO_MAGIC 0x6f6c6c6568747574ull // "tuthello" in a little-endian dump
#define TT_HELLO_VERSION 1
#define TT_HELLO_TEXT 1024 // most bytes of text after an answer

// 16 bytes shared by the ranks of one ring.
typedef struct tt_key {
  uint8_t b[16];
} tt_key;

typedef enum {
  TT_HELLO_JOIN = 1,   // rank to root: here I am
  TT_HELLO_ANSWER = 2, // root to rank: your successor, or why there is none
  TT_HELLO_RING = 4,   // rank to its successor
  TT_HELLO_PEER = 8,   // rank to any rank: messages follow
} tt_hello_kind;

typedef struct tt_hello {
  uint64_t magic;
  uint16_t version;
  uint16_t kind;  // tt_hello_kind
  int32_t rank;   // the sender's; -1: root
  int32_t to;     // the receiver's, as the sender believes; -1: root
  int32_t nranks; // as the sender believes
  uint32_t pid;   // JOIN: the sender's process, for messages
  int32_t code;   // ANSWER: ncclResult_t
  uint32_t size;  // ANSWER: bytes of text that follow
  uint32_t zero;
  tt_addr peer;   // JOIN: where the sender's peers find it. ANSWER: where the successor is
  tt_addr answer; // JOIN: where the root's answer shall go
  uint8_t proof[16];
} tt_hello;
static_assert(sizeof(tt_hello) == 104, "tt_hello is sent as it is");

// Keyed hash (SipHash-2-4, Aumasson and Bernstein 2012, twice with different keys) of `size` bytes. Pure.
void tt_key_hash(const tt_key *key, const void *data, size_t size, uint8_t out[16]);
// A key for another purpose: hash of `purpose` (a text) and `size` bytes under `key`. Pure.
tt_key tt_key_derive(const tt_key *key, const char *purpose, const void *data, size_t size);

// Fills magic, version and, last, the proof; everything else stays as it is.
void tt_hello_seal(tt_hello *h, const tt_key *key);
// NULL when the first `got` bytes of `h` may be (or, complete, are) a hello under `key` of one of `kinds` to `to`; otherwise why not.
const char *tt_hello_check(const tt_hello *h, size_t got, const tt_key *key, unsigned kinds, int to);
