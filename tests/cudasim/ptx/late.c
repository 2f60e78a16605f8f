// late.c: stores that are not visible to all yet.
//
// A store waits in the buffer of its thread, in no order but that of fences, releases and overlap. What orders it
// within the CTA alone (bar.sync, a fence of scope .cta) moves it to the buffer of the CTA, which all threads of the
// CTA see. What orders it for more puts it into memory; with PTX_DEVICE_BUFFER an order for the GPU alone puts it into
// a buffer that all threads of the run see, and not the host.
//
// The buffers of CTA and device have no order but that of overlap. What goes from one level to memory by itself first
// takes with it what is older at its bytes.
#include "ptx_priv.h"

#include <string.h>

void ptx_late_remember(struct ptx_cta *cta, const struct ptx_thread *t, const struct ptx_pending *e, uint64_t old)
{
  struct ptx_run *run = cta->run;
  run->tick++;
  if (run->history) {
    uint64_t *newest = &run->newest[ptx_past_bucket(e->at)];
    run->history[run->npast % PTX_HISTORY] = (struct ptx_past){.before = *newest,
                                                               .at = e->at,
                                                               .value = old,
                                                               .tick = run->tick,
                                                               .cta = cta->number,
                                                               .thread = t ? t->index : -1,
                                                               .bytes = e->bytes};
    *newest = ++run->npast;
  }
}

static bool overlaps(const struct ptx_pending *e, const uint8_t *at, int bytes)
{
  return ptx_overlap(e->at, e->bytes, at, bytes);
}

bool ptx_late_lay_over(const struct ptx_pending *list, int n, const uint8_t *at, int bytes, uint64_t *value)
{
  bool any = false;
  for (int k = 0; k < n; k++) {
    const struct ptx_pending *e = &list[k];
    if (!overlaps(e, at, bytes)) {
      continue;
    }
    for (int i = 0; i < bytes; i++) {
      int64_t from = at + i - e->at;
      if (from >= 0 && from < e->bytes) {
        *value = (*value & ~(UINT64_C(0xff) << (8 * i))) | ((e->value >> (8 * from) & 0xff) << (8 * i));
        any = true;
      }
    }
  }
  return any;
}

static void remove_pending(struct ptx_run *run, struct ptx_pending *list, int *n, int from, int count)
{
  memmove(list + from, list + from + count, (size_t)(*n - from - count) * sizeof *list);
  *n -= count;
  run->pending -= count;
}

static void put_into_memory(struct ptx_run *run, const struct ptx_pending *e)
{
  uint64_t old = ptx_raw_load(e->at, e->bytes);
  ptx_raw_store(e->at, e->bytes, e->value);
  if (old != e->value) {
    ptx_run_progress(run);
  }
}

// The first `count` stores of the device's buffer.
static void drain_device(struct ptx_run *run, int count)
{
  for (int i = 0; i < count; i++) {
    put_into_memory(run, &run->device[i]);
  }
  if (count > 0) {
    remove_pending(run, run->device, &run->ndevice, 0, count);
  }
}

// How many stores of a list must go so that none to these bytes is left.
static int needed_for(const struct ptx_pending *list, int n, const uint8_t *at, int bytes)
{
  while (n > 0 && !overlaps(&list[n - 1], at, bytes)) {
    n--;
  }
  return n;
}

// What all threads of the run see at these bytes.
static uint64_t seen_by_device(const struct ptx_run *run, const struct ptx_pending *e)
{
  uint64_t value = ptx_raw_load(e->at, e->bytes);
  ptx_late_lay_over(run->device, run->ndevice, e->at, e->bytes, &value);
  return value;
}

void ptx_late_write(struct ptx_cta *cta, const struct ptx_thread *t, const struct ptx_pending *e)
{
  struct ptx_run *run = cta->run;
  ptx_late_remember(cta, t, e, seen_by_device(run, e));
  drain_device(run, needed_for(run->device, run->ndevice, e->at, e->bytes));
  put_into_memory(run, e);
}

// Visible to all threads of the run; to all, where it is ordered for all, or where there is no buffer for less.
static void publish(struct ptx_cta *cta, const struct ptx_thread *t, const struct ptx_pending *e, bool to_all)
{
  struct ptx_run *run = cta->run;
  if (to_all || !run->device) {
    ptx_late_write(cta, t, e);
    return;
  }
  ptx_late_remember(cta, t, e, seen_by_device(run, e));
  if (run->ndevice == PTX_DEVICE_STORES) {
    drain_device(run, 1);
  }
  run->device[run->ndevice++] = *e;
  run->pending++;
  ptx_run_progress(run);
}

static void drain_cta(struct ptx_cta *cta, int count, bool to_all)
{
  for (int i = 0; i < count; i++) {
    publish(cta, NULL, &cta->pending[i], to_all);
  }
  if (count > 0) {
    remove_pending(cta->run, cta->pending, &cta->npending, 0, count);
  }
}

static void settle_cta(struct ptx_cta *cta, const uint8_t *at, int bytes)
{
  drain_cta(cta, needed_for(cta->pending, cta->npending, at, bytes), true);
}

// Which of the first stores of a thread are ordered for all before what comes behind them: bit by bit.
static uint32_t ordered_for_all(const struct ptx_view *v, int count)
{
  uint32_t ordered = 0, system_epoch = count < v->npending ? v->pending[count].system_epoch : v->system_epoch;
  bool all = count < v->npending && v->pending[count].release == PTX_SYS;
  for (int i = count - 1; i >= 0; i--) {
    all |= v->pending[i].system_epoch != system_epoch;
    ordered |= (uint32_t)all << i;
    all |= v->pending[i].release == PTX_SYS;
  }
  return ordered;
}

