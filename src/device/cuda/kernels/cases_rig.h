// cases_rig.h: tests of the kernels, for whatever runs them: loops of a C compiler's, a machine that interprets PTX, a
// GPU.
//
// Each case lies in one arena, of which a copy is kept. What tt_reduce makes of the copy, on the host, the whole arena
// must equal afterwards: destinations bit by bit, and all that surrounds them.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/opcode.h"
#include "base/util.h"
#include "device/cuda/kernels/choose.h"
#include "device/lane.h"
#include "tutti.h"

enum { CASE_OPERANDS = 8, CASE_ARENA = 1 << 17, CASE_SLOT = CASE_ARENA / CASE_OPERANDS };

// Runs kernels for the cases. Addresses in arguments are those of this process.
typedef struct case_rig {
  // Runs one launch to its end. Ends the program, with a text, if it cannot.
  void (*launch)(void *arg, const char *module, const char *kernel, unsigned ctas, const tt_cuda_step *args);
  void *arg;
  uint64_t seed; // of the cases
  uint32_t stop, go;
  tt_cuda_fault fault;
  tt_cuda_operand operands[CASE_OPERANDS];
  _Alignas(256) char arena[CASE_ARENA];
  _Alignas(256) char copy[CASE_ARENA];
} case_rig;

// One call. Operands: sources, then destinations; each is a slot of the arena, `skew` bytes into it.
typedef struct case_call {
  tt_redop op;
  ncclDataType_t type;
  int nsrc, ndst;
  size_t count;
  size_t slot[CASE_OPERANDS], skew[CASE_OPERANDS];
  bool scaled[CASE_OPERANDS];
  uint64_t scalar[CASE_OPERANDS];
  bool final;
  unsigned ctas;
} case_call;

static inline uint64_t case_random(case_rig *rig)
{
  rig->seed ^= rig->seed << 13;
  rig->seed ^= rig->seed >> 7;
  rig->seed ^= rig->seed << 17;
  return rig->seed * UINT64_C(0x2545F4914F6CDD1D) >> 16;
}

static inline size_t case_below(case_rig *rig, size_t n)
{
  return case_random(rig) % n;
}

// Bits of an element: any, or one of those where types differ.
static inline uint64_t case_element(case_rig *rig, ncclDataType_t type)
{
  static const uint32_t floats[] = {0,          0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xff800001, 1,
                                    0x80000001, 0x007fffff, 0x7f7fffff, 0x3f800000, 0xbf800000, 0x40400000, 0x33800000};
  const uint64_t any = case_random(rig) << 32 ^ case_random(rig);
  if (type == ncclFloat32 && any % 4 != 0) {
    return any % 4 == 1 ? 0x3f800000 + (any >> 8) % 0x3000000 : floats[(any >> 8) % TT_COUNT(floats)];
  }
  if (type == ncclFloat64 && any % 4 != 0) {
    const uint64_t f = floats[(any >> 8) % TT_COUNT(floats)];
    const uint64_t exponent = f >> 23 & 0xff, wide = exponent == 0xff ? 0x7ff : exponent == 0 ? 0 : exponent + 896;
    return (f >> 31) << 63 | wide << 52 | (f & 0x7fffff) << 29 | (any >> 20 & 1);
  }
  return any;
}

static inline void case_fill(case_rig *rig, ncclDataType_t type)
{
  const size_t size = tt_type_size((int)type);
  for (size_t i = 0; i < CASE_ARENA; i += size) {
    const uint64_t x = case_element(rig, type);
    memcpy(rig->arena + i, &x, size);
  }
}

static inline char *case_operand(char *arena, const case_call *c, int k)
{
  return arena + c->slot[k] * CASE_SLOT + c->skew[k];
}

// What the host makes of the copy.
static inline void case_expect(case_rig *rig, const case_call *c)
{
  void *dst[CASE_OPERANDS];
  const void *src[CASE_OPERANDS];
  const uint64_t *scale[CASE_OPERANDS];
  for (int k = 0; k < c->nsrc; k++) {
    src[k] = case_operand(rig->copy, c, k);
    scale[k] = c->scaled[k] ? &c->scalar[k] : NULL;
  }
  for (int k = 0; k < c->ndst; k++) {
    dst[k] = case_operand(rig->copy, c, c->nsrc + k);
  }
  tt_reduce(&c->op, c->ndst, dst, c->nsrc, src, scale, c->count, c->final ? TT_REDUCE_FINAL : 0);
}

