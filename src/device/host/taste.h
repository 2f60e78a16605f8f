// taste.h: which of two ways of handing data over takes less time, found by trying both now and then.
//
// A taste is of calls of about one size with one peer, and belongs to who reads them. Most uses go the way that was the quicker one in the last trial, and
// nothing is measured. A trial takes a few samples of each way and compares the least times: what disturbs a sample makes it longer, never shorter. A sample is as
// many uses as a call has: where one runs ahead of the other, some are short because others are long. What is quicker changes with time, not with uses: the host
// moves the cores, or the program does something else in between. So the next trial comes when some time has passed; but not before there were many times the
// uses that the last one had, and they have taken many times what it has lost with the slower way.
// Plain data without addresses, no clock: whoever uses it measures. Used by the thread that runs the rank's plan.
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef enum { TT_WAY_COPY, TT_WAY_PAGES, TT_NWAYS } tt_way; // device/host/offer.h

// A sample has as many uses as its call: at least two, because calls may be made of two different ones, and TT_TASTE_CALL at most. Of longer calls it need not
// hold the use that waits for the others.
enum {
  TT_TASTE_SAMPLES = 4, // of each way that a trial compares, at most, behind one that warms up
  TT_TASTE_PERIOD = 8,  // uses that a sample's time is told for
  TT_TASTE_CALL = 34,   // just over a block of 32 MiB in chunks of a pipe's length, which are 33
  TT_TASTE_PATIENCE =
      20,            // samples' uses of a trial in all: the way that is tried may not be to be had, and what is under way goes the old one
  TT_TASTE_REST = 8, // uses between two trials: at least so many times those of the last one,
  TT_TASTE_WORTH = 32,  // and so many times what it has lost,
  TT_TASTE_LONG = 4096, // but no more than this, if the time is over
  TT_TASTE_LOOK = 16,   // uses between two looks at the clock
  TT_TASTE_ALARM = 2,   // samples in a row that make one, and samples of the other way in the trial that follows
  TT_TASTE_WATCH_NS =
      TT_TASTE_PERIOD * 20000,    // of samples that are watched between trials: shorter ones would pay for the clock, and are many
  TT_TASTE_SOON_NS = 1500000,     // between two trials: first so long, then four times as long after each one that has turned nothing,
  TT_TASTE_LATE_NS = 64 * 1500000 // at most
};

// Zeroed: nothing is known, COPY is liked, and a trial is on.
typedef struct tt_taste {
  uint8_t liked, last;         // tt_way of most uses, and of this trial's last one
  bool resting;                // no trial is on
  bool watching;               // resting: samples are taken all the same
  bool alarmed;                // this trial, or the last one, has begun because the liked way had become slow
  uint8_t slow;                // such samples in a row
  uint8_t seen[TT_NWAYS];      // samples of this trial
  uint8_t period, part;        // uses of a sample, and of the one that is being taken so far
  uint16_t left;               // resting: uses until the clock is looked at
  uint16_t spent;              // uses since this trial began
  uint32_t pause_ns;           // between the last two trials; 0: there was none yet
  uint32_t sum_ns;             // of the uses so far
  uint32_t least_slow_ns;      // of the slow samples
  uint32_t least_ns[TT_NWAYS]; // of this trial's samples, for TT_TASTE_PERIOD uses
  uint64_t due_ns;             // resting: when the next trial begins
} tt_taste;

// Is a trial on?
static inline bool tt_taste_tries(const tt_taste *t)
{
  return !t->resting;
}

// Is none on, but the liked way's time looked after?
static inline bool tt_taste_watches(const tt_taste *t)
{
  return t->resting && t->watching;
}

// The way the next use should go: of a trial first the liked one, then the other.
tt_way tt_taste_wants(const tt_taste *t);

// Is the time to be told with the next use?
static inline bool tt_taste_looks(const tt_taste *t)
{
  return !t->resting || t->watching || t->left <= 1;
}

// A use, as one has it.
typedef struct tt_use {
  tt_way way;
  int period;      // uses of the call it belongs to
  uint64_t ns;     // how long it took: does not matter unless tt_taste_looks
  uint64_t now_ns; // when it ended: does not matter unless tt_taste_looks
} tt_use;

// Takes note of a use. True: that ended the first trial, or one that has turned the taste.
bool tt_taste_add(tt_taste *t, const tt_use *use);
