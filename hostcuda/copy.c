// copy.c: copying and setting memory.
//
// When a call returns is CUDA's rule ("API synchronization behavior" in its manual), which programs rely on: "ordinary"
// memory is what nobody allocated or registered with the runtime or NCCL, "pageable" in CUDA's words.
#include "hostcuda.h"

#define STAGED_MOST (64u << 10) // ordinary memory of up to this size may be changed once a copy to a device is queued

// What is copied, and what CUDA says about when.
typedef struct plan {
  tuttiMemory_t dst, src;
  bool captured;
} plan;

static plan look_at(const void *dst, const void *src, cudaStream_t stream)
{
  return (plan){.dst = hc_look_up(dst).kind, .src = hc_look_up(src).kind, .captured = hc_captured(stream)};
}

static bool on_device(tuttiMemory_t kind)
{
  return kind == tuttiMemoryDevice || kind == tuttiMemoryManaged;
}

// Must a call of the Async family wait for its copy? A captured one is done at each launch of the graph.
static bool waits(const plan *p)
{
  return !p->captured && (p->dst == tuttiMemoryUnknown || (!on_device(p->dst) && !on_device(p->src)));
}

static bool is_kind(enum cudaMemcpyKind kind)
{
  return (int)kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault;
}

static cudaError_t wait_for(cudaStream_t stream)
{
  return hc_result(tuttiStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
}

// Whether a stream argument is one, with CUDA's error if not.
static cudaError_t check_stream(cudaStream_t stream)
{
  return hc_result(tuttiStreamGetInfo(stream, NULL, NULL, NULL), cudaErrorInvalidResourceHandle);
}

static cudaError_t queue(void *dst, const void *src, size_t count, const plan *p, cudaStream_t stream)
{
  bool staged = p->src == tuttiMemoryUnknown && !waits(p) && !p->captured && count <= STAGED_MOST;
  ncclResult_t r = staged ? tuttiMemcpyStagedAsync(dst, src, count, stream) : tuttiMemcpyAsync(dst, src, count, stream);
  return hc_result(r, cudaErrorInvalidValue);
}

static cudaError_t copy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream)
{
  HC_ENTER_UNSAFE();
  HC_REFUSE(!is_kind(kind), cudaErrorInvalidMemcpyDirection);
  HC_REFUSE(count > 0 && (dst == NULL || src == NULL), cudaErrorInvalidValue);
  plan p = look_at(dst, src, stream);
  cudaError_t e = queue(dst, src, count, &p, stream);
  return e != cudaSuccess || (p.dst == tuttiMemoryDevice && p.src == tuttiMemoryDevice) ? e : wait_for(stream);
}

HC_API cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
  return copy(dst, src, count, kind, cudaStreamLegacy);
}
HC_TWIN_RETURNS(cudaMemcpy, _ptds, (void *dst, const void *src, size_t count, enum cudaMemcpyKind kind),
                copy(dst, src, count, kind, cudaStreamPerThread))

HC_API cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream)
{
  HC_ENTER();
  HC_REFUSE(!is_kind(kind), cudaErrorInvalidMemcpyDirection);
  HC_REFUSE(count > 0 && (dst == NULL || src == NULL), cudaErrorInvalidValue);
  cudaError_t e = check_stream(stream);
  if (e != cudaSuccess) {
    return e;
  }
  plan p = look_at(dst, src, stream);
  e = queue(dst, src, count, &p, stream);
  return e == cudaSuccess && waits(&p) ? wait_for(stream) : e;
}
HC_TWIN(cudaMemcpyAsync, _ptsz,
        (void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream),
        (dst, src, count, kind, hc_own(stream)))

