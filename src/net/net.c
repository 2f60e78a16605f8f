// net.c: see net.h.
#include "net/net.h"

#include <stdio.h>
#include <strings.h>

#include "base/param.h"
#include "base/result.h"
#include "base/util.h"

// The first is taken where NCCL_NET names none; the others by name only.
static const tt_net_ops *const networks[] = {
    &tt_net_socket,
#ifdef TUTTI_HAVE_OFI
    &tt_net_ofi,
#endif
};

// "Socket, IB", for messages.
static void names_text(char *buf, size_t room)
{
  size_t used = 0;
  for (size_t i = 0; i < TT_COUNT(networks) && used < room; i++) {
    used += (size_t)snprintf(buf + used, room - used, "%s%s", i > 0 ? ", " : "", networks[i]->name);
  }
}

ncclResult_t tt_net_find(const tt_net_ops **out)
{
  const char *name = tt_params_get()->net;
  char names[256];
  if (name == NULL) {
    *out = networks[0];
    return ncclSuccess;
  }
  for (size_t i = 0; i < TT_COUNT(networks); i++) {
    if (strcasecmp(name, networks[i]->name) == 0) {
      *out = networks[i];
      return ncclSuccess;
    }
  }
  names_text(names, sizeof(names));
  return tt_fail(ncclInvalidUsage, "no network is called NCCL_NET=%s; there are: %s", name, names);
}
