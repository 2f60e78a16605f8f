// walk.c: see walk.h.
#include "device/cuda/work/walk.h"

#include <stddef.h>
#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "device/cuda/work/capture_priv.h"
#include "device/cuda/work/functions.h"
#include "device/cuda/work/ipc.h"
#include "device/cuda/work/pool.h"

enum {
  WALK_ITEMS = 1024, // of one launch, about: the first begins while the others are made
  WALK_GROUPS = 64   // of a launch, at most
};

// What has been added for a group of CTAs since the last launch.
typedef struct walk_group {
  tt_cuda_item *first, *last;
  uint32_t n;     // of them
  uint64_t waits; // of the next one
  uint32_t nwaits;
  uint32_t stands; // as in tt_cuda_item,
  uint64_t place;  // likewise
  gpu_room room;   // of its steps, of plans that are not captured
} walk_group;

// What has been added since the last launch, for one stream.
typedef struct gpu_walk {
  walk_group groups[WALK_GROUPS];
  int most;         // groups that the device and this port have room for
  int used;         // groups of the launch
  walk_group *now;  // of the step that is submitted
  tt_kernel kernel; // module NULL: so far there are only copies
  CUstream stream;  // NULL: nothing has been added
  unsigned ctas;    // that make the data of its largest step,
  unsigned threads; // of a CTA
  int n;            // items
  void *memory;     // of the device: the words of all groups, then their rooms
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

// Each group has what steps that run one after the other use. Tokens that are kept belong to the lane that has taken
// them, whatever its group.
static ncclResult_t walk_open_groups(tt_gpu_port *p)
{
  gpu_walk *w = p->walk;
  const size_t operands =
      TT_ROUND_UP(gpu_port_refs(p) * sizeof(tt_cuda_operand) + sizeof(uint32_t), (size_t)TT_CACHE_LINE);
  w->most = TT_MIN(tt_gpu_walk_ctas(p->device), (int)WALK_GROUPS);
  TT_TRY(tt_gpu_pool_take(p->device, (size_t)w->most * (sizeof(gpu_counts) + operands), &w->memory));
  for (int i = 0; i < w->most; i++) {
    gpu_room *r = &w->groups[i].room;
    *r = p->own;
    r->meet = gpu_address((gpu_counts *)w->memory + i);
    r->operands = gpu_address((gpu_counts *)w->memory + w->most) + (size_t)i * operands;
    r->go = r->operands + operands - sizeof(uint32_t);
  }
  return ncclSuccess;
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
  TT_TRY(TT_NEW(p->walk, 1, "GPU %d: no memory for a port", p->device));
  return walk_open_groups(p);
}

void tt_gpu_walk_close(tt_gpu_port *p)
{
  if (p->walk != NULL) {
    tt_gpu_pool_give(p->device, p->walk->memory);
    tt_free(p->walk);
    p->walk = NULL;
  }
}

// Lanes of one channel are numbered; those of the next one begin when these are done, and take their groups over.
void tt_gpu_walk_groups(const tt_gpu_port *p, tt_plan *plan)
{
  int after = -1, i = 0;
  for (tt_lane *l = plan->turns; l != NULL && p->walk != NULL; l = l->next, i++) {
    i = l->after == after ? i : 0;
    after = l->after;
    for (tt_lane *f = l; f != NULL; f = f->follower) {
      f->group = (uint8_t)(i % p->walk->most);
    }
  }
}

// ---- Items ----

static ncclResult_t walk_append(tt_gpu_port *p, walk_group *g, CUstream stream, tt_cuda_item **out)
{
  gpu_walk *w = p->walk;
  void *memory;
  TT_TRY(tt_gpu_list(p, sizeof(tt_cuda_item), &memory));
  tt_cuda_item *item = memory;
  *item = (tt_cuda_item){.waits = g->waits, .nwaits = g->nwaits, .place = g->place, .stands = g->stands};
  g->waits = g->place = g->nwaits = 0;
  if (g->last != NULL) {
    g->last->next = gpu_address(item);
  } else {
    g->first = item;
  }
  g->last = item;
  g->n++;
  w->used = TT_MAX(w->used, (int)(g - w->groups) + 1);
  w->stream = stream;
  w->n++;
  *out = item;
  return ncclSuccess;
}

// What is to be waited for becomes an item without any other part.
static ncclResult_t walk_close_waits(tt_gpu_port *p, walk_group *g, CUstream stream)
{
  tt_cuda_item *item;
  if (g->nwaits == 0) {
    return ncclSuccess;
  }
  TT_TRY(walk_append(p, g, stream, &item));
  item->step.port = (tt_cuda_port){.stop = gpu_address(&p->flags->stop), .fault = gpu_address(&p->flags->fault)};
  return ncclSuccess;
}

// Room for n waits of the next item of the group.
static ncclResult_t walk_waits(tt_gpu_port *p, walk_group *g, CUstream stream, unsigned n, tt_cuda_wait **out)
{
  void *memory;
  TT_TRY(walk_close_waits(p, g, stream)); // more than a list has
  TT_TRY(tt_gpu_list(p, n * sizeof(tt_cuda_wait), &memory));
  g->waits = gpu_address(memory);
  g->nwaits = n;
  p->walk->stream = stream;
  *out = memory;
  return ncclSuccess;
}

// ---- Launching ----

static void walk_forget(gpu_walk *w)
{
  for (int i = 0; i < w->most; i++) {
    walk_group *g = &w->groups[i];
    *g = (walk_group){.room = g->room};
  }
  w->used = w->n = 0;
  w->ctas = w->threads = 0;
  w->stream = NULL;
  w->kernel.module = NULL;
}

void tt_gpu_walk_end(tt_gpu_port *p)
{
  if (p->walk != NULL) {
    walk_forget(p->walk);
    p->room = &p->own;
  }
}

static ncclResult_t walk_launch_groups(const tt_gpu_port *p, const tt_cuda_walk *args, unsigned ctas)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  const gpu_walk *w = p->walk;
  const tt_kernel copies = {.module = "step", .name = "copy"},
                  *kernel = w->kernel.module != NULL ? &w->kernel : &copies;
  const CUdeviceptr counts = p->recording != NULL ? p->room->meet : w->groups[0].room.meet;
  void *params[] = {(void *)(uintptr_t)args};
  if (w->used > 1 || w->ctas > 1) { // a group waits for another one, or its CTAs meet
    TT_CUDA(cu, cu->MemsetD8Async(counts, 0, (size_t)w->used * sizeof(gpu_counts), w->stream), "cannot clear %d counts",
            w->used);
  }
  TT_CUDA(cu,
          cu->LaunchKernel(tt_gpu_walk_function(p->device, kernel->module, kernel->name), ctas, 1, 1,
                           tt_kernel_threads(w->threads), 1, 1, 0, w->stream, params, NULL),
          "GPU %d: cannot launch the walk %s of module %s", p->device, kernel->name, kernel->module);
  return ncclSuccess;
}

