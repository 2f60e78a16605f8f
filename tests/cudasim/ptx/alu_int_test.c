// alu_int_test.c: arithmetic of integers: lines that follow from the instructions' definitions, and random operands
// against the same computed in C's own types of each width.
#include "alu_test.h"

__extension__ typedef __int128 int128;

static const struct alu_case int_cases[] = {
    {"add.u16", {0xffff, 2}, {1}},
    {"add.s32", {0x7fffffff, 1}, {0x80000000}},
    {"add.sat.s32", {0x7fffffff, 1}, {0x7fffffff}},
    {"add.sat.s32", {0x80000000, 0xffffffff}, {0x80000000}},
    {"add.sat.s32", {5, 0xfffffffd}, {2}},
    {"add.u64", {~0ULL, 3}, {2}},
    {"add.u16x2", {0x0001ffff, 0xffff0001}, {0}},
    {"add.s16x2", {0x00017fff, 0x00020001}, {0x00038000}},
    {"sub.s16", {0, 1}, {0xffff}},
    {"sub.u64", {0, 1}, {~0ULL}},
    {"sub.sat.s32", {0x80000000, 1}, {0x80000000}},
    {"sub.sat.s32", {0x7fffffff, 0xffffffff}, {0x7fffffff}},
    {"mul.lo.s32", {0xfffffffe, 3}, {0xfffffffa}},
    {"mul.hi.s32", {0xfffffffe, 3}, {0xffffffff}},
    {"mul.hi.u32", {0xfffffffe, 3}, {2}},
    {"mul.wide.s32", {0xfffffffe, 3}, {0xfffffffffffffffa}},
    {"mul.wide.u32", {0xfffffffe, 3}, {0x2fffffffa}},
    {"mul.wide.s16", {0x8000, 0x8000}, {0x40000000}},
    {"mul.wide.u16", {0xffff, 0xffff}, {0xfffe0001}},
    {"mul.hi.u64", {~0ULL, ~0ULL}, {~0ULL - 1}},
    {"mul.hi.s64", {~0ULL, ~0ULL}, {0}},
    {"mul.hi.s64", {1ULL << 63, 1ULL << 63}, {1ULL << 62}},
    {"mad.lo.u32", {0x10000, 0x10000, 7}, {7}},
    {"mad.lo.s32", {0xffffffff, 1, 1}, {0}},
    {"mad.lo.u16", {0xffff, 0xffff, 0xffff}, {0}},
    {"mad.hi.u64", {~0ULL, ~0ULL, 3}, {1}},
    {"mad.hi.u32", {0x10000, 0x10000, 7}, {8}},
    {"mad.wide.s32", {0xffffffff, 5, 3}, {~0ULL - 1}},
    {"mad.wide.u16", {0xffff, 2, 0xffffffff}, {0x1fffd}},
    {"mad.hi.sat.s32", {0x7fffffff, 0x7fffffff, 0x7fffffff}, {0x7fffffff}},
    {"mad.hi.sat.s32", {0x80000000, 0x7fffffff, 0x80000000}, {0x80000000}},
    {"mul24.lo.u32", {0xff000003, 5}, {15}},
    {"mul24.lo.s32", {0x00ffffff, 5}, {0xfffffffb}},
    {"mul24.hi.u32", {0x800000, 0x800000}, {0x40000000}},
    {"mul24.hi.s32", {0x800000, 0x800000}, {0x40000000}},
    {"mul24.hi.s32", {0xffffff, 1}, {0xffffffff}},
    {"mad24.lo.s32", {0xffffff, 1, 3}, {2}},
    {"mad24.hi.sat.s32", {0x800000, 0x800000, 0x7fffffff}, {0x7fffffff}},
    {"div.s32", {0xfffffff9, 2}, {0xfffffffd}},
    {"rem.s32", {0xfffffff9, 2}, {0xffffffff}},
    {"div.s32", {0x80000000, 0xffffffff}, {0x80000000}},
    {"rem.s32", {0x80000000, 0xffffffff}, {0}},
    {"div.s64", {1ULL << 63, ~0ULL}, {1ULL << 63}},
    {"div.u32", {0xfffffff9, 2}, {0x7ffffffc}},
    {"div.u32", {7, 0}, {0xffffffff}},
    {"rem.u32", {7, 0}, {7}},
    {"div.s16", {0x8000, 2}, {0xc000}},
    {"rem.u64", {~0ULL, 10}, {5}},
    {"abs.s32", {0xfffffff9}, {7}},
    {"abs.s32", {0x80000000}, {0x80000000}},
    {"abs.s16", {0xffff}, {1}},
    {"abs.s16", {0x7fff}, {0x7fff}},
    {"abs.s32", {7}, {7}},
    {"abs.s32", {0xfffffffe}, {2}},
    {"abs.s64", {~0ULL}, {1}},
    {"neg.s16", {1}, {0xffff}},
    {"neg.s64", {1ULL << 63}, {1ULL << 63}},
    {"min.s32", {0xffffffff, 1}, {0xffffffff}},
    {"min.u32", {0xffffffff, 1}, {1}},
    {"max.s64", {~0ULL, 1}, {1}},
    {"max.u64", {~0ULL, 1}, {~0ULL}},
    {"max.s16", {0x8000, 0x7fff}, {0x7fff}},
    {"min.relu.s32", {0xffffffff, 1}, {0}},
    {"max.relu.s32", {0xffffffff, 0xfffffffe}, {0}},
    {"max.relu.s32", {3, 0xfffffffe}, {3}},
    {"min.u16x2", {0x0001ffff, 0xffff0001}, {0x00010001}},
    {"min.s16x2", {0x0001ffff, 0xffff0001}, {0xffffffff}},
    {"max.relu.s16x2", {0xffff0005, 0xfffe0003}, {0x00000005}},
    {"sad.u32", {2, 5, 10}, {13}},
    {"sad.s32", {0xffffffff, 1, 10}, {12}},
    {"sad.u32", {0xffffffff, 1, 10}, {8}},
    {"sad.s16", {0x8000, 0x7fff, 0}, {0xffff}},
    {"dp4a.u32.u32", {0x01020304, 0x01010101, 100}, {110}},
    {"dp4a.s32.u32", {0xff020304, 0xff010101, 0}, {(uint32_t)(-255 + 9)}},
    {"dp4a.s32.s32", {0xff000000, 0xff000000, 0xffffffff}, {0}},
    {"dp4a.u32.s32", {0xff000000, 0xff000000, 0}, {(uint32_t)-255}},
    {"dp2a.lo.u32.u32", {0x00030002, 0x01020405, 1}, {23}},
    {"dp2a.hi.u32.u32", {0x00030002, 0x01020405, 1}, {8}},
    {"dp2a.lo.s32.s32", {0xffff0002, 0x000004ff, 0}, {(uint32_t)-6}},
};

