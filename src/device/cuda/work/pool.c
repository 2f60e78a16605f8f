// pool.c: see pool.h.
#include "device/cuda/work/pool.h"

#include <pthread.h>

#include "os/proc.h"

enum { POOL_LEAST = 4096 }; // sizes are powers of two from here on

typedef struct pool_block {
  struct pool_block *next;
  void *memory;
  size_t bytes;
  int device;
  bool taken;
} pool_block;

// Blocks are added and never go. Everything under the lock.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pool_block *pool_blocks;

static ncclResult_t gpu_pool_alloc(pool_block *b)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  CUdeviceptr at = 0;
  if (b->device == TT_GPU_PINNED) {
    TT_CUDA(cu, cu->MemHostAlloc(&b->memory, b->bytes, CU_MEMHOSTALLOC_PORTABLE),
            "cannot allocate %zu bytes of pinned memory", b->bytes);
    return ncclSuccess;
  }
  TT_CUDA(cu, cu->MemAlloc(&at, b->bytes), "GPU %d: cannot allocate %zu bytes", b->device, b->bytes);
  b->memory = (void *)(uintptr_t)at;
  return ncclSuccess;
}

// A new block, taken. Pinned memory needs a context, whichever: that of the thread's device.
static ncclResult_t gpu_pool_grow(int device, size_t bytes, pool_block **out)
{
  pool_block *b;
  TT_TRY(TT_NEW(b, 1, "no memory for %zu bytes of a GPU", bytes));
  *b = (pool_block){.bytes = bytes, .device = device, .taken = true};
  ncclResult_t res = tt_gpu_enter(device == TT_GPU_PINNED ? tt_gpu_current() : device);
  if (res == ncclSuccess) {
    res = gpu_pool_alloc(b);
    tt_gpu_leave();
  }
  if (res != ncclSuccess) {
    tt_free(b);
    return res;
  }
  b->next = pool_blocks;
  pool_blocks = b;
  *out = b;
  return ncclSuccess;
}

// A free block of that size; NULL: there is none.
static pool_block *gpu_pool_find(int device, size_t bytes)
{
  pool_block *b = pool_blocks;
  while (b != NULL && (b->taken || b->device != device || b->bytes != bytes)) {
    b = b->next;
  }
  return b;
}

ncclResult_t tt_gpu_pool_take(int device, size_t bytes, void **out)
{
  size_t size = POOL_LEAST;
  ncclResult_t res = ncclSuccess;
  while (size < bytes) {
    size *= 2;
  }
  pthread_mutex_lock(&lock);
  pool_block *b = gpu_pool_find(device, size);
  if (b == NULL) {
    res = gpu_pool_grow(device, size, &b);
  }
  if (res == ncclSuccess) {
    b->taken = true;
    *out = b->memory;
  }
  pthread_mutex_unlock(&lock);
  return res;
}

void tt_gpu_pool_give(int device, void *memory)
{
  pthread_mutex_lock(&lock);
  for (pool_block *b = pool_blocks; b != NULL && memory != NULL; b = b->next) {
    if (b->memory == memory && b->device == device) {
      b->taken = false;
    }
  }
  pthread_mutex_unlock(&lock);
}

void tt_gpu_pool_count(size_t *bytes, size_t *taken)
{
  *bytes = *taken = 0;
  pthread_mutex_lock(&lock);
  for (const pool_block *b = pool_blocks; b != NULL; b = b->next) {
    *bytes += b->bytes;
    *taken += b->taken ? b->bytes : 0;
  }
  pthread_mutex_unlock(&lock);
}

// A child of a fork cannot use its parent's GPUs, and another thread may have been here.
static void gpu_pool_in_child(void)
{
  pool_blocks = NULL;
  pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void gpu_pool_at_start(void)
{
  tt_proc_on_fork(gpu_pool_in_child);
}
