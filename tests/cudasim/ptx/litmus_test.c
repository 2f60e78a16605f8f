// litmus_test.c: the memory model: what orders two accesses must always do so, and what does not must show within some
// seeds. The shapes are those of the literature: message passing (MP) and store buffering (SB).
#include "ptx_rig.h"

enum { SEEDS = 400, ALL = PTX_RANDOM_ORDER | PTX_STORE_BUFFERS | PTX_STALE_READS };

// Words far apart, as kernels see them.
typedef struct words {
  uint32_t data, gap1[63], flag, gap2[63], out[64];
} words;

typedef struct litmus {
  const char *name;
  const char *head;  // what stands before the split into the two sides
  const char *left;  // of the thread or CTA 0
  const char *right; // of the thread or CTA 1: leaves 1 in out[0] for the outcome in question
  bool allowed;      // it must show; else it never may
  unsigned modes;    // 0: ALL
  bool one_cta;      // two warps of one CTA, else two CTAs
} litmus;

// Of %r1 (the flag) and %r2 (the data) the outcome: seen the flag and not the data.
#define OUTCOME "setp.eq.u32 %p1, %r1, 1; setp.eq.and.u32 %p1, %r2, 0, %p1; selp.b32 %r7, 1, 0, %p1;"

static char *format_litmus(const litmus *l)
{
  static char text[8192];
  snprintf(text, sizeof text,
           "%s.visible .entry k(.param .u64 out)\n{\n%s"
           ".shared .align 4 .b32 sdata; .shared .align 4 .b32 sflag;\n"
           "mov.u32 %%r20, %%%s; add.u64 %%rd1, %%rd0, 256; add.u64 %%rd2, %%rd0, 512;\n"
           "mov.u32 %%r21, %%tid.x; mov.u32 %%r22, 1; mov.u32 %%r7, 0; and.b32 %%r23, %%r21, 31;\n"
           "%s\n"
           "setp.eq.u32 %%p7, %%r20, 1; @%%p7 bra RIGHT;\n%s\nnanosleep.u32 1; nanosleep.u32 1; ret;\nRIGHT:\n%s\n"
           "setp.eq.u32 %%p7, %%r7, 1; @%%p7 st.global.u32 [%%rd2], 1; ret;\n}\n",
           RIG_HEAD, RIG_REGS, l->one_cta ? "warpid" : "ctaid.x", l->head ? l->head : "", l->left, l->right);
  return text;
}

static unsigned count_outcomes(const litmus *l)
{
  struct ptx_module *m = rig_parse(format_litmus(l));
  unsigned found = 0;
  for (uint64_t seed = 1; seed <= SEEDS && !(l->allowed && found); seed++) {
    words w = {0};
    void *out = &w;
    rig_job job = {.params = &out};
    job.launch = (struct ptx_launch){
        .grid = {l->one_cta ? 1 : 2}, .block = {l->one_cta ? 64 : 32}, .modes = l->modes, .seed = seed};
    if (rig_run_module(&job, m) != PTX_DONE) {
      fail_msg("%s: %s", l->name, job.report);
    }
    found += w.out[0];
  }
  ptx_module_destroy(m);
  return found;
}

static void check(const litmus *l, size_t n)
{
  for (size_t i = 0; i < 2 * n; i++) {
    litmus one = l[i / 2];
    one.modes = (one.modes ? one.modes : ALL) | (i % 2 ? PTX_DEVICE_BUFFER : 0); // to the threads of a run all the same
    unsigned found = count_outcomes(&one);
    if (one.allowed ? found == 0 : found > 0) {
      fail_msg("%s, modes %u: %s in %d seeds", one.name, one.modes, found ? "the forbidden outcome" : "no outcome",
               SEEDS);
    }
  }
}

#define CHECK(list) check(list, sizeof list / sizeof *list)