// A step without parts.
static inline tt_cuda_step case_base(case_rig *rig)
{
  return (tt_cuda_step){
      .port = {(uint64_t)(uintptr_t)&rig->stop, (uint64_t)(uintptr_t)&rig->fault, (uint64_t)(uintptr_t)&rig->go},
      .operands = (uint64_t)(uintptr_t)rig->operands};
}

// Runs the call's kernel over the arena.
static inline void case_launch(case_rig *rig, const case_call *c)
{
  tt_kernel kernel;
  bool scaled = false;
  for (int k = 0; k < c->nsrc + c->ndst; k++) {
    rig->operands[k] = (tt_cuda_operand){
        .at = (uint64_t)(uintptr_t)case_operand(rig->arena, c, k), .scalar = c->scalar[k], .scaled = c->scaled[k]};
    scaled |= c->scaled[k];
  }
  tt_kernel_choose(&(tt_kernel_use){&c->op, c->nsrc, c->ndst, c->count, scaled, c->final}, &kernel);
  tt_cuda_step s = case_base(rig);
  s.combine = kernel.args;
  rig->launch(rig->arg, kernel.module, kernel.name, c->ctas, &s);
}

// Compares arena and copy; false, with a text, where they differ.
static inline bool case_same(const case_rig *rig, const case_call *c)
{
  for (size_t i = 0; i < CASE_ARENA; i++) {
    if (rig->arena[i] != rig->copy[i]) {
      printf("row %d kind %d prescale %d divisor %u final %d, %zu elements of type %d, %d -> %d, %u CTAs: byte %zu of "
             "slot %zu is %02x, not %02x\n",
             c->op.type, c->op.kind, c->op.prescale, c->op.divisor, c->final, c->count, (int)c->type, c->nsrc, c->ndst,
             c->ctas, i % CASE_SLOT, i / CASE_SLOT, (unsigned char)rig->arena[i], (unsigned char)rig->copy[i]);
      for (int k = 0; k < c->nsrc + c->ndst; k++) {
        printf("  operand %d: slot %zu + %zu%s\n", k, c->slot[k], c->skew[k], c->scaled[k] ? ", scaled" : "");
      }
      return false;
    }
  }
  return true;
}

static inline bool case_run(case_rig *rig, const case_call *c)
{
  memcpy(rig->copy, rig->arena, CASE_ARENA);
  case_expect(rig, c);
  case_launch(rig, c);
  return case_same(rig, c);
}

// A call of that operation with operands anywhere: aligned alike, aligned to their elements, or not at all; now and
// then a destination is a source.
static inline void case_make(case_rig *rig, case_call *c, size_t longest)
{
  const size_t size = tt_type_size((int)c->type), mode = case_below(rig, 4);
  const size_t common = case_below(rig, 2) == 0 ? 0 : 16 + case_below(rig, 16 / size) * size;
  c->count = case_below(rig, 8) == 0 ? case_below(rig, 3) : case_below(rig, longest + 1);
  c->ctas = 1 + (unsigned)case_below(rig, 3);
  c->final = case_below(rig, 2) == 0;
  for (int k = 0; k < c->nsrc + c->ndst; k++) {
    c->slot[k] = (size_t)k;
    c->skew[k] = mode < 2 ? common : mode == 2 ? case_below(rig, 16) * size : case_below(rig, 33);
    c->scaled[k] = c->op.prescale && k < c->nsrc && case_below(rig, 3) != 0;
    c->scalar[k] = c->scaled[k] && case_below(rig, 4) == 0 ? case_element(rig, c->type) : c->op.scalar;
    c->scalar[k] &= UINT64_MAX >> (64 - 8 * size);
  }
  if (case_below(rig, 2) == 0) {
    const size_t in = case_below(rig, (size_t)c->nsrc), out = (size_t)c->nsrc + case_below(rig, (size_t)c->ndst);
    c->slot[out] = c->slot[in];
    c->skew[out] = c->skew[in];
  }
}

