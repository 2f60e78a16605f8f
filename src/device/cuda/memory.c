// memory.c: see memory.h.
#include "device/cuda/memory.h"

#include <pthread.h>

#include "os/proc.h"

enum { PIECES = 512 }; // of a block, at most

// An allocation of cuMemCreate, as it is mapped.
typedef struct gpu_piece {
  size_t bytes;
  unsigned long long id; // the driver's number of the allocation
} gpu_piece;

// An allocation that has got a number, or is ours; or several of cuMemCreate behind each other that have one number.
typedef struct gpu_block {
  struct gpu_block *next;
  uintptr_t base;
  size_t bytes;
  unsigned long long id; // the driver's number of it; 0: it has pieces
  uint32_t handle;       // 0: no peer has been told of it
  int device;
  uint32_t epoch;
  bool ours;        // of tt_gpu_alloc
  bool opens;       // a handle opens it
  bool descriptors; // a descriptor does
  gpu_piece *pieces;
  int npieces, room;
} gpu_block;

// Addresses of this process for pieces of a peer, or for memory that lasts.
typedef struct gpu_mapping {
  struct gpu_mapping *next;
  uintptr_t base;
  size_t bytes, mapped;
} gpu_mapping;

static struct {
  pthread_mutex_t lock;
  gpu_block *first;
  uint32_t handles;
  gpu_mapping *mappings;
} blocks = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void block_free(gpu_block *b)
{
  tt_free(b->pieces);
  tt_free(b);
}

// What the driver knows of the allocation that holds the byte. One of cuMemCreate: of the addresses that were reserved
// for it and others.
static bool block_query(const void *ptr, gpu_block *out)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  CUdeviceptr base = 0;
  unsigned kind = 0, opens = 0;
  size_t bytes = 0;
  int device = -1;
  unsigned long long id = 0;
  uint64_t types = 0;
  CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,         CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
      CU_POINTER_ATTRIBUTE_RANGE_SIZE,          CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
      CU_POINTER_ATTRIBUTE_BUFFER_ID,           CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
      CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES};
  void *values[] = {&kind, &base, &bytes, &device, &id, &opens, &types};
  if (cu == NULL ||
      cu->PointerGetAttributes(TT_COUNT(attributes), attributes, values, (CUdeviceptr)(uintptr_t)ptr) != CUDA_SUCCESS ||
      kind != CU_MEMORYTYPE_DEVICE || base == 0) {
    return false;
  }
  *out = (gpu_block){.base = (uintptr_t)base,
                     .bytes = bytes,
                     .id = id,
                     .device = device,
                     .opens = opens != 0,
                     .descriptors = opens == 0 && (types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0};
  return true;
}

// The allocation of cuMemCreate that is mapped at the address. The device's context is current.
static bool piece_query(uintptr_t at, uintptr_t *base, gpu_piece *out)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  CUdeviceptr from = 0;
  gpu_piece piece = {0};
  if (cu->MemGetAddressRange(&from, &piece.bytes, at) != CUDA_SUCCESS ||
      cu->PointerGetAttribute(&piece.id, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, at) != CUDA_SUCCESS || piece.id == 0) {
    return false;
  }
  *base = (uintptr_t)from;
  *out = piece;
  return true;
}

// Is it mapped there still? The device's context is current.
static bool piece_is_there(uintptr_t at, const gpu_piece *piece)
{
  uintptr_t base;
  gpu_piece now;
  return piece_query(at, &base, &now) && base == at && now.bytes == piece->bytes && now.id == piece->id;
}

// Is the block what lies there now?
static bool block_is_there(const gpu_block *b)
{
  gpu_block now;
  uintptr_t at = b->base;
  int n = 0;
  if (b->npieces == 0) {
    return block_query((void *)b->base, &now) && now.base == b->base && now.id == b->id;
  }
  if (tt_gpu_enter(b->device) != ncclSuccess) {
    return false;
  }
  for (; n < b->npieces && piece_is_there(at, &b->pieces[n]); n++) {
    at += b->pieces[n].bytes;
  }
  tt_gpu_leave();
  return n == b->npieces;
}

