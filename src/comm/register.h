// register.h: buffers that the user has registered, as windows or not (register.c). The launching thread calls it,
// except tt_window_find.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nccl.h"

// Registers and deregisters a buffer, as a window or not. A handle is good until it is deregistered, or the
// communicator is freed. Errors: ncclSystemError (no memory), those of the network; ncclInvalidArgument for a handle
// that is not one, or is of the other kind.
ncclResult_t tt_comm_register(struct ncclComm *comm, void *buff, size_t size, bool window, void **handle);
ncclResult_t tt_comm_deregister(struct ncclComm *comm, void *handle, bool window);
// Does a buffer of so many bytes lie in a registered one?
bool tt_comm_is_registered(const struct ncclComm *comm, const void *buff, size_t size);
// The buffer behind a window's handle. Errors: as tt_comm_deregister.
ncclResult_t tt_comm_window(const struct ncclComm *comm, const void *handle, void **buff);
// A window, and the rank that registered it.
typedef struct tt_window {
  struct ncclComm *comm; // may have been destroyed: enter it before use
  char *base;
  size_t size;
  int rank, nranks;
  uint64_t number; // among the windows that the rank has registered in the communicator, from 1
} tt_window;
// Does a buffer of so many bytes lie in a window of the communicator?
bool tt_comm_in_window(const struct ncclComm *comm, const void *buff, size_t size);
// The number of a window, for function `what`. Errors: as tt_comm_deregister.
ncclResult_t tt_comm_window_number(const struct ncclComm *comm, const char *what, const void *handle, uint64_t *number);
// Copies the window with this handle to *out, of whatever communicator of the process. False: there is none. Any
// thread.
bool tt_window_find(const void *handle, tt_window *out);
// Drops all registrations. No call is inside.
void tt_comm_free_registrations(struct ncclComm *comm);
