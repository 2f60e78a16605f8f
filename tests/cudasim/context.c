// context.c: devices, primary contexts, each thread's stack of contexts.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sim.h"

enum { STACK = 32 };

static __thread struct {
  void *context[STACK]; // handles
  int depth;
} stack;

struct sim_device *sim_device_of(CUdevice device)
{
  return device >= 0 && device < sim.modes.devices ? &sim.device[device] : NULL;
}

struct sim_context *sim_current(CUresult *error)
{
  void *handle = stack.depth > 0 ? stack.context[stack.depth - 1] : NULL;
  if (handle == NULL) {
    *error = sim_misuse(CUDA_ERROR_INVALID_CONTEXT, "the thread has no current context");
    return NULL;
  }
  struct sim_context *context = sim_object(SIM_CONTEXT, handle);
  *error = context == NULL ? CUDA_ERROR_CONTEXT_IS_DESTROYED : context->failed;
  return *error == CUDA_SUCCESS ? context : NULL;
}

struct sim_device *sim_device_current(void)
{
  void *handle = stack.depth > 0 ? stack.context[stack.depth - 1] : NULL;
  const struct sim_context *context = handle != NULL ? sim_object(SIM_CONTEXT, handle) : NULL;
  return context != NULL ? context->device : NULL;
}

// ---- Devices ----

CUresult cuDeviceGetCount(int *count)
{
  SIM_CALL("cuDeviceGetCount", (*count = sim.modes.devices, CUDA_SUCCESS));
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
  SIM_CALL("cuDeviceGet", sim_device_of(ordinal) == NULL
                              ? sim_misuse(CUDA_ERROR_INVALID_DEVICE, "there is no device %d", ordinal)
                              : (*device = ordinal, CUDA_SUCCESS));
}

int sim_device_seen(int physical)
{
  for (int i = 0; i < sim.modes.devices; i++) {
    if (sim.device[i].physical == physical) {
      return i;
    }
  }
  return -1;
}

// Fills in a text of a device: before, its number from 1 on, after.
static CUresult device_text(CUdevice device, char *out, int size, const char *before, const char *after)
{
  const struct sim_device *d = sim_device_of(device);
  if (d == NULL || out == NULL || size < 1) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "device %d, %d bytes", device, size);
  }
  snprintf(out, (size_t)size, "%s%02x%s", before, (unsigned)d->physical + 1, after);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
  SIM_CALL("cuDeviceGetName", device_text(device, name, size, "Simulated GPU ", ""));
}

CUresult cuDeviceGetPCIBusId(char *id, int size, CUdevice device)
{
  SIM_CALL("cuDeviceGetPCIBusId", device_text(device, id, size, "0000:", ":00.0"));
}

static CUresult by_bus(CUdevice *device, const char *id)
{
  unsigned domain = 0, bus = 0;
  int found = sscanf(id, "%x:%x", &domain, &bus) == 2 && domain == 0 ? sim_device_seen((int)bus - 1) : -1;
  if (found < 0) {
    return sim_misuse(CUDA_ERROR_INVALID_DEVICE, "no device at %s", id);
  }
  *device = found;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id)
{
  SIM_CALL("cuDeviceGetByPCIBusId", by_bus(device, id));
}

static CUresult device_uuid(CUuuid *uuid, CUdevice device)
{
  const struct sim_device *d = sim_device_of(device);
  if (d == NULL) {
    return sim_misuse(CUDA_ERROR_INVALID_DEVICE, "there is no device %d", device);
  }
  memcpy(uuid->bytes, "cudasim device \0", sizeof uuid->bytes);
  uuid->bytes[15] = (char)d->physical;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
  SIM_CALL("cuDeviceGetUuid", device_uuid(uuid, device));
}

static const struct {
  CUdevice_attribute attribute;
  int value;
} attributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 0x7fffffff},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 << 10},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 7},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 1},
};

// What is not known is 0: no such feature.
static CUresult device_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
  if (sim_device_of(device) == NULL || (int)attribute <= 0) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "device %d, attribute %d", device, (int)attribute);
  }
  *value = 0;
  for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
    *value = attributes[i].attribute == attribute ? attributes[i].value : *value;
  }
  if (attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) {
    *value = sim.modes.sms;
  } else if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) {
    *value = sim.device[device].physical + 1;
  }
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
  SIM_CALL("cuDeviceGetAttribute", device_attribute(value, attribute, device));
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
  SIM_CALL("cuDeviceTotalMem", sim_device_of(device) == NULL
                                   ? sim_misuse(CUDA_ERROR_INVALID_DEVICE, "there is no device %d", device)
                                   : (*bytes = sim.modes.memory, CUDA_SUCCESS));
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
  SIM_CALL("cuDeviceCanAccessPeer", sim_device_of(device) == NULL || sim_device_of(peer) == NULL
                                        ? sim_misuse(CUDA_ERROR_INVALID_DEVICE, "devices %d and %d", device, peer)
                                        : (*can = sim.modes.peers && device != peer, CUDA_SUCCESS));
}

