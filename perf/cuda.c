// The GPUs' row: the CUDA driver, opened at run time as the library opens it.
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "data.h"
#include "device.h"
#include "fail.h"
#include "hostcuda/cuda.h"
#include "system.h"

// Name without "cu", the version of CUDA whose form it is, parameters.
#define DRIVER(CU)                                                                                                \
  CU(Init, 2000, (unsigned flags))                                                                                \
  CU(GetErrorName, 6000, (CUresult error, const char **name))                                                     \
  CU(GetErrorString, 6000, (CUresult error, const char **text))                                                   \
  CU(DeviceGetCount, 2000, (int *count))                                                                          \
  CU(DeviceGetName, 2000, (char *name, int size, CUdevice device))                                                \
  CU(DeviceGetPCIBusId, 4010, (char *id, int size, CUdevice device))                                              \
  CU(DevicePrimaryCtxRetain, 7000, (CUcontext * context, CUdevice device))                                        \
  CU(CtxSetCurrent, 4000, (CUcontext context))                                                                    \
  CU(MemGetInfo, 3020, (size_t * available, size_t * total))                                                      \
  CU(MemAlloc, 3020, (CUdeviceptr * ptr, size_t bytes))                                                           \
  CU(MemFree, 3020, (CUdeviceptr ptr))                                                                            \
  CU(MemsetD8Async, 3020, (CUdeviceptr dst, unsigned char value, size_t count, CUstream stream))                  \
  CU(MemcpyHtoDAsync, 3020, (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream))                    \
  CU(MemcpyDtoHAsync, 3020, (void *dst, CUdeviceptr src, size_t bytes, CUstream stream))                          \
  CU(MemcpyAsync, 4000, (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream))                        \
  CU(ModuleLoadDataEx, 2010,                                                                                      \
     (CUmodule * module, const void *image, unsigned count, CUjit_option *options, void **values))                \
  CU(ModuleGetFunction, 2000, (CUfunction * function, CUmodule module, const char *name))                         \
  CU(LaunchKernel, 4000,                                                                                          \
     (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
      unsigned block_z, unsigned shared_bytes, CUstream stream, void **params, void **extra))                     \
  CU(StreamCreateWithPriority, 5050, (CUstream * stream, unsigned flags, int priority))                           \
  CU(StreamDestroy, 4000, (CUstream stream))                                                                      \
  CU(StreamQuery, 2000, (CUstream stream))                                                                        \
  CU(StreamSynchronize, 2000, (CUstream stream))                                                                  \
  CU(EventCreate, 2000, (CUevent * event, unsigned flags))                                                        \
  CU(EventDestroy, 4000, (CUevent event))                                                                         \
  CU(EventRecord, 2000, (CUevent event, CUstream stream))                                                         \
  CU(EventElapsedTime, 2000, (float *ms, CUevent start, CUevent end))                                             \
  CU(StreamBeginCapture, 10010, (CUstream stream, CUstreamCaptureMode mode))                                      \
  CU(StreamEndCapture, 10000, (CUstream stream, CUgraph * graph))                                                 \
  CU(GraphInstantiateWithFlags, 11040, (CUgraphExec * exec, CUgraph graph, unsigned long long flags))             \
  CU(GraphLaunch, 10000, (CUgraphExec exec, CUstream stream))                                                     \
  CU(GraphDestroy, 10000, (CUgraph graph))                                                                        \
  CU(GraphExecDestroy, 10000, (CUgraphExec exec))

static struct {
#define CU(name, version, parameters) CUresult(*name) parameters;
  DRIVER(CU)
#undef CU
} cu;

static const struct wanted {
  const char *name;
  int version;
  size_t at; // of the member in cu
} wanted[] = {
#define CU(name, version, parameters) {"cu" #name, version, offsetof(__typeof__(cu), name)},
    DRIVER(CU)
#undef CU
};

extern const char perf_ptx[]; // data.cu

// A GPU that the process uses: retained at first use, for the rest of the process.
typedef struct gpu {
  CUcontext context;
  CUfunction write, compare;
} gpu;

static int devices;
static gpu *gpus; // [devices]
static pthread_mutex_t gpus_lock = PTHREAD_MUTEX_INITIALIZER;

// As nccl-tests says it.
static _Noreturn void cuda_failed(CUresult error, const char *file, int line)
{
  const char *name = NULL, *text = NULL;
  char host[256], note[256];
  FILE *out = *perf_who() ? stderr : stdout;
  perf_host_name(host, sizeof(host));
  if (cu.GetErrorName(error, &name) == CUDA_SUCCESS && cu.GetErrorString(error, &text) == CUDA_SUCCESS) {
    snprintf(note, sizeof(note), "%s: %s", name, text);
  } else {
    snprintf(note, sizeof(note), "CUDA error %d", (int)error);
  }
  fprintf(out, "%s: %sTest CUDA failure %s:%d '%s'\n", host, perf_who(), file, line, note);
  perf_die(PERF_EXIT_CUDA);
}