ncclResult_t tt_gpu_walk_launch(tt_gpu_port *p)
{
  gpu_walk *w = p->walk;
  void *memory;
  if (w == NULL || w->stream == NULL) {
    return ncclSuccess;
  }
  for (int i = 0; i < w->most; i++) {
    TT_TRY(walk_close_waits(p, &w->groups[i], w->stream));
  }
  TT_TRY(tt_gpu_list(p, (size_t)w->used * sizeof(uint64_t), &memory));
  uint64_t *first = memory;
  for (int i = 0; i < w->used; i++) {
    first[i] = gpu_address(w->groups[i].first);
  }
  const unsigned used = (unsigned)w->used, most = TT_MAX((unsigned)p->sms / used, 1u);
  const tt_cuda_walk args = {.first = gpu_address(first), .ctas = TT_MIN(TT_MAX(w->ctas, 1u), most)};
  TT_TRY(walk_launch_groups(p, &args, used * args.ctas));
  walk_forget(w);
  return ncclSuccess;
}

// Launches what has been added if the next item cannot be one of it. `kernel` NULL: any.
static ncclResult_t walk_room(tt_gpu_port *p, CUstream stream, const tt_kernel *kernel)
{
  const gpu_walk *w = p->walk;
  const bool other = kernel != NULL && w->kernel.module != NULL &&
                     (strcmp(kernel->module, w->kernel.module) != 0 || strcmp(kernel->name, w->kernel.name) != 0);
  return other || w->stream != stream ? tt_gpu_walk_launch(p) : ncclSuccess;
}

