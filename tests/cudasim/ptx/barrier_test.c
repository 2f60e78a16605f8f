// barrier_test.c: barriers of a CTA: who waits for whom, reductions, and uses that PTX leaves undefined.
#include "ptx_rig.h"

// Runs in order and with ten seeds; out[0] to out[n - 1] must be as expected.
static void check(const char *text, unsigned threads, const uint32_t *expected, unsigned n)
{
  for (uint64_t seed = 0; seed <= 10; seed++) {
    static uint32_t out[2048];
    memset(out, 0, sizeof out);
    void *params = out;
    unsigned modes = seed ? PTX_RANDOM_ORDER | PTX_STORE_BUFFERS | PTX_STALE_READS : 0;
    rig_job job = {.text = text, .params = &params, .launch = {.block = {threads}, .modes = modes, .seed = seed}};
    if (rig_run(&job) != PTX_DONE) {
      fail_msg("seed %d: %s", (int)seed, job.report);
    }
    for (unsigned i = 0; i < n; i++) {
      if (out[i] != expected[i]) {
        fail_msg("seed %d: out[%u] is %u, not %u", (int)seed, i, out[i], expected[i]);
      }
    }
  }
}

#define INDEX "mov.u32 %r1, %tid.x; mul.wide.u32 %rd1, %r1, 4; add.u64 %rd1, %rd1, %rd0;\n"
#define STORE_R9 "st.global.u32 [%rd1], %r9; ret; }\n"

// Many rounds through one barrier: each thread adds what its neighbour had in the round before.
static void test_rounds(void **state)
{
  (void)state;
  static const char text[] = RIG_KERNEL
      ".shared .b32 s[100];\n" INDEX
      "mov.u32 %r9, %r1; mov.u32 %r8, 0; mov.u32 %r10, s; shl.b32 %r11, %r1, 2; add.u32 %r12, %r10, %r11;\n"
      "add.u32 %r13, %r1, 1; setp.eq.u32 %p1, %r13, 100; selp.u32 %r13, 0, %r13, %p1; shl.b32 %r13, %r13, 2;\n"
      "add.u32 %r13, %r13, %r10;\n"
      "AGAIN: st.shared.u32 [%r12], %r9; bar.sync 0; ld.shared.u32 %r14, [%r13]; add.u32 %r9, %r9, %r14;\n"
      "bar.sync 0; add.u32 %r8, %r8, 1; setp.lt.u32 %p1, %r8, 5; @%p1 bra AGAIN;\n" STORE_R9;
  uint32_t now[100], next[100];
  for (uint32_t i = 0; i < 100; i++) {
    now[i] = i;
  }
  for (int round = 0; round < 5; round++) {
    for (int i = 0; i < 100; i++) {
      next[i] = now[i] + now[(i + 1) % 100];
    }
    memcpy(now, next, sizeof now);
  }
  check(text, 100, now, 100);
}

// Threads that have ended are waited for no more: half of each warp, and a whole warp.
static void test_ended_threads(void **state)
{
  (void)state;
  static const char text[] = RIG_KERNEL INDEX
      "and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 1; @%p1 ret; setp.lt.u32 %p1, %r1, 32; @%p1 ret;\n"
      "atom.global.add.u32 %r3, [%rd0+4000], 1; bar.sync 3; ld.volatile.global.u32 %r9, [%rd0+4000];\n" STORE_R9;
  uint32_t expected[96] = {0};
  for (int i = 32; i < 96; i += 2) {
    expected[i] = 32;
  }
  check(text, 96, expected, 96);
}

// Warp 0 makes, warp 1 uses: two barriers with counts, ten rounds; warp 2 has nothing to do with it.
static void test_producer(void **state)
{
  (void)state;
  static const char text[] =
      RIG_KERNEL ".shared .b32 s[32];\n" INDEX "and.b32 %r2, %r1, 31; shl.b32 %r3, %r2, 2; mov.u32 %r4, s; add.u32 "
                 "%r3, %r3, %r4; mov.u32 %r8, 0; mov.u32 %r9, 0;\n"
                 "setp.ge.u32 %p1, %r1, 64; @%p1 ret; setp.ge.u32 %p1, %r1, 32; @%p1 bra USE;\n"
                 "MAKE: bar.sync 1, 64; add.u32 %r5, %r2, %r8; st.shared.u32 [%r3], %r5; bar.arrive 2, 64;\n"
                 "add.u32 %r8, %r8, 1; setp.lt.u32 %p1, %r8, 10; @%p1 bra MAKE; ret;\n"
                 "USE: bar.arrive 1, 64; bar.sync 2, 64; ld.shared.u32 %r5, [%r3]; add.u32 %r9, %r9, %r5;\n"
                 "add.u32 %r8, %r8, 1; setp.lt.u32 %p1, %r8, 10; @%p1 bra USE;\n" STORE_R9;
  uint32_t expected[96] = {0};
  for (uint32_t i = 0; i < 32; i++) {
    expected[32 + i] = 10 * i + 45;
  }
  check(text, 96, expected, 96);
}

