// cover.h: a covering design: few cases in which every pair of values of two parameters occurs, unless it cannot.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { COVER_PARAMS = 12, COVER_VALUES = 32, COVER_TRIES = 40, COVER_UNKNOWN = -1 };

typedef struct cover_case {
  int8_t of[COVER_PARAMS]; // the value of each parameter; COVER_UNKNOWN: none yet
} cover_case;

// `allowed` looks at what is known of a case. It must be true as long as the rest can make the case good.
typedef struct cover_plan {
  int params;
  const int *values; // of each parameter
  bool (*allowed)(const cover_case *c);
  uint32_t draw; // state
  bool done[COVER_PARAMS][COVER_VALUES][COVER_PARAMS][COVER_VALUES];
} cover_plan;

static inline uint32_t cover_draw(cover_plan *p, uint32_t below)
{
  p->draw = p->draw * 1664525u + 1013904223u;
  return (uint32_t)((uint64_t)p->draw * below >> 32);
}

// Draws what is not known yet. False: nothing is allowed.
static inline bool cover_fill(cover_plan *p, cover_case *c)
{
  for (int i = 0; i < p->params; i++) {
    if (c->of[i] != COVER_UNKNOWN) {
      continue;
    }
    const int n = p->values[i], from = (int)cover_draw(p, (uint32_t)n);
    int k = 0;
    do {
      c->of[i] = (int8_t)((from + k) % n);
    } while (!p->allowed(c) && ++k < n);
    if (k == n) {
      return false;
    }
  }
  return true;
}

// How many pairs the case has that no case has had; `mark`: from now on one has.
static inline int cover_gain(cover_plan *p, const cover_case *c, bool mark)
{
  int gain = 0;
  for (int i = 0; i < p->params; i++) {
    for (int j = i + 1; j < p->params; j++) {
      bool *done = &p->done[i][c->of[i]][j][c->of[j]];
      gain += !*done;
      *done |= mark;
    }
  }
  return gain;
}

// The best of some cases that have the pair. False: none can have it.
static inline bool cover_pair(cover_plan *p, const int pair[4], cover_case *out)
{
  int best = 0;
  for (int k = 0; k < COVER_TRIES; k++) {
    cover_case c;
    memset(c.of, COVER_UNKNOWN, sizeof c.of);
    c.of[pair[0]] = (int8_t)pair[1];
    c.of[pair[2]] = (int8_t)pair[3];
    if (!p->allowed(&c) || !cover_fill(p, &c)) {
      continue;
    }
    const int gain = cover_gain(p, &c, false);
    if (gain > best) {
      best = gain;
      *out = c;
    }
  }
  return best > 0;
}

// Writes the design, at most `room` cases. Returns how many. The same plan gives the same design.
static inline size_t cover_pairs(cover_plan *p, cover_case *out, size_t room)
{
  size_t n = 0;
  int at[4];
  for (at[0] = 0; at[0] < p->params; at[0]++) {
    for (at[2] = at[0] + 1; at[2] < p->params; at[2]++) {
      for (at[1] = 0; at[1] < p->values[at[0]]; at[1]++) {
        for (at[3] = 0; at[3] < p->values[at[2]] && n < room; at[3]++) {
          if (!p->done[at[0]][at[1]][at[2]][at[3]] && cover_pair(p, at, &out[n])) {
            cover_gain(p, &out[n++], true);
          }
        }
      }
    }
  }
  return n;
}
