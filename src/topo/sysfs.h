// sysfs.h: elements of a <system> document from what Linux says of the machine, below any root (tree.h).
//
// Attributes and their order are those of NCCL's dumps: <cpu host_hash numaid affinity arch vendor familyid modelid>,
// <pci busid class vendor device subsystem_vendor subsystem_device link_speed link_width>. What is missing or garbage
// below the root is left out or counted as unknown, and an INFO line names the file; never an error. Elements that are
// in the document already (NCCL_TOPO_FILE) are completed: what they say stays. Source: seed 004.
//
// Link speed and width are the lower of device and port, as sysfs has them. What sysfs does not know of GPUs, NVML or a
// capture does (gpu.h).
#pragma once
#include <stdint.h>

#include "topo/tree.h"
#include "topo/xml.h"

typedef struct tt_sysfs tt_sysfs;

// Makes or completes the <gpu> of a device in its <pci> (tt_sysfs_pci). *out is NULL when the device is not known as a
// GPU.
typedef ncclResult_t tt_sysfs_gpu_fn(const tt_sysfs *s, tt_xml *xml, const char *bus_id, tt_xml_node **out);

struct tt_sysfs {
  const tt_tree *tree;
  tt_sysfs_gpu_fn *gpu;       // tt_gpu_element; NULL: ranks know their GPUs by themselves
  const struct tt_nvml *nvml; // for that function
  uint64_t host_hash;         // of the machine, for its CPUs
};

// What a device's <pci> says where the machine does not.
typedef struct tt_sysfs_hints {
  char ids[4][8];    // vendor, device, subsystem vendor, subsystem device: "0x10de"; "": not known
  const char *speed; // "16.0 GT/s PCIe"; NULL: not known
  int width;         // lanes; 0: not known
} tt_sysfs_hints;

// A bus id as sysfs writes it ("0000:0f:00.0") from any spelling ("00000000:0F:00.0"). False when it is none of a
// device.
bool tt_bus_id_sysfs(const char *text, char out[16]);

// The <cpu> of a NUMA node (-1: the machine does not say), made or completed.
ncclResult_t tt_sysfs_cpu(const tt_sysfs *s, tt_xml *xml, int numa, tt_xml_node **out);

// The <cpu> for what is nowhere: the first of the file, else number -1 if there is one, else that of the machine's
// lowest NUMA node. Not the first of the document: that depends on which rank looks, and views would not join.
ncclResult_t tt_sysfs_first_cpu(const tt_sysfs *s, tt_xml *xml, tt_xml_node **out);

// The number of the <cpu> for a process on NUMA node `numa` (-1: not known, the lowest). -1 on a machine of one node
// whose PCI devices do not say where they are: the process and they are beside each other.
ncclResult_t tt_sysfs_home(const tt_sysfs *s, int numa, int *out);

// The <pci> of a device with all switches above it, up to its <cpu>, made or completed. Of each switch the upstream
// port is shown, root ports are not. `class` is what it counts as when the machine does not say ("0x03" a GPU, "0x02" a
// card); `hints` may be NULL. A device that the machine does not show hangs on CPU -1. Errors: a malformed bus id, no
// memory.
ncclResult_t tt_sysfs_pci(const tt_sysfs *s, tt_xml *xml, const char *bus_id, const char *class,
                          const tt_sysfs_hints *hints, tt_xml_node **out);

// The class of a device ("0x030200"). False: the machine does not show it.
bool tt_sysfs_class(const tt_sysfs *s, const char *bus_id, char out[32]);

// Bus id of the PCI device that `path` (in /sys) is. False when it is none: virtual, USB, virtio.
bool tt_sysfs_bus_of(const tt_sysfs *s, const char *path, char out[16]);