static void test_reductions(void **state)
{
  (void)state;
  static const char text[] =
      RIG_KERNEL INDEX "setp.lt.u32 %p1, %r1, 50; bar.red.popc.u32 %r2, 0, %p1; bar.red.and.pred %p2, 0, %p1; "
                       "bar.red.or.pred %p3, 0, %p1;\n"
                       "setp.lt.u32 %p1, %r1, 70; bar.red.and.pred %p4, 1, 96, %p1; bar.red.or.pred %p5, 1, 96, !%p1;\n"
                       "barrier.sync.aligned 2; barrier.cta.red.popc.aligned.u32 %r3, 2, 96, !%p1; barrier.sync 4;\n"
                       "selp.u32 %r4, 1000, 0, %p2; selp.u32 %r5, 2000, 0, %p3; selp.u32 %r6, 4000, 0, %p4; selp.u32 "
                       "%r7, 8000, 0, %p5;\n"
                       "add.u32 %r9, %r2, %r4; add.u32 %r9, %r9, %r5; add.u32 %r9, %r9, %r6; add.u32 %r9, %r9, %r7; "
                       "add.u32 %r9, %r9, %r3;\n" STORE_R9;
  uint32_t expected[70];
  for (int i = 0; i < 70; i++) {
    expected[i] = 50 + 2000 + 4000; // 70 threads, the last warp of which has 6
  }
  check(text, 70, expected, 70);
}

// The barrier that is not aligned lets threads of a warp come from different places.
static void test_not_aligned(void **state)
{
  (void)state;
  static const char text[] = RIG_KERNEL INDEX
      "and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 1; mov.u32 %r9, 7; @%p1 bra ODD; barrier.sync 0; bra END;\n"
      "ODD: barrier.sync 0; mov.u32 %r9, 8; END:\n" STORE_R9;
  uint32_t expected[64];
  for (uint32_t i = 0; i < 64; i++) {
    expected[i] = 7 + i % 2;
  }
  check(text, 64, expected, 64);
}

static void faults(const char *body, unsigned threads, const char *expected)
{
  char text[4096];
  uint32_t out[256] = {0};
  void *params = out;
  snprintf(text, sizeof text, "%s%s%s ret; }\n", RIG_KERNEL, INDEX, body);
  for (uint64_t seed = 0; seed < 3; seed++) {
    rig_job job = {.text = text,
                   .params = &params,
                   .launch = {.block = {threads}, .modes = seed ? PTX_RANDOM_ORDER : 0, .seed = seed}};
    rig_faults(&job, expected);
  }
}

static void test_faults(void **state)
{
  (void)state;
  faults("bar.sync 16;", 32, "there is no barrier 16");
  faults("bar.sync 1, 33;", 64, "a count of 33 threads, in a CTA of 64");
  faults("bar.sync 1, 96;", 64, "a count of 96 threads, in a CTA of 64");
  faults("setp.lt.u32 %p1, %r1, 32; selp.u32 %r2, 64, 96, %p1; bar.sync 1, %r2;", 96, "barrier 1: a count of ");
  faults("setp.lt.u32 %p1, %r1, 32; @%p1 bra A; bar.sync 0; ret; A: bar.arrive 0, 96;", 96,
         "threads, where others wait for ");
  faults("setp.lt.u32 %p1, %r1, 32; @%p1 ret; bar.sync 1, 64;", 64, "no thread can go on");
  faults("setp.lt.u32 %p1, %r1, 32; @%p1 ret; bar.sync 1, 64;", 64,
         "threads 32 to 63 wait at a barrier, line 9: bar.sync 1, 64");
  faults("setp.lt.u32 %p1, %r1, 9; @%p1 bra A; bar.sync 0; ret; A: bar.sync 0;", 64,
         "threads of a warp are at different barrier instructions (lines 9 and 9)");
  faults("setp.lt.u32 %p1, %r1, 9; selp.u32 %r2, 1, 2, %p1; bar.sync %r2;", 64,
         "threads of a warp are at different barriers");
  faults("setp.lt.u32 %p1, %r1, 9; @%p1 bra A; bar.sync 0; ret; A: bar.warp.sync -1;", 32, "no thread can go on");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rounds),     cmocka_unit_test(test_ended_threads), cmocka_unit_test(test_producer),
      cmocka_unit_test(test_reductions), cmocka_unit_test(test_not_aligned),   cmocka_unit_test(test_faults),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