// Only lane 0 acts; the others end.
#define LANE_0 "setp.ne.u32 %p5, %r23, 0; @%p5 ret;"
#define DATA "st.global.u32 [%rd0], %r22;"
#define FLAG "st.relaxed.gpu.global.u32 [%rd1], %r22;"
#define SEE_FLAG "ld.relaxed.gpu.global.u32 %r1, [%rd1];"
#define SEE_DATA "ld.global.u32 %r2, [%rd0];"

static void test_message_passing(void **state)
{
  (void)state;
  static const litmus list[] = {
      {"nothing", LANE_0, DATA FLAG, SEE_FLAG SEE_DATA OUTCOME, true, 0, false},
      {"nothing, stores late alone", LANE_0, DATA FLAG, SEE_FLAG SEE_DATA OUTCOME, true,
       PTX_RANDOM_ORDER | PTX_STORE_BUFFERS, false},
      {"nothing, loads old alone", LANE_0, DATA FLAG, SEE_FLAG SEE_DATA OUTCOME, true,
       PTX_RANDOM_ORDER | PTX_STALE_READS, false},
      {"nothing, random order alone", LANE_0, DATA FLAG, SEE_FLAG SEE_DATA OUTCOME, false, PTX_RANDOM_ORDER, false},
      {"fence of the writer alone", LANE_0, DATA "fence.acq_rel.gpu;" FLAG, SEE_FLAG SEE_DATA OUTCOME, true, 0, false},
      {"fence of the reader alone", LANE_0, DATA FLAG, SEE_FLAG "fence.acq_rel.gpu;" SEE_DATA OUTCOME, true, 0, false},
      {"fences", LANE_0, DATA "fence.acq_rel.gpu;" FLAG, SEE_FLAG "fence.acq_rel.gpu;" SEE_DATA OUTCOME, false, 0,
       false},
      {"membar", LANE_0, DATA "membar.gl;" FLAG, SEE_FLAG "membar.gl;" SEE_DATA OUTCOME, false, 0, false},
      {"membar, volatile", LANE_0, DATA "membar.sys; st.volatile.global.u32 [%rd1], %r22;",
       "ld.volatile.global.u32 %r1, [%rd1]; membar.sys;" SEE_DATA OUTCOME, false, 0, false},
      {"fences of too small a scope", LANE_0, DATA "fence.acq_rel.cta;" FLAG,
       SEE_FLAG "fence.acq_rel.cta;" SEE_DATA OUTCOME, true, 0, false},
      {"release and acquire", LANE_0, DATA "st.release.gpu.global.u32 [%rd1], %r22;",
       "ld.acquire.gpu.global.u32 %r1, [%rd1];" SEE_DATA OUTCOME, false, 0, false},
      {"release and acquire of the system, generic", LANE_0, DATA "st.release.sys.u32 [%rd1], %r22;",
       "ld.acquire.sys.u32 %r1, [%rd1];" SEE_DATA OUTCOME, false, 0, false},
      {"release alone", LANE_0, DATA "st.release.gpu.global.u32 [%rd1], %r22;", SEE_FLAG SEE_DATA OUTCOME, true, 0,
       false},
      {"acquire alone", LANE_0, DATA FLAG, "ld.acquire.gpu.global.u32 %r1, [%rd1];" SEE_DATA OUTCOME, true, 0, false},
      {"release and acquire of the CTA", LANE_0, DATA "st.release.cta.global.u32 [%rd1], %r22;",
       "ld.acquire.cta.global.u32 %r1, [%rd1];" SEE_DATA OUTCOME, true, 0, false},
      {"the data is written after the release", LANE_0, "st.release.gpu.global.u32 [%rd1], %r22;" DATA,
       "ld.acquire.gpu.global.u32 %r1, [%rd1];" SEE_DATA OUTCOME, true, 0, false},
      {"the data is read before the acquire", LANE_0, DATA "st.release.gpu.global.u32 [%rd1], %r22;",
       SEE_DATA "ld.acquire.gpu.global.u32 %r1, [%rd1];" OUTCOME, true, 0, false},
      {"loads that are not coherent", LANE_0, DATA "st.release.gpu.global.u32 [%rd1], %r22;",
       "ld.acquire.gpu.global.u32 %r1, [%rd1]; ld.global.nc.u32 %r2, [%rd0];" OUTCOME, true, 0, false},
  };
  CHECK(list);
}

