// hostcuda_cu_copies.h: part of cuda.h: copies and fills. They wait, or do not, as those of the runtime.
#ifndef HOSTCUDA_HOSTCUDA_CU_COPIES_H_
#define HOSTCUDA_HOSTCUDA_CU_COPIES_H_

#include "cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- Bytes ----

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t size);
CUresult cuMemcpyHtoD(CUdeviceptr dst, const void *src, size_t size);
CUresult cuMemcpyDtoH(void *dst, CUdeviceptr src, size_t size);
CUresult cuMemcpyDtoD(CUdeviceptr dst, CUdeviceptr src, size_t size);
CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream);
CUresult cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t size, CUstream stream);
CUresult cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t size, CUstream stream);
CUresult cuMemcpyDtoDAsync(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream);
// In the order of both devices' default streams, and of a stream.
CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t size);
CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t size,
                           CUstream stream);

// ---- Rows and boxes ----
//
// A side is host memory (CU_MEMORYTYPE_HOST: the member …Host), or any memory (DEVICE, UNIFIED: …Device). There are no
// arrays: with one a copy is CUDA_ERROR_NOT_SUPPORTED. A pitch, in bytes, has room for the bytes before a row and the
// row.

typedef struct CUDA_MEMCPY2D_st {
  size_t srcXInBytes, srcY;
  CUmemorytype srcMemoryType;
  const void *srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  size_t srcPitch;
  size_t dstXInBytes, dstY;
  CUmemorytype dstMemoryType;
  void *dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  size_t dstPitch;
  size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;

// …LOD and the reserved members are 0. …Height, the rows of a plane, may be 0 where Depth is 1.
typedef struct CUDA_MEMCPY3D_st {
  size_t srcXInBytes, srcY, srcZ, srcLOD;
  CUmemorytype srcMemoryType;
  const void *srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  void *reserved0;
  size_t srcPitch, srcHeight;
  size_t dstXInBytes, dstY, dstZ, dstLOD;
  CUmemorytype dstMemoryType;
  void *dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  void *reserved1;
  size_t dstPitch, dstHeight;
  size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;

typedef CUDA_MEMCPY2D CUDA_MEMCPY2D_v2;
typedef CUDA_MEMCPY3D CUDA_MEMCPY3D_v2;

CUresult cuMemcpy2D(const CUDA_MEMCPY2D *copy);
CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D *copy);
CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D *copy, CUstream stream);
CUresult cuMemcpy3D(const CUDA_MEMCPY3D *copy);
CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D *copy, CUstream stream);

// ---- Fills ----
//
// `count` elements of 8, 16 or 32 bits, in 2D in each of `rows` rows, `pitch` bytes apart. Pointers and pitches are
// multiples of an element.

CUresult cuMemsetD8(CUdeviceptr ptr, unsigned char value, size_t count);
CUresult cuMemsetD8Async(CUdeviceptr ptr, unsigned char value, size_t count, CUstream stream);
CUresult cuMemsetD2D8(CUdeviceptr ptr, size_t pitch, unsigned char value, size_t count, size_t rows);
CUresult cuMemsetD2D8Async(CUdeviceptr ptr, size_t pitch, unsigned char value, size_t count, size_t rows,
                           CUstream stream);
CUresult cuMemsetD16(CUdeviceptr ptr, unsigned short value, size_t count);
CUresult cuMemsetD16Async(CUdeviceptr ptr, unsigned short value, size_t count, CUstream stream);
CUresult cuMemsetD2D16(CUdeviceptr ptr, size_t pitch, unsigned short value, size_t count, size_t rows);
CUresult cuMemsetD2D16Async(CUdeviceptr ptr, size_t pitch, unsigned short value, size_t count, size_t rows,
                            CUstream stream);
CUresult cuMemsetD32(CUdeviceptr ptr, unsigned int value, size_t count);
CUresult cuMemsetD32Async(CUdeviceptr ptr, unsigned int value, size_t count, CUstream stream);
CUresult cuMemsetD2D32(CUdeviceptr ptr, size_t pitch, unsigned int value, size_t count, size_t rows);
CUresult cuMemsetD2D32Async(CUdeviceptr ptr, size_t pitch, unsigned int value, size_t count, size_t rows,
                            CUstream stream);

#ifdef __cplusplus
}
#endif

#endif
