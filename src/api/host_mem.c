// host_mem.c: the tutti… functions for memory of the host device.
#include "api/host_priv.h"
#include "base/result.h"
#include "device/host/device.h"
#include "device/host/heap.h"
#include "device/host/ipc.h"
#include "device/host/ops.h"
#include "device/host/stream.h"
#include "os/map.h"

TUTTI_API tuttiMalloc(void **ptr, size_t size)
{
  tt_device_want_host();
  TT_TRY(tt_api_needs("tuttiMalloc", ptr != NULL));
  return tt_heap_alloc(size, tuttiMemoryDevice, tt_host_device(), 0, ptr);
}

TUTTI_API tuttiMallocKind(void **ptr, size_t size, tuttiMemory_t kind, unsigned flags)
{
  tt_device_want_host();
  TT_TRY(tt_api_needs("tuttiMallocKind", ptr != NULL));
  if (kind != tuttiMemoryHost && kind != tuttiMemoryDevice && kind != tuttiMemoryManaged) {
    return tt_fail(ncclInvalidArgument, "tuttiMallocKind: kind is %d; known are %d, %d and %d", (int)kind,
                   tuttiMemoryHost, tuttiMemoryDevice, tuttiMemoryManaged);
  }
  return tt_heap_alloc(size, kind, tt_host_device(), flags, ptr);
}

TUTTI_API tuttiFree(void *ptr)
{
  return ptr == NULL ? ncclSuccess : tt_heap_free(ptr);
}

TUTTI_API tuttiFreeAsync(void *ptr, cudaStream_t stream)
{
  tt_block b;
  if (ptr == NULL) {
    return ncclSuccess;
  }
  if (!tt_heap_find(ptr, &b) || b.base != ptr || b.owner != TT_BLOCK_HEAP) {
    return tt_fail(ncclInvalidArgument, "tuttiFreeAsync: %p is not the beginning of memory that was allocated here",
                   ptr);
  }
  return tt_api_push("tuttiFreeAsync", stream, tt_host_release(ptr));
}

TUTTI_API tuttiHostRegister(void *ptr, size_t size, unsigned flags)
{
  tt_device_want_host();
  if (ptr == NULL || size == 0 || size > UINTPTR_MAX - (uintptr_t)ptr) {
    return tt_fail(ncclInvalidArgument, "tuttiHostRegister: ptr is %p, size is %zu", ptr, size);
  }
  tt_block b = {.base = ptr,
                .size = size,
                .kind = tuttiMemoryHost,
                .owner = TT_BLOCK_REGISTERED,
                .device = tt_host_device(),
                .flags = flags,
                .fd = -1};
  return tt_heap_note(&b);
}

TUTTI_API tuttiHostUnregister(void *ptr)
{
  return tt_heap_forget(ptr, TT_BLOCK_REGISTERED)
             ? ncclSuccess
             : tt_fail(ncclInvalidArgument, "tuttiHostUnregister: no registered memory begins at %p", ptr);
}

TUTTI_API tuttiPointerGetAttributes(tuttiPointerAttributes_t *attributes, const void *ptr)
{
  tt_device_want_host();
  tt_block b;
  TT_TRY(tt_api_needs("tuttiPointerGetAttributes", attributes != NULL));
  *attributes = (tuttiPointerAttributes_t){.device = -1};
  if (tt_heap_find(ptr, &b)) {
    *attributes = (tuttiPointerAttributes_t){
        .kind = b.kind, .device = b.device, .base = b.base, .size = b.size, .flags = b.flags};
  }
  return ncclSuccess;
}

TUTTI_API tuttiIpcGetMemHandle(tuttiIpcMemHandle_t *handle, const void *ptr)
{
  tt_block b;
  TT_TRY(tt_api_needs("tuttiIpcGetMemHandle", handle != NULL));
  if (tt_heap_find(ptr, &b)) {
    TT_TRY(tt_stream_wait_device(b.device, false));
  }
  return tt_ipc_export(ptr, handle);
}

