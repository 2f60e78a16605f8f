// row.c: which row of the table of devices this process's communicators get.
#include <pthread.h>
#include <string.h>

#include "base/log.h"
#include "base/param.h"
#include "device/device.h"
#include "os/proc.h"

// Relaxed: it only has to be there before a communicator is created, by the same thread or one that it has started.
static _Atomic bool host_wanted;
static const tt_device_ops *row;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#if !defined TUTTI_HAVE_CUDA
bool tt_device_cuda_opens(void)
{
  return false;
}
#endif

bool tt_device_mixes(const tt_device_id *id)
{
  return strncmp(id->kind, "host", sizeof id->kind) == 0 || strncmp(id->kind, "cuda", sizeof id->kind) == 0;
}

static void choose_row(void)
{
  row = &tt_device_host;
#if defined TUTTI_HAVE_CUDA
  const bool host = tt_param_is_set(host_devices) || atomic_load_explicit(&host_wanted, memory_order_relaxed);
  if (!host && tt_device_cuda_opens()) {
    row = &tt_device_cuda;
    tt_info(TT_INIT, "ranks are on GPUs, of which the driver has %d (NCCL_HOST_DEVICES: on the host)", row->count());
  }
#endif
}

const tt_device_ops *tt_device_row(void)
{
  pthread_once(&once, choose_row);
  return row;
}

void tt_device_want_host(void)
{
  atomic_store_explicit(&host_wanted, true, memory_order_relaxed);
}

// A child of a parent whose ranks are on GPUs may want its own on the host.
static void row_in_child(void)
{
  once = PTHREAD_ONCE_INIT;
}

__attribute__((constructor)) static void row_at_start(void)
{
  static tt_fork_hook hook = {.fn = row_in_child};
  tt_proc_on_fork(&hook);
}
