// net.h: a network, as the proxy sees it. The shape is that of NCCL's network plugins (versions 6 to 12), so that an adapter for any of them is
// thin; `socket/` is the network that is always there.
//
// Nothing here waits. connect and accept are called again until they give a connection; isend and irecv may answer "not now" with a NULL
// request; test asks whether a request is done. Messages of one connection arrive in the order in which they were sent, each in the buffer
// that was posted for it by the irecv of the same position. One thread at a time uses a connection; different ones are independent. listen,
// connect, cancel and accept are called by the proxy's service thread, everything from reg_mr on by whoever holds the proxy's run flag.
// Errors: ncclRemoteError (the peer has gone: closed, reset, silent for too long), ncclSystemError (this machine), ncclInvalidUsage (a message
// that does not fit); the text (tt_fail) names the network, both ranks and the address. A connection that has failed stays so.
// Source: NCCL's ext-net documentation; seed 001.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bootstrap/hello.h"
#include "nccl.h"
#include "nccl/common.h"

enum {
  TT_NET_HANDLE = 128,  // bytes that tell a connecting rank where a listener is
  TT_NET_REQUESTS = 32, // requests under way on one connection, at least
  TT_NET_PARTS = 8      // devices that one is made of, at most
};
#define TT_NET_UNTOLD SIZE_MAX // size of a message that was received: the network does not say

struct tt_net_ops;

// What a network is told about its user.
typedef struct tt_net_env {
  int rank, nranks;
  uint64_t comm_hash;           // names the communicator
  tt_key key;                   // known to its ranks only: proves that a connection comes from one of them
  int traffic_class;            // ncclConfig_t.trafficClass; TT_NET_ANY_CLASS: not set
  const struct tt_net_ops *net; // whose init is called. Networks that are always there do not look at it
} tt_net_env;
enum { TT_NET_ANY_CLASS = -1 };

enum { TT_NET_PTR_HOST = 1, TT_NET_PTR_CUDA = 2, TT_NET_PTR_DMABUF = 4 };

// One device (an interface, an adapter). Texts live as long as the context.
typedef struct tt_net_props {
  const char *name;
  const char *pci_path; // in sysfs; NULL: none
  uint64_t guid;
  int ptr_support;     // TT_NET_PTR_…
  bool force_flush;    // flush after every receive
  int speed;           // Mbit/s
  float latency;       // us, 0: not known
  int port, max_comms; // max_comms: connections one device can have
  int max_recvs;       // buffers one irecv can post
  int rail, plane;     // of networks made of several; -1: not told
  size_t max_bytes;    // of one message; 0: no limit
  int nparts;          // 2 and more: a virtual device, made of these, which are not counted as devices; they live as long as the texts
  const struct tt_net_props *parts[TT_NET_PARTS];
} tt_net_props;

// Memory that a descriptor names.
typedef struct tt_net_dmabuf {
  void *data;
  size_t size;
  uint64_t offset;
  int fd;
} tt_net_dmabuf;

// A piece of memory.
typedef struct tt_net_part {
  void *data;
  size_t size;
  void *mhandle; // as for isend
  bool spare;    // to receive, of the first part for both: what the message does not fill may be overwritten. Else it stays as it is
} tt_net_part;

