// fakenvml.c: a libnvidia-ml.so.1 for tests. It answers from the XML of a machine as NCCL writes it: tests/fakenvml/
// README.md. Layouts, numbers and names are those of NVIDIA's public nvml.h; nothing of the library is used here.
#include <assert.h>
#include <expat.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fakenvml.h"

enum { MAX_GPUS = 256, MAX_LINKS = 36, MAX_DEPTH = 64 };

struct gpu {
  char bus[32];               // as the file has it
  int dev, sm;                // its number; compute capability × 10
  unsigned ids, subsystem;    // device << 16 | vendor
  unsigned generation;        // PCI Express; 0: the file does not say
  unsigned width;             // 0: the file does not say
  char remote[MAX_LINKS][16]; // far ends, one for each link
  unsigned nlinks;
  unsigned c2c, c2c_bw;
};

// What the file says. Read by the first nvmlInit, forgotten by the last nvmlShutdown.
static struct {
  pthread_mutex_t lock;
  int users;
  int count;
  struct gpu gpus[MAX_GPUS];
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

// ---- The file ----

struct pci { // an open <pci>
  char bus[32], speed[32];
  unsigned ids[4]; // vendor, device, of the subsystem
  unsigned width;
};

struct reading {
  struct pci pci[MAX_DEPTH];
  int depth;       // of open <pci>s
  struct gpu *gpu; // the open one
  uint64_t shown;  // by number; those from 64 on are always
  bool bad;
};

static const char *value_of(const char **attributes, const char *name)
{
  for (; attributes[0] != NULL; attributes += 2) {
    if (strcmp(attributes[0], name) == 0) {
      return attributes[1];
    }
  }
  return "";
}

static unsigned number_of(const char **attributes, const char *name, int base)
{
  return (unsigned)strtoul(value_of(attributes, name), NULL, base);
}

static void open_pci(struct reading *r, const char **attributes)
{
  static const char *const ids[] = {"vendor", "device", "subsystem_vendor", "subsystem_device"};
  if (r->depth == MAX_DEPTH) {
    r->bad = true;
    return;
  }
  struct pci *p = &r->pci[r->depth++];
  snprintf(p->bus, sizeof p->bus, "%s", value_of(attributes, "busid"));
  snprintf(p->speed, sizeof p->speed, "%s", value_of(attributes, "link_speed"));
  p->width = number_of(attributes, "link_width", 10);
  for (int i = 0; i < 4; i++) {
    p->ids[i] = number_of(attributes, ids[i], 16);
  }
}

// 2.5, 5, 8, 16, 32 and 64 GT/s are generations 1 to 6.
static unsigned generation_of(const char *speed)
{
  static const double speeds[] = {2.5, 5, 8, 16, 32, 64};
  unsigned generation = 0;
  for (unsigned i = 0; i < sizeof speeds / sizeof speeds[0]; i++) {
    generation = strtod(speed, NULL) == speeds[i] ? i + 1 : generation;
  }
  return generation;
}

static bool is_known(const char *bus)
{
  for (int i = 0; i < fake.count; i++) {
    if (strcasecmp(fake.gpus[i].bus, bus) == 0) {
      return true; // one more rank on it
    }
  }
  return false;
}

static void open_gpu(struct reading *r, const char **attributes)
{
  const struct pci *p = r->depth > 0 ? &r->pci[r->depth - 1] : NULL;
  const unsigned dev = number_of(attributes, "dev", 10);
  if (p == NULL || is_known(p->bus) || (dev < 64 && (r->shown >> dev & 1) == 0)) {
    return;
  }
  if (fake.count == MAX_GPUS) {
    r->bad = true;
    return;
  }
  r->gpu = &fake.gpus[fake.count++];
  *r->gpu = (struct gpu){.dev = (int)dev,
                         .sm = (int)number_of(attributes, "sm", 10),
                         .ids = p->ids[1] << 16 | p->ids[0],
                         .subsystem = p->ids[3] << 16 | p->ids[2],
                         .generation = generation_of(p->speed),
                         .width = p->width};
  memcpy(r->gpu->bus, p->bus, sizeof p->bus);
}

static void add_links(struct reading *r, const char **attributes)
{
  struct gpu *g = r->gpu;
  for (unsigned i = number_of(attributes, "count", 10); g != NULL && i > 0; i--) {
    if (g->nlinks == MAX_LINKS) {
      r->bad = true;
      return;
    }
    snprintf(g->remote[g->nlinks++], sizeof g->remote[0], "%s", value_of(attributes, "target"));
  }
}

static void on_start(void *arg, const char *tag, const char **attributes)
{
  struct reading *r = arg;
  if (strcmp(tag, "pci") == 0) {
    open_pci(r, attributes);
  } else if (strcmp(tag, "gpu") == 0) {
    open_gpu(r, attributes);
  } else if (strcmp(tag, "nvlink") == 0) {
    add_links(r, attributes);
  } else if (strcmp(tag, "c2c") == 0 && r->gpu != NULL) {
    r->gpu->c2c = number_of(attributes, "count", 10);
    r->gpu->c2c_bw = number_of(attributes, "bw", 10);
  }
}

static void on_end(void *arg, const char *tag)
{
  struct reading *r = arg;
  if (strcmp(tag, "pci") == 0 && r->depth > 0) {
    r->depth--;
  } else if (strcmp(tag, "gpu") == 0) {
    r->gpu = NULL;
  }
}

static int by_number(const void *a, const void *b)
{
  return ((const struct gpu *)a)->dev - ((const struct gpu *)b)->dev;
}

static bool parse_file(FILE *f, struct reading *r)
{
  char bytes[4096];
  bool last = false, good = true;
  XML_Parser parser = XML_ParserCreate(NULL);
  if (parser == NULL) {
    return false;
  }
  XML_SetUserData(parser, r);
  XML_SetElementHandler(parser, on_start, on_end);
  while (good && !last) {
    size_t n = fread(bytes, 1, sizeof bytes, f);
    last = n < sizeof bytes;
    good = XML_Parse(parser, bytes, (int)n, last) == XML_STATUS_OK && !r->bad;
  }
  XML_ParserFree(parser);
  return good;
}

static int read_machine(const char *path)
{
  const char *mask = getenv("FAKE_NVML_GPUS");
  struct reading *r = calloc(1, sizeof *r);
  FILE *f = fopen(path, "r");
  bool good = false;
  fake.count = 0;
  if (r != NULL && f != NULL) {
    r->shown = mask != NULL ? strtoull(mask, NULL, 16) : UINT64_MAX;
    good = parse_file(f, r);
  }
  if (f != NULL) {
    fclose(f);
  }
  free(r);
  if (!good) {
    fprintf(stderr, "fakenvml: FAKE_NVML=%s: not the XML of a machine that it can show\n", path);
    return NVML_ERROR_UNKNOWN;
  }
  qsort(fake.gpus, (size_t)fake.count, sizeof fake.gpus[0], by_number);
  return NVML_SUCCESS;
}

static int begin_use(void)
{
  const char *path = getenv("FAKE_NVML"), *error = getenv("FAKE_NVML_ERROR");
  if (error != NULL) {
    return atoi(error);
  }
  if (fake.users == 0) {
    int result = path != NULL ? read_machine(path) : NVML_ERROR_DRIVER_NOT_LOADED;
    if (result != NVML_SUCCESS) {
      return result;
    }
  }
  fake.users++;
  return NVML_SUCCESS;
}

int nvmlInit_v2(void)
{
  pthread_mutex_lock(&fake.lock);
  int result = begin_use();
  pthread_mutex_unlock(&fake.lock);
  return result;
}

int nvmlShutdown(void)
{
  pthread_mutex_lock(&fake.lock);
  int result = fake.users > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
  fake.users -= fake.users > 0;
  pthread_mutex_unlock(&fake.lock);
  return result;
}

const char *nvmlErrorString(int error)
{
  switch (error) {
  case NVML_SUCCESS: return "success";
  case NVML_ERROR_UNINITIALIZED: return "uninitialized";
  case NVML_ERROR_INVALID_ARGUMENT: return "invalid argument";
  case NVML_ERROR_NOT_SUPPORTED: return "not supported";
  case NVML_ERROR_NOT_FOUND: return "not found";
  case NVML_ERROR_DRIVER_NOT_LOADED: return "driver not loaded";
  case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "driver/library version mismatch";
  default: return "unknown error";
  }
}

// ---- GPUs ----

// Checks a handle, and what is to be written.
static int check(const void *device, const void *out)
{
  const struct gpu *g = device;
  int result = NVML_SUCCESS;
  pthread_mutex_lock(&fake.lock);
  if (fake.users == 0) {
    result = NVML_ERROR_UNINITIALIZED;
  } else if (g < fake.gpus || g >= fake.gpus + fake.count || out == NULL) {
    result = NVML_ERROR_INVALID_ARGUMENT;
  }
  pthread_mutex_unlock(&fake.lock);
  return result;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
  int result = count == NULL ? NVML_ERROR_INVALID_ARGUMENT : fake.count == 0 ? NVML_SUCCESS : check(fake.gpus, count);
  if (result == NVML_SUCCESS) {
    *count = (unsigned)fake.count;
  }
  return result;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
  if (index >= (unsigned)fake.count) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  int result = check(&fake.gpus[index], device);
  if (result == NVML_SUCCESS) {
    *device = &fake.gpus[index];
  }
  return result;
}

// Domain, bus, device, function; any number of digits.
static bool read_bus(const char *text, unsigned out[4])
{
  int end = 0;
  return sscanf(text, "%x:%x:%x.%x%n", &out[0], &out[1], &out[2], &out[3], &end) == 4 && text[end] == '\0';
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device)
{
  unsigned wanted[4], have[4];
  if (bus_id == NULL || device == NULL || !read_bus(bus_id, wanted)) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  for (int i = 0; i < fake.count; i++) {
    if (read_bus(fake.gpus[i].bus, have) && memcmp(wanted, have, sizeof have) == 0) {
      return nvmlDeviceGetHandleByIndex_v2((unsigned)i, device);
    }
  }
  return NVML_ERROR_NOT_FOUND;
}

int nvmlDeviceGetIndex(void *device, unsigned *index)
{
  int result = check(device, index);
  if (result == NVML_SUCCESS) {
    *index = (unsigned)((struct gpu *)device)->dev;
  }
  return result;
}

// In capitals, as NVML writes them.
static void write_bus(const char *bus, nvmlPciInfo_t *out)
{
  unsigned n[4];
  *out = (nvmlPciInfo_t){.domain = 0};
  if (!read_bus(bus, n)) { // a far end that is not shown
    snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%s", bus);
    snprintf(out->busId, sizeof out->busId, "%s", bus);
    return;
  }
  out->domain = n[0];
  out->bus = n[1];
  out->device = n[2];
  snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%04X:%02X:%02X.%X", n[0] & 0xfffffff, n[1] & 0xff, n[2] & 0xff,
           n[3] & 0xf);
  snprintf(out->busId, sizeof out->busId, "%08X:%02X:%02X.%X", n[0], n[1] & 0xff, n[2] & 0xff, n[3] & 0xf);
}

