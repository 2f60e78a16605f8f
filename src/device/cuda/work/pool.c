// pool.c: see pool.h.
#include "device/cuda/work/pool.h"

#include <pthread.h>
#include <sys/mman.h>

#include "os/proc.h"

enum { POOL_LEAST = 4096 }; // sizes are powers of two from here on

typedef struct pool_block {
  struct pool_block *next;
  void *memory;
  size_t bytes;
  int device;     // TT_GPU_PINNED, too
  int on;         // the device in whose context it was made,
  uint32_t epoch; // and the epoch of that
  bool taken;
} pool_block;

// Blocks are added and go only with their context. Everything under the lock.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pool_block *pool_blocks;

// Memory of ours that the driver pins, not the driver's: that goes when the program resets the device, and the host
// would still look at it. Shared: a fork leaves the pages as the device knows them.
static ncclResult_t gpu_pool_pin(pool_block *b)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  b->memory = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (b->memory == MAP_FAILED) {
    return tt_fail(ncclSystemError, "no memory for %zu bytes of pinned memory", b->bytes);
  }
  const CUresult error = cu->MemHostRegister(b->memory, b->bytes, CU_MEMHOSTREGISTER_PORTABLE);
  if (error != CUDA_SUCCESS) {
    munmap(b->memory, b->bytes);
  }
  TT_CUDA(cu, error, "cannot pin %zu bytes of memory (is there a limit on locked memory?)", b->bytes);
  return ncclSuccess;
}

static ncclResult_t gpu_pool_alloc(pool_block *b)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  CUdeviceptr at = 0;
  b->epoch = tt_gpu_epoch(b->on);
  if (b->device == TT_GPU_PINNED) {
    return gpu_pool_pin(b);
  }
  TT_CUDA(cu, cu->MemAlloc(&at, b->bytes), "GPU %d: cannot allocate %zu bytes", b->device, b->bytes);
  b->memory = (void *)(uintptr_t)at;
  return ncclSuccess;
}

// A new block, taken.
static ncclResult_t gpu_pool_grow(int device, int on, size_t bytes, pool_block **out)
{
  pool_block *b;
  TT_TRY(TT_NEW(b, 1, "no memory for %zu bytes of a GPU", bytes));
  *b = (pool_block){.bytes = bytes, .device = device, .on = on, .taken = true};
  ncclResult_t res = tt_gpu_enter(on);
  if (res == ncclSuccess) {
    res = gpu_pool_alloc(b);
    tt_gpu_leave();
  }
  if (res != ncclSuccess) {
    tt_free(b);
    return res;
  }
  *out = b;
  return ncclSuccess;
}

// Forgets free blocks whose device has been reset.
static void gpu_pool_sweep(void)
{
  for (pool_block **at = &pool_blocks, *b = *at; b != NULL; b = *at) {
    if (b->taken || b->epoch == tt_gpu_epoch(b->on)) {
      at = &b->next;
      continue;
    }
    *at = b->next;
    if (b->device == TT_GPU_PINNED) {
      munmap(b->memory, b->bytes);
    }
    tt_free(b);
  }
}

// A free block of that size; NULL: there is none.
static pool_block *gpu_pool_find(int device, int on, size_t bytes)
{
  gpu_pool_sweep();
  pool_block *b = pool_blocks;
  while (b != NULL && (b->taken || b->device != device || b->on != on || b->bytes != bytes)) {
    b = b->next;
  }
  return b;
}

ncclResult_t tt_gpu_pool_take(int device, size_t bytes, void **out)
{
  // Pinned memory needs a context, whichever: that of the thread's device.
  const int on = device == TT_GPU_PINNED ? tt_gpu_current() : device;
  size_t size = POOL_LEAST;
  while (size < bytes) {
    size *= 2;
  }
  pthread_mutex_lock(&lock);
  pool_block *b = gpu_pool_find(device, on, size);
  if (b != NULL) {
    b->taken = true;
  }
  pthread_mutex_unlock(&lock);
  if (b == NULL) { // without the lock: the driver may wait for a walk, and that for a thread which wants the lock
    TT_TRY(gpu_pool_grow(device, on, size, &b));
    pthread_mutex_lock(&lock);
    b->next = pool_blocks;
    pool_blocks = b;
    pthread_mutex_unlock(&lock);
  }
  *out = b->memory;
  return ncclSuccess;
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
  static tt_fork_hook hook = {.fn = gpu_pool_in_child};
  tt_proc_on_fork(&hook);
}