// Queues one call for each plane; a box without gaps between its planes is one plane.
static cudaError_t queue_planes(const hc_box *b, const uint32_t *value, size_t size, cudaStream_t stream)
{
  tuttiRows_t r = b->rows;
  size_t depth = b->depth, ends;
  HC_REFUSE(__builtin_mul_overflow(b->dstPlane, depth, &ends) || __builtin_mul_overflow(b->srcPlane, depth, &ends),
            cudaErrorInvalidValue);
  bool flat = b->dstPlane == r.dstPitch * r.height && (value != NULL || b->srcPlane == r.srcPitch * r.height);
  if (flat) {
    r.height *= depth;
    depth = depth > 0;
  }
  ncclResult_t e = ncclSuccess;
  for (size_t z = 0; e == ncclSuccess && z < depth; z++) {
    e = value != NULL ? tuttiFillRowsAsync(&r, *value, size, stream) : tuttiMemcpyRowsAsync(&r, stream);
    r.dst = (void *)((uintptr_t)r.dst + b->dstPlane);
    r.src = (const void *)((uintptr_t)r.src + b->srcPlane);
  }
  return hc_result(e, cudaErrorInvalidValue);
}

static cudaError_t queue_box(const hc_box *b, enum cudaMemcpyKind kind, cudaStream_t stream)
{
  HC_ENTER();
  HC_REFUSE(!is_kind(kind), cudaErrorInvalidMemcpyDirection);
  HC_REFUSE(b->rows.width > b->rows.dstPitch || b->rows.width > b->rows.srcPitch, cudaErrorInvalidPitchValue);
  cudaError_t e = check_stream(stream);
  return e != cudaSuccess ? e : queue_planes(b, NULL, 0, stream);
}

cudaError_t hc_copy_box(const hc_box *b, enum cudaMemcpyKind kind, cudaStream_t stream, bool async)
{
  plan p = look_at(b->rows.dst, b->rows.src, stream);
  cudaError_t e = queue_box(b, kind, stream);
  bool wait = async ? waits(&p) : p.dst != tuttiMemoryDevice || p.src != tuttiMemoryDevice;
  return e == cudaSuccess && wait ? wait_for(stream) : e;
}

#define ROWS                                                                                                    \
  &(hc_box)                                                                                                     \
  {                                                                                                             \
    .rows = {.dst = dst, .dstPitch = dpitch, .src = src, .srcPitch = spitch, .width = width, .height = height}, \
    .depth = 1                                                                                                  \
  }

HC_API cudaMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                    enum cudaMemcpyKind kind)
{
  return hc_copy_box(ROWS, kind, cudaStreamLegacy, false);
}
HC_TWIN_RETURNS(cudaMemcpy2D, _ptds,
                (void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                 enum cudaMemcpyKind kind),
                hc_copy_box(ROWS, kind, cudaStreamPerThread, false))

HC_API cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                         enum cudaMemcpyKind kind, cudaStream_t stream)
{
  return hc_copy_box(ROWS, kind, stream, true);
}
HC_TWIN(cudaMemcpy2DAsync, _ptsz,
        (void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
         enum cudaMemcpyKind kind, cudaStream_t stream),
        (dst, dpitch, src, spitch, width, height, kind, hc_own(stream)))

// Work queued from now on to the default stream of `later` follows what is queued to that of `earlier`.
static ncclResult_t order(int earlier, int later)
{
  tuttiEvent_t e;
  if (earlier == later) {
    return ncclSuccess;
  }
  ncclResult_t r = tuttiEventCreate(&e);
  if (r != ncclSuccess) {
    return r;
  }
  tuttiSetDevice(earlier);
  r = tuttiEventRecord(e, NULL);
  tuttiSetDevice(later);
  if (r == ncclSuccess) {
    r = tuttiStreamWaitEvent(NULL, e);
  }
  tuttiEventDestroy(e);
  return r;
}

