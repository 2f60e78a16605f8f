// device.c: see device.h.
#include "device/host/device.h"

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "base/util.h"
#include "device/host/capture.h"
#include "device/elsewhere.h"
#include "device/host/hostcall.h"
#include "device/host/ipc.h"
#include "device/host/stream.h"
#include "device/host/value.h"
#include "os/proc.h"

#define USUAL_DEVICES 8 // as in the machines that programs with a loop over all devices are written for

static _Thread_local int current;

int tt_host_device_count(void)
{
  return (int)TT_CLAMP(tt_params_get()->host_devices, 1, 1 << 20);
}

int tt_host_device_usual_count(void)
{
  return tt_param_is_set(host_devices) ? tt_host_device_count() : USUAL_DEVICES;
}

int tt_host_device(void)
{
  return current;
}

ncclResult_t tt_host_device_set(int device)
{
  if (device < 0 || device >= tt_host_device_count()) {
    return tt_fail(ncclInvalidArgument, "device %d does not exist; there are %d host devices (NCCL_HOST_DEVICES)",
                   device, tt_host_device_count());
  }
  current = device;
  tt_log_device(device);
  return ncclSuccess;
}

static void device_in_child(void)
{
  tt_stream_forget();
  tt_capture_forget();
  tt_sleep_forget();
  tt_worker_forget();
  tt_hostcall_forget();
  tt_value_forget();
  tt_elsewhere_forget();
  tt_ipc_forked();
}

__attribute__((constructor)) void tt_host_start(void)
{
  static tt_fork_hook hook = {.fn = device_in_child};
  tt_proc_on_fork(&hook);
}