// The call of a stopped port, and of a step that must not go on, changes nothing.
static inline bool case_halts(case_rig *rig, const case_call *c)
{
  memcpy(rig->copy, rig->arena, CASE_ARENA);
  rig->stop = 1;
  case_launch(rig, c);
  rig->stop = rig->go = 0;
  case_launch(rig, c);
  rig->go = 1;
  return case_same(rig, c);
}

// `rounds` random calls of an operation on a type. False: one went wrong, and was printed.
static inline bool case_operation(case_rig *rig, ncclDataType_t type, ncclRedOp_t red, int rounds, size_t longest)
{
  for (int i = 0; i < rounds; i++) {
    case_call c = {.type = type, .nsrc = 1 + (int)case_below(rig, 5), .ndst = 1 + (int)case_below(rig, 2)};
    tt_redop_builtin(&c.op, type, red, c.nsrc + (i % 8 == 0 ? 0 : 1));
    if (i % 128 == 0) {
      case_fill(rig, type);
    }
    case_make(rig, &c, longest);
    if (!case_halts(rig, &c) || !case_run(rig, &c)) {
      return false;
    }
  }
  return true;
}

static const ncclRedOp_t case_operations[] = {ncclSum,         ncclProd,       ncclMax,        ncclMin,
                                              ncclAvg,         tuttiBitAnd,    tuttiBitOr,     tuttiBitXor,
                                              tuttiLogicalAnd, tuttiLogicalOr, tuttiLogicalXor};

// Every operation that the type has.
static inline bool case_type(case_rig *rig, ncclDataType_t type, int rounds, size_t longest)
{
  for (size_t i = 0; i < TT_COUNT(case_operations); i++) {
    if (!case_operation(rig, type, case_operations[i], rounds, longest)) {
      return false;
    }
  }
  return true;
}

// All pairs of codes of an 8-bit type.
static inline bool case_pairs(case_rig *rig, ncclDataType_t type, ncclRedOp_t red)
{
  case_call c = {.type = type, .nsrc = 2, .ndst = 1, .count = 8192, .slot = {0, 1, 2}, .ctas = 4};
  tt_redop_builtin(&c.op, type, red, 2);
  c.scaled[0] = c.scaled[1] = c.op.prescale;
  c.scalar[0] = c.scalar[1] = c.op.scalar;
  for (size_t first = 0; first < 256; first += 32) {
    for (size_t i = 0; i < c.count; i++) {
      case_operand(rig->arena, &c, 0)[i] = (char)(i & 255);
      case_operand(rig->arena, &c, 1)[i] = (char)(first + (i >> 8));
    }
    if (!case_run(rig, &c)) {
      return false;
    }
  }
  return true;
}

// ---- Steps: tokens, operands, messages. One rank's kernels, with headers that a test writes for its peers ----

enum { STEP_PEERS = 3, STEP_COUNT = 1000, STEP_POSTS = 2 * STEP_PEERS + 1 };

typedef struct case_step {
  tt_cuda_slot slots[STEP_PEERS];  // tokens of the peers,
  tt_cuda_slot own[STEP_PEERS];    // messages of this rank to them,
  tt_cuda_slot tokens[STEP_PEERS]; // and tokens
  uint32_t head, taken;            // `taken` is cleared before the head is written
  tt_cuda_line lines[STEP_PEERS];  // of the FIFOs of their tokens
  tt_cuda_map maps[3];
  uint64_t factor; // of this rank, in memory
  tt_cuda_ref refs[STEP_PEERS + 2];
  tt_cuda_post posts[STEP_POSTS], arrivals[STEP_PEERS];
} case_step;

static inline uint64_t case_at(const void *p)
{
  return (uint64_t)(uintptr_t)p;
}

