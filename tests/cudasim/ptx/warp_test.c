// warp_test.c: shuffles, votes and matches against what PTX says of them, for full and partial warps and masks.
#include "ptx_rig.h"

enum { LANES = 32 };

#define INDEX "mov.u32 %r1, %tid.x; mul.wide.u32 %rd1, %r1, 8; add.u64 %rd1, %rd1, %rd0; add.u32 %r2, %r1, 100;\n"

static void run_lanes(const char *body, unsigned threads, unsigned modes, uint32_t out[][2])
{
  char text[4096];
  void *params = out;
  snprintf(text, sizeof text, "%s%s%s\nst.global.v2.u32 [%%rd1], {%%r8, %%r9}; ret; }\n", RIG_KERNEL, INDEX, body);
  rig_job job = {.text = text, .params = &params, .launch = {.block = {threads}, .modes = modes, .seed = 11}};
  if (rig_run(&job) != PTX_DONE) {
    fail_msg("%s", job.report);
  }
}

// From which lane, and is it valid: written from the words of "shfl.sync", for segments of a power of two.
static int source_of(const char *mode, int lane, int by, int width, bool *valid)
{
  int begin = lane / width * width, from;
  if (strcmp(mode, "up") == 0) {
    from = lane - by;
    *valid = from >= begin;
  } else if (strcmp(mode, "idx") == 0) {
    from = begin + by % width;
    *valid = true;
  } else {
    from = strcmp(mode, "down") == 0 ? lane + by : lane ^ by;
    *valid = from < begin + width;
  }
  return *valid ? from : lane;
}

static void check_shuffle(const char *mode, int by, int width, unsigned modes)
{
  static uint32_t out[LANES][2];
  char body[512];
  int clamp = strcmp(mode, "up") == 0 ? 0 : LANES - 1;
  snprintf(body, sizeof body, "shfl.sync.%s.b32 %%r8|%%p1, %%r2, %d, %d, -1; selp.u32 %%r9, 1, 0, %%p1;", mode, by,
           ((LANES - width) << 8) | clamp);
  run_lanes(body, LANES, modes, out);
  for (int lane = 0; lane < LANES; lane++) {
    bool valid;
    int from = source_of(mode, lane, by, width, &valid);
    if (out[lane][0] != 100 + (uint32_t)from || out[lane][1] != valid) {
      fail_msg("shfl.%s by %d, width %d, lane %d: %u %u", mode, by, width, lane, out[lane][0], out[lane][1]);
    }
  }
}

static void test_shuffles(void **state)
{
  (void)state;
  static const char *const all[] = {"up", "down", "bfly", "idx"};
  for (int m = 0; m < 4; m++) {
    for (int width = 4; width <= LANES; width *= 2) {
      for (int by = 0; by < width; by += 1 + by) {
        check_shuffle(all[m], by, width, by % 2 ? PTX_RANDOM_ORDER : 0);
      }
    }
  }
}

// Two halves of a warp shuffle on their own, at different places; in a partial warp lanes that are not there bring
// nothing.
static void test_masks(void **state)
{
  (void)state;
  static uint32_t out[64][2];
  run_lanes("and.b32 %r3, %r1, 31; setp.lt.u32 %p1, %r3, 16; mov.u32 %r9, 0; @%p1 bra LOW;\n"
            "shfl.sync.idx.b32 %r8, %r2, 31, 31, 0xffff0000; bra END;\n"
            "LOW: shfl.sync.idx.b32 %r8, %r2, 3, 31, 0xffff; shfl.sync.idx.b32 %r8, %r2, 3, 31, 65535; END: "
            "bar.warp.sync -1;",
            64, PTX_RANDOM_ORDER, out);
  for (uint32_t i = 0; i < 64; i++) {
    assert_int_equal(out[i][0], 100 + i / 32 * 32 + (i % 32 < 16 ? 3 : 31));
  }
  run_lanes("mov.u32 %r9, 0; shfl.sync.down.b32 %r8, %r2, 1, 31, -1;", 10, 0, out);
  for (uint32_t i = 0; i < 9; i++) {
    assert_int_equal(out[i][0], 101 + i);
  }
  assert_in_range(out[9][0], 1000, UINT32_MAX); // undefined: no lane's value
}

