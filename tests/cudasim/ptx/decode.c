// decode.c: instructions that move values, compute, or change the flow of control.
#include "ptx_priv.h"

#include <string.h>

static bool is(const struct ptx_source *s, int word, const char *text)
{
  return word < s->nwords && ptx_same(s->word[word], text);
}

static enum ptx_decoded done(bool good)
{
  return good ? PTX_DECODED : PTX_BAD;
}

static bool operands(struct ptx_parser *p, const struct ptx_source *s, int n)
{
  return s->noperands == n || ptx_fail(p, "%d operands expected, not %d", n, s->noperands);
}

// out = in, for slots.
static struct ptx_ins *emit_move(struct ptx_parser *p, const struct ptx_source *s, int out, int in)
{
  struct ptx_ins *ins = ptx_emit(p, s, NULL);
  ins->op = PTX_OP_MOVE;
  ins->in[0] = (uint16_t)in;
  ins->out[0] = (uint16_t)out;
  return ins;
}

static bool same_width(struct ptx_parser *p, const struct ptx_operand *o, int bytes)
{
  return o->kind != PTX_O_REG || o->bytes == bytes ||
         ptx_fail(p, "a register of %d bits, and an operation of %d", o->bytes * 8, bytes * 8);
}

// mov.b64 d, {a, b}: the first element is the lowest.
static bool decode_pack(struct ptx_parser *p, struct ptx_source *s, int bytes)
{
  const struct ptx_operand *v = &s->operand[1];
  int in[PTX_VECTOR], part = bytes / v->count, out = ptx_output(p, &s->operand[0]);
  for (int i = 0; i < v->count; i++) {
    uint64_t bits;
    in[i] = v->element[i].slot;
    if (v->element[i].number) {
      in[i] = ptx_number_bits(p, v->element[i].text, part, &bits) ? ptx_slot_const(p, bits) : 0;
    } else if (v->element[i].sink || v->element[i].bytes != part) {
      return ptx_fail(p, "elements of %d bits expected", part * 8);
    }
  }
  if (out < 0 || !same_width(p, &s->operand[0], bytes)) {
    return false;
  }
  struct ptx_ins *ins = ptx_emit(p, s, ptx_do_pack);
  ins->ins = (uint8_t)v->count;
  ins->out[0] = (uint16_t)out;
  ins->number = part;
  for (int i = 0; i < v->count; i++) {
    ins->in[i] = (uint16_t)in[i];
  }
  return true;
}

static bool decode_unpack(struct ptx_parser *p, struct ptx_source *s, int bytes)
{
  const struct ptx_operand *v = &s->operand[0];
  int part = bytes / v->count, in = ptx_input(p, s, &s->operand[1], bytes);
  uint16_t out[PTX_VECTOR];
  if (in < 0 || !same_width(p, &s->operand[1], bytes)) {
    return false;
  }
  for (int i = 0; i < v->count; i++) {
    if (v->element[i].number || (!v->element[i].sink && v->element[i].bytes != part)) {
      return ptx_fail(p, "elements of %d bits expected", part * 8);
    }
    struct ptx_operand sink = {.kind = PTX_O_SINK};
    out[i] = (uint16_t)(v->element[i].sink ? ptx_output(p, &sink) : v->element[i].slot);
  }
  struct ptx_ins *ins = ptx_emit(p, s, ptx_do_unpack);
  ins->outs = (uint8_t)v->count;
  ins->in[0] = (uint16_t)in;
  ins->number = part;
  memcpy(ins->out, out, sizeof out);
  return true;
}

static bool decode_mov(struct ptx_parser *p, struct ptx_source *s)
{
  int bytes = s->nwords == 2 ? ptx_type_bytes(s->word[1]) : -1;
  if (bytes < 0) {
    return ptx_fail(p, "a type expected");
  }
  if (!operands(p, s, 2)) {
    return false;
  }
  if (s->operand[1].kind == PTX_O_VECTOR) {
    return decode_pack(p, s, bytes);
  }
  if (s->operand[0].kind == PTX_O_VECTOR) {
    return decode_unpack(p, s, bytes);
  }
  if (s->operand[1].kind == PTX_O_ADDRESS) {
    return ptx_fail(p, "an address in brackets cannot be moved");
  }
  int in = ptx_input(p, s, &s->operand[1], bytes), out = ptx_output(p, &s->operand[0]);
  if (in < 0 || out < 0 || !same_width(p, &s->operand[0], bytes) || !same_width(p, &s->operand[1], bytes)) {
    return false;
  }
  emit_move(p, s, out, in);
  return true;
}

