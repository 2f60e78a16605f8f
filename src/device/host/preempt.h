// preempt.h: what a thread learns from having been preempted while it yielded in a wait, and when it had better sleep
// at once instead.
//
// A yield that lasts longer than a millisecond lost the core to another task, which keeps it for its whole slice but
// gives way to a thread that wakes up: so the wait sleeps. After a second loss within eight yields, as many waits sleep
// at once as the loss pays for at the price of a sleep, and with each further one twice as many for the same loss. That
// ends with time, or at a wait for work that takes an eighth of the time.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

// A yield that takes longer: ranks that wait do not hold a core for so long, and a sleep loses little.
#define TT_PREEMPTED_NS 1000000ull
#define TT_TURN_NS 250000ull  // but many ranks may: for each on this core
#define TT_PREEMPTED_YIELDS 8 // yields within which a second preemption is likely to be the same task's
#define TT_PREEMPTED_TIMES 16 // how many times the loss sleeps may cost at most
// Sleeps end after so many times what they may cost: among many ranks each takes longer than TT_SLEEP_NS.
#define TT_PREEMPTED_WALL 8
// That a preemption counts as: a thread that was stopped for a minute need not sleep for hours.
#define TT_PREEMPTED_MOST_NS 10000000ull
#define TT_SLEEP_NS 20000ull // what a sleep costs with its wake-up
#define TT_LONG_US 200       // work that takes as long: turns of the ranks at it may look like preemptions,
#define TT_MUCH_LONGER 8     // which tells nothing about waits for work that takes this part of it

// A thread's experience. Starts zeroed.
typedef struct tt_preemption {
  uint64_t sleeps;   // so many waits are still to sleep at once
  uint64_t until;    // but none that begins later
  unsigned yields;   // since the last preemption
  unsigned times;    // of its length, that sleeps may cost
  uint32_t takes_us; // what was waited for then (tt_work.takes_us)
} tt_preemption;

// Notes a yield that ended at `now`, in a wait for work that takes peers about `takes_us`. `then`: when the ranks' work
// was last seen on this core, which `ranks` of them share. Returns whether the thread was preempted meanwhile.
static inline bool tt_preemption_note(tt_preemption *p, uint64_t then, uint64_t now, int ranks, uint32_t takes_us)
{
  p->yields++;
  if (now < then + TT_MAX(TT_PREEMPTED_NS, TT_TURN_NS * (uint64_t)ranks)) {
    return false;
  }
  p->times = p->yields > TT_PREEMPTED_YIELDS ? 0 : TT_CLAMP(2 * p->times, 1, TT_PREEMPTED_TIMES);
  uint64_t price = p->times * TT_MIN(now - then, TT_PREEMPTED_MOST_NS);
  p->sleeps = price / TT_SLEEP_NS;
  p->until = now + TT_PREEMPTED_WALL * price;
  p->takes_us = takes_us;
  p->yields = 0;
  return true;
}

// Whether a wait that begins at `now`, for work that takes peers about `takes_us`, should sleep at once. What was
// learned while peers may have been at much longer work, as ranks of other processes are that copy megabytes, is
// forgotten.
static inline bool tt_preemption_sleeps(tt_preemption *p, uint64_t now, uint32_t takes_us)
{
  if (p->takes_us >= TT_LONG_US && TT_MUCH_LONGER * takes_us < p->takes_us) {
    *p = (tt_preemption){.sleeps = 0};
  }
  p->sleeps -= p->sleeps > 0;
  return p->sleeps > 0 && now < p->until;
}
