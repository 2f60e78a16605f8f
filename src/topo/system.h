// system.h: the model of a machine: nodes, and links with bandwidth. Built from a document (xml.h).
//
// A tt_topo is one allocation of plain arrays: nodes sorted by kind, each node's links side by side. Everything is an
// index; a copy is a memcpy and nothing in it changes after it was built, so any thread may read it. Bandwidths are
// GB/s in one direction, as NCCL's figures. docs/topology.md has the format that it comes from.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/result.h"
#include "topo/xml.h"

// The kinds of nodes, in the order of tt_topo.nodes. The first four are where paths begin and end.
typedef enum {
  TT_NODE_GPU, // where one rank sits. Several ranks on one GPU: the first has the GPU's links, the others hang on it by
               // a LOC link
  TT_NODE_NET, // a port of the network, as its plugin counts them
  TT_NODE_CPU, // a NUMA node
  TT_NODE_NVS, // all NVSwitches of an NVLink domain, as one
  TT_NODE_PCI, // PCI switch
  TT_NODE_NIC, // the card that NETs hang on
  TT_NODE_DEV, // a GPU whose rank is in another group (tt_topo_group): its links are there, but no rank of this group
  TT_NODE_KINDS,
} tt_node_kind;
#define TT_NODE_ENDS TT_NODE_PCI // kinds below are ends of paths

// How far apart two nodes are, in the order of preference; NCCL 2.30's names and numbers. Links use LOC, NVL, C2C, PCI,
// SYS and NET.
typedef enum {
  TT_PATH_LOC, // the same place
  TT_PATH_NVL, // NVLink, through an NVSwitch or not
  TT_PATH_NVB, // NVLink through another GPU
  TT_PATH_C2C, // the link between a GPU and the CPU in one package
  TT_PATH_PIX, // at most one PCI switch
  TT_PATH_PXB, // several PCI switches
  TT_PATH_P2C, // GPU to network card over C2C and the CPU's PCI
  TT_PATH_PXN, // GPU to network card through another GPU that is near the card
  TT_PATH_PHB, // through the CPU
  TT_PATH_SYS, // between CPUs
  TT_PATH_NET, // over the network only
  TT_PATH_DIS, // not at all
  TT_PATH_TYPES,
} tt_path_type;
#define TT_LINK_PCI TT_PATH_PIX // what a link of that type is called

#define TT_TOPO_HOST_DOMAIN 0xfffe // domain of the bus ids that ranks in host memory get

#define TT_BW_LOC 5000.0f // of what is the same place

typedef enum { TT_CPU_UNKNOWN, TT_CPU_X86, TT_CPU_ARM, TT_CPU_POWER } tt_cpu_arch;
typedef enum { TT_CPU_OTHER, TT_CPU_INTEL, TT_CPU_AMD, TT_CPU_ZHAOXIN } tt_cpu_vendor;
// Generations that differ in the link between sockets.
typedef enum { TT_CPU_PLAIN, TT_CPU_SKYLAKE, TT_CPU_SAPPHIRE, TT_CPU_EMERALD, TT_CPU_YONGFENG } tt_cpu_model;

typedef struct tt_topo_link {
  int16_t type;     // tt_path_type
  int32_t from, to; // nodes
  int32_t back;     // the link of the same type from `to` to `from`
  float bw;         // GB/s
} tt_topo_link;

typedef struct tt_topo_node {
  int kind; // tt_node_kind
  int host; // index into tt_topo.hosts
  // GPU, DEV, PCI, NIC: bus id as a number (NIC without one: negative); NET: dev; CPU: NUMA node; NVS: 0. Unique within
  // kind and host, but for GPUs that share, and for switches in documents that use a bus id twice.
  int64_t id;
  int line;               // of the element it comes from, 0: none
  int first_link, nlinks; // widest first; the way up to the CPU last
  union {
    struct {
      int rank, dev; // in a DEV: the rank that is in another group
      int sm;        // compute capability × 10, of the form 80; 0 for AMD
      int gcn;       // AMD: 0x942 for gfx942; 0 otherwise
      int gdr;       // the network card can reach its memory
      int device;    // node that has this GPU's links: itself, or the one it shares with
    } gpu;           // and DEV
    struct {
      int dev, port, gdr, coll, maxconn, rail, plane; // rail and plane are -1 when not given
      float latency;                                  // microseconds
      float bw;                                       // GB/s of the port
      uint64_t guid;
      uint64_t card; // the same for ports of one PCI device
    } net;
    struct {
      int arch, vendor, model; // tt_cpu_…
    } cpu;
    struct {
      uint64_t device; // vendor, device, subsystem vendor, subsystem device: 16 bits each
    } pci;
  };
} tt_topo_node;