// ---- Contexts ----

static struct sim_context *new_context(struct sim_device *device)
{
  struct sim_context *context = calloc(1, sizeof *context);
  if (context == NULL) {
    return NULL;
  }
  context->device = device;
  context->id = ++sim.ids;
  context->handle = sim_handle_new(SIM_CONTEXT, context);
  context->legacy = sim_stream_new(context, CU_STREAM_DEFAULT, 0);
  if (context->handle == NULL || context->legacy == NULL) {
    return NULL;
  }
  context->legacy->legacy = true;
  return context;
}

static CUresult retain(CUcontext *out, CUdevice ordinal)
{
  struct sim_device *device = sim_device_of(ordinal);
  if (device == NULL) {
    return sim_misuse(CUDA_ERROR_INVALID_DEVICE, "there is no device %d", ordinal);
  }
  if (device->primary == NULL) {
    device->primary = new_context(device);
    if (device->primary != NULL && device->reset != NULL) { // it comes back under its old handle
      sim_handle_end(device->primary->handle);
      device->primary->handle = device->reset;
      device->primary->retained = device->retained;
      sim_handle_renew(device->reset, device->primary);
      device->reset = NULL;
    }
  }
  if (device->primary == NULL) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  device->primary->retained++;
  *out = device->primary->handle;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
  SIM_CALL("cuDevicePrimaryCtxRetain", retain(context, device));
}

static void free_memory_of(const struct sim_context *context)
{
  struct sim_ranges *all = sim_ranges_take();
  for (size_t i = 0; i < all->count; i++) {
    const struct sim_range *range = &all->range[i];
    if (range->context == context && range->kind == SIM_DEVICE_MEMORY) {
      sim_range_remove(range->base);
      sim_heap_free(range);
    }
  }
  sim_ranges_drop(all);
}

// What it has pinned is not pinned any more.
static void free_host_memory_of(const struct sim_context *context)
{
  struct sim_ranges *all = sim_ranges_take();
  for (size_t i = 0; i < all->count; i++) {
    const struct sim_range *range = &all->range[i];
    const bool ours = range->kind == SIM_HOST_ALLOCATED;
    if (range->context == context && (ours || range->kind == SIM_HOST_REGISTERED)) {
      sim_range_remove(range->base);
      if (ours) {
        munmap((void *)(uintptr_t)range->base, range->bytes); // NOLINT(performance-no-int-to-ptr): as it was made
      }
    }
  }
  sim_ranges_drop(all);
}

static void end_streams(const struct sim_context *context)
{
  for (struct sim_stream *stream = context->streams; stream != NULL; stream = stream->next) {
    stream->ended = true;
    sim_handle_end(stream->handle);
  }
}

// Its streams end with it, and its memory; modules and events are told by their context.
static CUresult end_context(struct sim_context *context)
{
  CUresult error = context->failed == CUDA_SUCCESS ? sim_context_drain(context) : CUDA_SUCCESS;
  sim_quiesce();
  end_streams(context);
  free_memory_of(context);
  context->device->primary = NULL;
  context->failed = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  sim_handle_end(context->handle);
  return error;
}

static bool has_no_work(void *arg)
{
  bool none = true;
  for (const struct sim_stream *s = ((struct sim_context *)arg)->streams; s != NULL; s = s->next) {
    none &= s->first == NULL;
  }
  return none;
}

// All that the context had ends at once, what runs as well. Its handle stays, for it is retained: calls in it fail
// until somebody retains it again.
static CUresult reset(CUdevice ordinal)
{
  struct sim_device *device = sim_device_of(ordinal);
  struct sim_context *context = device != NULL ? device->primary : NULL;
  if (context == NULL) {
    return device != NULL ? CUDA_SUCCESS : sim_misuse(CUDA_ERROR_INVALID_DEVICE, "there is no device %d", ordinal);
  }
  context->failed = CUDA_ERROR_CONTEXT_IS_DESTROYED; // the scheduler drops its work
  sim_sched_wake();
  sim_await(has_no_work, context, "waits for the end of what ran when the device was reset");
  sim_quiesce();
  end_streams(context);
  free_memory_of(context);
  free_host_memory_of(context);
  device->reset = context->handle;
  device->retained = context->retained;
  device->primary = NULL;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
  SIM_CALL("cuDevicePrimaryCtxReset", reset(device));
}

