// fault_test.c: what ends a kernel with a fault, and that the report says where.
#include "ptx_rig.h"

static uint32_t memory[64];

static bool only_memory(void *arg, uint64_t address, size_t bytes, enum ptx_access access, char why[PTX_TEXT])
{
  uint64_t begin = (uint64_t)(uintptr_t)memory;
  ++*(int *)arg;
  if (address >= begin && address + bytes <= begin + sizeof memory / 2) {
    return true;
  }
  if (address >= begin && address + bytes <= begin + sizeof memory && access == PTX_READ) {
    return true;
  }
  snprintf(why, PTX_TEXT, "freed by somebody, access %d", (int)access);
  return false;
}

static void faults_with(const char *before, const char *body, const char *expected)
{
  char text[4096];
  int asked = 0;
  void *params = memory;
  snprintf(text, sizeof text, "%s%s.visible .entry k(.param .u64 out)\n{\n%s%s ret; }\n", RIG_HEAD, before, RIG_REGS,
           body);
  rig_job job = {.text = text,
                 .params = &params,
                 .launch = {.grid = {2, 3, 1}, .block = {4, 2, 1}, .valid = only_memory, .arg = &asked}};
  rig_faults(&job, expected);
  assert_non_null(strstr(job.report, "kernel k, CTA (0, 0, 0), thread (0, 0, 0), line 8: "));
}

static void faults(const char *body, const char *expected)
{
  faults_with("", body, expected);
}

static void test_global(void **state)
{
  (void)state;
  char text[64];
  snprintf(text, sizeof text, "invalid write of 4 bytes at 0x%llx", (unsigned long long)(uintptr_t)(memory + 32));
  faults("st.global.u32 [%rd0+128], 1;", text);
  faults("st.global.u32 [%rd0+128], 1;", "line 8: st.global.u32 [%rd0+128], 1: ");
  faults("st.u32 [%rd0+128], 1;", "freed by somebody, access 2");
  faults("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd0+256];", "invalid read of 16 bytes");
  faults("atom.global.add.u32 %r1, [%rd0+128], 1;", "invalid atomic operation of 4 bytes");
  faults("ld.global.u32 %r1, [%rd0+-4];", "freed by somebody, access 1");
  faults("ld.u32 %r1, [0];", "invalid read of 4 bytes at 0x0: no memory is there");
}

static void test_alignment(void **state)
{
  (void)state;
  faults("ld.global.u32 %r1, [%rd0+2];", "misaligned read of 4 bytes at 0x");
  faults("ld.global.v2.u32 {%r1, %r2}, [%rd0+4];", "misaligned read of 8 bytes at 0x");
  faults("st.global.u16 [%rd0+1], %rs1;", "misaligned write of 2 bytes at 0x");
  faults("red.global.add.u64 [%rd0+4], 1;", "misaligned atomic operation of 8 bytes at 0x");
}

static void test_windows(void **state)
{
  (void)state;
  static const char before[] = ".shared .align 16 .b8 s[64]; ";
  faults_with(before, "st.shared.u32 [s+64], 1;", "shared memory has 64 bytes, and the access goes to 64 to 67");
  faults_with(before, "ld.shared.v2.u64 {%rd1, %rd2}, [s+64];", "the access goes to 64 to 79");
  faults_with(before, "mov.u64 %rd1, s; ld.shared.u32 %r1, [%rd1+-4];", "shared memory has 64 bytes");
  faults(".local .align 4 .b8 l[8]; st.local.u32 [l+32], 1;", "local memory has 32 bytes");
  faults("ld.shared.u32 %r1, [%rd0];", "shared memory has 0 bytes");
  faults("mov.u64 %rd1, 8; ld.param.u64 %rd2, [%rd1];", "parameter memory has 8 bytes");
}

static void test_variables(void **state)
{
  (void)state;
  static const char before[] = ".const .align 4 .b8 c[8]; .global .align 4 .b8 g[8]; .global .align 4 .b8 h[6]; ";
  faults_with(before, "mov.u64 %rd1, c; cvta.const.u64 %rd1, %rd1; st.u32 [%rd1], 1;", "write in the constant 'c'");
  faults_with(before, "ld.global.u32 %r1, [g+8];", "invalid read of 4 bytes");
  faults_with(before, "ld.global.u32 %r1, [h+4];", "read beyond the end of 'h', which has 6 bytes");
  faults_with(before, "mov.u64 %rd1, g; ld.global.v2.u32 {%r1, %r2}, [%rd1+8];", "invalid read of 8 bytes");
}

