// theft.h: what other work on its core costs a thread that yields while it waits, and when it had better sleep at once instead.
//
// A yield among ranks that wait costs a tenth of a sleep. But where something else computes on the core, a yield gives it all of its slice, while a thread
// that sleeps is woken in front of it. Which of them it is cannot be known beforehand: so after a theft the thread sleeps for about as long as the theft
// has paid for.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

#define TT_STOLEN_NS 1000000ull    // a yield that takes longer: ranks that wait do not hold a core for so long, and who sleeps loses little
#define TT_TURN_NS 250000ull       // but many ranks may: for each on this core
#define TT_STOLEN_YIELDS 8         // yields within which a second theft is likely to be the same work's
#define TT_STOLEN_TIMES 16         // how far the price may rise
#define TT_SLEEP_NS 20000ull       // what a sleep costs with its wake-up
#define TT_MOST_STOLEN 10000000ull // that a theft counts as: who was stopped for a minute need not sleep for hours
#define TT_LONG_US 200             // work that takes as long: turns of the ranks at it may look like thefts,
#define TT_MUCH_LONGER 8           // which tells nothing about waits for work that takes this part of it
#define TT_STOLEN_WALL 8           // sleeps end after so many times what they may cost: among many ranks each takes longer than TT_SLEEP_NS

// A thread's experience. Starts zeroed.
typedef struct tt_theft {
  uint64_t sleeps;   // so many waits are still to sleep at once
  uint64_t until;    // but none that begins later
  unsigned yields;   // since the last that was stolen
  unsigned times;    // of that one's duration, that sleeps may cost
  uint32_t takes_us; // what was waited for then (tt_work.takes_us)
} tt_theft;

// Notes a yield that ended at `now`, in a wait for work that takes others `takes_us` or so. `then`: when the ranks' work was last seen on this core, which
// `ranks` of them share. Returns whether the core was stolen meanwhile.
// Thefts in short succession pay for sleeps, each for twice as many as the one before; a theft now and then does not.
static inline bool tt_theft_note(tt_theft *t, uint64_t then, uint64_t now, int ranks, uint32_t takes_us)
{
  t->yields++;
  if (now < then + TT_MAX(TT_STOLEN_NS, TT_TURN_NS * (uint64_t)ranks)) {
    return false;
  }
  t->times = t->yields > TT_STOLEN_YIELDS ? 0 : TT_CLAMP(2 * t->times, 1, TT_STOLEN_TIMES);
  uint64_t price = t->times * TT_MIN(now - then, TT_MOST_STOLEN);
  t->sleeps = price / TT_SLEEP_NS;
  t->until = now + TT_STOLEN_WALL * price;
  t->takes_us = takes_us;
  t->yields = 0;
  return true;
}

// Whether a wait that begins at `now`, for work that takes others `takes_us` or so, should sleep at once. What was learned while others may have been at much
// longer work, as ranks of other processes are that copy megabytes, is forgotten.
static inline bool tt_theft_sleeps(tt_theft *t, uint64_t now, uint32_t takes_us)
{
  if (t->takes_us >= TT_LONG_US && TT_MUCH_LONGER * takes_us < t->takes_us) {
    *t = (tt_theft){.sleeps = 0};
  }
  t->sleeps -= t->sleeps > 0;
  return t->sleeps > 0 && now < t->until;
}
