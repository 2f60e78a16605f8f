// special.c: special registers, and addresses of a thread's windows.
#include "ptx_priv.h"

#include <string.h>
#include <time.h>

enum special {
  S_TID,
  S_NTID = S_TID + 3,
  S_CTAID = S_NTID + 3,
  S_NCTAID = S_CTAID + 3,
  S_ZERO = S_NCTAID + 3,
  S_ONE,
  S_LANE,
  S_WARP,
  S_NWARPS,
  S_SM,
  S_NSMS,
  S_GRID,
  S_MASK_EQ,
  S_MASK_LE,
  S_MASK_LT,
  S_MASK_GE,
  S_MASK_GT,
  S_CLOCK,
  S_CLOCK_HIGH,
  S_CLOCK_64,
  S_TIME,
  S_TIME_LOW,
  S_TIME_HIGH,
  S_DYNAMIC_BYTES,
  S_SHARED_BYTES,
  S_DYNAMIC_BEGIN, // of the machine's own: where the extern .shared array begins
};

static const struct {
  const char *name;
  int id;
} names[] = {
    {"%tid.x", S_TID},
    {"%tid.y", S_TID + 1},
    {"%tid.z", S_TID + 2},
    {"%tid.w", S_ZERO},
    {"%ntid.x", S_NTID},
    {"%ntid.y", S_NTID + 1},
    {"%ntid.z", S_NTID + 2},
    {"%ntid.w", S_ONE},
    {"%ctaid.x", S_CTAID},
    {"%ctaid.y", S_CTAID + 1},
    {"%ctaid.z", S_CTAID + 2},
    {"%ctaid.w", S_ZERO},
    {"%nctaid.x", S_NCTAID},
    {"%nctaid.y", S_NCTAID + 1},
    {"%nctaid.z", S_NCTAID + 2},
    {"%nctaid.w", S_ONE},
    {"%laneid", S_LANE},
    {"%warpid", S_WARP},
    {"%nwarpid", S_NWARPS},
    {"%smid", S_SM},
    {"%nsmid", S_NSMS},
    {"%gridid", S_GRID},
    {"%lanemask_eq", S_MASK_EQ},
    {"%lanemask_le", S_MASK_LE},
    {"%lanemask_lt", S_MASK_LT},
    {"%lanemask_ge", S_MASK_GE},
    {"%lanemask_gt", S_MASK_GT},
    {"%clock", S_CLOCK},
    {"%clock_hi", S_CLOCK_HIGH},
    {"%clock64", S_CLOCK_64},
    {"%globaltimer", S_TIME},
    {"%globaltimer_lo", S_TIME_LOW},
    {"%globaltimer_hi", S_TIME_HIGH},
    {"%dynamic_smem_size", S_DYNAMIC_BYTES},
    {"%total_smem_size", S_SHARED_BYTES},
    {"%dynamic_shared_begin", S_DYNAMIC_BEGIN},
};

int ptx_special_find(const char *name)
{
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (ptx_same(names[i].name, name)) {
      return names[i].id;
    }
  }
  return -1;
}

