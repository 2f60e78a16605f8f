// memory.c: memory of devices, host memory that devices may use, what is known of an address.
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sim.h"

static const struct sim_range *range_at(uint64_t address)
{
  return sim_range_find(sim.ranges, address);
}

// The current context, for calls that a capture of mode global forbids.
static struct sim_context *current_unless_captured(CUresult *error)
{
  struct sim_context *context = sim_current(error);
  if (context != NULL) {
    *error = sim_capture_unsafe();
  }
  return *error == CUDA_SUCCESS ? context : NULL;
}

// ---- Of devices ----

static CUresult allocate(CUdeviceptr *out, size_t bytes)
{
  CUresult error;
  struct sim_context *context = current_unless_captured(&error);
  struct sim_range other;
  if (context == NULL || bytes == 0) {
    return context == NULL ? error : sim_misuse(CUDA_ERROR_INVALID_VALUE, "0 bytes");
  }
  struct sim_range range = {.bytes = bytes,
                            .kind = SIM_DEVICE_MEMORY,
                            .device = context->device->ordinal,
                            .context = context,
                            .id = ++sim.ids};
  if (!sim_heap_alloc(range.device, bytes, &range)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  sim_range_add(&range, &other); // the heap gives no memory twice
  *out = range.base;
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr *ptr, size_t bytes)
{
  SIM_CALL("cuMemAlloc", allocate(ptr, bytes));
}

// Memory goes when all work that was handed to its context has ended: like the driver, which waits too.
static CUresult free_device(CUdeviceptr ptr)
{
  CUresult error;
  struct sim_context *current = current_unless_captured(&error);
  const struct sim_range *range = range_at(ptr);
  if (current == NULL || ptr == 0) {
    return current == NULL ? error : CUDA_SUCCESS;
  }
  if (range == NULL || range->kind != SIM_DEVICE_MEMORY || range->base != ptr) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "0x%llx is not the beginning of an allocation (freed before?)", ptr);
  }
  struct sim_context *context = range->context;
  error = sim_context_drain(context);
  sim_quiesce();
  range = range_at(ptr);
  if (range == NULL) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "0x%llx was freed by two threads", ptr);
  }
  struct sim_range gone = *range;
  unsigned opens = atomic_load(&gone.entry->opens);
  if (opens > 0) {
    sim_say("cuMemFree: 0x%llx is open in other processes (%u times): they may not use it any more", ptr, opens);
  }
  sim_range_remove(ptr);
  sim_heap_free(&gone);
  return error;
}

CUresult cuMemFree(CUdeviceptr ptr)
{
  SIM_CALL("cuMemFree", free_device(ptr));
}

static CUresult info(size_t *available, size_t *total)
{
  CUresult error;
  const struct sim_context *context = sim_current(&error);
  if (context != NULL) {
    *total = sim.modes.memory;
    *available = *total - box_used_by_all(context->device->ordinal);
  }
  return error;
}

CUresult cuMemGetInfo(size_t *available, size_t *total)
{
  SIM_CALL("cuMemGetInfo", info(available, total));
}

static CUresult address_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr ptr)
{
  CUresult error;
  const struct sim_range *range = range_at(ptr);
  if (sim_current(&error) == NULL) {
    return error;
  }
  if (range == NULL || range->device < 0) {
    return sim_misuse(CUDA_ERROR_NOT_FOUND, "0x%llx is in no memory of a device", ptr);
  }
  if (base != NULL) {
    *base = range->base;
  }
  if (bytes != NULL) {
    *bytes = range->bytes;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr ptr)
{
  SIM_CALL("cuMemGetAddressRange", address_range(base, bytes, ptr));
}

// ---- Of the host ----

static CUresult add_host(struct sim_context *context, enum sim_range_kind kind, void *ptr, size_t bytes, bool read_only)
{
  struct sim_range range = {.base = (uint64_t)(uintptr_t)ptr,
                            .bytes = bytes,
                            .kind = kind,
                            .device = -1,
                            .context = context,
                            .read_only = read_only,
                            .id = ++sim.ids};
  struct sim_range other;
  sim_range_file(ptr, &range.file, &range.offset);
  if (!sim_range_add(&range, &other)) {
    return sim_misuse(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "%zu bytes at %p: 0x%" PRIx64 " (%zu bytes) is known",
                      bytes, ptr, other.base, other.bytes);
  }
  return CUDA_SUCCESS;
}

static CUresult allocate_host(void **out, size_t bytes, unsigned flags)
{
  CUresult error;
  struct sim_context *context = current_unless_captured(&error);
  if (context == NULL || bytes == 0 || flags > 7) {
    return context == NULL ? error : sim_misuse(CUDA_ERROR_INVALID_VALUE, "%zu bytes, flags 0x%x", bytes, flags);
  }
  void *ptr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (ptr == MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = ptr;
  return add_host(context, SIM_HOST_ALLOCATED, ptr, bytes, false);
}

CUresult cuMemHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
  SIM_CALL("cuMemHostAlloc", allocate_host(ptr, bytes, flags));
}

// Ends a range of host memory that begins at ptr.
static CUresult end_host(void *ptr, enum sim_range_kind kind, CUresult unknown, size_t *bytes)
{
  CUresult error = sim_capture_unsafe();
  uint64_t base = (uint64_t)(uintptr_t)ptr;
  const struct sim_range *range = range_at(base);
  if (error != CUDA_SUCCESS) {
    return error;
  }
  if (range == NULL || range->kind != kind || range->base != base) {
    return sim_misuse(unknown, "%p is not the beginning of such memory (given back before?)", ptr);
  }
  error = sim_context_drain(range->context);
  sim_quiesce();
  range = range_at(base);
  *bytes = range != NULL ? range->bytes : 0;
  sim_range_remove(base);
  return error;
}

static CUresult free_host(void *ptr)
{
  size_t bytes = 0;
  CUresult error = end_host(ptr, SIM_HOST_ALLOCATED, CUDA_ERROR_INVALID_VALUE, &bytes);
  if (bytes > 0) {
    munmap(ptr, bytes);
  }
  return error;
}

CUresult cuMemFreeHost(void *ptr)
{
  SIM_CALL("cuMemFreeHost", free_host(ptr));
}

// Are all pages mapped?
static bool is_mapped(void *ptr, size_t bytes)
{
  uintptr_t first = (uintptr_t)ptr & ~(uintptr_t)(SIM_PAGE - 1);
  size_t pages = ((uintptr_t)ptr + bytes - first + SIM_PAGE - 1) / SIM_PAGE;
  unsigned char *in = malloc(pages);
  bool mapped = in != NULL && mincore((char *)ptr - ((uintptr_t)ptr - first), pages * SIM_PAGE, in) == 0;
  free(in);
  return mapped;
}

static CUresult register_host(void *ptr, size_t bytes, unsigned flags)
{
  CUresult error;
  struct sim_context *context = current_unless_captured(&error);
  if (context == NULL) {
    return error;
  }
  if (ptr == NULL || bytes == 0 || flags > 15) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "%zu bytes at %p, flags 0x%x", bytes, ptr, flags);
  }
  if (!is_mapped(ptr, bytes)) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "%zu bytes at %p: not all is memory of this process", bytes, ptr);
  }
  return add_host(context, SIM_HOST_REGISTERED, ptr, bytes, (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0);
}

