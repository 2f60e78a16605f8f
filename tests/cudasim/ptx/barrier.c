// barrier.c: the sixteen barriers of a CTA.
//
// A warp arrives when all its threads that have not ended are there; it counts as 32 threads. Without a count a barrier
// waits for all warps that have not ended: threads that end are waited for no more (PTX ISA, "exit").
#include "ptx_priv.h"

static uint32_t alive(const struct ptx_warp *w)
{
  return ~w->ended;
}

static struct ptx_thread *thread_of(struct ptx_cta *cta, int warp, int lane)
{
  return &cta->threads[warp * PTX_WARP + lane];
}

// The instruction at which a thread waits.
static const struct ptx_ins *waits_at(const struct ptx_thread *t)
{
  return t->pc;
}

static void wake_lanes(struct ptx_cta *cta, int warp, const struct ptx_barrier *b)
{
  struct ptx_warp *w = &cta->warps[warp];
  for (uint32_t lanes = w->at_barrier; lanes; lanes &= lanes - 1) {
    struct ptx_thread *t = thread_of(cta, warp, __builtin_ctz(lanes));
    const struct ptx_ins *i = waits_at(t);
    if (i->sync.kind >= PTX_BAR_POPC) {
      t->regs[i->out[0]] = i->sync.kind == PTX_BAR_POPC  ? b->tally
                           : i->sync.kind == PTX_BAR_AND ? b->tally == b->asked
                                                         : b->tally != 0;
    }
    if (t->view && i->sync.kind != PTX_BAR_ARRIVE) {
      ptx_view_acquire(t, PTX_CTA);
    }
    ptx_thread_wake(t);
    ptx_progress(t);
  }
  w->at_barrier = 0;
  w->barrier = -1;
}

static bool is_complete(const struct ptx_cta *cta, const struct ptx_barrier *b)
{
  if (b->counted) {
    return b->arrived == b->threads;
  }
  uint32_t warps = 0;
  for (int i = 0; i < cta->run->warps; i++) {
    warps += alive(&cta->warps[i]) != 0;
  }
  return b->arrived >= warps * PTX_WARP;
}

static void complete_perhaps(struct ptx_cta *cta, int id)
{
  struct ptx_barrier *b = &cta->barriers[id], was = *b;
  if (!b->used || !is_complete(cta, b)) {
    return;
  }
  *b = (struct ptx_barrier){0};
  for (int i = 0; i < cta->run->warps; i++) {
    if (cta->warps[i].barrier == id) {
      wake_lanes(cta, i, &was);
    }
  }
}

// All threads of the warp are at barriers: at the same one?
static bool check_lanes(struct ptx_cta *cta, int warp, struct ptx_thread *first)
{
  const struct ptx_ins *i = waits_at(first);
  for (uint32_t lanes = cta->warps[warp].at_barrier; lanes; lanes &= lanes - 1) {
    struct ptx_thread *t = thread_of(cta, warp, __builtin_ctz(lanes));
    const struct ptx_ins *other = waits_at(t);
    if (other != i && (i->sync.aligned || other->sync.aligned || other->sync.kind != i->sync.kind)) {
      return ptx_fault(t, other, "threads of a warp are at different barrier instructions (lines %u and %u)", i->line,
                       other->line);
    }
    if (t->regs[other->in[0]] != first->regs[i->in[0]]) {
      return ptx_fault(t, other, "threads of a warp are at different barriers");
    }
    if (i->sync.has_threads && t->regs[other->in[1]] != first->regs[i->in[1]]) {
      return ptx_fault(t, other, "threads of a warp name different counts of threads");
    }
  }
  return true;
}

static void tally_lanes(struct ptx_cta *cta, int warp, struct ptx_barrier *b)
{
  for (uint32_t lanes = cta->warps[warp].at_barrier; lanes; lanes &= lanes - 1) {
    struct ptx_thread *t = thread_of(cta, warp, __builtin_ctz(lanes));
    if (waits_at(t)->sync.kind >= PTX_BAR_POPC) {
      b->tally += t->regs[waits_at(t)->in[2]] != 0;
      b->asked++;
    }
  }
}

static bool warp_arrives(struct ptx_cta *cta, int warp)
{
  struct ptx_warp *w = &cta->warps[warp];
  struct ptx_thread *t = thread_of(cta, warp, __builtin_ctz(w->at_barrier));
  const struct ptx_ins *i = waits_at(t);
  if (!check_lanes(cta, warp, t)) {
    return false;
  }
  int id = (int)t->regs[i->in[0]];
  struct ptx_barrier *b = &cta->barriers[id];
  uint32_t threads = i->sync.has_threads ? (uint32_t)t->regs[i->in[1]] : 0;
  if (b->used && (b->counted != i->sync.has_threads || b->threads != threads)) {
    return ptx_fault(t, i, "barrier %d: a count of %u threads, where others wait for %u (0: all)", id, threads,
                     b->threads);
  }
  b->used = true;
  b->counted = i->sync.has_threads;
  b->threads = threads;
  b->arrived += PTX_WARP;
  tally_lanes(cta, warp, b);
  if (i->sync.kind == PTX_BAR_ARRIVE) {
    wake_lanes(cta, warp, b);
  } else {
    w->barrier = (int8_t)id;
  }
  complete_perhaps(cta, id);
  return true;
}

bool ptx_do_barrier(struct ptx_thread *t, const struct ptx_ins *i)
{
  struct ptx_cta *cta = t->cta;
  int warp = t->index / PTX_WARP;
  struct ptx_warp *w = &cta->warps[warp];
  if (t->regs[i->in[0]] >= PTX_BARRIERS) {
    return ptx_fault(t, i, "there is no barrier %u", (unsigned)t->regs[i->in[0]]);
  }
  unsigned threads = (unsigned)t->regs[i->in[1]];
  if (i->sync.has_threads && (threads == 0 || threads % PTX_WARP || threads > (unsigned)cta->run->warps * PTX_WARP)) {
    return ptx_fault(t, i, "a count of %u threads, in a CTA of %d", threads, cta->run->threads);
  }
  if (t->view) {
    ptx_view_release(t, PTX_CTA);
  }
  ptx_thread_block(t, i, PTX_AT_BARRIER);
  ptx_progress(t);
  w->at_barrier |= UINT32_C(1) << (t->index % PTX_WARP);
  if (w->at_barrier == alive(w) && !warp_arrives(cta, warp)) {
    return false;
  }
  return t->wait == PTX_READY;
}

bool ptx_barrier_thread_ended(struct ptx_thread *t)
{
  struct ptx_cta *cta = t->cta;
  int warp = t->index / PTX_WARP;
  struct ptx_warp *w = &cta->warps[warp];
  if (w->at_barrier && w->barrier < 0 && w->at_barrier == alive(w) && !warp_arrives(cta, warp)) {
    return false;
  }
  for (int id = 0; id < PTX_BARRIERS && !alive(w); id++) {
    complete_perhaps(cta, id);
  }
  return true;
}
