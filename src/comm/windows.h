// windows.h: the windows of this process, found by their handles alone, as the device API names them.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "nccl.h"

// A window, and the rank that registered it.
typedef struct tt_window {
  const void *handle; // its registration in the communicator (comm.h)
  char *base;
  size_t size;
  int rank, nranks;
} tt_window;

// Adds a window until tt_window_drop of its handle. Any thread. Errors: ncclSystemError (no memory).
ncclResult_t tt_window_add(const tt_window *window);
// Takes it out, where it is in. Any thread.
void tt_window_drop(const void *handle);
// Copies it to *out. Any thread. Returns false when there is no such window.
bool tt_window_find(const void *handle, tt_window *out);
