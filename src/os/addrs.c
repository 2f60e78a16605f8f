// addrs.c: see addrs.h.
#include "os/addrs.h"

#include <netinet/in.h>
#include <string.h>

#include "base/util.h"

// A packed address: kind, port (low byte first), scope where there is one, address.
enum { PACK_NONE, PACK_V4 = 4, PACK_V6 = 6, PACK_V6_SCOPE = 7 };
static_assert(TT_ADDRS_PACKED >= 4 * (3 + 4 + 16), "four of the longest kind");

// Bytes of a packed address of this kind; 0: there is no such kind.
static size_t packed_size(uint8_t kind)
{
  return kind == PACK_V4 ? 3 + 4 : kind == PACK_V6 ? 3 + 16 : kind == PACK_V6_SCOPE ? 3 + 4 + 16 : 0;
}

static size_t pack(const tt_addr *a, uint8_t *to, size_t room)
{
  uint8_t kind = a->family == AF_INET ? PACK_V4 : a->scope == 0 ? PACK_V6 : PACK_V6_SCOPE;
  size_t size = packed_size(kind), scope = kind == PACK_V6_SCOPE ? sizeof(a->scope) : 0;
  if (size > room) {
    return 0;
  }
  to[0] = kind;
  to[1] = (uint8_t)a->port;
  to[2] = (uint8_t)(a->port >> 8);
  memcpy(to + 3, &a->scope, scope);
  memcpy(to + 3 + scope, a->ip, size - 3 - scope);
  return size;
}

uint8_t tt_addrs_pack(const tt_addrs *list, uint8_t to[TT_ADDRS_PACKED])
{
  size_t used = 0, left_out = list->more;
  memset(to, 0, TT_ADDRS_PACKED);
  for (uint32_t i = 0; i < TT_MIN(list->n, TT_ADDRS_MAX); i++) {
    size_t size = pack(&list->a[i], to + used, TT_ADDRS_PACKED - used);
    used += size;
    left_out += size == 0;
  }
  return (uint8_t)TT_MIN(left_out, UINT8_MAX);
}

static tt_addr unpack(const uint8_t *from, size_t size)
{
  tt_addr a = {.family = from[0] == PACK_V4 ? AF_INET : AF_INET6, .port = (uint16_t)(from[1] | from[2] << 8)};
  size_t scope = from[0] == PACK_V6_SCOPE ? sizeof(a.scope) : 0;
  memcpy(&a.scope, from + 3, scope);
  memcpy(a.ip, from + 3 + scope, size - 3 - scope);
  return a;
}

bool tt_addrs_unpack(const uint8_t from[TT_ADDRS_PACKED], uint8_t more, tt_addrs *out)
{
  uint8_t again[TT_ADDRS_PACKED];
  size_t used = 0;
  memset(out, 0, sizeof(*out));
  out->more = more;
  while (used < TT_ADDRS_PACKED && from[used] != PACK_NONE && out->n < TT_ADDRS_MAX) {
    size_t size = packed_size(from[used]);
    if (size == 0 || size > TT_ADDRS_PACKED - used) {
      return false;
    }
    out->a[out->n++] = unpack(from + used, size);
    used += size;
  }
  bool same = tt_addrs_pack(out, again) == more && memcmp(again, from, sizeof(again)) == 0;
  return same && (out->n == 0 || tt_addrs_good(out));
}
