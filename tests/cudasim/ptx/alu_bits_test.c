// alu_bits_test.c: logic, shifts, fields, bytes, moves: lines that follow from the instructions' definitions, and those
// instructions whose definition is a loop over bits against that loop.
#include "alu_test.h"

static const struct alu_case bits_cases[] = {
    {"mov.b16", {0x1234}, {0x1234}},
    {"mov.u64", {~0ULL}, {~0ULL}},
    {"mov.f32", {0x7f800001}, {0x7f800001}},
    {"mov.pred", {1}, {1}},
    {"and.b32", {0xff00ff00, 0x0ff00ff0}, {0x0f000f00}},
    {"and.pred", {1, 0}, {0}},
    {"or.b64", {1, 1ULL << 63}, {1ULL << 63 | 1}},
    {"or.pred", {1, 0}, {1}},
    {"xor.b16", {0xffff, 0x0ff0}, {0xf00f}},
    {"xor.pred", {1, 1}, {0}},
    {"not.b16", {0x00ff}, {0xff00}},
    {"not.b64", {0}, {~0ULL}},
    {"not.pred", {1}, {0}},
    {"not.pred", {0}, {1}},
    {"cnot.b32", {0}, {1}},
    {"cnot.b16", {7}, {0}},
    {"shl.b32", {1, 31}, {0x80000000}},
    {"shl.b32", {1, 32}, {0}},
    {"shl.b32", {1, 0xffffffff}, {0}},
    {"shl.b16", {0xffff, 15}, {0x8000}},
    {"shl.b16", {0xffff, 16}, {0}},
    {"shl.b64", {1, 63}, {1ULL << 63}},
    {"shl.b64", {1, 64}, {0}},
    {"shr.u32", {0x80000000, 31}, {1}},
    {"shr.u32", {0x80000000, 32}, {0}},
    {"shr.b64", {~0ULL, 64}, {0}},
    {"shr.u64", {~0ULL, 63}, {1}},
    {"shr.s32", {0x80000000, 31}, {0xffffffff}},
    {"shr.s32", {0x80000000, 32}, {0xffffffff}},
    {"shr.s32", {0x40000000, 100}, {0}},
    {"shr.s64", {1ULL << 63, 200}, {~0ULL}},
    {"shr.s16", {0x8000, 4}, {0xf800}},
    {"shr.u16", {0x8000, 4}, {0x0800}},
    {"shf.l.wrap.b32", {0x12345678, 0x9abcdef0, 8}, {0xbcdef012}},
    {"shf.l.wrap.b32", {0x12345678, 0x9abcdef0, 40}, {0xbcdef012}},
    {"shf.l.clamp.b32", {0x12345678, 0x9abcdef0, 40}, {0x12345678}},
    {"shf.l.wrap.b32", {0x12345678, 0x9abcdef0, 32}, {0x9abcdef0}},
    {"shf.r.wrap.b32", {0x12345678, 0x9abcdef0, 8}, {0xf0123456}},
    {"shf.r.clamp.b32", {0x12345678, 0x9abcdef0, 33}, {0x9abcdef0}},
    {"shf.r.wrap.b32", {0x12345678, 0x9abcdef0, 32}, {0x12345678}},
    {"lop3.b32", {0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa, 0x80}, {0x80808080}},
    {"lop3.b32", {0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa, 0xe8}, {0xe8e8e8e8}},
    {"lop3.or.b32", {1, 1, 1, 0x80, 0}, {1, 1}},
    {"lop3.or.b32", {0, 1, 1, 0x80, 1}, {0, 1}},
    {"lop3.or.b32", {0, 1, 1, 0x80, 0}, {0, 0}},
    {"lop3.and.b32", {1, 1, 1, 0x80, 0}, {1, 0}},
    {"lop3.and.b32", {1, 1, 1, 0x80, 1}, {1, 1}},
    {"prmt.b32", {0x33221100, 0x77665544, 0x7531}, {0x77553311}},
    {"prmt.b32", {0x33221180, 0x77665544, 0x89a8}, {0xff0000ff}},
    {"prmt.b32.f4e", {0x33221100, 0x77665544, 0}, {0x33221100}},
    {"prmt.b32.f4e", {0x33221100, 0x77665544, 7}, {0x66554433}},
    {"prmt.b32.b4e", {0x33221100, 0x77665544, 0}, {0x55667700}},
    {"prmt.b32.b4e", {0x33221100, 0x77665544, 1}, {0x66770011}},
    {"prmt.b32.b4e", {0x33221100, 0x77665544, 2}, {0x77001122}},
    {"prmt.b32.b4e", {0x33221100, 0x77665544, 3}, {0x00112233}},
    {"prmt.b32.rc8", {0x33221100, 0x77665544, 2}, {0x22222222}},
    {"prmt.b32.ecl", {0x33221100, 0x77665544, 1}, {0x33221111}},
    {"prmt.b32.ecl", {0x33221100, 0x77665544, 2}, {0x33222222}},
    {"prmt.b32.ecr", {0x33221100, 0x77665544, 2}, {0x22221100}},
    {"prmt.b32.ecr", {0x33221100, 0x77665544, 1}, {0x11111100}},
    {"prmt.b32.rc16", {0x33221100, 0x77665544, 3}, {0x33223322}},
    {"prmt.b32.rc16", {0x33221100, 0x77665544, 2}, {0x11001100}},
    {"bfind.u32", {0x00010000}, {16}},
    {"bfind.u32", {0}, {0xffffffff}},
    {"bfind.s32", {0xffffffff}, {0xffffffff}},
    {"bfind.s32", {0xfffffffe}, {0}},
    {"bfind.s64", {1ULL << 63}, {62}},
    {"bfind.u64", {1ULL << 63}, {63}},
    {"bfind.shiftamt.u32", {0x00010000}, {15}},
    {"bfind.shiftamt.s32", {0xfffffffe}, {31}},
    {"bfind.shiftamt.u64", {0}, {0xffffffff}},
    {"brev.b32", {0x00000013}, {0xc8000000}},
    {"brev.b64", {1}, {1ULL << 63}},
    {"popc.b32", {0xffffffff}, {32}},
    {"popc.b64", {0x8000000000000001}, {2}},
    {"clz.b32", {0}, {32}},
    {"clz.b32", {1}, {31}},
    {"clz.b64", {0}, {64}},
    {"clz.b64", {1ULL << 40}, {23}},
    {"fns.b32", {0xaaaaaaaa, 3, 1}, {3}},
    {"fns.b32", {0xaaaaaaaa, 3, 0xffffffff}, {3}},
    {"fns.b32", {0xaaaaaaaa, 2, 1}, {3}},
    {"fns.b32", {0xaaaaaaaa, 2, 0xffffffff}, {1}},
    {"fns.b32", {0xaaaaaaaa, 0, 16}, {31}},
    {"fns.b32", {0xaaaaaaaa, 0, 17}, {0xffffffff}},
    {"fns.b32", {0xaaaaaaaa, 3, 0}, {3}},
    {"fns.b32", {0xaaaaaaaa, 2, 0}, {0xffffffff}},
    {"szext.clamp.s32", {0x0000008f, 8}, {0xffffff8f}},
    {"szext.clamp.u32", {0xffffff8f, 8}, {0x8f}},
    {"szext.clamp.s32", {0xffffffff, 0}, {0}},
    {"szext.clamp.s32", {0x7fffffff, 31}, {0xffffffff}},
    {"szext.clamp.s32", {0x7fffffff, 32}, {0x7fffffff}},
    {"szext.clamp.u32", {0xffffff8f, 40}, {0xffffff8f}},
    {"szext.wrap.u32", {0xffffff8f, 40}, {0x8f}},
    {"bmsk.clamp.b32", {4, 8}, {0xff0}},
    {"bmsk.clamp.b32", {28, 8}, {0xf0000000}},
    {"bmsk.clamp.b32", {32, 8}, {0}},
    {"bmsk.clamp.b32", {0, 40}, {0xffffffff}},
    {"bmsk.wrap.b32", {36, 40}, {0xff0}},
    {"bmsk.wrap.b32", {4, 32}, {0}},
};