// The copy follows what is queued to the current device and to the two of the copy, and they follow it.
HC_API cudaMemcpyPeer(void *dst, int dstDevice, const void *src, int srcDevice, size_t count)
{
  int current = 0;
  HC_ENTER();
  HC_REFUSE(!hc_is_device(dstDevice) || !hc_is_device(srcDevice), cudaErrorInvalidDevice);
  HC_REFUSE(count > 0 && (dst == NULL || src == NULL), cudaErrorInvalidValue);
  tuttiGetDevice(&current);
  ncclResult_t r = order(srcDevice, current);
  r = r == ncclSuccess ? order(dstDevice, current) : r;
  tuttiSetDevice(current);
  r = r == ncclSuccess ? tuttiMemcpyAsync(dst, src, count, NULL) : r;
  r = r == ncclSuccess ? order(current, dstDevice) : r;
  r = r == ncclSuccess ? order(current, srcDevice) : r;
  tuttiSetDevice(current);
  return hc_result(r, cudaErrorInvalidValue);
}

HC_API cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice, size_t count, cudaStream_t stream)
{
  HC_ENTER();
  HC_REFUSE(!hc_is_device(dstDevice) || !hc_is_device(srcDevice), cudaErrorInvalidDevice);
  HC_REFUSE(count > 0 && (dst == NULL || src == NULL), cudaErrorInvalidValue);
  return hc_result(tuttiMemcpyAsync(dst, src, count, stream), cudaErrorInvalidResourceHandle);
}

cudaError_t hc_fill_box(const hc_box *b, uint32_t value, size_t size, cudaStream_t stream, bool async)
{
  const tuttiRows_t *r = &b->rows;
  bool some = r->height > 0 && b->depth > 0;
  HC_ENTER();
  HC_REFUSE(some && r->width > r->dstPitch, cudaErrorInvalidPitchValue);
  HC_REFUSE(some && r->width > 0 && r->dst == NULL, cudaErrorInvalidValue);
  cudaError_t e = check_stream(stream);
  e = e == cudaSuccess ? queue_planes(b, &value, size, stream) : e;
  return e == cudaSuccess && !async && hc_look_up(r->dst).kind != tuttiMemoryDevice ? wait_for(stream) : e;
}

#define AREA                                                                              \
  &(hc_box)                                                                               \
  {                                                                                       \
    .rows = {.dst = ptr, .dstPitch = pitch, .width = width, .height = height}, .depth = 1 \
  }
#define RANGE                                                                        \
  &(hc_box)                                                                          \
  {                                                                                  \
    .rows = {.dst = ptr, .dstPitch = count, .width = count, .height = 1}, .depth = 1 \
  }

HC_API cudaMemset(void *ptr, int value, size_t count)
{
  return hc_fill_box(RANGE, (uint32_t)value, 1, cudaStreamLegacy, false);
}
HC_TWIN_RETURNS(cudaMemset, _ptds, (void *ptr, int value, size_t count),
                hc_fill_box(RANGE, (uint32_t)value, 1, cudaStreamPerThread, false))

HC_API cudaMemset2D(void *ptr, size_t pitch, int value, size_t width, size_t height)
{
  return hc_fill_box(AREA, (uint32_t)value, 1, cudaStreamLegacy, false);
}
HC_TWIN_RETURNS(cudaMemset2D, _ptds, (void *ptr, size_t pitch, int value, size_t width, size_t height),
                hc_fill_box(AREA, (uint32_t)value, 1, cudaStreamPerThread, false))

HC_API cudaMemsetAsync(void *ptr, int value, size_t count, cudaStream_t stream)
{
  return hc_fill_box(RANGE, (uint32_t)value, 1, stream, true);
}
HC_TWIN(cudaMemsetAsync, _ptsz, (void *ptr, int value, size_t count, cudaStream_t stream),
        (ptr, value, count, hc_own(stream)))

HC_API cudaMemset2DAsync(void *ptr, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream)
{
  return hc_fill_box(AREA, (uint32_t)value, 1, stream, true);
}
HC_TWIN(cudaMemset2DAsync, _ptsz,
        (void *ptr, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream),
        (ptr, pitch, value, width, height, hc_own(stream)))