// A sum of floats, scaled: own input in slot 0, the peers' in slots 1 to 3 of the arena, the result to slot 4 and to
// the output of peer 2, slot 5. Peer 1 has its addresses in this process, the others are mapped elsewhere than they
// say.
static inline void step_make(case_rig *rig, case_step *s)
{
  const uint64_t far = UINT64_C(0x7000000000);
  *s = (case_step){.head = 6, .taken = 3, .factor = 0x3f000000};
  s->maps[0] = (tt_cuda_map){.remote = far - 4096, .bytes = 4096, .here = case_at(rig->arena), .handle = 8};
  s->maps[1] = (tt_cuda_map){.remote = far, .bytes = CASE_ARENA, .here = case_at(rig->arena), .handle = 7};
  for (int k = 0; k < STEP_PEERS; k++) {
    const uint64_t base = k == 0 ? case_at(rig->arena) : far;
    s->slots[k] = (tt_cuda_slot){.seq = 9,
                                 .sig = 77,
                                 .count = STEP_COUNT | (k == 1 ? TT_CUDA_DECIDED : 0),
                                 .in = base + (uint64_t)(k + 1) * CASE_SLOT,
                                 .out = base + (uint64_t)(k + 4) * CASE_SLOT,
                                 .in_mem = 7,
                                 .out_mem = 7,
                                 .scalar = 0x3f800000 + (uint64_t)k * 0x10000};
    s->refs[1 + k] = (tt_cuda_ref){.at = 16,
                                   .bytes = STEP_COUNT * 4,
                                   .slot = case_at(&s->slots[k]),
                                   .maps = k == 0 ? 0 : case_at(s->maps),
                                   .line = case_at(&s->lines[k]),
                                   .seq = 9,
                                   .peer = k + 1,
                                   .where = TT_CUDA_PEER_IN,
                                   .scaled = 1};
    s->posts[k] = (tt_cuda_post){.at = case_at(&s->own[k]), .seq = 5 + (uint32_t)k, .bytes = 100 + (uint32_t)k};
    s->arrivals[k] = (tt_cuda_post){.at = case_at(&s->tokens[k]), .seq = 5 + (uint32_t)k};
    s->posts[STEP_PEERS + 1 + k] = (tt_cuda_post){.at = case_at(&s->lines[k].uses), .word = 1, .halted = 1};
  }
  s->refs[0] = (tt_cuda_ref){
      .at = case_at(rig->arena + 16), .scalar = case_at(&s->factor), .where = TT_CUDA_AT, .scaled = 1, .peer = -1};
  s->refs[STEP_PEERS + 1] = s->refs[2];
  s->refs[STEP_PEERS + 1].where = TT_CUDA_PEER_OUT;
  s->refs[STEP_PEERS + 1].scaled = 0;
  s->posts[STEP_PEERS] = (tt_cuda_post){.at = case_at(&s->head), .seq = 7, .word = 1, .clear = case_at(&s->taken)};
  rig->stop = rig->go = 0;
  memset(rig->operands, 0, sizeof rig->operands);
  rig->fault = (tt_cuda_fault){.code = 0};
}

// The call that the step is, for the reference: of all ranks, or of this one alone.
static inline case_call step_call_of(ncclRedOp_t red, int nsrc)
{
  const bool scaled = red == ncclAvg;
  case_call c = {.type = ncclFloat32,
                 .nsrc = nsrc,
                 .ndst = 1,
                 .count = STEP_COUNT,
                 .slot = {0, 1, 2, 3, 5},
                 .skew = {16, 16, 16, 16, 16},
                 .scaled = {scaled, scaled, scaled, scaled},
                 .scalar = {0x3f000000, 0x3f800000, 0x3f810000, 0x3f820000},
                 .ctas = 2};
  c.slot[nsrc] = 5;
  tt_redop_builtin(&c.op, ncclFloat32, red, 4);
  return c;
}

static inline case_call step_call(void)
{
  return step_call_of(ncclAvg, 4);
}

static inline tt_cuda_resolve case_resolve(case_step *s)
{
  return (tt_cuda_resolve){.refs = case_at(s->refs), .nrefs = STEP_PEERS + 2, .scalar_bytes = 4};
}

static inline tt_cuda_posts case_posts(case_step *s)
{
  return (tt_cuda_posts){.posts = case_at(s->posts), .nposts = STEP_POSTS};
}

