// plugin_priv.h: network plugins as networks of ours. What the files of this folder share.
//
// version.inc  the adapters of one version of the interface (v6.c … v12.c compile it): plain functions over the
//              plugin's tables
// fuse.c       which devices become one
// merge.c      makes them one
// library.c    plugins that are open in this process: found, initialised, their devices looked at; shared by all
//              communicators
// plugin.c     a plugin as a row of net.h: context, connections, requests, errors with names
//
// Ownership: a tt_pnet (one rank of one communicator) has a context of the plugin's and a share of its library;
// connections and listeners have a share of nothing. The user closes them before their context. A
// library is closed with its last tt_pnet, but for versions without finalize: once initialised, these stay until the
// process ends.
#pragma once
#include <stdatomic.h>

#include "net/plugin/plugin.h"

enum {
  TT_PNET_DEVICES = 256,  // of one plugin, at most
  TT_PNET_GROUP = 8,      // buffers of one irecv, at most
  TT_PNET_NAME = 64,      // bytes of a network's name that count
  TT_PNET_FAILURE = 4400, // bytes of the text about a function that failed: a path is in it
  TT_PNET_FIRST = 2       // of a version's `needs`: name and init
};

// What one connection needs of its network's configuration.
typedef struct tt_pnet_setup {
  uint64_t comm_hash;
  int traffic_class; // TT_NET_ANY_CLASS: not set
  int nranks;
  ncclProfilerCallback_t profile; // where the plugin tells of its events
} tt_pnet_setup;

// A message, or the buffers for some.
typedef struct tt_pnet_message {
  int n;
  void **data;
  const size_t *sizes;
  const int *tags;
  void **mhandles, **phandles; // [n], never NULL
} tt_pnet_message;

// A version of the interface: the plugin's functions as those of the newest version would be, over its table `t`. Codes
// are the plugin's own.
typedef struct tt_pnet_version {
  int version;
  unsigned requests;             // under way on one connection, at most
  size_t max_bytes;              // of a message
  int most_parts;                // of a virtual device
  bool own_context;              // init makes one for each communicator; else there is one init in the process
  const tt_plugin_member *needs; // name and init come first
  size_t nneeds;
  const char *(*name)(const void *t);
  ncclResult_t (*init)(const void *t, const tt_pnet_setup *s, void **ctx);
  ncclResult_t (*devices)(const void *t, int *n);
  // *type: ncclNetDeviceType. Texts are the plugin's.
  // vdevs[nparts]: its parts, if there are several (props->nparts).
  ncclResult_t (*properties)(const void *t, int dev, tt_net_props *props, int *type, int *vdevs);
  ncclResult_t (*listen)(const void *t, void *ctx, int dev, void *handle, void **comm);
  ncclResult_t (*connect)(const void *t, void *ctx, const tt_pnet_setup *s, int dev, void *handle, void **comm);
  ncclResult_t (*accept)(const void *t, void *listener, void **comm);
  // Fd < 0: ordinary memory.
  ncclResult_t (*reg_mr)(const void *t, void *comm, const tt_net_dmabuf *memory, int type, void **mhandle);
  ncclResult_t (*dereg_mr)(const void *t, void *comm, void *mhandle);
  ncclResult_t (*isend)(const void *t, void *comm, const tt_pnet_message *m, void **request);
  ncclResult_t (*irecv)(const void *t, void *comm, const tt_pnet_message *m, void **request);
  // Sizes as of the message.
  ncclResult_t (*iflush)(const void *t, void *comm, const tt_pnet_message *m, void **request);
  ncclResult_t (*test)(const void *t, void *request, int *done, int *sizes);
  ncclResult_t (*close)(const void *t, void *comm, int kind); // TT_PNET_…
  bool (*has)(const void *t, int what);                       // TT_PNET_CAN_…
  ncclResult_t (*make_virtual)(const void *t, const int *devs, int n, int *dev);
  void (*hint)(const void *t, void *ctx, const tt_pnet_setup *s);
  ncclResult_t (*finalize)(const void *t, void *ctx);
} tt_pnet_version;

enum { TT_PNET_SEND, TT_PNET_RECV, TT_PNET_LISTEN };
enum { TT_PNET_CAN_FLUSH, TT_PNET_CAN_DMABUF, TT_PNET_CAN_MERGE, TT_PNET_CAN_FINALIZE };