// The pieces that hold [ptr, ptr + size), all on one device, whose context is current. False: there is something else,
// or no memory for them; out->pieces is the caller's in any case.
static bool pieces_find(int device, const void *ptr, size_t size, gpu_block *out)
{
  const uintptr_t end = (uintptr_t)ptr + size;
  uintptr_t at = (uintptr_t)ptr, base;
  gpu_block seen;
  *out = (gpu_block){.device = device};
  do {
    if (out->npieces == PIECES || !block_query((void *)at, &seen) || !seen.descriptors || seen.device != device ||
        !tt_grow(&out->pieces, out->npieces, 1, &out->room, sizeof *out->pieces) ||
        !piece_query(at, &base, &out->pieces[out->npieces])) {
      return false;
    }
    out->base = out->npieces == 0 ? base : out->base;
    out->bytes += out->pieces[out->npieces++].bytes;
    at = out->base + out->bytes;
  } while (at < end);
  return true;
}

// Takes it off the list. The lock is held.
static gpu_block *block_take(gpu_block **at)
{
  gpu_block *b = *at;
  *at = b->next;
  return b;
}

// Puts it onto the list. The lock is held.
static void block_put(gpu_block *b)
{
  b->next = blocks.first;
  blocks.first = b;
}

// The block of that allocation; drops those that lay where it is now. Blocks of pieces may have some in common. NULL:
// there is none. The lock is held.
static gpu_block *gpu_block_of(const gpu_block *now)
{
  gpu_block *found = NULL;
  for (gpu_block **at = &blocks.first; *at != NULL;) {
    gpu_block *b = *at;
    if (b->base == now->base && b->id == now->id && now->npieces == 0) {
      found = b;
    } else if (b->base < now->base + now->bytes && now->base < b->base + b->bytes &&
               (b->npieces == 0 || now->npieces == 0)) {
      block_free(block_take(at));
      continue;
    }
    at = &b->next;
  }
  return found;
}

// The same, made if it was not known, with the pieces. NULL: no memory. The lock is held.
static gpu_block *block_make(const gpu_block *now)
{
  gpu_block *b = gpu_block_of(now);
  if (b == NULL) {
    b = tt_calloc(1, sizeof *b);
    if (b != NULL) {
      *b = *now;
      block_put(b);
    }
  }
  return b;
}

// Remembers an allocation of tt_gpu_alloc. False: no memory.
static bool block_remember(const void *ptr)
{
  gpu_block now;
  pthread_mutex_lock(&blocks.lock);
  gpu_block *b = block_query(ptr, &now) ? block_make(&now) : NULL;
  if (b != NULL) {
    b->ours = true;
    b->epoch = tt_gpu_epoch(b->device);
  }
  pthread_mutex_unlock(&blocks.lock);
  return b != NULL;
}

ncclResult_t tt_gpu_alloc(size_t size, void **ptr)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  const int device = tt_gpu_current();
  CUdeviceptr at = 0;
  TT_TRY(tt_gpu_enter(device));
  CUresult error = cu->MemAlloc(&at, size);
  void *memory = (void *)(uintptr_t)at;
  const bool known = error == CUDA_SUCCESS && block_remember(memory);
  if (error == CUDA_SUCCESS && !known) {
    cu->MemFree(at);
  }
  tt_gpu_leave();
  TT_CUDA(cu, error, "GPU %d: cannot allocate %zu bytes", device, size);
  if (!known) {
    return tt_fail(ncclSystemError, "GPU %d: no memory to remember an allocation", device);
  }
  *ptr = memory;
  return ncclSuccess;
}