static inline void step_resolve(case_rig *rig, case_step *s)
{
  tt_cuda_step a = case_base(rig);
  a.call = (tt_cuda_call){.sig = 77, .count = STEP_COUNT};
  a.resolve = case_resolve(s);
  rig->launch(rig->arg, "step", "copy", 1, &a);
}

static inline void step_combine(case_rig *rig, const case_call *c)
{
  tt_kernel kernel;
  tt_cuda_step a = case_base(rig);
  tt_kernel_choose(&(tt_kernel_use){&c->op, c->nsrc, c->ndst, c->count, true, false}, &kernel);
  a.combine = kernel.args;
  rig->launch(rig->arg, kernel.module, kernel.name, c->ctas, &a);
}

static inline void step_post(case_rig *rig, case_step *s)
{
  tt_cuda_step a = case_base(rig);
  a.call = (tt_cuda_call){.sig = 78, .count = 12};
  a.post = case_posts(s);
  rig->launch(rig->arg, "step", "copy", 1, &a);
}

static inline tt_cuda_arrive case_arrive(case_step *s)
{
  return (tt_cuda_arrive){.to = {.posts = case_at(s->arrivals), .nposts = STEP_PEERS},
                          .in = 0x1111,
                          .out = 0x2222,
                          .in_mem = 3,
                          .out_mem = 4,
                          .scalar = 0x5555,
                          .freed = 6};
}

// All of it in one launch.
static inline void step_whole(case_rig *rig, case_step *s, const case_call *c)
{
  tt_kernel kernel;
  tt_cuda_step a = case_base(rig);
  tt_kernel_choose(&(tt_kernel_use){&c->op, c->nsrc, c->ndst, c->count, true, false}, &kernel);
  a.call = (tt_cuda_call){.sig = 77, .count = STEP_COUNT};
  a.resolve = case_resolve(s);
  if (c->nsrc == 1) {
    s->refs[1] = s->refs[STEP_PEERS + 1];
    a.resolve.nrefs = 2;
  }
  a.combine = kernel.args;
  a.post = case_posts(s);
  a.arrive = case_arrive(s);
  rig->launch(rig->arg, kernel.module, kernel.name, 1, &a);
}

#define CASE_CHECK(cond)                                        \
  do {                                                          \
    if (!(cond)) {                                              \
      printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #cond); \
      return false;                                             \
    }                                                           \
  } while (0)

// Do the lines say of all peers that their memory is in use, or of none?
static inline bool step_uses(const case_step *s, uint32_t uses)
{
  return s->lines[0].uses == uses && s->lines[1].uses == uses && s->lines[2].uses == uses;
}

// Has this rank handed over nothing?
static inline bool step_is_quiet(const case_step *s)
{
  bool quiet = true;
  for (int k = 0; k < STEP_PEERS; k++) {
    quiet &= s->own[k].seq == 0 && s->tokens[k].seq == 0;
  }
  return quiet;
}

static inline bool step_runs(case_rig *rig, case_step *s)
{
  const case_call c = step_call();
  step_make(rig, s);
  memcpy(rig->copy, rig->arena, CASE_ARENA);
  case_expect(rig, &c);
  step_resolve(rig, s);
  CASE_CHECK(rig->go == 1 && rig->fault.code == TT_CUDA_FINE && step_uses(s, 1));
  step_combine(rig, &c);
  CASE_CHECK(case_same(rig, &c) && step_uses(s, 1));
  step_post(rig, s);
  CASE_CHECK(step_uses(s, 0));
  for (uint32_t k = 0; k < STEP_PEERS; k++) {
    CASE_CHECK(s->own[k].seq == 5 + k && s->own[k].bytes == 100 + k && s->own[k].sig == 78 && s->own[k].count == 12);
    CASE_CHECK(s->own[k].in == 0 && s->own[k].scalar == 0); // a message's payload begins there
  }
  CASE_CHECK(s->head == 7 && s->taken == 0);
  return true;
}

// One of each form of kernel.
static const struct {
  ncclRedOp_t red;
  int nsrc;
} case_wholes[] = {{ncclAvg, 4}, {tuttiBitXor, 4}, {tuttiLogicalAnd, 4}, {ncclSum, 1}};

