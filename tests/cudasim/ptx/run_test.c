// run_test.c: kernels from start to end: flow of control, calls, memory of every space, launches, steps, polling.
#include "ptx_rig.h"

static void test_special_registers(void **state)
{
  (void)state;
  static const char text[] = RIG_KERNEL
      "mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ntid.x; mov.u32 %r5, %ntid.y;\n"
      "mad.lo.u32 %r6, %r3, %r5, %r2; mad.lo.u32 %r6, %r6, %r4, %r1; // within the CTA\n"
      "mov.u32 %r7, %ctaid.x; mov.u32 %r8, %ctaid.y; mov.u32 %r9, %nctaid.x; mad.lo.u32 %r10, %r8, %r9, %r7;\n"
      "mov.u32 %r11, %ntid.z; mul.lo.u32 %r12, %r4, %r5; mul.lo.u32 %r12, %r12, %r11;\n"
      "mad.lo.u32 %r13, %r10, %r12, %r6; mul.wide.u32 %rd1, %r13, 32; add.u64 %rd0, %rd0, %rd1;\n"
      "mov.u32 %r14, %laneid; mov.u32 %r15, %warpid; mov.u32 %r16, %lanemask_lt; mov.u32 %r17, %lanemask_ge;\n"
      "st.global.v4.u32 [%rd0], {%r6, %r10, %r14, %r15}; st.global.v4.u32 [%rd0+16], {%r16, %r17, %r12, WARP_SZ};\n"
      "ret;\n}\n";
  static uint32_t out[6][60][8];
  void *params = out;
  rig_job job = {.text = text, .params = &params, .launch = {.grid = {3, 2, 1}, .block = {5, 4, 3}}};
  assert_int_equal(rig_run(&job), PTX_DONE);
  for (uint32_t c = 0; c < 6; c++) {
    for (uint32_t t = 0; t < 60; t++) {
      uint32_t lt = (UINT32_C(1) << (t % 32)) - 1;
      const uint32_t expected[8] = {t, c, t % 32, t / 32, lt, ~lt, 60, 32};
      assert_memory_equal(out[c][t], expected, sizeof expected);
    }
  }
}

static void test_clocks(void **state)
{
  (void)state;
  uint64_t out[4] = {0};
  rig_fill(RIG_KERNEL "mov.u64 %rd1, %clock64; nanosleep.u32 20; mov.u64 %rd2, %clock64; sub.u64 %rd3, %rd2, %rd1;\n"
                      "mov.u64 %rd4, %globaltimer; mov.u64 %rd5, %globaltimer; setp.ge.u64 %p1, %rd5, %rd4;\n"
                      "selp.b64 %rd6, 1, 0, %p1; st.global.v2.u64 [%rd0], {%rd3, %rd6}; mov.u32 %r1, %clock;\n"
                      "st.global.u32 [%rd0+16], %r1; ret; }\n",
           1, 1, out);
  assert_in_range(out[0], 1, 100);
  assert_int_equal(out[1], 1);
}

// Loads into wider registers: the sign goes on where the type has one. Stores take the low bits.
static void test_widths(void **state)
{
  (void)state;
  uint32_t words[8] = {0x80ff7f81, 0, 0, 0, 0, 0, 0, 0};
  static const uint32_t expected[8] = {0x80ff7f81, 0x81, 0xffffff81, 0x80ff, 0xffff80ff, 0xff81, 0x0000aa55, 0xaa};
  rig_fill(RIG_KERNEL "ld.global.u8 %r1, [%rd0]; ld.global.s8 %r2, [%rd0]; ld.global.b16 %r3, [%rd0+2];\n"
                      "ld.global.s16 %r4, [%rd0+2]; ld.global.s8 %rs1, [%rd0]; mov.b32 %r5, {%rs1, 0};\n"
                      "mov.u32 %r6, 0x1234aa55; st.global.u32 [%rd0+24], 0; st.global.b16 [%rd0+24], %r6;\n"
                      "mov.b32 {%rs2, _}, %r6; shr.u16 %rs2, %rs2, 8; st.global.b8 [%rd0+28], %rs2;\n"
                      "st.global.u32 [%rd0+4], %r1; st.global.u32 [%rd0+8], %r2; st.global.u32 [%rd0+12], %r3;\n"
                      "st.global.u32 [%rd0+16], %r4; st.global.u32 [%rd0+20], %r5; ret;\n}\n",
           1, 1, words);
  assert_memory_equal(words, expected, sizeof expected);
}

