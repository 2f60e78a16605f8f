// line.c: PTX_WHOLE_LINES: accesses that lanes of a warp make together.
//
// Lanes that have come out of an operation of their warp together, and then come to the same load or store of 16 bytes
// (relaxed or volatile, of global memory), make it at one moment: nobody sees a part of it. A lane that does something
// else first takes no part. So eight lanes that write the 128 bytes of a line after bar.warp.sync write the line at
// once, and eight that read it after a vote read it at once. This is what the hardware is known to do with lines of
// memory on the GPU and over NVLink, and what NCCL's LL128 relies on; in PTX's memory model each element is an access
// of its own. What is written so is visible at once: a store that should have been ordered before may come later.
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

static void line_store(struct ptx_thread *t, const struct ptx_ins *i, uint8_t *at)
{
  const struct ptx_mem *m = &i->mem;
  for (int j = 0; j < m->count; j++, at += m->bytes) {
    const struct ptx_pending e = {
        .at = at, .value = t->regs[i->in[1 + j]] & (UINT64_MAX >> (64 - 8 * m->bytes)), .bytes = m->bytes};
    if (t->view) {
      ptx_view_settle(t, at, m->bytes);
      ptx_late_write(t->cta, t, &e);
    } else if (ptx_raw_load(at, m->bytes) != e.value) {
      ptx_raw_store(at, m->bytes, e.value);
      ptx_progress(t);
    }
  }
}

static void line_load(struct ptx_thread *t, const struct ptx_ins *i, const uint8_t *at)
{
  const struct ptx_mem *m = &i->mem;
  uint64_t mix = 0;
  for (int j = 0; j < m->count; j++) {
    const uint64_t value = t->view ? ptx_view_load(t, m, at + j * m->bytes) : ptx_raw_load(at + j * m->bytes, m->bytes);
    mix = mix * 31 + value;
    t->regs[i->out[j]] = value;
  }
  ptx_poll(t, i, (uint64_t)(uintptr_t)at, mix);
}

static void line_complete(struct ptx_cta *cta, int warp, uint32_t lanes)
{
  struct ptx_warp *w = &cta->warps[warp];
  w->at_line &= ~lanes;
  w->operations++;
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    struct ptx_thread *t = line_thread(cta, warp, __builtin_ctz(rest));
    const struct ptx_ins *i = t->pc;
    const bool loads = i->exec == ptx_do_load;
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
