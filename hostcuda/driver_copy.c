// driver_copy.c: the driver's copies and fills, of bytes, rows and boxes.
#include "driver_priv.h"

// ---- Copies ----
//
// The forms that wait come in a twin for the thread's own default stream (_ptds), the others in one for its streams
// (_ptsz).

#define COPY(name, dst_type, dst, src_type, src, kind)                                 \
  CU_IS(name, (dst_type d, src_type s, size_t size), cudaMemcpy(dst, src, size, kind)) \
  CU_IS(name##_ptds, (dst_type d, src_type s, size_t size), cudaMemcpy_ptds(dst, src, size, kind))
#define COPY_ASYNC(name, dst_type, dst, src_type, src, kind)                  \
  CU_STREAM(name, (dst_type d, src_type s, size_t size, cudaStream_t stream), \
            cudaMemcpyAsync(dst, src, size, kind, stream))

// Declared under another name.
cudaError_t cudaMemcpy_ptds(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind);

COPY(cuMemcpy, CUdeviceptr, at(d), CUdeviceptr, at(s), cudaMemcpyDefault)
COPY(cuMemcpyHtoD_v2, CUdeviceptr, at(d), const void *, s, cudaMemcpyHostToDevice)
COPY(cuMemcpyDtoH_v2, void *, d, CUdeviceptr, at(s), cudaMemcpyDeviceToHost)
COPY(cuMemcpyDtoD_v2, CUdeviceptr, at(d), CUdeviceptr, at(s), cudaMemcpyDeviceToDevice)
COPY_ASYNC(cuMemcpyAsync, CUdeviceptr, at(d), CUdeviceptr, at(s), cudaMemcpyDefault)
COPY_ASYNC(cuMemcpyHtoDAsync_v2, CUdeviceptr, at(d), const void *, s, cudaMemcpyHostToDevice)
COPY_ASYNC(cuMemcpyDtoHAsync_v2, void *, d, CUdeviceptr, at(s), cudaMemcpyDeviceToHost)
COPY_ASYNC(cuMemcpyDtoDAsync_v2, CUdeviceptr, at(d), CUdeviceptr, at(s), cudaMemcpyDeviceToDevice)

// ---- Copies of rows and boxes ----

enum { HOST = 1, DEVICE = 2, ARRAY = 3, UNIFIED = 4 }; // CUmemorytype

// One side of a copy. The structures of the driver differ in what lies between these.
typedef struct side {
  size_t x, y, z;
  int type;
  uintptr_t host, device;
  size_t pitch, height; // rows of a plane
} side;

// Where the side begins.
static CUresult begin_of(const side *s, size_t width, uintptr_t *begin)
{
  if (s->type < HOST || s->type > UNIFIED || (s->type != ARRAY && (s->x > s->pitch || width > s->pitch - s->x))) {
    return INVALID_VALUE;
  }
  *begin = (s->type == HOST ? s->host : s->device) + (s->z * s->height + s->y) * s->pitch + s->x;
  return s->type == ARRAY ? NOT_SUPPORTED : SUCCESS; // there are none
}

// A box of `extent`: bytes, rows, planes.
static CUresult copy_box(const side *dst, const side *src, const size_t extent[3], cudaStream_t stream, bool async)
{
  uintptr_t to = 0, from = 0;
  if (extent[0] == 0 || extent[1] == 0 || extent[2] == 0) {
    return SUCCESS;
  }
  CUresult e = begin_of(dst, extent[0], &to);
  e = e == SUCCESS ? begin_of(src, extent[0], &from) : e;
  if (e != SUCCESS) {
    return e;
  }
  if (extent[2] > 1 && (dst->height < extent[1] || src->height < extent[1])) {
    return INVALID_VALUE;
  }
  hc_box b = {.rows = {.dst = at(to),
                       .dstPitch = dst->pitch,
                       .src = at(from),
                       .srcPitch = src->pitch,
                       .width = extent[0],
                       .height = extent[1]},
              .dstPlane = dst->pitch * dst->height,
              .srcPlane = src->pitch * src->height,
              .depth = extent[2]};
  CU_RETURN(hc_copy_box(&b, cudaMemcpyDefault, stream, async));
}

typedef struct side_2d {
  size_t x, y;
  int type;
  uintptr_t host, device, array;
  size_t pitch;
} side_2d;

typedef struct copy_2d { // CUDA_MEMCPY2D
  side_2d src, dst;
  size_t width, height;
} copy_2d;
_Static_assert(sizeof(copy_2d) == 128, "the driver's");

static side of_2d(const side_2d *s)
{
  return (side){.x = s->x, .y = s->y, .type = s->type, .host = s->host, .device = s->device, .pitch = s->pitch};
}

static CUresult do_2d(const copy_2d *c, cudaStream_t stream, bool async)
{
  if (c == NULL) {
    return INVALID_VALUE;
  }
  side dst = of_2d(&c->dst), src = of_2d(&c->src);
  return copy_box(&dst, &src, (const size_t[]){c->width, c->height, 1}, stream, async);
}

typedef struct side_3d {
  size_t x, y, z, level;
  int type;
  uintptr_t host, device, array, reserved;
  size_t pitch, height;
} side_3d;

typedef struct copy_3d { // CUDA_MEMCPY3D
  side_3d src, dst;
  size_t width, height, depth;
} copy_3d;
_Static_assert(sizeof(copy_3d) == 200, "the driver's");

static side of_3d(const side_3d *s)
{
  return (side){.x = s->x,
                .y = s->y,
                .z = s->z,
                .type = s->type,
                .host = s->host,
                .device = s->device,
                .pitch = s->pitch,
                .height = s->height};
}

static CUresult do_3d(const copy_3d *c, cudaStream_t stream, bool async)
{
  if (c == NULL || c->src.level != 0 || c->dst.level != 0 || c->src.reserved != 0 || c->dst.reserved != 0) {
    return INVALID_VALUE;
  }
  side dst = of_3d(&c->dst), src = of_3d(&c->src);
  return copy_box(&dst, &src, (const size_t[]){c->width, c->height, c->depth}, stream, async);
}

// The forms of a copy that a structure describes.
#define DESCRIBED(name, type, call)             \
  CU_API(name##_v2, (const type *c))            \
  {                                             \
    return call(c, cudaStreamLegacy, false);    \
  }                                             \
  CU_API(name##_v2_ptds, (const type *c))       \
  {                                             \
    return call(c, cudaStreamPerThread, false); \
  }
#define DESCRIBED_ASYNC(name, type, call)                 \
  CU_API(name##_v2, (const type *c, cudaStream_t stream)) \
  {                                                       \
    return call(c, stream, true);                         \
  }                                                       \
  CU_TWIN(name##_v2, _ptsz, (const type *c, cudaStream_t stream), (c, hc_own(stream)))
DESCRIBED(cuMemcpy2D, copy_2d, do_2d)
DESCRIBED(cuMemcpy2DUnaligned, copy_2d, do_2d)
DESCRIBED_ASYNC(cuMemcpy2DAsync, copy_2d, do_2d)
DESCRIBED(cuMemcpy3D, copy_3d, do_3d)
DESCRIBED_ASYNC(cuMemcpy3DAsync, copy_3d, do_3d)

CU_API(cuMemcpyPeer, (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t size))
{
  if (device_of(to) < 0 || device_of(from) < 0) {
    return INVALID_CONTEXT;
  }
  CU_RETURN(cudaMemcpyPeer(at(dst), device_of(to), at(src), device_of(from), size));
}
CU_TWIN(cuMemcpyPeer, _ptds, (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t size),
        (dst, to, src, from, size))

CU_API(cuMemcpyPeerAsync,
       (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t size, cudaStream_t stream))
{
  if (device_of(to) < 0 || device_of(from) < 0) {
    return INVALID_CONTEXT;
  }
  CU_RETURN(cudaMemcpyPeerAsync(at(dst), device_of(to), at(src), device_of(from), size, stream));
}
CU_TWIN(cuMemcpyPeerAsync, _ptsz,
        (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t size, cudaStream_t stream),
        (dst, to, src, from, size, hc_own(stream)))

// ---- Fills ----

// `width` elements in each row, `pitch` bytes from row to row, both the elements' own.
typedef struct area {
  CUdeviceptr ptr;
  size_t pitch, width, height;
  unsigned value, size;
} area;

static CUresult fill(const area *a, cudaStream_t stream, bool async)
{
  size_t bytes;
  bool rows = a->height > 1;
  if (__builtin_mul_overflow(a->width, a->size, &bytes) || a->ptr % a->size != 0 ||
      (rows && (a->pitch < bytes || a->pitch % a->size != 0))) {
    return INVALID_VALUE;
  }
  hc_box b = {.rows = {.dst = at(a->ptr), .dstPitch = rows ? a->pitch : bytes, .width = bytes, .height = a->height},
              .depth = 1};
  CU_RETURN(hc_fill_box(&b, a->value, a->size, stream, async));
}

// cuMemsetD… of one row and cuMemsetD2D… of many, with elements of `type`. The symbols of those that wait have a
// number.
#define FILLS(bits, type)                                                                               \
  CU_API(cuMemsetD##bits##_v2, (CUdeviceptr p, type value, size_t n))                                   \
  {                                                                                                     \
    return fill(&(area){p, 0, n, 1, value, sizeof value}, cudaStreamLegacy, false);                     \
  }                                                                                                     \
  CU_API(cuMemsetD##bits##_v2_ptds, (CUdeviceptr p, type value, size_t n))                              \
  {                                                                                                     \
    return fill(&(area){p, 0, n, 1, value, sizeof value}, cudaStreamPerThread, false);                  \
  }                                                                                                     \
  CU_API(cuMemsetD##bits##Async, (CUdeviceptr p, type value, size_t n, cudaStream_t stream))            \
  {                                                                                                     \
    return fill(&(area){p, 0, n, 1, value, sizeof value}, stream, true);                                \
  }                                                                                                     \
  CU_TWIN(cuMemsetD##bits##Async, _ptsz, (CUdeviceptr p, type value, size_t n, cudaStream_t stream),    \
          (p, value, n, hc_own(stream)))                                                                \
  CU_API(cuMemsetD2D##bits##_v2, (CUdeviceptr p, size_t pitch, type value, size_t n, size_t rows))      \
  {                                                                                                     \
    return fill(&(area){p, pitch, n, rows, value, sizeof value}, cudaStreamLegacy, false);              \
  }                                                                                                     \
  CU_API(cuMemsetD2D##bits##_v2_ptds, (CUdeviceptr p, size_t pitch, type value, size_t n, size_t rows)) \
  {                                                                                                     \
    return fill(&(area){p, pitch, n, rows, value, sizeof value}, cudaStreamPerThread, false);           \
  }                                                                                                     \
  CU_API(cuMemsetD2D##bits##Async,                                                                      \
         (CUdeviceptr p, size_t pitch, type value, size_t n, size_t rows, cudaStream_t stream))         \
  {                                                                                                     \
    return fill(&(area){p, pitch, n, rows, value, sizeof value}, stream, true);                         \
  }                                                                                                     \
  CU_TWIN(cuMemsetD2D##bits##Async, _ptsz,                                                              \
          (CUdeviceptr p, size_t pitch, type value, size_t n, size_t rows, cudaStream_t stream),        \
          (p, pitch, value, n, rows, hc_own(stream)))
FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned)
