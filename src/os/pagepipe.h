// pagepipe.h: memory that another process may read, handed over page by page through a pipe (vmsplice).
//
// The kernel looks the pages up for their owner, which is cheaper than looking them up for another process
// (process_vm_readv), and the reader does nothing but copy: from 4 KiB up it takes 0.5 to 0.9 of the time. What is
// handed over is not copied: it must stay as it is until it has been read.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TT_PAGEPIPE_PAGES 256 // that fit, of 4 KiB: the most an ordinary user may have in a pipe
#define TT_PAGEPIPE_LEAST 128 // in the shortest pipe that is made
#define TT_PAGEPIPE_FULL 8    // times in a row without room, after which no process seems to read
#define TT_PAGEPIPES 8        // of a process at a time

// STOPPED: open, but no longer used. A pipe stays open for as long as a reader may have its number: a reader that
// joins late must not find another file there.
typedef enum { TT_PAGEPIPE_UNTRIED, TT_PAGEPIPE_OPEN, TT_PAGEPIPE_STOPPED, TT_PAGEPIPE_NONE } tt_pagepipe_state;

// The owner's side. Zeroed: not opened yet.
typedef struct tt_pagepipe {
  tt_pagepipe_state state;
  int pages; // that fit, a power of two from TT_PAGEPIPE_LEAST on; 0: TT_PAGEPIPE_PAGES. Set before the first is handed
             // over
  int read, write; // descriptors; the owner keeps both, so that writing never raises SIGPIPE
  int full;        // how often in a row there was no room at all
} tt_pagepipe;

// The reader's side. Zeroed: not joined yet.
typedef struct tt_pagetap {
  tt_pagepipe_state state;
  int fd;
} tt_pagetap;

// Hands over the first of `bytes` bytes at `p`, as many as fit beside what has not been read yet, and returns how
// many: 0 also for memory of a kind that cannot be handed over. Opens the pipe when first called. It returns 0 from
// then on where there can be none (a process has at most TT_PAGEPIPES), and where the pipe is not read
// (TT_PAGEPIPE_FULL times in a row it was full). Never waits, never raises a signal.
size_t tt_pagepipe_put(tt_pagepipe *pipe, const void *p, size_t bytes);

// Joins the pipe whose reading end is descriptor `fd` of process `pid`, when first called. False: this process may
// not, or it is no such pipe. The caller makes sure that the owner has not closed it, and got the number for another
// pipe.
bool tt_pagetap_join(tt_pagetap *tap, int32_t pid, int fd);

// Reads `bytes` bytes that have been handed over to `to`. 0, or errno (ENODATA: less than that are there). Never waits.
int tt_pagetap_take(const tt_pagetap *tap, void *to, size_t bytes);

// Close what is open; zeroed ones may be closed, too.
void tt_pagepipe_close(tt_pagepipe *pipe);
void tt_pagetap_close(tt_pagetap *tap);