static void lines_of_bits(void **state)
{
  (void)state;
  check_cases(bits_cases, COUNT(bits_cases));
}

enum { ROUNDS = 20000 };

// A field of bits, bit by bit.
static uint64_t slow_bfe(uint64_t a, unsigned position, unsigned length, int bits, bool is_signed)
{
  unsigned top = (unsigned)bits - 1, last = position + length - 1 < top ? position + length - 1 : top;
  uint64_t fill = is_signed && length > 0 ? a >> last & 1 : 0, field = 0;
  for (unsigned i = 0; i <= top; i++)
    field |= (i < length && position + i <= top ? a >> (position + i) & 1 : fill) << i;
  return field;
}

static uint64_t slow_bfi(uint64_t a, uint64_t b, unsigned position, unsigned length, int bits)
{
  for (unsigned i = 0; i < length && position + i < (unsigned)bits; i++)
    b = (b & ~(1ULL << (position + i))) | (a >> i & 1) << (position + i);
  return b;
}

static unsigned random_place(void)
{
  uint64_t word = random_word();
  return word & 0x100 ? word & 0xff : word & 0x3f;
}

static void fields_follow_the_loop(void **state)
{
  (void)state;
  static const char *const names[] = {"bfe.u32", "bfe.s32", "bfe.u64", "bfe.s64", "bfi.b32", "bfi.b64"};
  for (int i = 0; i < ROUNDS; i++) {
    unsigned which = (unsigned)i % COUNT(names), position = random_place(), length = random_place();
    int bits = strstr(names[which], "32") ? 32 : 64;
    uint64_t a = random_operand(bits), b = random_operand(bits);
    struct ptx_alu alu = found(names[which]);
    uint64_t noise = random_word() & 0xffffff00; // only the lowest eight bits count
    uint64_t extract[PTX_ALU_INS] = {a, position | noise, length | noise};
    uint64_t insert[PTX_ALU_INS] = {a, b, position | noise, length | noise}, out[PTX_ALU_OUTS];
    alu.run(&alu, which < 4 ? extract : insert, out);
    assert_int_equal(out[0], which < 4 ? slow_bfe(a, position, length, bits, which & 1)
                                       : slow_bfi(a, b, position, length, bits));
  }
}

