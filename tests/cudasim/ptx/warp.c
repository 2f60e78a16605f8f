// warp.c: operations among the threads of a warp that a mask names.
//
// A thread waits until all threads of its mask that have not ended are at an operation with the same opcode and mask.
#include "ptx_priv.h"

static uint32_t mask_of(const struct ptx_thread *t)
{
  return (uint32_t)t->regs[t->pc->in[3]];
}

static struct ptx_thread *lane_of(struct ptx_cta *cta, int warp, int lane)
{
  return &cta->threads[warp * PTX_WARP + lane];
}

// The lanes that take part, when all are there; else 0.
static uint32_t members(struct ptx_cta *cta, int warp, const struct ptx_thread *t)
{
  uint32_t mask = mask_of(t) & ~cta->warps[warp].ended;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    const struct ptx_thread *other = lane_of(cta, warp, __builtin_ctz(rest));
    if (other->wait != PTX_AT_WARP || other->pc->opcode != t->pc->opcode || mask_of(other) != mask_of(t)) {
      return 0;
    }
  }
  return mask;
}

// What each lane brings.
struct values {
  uint32_t mask, truth; // truth: predicates
  uint64_t value[PTX_WARP];
  uint32_t b[PTX_WARP], c[PTX_WARP];
};

static void gather(struct ptx_cta *cta, int warp, struct values *v)
{
  v->truth = 0;
  for (uint32_t rest = v->mask; rest; rest &= rest - 1) {
    int lane = __builtin_ctz(rest);
    const struct ptx_thread *t = lane_of(cta, warp, lane);
    v->value[lane] = t->regs[t->pc->in[0]];
    v->b[lane] = (uint32_t)t->regs[t->pc->in[1]];
    v->c[lane] = (uint32_t)t->regs[t->pc->in[2]];
    v->truth |= (uint32_t)(v->value[lane] != 0) << lane;
  }
}

// The lane that a shuffle reads; valid is its predicate. Source: PTX ISA, "shfl.sync".
static int shuffle_source(int kind, int lane, uint32_t b, uint32_t c, bool *valid)
{
  int clamp = (int)(c & 31), segment = (int)(c >> 8 & 31), by = (int)(b & 31);
  int most = (lane & segment) | (clamp & ~segment), least = lane & segment, from;
  switch (kind) {
  case PTX_SHFL_UP:
    from = lane - by;
    *valid = from >= most;
    break;
  case PTX_SHFL_DOWN:
    from = lane + by;
    *valid = from <= most;
    break;
  case PTX_SHFL_BFLY:
    from = lane ^ by;
    *valid = from <= most;
    break;
  default:
    from = least | (by & ~segment);
    *valid = from <= most;
    break;
  }
  return *valid ? from : lane;
}

// What a lane brings that does not take part is undefined: something that nobody takes for a value.
static void shuffle(struct ptx_thread *t, int lane, const struct values *v)
{
  bool valid;
  int from = shuffle_source(t->pc->sync.kind, lane, v->b[lane], v->c[lane], &valid);
  bool there = v->mask >> from & 1;
  t->regs[t->pc->out[0]] = there ? v->value[from] : 0xdeadbeef;
  if (t->pc->outs > 1) {
    t->regs[t->pc->out[1]] = valid;
  }
}

static uint32_t same_value(const struct values *v, int lane)
{
  uint32_t same = 0;
  for (uint32_t rest = v->mask; rest; rest &= rest - 1) {
    int other = __builtin_ctz(rest);
    same |= (uint32_t)(v->value[other] == v->value[lane]) << other;
  }
  return same;
}

static uint64_t reduced(const struct ptx_alu *alu, const struct values *v)
{
  uint32_t rest = v->mask;
  uint64_t in[PTX_ALU_INS] = {v->value[__builtin_ctz(rest)]}, out[PTX_ALU_OUTS] = {in[0]};
  for (rest &= rest - 1; rest; rest &= rest - 1) {
    in[0] = out[0];
    in[1] = v->value[__builtin_ctz(rest)];
    alu->run(alu, in, out);
  }
  return out[0];
}

static void give_result(struct ptx_thread *t, int lane, const struct values *v)
{
  const struct ptx_ins *i = t->pc;
  uint64_t *out = &t->regs[i->out[0]];
  uint32_t same;
  switch ((enum ptx_warp_kind)i->sync.kind) {
  case PTX_WARP_SYNC: break;
  case PTX_SHFL_UP:
  case PTX_SHFL_DOWN:
  case PTX_SHFL_BFLY:
  case PTX_SHFL_IDX: shuffle(t, lane, v); break;
  case PTX_VOTE_ALL: *out = v->truth == v->mask; break;
  case PTX_VOTE_ANY: *out = v->truth != 0; break;
  case PTX_VOTE_UNI: *out = v->truth == 0 || v->truth == v->mask; break;
  case PTX_VOTE_BALLOT: *out = v->truth; break;
  case PTX_REDUX: *out = reduced(i->sync.alu, v); break;
  case PTX_MATCH_ANY: *out = same_value(v, lane); break;
  case PTX_MATCH_ALL:
    same = same_value(v, lane);
    *out = same == v->mask ? v->mask : 0;
    if (i->outs > 1) {
      t->regs[i->out[1]] = same == v->mask;
    }
    break;
  }
}

static void complete(struct ptx_cta *cta, int warp, uint32_t mask)
{
  struct values v = {.mask = mask};
  cta->warps[warp].operations++;
  gather(cta, warp, &v);
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    int lane = __builtin_ctz(rest);
    struct ptx_thread *t = lane_of(cta, warp, lane);
    give_result(t, lane, &v);
    if (t->view && t->pc->sync.kind == PTX_WARP_SYNC) {
      ptx_view_acquire(t, PTX_CTA);
    }
    t->together = mask;
    t->operation = cta->warps[warp].operations;
    ptx_thread_wake(t);
  }
}

bool ptx_do_warp(struct ptx_thread *t, const struct ptx_ins *i)
{
  struct ptx_cta *cta = t->cta;
  int warp = t->index / PTX_WARP, lane = t->index % PTX_WARP;
  uint32_t mask = (uint32_t)t->regs[i->in[3]];
  if (!(mask >> lane & 1)) {
    return ptx_fault(t, i, "lane %d is not in the mask 0x%08x", lane, mask);
  }
  if (t->view && i->sync.kind == PTX_WARP_SYNC) {
    ptx_view_release(t, PTX_CTA);
  }
  const bool goes_on = ptx_repeat(t);
  ptx_thread_block(t, i, PTX_AT_WARP);
  uint32_t all = members(cta, warp, t);
  if (all) {
    complete(cta, warp, all);
  }
  return goes_on && t->wait == PTX_READY;
}

void ptx_warp_thread_ended(struct ptx_thread *t)
{
  struct ptx_cta *cta = t->cta;
  int warp = t->index / PTX_WARP;
  for (uint32_t rest = ~cta->warps[warp].ended; rest; rest &= rest - 1) {
    struct ptx_thread *other = lane_of(cta, warp, __builtin_ctz(rest));
    uint32_t all = other->wait == PTX_AT_WARP ? members(cta, warp, other) : 0;
    if (all) {
      complete(cta, warp, all);
    }
  }
}

// Threads go on one by one here, and PTX promises no more.
bool ptx_do_activemask(struct ptx_thread *t, const struct ptx_ins *i)
{
  t->regs[i->out[0]] = UINT32_C(1) << (t->index % PTX_WARP);
  return true;
}