#define CUDA(call)                                 \
  do {                                             \
    CUresult cuda_ = (call);                       \
    if (cuda_ != CUDA_SUCCESS) {                   \
      cuda_failed(cuda_, __FILE_NAME__, __LINE__); \
    }                                              \
  } while (0)

static void find_functions(void *library, const char *name)
{
  CUresult (*find)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
  void *symbol = dlsym(library, "cuGetProcAddress_v2");
  if (!symbol) {
    perf_die_saying(PERF_EXIT_CUDA, "%s has no cuGetProcAddress_v2: no CUDA driver, or an older one than CUDA 12",
                    name);
  }
  memcpy(&find, &symbol, sizeof(find));
  for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
    void *fn = NULL;
    CUdriverProcAddressQueryResult status;
    CUresult error = find(wanted[i].name, &fn, wanted[i].version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status);
    if (error != CUDA_SUCCESS || !fn) {
      perf_die_saying(PERF_EXIT_CUDA, "%s has no %s (error %d)", name, wanted[i].name, (int)error);
    }
    memcpy((char *)&cu + wanted[i].at, &fn, sizeof(fn));
  }
}

static void cuda_open(void)
{
  const char *name;
  PERF_NCCL(ncclParamGetParameter("TUTTI_CUDA_DRIVER", &name, NULL));
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL); // the library has opened it, and never closes it
  if (!library) {
    perf_die_saying(PERF_EXIT_CUDA, "cannot open the CUDA driver: %s", dlerror());
  }
  find_functions(library, name);
  CUDA(cu.Init(0));
  CUDA(cu.DeviceGetCount(&devices));
  gpus = calloc((size_t)devices, sizeof(*gpus)); // never freed
  if (!gpus) {
    perf_die_saying(PERF_EXIT_INTERNAL, "no memory for %d devices", devices);
  }
}

static ncclResult_t cuda_count(int *count)
{
  *count = devices;
  return ncclSuccess;
}

// The kernels are loaded before any stream waits, for which loading may wait.
static void open_gpu(gpu *g, int device)
{
  CUmodule module;
  CUDA(cu.DevicePrimaryCtxRetain(&g->context, device));
  CUDA(cu.CtxSetCurrent(g->context));
  CUDA(cu.ModuleLoadDataEx(&module, perf_ptx, 0, NULL, NULL));
  CUDA(cu.ModuleGetFunction(&g->write, module, "write"));
  CUDA(cu.ModuleGetFunction(&g->compare, module, "compare"));
}

static ncclResult_t cuda_set(int device)
{
  static __thread int current; // device + 1
  if (current == device + 1) {
    return ncclSuccess;
  }
  pthread_mutex_lock(&gpus_lock);
  if (!gpus[device].context) {
    open_gpu(&gpus[device], device);
  }
  pthread_mutex_unlock(&gpus_lock);
  CUDA(cu.CtxSetCurrent(gpus[device].context));
  current = device + 1;
  return ncclSuccess;
}

static void cuda_describe(int device, perf_device *d)
{
  char bus[32] = "";
  CUDA(cu.DeviceGetName(d->info, sizeof(d->info), device));
  CUDA(cu.DeviceGetPCIBusId(bus, sizeof(bus), device));
  snprintf(d->bus, sizeof(d->bus), "%.10s", bus); // without the function
}

// There are buffers for every rank on the GPU. An eighth is kept back.
static size_t cuda_room(const perf_job *j, const perf_rank *r)
{
  (void)j;
  size_t available, total;
  cuda_set(r->device);
  CUDA(cu.MemGetInfo(&available, &total));
  return (available - available / 8) / (size_t)r->sharing;
}

static int64_t cuda_memory(const perf_job *j)
{
  size_t available, total, most = 0;
  for (int i = 0; i < j->nlocal; i++) {
    cuda_set(j->ranks[i].device);
    CUDA(cu.MemGetInfo(&available, &total));
    most = total - available > most ? total - available : most;
  }
  return (int64_t)most;
}

static ncclResult_t cuda_open_stream(perf_rank *r)
{
  cuda_set(r->device);
  CUDA(cu.StreamCreateWithPriority(&r->stream, CU_STREAM_NON_BLOCKING, 0));
  return ncclSuccess;
}

