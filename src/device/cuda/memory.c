// memory.c: see memory.h.
#include "device/cuda/memory.h"

#include <pthread.h>

#include "os/proc.h"

// An allocation that has got a number, or is ours.
typedef struct gpu_block {
  struct gpu_block *next;
  uintptr_t base;
  size_t bytes;
  unsigned long long id; // the driver's number of it
  uint32_t handle;       // 0: no peer has been told of it
  int device;
  uint32_t epoch;
  bool ours; // of tt_gpu_alloc
} gpu_block;

static struct {
  pthread_mutex_t lock;
  gpu_block *first;
  uint32_t handles;
} blocks = {.lock = PTHREAD_MUTEX_INITIALIZER};

// What the driver knows of the allocation that holds the byte.
static bool block_query(const void *ptr, gpu_block *out)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  CUdeviceptr base = 0;
  unsigned kind = 0;
  size_t bytes = 0;
  int device = -1;
  unsigned long long id = 0;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                      CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                      CU_POINTER_ATTRIBUTE_BUFFER_ID};
  void *values[] = {&kind, &base, &bytes, &device, &id};
  if (cu == NULL ||
      cu->PointerGetAttributes(TT_COUNT(attributes), attributes, values, (CUdeviceptr)(uintptr_t)ptr) != CUDA_SUCCESS ||
      kind != CU_MEMORYTYPE_DEVICE || base == 0) {
    return false;
  }
  *out = (gpu_block){.base = (uintptr_t)base, .bytes = bytes, .id = id, .device = device};
  return true;
}

// Takes it off the list. The lock is held.
static gpu_block *block_take(gpu_block **at)
{
  gpu_block *b = *at;
  *at = b->next;
  return b;
}

// Puts it onto the list. The lock is held.
static void block_put(gpu_block *b)
{
  b->next = blocks.first;
  blocks.first = b;
}

// The block of that allocation; drops those that lay where it is now. NULL: there is none. The lock is held.
static gpu_block *gpu_block_of(const gpu_block *now)
{
  gpu_block *found = NULL;
  for (gpu_block **at = &blocks.first; *at != NULL;) {
    gpu_block *b = *at;
    if (b->base == now->base && b->id == now->id) {
      found = b;
    } else if (b->base < now->base + now->bytes && now->base < b->base + b->bytes) {
      tt_free(block_take(at));
      continue;
    }
    at = &b->next;
  }
  return found;
}

// The same, made if it was not known. NULL: no memory. The lock is held.
static gpu_block *block_make(const gpu_block *now)
{
  gpu_block *b = gpu_block_of(now);
  if (b == NULL) {
    b = tt_calloc(1, sizeof *b);
    if (b != NULL) {
      *b = *now;
      block_put(b);
    }
  }
  return b;
}

// Remembers an allocation of tt_gpu_alloc. False: no memory.
static bool block_remember(const void *ptr)
{
  gpu_block now;
  pthread_mutex_lock(&blocks.lock);
  gpu_block *b = block_query(ptr, &now) ? block_make(&now) : NULL;
  if (b != NULL) {
    b->ours = true;
    b->epoch = tt_gpu_epoch(b->device);
  }
  pthread_mutex_unlock(&blocks.lock);
  return b != NULL;
}

ncclResult_t tt_gpu_alloc(size_t size, void **ptr)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  const int device = tt_gpu_current();
  CUdeviceptr at = 0;
  TT_TRY(tt_gpu_enter(device));
  CUresult error = cu->MemAlloc(&at, size);
  void *memory = (void *)(uintptr_t)at;
  const bool known = error == CUDA_SUCCESS && block_remember(memory);
  if (error == CUDA_SUCCESS && !known) {
    cu->MemFree(at);
  }
  tt_gpu_leave();
  TT_CUDA(cu, error, "GPU %d: cannot allocate %zu bytes", device, size);
  if (!known) {
    return tt_fail(ncclSystemError, "GPU %d: no memory to remember an allocation", device);
  }
  *ptr = memory;
  return ncclSuccess;
}

// The place of our block that begins there. NULL: none does. The lock is held.
static gpu_block **block_ours(const void *ptr)
{
  gpu_block **at = &blocks.first;
  while (*at != NULL && !((*at)->ours && (*at)->base == (uintptr_t)ptr)) {
    at = &(*at)->next;
  }
  return *at != NULL ? at : NULL;
}

static ncclResult_t gpu_free(int device, uint32_t epoch, void *ptr)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  TT_TRY(tt_gpu_reenter(device, epoch));
  CUresult error = cu->MemFree((CUdeviceptr)(uintptr_t)ptr);
  tt_gpu_leave();
  TT_CUDA(cu, error, "GPU %d: cannot free %p", device, ptr);
  return ncclSuccess;
}

ncclResult_t tt_gpu_free(void *ptr)
{
  pthread_mutex_lock(&blocks.lock);
  gpu_block **at = block_ours(ptr);
  gpu_block *b = at != NULL ? block_take(at) : NULL; // a second free of it finds nothing
  pthread_mutex_unlock(&blocks.lock);
  if (b == NULL) {
    return tt_fail(ncclInvalidArgument, "%p is not the beginning of an allocation of ours", ptr);
  }
  ncclResult_t res = gpu_free(b->device, b->epoch, ptr);
  pthread_mutex_lock(&blocks.lock);
  if (res == ncclSuccess || b->epoch != tt_gpu_epoch(b->device)) {
    tt_free(b);
  } else {
    block_put(b); // it is still there, and can be freed later
  }
  pthread_mutex_unlock(&blocks.lock);
  return res;
}

