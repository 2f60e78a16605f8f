// parse_test.c: modules as compilers write them, and what is refused.
#include "ptx_rig.h"

static void test_layout(void **state)
{
  (void)state;
  static const char text[] =
      RIG_HEAD "// a comment\n/* another\n one */ .file 1 \"x.cu\"\n"
               ".visible .entry a(\n.param .u8 p0, .param .u64 .ptr .global .align 16 p1,\n"
               " .param .align 8 .b8 p2[20], .param .f32 p3\n)\n.maxntid 128, 2, 1\n.minnctapersm 2\n"
               "{ .shared .align 16 .b8 s[100]; .reg .b32 %r<3>; .loc 1 2 3\n mov.u32 %r1, s; ret; }\n"
               ".extern .shared .align 16 .b8 dynamic[];\n"
               ".visible .entry b() { .reg .b32 %r; mov.u32 %r, dynamic; ret; }\n"
               ".section .debug_x { .b8 1,2,3\n.b8 4 }\n";
  struct ptx_module *m = rig_parse(text);
  struct ptx_kernel_info info;
  ptx_kernel_info(ptx_module_kernel(m, "a"), &info);
  assert_int_equal(info.params, 4);
  static const size_t offsets[] = {0, 8, 16, 36}, bytes[] = {1, 8, 20, 4};
  for (int i = 0; i < 4; i++) {
    assert_int_equal(info.param[i].offset, offsets[i]);
    assert_int_equal(info.param[i].bytes, bytes[i]);
  }
  assert_int_equal(info.param_bytes, 40);
  assert_int_equal(info.shared_bytes, 100);
  assert_int_equal(info.max_threads, 256);
  assert_false(info.dynamic_shared);
  ptx_kernel_info(ptx_module_kernel(m, "b"), &info);
  assert_int_equal(info.params, 0);
  assert_int_equal(info.max_threads, 1024);
  assert_true(info.dynamic_shared);
  assert_null(ptx_module_kernel(m, "c"));
  ptx_module_destroy(m);
  ptx_module_destroy(NULL);
}

static void test_initialisers(void **state)
{
  (void)state;
  static const char text[] = RIG_HEAD ".global .align 4 .u32 one = 7, two = -2;\n"
                                      ".visible .global .align 8 .u64 where = generic(one);\n"
                                      ".global .u64 behind = table+4;\n"; // not declared yet
  rig_refused(text, "line 6: 'table' cannot stand in an initialiser");
  static const char good[] = RIG_HEAD ".global .align 4 .u32 one = 7, two = -2;\n"
                                      ".const .align 4 .b8 table[6] = {1, 0x2, 3, 4};\n"
                                      ".visible .global .align 8 .u64 where[2] = {generic(one), table+4};\n"
                                      ".global .f32 half = 0f3F000000; .global .f64 d = 0d3FF0000000000000;\n"
                                      ".global .v2 .u32 pairs[2] = {{1, 2}, {3, 4}}; .global .b8 nothing[9];\n";
  struct ptx_module *m = rig_parse(good);
  size_t n;
  uint32_t *one = ptx_module_global(m, "one", &n);
  assert_int_equal(n, 4);
  assert_int_equal(*one, 7);
  assert_int_equal(*(int *)ptx_module_global(m, "two", &n), -2);
  uint8_t *table = ptx_module_global(m, "table", &n);
  assert_int_equal(n, 6);
  assert_memory_equal(table, "\1\2\3\4\0\0", 6);
  uint64_t *where = ptx_module_global(m, "where", &n);
  assert_int_equal(n, 16);
  assert_ptr_equal((void *)(uintptr_t)where[0], one);
  assert_ptr_equal((void *)(uintptr_t)where[1], table + 4);
  assert_int_equal(*(uint32_t *)ptx_module_global(m, "half", &n), 0x3f000000);
  assert_true(*(double *)ptx_module_global(m, "d", &n) == 1.0);
  uint32_t *pairs = ptx_module_global(m, "pairs", &n);
  assert_int_equal(n, 16);
  assert_int_equal(pairs[2], 3);
  assert_null(ptx_module_global(m, "none", &n));
  ptx_module_destroy(m);
}

