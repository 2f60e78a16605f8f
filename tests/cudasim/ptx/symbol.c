// symbol.c: names and their scopes, labels, slots of registers and constants, memory of a module.
#include "ptx_priv.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *or_die(void *memory)
{
  if (!memory) {
    fputs("PTX machine: no memory\n", stderr);
    abort();
  }
  return memory;
}

void *ptx_grow(void *array, int *room, int n, size_t element)
{
  if (n < *room) {
    return array;
  }
  *room = *room ? 2 * *room : 16;
  return or_die(realloc(array, (size_t)*room * element));
}

void *ptx_keep(struct ptx_module *module, size_t bytes)
{
  size_t room = (bytes + 127) / 128 * 128 + 128;
  void *memory = or_die(aligned_alloc(128, room));
  memset(memory, 0, room);
  module->kept = ptx_grow(module->kept, &module->kept_room, module->nkept, sizeof *module->kept);
  module->kept[module->nkept++] = memory;
  return memory;
}

static char *keep_name(struct ptx_module *module, const char *name)
{
  size_t n = strlen(name) + 1;
  return memcpy(ptx_keep(module, n), name, n);
}

void ptx_scope_open(struct ptx_parser *p)
{
  p->scopes = ptx_grow(p->scopes, &p->scopes_room, p->scope, sizeof *p->scopes);
  p->scopes[p->scope++] = p->nsymbols;
}

static struct ptx_symbol *find_exactly(struct ptx_parser *p, const char *name)
{
  for (int i = p->nsymbols - 1; i >= 0; i--) {
    if (p->symbols[i].kind != PTX_SYM_RANGE && strcmp(p->symbols[i].name, name) == 0) {
      return &p->symbols[i];
    }
  }
  return NULL;
}

static bool resolve(struct ptx_parser *p, const struct ptx_reference *r, int from)
{
  for (int i = from; i < p->nsymbols; i++) {
    if (p->symbols[i].kind == PTX_SYM_LABEL && strcmp(p->symbols[i].name, r->name) == 0) {
      *(r->target ? r->target : &p->fn->code[r->ins].target) = p->symbols[i].slot;
      return true;
    }
  }
  return false;
}

// Labels of the scope that closes are known now; other references wait for the scope around it.
bool ptx_scope_close(struct ptx_parser *p)
{
  int from = p->scopes[--p->scope], kept = 0;
  for (int i = 0; i < p->nreferences; i++) {
    struct ptx_reference *r = &p->references[i];
    if (r->scope <= p->scope) {
      p->references[kept++] = *r;
    } else if (resolve(p, r, from)) {
      continue;
    } else if (p->scope <= 1) { // 1: that of the function's parameters
      p->token_line = (int)r->line;
      p->opcode = NULL;
      return ptx_fail(p, "the label '%.60s' is not in this function", r->name);
    } else {
      r->scope = p->scope;
      p->references[kept++] = *r;
    }
  }
  p->nreferences = kept;
  p->nsymbols = from;
  return !p->failed;
}

struct ptx_symbol *ptx_symbol_add(struct ptx_parser *p, const char *name, enum ptx_symbol_kind kind)
{
  p->symbols = ptx_grow(p->symbols, &p->symbols_room, p->nsymbols, sizeof *p->symbols);
  struct ptx_symbol *s = &p->symbols[p->nsymbols++];
  *s = (struct ptx_symbol){.name = keep_name(p->module, name), .kind = kind};
  return s;
}

// %r12 of %r<20>.
static bool find_in_range(struct ptx_parser *p, const char *name, struct ptx_symbol *symbol)
{
  size_t n = strlen(name);
  while (n > 0 && isdigit((unsigned char)name[n - 1])) {
    n--;
  }
  long index = name[n] ? strtol(name + n, NULL, 10) : -1;
  for (int i = p->nsymbols - 1; i >= 0 && index >= 0; i--) {
    const struct ptx_symbol *s = &p->symbols[i];
    if (s->kind == PTX_SYM_RANGE && strlen(s->name) == n && memcmp(s->name, name, n) == 0 && index < s->count) {
      *symbol = *s;
      symbol->kind = PTX_SYM_REG;
      symbol->slot += (int)index;
      return true;
    }
  }
  return false;
}

bool ptx_symbol_find(struct ptx_parser *p, const char *name, struct ptx_symbol *symbol)
{
  const struct ptx_symbol *s = find_exactly(p, name);
  if (s) {
    *symbol = *s;
    return true;
  }
  return find_in_range(p, name, symbol);
}

bool ptx_label_here(struct ptx_parser *p, const char *name)
{
  for (int i = p->scopes[p->scope - 1]; i < p->nsymbols; i++) {
    if (strcmp(p->symbols[i].name, name) == 0) {
      return ptx_fail(p, "'%.60s' is there already", name);
    }
  }
  ptx_symbol_add(p, name, PTX_SYM_LABEL)->slot = p->fn->n;
  return true;
}

void ptx_label_refer(struct ptx_parser *p, const char *name, int ins, int32_t *target)
{
  p->references = ptx_grow(p->references, &p->references_room, p->nreferences, sizeof *p->references);
  p->references[p->nreferences++] = (struct ptx_reference){.scope = p->scope,
                                                           .target = target,
                                                           .ins = ins,
                                                           .name = keep_name(p->module, name),
                                                           .line = (uint32_t)p->token_line};
}

int ptx_slot_new(struct ptx_parser *p, int count)
{
  int slot = p->fn->regs;
  if (count < 0 || count >= PTX_CONST_SLOT - slot) {
    ptx_fail(p, "too many registers");
    return 0;
  }
  p->fn->regs += count;
  return slot;
}

int ptx_slot_const(struct ptx_parser *p, uint64_t value)
{
  struct ptx_kernel *f = p->fn;
  for (int i = 0; i < f->consts; i++) {
    if (f->values[i] == value) {
      return PTX_CONST_SLOT + i;
    }
  }
  if (f->consts >= PTX_CONST_SLOT) {
    ptx_fail(p, "too many constants");
    return 0;
  }
  f->values = ptx_grow(f->values, &f->consts_room, f->consts, sizeof *f->values);
  f->values[f->consts] = value;
  return PTX_CONST_SLOT + f->consts++;
}

int ptx_type_bytes(const char *type)
{
  static const struct {
    const char *name;
    int bytes;
  } types[] = {{"pred", 0},   {"b8", 1},   {"u8", 1},  {"s8", 1},  {"b16", 2}, {"u16", 2}, {"s16", 2},
               {"f16", 2},    {"bf16", 2}, {"b32", 4}, {"u32", 4}, {"s32", 4}, {"f32", 4}, {"f16x2", 4},
               {"bf16x2", 4}, {"b64", 8},  {"u64", 8}, {"s64", 8}, {"f64", 8}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    if (strcmp(type, types[i].name) == 0) {
      return types[i].bytes;
    }
  }
  return -1;
}