static void test_trap(void **state)
{
  (void)state;
  faults("trap;", "line 8: trap: the kernel traps");
}

// The one thread that fails is named, with where it was called; the state stays, and so does the report.
static void test_report(void **state)
{
  (void)state;
  static const char text[] = RIG_HEAD
      ".func f(.param .b64 a) { .reg .b64 %rd1; ld.param.u64 %rd1, [a];\n st.global.u32 [%rd1],\n   7; ret; }\n"
      ".func g(.param .b64 a) { .reg .b64 %rd1; ld.param.u64 %rd1, [a];\n"
      "{ .param .b64 p; st.param.b64 [p], %rd1;\ncall f, (p); } ret; }\n"
      ".visible .entry k(.param .u64 out)\n{\n" RIG_REGS
      "mov.u32 %r1, %ctaid.y; mov.u32 %r2, %tid.x; mov.u32 %r3, %tid.y; setp.eq.u32 %p1, %r1, 2;\n"
      "setp.eq.and.u32 %p1, %r2, 3, %p1; setp.eq.and.u32 %p1, %r3, 1, %p1; @!%p1 ret;\n"
      "{ .param .b64 p; st.param.b64 [p], 12;\ncall g, (p); } ret; }\n";
  void *params = memory;
  char why[PTX_TEXT];
  struct ptx_module *m = rig_parse(text);
  struct ptx_launch l = {.grid = {1, 3, 1}, .block = {4, 2, 1}, .params = &params};
  struct ptx_run *run = ptx_run_create(ptx_module_kernel(m, "k"), &l, why);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(ptx_run_step(run, 100000), PTX_FAULT);
    assert_string_equal(
        ptx_run_report(run),
        "kernel k, CTA (0, 2, 0), thread (3, 1, 0), line 5: st.global.u32 [%rd1], 7: invalid write of 4 "
        "bytes at 0xc: no memory is there\n  in f, called at line 9\n  in g, called at line 17\n");
  }
  ptx_run_destroy(run);
  ptx_module_destroy(m);
}

// Where threads stand that are still at work, or have not begun.
static void test_report_of_running(void **state)
{
  (void)state;
  char why[PTX_TEXT];
  uint32_t out = 0;
  void *params = &out;
  struct ptx_module *m =
      rig_parse(RIG_KERNEL "mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 40;\n@%p1 bar.sync 0;\nA: bra A; }\n");
  struct ptx_launch l = {.grid = {5, 1, 1}, .block = {80, 1, 1}, .params = &params, .sms = 1};
  struct ptx_run *run = ptx_run_create(ptx_module_kernel(m, "k"), &l, why);
  assert_int_equal(ptx_run_step(run, 400000), PTX_RUNNING);
  const char *report = ptx_run_report(run);
  assert_non_null(strstr(report, "kernel k: running, 400000 instructions\n"));
  assert_non_null(strstr(report, "  CTA (0, 0, 0), threads 0 to 40 run, line 10: bra A\n"));
  assert_non_null(strstr(report, "  4 CTAs have not begun\n"));
  assert_int_equal(ptx_run_instructions(run), 400000);
  ptx_run_destroy(run);
  ptx_module_destroy(m);
}

// The callback is asked of global memory alone, and not of the module's variables.
static void test_valid_is_asked(void **state)
{
  (void)state;
  int asked = 0;
  void *params = memory;
  rig_job job = {.text = RIG_HEAD ".global .u32 g; .visible .entry k(.param .u64 out) {\n" RIG_REGS
                                  ".shared .b32 s; .local .b32 l; st.shared.u32 [s], 1; st.local.u32 [l], 1;\n"
                                  "st.global.u32 [g], 1; st.global.u32 [%rd0], 1; ld.u32 %r1, [%rd0+8]; ret; }\n",
                 .params = &params,
                 .launch = {.valid = only_memory, .arg = &asked}};
  assert_int_equal(rig_run(&job), PTX_DONE);
  assert_int_equal(asked, 2);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_global),
      cmocka_unit_test(test_alignment),
      cmocka_unit_test(test_windows),
      cmocka_unit_test(test_variables),
      cmocka_unit_test(test_trap),
      cmocka_unit_test(test_report),
      cmocka_unit_test(test_report_of_running),
      cmocka_unit_test(test_valid_is_asked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
