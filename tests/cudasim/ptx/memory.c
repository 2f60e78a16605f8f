// memory.c: where an access goes, and loads and stores.
#include "ptx_priv.h"

#include <inttypes.h>
#include <string.h>

uint64_t ptx_raw_load(const uint8_t *at, int bytes)
{
  switch (bytes) {
  case 1: return __atomic_load_n(at, __ATOMIC_ACQUIRE);
  case 2: return __atomic_load_n((const uint16_t *)(const void *)at, __ATOMIC_ACQUIRE);
  case 4: return __atomic_load_n((const uint32_t *)(const void *)at, __ATOMIC_ACQUIRE);
  default: return __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_ACQUIRE);
  }
}

void ptx_raw_store(uint8_t *at, int bytes, uint64_t value)
{
  switch (bytes) {
  case 1: __atomic_store_n(at, (uint8_t)value, __ATOMIC_RELEASE); break;
  case 2: __atomic_store_n((uint16_t *)(void *)at, (uint16_t)value, __ATOMIC_RELEASE); break;
  case 4: __atomic_store_n((uint32_t *)(void *)at, (uint32_t)value, __ATOMIC_RELEASE); break;
  default: __atomic_store_n((uint64_t *)(void *)at, value, __ATOMIC_RELEASE); break;
  }
}

static uint8_t *in_window(struct ptx_thread *t, const struct ptx_ins *i, enum ptx_space space, uint64_t at, size_t n)
{
  const struct ptx_run *run = t->cta->run;
  uint8_t *begin = space == PTX_SHARED ? t->cta->shared : space == PTX_LOCAL ? t->local : run->params;
  size_t bytes = space == PTX_SHARED  ? run->shared_bytes
                 : space == PTX_LOCAL ? run->local_bytes
                                      : run->kernel->info.param_bytes;
  if (at > bytes || n > bytes - at) {
    ptx_fault(t, i, "%s memory has %zu bytes, and the access goes to %" PRIu64 " to %" PRIu64,
              space == PTX_SHARED  ? "shared"
              : space == PTX_LOCAL ? "local"
                                   : "parameter",
              bytes, at, at + n - 1);
    return NULL;
  }
  return begin + at;
}

// A variable of the module: no callback knows of it. Returns the variable in which the address is.
static const struct ptx_global *variable_at(const struct ptx_module *m, uint64_t at)
{
  for (int i = 0; i < m->nglobals; i++) {
    if (at - (uint64_t)(uintptr_t)m->globals[i].storage < m->globals[i].bytes) {
      return &m->globals[i];
    }
  }
  return NULL;
}

static const char *access_name(int access)
{
  return access == PTX_READ ? "read" : access == PTX_WRITE ? "write" : "atomic operation";
}

static bool global_valid(struct ptx_thread *t, const struct ptx_ins *i, uint64_t at, size_t n, int access)
{
  const struct ptx_launch *launch = &t->cta->run->launch;
  const struct ptx_global *g = variable_at(t->fn->module, at);
  char why[PTX_TEXT]; // not cleared: this is asked at each access
  if (g) {
    if (access != PTX_READ && g->space == PTX_CONST) {
      return ptx_fault(t, i, "%s in the constant '%s'", access_name(access), g->name);
    }
    return at + n <= (uint64_t)(uintptr_t)g->storage + g->bytes ||
           ptx_fault(t, i, "%s beyond the end of '%s', which has %zu bytes", access_name(access), g->name, g->bytes);
  }
  strcpy(why, "no memory is there");
  if (at >= 4096 && (!launch->valid || launch->valid(launch->arg, at, n, (enum ptx_access)access, why))) {
    return true;
  }
  return ptx_fault(t, i, "invalid %s of %zu bytes at 0x%" PRIx64 ": %s", access_name(access), n, at, why);
}

uint8_t *ptx_place(struct ptx_thread *t, const struct ptx_ins *i, const struct ptx_mem *m, int access, bool *direct)
{
  uint64_t at = t->regs[i->in[0]] + (uint64_t)m->offset + (m->framed ? t->frame : 0);
  const struct ptx_run *run = t->cta->run;
  size_t n = (size_t)m->bytes * m->count;
  enum ptx_space space = (enum ptx_space)m->space;
  *direct = false;
  if (at & (n - 1)) {
    ptx_fault(t, i, "misaligned %s of %zu bytes at 0x%" PRIx64, access_name(access), n, at);
    return NULL;
  }
  if (space == PTX_GENERIC) {
    if (at - (uint64_t)(uintptr_t)t->cta->shared < run->shared_bytes) {
      space = PTX_SHARED;
      at -= (uint64_t)(uintptr_t)t->cta->shared;
    } else if (at - (uint64_t)(uintptr_t)t->local < run->local_bytes) {
      space = PTX_LOCAL;
      at -= (uint64_t)(uintptr_t)t->local;
    }
  }
  if (space == PTX_SHARED || space == PTX_LOCAL || space == PTX_PARAM) {
    *direct = space != PTX_SHARED;
    return in_window(t, i, space, at, n);
  }
  return global_valid(t, i, at, n, access) ? (uint8_t *)(uintptr_t)at : NULL;
}