static enum ptx_space space_named(const char *name)
{
  return strcmp(name, "global") == 0       ? PTX_GLOBAL
         : strcmp(name, "const") == 0      ? PTX_CONST
         : strncmp(name, "shared", 6) == 0 ? PTX_SHARED
         : strcmp(name, "local") == 0      ? PTX_LOCAL
         : strncmp(name, "param", 5) == 0  ? PTX_PARAM
                                           : PTX_GENERIC;
}

// cvta.to.global.u64, cvta.shared.u64: only the windows of a thread and a CTA begin elsewhere than at zero.
static bool decode_cvta(struct ptx_parser *p, struct ptx_source *s)
{
  bool to = is(s, 1, "to");
  enum ptx_space space = s->nwords > 1 + to ? space_named(s->word[1 + to]) : PTX_GENERIC;
  if (space == PTX_GENERIC || !is(s, 2 + to, "u64") || s->nwords != 3 + to) {
    return ptx_fail(p, "a state space and .u64 expected");
  }
  int in = operands(p, s, 2) ? ptx_input(p, s, &s->operand[1], 8) : -1;
  int out = in >= 0 ? ptx_output(p, &s->operand[0]) : -1;
  if (out < 0) {
    return false;
  }
  struct ptx_ins *ins = emit_move(p, s, out, in);
  ins->number = space;
  if (space != PTX_GLOBAL && space != PTX_CONST) {
    ins->op = PTX_OP_EXEC;
    ins->exec = to ? ptx_do_from_generic : ptx_do_to_generic;
  }
  return true;
}

static bool decode_isspacep(struct ptx_parser *p, struct ptx_source *s)
{
  enum ptx_space space = s->nwords > 1 ? space_named(s->word[1]) : PTX_GENERIC;
  if (space == PTX_GENERIC) {
    return ptx_fail(p, "a state space expected");
  }
  int in = operands(p, s, 2) ? ptx_input(p, s, &s->operand[1], 8) : -1;
  int out = in >= 0 ? ptx_output(p, &s->operand[0]) : -1;
  if (out < 0) {
    return false;
  }
  struct ptx_ins *ins = ptx_emit(p, s, ptx_do_isspace);
  ins->in[0] = (uint16_t)in;
  ins->out[0] = (uint16_t)out;
  ins->number = space;
  return true;
}

enum ptx_decoded ptx_decode_moves(struct ptx_parser *p, struct ptx_source *s)
{
  if (is(s, 0, "mov")) {
    return done(decode_mov(p, s));
  }
  if (is(s, 0, "cvta")) {
    return done(decode_cvta(p, s));
  }
  if (is(s, 0, "isspacep")) {
    return done(decode_isspacep(p, s));
  }
  return PTX_NOT_MINE;
}

enum ptx_decoded ptx_decode_flow(struct ptx_parser *p, struct ptx_source *s)
{
  static const struct {
    const char *name;
    ptx_exec *exec;
    int operands; // that mean nothing here
  } all[] = {
      {"ret", ptx_do_ret, 0},           {"exit", ptx_do_exit, 0},
      {"trap", ptx_do_trap, 0},         {"brkpt", ptx_do_nothing, 0},
      {"nanosleep", ptx_do_yield, 1},   {"prefetch", ptx_do_nothing, 1},
      {"prefetchu", ptx_do_nothing, 1}, {"pmevent", ptx_do_nothing, 1},
      {"discard", ptx_do_nothing, 2},   {"applypriority", ptx_do_nothing, 2},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    if (is(s, 0, all[i].name)) {
      if (!operands(p, s, all[i].operands)) {
        return PTX_BAD;
      }
      ptx_emit(p, s, all[i].exec);
      return PTX_DECODED;
    }
  }
  return PTX_NOT_MINE;
}

