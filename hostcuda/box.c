// box.c: copies and fills of three dimensions, each over those of copy.c. There are no arrays: what names one is
// refused.
#include "hostcuda.h"

// Where a position in pitched memory lies.
static void *place_in(const struct cudaPitchedPtr *p, const struct cudaPos *at)
{
  return (void *)((uintptr_t)p->ptr + (at->z * p->ysize + at->y) * p->pitch + at->x);
}

static cudaError_t copy_3d(const struct cudaMemcpy3DParms *p, cudaStream_t stream, bool async)
{
  HC_REFUSE(p == NULL, cudaErrorInvalidValue);
  HC_REFUSE(p->srcArray != NULL || p->dstArray != NULL, cudaErrorNotSupported);
  HC_REFUSE(p->srcPtr.ptr == NULL || p->dstPtr.ptr == NULL, cudaErrorInvalidValue);
  const struct cudaExtent *e = &p->extent;
  if (e->width == 0 || e->height == 0 || e->depth == 0) {
    return cudaSuccess;
  }
  hc_box b = {.rows = {.dst = place_in(&p->dstPtr, &p->dstPos),
                       .dstPitch = p->dstPtr.pitch,
                       .src = place_in(&p->srcPtr, &p->srcPos),
                       .srcPitch = p->srcPtr.pitch,
                       .width = e->width,
                       .height = e->height},
              .dstPlane = p->dstPtr.pitch * p->dstPtr.ysize,
              .srcPlane = p->srcPtr.pitch * p->srcPtr.ysize,
              .depth = e->depth};
  return hc_copy_box(&b, p->kind, stream, async);
}

HC_API cudaMemcpy3D(const struct cudaMemcpy3DParms *p)
{
  return copy_3d(p, cudaStreamLegacy, false);
}
HC_TWIN_RETURNS(cudaMemcpy3D, _ptds, (const struct cudaMemcpy3DParms *p), copy_3d(p, cudaStreamPerThread, false))

HC_API cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *p, cudaStream_t stream)
{
  return copy_3d(p, stream, true);
}
HC_TWIN(cudaMemcpy3DAsync, _ptsz, (const struct cudaMemcpy3DParms *p, cudaStream_t stream), (p, hc_own(stream)))

static cudaError_t fill_3d(struct cudaPitchedPtr p, int value, struct cudaExtent e, cudaStream_t stream, bool async)
{
  hc_box b = {.rows = {.dst = p.ptr, .dstPitch = p.pitch, .width = e.width, .height = e.height},
              .dstPlane = p.pitch * p.ysize,
              .depth = e.depth};
  return hc_fill_box(&b, (uint32_t)value, 1, stream, async);
}

HC_API cudaMemset3D(struct cudaPitchedPtr p, int value, struct cudaExtent extent)
{
  return fill_3d(p, value, extent, cudaStreamLegacy, false);
}
HC_TWIN_RETURNS(cudaMemset3D, _ptds, (struct cudaPitchedPtr p, int value, struct cudaExtent extent),
                fill_3d(p, value, extent, cudaStreamPerThread, false))

HC_API cudaMemset3DAsync(struct cudaPitchedPtr p, int value, struct cudaExtent extent, cudaStream_t stream)
{
  return fill_3d(p, value, extent, stream, true);
}
HC_TWIN(cudaMemset3DAsync, _ptsz, (struct cudaPitchedPtr p, int value, struct cudaExtent extent, cudaStream_t stream),
        (p, value, extent, hc_own(stream)))

HC_API cudaMalloc3D(struct cudaPitchedPtr *p, struct cudaExtent extent)
{
  size_t rows;
  void *ptr = NULL;
  size_t pitch = 0;
  HC_REFUSE(p == NULL || __builtin_mul_overflow(extent.height, extent.depth, &rows), cudaErrorInvalidValue);
  cudaError_t e = cudaMallocPitch(&ptr, &pitch, extent.width, rows);
  if (e == cudaSuccess) {
    *p = (struct cudaPitchedPtr){.ptr = ptr, .pitch = pitch, .xsize = extent.width, .ysize = extent.height};
  }
  return e;
}