static CUresult release(CUdevice ordinal)
{
  struct sim_device *device = sim_device_of(ordinal);
  if (device == NULL || device->primary == NULL) {
    return sim_misuse(CUDA_ERROR_INVALID_CONTEXT, "device %d has no primary context", ordinal);
  }
  return --device->primary->retained == 0 ? end_context(device->primary) : CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
  SIM_CALL("cuDevicePrimaryCtxRelease", release(device));
}

static CUresult primary_state(CUdevice ordinal, unsigned *flags, int *active)
{
  const struct sim_device *device = sim_device_of(ordinal);
  if (device == NULL) {
    return sim_misuse(CUDA_ERROR_INVALID_DEVICE, "there is no device %d", ordinal);
  }
  *active = device->primary != NULL;
  *flags = device->primary != NULL ? device->primary->flags : 0;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
  SIM_CALL("cuDevicePrimaryCtxGetState", primary_state(device, flags, active));
}

static CUresult set_current(void *handle)
{
  if (handle != NULL && sim_object(SIM_CONTEXT, handle) == NULL) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  stack.depth = stack.depth == 0 ? 1 : stack.depth;
  stack.context[stack.depth - 1] = handle;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
  SIM_CALL("cuCtxSetCurrent", set_current(context));
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
  SIM_CALL("cuCtxGetCurrent", (*context = stack.depth > 0 ? stack.context[stack.depth - 1] : NULL, CUDA_SUCCESS));
}

static CUresult push(void *handle)
{
  if (handle == NULL || stack.depth == STACK) {
    return sim_misuse(CUDA_ERROR_INVALID_CONTEXT, "context %p pushed, %d are there", handle, stack.depth);
  }
  if (sim_object(SIM_CONTEXT, handle) == NULL) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  stack.context[stack.depth++] = handle;
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context)
{
  SIM_CALL("cuCtxPushCurrent", push(context));
}

static CUresult pop(CUcontext *context)
{
  if (stack.depth == 0) {
    return sim_misuse(CUDA_ERROR_INVALID_CONTEXT, "popped more contexts than were pushed");
  }
  void *handle = stack.context[--stack.depth];
  if (context != NULL) {
    *context = handle;
  }
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
  SIM_CALL("cuCtxPopCurrent", pop(context));
}

static CUresult current_device(CUdevice *device)
{
  CUresult error;
  const struct sim_context *context = sim_current(&error);
  if (context != NULL) {
    *device = context->device->ordinal;
  }
  return error;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
  SIM_CALL("cuCtxGetDevice", current_device(device));
}

static CUresult context_id(void *handle, unsigned long long *id)
{
  CUresult error = CUDA_SUCCESS;
  const struct sim_context *context = handle != NULL ? sim_object(SIM_CONTEXT, handle) : sim_current(&error);
  if (context == NULL || context->failed == CUDA_ERROR_CONTEXT_IS_DESTROYED) {
    return error != CUDA_SUCCESS ? error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  *id = context->id;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext context, unsigned long long *id)
{
  SIM_CALL("cuCtxGetId", context_id(context, id));
}

static CUresult synchronize(void)
{
  CUresult error;
  struct sim_context *context = sim_current(&error);
  if (context != NULL) {
    error = sim_capture_unsafe();
  }
  for (struct sim_stream *stream = context != NULL ? context->streams : NULL; stream != NULL && error == CUDA_SUCCESS;
       stream = stream->next) {
    error = sim_capture_forbid(stream);
  }
  return error == CUDA_SUCCESS ? sim_context_drain(context) : error;
}

CUresult cuCtxSynchronize(void)
{
  SIM_CALL("cuCtxSynchronize", synchronize());
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
  SIM_CALL("cuCtxGetStreamPriorityRange", (*least = 0, *greatest = -5, CUDA_SUCCESS));
}

static CUresult change_peer(void *handle, bool enable)
{
  CUresult error;
  struct sim_context *context = sim_current(&error);
  const struct sim_context *peer = context != NULL ? sim_object(SIM_CONTEXT, handle) : NULL;
  if (peer == NULL) {
    return context == NULL ? error : CUDA_ERROR_INVALID_CONTEXT;
  }
  int device = peer->device->ordinal;
  if (peer == context || !sim.modes.peers) {
    return sim_misuse(peer == context ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
                      "device %d cannot reach device %d", context->device->ordinal, device);
  }
  if ((context->peers >> device & 1) == (enable ? 1 : 0)) {
    return enable ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  }
  context->peers ^= (uint64_t)1 << device;
  return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
  SIM_CALL("cuCtxEnablePeerAccess", flags != 0 ? CUDA_ERROR_INVALID_VALUE : change_peer(peer, true));
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
  SIM_CALL("cuCtxDisablePeerAccess", change_peer(peer, false));
}