static inline bool step_runs_whole(case_rig *rig, case_step *s, int form)
{
  const case_call c = step_call_of(case_wholes[form].red, case_wholes[form].nsrc);
  step_make(rig, s);
  memcpy(rig->copy, rig->arena, CASE_ARENA);
  case_expect(rig, &c);
  step_whole(rig, s, &c);
  CASE_CHECK(rig->go == 1 && rig->fault.code == TT_CUDA_FINE && case_same(rig, &c) && step_uses(s, 0));
  for (uint32_t k = 0; k < STEP_PEERS; k++) {
    CASE_CHECK(s->own[k].seq == 5 + k && s->own[k].bytes == 100 + k && s->own[k].sig == 77);
    CASE_CHECK(s->tokens[k].seq == 5 + k && s->tokens[k].in == 0x1111 && s->tokens[k].freed == 6);
  }
  CASE_CHECK(s->head == 7 && s->taken == 0);
  return true;
}

static inline bool step_stops_whole(case_rig *rig, case_step *s, int form)
{
  const case_call c = step_call_of(case_wholes[form].red, case_wholes[form].nsrc);
  step_make(rig, s);
  memset(case_operand(rig->arena, &c, c.nsrc), 0x5a, STEP_COUNT * sizeof(float)); // no result yet
  memcpy(rig->copy, rig->arena, CASE_ARENA);
  rig->stop = 1;
  step_whole(rig, s, &c);
  case_launch(rig, &c); // the data alone
  CASE_CHECK(case_same(rig, &c) && s->head == 6 && s->taken == 3 && step_is_quiet(s) && rig->fault.code == 0);
  CASE_CHECK(step_uses(s, 0));
  return true;
}

// The step must not begin: nothing is written but the fault.
static inline bool step_stands(case_rig *rig, case_step *s, const tt_cuda_fault *fault)
{
  const case_call c = step_call();
  memcpy(rig->copy, rig->arena, CASE_ARENA);
  rig->go = 1;
  step_resolve(rig, s);
  CASE_CHECK(rig->go == 0);
  for (int k = 0; k < STEP_PEERS + 2 && rig->stop != 0; k++) {
    CASE_CHECK(rig->operands[k].at == 0); // not even looked for
  }
  step_combine(rig, &c);
  step_post(rig, s);
  step_whole(rig, s, &c);
  CASE_CHECK(case_same(rig, &c) && s->head == 6 && s->taken == 3 && step_is_quiet(s) && step_uses(s, 0));
  CASE_CHECK(memcmp(&rig->fault, fault, sizeof *fault) == 0);
  return true;
}

static inline bool step_faults(case_rig *rig, case_step *s)
{
  step_make(rig, s);
  s->slots[1].sig = 76;
  s->slots[2].count++; // the first one is told
  CASE_CHECK(step_stands(
      rig, s, &(tt_cuda_fault){TT_CUDA_MISMATCH, 2, 76, STEP_COUNT | TT_CUDA_DECIDED, 77, STEP_COUNT, 1, 0}));
  // A port that has a fault does nothing any more, and keeps the fault.
  s->slots[1].sig = 77;
  CASE_CHECK(step_stands(
      rig, s, &(tt_cuda_fault){TT_CUDA_MISMATCH, 2, 76, STEP_COUNT | TT_CUDA_DECIDED, 77, STEP_COUNT, 1, 0}));
  step_make(rig, s);
  s->slots[2].count++;
  CASE_CHECK(step_stands(rig, s, &(tt_cuda_fault){TT_CUDA_MISMATCH, 3, 77, STEP_COUNT + 1, 77, STEP_COUNT, 1, 0}));
  step_make(rig, s);
  s->slots[0].seq = 8;
  CASE_CHECK(step_stands(rig, s, &(tt_cuda_fault){TT_CUDA_NOT_THERE, 1, 77, STEP_COUNT, 77, STEP_COUNT, 1, 0}));
  step_make(rig, s);
  s->lines[1].ended = 1;
  CASE_CHECK(
      step_stands(rig, s, &(tt_cuda_fault){TT_CUDA_ENDED, 2, 77, STEP_COUNT | TT_CUDA_DECIDED, 77, STEP_COUNT, 1, 0}));
  step_make(rig, s);
  s->lines[0].ended = 1; // because of the other one, perhaps
  s->slots[1].sig = 76;
  CASE_CHECK(step_stands(
      rig, s, &(tt_cuda_fault){TT_CUDA_MISMATCH, 2, 76, STEP_COUNT | TT_CUDA_DECIDED, 77, STEP_COUNT, 1, 0}));
  step_make(rig, s);
  s->slots[2].in_mem = 9;
  CASE_CHECK(step_stands(rig, s, &(tt_cuda_fault){TT_CUDA_UNMAPPED, 3, 9, s->slots[2].in, 77, STEP_COUNT, 1, 0}));
  step_make(rig, s);
  s->slots[1].out += CASE_ARENA; // its end is outside
  CASE_CHECK(step_stands(rig, s, &(tt_cuda_fault){TT_CUDA_UNMAPPED, 2, 7, s->slots[1].out, 77, STEP_COUNT, 1, 0}));
  return true;
}