static void test_message_passing_atomic(void **state)
{
  (void)state;
  static const litmus list[] = {
      {"relaxed", LANE_0, DATA "atom.global.exch.b32 %r3, [%rd1], 1;",
       "atom.global.add.u32 %r1, [%rd1], 0;" SEE_DATA OUTCOME, true, 0, false},
      {"release alone", LANE_0, DATA "atom.release.gpu.global.exch.b32 %r3, [%rd1], 1;",
       "atom.global.add.u32 %r1, [%rd1], 0;" SEE_DATA OUTCOME, true, 0, false},
      {"release and acquire", LANE_0, DATA "atom.release.gpu.global.exch.b32 %r3, [%rd1], 1;",
       "atom.acquire.gpu.global.add.u32 %r1, [%rd1], 0;" SEE_DATA OUTCOME, false, 0, false},
      {"data by an atomic operation", LANE_0, "red.global.add.u32 [%rd0], 1; fence.acq_rel.gpu;" FLAG,
       SEE_FLAG SEE_DATA OUTCOME, true, PTX_RANDOM_ORDER | PTX_STALE_READS, false},
      {"red.release", LANE_0, DATA "red.release.gpu.global.add.u32 [%rd1], 1;",
       "ld.acquire.gpu.global.u32 %r1, [%rd1];" SEE_DATA OUTCOME, false, 0, false},
      {"both", LANE_0, DATA "atom.acq_rel.sys.global.cas.b32 %r3, [%rd1], 0, 1;",
       "atom.acq_rel.sys.global.or.b32 %r1, [%rd1], 0;" SEE_DATA OUTCOME, false, 0, false},
      {"a fence before a relaxed one", LANE_0, DATA "fence.acq_rel.gpu; red.global.add.u32 [%rd1], 1;",
       SEE_FLAG "fence.acq_rel.gpu;" SEE_DATA OUTCOME, false, 0, false},
      {"of the CTA", LANE_0, DATA "atom.release.cta.global.exch.b32 %r3, [%rd1], 1;",
       "atom.acquire.cta.global.add.u32 %r1, [%rd1], 0;" SEE_DATA OUTCOME, true, 0, false},
  };
  CHECK(list);
}

// The data comes from, or goes to, another thread of the CTA than the one that handles the flag.
#define LANE_9_DATA "setp.eq.u32 %p4, %r23, 9; @%p4 st.global.u32 [%rd0], %r22;"
#define LANE_0_FLAG "setp.eq.u32 %p5, %r23, 0; @!%p5 bra END; "
#define LANE_0_SEES "setp.eq.u32 %p5, %r23, 0; mov.u32 %r1, 0; @!%p5 bra BAR; AGAIN: "
#define UNTIL_SET "setp.eq.u32 %p5, %r1, 0; @%p5 bra AGAIN; "
// Lane 0 hands the flag on through a shuffle, which orders nothing; lane 9 gives its outcome.
#define HAND_ON "BAR: bar.sync 0; shfl.sync.idx.b32 %r1, %r1, 0, 31, -1; setp.ne.u32 %p6, %r23, 9; @%p6 ret; "

