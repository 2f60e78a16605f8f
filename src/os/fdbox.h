// fdbox.h: file descriptors from other processes, passed by SCM_RIGHTS over an abstract local socket.
//
// One mailbox per process, opened when first needed. A sender pushes a descriptor under a 24-byte key and goes on:
// it never waits for the receiver to be active. The receiver takes it by key when it needs it. Only processes of the
// same user (or root) are heard. A stranger's connection with garbage, half a message or nothing is dropped without
// delay for others, and logged once.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "nccl.h"

typedef struct tt_fdkey {
  uint8_t bytes[24]; // chosen by its user: a communicator's secret, or a process cookie and a memory serial
} tt_fdkey;

#define TT_FDBOX_NAME 40

// Opens this process's mailbox if need be and writes its address (text for tt_fdbox_push, at most TT_FDBOX_NAME bytes
// with the final 0). Any thread. Errors: ncclSystemError.
ncclResult_t tt_fdbox_open(char name[TT_FDBOX_NAME]);

// Gives `fd` (stays the caller's) to the mailbox `name` under `key`. Never waits longer than one second (receiver's
// queue full). `key` is NULL for a mailbox of tt_fdbox_listen. Errors: ncclSystemError, ncclRemoteError (no such
// mailbox: its process has ended, or it was closed). Any thread.
ncclResult_t tt_fdbox_push(const char *name, const tt_fdkey *key, int fd);

// Takes the descriptor pushed under `key`; waits for it at most `timeout_ms` (0: only look). `abort_flag` may be NULL;
// it is polled. The caller closes *fd. Descriptors under the same key come in the order they were pushed. Errors:
// ncclSystemError (text names the wait; silent when timeout_ms is 0 and it is not there), ncclInternalError (aborted,
// silent). Any thread.
ncclResult_t tt_fdbox_take(const tt_fdkey *key, int timeout_ms, const volatile uint32_t *abort_flag, int *fd);

// A mailbox of the caller's own, without keys: what has not been taken goes when it is closed, and nothing comes later.
// So no descriptor is left, whoever ends in between. Writes its address, as tt_fdbox_open does. tt_fdbox_unlisten
// closes *listener. Errors: ncclSystemError. Any thread.
ncclResult_t tt_fdbox_listen(char name[TT_FDBOX_NAME], int *listener);
// Takes the first descriptor that was pushed there; does not wait for one. The caller closes *fd. Errors:
// ncclSystemError (there is none, or this process may open no more). Any thread.
ncclResult_t tt_fdbox_accept(int listener, int *fd);
// Closes it. Any thread.
void tt_fdbox_unlisten(int listener);
