// quiet.h: a system call that writes, without the signals that would end the program for it: SIGPIPE and SIGXFSZ. It
// fails with EPIPE or EFBIG instead.
#pragma once
#include <signal.h>
#include <stdbool.h>

typedef struct tt_quiet {
  sigset_t before;         // the thread's mask
  sigset_t ours;           // the two signals
  bool had_pipe, had_size; // were pending before
} tt_quiet;

// Holds the two signals back in the calling thread. Async-signal-safe; pairs with tt_quiet_end in the same function.
void tt_quiet_begin(tt_quiet *q);
// Drops those that have come since, and gives the thread its mask back. Keeps errno.
void tt_quiet_end(tt_quiet *q);
