// driver.h: the CUDA driver, opened at run time: no CUDA is needed to build, and none to run on the host.
//
// A call: TT_CUDA(cu, cu->MemAlloc(&ptr, bytes), "cannot allocate %zu bytes", bytes), with cu = tt_cuda_get(NULL).
#pragma once
#include <stdbool.h>

#include "base/result.h"
#include "device/cuda/types.h"
#include "os/library.h"

// The oldest driver that is used, as cuDriverGetVersion counts: CUDA 12.5. From there on, a stream that waits for a
// word does not hold up other contexts of the GPU.
enum { TT_CUDA_LEAST = 12050 };

// The driver's functions, by their names without "cu" (driver.def). The caller makes a context current where the driver
// wants one. A stream's handle 0 is the legacy default stream.
typedef struct tt_cuda {
  int version; // of the driver, as cuDriverGetVersion has it
  tt_library *library;
#define CU(name, version, need, parameters) CUresult(*name) parameters;
#include "device/cuda/driver.def"
#undef CU
} tt_cuda;

typedef enum {
  TT_CUDA_OPEN,    // it has been initialised, and has a device
  TT_CUDA_ABSENT,  // no driver, or none with a device: a machine without GPUs; `why` says which
  TT_CUDA_REFUSED, // there is one that is not used: `why` says the reason
  TT_CUDA_FORKED,  // of tt_cuda_get alone: the process that this one was forked from has opened it
} tt_cuda_state;

// Opens the driver library `name` and initialises it. Writes *out only on TT_CUDA_OPEN; `why` (TT_LIBRARY_WHY bytes) is
// then "". Any thread.
tt_cuda_state tt_cuda_open(const char *name, tt_cuda *out, char *why);

// Closes what tt_cuda_open has opened. No function of it may be called afterwards. CUDA has
// no call that ends the driver.
void tt_cuda_close(tt_cuda *cuda);

// The process's driver (TUTTI_CUDA_DRIVER). The first call opens it; it is never closed. NULL: it is not open, and *why
// is the reason, a constant text; `why` may be NULL. Any thread. In the child of a fork whose parent has opened it, it
// is not open: CUDA does not let the child use it.
const tt_cuda *tt_cuda_get(const char **why);
// Whether that driver is open. The first call opens it. Any thread.
tt_cuda_state tt_cuda_get_state(void);

// "CUDA_ERROR_INVALID_VALUE: invalid argument", for an error of this driver. Valid until the thread's next call of
// this.
const char *tt_cuda_text(const tt_cuda *cuda, CUresult error);

// Records that a driver's call has failed (tt_fail): what (printf), then the driver's text. Returns
// ncclUnhandledCudaError.
ncclResult_t tt_cuda_fail_at(const tt_cuda *cuda, CUresult error, const char *file, int line, const char *what, ...)
    __attribute__((format(printf, 5, 6), cold));

// Returns from the calling function with ncclUnhandledCudaError and a text unless the call gives CUDA_SUCCESS.
#define TT_CUDA(cuda, call, ...)                                                 \
  do {                                                                           \
    CUresult tt_cuda_ = (call);                                                  \
    if (TT_UNLIKELY(tt_cuda_ != CUDA_SUCCESS)) {                                 \
      return tt_cuda_fail_at((cuda), tt_cuda_, __FILE__, __LINE__, __VA_ARGS__); \
    }                                                                            \
  } while (0)
