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

uint32_t ptx_hash(const char *text, size_t n)
{
  uint32_t hash = 2166136261;
  for (size_t i = 0; i < n; i++) {
    hash = (hash ^ (unsigned char)text[i]) * 16777619;
  }
  return hash ^ hash >> 16;
}

void ptx_symbols_drop(struct ptx_parser *p, int n)
{
  while (p->nsymbols > n) {
    const struct ptx_symbol *s = &p->symbols[--p->nsymbols];
    p->bucket[s->hash % PTX_BUCKETS] = s->before;
  }
}

// The symbol that was added last of those with these n characters as their name; before: of those that were added
// before that one. NULL: there is none.
static struct ptx_symbol *symbol_named(struct ptx_parser *p, const char *name, size_t n,
                                       const struct ptx_symbol *before)
{
  uint32_t hash = before ? before->hash : ptx_hash(name, n);
  for (int i = before ? before->before : p->bucket[hash % PTX_BUCKETS]; i > 0; i = p->symbols[i - 1].before) {
    struct ptx_symbol *s = &p->symbols[i - 1];
    if (s->hash == hash && strncmp(s->name, name, n) == 0 && !s->name[n]) {
      return s;
    }
  }
  return NULL;
}

static bool resolve(struct ptx_parser *p, const struct ptx_reference *r, int from)
{
  size_t n = strlen(r->name);
  for (const struct ptx_symbol *s = symbol_named(p, r->name, n, NULL); s && s >= p->symbols + from;
       s = symbol_named(p, r->name, n, s)) {
    if (s->kind == PTX_SYM_LABEL) {
      *(r->target ? r->target : &p->fn->code[r->ins].target) = s->slot;
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
  ptx_symbols_drop(p, from);
  return !p->failed;
}

struct ptx_symbol *ptx_symbol_add(struct ptx_parser *p, const char *name, enum ptx_symbol_kind kind)
{
  p->symbols = ptx_grow(p->symbols, &p->symbols_room, p->nsymbols, sizeof *p->symbols);
  struct ptx_symbol *s = &p->symbols[p->nsymbols++];
  uint32_t hash = ptx_hash(name, strlen(name));
  int *bucket = &p->bucket[hash % PTX_BUCKETS];
  *s = (struct ptx_symbol){.name = keep_name(p->module, name), .hash = hash, .before = *bucket, .kind = kind};
  *bucket = p->nsymbols;
  return s;
}

// %r12 of %r<20>.
static bool find_in_range(struct ptx_parser *p, const char *name, size_t length, struct ptx_symbol *symbol)
{
  size_t n = length;
  while (n > 0 && isdigit((unsigned char)name[n - 1])) {
    n--;
  }
  long index = name[n] ? strtol(name + n, NULL, 10) : -1;
  for (const struct ptx_symbol *s = index >= 0 ? symbol_named(p, name, n, NULL) : NULL; s;
       s = symbol_named(p, name, n, s)) {
    if (s->kind == PTX_SYM_RANGE && index < s->count) {
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
  size_t n = strlen(name);
  for (const struct ptx_symbol *s = symbol_named(p, name, n, NULL); s; s = symbol_named(p, name, n, s)) {
    if (s->kind != PTX_SYM_RANGE) {
      *symbol = *s;
      return true;
    }
  }
  return find_in_range(p, name, n, symbol);
}

bool ptx_label_here(struct ptx_parser *p, const char *name)
{
  const struct ptx_symbol *s = symbol_named(p, name, strlen(name), NULL);
  if (s && s >= p->symbols + p->scopes[p->scope - 1]) {
    return ptx_fail(p, "'%.60s' is there already", name);
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
    if (ptx_same(type, types[i].name)) {
      return types[i].bytes;
    }
  }
  return -1;
}