bool tt_gpu_allocation(const void *ptr, void **base, size_t *bytes, int *device)
{
  gpu_block now;
  if (!block_query(ptr, &now)) {
    return false;
  }
  *base = (void *)now.base;
  *bytes = now.bytes;
  *device = now.device;
  return true;
}

static bool block_holds(const gpu_block *b, const void *ptr, size_t size)
{
  const size_t offset = (uintptr_t)ptr - b->base;
  return offset <= b->bytes && size <= b->bytes - offset;
}

bool tt_gpu_range(const void *ptr, size_t size, void **base, size_t *bytes)
{
  bool found = false;
  pthread_mutex_lock(&blocks.lock);
  for (const gpu_block *b = blocks.first; b != NULL && !found; b = b->next) {
    found = b->ours && block_holds(b, ptr, size);
    if (found) {
      *base = (void *)b->base;
      *bytes = b->bytes;
    }
  }
  pthread_mutex_unlock(&blocks.lock);
  return found;
}

static bool block_is_shareable(const gpu_block *b)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  unsigned capable = 0;
  return cu->PointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, (CUdeviceptr)b->base) ==
             CUDA_SUCCESS &&
         capable != 0;
}

tt_mappable tt_gpu_find(const void *ptr, size_t size)
{
  gpu_block now;
  tt_mappable found = {0};
  if (!block_query(ptr, &now) || !block_holds(&now, ptr, size) || !block_is_shareable(&now)) {
    return found;
  }
  pthread_mutex_lock(&blocks.lock);
  gpu_block *b = block_make(&now);
  if (b != NULL) {
    b->handle = b->handle != 0 ? b->handle : ++blocks.handles;
    found = (tt_mappable){.handle = b->handle, .from = b->base, .size = b->bytes};
  }
  pthread_mutex_unlock(&blocks.lock);
  return found;
}

// A copy of the block of that number.
static bool block_find(uint32_t handle, gpu_block *out)
{
  bool found = false;
  pthread_mutex_lock(&blocks.lock);
  for (const gpu_block *b = blocks.first; b != NULL && !found; b = b->next) {
    found = b->handle == handle;
    if (found) {
      *out = *b;
    }
  }
  pthread_mutex_unlock(&blocks.lock);
  return found;
}

void tt_gpu_sweep(void)
{
  pthread_mutex_lock(&blocks.lock);
  for (gpu_block **at = &blocks.first, *b = *at; b != NULL; b = *at) {
    gpu_block now;
    if (b->handle != 0 && !(block_query((void *)b->base, &now) && now.base == b->base && now.id == b->id)) {
      tt_free(block_take(at));
    } else {
      at = &b->next;
    }
  }
  pthread_mutex_unlock(&blocks.lock);
}

bool tt_gpu_exists(uint32_t handle)
{
  gpu_block b;
  return handle != 0 && block_find(handle, &b);
}

ncclResult_t tt_gpu_export(uint32_t handle, tt_gpu_share *out)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  gpu_block b, now;
  tt_gpu_share share;
  if (handle == 0 || !block_find(handle, &b) || !block_query((void *)b.base, &now) || now.id != b.id) {
    return tt_fail(ncclInvalidArgument, "allocation %u has been freed", handle);
  }
  TT_TRY(tt_gpu_enter(b.device));
  CUresult error = cu->IpcGetMemHandle(&share.handle, (CUdeviceptr)b.base);
  tt_gpu_leave();
  TT_CUDA(cu, error, "GPU %d: cannot share the allocation of %zu bytes at %p", b.device, b.bytes, (void *)b.base);
  share.bytes = b.bytes;
  *out = share;
  return ncclSuccess;
}

ncclResult_t tt_gpu_open(int device, const tt_gpu_share *share, void **base)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  CUdeviceptr at = 0;
  TT_TRY(tt_gpu_enter(device));
  CUresult error = cu->IpcOpenMemHandle(&at, share->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  tt_gpu_leave();
  TT_CUDA(cu, error, "GPU %d: cannot open a peer's allocation of %llu bytes", device, (unsigned long long)share->bytes);
  *base = (void *)(uintptr_t)at;
  return ncclSuccess;
}

void tt_gpu_close(int device, uint32_t epoch, void *base)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  if (tt_gpu_reenter(device, epoch) == ncclSuccess) {
    cu->IpcCloseMemHandle((CUdeviceptr)(uintptr_t)base);
    tt_gpu_leave();
  }
}

// A child of a fork cannot use its parent's GPUs, and another thread may have been here.
static void blocks_in_child(void)
{
  blocks.first = NULL;
  pthread_mutex_init(&blocks.lock, NULL);
}

__attribute__((constructor)) static void blocks_at_start(void)
{
  static tt_fork_hook hook = {.fn = blocks_in_child};
  tt_proc_on_fork(&hook);
}
