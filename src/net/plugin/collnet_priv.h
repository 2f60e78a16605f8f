// collnet_priv.h: collective networks of all versions behind one form. version.inc makes it, once per version;
// collnet.c uses it.
#pragma once
#include "net/collnet.h"
#include "plugin/loader.h"

// What a device is, as far as it matters.
typedef struct tt_cnet_device {
  bool host_memory; // it takes some, and leaves no work to a GPU
  bool made;        // of several, which are in the list too
  bool flush;
  size_t max_bytes; // of a reduction; 0: unknown
} tt_cnet_device;

// A version: the plugin's functions as those of the newest version would be, over its table `t`. Codes are the plugin's
// own.
typedef struct tt_cnet_version {
  int version;
  bool own_context; // init makes one for each communicator; else there is one init in the process
  const tt_plugin_member *needs;
  size_t nneeds;
  const char *(*name)(const void *t);
  ncclResult_t (*init)(const void *t, uint64_t comm_hash, void **ctx);
  ncclResult_t (*devices)(const void *t, int *n);
  ncclResult_t (*properties)(const void *t, int dev, tt_cnet_device *out);
  ncclResult_t (*support)(const void *t, int type, int op, int *supported);
  ncclResult_t (*listen)(const void *t, void *ctx, int dev, void *handle, void **listener);
  ncclResult_t (*connect)(const void *t, void **handles, int nranks, int rank, void *listener, void **comm);
  ncclResult_t (*reg_mr)(const void *t, void *comm, void *data, size_t size, void **mhandle);
  ncclResult_t (*dereg_mr)(const void *t, void *comm, void *mhandle);
  ncclResult_t (*allreduce)(const void *t, void *comm, const tt_collnet_sum *s, void **request);
  ncclResult_t (*flush)(const void *t, void *comm, void *data, size_t size, void *mhandle,
                        void **request); // *request NULL: there is no need
  ncclResult_t (*test)(const void *t, void *request, int *done, int *size);
  ncclResult_t (*close)(const void *t, void *comm);
  ncclResult_t (*close_listen)(const void *t, void *listener);
  ncclResult_t (*finalize)(const void *t, void *ctx); // NULL: the version has none
} tt_cnet_version;

extern const tt_cnet_version tt_cnet_v6, tt_cnet_v7, tt_cnet_v8, tt_cnet_v9, tt_cnet_v10, tt_cnet_v11, tt_cnet_v12;

// The adapter of a version; NULL: none.
const tt_cnet_version *tt_cnet_version_of(int version);