TUTTI_API tuttiIpcOpenMemHandle(void **ptr, const tuttiIpcMemHandle_t *handle)
{
  TT_TRY(tt_api_needs("tuttiIpcOpenMemHandle", ptr != NULL && handle != NULL));
  return tt_ipc_open(handle, ptr);
}

TUTTI_API tuttiIpcCloseMemHandle(void *ptr)
{
  return tt_ipc_close(ptr);
}

TUTTI_API tuttiMemGetInfo(size_t *available, size_t *total)
{
  tt_device_want_host();
  TT_TRY(tt_api_needs("tuttiMemGetInfo", available != NULL && total != NULL));
  tt_map_memory(available, total);
  return ncclSuccess;
}

TUTTI_API tuttiMemcpyAsync(void *dst, const void *src, size_t size, cudaStream_t stream)
{
  TT_TRY(tt_api_needs("tuttiMemcpyAsync", size == 0 || (dst != NULL && src != NULL)));
  return tt_api_push("tuttiMemcpyAsync", stream, tt_host_copy(dst, src, size));
}

TUTTI_API tuttiMemcpyStagedAsync(void *dst, const void *src, size_t size, cudaStream_t stream)
{
  TT_TRY(tt_api_needs("tuttiMemcpyStagedAsync", size == 0 || (dst != NULL && src != NULL)));
  return tt_api_push("tuttiMemcpyStagedAsync", stream, tt_host_copy_staged(dst, src, size));
}

TUTTI_API tuttiMemsetAsync(void *dst, int value, size_t size, cudaStream_t stream)
{
  TT_TRY(tt_api_needs("tuttiMemsetAsync", size == 0 || dst != NULL));
  return tt_api_push("tuttiMemsetAsync", stream, tt_host_fill(dst, value, size));
}

// The rows must lie in the address space, one behind the other.
static ncclResult_t check_rows(const char *what, const void *ptr, size_t pitch, const tuttiRows_t *r)
{
  size_t size;
  if (r->width == 0 || r->height == 0) {
    return ncclSuccess;
  }
  TT_TRY(tt_api_needs(what, ptr != NULL));
  if (pitch < r->width || __builtin_mul_overflow(pitch, r->height, &size) || size > UINTPTR_MAX - (uintptr_t)ptr) {
    return tt_fail(ncclInvalidArgument, "%s: %zu rows of %zu bytes do not fit a pitch of %zu bytes", what, r->height,
                   r->width, pitch);
  }
  return ncclSuccess;
}

TUTTI_API tuttiMemcpyRowsAsync(const tuttiRows_t *rows, cudaStream_t stream)
{
  TT_TRY(tt_api_needs("tuttiMemcpyRowsAsync", rows != NULL));
  TT_TRY(check_rows("tuttiMemcpyRowsAsync", rows->dst, rows->dstPitch, rows));
  TT_TRY(check_rows("tuttiMemcpyRowsAsync", rows->src, rows->srcPitch, rows));
  return tt_api_push("tuttiMemcpyRowsAsync", stream, tt_host_copy_rows(rows));
}

static ncclResult_t fill_rows(const char *what, const tuttiRows_t *rows, uint32_t value, size_t size,
                              cudaStream_t stream)
{
  TT_TRY(tt_api_needs(what, rows != NULL));
  if ((size != 1 && size != 2 && size != 4) || rows->width % size != 0) {
    return tt_fail(ncclInvalidArgument,
                   "%s: rows of %zu bytes have no whole number of elements of %zu bytes, which may be 1, 2 or 4", what,
                   rows->width, size);
  }
  TT_TRY(check_rows(what, rows->dst, rows->dstPitch, rows));
  return tt_api_push(what, stream, tt_host_fill_rows(rows, value, size));
}

TUTTI_API tuttiMemsetRowsAsync(const tuttiRows_t *rows, int value, cudaStream_t stream)
{
  return fill_rows("tuttiMemsetRowsAsync", rows, (unsigned char)value, 1, stream);
}

TUTTI_API tuttiFillRowsAsync(const tuttiRows_t *rows, uint32_t value, size_t elementSize, cudaStream_t stream)
{
  return fill_rows("tuttiFillRowsAsync", rows, value, elementSize, stream);
}