static void tables_of_three_follow_the_bits(void **state)
{
  (void)state;
  struct ptx_alu alu = found("lop3.b32");
  for (unsigned table = 0; table < 256; table++) {
    uint64_t in[PTX_ALU_INS] = {random_operand(32), random_operand(32), random_operand(32), table}, out[PTX_ALU_OUTS];
    alu.run(&alu, in, out);
    for (int bit = 0; bit < 32; bit++) {
      unsigned row = (in[0] >> bit & 1) << 2 | (in[1] >> bit & 1) << 1 | (in[2] >> bit & 1);
      assert_int_equal(out[0] >> bit & 1, table >> row & 1);
    }
  }
}

static void bytes_are_selected(void **state)
{
  (void)state;
  struct ptx_alu alu = found("prmt.b32");
  for (int i = 0; i < ROUNDS; i++) {
    uint64_t a = random_word() & 0xffffffff, b = random_word() & 0xffffffff, selectors = random_word() & 0xffffffff;
    uint64_t all = a | b << 32, permuted = result(&alu, a, b, selectors);
    for (int byte = 0; byte < 4; byte++) {
      unsigned nibble = selectors >> 4 * byte & 15, value = all >> 8 * (nibble & 7) & 0xff;
      assert_int_equal(permuted >> 8 * byte & 0xff, nibble < 8 ? value : value & 0x80 ? 0xff : 0);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lines_of_bits),
      cmocka_unit_test(fields_follow_the_loop),
      cmocka_unit_test(tables_of_three_follow_the_bits),
      cmocka_unit_test(bytes_are_selected),
  };
  return cmocka_run_group_tests_name("cudasim bits", tests, NULL, NULL);
}