// The place of our block that begins there. NULL: none does. The lock is held.
static gpu_block **block_ours(const void *ptr)
{
  gpu_block **at = &blocks.first;
  while (*at != NULL && !((*at)->ours && (*at)->base == (uintptr_t)ptr)) {
    at = &(*at)->next;
  }
  return *at != NULL ? at : NULL;
}

static ncclResult_t gpu_free(int device, uint32_t epoch, void *ptr)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  TT_TRY(tt_gpu_reenter(device, epoch));
  CUresult error = cu->MemFree((CUdeviceptr)(uintptr_t)ptr);
  tt_gpu_leave();
  TT_CUDA(cu, error, "GPU %d: cannot free %p", device, ptr);
  return ncclSuccess;
}

ncclResult_t tt_gpu_free(void *ptr)
{
  pthread_mutex_lock(&blocks.lock);
  gpu_block **at = block_ours(ptr);
  gpu_block *b = at != NULL ? block_take(at) : NULL; // a second free of it finds nothing
  pthread_mutex_unlock(&blocks.lock);
  if (b == NULL) {
    return tt_fail(ncclInvalidArgument, "%p is not the beginning of an allocation of ours", ptr);
  }
  ncclResult_t res = gpu_free(b->device, b->epoch, ptr);
  pthread_mutex_lock(&blocks.lock);
  if (res == ncclSuccess || b->epoch != tt_gpu_epoch(b->device)) {
    block_free(b);
  } else {
    block_put(b); // it is still there, and can be freed later
  }
  pthread_mutex_unlock(&blocks.lock);
  return res;
}

bool tt_gpu_allocation(const void *ptr, void **base, size_t *bytes, int *device)
{
  gpu_block now;
  if (!block_query(ptr, &now)) {
    return false;
  }
  *base = (void *)now.base;
  *bytes = now.bytes;
  *device = now.device;
  return true;
}

static bool block_holds(const gpu_block *b, const void *ptr, size_t size)
{
  const size_t offset = (uintptr_t)ptr - b->base;
  return offset <= b->bytes && size <= b->bytes - offset;
}

bool tt_gpu_range(const void *ptr, size_t size, void **base, size_t *bytes)
{
  bool found = false;
  pthread_mutex_lock(&blocks.lock);
  for (const gpu_block *b = blocks.first; b != NULL && !found; b = b->next) {
    found = b->ours && block_holds(b, ptr, size);
    if (found) {
      *base = (void *)b->base;
      *bytes = b->bytes;
    }
  }
  pthread_mutex_unlock(&blocks.lock);
  return found;
}

// A block of pieces that holds [ptr, ptr + size). NULL: there is none. The lock is held.
static gpu_block *block_of_pieces(const void *ptr, size_t size)
{
  gpu_block *b = blocks.first;
  while (b != NULL && !(b->npieces > 0 && block_holds(b, ptr, size) && block_is_there(b))) {
    b = b->next;
  }
  return b;
}

// The same, made if there was none. NULL: the memory cannot be shared. The lock is held.
static gpu_block *pieces_make(int device, const void *ptr, size_t size)
{
  gpu_block now, *b = block_of_pieces(ptr, size);
  if (b != NULL || tt_gpu_enter(device) != ncclSuccess) {
    return b;
  }
  b = pieces_find(device, ptr, size, &now) ? block_make(&now) : NULL;
  tt_gpu_leave();
  if (b == NULL) {
    tt_free(now.pieces);
  }
  return b;
}

tt_mappable tt_gpu_find(const void *ptr, size_t size)
{
  gpu_block now, *b = NULL;
  tt_mappable found = {0};
  if (!block_query(ptr, &now) || !block_holds(&now, ptr, size)) {
    return found;
  }
  pthread_mutex_lock(&blocks.lock);
  if (now.opens) {
    b = block_make(&now);
  } else if (now.descriptors) {
    b = pieces_make(now.device, ptr, size);
  }
  if (b != NULL) {
    b->handle = b->handle != 0 ? b->handle : ++blocks.handles;
    found = (tt_mappable){.handle = b->handle, .from = b->base, .size = b->bytes};
  }
  pthread_mutex_unlock(&blocks.lock);
  return found;
}

