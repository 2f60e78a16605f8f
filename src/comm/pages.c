// pages.c: see pages.h.
#include "comm/pages.h"

#include <errno.h>

#include "base/log.h"
#include "base/param.h"
#include "base/util.h"
#include "os/clock.h"
#include "os/map.h"

void tt_pages_open(tt_pages *t, bool wanted)
{
  t->huge = wanted && tt_params_get()->host_huge_pages ? tt_map_huge_size() : 0;
  t->least = t->huge > 0 ? t->huge : SIZE_MAX;
}

enum {
  SPEED = 4,          // bytes per nanosecond that an operation gets through, at least: for so long it may be held up,
  MOST_NS = 50000000, // but never longer
  LONG_NS = 20000000, // a page took so long that the machine must have other things to do
  TELL = 8            // buffers that the log names
};

static bool may_pass(int error)
{
  return error == EAGAIN || error == EBUSY || error == ENOMEM || error == EPERM;
}

static uint32_t rest_longer(const tt_pages_buffer *b)
{
  return TT_CLAMP(2 * b->rest, (uint32_t)TT_PAGES_REST, (uint32_t)TT_PAGES_TIRED);
}

// Sees to the next pages of a buffer until the time is over, and to one at least.
static void see_to(tt_pages *t, tt_pages_buffer *b, uint64_t end_ns)
{
  uint64_t now = tt_now_ns(), before;
  do {
    int error = tt_map_huge((const void *)b->next, t->huge);
    bool go_on = error == 0 || may_pass(error);
    t->made += error == 0;
    b->refused += error == 0 ? 0 : go_on ? 1 : (uint32_t)((b->to - b->next) / t->huge);
    b->next = go_on ? b->next + t->huge : b->to;
    before = now;
    now = tt_now_ns();
  } while (b->next < b->to && now < end_ns && now - before < LONG_NS);
  if (b->next < b->to && now - before >= LONG_NS) {
    b->wait = TT_PAGES_REST;
  }
}

// A round is over.
static void end_round(tt_pages *t, tt_pages_buffer *b)
{
  size_t pages = (b->to - b->from) / t->huge;
  if (b->rest == 0 && t->told < TELL) {
    t->told++;
    tt_info(TT_TUNING, "buffer of %zu KiB at %p comes back: %zu of %zu huge pages in place (NCCL_HOST_HUGE_PAGES=0: none)",
            (b->to - b->from) >> 10, (void *)b->from, pages - b->refused, pages);
  }
  b->wait = b->rest = b->refused > 0 ? rest_longer(b) : TT_PAGES_REST;
  b->next = b->from;
  b->refused = 0;
}

// Its place in the list; NULL: no huge page fits, or it is not yet time to look.
static tt_pages_buffer *count_use(tt_pages *t, const void *buffer, size_t bytes)
{
  uintptr_t from = TT_ROUND_UP((uintptr_t)buffer, t->huge), to = ((uintptr_t)buffer + bytes) & ~(t->huge - 1);
  if (from >= to) {
    return NULL;
  }
  tt_pages_buffer *b = &t->seen[(from / t->huge * 0x9e3779b97f4a7c15ull) >> 58];
  _Static_assert(TT_PAGES_SEEN == 1 << (64 - 58), "the hash gives a place");
  if (b->from != from || b->to != to) {
    *b = (tt_pages_buffer){.from = from, .to = to, .next = from, .wait = TT_PAGES_USES};
  }
  if (b->wait > 0) {
    b->wait--;
    return NULL;
  }
  return b;
}

void tt_pages_use(tt_pages *t, const tt_pages_call *c)
{
  const void *buffers[] = {c->in, c->out};
  const size_t bytes[] = {c->in_bytes, c->out_bytes};
  uint64_t end_ns = 0; // of both together
  for (int i = 0; i < 2 && t->huge > 0; i++) {
    tt_pages_buffer *b = bytes[i] < t->huge ? NULL : count_use(t, buffers[i], bytes[i]);
    if (b == NULL || (end_ns > 0 && tt_now_ns() >= end_ns)) {
      continue;
    }
    end_ns = end_ns > 0 ? end_ns : tt_now_ns() + TT_MIN(TT_MAX(c->in_bytes, c->out_bytes) / SPEED, (size_t)MOST_NS);
    see_to(t, b, end_ns);
    if (b->next >= b->to) {
      end_round(t, b);
    }
  }
}
