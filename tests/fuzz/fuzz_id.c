// fuzz_id.c: unique ids come from outside the process: no bytes may harm their reader, and what is read can be written
// again.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "bootstrap/bootstrap_priv.h"
#include "tools/sockets.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(int good)
{
  if (!good) {
    abort();
  }
}

static void try_id(const ncclUniqueId *id)
{
  ncclUniqueId again;
  tt_id parsed;
  if (tt_bootstrap_id_parse(id, &parsed) == ncclSuccess) {
    demand(parsed.root.n == 0 || tt_addrs_good(&parsed.root)); // without a network an id has no address
    tt_bootstrap_id_write(&parsed, &again);
    demand(memcmp(&again, id, sizeof(again)) == 0);
  }
}

// The same with the right magic, version and check.
static void try_checked(ncclUniqueId *id)
{
  ncclUniqueId head;
  tt_addr at = {.family = 2, .port = 1};
  tt_id some = {.root = tt_addrs_one(&at)};
  tt_bootstrap_id_write(&some, &head);
  uint64_t magic;
  uint32_t check;
  memcpy(id->internal, head.internal, 10);
  memcpy(&magic, head.internal, sizeof(magic));
  check = (uint32_t)tt_hash(id->internal, sizeof(*id) - sizeof(check), magic);
  memcpy(id->internal + sizeof(*id) - sizeof(check), &check, sizeof(check));
  try_id(id);
}

// The input as the addresses of an id, so that the check over all bytes does not end every run.
static void try_contents(const uint8_t *data, size_t size)
{
  ncclUniqueId id;
  tt_id made, parsed;
  memset(&made, 0, sizeof(made));
  memcpy(&made.root, data, size < sizeof(made.root) ? size : sizeof(made.root));
  made.root.n %= TT_ADDRS_MAX + 1;
  tt_bootstrap_id_write(&made, &id);
  if (tt_bootstrap_id_parse(&id, &parsed) == ncclSuccess) {
    demand(parsed.root.n <= made.root.n);
    try_id(&id);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  ncclUniqueId id;
  memset(&id, 0, sizeof(id));
  memcpy(&id, data, size < sizeof(id) ? size : sizeof(id));
  try_id(&id);
  try_contents(data, size);
  try_checked(&id);
  return 0;
}
