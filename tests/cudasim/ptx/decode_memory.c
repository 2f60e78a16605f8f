// decode_memory.c: loads, stores, atomic operations, fences.
#include "ptx_priv.h"

#include <stdio.h>
#include <string.h>

struct word {
  const char *name;
  int value;
};

static const struct word spaces[] = {{"global", PTX_GLOBAL},
                                     {"const", PTX_CONST},
                                     {"shared", PTX_SHARED},
                                     {"shared::cta", PTX_SHARED},
                                     {"shared::cluster", PTX_SHARED},
                                     {"local", PTX_LOCAL},
                                     {"param", PTX_PARAM},
                                     {"param::entry", PTX_PARAM},
                                     {"param::func", PTX_PARAM},
                                     {NULL, 0}};
static const struct word sems[] = {{"weak", PTX_WEAK},
                                   {"relaxed", PTX_RELAXED},
                                   {"acquire", PTX_ACQUIRE},
                                   {"release", PTX_RELEASE},
                                   {"acq_rel", PTX_ACQ_REL},
                                   {"sc", PTX_SC},
                                   {NULL, 0}};
static const struct word scopes[] = {{"cta", PTX_CTA}, {"cluster", PTX_GPU}, {"gpu", PTX_GPU},
                                     {"gl", PTX_GPU},  {"sys", PTX_SYS},     {NULL, 0}};
// They only hint at caches.
static const struct word hints[] = {{"ca", 0}, {"cg", 0}, {"cs", 0}, {"lu", 0},
                                    {"cv", 0}, {"wb", 0}, {"wt", 0}, {NULL, 0}};

static bool among(const struct word *words, const char *name, int *value)
{
  for (; words->name; words++) {
    if (ptx_same(words->name, name)) {
      *value = words->value;
      return true;
    }
  }
  return false;
}

static bool is_hint(const char *name)
{
  int none;
  return among(hints, name, &none) || strncmp(name, "L1::", 4) == 0 || strncmp(name, "L2::", 4) == 0;
}

// What the modifiers of a memory instruction say.
struct modifiers {
  int space, sem, scope; // -1: not said
  bool is_volatile, coherent, uniform;
  int vector, bytes;
  const char *type;
};

// One modifier; false when it is none of those that loads and stores have.
static bool take_modifier(struct modifiers *m, const char *name)
{
  if (among(spaces, name, &m->space) || among(sems, name, &m->sem) || among(scopes, name, &m->scope) || is_hint(name)) {
    return true;
  }
  if (ptx_same(name, "volatile") || ptx_same(name, "mmio")) {
    m->is_volatile = true;
    return true;
  }
  if (ptx_same(name, "nc")) {
    m->coherent = false;
    return true;
  }
  if (name[0] == 'v' && (name[1] == '2' || name[1] == '4' || name[1] == '8') && !name[2]) {
    m->vector = name[1] - '0';
    return true;
  }
  m->bytes = ptx_type_bytes(name);
  m->type = name;
  return m->bytes > 0;
}

static bool read_modifiers(struct ptx_parser *p, const struct ptx_source *s, struct modifiers *m)
{
  *m = (struct modifiers){.space = -1, .sem = -1, .scope = -1, .coherent = true, .vector = 1};
  for (int i = 1; i < s->nwords; i++) {
    if (!take_modifier(m, s->word[i])) {
      return ptx_fail(p, "the modifier .%s is unknown here", s->word[i]);
    }
  }
  if (!m->type) {
    return ptx_fail(p, "a type expected");
  }
  if (m->sem > PTX_WEAK && m->scope < 0) {
    return ptx_fail(p, "a scope expected: .cta, .gpu or .sys");
  }
  if (m->is_volatile) { // like relaxed for the whole system
    m->sem = PTX_RELAXED;
    m->scope = PTX_SYS;
  }
  if (m->vector * m->bytes > 32) {
    return ptx_fail(p, "more than 32 bytes");
  }
  return true;
}

// The address, into in[0] and the rest of mem.
static bool take_address(struct ptx_parser *p, struct ptx_source *s, const struct ptx_operand *o, struct ptx_mem *mem,
                         uint16_t *in)
{
  if (o->kind != PTX_O_ADDRESS) {
    return ptx_fail(p, "an address in brackets expected");
  }
  mem->offset = o->offset;
  bool symbol = o->based && o->slot < 0, frame = symbol && o->symbol.kind == PTX_SYM_FRAME;
  if (mem->space == PTX_PARAM && (frame || (!symbol && !p->fn->entry))) {
    mem->space = PTX_LOCAL; // parameters of functions stand in the frame
  }
  if (frame) {
    mem->framed = true;
    mem->offset += (int64_t)o->symbol.address;
    *in = (uint16_t)ptx_slot_const(p, 0);
    return true;
  }
  int slot = ptx_input(p, s, o, 8);
  *in = (uint16_t)slot;
  return slot >= 0;
}

