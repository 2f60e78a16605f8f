// view_test.c: what stands in the buffer of a CTA, and becomes visible to all later, is never old to the CTA's own
// threads.
#include "ptx_rig.h"

enum { SEEDS = 50, THREADS = 64, READS = 40 };

// Each thread stores a word and, behind what orders it, reads that of thread `tid ^ whose` again and again. Returns how
// often that was an old value.
static unsigned count_old(const char *order, unsigned whose)
{
  char text[4096];
  snprintf(text, sizeof text,
           "%smov.u32 %%r1, %%tid.x; mul.wide.u32 %%rd1, %%r1, 4; add.u64 %%rd1, %%rd0, %%rd1;\n"
           "xor.b32 %%r2, %%r1, %u; mul.wide.u32 %%rd2, %%r2, 4; add.u64 %%rd2, %%rd0, %%rd2;\n"
           "mov.u32 %%r3, 0; mov.u32 %%r4, 0; st.global.u32 [%%rd1], 7; %s\n"
           "AGAIN: ld.global.u32 %%r5, [%%rd2]; setp.ne.u32 %%p1, %%r5, 7; @%%p1 add.u32 %%r3, %%r3, 1;\n"
           "add.u32 %%r4, %%r4, 1; setp.lt.u32 %%p2, %%r4, %d; @%%p2 bra AGAIN;\n"
           "st.global.u32 [%%rd1+%d], %%r3; ret;\n}\n",
           RIG_KERNEL, whose, order, READS, 4 * THREADS);
  struct ptx_module *m = rig_parse(text);
  unsigned old = 0;
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    uint32_t words[2 * THREADS] = {0};
    void *out = words;
    rig_job job = {.params = &out};
    job.launch = (struct ptx_launch){
        .block = {THREADS}, .modes = PTX_RANDOM_ORDER | PTX_STORE_BUFFERS | PTX_STALE_READS, .seed = seed};
    assert_int_equal(rig_run_module(&job, m), PTX_DONE);
    for (int i = 0; i < THREADS; i++)
      old += words[THREADS + i];
  }
  ptx_module_destroy(m);
  return old;
}

static void a_thread_reads_its_own_stores(void **state)
{
  (void)state;
  assert_int_equal(count_old("", 0), 0);
  assert_int_equal(count_old("fence.acq_rel.cta;", 0), 0);
  assert_int_equal(count_old("bar.sync 0;", 0), 0);
  assert_int_equal(count_old("membar.gl;", 0), 0);
}

static void a_barrier_hands_on_stores_for_good(void **state)
{
  (void)state;
  assert_int_equal(count_old("bar.sync 0;", 1), 0);
  assert_int_equal(count_old("bar.sync 0;", 32), 0);
  assert_int_equal(count_old("bar.warp.sync -1;", 5), 0);
  assert_int_not_equal(count_old("", 1), 0);
  assert_int_not_equal(count_old("bar.warp.sync -1;", 32), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_thread_reads_its_own_stores),
      cmocka_unit_test(a_barrier_hands_on_stores_for_good),
  };
  return cmocka_run_group_tests_name("cudasim views", tests, NULL, NULL);
}
