// shm.h: anonymous shared memory (memfd): nothing has a name, so nothing can be left behind however a process ends.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "nccl.h"

// Creates `size` bytes of shared memory (sparse, zeroed when first touched), close-on-exec, sealed against shrinking.
// `name` is for /proc only. Errors: ncclSystemError (limits, no descriptors). The caller closes *fd.
ncclResult_t tt_shm_create(const char *name, size_t size, int *fd);

// Maps `size` bytes of `fd` for reading and writing. fd = -1: private to this process (and its future threads).
ncclResult_t tt_shm_map(int fd, size_t size, void **addr);

// Unmaps. NULL is allowed.
void tt_shm_unmap(void *addr, size_t size);

// Gives the pages of mapped memory back, for all who map it; they read as zeros, and exist again once they are written.
// `addr` and `size` are multiples of the page size. False: the system refuses; nothing has changed.
bool tt_shm_drop(void *addr, size_t size);

// Bytes of pages of mapped memory that exist. `addr` as above.
size_t tt_shm_resident(void *addr, size_t size);

// Size in bytes of the object behind `fd`; 0 when it cannot be told.
size_t tt_shm_size(int fd);

// Writes or reads `size` bytes at `at` of the object behind `fd`. False: not all of them can be. Any thread.
bool tt_shm_put(int fd, size_t at, const void *data, size_t size);
bool tt_shm_get(int fd, size_t at, void *data, size_t size);

// Closes a descriptor. Negative values are allowed.
void tt_fd_close(int fd);
