// id.c: the unique id: where the root listens, and a secret. See bootstrap.h and bootstrap_priv.h.
#include <netinet/in.h>
#include <string.h>

#include "base/param.h"
#include "base/result.h"
#include "base/util.h"
#include "bootstrap/bootstrap_priv.h"
#include "os/netif.h"
#include "os/random.h"

#define ID_MAGIC 0x0064697474757400ull // first byte 0, so that nobody takes an id for text
#define ID_VERSION 1

typedef struct {
  uint64_t magic;
  uint16_t version;
  uint16_t flags;
  uint32_t zero;
  tt_addr root;
  uint8_t secret[16];
  uint8_t reserved[64]; // zero; room for further addresses of the root
  uint64_t check;       // over everything above
} id_layout;
static_assert(sizeof(id_layout) == NCCL_UNIQUE_ID_BYTES, "an id is 128 bytes");
static_assert(offsetof(id_layout, root) == 16 && offsetof(id_layout, secret) == 40 && offsetof(id_layout, check) == 120, "ids are sent");

static uint64_t id_check(const id_layout *l)
{
  return tt_hash(l, offsetof(id_layout, check), ID_MAGIC);
}

void tt_bootstrap_id_write(const tt_id *in, ncclUniqueId *id)
{
  id_layout l;
  memset(&l, 0, sizeof(l));
  l.magic = ID_MAGIC;
  l.version = ID_VERSION;
  l.flags = (uint16_t)in->flags;
  l.root = in->root;
  memcpy(l.secret, in->key.b, sizeof(l.secret));
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
  if ((l.root.family != AF_INET && l.root.family != AF_INET6) || l.root.port == 0) {
    return tt_fail(ncclInvalidArgument, "the unique id holds no address (family %u, port %u)", l.root.family, l.root.port);
  }
  out->root = l.root;
  out->flags = l.flags;
  memcpy(out->key.b, l.secret, sizeof(l.secret));
  return ncclSuccess;
}

static int wanted_family(void)
{
  const char *f = tt_params_get()->socket_family;
  return f == NULL ? AF_UNSPEC : strcmp(f, "AF_INET6") == 0 ? AF_INET6 : strcmp(f, "AF_INET") == 0 ? AF_INET : AF_UNSPEC;
}

ncclResult_t tt_bootstrap_id_fixed(const char *text, tt_id *out)
{
  tt_id id = {.flags = TT_ID_FIXED};
  static const tt_key none;
  // A numeric address of the other family is meant as it stands.
  if (tt_addr_parse(text, wanted_family(), &id.root) != 0 && tt_addr_parse(text, AF_UNSPEC, &id.root) != 0) {
    return tt_fail(ncclInvalidArgument, "NCCL_COMM_ID=%s is not <ipv4>:<port>, [<ipv6>]:<port> or <known host name>:<port>", text);
  }
  // Whoever knows the variable may join: there is no other channel for a secret.
  id.key = tt_key_derive(&none, "NCCL_COMM_ID", text, strlen(text));
  *out = id;
  return ncclSuccess;
}

ncclResult_t tt_bootstrap_id(ncclUniqueId *id)
{
  const char *fixed = tt_params_get()->comm_id;
  tt_id new = {.flags = 0};
  if (fixed != NULL && *fixed != '\0') {
    TT_TRY(tt_bootstrap_id_fixed(fixed, &new));
    tt_bootstrap_id_write(&new, id);
    return ncclSuccess;
  }
  tt_netif at;
  int n = 0;
  TT_TRY(tt_netif_find(&at, 1, &n));
  new.root = at.addr;
  tt_random(new.key.b, sizeof(new.key.b));
  TT_TRY(tt_root_start(&new, &new.root));
  tt_bootstrap_id_write(&new, id);
  return ncclSuccess;
}