void ptx_late_drain_first(struct ptx_thread *t, int count)
{
  struct ptx_view *v = t->view;
  uint32_t to_all = ordered_for_all(v, count);
  for (int i = 0; i < count; i++) {
    settle_cta(t->cta, v->pending[i].at, v->pending[i].bytes);
    publish(t->cta, t, &v->pending[i], to_all >> i & 1);
  }
  if (count > 0) {
    remove_pending(t->cta->run, v->pending, &v->npending, 0, count);
  }
}

// Must the store at `before` be visible when the later one at `e` is?
static bool comes_first(const struct ptx_pending *before, const struct ptx_pending *e)
{
  return e->release || before->epoch != e->epoch || overlaps(before, e->at, e->bytes);
}

void ptx_late_drain_one(struct ptx_thread *t, int index)
{
  struct ptx_view *v = t->view;
  for (int i = 0; i < index; i++) {
    if (comes_first(&v->pending[i], &v->pending[index])) {
      ptx_late_drain_first(t, index);
      index = 0;
      break;
    }
  }
  const struct ptx_pending *e = &v->pending[index];
  settle_cta(t->cta, e->at, e->bytes);
  ptx_late_write(t->cta, t, e);
  remove_pending(t->cta->run, v->pending, &v->npending, index, 1);
}

// Those that a fence or a release orders for more than the CTA leave it, since the buffer of the CTA has no order.
void ptx_late_promote(struct ptx_thread *t)
{
  struct ptx_view *v = t->view;
  struct ptx_cta *cta = t->cta;
  int ordered = 0;
  for (int i = 0; i < v->npending; i++) {
    if (v->pending[i].epoch != v->epoch) {
      ordered = i + 1;
    } else if (v->pending[i].release) {
      ordered = i;
    }
  }
  ptx_late_drain_first(t, ordered);
  for (int i = 0; i < v->npending; i++) {
    if (cta->npending == PTX_CTA_BUFFER) {
      drain_cta(cta, 1, true);
    }
    cta->pending[cta->npending++] = v->pending[i];
  }
  v->npending = 0;
}

void ptx_late_order_seen(struct ptx_cta *cta, enum ptx_scope scope)
{
  if (scope == PTX_SYS) {
    drain_device(cta->run, cta->run->ndevice);
  }
  drain_cta(cta, cta->npending, scope == PTX_SYS);
}

void ptx_late_drain_all(struct ptx_thread *t, enum ptx_scope scope)
{
  ptx_late_order_seen(t->cta, scope);
  ptx_late_drain_first(t, t->view->npending);
  if (scope == PTX_SYS) {
    drain_device(t->cta->run, t->cta->run->ndevice);
  }
}

void ptx_late_settle(struct ptx_thread *t, const uint8_t *at, int bytes)
{
  struct ptx_view *v = t->view;
  struct ptx_run *run = t->cta->run;
  int last = needed_for(v->pending, v->npending, at, bytes);
  for (int i = last; i < v->npending; i++) {
    last = v->pending[i].epoch != v->epoch ? i + 1 : last;
  }
  ptx_late_drain_first(t, last);
  settle_cta(t->cta, at, bytes);
  drain_device(run, needed_for(run->device, run->ndevice, at, bytes));
}

// One store of an unordered buffer, or the first ones when they are older at its bytes.
static int one_or_first(const struct ptx_pending *list, int index)
{
  const struct ptx_pending *e = &list[index];
  return needed_for(list, index, e->at, e->bytes) > 0 ? 0 : index;
}

static void drain_one_of_device(struct ptx_run *run)
{
  int index = one_or_first(run->device, (int)ptx_draw(run, (uint64_t)run->ndevice));
  put_into_memory(run, &run->device[index]);
  remove_pending(run, run->device, &run->ndevice, index, 1);
}

static void drain_one_of_cta(struct ptx_cta *cta)
{
  int index = one_or_first(cta->pending, (int)ptx_draw(cta->run, (uint64_t)cta->npending));
  ptx_late_write(cta, NULL, &cta->pending[index]);
  remove_pending(cta->run, cta->pending, &cta->npending, index, 1);
}

// One of the stores that wait in the CTA. False when none does.
static bool drain_one_within(struct ptx_cta *cta)
{
  struct ptx_run *run = cta->run;
  int first = (int)ptx_draw(run, (uint64_t)run->threads);
  if (cta->npending > 0 && ptx_draw(run, 2)) {
    drain_one_of_cta(cta);
    return true;
  }
  for (int i = 0; i < run->threads; i++) {
    struct ptx_thread *t = &cta->threads[(first + i) % run->threads];
    if (t->view->npending > 0) {
      ptx_late_drain_one(t, (int)ptx_draw(run, (uint64_t)t->view->npending));
      return true;
    }
  }
  if (cta->npending > 0) {
    drain_one_of_cta(cta);
    return true;
  }
  return false;
}

void ptx_late_drain_some(struct ptx_run *run)
{
  if (run->ndevice > 0 && (run->nlive == 0 || ptx_draw(run, 4) == 0)) {
    drain_one_of_device(run);
    return;
  }
  int first = run->nlive > 0 ? (int)ptx_draw(run, (uint64_t)run->nlive) : 0;
  for (int i = 0; i < run->nlive; i++) {
    if (drain_one_within(run->live[(first + i) % run->nlive])) {
      return;
    }
  }
  if (run->ndevice > 0) {
    drain_one_of_device(run);
  }
}