static void test_wide_operands(void **state)
{
  (void)state;
  uint32_t out[3] = {0};
  rig_fill(RIG_KERNEL "mov.u32 %r1, 0x123456f1; cvt.u32.u8 %r2, %r1; cvt.s32.s8 %r3, %r1; cvt.u16.u8 %rs1, %r1;\n"
                      "cvt.rn.f32.u16 %f1, %r1; cvt.rzi.u32.f32 %r4, %f1; st.global.u32 [%rd0], %r2;\n"
                      "st.global.u32 [%rd0+4], %r3; st.global.u32 [%rd0+8], %r4; ret; }\n",
           1, 1, out);
  assert_int_equal(out[0], 0xf1);
  assert_int_equal(out[1], 0xfffffff1);
  assert_int_equal(out[2], 0x56f1);
}

static void test_wide_arithmetic(void **state)
{
  (void)state;
  uint64_t out[4] = {0};
  rig_fill(RIG_KERNEL
           "mov.u32 %r1, 0xfffffff0; cvt.s8.s32 %r2, %r1; st.global.u32 [%rd0], %r2;\n"
           "mov.u32 %r3, 0x12345; cvt.u16.u32 %r4, %r3; st.global.u32 [%rd0+4], %r4;\n"
           "mov.u64 %rd1, -1; add.cc.u32 %r5, %r1, 16; addc.u32 %r6, 1, 1; st.global.u32 [%rd0+8], %r6;\n"
           "setp.lt.u32 %p1|%p2, %r1, 3; selp.u32 %r7, 1, 0, %p1; selp.u32 %r8, 1, 0, %p2;\n"
           "st.global.v2.u32 [%rd0+16], {%r7, %r8}; not.pred %p3, %p1; selp.u32 %r9, 5, 6, %p3;\n"
           "setp.eq.and.u32 %p4, %r9, 5, !%p1; selp.u32 %r9, 7, 8, %p4; st.global.u32 [%rd0+24], %r9; ret; }\n",
           1, 1, out);
  assert_int_equal(out[0], UINT64_C(0x2345fffffff0));
  assert_int_equal(out[1], 3);
  assert_int_equal(out[2], UINT64_C(1) << 32);
  assert_int_equal(out[3], 7);
}

static void test_vectors(void **state)
{
  (void)state;
  _Alignas(16) uint16_t v[16] = {1, 2, 3, 4, 5, 6, 7, 8};
  rig_fill(RIG_KERNEL "ld.global.v4.u16 {%rs1, %rs2, %rs3, _}, [%rd0]; ld.global.v2.u64 {%rd1, %rd2}, [%rd0];\n"
                      "st.global.v4.u16 [%rd0+16], {%rs3, %rs2, %rs1, 9}; st.global.u64 [%rd0+24], %rd2;\n"
                      "mov.b64 {%rs4, %rs5, %rs6, %rs7}, %rd1; mov.b32 %r1, {%rs7, %rs4}; st.global.u32 [%rd0], %r1;\n"
                      "ret; }\n",
           1, 1, v);
  static const uint16_t expected[16] = {4, 1, 3, 4, 5, 6, 7, 8, 3, 2, 1, 9, 5, 6, 7, 8};
  assert_memory_equal(v, expected, sizeof expected);
}

