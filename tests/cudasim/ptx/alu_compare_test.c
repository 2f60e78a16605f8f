// alu_compare_test.c: setp, set, selp, slct, testp, and what ptx_alu_find says of operands and of wrong opcodes.
#include "alu_test.h"

#define ONE 0x3f800000
#define NAN32 0x7fc00000
#define MINUS_ZERO 0x80000000

static const struct alu_case compare_cases[] = {
    {"setp.lt.s32", {0xffffffff, 1}, {1, 0}},
    {"setp.lt.u32", {0xffffffff, 1}, {0, 1}},
    {"setp.lo.u32", {1, 0xffffffff}, {1, 0}},
    {"setp.ls.u64", {~0ULL, ~0ULL}, {1, 0}},
    {"setp.hi.u16", {2, 2}, {0, 1}},
    {"setp.hs.u16", {2, 2}, {1, 0}},
    {"setp.ge.s16", {0x8000, 0}, {0, 1}},
    {"setp.le.s64", {~0ULL, 0}, {1, 0}},
    {"setp.gt.s64", {1, ~0ULL}, {1, 0}},
    {"setp.eq.b64", {5, 5}, {1, 0}},
    {"setp.ne.b16", {5, 5}, {0, 1}},
    {"setp.lt.and.s32", {0, 1, 1}, {1, 0}},
    {"setp.lt.and.s32", {0, 1, 0}, {0, 0}},
    {"setp.lt.and.s32", {1, 0, 1}, {0, 1}},
    {"setp.lt.or.s32", {1, 0, 0}, {0, 1}},
    {"setp.lt.or.s32", {1, 0, 1}, {1, 1}},
    {"setp.lt.xor.s32", {0, 1, 1}, {0, 1}},
    {"setp.lt.xor.s32", {0, 1, 0}, {1, 0}},
    {"setp.eq.f32", {0, MINUS_ZERO}, {1, 0}},
    {"setp.lt.f32", {MINUS_ZERO, 0}, {0, 1}},
    {"setp.lt.f32", {0xbf800000, MINUS_ZERO}, {1, 0}},
    {"setp.lt.f32", {0xff800000, 0xff7fffff}, {1, 0}},
    {"setp.lt.ftz.f32", {0, 0x007fffff}, {0, 1}},
    {"setp.lt.f32", {0, 0x007fffff}, {1, 0}},
    {"setp.gt.f64", {0x3ff0000000000001, 0x3ff0000000000000}, {1, 0}},
    {"setp.lt.f16", {0x8001, 0x0000}, {1, 0}},
    {"setp.lt.ftz.f16", {0x8001, 0x0000}, {0, 1}},
    {"setp.ge.bf16", {0x3f80, 0x3f80}, {1, 0}},
    {"setp.lt.f16x2", {0x3c000000, 0x00003c00}, {1, 0}},
    {"setp.lt.f16x2", {0, 0x3c000000}, {0, 1}},
    {"setp.gtu.bf16x2", {0x3f800000, 0x00003f80}, {0, 1}},
    {"set.lt.u32.s32", {0xffffffff, 0}, {0xffffffff}},
    {"set.lt.s32.u32", {0xffffffff, 0}, {0}},
    {"set.lt.f32.s32", {0xffffffff, 0}, {ONE}},
    {"set.gt.f32.f64", {0, 0x3ff0000000000000}, {0}},
    {"set.lt.and.u32.s32", {0xffffffff, 0, 0}, {0}},
    {"set.eq.f16.f16", {0x0000, 0x8000}, {0x3c00}},
    {"set.eq.bf16.bf16", {0x4000, 0x4000}, {0x3f80}},
    {"set.eq.u16.f16", {0x4000, 0x4000}, {0xffff}},
    {"set.ge.f16x2.f16x2", {0x3c000000, 0x3c003c00}, {0x3c000000}},
    {"set.lt.f16x2.f16x2", {0, 0x3c000000}, {0x3c000000}},
    {"set.ge.u32.f16x2", {0x3c000000, 0x3c003c00}, {0xffff0000}},
    {"selp.b32", {7, 9, 1}, {7}},
    {"selp.f64", {7, 9, 0}, {9}},
    {"slct.u32.s32", {7, 9, 0}, {7}},
    {"slct.u32.s32", {7, 9, 0xffffffff}, {9}},
    {"slct.b64.f32", {7, 9, MINUS_ZERO}, {7}},
    {"slct.u32.f32", {7, 9, NAN32}, {9}},
    {"slct.u32.f32", {7, 9, 0x80000001}, {9}},
    {"slct.ftz.u32.f32", {7, 9, 0x80000001}, {7}},
    {"testp.finite.f32", {0x7f7fffff}, {1}},
    {"testp.finite.f32", {0x7f800000}, {0}},
    {"testp.infinite.f32", {0xff800000}, {1}},
    {"testp.infinite.f32", {NAN32}, {0}},
    {"testp.number.f32", {0x7f800000}, {1}},
    {"testp.notanumber.f64", {0x7ff0000000000001}, {1}},
    {"testp.normal.f32", {0x00800000}, {1}},
    {"testp.normal.f32", {0}, {0}},
    {"testp.normal.f32", {0x7f800000}, {0}},
    {"testp.subnormal.f64", {1}, {1}},
    {"testp.subnormal.f64", {0}, {0}},
    {"testp.subnormal.f32", {0x00800000}, {0}},
};