typedef struct tt_net_ops {
  const char *name; // what NCCL_NET compares with, without regard to case
  // A context for one communicator's rank. Errors: ncclSystemError (no interface).
  ncclResult_t (*init)(const tt_net_env *env, void **ctx);
  ncclResult_t (*devices)(void *ctx, int *count);
  ncclResult_t (*get_properties)(void *ctx, int dev, tt_net_props *props);
  // Listens on `dev`; `handle` (TT_NET_HANDLE bytes) goes to the rank that will connect. One listener, one connection.
  ncclResult_t (*listen)(void *ctx, int dev, void *handle, void **listen_comm);
  // Goes on connecting to `handle`, whose bytes it may use as its own notes between calls. *send_comm stays NULL until the connection stands.
  ncclResult_t (*connect)(void *ctx, int dev, void *handle, void **send_comm);
  // Gives up what connect has begun with this device and these bytes; nothing happens when that has ended. NULL: the network keeps nothing meanwhile, or
  // until finalize.
  void (*cancel)(void *ctx, int dev, const void *handle);
  ncclResult_t (*accept)(void *listen_comm, void **recv_comm);
  // Registers memory that will be sent from or received into. NULL where a network needs none; `mhandle` is then NULL everywhere.
  ncclResult_t (*reg_mr)(void *comm, void *data, size_t size, int type, void **mhandle);
  // The same for memory that a descriptor names (dma-buf), from `offset` on in it. NULL: the network cannot.
  ncclResult_t (*reg_mr_dmabuf)(void *comm, const tt_net_dmabuf *memory, int type, void **mhandle);
  ncclResult_t (*dereg_mr)(void *comm, void *mhandle);
  // Starts to send; `data` must stay as it is until test says done. `phandle`: what tt_profilers_net_callback knows the message by, good until the
  // connection is closed; NULL: nobody listens. *request NULL: not possible now, call again.
  ncclResult_t (*isend)(void *send_comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request);
  // Posts `n` buffers (at most max_recvs) for the next message, or for as many messages with these tags. A message may be smaller than its buffer.
  // `phandles`: as isend's, one each; NULL: none.
  ncclResult_t (*irecv)(void *recv_comm, int n, void **data, const size_t *sizes, const int *tags, void **mhandles, void **phandles,
                        void **request);
  // The same for messages that lie in two pieces: the first part is filled before the second. has_parts: can this connection do that, and does it touch
  // the memory of its requests within calls alone (no thread, no adapter does between them)? Then memory may go while a request is under way, if
  // that request's connection is never used again. Both ends of a connection say the same. All three or none (NULL).
  bool (*has_parts)(void *comm);
  ncclResult_t (*isend_parts)(void *send_comm, const tt_net_part parts[2], int tag, void *phandle, void **request);
  ncclResult_t (*irecv_parts)(void *recv_comm, const tt_net_part parts[2], int tag, void *phandle, void **request);
  // Makes what was received visible to the device. May be NULL, or answer a NULL request: nothing to do.
  ncclResult_t (*iflush)(void *recv_comm, int n, void **data, const int *sizes, void **mhandles, void **request);
  // Is the request done? Then it is gone, and sizes[i] are the bytes received, or TT_NET_UNTOLD (sizes may be NULL for a send). Size larger than the posted buffer:
  // only its first part was kept (networks of ours; plugins report an error). Testing drives a connection: the oldest request that is not done drives
  // what all of them need, a younger one may drive nothing. Also while asleep on events_fd test once a second: a machine that has fallen silent is
  // noticed here.
  ncclResult_t (*test)(void *request, int *done, size_t *sizes);
  // All three also while requests are under way, and with NULL. When a close returns, the memory of the requests is the caller's again.
  ncclResult_t (*close_send)(void *send_comm);
  ncclResult_t (*close_recv)(void *recv_comm);
  ncclResult_t (*close_listen)(void *listen_comm);
  ncclResult_t (*finalize)(void *ctx);
  // A descriptor of the context that becomes readable when a request that was not done may be by now. It is never read, so it must be watched
  // edge-triggered: add it to an epoll with EPOLLIN | EPOLLET, test everything, then wait. -1 or NULL: there is none, the progress thread must look.
  int (*events_fd)(void *ctx);
  // May anybody sleep on events_fd? On, as it is at first: what happens from now on is told; what has happened before need not be, so test everything after
  // this. Off: nothing need be told. Returns how many descriptors were put under watch now, which cost a system call each, and another one later (0: it was
  // on, or goes off), or -errno: it is off. Any thread, also beside calls for the context's connections; not beside finalize. NULL: always on.
  int (*watch_events)(void *ctx, bool on);
  // In a forked child, whichever threads the parent has: closes the context's descriptors and frees nothing. May be NULL.
  void (*forget)(void *ctx);
  // What tt_net_close calls; NULL: the network is always there.
  void (*release)(const struct tt_net_ops *net);
} tt_net_ops;

extern const tt_net_ops tt_net_socket;
#ifdef TUTTI_HAVE_OFI
extern const tt_net_ops tt_net_ofi; // libfabric
#endif

// NCCL_NET_TIMEOUT: seconds after which a peer that does not answer is counted as lost, and making a connection as failed. TT_NET_FOR_EVER (0 was given):
// never. Any thread.
enum { TT_NET_FOR_EVER = 1000000 };
unsigned tt_net_patience(void);

// Chooses a network for one communicator's rank: of the plugins of NCCL_NET_PLUGIN (libnccl-net.so when that is not set), in that order, and then of our own
// the first that has the name `name` (NULL or "": any; compared without regard to case) and can be used. A plugin that cannot is told at INFO with the
// reason. A plugin is initialised here, for this rank, and its context shared by all who init it by this table. Errors: ncclInvalidUsage (no network of
// that name; the text lists those there are), ncclSystemError (no memory). Any thread.
ncclResult_t tt_net_open(const tt_net_env *env, const char *name, const tt_net_ops **out);
// Where nobody needs the network: opens the plugins of NCCL_NET_PLUGIN to look, and closes them, so that the log says which are not there. None is
// initialised. Errors: ncclSystemError (no memory). Any thread.
ncclResult_t tt_net_look(void);
// The caller needs it no more; contexts that are open keep it. NULL is allowed.
void tt_net_close(const tt_net_ops *net);
