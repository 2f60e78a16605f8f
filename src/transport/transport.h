// transport.h: how two ranks are connected. One row per way; the first row that can connect a pair does.
//
// A transport fills in a tt_link: FIFOs in both directions, the peer's page, and what access to the peer's memory there
// is. Connecting is local: it never waits for the peer, because the memory that both sides use starts zeroed and zero
// is a valid empty FIFO. The network transport too gives the link FIFOs in local memory at once, and the proxy moves
// messages through them when its connection stands.
#pragma once
#include "device/device.h"
#include "proxy/proxy.h"
#include "transport/segment.h"

// What a transport must know of a rank. Part of a bootstrap message: fixed layout, without gaps.
typedef struct tt_endpoint {
  int32_t rank, device;
  uint64_t host; // same value: same machine, as NCCL_HOSTID has it
  tt_proc_id proc;
  uint32_t p2p_disable, shm_disable; // NCCL_P2P_DISABLE (or NCCL_P2P_LEVEL), NCCL_SHM_DISABLE: the same on all ranks
} tt_endpoint;
_Static_assert(sizeof(tt_endpoint) == 48, "bootstrap message layout");

// What transports need to connect one rank's links.
typedef struct tt_wiring {
  int rank, nranks;
  tt_endpoint *ranks;   // by rank; the communicator's
  tt_segment *segment;  // memory shared by the ranks on this machine; NULL when this rank is alone on it
  bool can_copy;        // process_vm_readv works between the processes of this communicator
  tt_geometry geometry; // of the windows
  tt_proxy *proxy;      // NULL: every pair has memory in common
  tt_port *port;
} tt_wiring;

typedef struct tt_transport {
  const char *name;
  // Can it connect these two? The same answer on both sides. Calling thread: init. May not be NULL.
  bool (*can_connect)(const tt_wiring *w, const tt_endpoint *me, const tt_endpoint *peer);
  // Fills link->send, recv, page, access (link->peer, rank and proc are set). Errors: ncclSystemError. Launching
  // thread. May not be NULL.
  ncclResult_t (*connect)(const tt_wiring *w, tt_link *link);
  // Frees what connect acquired. May be NULL.
  void (*disconnect)(tt_link *link);
} tt_transport;

extern const tt_transport tt_transport_self, tt_transport_p2p, tt_transport_shm, tt_transport_net;

// What of the FIFOs of a link over the network, to the peer (`send`) or from it, holds nothing but messages: all behind
// its first page. Empty FIFOs need no more than that page to go on from where they are. *size: in bytes. NULL where a
// neighbour's proxy sends from memory that both have. Any thread.
void *tt_net_messages(const tt_link *link, bool send, size_t *size);

// Does NCCL_P2P_LEVEL (a word, or one of the old numbers) allow direct access over distance SYS, at which all host
// devices are from each other? Anything else does. Pure.
bool tt_transport_level_allows(const char *text);
// Has the user forbidden direct access between ranks of one process (NCCL_P2P_DISABLE, or NCCL_P2P_LEVEL)? Compared at
// init.
bool tt_transport_p2p_off(void);
// Sorts ranks by what memory they can share, of their host or their process: 0 for two that need no network. All ranks
// agree about NCCL_SHM_DISABLE and NCCL_P2P_DISABLE. Pure.
int tt_transport_order(const tt_endpoint *a, const tt_endpoint *b);
// Must these two use the network? Asked before there are segments and proxies, and the same on all ranks.
bool tt_transport_needs_net(const tt_endpoint *a, const tt_endpoint *b);

// The transport for a pair, or NULL: there is none.
const tt_transport *tt_transport_find(const tt_wiring *w, int peer);

// Makes the link to `peer` if it is not there yet: port->links[peer]. Errors: ncclSystemError, and ncclInvalidUsage
// when no transport can connect the two (says which switches are set).
ncclResult_t tt_transport_connect(const tt_wiring *w, int peer);

// Undoes all links of the port.
void tt_transport_disconnect(const tt_wiring *w);
