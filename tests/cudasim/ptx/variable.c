// variable.c: declarations of variables and registers, and their initialisers.
#include "ptx_priv.h"

#include <stdlib.h>
#include <string.h>

// A declaration while it is read.
struct variable {
  enum ptx_space space;
  bool external;
  int element; // bytes
  size_t align, bytes;
  bool open; // "[]"
  char name[1024];
};

static bool read_type(struct ptx_parser *p, struct variable *v)
{
  int vector = 1;
  v->element = -1;
  while (p->kind == PTX_WORD && p->token[0] == '.') {
    int64_t n;
    if (ptx_accept(p, ".align")) {
      if (!ptx_integer(p, &n) || n <= 0 || n > 128) {
        return ptx_fail(p, "an alignment from 1 to 128 expected");
      }
      v->align = (size_t)n;
      continue;
    }
    vector = ptx_is(p, ".v2") ? 2 : ptx_is(p, ".v4") ? 4 : vector;
    int bytes = ptx_type_bytes(p->token + 1);
    if (bytes < 0 && p->token[1] != 'v') {
      return ptx_fail(p, "'%.60s' is no type", p->token);
    }
    v->element = bytes >= 0 ? bytes : v->element;
    ptx_next(p);
  }
  if (v->element < 0) {
    return ptx_fail(p, "a type expected, not '%.60s'", p->token);
  }
  v->align = v->align ? v->align : (size_t)(v->element ? v->element * vector : 1);
  v->bytes = (size_t)(v->element * vector);
  return true;
}

static bool read_name(struct ptx_parser *p, struct variable *v)
{
  if (p->kind != PTX_WORD) {
    return ptx_fail(p, "a name expected, not '%.60s'", p->token);
  }
  strcpy(v->name, p->token);
  ptx_next(p);
  while (ptx_accept(p, "[")) {
    int64_t n = 0;
    v->open = ptx_is(p, "]");
    if (!v->open && !ptx_integer(p, &n)) {
      return false;
    }
    v->bytes *= (size_t)n;
    if (!ptx_expect(p, "]")) {
      return false;
    }
  }
  return true;
}

// A value of an initialiser: a number, or the address of a variable.
static bool init_value(struct ptx_parser *p, int bytes, uint64_t *value)
{
  bool minus = ptx_accept(p, "-");
  if (p->kind == PTX_NUMBER) {
    if (!ptx_number_bits(p, p->token, bytes, value)) {
      return false;
    }
    *value = minus ? -*value : *value;
    ptx_next(p);
    return true;
  }
  bool generic = ptx_accept(p, "generic") && ptx_expect(p, "(");
  struct ptx_symbol s;
  if (!ptx_symbol_find(p, p->token, &s) || s.kind != PTX_SYM_MEMORY || bytes != 8) {
    return ptx_fail(p, "'%.60s' cannot stand in an initialiser here", p->token);
  }
  ptx_next(p);
  *value = s.address;
  if (generic && !ptx_expect(p, ")")) {
    return false;
  }
  int64_t offset = 0;
  if (ptx_accept(p, "+") && !ptx_integer(p, &offset)) {
    return false;
  }
  *value += (uint64_t)offset;
  return true;
}

static bool initialise(struct ptx_parser *p, const struct variable *v, uint8_t *storage)
{
  size_t at = 0;
  int depth = 0;
  do {
    while (ptx_accept(p, "{")) {
      depth++;
    }
    uint64_t value;
    if (!init_value(p, v->element, &value)) {
      return false;
    }
    if (at + (size_t)v->element > v->bytes) {
      return ptx_fail(p, "more values than '%.60s' has", v->name);
    }
    memcpy(storage + at, &value, (size_t)v->element);
    at += (size_t)v->element;
    while (depth > 0 && ptx_accept(p, "}")) {
      depth--;
    }
  } while (depth > 0 && ptx_expect(p, ","));
  return !p->failed;
}

