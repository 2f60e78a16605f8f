// id.c: the unique id: where the root listens, and a secret. See bootstrap.h and bootstrap_priv.h.
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "base/util.h"
#include "bootstrap/bootstrap_priv.h"
#include "os/addrs.h"
#include "os/netif.h"
#include "os/own_file.h"
#include "os/random.h"

#define ID_MAGIC 0x0064697474757400ull // first byte 0, so that an id is not taken for text
#define ID_VERSION 3
#define SECRET_FILE_MAX 4096

typedef struct {
  uint64_t magic;
  uint16_t version;
  uint8_t flags;
  uint8_t more; // addresses of the root that are not among these
  uint8_t secret[TT_SECRET_BYTES];
  uint8_t addrs[TT_ADDRS_PACKED];
  uint32_t pid;   // of the process that made it, as it sees it
  uint32_t check; // over everything above
} id_layout;
static_assert(sizeof(id_layout) == NCCL_UNIQUE_ID_BYTES, "an id is 128 bytes");
static_assert(offsetof(id_layout, addrs) == 28 && offsetof(id_layout, check) == 124, "ids are sent");

static uint32_t id_check(const id_layout *l)
{
  return (uint32_t)tt_hash(l, offsetof(id_layout, check), ID_MAGIC);
}

void tt_bootstrap_id_write(const tt_id *in, ncclUniqueId *id)
{
  id_layout l;
  memset(&l, 0, sizeof(l));
  l.magic = ID_MAGIC;
  l.version = ID_VERSION;
  l.flags = (uint8_t)in->flags;
  memcpy(l.secret, in->secret, sizeof(l.secret));
  l.more = tt_addrs_pack(&in->root, l.addrs);
  l.pid = in->pid;
  l.check = id_check(&l);
  memcpy(id, &l, sizeof(l));
}

ncclResult_t tt_bootstrap_id_parse(const ncclUniqueId *id, tt_id *out)
{
  static const ncclUniqueId zero;
  id_layout l;
  memcpy(&l, id, sizeof(l));
  if (memcmp(id, &zero, sizeof(zero)) == 0) {
    return tt_fail(ncclInvalidArgument,
                   "the unique id is all zero: not an id made by ncclGetUniqueId. Was it sent to this rank?");
  }
  if (l.magic != ID_MAGIC) {
    return tt_fail(ncclInvalidArgument, "not an id made by ncclGetUniqueId of this library (it begins with %016llx)",
                   (unsigned long long)l.magic);
  }
  if (l.version != ID_VERSION) {
    return tt_fail(
        ncclInvalidArgument,
        "the unique id is of version %u, this library makes and reads version %d: use one library for all ranks",
        l.version, ID_VERSION);
  }
  if (l.check != id_check(&l)) {
    return tt_fail(ncclInvalidArgument,
                   "not an id made by ncclGetUniqueId: it was changed on its way. Send all %d bytes as they are",
                   NCCL_UNIQUE_ID_BYTES);
  }
  tt_id says = {.flags = l.flags, .pid = l.pid};
  if (!tt_addrs_unpack(l.addrs, l.more, &says.root)) {
    return tt_fail(ncclInvalidArgument, "the unique id holds no usable address");
  }
  memcpy(says.secret, l.secret, sizeof(says.secret));
  says.key = tt_key_of(says.secret);
  says.key.is_public = (l.flags & TT_ID_PUBLIC) != 0;
  *out = says;
  return ncclSuccess;
}

// No error: in a container with files of mode 644 there may be no other user.
static void warn_if_open(const char *path)
{
  if (tt_own_file_is_open(path)) {
    tt_warn("TUTTI_COMM_ID_SECRET_FILE=%s: every user of this machine may read this file and can then join as a rank. "
            "Give it mode 600",
            path);
  }
}

// Mixes what only the job knows into the key: the variable's text, or the bytes of the file. Nothing where neither is
// given.
static ncclResult_t add_secret(const tt_id_secret *secret, tt_key *key)
{
  char bytes[SECRET_FILE_MAX], why[TT_OWN_FILE_WHY];
  const void *data = secret->text;
  size_t size = secret->text != NULL ? strlen(secret->text) : 0;
  if (secret->text != NULL && secret->file != NULL) {
    return tt_fail(ncclInvalidArgument,
                   "both TUTTI_COMM_ID_SECRET and TUTTI_COMM_ID_SECRET_FILE=%s are set: unset one of them",
                   secret->file);
  }
  if (secret->file != NULL) {
    long n = tt_own_file_read(secret->file, bytes, sizeof(bytes), NULL, why);
    if (n <= 0) {
      return tt_fail(ncclInvalidArgument, "TUTTI_COMM_ID_SECRET_FILE=%s: %s", secret->file,
                     n == 0 ? "it is empty" : why);
    }
    data = bytes;
    size = (size_t)n;
    warn_if_open(secret->file);
  }
  if (size > 0) {
    *key = tt_key_derive(key, "secret", data, size);
  }
  return ncclSuccess;
}

ncclResult_t tt_bootstrap_id_fixed(const char *text, const tt_id_secret *secret, tt_id *out)
{
  bool is_public = secret->text == NULL && secret->file == NULL;
  tt_id id = {.flags = TT_ID_FIXED | (is_public ? TT_ID_PUBLIC : 0)};
  static const uint8_t none[TT_SECRET_BYTES];
  int family = tt_netif_family(tt_params_get()->socket_family);
  // A numeric address of the other family is meant as it stands.
  if (tt_addrs_parse(text, family, &id.root) != 0 && tt_addrs_parse(text, AF_UNSPEC, &id.root) != 0) {
    return tt_fail(ncclInvalidArgument,
                   "NCCL_COMM_ID=%s is not <ipv4>:<port>, [<ipv6>]:<port> or <known host name>:<port>", text);
  }
  // Without a secret every process with the address may join, but for other users of one machine.
  tt_key public = tt_key_of(none), derived = tt_key_derive(&public, "NCCL_COMM_ID", text, strlen(text));
  TT_TRY(add_secret(secret, &derived));
  memcpy(id.secret, derived.b, sizeof(id.secret));
  id.key = tt_key_of(id.secret);
  id.key.is_public = is_public;
  *out = id;
  return ncclSuccess;
}

// Finds where the root can listen. A machine without an interface that is up is no error yet: one rank alone needs no
// root, and an id without an address says so.
static ncclResult_t find_addresses(tt_addrs *out)
{
  tt_netif *all = NULL;
  int count = 0;
  const char *chosen = tt_params_get()->socket_ifname;
  TT_TRY(tt_netif_list(&all, &count));
  tt_free(all);
  if (count > 0 || (chosen != NULL && *chosen != '\0')) {
    return tt_netif_addrs(NULL, out);
  }
  tt_info(TT_INIT | TT_BOOTSTRAP, "no network interface is up: the unique id is for a communicator of one rank");
  return ncclSuccess;
}

ncclResult_t tt_bootstrap_id(ncclUniqueId *id)
{
  const tt_params *p = tt_params_get();
  const char *fixed = p->comm_id;
  tt_id_secret secret = {.text = p->comm_id_secret, .file = p->comm_id_secret_file};
  tt_id new = {.pid = (uint32_t)getpid()};
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
  TT_TRY(tt_bootstrap_id_parse(id, &new)); // an id may have room for fewer addresses than the list
  tt_netif_tell_left_out(&new.root);
  return ncclSuccess;
}
