// device.c: see device.h.
#include "device/host/device.h"

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "base/util.h"
#include "device/host/stream.h"
#include "os/proc.h"

static _Thread_local int current;

int tt_host_device_count(void)
{
  return (int)TT_CLAMP(tt_params_get()->host_devices, 1, 1 << 20);
}

int tt_host_device(void)
{
  return current;
}

ncclResult_t tt_host_device_set(int device)
{
  if (device < 0 || device >= tt_host_device_count()) {
    return tt_fail(ncclInvalidArgument, "device %d does not exist; there are %d host devices (NCCL_HOST_DEVICES)", device,
                   tt_host_device_count());
  }
  current = device;
  tt_log_device(device);
  return ncclSuccess;
}

static void in_child(void)
{
  tt_stream_forget();
  tt_worker_forget();
}

__attribute__((constructor)) void tt_host_start(void)
{
  tt_proc_on_fork(in_child);
}
