// functions.c: see functions.h.
#include "device/cuda/work/functions.h"

#include <pthread.h>
#include <string.h>

#include "base/util.h"
#include "device/cuda/kernels/modules.h"
#include "os/proc.h"

static const struct {
  const char *module, *name;
} gpu_kernels[] = {
    {"step", "copy"},     {"one_sided", "put"}, {"one_sided", "signal"}, {"one_sided", "take"}, {"bits", "bitwise"},
    {"bits", "logical1"}, {"bits", "logical2"}, {"bits", "logical4"},    {"bits", "logical8"},
#define T(id, ...) {#id, "combine"},
#include "base/types.def"
};

static struct {
  pthread_mutex_t lock;
  uint32_t loaded[TT_GPUS]; // in this epoch; 0: not yet
  CUfunction of[TT_GPUS][TT_COUNT(gpu_kernels)];
} functions = {.lock = PTHREAD_MUTEX_INITIALIZER};

// Loads the kernels from `first` on that are in one module; *next: the first one that is not.
static ncclResult_t functions_of_module(int device, size_t first, size_t *next)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  const char *name = gpu_kernels[first].module;
  CUmodule module;
  size_t i = first;
  TT_CUDA(cu, cu->ModuleLoadDataEx(&module, tt_ptx_find(name), 0, NULL, NULL),
          "GPU %d: cannot load the kernels of module %s", device, name);
  for (; i < TT_COUNT(gpu_kernels) && strcmp(gpu_kernels[i].module, name) == 0; i++) {
    TT_CUDA(cu, cu->ModuleGetFunction(&functions.of[device][i], module, gpu_kernels[i].name),
            "GPU %d: module %s has no kernel %s", device, name, gpu_kernels[i].name);
  }
  *next = i;
  return ncclSuccess;
}

ncclResult_t tt_gpu_functions_load(int device)
{
  ncclResult_t res = ncclSuccess;
  pthread_mutex_lock(&functions.lock);
  if (functions.loaded[device] != tt_gpu_epoch(device)) {
    for (size_t i = 0; i < TT_COUNT(gpu_kernels) && res == ncclSuccess;) {
      res = functions_of_module(device, i, &i);
    }
    functions.loaded[device] = res == ncclSuccess ? tt_gpu_epoch(device) : 0;
  }
  pthread_mutex_unlock(&functions.lock);
  return res;
}

CUfunction tt_gpu_function(int device, const char *module, const char *name)
{
  size_t i = 0;
  while (strcmp(gpu_kernels[i].name, name) != 0 || strcmp(gpu_kernels[i].module, module) != 0) {
    i++; // it is there: choose.c knows no others
  }
  return functions.of[device][i];
}

// A child of a fork cannot use its parent's GPUs, and another thread may have been here.
static void functions_in_child(void)
{
  memset(functions.loaded, 0, sizeof functions.loaded);
  pthread_mutex_init(&functions.lock, NULL);
}

__attribute__((constructor)) static void functions_at_start(void)
{
  static tt_fork_hook hook = {.fn = functions_in_child};
  tt_proc_on_fork(&hook);
}
