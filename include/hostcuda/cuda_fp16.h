// cuda_fp16.h: numbers of 16 bits with 5 bits of exponent, on the host. C has the raw structures; C++ has __half and
// __half2 with their conversions, arithmetic and comparisons. Results are those of CUDA's header on the host, bit by
// bit, NaNs too.
#ifndef HOSTCUDA_CUDA_FP16_H_
#define HOSTCUDA_CUDA_FP16_H_

#ifdef __cplusplus
#include <utility> // programs rely on CUDA's header to bring it
#endif

#include "hostcuda_floats.h"
#include "vector_functions.h"

#define __CUDA_FP16_H__
#define __CUDA_FP16_TYPES_EXIST__

typedef struct __attribute__((aligned(2))) {
  unsigned short x;
} __half_raw;

typedef struct __attribute__((aligned(4))) {
  unsigned short x;
  unsigned short y;
} __half2_raw;

#ifdef __cplusplus

#define HC_WORD half
#define HC_T __half
#define HC_T2 __half2
#define HC_RAW __half_raw
#define HC_RAW2 __half2_raw
#define HC_OTHER __nv_bfloat16
#define HC_FORMAT hostcudaHalf()
#define HC_VALUE(code) hostcudaValue(hostcudaHalf(), code)
#ifndef __CUDA_NO_HALF_CONVERSIONS__
#define HC_CONVERSIONS 1
#endif
#ifndef __CUDA_NO_HALF_OPERATORS__
#define HC_OPERATORS 1
#endif
#ifndef __CUDA_NO_HALF2_OPERATORS__
#define HC_OPERATORS2 1
#endif
#include "hostcuda_half.h"

#define CUDART_INF_FP16 __ushort_as_half((unsigned short)0x7c00)
#define CUDART_NAN_FP16 __ushort_as_half((unsigned short)0x7fff)
#define CUDART_MIN_DENORM_FP16 __ushort_as_half((unsigned short)0x0001)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half((unsigned short)0x7bff)
#define CUDART_NEG_ZERO_FP16 __ushort_as_half((unsigned short)0x8000)
#define CUDART_ZERO_FP16 __ushort_as_half((unsigned short)0x0000)
#define CUDART_ONE_FP16 __ushort_as_half((unsigned short)0x3c00)

#ifndef CUDA_NO_HALF
typedef __half half;
typedef __half2 half2;
typedef __half __nv_half;
typedef __half2 __nv_half2;
typedef __half_raw __nv_half_raw;
typedef __half2_raw __nv_half2_raw;
typedef __half nv_half;
typedef __half2 nv_half2;
#endif

#endif

#endif
