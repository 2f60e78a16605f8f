// pins.c: see pins.h.
#include "device/cuda/work/pins.h"

#include <pthread.h>

#include "device/cuda/gpu.h"
#include "os/map.h"
#include "os/proc.h"

// `uses` 0: to be unpinned.
typedef struct gpu_pin {
  struct gpu_pin *next;
  char *base;
  int uses;
  int device; // in whose context it was pinned, in this epoch (gpu.h)
  uint32_t epoch;
  bool noted; // with `uses` 0: its pages may go: `shows` is tt_map_identity of the one at `base`
  uint64_t shows;
} gpu_pin;

static pthread_mutex_t pins_lock = PTHREAD_MUTEX_INITIALIZER;
static gpu_pin *pins;

static gpu_pin **find_pin(const char *base)
{
  gpu_pin **at = &pins;
  while (*at != NULL && (*at)->base != base) {
    at = &(*at)->next;
  }
  return at;
}

static void pin_remove(gpu_pin **at)
{
  gpu_pin *p = *at;
  if (tt_gpu_reenter(p->device, p->epoch) == ncclSuccess) {
    tt_cuda_get(NULL)->MemHostUnregister(p->base);
    tt_gpu_leave();
  }
  *at = p->next;
  tt_free(p);
}

// Those that nobody uses.
static void pins_remove(void)
{
  for (gpu_pin **at = &pins; *at != NULL;) {
    if ((*at)->uses == 0) {
      pin_remove(at);
    } else {
      at = &(*at)->next;
    }
  }
}

static ncclResult_t pin_register(int device, char *base, size_t bytes)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  gpu_pin *p;
  TT_TRY(TT_NEW(p, 1, "no memory to pin %zu bytes", bytes));
  CUresult error = cu->MemHostRegister(base, bytes, CU_MEMHOSTREGISTER_PORTABLE);
  if (error == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) { // pages that came in the place of others
    pins_remove();
    error = cu->MemHostRegister(base, bytes, CU_MEMHOSTREGISTER_PORTABLE);
  }
  if (error != CUDA_SUCCESS) {
    tt_free(p);
  }
  TT_CUDA(cu, error, "cannot pin %zu bytes of buffers between two ranks (is there a limit on locked memory?)", bytes);
  *p = (gpu_pin){.next = pins, .base = base, .uses = 1, .device = device, .epoch = tt_gpu_epoch(device)};
  pins = p;
  return ncclSuccess;
}

// Is it still pinned, and are these the same pages?
static bool pin_is_good(const gpu_pin *p)
{
  const bool same = !p->noted || (p->shows != 0 && p->shows == tt_map_identity(p->base));
  return same && p->epoch == tt_gpu_epoch(p->device);
}

ncclResult_t tt_gpu_pin(int device, char *base, size_t bytes)
{
  ncclResult_t res = ncclSuccess;
  pthread_mutex_lock(&pins_lock);
  gpu_pin **at = find_pin(base);
  if (*at != NULL && (*at)->uses == 0 && !pin_is_good(*at)) {
    pin_remove(at);
    at = find_pin(base);
  }
  if (*at != NULL) {
    (*at)->uses++;
    (*at)->noted = false;
  } else {
    res = pin_register(device, base, bytes);
  }
  pthread_mutex_unlock(&pins_lock);
  return res;
}

void tt_gpu_unpin(char *base)
{
  pthread_mutex_lock(&pins_lock);
  gpu_pin *p = *find_pin(base);
  if (p != NULL) {
    p->uses--;
  }
  pthread_mutex_unlock(&pins_lock);
}

bool tt_gpu_pins_stale(void)
{
  bool stale = false;
  pthread_mutex_lock(&pins_lock);
  for (const gpu_pin *p = pins; p != NULL; p = p->next) {
    stale |= p->uses == 0;
  }
  pthread_mutex_unlock(&pins_lock);
  return stale;
}

void tt_gpu_pins_keep_stale(void)
{
  pthread_mutex_lock(&pins_lock);
  for (gpu_pin *p = pins; p != NULL; p = p->next) {
    if (p->uses == 0 && !p->noted) {
      p->noted = true;
      p->shows = tt_map_identity(p->base);
    }
  }
  pthread_mutex_unlock(&pins_lock);
}

void tt_gpu_pins_close_stale(void)
{
  pthread_mutex_lock(&pins_lock);
  pins_remove();
  pthread_mutex_unlock(&pins_lock);
}

// A child of a fork cannot use its parent's GPUs, and another thread may have been here.
static void pins_in_child(void)
{
  pins = NULL;
  pthread_mutex_init(&pins_lock, NULL);
}

__attribute__((constructor)) static void pins_at_start(void)
{
  static tt_fork_hook hook = {.fn = pins_in_child};
  tt_proc_on_fork(&hook);
}