static void test_threads_between(void **state)
{
  (void)state;
  static const litmus list[] = {
      {"barrier, fence", NULL, LANE_9_DATA "bar.sync 0;" LANE_0_FLAG "fence.acq_rel.gpu;" FLAG "END:",
       LANE_0_SEES SEE_FLAG UNTIL_SET "fence.acq_rel.gpu;" HAND_ON SEE_DATA OUTCOME, false, 0, false},
      {"barrier, release", NULL,
       LANE_9_DATA "bar.sync 0;" LANE_0_FLAG "st.release.gpu.global.u32 [%rd1], %r22;"
                   "END:",
       LANE_0_SEES "ld.acquire.gpu.global.u32 %r1, [%rd1];" UNTIL_SET HAND_ON SEE_DATA OUTCOME, false, 0, false},
      {"barrier, red.release", NULL,
       LANE_9_DATA "bar.sync 0;" LANE_0_FLAG "red.release.gpu.global.add.u32 [%rd1], 1;"
                   "END:",
       LANE_0_SEES "ld.acquire.gpu.global.u32 %r1, [%rd1];" UNTIL_SET HAND_ON SEE_DATA OUTCOME, false, 0, false},
      {"barrier, no fence of the writer", NULL, LANE_9_DATA "bar.sync 0;" LANE_0_FLAG FLAG "END:",
       LANE_0_SEES SEE_FLAG UNTIL_SET "fence.acq_rel.gpu;" HAND_ON SEE_DATA OUTCOME, true, 0, false},
      {"no barrier of the writer", NULL, LANE_9_DATA LANE_0_FLAG "fence.acq_rel.gpu;" FLAG "END:",
       LANE_0_SEES SEE_FLAG UNTIL_SET "fence.acq_rel.gpu;" HAND_ON SEE_DATA OUTCOME, true, 0, false},
      {"barrier, no fence of the reader", NULL, LANE_9_DATA "bar.sync 0;" LANE_0_FLAG "fence.acq_rel.gpu;" FLAG "END:",
       LANE_0_SEES SEE_FLAG UNTIL_SET HAND_ON SEE_DATA OUTCOME, true, 0, false},
      {"fence of the thread with the data, barrier", NULL,
       LANE_9_DATA "fence.acq_rel.gpu; bar.sync 0;" LANE_0_FLAG FLAG "END:",
       LANE_0_SEES SEE_FLAG UNTIL_SET "fence.acq_rel.gpu;" HAND_ON SEE_DATA OUTCOME, false, 0, false},
  };
  CHECK(list);
}

#define SHARED_DATA "st.shared.u32 [sdata], %r22;"
#define SHARED_FLAG "st.relaxed.cta.shared.u32 [sflag], %r22;"
#define SEE_SHARED_FLAG "ld.relaxed.cta.shared.u32 %r1, [sflag];"
#define SEE_SHARED_DATA "ld.shared.u32 %r2, [sdata];"
#define CLEAR "st.shared.u32 [sdata], 0; st.shared.u32 [sflag], 0; bar.sync 0;"

static void test_within_a_cta(void **state)
{
  (void)state;
  static const litmus list[] = {
      {"shared memory, nothing", CLEAR LANE_0, SHARED_DATA SHARED_FLAG, SEE_SHARED_FLAG SEE_SHARED_DATA OUTCOME, true,
       0, true},
      {"shared memory, fences", CLEAR LANE_0, SHARED_DATA "fence.acq_rel.cta;" SHARED_FLAG,
       SEE_SHARED_FLAG "membar.cta;" SEE_SHARED_DATA OUTCOME, false, 0, true},
      {"shared memory, release and acquire", CLEAR LANE_0, SHARED_DATA "st.release.cta.shared.u32 [sflag], 1;",
       "ld.acquire.cta.shared.u32 %r1, [sflag];" SEE_SHARED_DATA OUTCOME, false, 0, true},
      {"global memory, fences of the CTA", LANE_0, DATA "fence.acq_rel.cta;" FLAG,
       SEE_FLAG "fence.acq_rel.cta;" SEE_DATA OUTCOME, false, 0, true},
      {"global memory, nothing", LANE_0, DATA FLAG, SEE_FLAG SEE_DATA OUTCOME, true, 0, true},
      {"barrier", NULL, DATA "bar.sync 0;", "mov.u32 %r1, 1; bar.sync 0;" SEE_DATA OUTCOME, false, 0, true},
      {"shared memory, barrier", CLEAR, SHARED_DATA "bar.sync 0;",
       "mov.u32 %r1, 1; bar.sync 0;" SEE_SHARED_DATA OUTCOME, false, 0, true},
      {"arrive and sync", NULL, DATA "bar.arrive 1, 64;", "mov.u32 %r1, 1; bar.sync 1, 64;" SEE_DATA OUTCOME, false, 0,
       true},
      {"no barrier", NULL, DATA, "mov.u32 %r1, 1;" SEE_DATA OUTCOME, true, 0, true},
  };
  CHECK(list);
}

