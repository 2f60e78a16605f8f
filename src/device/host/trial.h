// trial.h: which of two ways of handing data over takes less time, found by timing both.
//
// The rule in five sentences. A sample is the time of as many chunks as a call has, TT_TRIAL_CHUNKS at most. A trial
// takes TT_TRIAL_SAMPLES of the chosen way, then as many of the other; the first of each warms up and does not count.
// The least sample of each way counts, because a disturbance only makes a sample longer. The other way is chosen if its
// least sample is shorter by a twentieth or more. Nothing is timed until the next trial, which begins when the chunks
// since have taken TT_TRIAL_PAUSE_NS, and TT_TRIAL_WORTH times what this trial has lost with the slower way, or after
// TT_TRIAL_REST chunks.
//
// A tt_trial is for calls of about one size with one peer, and belongs to the rank that reads. It is plain data without
// addresses and without a clock: the caller measures. Only the thread that runs the rank's plan uses it.
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef enum { TT_WAY_COPY, TT_WAY_PAGES, TT_NWAYS } tt_way; // device/host/offer.h

enum {
  TT_TRIAL_CHUNKS = 8,
  TT_TRIAL_SAMPLES = 5,
  TT_TRIAL_MOST = 20, // samples' chunks after which a trial ends in any case: the other way may be unavailable
  TT_TRIAL_PAUSE_NS = 5000000,
  TT_TRIAL_WORTH = 32,
  TT_TRIAL_REST = 5000, // so that a wrong choice does not last
};

// Zeroed: COPY is chosen, and the first trial is on.
typedef struct tt_trial {
  uint8_t chosen, last;        // tt_way between trials, and of the last chunk
  bool decided;                // the first trial has ended
  uint8_t chunks, part;        // chunks of a sample, and those of the current sample so far
  uint8_t samples[TT_NWAYS];   // of this trial
  uint16_t spent;              // chunks since this trial began
  uint32_t rest;               // chunks until the next trial begins; 0: one is on
  uint32_t sum_ns;             // of the current sample
  uint32_t least_ns[TT_NWAYS]; // of this trial's samples, per chunk; 0: there is none
} tt_trial;

// Is a trial on? Then chunks are timed.
static inline bool tt_trial_is_on(const tt_trial *t)
{
  return t->rest == 0;
}

// The way that the next chunk should go.
static inline tt_way tt_trial_way(const tt_trial *t)
{
  bool other = tt_trial_is_on(t) && t->samples[t->chosen] >= TT_TRIAL_SAMPLES;
  return (tt_way)(other ? !t->chosen : t->chosen);
}

// Notes that a chunk of a call of `chunks` chunks came by `way`, and took `ns` (UINT32_MAX or more: unknown; ignored
// between trials). True: this ended the first trial, or a trial that changed the choice.
bool tt_trial_add(tt_trial *t, tt_way way, int chunks, uint64_t ns);
