// nccl/tuner.h: tuner plugins of all versions, and the newest under plain names. A tuner chooses algorithm, protocol,
// channels and chunks of collectives.
//
// Order of calls:
//   init                       once per communicator, at the end of its creation, in the thread that creates it.
//                              Several communicators may be created at once, in several threads.
//   getCollInfo, getChunkSize  for each broadcast, reduce, all-gather, reduce-scatter and all-reduce of two ranks and
//                              more, in the thread that launches. Calls with one context never overlap.
//   finalize or destroy        when the communicator ends, in any thread.
// Every rank calls its own instance, and all instances must return the same: a plugin decides from its arguments and
// from files, which are the same on all ranks. If results differ, the operation fails with ncclInvalidUsage and the
// text names the tuner. Nothing may block: an operation does not start before the plugin has returned.
#ifndef NCCL_TUNER_H_
#define NCCL_TUNER_H_

#include <stdint.h>
#include <stdlib.h>

#include "common.h"
#include "tuner_v2.h"
#include "tuner_v3.h"
#include "tuner_v4.h"
#include "tuner_v5.h"
#include "tuner_v6.h"

typedef ncclTuner_v6_t ncclTuner_t;
typedef ncclTunerConstants_v5_t ncclTunerConstants_t;
typedef ncclNvlDomainInfo_v6_t ncclNvlDomainInfo_t;

// Name of the table to export.
#define NCCL_TUNER_PLUGIN_SYMBOL "ncclTunerPlugin_v6"

// Rows of the table of costs.
#define NCCL_ALGO_UNDEF -1
#define NCCL_ALGO_TREE 0
#define NCCL_ALGO_RING 1
#define NCCL_ALGO_COLLNET_DIRECT 2
#define NCCL_ALGO_COLLNET_CHAIN 3
#define NCCL_ALGO_NVLS 4
#define NCCL_ALGO_NVLS_TREE 5
#define NCCL_ALGO_PAT 6
#define NCCL_NUM_ALGORITHMS NCCL_NUM_ALGORITHMS_V5

// Its columns.
#define NCCL_PROTO_UNDEF -1
#define NCCL_PROTO_LL 0
#define NCCL_PROTO_LL128 1
#define NCCL_PROTO_SIMPLE 2
#define NCCL_NUM_PROTOCOLS NCCL_NUM_PROTOCOLS_V5

// The cost of what cannot be had.
#define NCCL_ALGO_PROTO_IGNORE -1.0

// Indices of the constants' tables.
#define NCCL_HW_NVLINK 0
#define NCCL_HW_PCI 1
#define NCCL_HW_NET 2
#define NCCL_NUM_HW_LINKS NCCL_NUM_HW_LINKS_V5

#define NCCL_VOLTA_COMPCAP_IDX 0
#define NCCL_AMPERE_COMPCAP_IDX 1
#define NCCL_HOPPER_COMPCAP_IDX 2
#define NCCL_BLACKWELL_COMPCAP_IDX 3
#define NCCL_NUM_COMPCAPS NCCL_NUM_COMPCAPS_V5

#define NCCL_TUNING_SCALE_1NODE 0
#define NCCL_TUNING_SCALE_2NODES 1
#define NCCL_TUNING_SCALE_4NODES 2
#define NCCL_NUM_TUNING_SCALES NCCL_NUM_TUNING_SCALES_V5

// Tutti: algorithms that NCCL has no number for. A plugin that exports `tuttiTunerRows` (an int, at least
// TUTTI_NUM_ALGORITHMS) is given a table with these rows too (numAlgo says how many there are); every other plugin gets
// NCCL's seven. NCCL takes no notice of the symbol. Direct access knows no protocol: its costs stand under
// NCCL_PROTO_SIMPLE.
#define TUTTI_ALGO_RD 7            // recursive doubling
#define TUTTI_ALGO_ONESHOT 8       // everybody to everybody
#define TUTTI_ALGO_DIRECT 9        // reads the peers' buffers
#define TUTTI_ALGO_DIRECT_WRITE 10 // also writes them
#define TUTTI_ALGO_HIER_RING 11    // rings between nodes, everybody to everybody inside
#define TUTTI_ALGO_HIER_RD 12      // a leader per node, recursive doubling between leaders
#define TUTTI_NUM_ALGORITHMS 13
#define TUTTI_TUNER_ROWS_SYMBOL "tuttiTunerRows"

#endif
