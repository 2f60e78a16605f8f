// copy.c: copying and setting memory.
//
// When a call returns is CUDA's rule ("API synchronization behavior" in its manual), which programs rely on: "ordinary" memory is what
// nobody allocated or registered with the runtime or NCCL, "pageable" in CUDA's words.
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

HC_API cudaMemcpy_ptds(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind);
HC_API cudaMemcpy_ptds(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
  return copy(dst, src, count, kind, cudaStreamPerThread);
}

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
HC_TWIN(cudaMemcpyAsync, _ptsz, (void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream),
        (dst, src, count, kind, hc_own(stream)))

static cudaError_t queue_rows(const tuttiRows_t *rows, enum cudaMemcpyKind kind, cudaStream_t stream)
{
  HC_ENTER();
  HC_REFUSE(!is_kind(kind), cudaErrorInvalidMemcpyDirection);
  HC_REFUSE(rows->width > rows->dstPitch || rows->width > rows->srcPitch, cudaErrorInvalidPitchValue);
  cudaError_t e = check_stream(stream);
  return e != cudaSuccess ? e : hc_result(tuttiMemcpyRowsAsync(rows, stream), cudaErrorInvalidValue);
}

static cudaError_t copy_rows(const tuttiRows_t *rows, enum cudaMemcpyKind kind, cudaStream_t stream)
{
  plan p = look_at(rows->dst, rows->src, stream);
  cudaError_t e = queue_rows(rows, kind, stream);
  return e != cudaSuccess || (p.dst == tuttiMemoryDevice && p.src == tuttiMemoryDevice) ? e : wait_for(stream);
}

#define ROWS                                                                                         \
  &(tuttiRows_t)                                                                                     \
  {                                                                                                  \
    .dst = dst, .dstPitch = dpitch, .src = src, .srcPitch = spitch, .width = width, .height = height \
  }

HC_API cudaMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height, enum cudaMemcpyKind kind)
{
  return copy_rows(ROWS, kind, cudaStreamLegacy);
}

HC_API cudaMemcpy2D_ptds(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height, enum cudaMemcpyKind kind);
HC_API cudaMemcpy2D_ptds(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height, enum cudaMemcpyKind kind)
{
  return copy_rows(ROWS, kind, cudaStreamPerThread);
}

HC_API cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height, enum cudaMemcpyKind kind,
                         cudaStream_t stream)
{
  plan p = look_at(dst, src, stream);
  cudaError_t e = queue_rows(ROWS, kind, stream);
  return e == cudaSuccess && waits(&p) ? wait_for(stream) : e;
}
HC_TWIN(cudaMemcpy2DAsync, _ptsz,
        (void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height, enum cudaMemcpyKind kind,
         cudaStream_t stream),
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

static cudaError_t set_rows(const tuttiRows_t *rows, int value, cudaStream_t stream, bool wait)
{
  HC_ENTER();
  HC_REFUSE(rows->height > 0 && rows->width > rows->dstPitch, cudaErrorInvalidPitchValue);
  HC_REFUSE(rows->height > 0 && rows->width > 0 && rows->dst == NULL, cudaErrorInvalidValue);
  cudaError_t e = check_stream(stream);
  if (e == cudaSuccess) {
    e = hc_result(tuttiMemsetRowsAsync(rows, value, stream), cudaErrorInvalidValue);
  }
  return e == cudaSuccess && wait && hc_look_up(rows->dst).kind != tuttiMemoryDevice ? wait_for(stream) : e;
}

#define AREA                                                        \
  &(tuttiRows_t)                                                    \
  {                                                                 \
    .dst = ptr, .dstPitch = pitch, .width = width, .height = height \
  }
#define RANGE                                                  \
  &(tuttiRows_t)                                               \
  {                                                            \
    .dst = ptr, .dstPitch = count, .width = count, .height = 1 \
  }

HC_API cudaMemset(void *ptr, int value, size_t count)
{
  return set_rows(RANGE, value, cudaStreamLegacy, true);
}

HC_API cudaMemset_ptds(void *ptr, int value, size_t count);
HC_API cudaMemset_ptds(void *ptr, int value, size_t count)
{
  return set_rows(RANGE, value, cudaStreamPerThread, true);
}

HC_API cudaMemset2D(void *ptr, size_t pitch, int value, size_t width, size_t height)
{
  return set_rows(AREA, value, cudaStreamLegacy, true);
}

HC_API cudaMemset2D_ptds(void *ptr, size_t pitch, int value, size_t width, size_t height);
HC_API cudaMemset2D_ptds(void *ptr, size_t pitch, int value, size_t width, size_t height)
{
  return set_rows(AREA, value, cudaStreamPerThread, true);
}

HC_API cudaMemsetAsync(void *ptr, int value, size_t count, cudaStream_t stream)
{
  return set_rows(RANGE, value, stream, false);
}
HC_TWIN(cudaMemsetAsync, _ptsz, (void *ptr, int value, size_t count, cudaStream_t stream), (ptr, value, count, hc_own(stream)))

HC_API cudaMemset2DAsync(void *ptr, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream)
{
  return set_rows(AREA, value, stream, false);
}
HC_TWIN(cudaMemset2DAsync, _ptsz, (void *ptr, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream),
        (ptr, pitch, value, width, height, hc_own(stream)))
