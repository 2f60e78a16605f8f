// shared.h: pinned memory that this rank and one of another process of its machine share, for the FIFOs of captured
// operations.
//
// The lower rank of the two makes it, in chunks, and says which part of which chunk is whose. Both map a chunk and pin
// it. A chunk has no name: its descriptor goes to the other process by a mailbox (os/fdbox.h). Chunks stay as long as
// the port, and as graphs of it.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "os/fdbox.h"

typedef struct gpu_area gpu_area;

typedef struct gpu_chunk {
  struct gpu_chunk *next;
  char *base;
  size_t bytes;
  uint32_t number;
  int fd;          // the maker's, until the other process has been given it; -1: no more
  bool pinned;     // in this process
  gpu_area *areas; // the maker's: all parts, by their places
} gpu_chunk;

// What a port shares with one rank. Zeroed: nothing.
typedef struct gpu_shared {
  gpu_chunk *chunks; // the newest first
  uint32_t n;
} gpu_shared;

// A part of a chunk.
typedef struct gpu_part {
  gpu_chunk *chunk;
  size_t offset;
} gpu_part;

// The maker: is there a part of so many bytes, without a new chunk?
bool tt_gpu_shared_has(const gpu_shared *s, size_t bytes);
// The maker: a part of so many bytes, which are not zeroed. The caller sees to it that one thread at a time is here.
// Errors: ncclSystemError.
ncclResult_t tt_gpu_shared_take(gpu_shared *s, size_t bytes, gpu_part *out);
// Gives it back.
void tt_gpu_shared_give(const gpu_part *part);

// The maker: gives the other process the chunk, unless it has it. One thread. Errors: those of tt_fdbox_push.
ncclResult_t tt_gpu_shared_push(gpu_chunk *c, const char *mailbox);
// The other one: the chunk of that number; one that is new has been pushed to the mailbox. Errors: ncclSystemError.
ncclResult_t tt_gpu_shared_find(gpu_shared *s, uint32_t number, int mailbox, gpu_chunk **out);

// Pins the chunk in this process, unless it is. A context is current. One thread. Errors: ncclUnhandledCudaError.
ncclResult_t tt_gpu_shared_pin(gpu_chunk *c);

// Unpins and unmaps all chunks. Nothing uses them any more; the driver may wait for all work of the context, which is
// current. Not `there`: the device has been reset, and they are not pinned any more.
void tt_gpu_shared_close(gpu_shared *s, bool there);
