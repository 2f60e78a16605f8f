// driver_priv.h: what the files of the driver's functions share: its types and codes, and the form of its functions.
//
// The driver's header is not included: there, names of functions are macros. tests/hostcuda/driver.c checks both
// against each other.
#pragma once
#include <stdint.h>

#include "driver.h"

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;

enum {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  INVALID_DEVICE = 101,
  INVALID_CONTEXT = 201,
  UNSUPPORTED_EXEC_AFFINITY = 224,
  NOT_FOUND = 500,
  NOT_SUPPORTED = 801,
};

// The head of an exported function; its prototype is cuda.h's.
#define CU_API(name, parameters)                                   \
  __attribute__((visibility("default"))) CUresult name parameters; \
  __attribute__((visibility("default"))) CUresult name parameters

// The same with its body: returns what a call of the runtime says, with the last error as it was before.
#define CU_IS(name, parameters, call) \
  CU_API(name, parameters)            \
  {                                   \
    CU_RETURN(call);                  \
  }
// The same with its twin for programs with per-thread default streams. One parameter is called `stream`.
#define CU_STREAM(name, parameters, call) \
  CU_IS(name, parameters, call)           \
  CU_API(name##_ptsz, parameters)         \
  {                                       \
    stream = hc_own(stream);              \
    CU_RETURN(call);                      \
  }
// The twin alone.
#define CU_TWIN(name, suffix, parameters, arguments) \
  CU_API(name##suffix, parameters)                   \
  {                                                  \
    return name arguments;                           \
  }

#define CU_RETURN(call)                         \
  do {                                          \
    cudaError_t before = cudaPeekAtLastError(); \
    CUresult result = (CUresult)(call);         \
    hc_restore(before);                         \
    return result;                              \
  } while (0)

// A device's context: its number plus one.
static inline CUcontext context_of(int device)
{
  return (CUcontext)(intptr_t)(device + 1);
}

// Its device; -1: it is none.
static inline int device_of(CUcontext context)
{
  uintptr_t number = (uintptr_t)context - 1;
  return number < INT32_MAX && hc_is_device((int)number) ? (int)number : -1;
}

static inline void *at(CUdeviceptr ptr)
{
  return (void *)(uintptr_t)ptr;
}