CUresult cuMemHostRegister(void *ptr, size_t bytes, unsigned flags)
{
  SIM_CALL("cuMemHostRegister", register_host(ptr, bytes, flags));
}

CUresult cuMemHostUnregister(void *ptr)
{
  size_t bytes;
  SIM_CALL("cuMemHostUnregister", end_host(ptr, SIM_HOST_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, &bytes));
}

static CUresult device_pointer(CUdeviceptr *device, void *host, unsigned flags)
{
  const struct sim_range *range = range_at((uint64_t)(uintptr_t)host);
  if (flags != 0 || range == NULL || range->device >= 0) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "%p is not pinned host memory", host);
  }
  *device = (CUdeviceptr)(uintptr_t)host;
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *device, void *host, unsigned flags)
{
  SIM_CALL("cuMemHostGetDevicePointer", device_pointer(device, host, flags));
}

// ---- What is known of an address ----

#define PUT(type, what)                \
  do {                                 \
    type put_ = (what);                \
    memcpy(value, &put_, sizeof put_); \
    return true;                       \
  } while (0)

// range: NULL for an address that is unknown.
static bool attribute(void *value, CUpointer_attribute which, const struct sim_range *range, CUdeviceptr ptr)
{
  bool device = range != NULL && range->device >= 0, known = range != NULL;
  struct sim_mapping mapping = {0};
  if (known) {
    mapping = (struct sim_mapping){.base = range->base, .bytes = range->bytes, .id = range->id};
  }
  if (known && range->kind == SIM_MAPPED) {
    sim_mapping_of(range, &mapping);
  }
  switch ((int)which) {
  case CU_POINTER_ATTRIBUTE_CONTEXT: PUT(void *, known && range->context != NULL ? range->context->handle : NULL);
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: PUT(unsigned, !known ? 0 : device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
  case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: PUT(CUdeviceptr, known ? ptr : 0);
  case CU_POINTER_ATTRIBUTE_HOST_POINTER: PUT(CUdeviceptr, known && !device ? ptr : 0);
  case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: PUT(unsigned, 0);
  case CU_POINTER_ATTRIBUTE_BUFFER_ID: PUT(unsigned long long, known ? range->id : 0);
  case CU_POINTER_ATTRIBUTE_IS_MANAGED: PUT(unsigned, 0);
  case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: PUT(int, !known ? -2 : device ? range->device : 0);
  case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: PUT(unsigned, known && range->kind == SIM_DEVICE_MEMORY);
  case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: PUT(CUdeviceptr, mapping.base);
  case CU_POINTER_ATTRIBUTE_RANGE_SIZE: PUT(size_t, mapping.bytes);
  case CU_POINTER_ATTRIBUTE_MAPPED: PUT(unsigned, known);
  case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: PUT(uint64_t, mapping.types);
  case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: PUT(unsigned long long, mapping.id);
  case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: PUT(unsigned, !known ? 0 : range->read_only ? 1 : 3);
  default: return false;
  }
}

static CUresult pointer_attribute(void *value, CUpointer_attribute which, CUdeviceptr ptr)
{
  const struct sim_range *range = range_at(ptr);
  if (range == NULL) {
    return CUDA_ERROR_INVALID_VALUE; // no misuse: this is how one asks
  }
  return attribute(value, which, range, ptr) ? CUDA_SUCCESS
                                             : sim_misuse(CUDA_ERROR_NOT_SUPPORTED, "attribute %d", (int)which);
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute which, CUdeviceptr ptr)
{
  SIM_CALL("cuPointerGetAttribute", pointer_attribute(value, which, ptr));
}

static CUresult pointer_attributes(unsigned count, const CUpointer_attribute *which, void **values, CUdeviceptr ptr)
{
  for (unsigned i = 0; i < count; i++) {
    if (!attribute(values[i], which[i], range_at(ptr), ptr)) {
      return sim_misuse(CUDA_ERROR_NOT_SUPPORTED, "attribute %d", (int)which[i]);
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *which, void **values, CUdeviceptr ptr)
{
  SIM_CALL("cuPointerGetAttributes", pointer_attributes(count, which, values, ptr));
}
