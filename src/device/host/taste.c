// taste.c: see taste.h.
#include "device/host/taste.h"

#include "base/util.h"

#define ENOUGH (1 + TT_TASTE_SAMPLES) // samples of a way, with the one that warms up

tt_way tt_taste_wants(const tt_taste *t)
{
  bool other = !t->resting && t->seen[t->liked] >= ENOUGH;
  return (tt_way)(other ? !t->liked : t->liked);
}

// Is it plain after the first samples of the other way? Then the slower one of two that differ that much is not used any longer.
static bool is_plain(const tt_taste *t)
{
  uint64_t ours = t->least_ns[t->liked], others = t->least_ns[!t->liked];
  return t->seen[t->liked] >= ENOUGH && t->seen[!t->liked] >= 3 && (others > 2 * ours || 2 * others < ours);
}

// Uses at least until the next trial.
static uint16_t rest_of(const tt_taste *t)
{
  return (uint16_t)TT_MIN(TT_TASTE_REST * t->spent, TT_TASTE_LONG);
}

// Uses that take TT_TASTE_WORTH times as long as the trial has lost.
static uint16_t uses_to_rest(const tt_taste *t, uint64_t liked_ns, uint64_t other_ns)
{
  uint64_t more_ns = other_ns > liked_ns ? other_ns - liked_ns : 0, uses = (uint64_t)t->seen[!t->liked] * t->period;
  return (uint16_t)TT_CLAMP(TT_TASTE_WORTH * uses * more_ns / TT_MAX(liked_ns, 1), (uint64_t)rest_of(t), (uint64_t)TT_TASTE_LONG);
}

// Is the other way to be liked? Where it gains a twentieth; a fifth where only few samples tell.
static bool turns(const tt_taste *t)
{
  uint64_t ours = t->least_ns[t->liked], others = t->least_ns[!t->liked];
  return t->alarmed ? others * 5 < ours * 4 : others * 20 < ours * 19;
}

// The trial is over.
static bool decide(tt_taste *t, uint64_t now_ns)
{
  bool news = t->pause_ns == 0;
  uint64_t ours = t->least_ns[t->liked], others = t->least_ns[!t->liked];
  bool told = TT_MIN(t->seen[0], t->seen[1]) >= 2; // else one was not to be had
  t->left = told ? uses_to_rest(t, ours, others) : rest_of(t);
  t->pause_ns = news ? TT_TASTE_SOON_NS : TT_MIN(4 * t->pause_ns, (uint32_t)TT_TASTE_LATE_NS);
  if (told && turns(t)) {
    t->liked = !t->liked;
    t->pause_ns = TT_TASTE_SOON_NS;
    news = true;
  }
  t->watching = told && t->least_ns[t->liked] >= TT_TASTE_WATCH_NS && !t->alarmed; // an alarm is the last before the next trial
  t->slow = 0;
  t->part = 0;
  t->due_ns = now_ns + t->pause_ns;
  t->resting = true;
  return news;
}

// Only uses that follow one another make a sample. Its time, for TT_TASTE_PERIOD uses, when it is complete; else 0.
static uint32_t sample_of(tt_taste *t, const tt_use *use)
{
  int period = TT_CLAMP(use->period, 2, TT_TASTE_CALL);
  if (t->part > 0 && (use->way != t->last || period != t->period)) {
    t->part = 0;
  }
  t->last = (uint8_t)use->way;
  t->period = (uint8_t)period;
  t->sum_ns = t->part == 0 ? 0 : t->sum_ns;
  t->sum_ns = use->ns < UINT32_MAX - t->sum_ns ? t->sum_ns + (uint32_t)use->ns : UINT32_MAX;
  if (++t->part < period) {
    return 0;
  }
  t->part = 0;
  if (t->sum_ns == UINT32_MAX) { // a time that is not known, or too long, is none of so many uses either
    return UINT32_MAX;
  }
  uint64_t all_ns = (uint64_t)t->sum_ns * TT_TASTE_PERIOD / (unsigned)period;
  return (uint32_t)TT_CLAMP(all_ns, (uint64_t)1, (uint64_t)UINT32_MAX);
}

static void add_to_trial(tt_taste *t, const tt_use *use)
{
  uint32_t ns = sample_of(t, use), *least = &t->least_ns[use->way];
  if (ns > 0 && t->seen[use->way] < ENOUGH) {
    *least = t->seen[use->way] <= 1 ? ns : TT_MIN(*least, ns);
    t->seen[use->way]++;
  }
}

// Does the liked way take so much longer than it did, and longer than the other one did, that this is to be looked into at once?
static bool has_worsened(tt_taste *t, const tt_use *use)
{
  uint32_t ns = sample_of(t, use);
  if (ns == 0 || ns == UINT32_MAX) {
    return false;
  }
  bool slow = use->way == t->liked && ns / 3 > t->least_ns[t->liked] / 2 && ns > t->least_ns[!t->liked];
  t->least_slow_ns = t->slow == 0 ? ns : TT_MIN(t->least_slow_ns, ns);
  t->slow = slow ? t->slow + 1 : 0;
  return t->slow == TT_TASTE_ALARM;
}

static void rest(tt_taste *t, const tt_use *use)
{
  bool alarm = tt_taste_watches(t) && has_worsened(t, use);
  if (alarm) { // the samples that tell are the liked way's
    tt_taste trial = {.liked = t->liked, .pause_ns = t->pause_ns, .alarmed = true};
    trial.seen[t->liked] = ENOUGH;
    trial.least_ns[t->liked] = t->least_slow_ns;
    *t = trial;
  } else if (--t->left == 0) {
    t->left = TT_TASTE_LOOK;
    *t = use->now_ns < t->due_ns ? *t : (tt_taste){.liked = t->liked, .pause_ns = t->pause_ns};
  }
}

bool tt_taste_add(tt_taste *t, const tt_use *use)
{
  if (t->resting) {
    rest(t, use);
    return false;
  }
  add_to_trial(t, use);
  t->spent++;
  int enough = t->alarmed ? 1 + TT_TASTE_ALARM : ENOUGH;
  bool over = t->seen[!t->liked] >= enough || is_plain(t) || t->spent >= TT_TASTE_PATIENCE * t->period;
  return over && decide(t, use->now_ns);
}
