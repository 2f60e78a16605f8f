// net.c: see net.h.
#include "net/net.h"

#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "base/text.h"
#include "base/util.h"
#include "net/plugin/plugin.h"

// The first is taken where NCCL_NET names none; the others by name only.
static const tt_net_ops *const networks[] = {
    &tt_net_socket,
#ifdef TUTTI_HAVE_OFI
    &tt_net_ofi,
#endif
};

// A choice that is being made.
typedef struct choice {
  const tt_net_env *env;
  const char *name; // the network must have; NULL: any
  char seen[512];   // "Socket, IB": names of those there are, for messages
} choice;

static bool is_network_wanted(choice *c, const char *name)
{
  tt_list_add(c->seen, sizeof(c->seen), "%s", name);
  return c->name == NULL || tt_casecmp(c->name, name) == 0;
}

static bool is_wanted_plugin(void *arg, const char *name)
{
  choice *c = arg;
  bool wanted = is_network_wanted(c, name);
  if (!wanted) {
    tt_info(TT_INIT | TT_NET, "NET/Plugin: %s is not used: the network must be %s", name, c->name);
  }
  return wanted;
}

// The first plugin that has the name and can be used; *out NULL: none.
static ncclResult_t try_plugins(choice *c, const tt_net_ops **out)
{
  tt_plugin_wishes w = tt_net_plugin_wishes();
  while (*out == NULL && tt_plugin_next_wish(&w)) {
    TT_TRY(tt_net_plugin_open(w.wish, c->env, is_wanted_plugin, c, out));
  }
  return ncclSuccess;
}

ncclResult_t tt_net_look(void)
{
  tt_plugin_wishes w = tt_net_plugin_wishes();
  while (w.list != NULL && tt_plugin_next_wish(&w)) {
    tt_plugin *plugin = NULL;
    TT_TRY(tt_plugin_open(TT_PLUGIN_NET, w.wish, NULL, &plugin));
    tt_plugin_close(plugin);
  }
  return ncclSuccess;
}

ncclResult_t tt_net_open(const tt_net_env *env, const char *name, const tt_net_ops **out)
{
  choice c = {.env = env, .name = name != NULL && name[0] != '\0' ? name : NULL};
  const tt_net_ops *found = NULL;
  TT_TRY(try_plugins(&c, &found));
  for (size_t i = 0; found == NULL && i < TT_COUNT(networks); i++) {
    found = is_network_wanted(&c, networks[i]->name) ? networks[i] : NULL;
  }
  if (found == NULL) {
    return tt_fail(
        ncclInvalidUsage,
        "rank %d: no network is called %s (NCCL_NET, or ncclConfig_t.netName), or it cannot be used; there are: %s",
        env->rank, name, c.seen);
  }
  tt_info(TT_INIT | TT_NET, "Using network %s", found->name);
  *out = found;
  return ncclSuccess;
}

void tt_net_close(const tt_net_ops *net)
{
  if (net != NULL && net->release != NULL) {
    net->release(net);
  }
}
