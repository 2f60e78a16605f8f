// build.c: growing arrays of strands, steps and references.
#include "coll/build.h"

#include <stdbool.h>

#include "base/result.h"
#include "base/util.h"

static void fail_memory(tt_build *b, size_t bytes)
{
  b->res = tt_fail(ncclSystemError, "out of memory: %zu bytes for a schedule", bytes);
}

// Makes room for one more element behind `used`; false when the builder has failed.
static bool build_grow(tt_build *b, void **array, int used, int *room, size_t size)
{
  if (b->res != ncclSuccess) {
    return false;
  }
  if (used < *room) {
    return true;
  }
  int more = TT_MAX(16, *room * 2);
  void *p = tt_calloc((size_t)more, size);
  if (!p) {
    fail_memory(b, (size_t)more * size);
    return false;
  }
  if (used > 0) {
    memcpy(p, *array, (size_t)used * size);
  }
  tt_free(*array);
  *array = p;
  *room = more;
  return true;
}

void tt_build_begin(tt_build *b, const tt_shape *shape, int nsub)
{
  *b = (tt_build){.res = ncclSuccess};
  b->s = tt_calloc(1, sizeof *b->s);
  if (!b->s) {
    fail_memory(b, sizeof *b->s);
    return;
  }
  b->s->nranks = shape->nranks;
  b->s->rank = shape->rank;
  b->s->in_blocks = tt_func_in_blocks(shape);
  b->s->out_blocks = tt_func_out_blocks(shape);
  b->s->nsub = nsub;
}

void tt_build_tmp(tt_build *b, int nslots)
{
  if (b->res == ncclSuccess) {
    b->s->ntmp = TT_MAX(b->s->ntmp, nslots);
  }
}

// A step that came out without references (a rank that has nobody to wait for) is none.
static void drop_empty_step(tt_build *b)
{
  tt_step *last = b->s->nsteps > 0 ? &b->s->steps[b->s->nsteps - 1] : NULL;
  if (last && last->nsrc + last->ndst == 0) {
    b->s->nsteps--;
    b->s->strands[b->s->nstrands - 1].count--;
  }
}

static void drop_empty_strand(tt_build *b)
{
  drop_empty_step(b);
  if (b->s->nstrands > 0 && b->s->strands[b->s->nstrands - 1].count == 0) {
    b->s->nstrands--;
  }
}

void tt_build_strand(tt_build *b)
{
  if (b->res != ncclSuccess) {
    return;
  }
  drop_empty_strand(b);
  if (build_grow(b, (void **)&b->s->strands, b->s->nstrands, &b->strand_room, sizeof *b->s->strands)) {
    b->s->strands[b->s->nstrands++] = (tt_strand){.first = (uint32_t)b->s->nsteps};
  }
}

void tt_build_step(tt_build *b, unsigned flags, uint32_t sub)
{
  if (b->res == ncclSuccess) {
    drop_empty_step(b);
  }
  if (!build_grow(b, b->s ? (void **)&b->s->steps : NULL, b->s ? b->s->nsteps : 0, &b->step_room, sizeof(tt_step))) {
    return;
  }
  if (b->s->nstrands == 0) {
    b->res = tt_fail(ncclInternalError, "schedule of rank %d: a step before the first strand", b->s->rank);
    return;
  }
  uint32_t at = (uint32_t)b->s->nrefs;
  b->s->steps[b->s->nsteps++] = (tt_step){.flags = (uint16_t)flags, .sub = sub, .src = at, .dst = at};
  b->s->strands[b->s->nstrands - 1].count++;
}

// Appends a reference to the current step and returns the step; NULL when the builder has failed.
static tt_step *build_add_ref(tt_build *b, tt_ref ref)
{
  if (!build_grow(b, b->s ? (void **)&b->s->refs : NULL, b->s ? b->s->nrefs : 0, &b->ref_room, sizeof(tt_ref))) {
    return NULL;
  }
  tt_step *step = b->s->nsteps > 0 ? &b->s->steps[b->s->nsteps - 1] : NULL;
  if (!step || step->nsrc == UINT16_MAX || step->ndst == UINT16_MAX) {
    b->res = tt_fail(ncclInternalError, "schedule of rank %d: a reference outside of a step, or more than 65535 in one",
                     b->s->rank);
    return NULL;
  }
  if (ref.peer < 0) {
    ref.peer = b->s->rank;
  }
  b->s->refs[b->s->nrefs++] = ref;
  return step;
}

void tt_build_from(tt_build *b, tt_ref ref)
{
  tt_step *step = build_add_ref(b, ref);
  if (step && step->ndst > 0) {
    b->res = tt_fail(ncclInternalError, "schedule of rank %d: a source after a destination", b->s->rank);
  } else if (step) {
    step->nsrc++;
    step->dst++;
  }
}

void tt_build_to(tt_build *b, tt_ref ref)
{
  tt_step *step = build_add_ref(b, ref);
  if (step) {
    step->ndst++;
  }
}

void tt_build_copy(tt_build *b, uint32_t sub, tt_ref from, tt_ref to)
{
  tt_build_step(b, 0, sub);
  tt_build_from(b, from);
  tt_build_to(b, to);
}

void tt_build_tell_all(tt_build *b)
{
  tt_build_step(b, 0, 0);
  for (int i = 1; b->s && i < b->s->nranks; i++) {
    tt_build_to(b, tt_ref_token((b->s->rank + i) % b->s->nranks));
  }
}

void tt_build_hear_all(tt_build *b)
{
  tt_build_step(b, 0, 0);
  for (int i = 1; b->s && i < b->s->nranks; i++) {
    tt_build_from(b, tt_ref_token((b->s->rank + i) % b->s->nranks));
  }
}

ncclResult_t tt_build_end(tt_build *b, tt_schedule **out)
{
  if (b->res != ncclSuccess) {
    tt_schedule_free(b->s);
    b->s = NULL;
    return b->res;
  }
  drop_empty_strand(b);
  *out = b->s;
  b->s = NULL;
  return ncclSuccess;
}
