// line_test.c: lines of 128 bytes that lanes of a warp write and read together (PTX_WHOLE_LINES): whoever sees the flag
// in a line's last word has the line's other words. Without the mode, or by lanes that do not come together, they have
// not: it must show within some seeds.
#include "ptx_rig.h"

enum { SEEDS = 400, ALL = PTX_RANDOM_ORDER | PTX_STORE_BUFFERS | PTX_STALE_READS, WHOLE = ALL | PTX_WHOLE_LINES };

// Four lines, and what each reading lane has made of its 16 bytes: 1: they were there.
typedef struct lines {
  _Alignas(128) uint32_t word[4][32];
  uint32_t good[32];
} lines;

typedef struct line_case {
  const char *name;
  const char *before_store; // CTA 0's lanes, before each writes its part
  const char *store;
  const char *before_load; // CTA 1's lanes, before they look the first time
  const char *load;
  unsigned modes;
  bool torn; // it must show; else it never may
} line_case;

// Lanes that reach it in any order, and not all by one way.
#define ASTRAY "and.b32 %r9, %r1, 1; setp.eq.u32 %p3, %r9, 0; @%p3 nanosleep.u32 1;"
#define TOGETHER ASTRAY "bar.warp.sync -1;"
#define STORE "st.relaxed.sys.global.v4.u32 [%rd1], {%r2, %r2, %r2, %r2};"
#define LOAD "ld.relaxed.sys.global.v4.u32 {%r3, %r4, %r5, %r6}, [%rd1];"

static const line_case cases[] = {
    {"together", TOGETHER, STORE, TOGETHER, LOAD, WHOLE, false},
    {"together, in order", TOGETHER, STORE, TOGETHER, LOAD, PTX_WHOLE_LINES, false},
    {"volatile", TOGETHER, "st.volatile.global.v2.u64 [%rd1], {%rd7, %rd7};", TOGETHER,
     "ld.volatile.global.v2.u64 {%rd5, %rd6}, [%rd1]; mov.b64 {%r3, %r4}, %rd5; mov.b64 {%r5, %r6}, %rd6;", WHOLE,
     false},
    {"without the mode", TOGETHER, STORE, TOGETHER, LOAD, ALL, true},
    {"without the mode, no late stores", TOGETHER, STORE, TOGETHER, LOAD, PTX_RANDOM_ORDER, true},
    {"the writing lanes do not come together", ASTRAY, STORE, TOGETHER, LOAD, WHOLE, true},
    {"the flag is read behind the line", TOGETHER, STORE, TOGETHER, LOAD "ld.relaxed.sys.global.u32 %r6, [%rd1+12];",
     WHOLE, true},
    {"one of the writing lanes has gone on alone",
     TOGETHER "setp.eq.u32 %p3, %r1, 3; @%p3 ld.global.u32 %r10, [%rd1]; @%p3 shfl.sync.idx.b32 %r10, %r10, 3, 31, 8;",
     STORE, TOGETHER, LOAD, WHOLE, true},
    {"weak stores", TOGETHER, "st.global.v4.u32 [%rd1], {%r2, %r2, %r2, %r2};", TOGETHER, LOAD, WHOLE, true},
    {"parts of 8 bytes", TOGETHER,
     "st.relaxed.sys.global.v2.u32 [%rd1], {%r2, %r2}; st.relaxed.sys.global.v2.u32 [%rd1+8], {%r2, %r2};", TOGETHER,
     LOAD, WHOLE, true},
};

static struct ptx_module *parse_case(const line_case *c)
{
  static char text[8192];
  snprintf(text, sizeof text,
           "%smov.u32 %%r1, %%tid.x; mul.wide.u32 %%rd1, %%r1, 16; add.u64 %%rd1, %%rd1, %%rd0;\n"
           "mov.u32 %%r2, 1; mov.b64 %%rd7, {%%r2, %%r2}; and.b32 %%r7, %%r1, 7; mov.u32 %%r8, %%ctaid.x;\n"
           "setp.eq.u32 %%p1, %%r8, 1; @%%p1 bra READ;\n%s\n%s\nret;\n"
           "READ: %s\nAGAIN: %s\n"
           "setp.eq.u32 %%p2, %%r7, 7; setp.eq.and.u32 %%p2, %%r6, 0, %%p2;\n" // a flag that has not come
           "vote.sync.any.pred %%p3, %%p2, -1; @%%p3 bra AGAIN;\n"
           "and.b32 %%r3, %%r3, %%r4; and.b32 %%r5, %%r5, %%r6; and.b32 %%r3, %%r3, %%r5;\n"
           "mul.wide.u32 %%rd2, %%r1, 4; add.u64 %%rd2, %%rd2, %%rd0; st.global.u32 [%%rd2+512], %%r3; ret;\n}\n",
           RIG_KERNEL, c->before_store, c->store, c->before_load, c->load);
  return rig_parse(text);
}

static bool is_torn(const line_case *c, struct ptx_module *m, uint64_t seed)
{
  static lines l;
  void *out = &l;
  bool torn = false;
  memset(&l, 0, sizeof l);
  rig_job job = {.params = &out, .launch = {.grid = {2}, .block = {32}, .modes = c->modes, .seed = seed}};
  if (rig_run_module(&job, m) != PTX_DONE) {
    fail_msg("%s: %s", c->name, job.report);
  }
  for (int i = 0; i < 32; i++) {
    torn |= l.good[i] != 1;
  }
  return torn;
}

static void test_lines(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const line_case *c = &cases[i];
    struct ptx_module *m = parse_case(c);
    unsigned torn = 0;
    for (uint64_t seed = 1; seed <= SEEDS && !(c->torn && torn); seed++) {
      torn += is_torn(c, m, seed);
    }
    ptx_module_destroy(m);
    if (c->torn ? torn == 0 : torn > 0) {
      fail_msg("%s: %s in %d seeds", c->name, torn ? "torn" : "not torn", SEEDS);
    }
  }
}

// A warp that waits for a line that does not come only polls: the machine says so, and goes on when it has come.
static void test_polling(void **state)
{
  (void)state;
  static lines l;
  static const line_case c = {.before_store = "", .store = "", .before_load = TOGETHER, .load = LOAD};
  static const unsigned modes[] = {PTX_WHOLE_LINES, WHOLE, ALL};
  char why[PTX_TEXT];
  struct ptx_module *m = parse_case(&c);
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    void *out = &l;
    memset(&l, 0, sizeof l);
    const struct ptx_launch launch = {
        .grid = {2, 1, 1}, .block = {32, 1, 1}, .params = &out, .modes = modes[i], .seed = 5};
    struct ptx_run *run = ptx_run_create(ptx_module_kernel(m, "k"), &launch, why);
    assert_non_null(run);
    enum ptx_state now = PTX_RUNNING;
    for (int k = 0; k < 1000 && now == PTX_RUNNING; k++) {
      now = ptx_run_step(run, 1000);
    }
    assert_int_equal(now, PTX_POLLING);
    for (int k = 0; k < 128; k++) {
      __atomic_store_n(&l.word[k / 32][k % 32], 1, __ATOMIC_RELEASE);
    }
    for (int k = 0; k < 1000 && now != PTX_DONE; k++) {
      now = ptx_run_step(run, 1000);
    }
    assert_int_equal(now, PTX_DONE);
    ptx_run_destroy(run);
  }
  ptx_module_destroy(m);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_lines), cmocka_unit_test(test_polling)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