static void refused_line(const char *line, const char *expected)
{
  char text[2048];
  snprintf(text, sizeof text, "%s%s\nret;\n}\n", RIG_KERNEL, line);
  rig_refused(text, expected);
}

static void test_refused(void **state)
{
  (void)state;
  rig_refused("", "line 1: '.version' expected");
  rig_refused("hello", "'.version' expected, not 'hello'");
  rig_refused(".version 6.3\n.target sm_70\n.address_size 32\n", "line 3: addresses of 32 bits");
  rig_refused(RIG_HEAD ".visible .entry k() { ret;", "the text ends within a function");
  rig_refused(RIG_HEAD ".entry k() { } .entry k() { }", "'k' is there already");
  rig_refused(RIG_HEAD ".extern .global .u32 x;", "'x' is in another module");
  rig_refused(RIG_HEAD ".func f(); .entry k() { call f; ret; }", "'f' is called and has no body");
  rig_refused(RIG_HEAD ".func f() { call f; ret; }", "'f' calls itself");
  rig_refused(RIG_HEAD ".tex .u64 t;", "'.tex' is not known here");
  refused_line("wgmma.fence;", "line 8: wgmma.fence: unknown here");
  refused_line("add.u32 %r1, %r2, %r99;", "'%r99' is not declared");
  refused_line("add.u32 %r1, %r2;", "3 operands expected, not 2");
  refused_line("add.u32 %r1, %rs2, %r3;", "operand 1 has 32 bits, and a register of 16 is given");
  refused_line("bra NOWHERE;", "line 8: the label 'NOWHERE' is not in this function");
  refused_line("A: A: ret;", "'A' is there already");
  refused_line("mov.u32 %r1, %rd1;", "a register of 64 bits, and an operation of 32");
  refused_line("ld.global.u32 %rs1, [%rd0];", "32 bits, and a register of 16");
  refused_line("ld.global.v2.u32 %r1, [%rd0];", "2 values expected, not 1");
  refused_line("ld.acquire.global.u32 %r1, [%rd0];", "a scope expected");
  refused_line("st.acquire.gpu.global.u32 [%rd0], %r1;", "no such order for a store");
  refused_line("ld.global.frog.u32 %r1, [%rd0];", "the modifier .frog is unknown here");
  refused_line("atom.global.u32 %r1, [%rd0], 1;", "an operation and a type expected");
  refused_line("atom.local.add.u32 %r1, [%rd0], 1;", "not in this state space");
  refused_line("bar.sync;", "wrong number of operands");
  refused_line("shfl.down.b32 %r1, %r2, 1, 31;", "shfl.sync, a mode and .b32 expected");
  refused_line("@%r1 bra A; A:", "'%r1' is no predicate");
  refused_line("mov.u32 %r1, 0x1g;", "'0x1g' is no number");
  refused_line("mov.u32 %r1, k;", "'k' has no value");
}

// Labels and names of a scope are its own; a name of an outer one is seen.
static void test_scopes(void **state)
{
  (void)state;
  uint32_t out[2] = {0};
  rig_fill(RIG_KERNEL
           "mov.u32 %r1, 0;\n"
           "{ .reg .b32 t; mov.u32 t, 5; AGAIN: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, t; @%p1 bra AGAIN; }\n"
           "{ .reg .b32 t; mov.u32 t, 9; AGAIN: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, t; @%p1 bra AGAIN; "
           "{ bra OUT; } }\n"
           "mov.u32 %r1, 77;\nOUT: st.global.u32 [%rd0], %r1; }\n",
           1, 1, out);
  assert_int_equal(out[0], 9);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_layout),
      cmocka_unit_test(test_initialisers),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_scopes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