#define CALLS                                                                                                        \
  ".func (.param .b32 r0) twice(.param .b32 a0)\n"                                                                   \
  "{ .reg .b32 %r<3>; ld.param.u32 %r1, [a0]; add.u32 %r2, %r1, %r1; st.param.b32 [r0+0], %r2; ret; }\n"             \
  ".func (.param .align 16 .b8 r0[16]) both(.param .align 8 .b8 a0[8], .param .b64 a1)\n"                            \
  "{ .local .align 8 .b8 depot[16]; .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .b64 %SP; .reg .b64 %SPL;\n"             \
  "mov.u64 %SPL, depot; cvta.local.u64 %SP, %SPL; ld.param.v2.u32 {%r1, %r2}, [a0]; st.local.u32 [%SPL+4], %r1;\n"   \
  "add.u64 %rd1, %SP, 4; ld.u32 %r3, [%rd1]; st.local.u32 [depot], %r2; ld.local.u32 %r4, [%SPL];\n"                 \
  "{ .param .b32 p0; st.param.b32 [p0+0], %r3; .param .b32 q0; call.uni (q0), twice, (p0); ld.param.b32 %r5, [q0]; " \
  "}\n"                                                                                                              \
  "{ .param .b32 p0; st.param.b32 [p0+0], %r4; .param .b32 q0; call.uni (q0), twice, (p0); ld.param.b32 %r6, [q0]; " \
  "}\n"                                                                                                              \
  "ld.param.u64 %rd2, [a1]; ld.u32 %r7, [%rd2]; st.param.v2.b32 [r0], {%r5, %r6}; st.param.b32 [r0+8], %r7;\n"       \
  "st.param.b32 [r0+12], %r3; ret; }\n"                                                                              \
  ".func (.reg .u32 %res) least(.reg .u32 %a, .reg .u32 %b) { min.u32 %res, %a, %b; ret; }\n"

static void test_calls(void **state)
{
  (void)state;
  static const char text[] = RIG_HEAD CALLS
      ".visible .entry k(.param .u64 out)\n{ .local .align 4 .b8 mine[8];\n" RIG_REGS
      "mov.u32 %r1, %tid.x; add.u32 %r2, %r1, 100; mov.u64 %rd1, mine; cvta.local.u64 %rd2, %rd1;\n"
      "add.u32 %r9, %r1, 1000; st.local.u32 [mine+4], %r9; add.u64 %rd2, %rd2, 4;\n"
      "{ .param .align 8 .b8 p0[8]; st.param.v2.b32 [p0+0], {%r1, %r2}; .param .b64 p1; st.param.b64 [p1+0], %rd2;\n"
      ".param .align 16 .b8 q0[16]; call.uni (q0), both, (p0, p1);\n"
      "ld.param.v4.b32 {%r3, %r4, %r5, %r6}, [q0+0]; }\n"
      "call (%r7), least, (%r4, 250);\n"
      "mul.wide.u32 %rd3, %r1, 32; add.u64 %rd0, %rd0, %rd3; st.global.v4.u32 [%rd0], {%r3, %r4, %r5, %r6};\n"
      "st.global.u32 [%rd0+16], %r7; ret; }\n";
  static uint32_t out[64][8];
  rig_fill(text, 1, 64, out);
  for (uint32_t i = 0; i < 64; i++) {
    const uint32_t expected[5] = {2 * i, 2 * (i + 100), i + 1000, i, 2 * (i + 100) < 250 ? 2 * (i + 100) : 250};
    assert_memory_equal(out[i], expected, sizeof expected);
  }
}

