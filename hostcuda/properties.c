// properties.c: see properties.h.
#include "properties.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// The processor's name, after "model name" in /proc/cpuinfo.
static void processor_name(char *out, size_t size)
{
  char line[256];
  FILE *f = fopen("/proc/cpuinfo", "re");
  snprintf(out, size, "Host device");
  while (f != NULL && fgets(line, sizeof line, f) != NULL) {
    const char *colon = strchr(line, ':');
    if (colon != NULL && strncmp(line, "model name", 10) == 0) {
      line[strcspn(line, "\n")] = 0;
      snprintf(out, size, "Host device (%s)", colon + 1 + strspn(colon + 1, " \t"));
      break;
    }
  }
  if (f != NULL) {
    fclose(f);
  }
}

static int cores(void)
{
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (int)n : 1;
}

static int l2_size(void)
{
  long n = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return n > 0 ? (int)n : 0;
}

static void uuid_of(int device, cudaUUID_t *out)
{
  memset(out, 0, sizeof *out);
  memcpy(out->bytes, "tutti host", 10);
  for (int i = 0; i < 4; i++) {
    out->bytes[12 + i] = (char)(device >> (24 - 8 * i));
  }
}

void hc_properties(struct cudaDeviceProp *p, int device)
{
  size_t available = 0, total = 0;
  tuttiMemGetInfo(&available, &total);
  *p = (struct cudaDeviceProp){
      .totalGlobalMem = total,
      .sharedMemPerBlock = 48 << 10,
      .regsPerBlock = 64 << 10,
      .warpSize = 32,
      .memPitch = (size_t)1 << 31,
      .maxThreadsPerBlock = 1024,
      .maxThreadsDim = {1024, 1024, 64},
      .maxGridSize = {INT_MAX, 65535, 65535},
      .totalConstMem = 64 << 10,
      .major = 9, // see properties.h
      .textureAlignment = 512,
      .texturePitchAlignment = 32,
      .multiProcessorCount = cores(),
      .integrated = 1,
      .canMapHostMemory = 1,
      .surfaceAlignment = 512,
      .pciBusID = device & 0xff,
      .pciDomainID = device >> 8,
      .asyncEngineCount = 1,
      .unifiedAddressing = 1,
      .l2CacheSize = l2_size(),
      .maxThreadsPerMultiProcessor = 2048,
      .managedMemory = 1,
      .hostNativeAtomicSupported = 1,
      .singleToDoublePrecisionPerfRatio = 2,
      .pageableMemoryAccess = 1,
      .concurrentManagedAccess = 1,
      .canUseHostPointerForRegisteredMem = 1,
      .pageableMemoryAccessUsesHostPageTables = 1,
      .directManagedMemAccessFromHost = 1,
      .maxBlocksPerMultiProcessor = 32,
      .hostRegisterSupported = 1,
      .hostRegisterReadOnlySupported = 1,
      .memoryPoolsSupported = 1,
      .ipcEventSupported = 1,
  };
  processor_name(p->name, sizeof p->name);
  uuid_of(device, &p->uuid);
}

bool hc_attribute(enum cudaDeviceAttr attr, int device, int *value)
{
  switch ((int)attr) {
  case cudaDevAttrIntegrated:
  case cudaDevAttrCanMapHostMemory:
  case cudaDevAttrAsyncEngineCount:
  case cudaDevAttrUnifiedAddressing:
  case cudaDevAttrManagedMemory:
  case cudaDevAttrHostNativeAtomicSupported:
  case cudaDevAttrPageableMemoryAccess:
  case cudaDevAttrConcurrentManagedAccess:
  case cudaDevAttrCanUseHostPointerForRegisteredMem:
  case cudaDevAttrHostRegisterSupported:
  case cudaDevAttrPageableMemoryAccessUsesHostPageTables:
  case cudaDevAttrDirectManagedMemAccessFromHost:
  case cudaDevAttrHostRegisterReadOnlySupported:
  case cudaDevAttrMemoryPoolsSupported:
  case cudaDevAttrIpcEventSupport: *value = 1; return true;
  case 92: // the driver's alone, in two versions: streams write and wait for values, of 64 bits too, and under the
           // condition "nor"
  case 93:
  case 94:
  case 122:
  case 123: *value = 1; return true;
  case cudaDevAttrMaxThreadsPerBlock:
  case cudaDevAttrMaxBlockDimX:
  case cudaDevAttrMaxBlockDimY: *value = 1024; return true;
  case cudaDevAttrMaxBlockDimZ: *value = 64; return true;
  case cudaDevAttrMaxGridDimX: *value = INT_MAX; return true;
  case cudaDevAttrMaxGridDimY:
  case cudaDevAttrMaxGridDimZ: *value = 65535; return true;
  case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; return true;
  case cudaDevAttrTotalConstantMemory:
  case cudaDevAttrMaxRegistersPerBlock: *value = 64 << 10; return true;
  case cudaDevAttrWarpSize:
  case cudaDevAttrMaxBlocksPerMultiprocessor: *value = 32; return true;
  case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; return true;
  case cudaDevAttrComputeCapabilityMajor: *value = 9; return true;
  case cudaDevAttrMaxPitch: *value = 0x7fffffff; return true;
  case cudaDevAttrTextureAlignment:
  case cudaDevAttrSurfaceAlignment: *value = 512; return true;
  case cudaDevAttrTexturePitchAlignment: *value = 32; return true;
  case cudaDevAttrMultiProcessorCount: *value = cores(); return true;
  case cudaDevAttrPciBusId: *value = device & 0xff; return true;
  case cudaDevAttrPciDomainId: *value = device >> 8; return true;
  case cudaDevAttrL2CacheSize: *value = l2_size(); return true;
  case cudaDevAttrSingleToDoublePrecisionPerfRatio: *value = 2; return true;
  case cudaDevAttrNumaId:
  case cudaDevAttrHostNumaId: *value = -1; return true;
  default: // the rest is what host devices don't have
    *value = 0;
    return (int)attr >= 1 && (int)attr < 148;
  }
}
