// gpu.h: the GPUs of the process, and work in their contexts.
//
// A device is used through its primary context, which the CUDA runtime shares. The first use retains it. Nothing
// releases it, since streams and memory of the program belong to it. The driver is open (driver.h). Any thread.
//
// The program may reset a device. Then its streams, events, modules and memory have gone, and host memory is no longer
// pinned; their handles must not be given to the driver. So whatever keeps such handles remembers the epoch: the number
// of the context among those that the device has had.
#pragma once
#include "device/cuda/driver.h"
#include "device/device.h"

enum { TT_GPUS = 64 };

// How many there are, at most TT_GPUS; 0 where the driver is not open. In the child of a fork those that its parent has
// seen, of which it can use none (driver.h).
int tt_gpu_count(void);

// The calling thread's GPU: that of its current context; 0 where it has none.
int tt_gpu_current(void);

// What ranks tell each other: its UUID, bus id and compute capability. What the driver does not know is zero.
void tt_gpu_identify(int device, tt_device_id *out);

// May kernels of `device` read and write the memory of `peer`? Of itself always.
bool tt_gpu_reaches(int device, int peer);

// The same, and lets them: from now on, as long as the process lives. Another device's memory is reached as if it were
// of `device`, whoever has allocated it. False: it cannot be; the log says why.
bool tt_gpu_join(int device, int peer);

// Makes the device's context the calling thread's, until tt_gpu_leave. Meanwhile the thread's mode of captures is
// relaxed, so that no call of the driver ends a capture of the program. May be nested. Errors: ncclInvalidArgument
// (there is no such device), ncclUnhandledCudaError.
ncclResult_t tt_gpu_enter(int device);
// The device's epoch, as the last tt_gpu_enter of it has found it, from 1 on. 0: there was none.
uint32_t tt_gpu_epoch(int device);
// The same as tt_gpu_enter, if the context is still that of the epoch. Errors: also ncclUnhandledCudaError: the program
// has reset the device since.
ncclResult_t tt_gpu_reenter(int device, uint32_t epoch);
// Makes the context before that current again. Called once for each of these that has succeeded.
void tt_gpu_leave(void);

// The device's context, retained. Errors: as tt_gpu_enter.
ncclResult_t tt_gpu_context(int device, CUcontext *out);