// One value of a call, given the formal parameter of the callee.
static bool copy_of(struct ptx_parser *p, struct ptx_source *s, const struct ptx_formal *formal, bool result,
                    struct ptx_copy *copy)
{
  struct ptx_operand o;
  if (!ptx_parse_operand(p, &o)) {
    return false;
  }
  bool frame = o.kind == PTX_O_SYMBOL && o.symbol.kind == PTX_SYM_FRAME;
  if (!frame && o.kind != PTX_O_REG && (result || o.kind != PTX_O_NUMBER)) {
    return ptx_fail(p, "a register or a variable in .param expected");
  }
  if (o.kind != PTX_O_NUMBER && (uint32_t)o.bytes != formal->bytes) {
    return ptx_fail(p, "%d bytes where the function has %u", o.bytes, formal->bytes);
  }
  uint32_t here = (uint32_t)o.symbol.address;
  if (!frame) {
    int slot = ptx_input(p, s, &o, (int)formal->bytes);
    if (slot < 0) {
      return false;
    }
    if (slot >= PTX_CONST_SLOT) {
      int moved = ptx_slot_new(p, 1);
      emit_move(p, s, moved, slot);
      slot = moved;
    }
    here = (uint32_t)slot;
  }
  *copy = result ? (struct ptx_copy){formal->reg, !frame, formal->at, here, formal->bytes}
                 : (struct ptx_copy){!frame, formal->reg, here, formal->at, formal->bytes};
  return true;
}

static bool copies_of(struct ptx_parser *p, struct ptx_source *s, struct ptx_call *call, bool results)
{
  const struct ptx_kernel *f = call->callee;
  int n = results ? f->results : f->arguments;
  const struct ptx_formal *formals = f->formals + (results ? 0 : f->results);
  struct ptx_copy *copies = call->copies + (results ? f->arguments : 0);
  if (n == 0) {
    return true;
  }
  for (int i = 0; i < n; i++) {
    if (!ptx_expect(p, i == 0 ? "(" : ",") || !copy_of(p, s, &formals[i], results, &copies[i])) {
      return false;
    }
  }
  return ptx_expect(p, ")");
}

static void add_callee(struct ptx_parser *p, struct ptx_kernel *callee)
{
  struct ptx_kernel *f = p->fn;
  for (int i = 0; i < f->ncallees; i++) {
    if (f->callees[i] == callee) {
      return;
    }
  }
  f->callees = ptx_grow(f->callees, &f->callees_room, f->ncallees, sizeof *f->callees);
  f->callees[f->ncallees++] = callee;
}

// The callee's name: behind the results, which are read once it is known.
static struct ptx_kernel *find_callee(struct ptx_parser *p)
{
  struct ptx_parser ahead = *p;
  struct ptx_symbol symbol;
  if (ptx_is(&ahead, "(")) {
    while (ahead.kind != PTX_END && !ptx_is(&ahead, ")")) {
      ptx_next(&ahead);
    }
    ptx_next(&ahead);
    ptx_accept(&ahead, ",");
  }
  if (!ptx_symbol_find(p, ahead.token, &symbol) || symbol.kind != PTX_SYM_FUNCTION || symbol.function->entry) {
    ptx_fail(p, "'%.60s' is no function of the module", ahead.token);
    return NULL;
  }
  return symbol.function;
}

bool ptx_parse_call(struct ptx_parser *p, struct ptx_source *s)
{
  struct ptx_kernel *callee = find_callee(p);
  if (!callee) {
    return false;
  }
  struct ptx_call *call = ptx_keep(p->module, sizeof *call);
  call->callee = callee;
  call->results = callee->results;
  call->arguments = callee->arguments;
  call->copies = ptx_keep(p->module, (size_t)(call->results + call->arguments) * sizeof *call->copies);
  add_callee(p, callee);
  if (!copies_of(p, s, call, true)) {
    return false;
  }
  ptx_accept(p, ",");
  ptx_next(p); // its name
  if (ptx_accept(p, ",") && !ptx_is(p, "(")) {
    return ptx_fail(p, "'%.60s': a call by a prototype is not known here", p->token);
  }
  if (!copies_of(p, s, call, false)) {
    return false;
  }
  if (call->arguments == 0 && ptx_accept(p, "(") && !ptx_expect(p, ")")) {
    return false;
  }
  ptx_emit(p, s, ptx_do_call)->call = call;
  return ptx_expect(p, ";");
}

static int carry_slot(struct ptx_parser *p)
{
  p->carry = p->carry < 0 ? ptx_slot_new(p, 1) : p->carry;
  return p->carry;
}