static uint64_t now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return PTX_TIME_AHEAD + (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint32_t lane_mask(int id, unsigned lane)
{
  uint32_t eq = UINT32_C(1) << lane, lt = eq - 1;
  return id == S_MASK_EQ ? eq : id == S_MASK_LT ? lt : id == S_MASK_LE ? lt | eq : id == S_MASK_GE ? ~lt : ~(lt | eq);
}

// A clock of the machine ticks once per instruction of any thread, so that runs can be repeated; %globaltimer alone
// follows the host's.
static uint64_t time_of(const struct ptx_run *run, int id)
{
  switch (id) {
  case S_CLOCK: return (uint32_t)run->instructions;
  case S_CLOCK_HIGH: return run->instructions >> 32;
  case S_CLOCK_64: return run->instructions;
  case S_TIME: return now();
  case S_TIME_LOW: return (uint32_t)now();
  default: return now() >> 32;
  }
}

static uint64_t special(const struct ptx_thread *t, int id)
{
  const struct ptx_cta *cta = t->cta;
  const struct ptx_run *run = cta->run;
  if (id < S_ZERO) {
    int axis = id % 3;
    return id < S_NTID     ? t->tid[axis]
           : id < S_CTAID  ? run->launch.block[axis]
           : id < S_NCTAID ? cta->id[axis]
                           : run->launch.grid[axis];
  }
  if (id >= S_MASK_EQ && id <= S_MASK_GT) {
    return lane_mask(id, t->index % PTX_WARP);
  }
  if (id >= S_CLOCK && id <= S_TIME_HIGH) {
    return time_of(run, id);
  }
  uint64_t sms = run->resident;
  switch (id) {
  case S_ONE: return 1;
  case S_LANE: return t->index % PTX_WARP;
  case S_WARP: return t->index / PTX_WARP;
  case S_NWARPS: return (uint64_t)run->warps;
  case S_SM: return cta->number % sms;
  case S_NSMS: return sms;
  case S_DYNAMIC_BYTES: return run->launch.dynamic_shared;
  case S_SHARED_BYTES: return run->shared_bytes;
  case S_DYNAMIC_BEGIN: return run->dynamic_at;
  default: return 0;
  }
}

bool ptx_do_special(struct ptx_thread *t, const struct ptx_ins *i)
{
  t->regs[i->out[0]] = special(t, (int)i->number);
  return true;
}

bool ptx_do_frame(struct ptx_thread *t, const struct ptx_ins *i)
{
  t->regs[i->out[0]] = t->frame + (uint64_t)i->number;
  return true;
}

// Where the window of a state space begins among generic addresses, and its bytes.
static uint64_t window(const struct ptx_thread *t, int64_t space, uint64_t *bytes)
{
  const struct ptx_run *run = t->cta->run;
  const uint8_t *begin = space == PTX_SHARED ? t->cta->shared : space == PTX_LOCAL ? t->local : run->params;
  *bytes = space == PTX_SHARED  ? run->shared_bytes
           : space == PTX_LOCAL ? run->local_bytes
                                : run->kernel->info.param_bytes;
  return (uint64_t)(uintptr_t)begin;
}

bool ptx_do_to_generic(struct ptx_thread *t, const struct ptx_ins *i)
{
  uint64_t bytes;
  t->regs[i->out[0]] = t->regs[i->in[0]] + window(t, i->number, &bytes);
  return true;
}

bool ptx_do_from_generic(struct ptx_thread *t, const struct ptx_ins *i)
{
  uint64_t bytes;
  t->regs[i->out[0]] = t->regs[i->in[0]] - window(t, i->number, &bytes);
  return true;
}

static bool in_const(const struct ptx_module *m, uint64_t address)
{
  for (int i = 0; i < m->nglobals; i++) {
    const struct ptx_global *g = &m->globals[i];
    if (g->space == PTX_CONST && address - (uint64_t)(uintptr_t)g->storage < g->bytes) {
      return true;
    }
  }
  return false;
}

static bool within(const struct ptx_thread *t, int64_t space, uint64_t address)
{
  uint64_t bytes;
  return address - window(t, space, &bytes) < bytes;
}

bool ptx_do_isspace(struct ptx_thread *t, const struct ptx_ins *i)
{
  uint64_t address = t->regs[i->in[0]];
  bool answer;
  if (i->number == PTX_CONST) {
    answer = in_const(t->fn->module, address);
  } else if (i->number == PTX_GLOBAL) {
    answer = !within(t, PTX_SHARED, address) && !within(t, PTX_LOCAL, address) && !in_const(t->fn->module, address);
  } else {
    answer = within(t, i->number, address);
  }
  t->regs[i->out[0]] = answer;
  return true;
}