typedef struct tt_topo {
  int nnodes, nlinks, nhosts;
  int first[TT_NODE_KINDS + 1]; // nodes of kind k: first[k] … first[k + 1] - 1
  tt_topo_node *nodes;
  tt_topo_link *links;
  uint64_t *hosts; // host hashes, in the order of the document
  size_t bytes;    // of the whole allocation
} tt_topo;

// Do an element and all above it stand where the model looks for them: <cpu> in <system>, <pci> in <cpu> or <pci>,
// <nic> in <pci> or <cpu>, <gpu> in <pci>, <net> in <nic>? Others are skipped, with all that is in them.
bool tt_topo_in_place(const tt_xml_node *x);

// What tt_topo_build says beside errors: something in the document that is odd but not wrong (an unknown element, a
// link that only one side has). `text` begins with "FILE:LINE: " and is valid during the call.
typedef void tt_topo_note_fn(void *arg, const tt_xml_node *at, const char *text);

// Builds the model of a <system> document, version 1 or AMD's version 2. GPUs without a rank and NETs without a dev are
// left out, and PCI switches, cards and CPUs that lead to nothing. `note` may be NULL: then notes are INFO lines. Free
// *out with tt_topo_destroy. Errors name file and line: a missing or absurd value, a bus id or rank that is there
// twice, a link to nowhere.
ncclResult_t tt_topo_build(const tt_xml *xml, tt_topo_note_fn *note, void *arg, tt_topo **out);

// Frees the system. NULL is allowed.
void tt_topo_destroy(tt_topo *topo);

// Checks what must hold: links lead somewhere and back, have bandwidth, each once; ids unique; ranks unique; GPUs that
// share hang on their device; a GPU reaches a CPU. Runs at the end of tt_topo_build and tt_topo_group, and by itself in
// tests.
ncclResult_t tt_topo_check(const tt_topo *topo);

// The machine as one group of ranks sees it: GPUs of other ranks become DEV. in_group[r] says whether rank r is in it,
// for r below nranks.
ncclResult_t tt_topo_group(const tt_topo *topo, const bool *in_group, int nranks, tt_topo **out);

// Is it the place of a rank in host memory, not a GPU?
bool tt_topo_host_rank(const tt_topo_node *node);

// Number of nodes of a kind.
static inline int tt_topo_count(const tt_topo *topo, int kind)
{
  return topo->first[kind + 1] - topo->first[kind];
}

// Number of nodes where paths begin and end: they are nodes 0 … that number - 1.
static inline int tt_topo_ends(const tt_topo *topo)
{
  return topo->first[TT_NODE_ENDS];
}

// Node of a rank; -1 when it is not here.
int tt_topo_rank_node(const tt_topo *topo, int rank);

// Number of GPUs that exist, however many ranks share one, DEVs included.
int tt_topo_devices(const tt_topo *topo);

// "GPU", "NET", … and "LOC", "NVL", …; "PCI" is a link's PIX. For messages and files.
const char *tt_node_kind_name(int kind);
const char *tt_path_type_name(int type);
const char *tt_link_type_name(int type);

// Type of that name, -1 when there is none.
int tt_path_type_of(const char *name);

// "GPU3" ("RANK3" in host memory), "NET0", "CPU/1" ("CPU" where the NUMA node is unknown), "PCI/1100", in a buffer of
// `size` bytes. ".h1" stands behind where there are several hosts. Returns buf.
const char *tt_node_name(const tt_topo *topo, int node, char *buf, size_t size);

// A bus id such as "0000:0f:00.0" as a number, the digits side by side. False when it is none.
bool tt_bus_id(const char *text, int64_t *out);

// ---- Pure rules of bandwidth: GB/s in one direction ----

// One NVLink of a GPU of that compute capability.
float tt_bw_nvlink(int sm);
// One xGMI link of an AMD GPU (0x90a, 0x942, …).
float tt_bw_xgmi(int gcn);
// A PCI slot; `speed` as sysfs says it ("16.0 GT/s PCIe"); width 0 counts as 16. False when the speed is unknown: then
// *out is that of 8 GT/s.
bool tt_bw_pci(const char *speed, int width, float *out);
// Between the sockets of such CPUs.
float tt_bw_cpus(int arch, int vendor, int model);

// ---- Documents of systems ----

// Adds what `from` says about the machine to `into`: several ranks' views of a node, or the nodes of one NVLink domain,
// become one. Elements are the same when their keys are (cpu: host_hash and numaid; pci: busid; gpu: dev and rank; net:
// name; nvlink, xgmi, pcilink: target; nic, c2c: the only one); attributes that `into` lacks are added. Where both
// differ, `into` wins and an INFO line says so.
ncclResult_t tt_topo_fuse(tt_xml *into, const tt_xml *from);

// Gives every <cpu> of the document this host hash.
ncclResult_t tt_topo_set_host(tt_xml *xml, uint64_t hash);
