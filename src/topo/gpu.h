// gpu.h: what is known of a GPU besides its place in the tree of PCI: number, compute capability, NVLinks with their
// far ends, C2C; and the elements of a document that follow.
//
//     NVML (nvml.h), or a capture's text → tt_gpu_facts → <gpu> with its <nvlink>s and <c2c>
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "topo/sysfs.h"

// A far end that the machine does not show, as NVML writes it: an NVSwitch outside of a virtual machine.
#define TT_NVML_HIDDEN "fffffff:ffff:ff"

enum {
  TT_GPU_MAX_LINKS = 36,       // NVLinks of one GPU that are looked at
  TT_GPU_MAX_C2C = 64,         // its links to the CPU
  TT_GPU_MAX_C2C_BW = 1000000, // MB/s of one of these: documents may say no more
};

typedef struct tt_gpu_link {
  char target[16]; // bus id of the far end in lower case, or TT_NVML_HIDDEN
  int count;       // links to it
} tt_gpu_link;

typedef struct tt_gpu_facts {
  char bus_id[16];             // as sysfs has it: "0000:0f:00.0"
  int index;                   // in the library's order
  int sm;                      // compute capability × 10
  int device_id, subsystem_id; // device << 16 | vendor; 0: not known
  int generation, width;       // PCI Express, at most; 0: not known
  int nlinks;                  // far ends, in the order of the links
  tt_gpu_link links[TT_GPU_MAX_LINKS];
  int c2c_count, c2c_bw; // links to the CPU that are up, MB/s of each
} tt_gpu_facts;

// Adds `count` links to the far end of that bus id, in any spelling; a text that is none becomes TT_NVML_HIDDEN.
void tt_gpu_facts_add_link(tt_gpu_facts *gpu, const char *target, int count);

// The same facts as a text of at most `size` bytes, one per line, for captures; and back. Unknown lines are ignored;
// numbers that cannot be are refused. False: no room, or not such a text.
bool tt_gpu_facts_print(const tt_gpu_facts *gpu, char *text, size_t size);
bool tt_gpu_facts_parse(const char *text, tt_gpu_facts *out);

// What is known of a GPU, from NVML (s->nvml) or, without it, from the root's /nvml, which captures have. False:
// nothing.
bool tt_gpu_facts_read(const tt_sysfs *s, const char *bus_id, tt_gpu_facts *out);

// For tt_sysfs: the <gpu> of a device with its <nvlink>s and <c2c>, in its <pci>. Where sysfs does not say ids, speed
// and width of the device, NVML does. (NCCL 2.30 prefers NVML, which tells a GPU's present speed: a GPU at rest looks
// slow.)
ncclResult_t tt_gpu_element(const tt_sysfs *s, tt_xml *xml, const char *bus_id, tt_xml_node **out);
