// level.c: see level.h.
#include "coll/level.h"

#include "base/result.h"
#include "base/util.h"

// As many messages as a connection holds at least. More are tried if the schedules do not end with fewer: with these
// they wait for less.
enum { SLOTS_MOST = 16 };

// One direction of a connection, for messages or for tokens: counts now, and at the beginning of the round.
typedef struct line {
  uint32_t sent, taken;
  uint32_t was_sent, was_taken;
  bool touched;
} line;

// A strand, at a step.
typedef struct actor {
  tt_schedule *s;
  uint32_t first, pos, count;
} actor;

typedef struct levels {
  const tt_algorithm *algorithm;
  const tt_shape *shape; // of the own schedule
  int n;                 // ranks whose schedules run together: all, or the two ends of a message
  tt_schedule **all;     // `nall` of them
  int nall;
  line *lines; // (from * n + to) * 2 + token, by place
  line **touched;
  int ntouched;
  actor *actors;
  int nactors;
  uint32_t slots;
  bool late; // the steps take more rounds than a level can count
} levels;

// The place of a rank among those whose schedules run together; -1: it is none of them, but a network.
static int level_place(const levels *w, int rank)
{
  if (!tt_func_is_message(w->shape->func)) {
    return rank < w->n ? rank : -1;
  }
  return rank == w->shape->rank ? 0 : rank == w->shape->root ? 1 : -1;
}

// The line of a reference; of TT_DRAIN that of the tokens to the peer; NULL: none, or that of a network, which sums
// whatever comes.
static line *level_line_of(const levels *w, const tt_ref *r, int rank, bool source)
{
  if (r->kind != TT_FIFO && r->kind != TT_TOKEN && r->kind != TT_DRAIN) {
    return NULL;
  }
  const int own = level_place(w, rank), peer = level_place(w, r->peer);
  if (peer < 0) {
    return NULL;
  }
  const bool in = source && r->kind != TT_DRAIN;
  const size_t from = (size_t)(in ? peer : own), to = (size_t)(in ? own : peer);
  return &w->lines[(from * (size_t)w->n + to) * 2 + (r->kind != TT_FIFO)];
}

// Is there what the reference waits for?
static bool level_is_ready(const levels *w, const tt_ref *r, int rank, bool source)
{
  const line *l = level_line_of(w, r, rank, source);
  if (l == NULL) {
    return true;
  }
  return r->kind == TT_DRAIN ? l->was_taken == l->sent
         : source            ? l->was_sent != l->taken
                             : l->sent - l->was_taken < w->slots;
}

static void level_touch(levels *w, line *l)
{
  if (!l->touched) {
    l->touched = true;
    w->touched[w->ntouched++] = l;
  }
}

static const tt_ref *level_ref(const actor *a, const tt_step *step, int i)
{
  return &a->s->refs[i < step->nsrc ? step->src + (uint32_t)i : step->dst + (uint32_t)(i - step->nsrc)];
}

// Takes steps of the strand as long as they are ready. Returns whether there was one.
static bool level_walk(levels *w, actor *a, uint16_t level)
{
  const uint32_t began = a->pos;
  for (; a->pos < a->count; a->pos++) {
    tt_step *step = &a->s->steps[a->first + a->pos];
    const int nrefs = step->nsrc + step->ndst;
    for (int i = 0; i < nrefs; i++) {
      if (!level_is_ready(w, level_ref(a, step, i), a->s->rank, i < step->nsrc)) {
        return a->pos != began;
      }
    }
    for (int i = 0; i < nrefs; i++) {
      const tt_ref *r = level_ref(a, step, i);
      line *l = level_line_of(w, r, a->s->rank, i < step->nsrc);
      if (l != NULL && r->kind != TT_DRAIN) {
        *(i < step->nsrc ? &l->taken : &l->sent) += 1;
        level_touch(w, l);
      }
    }
    step->level = level;
  }
  return a->pos != began;
}

static void level_end_round(levels *w)
{
  for (int i = 0; i < w->ntouched; i++) {
    line *l = w->touched[i];
    l->was_sent = l->sent;
    l->was_taken = l->taken;
    l->touched = false;
  }
  w->ntouched = 0;
}

