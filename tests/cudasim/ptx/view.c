// view.c: what a thread sees of memory when stores are late (late.c) and weak loads may be old.
//
// A value that is overwritten is remembered for a while, with a tick. A thread knows of all that was overwritten up to
// the tick of its last acquire; of what came later its weak loads may see the old value.
#include "ptx_priv.h"

static void forget_seen(struct ptx_view *v, const uint8_t *at, int bytes)
{
  for (int i = 0; i < PTX_SEEN; i++) {
    if (!at || ptx_overlap(v->seen[i].at, v->seen[i].bytes, at, bytes)) {
      v->seen[i].bytes = 0;
    }
  }
}

void ptx_view_store(struct ptx_thread *t, const struct ptx_mem *m, uint8_t *at, uint64_t value)
{
  struct ptx_view *v = t->view;
  struct ptx_run *run = t->cta->run;
  struct ptx_pending e = {.at = at,
                          .value = value,
                          .bytes = m->bytes,
                          .release = m->sem == PTX_RELEASE ? m->scope : PTX_CTA,
                          .epoch = v->epoch,
                          .system_epoch = v->system_epoch};
  forget_seen(v, at, m->bytes);
  if (!(run->launch.modes & PTX_STORE_BUFFERS)) {
    ptx_late_write(t->cta, t, &e);
    return;
  }
  if (e.release) {
    ptx_late_order_seen(t->cta, (enum ptx_scope)m->scope);
  } else if (m->sem == PTX_RELEASE) {
    ptx_late_promote(t);
  }
  if (v->npending == PTX_THREAD_BUFFER) {
    ptx_late_drain_one(t, (int)ptx_draw(run, PTX_THREAD_BUFFER));
  }
  v->pending[v->npending++] = e;
  run->pending++;
}

void ptx_view_settle(struct ptx_thread *t, const uint8_t *at, int bytes)
{
  ptx_late_settle(t, at, bytes);
  forget_seen(t->view, at, bytes);
}

void ptx_view_overwritten(struct ptx_thread *t, uint8_t *at, int bytes, uint64_t old)
{
  ptx_late_remember(t->cta, t, &(struct ptx_pending){.at = at, .bytes = (uint8_t)bytes}, old);
}

// An older value, of a moment at which the thread knew no better; mostly the latest of these.
static bool find_past(struct ptx_thread *t, const struct ptx_mem *m, const uint8_t *at, uint64_t *value)
{
  struct ptx_run *run = t->cta->run;
  uint64_t first = run->npast > PTX_HISTORY ? run->npast - PTX_HISTORY : 0;
  const struct ptx_view *v = t->view;
  uint64_t known_anyhow = m->no_coherence ? 0 : v->known_all < v->known_cta ? v->known_all : v->known_cta;
  bool found = false;
  const struct ptx_past *e;
  for (uint64_t k = run->newest[ptx_past_bucket(at)]; k > first; k = e->before) {
    e = &run->history[(k - 1) % PTX_HISTORY];
    if (e->tick <= known_anyhow) {
      break;
    }
    if (!ptx_overlap(e->at, e->bytes, at, m->bytes)) {
      continue;
    }
    bool ours = e->cta == t->cta->number;
    bool own = ours && (e->thread < 0 || e->thread == t->index); // what waited in the CTA's buffer the CTA saw before
    uint64_t known = ours ? v->known_cta : v->known_all;
    if (own || (!m->no_coherence && e->tick <= known) || e->at > at || e->at + e->bytes < at + m->bytes) {
      break;
    }
    *value = e->value >> (8 * (at - e->at));
    *value &= m->bytes == 8 ? UINT64_MAX : (UINT64_C(1) << (8 * m->bytes)) - 1;
    found = true;
    if (ptx_draw(run, 4) != 0) {
      break;
    }
  }
  return found;
}

static uint64_t perhaps_stale(struct ptx_thread *t, const struct ptx_mem *m, const uint8_t *at, uint64_t value)
{
  struct ptx_view *v = t->view;
  unsigned slot = (unsigned)((uintptr_t)at / m->bytes % PTX_SEEN);
  if (ptx_draw(t->cta->run, 2) == 0) {
    if (find_past(t, m, at, &value)) {
      return value;
    }
    if (v->seen[slot].at == at && v->seen[slot].bytes == m->bytes) {
      return v->seen[slot].value;
    }
  }
  v->seen[slot].at = at;
  v->seen[slot].bytes = m->bytes;
  v->seen[slot].value = value;
  return value;
}

uint64_t ptx_view_load(struct ptx_thread *t, const struct ptx_mem *m, const uint8_t *at)
{
  uint64_t value = ptx_raw_load(at, m->bytes);
  const struct ptx_cta *cta = t->cta;
  const struct ptx_run *run = cta->run;
  bool pending = ptx_late_lay_over(run->device, run->ndevice, at, m->bytes, &value);
  pending |= ptx_late_lay_over(cta->pending, cta->npending, at, m->bytes, &value);
  pending |= ptx_late_lay_over(t->view->pending, t->view->npending, at, m->bytes, &value);
  if (!pending && m->sem == PTX_WEAK && run->history) {
    return perhaps_stale(t, m, at, value);
  }
  return value;
}

void ptx_view_release(struct ptx_thread *t, enum ptx_scope scope)
{
  if (scope == PTX_CTA) {
    ptx_late_promote(t);
  } else {
    ptx_late_drain_all(t, scope);
  }
}

void ptx_view_acquire(struct ptx_thread *t, enum ptx_scope scope)
{
  struct ptx_view *v = t->view;
  uint64_t now = t->cta->run->tick;
  v->known_cta = now;
  if (scope != PTX_CTA) {
    t->cta->known_all = now;
  }
  if (v->known_all < t->cta->known_all) { // a thread of the CTA may have handed on what it knows
    v->known_all = t->cta->known_all;
  }
  forget_seen(v, NULL, 0);
}

void ptx_view_fence(struct ptx_thread *t, enum ptx_sem sem, enum ptx_scope scope)
{
  if (scope == PTX_CTA || sem == PTX_SC) {
    ptx_view_release(t, scope);
  } else { // no load has to wait for the stores
    ptx_late_order_seen(t->cta, scope);
    t->view->epoch++;
    t->view->system_epoch += scope == PTX_SYS;
  }
  ptx_view_acquire(t, scope);
}

void ptx_view_end(struct ptx_thread *t)
{
  ptx_late_promote(t);
}
