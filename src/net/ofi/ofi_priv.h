// ofi_priv.h: the network OFI: libfabric's reliable, tagged messages. libfabric is opened at run time, so that a
// library built with it runs where it is not installed.
//
// A device is one domain of the provider with one endpoint, which all connections of a context share; a connection is a
// tag. Tags are chosen at random by the receiving end (47 bits), so that one cannot be guessed.
//
// A connection comes to be: the ranks meet over TCP (net/rendezvous), where both prove the communicator's key. Then the
// accepting side sends its endpoint's address and the tag, and the socket is closed.
//
// Locks: a device's `lock` guards everything of it and of its connections.
#pragma once
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <stdbool.h>
#include <stdint.h>

#include "net/rendezvous/rendezvous.h"
#include "os/library.h"

enum {
  TT_OFI_ADDR = 64, // longest address of an endpoint
  TT_OFI_WHY = 256,
};

#define TT_OFI_MAGIC 0x69666f74u // "tofi"
#define TT_OFI_TAGS ((1ull << 47) - 1)

// What of libfabric is no inline function.
typedef struct tt_ofi_lib {
  __typeof__(fi_getinfo) *getinfo;
  __typeof__(fi_freeinfo) *freeinfo;
  __typeof__(fi_dupinfo) *dupinfo;
  __typeof__(fi_fabric) *fabric;
  __typeof__(fi_strerror) *strerror;
  __typeof__(fi_version) *version;
} tt_ofi_lib;

typedef enum { TT_OFI_FREE, TT_OFI_BUSY, TT_OFI_DONE } tt_ofi_state;

typedef struct tt_ofi_conn tt_ofi_conn;

// One message under way. libfabric knows it by the address of `context`, which comes first.
typedef struct tt_ofi_req {
  struct fi_context2 context;
  tt_ofi_conn *conn;
  tt_ofi_state state;
  int error;   // 0, or FI_E… with which it ended
  size_t size; // bytes sent or received
} tt_ofi_req;

typedef struct tt_ofi_dev {
  struct fi_info *info;
  const char *name;     // the domain's
  bool tried;           // opening has been tried
  char why[TT_OFI_WHY]; // why there is no endpoint (any more)
  struct fid_fabric *fabric;
  struct fid_domain *domain;
  struct fid_av *av;
  struct fid_cq *cq;
  struct fid_ep *ep; // NULL: not opened, or given up
  int wait_fd;       // of cq; -1: none
  bool local_mr;     // memory must be registered
  char addr[TT_OFI_ADDR];
  size_t addr_size;
  tt_ofi_conn *conns;
  pthread_mutex_t lock;
} tt_ofi_dev;

typedef struct tt_ofi {
  tt_rdv base; // its set of events: the completion queues' descriptors; its ring: a look for one request has completed
               // others
  tt_ofi_lib lib;
  struct fi_info *infos;        // what devs[].info point into
  tt_ofi_dev devs[TT_RDV_DEVS]; // base.ndevs
} tt_ofi;

// One end of a connection.
struct tt_ofi_conn {
  tt_ofi *net;
  tt_ofi_dev *dev;
  tt_ofi_conn *next; // of the device
  bool send;
  int peer;
  uint64_t tag;
  fi_addr_t to; // sending end
  tt_ofi_req reqs[TT_NET_REQUESTS];
  char why[TT_OFI_WHY]; // why the connection has failed; "": it has not
};

// ---- device.c

// Opens libfabric. False: it is not here, or too old; `why` (TT_LIBRARY_WHY bytes) says which.
bool tt_ofi_open_library(tt_ofi_lib *lib, char *why);
// Fills infos and devs: the domains of NCCL_OFI_PROVIDER's provider, or of the best one. Errors: ncclSystemError, with
// what there is.
ncclResult_t tt_ofi_find_devices(tt_ofi *net);
// Opens the device's endpoint unless it is open. Caller holds the lock. Errors: ncclSystemError; the same again once it
// has failed or been given up.
ncclResult_t tt_ofi_dev_open(tt_ofi *net, tt_ofi_dev *dev);
// Closes the endpoint for good, because memory that it may still touch must be given back: what is under way on it has
// failed. Caller holds the lock.
void tt_ofi_dev_give_up(tt_ofi_dev *dev, const char *why);
void tt_ofi_dev_close(tt_ofi_dev *dev);
// Takes what has been completed. If that includes a request other than `asked` (NULL: none), rings the set of events.
// Caller holds the lock.
void tt_ofi_progress(const tt_ofi *net, tt_ofi_dev *dev, const tt_ofi_req *asked);
// Makes a later completion ring the descriptor; goes on meanwhile if something is there already. Caller holds the lock.
void tt_ofi_before_sleep(const tt_ofi *net, tt_ofi_dev *dev, const tt_ofi_req *asked);

// ---- message.c

// Takes what the connection has posted back; false when libfabric does not let go of one request. Caller holds the
// lock.
bool tt_ofi_take_back(tt_ofi_conn *c);

// The rows of tt_net_ops (net/net.h) of these names, with the same arguments, threads and errors.
ncclResult_t tt_ofi_reg_mr(void *comm, void *data, size_t size, int type, void **mhandle);
ncclResult_t tt_ofi_dereg_mr(void *comm, void *mhandle);
ncclResult_t tt_ofi_isend(void *send_comm, void *data, size_t size, int tag, void *mhandle, void *phandle,
                          void **request);
ncclResult_t tt_ofi_irecv(void *recv_comm, int n, void **data, const size_t *sizes, const int *tags, void **mhandles,
                          void **phandles, void **request);
ncclResult_t tt_ofi_test(void *request, int *done, size_t *sizes);

// ---- connect.c

// The rows of tt_net_ops of these names; tt_ofi_close_conn closes sending and receiving connections.
ncclResult_t tt_ofi_connect(void *ctx, int dev, void *handle, void **send_comm);
ncclResult_t tt_ofi_accept(void *listen_comm, void **recv_comm);
ncclResult_t tt_ofi_close_conn(void *comm);