static ncclResult_t cuda_close_stream(perf_rank *r)
{
  cuda_set(r->device);
  CUDA(cu.StreamDestroy(r->stream));
  return ncclSuccess;
}

static CUdeviceptr address_of(const void *p)
{
  return (CUdeviceptr)(uintptr_t)p;
}

static ncclResult_t cuda_alloc(const perf_rank *r, size_t size, void **out)
{
  CUdeviceptr at;
  cuda_set(r->device);
  CUDA(cu.MemAlloc(&at, size));
  *out = (void *)(uintptr_t)at;
  return ncclSuccess;
}

static ncclResult_t cuda_free(const perf_rank *r, void *memory)
{
  cuda_set(r->device);
  CUDA(cu.MemFree(address_of(memory)));
  return ncclSuccess;
}

static ncclResult_t cuda_zero(const perf_rank *r, void *memory, size_t size)
{
  cuda_set(r->device);
  CUDA(cu.MemsetD8Async(address_of(memory), 0, size, r->stream));
  CUDA(cu.StreamSynchronize(r->stream));
  return ncclSuccess;
}

// ---- Data of a check, made and compared by kernels ----

enum { TABLE = 2 * PERF_PERIOD * sizeof(uint64_t), TABLES = 3, FINDING = TABLES * TABLE };

static CUdeviceptr finding_of(const perf_rank *r)
{
  return address_of(r->tables) + FINDING;
}

// The tables of the rank's pattern, in the device's memory: copy, reduced, and the rank's input.
static void cuda_load(perf_rank *r)
{
  const perf_pattern *p = r->pattern;
  const uint8_t *from[TABLES] = {p->copy, p->reduced, p->input[r->rank]};
  cuda_alloc(r, FINDING + sizeof(perf_gpu_finding), &r->tables);
  for (int i = 0; i < TABLES; i++) {
    CUDA(cu.MemcpyHtoDAsync(address_of(r->tables) + (CUdeviceptr)i * TABLE, from[i], 2 * PERF_PERIOD * p->elt,
                            r->stream));
  }
  CUDA(cu.StreamSynchronize(r->stream));
}

static void cuda_unload(perf_rank *r)
{
  cuda_free(r, r->tables);
  r->tables = NULL;
}

static CUdeviceptr table_of(const perf_rank *r, const uint8_t *table)
{
  const perf_pattern *p = r->pattern;
  const int i = table == p->copy ? 0 : table == p->reduced ? 1 : 2;
  return table ? address_of(r->tables) + (CUdeviceptr)i * TABLE : 0;
}

static void launch_over(const perf_rank *r, CUfunction kernel, const perf_piece *p, uint64_t seed)
{
  enum { MOST_CTAS = 1024 };
  perf_gpu_piece args = {.at = address_of(p->at),
                         .count = p->count,
                         .table = table_of(r, p->table),
                         .seed = seed,
                         .index = p->index,
                         .found = finding_of(r),
                         .elt = (uint32_t)p->elt,
                         .tolerance = p->tolerance};
  void *params[] = {&args};
  const size_t ctas = (p->count + PERF_GPU_THREADS - 1) / PERF_GPU_THREADS;
  CUDA(cu.LaunchKernel(kernel, (unsigned)(ctas < MOST_CTAS ? ctas : MOST_CTAS), 1, 1, PERF_GPU_THREADS, 1, 1, 0,
                       r->stream, params, NULL));
}

static void cuda_write(void *arg, const perf_piece *p)
{
  const perf_rank *r = arg;
  cuda_set(r->device);
  if (p->table) {
    launch_over(r, gpus[r->device].write, p, p->seed);
  } else {
    CUDA(cu.MemsetD8Async(address_of(p->at), PERF_POISON, p->count * p->elt, r->stream));
  }
}

static void cuda_compare(void *arg, const perf_piece *p, perf_finding *out)
{
  const perf_rank *r = arg;
  const CUdeviceptr finding = finding_of(r);
  perf_gpu_finding f = {.first = UINT64_MAX};
  cuda_set(r->device);
  CUDA(cu.MemcpyHtoDAsync(finding, &f, sizeof(f), r->stream));
  launch_over(r, gpus[r->device].compare, p, p->table ? p->seed : perf_poison(p->elt));
  CUDA(cu.MemcpyDtoHAsync(&f, finding, sizeof(f), r->stream));
  CUDA(cu.StreamSynchronize(r->stream));
  *out = (perf_finding){.wrong = f.wrong};
  if (f.wrong != 0) {
    out->first = f.first;
    CUDA(cu.MemcpyDtoHAsync(&out->got, address_of(p->at) + f.first * p->elt, p->elt, r->stream));
    CUDA(cu.StreamSynchronize(r->stream));
  }
}

