// operand.c: operands of instructions, and the slots they become.
#include "ptx_priv.h"

#include <stddef.h>
#include <string.h>

static bool copy_text(struct ptx_parser *p, char *text)
{
  if (strlen(p->token) >= 46) { // and a sign
    return ptx_fail(p, "'%.60s' is too long", p->token);
  }
  strcpy(text, p->token);
  return true;
}

// What a name stands for.
static bool parse_name(struct ptx_parser *p, struct ptx_operand *o)
{
  if (ptx_is(p, "_")) {
    o->kind = PTX_O_SINK;
  } else if (ptx_is(p, "WARP_SZ")) {
    o->kind = PTX_O_NUMBER;
    strcpy(o->text, "32");
  } else if (ptx_symbol_find(p, p->token, &o->symbol)) {
    o->kind = o->symbol.kind == PTX_SYM_REG ? PTX_O_REG : PTX_O_SYMBOL;
    o->slot = o->symbol.slot;
    o->bytes = o->symbol.bytes;
  } else if (p->token[0] == '%' && ptx_special_find(p->token) >= 0) {
    o->kind = PTX_O_SPECIAL;
    if (!copy_text(p, o->text)) {
      return false;
    }
  } else { // a label, perhaps
    return ptx_fail(p, "'%.60s' is not declared", p->token);
  }
  ptx_next(p);
  return true;
}

static bool parse_number(struct ptx_parser *p, struct ptx_operand *o)
{
  bool minus = ptx_accept(p, "-");
  if (p->kind != PTX_NUMBER) {
    return ptx_fail(p, "a number expected, not '%.60s'", p->token);
  }
  o->kind = PTX_O_NUMBER;
  o->text[0] = '-';
  if (!copy_text(p, o->text + minus)) {
    return false;
  }
  ptx_next(p);
  return true;
}

static bool parse_scalar(struct ptx_parser *p, struct ptx_operand *o)
{
  if (p->kind == PTX_NUMBER || ptx_is(p, "-")) {
    return parse_number(p, o);
  }
  o->negated = ptx_accept(p, "!");
  if (p->kind != PTX_WORD) {
    return ptx_fail(p, "an operand expected, not '%.60s'", p->token);
  }
  return parse_name(p, o);
}

static bool parse_vector(struct ptx_parser *p, struct ptx_operand *o)
{
  o->kind = PTX_O_VECTOR;
  do {
    struct ptx_operand e;
    memset(&e, 0, offsetof(struct ptx_operand, element));
    if (!parse_scalar(p, &e)) {
      return false;
    }
    if (o->count == PTX_VECTOR || (e.kind != PTX_O_REG && e.kind != PTX_O_NUMBER && e.kind != PTX_O_SINK)) {
      return ptx_fail(p, "a vector of at most %d registers and numbers expected", PTX_VECTOR);
    }
    o->element[o->count].number = e.kind == PTX_O_NUMBER;
    o->element[o->count].sink = e.kind == PTX_O_SINK;
    o->element[o->count].slot = e.slot;
    o->element[o->count].bytes = e.bytes;
    strcpy(o->element[o->count].text, e.text);
    o->count++;
  } while (ptx_accept(p, ","));
  return ptx_expect(p, "}");
}

static bool parse_address(struct ptx_parser *p, struct ptx_operand *o)
{
  if (p->kind == PTX_WORD) {
    if (!parse_name(p, o)) {
      return false;
    }
    if (o->kind != PTX_O_REG && o->kind != PTX_O_SYMBOL) {
      return ptx_fail(p, "this cannot be an address");
    }
    o->based = true;
    if (ptx_accept(p, "+")) {
      if (!ptx_integer(p, &o->offset)) {
        return false;
      }
    } else if (ptx_is(p, "-") && !ptx_integer(p, &o->offset)) {
      return false;
    }
  } else if (!ptx_integer(p, &o->offset)) {
    return false;
  }
  bool reg = o->kind == PTX_O_REG && o->based;
  o->kind = PTX_O_ADDRESS;
  o->slot = reg ? o->slot : -1;
  return ptx_expect(p, "]");
}

