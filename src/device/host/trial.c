// trial.c: see trial.h.
#include "device/host/trial.h"

#include "base/util.h"

// Only chunks of one way that follow one another make a sample. True: it is complete.
static bool trial_sample(tt_trial *t, tt_way way, int chunks, uint64_t ns)
{
  chunks = TT_CLAMP(chunks, 2, TT_TRIAL_CHUNKS); // of single chunks two, because calls of two kinds may alternate
  if (way != t->last || chunks != t->chunks) {
    t->part = 0;
  }
  t->last = (uint8_t)way;
  t->chunks = (uint8_t)chunks;
  uint64_t sum_ns = (t->part == 0 ? 0 : t->sum_ns) + TT_MIN(ns, (uint64_t)UINT32_MAX);
  t->sum_ns = (uint32_t)TT_MIN(sum_ns, (uint64_t)UINT32_MAX);
  t->part = (uint8_t)((t->part + 1) % chunks);
  return t->part == 0;
}

// Counts the sample that is complete, unless it is the first one of its way, or its time is unknown.
static void trial_count(tt_trial *t, tt_way way)
{
  uint32_t ns = TT_MAX(t->sum_ns / t->chunks, 1u), least_ns = t->least_ns[way];
  if (t->samples[way]++ > 0 && t->sum_ns < UINT32_MAX) {
    t->least_ns[way] = least_ns == 0 ? ns : TT_MIN(least_ns, ns);
  }
}

// Chunks until the next trial begins. The times are per chunk of the way that is chosen now, and of the other.
static uint32_t trial_rest(const tt_trial *t, uint64_t chosen_ns, uint64_t other_ns)
{
  uint64_t tried = TT_TRIAL_SAMPLES * (uint64_t)t->chunks,
           lost_ns = other_ns > chosen_ns ? tried * (other_ns - chosen_ns) : 0;
  uint64_t rest_ns = TT_MAX(TT_TRIAL_WORTH * lost_ns, (uint64_t)TT_TRIAL_PAUSE_NS);
  return (uint32_t)TT_CLAMP(rest_ns / TT_MAX(chosen_ns, 1), (uint64_t)1, (uint64_t)TT_TRIAL_REST);
}

// Ends the trial. True: it was the first one, or it has changed the choice.
static bool trial_end(tt_trial *t)
{
  uint64_t chosen_ns = t->least_ns[t->chosen], other_ns = t->least_ns[!t->chosen];
  if (chosen_ns == 0 || other_ns == 0) { // one was unavailable
    chosen_ns = other_ns = TT_MAX(chosen_ns, other_ns);
  }
  bool turn = other_ns * 20 < chosen_ns * 19, news = turn || !t->decided;
  t->rest = turn ? trial_rest(t, other_ns, chosen_ns) : trial_rest(t, chosen_ns, other_ns);
  t->chosen = turn ? !t->chosen : t->chosen;
  t->decided = true;
  return news;
}

bool tt_trial_add(tt_trial *t, tt_way way, int chunks, uint64_t ns)
{
  if (!tt_trial_is_on(t)) {
    if (--t->rest == 0) {
      *t = (tt_trial){.chosen = t->chosen, .decided = true};
    }
    return false;
  }
  if (trial_sample(t, way, chunks, ns) && t->samples[way] < TT_TRIAL_SAMPLES) {
    trial_count(t, way);
  }
  t->spent++;
  bool over = t->samples[!t->chosen] >= TT_TRIAL_SAMPLES || t->spent >= TT_TRIAL_MOST * t->chunks;
  return over && trial_end(t);
}