int nvmlDeviceGetPciInfo_v3(void *device, nvmlPciInfo_t *pci)
{
  const struct gpu *g = device;
  int result = check(device, pci);
  if (result == NVML_SUCCESS) {
    write_bus(g->bus, pci);
    pci->pciDeviceId = g->ids;
    pci->pciSubSystemId = g->subsystem;
  }
  return result;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor)
{
  const struct gpu *g = device;
  int result = minor == NULL ? NVML_ERROR_INVALID_ARGUMENT : check(device, major);
  if (result == NVML_SUCCESS) {
    *major = g->sm / 10;
    *minor = g->sm % 10;
  }
  return result;
}

static int give_known(void *device, unsigned value, unsigned *out)
{
  int result = check(device, out);
  if (result == NVML_SUCCESS && value == 0) {
    result = NVML_ERROR_NOT_SUPPORTED;
  }
  if (result == NVML_SUCCESS) {
    *out = value;
  }
  return result;
}

int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *generation)
{
  return give_known(device, device != NULL ? ((struct gpu *)device)->generation : 0, generation);
}

int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *width)
{
  return give_known(device, device != NULL ? ((struct gpu *)device)->width : 0, width);
}

// ---- Links ----

// A link beyond the last of its kind of GPU is an error, one that leads nowhere is not active.
static int check_link(void *device, unsigned link, const void *out)
{
  int result = check(device, out);
  return result == NVML_SUCCESS && link >= MAX_LINKS ? NVML_ERROR_INVALID_ARGUMENT : result;
}

