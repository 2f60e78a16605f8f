// pins.c: see pins.h.
#include "device/cuda/work/pins.h"

#include <pthread.h>

#include "device/cuda/driver.h"
#include "os/proc.h"

typedef struct gpu_pin {
  struct gpu_pin *next;
  char *base;
  int uses;
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

static ncclResult_t pin_register(char *base, size_t bytes, gpu_pin **at)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  gpu_pin *p;
  TT_TRY(TT_NEW(p, 1, "no memory to pin %zu bytes", bytes));
  const CUresult error = cu->MemHostRegister(base, bytes, CU_MEMHOSTREGISTER_PORTABLE);
  if (error != CUDA_SUCCESS) {
    tt_free(p);
  }
  TT_CUDA(cu, error, "cannot pin %zu bytes of buffers between two ranks (is there a limit on locked memory?)", bytes);
  p->base = base;
  *at = p;
  return ncclSuccess;
}

ncclResult_t tt_gpu_pin(char *base, size_t bytes)
{
  pthread_mutex_lock(&pins_lock);
  gpu_pin **at = find_pin(base);
  ncclResult_t res = *at == NULL ? pin_register(base, bytes, at) : ncclSuccess;
  if (res == ncclSuccess) {
    (*at)->uses++;
  }
  pthread_mutex_unlock(&pins_lock);
  return res;
}

void tt_gpu_unpin(char *base, bool there)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  pthread_mutex_lock(&pins_lock);
  gpu_pin **at = find_pin(base), *p = *at;
  if (p != NULL && --p->uses == 0) {
    if (there) {
      cu->MemHostUnregister(base);
    }
    *at = p->next;
    tt_free(p);
  }
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
  tt_proc_on_fork(pins_in_child);
}
