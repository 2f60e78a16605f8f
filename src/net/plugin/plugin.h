// plugin.h: other people's networks: libraries with a table of the versions 6 to 12 of NCCL's interface (nccl/net.h).
// Front door of src/net/plugin.
//
// A plugin's library stays open while any network made of it is, and one without finalize (before version 11) until the
// process ends: the same one serves all communicators.
#pragma once
#include "net/net.h"
#include "plugin/loader.h"

// A network with the plugin that `wish` names (an item of NCCL_NET_PLUGIN; NULL: the variable is not set), initialised
// for the rank. `wanted` is asked for the name of the plugin's network first. *out NULL: there is none, it is not
// wanted, or it cannot be used; the log has said which. It goes with tt_net_close.
// Errors: ncclSystemError (no memory). Any thread.
ncclResult_t tt_net_plugin_open(const char *wish, const tt_net_env *env, bool (*wanted)(void *arg, const char *name),
                                void *arg, const tt_net_ops **out);

// The items of NCCL_NET_PLUGIN.
tt_plugin_wishes tt_net_plugin_wishes(void);

// Tuners and profilers in network plugins' libraries: that of `net` first (NULL, or one of ours: it has none), then
// those of NCCL_NET_PLUGIN (libnccl-net.so when that is not set) in their order, whether or not the network is needed.
// These are opened to look, and not initialised. Valid as long as the network.
tt_plugin_fallback tt_net_plugin_fallback(const tt_net_ops *net);
