// ranks.h: what all ranks know of each other, and what follows: which ranks share memory, how many share cores, which
// belong to a group. n log n for n ranks. Any thread.
#pragma once
#include "coll/crossing.h"
#include "coll/layout.h"
#include "figures/figures.h"
#include "os/fdbox.h"
#include "transport/transport.h"

// What every rank tells all others at init. Travels over the bootstrap network: fixed layout.
#define TT_PEER_BYTES 584
#define TT_DELAY_NAMED ((uint64_t)1 << 63)
enum { TT_PEER_SETTINGS = 12 };
typedef struct tt_peer {
  tt_endpoint at;
  uint64_t machine; // same value: the same cores
  tt_device_id where;
  uint64_t net_space; // names the network namespace, in which mailboxes are found (tt_proc_net_space)
  uint64_t pid_space; // names what process ids are numbers of (tt_proc_pid_space)
  uint64_t probe;     // where others try to reach its memory (tt_device_ops)
  tt_core_set cores;  // that the process may use
  int32_t cpus;       // how many they are; once all ranks are known: how many the ranks of its machine have together
  int32_t version;    // NCCL_VERSION_CODE
  // Parameters on which all ranks must agree, because algorithms and connections are chosen from them.
  uint64_t algo, proto;               // hashes of NCCL_ALGO and NCCL_PROTO
  int64_t reproducible;               // TUTTI_REPRODUCIBLE
  int64_t direct_threshold;           // NCCL_HOST_DIRECT_THRESHOLD
  int64_t net_chunk;                  // NCCL_P2P_NET_CHUNKSIZE
  uint64_t net_delay;                 // microseconds to the next rank's machine, or TUTTI_NET_DELAY and TT_DELAY_NAMED
  tt_figures figures;                 // rank 0's hold for all
  tt_limits limits;                   // that follow from them, as rank 0 has worked them out; else zeros
  tt_geometry geometry;               // the same
  int32_t job_rank;                   // among all ranks of the job (flight.h)
  uint16_t rma_contexts, rma_signals; // ncclConfig_t.numRmaCtx, numRmaSig: all ranks must agree; 65535: or more
  // What the topology step makes channels from (comm/topology.h).
  uint32_t sees;                       // 0: a plain host, and nothing else is asked for
  int32_t numa;                        // NUMA node, -1: not known
  int32_t nthreads;                    // NCCL_NTHREADS,
  int16_t min_channels, max_channels;  // NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS: all ranks must agree
  int16_t min_ctas, max_ctas;          // rank 0's hold for all
  uint16_t settings[TT_PEER_SETTINGS]; // hashes of variables; those of the node's first rank hold
  uint64_t view;                       // hash of what says what its machine is like
  tt_addr ras;                         // where its process's RAS thread listens; family 0: nowhere
  char mailbox[TT_FDBOX_NAME];
  char host[32]; // name of its machine, as far as there is room; ends with 0
} tt_peer;
_Static_assert(sizeof(tt_peer) == TT_PEER_BYTES &&
                   offsetof(tt_peer, view) == offsetof(tt_peer, settings) + 2 * TT_PEER_SETTINGS,
               "bootstrap message layout, without gaps");

// The layout: ranks that need no network between them are one node. The caller destroys *out. Errors: ncclSystemError.
ncclResult_t tt_ranks_layout(const tt_peer *peers, int n, tt_layout **out);

// Each rank's cores become those that the ranks of its machine have together: processes that are bound to a core each
// have as many as they are. Fake nodes (NCCL_HOSTID) are one machine. *mine: ranks on the machine of rank `me`;
// *crowded: some machine has more ranks than cores. Errors: ncclSystemError.
ncclResult_t tt_ranks_pool_cores(tt_peer *peers, int n, int me, int *mine, bool *crowded);

// Ranks of one process: does the device of each reach the memory of all others'?
bool tt_ranks_join(const tt_peer *peers, int n, const tt_device_ops *row);

static inline bool tt_peers_share_process(const tt_peer *a, const tt_peer *b)
{
  return a->at.host == b->at.host && a->at.proc.pid == b->at.proc.pid && a->at.proc.cookie == b->at.proc.cookie;
}

// Can the port's rank read and write the memory of others? Tried on all of its machine where devices differ in that
// (tt_device_ops.pairs), else on the next one of another process, or itself. `all_local`: all ranks are in one process,
// and join. Waits as tt_device_ops.reaches.
bool tt_ranks_reach(const tt_peer *peers, const tt_layout *layout, tt_port *port, bool all_local);

// Is some of these ranks on a GPU?
bool tt_ranks_any_gpu(const tt_peer *peers, int n);
// Can the port's rank write the memory of those of its machine that are on the host, in other processes? Tried on all.
bool tt_ranks_write(const tt_peer *peers, const tt_layout *layout, tt_port *port);

// From which size on results bypass the caches: two ranks read and write four times as much, then half of the
// last-level cache.
size_t tt_ranks_stream_bytes(void);

// What ranks tell each other when they split a communicator.
typedef struct tt_split_choice {
  int32_t color, key, rank;
} tt_split_choice;
_Static_assert(sizeof(tt_split_choice) == 12, "bootstrap message layout");

// Writes the group of rank `me` into `members`, which has room for all, by key, then by rank. `all` is by rank, and is
// in disorder afterwards. Returns how many there are; *place: which of them `me` is.
int tt_ranks_members(tt_split_choice *all, int n, int me, int *members, int *place);
