// vmm.c: allocations without addresses, and addresses without memory (cuMemCreate, cuMemAddressReserve, cuMemMap).
//
// Unmapping waits for nobody, as the driver: work that still uses the addresses is a fault.
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim.h"

struct block {
  struct block *next;
  CUmemGenericAllocationHandle handle;
  int fd, device;
  size_t bytes;
  unsigned types; // that it can be exported as
  unsigned long long id;
  bool imported;
  int references, maps;
};

struct reservation {
  struct reservation *next;
  uint64_t base;
  size_t bytes;
};

static struct block *blocks;
static struct reservation *reservations;
static CUmemGenericAllocationHandle handles = 0x1000;

static struct block *block_of(CUmemGenericAllocationHandle handle)
{
  for (struct block *block = blocks; block != NULL; block = block->next) {
    if (block->handle == handle && block->references > 0) {
      return block;
    }
  }
  sim_misuse(CUDA_ERROR_INVALID_VALUE, "0x%llx is no allocation (released?)", handle);
  return NULL;
}

static void end_block(struct block *block)
{
  struct block **at = &blocks;
  if (block->references > 0 || block->maps > 0) {
    return;
  }
  while (*at != block) {
    at = &(*at)->next;
  }
  *at = block->next;
  if (!block->imported) {
    box_used(block->device, -(int64_t)block->bytes);
  }
  close(block->fd);
  free(block);
}

// Takes the descriptor.
static CUresult add_block(CUmemGenericAllocationHandle *out, const struct block *given)
{
  struct block *block = given->fd >= 0 ? calloc(1, sizeof *block) : NULL;
  if (block == NULL) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *block = *given;
  block->next = blocks;
  block->handle = ++handles;
  block->id = ++sim.ids;
  block->references = 1;
  blocks = block;
  if (!block->imported) {
    box_used(block->device, (int64_t)block->bytes);
  }
  *out = block->handle;
  return CUDA_SUCCESS;
}

static bool is_whole(size_t bytes)
{
  return bytes > 0 && bytes % SIM_VMM_GRANULE == 0;
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
  if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      sim_device_of(prop->location.id) == NULL ||
      (prop->requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "properties: type %d, location %d of type %d, handles %u",
                      (int)prop->type, prop->location.id, (int)prop->location.type,
                      (unsigned)prop->requestedHandleTypes);
  }
  return CUDA_SUCCESS;
}

static CUresult create_block(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *prop)
{
  char name[64];
  CUresult error = check_prop(prop);
  if (error != CUDA_SUCCESS || !is_whole(bytes)) {
    return error != CUDA_SUCCESS ? error : sim_misuse(CUDA_ERROR_INVALID_VALUE, "%zu bytes: not whole granules", bytes);
  }
  int device = prop->location.id;
  if (box_used_by_all(device) + bytes > sim.modes.memory) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  snprintf(name, sizeof name, "cudasim-block-%d", sim.device[device].physical);
  int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd >= 0 && ftruncate(fd, (off_t)bytes) != 0) {
    close(fd);
    fd = -1;
  }
  return add_block(
      out, &(struct block){.fd = fd, .device = device, .bytes = bytes, .types = (unsigned)prop->requestedHandleTypes});
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
                     unsigned long long flags)
{
  SIM_CALL("cuMemCreate", flags != 0 ? CUDA_ERROR_INVALID_VALUE : create_block(handle, bytes, prop));
}

static CUresult release_block(CUmemGenericAllocationHandle handle)
{
  struct block *block = block_of(handle);
  if (block == NULL) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  block->references--;
  end_block(block);
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
  SIM_CALL("cuMemRelease", release_block(handle));
}

static CUresult retain_block(CUmemGenericAllocationHandle *handle, const void *ptr)
{
  const struct sim_range *range = sim_range_find(sim.ranges, (uint64_t)(uintptr_t)ptr);
  if (range == NULL || range->kind != SIM_MAPPED) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "%p is not of cuMemMap", ptr);
  }
  struct block *block = range->owner;
  block->references++;
  *handle = block->handle;
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *ptr)
{
  SIM_CALL("cuMemRetainAllocationHandle", retain_block(handle, ptr));
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
  (void)option;
  SIM_CALL("cuMemGetAllocationGranularity", (*bytes = SIM_VMM_GRANULE, check_prop(prop)));
}