// Lane 9 writes, lane 3 reads: the other warp does nothing.
#define IN_WARP(how)                                                                 \
  "setp.eq.u32 %p4, %r23, 9; @%p4 st.shared.u32 [sdata], %r22; mov.u32 %r1, 1; " how \
  " setp.ne.u32 %p5, %r23, 3; @%p5 ret; ld.shared.u32 %r2, [sdata];" OUTCOME

static void test_within_a_warp(void **state)
{
  (void)state;
  static const litmus list[] = {
      {"bar.warp.sync", CLEAR, "", IN_WARP("bar.warp.sync -1;"), false, 0, true},
      {"a shuffle orders nothing", CLEAR, "", IN_WARP("shfl.sync.idx.b32 %r5, %r1, 0, 31, -1;"), true, 0, true},
      {"nothing", CLEAR, "", IN_WARP(""), true, 0, true},
  };
  CHECK(list);
}

// Each side stores its own word and loads the other's. The left one leaves what it saw; the outcome: neither saw.
static unsigned count_both_missed(const char *store, const char *between, const char *load, unsigned modes)
{
  char text[4096];
  snprintf(
      text, sizeof text,
      "%s.visible .entry k(.param .u64 out)\n{\n%s"
      "mov.u32 %%r20, %%ctaid.x; mul.wide.u32 %%rd3, %%r20, 256; add.u64 %%rd1, %%rd0, %%rd3; sub.u64 %%rd2, %%rd0, "
      "%%rd3; add.u64 %%rd2, %%rd2, 256; mov.u32 %%r22, 1;\n"
      "%s [%%rd1], %%r22; %s %s %%r1, [%%rd2];\n"
      "mul.wide.u32 %%rd3, %%r20, 4; add.u64 %%rd0, %%rd0, %%rd3; st.global.u32 [%%rd0+512], %%r1; ret;\n}\n",
      RIG_HEAD, RIG_REGS, store, between, load);
  struct ptx_module *m = rig_parse(text);
  unsigned found = 0;
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    words w = {0};
    void *out = &w;
    rig_job job = {.params = &out, .launch = {.grid = {2}, .modes = modes, .seed = seed}};
    assert_int_equal(rig_run_module(&job, m), PTX_DONE);
    found += w.out[0] == 0 && w.out[1] == 0;
  }
  ptx_module_destroy(m);
  return found;
}

static void test_store_buffering(void **state)
{
  (void)state;
  static const char relaxed_st[] = "st.relaxed.gpu.global.u32", relaxed_ld[] = "ld.relaxed.gpu.global.u32";
  assert_int_not_equal(count_both_missed("st.global.u32", "", "ld.global.u32", ALL), 0);
  assert_int_not_equal(count_both_missed(relaxed_st, "", relaxed_ld, ALL), 0);
  assert_int_not_equal(count_both_missed(relaxed_st, "fence.acq_rel.gpu;", relaxed_ld, ALL), 0);
  assert_int_not_equal(count_both_missed("st.release.gpu.global.u32", "", "ld.acquire.gpu.global.u32", ALL), 0);
  assert_int_not_equal(count_both_missed(relaxed_st, "fence.sc.cta;", relaxed_ld, ALL), 0);
  assert_int_equal(count_both_missed(relaxed_st, "fence.sc.gpu;", relaxed_ld, ALL), 0);
  assert_int_equal(count_both_missed("st.global.u32", "membar.gl;", "ld.global.u32", ALL), 0);
  assert_int_equal(count_both_missed("st.global.u32", "fence.sc.sys;", "ld.global.u32", ALL), 0);
  assert_int_equal(count_both_missed(relaxed_st, "", relaxed_ld, PTX_RANDOM_ORDER), 0);
}

