// hello.c: see hello.h.
#include "bootstrap/hello.h"

#include <string.h>

#include "base/util.h"

static uint64_t rotl(uint64_t x, int by)
{
  return (x << by) | (x >> (64 - by));
}

static void sip_rounds(uint64_t v[4], int rounds)
{
  while (rounds-- > 0) {
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotl(v[1], 13) ^ v[0];
    v[3] = rotl(v[3], 16) ^ v[2];
    v[0] = rotl(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotl(v[1], 17) ^ v[2];
    v[3] = rotl(v[3], 21) ^ v[0];
    v[2] = rotl(v[2], 32);
  }
}

static void sip_word(uint64_t v[4], uint64_t m)
{
  v[3] ^= m;
  sip_rounds(v, 2);
  v[0] ^= m;
}

static uint64_t sip(uint64_t k0, uint64_t k1, const uint8_t *data, size_t size)
{
  uint64_t v[4] = {k0 ^ 0x736f6d6570736575ull, k1 ^ 0x646f72616e646f6dull, k0 ^ 0x6c7967656e657261ull, k1 ^ 0x7465646279746573ull};
  uint64_t m = 0;
  size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    memcpy(&m, data + i, 8);
    sip_word(v, m);
  }
  m = 0;
  if (i < size) {
    memcpy(&m, data + i, size - i);
  }
  sip_word(v, m | (uint64_t)size << 56);
  v[2] ^= 0xff;
  sip_rounds(v, 4);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void tt_key_hash(const tt_key *key, const void *data, size_t size, uint8_t out[16])
{
  uint64_t k[2], h[2];
  memcpy(k, key->b, sizeof(k));
  h[0] = sip(k[0], k[1], data, size);
  h[1] = sip(~k[0], k[1], data, size);
  memcpy(out, h, sizeof(h));
}

tt_key tt_key_derive(const tt_key *key, const char *purpose, const void *data, size_t size)
{
  tt_key a, b;
  tt_key_hash(key, purpose, strlen(purpose), a.b);
  tt_key_hash(&a, data, size, b.b);
  return b;
}

void tt_hello_seal(tt_hello *h, const tt_key *key)
{
  h->magic = TT_HELLO_MAGIC;
  h->version = TT_HELLO_VERSION;
  tt_key_hash(key, h, offsetof(tt_hello, proof), h->proof);
}

const char *tt_hello_check(const tt_hello *h, size_t got, const tt_key *key, unsigned kinds, int to)
{
  uint64_t magic = TT_HELLO_MAGIC;
  if (memcmp(&h->magic, &magic, TT_MIN(got, sizeof(magic))) != 0) {
    return "not a message of this library";
  }
  if (got >= offsetof(tt_hello, kind) && h->version != TT_HELLO_VERSION) {
    return "another version of this library";
  }
  if (got < sizeof(*h)) {
    return NULL;
  }
  uint8_t proof[16], differ = 0;
  tt_key_hash(key, h, offsetof(tt_hello, proof), proof);
  for (size_t i = 0; i < sizeof(proof); i++) {
    differ |= proof[i] ^ h->proof[i];
  }
  if (differ != 0) {
    return "a rank of another job (its secret is not ours)";
  }
  return (h->kind & kinds) == 0 || h->to != to ? "a rank that wanted another socket" : NULL;
}