static void test_votes(void **state)
{
  (void)state;
  static uint32_t out[40][2];
  run_lanes("and.b32 %r3, %r1, 31; setp.lt.u32 %p1, %r3, 5; vote.sync.ballot.b32 %r8, %p1, -1;\n"
            "vote.sync.all.pred %p2, %p1, -1; vote.sync.any.pred %p3, %p1, -1; vote.sync.uni.pred %p4, %p1, -1;\n"
            "vote.sync.all.pred %p5, !%p2, -1; selp.u32 %r9, 1, 0, %p2; @%p3 add.u32 %r9, %r9, 2;\n"
            "@%p4 add.u32 %r9, %r9, 4; @%p5 add.u32 %r9, %r9, 8;",
            36, PTX_RANDOM_ORDER, out);
  for (int i = 0; i < 36; i++) {
    assert_int_equal(out[i][0], i < 32 ? 0x1f : 0xf);
    assert_int_equal(out[i][1], i < 32 ? 2 + 8 : 1 + 2 + 4); // the second warp has 4 lanes, all below 5
  }
}

static void test_matches(void **state)
{
  (void)state;
  static uint32_t out[LANES][2];
  run_lanes("rem.u32 %r3, %r1, 3; match.any.sync.b32 %r8, %r3, -1; mov.b64 %rd2, {0, %r3};\n"
            "match.all.sync.b64 %r9|%p1, %rd2, -1; @%p1 trap; match.all.sync.b32 %r4|%p1, 7, -1; @!%p1 trap;\n"
            "setp.ne.u32 %p2, %r4, -1; @%p2 trap;",
            LANES, 0, out);
  for (int i = 0; i < LANES; i++) {
    uint32_t same = 0;
    for (int j = i % 3; j < LANES; j += 3) {
      same |= UINT32_C(1) << j;
    }
    assert_int_equal(out[i][0], same);
    assert_int_equal(out[i][1], 0);
  }
}

static void test_reductions(void **state)
{
  (void)state;
  static uint32_t out[LANES][2];
  run_lanes(
      "sub.s32 %r3, 3, %r1; redux.sync.add.s32 %r8, %r3, -1; setp.lt.u32 %p1, %r1, 8; mov.u32 %r9, 0; @!%p1 bra END;\n"
      "redux.sync.min.s32 %r9, %r3, 0xff; redux.sync.max.u32 %r4, %r3, 255; sub.u32 %r9, %r4, %r9; END:",
      LANES, PTX_RANDOM_ORDER, out);
  for (int i = 0; i < LANES; i++) {
    assert_int_equal((int32_t)out[i][0], LANES * 3 - LANES * (LANES - 1) / 2);
    assert_int_equal(out[i][1], i < 8 ? -1 - -4 : 0); // the highest, unsigned, is -1
  }
}

// A sum over the warp as everybody writes it, with lanes that have ended meanwhile, and the mask of who is active.
static void test_ended_lanes(void **state)
{
  (void)state;
  static uint32_t out[LANES][2];
  run_lanes("setp.ge.u32 %p1, %r1, 20; @%p1 ret; activemask.b32 %r9; mov.u32 %r8, %r1;\n"
            "shfl.sync.bfly.b32 %r3, %r8, 2, 31, -1; bar.warp.sync 0xfffff; vote.sync.ballot.b32 %r8, 1, -1;",
            LANES, PTX_RANDOM_ORDER, out);
  for (int i = 0; i < 20; i++) {
    assert_int_equal(out[i][0], 0xfffff);
    assert_true(out[i][1] >> i & 1);
  }
}

static void faults(const char *body, const char *expected)
{
  char text[2048];
  uint32_t out[64][2];
  void *params = out;
  snprintf(text, sizeof text, "%s%s%s ret; }\n", RIG_KERNEL, INDEX, body);
  rig_job job = {.text = text, .params = &params, .launch = {.block = {LANES}}};
  rig_faults(&job, expected);
}

static void test_faults(void **state)
{
  (void)state;
  faults("shfl.sync.idx.b32 %r3, %r2, 0, 31, 1;",
         "thread (1, 0, 0), line 9: shfl.sync.idx.b32 %r3, %r2, 0, 31, 1: lane 1 is not in the mask 0x00000001");
  faults("setp.eq.u32 %p1, %r1, 4; selp.u32 %r3, -2, -1, %p1; @%p1 or.b32 %r3, %r3, 16; bar.warp.sync %r3;",
         "threads 0 to 31 wait for threads of their warp, line 9: bar.warp.sync %r3");
  faults("setp.eq.u32 %p1, %r1, 4; @%p1 bra A; bar.warp.sync -1; ret; A: vote.sync.any.pred %p1, %p1, -1;",
         "no thread can go on");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_shuffles), cmocka_unit_test(test_masks),      cmocka_unit_test(test_votes),
      cmocka_unit_test(test_matches),  cmocka_unit_test(test_reductions), cmocka_unit_test(test_ended_lanes),
      cmocka_unit_test(test_faults),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