// A thread sees its own stores at once, and the bytes that they share with others'; in the end the last holds.
static void test_own_stores(void **state)
{
  (void)state;
  static const char text[] = RIG_KERNEL
      "mov.u32 %r9, %tid.x; mul.wide.u32 %rd3, %r9, 16; add.u64 %rd0, %rd0, %rd3;\n"
      "st.global.u32 [%rd0], 0x11223344; st.global.u8 [%rd0+1], 0x55; ld.global.u32 %r1, [%rd0];\n"
      "st.global.u16 [%rd0+2], 0x6677; ld.global.u16 %rs1, [%rd0+2]; ld.global.u64 %rd4, [%rd0]; cvt.u32.u64 %r2, "
      "%rd4;\n"
      "cvt.u32.u16 %r3, %rs1; setp.eq.u32 %p1, %r1, 0x11225544; setp.eq.and.u32 %p1, %r2, 0x66775544, %p1;\n"
      "setp.eq.and.u32 %p1, %r3, 0x6677, %p1; selp.b32 %r4, 1, 2, %p1; st.global.u32 [%rd0+8], %r4; ret;\n}\n";
  for (uint64_t seed = 1; seed <= 50; seed++) {
    uint32_t memory[64][4] = {{0}};
    void *out = memory;
    rig_job job = {.text = text, .params = &out, .launch = {.block = {64}, .modes = ALL, .seed = seed}};
    assert_int_equal(rig_run(&job), PTX_DONE);
    for (int i = 0; i < 64; i++) {
      assert_int_equal(memory[i][0], 0x66775544);
      assert_int_equal(memory[i][2], 1);
    }
  }
}

#define WAIT " nanosleep.u32 1; nanosleep.u32 1;"

// Each thread changes the word of another after a barrier: the later one holds in the end, and is what it reads.
static void check_last_holds(const char *order, const char *change, const char *what)
{
  char text[4096];
  snprintf(
      text, sizeof text,
      "%smov.u32 %%r9, %%tid.x; mul.wide.u32 %%rd1, %%r9, 4; add.u64 %%rd1, %%rd1, %%rd0; xor.b32 %%r8, %%r9, 33;\n"
      "mul.wide.u32 %%rd2, %%r8, 4; add.u64 %%rd2, %%rd2, %%rd0; ld.global.u32 %%r1, [%%rd2];\n"
      "st.global.u32 [%%rd1], 1; %s bar.sync 0; ld.global.u32 %%r1, [%%rd2]; %s ld.global.u32 %%r3, [%%rd2]; %s\n"
      "setp.eq.u32 %%p1, %%r1, 1; setp.eq.and.u32 %%p1, %%r3, 6, %%p1; @!%%p1 trap; ret; }\n",
      RIG_KERNEL, order, change, WAIT);
  struct ptx_module *m = rig_parse(text);
  for (uint64_t seed = 1; seed <= 60; seed++) {
    uint32_t memory[64] = {0};
    void *out = memory;
    unsigned modes = seed % 3 == 0 ? PTX_RANDOM_ORDER | PTX_STALE_READS : seed % 3 == 1 ? ALL : ALL | PTX_DEVICE_BUFFER;
    rig_job job = {.params = &out, .launch = {.block = {64}, .modes = modes, .seed = seed}};
    if (rig_run_module(&job, m) != PTX_DONE) {
      fail_msg("%s: %s", what, job.report);
    }
    for (int i = 0; i < 64; i++) {
      if (memory[i] != 6) {
        fail_msg("%s, seed %d: %u", what, (int)seed, memory[i]);
      }
    }
  }
  ptx_module_destroy(m);
}