int nvmlDeviceGetNvLinkCapability(void *device, unsigned link, int capability, unsigned *yes)
{
  int result = check_link(device, link, yes);
  if (result == NVML_SUCCESS) {
    *yes = capability == NVML_NVLINK_CAP_P2P_SUPPORTED && link < ((struct gpu *)device)->nlinks;
  }
  return result;
}

int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active)
{
  int result = check_link(device, link, active);
  if (result == NVML_SUCCESS) {
    *active = link < ((struct gpu *)device)->nlinks;
  }
  return result;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, nvmlPciInfo_t *pci)
{
  int result = check_link(device, link, pci);
  if (result == NVML_SUCCESS && link >= ((struct gpu *)device)->nlinks) {
    result = NVML_ERROR_NOT_SUPPORTED;
  }
  if (result == NVML_SUCCESS) {
    write_bus(((struct gpu *)device)->remote[link], pci);
  }
  return result;
}

static void read_field(const struct gpu *g, nvmlFieldValue_t *v)
{
  const bool c2c = v->scopeId < g->c2c;
  unsigned value = 0;
  v->nvmlReturn = NVML_SUCCESS;
  switch (v->fieldId) {
  case NVML_FI_DEV_NVLINK_GET_STATE: value = v->scopeId < g->nlinks; break;
  case NVML_FI_DEV_C2C_LINK_COUNT: value = g->c2c; break;
  case NVML_FI_DEV_C2C_LINK_GET_STATUS: value = c2c; break;
  case NVML_FI_DEV_C2C_LINK_GET_MAX_BW: value = c2c ? g->c2c_bw : 0; break;
  default: v->nvmlReturn = NVML_ERROR_NOT_SUPPORTED; return;
  }
  v->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
  v->value.uiVal = value;
}

int nvmlDeviceGetFieldValues(void *device, int count, nvmlFieldValue_t *values)
{
  int result = check(device, values);
  for (int i = 0; i < count && result == NVML_SUCCESS; i++) {
    read_field(device, &values[i]);
  }
  return result;
}
