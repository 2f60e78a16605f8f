// driver.c: see driver.h.
#include "device/cuda/driver.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "base/text.h"
#include "os/proc.h"

// cuGetProcAddress of CUDA 12: the only symbol that is looked up by its name. Others have several forms.
typedef CUresult (*find_fn)(const char *name, void **fn, int version, cuuint64_t flags,
                            CUdriverProcAddressQueryResult *status);

enum cu_need { CU_NEED, CU_MAY };

static const struct wanted {
  const char *name;
  int version;
  enum cu_need need;
  size_t at; // of the member in tt_cuda
} wanted[] = {
#define CU(name, version, need, parameters) {"cu" #name, version, need, offsetof(tt_cuda, name)},
#include "device/cuda/driver.def"
#undef CU
};

__attribute__((format(printf, 2, 3))) static tt_cuda_state refuse_driver(char *why, const char *fmt, ...)
{
  va_list args;
  va_start(args, fmt);
  tt_vformat(why, TT_LIBRARY_WHY, fmt, args);
  va_end(args);
  return TT_CUDA_REFUSED;
}

static tt_cuda_state find_driver_functions(tt_cuda *cuda, char *why)
{
  find_fn find = NULL;
  void *symbol = tt_library_symbol(cuda->library, "cuGetProcAddress_v2");
  const char *path = tt_library_path(cuda->library);
  memcpy(&find, &symbol, sizeof find);
  if (find == NULL) {
    return refuse_driver(why, "%s has no cuGetProcAddress_v2: not a CUDA driver, or one older than CUDA 12", path);
  }
  for (size_t i = 0; i < TT_COUNT(wanted); i++) {
    const struct wanted *w = &wanted[i];
    void *fn = NULL;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    CUresult error = find(w->name, &fn, w->version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status);
    if ((error != CUDA_SUCCESS || fn == NULL) && w->need == CU_NEED) {
      return refuse_driver(why, "%s has no %s of CUDA %d.%d (error %d, status %d)", path, w->name, w->version / 1000,
                           w->version % 1000 / 10, (int)error, (int)status);
    }
    memcpy((char *)cuda + w->at, &fn, sizeof fn);
  }
  return TT_CUDA_OPEN;
}

static bool starts; // cuInit has been called, or is being called, and the driver has not said that it is of no use

// Some errors of cuInit say that there is no GPU to use, not that something is wrong.
static tt_cuda_state start_driver(tt_cuda *cuda, char *why)
{
  const char *path = tt_library_path(cuda->library);
  int devices = 0;
  CUresult error = cuda->DriverGetVersion(&cuda->version);
  if (error == CUDA_SUCCESS && cuda->version < TT_CUDA_LEAST) {
    return refuse_driver(why, "%s is a driver of CUDA %d.%d; CUDA %d.%d is the oldest that is used", path,
                         cuda->version / 1000, cuda->version % 1000 / 10, TT_CUDA_LEAST / 1000,
                         TT_CUDA_LEAST % 1000 / 10);
  }
  if (error == CUDA_SUCCESS) {
    starts = true;
    error = cuda->Init(0);
  }
  if (error == CUDA_SUCCESS) {
    error = cuda->DeviceGetCount(&devices);
  }
  if (error == CUDA_ERROR_NO_DEVICE || (error == CUDA_SUCCESS && devices == 0)) {
    snprintf(why, TT_LIBRARY_WHY, "%s finds no GPU", path);
    return TT_CUDA_ABSENT;
  }
  if (error == CUDA_ERROR_STUB_LIBRARY) {
    return refuse_driver(why, "%s is CUDA's stub for linking, not a driver", path);
  }
  return error == CUDA_SUCCESS ? TT_CUDA_OPEN
                               : refuse_driver(why, "%s does not start: %s", path, tt_cuda_text(cuda, error));
}