// Static and dynamic shared memory, by their own and by generic addresses of 32 and 64 bits.
static void test_shared(void **state)
{
  (void)state;
  static const char text[] = RIG_HEAD
      ".extern .shared .align 16 .b8 dynamic[]; .shared .align 4 .b8 unused[64];\n"
      ".visible .entry k(.param .u64 out)\n{ .shared .align 4 .b8 fixed[256];\n" RIG_REGS
      "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, fixed; add.u32 %r4, %r3, %r2;\n"
      "st.shared.u32 [%r4], %r1; mov.u64 %rd1, dynamic; cvta.shared.u64 %rd2, %rd1; cvt.u64.u32 %rd3, %r2;\n"
      "add.u64 %rd4, %rd2, %rd3; mul.lo.u32 %r5, %r1, 3; st.u32 [%rd4], %r5; bar.sync 0;\n"
      "xor.b32 %r6, %r2, 4; add.u32 %r7, %r3, %r6; ld.shared.u32 %r8, [%r7]; mov.u32 %r9, dynamic; add.u32 %r9, %r9, "
      "%r6;\n"
      "ld.shared.u32 %r10, [%r9]; isspacep.shared %p1, %rd4; selp.u32 %r11, 1, 0, %p1; isspacep.global %p1, %rd4;\n"
      "selp.u32 %r12, 1, 0, %p1; isspacep.global %p1, %rd0; selp.u32 %r12, 2, %r12, %p1; cvta.to.shared.u64 %rd5, "
      "%rd4;\n"
      "sub.u64 %rd5, %rd5, %rd1; setp.ne.u64 %p1, %rd5, %rd3; @%p1 trap;\n"
      "mul.wide.u32 %rd3, %r1, 16; add.u64 %rd0, %rd0, %rd3; st.global.v4.u32 [%rd0], {%r8, %r10, %r11, %r12}; ret; "
      "}\n";
  static uint32_t out[64][4];
  void *params = out;
  rig_job job = {.text = text, .params = &params, .launch = {.block = {64}, .dynamic_shared = 256}};
  assert_int_equal(rig_run(&job), PTX_DONE);
  for (uint32_t i = 0; i < 64; i++) {
    const uint32_t expected[4] = {i ^ 1, (i ^ 1) * 3, 1, 2};
    assert_memory_equal(out[i], expected, sizeof expected);
  }
}

static void test_module_memory(void **state)
{
  (void)state;
  static const char text[] = RIG_HEAD
      ".const .align 4 .u32 table[4] = {10, 20, 30, 40}; .global .u32 counter = 5; .global .u64 at = counter;\n"
      ".visible .entry k(.param .u64 out)\n{\n" RIG_REGS
      "mov.u64 %rd1, table; ld.const.u32 %r1, [%rd1+8]; ld.const.u32 %r2, [table+4]; cvta.const.u64 %rd2, %rd1;\n"
      "ld.u32 %r3, [%rd2+12]; ld.global.u64 %rd3, [at]; atom.add.u32 %r4, [%rd3], 3; ld.global.u32 %r5, [counter];\n"
      "st.global.v4.u32 [%rd0], {%r1, %r2, %r3, %r5}; ret; }\n";
  _Alignas(16) uint32_t out[4];
  void *params = out;
  rig_job job = {.text = text, .params = &params};
  struct ptx_module *m = rig_parse(text);
  for (uint32_t again = 1; again <= 2; again++) {
    assert_int_equal(rig_run_module(&job, m), PTX_DONE);
    const uint32_t expected[4] = {30, 20, 40, 5 + 3 * again};
    assert_memory_equal(out, expected, sizeof expected);
  }
  size_t n;
  assert_int_equal(*(uint32_t *)ptx_module_global(m, "counter", &n), 11);
  ptx_module_destroy(m);
}

// Parameters by value, addressed by their names and by registers.
static void test_params(void **state)
{
  (void)state;
  static const char text[] = RIG_HEAD
      ".visible .entry k(.param .u64 out, .param .u8 small, .param .align 4 .b8 many[12])\n{\n" RIG_REGS
      "ld.param.u8 %r1, [small]; ld.param.u32 %r2, [many+8]; mov.b64 %rd1, many; add.u64 %rd1, %rd1, 4;\n"
      "ld.param.s32 %r3, [%rd1]; st.global.u32 [%rd0], %r1; st.global.u32 [%rd0+4], %r2; st.global.u32 [%rd0+8], %r3;\n"
      "ret; }\n";
  uint32_t out[3];
  struct {
    void *out;
    uint8_t small;
    uint32_t many[3];
  } params = {out, 200, {1, 2, 3}};
  rig_job job = {.text = text, .params = &params};
  assert_int_equal(rig_run(&job), PTX_DONE);
  assert_int_equal(out[0], 200);
  assert_int_equal(out[1], 3);
  assert_int_equal(out[2], 2);
}

