// walk.c: see walk.h.
#include "device/cuda/work/walk.h"

#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "device/cuda/work/capture_priv.h"
#include "device/cuda/work/functions.h"
#include "device/cuda/work/ipc.h"

enum { WALK_ITEMS = 1024 }; // of one launch: the first begins while the others are made

// What has been added since the last launch, for one stream.
typedef struct gpu_walk {
  tt_cuda_item *first, *last;
  tt_kernel kernel; // module NULL: so far there are only copies
  CUstream stream;
  unsigned ctas; // that make the data of its largest step
  int n;
  uint64_t waits; // of the next item
  uint32_t nwaits;
  uint64_t place; // as in tt_cuda_item
  uint32_t stands;
} gpu_walk;

// A rank of the communicator that is on the same GPU; -1: there is none.
static int walk_obstacle(const tt_gpu_port *p)
{
  for (int i = 0; p->port->neighbors != NULL && i < p->nranks; i++) {
    if (p->port->neighbors[i].beside) {
      return i;
    }
  }
  return -1;
}

bool tt_gpu_walk_fifos_only(const tt_gpu_port *p)
{
  bool apart = false;
  for (int i = 0; i < p->nranks && p->walk != NULL; i++) {
    apart |= tt_gpu_ipc_has(p, i);
  }
  return apart;
}

ncclResult_t tt_gpu_walk_open(tt_gpu_port *p)
{
  if (!tt_params_get()->cuda_resident) {
    return ncclSuccess;
  }
  const int rank = walk_obstacle(p);
  if (rank >= 0) {
    tt_info(TT_INIT, "rank %d: NCCL_CUDA_RESIDENT has no effect: rank %d is on the same GPU", p->port->rank, rank);
    return ncclSuccess;
  }
  tt_info(TT_INIT, "rank %d: NCCL_CUDA_RESIDENT: an operation is one kernel, which waits itself", p->port->rank);
  return TT_NEW(p->walk, 1, "GPU %d: no memory for a port", p->device);
}

void tt_gpu_walk_drop(tt_gpu_port *p)
{
  if (p->walk != NULL) {
    memset(p->walk, 0, sizeof *p->walk);
  }
}

static ncclResult_t walk_append(tt_gpu_port *p, CUstream stream, tt_cuda_item **out)
{
  gpu_walk *w = p->walk;
  void *memory;
  TT_TRY(tt_gpu_list(p, sizeof(tt_cuda_item), &memory));
  tt_cuda_item *item = memory;
  *item = (tt_cuda_item){.waits = w->waits, .nwaits = w->nwaits, .place = w->place, .stands = w->stands};
  w->waits = w->place = w->nwaits = 0;
  if (w->last != NULL) {
    w->last->next = gpu_address(item);
  } else {
    w->first = item;
  }
  w->last = item;
  w->stream = stream;
  w->ctas = TT_MAX(w->ctas, 1u);
  w->n++;
  *out = item;
  return ncclSuccess;
}

// What is to be waited for becomes an item without any other part.
static ncclResult_t walk_close_waits(tt_gpu_port *p, CUstream stream)
{
  tt_cuda_item *item;
  if (p->walk->nwaits == 0) {
    return ncclSuccess;
  }
  TT_TRY(walk_append(p, stream, &item));
  item->step.port = (tt_cuda_port){.stop = gpu_address(&p->flags->stop), .fault = gpu_address(&p->flags->fault)};
  return ncclSuccess;
}

ncclResult_t tt_gpu_walk_launch(tt_gpu_port *p)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  gpu_walk *w = p->walk;
  if (w == NULL || w->stream == NULL) {
    return ncclSuccess;
  }
  TT_TRY(walk_close_waits(p, w->stream));
  const tt_kernel copies = {.module = "step", .name = "copy"},
                  *kernel = w->kernel.module != NULL ? &w->kernel : &copies;
  uint64_t first = gpu_address(w->first);
  void *params[] = {&first};
  if (w->ctas > 1) {
    TT_CUDA(cu, cu->MemsetD8Async(p->room->meet, 0, sizeof(uint64_t), w->stream), "cannot clear a count");
  }
  TT_CUDA(cu,
          cu->LaunchKernel(tt_gpu_walk_function(p->device, kernel->module, kernel->name), w->ctas, 1, 1,
                           TT_CUDA_THREADS, 1, 1, 0, w->stream, params, NULL),
          "GPU %d: cannot launch the walk %s of module %s", p->device, kernel->name, kernel->module);
  tt_gpu_walk_drop(p);
  return ncclSuccess;
}

// Launches what has been added if the next item cannot be one of it. `kernel` NULL: any.
static ncclResult_t walk_room(tt_gpu_port *p, CUstream stream, const tt_kernel *kernel)
{
  const gpu_walk *w = p->walk;
  const bool other = kernel != NULL && w->kernel.module != NULL &&
                     (strcmp(kernel->module, w->kernel.module) != 0 || strcmp(kernel->name, w->kernel.name) != 0);
  return other || w->n >= WALK_ITEMS || w->stream != stream ? tt_gpu_walk_launch(p) : ncclSuccess;
}

ncclResult_t tt_gpu_walk_wait(tt_gpu_port *p, CUstream stream, const CUstreamBatchMemOpParams *words, unsigned n)
{
  const gpu_recording *rec = p->recording;
  gpu_walk *w = p->walk;
  void *memory;
  TT_TRY(walk_room(p, stream, NULL));
  TT_TRY(walk_close_waits(p, stream)); // more than a list has
  TT_TRY(tt_gpu_list(p, n * sizeof(tt_cuda_wait), &memory));
  tt_cuda_wait *list = memory;
  for (unsigned i = 0; i < n; i++) {
    list[i] = (tt_cuda_wait){.at = words[i].waitValue.address, .value = words[i].waitValue.value};
  }
  w->waits = gpu_address(list);
  w->nwaits = n;
  w->place = rec != NULL ? gpu_address(rec->capture->place) : 0;
  w->stands = rec != NULL ? 1 + (uint32_t)rec->nwaits - n : 0; // the first of these
  w->stream = stream;
  return ncclSuccess;
}

ncclResult_t tt_gpu_walk_add(tt_gpu_port *p, CUstream stream, const tt_kernel *kernel, unsigned ctas,
                             const tt_cuda_step *step)
{
  gpu_walk *w = p->walk;
  const bool copies = strcmp(kernel->module, "step") == 0;
  tt_cuda_item *item;
  TT_TRY(walk_room(p, stream, copies ? NULL : kernel));
  TT_TRY(walk_append(p, stream, &item));
  item->step = *step;
  item->copies = copies;
  item->meet = ctas > 1 ? p->room->meet : 0;
  w->ctas = TT_MAX(w->ctas, TT_MIN(ctas, (unsigned)p->sms));
  if (!copies) {
    w->kernel = *kernel;
  }
  return ncclSuccess;
}
