// atomic.c: atom and red, as atomic operations of the host.
#include "ptx_priv.h"

static bool swap(uint8_t *at, int bytes, uint64_t *old, uint64_t value)
{
  bool done;
  if (bytes == 2) {
    uint16_t expected = (uint16_t)*old;
    done = __atomic_compare_exchange_n((uint16_t *)(void *)at, &expected, (uint16_t)value, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
    *old = expected;
  } else if (bytes == 4) {
    uint32_t expected = (uint32_t)*old;
    done = __atomic_compare_exchange_n((uint32_t *)(void *)at, &expected, (uint32_t)value, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
    *old = expected;
  } else {
    done = __atomic_compare_exchange_n((uint64_t *)(void *)at, old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  }
  return done;
}

static uint64_t operate(const struct ptx_atom *a, uint64_t old, uint64_t b, uint64_t c)
{
  uint64_t in[PTX_ALU_INS] = {old, b}, out[PTX_ALU_OUTS];
  switch ((enum ptx_atom_kind)a->kind) {
  case PTX_ATOM_EXCH: return b;
  case PTX_ATOM_CAS: return old == b ? c : old;
  case PTX_ATOM_INC: return old >= b ? 0 : old + 1;
  case PTX_ATOM_DEC: return old == 0 || old > b ? b : old - 1;
  case PTX_ATOM_ALU: break;
  }
  a->alu.run(&a->alu, in, out);
  return out[0];
}

static uint64_t operand(const struct ptx_thread *t, const struct ptx_ins *i, int index, int bytes)
{
  uint64_t value = t->regs[i->in[index]];
  return bytes == 8 ? value : value & ((UINT64_C(1) << (8 * bytes)) - 1);
}

bool ptx_do_atomic(struct ptx_thread *t, const struct ptx_ins *i)
{
  const struct ptx_atom *a = i->atom;
  const struct ptx_mem *m = &a->mem;
  bool direct;
  uint8_t *at = ptx_place(t, i, m, PTX_ATOMIC, &direct);
  if (!at) {
    return false;
  }
  if (t->view && !direct) {
    ptx_view_settle(t, at, m->bytes);
    if (m->sem == PTX_RELEASE || m->sem == PTX_ACQ_REL) {
      ptx_view_release(t, (enum ptx_scope)m->scope);
    }
  }
  uint64_t b = operand(t, i, 1, m->bytes), c = operand(t, i, 2, m->bytes), old = ptx_raw_load(at, m->bytes), value;
  do {
    value = operate(a, old, b, c);
  } while (!swap(at, m->bytes, &old, value));
  if (t->view && !direct) {
    ptx_view_overwritten(t, at, m->bytes, old);
    if (m->sem == PTX_ACQUIRE || m->sem == PTX_ACQ_REL) {
      ptx_view_acquire(t, (enum ptx_scope)m->scope);
    }
  }
  if (a->result) {
    t->regs[i->out[0]] = old;
  }
  if (value != old) {
    ptx_progress(t);
    return true;
  }
  return ptx_poll(t, i, (uint64_t)(uintptr_t)at, old);
}