static void test_last_holds(void **state)
{
  (void)state;
  static const char *const orders[] = {"", "fence.acq_rel.gpu;", "membar.gl;", "fence.acq_rel.cta;", "membar.sys;"};
  for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
    check_last_holds(orders[i], "st.global.u32 [%rd2], 6;", "store");
    check_last_holds(orders[i], "st.global.u16 [%rd2+2], 0; st.global.u8 [%rd2], 6;", "parts");
    check_last_holds(orders[i], "atom.global.add.u32 %r2, [%rd2], 5;", "atomic operation");
    check_last_holds(orders[i], "st.global.u32 [%rd2], 6; membar.gl;", "store and fence");
    check_last_holds(orders[i], "st.global.u32 [%rd2], 5; red.global.add.u32 [%rd2], 1;", "store and atomic operation");
  }
}

// Strong loads of one word never go back: CTA 0 counts it up, the others watch.
static void test_coherence(void **state)
{
  (void)state;
  static const char text[] = RIG_KERNEL
      "mov.u32 %r9, %ctaid.x; mov.u32 %r1, 0; mov.u32 %r4, 0; mov.u32 %r5, 0; setp.ne.u32 %p1, %r9, 0; @%p1 bra "
      "WATCH;\n"
      "UP: add.u32 %r1, %r1, 1; st.relaxed.gpu.global.u32 [%rd0], %r1; setp.lt.u32 %p1, %r1, 50; @%p1 bra UP; ret;\n"
      "WATCH: ld.relaxed.gpu.global.u32 %r2, [%rd0]; setp.lt.u32 %p2, %r2, %r4; @%p2 add.u32 %r5, %r5, 1;\n"
      "mov.u32 %r4, %r2; setp.lt.u32 %p1, %r2, 50; @%p1 bra WATCH;\n"
      "mul.wide.u32 %rd3, %r9, 4; add.u64 %rd0, %rd0, %rd3; st.global.u32 [%rd0], %r5; ret;\n}\n";
  for (uint64_t seed = 1; seed <= 20; seed++) {
    uint32_t memory[4] = {0, 9, 9, 9};
    void *out = memory;
    rig_job job = {.text = text, .params = &out, .launch = {.grid = {4}, .modes = ALL, .seed = seed}};
    assert_int_equal(rig_run(&job), PTX_DONE);
    assert_int_equal(memory[0], 50);
    for (int i = 1; i < 4; i++) {
      assert_int_equal(memory[i], 0);
    }
  }
}

// The host looks at memory between the steps: how often is the flag there and the data not?
static unsigned host_sees_flag_first(unsigned modes, const char *store_flag)
{
  char text[2048], why[PTX_TEXT];
  snprintf(text, sizeof text, "%s.visible .entry k(.param .u64 out)\n{\n%s st.global.u32 [%%rd0], 1;\n%s\nret;\n}\n",
           RIG_HEAD, RIG_REGS, store_flag);
  struct ptx_module *m = rig_parse(text);
  unsigned found = 0;
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    words w = {0};
    void *out = &w;
    struct ptx_launch launch = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .params = &out, .modes = modes, .seed = seed};
    struct ptx_run *run = ptx_run_create(ptx_module_kernel(m, "k"), &launch, why);
    assert_non_null(run);
    while (ptx_run_step(run, 1) == PTX_RUNNING) {
      found += w.flag == 1 && w.data == 0;
    }
    assert_int_equal(w.flag, 1);
    assert_int_equal(w.data, 1);
    ptx_run_destroy(run);
  }
  ptx_module_destroy(m);
  return found;
}

