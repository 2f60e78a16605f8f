// fuzz_id.c: unique ids and hellos come from outside the process: no bytes may harm their readers, and what is read can be written again.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bootstrap/bootstrap_priv.h"

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
    demand(parsed.root.port != 0);
    tt_bootstrap_id_write(&parsed, &again);
    demand(memcmp(&again, id, sizeof(again)) == 0);
  }
}

// The input as the contents of an id, so that the check over all bytes does not end every run.
static void try_contents(const uint8_t *data, size_t size)
{
  ncclUniqueId id;
  tt_id made, parsed;
  memset(&made, 0, sizeof(made));
  memcpy(&made.root, data, size < sizeof(made.root) ? size : sizeof(made.root));
  tt_bootstrap_id_write(&made, &id);
  if (tt_bootstrap_id_parse(&id, &parsed) == ncclSuccess) {
    demand(memcmp(&parsed.root, &made.root, sizeof(made.root)) == 0);
  }
}

static void try_hello(const uint8_t *data, size_t size)
{
  static const tt_key key = {{1}};
  tt_hello h;
  size_t got = size < sizeof(h) ? size : sizeof(h);
  memset(&h, 0, sizeof(h));
  memcpy(&h, data, got);
  (void)tt_hello_check(&h, got, &key, TT_HELLO_JOIN, -1);
  tt_hello_seal(&h, &key);
  demand(tt_hello_check(&h, sizeof(h), &key, h.kind, h.to) == NULL || h.kind == 0);
  h.proof[got % sizeof(h.proof)] ^= 1;
  demand(tt_hello_check(&h, sizeof(h), &key, h.kind, h.to) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  ncclUniqueId id;
  memset(&id, 0, sizeof(id));
  memcpy(&id, data, size < sizeof(id) ? size : sizeof(id));
  try_id(&id);
  try_contents(data, size);
  try_hello(data, size);
  return 0;
}
