// transport.h: how two ranks are connected. One row per way; the first row that can connect a pair does.
//
// A transport fills in a tt_link: FIFOs in both directions, the peer's page, and what access to the peer's memory there is. Connecting is
// local: it never waits for the peer, because the memory that both sides use starts zeroed and zero is a valid empty FIFO. The network
// transport too gives the link FIFOs in local memory at once, and the proxy moves messages through them when its connection stands.
#pragma once
#include "coll/crossing.h"
#include "device/device.h"
#include "figures/figures.h"
#include "proxy/proxy.h"
#include "transport/segment.h"

// What every rank tells all others at init. Travels over the bootstrap network: fixed layout.
#define TT_PEER_BYTES 472
enum { TT_PEER_SETTINGS = 12 };
typedef struct tt_peer {
  int32_t rank, device;
  uint64_t host;    // same value: same machine, as NCCL_HOSTID has it
  uint64_t machine; // same value: the same cores
  tt_device_id where;
  tt_proc_id proc;
  uint64_t net_space; // names the network namespace, in which mailboxes are found (tt_proc_net_space)
  uint64_t pid_space; // names what process ids are numbers of (tt_proc_pid_space)
  uint64_t probe;     // address of 8 bytes that hold proc.cookie
  tt_core_set cores;  // that the process may use
  int32_t cpus;       // how many they are; once all ranks are known: how many the ranks of its machine have together
  int32_t version;    // NCCL_VERSION_CODE
  // Parameters on which all ranks must agree, because algorithms and connections are chosen from them.
  uint64_t algo, proto;     // hashes of NCCL_ALGO and NCCL_PROTO
  int64_t direct_threshold; // NCCL_HOST_DIRECT_THRESHOLD
  int64_t net_chunk;        // NCCL_P2P_NET_CHUNKSIZE
  tt_figures figures;       // rank 0's hold for all
  tt_limits limits;         // that follow from them, as rank 0 has worked them out; else zeros
  tt_geometry geometry;     // the same
  uint8_t p2p_disable, shm_disable;
  // What the topology step makes channels from (comm/topology.h).
  uint16_t sees;                       // 0: a plain host, and nothing else is asked for
  int32_t numa;                        // NUMA node, -1: not known
  int32_t nthreads;                    // NCCL_NTHREADS,
  int16_t min_channels, max_channels;  // NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS: all ranks must agree
  int16_t min_ctas, max_ctas;          // rank 0's hold for all
  uint16_t settings[TT_PEER_SETTINGS]; // hashes of variables; those of the node's first rank hold
  uint64_t view;                       // hash of what says what its machine is like
  char mailbox[TT_FDBOX_NAME];
} tt_peer;
_Static_assert(sizeof(tt_peer) == TT_PEER_BYTES && offsetof(tt_peer, view) == offsetof(tt_peer, settings) + 2 * TT_PEER_SETTINGS,
               "bootstrap message layout, without gaps");

// What transports need to connect one rank's links.
typedef struct tt_wiring {
  int rank, nranks;
  const tt_peer *peers; // by rank
  tt_segment *segment;  // memory shared by the ranks on this machine; NULL when this rank is alone on it
  bool can_copy;        // process_vm_readv works between the processes of this communicator
  tt_geometry geometry; // of the windows
  tt_proxy *proxy;      // NULL: every pair has memory in common
  tt_port *port;
} tt_wiring;

typedef struct tt_transport {
  const char *name;
  // Can it connect these two? The same answer on both sides. Calling thread: init. May not be NULL.
  bool (*can_connect)(const tt_wiring *w, const tt_peer *me, const tt_peer *peer);
  // Fills link->send, recv, page, access (link->peer, rank and proc are set). Errors: ncclSystemError. Launching thread. May not be NULL.
  ncclResult_t (*connect)(const tt_wiring *w, tt_link *link);
  // Frees what connect acquired. May be NULL.
  void (*disconnect)(tt_link *link);
} tt_transport;

extern const tt_transport tt_transport_self, tt_transport_p2p, tt_transport_shm, tt_transport_net;

// Does NCCL_P2P_LEVEL (a word, or one of the old numbers) allow direct access over distance SYS, at which all host devices are from each other?
// Anything else does. Pure.
bool tt_transport_level_allows(const char *text);
// Has the user forbidden direct access between ranks of one process (NCCL_P2P_DISABLE, or NCCL_P2P_LEVEL)? Compared at init.
bool tt_transport_p2p_off(void);
// Sorts ranks by what memory they can share, of their host or their process: 0 for two that need no network. All ranks agree about NCCL_SHM_DISABLE
// and NCCL_P2P_DISABLE. Pure.
int tt_transport_order(const tt_peer *a, const tt_peer *b);
// Must these two use the network? Asked before there are segments and proxies, and the same on all ranks.
bool tt_transport_needs_net(const tt_peer *a, const tt_peer *b);

// The transport for a pair, or NULL: there is none.
const tt_transport *tt_transport_find(const tt_wiring *w, int peer);

// Makes the link to `peer` if it is not there yet: port->links[peer]. Errors: ncclSystemError, and ncclInvalidUsage when no transport can
// connect the two (says which switches are set).
ncclResult_t tt_transport_connect(const tt_wiring *w, int peer);

// Undoes all links of the port.
void tt_transport_disconnect(const tt_wiring *w);
