// atomic_test.c: atom and red against the same operations in C, in any order of the threads, and among OS threads.
#include "ptx_rig.h"

#include <pthread.h>

enum { ALL = PTX_RANDOM_ORDER | PTX_STORE_BUFFERS | PTX_STALE_READS };

#define INDEX "mov.u32 %r1, %tid.x; mov.u32 %r20, %ctaid.x; mad.lo.u32 %r1, %r20, 64, %r1; cvt.u64.u32 %rd9, %r1;\n"

// Every thread does the operation once, with %r1 (%rd9) its number; the memory at out begins with and ends with:
static void check(const char *body, uint64_t begin, uint64_t end)
{
  char text[4096];
  snprintf(text, sizeof text, "%s%s%s ret; }\n", RIG_KERNEL, INDEX, body);
  for (uint64_t seed = 0; seed < 3; seed++) {
    uint64_t memory = begin;
    void *params = &memory;
    rig_job job = {
        .text = text, .params = &params, .launch = {.grid = {3}, .block = {64}, .modes = seed ? ALL : 0, .seed = seed}};
    if (rig_run(&job) != PTX_DONE) {
      fail_msg("%s: %s", body, job.report);
    }
    if (memory != end) {
      fail_msg("%s: 0x%llx, not 0x%llx", body, (unsigned long long)memory, (unsigned long long)end);
    }
  }
}

static void test_operations(void **state)
{
  (void)state;
  check("red.global.add.u32 [%rd0], %r1;", 5, 5 + 191 * 192 / 2);
  check("atom.add.u64 %rd2, [%rd0], %rd9;", UINT64_C(1) << 60, (UINT64_C(1) << 60) + 191 * 192 / 2);
  check("red.relaxed.sys.global.add.s32 [%rd0+4], -1;", 0, (UINT64_C(0x100000000) - 192) << 32);
  check("atom.global.min.u32 %r2, [%rd0], %r1;", 1000, 0);
  check("add.u32 %r1, %r1, 7; atom.global.min.u32 %r2, [%rd0], %r1;", 1000, 7);
  check("sub.s32 %r1, 5, %r1; atom.global.max.s32 %r2, [%rd0], %r1;", 0xffffff00, 5);
  check("sub.s32 %r1, 5, %r1; atom.global.max.u32 %r2, [%rd0], %r1;", 0, 0xffffffff);
  check("atom.global.max.u64 %rd2, [%rd0], %rd9; atom.global.min.s64 %rd2, [%rd0], 200;", 3, 191);
  check("and.b32 %r2, %r1, 31; shl.b32 %r2, 1, %r2; atom.global.xor.b32 %r3, [%rd0], %r2;", 7, 7);
  check("and.b32 %r2, %r1, 31; shl.b32 %r2, 1, %r2; red.global.or.b32 [%rd0], %r2;", 0, 0xffffffff);
  check("and.b64 %rd2, %rd9, 31; cvt.u32.u64 %r2, %rd2; shl.b64 %rd2, 1, %r2; not.b64 %rd2, %rd2; red.and.b64 [%rd0], "
        "%rd2;",
        UINT64_MAX, UINT64_C(0xffffffff00000000));
  check("atom.global.inc.u32 %r3, [%rd0], 99;", 98, (98 + 192) % 100);
  check("atom.global.dec.u32 %r3, [%rd0], 9;", 500, (9 - 191 % 10 + 10) % 10);
  check("setp.eq.u32 %p1, %r1, 100; @%p1 atom.global.exch.b64 %rd2, [%rd0], -5;", 0, (uint64_t)-5);
  check("atom.global.cas.b32 %r3, [%rd0], %r1, 1000; setp.eq.u32 %p1, %r3, %r1; @%p1 red.global.add.u32 [%rd0+4], 1;",
        100, 1000 + (UINT64_C(1) << 32));
  check("mov.f32 %f1, 0f3F800000; atom.global.add.f32 %f2, [%rd0], %f1;", 0, 0x43400000); // 192.0
}

