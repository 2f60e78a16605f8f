// device.h: host devices: how many there are and which one the calling thread uses.
#pragma once
#include "nccl.h"

// Number of host devices (NCCL_HOST_DEVICES, at least 1).
int tt_host_device_count(void);
// How many a program should be told that uses all there are: NCCL_HOST_DEVICES when set, else 8.
int tt_host_device_usual_count(void);
// The calling thread's device, 0 at first.
int tt_host_device(void);
// Errors: ncclInvalidArgument.
ncclResult_t tt_host_device_set(int device);
// Forgets streams and the worker in a forked child. Called once while the library starts.
void tt_host_start(void);