static void test_bad_launches(void **state)
{
  (void)state;
  struct ptx_module *m =
      rig_parse(RIG_HEAD ".visible .entry k(.param .u64 out) .maxntid 64 { .shared .b8 s[1024]; ret; }");
  const struct ptx_kernel *k = ptx_module_kernel(m, "k");
  char why[PTX_TEXT];
  uint64_t out = 0;
  struct ptx_launch l = {.grid = {1, 1, 1}, .block = {65, 1, 1}, .params = &out};
  assert_null(ptx_run_create(k, &l, why));
  assert_non_null(strstr(why, "at most 64 threads"));
  l.block[0] = 64;
  l.grid[1] = 0;
  assert_null(ptx_run_create(k, &l, why));
  l.grid[1] = 1;
  l.dynamic_shared = 227 * 1024;
  assert_null(ptx_run_create(k, &l, why));
  assert_non_null(strstr(why, "1024 bytes of static"));
  l.dynamic_shared = 0;
  l.params = NULL;
  assert_null(ptx_run_create(k, &l, why));
  assert_non_null(strstr(why, "no parameters"));
  ptx_run_destroy(NULL);
  ptx_module_destroy(m);
}

// Lists the threads in the order in which they came.
#define LIST                                                                                                      \
  RIG_KERNEL "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, %r2, %r3;\n" \
             "atom.global.add.u32 %r5, [%rd0], 1; mul.wide.u32 %rd1, %r5, 4; add.u64 %rd1, %rd1, %rd0;\n"         \
             "st.global.u32 [%rd1+4], %r4; ret; }\n"

static void list_order(uint32_t out[257], unsigned modes, uint64_t seed, uint64_t portion)
{
  void *params = out;
  rig_job job = {.text = LIST,
                 .params = &params,
                 .launch = {.grid = {4}, .block = {64}, .modes = modes, .seed = seed},
                 .portion = portion};
  out[0] = 0;
  assert_int_equal(rig_run(&job), PTX_DONE);
  assert_int_equal(out[0], 256);
}

// In order, the lowest comes first; at random, another order by each seed, the same by the same, whatever the steps.
static void test_order(void **state)
{
  (void)state;
  static uint32_t one[257], other[257];
  list_order(one, 0, 1, 0);
  for (uint32_t i = 0; i < 256; i++) {
    assert_int_equal(one[1 + i], i);
  }
  static const unsigned modes[] = {PTX_RANDOM_ORDER, PTX_RANDOM_ORDER | PTX_STORE_BUFFERS | PTX_STALE_READS};
  for (int i = 0; i < 2; i++) {
    list_order(one, modes[i], 1, 0);
    list_order(other, modes[i], 1, 0);
    assert_memory_equal(one, other, sizeof one);
    list_order(other, modes[i], 1, 7);
    assert_memory_equal(one, other, sizeof one);
    list_order(other, modes[i], 2, 0);
    assert_memory_not_equal(one, other, sizeof one);
  }
}

// How many CTAs are there together: each counts itself in, looks, waits until all of its kind have come or not.
static void test_resident(void **state)
{
  (void)state;
  static const char text[] =
      RIG_KERNEL "atom.global.add.u32 %r1, [%rd0], 1; add.u32 %r1, %r1, 1; atom.global.max.u32 %r2, "
                 "[%rd0+4], %r1; nanosleep.u32 1; nanosleep.u32 1;\n"
                 "atom.global.add.u32 %r1, [%rd0], -1; ret; }\n";
  for (int sms = 1; sms <= 3; sms++) {
    uint32_t out[2] = {0};
    void *params = out;
    rig_job job = {
        .text = text, .params = &params, .launch = {.grid = {50}, .modes = PTX_RANDOM_ORDER, .sms = sms, .seed = 3}};
    assert_int_equal(rig_run(&job), PTX_DONE);
    assert_int_equal(out[0], 0);
    assert_int_equal(out[1], sms);
  }
}

#define WAIT_FOR_WORD "AGAIN: ld.acquire.sys.global.u32 %r1, [%rd0]; setp.eq.u32 %p1, %r1, 0; @%p1 bra AGAIN;\n"