static void fill_mem(struct ptx_mem *mem, const struct modifiers *m)
{
  mem->space = (uint8_t)(m->space < 0 ? PTX_GENERIC : m->space);
  mem->sem = (uint8_t)(m->sem < 0 ? PTX_WEAK : m->sem);
  mem->scope = (uint8_t)(m->scope < 0 ? PTX_GPU : m->scope);
  mem->bytes = (uint8_t)m->bytes;
  mem->count = (uint8_t)m->vector;
  mem->extend_sign = m->type[0] == 's';
  mem->no_coherence = !m->coherent;
}

// The elements of the value: slots of registers, which may be wider than the element.
static bool take_values(struct ptx_parser *p, struct ptx_source *s, const struct ptx_operand *o, struct ptx_mem *mem,
                        bool load, uint16_t *slots)
{
  int n = o->kind == PTX_O_VECTOR ? o->count : 1;
  if (n != mem->count) {
    return ptx_fail(p, "%d values expected, not %d", mem->count, n);
  }
  mem->reg_bytes = 8;
  for (int i = 0; i < n; i++) {
    struct ptx_operand e = *o;
    if (o->kind == PTX_O_VECTOR) {
      e = (struct ptx_operand){.kind = o->element[i].number ? PTX_O_NUMBER
                                       : o->element[i].sink ? PTX_O_SINK
                                                            : PTX_O_REG,
                               .slot = o->element[i].slot,
                               .bytes = o->element[i].bytes};
      strcpy(e.text, o->element[i].text);
    }
    int slot = load ? ptx_output(p, &e) : ptx_input(p, s, &e, mem->bytes);
    if (slot < 0) {
      return false;
    }
    if (e.kind == PTX_O_REG && e.bytes < mem->bytes) {
      return ptx_fail(p, "%d bits, and a register of %d", mem->bytes * 8, e.bytes * 8);
    }
    mem->reg_bytes = e.kind == PTX_O_REG ? (uint8_t)e.bytes : mem->reg_bytes;
    slots[i] = (uint16_t)slot;
  }
  return true;
}

static bool decode_access(struct ptx_parser *p, struct ptx_source *s, bool load)
{
  struct modifiers m;
  struct ptx_mem mem = {0};
  uint16_t address = 0, values[PTX_VECTOR] = {0};
  if (!read_modifiers(p, s, &m)) {
    return false;
  }
  if (m.sem > PTX_ACQUIRE && load) {
    return ptx_fail(p, "no such order for a load");
  }
  if (!load && m.sem != -1 && m.sem != PTX_WEAK && m.sem != PTX_RELAXED && m.sem != PTX_RELEASE) {
    return ptx_fail(p, "no such order for a store");
  }
  bool cache_policy = s->noperands == 3 && strstr(s->opcode, "cache_hint");
  if (s->noperands != 2 && !cache_policy) {
    return ptx_fail(p, "2 operands expected, not %d", s->noperands);
  }
  fill_mem(&mem, &m);
  if (!take_address(p, s, &s->operand[load], &mem, &address) ||
      !take_values(p, s, &s->operand[!load], &mem, load, values)) {
    return false;
  }
  struct ptx_ins *ins = ptx_emit(p, s, load ? ptx_do_load : ptx_do_store);
  ins->mem = mem;
  ins->in[0] = address;
  for (int i = 0; i < mem.count; i++) {
    *(load ? &ins->out[i] : &ins->in[1 + i]) = values[i];
  }
  return true;
}

static const struct word operations[] = {{"exch", PTX_ATOM_EXCH},
                                         {"cas", PTX_ATOM_CAS},
                                         {"inc", PTX_ATOM_INC},
                                         {"dec", PTX_ATOM_DEC},
                                         {"add", PTX_ATOM_ALU},
                                         {"and", PTX_ATOM_ALU},
                                         {"or", PTX_ATOM_ALU},
                                         {"xor", PTX_ATOM_ALU},
                                         {"min", PTX_ATOM_ALU},
                                         {"max", PTX_ATOM_ALU},
                                         {NULL, 0}};

