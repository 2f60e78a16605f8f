// decode_sync.c: barriers and operations of a warp.
#include "ptx_priv.h"

#include <stdio.h>
#include <string.h>

static bool is(const struct ptx_source *s, int word, const char *text)
{
  return word < s->nwords && ptx_same(s->word[word], text);
}

// Operands into in[] of the instruction to come, all of 4 bytes but predicates.
static bool take(struct ptx_parser *p, struct ptx_source *s, int operand, int bytes, uint16_t *in)
{
  int slot = ptx_input(p, s, &s->operand[operand], bytes);
  const struct ptx_operand *o = &s->operand[operand];
  if (slot >= 0 && o->kind == PTX_O_REG && o->bytes != bytes) {
    return ptx_fail(p, "operand %d: a register of %d bits expected", operand + 1, bytes * 8);
  }
  *in = (uint16_t)slot;
  return slot >= 0;
}

static bool emit_sync(struct ptx_parser *p, struct ptx_source *s, ptx_exec *exec, const struct ptx_ins *like)
{
  struct ptx_ins *ins = ptx_emit(p, s, exec);
  ins->sync = like->sync;
  memcpy(ins->in, like->in, sizeof ins->in);
  memcpy(ins->out, like->out, sizeof ins->out);
  ins->outs = like->outs;
  return true;
}

static bool take_output(struct ptx_parser *p, struct ptx_source *s, int operand, struct ptx_ins *ins)
{
  int slot = ptx_output(p, &s->operand[operand]);
  ins->out[ins->outs++] = (uint16_t)slot;
  return slot >= 0;
}

static bool barrier_kind(struct ptx_parser *p, const struct ptx_source *s, int at, struct ptx_sync *sync)
{
  static const struct {
    const char *name, *type;
    enum ptx_barrier_kind kind;
  } reductions[] = {{"popc", "u32", PTX_BAR_POPC}, {"and", "pred", PTX_BAR_AND}, {"or", "pred", PTX_BAR_OR}};
  if (is(s, at, "sync") || is(s, at, "arrive")) {
    sync->kind = is(s, at, "sync") ? PTX_BAR_SYNC : PTX_BAR_ARRIVE;
    at++;
  } else if (is(s, at, "red")) {
    at++;
    sync->kind = PTX_BAR_SYNC;
    bool early = is(s, at, "aligned");
    for (size_t i = 0; i < 3; i++) {
      if (is(s, at + early, reductions[i].name) && is(s, s->nwords - 1, reductions[i].type)) {
        sync->kind = reductions[i].kind;
      }
    }
    if (sync->kind == PTX_BAR_SYNC) {
      return ptx_fail(p, ".popc.u32, .and.pred or .or.pred expected");
    }
    at += 2;
  } else {
    return ptx_fail(p, ".sync, .arrive or .red expected");
  }
  for (int i = at; i < s->nwords; i++) {
    sync->aligned |= is(s, i, "aligned");
  }
  return true;
}

// bar is barrier.aligned.
static bool decode_barrier(struct ptx_parser *p, struct ptx_source *s)
{
  struct ptx_ins ins = {.sync = {.aligned = is(s, 0, "bar")}};
  if (!barrier_kind(p, s, 1 + is(s, 1, "cta"), &ins.sync)) {
    return false;
  }
  bool reduces = ins.sync.kind >= PTX_BAR_POPC;
  int at = reduces, rest = s->noperands - at - 1 - reduces;
  if (rest < 0 || rest > 1 || (ins.sync.kind == PTX_BAR_ARRIVE && rest == 0)) {
    return ptx_fail(p, "wrong number of operands: %d", s->noperands);
  }
  ins.sync.has_threads = rest;
  if (reduces && !take_output(p, s, 0, &ins)) {
    return false;
  }
  if (!take(p, s, at, 4, &ins.in[0]) || (rest && !take(p, s, at + 1, 4, &ins.in[1])) ||
      (reduces && !take(p, s, at + 1 + rest, 0, &ins.in[2]))) {
    return false;
  }
  return emit_sync(p, s, ptx_do_barrier, &ins);
}

// All operations of a warp have their mask in in[3].
static bool decode_warp_sync(struct ptx_parser *p, struct ptx_source *s)
{
  struct ptx_ins ins = {.sync = {.kind = PTX_WARP_SYNC}};
  if (s->noperands != 1) {
    return ptx_fail(p, "1 operand expected, not %d", s->noperands);
  }
  return take(p, s, 0, 4, &ins.in[3]) && emit_sync(p, s, ptx_do_warp, &ins);
}

static int find_kind(const struct ptx_source *s, int word, const char *const names[4], int first)
{
  for (int i = 0; i < 4 && names[i]; i++) {
    if (is(s, word, names[i])) {
      return first + i;
    }
  }
  return -1;
}