// The block of that number. NULL: there is none. The lock is held.
static const gpu_block *block_find(uint32_t handle)
{
  const gpu_block *b = handle != 0 ? blocks.first : NULL;
  while (b != NULL && b->handle != handle) {
    b = b->next;
  }
  return b;
}

// A copy of it, if it is there still; its pieces are not the caller's.
static bool block_get(uint32_t handle, gpu_block *out)
{
  pthread_mutex_lock(&blocks.lock);
  const gpu_block *b = block_find(handle);
  const bool found = b != NULL && block_is_there(b);
  if (found) {
    *out = *b;
    out->pieces = NULL;
  }
  pthread_mutex_unlock(&blocks.lock);
  return found;
}

void tt_gpu_sweep(void)
{
  pthread_mutex_lock(&blocks.lock);
  for (gpu_block **at = &blocks.first, *b = *at; b != NULL; b = *at) {
    if (b->handle != 0 && !block_is_there(b)) {
      block_free(block_take(at));
    } else {
      at = &b->next;
    }
  }
  pthread_mutex_unlock(&blocks.lock);
}

bool tt_gpu_exists(uint32_t handle)
{
  pthread_mutex_lock(&blocks.lock);
  const bool exists = block_find(handle) != NULL;
  pthread_mutex_unlock(&blocks.lock);
  return exists;
}

static ncclResult_t fail_freed(uint32_t handle)
{
  return tt_fail(ncclInvalidArgument, "allocation %u has been freed", handle);
}

ncclResult_t tt_gpu_export(uint32_t handle, tt_gpu_share *out)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  gpu_block b;
  tt_gpu_share share;
  if (!block_get(handle, &b)) {
    return fail_freed(handle);
  }
  if (b.npieces > 0) {
    *out = (tt_gpu_share){.bytes = b.bytes, .pieces = (uint64_t)b.npieces};
    return ncclSuccess;
  }
  TT_TRY(tt_gpu_enter(b.device));
  CUresult error = cu->IpcGetMemHandle(&share.handle, (CUdeviceptr)b.base);
  tt_gpu_leave();
  TT_CUDA(cu, error, "GPU %d: cannot share the allocation of %zu bytes at %p", b.device, b.bytes, (void *)b.base);
  share.bytes = b.bytes;
  share.pieces = 0;
  *out = share;
  return ncclSuccess;
}

// Where a piece is, and its device. False: it is not there any more.
static bool piece_get(uint32_t handle, uint64_t number, uintptr_t *at, gpu_piece *out, int *device)
{
  pthread_mutex_lock(&blocks.lock);
  const gpu_block *b = block_find(handle);
  const bool found = b != NULL && number < (uint64_t)b->npieces;
  if (found) {
    *at = b->base;
    for (uint64_t i = 0; i < number; i++) {
      *at += b->pieces[i].bytes;
    }
    *out = b->pieces[number];
    *device = b->device;
  }
  pthread_mutex_unlock(&blocks.lock);
  return found;
}

// A descriptor of the allocation that is mapped there. The device's context is current.
static CUresult piece_export(uintptr_t at, int *fd)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  CUmemGenericAllocationHandle memory = 0;
  CUresult error = cu->MemRetainAllocationHandle(&memory, (void *)at);
  if (error == CUDA_SUCCESS) {
    error = cu->MemExportToShareableHandle(fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    cu->MemRelease(memory);
  }
  return error;
}