// The operation as an instruction of registers.
static bool find_operation(struct ptx_parser *p, const char *name, const char *type, struct ptx_alu *alu)
{
  char opcode[64], why[PTX_TEXT] = "";
  bool rounded = ptx_same(name, "add") && strchr(type, 'f');
  snprintf(opcode, sizeof opcode, "%s%s.%s", name, rounded ? ".rn" : "", type);
  return ptx_alu_find(opcode, alu, why) || ptx_fail(p, "%s: %s", opcode, why[0] ? why : "unknown here");
}

static bool read_atom(struct ptx_parser *p, const struct ptx_source *s, struct ptx_atom *atom)
{
  struct modifiers m = {.space = -1, .sem = -1, .scope = -1, .coherent = true, .vector = 1};
  const char *name = NULL;
  int kind = 0;
  for (int i = 1; i < s->nwords; i++) {
    if (among(operations, s->word[i], &kind)) {
      name = s->word[i];
    } else if (!ptx_same(s->word[i], "noftz") && !take_modifier(&m, s->word[i])) {
      return ptx_fail(p, "the modifier .%s is unknown here", s->word[i]);
    }
  }
  if (!name || !m.type || m.vector != 1 || m.is_volatile) {
    return ptx_fail(p, "an operation and a type expected");
  }
  m.sem = m.sem < 0 ? PTX_RELAXED : m.sem;
  fill_mem(&atom->mem, &m);
  atom->kind = (uint8_t)kind;
  if (atom->mem.space != PTX_GENERIC && atom->mem.space != PTX_GLOBAL && atom->mem.space != PTX_SHARED) {
    return ptx_fail(p, "not in this state space");
  }
  return kind != PTX_ATOM_ALU || find_operation(p, name, m.type, &atom->alu);
}

static bool decode_atom(struct ptx_parser *p, struct ptx_source *s, bool result)
{
  struct ptx_atom *atom = ptx_keep(p->module, sizeof *atom);
  uint16_t in[PTX_VECTOR + 1] = {0}, out = 0;
  if (!read_atom(p, s, atom)) {
    return false;
  }
  atom->result = result;
  int inputs = atom->kind == PTX_ATOM_CAS ? 2 : 1;
  if (s->noperands != result + 1 + inputs) {
    return ptx_fail(p, "%d operands expected, not %d", result + 1 + inputs, s->noperands);
  }
  if (result && !take_values(p, s, &s->operand[0], &atom->mem, true, &out)) {
    return false;
  }
  if (!take_address(p, s, &s->operand[result], &atom->mem, in)) {
    return false;
  }
  uint8_t reg_bytes = atom->mem.reg_bytes;
  for (int i = 0; i < inputs; i++) {
    if (!take_values(p, s, &s->operand[result + 1 + i], &atom->mem, false, &in[1 + i])) {
      return false;
    }
  }
  atom->mem.reg_bytes = reg_bytes;
  struct ptx_ins *ins = ptx_emit(p, s, ptx_do_atomic);
  ins->atom = atom;
  memcpy(ins->in, in, sizeof in);
  ins->out[0] = out;
  return true;
}

// fence.sc.gpu, fence.acq_rel.sys, membar.gl: the last is fence.sc.
static bool decode_fence(struct ptx_parser *p, struct ptx_source *s)
{
  int sem = PTX_ACQ_REL, scope = -1, given;
  sem = ptx_same(s->word[0], "membar") ? PTX_SC : sem;
  for (int i = 1; i < s->nwords; i++) {
    if (among(sems, s->word[i], &given) && (given == PTX_SC || given == PTX_ACQ_REL) && s->word[0][0] == 'f') {
      sem = given;
    } else if (!among(scopes, s->word[i], &scope)) {
      return ptx_fail(p, "the modifier .%s is unknown here", s->word[i]);
    }
  }
  if (scope < 0 || s->noperands != 0) {
    return ptx_fail(p, "a scope and no operand expected");
  }
  struct ptx_ins *ins = ptx_emit(p, s, ptx_do_fence);
  ins->mem.sem = (uint8_t)sem;
  ins->mem.scope = (uint8_t)scope;
  return true;
}

enum ptx_decoded ptx_decode_memory(struct ptx_parser *p, struct ptx_source *s)
{
  const char *name = s->word[0];
  bool good;
  if (ptx_same(name, "ld") || ptx_same(name, "ldu")) {
    good = decode_access(p, s, true);
  } else if (ptx_same(name, "st")) {
    good = decode_access(p, s, false);
  } else if (ptx_same(name, "atom") || ptx_same(name, "red")) {
    good = decode_atom(p, s, name[0] == 'a');
  } else if (ptx_same(name, "membar") || ptx_same(name, "fence")) {
    good = decode_fence(p, s);
  } else {
    return PTX_NOT_MINE;
  }
  return good ? PTX_DECODED : PTX_BAD;
}