// shfl.sync.down.b32 d|p, a, b, c, mask
static bool decode_shfl(struct ptx_parser *p, struct ptx_source *s)
{
  static const char *const modes[4] = {"up", "down", "bfly", "idx"};
  int kind = find_kind(s, 2, modes, PTX_SHFL_UP);
  struct ptx_ins ins = {.sync = {.kind = (uint8_t)kind}};
  if (kind < 0 || !is(s, 1, "sync") || !is(s, 3, "b32") || s->nwords != 4) {
    return ptx_fail(p, "shfl.sync, a mode and .b32 expected");
  }
  int at = 1 + (s->noperands > 0 && s->operand[0].second);
  if (s->noperands != at + 4) {
    return ptx_fail(p, "wrong number of operands: %d", s->noperands);
  }
  for (int i = 0; i < at; i++) {
    if (!take_output(p, s, i, &ins)) {
      return false;
    }
  }
  for (int i = 0; i < 4; i++) {
    if (!take(p, s, at + i, 4, &ins.in[i])) {
      return false;
    }
  }
  return emit_sync(p, s, ptx_do_warp, &ins);
}

// vote.sync.any.pred p, a, mask
static bool decode_vote(struct ptx_parser *p, struct ptx_source *s)
{
  static const char *const modes[4] = {"all", "any", "uni", "ballot"};
  int kind = find_kind(s, 2, modes, PTX_VOTE_ALL);
  struct ptx_ins ins = {.sync = {.kind = (uint8_t)kind}};
  if (kind < 0 || !is(s, 1, "sync") || !is(s, 3, kind == PTX_VOTE_BALLOT ? "b32" : "pred") || s->nwords != 4) {
    return ptx_fail(p, "vote.sync, a mode and a type expected");
  }
  if (s->noperands != 3) {
    return ptx_fail(p, "3 operands expected, not %d", s->noperands);
  }
  return take_output(p, s, 0, &ins) && take(p, s, 1, 0, &ins.in[0]) && take(p, s, 2, 4, &ins.in[3]) &&
         emit_sync(p, s, ptx_do_warp, &ins);
}

// match.any.sync.b32 d, a, mask; match.all.sync.b64 d|p, a, mask
static bool decode_match(struct ptx_parser *p, struct ptx_source *s)
{
  static const char *const modes[4] = {"any", "all"};
  int kind = find_kind(s, 1, modes, PTX_MATCH_ANY), bytes = s->nwords == 4 ? ptx_type_bytes(s->word[3]) : 0;
  struct ptx_ins ins = {.sync = {.kind = (uint8_t)kind}};
  if (kind < 0 || !is(s, 2, "sync") || bytes < 4) {
    return ptx_fail(p, "a mode, .sync, and .b32 or .b64 expected");
  }
  int at = 1 + (s->noperands > 0 && s->operand[0].second);
  if (s->noperands != at + 2 || (at == 2 && kind == PTX_MATCH_ANY)) {
    return ptx_fail(p, "wrong number of operands: %d", s->noperands);
  }
  for (int i = 0; i < at; i++) {
    if (!take_output(p, s, i, &ins)) {
      return false;
    }
  }
  return take(p, s, at, bytes, &ins.in[0]) && take(p, s, at + 1, 4, &ins.in[3]) && emit_sync(p, s, ptx_do_warp, &ins);
}

// redux.sync.add.s32 d, a, mask: the operation is one of registers, applied lane by lane.
static bool decode_redux(struct ptx_parser *p, struct ptx_source *s)
{
  struct ptx_alu *alu = ptx_keep(p->module, sizeof *alu);
  struct ptx_ins ins = {.sync = {.kind = PTX_REDUX, .alu = alu}};
  char opcode[64], why[PTX_TEXT] = "";
  if (!is(s, 1, "sync") || s->nwords != 4 || s->noperands != 3) {
    return ptx_fail(p, "redux.sync, an operation and a type, and 3 operands expected");
  }
  snprintf(opcode, sizeof opcode, "%s.%s", s->word[2], s->word[3]);
  if (ptx_type_bytes(s->word[3]) != 4 || !ptx_alu_find(opcode, alu, why) || alu->ins != 2) {
    return ptx_fail(p, "%s: %s", opcode, why[0] ? why : "no reduction");
  }
  return take_output(p, s, 0, &ins) && take(p, s, 1, 4, &ins.in[0]) && take(p, s, 2, 4, &ins.in[3]) &&
         emit_sync(p, s, ptx_do_warp, &ins);
}

static bool decode_activemask(struct ptx_parser *p, struct ptx_source *s)
{
  struct ptx_ins ins = {0};
  if (s->noperands != 1) {
    return ptx_fail(p, "1 operand expected, not %d", s->noperands);
  }
  return take_output(p, s, 0, &ins) && emit_sync(p, s, ptx_do_activemask, &ins);
}

enum ptx_decoded ptx_decode_sync(struct ptx_parser *p, struct ptx_source *s)
{
  static const struct {
    const char *name;
    bool (*decode)(struct ptx_parser *p, struct ptx_source *s);
  } all[] = {{"barrier", decode_barrier}, {"bar", decode_barrier}, {"shfl", decode_shfl},
             {"vote", decode_vote},       {"match", decode_match}, {"activemask", decode_activemask},
             {"redux", decode_redux}};
  if (is(s, 0, "bar") && is(s, 1, "warp")) {
    return decode_warp_sync(p, s) ? PTX_DECODED : PTX_BAD;
  }
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    if (is(s, 0, all[i].name)) {
      return all[i].decode(p, s) ? PTX_DECODED : PTX_BAD;
    }
  }
  return PTX_NOT_MINE;
}
