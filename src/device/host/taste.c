// taste.c: see taste.h.
#include "device/taste.h"

#include "base/util.h"

#define USES (1 + 2 * TT_TASTE_SAMPLES) // of a way in a trial: one that warms its memory up, and two for each sample

tt_way tt_taste_wants(const tt_taste *t)
{
  bool other = !t->resting && t->seen[t->liked] >= USES;
  return (tt_way)(other ? !t->liked : t->liked);
}

// Is it plain after the first samples of the other way? Then the slower one of two that differ that much is not used any longer.
static bool is_plain(const tt_taste *t)
{
  uint64_t ours = t->least_ns[t->liked], others = t->least_ns[!t->liked];
  return t->seen[t->liked] >= USES && t->seen[!t->liked] >= 3 && (others > 2 * ours || (t->seen[!t->liked] >= 5 && 2 * others < ours));
}

// The trial is over.
static bool decide(tt_taste *t)
{
  bool news = t->rest == 0;
  uint64_t ours = t->least_ns[t->liked], others = t->least_ns[!t->liked];
  bool told = t->seen[!t->liked] >= 3; // else it was not to be had
  if (told && others * 10 < ours * 9) {
    t->liked = !t->liked;
    t->rest = TT_TASTE_REST;
    news = true;
  } else {
    uint32_t longer = t->rest == 0 ? TT_TASTE_REST : 4u * t->rest;
    t->rest = (uint16_t)TT_MIN(longer, (uint32_t)(told && others * 4 < ours * 5 ? TT_TASTE_CLOSE : TT_TASTE_LONG));
  }
  t->left = t->rest;
  t->resting = true;
  return news;
}

// Samples are of two uses that follow one another, because calls may be made of two different ones.
static void add_sample(tt_taste *t, tt_way way, uint32_t ns)
{
  int n = t->seen[way];
  if (n % 2 == 1) {
    t->first_ns = ns;
  } else if (n > 0) {
    uint32_t both = ns < UINT32_MAX - t->first_ns ? t->first_ns + ns : UINT32_MAX;
    t->least_ns[way] = n == 2 ? both : TT_MIN(t->least_ns[way], both);
  }
}

bool tt_taste_add(tt_taste *t, tt_way way, uint64_t ns)
{
  if (t->resting) {
    if (--t->left == 0) {
      *t = (tt_taste){.liked = t->liked, .rest = t->rest};
    }
    return false;
  }
  if (way != t->last && t->seen[way] % 2 == 0 && t->seen[way] > 0) {
    t->seen[way]--; // what came in between has parted a sample's two
  }
  t->last = (uint8_t)way;
  if (t->seen[way] < USES) {
    add_sample(t, way, (uint32_t)TT_MIN(ns, (uint64_t)UINT32_MAX));
    t->seen[way]++;
  }
  t->spent++;
  bool over = t->seen[!t->liked] >= USES || is_plain(t) || t->spent >= TT_TASTE_PATIENCE;
  return over && decide(t);
}