// A kernel that waits for the host says so, step by step, and goes on when the word is there.
static void test_polling(void **state)
{
  (void)state;
  struct ptx_module *m = rig_parse(RIG_KERNEL WAIT_FOR_WORD "st.global.u32 [%rd0+4], 9; ret; }\n");
  for (unsigned modes = 0; modes < 8; modes++) {
    uint32_t out[2] = {0};
    void *params = out;
    char why[PTX_TEXT];
    struct ptx_launch l = {.grid = {3, 1, 1}, .block = {64, 1, 1}, .params = &params, .modes = modes, .seed = 5};
    struct ptx_run *run = ptx_run_create(ptx_module_kernel(m, "k"), &l, why);
    for (int i = 0; i < 3; i++) {
      assert_int_equal(ptx_run_step(run, 1000000), PTX_POLLING);
    }
    assert_non_null(strstr(ptx_run_report(run), modes ? " poll, line " : "threads 0 to 63 poll, line "));
    __atomic_store_n(&out[0], 1, __ATOMIC_RELEASE);
    assert_int_equal(ptx_run_step(run, 1000000), PTX_DONE);
    assert_int_equal(out[1], 9);
    assert_int_equal(ptx_run_step(run, 1000000), PTX_DONE);
    ptx_run_destroy(run);
  }
  ptx_module_destroy(m);
}

// So it does when a step is far too short for all threads to have their turn.
static void test_polling_in_short_steps(void **state)
{
  (void)state;
  struct ptx_module *m = rig_parse(RIG_KERNEL WAIT_FOR_WORD "st.global.u32 [%rd0+4], 9; ret; }\n");
  for (unsigned modes = 0; modes < 16; modes += 5) {
    uint32_t out[2] = {0};
    void *params = out;
    char why[PTX_TEXT];
    struct ptx_launch l = {.grid = {2, 1, 1}, .block = {256, 1, 1}, .params = &params, .modes = modes, .seed = 5};
    struct ptx_run *run = ptx_run_create(ptx_module_kernel(m, "k"), &l, why);
    enum ptx_state now = PTX_RUNNING;
    for (int i = 0; i < 100000 && now == PTX_RUNNING; i++) {
      now = ptx_run_step(run, 1000);
    }
    for (int i = 0; i < 1000; i++) {
      assert_int_equal(now, PTX_POLLING);
      now = ptx_run_step(run, 1000);
    }
    __atomic_store_n(&out[0], 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 100000 && (now == PTX_POLLING || now == PTX_RUNNING); i++) {
      now = ptx_run_step(run, 1000);
    }
    assert_int_equal(now, PTX_DONE);
    assert_int_equal(out[1], 9);
    ptx_run_destroy(run);
  }
  ptx_module_destroy(m);
}

// So it does when it looks at four words in turn, wherever they are.
static void test_polling_for_several(void **state)
{
  (void)state;
  for (int k = 1; k <= 100; k++) {
    static uint32_t out[400];
    char text[2048], why[PTX_TEXT];
    void *params = out;
    snprintf(text, sizeof text,
             "%sAGAIN: ld.volatile.global.u32 %%r1, [%%rd0]; ld.volatile.global.u32 %%r2, [%%rd0+%d];\n"
             "ld.volatile.global.u32 %%r3, [%%rd0+%d]; ld.volatile.global.u32 %%r4, [%%rd0+%d];\n"
             "setp.eq.u32 %%p1, %%r1, 0; @%%p1 bra AGAIN; ret; }\n",
             RIG_KERNEL, 4 * k, 8 * k, 12 * k);
    struct ptx_module *m = rig_parse(text);
    struct ptx_launch l = {.grid = {2, 1, 1}, .block = {32, 1, 1}, .params = &params, .seed = 5};
    struct ptx_run *run = ptx_run_create(ptx_module_kernel(m, "k"), &l, why);
    assert_int_equal(ptx_run_step(run, 1000000), PTX_POLLING);
    ptx_run_destroy(run);
    ptx_module_destroy(m);
  }
}