static CUresult properties(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
  const struct block *block = block_of(handle);
  if (block == NULL) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *prop = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = (CUmemAllocationHandleType)block->types,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, block->device}};
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
  SIM_CALL("cuMemGetAllocationPropertiesFromHandle", properties(prop, handle));
}

// ---- Addresses ----

static CUresult reserve(CUdeviceptr *out, size_t bytes, size_t alignment)
{
  struct reservation *reservation = calloc(1, sizeof *reservation);
  size_t align = alignment > SIM_VMM_GRANULE ? alignment : SIM_VMM_GRANULE;
  if (!is_whole(bytes) || (align & (align - 1)) != 0) {
    free(reservation);
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "%zu bytes, alignment %zu", bytes, alignment);
  }
  void *area = mmap(NULL, bytes + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (area == MAP_FAILED || reservation == NULL) {
    free(reservation);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  uint64_t at = (uint64_t)(uintptr_t)area, base = (at + align - 1) / align * align;
  if (base > at) {
    munmap(area, base - at);
  }
  munmap((char *)area + (base - at) + bytes, align - (base - at));
  *reservation = (struct reservation){reservations, base, bytes};
  reservations = reservation;
  *out = base;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t bytes, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags)
{
  (void)wanted; // only a wish
  SIM_CALL("cuMemAddressReserve", flags != 0 ? CUDA_ERROR_INVALID_VALUE : reserve(ptr, bytes, alignment));
}

// Is something mapped in the area?
static bool any_mapped(uint64_t base, size_t bytes)
{
  for (size_t i = 0; sim.ranges != NULL && i < sim.ranges->count; i++) {
    const struct sim_range *range = &sim.ranges->range[i];
    if (range->base < base + bytes && base < range->base + range->bytes) {
      return true;
    }
  }
  return false;
}

static CUresult free_addresses(CUdeviceptr ptr, size_t bytes)
{
  struct reservation **at = &reservations;
  while (*at != NULL && ((*at)->base != ptr || (*at)->bytes != bytes)) {
    at = &(*at)->next;
  }
  struct reservation *reservation = *at;
  if (reservation == NULL || any_mapped(ptr, bytes)) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "%zu bytes at 0x%llx are %s", bytes, ptr,
                      reservation == NULL ? "no reservation" : "still mapped");
  }
  *at = reservation->next;
  munmap((void *)(uintptr_t)ptr, bytes); // NOLINT(performance-no-int-to-ptr)
  free(reservation);
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t bytes)
{
  SIM_CALL("cuMemAddressFree", free_addresses(ptr, bytes));
}

static bool is_reserved(uint64_t base, size_t bytes)
{
  for (const struct reservation *r = reservations; r != NULL; r = r->next) {
    if (base >= r->base && bytes <= r->base + r->bytes - base && base < r->base + r->bytes) {
      return true;
    }
  }
  return false;
}

void sim_mapping_of(const struct sim_range *range, struct sim_mapping *out)
{
  const struct block *block = range->owner;
  const struct reservation *r = reservations;
  while (range->base - r->base >= r->bytes) {
    r = r->next;
  }
  *out = (struct sim_mapping){.base = r->base, .bytes = r->bytes, .types = block->types, .id = block->id};
}

static CUresult map_block(CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle)
{
  struct block *block = block_of(handle);
  struct sim_range other;
  struct stat st;
  if (block == NULL) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!is_whole(bytes) || ptr % SIM_VMM_GRANULE != 0 || offset % SIM_VMM_GRANULE != 0 ||
      bytes > block->bytes - offset || offset >= block->bytes || !is_reserved(ptr, bytes) || any_mapped(ptr, bytes)) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE,
                      "%zu bytes at 0x%llx, offset %zu of %zu: not whole granules, not reserved, or mapped", bytes, ptr,
                      offset, block->bytes);
  }
  void *at = (void *)(uintptr_t)ptr; // NOLINT(performance-no-int-to-ptr)
  if (fstat(block->fd, &st) != 0 ||
      mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, block->fd, (off_t)offset) == MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  struct sim_range range = {.base = ptr,
                            .bytes = bytes,
                            .kind = SIM_MAPPED,
                            .device = block->device,
                            .id = ++sim.ids,
                            .file = st.st_ino,
                            .offset = offset,
                            .owner = block};
  block->maps++;
  return sim_range_add(&range, &other) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
  SIM_CALL("cuMemMap", flags != 0 ? CUDA_ERROR_INVALID_VALUE : map_block(ptr, bytes, offset, handle));
}