static void lines_of_comparisons(void **state)
{
  (void)state;
  check_cases(compare_cases, COUNT(compare_cases));
}

// Every comparison of floats, of numbers and NaN.
static void all_comparisons_of_floats(void **state)
{
  (void)state;
  static const float numbers[] = {-INFINITY, -1, -0.0f, 0, 1e-40f, 1, INFINITY, NAN};
  static const char *const words[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                      "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
  for (size_t i = 0; i < COUNT(numbers) * COUNT(numbers); i++) {
    float a = numbers[i / COUNT(numbers)], b = numbers[i % COUNT(numbers)];
    bool open = isnan(a) || isnan(b);
    bool expected[] = {a == b,        !open && a != b, a<b, a <= b, a> b, a >= b,         open || a == b, a != b,
                       open || a < b, open || a <= b,  open || a > b,     open || a >= b, !open,          open};
    uint32_t bits_a, bits_b;
    memcpy(&bits_a, &a, sizeof a);
    memcpy(&bits_b, &b, sizeof b);
    for (size_t w = 0; w < COUNT(words); w++) {
      char name[32];
      snprintf(name, sizeof name, "setp.%s.f32", words[w]);
      struct ptx_alu alu = found(name);
      assert_int_equal(result(&alu, bits_a, bits_b, 0), expected[w]);
    }
  }
}

// ---- What an opcode is ----

static void operands_have_their_bytes(void **state)
{
  (void)state;
  static const struct {
    const char *opcode;
    int outs, ins;
    uint8_t out_bytes[PTX_ALU_OUTS], in_bytes[PTX_ALU_INS];
    bool reads_carry, writes_carry;
  } shapes[] = {
      {"add.s32", 1, 2, {4}, {4, 4}, false, false},
      {"add.cc.u64", 1, 2, {8}, {8, 8}, false, true},
      {"addc.cc.u32", 1, 2, {4}, {4, 4}, true, true},
      {"madc.hi.u32", 1, 3, {4}, {4, 4, 4}, true, false},
      {"mad.wide.u16", 1, 3, {4}, {2, 2, 4}, false, false},
      {"mul.wide.s32", 1, 2, {8}, {4, 4}, false, false},
      {"shl.b64", 1, 2, {8}, {8, 4}, false, false},
      {"shf.l.clamp.b32", 1, 3, {4}, {4, 4, 4}, false, false},
      {"bfe.u64", 1, 3, {8}, {8, 4, 4}, false, false},
      {"bfi.b64", 1, 4, {8}, {8, 8, 4, 4}, false, false},
      {"popc.b64", 1, 1, {4}, {8}, false, false},
      {"bfind.s64", 1, 1, {4}, {8}, false, false},
      {"brev.b64", 1, 1, {8}, {8}, false, false},
      {"not.b32", 1, 1, {4}, {4}, false, false},
      {"cnot.b64", 1, 1, {8}, {8}, false, false},
      {"xor.b16", 1, 2, {2}, {2, 2}, false, false},
      {"clz.b64", 1, 1, {4}, {8}, false, false},
      {"prmt.b32.ecl", 1, 3, {4}, {4, 4, 4}, false, false},
      {"fns.b32", 1, 3, {4}, {4, 4, 4}, false, false},
      {"bmsk.clamp.b32", 1, 2, {4}, {4, 4}, false, false},
      {"dp4a.u32.s32", 1, 3, {4}, {4, 4, 4}, false, false},
      {"mad24.lo.u32", 1, 3, {4}, {4, 4, 4}, false, false},
      {"sad.u16", 1, 3, {2}, {2, 2, 2}, false, false},
      {"abs.s64", 1, 1, {8}, {8}, false, false},
      {"div.u64", 1, 2, {8}, {8, 8}, false, false},
      {"min.s16x2", 1, 2, {4}, {4, 4}, false, false},
      {"lop3.b32", 1, 4, {4}, {4, 4, 4, 4}, false, false},
      {"lop3.or.b32", 2, 5, {4, 0}, {4, 4, 4, 4, 0}, false, false},
      {"setp.lt.f64", 2, 2, {0, 0}, {8, 8}, false, false},
      {"setp.lt.or.f64", 2, 3, {0, 0}, {8, 8, 0}, false, false},
      {"set.lt.xor.u32.f64", 1, 3, {4}, {8, 8, 0}, false, false},
      {"selp.b16", 1, 3, {2}, {2, 2, 0}, false, false},
      {"slct.u64.f32", 1, 3, {8}, {8, 8, 4}, false, false},
      {"and.pred", 1, 2, {0}, {0, 0}, false, false},
      {"testp.finite.f64", 1, 1, {0}, {8}, false, false},
      {"mad.rn.f64", 1, 3, {8}, {8, 8, 8}, false, false},
      {"sqrt.rn.f64", 1, 1, {8}, {8}, false, false},
      {"copysign.f32", 1, 2, {4}, {4, 4}, false, false},
      {"max.bf16", 1, 2, {2}, {2, 2}, false, false},
      {"fma.rn.f16x2", 1, 3, {4}, {4, 4, 4}, false, false},
      {"cvt.u64.u8", 1, 1, {8}, {1}, false, false},
      {"cvt.rn.bf16x2.f32", 1, 2, {4}, {4, 4}, false, false},
      {"cvt.rn.satfinite.e4m3x2.f32", 1, 2, {2}, {4, 4}, false, false},
      {"cvt.rn.satfinite.e4m3x2.f16x2", 1, 1, {2}, {4}, false, false},
      {"cvt.pack.sat.s8.s32.b32", 1, 3, {4}, {4, 4, 4}, false, false},
      {"cvt.rn.f16x2.e5m2x2", 1, 1, {4}, {2}, false, false},
  };
  for (size_t i = 0; i < COUNT(shapes); i++) {
    struct ptx_alu alu = found(shapes[i].opcode);
    assert_int_equal(alu.outs, shapes[i].outs);
    assert_int_equal(alu.ins, shapes[i].ins);
    assert_memory_equal(alu.out_bytes, shapes[i].out_bytes, (size_t)alu.outs);
    assert_memory_equal(alu.in_bytes, shapes[i].in_bytes, (size_t)alu.ins);
    assert_int_equal(alu.reads_carry, shapes[i].reads_carry);
    assert_int_equal(alu.writes_carry, shapes[i].writes_carry);
  }
}

static void foreign_opcodes_are_left_to_others(void **state)
{
  (void)state;
  static const char *const opcodes[] = {"ld.global.u32", "bra", "bar.sync", "addx.s32",
                                        "ad.s32",        "",    ".s32",     "vote.all"};
  for (size_t i = 0; i < COUNT(opcodes); i++) {
    struct ptx_alu alu;
    char why[PTX_TEXT] = "before";
    assert_false(ptx_alu_find(opcodes[i], &alu, why));
    assert_string_equal(why, "");
  }
}

static void wrong_opcodes_are_explained(void **state)
{
  (void)state;
  static const struct {
    const char *opcode, *says;
  } wrong[] = {
      {"add", "a type is missing"},
      {"add.s32.s32", ".s32 is too much"},
      {"add.foo.s32", ".foo.s32 is no modifier"},
      {"add.s8", ".s8 is no modifier"},
      {"add.sat.u32", ".u32 is no modifier"},
      {"add.cc.s16", ".s16"},
      {"add.rn.s32", ".rn.s32"},
      {"add.rz.f16", ".f16"},
      {"add.ftz.f64", ".f64"},
      {"mul.s32", "needs .lo, .hi or .wide"},
      {"mul.wide.u64", ".u64"},
      {"mad.f32", "needs .rn"},
      {"mad.lo.sat.s32", ".sat.s32"},
      {"madc.wide.u32", "needs .lo or .hi"},
      {"mul24.wide.u32", "needs .lo or .hi"},
      {"mad24.lo.sat.s32", ".sat.s32"},
      {"tanh.approx.ftz.f32", ".ftz.f32"},
      {"fma.f32", "needs .rn"},
      {"fma.rn.relu.f32", ".f32"},
      {"div.f32", "needs .rn, .rz, .rm, .rp or .approx"},
      {"sqrt.approx.f64", ".f64"},
      {"sin.f32", "needs .approx"},
      {"min.xorsign.f32", ".xorsign needs .abs"},
      {"min.NaN.f64", ".f64"},
      {"min.sat.f32", ".sat.f32"},
      {"max.sat.f32", ".sat.f32"},
      {"abs.sat.f16", ".sat.f16"},
      {"setp.s32", "needs a comparison"},
      {"setp.lt.b32", ".b32"},
      {"setp.lt.u8", ".u8"},
      {"setp.lo.s32", ".s32"},
      {"setp.num.s32", ".s32"},
      {"set.lt.u16.u32", "no result of this type"},
      {"set.lt.ftz.bf16.f32", "no result of this type"},
      {"shf.b32", "needs .l or .r"},
      {"shf.l.b32", "needs .clamp or .wrap"},
      {"prmt.b32.xyz", ".xyz is too much"},
      {"testp.f32", "needs .finite"},
      {"cvt.rn.s32.f32", "needs .rni"},
      {"cvt.s32.f32", "needs .rni"},
      {"cvt.f32.s32", "needs .rn"},
      {"cvt.rn.f32.f16", "is exact"},
      {"cvt.f16.f32", "needs .rn"},
      {"cvt.rzi.u32.s32", "integers are not rounded"},
      {"cvt.rzi.f16.f32", "integral"},
      {"cvt.rn.e4m3x2.f32", "needs .satfinite"},
      {"cvt.rz.satfinite.e4m3x2.f32", "rounding"},
      {"cvt.ftz.f64.f16", ".ftz"},
      {"cvt.rm.f16x2.f32", "rounding"},
      {"cvt.rna.f16.f32", "rounding"},
      {"cvt.pack.u16.s32", "needs .sat"},
      {"cvt.rn.relu.f16.f64", ".relu"},
      {"cvt.relu.f32.f16", ".relu"},
      {"cvt.rn.satfinite.bf16.f64", ".satfinite"},
      {"cvt.rn.satfinite.f16x2.e4m3x2", ".satfinite"},
      {"cvt.rn.sat.f16x2.f32", ".sat"},
      {"cvt.rn.sat.bf16.f32", ".sat"},
      {"cvt.rn.ftz.relu.f16.f32", "together"},
      {"cvt.rm.tf32.f32", "rounding"},
      {"cvt.pack.sat.u8.s32", "needs a type"},
  };
  for (size_t i = 0; i < COUNT(wrong); i++) {
    struct ptx_alu alu;
    char why[PTX_TEXT];
    assert_false(ptx_alu_find(wrong[i].opcode, &alu, why));
    if (!strstr(why, wrong[i].says) || strncmp(why, wrong[i].opcode, strlen(wrong[i].opcode)) != 0)
      fail_msg("%s: the text is: %s", wrong[i].opcode, why);
  }
}

static void roots_alone_are_no_opcodes(void **state)
{
  (void)state;
  static const char *const roots[] = {"add",   "sub",  "addc", "subc", "mul",   "mad",   "madc", "mul24",    "mad24",
                                      "div",   "rem",  "abs",  "neg",  "min",   "max",   "sad",  "dp4a",     "dp2a",
                                      "mov",   "and",  "or",   "xor",  "not",   "cnot",  "shl",  "shr",      "shf",
                                      "lop3",  "prmt", "bfe",  "bfi",  "bfind", "popc",  "clz",  "brev",     "fns",
                                      "szext", "bmsk", "setp", "set",  "selp",  "slct",  "fma",  "rcp",      "sqrt",
                                      "ex2",   "lg2",  "sin",  "cos",  "tanh",  "rsqrt", "cvt",  "copysign", "testp"};
  static const char *const modifiers[] = {"",    ".lo",     ".hi",      ".cc",    ".rn",     ".approx",
                                          ".lt", ".finite", ".l.clamp", ".clamp", ".hi.sat", ".pack.sat"};
  for (size_t i = 0; i < COUNT(roots) * COUNT(modifiers); i++) {
    char opcode[32], why[PTX_TEXT];
    struct ptx_alu alu;
    snprintf(opcode, sizeof opcode, "%s%s", roots[i / COUNT(modifiers)], modifiers[i % COUNT(modifiers)]);
    assert_false(ptx_alu_find(opcode, &alu, why));
    assert_string_not_equal(why, "");
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lines_of_comparisons),        cmocka_unit_test(all_comparisons_of_floats),
      cmocka_unit_test(operands_have_their_bytes),   cmocka_unit_test(foreign_opcodes_are_left_to_others),
      cmocka_unit_test(wrong_opcodes_are_explained), cmocka_unit_test(roots_alone_are_no_opcodes),
  };
  return cmocka_run_group_tests_name("cudasim comparisons", tests, NULL, NULL);
}