// One that waits for its own later CTAs does not, unless they have no room.
static void test_polling_for_others(void **state)
{
  (void)state;
  static const char text[] = RIG_KERNEL "mov.u32 %r2, %ctaid.x; setp.eq.u32 %p2, %r2, 3; @%p2 bra LAST;\n" WAIT_FOR_WORD
                                        "ret; LAST: st.release.gpu.global.u32 [%rd0], 1; ret; }\n";
  for (int sms = 0; sms <= 4; sms++) {
    uint32_t out[2] = {0};
    void *params = out;
    rig_job job = {.text = text, .params = &params, .launch = {.grid = {4}, .sms = sms}};
    assert_int_equal(rig_run(&job), sms == 0 || sms == 4 ? PTX_DONE : PTX_POLLING);
  }
}

// What only computes, or reads much, is not taken for polling.
static void test_not_polling(void **state)
{
  (void)state;
  static const char text[] =
      RIG_KERNEL "mov.u32 %r1, 0; mov.u32 %r2, 0; mov.u64 %rd1, %rd0;\n"
                 "AGAIN: ld.volatile.global.u32 %r3, [%rd0]; ld.global.u32 %r4, [%rd1]; add.u32 %r2, %r2, %r4;\n"
                 "add.u64 %rd1, %rd1, 4; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 1000; @%p1 bra AGAIN;\n"
                 "LOOP: sub.u32 %r1, %r1, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra LOOP;\n"
                 "st.global.u32 [%rd0], %r2; ret; }\n";
  static uint32_t out[1000];
  for (int i = 0; i < 1000; i++) {
    out[i] = 1;
  }
  void *params = out;
  rig_job job = {.text = text, .params = &params, .portion = 10};
  assert_int_equal(rig_run(&job), PTX_DONE);
  assert_int_equal(out[0], 1000);
}

// Nor what counts up between its loads, while others wait for that.
static void test_not_polling_but_writing(void **state)
{
  (void)state;
  static const char *const writes[] = {
      "atom.global.add.u32 %r1, [%rd0], 1;",
      "add.u32 %r1, %r1, 1; st.volatile.global.u32 [%rd0], %r1;",
  };
  for (int i = 0; i < 2; i++) {
    char text[2048];
    uint32_t out[2] = {0};
    void *params = out;
    snprintf(text, sizeof text,
             "%smov.u32 %%r2, %%tid.x; mov.u32 %%r1, 0; setp.eq.u32 %%p2, %%r2, 0; @%%p2 bra COUNT;\n"
             "WAIT: ld.volatile.global.u32 %%r1, [%%rd0]; setp.lt.u32 %%p1, %%r1, 999; @%%p1 bra WAIT; ret;\n"
             "COUNT: %s ld.volatile.global.u32 %%r3, [%%rd0+4]; setp.lt.u32 %%p1, %%r1, 999; @%%p1 bra COUNT; ret; }\n",
             RIG_KERNEL, writes[i]);
    rig_job job = {.text = text, .params = &params, .launch = {.block = {2}}};
    assert_int_equal(rig_run(&job), PTX_DONE);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_special_registers),
      cmocka_unit_test(test_clocks),
      cmocka_unit_test(test_widths),
      cmocka_unit_test(test_wide_arithmetic),
      cmocka_unit_test(test_wide_operands),
      cmocka_unit_test(test_vectors),
      cmocka_unit_test(test_calls),
      cmocka_unit_test(test_shared),
      cmocka_unit_test(test_module_memory),
      cmocka_unit_test(test_params),
      cmocka_unit_test(test_bad_launches),
      cmocka_unit_test(test_order),
      cmocka_unit_test(test_resident),
      cmocka_unit_test(test_polling),
      cmocka_unit_test(test_polling_in_short_steps),
      cmocka_unit_test(test_polling_for_several),
      cmocka_unit_test(test_polling_for_others),
      cmocka_unit_test(test_not_polling),
      cmocka_unit_test(test_not_polling_but_writing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