static bool alu_outputs(struct ptx_parser *p, const struct ptx_source *s, struct ptx_ins *ins, int given)
{
  for (int i = 0; i < ins->alu.outs; i++) {
    struct ptx_operand sink = {.kind = PTX_O_SINK};
    const struct ptx_operand *o = i < given ? &s->operand[i] : &sink;
    int slot = ptx_output(p, o);
    if (slot < 0) {
      return false;
    }
    if (o->kind == PTX_O_REG && o->bytes < ins->alu.out_bytes[i]) {
      return ptx_fail(p, "a result of %d bits, and a register of %d", ins->alu.out_bytes[i] * 8, o->bytes * 8);
    }
    if (o->kind == PTX_O_REG && o->bytes > ins->alu.out_bytes[i]) {
      ins->wide = true;
      ins->out_extend = ins->alu.sign_extends ? (uint8_t)o->bytes : 0;
    }
    ins->out[i] = (uint16_t)slot;
  }
  return true;
}

static bool alu_inputs(struct ptx_parser *p, const struct ptx_source *s, struct ptx_ins *ins, int from)
{
  for (int i = 0; i < ins->alu.ins; i++) {
    const struct ptx_operand *o = &s->operand[from + i];
    int bytes = ins->alu.in_bytes[i], slot = ptx_input(p, s, o, bytes);
    if (slot < 0) {
      return false;
    }
    if (o->kind == PTX_O_REG && (o->bytes < bytes || (o->bytes == 0) != (bytes == 0))) {
      return ptx_fail(p, "operand %d has %d bits, and a register of %d is given", i + 1, bytes * 8, o->bytes * 8);
    }
    ins->wide |= o->kind == PTX_O_SPECIAL || (o->kind == PTX_O_REG && o->bytes > bytes);
    ins->in[i] = (uint16_t)slot;
  }
  return true;
}

// How the interpreter's loop executes an instruction that has no peculiarities.
static enum ptx_op loop_op(const struct ptx_ins *ins)
{
  static const struct {
    alu_run *run;
    enum ptx_op op;
  } quick[] = {
#define QUICK(name) {alu_run_##name, PTX_OP_##name},
      ALU_QUICK(QUICK){alu_run_setp, PTX_OP_setp}};
#undef QUICK
  for (size_t i = 0; i < sizeof quick / sizeof *quick; i++) {
    if (ins->alu.run == quick[i].run) {
      return quick[i].op;
    }
  }
  return ins->outs == 1 ? PTX_OP_ALU : PTX_OP_ALU_PAIR;
}

enum ptx_decoded ptx_decode_alu(struct ptx_parser *p, struct ptx_source *s)
{
  struct ptx_ins ins = {0};
  char why[PTX_TEXT];
  if (!s->kept->has_alu) {
    if (!ptx_alu_find(s->opcode, &s->kept->alu, why)) {
      return why[0] ? done(ptx_fail(p, "%s", why)) : PTX_NOT_MINE;
    }
    s->kept->has_alu = true;
  }
  ins.alu = s->kept->alu;
  int given = s->noperands > 0 && s->operand[0].second ? 2 : 1;
  if (given > ins.alu.outs) {
    return done(ptx_fail(p, "has one result"));
  }
  if (!operands(p, s, given + ins.alu.ins) || !alu_outputs(p, s, &ins, given) || !alu_inputs(p, s, &ins, given)) {
    return PTX_BAD;
  }
  ins.ins = (uint8_t)ins.alu.ins;
  ins.outs = (uint8_t)ins.alu.outs;
  if (ins.alu.reads_carry) {
    ins.in[ins.ins++] = (uint16_t)carry_slot(p);
  }
  if (ins.alu.writes_carry) {
    ins.out[ins.outs++] = (uint16_t)carry_slot(p);
  }
  struct ptx_ins *to = ptx_emit(p, s, ptx_do_alu_any);
  bool plain = !ins.wide && ins.ins <= 3 && ins.outs <= 2;
  ins.op = plain ? loop_op(&ins) : PTX_OP_EXEC;
  ins.guard = to->guard;
  ins.line = to->line;
  ins.text = to->text;
  ins.exec = to->exec;
  ins.opcode = to->opcode;
  *to = ins;
  return PTX_DECODED;
}
