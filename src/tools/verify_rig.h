// verify_rig.h: for tests: the schedules of all ranks, written by a row of the table and put before the verifier.
#pragma once
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "coll/coll.h"
#include "tools/verify.h"

// Sanitizers make this pure arithmetic ten times slower and see nothing new beyond a few dozen ranks.
#if defined(TT_TSAN) || defined(TT_ASAN)
enum { MOST = 24 };
#else
enum { MOST = 64 };
#endif

typedef struct ranks {
  tt_schedule *s[MOST];
  int count;
} ranks;

// Is the function one of the two ends of a message?
static inline int is_p2p(tt_func f)
{
  return f == TT_FUNC_SEND || f == TT_FUNC_RECV;
}

// Is the function a collective with a root?
static inline int is_rooted(tt_func f)
{
  return f == TT_FUNC_BROADCAST || f == TT_FUNC_REDUCE || f == TT_FUNC_GATHER || f == TT_FUNC_SCATTER;
}

// Frees what write_shape gave.
static inline void free_ranks(ranks *r)
{
  for (int i = 0; i < r->count; i++) {
    tt_schedule_free(r->s[i]);
  }
  r->count = 0;
}

// The schedules of all ranks for a shape that differs in the rank alone.
static inline ranks write_shape(const tt_algorithm *a, tt_shape shape)
{
  ranks r = {.count = shape.nranks};
  for (int i = 0; i < shape.nranks; i++) {
    shape.rank = i;
    assert_int_equal(tt_algorithm_write(a, &shape, &r.s[i]), ncclSuccess);
  }
  return r;
}

// Fails the test, saying why, unless the verifier finds the schedules right.
static inline void expect_right(const ranks *r, const tt_verify_options *o, const char *name)
{
  char why[600] = "";
  if (tt_verify((const tt_schedule *const *)r->s, o, why, sizeof why) != ncclSuccess) {
    fail_msg("%s %s, %d ranks, root %d, %d slots, %d loops, %s: %s", name, tt_func_name(o->func), r->s[0]->nranks,
             o->root, o->slots, o->loops, o->in_place ? "in place" : "out of place", why);
  }
}

// How much to try with the schedules of one call.
typedef enum {
  BRIEF, // one slot, one pass, in place or not by turns: what the many roots of many ranks get
  FAIR,  // one slot, two passes out of place, one in place
  FULL   // 1, 2, 8 slots and 1, 2, 3 passes, in place and not
} effort;

// The schedules with connections of so many slots, in place or not, with as many passes as the effort says.
static inline void check_passes(const ranks *r, tt_verify_options o, const char *name, effort e)
{
  int most = e == FULL ? 3 : e == FAIR && !o.in_place ? 2 : 1;
  for (o.loops = e == FULL ? 1 : most; o.loops <= most; o.loops++) {
    expect_right(r, &o, name);
  }
}

// Does the table promise sums in the order of the ranks? `name`: the algorithm's, and what else follows a blank.
static inline int is_ordered(const char *name, tt_func f)
{
  char row[32] = "";
  snprintf(row, sizeof row, "%.*s", (int)strcspn(name, " "), name);
  int found = tt_algorithm_find(row);
  assert_true(found >= 0);
  return tt_func_reduces(f) && (TT_ALGOS_IN_ORDER >> found & 1) != 0;
}

// The schedules with as many slots and passes as the effort says. `name`: the algorithm's, for messages.
static inline void check_ranks(const ranks *r, tt_func f, int root, const char *name, effort e)
{
  static const int slots[] = {1, 2, 8};
  for (int in_place = 0; in_place < 2; in_place++) {
    if (e == BRIEF && in_place != ((root + r->count) & 1)) {
      continue;
    }
    for (int k = 0; k < (e == FULL ? 3 : 1); k++) {
      tt_verify_options o = {
          .func = f, .root = root, .slots = slots[k], .in_place = in_place, .count = is_p2p(f) ? 2 : 0};
      o.in_order = is_ordered(name, f);
      check_passes(r, o, name, e);
    }
  }
}

// Calls `check` for every algorithm and every function it knows.
static inline void each_row(void (*check)(const tt_algorithm *a, tt_func f))
{
  int count;
  const tt_algorithm *table = tt_algorithms(&count);
  for (int i = 0; i < count; i++) {
    for (int f = 0; f < TT_NFUNCS; f++) {
      if (table[i].funcs >> f & 1) {
        check(&table[i], (tt_func)f);
      }
    }
  }
}