// One pass of all ranks. False: they do not come to its end, or not in as many rounds as a level can count.
static bool level_run(levels *w)
{
  bool moved = true, over = false;
  memset(w->lines, 0, 2 * (size_t)w->n * (size_t)w->n * sizeof *w->lines);
  w->ntouched = 0;
  for (int i = 0; i < w->nactors; i++) {
    w->actors[i].pos = 0;
  }
  for (uint32_t round = 0; moved && !over && round <= UINT16_MAX; round++) {
    moved = false;
    over = true;
    for (int i = 0; i < w->nactors; i++) {
      moved |= level_walk(w, &w->actors[i], (uint16_t)round);
      over &= w->actors[i].pos == w->actors[i].count;
    }
    level_end_round(w);
  }
  w->late = moved && !over;
  return over;
}

static ncclResult_t level_prepare(levels *w)
{
  size_t nlines = 2 * (size_t)w->n * (size_t)w->n;
  for (int i = 0; i < w->nall; i++) {
    w->nactors += w->all[i]->nstrands;
  }
  TT_TRY(TT_NEW(w->lines, nlines, "no memory for the connections of %d ranks", w->n));
  TT_TRY(TT_NEW(w->touched, nlines, "no memory for the connections of %d ranks", w->n));
  TT_TRY(TT_NEW(w->actors, TT_MAX(w->nactors, 1), "no memory for the strands of %d ranks", w->n));
  actor *a = w->actors;
  for (int i = 0; i < w->nall; i++) {
    for (int k = 0; k < w->all[i]->nstrands; k++) {
      const tt_strand *s = &w->all[i]->strands[k];
      *a++ = (actor){.s = w->all[i], .first = s->first, .count = s->count};
    }
  }
  return ncclSuccess;
}

// The shapes whose schedules run together: of all ranks, or the two ends of a message.
static tt_shape level_shape(const tt_shape *own, int i)
{
  tt_shape shape = *own;
  if (tt_func_is_message(own->func) && i == 1) {
    shape.func = own->func == TT_FUNC_SEND ? TT_FUNC_RECV : TT_FUNC_SEND;
    shape.rank = own->root;
    shape.root = own->rank;
  } else if (!tt_func_is_message(own->func)) {
    shape.rank = i;
  }
  return shape;
}

static ncclResult_t level_write(levels *w, tt_schedule *own)
{
  const int mine = level_place(w, w->shape->rank);
  TT_TRY(TT_NEW(w->all, w->n, "no memory for the schedules of %d ranks", w->n));
  for (; w->nall < w->n; w->nall++) {
    const tt_shape its = level_shape(w->shape, w->nall);
    w->all[w->nall] = own;
    if (w->nall != mine) {
      TT_TRY(tt_algorithm_write(w->algorithm, &its, &w->all[w->nall]));
    }
  }
  return ncclSuccess;
}

static ncclResult_t level_all(levels *w)
{
  TT_TRY(level_prepare(w));
  for (w->slots = 1; w->slots <= SLOTS_MOST; w->slots *= 2) {
    if (level_run(w)) {
      return ncclSuccess;
    }
  }
  if (w->late) {
    return tt_fail(
        ncclInvalidUsage,
        "%s of %d ranks by algorithm %s takes more than %d rounds: too many for ranks on GPUs. Choose another "
        "algorithm (NCCL_ALGO)",
        tt_func_name(w->shape->func), w->n, w->algorithm->name, UINT16_MAX + 1);
  }
  return tt_fail(ncclInternalError, "the schedules of %d ranks do not come to their end", w->n);
}

ncclResult_t tt_schedule_level(const tt_algorithm *a, const tt_shape *shape, tt_schedule *own)
{
  levels w = {.algorithm = a, .shape = shape, .n = tt_func_is_message(shape->func) ? 2 : shape->nranks};
  ncclResult_t res = level_write(&w, own);
  res = res == ncclSuccess ? level_all(&w) : res;
  for (int i = 0; i < w.nall; i++) {
    if (w.all[i] != own) {
      tt_schedule_free(w.all[i]);
    }
  }
  tt_free(w.all);
  tt_free(w.lines);
  tt_free(w.touched);
  tt_free(w.actors);
  return res;
}
