// zerocopy.c: see zerocopy.h.
#include "coll/zerocopy.h"

#include "base/result.h"
#include "base/util.h"

enum { NOBODY = -1, SEVERAL = -2 };

// The users of an output chunk: one strand, and then at which of its steps first and last, or several.
typedef struct chunk_use {
  int toucher, first_touch; // reads and writes
  int writer, last_write;
} chunk_use;

typedef struct marker {
  tt_schedule *s;
  bool in_place;
  chunk_use *uses; // by output chunk
} marker;

// Blocks between an input block and the output block that it is in a call in place.
static int shift_of(const tt_schedule *s)
{
  return s->out_blocks > s->in_blocks ? s->rank : s->out_blocks < s->in_blocks ? -s->rank : 0;
}

// How the output chunk is used that a reference names; NULL: it names none.
static chunk_use *use_of(const marker *m, const tt_ref *r)
{
  const tt_schedule *s = m->s;
  if (r->kind == TT_OUT) {
    return &m->uses[r->chunk];
  }
  if (r->kind != TT_IN || !m->in_place) {
    return NULL;
  }
  int64_t chunk = (int64_t)r->chunk + (int64_t)shift_of(s) * s->nsub;
  return chunk >= 0 && chunk < (int64_t)s->out_blocks * s->nsub ? &m->uses[chunk] : NULL;
}

static void zerocopy_note(const marker *m, int strand, int step, const tt_ref *r, bool write)
{
  chunk_use *u = use_of(m, r);
  if (u == NULL) {
    return;
  }
  if (u->toucher == NOBODY) {
    u->first_touch = step;
  }
  u->toucher = u->toucher == NOBODY || u->toucher == strand ? strand : SEVERAL;
  if (write) {
    u->writer = u->writer == NOBODY || u->writer == strand ? strand : SEVERAL;
    u->last_write = step;
  }
}

static void zerocopy_survey(const marker *m)
{
  const tt_schedule *s = m->s;
  for (int i = 0; i < s->out_blocks * s->nsub; i++) {
    m->uses[i] = (chunk_use){.toucher = NOBODY, .writer = NOBODY};
  }
  for (int k = 0; k < s->nstrands; k++) {
    for (uint32_t i = s->strands[k].first; i < s->strands[k].first + s->strands[k].count; i++) {
      for (int r = 0; r < s->steps[i].nsrc; r++) {
        zerocopy_note(m, k, (int)i, &s->refs[s->steps[i].src + (uint32_t)r], false);
      }
      for (int r = 0; r < s->steps[i].ndst; r++) {
        zerocopy_note(m, k, (int)i, &s->refs[s->steps[i].dst + (uint32_t)r], true);
      }
    }
  }
}

// The first destination of a kind, or NULL.
static const tt_ref *destination(const tt_schedule *s, const tt_step *step, int kind)
{
  for (int i = 0; i < step->ndst; i++) {
    if (s->refs[step->dst + (uint32_t)i].kind == kind) {
      return &s->refs[step->dst + (uint32_t)i];
    }
  }
  return NULL;
}

static bool may_lend(const marker *m, int strand, int i)
{
  const tt_schedule *s = m->s;
  const tt_step *step = &s->steps[i];
  const tt_ref *lender = destination(s, step, TT_OUT), *src = &s->refs[step->src];
  if (destination(s, step, TT_FIFO) == NULL) {
    return false;
  }
  if (lender == NULL && step->nsrc == 1 && (src->kind == TT_IN || src->kind == TT_OUT)) {
    lender = src;
  }
  if (lender == NULL) {
    return false;
  }
  const chunk_use *u = use_of(m, lender);
  return u == NULL || u->writer == NOBODY || (u->writer == strand && u->last_write <= i);
}

static bool may_place(const marker *m, int i)
{
  const tt_schedule *s = m->s;
  const tt_step *step = &s->steps[i];
  const tt_ref *out = destination(s, step, TT_OUT);
  if (out == NULL || step->nsrc != 1 || s->refs[step->src].kind != TT_FIFO || (step->flags & TT_STEP_REDUCE)) {
    return false;
  }
  const chunk_use *u = use_of(m, out);
  return u->toucher != SEVERAL && u->first_touch == i;
}

static void zerocopy_mark(const marker *m, unsigned lend, unsigned place)
{
  tt_schedule *s = m->s;
  zerocopy_survey(m);
  for (int k = 0; k < s->nstrands; k++) {
    for (uint32_t i = s->strands[k].first; i < s->strands[k].first + s->strands[k].count; i++) {
      unsigned flags = (may_lend(m, k, (int)i) ? lend : 0) | (may_place(m, (int)i) ? place : 0);
      s->steps[i].flags = (uint16_t)(s->steps[i].flags | flags);
    }
  }
}

ncclResult_t tt_zerocopy_mark(tt_schedule *s)
{
  for (int i = 0; i < s->nrefs; i++) {
    if (s->refs[i].kind > TT_FIFO) {
      return ncclSuccess; // peers reach into these buffers
    }
  }
  marker m = {.s = s, .uses = tt_calloc((size_t)TT_MAX(s->out_blocks * s->nsub, 1), sizeof(chunk_use))};
  if (m.uses == NULL) {
    return tt_fail(ncclSystemError, "rank %d: no memory for a schedule of %d steps", s->rank, s->nsteps);
  }
  zerocopy_mark(&m, TT_STEP_LEND, TT_STEP_PLACE);
  m.in_place = true;
  zerocopy_mark(&m, TT_STEP_LEND_IN_PLACE, TT_STEP_PLACE_IN_PLACE);
  tt_free(m.uses);
  return ncclSuccess;
}

tt_buffers tt_zerocopy_buffers(const tt_schedule *s, const void *in, const void *out, size_t bytes)
{
  uintptr_t i = (uintptr_t)in, o = (uintptr_t)out;
  uintptr_t in_end = i + (size_t)s->in_blocks * bytes, out_end = o + (size_t)s->out_blocks * bytes;
  if (i >= out_end || o >= in_end || i == in_end || o == out_end) {
    return TT_BUFFERS_APART;
  }
  return i == o + (uintptr_t)(intptr_t)shift_of(s) * bytes ? TT_BUFFERS_IN_PLACE : TT_BUFFERS_MIXED;
}