bool tt_gpu_walk_is_full(const tt_gpu_port *p)
{
  return p->walk != NULL && p->walk->n >= WALK_ITEMS;
}

// ---- Steps ----

// The group waits for all others to have come as far as what has been added for them.
static ncclResult_t walk_behind(tt_gpu_port *p, walk_group *g, CUstream stream)
{
  gpu_walk *w = p->walk;
  tt_cuda_wait *list;
  unsigned n = 0;
  for (int i = 0; i < w->used; i++) {
    TT_TRY(walk_close_waits(p, &w->groups[i], stream));
    n += &w->groups[i] != g && w->groups[i].last != NULL;
  }
  if (n == 0) {
    return ncclSuccess;
  }
  TT_TRY(walk_waits(p, g, stream, n, &list));
  for (int i = 0; i < w->used; i++) {
    const walk_group *other = &w->groups[i];
    if (other != g && other->last != NULL) {
      other->last->over = other->room.meet + offsetof(gpu_counts, over);
      other->last->number = other->n;
      *list++ = (tt_cuda_wait){.at = other->last->over, .value = other->n};
    }
  }
  return ncclSuccess;
}

ncclResult_t tt_gpu_walk_lane(tt_gpu_port *p, CUstream stream, const tt_lane *l)
{
  gpu_walk *w = p->walk;
  if (p->recording != NULL) {
    w->now = &w->groups[0];
    return ncclSuccess;
  }
  w->now = &w->groups[l->group];
  p->room = &w->now->room;
  if (l->after < 0 || l->nafter == 0 || l->pos != l->begin || l->pc != 0) {
    return ncclSuccess;
  }
  TT_TRY(walk_room(p, stream, NULL));
  return walk_behind(p, w->now, stream);
}

ncclResult_t tt_gpu_walk_wait(tt_gpu_port *p, CUstream stream, const CUstreamBatchMemOpParams *words, unsigned n)
{
  const gpu_recording *rec = p->recording;
  walk_group *g = p->walk->now;
  tt_cuda_wait *list;
  TT_TRY(walk_room(p, stream, NULL));
  TT_TRY(walk_waits(p, g, stream, n, &list));
  for (unsigned i = 0; i < n; i++) {
    list[i] = (tt_cuda_wait){.at = words[i].waitValue.address, .value = words[i].waitValue.value};
  }
  if (rec != NULL) {
    g->place = gpu_address(rec->capture->place);
    g->stands = 1 + (uint32_t)rec->nwaits - n; // the first of these
  }
  return ncclSuccess;
}

ncclResult_t tt_gpu_walk_add(tt_gpu_port *p, CUstream stream, const tt_kernel *kernel, unsigned ctas, unsigned threads,
                             const tt_cuda_step *step)
{
  gpu_walk *w = p->walk;
  const bool copies = strcmp(kernel->module, "step") == 0;
  tt_cuda_item *item;
  TT_TRY(walk_room(p, stream, copies ? NULL : kernel));
  TT_TRY(walk_append(p, w->now, stream, &item));
  item->step = *step;
  item->copies = copies;
  item->meet = ctas > 1 ? p->room->meet : 0;
  w->ctas = TT_MAX(w->ctas, ctas);
  w->threads = TT_MAX(w->threads, threads);
  if (!copies) {
    w->kernel = *kernel;
  }
  return ncclSuccess;
}
