// pages.c: see pages.h.
#include "device/host/pages.h"

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
  SPEED = 10,         // bytes per nanosecond that an operation gets through, about
  MOST_NS = 20000000, // that can be saved up, so about the longest that one call is held up
  FIRST_NS = 1000000, // what a page is taken to cost as long as none was tried
  DEAR_NS = 2000000,  // a page that costs more gains its time back late: it counts
  DEAR = 8,           // so many times
  TELL = 8            // buffers that the log names
};

static bool pages_may_pass(int error)
{
  return error == EAGAIN || error == EBUSY || error == ENOMEM || error == EPERM;
}

static uint32_t rest_longer(const tt_pages_buffer *b)
{
  return TT_CLAMP(2 * b->rest, (uint32_t)TT_PAGES_REST, (uint32_t)TT_PAGES_TIRED);
}

// A page that costs more than can be saved up is tried with all that can: its debt is paid before the next.
static bool can_pay(const tt_pages *t)
{
  uint64_t ns = t->page_ns > 0 ? t->page_ns : FIRST_NS;
  return t->credit_ns >= (int64_t)TT_MIN(ns, (uint64_t)MOST_NS);
}

static void pages_pay(tt_pages *t, uint64_t ns)
{
  t->page_ns = ns > DEAR_NS ? DEAR * ns : TT_MAX(ns, (uint64_t)1);
  t->credit_ns -= (int64_t)t->page_ns;
}

// Sees to a buffer's next pages as long as there is credit.
static void see_to(tt_pages *t, tt_pages_buffer *b)
{
  uint64_t now = tt_now_ns();
  while (b->next < b->to && can_pay(t)) {
    int error = tt_map_huge((const void *)b->next, t->huge);
    bool go_on = error == 0 || pages_may_pass(error);
    t->made += error == 0;
    b->refused += error == 0 ? 0 : go_on ? 1 : (uint32_t)((b->to - b->next) / t->huge);
    b->next = go_on ? b->next + t->huge : b->to;
    uint64_t before = now;
    now = tt_now_ns();
    pages_pay(t, now - before);
  }
}

// A round is over.
static void end_round(tt_pages *t, tt_pages_buffer *b)
{
  size_t pages = (b->to - b->from) / t->huge;
  if (b->rest == 0 && t->reported < TELL) {
    t->reported++;
    tt_info(TT_TUNING,
            "buffer of %zu KiB at %p comes back: %zu of %zu huge pages in place (NCCL_HOST_HUGE_PAGES=0: none)",
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

void tt_pages_use(tt_pages *t, const tt_buffer_use *c)
{
  const void *buffers[] = {c->in, c->out};
  const size_t bytes[] = {c->in_bytes, c->out_bytes};
  int64_t earned = (int64_t)(TT_MAX(c->in_bytes, c->out_bytes) / SPEED);
  t->credit_ns = TT_MIN(t->credit_ns + earned, (int64_t)MOST_NS);
  for (int i = 0; i < 2 && t->huge > 0; i++) {
    tt_pages_buffer *b = bytes[i] < t->huge ? NULL : count_use(t, buffers[i], bytes[i]);
    if (b == NULL) {
      continue;
    }
    see_to(t, b);
    if (b->next >= b->to) {
      end_round(t, b);
    }
  }
}