static const struct alu_case carry_cases[] = {
    {"add.cc.u32", {0xffffffff, 1}, {0, 1}},
    {"add.cc.s32", {0x7fffffff, 1}, {0x80000000, 0}},
    {"addc.cc.u32", {0xffffffff, 0, 1}, {0, 1}},
    {"addc.cc.u32", {0xffffffff, 0xffffffff, 1}, {0xffffffff, 1}},
    {"addc.u32", {5, 6, 1}, {12}},
    {"add.cc.u64", {~0ULL, 1}, {0, 1}},
    {"addc.cc.u64", {~0ULL, ~0ULL, 1}, {~0ULL, 1}},
    {"sub.cc.u32", {0, 1}, {0xffffffff, 1}},
    {"sub.cc.u32", {1, 1}, {0, 0}},
    {"subc.cc.u32", {0, 0xffffffff, 1}, {0, 1}},
    {"subc.u32", {5, 3, 1}, {1}},
    {"subc.cc.u64", {0, ~0ULL, 1}, {0, 1}},
    {"subc.cc.u64", {1, 0, 1}, {0, 0}},
    {"mad.lo.cc.u32", {0xffffffff, 0xffffffff, 0xffffffff}, {0, 1}},
    {"mad.hi.cc.u32", {0xffffffff, 0xffffffff, 1}, {0xffffffff, 0}},
    {"madc.hi.cc.u32", {0xffffffff, 0xffffffff, 1, 1}, {0, 1}},
    {"madc.lo.u32", {3, 4, 5, 1}, {18}},
    {"madc.hi.s32", {0xffffffff, 1, 0, 1}, {0}},
    {"mad.lo.cc.u64", {1ULL << 63, 2, 9}, {9, 0}},
};

static void lines_of_integers(void **state)
{
  (void)state;
  check_cases(int_cases, COUNT(int_cases));
}

