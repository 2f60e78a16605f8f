// net.h: a network, as the proxy sees it. The shape is that of NCCL's network plugins (versions 6 to 12), so an adapter
// for any of them is thin. `socket/` is always there.
//
// Nothing here waits. connect and accept are called again until they return a connection. isend and irecv may answer
// "not now" with a NULL request; test asks whether a request is done. Messages of one connection arrive in the order in
// which they were sent. Each arrives in the buffer that the irecv of the same position posted.
// Threads: one at a time per connection; different connections are independent. The proxy's service thread calls
// listen, connect, cancel and accept. The thread that holds the proxy's run flag calls everything from reg_mr on.
// Errors: ncclRemoteError (the peer has closed, was reset, or is silent for too long), ncclSystemError (this machine),
// ncclInvalidUsage (a message that does not fit). The text (tt_fail) names the network, both ranks and the address. A
// connection that has failed stays failed.
// Source: NCCL's ext-net documentation; seed 001.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bootstrap/hello.h"
#include "nccl.h"
#include "nccl/common.h"

enum {
  TT_NET_HANDLE = 128,  // bytes that describe a listener to the connecting rank
  TT_NET_REQUESTS = 32, // requests under way on one connection, at least
  TT_NET_PARTS = 8      // parts of a virtual device, at most
};
#define TT_NET_SIZE_UNKNOWN SIZE_MAX // size of a received message: the network does not report it

struct tt_net_ops;

// The rank that uses a network.
typedef struct tt_net_env {
  int rank, nranks;
  uint64_t comm_hash;           // names the communicator
  tt_key key;                   // only its ranks have it: proves that a connection comes from one of them
  int traffic_class;            // ncclConfig_t.trafficClass; TT_NET_ANY_CLASS: not set
  const struct tt_net_ops *net; // the table whose init is called; networks of this library ignore it
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
  float latency;       // us, 0: unknown
  int port, max_comms; // max_comms: connections of one device
  int max_recvs;       // buffers that one irecv can post
  int rail, plane;     // of networks made of several; -1: unknown
  size_t max_bytes;    // of one message; 0: no limit
  int nparts;          // 2 and more: a virtual device; its parts do not count as devices, and live as long as the texts
  const struct tt_net_props *parts[TT_NET_PARTS];
} tt_net_props;

// Memory behind a descriptor.
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
  bool spare;    // to receive; the first part's counts for both: the bytes that the message does not fill may be
                 // overwritten
} tt_net_part;

