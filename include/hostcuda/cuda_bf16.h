// cuda_bf16.h: numbers of 16 bits with 8 bits of exponent, on the host. C has the raw structures; C++ has __nv_bfloat16
// and __nv_bfloat162 with their conversions, arithmetic and comparisons. Results are those of CUDA's header on the
// host, bit by bit, NaNs too.
#ifndef HOSTCUDA_CUDA_BF16_H_
#define HOSTCUDA_CUDA_BF16_H_

#include "cuda_fp16.h"

#define __CUDA_BF16_H__
#define __CUDA_BF16_TYPES_EXIST__

typedef struct __attribute__((aligned(2))) {
  unsigned short x;
} __nv_bfloat16_raw;

typedef struct __attribute__((aligned(4))) {
  unsigned short x;
  unsigned short y;
} __nv_bfloat162_raw;

#ifdef __cplusplus

#define HC_WORD bfloat16
#define HC_T __nv_bfloat16
#define HC_T2 __nv_bfloat162
#define HC_RAW __nv_bfloat16_raw
#define HC_RAW2 __nv_bfloat162_raw
#define HC_OTHER __half
#define HC_FORMAT hostcudaBfloat16()
#define HC_VALUE(code) hostcudaValueOfBfloat16(code)
#ifndef __CUDA_NO_BFLOAT16_CONVERSIONS__
#define HC_CONVERSIONS 1
#endif
#ifndef __CUDA_NO_BFLOAT16_OPERATORS__
#define HC_OPERATORS 1
#endif
#ifndef __CUDA_NO_BFLOAT162_OPERATORS__
#define HC_OPERATORS2 1
#endif
#include "hostcuda_half.h"

#ifndef __CUDA_NO_HALF_CONVERSIONS__
inline __half::__half(const __nv_bfloat16 other) : __x(__half_raw(__float2half(__bfloat162float(other))).x) {}
#endif
#ifndef __CUDA_NO_BFLOAT16_CONVERSIONS__
inline __nv_bfloat16::__nv_bfloat16(const __half other)
    : __x(__nv_bfloat16_raw(__float2bfloat16(__half2float(other))).x)
{
}
#endif

#define CUDART_INF_BF16 __ushort_as_bfloat16((unsigned short)0x7f80)
#define CUDART_NAN_BF16 __ushort_as_bfloat16((unsigned short)0x7fff)
#define CUDART_MIN_DENORM_BF16 __ushort_as_bfloat16((unsigned short)0x0001)
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16((unsigned short)0x7f7f)
#define CUDART_NEG_ZERO_BF16 __ushort_as_bfloat16((unsigned short)0x8000)
#define CUDART_ZERO_BF16 __ushort_as_bfloat16((unsigned short)0x0000)
#define CUDART_ONE_BF16 __ushort_as_bfloat16((unsigned short)0x3f80)

#ifndef CUDA_NO_BFLOAT16
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
#endif

#endif

#endif