// Our own libcuda.so.1 answers for host devices, by calls of the libnccl.so.2 that it is linked with.
static bool is_stand_in(tt_library *library)
{
  return tt_library_symbol(library, "tuttiSetDevice") != NULL;
}

tt_cuda_state tt_cuda_open(const char *name, tt_cuda *out, char *why)
{
  tt_cuda cuda = {0};
  tt_library_state opened = tt_library_open(name, &cuda.library, why);
  if (opened != TT_LIBRARY_OPEN) {
    if (opened == TT_LIBRARY_ABSENT) {
      snprintf(why, TT_LIBRARY_WHY, "no CUDA driver: the dynamic linker finds no %s", name);
    }
    return opened == TT_LIBRARY_ABSENT ? TT_CUDA_ABSENT : TT_CUDA_REFUSED;
  }
  tt_cuda_state state = TT_CUDA_OPEN;
  if (is_stand_in(cuda.library)) {
    state = refuse_driver(why, "%s is this library's stand-in for host devices, not a driver",
                          tt_library_path(cuda.library));
  }
  state = state == TT_CUDA_OPEN ? find_driver_functions(&cuda, why) : state;
  state = state == TT_CUDA_OPEN ? start_driver(&cuda, why) : state;
  if (state != TT_CUDA_OPEN) {
    starts = false;
    tt_cuda_close(&cuda);
    return state;
  }
  why[0] = '\0';
  *out = cuda;
  return state;
}

void tt_cuda_close(tt_cuda *cuda)
{
  tt_library_close(cuda->library);
  *cuda = (tt_cuda){0};
}

// One process has one driver.
static struct {
  pthread_once_t once;
  tt_cuda_state state;
  tt_cuda cuda;
  char why[TT_LIBRARY_WHY];
} ours = {.once = PTHREAD_ONCE_INIT};

static void open_ours(void)
{
  if (ours.state == TT_CUDA_FORKED) {
    return;
  }
  const tt_params *params = tt_params_get();
  ours.state = tt_cuda_open(params->cuda_driver, &ours.cuda, ours.why);
}

// The parent's driver is the child's, too, if it had started, or was about to. Else the child tries anew: where there
// is none, it finds none.
static void driver_in_child(void)
{
  if (starts) {
    ours.state = TT_CUDA_FORKED;
    snprintf(ours.why, sizeof ours.why,
             "this process is the child of a fork whose parent has used CUDA, and so can use no GPU: fork before the "
             "first call, or start a new program (exec)");
  }
  ours.once = PTHREAD_ONCE_INIT;
}

__attribute__((constructor)) static void driver_at_start(void)
{
  static tt_fork_hook hook = {.fn = driver_in_child};
  tt_proc_on_fork(&hook);
}

const tt_cuda *tt_cuda_get(const char **why)
{
  tt_cuda_state state = tt_cuda_get_state();
  if (why != NULL) {
    *why = ours.why;
  }
  return state == TT_CUDA_OPEN ? &ours.cuda : NULL;
}

tt_cuda_state tt_cuda_get_state(void)
{
  pthread_once(&ours.once, open_ours);
  return ours.state;
}

const char *tt_cuda_text(const tt_cuda *cuda, CUresult error)
{
  static __thread char text[256];
  const char *name = NULL, *meaning = NULL;
  if (cuda->GetErrorName(error, &name) != CUDA_SUCCESS || cuda->GetErrorString(error, &meaning) != CUDA_SUCCESS) {
    snprintf(text, sizeof text, "CUDA error %d", (int)error);
  } else {
    snprintf(text, sizeof text, "%s: %s", name, meaning);
  }
  return text;
}

ncclResult_t tt_cuda_fail_at(const tt_cuda *cuda, CUresult error, const char *file, int line, const char *what, ...)
{
  char text[512];
  va_list args;
  va_start(args, what);
  tt_vformat(text, sizeof text, what, args);
  va_end(args);
  return tt_fail_at(ncclUnhandledCudaError, file, line, "%s: %s", text, tt_cuda_text(cuda, error));
}
