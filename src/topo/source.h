// source.h: one rank's view of its machine, as a document: what a file says of it, what /sys and NVML say, its cards,
// and where ranks sit.
//
//     tt_tree_open("/") → tt_source_detect → (all ranks' views: tt_topo_fuse) → tt_topo_build
#pragma once
#include "topo/sysfs.h"

// Where a machine's hypervisor may leave a description of it.
#define TT_SOURCE_DEFAULT_FILE "/var/run/nvidia-topologyd/virtualTopology.xml"

// A rank's place.
typedef struct tt_source_rank {
  const char *bus_id; // of its GPU; NULL: it sits on the host device
  int rank;
  int dev;  // host device: its number. In a document with a <gpu dev="…"> of that number, the rank takes that place
  int numa; // host device: NUMA node that it runs on, -1: not known
  int sm;   // GPU: compute capability × 10 and `dev`, for where neither the file nor NVML knows it; 0: not known
  int gdr;  // network cards can reach its memory
} tt_source_rank;

enum { TT_SOURCE_PARTS = 8 }; // of a port that is made of several

// A port of the network, as the network layer knows it; its number is its place in the list. It becomes <net name dev
// latency speed port rail plane guid maxconn gdr coll parts>: NCCL 2.30's order, without its net="1", and with the
// latency's fraction as before 2.30; parts is ours.
typedef struct tt_source_net {
  const char *name;
  const char *pci_path; // in /sys; NULL or not of a PCI device: the port is virtual and hangs on the first CPU
  int speed;            // Mbit/s
  int port, maxconn, gdr, coll;
  int rail, plane; // -1: none
  float latency;   // microseconds
  uint64_t guid;
  int nparts;                    // 2 and more: it is made of several
  const char *const *part_paths; // theirs, as pci_path
  const char *parts;             // their names, "mlx5_0,mlx5_1"
} tt_source_net;

typedef struct tt_source {
  tt_sysfs machine;
  const char *file; // NCCL_TOPO_FILE; NULL: TT_SOURCE_DEFAULT_FILE below the root, if it is there
  const tt_source_rank *ranks;
  int nranks; // those that this view has, mostly one
  const tt_source_net *nets;
  int nnets;
  bool file_nets; // keep the ports that the file numbers (`dev`): the machine is another one than this
} tt_source;

// Makes the document. A file may be a part of a machine (PCI switches without GPUs and cards): what is detected is
// joined to it, and what then leads to no rank and no port goes. A host rank without a place in the file gets an
// element of its own: see TT_SOURCE_HOST_CLASS. Errors: the file (named, with its line), a malformed bus id, a GPU that
// is none, a rank or name that is there twice.
ncclResult_t tt_source_detect(const tt_source *in, tt_xml **out);

// A host rank is a <gpu dev rank sm="0" gdr="0"> in a <pci> of this class on its NUMA node's CPU. The bus id is in
// TT_TOPO_HOST_DOMAIN and made from its number. Ranks of one NUMA node meet at their CPU (PHB), others cross between
// CPUs (SYS), as through shared memory.
#define TT_SOURCE_HOST_CLASS "0x0b4000" // a processor beside the processor
enum { TT_SOURCE_HOST_DEVICES = 65536 };

// Removes from a document what leads to no element with keep="1": <pci>, <cpu>, <nic>, <net>. The attribute itself goes
// too.
void tt_source_trim(tt_xml *xml);
