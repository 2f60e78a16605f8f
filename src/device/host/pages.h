// pages.h: huge pages under the large buffers that calls use again and again.
//
// From small pages of 4 KiB a peer's kernel copies at half the speed: it looks each one up. And each reader walks
// longer tables. So the buffers that come back are put on huge pages, in which nothing changes for their owner: only
// pages that are there, and this process's alone. It costs about as much as touching the memory for the first time, and
// more where the machine has to look for room: hence only from the fourth use on, and on credit. Each call earns the
// time that it is taken to need itself, by its bytes: sooner there, sooner of use. A page is tried when the credit
// covers what the last one cost, and what it did cost is taken off, below zero if need be. A dear page, of over 2 ms,
// counts eight times. So all calls together take twice their time and one page more at most, an eighth more where pages
// are dear.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device.h"

#define TT_PAGES_SEEN 64 // buffers that are remembered
#define TT_PAGES_USES 3  // of a buffer before it counts as one that comes back
#define TT_PAGES_REST 16 // uses until its pages are looked at again: it may have been freed, and be other memory by now
#define TT_PAGES_TIRED 4096 // the same at most, where the kernel refuses

// The huge pages that fit into a buffer, [from, to); those from `next` on are still to be seen to.
typedef struct tt_pages_buffer {
  uintptr_t from, to, next;
  uint32_t wait;    // uses until they are
  uint32_t rest;    // and from then on
  uint32_t refused; // in this round
} tt_pages_buffer;

// Of a port: the launching thread's.
typedef struct tt_pages {
  size_t huge;       // bytes of a huge page; 0: off
  size_t least;      // bytes of a buffer that is worth telling; SIZE_MAX: none is
  uint64_t made;     // pages that the kernel has put in place, or found there
  uint32_t reported; // buffers that the log has named
  int64_t credit_ns; // for pages; less than nothing where one has cost more than there was
  uint64_t page_ns;  // what the last one counted as; 0: none yet
  tt_pages_buffer seen[TT_PAGES_SEEN];
} tt_pages;

// On, if they are wanted, this machine has them and NCCL_HOST_HUGE_PAGES permits.
void tt_pages_open(tt_pages *t, bool wanted);
// The buffers are used once more. Never fails: what cannot be had is done without. Any kind of memory.
void tt_pages_use(tt_pages *t, const tt_buffer_use *c);
