// line.c: PTX_WHOLE_LINES: accesses that lanes of a warp make together.
//
// Lanes that have come out of an operation of their warp together, and then come to the same load or store of 16 bytes
// (relaxed or volatile, of global memory), make it at one moment: nobody sees a part of it. A lane that does something
// else first takes no part. So eight lanes that write the 128 bytes of a line after bar.warp.sync write the line at
// once, and eight that read it after a vote read it at once. This is what the hardware is known to do with lines of
// memory on the GPU and over NVLink, and what NCCL's LL128 relies on; in PTX's memory model each element is an access
// of its own. What is written so is visible at once: a store that should have been ordered before may come later.
//
// Runs of several processes have no moment in common. There the last 8 bytes of a line are written last and read first:
// a reader that finds new ones has the whole line, as lines with a flag at their end need it.
#include "ptx_priv.h"

bool ptx_makes_line(const struct ptx_thread *t, const struct ptx_ins *i)
{
  const struct ptx_mem *m = &i->mem;
  return (t->cta->run->launch.modes & PTX_WHOLE_LINES) && m->sem == PTX_RELAXED && m->bytes * m->count == 16;
}

static struct ptx_thread *line_thread(struct ptx_cta *cta, int warp, int lane)
{
  return &cta->threads[warp * PTX_WARP + lane];
}

// The lanes that make the thread's access with it; 0: some of them may still come.
static uint32_t line_members(struct ptx_cta *cta, int warp, const struct ptx_thread *t)
{
  uint32_t all = UINT32_C(1) << (t->index % PTX_WARP);
  for (uint32_t rest = t->together & ~all; rest; rest &= rest - 1) {
    const int lane = __builtin_ctz(rest);
    const struct ptx_thread *other = line_thread(cta, warp, lane);
    if (other->operation != t->operation || other->wait == PTX_ENDED) {
      continue;
    }
    if (other->wait == PTX_READY) {
      return 0;
    }
    all |= (uint32_t)(other->wait == PTX_AT_LINE && other->pc == t->pc) << lane;
  }
  return all;
}

// Of the 16 bytes, the later half is written last and read first.
enum { LINE_HALF = 8 };

static void line_store(struct ptx_thread *t, const struct ptx_ins *i, uint8_t *at)
{
  const int each = LINE_HALF / i->mem.bytes;
  for (int half = 0; half < 2; half++, at += LINE_HALF) {
    struct ptx_pending e = {.at = at, .bytes = LINE_HALF};
    for (int j = each; j-- > 0;) { // the first element is the lowest
      const uint64_t element = t->regs[i->in[1 + half * each + j]];
      e.value =
          each == 1 ? element : e.value << (8 * i->mem.bytes) | (element & (UINT64_MAX >> (64 - 8 * i->mem.bytes)));
    }
    if (t->view) {
      ptx_view_settle(t, at, LINE_HALF);
      ptx_late_write(t->cta, t, &e);
    } else if (ptx_raw_load(at, LINE_HALF) != e.value) {
      ptx_raw_store(at, LINE_HALF, e.value);
      ptx_progress(t);
    }
  }
}

static void line_load(struct ptx_thread *t, const struct ptx_ins *i, const uint8_t *at)
{
  const int each = LINE_HALF / i->mem.bytes;
  struct ptx_mem m = i->mem;
  uint64_t mix = 0;
  m.bytes = LINE_HALF;
  for (int half = 2; half-- > 0;) {
    const uint8_t *from = at + (size_t)half * LINE_HALF;
    const uint64_t value = t->view ? ptx_view_load(t, &m, from) : ptx_raw_load(from, LINE_HALF);
    mix = mix * 31 + value;
    for (int j = 0; j < each; j++) {
      t->regs[i->out[half * each + j]] = value >> (8 * i->mem.bytes * j) & (UINT64_MAX >> (64 - 8 * i->mem.bytes));
    }
  }
  ptx_poll(t, i, (uint64_t)(uintptr_t)at, mix);
}

// Lanes write in their order, and read in the opposite one.
static void line_complete(struct ptx_cta *cta, int warp, uint32_t lanes)
{
  struct ptx_warp *w = &cta->warps[warp];
  w->at_line &= ~lanes;
  w->operations++;
  for (uint32_t rest = lanes, lane; rest; rest &= ~(UINT32_C(1) << lane)) {
    const bool loads = line_thread(cta, warp, __builtin_ctz(rest))->pc->exec == ptx_do_load;
    lane = loads ? 31 - (uint32_t)__builtin_clz(rest) : (uint32_t)__builtin_ctz(rest);
    struct ptx_thread *t = line_thread(cta, warp, (int)lane);
    const struct ptx_ins *i = t->pc;
    bool direct;
    uint8_t *at = ptx_place(t, i, &i->mem, loads ? PTX_READ : PTX_WRITE, &direct);
    ptx_thread_wake(t);
    t->together = lanes;
    t->operation = w->operations;
    if (at && loads) {
      line_load(t, i, at);
    } else if (at) {
      line_store(t, i, at);
    }
  }
}

void ptx_warp_line_perhaps(struct ptx_cta *cta, int warp)
{
  for (uint32_t rest = cta->warps[warp].at_line; rest; rest &= rest - 1) {
    struct ptx_thread *t = line_thread(cta, warp, __builtin_ctz(rest));
    const uint32_t lanes = line_members(cta, warp, t);
    if (lanes) {
      line_complete(cta, warp, lanes);
      rest &= ~lanes | (rest & -rest);
    }
  }
}

bool ptx_do_line(struct ptx_thread *t, const struct ptx_ins *i)
{
  t->cta->warps[t->index / PTX_WARP].at_line |= UINT32_C(1) << (t->index % PTX_WARP);
  ptx_thread_block(t, i, PTX_AT_LINE);
  return t->wait == PTX_READY && !t->yields;
}