static uint64_t extended(const struct ptx_mem *m, uint64_t value)
{
  int shift = 64 - 8 * m->bytes;
  value = (uint64_t)((int64_t)(value << shift) >> shift);
  return m->reg_bytes == 8 ? value : value & ((UINT64_C(1) << (8 * m->reg_bytes)) - 1);
}

bool ptx_poll(struct ptx_thread *t, const struct ptx_ins *i, uint64_t address, uint64_t value)
{
  const uint64_t key = (address ^ ((uint64_t)(uintptr_t)i << 20)) | 1;
  struct ptx_polled *set = t->poll[key * UINT64_C(0x9e3779b97f4a7c15) >> 63];
  int at = 0;
  while (at < PTX_POLLED && set[at].key != key) {
    at++;
  }
  if (at < PTX_POLLED && set[at].value == value) {
    return ptx_repeat(t);
  }
  if (at == PTX_POLLED) { // the oldest one goes
    memmove(set + 1, set, (PTX_POLLED - 1) * sizeof *set);
    at = 0;
  }
  set[at] = (struct ptx_polled){key, value};
  ptx_progress(t);
  return true;
}

bool ptx_repeat(struct ptx_thread *t)
{
  if (++t->repeats < PTX_REPEATS) {
    return true;
  }
  struct ptx_run *run = t->cta->run;
  t->repeats = 0;
  t->yields = true;
  if (t->polled != run->epoch) {
    t->polled = run->epoch;
    run->polled++;
  }
  return false;
}

bool ptx_do_load(struct ptx_thread *t, const struct ptx_ins *i)
{
  const struct ptx_mem *m = &i->mem;
  bool direct;
  const uint8_t *at = ptx_place(t, i, m, PTX_READ, &direct);
  uint64_t mix = 0;
  if (!at) {
    return false;
  }
  if (!direct && ptx_makes_line(t, i)) {
    return ptx_do_line(t, i);
  }
  bool viewed = t->view && !direct;
  for (int j = 0; j < m->count; j++, at += m->bytes) {
    uint64_t value = viewed ? ptx_view_load(t, m, at) : ptx_raw_load(at, m->bytes);
    mix = mix * 31 + value;
    t->regs[i->out[j]] = m->extend_sign ? extended(m, value) : value;
  }
  if (direct) {
    return true;
  }
  if (m->sem == PTX_ACQUIRE && t->view) {
    ptx_view_acquire(t, (enum ptx_scope)m->scope);
  }
  return ptx_poll(t, i, (uint64_t)(uintptr_t)at, mix);
}

static uint64_t low_bits(uint64_t value, int bytes)
{
  return bytes == 8 ? value : value & ((UINT64_C(1) << (8 * bytes)) - 1);
}

bool ptx_do_store(struct ptx_thread *t, const struct ptx_ins *i)
{
  const struct ptx_mem *m = &i->mem;
  bool direct, changed = t->view != NULL;
  uint8_t *at = ptx_place(t, i, m, PTX_WRITE, &direct);
  if (!at) {
    return false;
  }
  if (!direct && ptx_makes_line(t, i)) {
    return ptx_do_line(t, i);
  }
  for (int j = 0; j < m->count; j++, at += m->bytes) {
    uint64_t value = low_bits(t->regs[i->in[1 + j]], m->bytes);
    if (t->view && !direct) {
      ptx_view_store(t, m, at, value);
    } else {
      changed |= ptx_raw_load(at, m->bytes) != value;
      ptx_raw_store(at, m->bytes, value);
    }
  }
  if (changed && !direct) {
    ptx_progress(t);
  }
  return true;
}

bool ptx_do_fence(struct ptx_thread *t, const struct ptx_ins *i)
{
  if (t->view) {
    ptx_view_fence(t, (enum ptx_sem)i->mem.sem, (enum ptx_scope)i->mem.scope);
  }
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  return true;
}
