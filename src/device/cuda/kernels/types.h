// types.h: the twelve types as the kernels fold them, by their names in base/types.def. For each `Id`:
//   stored_Id, work_Id                as it lies in memory, as it is folded
//   open_Id(stored), close_Id(work)   from one to the other
//   scaled_Id(work, factor's bits)    times a factor, rounded as if it had been stored
//   divide_Id(stored, tt_div)         the final division of integers
//   sum_Id, prod_Id, max_Id, min_Id   of two folded elements
#pragma once
#include "gpu.h"

#include "device/reduce_element.h"

#define GPU_OP(ID, T, OP)                 \
  TT_INLINE work_##ID OP##_##ID(T a, T b) \
  {                                       \
    return OP##_##T(a, b);                \
  }
#define GPU_OPS(ID, T) GPU_OP(ID, T, sum) GPU_OP(ID, T, prod) GPU_OP(ID, T, max) GPU_OP(ID, T, min)

// Folded in the type T itself.
#define GPU_WIDE(ID, T, DIVIDED)              \
  typedef T stored_##ID;                      \
  typedef T work_##ID;                        \
  GPU_OPS(ID, T)                              \
  TT_INLINE T open_##ID(T a)                  \
  {                                           \
    return a;                                 \
  }                                           \
  TT_INLINE T close_##ID(T a)                 \
  {                                           \
    return fin_##T(a);                        \
  }                                           \
  TT_INLINE T scaled_##ID(T a, uint64_t bits) \
  {                                           \
    return prod_##T(a, scalar_##T(&bits));    \
  }                                           \
  TT_INLINE T divide_##ID(T a, tt_div d)      \
  {                                           \
    (void)d;                                  \
    return DIVIDED;                           \
  }

// Folded in float.
#define GPU_NARROW(ID, CODE, F, ROUNDED)                        \
  typedef CODE stored_##ID;                                     \
  typedef float work_##ID;                                      \
  GPU_OPS(ID, float)                                            \
  TT_INLINE float open_##ID(CODE a)                             \
  {                                                             \
    return tt_f32_from_##F(a);                                  \
  }                                                             \
  TT_INLINE CODE close_##ID(float a)                            \
  {                                                             \
    return tt_##F##_from_f32(a);                                \
  }                                                             \
  TT_INLINE float scaled_##ID(float a, uint64_t bits)           \
  {                                                             \
    const float v = prod_float(a, tt_f32_from_##F((CODE)bits)); \
    return ROUNDED;                                             \
  }                                                             \
  TT_INLINE CODE divide_##ID(CODE a, tt_div d)                  \
  {                                                             \
    (void)d;                                                    \
    return a;                                                   \
  }

GPU_WIDE(Int8, int8_t, (int8_t)div_i32(a, d))
GPU_WIDE(Uint8, uint8_t, (uint8_t)div_u32(a, d))
GPU_WIDE(Int32, int32_t, div_i32(a, d))
GPU_WIDE(Uint32, uint32_t, div_u32(a, d))
GPU_WIDE(Int64, int64_t, div_i64(a, d))
GPU_WIDE(Uint64, uint64_t, div_u64(a, d))
GPU_WIDE(Float32, float, a)
GPU_WIDE(Float64, double, a)
GPU_NARROW(Float16, uint16_t, f16, tt_narrow_round(v, TT_SPEC_F16))
GPU_NARROW(Bfloat16, uint16_t, bf16, tt_f32_from_bf16(tt_bf16_from_f32(v))) // tt_bf16_round takes no NaN of a GPU
GPU_NARROW(Float8e4m3, uint8_t, e4m3, tt_narrow_round(v, TT_SPEC_E4M3))
GPU_NARROW(Float8e5m2, uint8_t, e5m2, tt_narrow_round(v, TT_SPEC_E5M2))
