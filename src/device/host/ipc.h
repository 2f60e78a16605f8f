// ipc.h: memory and events that other processes of the same machine and user open by a handle of 64 bytes.
//
// What is shared is a memfd. The handle names the owning process and the descriptor's number there. The opening process
// opens /proc/<pid>/fd/<number> anew and compares the inode. So no thread serves the handles, and nothing has a name
// that could be left behind. The owner must live when a handle is opened, not afterwards.
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/host/heap.h"
#include "os/bell.h"
#include "os/proc.h"

// Writes the handle of the allocation that holds `ptr` (tt_heap_alloc's or ncclMemAlloc's), which becomes shared memory
// if it is not yet. Errors: ncclInvalidArgument, ncclSystemError.
ncclResult_t tt_ipc_export(const void *ptr, tuttiIpcMemHandle_t *out);
// Maps what a handle names and returns the beginning of the allocation. The same handle gives the same address, and
// counts. Errors: ncclInvalidArgument (no handle, gone), ncclInvalidUsage (of this process), ncclSystemError.
ncclResult_t tt_ipc_open(const tuttiIpcMemHandle_t *handle, void **ptr);
// Undoes one tt_ipc_open; unmaps with the last. Errors: ncclInvalidArgument.
ncclResult_t tt_ipc_close(void *ptr);

// An event's state in memory that several processes map. Stays mapped until the process ends, and is used again for
// other events: `generation` tells them apart.
typedef struct tt_event_slot {
  tt_bell bell;                            // rung when a record is reached
  _Alignas(8) _Atomic uint32_t generation; // written by the owner, when it gives the slot up
  _Atomic int32_t pid; // the process that recorded last, and its start time: a waiting process looks whether it lives
  _Atomic uint64_t start;
  _Atomic uint64_t recorded, reached, time; // as in tt_event
} tt_event_slot;
_Static_assert(sizeof(tt_event_slot) == 128, "shared between processes");

// A slot of this process, all zero but for its generation and bell. Errors: ncclSystemError.
ncclResult_t tt_ipc_slot_new(tt_event_slot **out);
void tt_ipc_slot_free(tt_event_slot *slot);
// Handle of a slot of this process, and the slot behind a handle, also with its generation.
ncclResult_t tt_ipc_slot_export(const tt_event_slot *slot, tuttiIpcEventHandle_t *out);
ncclResult_t tt_ipc_slot_open(const tuttiIpcEventHandle_t *handle, tt_event_slot **out, uint32_t *generation);

// A forked child keeps what is mapped, and its own lock. Its parent's slots are not its to give out.
void tt_ipc_forked(void);