// Whole mappings, one or several.
static CUresult unmap(CUdeviceptr ptr, size_t bytes)
{
  size_t found = 0;
  sim_quiesce();
  struct sim_ranges *all = sim_ranges_take();
  for (size_t i = 0; i < all->count; i++) {
    const struct sim_range *range = &all->range[i];
    found +=
        range->kind == SIM_MAPPED && range->base >= ptr && range->base + range->bytes <= ptr + bytes ? range->bytes : 0;
  }
  for (size_t i = 0; i < all->count && found == bytes; i++) {
    const struct sim_range *range = &all->range[i];
    if (range->kind == SIM_MAPPED && range->base >= ptr && range->base + range->bytes <= ptr + bytes) {
      struct block *block = range->owner;
      sim_range_remove(range->base);
      block->maps--;
      end_block(block);
    }
  }
  sim_ranges_drop(all);
  if (found != bytes || bytes == 0) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "%zu bytes at 0x%llx are not whole mappings", bytes, ptr);
  }
  void *at = (void *)(uintptr_t)ptr; // NOLINT(performance-no-int-to-ptr)
  mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t bytes)
{
  SIM_CALL("cuMemUnmap", unmap(ptr, bytes));
}

static CUresult set_access(CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    int device = access[i].location.id;
    if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || sim_device_of(device) == NULL) {
      return sim_misuse(CUDA_ERROR_INVALID_VALUE, "location %d of type %d", device, (int)access[i].location.type);
    }
    const struct sim_range *range = sim_range_find(sim.ranges, ptr);
    if (range != NULL && range->device != device && !sim.modes.peers) {
      return sim_misuse(CUDA_ERROR_INVALID_DEVICE, "memory of device %d for device %d, which cannot reach it",
                        range->device, device);
    }
    if (!sim_range_access(ptr, bytes, (uint64_t)1 << device, access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) {
      return sim_misuse(CUDA_ERROR_INVALID_VALUE, "%zu bytes at 0x%llx are not all mapped", bytes, ptr);
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
  SIM_CALL("cuMemSetAccess", set_access(ptr, bytes, access, count));
}

// ---- Other processes ----

static CUresult export_block(int *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type)
{
  const struct block *block = block_of(handle);
  if (block == NULL || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return block == NULL ? CUDA_ERROR_INVALID_VALUE
                         : sim_misuse(CUDA_ERROR_NOT_SUPPORTED, "handles of type %d", (int)type);
  }
  if ((block->types & (unsigned)type) == 0) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "0x%llx was made without handles of type %d", handle, (int)type);
  }
  *out = fcntl(block->fd, F_DUPFD_CLOEXEC, 0);
  return *out >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
  SIM_CALL("cuMemExportToShareableHandle",
           flags != 0 ? CUDA_ERROR_INVALID_VALUE : export_block(shareable, handle, type));
}

static CUresult import_block(CUmemGenericAllocationHandle *out, void *shareable, CUmemAllocationHandleType type)
{
  char path[64], name[128] = "";
  struct stat st;
  int fd = (int)(intptr_t)shareable, device = -1;
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(path, name, sizeof name - 1);
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || n < 0 ||
      sscanf(name, "/memfd:cudasim-block-%d", &device) != 1 || sim_device_seen(device) < 0 || fstat(fd, &st) != 0) {
    return sim_misuse(CUDA_ERROR_INVALID_VALUE, "descriptor %d is not that of an allocation", fd);
  }
  return add_block(out, &(struct block){.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0),
                                        .device = sim_device_seen(device),
                                        .bytes = (size_t)st.st_size,
                                        .types = (unsigned)type,
                                        .imported = true});
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                        CUmemAllocationHandleType type)
{
  SIM_CALL("cuMemImportFromShareableHandle", import_block(handle, shareable, type));
}