typedef struct tt_net_ops {
  const char *name; // NCCL_NET selects by it, without regard to case
  bool encrypts;    // its connections begin with the handshake of bootstrap/greet.h, so ncclSetEncryption covers them
  // A context for one communicator's rank. Errors: ncclSystemError (no interface).
  ncclResult_t (*init)(const tt_net_env *env, void **ctx);
  ncclResult_t (*devices)(void *ctx, int *count);
  ncclResult_t (*get_properties)(void *ctx, int dev, tt_net_props *props);
  // Listens on `dev`; `handle` (TT_NET_HANDLE bytes) goes to the rank that will connect. One listener, one connection.
  ncclResult_t (*listen)(void *ctx, int dev, void *handle, void **listen_comm);
  // Goes on to connect to `handle`, whose bytes it may change between calls. *send_comm stays NULL until the connection
  // stands.
  ncclResult_t (*connect)(void *ctx, int dev, void *handle, void **send_comm);
  // Gives up the connection that connect has begun with this device and these bytes, if it is not complete. NULL: the
  // network keeps nothing between calls, or keeps it until finalize.
  void (*cancel)(void *ctx, int dev, const void *handle);
  ncclResult_t (*accept)(void *listen_comm, void **recv_comm);
  // Registers memory for messages. NULL: the network needs no registration; `mhandle` is then NULL everywhere.
  ncclResult_t (*reg_mr)(void *comm, void *data, size_t size, int type, void **mhandle);
  // The same for memory behind a descriptor (dma-buf), from `offset` on. NULL: unsupported.
  ncclResult_t (*reg_mr_dmabuf)(void *comm, const tt_net_dmabuf *memory, int type, void **mhandle);
  ncclResult_t (*dereg_mr)(void *comm, void *mhandle);
  // Starts to send; `data` must stay unchanged until the request is done. `phandle` names the message to
  // tt_profilers_net_callback and is valid until the connection is closed; NULL: no profiler. *request NULL: not
  // possible now, call again.
  ncclResult_t (*isend)(void *send_comm, void *data, size_t size, int tag, void *mhandle, void *phandle,
                        void **request);
  // Posts `n` buffers (at most max_recvs) for the next message, or for `n` messages with these tags. A message may be
  // smaller than its buffer. `phandles`: as isend's, one each; NULL: none.
  ncclResult_t (*irecv)(void *recv_comm, int n, void **data, const size_t *sizes, const int *tags, void **mhandles,
                        void **phandles, void **request);
  // The same for messages in two pieces: the first part is filled before the second. has_parts: can this connection do
  // that, and does it touch the memory of its requests only within calls (no thread or adapter does so between them)?
  // Then the memory may be freed while a request is under way, if its connection is never used again. Both ends of a
  // connection answer the same. All three or none (NULL).
  bool (*has_parts)(void *comm);
  ncclResult_t (*isend_parts)(void *send_comm, const tt_net_part parts[2], int tag, void *phandle, void **request);
  ncclResult_t (*irecv_parts)(void *recv_comm, const tt_net_part parts[2], int tag, void *phandle, void **request);
  // Makes received data visible to the device. May be NULL, or return a NULL request: nothing to do.
  ncclResult_t (*iflush)(void *recv_comm, int n, void **data, const int *sizes, void **mhandles, void **request);
  // Is the request done? Then it is gone, and sizes[i] are the bytes received, or TT_NET_SIZE_UNKNOWN (sizes may be
  // NULL for a send). A size above that of the posted buffer: only the first part was kept (networks of this library;
  // plugins report an error). Testing drives a connection: the oldest request that is not done drives all of them, a
  // younger one may drive nothing. While asleep on events_fd, test once a second: test detects a peer's machine that
  // has fallen silent.
  ncclResult_t (*test)(void *request, int *done, size_t *sizes);
  // Can the oldest request of this connection that is not done move on only when the receiver takes something? False:
  // it may by itself, or it is not known. Called as test is. NULL: it is never known.
  bool (*stands)(void *send_comm);
  // All three are allowed while requests are under way, and with NULL. When a close returns, the memory of the requests
  // is the caller's again.
  ncclResult_t (*close_send)(void *send_comm);
  ncclResult_t (*close_recv)(void *recv_comm);
  ncclResult_t (*close_listen)(void *listen_comm);
  ncclResult_t (*finalize)(void *ctx);
  // A descriptor of the context that becomes readable when a request may have become done. It is never read, so it must
  // be watched edge-triggered: add it to an epoll with EPOLLIN | EPOLLET, test everything, then wait. -1 or NULL: there
  // is none, the progress thread must poll.
  int (*events_fd)(void *ctx);
  // Will a thread sleep on events_fd? On, the state at first: later events make it readable; earlier ones may not, so
  // test everything after this call. Off: events need not make it readable. Returns how many descriptors are watched
  // now that were not (a system call each, and another one later), or -errno: it is off. Any thread, also beside calls
  // for the context's connections; not beside finalize. NULL: always on.
  int (*watch_events)(void *ctx, bool on);
  // In a forked child, whatever threads the parent has: closes the context's descriptors and frees nothing. May be
  // NULL.
  void (*forget)(void *ctx);
  // tt_net_close calls it; NULL: the network is always there.
  void (*release)(const struct tt_net_ops *net);
} tt_net_ops;

extern const tt_net_ops tt_net_socket;
#ifdef TUTTI_HAVE_OFI
extern const tt_net_ops tt_net_ofi; // libfabric
#endif

// NCCL_NET_TIMEOUT: seconds after which a silent peer counts as lost, and an attempt to connect as failed.
// TT_NET_FOR_EVER: never (the variable is 0). Any thread.
enum { TT_NET_FOR_EVER = 1000000 };
unsigned tt_net_patience(void);

// Chooses a network for one communicator's rank: the first that has the name `name` (NULL or "": any; without regard to
// case) and can be used. The plugins of NCCL_NET_PLUGIN (libnccl-net.so where it is not set) come first, in their
// order, then this library's networks. The log says at INFO why a plugin cannot be used. A plugin is initialised here,
// for this rank; all calls of this table's init share the context. Errors: ncclInvalidUsage (no network of that name;
// the text lists the others), ncclSystemError (no memory). Any thread.
ncclResult_t tt_net_open(const tt_net_env *env, const char *name, const tt_net_ops **out);
// For a communicator that needs no network: opens and closes the plugins of NCCL_NET_PLUGIN, so that the log says which
// are missing. None is initialised. Errors: ncclSystemError (no memory). Any thread.
ncclResult_t tt_net_look(void);
// Ends the caller's use; open contexts keep the network. NULL is allowed.
void tt_net_close(const tt_net_ops *net);