extern const tt_pnet_version tt_pnet_v6, tt_pnet_v7, tt_pnet_v8, tt_pnet_v9, tt_pnet_v10, tt_pnet_v11, tt_pnet_v12;

// The adapter of a version; NULL: none.
const tt_pnet_version *tt_pnet_version_of(int version);

// ---- library.c

// The list's lock. A plugin's init, devices, getProperties and finalize run under it: one of them at a time in a
// process.
void tt_pnet_lock(void);
void tt_pnet_unlock(void);

// A plugin that is open. What follows `refs` is written before it is shared, but for devices that are added.
typedef struct tt_pnet_library {
  struct tt_pnet_library *next;
  char *wish; // item of NCCL_NET_PLUGIN that opened it first; NULL: the variable is not set
  int refs;   // under the lock
  int inits;  // successful ones that are not finalized; under the lock
  tt_plugin *plugin;
  const tt_pnet_version *v;
  const void *table;
  bool late; // its table is not full before init, which may change its name too; `name` is what init left, and not read
             // before init
  char name[TT_PNET_NAME];
  bool hollow;          // nor was it after; under the lock
  bool reduces;         // its collective network, which has no finalize, is initialised; under the lock
  ncclResult_t refused; // NCCL_NET_FORCE_MERGE cannot be done, and `why`; ncclSuccess: it can. Under the lock
  char why[1024];
  int ndevs; // the plugin's; 0: not listed yet
  tt_net_props *devs[TT_PNET_DEVICES];
  // Those that count, by the plugin's numbers: what was made of several, and what is no part of such.
  _Atomic int nusable;
  int usable[TT_PNET_DEVICES];
} tt_pnet_library;

// All of these and of merge.c are called with the lock held.

// The library for an item of the list, opened or shared. *out NULL: it cannot be used, and the log has said why.
// Errors: ncclSystemError (no memory).
ncclResult_t tt_pnet_library_open(const char *wish, tt_pnet_library **out);
void tt_pnet_library_close(tt_pnet_library *lib);
// A plugin of another kind in the library for such an item, opened for it if need be; *out NULL: there is none, of
// which nothing is said. Errors: as above.
ncclResult_t tt_pnet_library_also(const char *wish, tt_plugin_kind kind, tt_plugin **out);
// Initialises it for a communicator, and looks at its devices and fuses them when that has not been done. *usable
// false: it cannot be used, the log has said why.
// Errors: as above; ncclInvalidUsage (NCCL_NET_FORCE_MERGE cannot be done).
ncclResult_t tt_pnet_library_init(tt_pnet_library *lib, const tt_pnet_setup *s, void **ctx, bool *usable);
// Undoes one init. Errors: the plugin's code.
ncclResult_t tt_pnet_library_finalize(tt_pnet_library *lib, void *ctx);
// The next device that the plugin has made (or had): its properties, if it can be used; else the log has said why.
bool tt_pnet_add_device(tt_pnet_library *lib, int dev);

// The plugin's code; ncclInternalError where it is no code of an error.
ncclResult_t tt_pnet_code(ncclResult_t code);
// Writes "NAME (FILE, version N): FUNCTION failed with code C (its meaning)" into `text`, and returns it.
const char *tt_pnet_failure(char text[TT_PNET_FAILURE], const char *name, const tt_plugin *plugin, const char *function,
                            ncclResult_t code);
// Says at INFO that a function of the plugin `name` has failed, which has no consequences; ncclSuccess: says nothing.
void tt_pnet_mention(tt_plugin_kind kind, const char *name, const char *function, ncclResult_t code);

// ---- merge.c

// Makes one device of `n`; *dev: the plugin's number. False: `why` has the reason.
bool tt_pnet_make_virtual(tt_pnet_library *lib, const int *devs, int n, int *dev, char *why, size_t size);
// Fuses what the parameters want, unless the plugin has done so before, and lists the devices that count. Errors:
// ncclInvalidUsage, ncclSystemError (no memory).
ncclResult_t tt_pnet_fuse(tt_pnet_library *lib);

// ---- plugin.c

// The library of a network; NULL: the network is no plugin's. Valid as long as the network. Any thread.
tt_pnet_library *tt_pnet_library_of(const tt_net_ops *net);
