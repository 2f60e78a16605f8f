// watch.h: what a plugin does to the process that it is in: how long its calls block, what it leaves behind, what of
// the process it changes.
#pragma once
#include <signal.h>
#include <stdint.h>

#include "check.h"

// A call that blocks longer breaks a rule where nothing may block.
#define PC_BLOCKED_NS 250000000u

// How long a call waits: not the time in which it runs, nor that in which it waits for a processor, so that a busy
// machine does not count. A call that never gave the processor away of its own will has not waited, whatever the clocks
// say (a host may take the machine's processors). The process's first thread only.
typedef struct pc_wait {
  uint64_t idle; // nanoseconds so far
  long switches; // of its own will
} pc_wait;

pc_wait pc_wait_begin(void);
// Nanoseconds since then; 0 where the system does not tell.
uint64_t pc_wait_end(const pc_wait *begin);

// Nanoseconds since any beginning.
uint64_t pc_clock_ns(void);

// What this process holds.
typedef struct pc_holdings {
  int threads, descriptors;
  size_t memory; // bytes from malloc, in the first thread; 0 under a sanitizer
} pc_holdings;

pc_holdings pc_holdings_now(void);
// Waits up to `seconds` until there are no more threads and descriptors than `before`: both may end a little after the
// call that ended them.
pc_holdings pc_holdings_settled(const pc_holdings *before, int seconds);

// What belongs to the process and not to a plugin.
typedef struct pc_manners {
  sigset_t blocked;
  struct sigaction handlers[32];
  char folder[256];
} pc_manners;

void pc_manners_take(pc_manners *m);
// Is it still as it was? A rule each but for handlers, which are a note. The thread that took them.
void pc_manners_check(const pc_job *job, const pc_manners *before);
