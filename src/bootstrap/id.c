// id.c: the unique id: where the root listens, and a secret. See bootstrap.h and bootstrap_priv.h.
#include <netinet/in.h>
#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "base/util.h"
#include "bootstrap/bootstrap_priv.h"
#include "os/netif.h"
#include "os/own_file.h"
#include "os/random.h"

#define ID_MAGIC 0x0064697474757400ull // first byte 0, so that nobody takes an id for text
#define ID_VERSION 2
#define SECRET_FILE_MAX 4096

typedef struct {
  uint64_t magic;
  uint16_t version;
  uint16_t flags;
  uint8_t secret[TT_SECRET_BYTES];
  uint8_t addrs[92]; // packed, best first; zero after the last
  uint64_t check;    // over everything above
} id_layout;
static_assert(sizeof(id_layout) == NCCL_UNIQUE_ID_BYTES, "an id is 128 bytes");
static_assert(offsetof(id_layout, addrs) == 28 && offsetof(id_layout, check) == 120, "ids are sent");

// A packed address: family, port (low byte first), scope where there is one, address.
enum { PACK_NONE, PACK_V4 = 4, PACK_V6 = 6, PACK_V6_SCOPE = 7 };

static uint64_t id_check(const id_layout *l)
{
  return tt_hash(l, offsetof(id_layout, check), ID_MAGIC);
}

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

// As many as there is room for: at least four.
static void pack_all(const tt_addrs *list, uint8_t *to, size_t room)
{
  size_t used = 0;
  for (uint32_t i = 0; i < TT_MIN(list->n, TT_ADDRS_MAX); i++) {
    used += pack(&list->a[i], to + used, room - used);
  }
}

static tt_addr unpack(const uint8_t *from, size_t size)
{
  tt_addr a = {.family = from[0] == PACK_V4 ? AF_INET : AF_INET6, .port = (uint16_t)(from[1] | from[2] << 8)};
  size_t scope = from[0] == PACK_V6_SCOPE ? sizeof(a.scope) : 0;
  memcpy(&a.scope, from + 3, scope);
  memcpy(a.ip, from + 3 + scope, size - 3 - scope);
  return a;
}

// False: not what pack_all writes.
static bool unpack_all(const uint8_t *from, size_t room, tt_addrs *out)
{
  size_t used = 0;
  while (used < room && from[used] != PACK_NONE && out->n < TT_ADDRS_MAX) {
    size_t size = packed_size(from[used]);
    if (size == 0 || size > room - used) {
      return false;
    }
    out->a[out->n++] = unpack(from + used, size);
    used += size;
  }
  uint8_t again[sizeof(((id_layout *)0)->addrs)] = {0};
  pack_all(out, again, sizeof(again));
  return (out->n == 0 || tt_addrs_good(out)) && memcmp(again, from, room) == 0;
}

void tt_bootstrap_id_write(const tt_id *in, ncclUniqueId *id)
{
  id_layout l;
  memset(&l, 0, sizeof(l));
  l.magic = ID_MAGIC;
  l.version = ID_VERSION;
  l.flags = (uint16_t)in->flags;
  memcpy(l.secret, in->secret, sizeof(l.secret));
  pack_all(&in->root, l.addrs, sizeof(l.addrs));
  l.check = id_check(&l);
  memcpy(id, &l, sizeof(l));
}

static bool all_zero(const ncclUniqueId *id)
{
  static const ncclUniqueId zero;
  return memcmp(id, &zero, sizeof(zero)) == 0;
}

ncclResult_t tt_bootstrap_id_parse(const ncclUniqueId *id, tt_id *out)
{
  id_layout l;
  memcpy(&l, id, sizeof(l));
  if (all_zero(id)) {
    return tt_fail(ncclInvalidArgument, "the unique id is all zero: not an id made by ncclGetUniqueId. Was it sent to this rank?");
  }
  if (l.magic != ID_MAGIC) {
    return tt_fail(ncclInvalidArgument, "not an id made by ncclGetUniqueId of this library (it begins with %016llx)",
                   (unsigned long long)l.magic);
  }
  if (l.version != ID_VERSION) {
    return tt_fail(ncclInvalidArgument,
                   "the unique id is of version %u, this library makes and reads version %d: use one library for all ranks", l.version,
                   ID_VERSION);
  }
  if (l.check != id_check(&l)) {
    return tt_fail(ncclInvalidArgument, "not an id made by ncclGetUniqueId: it was changed on its way. Send all %d bytes as they are",
                   NCCL_UNIQUE_ID_BYTES);
  }
  tt_id says = {.flags = l.flags};
  if (!unpack_all(l.addrs, sizeof(l.addrs), &says.root)) {
    return tt_fail(ncclInvalidArgument, "the unique id holds no usable address");
  }
  memcpy(says.secret, l.secret, sizeof(says.secret));
  says.key = tt_key_of(says.secret);
  *out = says;
  return ncclSuccess;
}