ncclResult_t tt_gpu_export_piece(uint32_t handle, uint64_t piece, uint64_t *bytes, int *fd)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  uintptr_t at = 0;
  gpu_piece p = {0};
  int device = 0;
  if (!piece_get(handle, piece, &at, &p, &device)) {
    return fail_freed(handle);
  }
  TT_TRY(tt_gpu_enter(device));
  const bool there = piece_is_there(at, &p);
  CUresult error = there ? piece_export(at, fd) : CUDA_SUCCESS;
  tt_gpu_leave();
  if (!there) {
    return fail_freed(handle);
  }
  TT_CUDA(cu, error, "GPU %d: cannot share the %zu bytes at %p", device, p.bytes, (void *)at);
  *bytes = p.bytes;
  return ncclSuccess;
}

// ---- Memory of peers ----

// The place of the mapping that begins there; *at is NULL: none does. The lock is held.
static gpu_mapping **mapping_at(const void *base)
{
  gpu_mapping **at = &blocks.mappings;
  while (*at != NULL && (*at)->base != (uintptr_t)base) {
    at = &(*at)->next;
  }
  return at;
}

// Takes addresses for pieces.
static ncclResult_t mapping_open(int device, gpu_mapping *m)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  CUdeviceptr at = 0;
  TT_TRY(tt_gpu_enter(device));
  CUresult error =
      cu->MemAddressReserve != NULL ? cu->MemAddressReserve(&at, m->bytes, 0, 0, 0) : CUDA_ERROR_NOT_SUPPORTED;
  tt_gpu_leave();
  TT_CUDA(cu, error, "GPU %d: no addresses for %zu bytes", device, m->bytes);
  m->base = (uintptr_t)at;
  return ncclSuccess;
}

static ncclResult_t mapping_new(int device, size_t bytes, gpu_mapping **out)
{
  gpu_mapping *m;
  TT_TRY(TT_NEW(m, 1, "no memory for what is mapped on GPU %d", device));
  m->bytes = bytes;
  const ncclResult_t res = mapping_open(device, m);
  if (res != ncclSuccess) {
    tt_free(m);
    return res;
  }
  pthread_mutex_lock(&blocks.lock);
  m->next = blocks.mappings;
  blocks.mappings = m;
  pthread_mutex_unlock(&blocks.lock);
  *out = m;
  return ncclSuccess;
}

static ncclResult_t pieces_open(int device, size_t bytes, void **base)
{
  gpu_mapping *m;
  TT_TRY(mapping_new(device, bytes, &m));
  *base = (void *)m->base;
  return ncclSuccess;
}

// Maps the next piece, and gives access to all of them with the last one. The mapping keeps the piece, whose handle
// goes. The device's context is current; one thread opens.
static CUresult piece_map(int device, gpu_mapping *m, size_t bytes, CUmemGenericAllocationHandle piece)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUresult error = cu->MemMap(m->base + m->mapped, bytes, 0, piece, 0);
  cu->MemRelease(piece);
  m->mapped += error == CUDA_SUCCESS ? bytes : 0;
  return error == CUDA_SUCCESS && m->mapped == m->bytes ? cu->MemSetAccess(m->base, m->bytes, &access, 1) : error;
}

// The same of what the descriptor is of.
static CUresult piece_open(int device, gpu_mapping *m, size_t bytes, int fd)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  CUmemGenericAllocationHandle piece = 0;
  CUresult error = cu->MemImportFromShareableHandle(&piece, (void *)(intptr_t)fd, // NOLINT: as the driver wants it
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  return error == CUDA_SUCCESS ? piece_map(device, m, bytes, piece) : error;
}

ncclResult_t tt_gpu_open_piece(int device, void *base, uint64_t bytes, int fd, bool *whole)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  pthread_mutex_lock(&blocks.lock);
  gpu_mapping *m = *mapping_at(base);
  pthread_mutex_unlock(&blocks.lock);
  if (m == NULL || bytes > m->bytes - m->mapped) {
    return tt_fail(ncclInvalidArgument, "GPU %d: no room for %llu bytes of a peer at %p", device,
                   (unsigned long long)bytes, base);
  }
  TT_TRY(tt_gpu_enter(device));
  CUresult error = piece_open(device, m, bytes, fd);
  tt_gpu_leave();
  TT_CUDA(cu, error, "GPU %d: cannot map %llu bytes of a peer", device, (unsigned long long)bytes);
  *whole = m->mapped == m->bytes;
  return ncclSuccess;
}

