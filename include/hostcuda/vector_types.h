// vector_types.h: CUDA's small vectors and dim3, with its sizes and alignments.
#ifndef HOSTCUDA_VECTOR_TYPES_H_
#define HOSTCUDA_VECTOR_TYPES_H_

// clang-format off
#define HOSTCUDA_VECTORS(type, name, align2, align4) \
  typedef struct name##1 { type x; } name##1; \
  typedef struct __attribute__((aligned(align2))) name##2 { type x, y; } name##2; \
  typedef struct name##3 { type x, y, z; } name##3; \
  typedef struct __attribute__((aligned(align4))) name##4 { type x, y, z, w; } name##4;
// clang-format on

HOSTCUDA_VECTORS(signed char, char, 2, 4)
HOSTCUDA_VECTORS(unsigned char, uchar, 2, 4)
HOSTCUDA_VECTORS(short, short, 4, 8)
HOSTCUDA_VECTORS(unsigned short, ushort, 4, 8)
HOSTCUDA_VECTORS(int, int, 8, 16)
HOSTCUDA_VECTORS(unsigned int, uint, 8, 16)
HOSTCUDA_VECTORS(long int, long, 16, 16)
HOSTCUDA_VECTORS(unsigned long int, ulong, 16, 16)
HOSTCUDA_VECTORS(long long int, longlong, 16, 16)
HOSTCUDA_VECTORS(unsigned long long int, ulonglong, 16, 16)
HOSTCUDA_VECTORS(float, float, 8, 16)
HOSTCUDA_VECTORS(double, double, 16, 16)
#undef HOSTCUDA_VECTORS

// The extent of a grid or a block.
struct dim3 {
  unsigned int x, y, z;
#ifdef __cplusplus
  dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1) : x(vx), y(vy), z(vz) {}
#endif
};
typedef struct dim3 dim3;

#endif