#define HOST_FLAG "st.relaxed.sys.global.u32 [%rd0+256], 1;" WAIT

#define OUT_OF_CTA "fence.acq_rel.gpu; bar.sync 0;"
#define RELEASE_THEN_MORE \
  "st.release.sys.global.u32 [%rd0+256], 1; fence.acq_rel.gpu; st.global.u32 [%rd0+512], 1;" WAIT WAIT WAIT

static void test_host(void **state)
{
  (void)state;
  static const unsigned modes[] = {ALL, ALL | PTX_DEVICE_BUFFER};
  for (int i = 0; i < 2; i++) {
    assert_int_not_equal(host_sees_flag_first(modes[i], HOST_FLAG), 0);
    assert_int_not_equal(host_sees_flag_first(modes[i], "fence.acq_rel.cta;" HOST_FLAG), 0);
    assert_int_equal(host_sees_flag_first(modes[i], "st.release.sys.global.u32 [%rd0+256], 1;" WAIT), 0);
    assert_int_equal(host_sees_flag_first(modes[i], "fence.acq_rel.sys;" HOST_FLAG), 0);
    assert_int_equal(host_sees_flag_first(modes[i], "fence.sc.sys;" HOST_FLAG), 0);
    assert_int_equal(host_sees_flag_first(modes[i], "membar.sys;" HOST_FLAG), 0);
    assert_int_equal(host_sees_flag_first(modes[i], "red.release.sys.global.add.u32 [%rd0+256], 1;" WAIT), 0);
    assert_int_equal(host_sees_flag_first(modes[i], "fence.acq_rel.sys; red.global.add.u32 [%rd0+256], 1;" WAIT), 0);
    assert_int_equal(host_sees_flag_first(modes[i], "fence.acq_rel.gpu; membar.sys;" HOST_FLAG), 0);
    assert_int_equal(host_sees_flag_first(modes[i], "bar.sync 0; fence.acq_rel.sys;" HOST_FLAG), 0);
    assert_int_equal(host_sees_flag_first(modes[i], OUT_OF_CTA "fence.acq_rel.sys;" HOST_FLAG), 0);
    assert_int_equal(host_sees_flag_first(modes[i], OUT_OF_CTA "st.release.sys.global.u32 [%rd0+256], 1;" WAIT), 0);
    assert_int_equal(host_sees_flag_first(modes[i], RELEASE_THEN_MORE), 0);
    assert_int_equal(host_sees_flag_first(modes[i], "fence.acq_rel.sys; bar.sync 0;" HOST_FLAG), 0);
  }
}

// An order for the GPU alone is none for the host.
static void test_host_scope(void **state)
{
  (void)state;
  static const char *const orders[] = {
      "st.release.gpu.global.u32 [%rd0+256], 1;" WAIT,
      "fence.acq_rel.gpu;" HOST_FLAG,
      "membar.gl;" HOST_FLAG,
      "fence.acq_rel.gpu; bar.sync 0;" HOST_FLAG,
      "red.release.gpu.global.add.u32 [%rd0+256], 1;" WAIT,
      "bar.sync 0; fence.acq_rel.gpu;" HOST_FLAG,
  };
  for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
    if (host_sees_flag_first(ALL | PTX_DEVICE_BUFFER, orders[i]) == 0) {
      fail_msg("%s: not noticed", orders[i]);
    }
    assert_int_equal(host_sees_flag_first(ALL, orders[i]), 0);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_message_passing), cmocka_unit_test(test_message_passing_atomic),
      cmocka_unit_test(test_threads_between), cmocka_unit_test(test_within_a_cta),
      cmocka_unit_test(test_within_a_warp),   cmocka_unit_test(test_store_buffering),
      cmocka_unit_test(test_own_stores),      cmocka_unit_test(test_coherence),
      cmocka_unit_test(test_last_holds),      cmocka_unit_test(test_host),
      cmocka_unit_test(test_host_scope),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