static const perf_reach cuda_reach = {cuda_write, cuda_compare};

static ncclResult_t cuda_copy(int device, void *to, const void *from, size_t size, cudaStream_t stream)
{
  cuda_set(device);
  if (size > 0) {
    CUDA(cu.MemcpyAsync(address_of(to), address_of(from), size, stream));
  }
  return ncclSuccess;
}

// A GPU waits for peers that may have failed: the stream alone would never tell. After PATIENCE the thread sleeps
// between looks, for less than a hundredth of the time that has passed.
static ncclResult_t cuda_wait(const perf_rank *r)
{
  enum { PATIENCE_NS = 10 * 1000 * 1000 };
  const struct timespec nap = {.tv_nsec = 50 * 1000};
  const uint64_t start = perf_now();
  CUresult error;
  cuda_set(r->device);
  while ((error = cu.StreamQuery(r->stream)) == CUDA_ERROR_NOT_READY) {
    ncclResult_t state, result = ncclCommGetAsyncError(r->comm, &state);
    if (result != ncclSuccess || state != ncclSuccess) {
      return result != ncclSuccess ? result : state;
    }
    if (perf_now() - start < PATIENCE_NS) {
      sched_yield();
    } else {
      nanosleep(&nap, NULL);
    }
  }
  CUDA(error);
  return ncclSuccess;
}

static CUevent event_of(tuttiEvent_t event)
{
  return (CUevent)(void *)event;
}

static ncclResult_t cuda_make_event(const perf_rank *r, tuttiEvent_t *out)
{
  CUevent event;
  cuda_set(r->device);
  CUDA(cu.EventCreate(&event, CU_EVENT_DEFAULT));
  *out = (tuttiEvent_t)(void *)event;
  return ncclSuccess;
}

static ncclResult_t cuda_destroy_event(const perf_rank *r, tuttiEvent_t event)
{
  cuda_set(r->device);
  CUDA(cu.EventDestroy(event_of(event)));
  return ncclSuccess;
}

static ncclResult_t cuda_record(const perf_rank *r, tuttiEvent_t event)
{
  cuda_set(r->device);
  CUDA(cu.EventRecord(event_of(event), r->stream));
  return ncclSuccess;
}

static ncclResult_t cuda_elapsed(const perf_rank *r, float *ms, tuttiEvent_t start, tuttiEvent_t end)
{
  cuda_set(r->device);
  CUDA(cu.EventElapsedTime(ms, event_of(start), event_of(end)));
  return ncclSuccess;
}

static ncclResult_t cuda_begin_capture(const perf_rank *r)
{
  cuda_set(r->device);
  CUDA(cu.StreamBeginCapture(r->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  return ncclSuccess;
}

static ncclResult_t cuda_end_capture(perf_rank *r)
{
  CUgraph graph;
  CUgraphExec exec;
  cuda_set(r->device);
  CUDA(cu.StreamEndCapture(r->stream, &graph));
  CUDA(cu.GraphInstantiateWithFlags(&exec, graph, 0));
  CUDA(cu.GraphDestroy(graph));
  r->exec = (tuttiGraphExec_t)(void *)exec;
  return ncclSuccess;
}

static CUgraphExec exec_of(const perf_rank *r)
{
  return (CUgraphExec)(void *)r->exec;
}

static ncclResult_t cuda_launch(const perf_rank *r)
{
  cuda_set(r->device);
  CUDA(cu.GraphLaunch(exec_of(r), r->stream));
  return ncclSuccess;
}

static ncclResult_t cuda_destroy_graph(perf_rank *r)
{
  cuda_set(r->device);
  CUDA(cu.GraphExecDestroy(exec_of(r)));
  r->exec = NULL;
  return ncclSuccess;
}

const perf_device_ops perf_device_cuda = {
    .name = "GPUs",
    .shared = true,
    .open = cuda_open,
    .count = cuda_count,
    .set = cuda_set,
    .describe = cuda_describe,
    .room = cuda_room,
    .memory = cuda_memory,
    .open_stream = cuda_open_stream,
    .close_stream = cuda_close_stream,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .zero = cuda_zero,
    .reach = &cuda_reach,
    .load = cuda_load,
    .unload = cuda_unload,
    .copy = cuda_copy,
    .wait = cuda_wait,
    .make_event = cuda_make_event,
    .destroy_event = cuda_destroy_event,
    .record = cuda_record,
    .elapsed = cuda_elapsed,
    .begin_capture = cuda_begin_capture,
    .end_capture = cuda_end_capture,
    .launch = cuda_launch,
    .destroy_graph = cuda_destroy_graph,
};
