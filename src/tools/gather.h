// gather.h: what a machine has, and a capture of it: for the explorer and tests.
#pragma once
#include "topo/nvml.h"
#include "topo/source.h"

typedef struct tt_source_port {
  char name[64], pci_path[TT_TREE_PATH];
  int speed; // Mbit/s, 0: not known
  int port;
} tt_source_port;

// Network ports that the root shows: InfiniBand's if there are any, else those of /sys/class/net that are devices. At
// most `max`; *count says how many. Errors: no memory.
ncclResult_t tt_source_ports(const tt_tree *tree, tt_source_port *out, int max, int *count);

// Bus ids of the GPUs: NVML's, or those of a capture, or else none. At most TT_NVML_MAX_GPUS; *count says how many.
// Errors: no memory.
ncclResult_t tt_source_gpus(const tt_sysfs *machine, char (*bus_ids)[16], int *count);

// ---- Captures ----

// Writes what the tree (and NVML, if it is given) says of the machine as one text that tt_capture_parse reads: PCI,
// NUMA nodes, kind of CPU, network ports, GPUs. Nothing that names the machine or its owner: no host name, addresses,
// serial numbers. *text ends with a 0 that *size does not count; free it with tt_free. Errors: no memory, more than
// TT_CAPTURE_BYTES bytes.
ncclResult_t tt_gather(const tt_sysfs *machine, char **text, size_t *size);
