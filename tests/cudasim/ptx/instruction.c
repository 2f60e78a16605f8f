// instruction.c: bodies of functions, and what all instructions have in common.
#include "ptx_priv.h"

#include <stddef.h>
#include <string.h>

static struct ptx_opcode *keep_opcode(struct ptx_parser *p, const char *opcode, size_t n)
{
  struct ptx_module *m = p->module;
  uint32_t hash = ptx_hash(opcode, n);
  for (int i = 0; i < m->nopcodes; i++) {
    if (m->opcodes[i]->hash == hash && strcmp(m->opcodes[i]->text, opcode) == 0) {
      return m->opcodes[i];
    }
  }
  struct ptx_opcode *o = ptx_keep(m, sizeof *o);
  o->text = memcpy(ptx_keep(m, n + 1), opcode, n + 1);
  o->hash = hash;
  m->opcodes = ptx_grow(m->opcodes, &m->opcodes_room, m->nopcodes, sizeof *m->opcodes);
  m->opcodes[m->nopcodes++] = o;
  return o;
}

static bool split_opcode(struct ptx_parser *p, struct ptx_source *s)
{
  size_t n = strlen(p->token);
  if (p->kind != PTX_WORD || n >= sizeof s->opcode) {
    return ptx_fail(p, "an instruction expected, not '%.60s'", p->token);
  }
  memcpy(s->opcode, p->token, n + 1);
  memcpy(s->words, p->token, n + 1);
  s->kept = keep_opcode(p, s->opcode, n);
  p->opcode = s->kept->text;
  for (char *w = s->words;;) {
    if (s->nwords == PTX_WORDS) {
      return ptx_fail(p, "too many modifiers");
    }
    s->word[s->nwords++] = w;
    w = strchr(w, '.');
    if (!w) {
      break;
    }
    *w++ = 0;
  }
  ptx_next(p);
  return true;
}

static bool parse_operands(struct ptx_parser *p, struct ptx_source *s)
{
  while (!ptx_is(p, ";")) {
    if (s->noperands == PTX_OPERANDS) {
      return ptx_fail(p, "too many operands");
    }
    struct ptx_operand *o = &s->operand[s->noperands++];
    if (!ptx_parse_operand(p, o)) {
      return false;
    }
    o->second = ptx_accept(p, "|");
    if (!o->second && !ptx_is(p, ";") && !ptx_expect(p, ",")) {
      return false;
    }
  }
  return ptx_expect(p, ";");
}

static bool parse_guard(struct ptx_parser *p, struct ptx_source *s)
{
  struct ptx_symbol symbol;
  s->guard = -1;
  if (!ptx_accept(p, "@")) {
    return true;
  }
  s->negated = ptx_accept(p, "!");
  if (!ptx_symbol_find(p, p->token, &symbol) || symbol.kind != PTX_SYM_REG || symbol.bytes != 0) {
    return ptx_fail(p, "'%.60s' is no predicate", p->token);
  }
  s->guard = symbol.slot;
  ptx_next(p);
  return true;
}

static bool first_word_takes_labels(const struct ptx_source *s)
{
  return ptx_same(s->word[0], "bra") || ptx_same(s->word[0], "brx");
}

static bool parse_branch(struct ptx_parser *p, struct ptx_source *s)
{
  if (s->word[0][2] == 'x') {
    return ptx_fail(p, "jump tables are not known here");
  }
  ptx_emit(p, s, NULL)->op = PTX_OP_BRANCH;
  ptx_label_refer(p, p->token, p->fn->n - 1, NULL);
  ptx_next(p);
  return ptx_expect(p, ";");
}

static bool decode(struct ptx_parser *p, struct ptx_source *s)
{
  enum ptx_decoded (*const groups[])(struct ptx_parser *, struct ptx_source *) = {
      ptx_decode_memory, ptx_decode_sync, ptx_decode_flow, ptx_decode_moves, ptx_decode_alu};
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
    enum ptx_decoded result = groups[i](p, s);
    if (result != PTX_NOT_MINE) {
      return result == PTX_DECODED && !p->failed;
    }
  }
  return ptx_fail(p, "unknown here");
}

bool ptx_parse_instruction(struct ptx_parser *p)
{
  struct ptx_source s;
  memset(&s, 0, offsetof(struct ptx_source, operand));
  s.line = (uint32_t)p->token_line;
  s.text = (uint32_t)(p->token_at - p->module->text);
  if (!parse_guard(p, &s) || !split_opcode(p, &s)) {
    return false;
  }
  bool good;
  if (first_word_takes_labels(&s)) {
    good = parse_branch(p, &s);
  } else if (ptx_same(s.word[0], "call")) {
    good = ptx_parse_call(p, &s);
  } else {
    // The next token's line is that of the next instruction: messages speak of this one.
    if (!parse_operands(p, &s)) {
      return false;
    }
    int next_line = p->token_line;
    p->token_line = (int)s.line;
    good = decode(p, &s);
    if (good) {
      p->token_line = next_line;
    }
  }
  if (good) {
    p->fn->code[p->fn->n - 1].guard = s.guard;
    p->fn->code[p->fn->n - 1].negated = s.negated;
    p->opcode = NULL;
  }
  return good;
}

static bool at_label(const struct ptx_parser *p)
{
  const char *s = p->at;
  while (*s == ' ' || *s == '\t') {
    s++;
  }
  return p->kind == PTX_WORD && *s == ':';
}

static bool parse_statement(struct ptx_parser *p)
{
  if (ptx_accept(p, "{")) {
    ptx_scope_open(p);
    return true;
  }
  if (ptx_is(p, ".loc") || ptx_is(p, ".file")) {
    ptx_skip_line(p);
    return !p->failed;
  }
  if (ptx_accept(p, ".pragma")) {
    ptx_next(p);
    return ptx_expect(p, ";");
  }
  if (ptx_is(p, ".reg") || ptx_is(p, ".local") || ptx_is(p, ".shared") || ptx_is(p, ".param") || ptx_is(p, ".global") ||
      ptx_is(p, ".const")) {
    return ptx_parse_variables(p, false);
  }
  if (at_label(p)) {
    return ptx_label_here(p, p->token) && (ptx_next(p), ptx_expect(p, ":"));
  }
  if (ptx_accept(p, ";")) {
    return true;
  }
  if (p->token[0] == '.') {
    return ptx_fail(p, "'%.60s' is not known here", p->token);
  }
  return ptx_parse_instruction(p);
}

bool ptx_parse_body(struct ptx_parser *p)
{
  int outside = p->scope;
  ptx_scope_open(p);
  while (p->scope > outside) {
    if (p->kind == PTX_END) {
      return ptx_fail(p, "the text ends within a function");
    }
    if (ptx_is(p, "}")) {
      if (p->scope == outside + 1) { // what runs off the end returns
        struct ptx_source end = {.line = (uint32_t)p->token_line, .text = (uint32_t)(p->token_at - p->module->text)};
        p->opcode = "end of the function";
        ptx_emit(p, &end, ptx_do_ret);
        p->opcode = NULL;
      }
      if (!ptx_scope_close(p)) {
        return false;
      }
      ptx_next(p);
    } else if (!parse_statement(p)) {
      return false;
    }
  }
  return true;
}
