// taste.h: which of two ways of handing data over takes less time, found by trying both now and then.
//
// A taste is of calls of about one size with one peer, and belongs to who reads them. Most uses go the way that was the quicker one in the last trial, and
// nothing is measured. A trial takes a few uses of each way and compares the least times: what disturbs a use makes it longer, never shorter. Where the ways
// differ much the next trial is far away, so that the slower one costs little; where they are close it does not matter.
// Plain data without addresses, no clock: whoever uses it measures. Used by the thread that runs the rank's plan.
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef enum { TT_WAY_COPY, TT_WAY_PAGES, TT_NWAYS } tt_way; // device/host/offer.h

enum {
  TT_TASTE_SAMPLES = 4,   // of each way that a trial compares, at most
  TT_TASTE_PATIENCE = 40, // uses of a trial in all: the way that is tried may not be to be had, and what is under way goes the old one
  TT_TASTE_REST = 64,     // uses between two trials: first so many, then more,
  TT_TASTE_CLOSE = 512,   // at most so many where the ways are close,
  TT_TASTE_LONG = 4096    // and elsewhere
};

// Zeroed: nothing is known, COPY is liked, and a trial is on.
typedef struct tt_taste {
  uint8_t liked, last;         // tt_way of most uses, and of this trial's last one
  bool resting;                // no trial is on
  uint8_t seen[TT_NWAYS];      // uses of this trial
  uint16_t left, rest;         // uses until the next trial; and between the last two. 0: there was none yet
  uint16_t spent;              // uses since this trial began
  uint32_t first_ns;           // of a sample's two uses
  uint32_t least_ns[TT_NWAYS]; // of this trial's samples
} tt_taste;

// Is a trial on? Then uses are to be measured.
static inline bool tt_taste_tries(const tt_taste *t)
{
  return !t->resting;
}

// The way the next use should go: of a trial first the liked one, then the other.
tt_way tt_taste_wants(const tt_taste *t);

// A use went this way, and took so long: the time does not matter where no trial is on. True: that ended the first trial, or one that has turned the taste.
bool tt_taste_add(tt_taste *t, tt_way way, uint64_t ns);