static inline bool step_stops(case_rig *rig, case_step *s)
{
  const case_call c = step_call();
  step_make(rig, s);
  rig->stop = 1;
  CASE_CHECK(step_stands(rig, s, &(tt_cuda_fault){.code = 0}));
  // Stopped behind resolve: the step may go on, but the port is stopped.
  step_make(rig, s);
  memcpy(rig->copy, rig->arena, CASE_ARENA);
  step_resolve(rig, s);
  CASE_CHECK(rig->go == 1);
  rig->stop = 1;
  step_combine(rig, &c);
  step_post(rig, s);
  CASE_CHECK(case_same(rig, &c) && s->head == 6 && s->taken == 3 && step_is_quiet(s) && step_uses(s, 0));
  return true;
}

// Tokens: what resolve reads is what arrive has written.
static inline bool step_arrives(case_rig *rig, case_step *s)
{
  step_make(rig, s);
  rig->go = 1;
  tt_cuda_step a = case_base(rig);
  a.port.go = 0;
  a.call = (tt_cuda_call){.sig = 77, .count = STEP_COUNT};
  a.arrive = case_arrive(s);
  rig->launch(rig->arg, "step", "copy", 1, &a);
  for (uint32_t k = 0; k < STEP_PEERS; k++) {
    const tt_cuda_slot *o = &s->tokens[k];
    CASE_CHECK(o->seq == 5 + k && o->sig == 77 && o->count == STEP_COUNT && o->in == 0x1111 && o->out == 0x2222);
    CASE_CHECK(o->in_mem == 3 && o->out_mem == 4 && o->scalar == 0x5555 && o->freed == 6 && o->along == 0);
  }
  for (uint32_t bytes = 1; bytes <= 8; bytes *= 2) { // a factor in memory, of each width
    s->factor = UINT64_C(0x8877665544332211);
    a.arrive.scalar_at = case_at(&s->factor);
    a.arrive.scalar_bytes = bytes;
    rig->launch(rig->arg, "step", "copy", 1, &a);
    CASE_CHECK(s->tokens[1].scalar == (s->factor & UINT64_MAX >> (64 - 8 * bytes)));
  }
  memset(s->tokens, 0, sizeof s->tokens);
  rig->fault.code = TT_CUDA_MISMATCH;
  rig->launch(rig->arg, "step", "copy", 1, &a);
  CASE_CHECK(step_is_quiet(s));
  rig->fault.code = TT_CUDA_FINE;
  rig->stop = 1;
  rig->launch(rig->arg, "step", "copy", 1, &a);
  CASE_CHECK(step_is_quiet(s));
  rig->stop = 0;
  return true;
}

// Everything about steps. False: something was not so, and was printed.
static inline bool case_steps(case_rig *rig, case_step *s)
{
  case_fill(rig, ncclFloat32);
  bool good = step_runs(rig, s) && step_faults(rig, s) && step_stops(rig, s) && step_arrives(rig, s);
  for (int form = 0; form < (int)TT_COUNT(case_wholes) && good; form++) {
    good = step_runs_whole(rig, s, form) && step_stops_whole(rig, s, form);
  }
  rig->stop = 0;
  rig->go = 1;
  rig->fault.code = 0;
  return good;
}
