// nvml.h: what NVIDIA's management library knows of a GPU: its number, compute capability, NVLinks with their far ends,
// C2C.
//
// The library (TUTTI_NVML, libnvidia-ml.so.1) is opened at run time; a machine without it, or without its driver, is a
// machine whose GPUs show no NVLinks.
// Layouts and numbers are those of NVML's stable interface. All calls go through a table of functions, so that tests
// put another library in its place.
#pragma once
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "base/result.h"
#include "topo/gpu.h"

enum { TT_NVML_MAX_GPUS = 256 };

// ---- The library's own layouts ----

typedef struct tt_nvml_pci { // what nvmlDeviceGetPciInfo_v3 and its like fill: 68 bytes, and room for what may come
  char bus_id[16];           // "0000:0F:00.0"
  uint32_t domain, bus, device;
  uint32_t device_id;    // device << 16 | vendor
  uint32_t subsystem_id; // the same for the subsystem
  char long_bus_id[32];  // "00000000:0F:00.0"
  char room[60];
} tt_nvml_pci;
static_assert(offsetof(tt_nvml_pci, device_id) == 28 && offsetof(tt_nvml_pci, room) == 68, "nvmlPciInfo_t");

typedef struct tt_nvml_field { // nvmlFieldValue_t
  uint32_t field, scope;
  int64_t timestamp, latency;
  int32_t type, result;
  union {
    double d;
    uint32_t u;
    uint64_t ull;
  } value;
} tt_nvml_field;
static_assert(sizeof(tt_nvml_field) == 40 && offsetof(tt_nvml_field, value) == 32, "nvmlFieldValue_t");

// The library's functions; each returns 0 or an error number. Those that older libraries lack may be NULL: the last
// seven.
typedef struct tt_nvml_ops {
  int (*init)(void);
  int (*shutdown)(void);
  int (*count)(unsigned *count);
  int (*by_index)(unsigned index, void **device);
  int (*by_bus)(const char *bus_id, void **device);
  int (*index)(void *device, unsigned *index);
  int (*pci)(void *device, tt_nvml_pci *pci);
  int (*capability)(void *device, int *major, int *minor);
  const char *(*text)(int error);
  int (*link_can)(void *device, unsigned link, int what, unsigned *yes); // what 0: peer to peer
  int (*link_state)(void *device, unsigned link, int *active);
  int (*link_remote)(void *device, unsigned link, tt_nvml_pci *pci);
  int (*fields)(void *device, int count, tt_nvml_field *fields);
  int (*max_generation)(void *device, unsigned *generation); // PCI Express
  int (*max_width)(void *device, unsigned *width);
} tt_nvml_ops;

typedef struct tt_nvml tt_nvml;

// Opens the library and initialises it. *out is NULL, with an INFO line that says why, where there is none or it does
// not come up; that is no error. Errors: no memory. `library` NULL: TUTTI_NVML. Free *out with tt_nvml_close. Any
// thread.
ncclResult_t tt_nvml_open(const char *library, tt_nvml **out);

// The same with functions that the caller has.
ncclResult_t tt_nvml_open_ops(const tt_nvml_ops *ops, tt_nvml **out);

// The process's NVML (TUTTI_NVML). The first call opens it; it is never closed. NULL: there is none. Any thread.
const tt_nvml *tt_nvml_get(void);

// Ends the use of the library. NULL is allowed.
void tt_nvml_close(tt_nvml *nvml);

// ---- What we want to know ----

// Bus ids of all GPUs, at most TT_NVML_MAX_GPUS; returns how many.
int tt_nvml_list(const tt_nvml *nvml, char (*bus_ids)[16]);

// Everything about the GPU with that bus id. False when the library does not know it (an INFO line says what it said).
bool tt_nvml_gpu_read(const tt_nvml *nvml, const char *bus_id, tt_gpu_facts *out);