bool ptx_parse_operand(struct ptx_parser *p, struct ptx_operand *o)
{
  memset(o, 0, offsetof(struct ptx_operand, element));
  if (ptx_accept(p, "{")) {
    return parse_vector(p, o);
  }
  if (ptx_accept(p, "[")) {
    return parse_address(p, o);
  }
  return parse_scalar(p, o);
}

struct ptx_ins *ptx_emit(struct ptx_parser *p, const struct ptx_source *s, ptx_exec *exec)
{
  struct ptx_kernel *f = p->fn;
  f->code = ptx_grow(f->code, &f->room, f->n, sizeof *f->code);
  struct ptx_ins *ins = &f->code[f->n++];
  memset(ins, 0, sizeof *ins);
  ins->guard = -1;
  ins->exec = exec;
  ins->line = s->line;
  ins->text = s->text;
  ins->opcode = p->opcode;
  return ins;
}

// An instruction that makes a value for the operand.
static int helper(struct ptx_parser *p, const struct ptx_source *s, ptx_exec *exec, int in, int64_t number)
{
  int out = ptx_slot_new(p, 1);
  struct ptx_ins *ins = ptx_emit(p, s, exec);
  ins->in[0] = (uint16_t)in;
  ins->out[0] = (uint16_t)out;
  ins->number = number;
  return out;
}

// The address of a variable, as a value.
static int symbol_value(struct ptx_parser *p, const struct ptx_source *s, const struct ptx_symbol *symbol)
{
  struct ptx_kernel *f = p->fn;
  switch (symbol->kind) {
  case PTX_SYM_SHARED:
    if (f->shared_end < symbol->address + symbol->size) {
      f->shared_end = symbol->address + symbol->size;
    }
    return ptx_slot_const(p, symbol->address);
  case PTX_SYM_DYNAMIC:
    f->dynamic = true;
    return helper(p, s, ptx_do_special, 0, ptx_special_find("%dynamic_shared_begin"));
  case PTX_SYM_FRAME: return helper(p, s, ptx_do_frame, 0, (int64_t)symbol->address);
  case PTX_SYM_MEMORY:
  case PTX_SYM_PARAM: return ptx_slot_const(p, symbol->address);
  default: ptx_fail(p, "'%.60s' has no value", symbol->name); return -1;
  }
}

int ptx_input(struct ptx_parser *p, const struct ptx_source *s, const struct ptx_operand *o, int bytes)
{
  uint64_t bits;
  switch (o->kind) {
  case PTX_O_REG: return o->negated ? helper(p, s, ptx_do_not, o->slot, 0) : o->slot;
  case PTX_O_NUMBER: return ptx_number_bits(p, o->text, bytes, &bits) ? ptx_slot_const(p, bits) : -1;
  case PTX_O_SPECIAL: return helper(p, s, ptx_do_special, 0, ptx_special_find(o->text));
  case PTX_O_SYMBOL: return symbol_value(p, s, &o->symbol);
  case PTX_O_ADDRESS:
    if (o->slot >= 0) {
      return o->slot;
    }
    return o->based ? symbol_value(p, s, &o->symbol) : ptx_slot_const(p, 0);
  default: ptx_fail(p, "an operand of this kind cannot be read here"); return -1;
  }
}

int ptx_output(struct ptx_parser *p, const struct ptx_operand *o)
{
  if (o->kind == PTX_O_SINK) {
    p->sink = p->sink < 0 ? ptx_slot_new(p, 1) : p->sink;
    return p->sink;
  }
  if (o->kind != PTX_O_REG || o->negated) {
    ptx_fail(p, "a register expected for the result");
    return -1;
  }
  return o->slot;
}
