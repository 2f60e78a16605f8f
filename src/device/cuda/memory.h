// memory.h: memory of GPUs: allocating it, knowing what others have allocated, and sharing it with other processes.
//
// Tokens name an allocation by a number, which peers open once. An allocation is told from a later one at the same
// address by the driver's number of it (CU_POINTER_ATTRIBUTE_BUFFER_ID), since nothing tells us what the program frees.
//
// Memory of cuMemCreate is mapped into addresses that the program reserves. Several such allocations behind each other
// have one number here, as far as a buffer needs: they are its pieces. Peers get a file descriptor of each.
// CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID tells which allocation is mapped at an address.
// Any thread. The CUDA driver is open.
#pragma once
#include "device/cuda/gpu.h"
#include "device/fifo.h"

// What another process needs to open an allocation. Part of messages between processes: fixed layout.
typedef struct tt_gpu_share {
  CUipcMemHandle handle;
  uint64_t bytes;
  uint64_t pieces; // 0: the handle opens it; else so many descriptors do
} tt_gpu_share;
_Static_assert(sizeof(tt_gpu_share) == 80, "message layout");

// Allocates `size` bytes of the calling thread's device, for tt_gpu_free to free. Errors: ncclUnhandledCudaError,
// ncclSystemError.
ncclResult_t tt_gpu_alloc(size_t size, void **ptr);
// Frees what tt_gpu_alloc has given. Errors: ncclInvalidArgument (`ptr` is something else, or freed already);
// ncclUnhandledCudaError: it is not freed, and can be later, or the device has been reset.
ncclResult_t tt_gpu_free(void *ptr);

// The allocation, of any GPU's memory, that holds the byte, and its device. False: none does.
bool tt_gpu_allocation(const void *ptr, void **base, size_t *bytes, int *device);

// The allocation of tt_gpu_alloc that holds [ptr, ptr + size). False: none does.
bool tt_gpu_range(const void *ptr, size_t size, void **base, size_t *bytes);

// The allocation that holds [ptr, ptr + size), if other processes can open it: its number among those of this process,
// from 1 on, never used again. Handle 0: there is none.
tt_mappable tt_gpu_find(const void *ptr, size_t size);

// Looks which allocations with a number the program has freed: peers can close those. A call of the driver for each.
void tt_gpu_sweep(void);
// Is an allocation with that number there, as far as is known?
bool tt_gpu_exists(uint32_t handle);

// What peers need to open the allocation of that number. Errors: ncclInvalidArgument (it has been freed),
// ncclUnhandledCudaError.
ncclResult_t tt_gpu_export(uint32_t handle, tt_gpu_share *out);
// One of its pieces, from 0 on: its bytes, and a descriptor, which the caller closes. Errors: the same.
ncclResult_t tt_gpu_export_piece(uint32_t handle, uint64_t piece, uint64_t *bytes, int *fd);

// Opens a peer's allocation on the device, for tt_gpu_close to close. One of pieces has its addresses then, and can be
// used once all pieces are open. Errors: ncclUnhandledCudaError, ncclSystemError.
ncclResult_t tt_gpu_open(int device, const tt_gpu_share *share, void **base);
// Opens its next piece; the descriptor stays the caller's. *whole: that was the last one. Errors:
// ncclUnhandledCudaError, ncclInvalidArgument: it has not so many bytes.
ncclResult_t tt_gpu_open_piece(int device, void *base, uint64_t bytes, int fd, bool *whole);
// Has the device memory that lasts?
bool tt_gpu_can_last(int device);
// If so, allocates at least so many bytes of it, which peers can open (tt_gpu_find). They stay as long as a peer has
// them open, also when this process has closed them or has ended. For tt_gpu_close. Errors: ncclUnhandledCudaError,
// ncclSystemError.
ncclResult_t tt_gpu_alloc_lasting(int device, size_t least, void **base);
// Closes what tt_gpu_open has opened, or tt_gpu_alloc_lasting allocated, on the device, in this epoch; once for each of
// their calls.
void tt_gpu_close(int device, uint32_t epoch, void *base);
