// ipc.c: memory of another process's device. A handle names a part of the heap's file of its process.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim.h"

struct memory_handle {
  uint64_t magic;
  int32_t pid, fd, device;
  uint32_t serial;
  uint64_t offset, bytes, file;
};
static const uint64_t MEMORY_MAGIC = 0x63756d656d6f7901;
_Static_assert(sizeof(struct memory_handle) <= CU_IPC_HANDLE_SIZE, "fits into a handle");

// What this process has open; the same memory only once in a context.
struct import {
  struct import *next;
  struct memory_handle handle;
  struct sim_context *context;
  struct sim_heap_entry *table;
  void *memory;
  size_t mapped;
  int opens;
};
static struct import *imports;

static CUresult export_memory(CUipcMemHandle *out, CUdeviceptr ptr)
{
  const struct sim_range *range = sim_range_find(sim.ranges, ptr);
  if (range == NULL || range->kind != SIM_DEVICE_MEMORY) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "0x%llx is not of cuMemAlloc", ptr);
  }
  struct memory_handle made = {.magic = MEMORY_MAGIC,
                               .pid = sim.pid,
                               .fd = sim_heap_fd(range->device),
                               .device = sim.device[range->device].physical,
                               .serial = range->serial,
                               .offset = range->offset,
                               .bytes = range->bytes,
                               .file = range->file};
  memset(out, 0, sizeof *out);
  memcpy(out, &made, sizeof made);
  return CUDA_SUCCESS;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr ptr)
{
  SIM_CALL("cuIpcGetMemHandle", export_memory(handle, ptr));
}

static struct import *import_of(const struct memory_handle *handle, const struct sim_context *context)
{
  for (struct import *import = imports; import != NULL; import = import->next) {
    if (import->context == context && memcmp(&import->handle, handle, sizeof *handle) == 0) {
      return import;
    }
  }
  return NULL;
}

static bool map_import(struct import *import, int fd)
{
  const struct memory_handle *handle = &import->handle;
  import->mapped = (handle->bytes + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE;
  void *table = mmap(NULL, SIM_HEAP_TABLE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  void *memory = mmap(NULL, import->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)handle->offset);
  import->table = table == MAP_FAILED ? NULL : table;
  import->memory = memory == MAP_FAILED ? NULL : memory;
  return import->table != NULL && import->memory != NULL;
}

static void free_import(struct import *import)
{
  if (import->table != NULL) {
    munmap(import->table, SIM_HEAP_TABLE);
  }
  if (import->memory != NULL) {
    munmap(import->memory, import->mapped);
  }
  free(import);
}

static CUresult add_import(struct import *import, CUdeviceptr *out)
{
  const struct memory_handle *handle = &import->handle;
  struct sim_heap_entry *entry = &import->table[(handle->offset - SIM_HEAP_TABLE) / SIM_GRANULE];
  struct sim_range other;
  if (atomic_load(&entry->serial) != handle->serial) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "process %d has freed the memory of this handle", handle->pid);
  }
  struct sim_range range = {.base = (uint64_t)(uintptr_t)import->memory,
                            .bytes = handle->bytes,
                            .kind = SIM_IMPORTED,
                            .device = sim_device_seen(handle->device),
                            .context = import->context,
                            .id = ++sim.ids,
                            .file = handle->file,
                            .offset = handle->offset,
                            .owner = import,
                            .entry = entry,
                            .serial = handle->serial};
  if (!sim_range_add(&range, &other)) {
    return CUDA_ERROR_UNKNOWN;
  }
  atomic_fetch_add(&entry->opens, 1);
  import->opens = 1;
  import->next = imports;
  imports = import;
  *out = range.base;
  return CUDA_SUCCESS;
}

// A process that shares the devices, and its file. The number may be another's meanwhile: the file tells.
static CUresult open_new(CUdeviceptr *out, const struct memory_handle *handle, struct sim_context *context)
{
  struct import *import = calloc(1, sizeof *import);
  int fd = sim_file_of(handle->pid, handle->fd, handle->file);
  bool mapped = false;
  if (import != NULL && fd >= 0) {
    import->handle = *handle;
    import->context = context;
    mapped = map_import(import, fd);
  }
  if (fd >= 0) {
    close(fd);
  }
  CUresult error = mapped
                       ? add_import(import, out)
                       : sim_misuse(CUDA_ERROR_MAP_FAILED, "process %d has ended, or may not be opened", handle->pid);
  if (error != CUDA_SUCCESS && import != NULL) {
    free_import(import);
  }
  return error;
}

static CUresult open_memory(CUdeviceptr *out, const CUipcMemHandle *given, unsigned flags)
{
  CUresult error;
  struct memory_handle handle;
  struct sim_context *context = sim_current(&error);
  memcpy(&handle, given, sizeof handle);
  error = context == NULL ? error : sim_capture_unsafe();
  if (error != CUDA_SUCCESS) {
    return error;
  }
  int from = sim_device_seen(handle.device);
  if (handle.magic != MEMORY_MAGIC || flags > 1 || from < 0) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "no handle of memory of a device that is seen here, or flags 0x%x",
                      flags);
  }
  if (handle.pid == sim.pid) {
    return sim_misuse(CUDA_ERROR_INVALID_CONTEXT, "the handle is of memory of this very process");
  }
  int device = context->device->ordinal;
  if (from != device && (flags == 0 || !sim.modes.peers)) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "memory of device %d in a context of device %d, which cannot reach it",
                      from, device);
  }
  if (from != device) {
    context->peers |= (uint64_t)1 << from; // flag 1: as far as needed
  }
  struct import *import = import_of(&handle, context);
  if (import == NULL) {
    return open_new(out, &handle, context);
  }
  import->opens++;
  *out = (CUdeviceptr)(uintptr_t)import->memory;
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned flags)
{
  SIM_CALL("cuIpcOpenMemHandle", open_memory(ptr, &handle, flags));
}

static CUresult close_memory(CUdeviceptr ptr)
{
  CUresult error = sim_capture_unsafe();
  struct import **at = &imports;
  while (*at != NULL && (CUdeviceptr)(uintptr_t)(*at)->memory != ptr) {
    at = &(*at)->next;
  }
  struct import *import = *at;
  if (error != CUDA_SUCCESS || import == NULL) {
    return error != CUDA_SUCCESS ? error
                                 : sim_misuse(CUDA_ERROR_INVALID_VALUE, "0x%llx is not open (closed before?)", ptr);
  }
  if (--import->opens > 0) {
    return CUDA_SUCCESS;
  }
  *at = import->next;
  error = sim_context_drain(import->context);
  sim_quiesce();
  sim_range_remove(ptr);
  atomic_fetch_sub(&import->table[(import->handle.offset - SIM_HEAP_TABLE) / SIM_GRANULE].opens, 1);
  free_import(import);
  return error;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr ptr)
{
  SIM_CALL("cuIpcCloseMemHandle", close_memory(ptr));
}
