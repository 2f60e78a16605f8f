// nccl_device.h: the host side of NCCL's device API (level 2.32.3): what programs include beside nccl.h since
// NCCL 2.28.
//
// Kernels of a program reach peers through this API on GPUs. Tutti runs on host memory and has no device code: the
// types, the macros and the functions for the host are here, the functions and classes for kernels (ncclGin,
// ncclLsaBarrierSession, ncclGetLsaPointer …) are not. Host programs compile, link and run; a compiler that meets a
// kernel which uses them reports an undefined name. Ask ncclCommQueryProperties before use: deviceApiSupport is false,
// and ncclDevCommCreate returns ncclInvalidUsage.
//
// Results, threads and memory are as nccl.h says. Layouts are pinned by tests/abi/device_sizes.txt.
#ifndef NCCL_DEVICE_H_
#define NCCL_DEVICE_H_

#include "nccl_device/comm.h"
#include "nccl_device/core.h"
#include "nccl_device/gin_barrier.h"
#include "nccl_device/ll_a2a.h"
#include "nccl_device/lsa_barrier.h"

#endif