static void test_halves(void **state)
{
  (void)state;
  check("mov.u32 %r2, 0x40003c00; atom.global.add.noftz.f16x2 %r3, [%rd0], %r2;", 0, 0x5e005a00); // 384, 192
  check("mov.b16 %rs1, 0x3c00; atom.global.add.noftz.f16 %rs2, [%rd0+2], %rs1;", 0, 0x5a000000);
  check("mov.b16 %rs1, 1; cvt.u16.u32 %rs2, %r1; atom.global.cas.b16 %rs2, [%rd0+6], %rs2, %rs1;", UINT64_C(9) << 48,
        UINT64_C(1) << 48);
}

// The old values are all different, and none is lost; in shared memory too, by generic addresses too.
static void test_tickets(void **state)
{
  (void)state;
  static const char text[] = RIG_KERNEL
      ".shared .b32 next;\n" INDEX
      "mov.u32 %r2, %tid.x; setp.eq.u32 %p1, %r2, 0; @%p1 st.shared.u32 [next], 0; bar.sync 0;\n"
      "mov.u64 %rd1, next; cvta.shared.u64 %rd2, %rd1; atom.add.u32 %r3, [%rd2], 1; atom.shared.add.u32 %r4, [next], "
      "1;\n"
      "mul.wide.u32 %rd3, %r3, 4; add.u64 %rd3, %rd3, %rd0; st.global.u32 [%rd3], 1; mul.wide.u32 %rd3, %r4, 4;\n"
      "add.u64 %rd3, %rd3, %rd0; st.global.u32 [%rd3], 1; ret; }\n";
  for (uint64_t seed = 1; seed < 5; seed++) {
    uint32_t out[129] = {0};
    void *params = out;
    rig_job job = {.text = text, .params = &params, .launch = {.block = {64}, .modes = ALL, .seed = seed}};
    assert_int_equal(rig_run(&job), PTX_DONE);
    for (int i = 0; i < 128; i++) {
      assert_int_equal(out[i], 1);
    }
    assert_int_equal(out[128], 0);
  }
}

// A lock, taken by cas and given back by a release, protects a word that nothing else orders.
static void test_lock(void **state)
{
  (void)state;
  static const char text[] =
      RIG_KERNEL "AGAIN: atom.acquire.gpu.global.cas.b32 %r1, [%rd0], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra AGAIN;\n"
                 "ld.global.u32 %r2, [%rd0+128]; add.u32 %r2, %r2, 1; st.global.u32 [%rd0+128], %r2;\n"
                 "st.release.gpu.global.u32 [%rd0], 0; ret; }\n";
  for (uint64_t seed = 1; seed < 10; seed++) {
    uint32_t out[64] = {0};
    void *params = out;
    rig_job job = {.text = text, .params = &params, .launch = {.grid = {4}, .block = {8}, .modes = ALL, .seed = seed}};
    assert_int_equal(rig_run(&job), PTX_DONE);
    assert_int_equal(out[0], 0);
    assert_int_equal(out[32], 32);
  }
}

static void *count_up(void *arg)
{
  rig_fill(RIG_KERNEL "mov.u32 %r1, 0; AGAIN: red.sys.global.add.u64 [%rd0], 1; add.u32 %r1, %r1, 1;\n"
                      "setp.lt.u32 %p1, %r1, 500; @%p1 bra AGAIN; ret; }\n",
           1, 32, arg);
  return NULL;
}

static void test_os_threads(void **state)
{
  (void)state;
  uint64_t memory = 0;
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) {
    assert_int_equal(pthread_create(&threads[i], NULL, count_up, &memory), 0);
  }
  for (int i = 0; i < 3; i++) {
    pthread_join(threads[i], NULL);
  }
  assert_int_equal(memory, 3 * 32 * 500);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_operations), cmocka_unit_test(test_halves),     cmocka_unit_test(test_tickets),
      cmocka_unit_test(test_lock),       cmocka_unit_test(test_os_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
