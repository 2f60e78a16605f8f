// fakenvml.h: what fakenvml.c has of NVIDIA's public nvml.h: layouts, numbers, functions. Not the library's own
// declarations (topo/nvml.h), which are under test.
#pragma once
#include <assert.h>
#include <stddef.h>

enum {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_DRIVER_NOT_LOADED = 9,
  NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
  NVML_ERROR_UNKNOWN = 999,
};

enum { NVML_NVLINK_CAP_P2P_SUPPORTED = 0, NVML_VALUE_TYPE_UNSIGNED_INT = 1 };

enum {
  NVML_FI_DEV_NVLINK_GET_STATE = 165,
  NVML_FI_DEV_C2C_LINK_COUNT = 170,
  NVML_FI_DEV_C2C_LINK_GET_STATUS = 171,
  NVML_FI_DEV_C2C_LINK_GET_MAX_BW = 172,
};

typedef struct nvmlPciInfo {
  char busIdLegacy[16];
  unsigned domain, bus, device;
  unsigned pciDeviceId, pciSubSystemId;
  char busId[32];
} nvmlPciInfo_t;
static_assert(sizeof(nvmlPciInfo_t) == 68, "as in nvml.h");

typedef struct nvmlFieldValue {
  unsigned fieldId, scopeId;
  long long timestamp, latencyUsec;
  int valueType, nvmlReturn;
  union {
    double dVal;
    unsigned uiVal;
    unsigned long long ullVal;
  } value;
} nvmlFieldValue_t;
static_assert(sizeof(nvmlFieldValue_t) == 40, "as in nvml.h");

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int error);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device);
int nvmlDeviceGetIndex(void *device, unsigned *index);
int nvmlDeviceGetPciInfo_v3(void *device, nvmlPciInfo_t *pci);
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor);
int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *generation);
int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *width);
int nvmlDeviceGetNvLinkCapability(void *device, unsigned link, int capability, unsigned *yes);
int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, nvmlPciInfo_t *pci);
int nvmlDeviceGetFieldValues(void *device, int count, nvmlFieldValue_t *values);
