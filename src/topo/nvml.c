// nvml.c: see nvml.h.
#include "topo/nvml.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "base/util.h"
#include "os/library.h"

struct tt_nvml {
  tt_library *library; // NULL: the functions are the caller's
  tt_nvml_ops ops;
};

// Numbers of fields.
enum { FIELD_NVLINK_STATE = 165, FIELD_C2C_COUNT = 170, FIELD_C2C_STATUS = 171, FIELD_C2C_BW = 172 };

enum { VERSION_MISMATCH = 18 };

// ---- Opening ----

#define SLOT(member) offsetof(tt_nvml_ops, member)

// Names of the functions, the preferred one first.
static const struct {
  size_t slot;
  const char *names[2];
  bool needed;
} functions[] = {
    {SLOT(init), {"nvmlInit_v2", "nvmlInit"}, true},
    {SLOT(shutdown), {"nvmlShutdown", NULL}, true},
    {SLOT(count), {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"}, true},
    {SLOT(by_index), {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"}, true},
    {SLOT(by_bus), {"nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByPciBusId"}, true},
    {SLOT(index), {"nvmlDeviceGetIndex", NULL}, true},
    {SLOT(pci), {"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2"}, true},
    {SLOT(capability), {"nvmlDeviceGetCudaComputeCapability", NULL}, true},
    {SLOT(text), {"nvmlErrorString", NULL}, false},
    {SLOT(link_can), {"nvmlDeviceGetNvLinkCapability", NULL}, false},
    {SLOT(link_state), {"nvmlDeviceGetNvLinkState", NULL}, false},
    {SLOT(link_remote), {"nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo"}, false},
    {SLOT(fields), {"nvmlDeviceGetFieldValues", NULL}, false},
    {SLOT(max_generation), {"nvmlDeviceGetMaxPcieLinkGeneration", NULL}, false},
    {SLOT(max_width), {"nvmlDeviceGetMaxPcieLinkWidth", NULL}, false},
};

// Returns the name of a needed function that the library lacks; NULL: all are there.
static const char *find_nvml_functions(tt_library *library, tt_nvml_ops *ops)
{
  for (size_t i = 0; i < TT_COUNT(functions); i++) {
    void *fn = tt_library_symbol(library, functions[i].names[0]);
    if (fn == NULL && functions[i].names[1] != NULL) {
      fn = tt_library_symbol(library, functions[i].names[1]);
    }
    if (fn == NULL && functions[i].needed) {
      return functions[i].names[0];
    }
    memcpy((char *)ops + functions[i].slot, &fn, sizeof(fn));
  }
  return NULL;
}

static const char *text_of(const tt_nvml_ops *ops, int error)
{
  const char *text = ops->text != NULL ? ops->text(error) : NULL;
  return text != NULL ? text : "no text";
}

static ncclResult_t nvml_start(tt_library *library, const tt_nvml_ops *ops, tt_nvml **out)
{
  int error = ops->init();
  if (error == VERSION_MISMATCH) {
    tt_warn("NVML: library and driver have different versions; GPUs and NVLinks are not seen. After an update of the "
            "driver the machine "
            "needs a restart");
  } else if (error != 0) {
    tt_info(TT_GRAPH, "NVML: does not start: error %d (%s); GPUs and NVLinks are not seen", error, text_of(ops, error));
  }
  if (error != 0) {
    return ncclSuccess;
  }
  tt_nvml *n = tt_calloc(1, sizeof(*n));
  if (n == NULL) {
    ops->shutdown();
    return tt_fail(ncclSystemError, "no memory for NVML");
  }
  n->library = library;
  n->ops = *ops;
  *out = n;
  return ncclSuccess;
}

ncclResult_t tt_nvml_open_ops(const tt_nvml_ops *ops, tt_nvml **out)
{
  *out = NULL;
  return nvml_start(NULL, ops, out);
}

ncclResult_t tt_nvml_open(const char *library, tt_nvml **out)
{
  const char *name = library != NULL ? library : tt_params_get()->nvml;
  char why[TT_LIBRARY_WHY];
  tt_library *handle = NULL;
  tt_nvml_ops ops = {0};
  *out = NULL;
  tt_library_state opened = tt_library_open(name, &handle, why);
  if (opened != TT_LIBRARY_OPEN) {
    tt_info(TT_GRAPH, "NVML: %s; GPUs and NVLinks are not seen",
            opened == TT_LIBRARY_ABSENT ? "the dynamic linker does not find the library" : why);
    return ncclSuccess;
  }
  const char *missing = find_nvml_functions(handle, &ops);
  ncclResult_t res = ncclSuccess;
  if (missing != NULL) {
    tt_info(TT_GRAPH, "NVML: %s has no %s; GPUs and NVLinks are not seen", name, missing);
  } else {
    res = nvml_start(handle, &ops, out);
  }
  if (*out == NULL) {
    tt_library_close(handle);
  }
  return res;
}

// One process has one NVML.
static struct {
  pthread_once_t once;
  tt_nvml *nvml;
} our_nvml = {.once = PTHREAD_ONCE_INIT};

static void open_our_nvml(void)
{
  if (tt_nvml_open(NULL, &our_nvml.nvml) != ncclSuccess) {
    our_nvml.nvml = NULL;
  }
}

const tt_nvml *tt_nvml_get(void)
{
  pthread_once(&our_nvml.once, open_our_nvml);
  return our_nvml.nvml;
}

void tt_nvml_close(tt_nvml *nvml)
{
  if (nvml == NULL) {
    return;
  }
  nvml->ops.shutdown();
  tt_library_close(nvml->library);
  tt_free(nvml);
}

// ---- Asking ----

int tt_nvml_list(const tt_nvml *nvml, char (*bus_ids)[16])
{
  unsigned count = 0;
  int found = 0, error = nvml->ops.count(&count);
  if (error != 0) {
    tt_info(TT_GRAPH, "NVML: does not count GPUs: error %d (%s)", error, text_of(&nvml->ops, error));
    return 0;
  }
  for (unsigned i = 0; i < count && i < TT_NVML_MAX_GPUS; i++) {
    void *device = NULL;
    tt_nvml_pci pci = {0};
    if (nvml->ops.by_index(i, &device) == 0 && nvml->ops.pci(device, &pci) == 0) {
      pci.bus_id[sizeof(pci.bus_id) - 1] = 0;
      found += tt_bus_id_sysfs(pci.bus_id, bus_ids[found]);
    }
  }
  return found;
}

// NVLinks that GPUs of that capability have at most.
static unsigned links_of(int sm)
{
  return sm < 60 ? 0 : sm < 70 ? 4 : sm < 80 ? 6 : sm < 90 ? 12 : 18;
}

static bool get_field(const tt_nvml_ops *ops, void *device, unsigned field, unsigned scope, unsigned *out)
{
  tt_nvml_field f = {.field = field, .scope = scope, .result = -1};
  if (ops->fields == NULL || ops->fields(device, 1, &f) != 0 || f.result != 0) {
    return false;
  }
  *out = f.value.u;
  return true;
}

static bool link_is_up(const tt_nvml_ops *ops, void *device, int sm, unsigned link)
{
  unsigned can = 0, state = 0;
  int active = 0;
  if (ops->link_can(device, link, 0, &can) != 0 || can == 0) {
    return false;
  }
  if (sm >= 90 && ops->fields != NULL) {
    return get_field(ops, device, FIELD_NVLINK_STATE, link, &state) && state == 1;
  }
  return ops->link_state(device, link, &active) == 0 && active == 1;
}

static void read_links(const tt_nvml_ops *ops, void *device, tt_gpu_facts *gpu)
{
  if (ops->link_can == NULL || ops->link_remote == NULL || (ops->link_state == NULL && ops->fields == NULL)) {
    return;
  }
  if (ops->link_state == NULL && gpu->sm < 90) {
    return;
  }
  for (unsigned l = 0; l < links_of(gpu->sm); l++) {
    tt_nvml_pci pci = {0};
    if (link_is_up(ops, device, gpu->sm, l) && ops->link_remote(device, l, &pci) == 0) {
      bool ends = strnlen(pci.bus_id, sizeof(pci.bus_id)) < sizeof(pci.bus_id);
      tt_gpu_facts_add_link(gpu, ends ? pci.bus_id : "", 1);
    }
  }
}

static void read_c2c(const tt_nvml_ops *ops, void *device, tt_gpu_facts *gpu)
{
  unsigned count = 0;
  if (gpu->sm < 90 || !get_field(ops, device, FIELD_C2C_COUNT, 0, &count)) {
    return;
  }
  for (unsigned l = 0; l < count && l < TT_GPU_MAX_C2C; l++) {
    unsigned status = 0, bw = 0;
    if (get_field(ops, device, FIELD_C2C_STATUS, l, &status) && status == 1 &&
        get_field(ops, device, FIELD_C2C_BW, l, &bw) && bw > 0 && bw <= TT_GPU_MAX_C2C_BW) {
      gpu->c2c_bw = (int)bw;
      gpu->c2c_count++;
    }
  }
}

static void read_slot(const tt_nvml_ops *ops, void *device, tt_gpu_facts *gpu)
{
  unsigned value = 0;
  tt_nvml_pci pci = {0};
  if (ops->pci(device, &pci) == 0) {
    gpu->device_id = (int)pci.device_id;
    gpu->subsystem_id = (int)pci.subsystem_id;
  }
  if (ops->max_generation != NULL && ops->max_generation(device, &value) == 0 && value <= 6) {
    gpu->generation = (int)value;
  }
  if (ops->max_width != NULL && ops->max_width(device, &value) == 0 && value <= 32) {
    gpu->width = (int)value;
  }
}

bool tt_nvml_gpu_read(const tt_nvml *nvml, const char *bus_id, tt_gpu_facts *out)
{
  const tt_nvml_ops *ops = &nvml->ops;
  void *device = NULL;
  unsigned index = 0;
  int major = 0, minor = 0;
  tt_gpu_facts gpu = {0};
  if (!tt_bus_id_sysfs(bus_id, gpu.bus_id)) {
    return false;
  }
  int error = ops->by_bus(bus_id, &device);
  error = error != 0 ? error : ops->index(device, &index);
  error = error != 0 ? error : ops->capability(device, &major, &minor);
  if (error != 0 || index > 65535 || major < 0 || major > 999 || minor < 0 || minor > 9) {
    tt_info(TT_GRAPH, "NVML: GPU %.16s: error %d (%s), number %u, compute capability %d.%d", bus_id, error,
            text_of(ops, error), index, major, minor);
    return false;
  }
  gpu.index = (int)index;
  gpu.sm = major * 10 + minor;
  read_slot(ops, device, &gpu);
  read_links(ops, device, &gpu);
  read_c2c(ops, device, &gpu);
  *out = gpu;
  return true;
}