static bool add_memory(struct ptx_parser *p, const struct variable *v)
{
  struct ptx_module *m = p->module;
  if (v->external) {
    return ptx_fail(p, "'%.60s' is in another module, and nothing is linked here", v->name);
  }
  struct ptx_symbol *s = ptx_symbol_add(p, v->name, PTX_SYM_MEMORY);
  uint8_t *storage = ptx_keep(m, v->bytes);
  s->space = v->space;
  s->address = (uint64_t)(uintptr_t)storage;
  s->size = v->bytes;
  m->globals = ptx_grow(m->globals, &m->globals_room, m->nglobals, sizeof *m->globals);
  m->globals[m->nglobals++] =
      (struct ptx_global){.name = s->name, .space = v->space, .storage = storage, .bytes = v->bytes};
  return !ptx_accept(p, "=") || initialise(p, v, storage);
}

static size_t place(size_t *end, const struct variable *v)
{
  size_t at = (*end + v->align - 1) / v->align * v->align;
  *end = at + v->bytes;
  return at;
}

// Those of an entry stand behind those of the module so far: entries share the place of theirs.
static bool add_shared(struct ptx_parser *p, const struct variable *v)
{
  if (v->open || (v->external && v->bytes == 0)) {
    ptx_symbol_add(p, v->name, PTX_SYM_DYNAMIC);
    return true;
  }
  size_t *end = &p->module->shared_end;
  if (p->fn && p->fn->entry) {
    p->fn->shared_end = p->fn->shared_end > *end ? p->fn->shared_end : *end;
    end = &p->fn->shared_end;
    p->fn->own_shared = p->fn->own_shared ? p->fn->own_shared : p->module->shared_end + 1;
  }
  struct ptx_symbol *s = ptx_symbol_add(p, v->name, PTX_SYM_SHARED);
  s->address = place(end, v);
  s->size = v->bytes;
  return true;
}

static bool add_variable(struct ptx_parser *p, const struct variable *v)
{
  if (v->space == PTX_SHARED) {
    return add_shared(p, v);
  }
  if (v->space == PTX_LOCAL || v->space == PTX_PARAM) {
    struct ptx_symbol *s = ptx_symbol_add(p, v->name, PTX_SYM_FRAME);
    s->address = place(&p->fn->frame_bytes, v);
    s->size = v->bytes;
    s->space = v->space;
    s->bytes = (int)v->bytes;
    return true;
  }
  return add_memory(p, v);
}

static bool parse_registers(struct ptx_parser *p)
{
  ptx_next(p);
  if (p->kind != PTX_WORD || ptx_type_bytes(p->token + 1) < 0) {
    return ptx_fail(p, "'%.60s' is no type of registers here", p->token);
  }
  int bytes = ptx_type_bytes(p->token + 1);
  ptx_next(p);
  do {
    if (p->kind != PTX_WORD) {
      return ptx_fail(p, "a name expected, not '%.60s'", p->token);
    }
    struct ptx_symbol *s = ptx_symbol_add(p, p->token, PTX_SYM_REG);
    int64_t count = 1;
    s->bytes = bytes;
    ptx_next(p);
    if (ptx_accept(p, "<")) {
      if (!ptx_integer(p, &count) || !ptx_expect(p, ">")) {
        return false;
      }
      s->kind = PTX_SYM_RANGE;
    }
    if (count < 0 || count > PTX_CONST_SLOT) {
      return ptx_fail(p, "too many registers");
    }
    s->count = (int)count;
    s->slot = ptx_slot_new(p, (int)count);
  } while (ptx_accept(p, ","));
  return ptx_expect(p, ";");
}

bool ptx_parse_variables(struct ptx_parser *p, bool external)
{
  static const char *const spaces[] = {
      [PTX_GLOBAL] = ".global", [PTX_CONST] = ".const", [PTX_SHARED] = ".shared",
      [PTX_LOCAL] = ".local",   [PTX_PARAM] = ".param",
  };
  if (ptx_is(p, ".reg")) {
    return parse_registers(p);
  }
  struct variable v = {.external = external};
  for (int i = PTX_GLOBAL; i <= PTX_PARAM; i++) {
    if (ptx_is(p, spaces[i])) {
      v.space = (enum ptx_space)i;
    }
  }
  ptx_next(p);
  if (!read_type(p, &v)) {
    return false;
  }
  size_t bytes = v.bytes;
  do {
    v.bytes = bytes;
    v.open = false;
    if (!read_name(p, &v) || !add_variable(p, &v)) {
      return false;
    }
  } while (ptx_accept(p, ","));
  return ptx_expect(p, ";");
}
