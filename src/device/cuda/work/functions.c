// functions.c: see functions.h.
#include "device/cuda/work/functions.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/param.h"
#include "base/util.h"
#include "device/cuda/kernels/kernels.h"
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

enum { PLAIN, WALKS, FORMS };

static struct {
  pthread_mutex_t lock;
  uint32_t loaded[TT_GPUS]; // in this epoch; 0: not yet
  int walk_ctas[TT_GPUS];   // tt_gpu_walk_ctas
  CUfunction of[FORMS][TT_GPUS][TT_COUNT(gpu_kernels)];
} functions = {.lock = PTHREAD_MUTEX_INITIALIZER};

// Loads the kernels from `first` on that are in one module; *next: the first one that is not. One-sided operations are
// no walks.
static ncclResult_t functions_of_module(int form, int device, size_t first, size_t *next)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  const char *name = gpu_kernels[first].module;
  char full[64];
  CUmodule module = NULL;
  size_t i = first;
  snprintf(full, sizeof full, "%s%s", form == WALKS ? "walk_" : "", name);
  const char *text = tt_ptx_find(full);
  if (text != NULL) {
    TT_CUDA(cu, cu->ModuleLoadDataEx(&module, text, 0, NULL, NULL), "GPU %d: cannot load the kernels of module %s",
            device, full);
  }
  for (; i < TT_COUNT(gpu_kernels) && strcmp(gpu_kernels[i].module, name) == 0; i++) {
    if (text != NULL) {
      TT_CUDA(cu, cu->ModuleGetFunction(&functions.of[form][device][i], module, gpu_kernels[i].name),
              "GPU %d: module %s has no kernel %s", device, full, gpu_kernels[i].name);
    }
  }
  *next = i;
  return ncclSuccess;
}

static ncclResult_t functions_of_form(int form, int device)
{
  ncclResult_t res = ncclSuccess;
  for (size_t i = 0; i < TT_COUNT(gpu_kernels) && res == ncclSuccess;) {
    res = functions_of_module(form, device, i, &i);
  }
  return res;
}

// How many CTAs of each walk are resident together.
static ncclResult_t functions_count_ctas(int device)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  int least = INT_MAX, sms = 1;
  for (size_t i = 0; i < TT_COUNT(gpu_kernels); i++) {
    CUfunction f = functions.of[WALKS][device][i];
    int ctas = least;
    if (f != NULL) {
      TT_CUDA(cu, cu->OccupancyMaxActiveBlocksPerMultiprocessor(&ctas, f, TT_CUDA_THREADS, 0),
              "GPU %d: cannot ask how many CTAs of a kernel it holds", device);
    }
    least = TT_MIN(least, ctas);
  }
  TT_CUDA(cu, cu->DeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, (CUdevice)device),
          "GPU %d: cannot ask for its size", device);
  functions.walk_ctas[device] = least * sms;
  return ncclSuccess;
}

ncclResult_t tt_gpu_functions_load(int device)
{
  ncclResult_t res = ncclSuccess;
  pthread_mutex_lock(&functions.lock);
  if (functions.loaded[device] != tt_gpu_epoch(device)) {
    res = functions_of_form(PLAIN, device);
    if (res == ncclSuccess && tt_params_get()->cuda_resident) {
      res = functions_of_form(WALKS, device);
      res = res == ncclSuccess ? functions_count_ctas(device) : res;
    }
    functions.loaded[device] = res == ncclSuccess ? tt_gpu_epoch(device) : 0;
  }
  pthread_mutex_unlock(&functions.lock);
  return res;
}

static CUfunction function_of(int form, int device, const char *module, const char *name)
{
  size_t i = 0;
  while (strcmp(gpu_kernels[i].name, name) != 0 || strcmp(gpu_kernels[i].module, module) != 0) {
    i++; // it is there: choose.c knows no others
  }
  return functions.of[form][device][i];
}

CUfunction tt_gpu_function(int device, const char *module, const char *name)
{
  return function_of(PLAIN, device, module, name);
}

CUfunction tt_gpu_walk_function(int device, const char *module, const char *name)
{
  return function_of(WALKS, device, module, name);
}

int tt_gpu_walk_ctas(int device)
{
  return functions.walk_ctas[device];
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
