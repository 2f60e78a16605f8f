// entry.c: the driver's functions by name, for libraries that must load without libcuda.so.1. One that is not here is
// NULL, and no error.
#include "driver.h"

HC_API cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned int version, unsigned long long flags,
                                        enum cudaDriverEntryPointQueryResult *status)
{
  enum cudaDriverEntryPointQueryResult found;
  HC_REFUSE(name == NULL || out == NULL || flags > cudaEnablePerThreadDefaultStream, cudaErrorInvalidValue);
  *out = hc_driver_find(name, version, flags == cudaEnablePerThreadDefaultStream, &found);
  if (status != NULL) {
    *status = found;
  }
  return cudaSuccess;
}

// In the form of the runtime's own version.
HC_API cudaGetDriverEntryPoint(const char *name, void **out, unsigned long long flags,
                               enum cudaDriverEntryPointQueryResult *status)
{
  int version = 0;
  cudaRuntimeGetVersion(&version);
  return cudaGetDriverEntryPointByVersion(name, out, (unsigned)version, flags, status);
}

// In programs with per-thread default streams the default is those.
static unsigned long long own(unsigned long long flags)
{
  return flags == cudaEnableDefault ? cudaEnablePerThreadDefaultStream : flags;
}
HC_TWIN(cudaGetDriverEntryPoint, _ptsz,
        (const char *name, void **out, unsigned long long flags, enum cudaDriverEntryPointQueryResult *status),
        (name, out, own(flags), status))
HC_TWIN(cudaGetDriverEntryPointByVersion, _ptsz,
        (const char *name, void **out, unsigned int version, unsigned long long flags,
         enum cudaDriverEntryPointQueryResult *status),
        (name, out, version, own(flags), status))
