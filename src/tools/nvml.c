// nvml.c: see nvml.h.
#include "tools/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"

struct tt_nvml {
  void *library; // NULL: the functions are the caller's
  tt_nvml_ops ops;
};

// Numbers of fields.
enum { FIELD_NVLINK_STATE = 165, FIELD_C2C_COUNT = 170, FIELD_C2C_STATUS = 171, FIELD_C2C_BW = 172 };

enum { VERSION_MISMATCH = 18 };

enum { MAX_C2C_BW = 1000000 }; // MB/s of one link; more than documents may say is nonsense

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
static const char *find_functions(void *library, tt_nvml_ops *ops)
{
  for (size_t i = 0; i < TT_COUNT(functions); i++) {
    void *fn = dlsym(library, functions[i].names[0]);
    if (fn == NULL && functions[i].names[1] != NULL) {
      fn = dlsym(library, functions[i].names[1]);
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

static ncclResult_t start(void *library, const tt_nvml_ops *ops, tt_nvml **out)
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
  return start(NULL, ops, out);
}

ncclResult_t tt_nvml_open(const char *library, tt_nvml **out)
{
  *out = NULL;
  const char *name = library != NULL ? library : TT_NVML_LIBRARY;
  void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) {
    const char *why = dlerror();
    tt_info(TT_GRAPH, "NVML: %s; no GPUs are looked for", why != NULL ? why : name);
    return ncclSuccess;
  }
  tt_nvml_ops ops = {0};
  const char *missing = find_functions(handle, &ops);
  ncclResult_t res = ncclSuccess;
  if (missing != NULL) {
    tt_info(TT_GRAPH, "NVML: %s has no %s; no GPUs are looked for", name, missing);
  } else {
    res = start(handle, &ops, out);
  }
  if (*out == NULL) {
    dlclose(handle);
  }
  return res;
}

void tt_nvml_close(tt_nvml *nvml)
{
  if (nvml == NULL) {
    return;
  }
  nvml->ops.shutdown();
  if (nvml->library != NULL) {
    dlclose(nvml->library);
  }
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

// The far end's bus id as sysfs has it, or TT_NVML_HIDDEN when the text is none.
static void name_target(const char *text, char out[16])
{
  bool ends = strnlen(text, 16) < 16;
  if (!ends || !tt_bus_id_sysfs(text, out)) {
    strcpy(out, TT_NVML_HIDDEN);
  }
}

static void add_link(tt_gpu_facts *gpu, const char *target, int count)
{
  for (int i = 0; i < gpu->nlinks; i++) {
    if (strcmp(gpu->links[i].target, target) == 0) {
      gpu->links[i].count = TT_MIN(gpu->links[i].count + count, TT_GPU_MAX_LINKS);
      return;
    }
  }
  if (gpu->nlinks < TT_GPU_MAX_LINKS) {
    tt_gpu_link *l = &gpu->links[gpu->nlinks++];
    snprintf(l->target, sizeof(l->target), "%s", target);
    l->count = count;
  }
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
    char target[16];
    if (link_is_up(ops, device, gpu->sm, l) && ops->link_remote(device, l, &pci) == 0) {
      name_target(pci.bus_id, target);
      add_link(gpu, target, 1);
    }
  }
}

static void read_c2c(const tt_nvml_ops *ops, void *device, tt_gpu_facts *gpu)
{
  unsigned count = 0;
  if (gpu->sm < 90 || !get_field(ops, device, FIELD_C2C_COUNT, 0, &count)) {
    return;
  }
  for (unsigned l = 0; l < count && l < TT_NVML_MAX_C2C; l++) {
    unsigned status = 0, bw = 0;
    if (get_field(ops, device, FIELD_C2C_STATUS, l, &status) && status == 1 &&
        get_field(ops, device, FIELD_C2C_BW, l, &bw) && bw > 0 && bw <= MAX_C2C_BW) {
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

// ---- As text ----

bool tt_gpu_facts_print(const tt_gpu_facts *gpu, char *text, size_t size)
{
  int n = snprintf(text, size, "bus %s\nindex %d\nsm %d\ndevice %08x %08x\nslot %d %d\nc2c %d %d\n", gpu->bus_id,
                   gpu->index, gpu->sm, (unsigned)gpu->device_id, (unsigned)gpu->subsystem_id, gpu->generation,
                   gpu->width, gpu->c2c_count, gpu->c2c_bw);
  for (int i = 0; i < gpu->nlinks && n >= 0 && (size_t)n < size; i++) {
    n += snprintf(text + n, size - (size_t)n, "nvlink %s %d\n", gpu->links[i].target, gpu->links[i].count);
  }
  return n >= 0 && (size_t)n < size;
}

// The numbers behind a word, all within [0, max]. False: not this word, or not these numbers.
static bool numbers(const char *line, const char *word, int (*out)[2], int max)
{
  int a = -1, b = -1;
  size_t size = strlen(word);
  if (strncmp(line, word, size) != 0 || line[size] != ' ') {
    return true; // another line
  }
  int n = sscanf(line + size, "%9d %9d", &a, &b);
  if (n < 1 || a < 0 || a > max || (n == 2 && (b < 0 || b > MAX_C2C_BW))) {
    return false;
  }
  (*out)[0] = a;
  (*out)[1] = n == 2 ? b : 0;
  return true;
}

typedef struct facts {
  int index[2], sm[2], slot[2], c2c[2];
} facts;

static bool parse_line(const char *line, facts *f, tt_gpu_facts *gpu)
{
  char word[40];
  int count = 0;
  unsigned device = 0, subsystem = 0;
  if (sscanf(line, "bus %31s", word) == 1) {
    return tt_bus_id_sysfs(word, gpu->bus_id);
  }
  if (sscanf(line, "device %8x %8x", &device, &subsystem) == 2) {
    gpu->device_id = (int)device;
    gpu->subsystem_id = (int)subsystem;
    return true;
  }
  if (sscanf(line, "nvlink %31s %4d", word, &count) == 2) {
    char target[16];
    name_target(strlen(word) < 16 ? word : "", target);
    if (count < 1 || count > TT_GPU_MAX_LINKS) {
      return false;
    }
    add_link(gpu, target, count);
    return true;
  }
  return numbers(line, "index", &f->index, 65535) && numbers(line, "sm", &f->sm, 9999) &&
         numbers(line, "slot", &f->slot, 6) && numbers(line, "c2c", &f->c2c, TT_NVML_MAX_C2C);
}

bool tt_gpu_facts_parse(const char *text, tt_gpu_facts *out)
{
  tt_gpu_facts gpu = {0};
  facts f = {.index = {-1, 0}, .sm = {-1, 0}};
  for (const char *at = text; *at != 0;) {
    char line[80];
    size_t size = strcspn(at, "\n");
    snprintf(line, sizeof(line), "%.*s", (int)TT_MIN(size, sizeof(line) - 1), at);
    if (!parse_line(line, &f, &gpu)) {
      return false;
    }
    at += size + (at[size] != 0);
  }
  gpu.index = f.index[0];
  gpu.sm = f.sm[0];
  gpu.generation = f.slot[0];
  gpu.width = TT_MIN(f.slot[1], 32);
  gpu.c2c_count = f.c2c[0];
  gpu.c2c_bw = f.c2c[1];
  if (gpu.bus_id[0] == 0 || gpu.index < 0 || gpu.sm < 0 || (gpu.c2c_count > 0 && gpu.c2c_bw == 0)) {
    return false;
  }
  *out = gpu;
  return true;
}

// ---- For documents ----

bool tt_gpu_facts_read(const tt_sysfs *s, const char *bus_id, tt_gpu_facts *out)
{
  char path[64], text[4096], bus[16];
  if (s->nvml != NULL) {
    return tt_nvml_gpu_read(s->nvml, bus_id, out);
  }
  if (!tt_bus_id_sysfs(bus_id, bus)) {
    return false;
  }
  snprintf(path, sizeof(path), "/nvml/%s", bus);
  if (tt_tree_read(s->tree, path, text, sizeof(text)) <= 0) {
    return false;
  }
  if (!tt_gpu_facts_parse(text, out)) {
    tt_info(TT_GRAPH, "%s: %s is not a description of a GPU, ignored", tt_tree_name(s->tree), path);
    return false;
  }
  return true;
}