static void lines_of_carries(void **state)
{
  (void)state;
  check_cases(carry_cases, COUNT(carry_cases));
}

enum { ROUNDS = 20000 };

// The value as the type has it.
static int128 exact_of(uint64_t value, int bits, bool is_signed)
{
  int128 x = (int128)value;
  return is_signed && value >> (bits - 1) & 1 ? x - ((int128)1 << bits) : x;
}

static void check_product(int bits, bool is_signed, uint64_t a, uint64_t b)
{
  char name[32];
  uint64_t most = ~(uint64_t)0 >> (64 - bits);
  // Unsigned factors of 64 bits have a product that needs all 128 bits.
  __extension__ unsigned __int128 whole =
      (unsigned __int128)exact_of(a, bits, is_signed) * (unsigned __int128)exact_of(b, bits, is_signed);
  snprintf(name, sizeof name, "mul.lo.%c%d", is_signed ? 's' : 'u', bits);
  struct ptx_alu alu = found(name);
  assert_int_equal(result(&alu, a, b, 0), (uint64_t)whole & most);
  snprintf(name, sizeof name, "mul.hi.%c%d", is_signed ? 's' : 'u', bits);
  alu = found(name);
  assert_int_equal(result(&alu, a, b, 0), (uint64_t)(whole >> bits) & most);
}

static void products_are_exact(void **state)
{
  (void)state;
  for (int i = 0; i < ROUNDS; i++) {
    int bits = 16 << i % 3;
    check_product(bits, i & 8, random_operand(bits), random_operand(bits));
  }
}

static void check_order_and_quotient(int bits, bool is_signed, uint64_t a, uint64_t b)
{
  static const char *const roots[] = {"min", "max", "div", "rem", "sad"};
  uint64_t most = ~(uint64_t)0 >> (64 - bits);
  int128 x = exact_of(a, bits, is_signed), y = exact_of(b, bits, is_signed);
  int128 expected[] = {x < y ? x : y, x < y ? y : x, y ? x / y : 0, y ? x % y : 0, x < y ? y - x : x - y};
  for (size_t i = 0; i < COUNT(roots); i++) {
    char name[32];
    snprintf(name, sizeof name, "%s.%c%d", roots[i], is_signed ? 's' : 'u', bits);
    struct ptx_alu alu = found(name);
    if (y != 0 || (i != 2 && i != 3))
      assert_int_equal(result(&alu, a, b, 0), (uint64_t)expected[i] & most);
  }
}

static void orders_and_quotients_are_exact(void **state)
{
  (void)state;
  for (int i = 0; i < ROUNDS; i++) {
    int bits = 16 << i % 3;
    check_order_and_quotient(bits, i & 8, random_operand(bits), random_operand(bits));
  }
}

// 128-bit sums by pairs of instructions that hand on the carry.
static void carries_chain(void **state)
{
  (void)state;
  struct ptx_alu low = found("add.cc.u64"), high = found("addc.u64"), low_sub = found("sub.cc.u64"),
                 high_sub = found("subc.u64");
  for (int i = 0; i < ROUNDS; i++) {
    __extension__ unsigned __int128 a = random_operand(64), b = random_operand(64), sum, difference;
    a = a << 64 | random_operand(64);
    b = b << 64 | random_operand(64);
    sum = a + b;
    difference = a - b;
    uint64_t in[PTX_ALU_INS] = {(uint64_t)a, (uint64_t)b}, out[PTX_ALU_OUTS];
    low.run(&low, in, out);
    assert_int_equal(out[0], (uint64_t)sum);
    assert_int_equal(result(&high, (uint64_t)(a >> 64), (uint64_t)(b >> 64), out[1]), (uint64_t)(sum >> 64));
    low_sub.run(&low_sub, in, out);
    assert_int_equal(out[0], (uint64_t)difference);
    assert_int_equal(result(&high_sub, (uint64_t)(a >> 64), (uint64_t)(b >> 64), out[1]), (uint64_t)(difference >> 64));
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lines_of_integers),  cmocka_unit_test(lines_of_carries),
      cmocka_unit_test(products_are_exact), cmocka_unit_test(orders_and_quotients_are_exact),
      cmocka_unit_test(carries_chain),
  };
  return cmocka_run_group_tests_name("cudasim integers", tests, NULL, NULL);
}
