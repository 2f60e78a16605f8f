// map.h: private memory straight from the kernel, shared memory in place of it, huge pages under what is there, and
// how much memory there is.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nccl.h"

// Maps `size` bytes (a multiple of the page size) that belong to this process alone: zeroed, committed when touched.
// Free with tt_shm_unmap. Errors: ncclSystemError.
ncclResult_t tt_map_private(size_t size, void **addr);

// Is [addr, addr + size), whole pages, ordinary memory: this process's own, of no file, readable and writable, in small
// pages, and not the main thread's stack? Reads /proc; false where that cannot be had. Any thread.
bool tt_map_is_ordinary(const void *addr, size_t size);
// Do these pages show the object behind `fd` from its beginning on, shared? As above.
bool tt_map_shows(const void *addr, size_t size, int fd);

// A number of the object that the page at `addr` shows, and of the page in it: another one, most likely, where other
// pages have come to that address. 0: it cannot be had. Reads /proc. Any thread.
uint64_t tt_map_identity(const void *addr);

// Moves the mapping [from, from + size) into the place of [to, to + size), at once: no thread finds nothing there.
// Errors: ncclSystemError.
ncclResult_t tt_map_move(void *from, size_t size, void *to);
// Has [addr, addr + size), which shows `fd` from its beginning on, show this process's own copy instead: a page is
// copied when it is written. What others write before then is seen. Errors: ncclSystemError.
ncclResult_t tt_map_own(int fd, size_t size, void *addr);

// Bytes of the kernel's huge pages (a power of two). 0: it has none, the administrator has switched them off, or
// they are so large that making one would hold the caller up (512 MiB, where small pages have 64 KiB).
size_t tt_map_huge_size(void);
// Has the kernel put a huge page in place of the small ones at `addr`: `size` is tt_map_huge_size, `addr` a multiple
// of it. Their contents stay, also while other threads read or write them. Takes a few microseconds where a huge
// page is there already, else about half a millisecond; many where the machine is busy or the kernel has to look for
// room. 0, or errno. EPERM: not every page there is this process's own private memory, in use: shared pages (with
// forked relatives, or others) would be copied, absent ones filled. EAGAIN, EBUSY, ENOMEM: a page is held, or there
// is no room. EINVAL: unavailable there (an old kernel, or the program said so).
int tt_map_huge(const void *addr, size_t size);

// Tells AddressSanitizer, where the program was built with it, that [addr, addr + size) must not (or may again) be
// touched: so overruns of memory are found that its own allocator does not know. Does nothing in other programs.
void tt_map_forbid(const void *addr, size_t size);
void tt_map_allow(const void *addr, size_t size);

// Bytes of memory that the process could still take (of the machine, or of its control group where that is less), and
// all there are.
void tt_map_memory(size_t *available, size_t *total);