static int wanted_family(void)
{
  const char *f = tt_params_get()->socket_family;
  return f == NULL ? AF_UNSPEC : strcmp(f, "AF_INET6") == 0 ? AF_INET6 : strcmp(f, "AF_INET") == 0 ? AF_INET : AF_UNSPEC;
}

// Mixes what only the job knows into the key: the variable's text, or the bytes of the file. Nothing where neither is given.
static ncclResult_t add_secret(const tt_id_secret *secret, tt_key *key)
{
  char bytes[SECRET_FILE_MAX], why[TT_OWN_FILE_WHY];
  const void *data = secret->text;
  size_t size = secret->text != NULL ? strlen(secret->text) : 0;
  if (secret->text != NULL && secret->file != NULL) {
    return tt_fail(ncclInvalidArgument, "both TUTTI_COMM_ID_SECRET and TUTTI_COMM_ID_SECRET_FILE=%s are set: unset one of them",
                   secret->file);
  }
  if (secret->file != NULL) {
    long n = tt_own_file_read(secret->file, bytes, sizeof(bytes), NULL, why);
    if (n <= 0) {
      return tt_fail(ncclInvalidArgument, "TUTTI_COMM_ID_SECRET_FILE=%s: %s", secret->file, n == 0 ? "it is empty" : why);
    }
    data = bytes;
    size = (size_t)n;
  }
  if (size > 0) {
    *key = tt_key_derive(key, "secret", data, size);
  }
  return ncclSuccess;
}

ncclResult_t tt_bootstrap_id_fixed(const char *text, const tt_id_secret *secret, tt_id *out)
{
  tt_id id = {.flags = TT_ID_FIXED};
  static const uint8_t none[TT_SECRET_BYTES];
  // A numeric address of the other family is meant as it stands.
  if (tt_addrs_parse(text, wanted_family(), &id.root) != 0 && tt_addrs_parse(text, AF_UNSPEC, &id.root) != 0) {
    return tt_fail(ncclInvalidArgument, "NCCL_COMM_ID=%s is not <ipv4>:<port>, [<ipv6>]:<port> or <known host name>:<port>", text);
  }
  // Without a secret whoever knows the address may join.
  tt_key public = tt_key_of(none), derived = tt_key_derive(&public, "NCCL_COMM_ID", text, strlen(text));
  TT_TRY(add_secret(secret, &derived));
  memcpy(id.secret, derived.b, sizeof(id.secret));
  id.key = tt_key_of(id.secret);
  *out = id;
  return ncclSuccess;
}

// Finds where the root can listen. No interface that is up is no error yet: one rank alone needs no root, and an id without an address says so.
static ncclResult_t find_addresses(tt_addrs *out)
{
  tt_netif *all = NULL;
  int count = 0;
  const char *chosen = tt_params_get()->socket_ifname;
  TT_TRY(tt_netif_list(&all, &count));
  tt_free(all);
  if (count > 0 || (chosen != NULL && *chosen != '\0')) {
    return tt_netif_addrs(out);
  }
  tt_info(TT_INIT | TT_BOOTSTRAP, "no network interface is up: the unique id is for a communicator of one rank");
  return ncclSuccess;
}

ncclResult_t tt_bootstrap_id(ncclUniqueId *id)
{
  const tt_params *p = tt_params_get();
  const char *fixed = p->comm_id;
  tt_id_secret secret = {.text = p->comm_id_secret, .file = p->comm_id_secret_file};
  tt_id new = {.flags = 0};
  if (fixed != NULL && *fixed != '\0') {
    TT_TRY(tt_bootstrap_id_fixed(fixed, &secret, &new));
    tt_bootstrap_id_write(&new, id);
    return ncclSuccess;
  }
  TT_TRY(find_addresses(&new.root));
  tt_random(new.secret, sizeof(new.secret));
  new.key = tt_key_of(new.secret);
  TT_TRY(new.root.n > 0 ? tt_lobby_add(&new, &new.root) : ncclSuccess);
  tt_bootstrap_id_write(&new, id);
  return ncclSuccess;
}
