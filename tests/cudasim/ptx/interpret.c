// interpret.c: the loop that executes instructions, and those that touch registers alone.
#include "ptx_priv.h"

#include <string.h>

int64_t ptx_interpret(struct ptx_thread *t, int64_t most)
{
  const struct ptx_ins *i = t->pc;
  uint64_t *r = t->regs, in[PTX_ALU_INS], out[PTX_ALU_OUTS];
  int64_t left = most;
  while (left > 0) {
    left--;
    if (i->guard >= 0 && (r[i->guard] != 0) == i->negated) {
      i++;
      continue;
    }
    switch ((enum ptx_op)i->op) {
    case PTX_OP_ALU:
      in[0] = r[i->in[0]];
      in[1] = r[i->in[1]];
      in[2] = r[i->in[2]];
      i->alu.run(&i->alu, in, out);
      r[i->out[0]] = out[0];
      i++;
      break;
    case PTX_OP_ALU_PAIR:
      in[0] = r[i->in[0]];
      in[1] = r[i->in[1]];
      in[2] = r[i->in[2]];
      i->alu.run(&i->alu, in, out);
      r[i->out[0]] = out[0];
      r[i->out[1]] = out[1];
      i++;
      break;
#define QUICK(name)                                                            \
  case PTX_OP_##name:                                                          \
    r[i->out[0]] = alu_##name(&i->alu, r[i->in[0]], r[i->in[1]], r[i->in[2]]); \
    i++;                                                                       \
    break;
      ALU_QUICK(QUICK)
#undef QUICK
    case PTX_OP_setp:
      out[0] = alu_compare_ints(&i->alu, r[i->in[0]], r[i->in[1]]);
      r[i->out[0]] = out[0];
      r[i->out[1]] = !out[0];
      i++;
      break;
    case PTX_OP_MOVE:
      r[i->out[0]] = r[i->in[0]];
      i++;
      break;
    case PTX_OP_BRANCH: i = t->fn->code + i->target; break;
    case PTX_OP_EXEC:
      t->pc = i + 1;
      if (!i->exec(t, i)) {
        return most - left;
      }
      i = t->pc;
      r = t->regs;
      break;
    }
  }
  t->pc = i;
  return most - left;
}

static uint64_t low(uint64_t value, int bytes)
{
  return bytes == 8 ? value : value & ((UINT64_C(1) << (bytes ? 8 * bytes : 1)) - 1);
}

static uint64_t extend(uint64_t value, int from, int to)
{
  int shift = 64 - 8 * from;
  return low((uint64_t)((int64_t)(value << shift) >> shift), to);
}

bool ptx_do_alu_any(struct ptx_thread *t, const struct ptx_ins *i)
{
  uint64_t in[PTX_ALU_INS] = {0}, out[PTX_ALU_OUTS] = {0};
  for (int j = 0; j < i->ins; j++) {
    in[j] = t->regs[i->in[j]];
    if (i->wide && j < i->alu.ins) {
      in[j] = low(in[j], i->alu.in_bytes[j]);
    }
  }
  i->alu.run(&i->alu, in, out);
  for (int j = 0; j < i->outs; j++) {
    t->regs[i->out[j]] = out[j];
  }
  if (i->out_extend) {
    t->regs[i->out[0]] = extend(out[0], i->alu.out_bytes[0], i->out_extend);
  }
  return true;
}

bool ptx_do_not(struct ptx_thread *t, const struct ptx_ins *i)
{
  t->regs[i->out[0]] = !t->regs[i->in[0]];
  return true;
}

bool ptx_do_pack(struct ptx_thread *t, const struct ptx_ins *i)
{
  uint64_t value = 0;
  for (int j = 0; j < i->ins; j++) {
    value |= t->regs[i->in[j]] << (8 * i->number * j);
  }
  t->regs[i->out[0]] = value;
  return true;
}

bool ptx_do_unpack(struct ptx_thread *t, const struct ptx_ins *i)
{
  uint64_t value = t->regs[i->in[0]];
  for (int j = 0; j < i->outs; j++) {
    t->regs[i->out[j]] = low(value >> (8 * i->number * j), (int)i->number);
  }
  return true;
}

static void copy_value(const struct ptx_copy *c, uint64_t *from, uint8_t *from_frame, uint64_t *to, uint8_t *to_frame)
{
  if (c->from_reg && c->to_reg) {
    to[c->to] = from[c->from];
  } else if (c->from_reg) {
    memcpy(to_frame + c->to, &from[c->from], c->bytes);
  } else if (c->to_reg) {
    to[c->to] = 0;
    memcpy(&to[c->to], from_frame + c->from, c->bytes);
  } else {
    memmove(to_frame + c->to, from_frame + c->from, c->bytes);
  }
}

bool ptx_do_call(struct ptx_thread *t, const struct ptx_ins *i)
{
  const struct ptx_call *call = i->call;
  const struct ptx_kernel *f = call->callee;
  uint64_t *regs = t->regs + t->fn->regs + t->fn->consts;
  size_t frame = t->frame + t->fn->frame_bytes;
  memcpy(regs + f->regs, f->values, (size_t)f->consts * sizeof *regs);
  for (int j = 0; j < call->arguments; j++) {
    copy_value(&call->copies[j], t->regs, t->local + t->frame, regs, t->local + frame);
  }
  t->stack[t->depth++] = (struct ptx_return){t->pc, t->fn, call, t->regs, t->frame};
  t->fn = f;
  t->regs = regs;
  t->frame = frame;
  t->pc = f->code;
  return true;
}

bool ptx_do_ret(struct ptx_thread *t, const struct ptx_ins *i)
{
  (void)i;
  if (t->depth == 0) {
    return ptx_thread_end(t);
  }
  const struct ptx_return *to = &t->stack[--t->depth];
  const struct ptx_call *call = to->call;
  for (int j = 0; j < call->results; j++) {
    copy_value(&call->copies[call->arguments + j], t->regs, t->local + t->frame, to->regs, t->local + to->frame);
  }
  t->fn = to->fn;
  t->regs = to->regs;
  t->frame = to->frame;
  t->pc = to->pc;
  return true;
}

bool ptx_do_exit(struct ptx_thread *t, const struct ptx_ins *i)
{
  (void)i;
  return ptx_thread_end(t);
}

bool ptx_do_trap(struct ptx_thread *t, const struct ptx_ins *i)
{
  return ptx_fault(t, i, "the kernel traps");
}

bool ptx_do_nothing(struct ptx_thread *t, const struct ptx_ins *i)
{
  (void)t;
  (void)i;
  return true;
}

bool ptx_do_yield(struct ptx_thread *t, const struct ptx_ins *i)
{
  (void)i;
  t->yields = true;
  return false;
}
