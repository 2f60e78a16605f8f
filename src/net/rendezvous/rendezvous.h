// rendezvous.h: what the networks of this library have in common: devices, and how the sockets of two ranks find each
// other. The socket network keeps the sockets that are made; OFI exchanges addresses over one and closes it.
//
// A connection comes to be. The handle names the listener's addresses, a random cookie and the number of data sockets
// that the listener would like; the smaller wish of both ends counts. The connecting side dials the control socket
// (bootstrap/dial.h: any address that answers and proves the key), then the data sockets at the same address. The tag
// of each hello names the socket and the attempt. The message "go" on the control socket ends the attempt; until then a
// new attempt displaces the old one.
//
// One thread calls all of this (net.h: the service thread). The lists are changed under the lock, by single stores, so
// that a forked child can walk them without it.
#pragma once
#include <assert.h>
#include <pthread.h>

#include "base/util.h"
#include "bootstrap/dial.h"
#include "bootstrap/greet.h"
#include "net/net.h"
#include "os/addrs.h"
#include "os/netif.h"

enum {
  TT_RDV_DEVS = 16,       // devices used
  TT_RDV_SOCKS = 64,      // data sockets of a connection
  TT_RDV_THREADS = 16,    // helper threads of a connection
  TT_RDV_GO = 0x6f676e74, // "tngo"
  TT_RDV_ANSWER = 128,    // bytes of the accepting side's answer, at most
  TT_RDV_UNKNOWN_SPEED = 10000,
};

// The connecting side's first message on the control socket: all sockets stand. Until then it may give up and begin
// anew.
typedef struct tt_rdv_go {
  uint32_t magic;
  uint32_t attempt;
  uint32_t twin; // socket network: the attempt whose control socket carries this connection's frames; 0: its own
  uint32_t zero;
} tt_rdv_go;
static_assert(sizeof(tt_rdv_go) == 16, "tt_rdv_go is sent as it is");

// The hello's tag: which socket of which attempt to make a connection.
typedef struct tt_rdv_tag {
  uint8_t index;  // 0: control socket; data socket index - 1
  uint8_t nsocks; // data sockets
  uint16_t zero;
  uint32_t attempt; // random; differs between attempts
} tt_rdv_tag;
static_assert(sizeof(tt_rdv_tag) == sizeof(uint64_t), "it travels in hello.tag");

// Where a listener is: the bytes of net.h's handle.
typedef struct tt_rdv_handle {
  uint32_t magic; // of the network
  int32_t rank;
  uint64_t cookie;                // names the listener
  uint8_t nsocks, nthreads;       // what the listener would like
  uint8_t more;                   // addresses that are not among these
  uint8_t addrs[TT_ADDRS_PACKED]; // its interface's first
  uint8_t zero[17];
} tt_rdv_handle;
static_assert(sizeof(tt_rdv_handle) == TT_NET_HANDLE, "a handle is sent as it is");

typedef struct tt_rdv_dev {
  char name[64];
  char *pci_path; // or NULL
  unsigned index; // the kernel's number of the interface; 0: it is none
  tt_addrs addrs; // where it listens; port 0; its own first, then others of the machine
  int speed;      // Mbit/s
  int nthreads, nsocks;
} tt_rdv_dev;

typedef struct tt_rdv_listener tt_rdv_listener;
typedef struct tt_rdv_call tt_rdv_call;

// The part that both networks' contexts begin with.
typedef struct tt_rdv {
  const char *network; // its name in messages
  uint32_t magic;      // of its handles
  tt_net_env env;
  unsigned timeout_s;
  int events;           // set of descriptors to sleep on; -1: none
  int ring;             // in `events`: rung when something has happened that no descriptor shows
  pthread_mutex_t lock; // over the changes of the lists, the socket network's connections among them
  tt_rdv_listener *listeners;
  tt_rdv_call *calls;
  int ndevs;
  tt_rdv_dev devs[TT_RDV_DEVS];
} tt_rdv;

// The sockets of a connection: control socket, then nsocks data sockets.
typedef struct tt_rdv_ends {
  bool send;
  int peer, dev;
  int nsocks;
  uint32_t wire; // the attempt that made the control socket
  uint32_t twin; // as in tt_rdv_go
  tt_addr at;    // the peer's
  int fds[1 + TT_RDV_SOCKS];
} tt_rdv_ends;

// A connection that is being made.
struct tt_rdv_call {
  tt_rdv *net;
  tt_rdv_call *next;
  uint64_t cookie; // which listener; finds the call again
  tt_addrs to;
  uint64_t deadline_ns;
  uint64_t ready_ns; // when all dials were done; 0: they are not
  int open;          // dials that are not done
  tt_dial *dials[1 + TT_RDV_SOCKS];
  tt_rdv_ends ends;
  bool said; // tt_rdv_say_go
  size_t heard;
  char answer[TT_RDV_ANSWER]; // its first `heard` bytes
};

