// entry.c: the functions by name, the version, names and texts of errors.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim.h"

typedef void (*function)(void);

static const struct known {
  const char *name;
  int version;
  function fn;
} known[] = {
#define CU(name, version, need, parameters) {"cu" #name, version, (function)cu##name},
#include "device/cuda/driver.def"
#undef CU
    {"cuGetProcAddress", 12000, (function)cuGetProcAddress},
};

static const struct error {
  CUresult code;
  const char *name, *text;
} errors[] = {
#define E(name, text) {CUDA_##name, "CUDA_" #name, text},
#include "errors.def"
#undef E
};

static const struct error *error_of(CUresult code)
{
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
    if (errors[i].code == code) {
      return &errors[i];
    }
  }
  return NULL;
}

const char *sim_error_name(CUresult code)
{
  const struct error *error = error_of(code);
  return error != NULL ? error->name : NULL;
}

CUresult cuGetErrorName(CUresult code, const char **name)
{
  const struct error *error = error_of(code);
  *name = error != NULL ? error->name : NULL;
  return error != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult code, const char **text)
{
  const struct error *error = error_of(code);
  *text = error != NULL ? error->text : NULL;
  return error != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// One form of each function is here: that of the list. An older one has other parameters.
CUresult cuGetProcAddress(const char *name, void **out, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult *status)
{
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (name == NULL || out == NULL || flags > CU_GET_PROC_ADDRESS_LEGACY_STREAM) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = NULL;
  for (size_t i = 0; i < sizeof known / sizeof *known && *out == NULL; i++) {
    if (strcmp(name, known[i].name) == 0) {
      found = version >= known[i].version ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    }
    if (strcmp(name, known[i].name) == 0 && version >= known[i].version) {
      memcpy(out, &known[i].fn, sizeof *out);
    }
  }
  if (status != NULL) {
    *status = found;
  }
  return status != NULL || *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuDriverGetVersion(int *version)
{
  *version = SIM_DRIVER_VERSION;
  return CUDA_SUCCESS;
}

static CUresult start(void)
{
  if (sim.started) {
    return CUDA_SUCCESS;
  }
  if (!sim_modes_read(&sim.modes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (sim.modes.devices == 0) {
    return CUDA_ERROR_NO_DEVICE;
  }
  sim.random = sim.modes.seed;
  sim.pid = getpid();
  for (int i = 0; i < SIM_DEVICES; i++) {
    sim.device[i].ordinal = i;
    sim.device[i].physical = sim.modes.visible[i];
  }
  if (!box_open() || !sim_sched_start() || !sim_host_start()) {
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  sim.started = true;
  return CUDA_SUCCESS;
}

CUresult cuInit(unsigned flags)
{
  if (flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (sim_is_forked()) {
    return CUDA_ERROR_NOT_INITIALIZED;
  }
  pthread_mutex_lock(&sim.lock);
  CUresult error = start();
  pthread_mutex_unlock(&sim.lock);
  return error;
}