ncclResult_t tt_gpu_open(int device, const tt_gpu_share *share, void **base)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  CUdeviceptr at = 0;
  if (share->pieces > 0) {
    return pieces_open(device, share->bytes, base);
  }
  TT_TRY(tt_gpu_enter(device));
  CUresult error = cu->IpcOpenMemHandle(&at, share->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  tt_gpu_leave();
  TT_CUDA(cu, error, "GPU %d: cannot open a peer's allocation of %llu bytes", device, (unsigned long long)share->bytes);
  *base = (void *)(uintptr_t)at;
  return ncclSuccess;
}

static void mapping_close(const gpu_mapping *m)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  if (m->mapped > 0) {
    cu->MemUnmap(m->base, m->mapped);
  }
  cu->MemAddressFree(m->base, m->bytes);
}

void tt_gpu_close(int device, uint32_t epoch, void *base)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  pthread_mutex_lock(&blocks.lock);
  gpu_mapping **at = mapping_at(base), *m = *at;
  if (m != NULL) {
    *at = m->next;
  }
  pthread_mutex_unlock(&blocks.lock);
  if (tt_gpu_reenter(device, epoch) == ncclSuccess) {
    if (m == NULL) {
      cu->IpcCloseMemHandle((CUdeviceptr)(uintptr_t)base);
    } else {
      mapping_close(m);
    }
    tt_gpu_leave();
  }
  tt_free(m);
}

// ---- Memory that lasts ----

static CUmemAllocationProp lasting_kind(int device)
{
  return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
}

bool tt_gpu_can_last(int device)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  int can = 0;
  return cu->MemCreate != NULL && cu->MemAddressReserve != NULL &&
         cu->DeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                                (CUdevice)device) == CUDA_SUCCESS &&
         can != 0;
}

// Fills the addresses. The device's context is current.
static ncclResult_t lasting_fill(int device, gpu_mapping *m)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  const CUmemAllocationProp kind = lasting_kind(device);
  CUmemGenericAllocationHandle piece = 0;
  CUresult error = cu->MemCreate(&piece, m->bytes, &kind, 0);
  error = error == CUDA_SUCCESS ? piece_map(device, m, m->bytes, piece) : error;
  TT_CUDA(cu, error, "GPU %d: cannot allocate %zu bytes that other processes can map", device, m->bytes);
  return ncclSuccess;
}

ncclResult_t tt_gpu_alloc_lasting(int device, size_t least, void **base)
{
  const tt_cuda *cu = tt_cuda_get(NULL);
  const CUmemAllocationProp kind = lasting_kind(device);
  gpu_mapping *m;
  size_t granule = 1;
  TT_CUDA(cu, cu->MemGetAllocationGranularity(&granule, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
          "GPU %d: cannot ask for the size of pieces of memory", device);
  TT_TRY(mapping_new(device, TT_ROUND_UP(least, granule), &m));
  ncclResult_t res = tt_gpu_enter(device);
  if (res == ncclSuccess) {
    res = lasting_fill(device, m);
    tt_gpu_leave();
  }
  if (res != ncclSuccess) {
    tt_gpu_close(device, tt_gpu_epoch(device), (void *)m->base);
    return res;
  }
  *base = (void *)m->base;
  return ncclSuccess;
}

// A child of a fork cannot use its parent's GPUs, and another thread may have been here.
static void blocks_in_child(void)
{
  blocks.first = NULL;
  blocks.mappings = NULL;
  pthread_mutex_init(&blocks.lock, NULL);
}

__attribute__((constructor)) static void blocks_at_start(void)
{
  static tt_fork_hook hook = {.fn = blocks_in_child};
  tt_proc_on_fork(&hook);
}