// Removes `item` from the singly linked list at `head`, if it is there.
#define TT_RDV_UNLINK(head, item)                            \
  do {                                                       \
    __typeof__(item) *at_ = (head);                          \
    while (*at_ != NULL && *at_ != (item)) {                 \
      at_ = &(*at_)->next;                                   \
    }                                                        \
    if (*at_ != NULL) {                                      \
      __atomic_store_n(at_, (item)->next, __ATOMIC_RELEASE); \
    }                                                        \
  } while (0)

// ---- device.c
// Prepares a zeroed context whose `network` and `magic` are set.
void tt_rdv_init(tt_rdv *net, const tt_net_env *env);
// Opens the set of events with the ring in it. Errors: ncclSystemError.
ncclResult_t tt_rdv_open_events(tt_rdv *net);
// Frees what the devices hold, the descriptors and the lock. Listeners and calls are closed first: tt_rdv_end_all.
void tt_rdv_fini(tt_rdv *net);
// Says at INFO which devices there are, with `what` behind the list.
void tt_rdv_log_devices(const tt_rdv *net, const char *what);
// Reads what sysfs (below `root`, normally /sys/class/net) says about the interface `name`, and chooses threads and
// sockets. The addresses stay empty.
void tt_rdv_dev_open(tt_rdv_dev *dev, const char *root, const char *name);
void tt_rdv_dev_close(tt_rdv_dev *dev);
// Threads and sockets from what the user wants (-2: nothing) and the adapter's vendor ("0x1d0f"; "" or NULL: unknown).
// Pure but for warnings.
void tt_rdv_dev_sockets(int64_t want_threads, int64_t want_per_thread, const char *vendor, int *nthreads, int *nsocks);
// Copy of the path without links; NULL: there is nothing there. Free with tt_free.
char *tt_rdv_real_path(const char *path);
// Errors: ncclInvalidUsage (no such device).
ncclResult_t tt_rdv_check_device(const tt_rdv *net, int dev);
// The rows of tt_net_ops of these names, with the same arguments, threads and errors.
ncclResult_t tt_rdv_devices(void *ctx, int *count);
ncclResult_t tt_rdv_properties(void *ctx, int dev, tt_net_props *props);
int tt_rdv_events_fd(void *ctx);

// ---- listen.c
// As above.
ncclResult_t tt_rdv_listen(void *ctx, int dev, void *handle, void **listen_comm);
ncclResult_t tt_rdv_close_listen(void *listen_comm);
// The context that the listener belongs to.
tt_rdv *tt_rdv_listener_net(const tt_rdv_listener *l);
// Goes on to gather. NULL, or a connection's sockets, for which the other end has said "go": the caller takes or closes
// them, by tt_rdv_taken.
tt_rdv_ends *tt_rdv_accept(tt_rdv_listener *l);
// The sockets that tt_rdv_accept gave are the caller's (`kept`), or are closed. The listener gathers anew.
void tt_rdv_taken(tt_rdv_listener *l, bool kept);
// True when `peer` is in the middle of connecting to one of this context's listeners.
bool tt_rdv_peer_comes(const tt_rdv *net, int peer);

// ---- connect.c

// Begins a connection, or goes on with it. *out NULL: not all of its sockets stand. Errors: a wrong handle or device,
// no memory, what the dials say; the call is gone then.
ncclResult_t tt_rdv_connect(tt_rdv *net, int dev, const void *handle, tt_rdv_call **out);
// Says on the control socket that everything stands, and `twin`. 0, or -errno. Once.
int tt_rdv_say_go(tt_rdv_call *call, uint32_t twin);
// Receives the accepting side's answer on the control socket. 1: all `size` bytes are there; 0: not yet; or -errno.
int tt_rdv_answer(tt_rdv_call *call, size_t size);
// The call has failed with -errno, and goes. Returns the error.
ncclResult_t tt_rdv_call_fail(tt_rdv_call *call, int e);
// Gives up a connection that is being made, or, with its sockets taken (-1), frees what is done.
void tt_rdv_call_destroy(tt_rdv_call *call);
// The row of tt_net_ops.
void tt_rdv_cancel(void *ctx, int dev, const void *handle);
// Ends all calls and listeners.
void tt_rdv_end_all(tt_rdv *net);
// In a forked child: closes the descriptors of listeners and calls, and the ring and the set of events if they are
// open.
void tt_rdv_forget(tt_rdv *net);

// ---- handle.c
// NULL, or what is wrong with a handle of a network with this magic. Pure.
const char *tt_rdv_handle_check(const tt_rdv_handle *h, uint32_t magic, int nranks);
// The handle of a listener at `at`. Pure.
void tt_rdv_handle_write(tt_rdv_handle *h, const tt_rdv *net, const tt_addrs *at, uint64_t cookie,
                         const tt_rdv_dev *dev);
// Where to connect to, seen from the interface `from`, for a handle that has passed the check. Pure.
void tt_rdv_handle_addrs(const tt_rdv_handle *h, const tt_rdv_dev *from, tt_addrs *out);
