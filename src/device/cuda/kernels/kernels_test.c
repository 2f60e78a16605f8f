// kernels_test.c: the sources of the kernels, compiled by the C compiler and run in loops over their threads, against
// the host's reductions. What only PTX shows (rounding of the device, order of accesses) is
// tests/cuda_kernels_test.c's.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "device/cuda/kernels/cases_rig.h"

#define TT_TYPE Int8
#include "combine.cu"
#define TT_TYPE Uint8
#include "combine.cu"
#define TT_TYPE Int32
#include "combine.cu"
#define TT_TYPE Uint32
#include "combine.cu"
#define TT_TYPE Int64
#include "combine.cu"
#define TT_TYPE Uint64
#include "combine.cu"
#define TT_TYPE Float16
#include "combine.cu"
#define TT_TYPE Float32
#include "combine.cu"
#define TT_TYPE Float64
#include "combine.cu"
#define TT_TYPE Bfloat16
#include "combine.cu"
#define TT_TYPE Float8e4m3
#include "combine.cu"
#define TT_TYPE Float8e5m2
#include "combine.cu"
#include "bits.cu"
#include "step.cu"

typedef void step_kernel(const tt_cuda_step s);

static const struct {
  const char *module, *name;
  step_kernel *run;
} step_kernels[] = {
#define T(id, ...) {#id, "combine", combine_##id},
#include "base/types.def"
    {"bits", "bitwise", bitwise},   {"bits", "logical1", logical1}, {"bits", "logical2", logical2},
    {"bits", "logical4", logical4}, {"bits", "logical8", logical8}, {"step", "copy", copy},
};

// One thread for what is one CTA, see native_rig.h.
static void launch(void *arg, const char *module, const char *kernel, unsigned ctas, const tt_cuda_step *s)
{
  const bool one = s->resolve.nrefs + s->post.nposts + s->arrive.to.nposts > 0;
  (void)arg;
  for (size_t i = 0; i < TT_COUNT(step_kernels); i++) {
    if (strcmp(step_kernels[i].module, module) == 0 && strcmp(step_kernels[i].name, kernel) == 0) {
      gpu_launch(one ? 1 : ctas, one ? 1 : 32, step_kernels[i].run(*s));
      return;
    }
  }
  fail_msg("no kernel %s in %s", kernel, module);
}

static case_rig rig = {.launch = launch, .seed = 88172645463325252ULL, .go = 1};

static case_step step;

static void test_types(void **state)
{
  (void)state;
  for (int type = 0; type < ncclNumTypes; type++) {
    assert_true(case_type(&rig, (ncclDataType_t)type, 300, 700));
  }
}

static void test_pairs(void **state)
{
  (void)state;
  static const ncclDataType_t types[] = {ncclInt8, ncclUint8, ncclFloat8e4m3, ncclFloat8e5m2};
  for (size_t t = 0; t < TT_COUNT(types); t++) {
    for (size_t i = 0; i < TT_COUNT(case_operations); i++) {
      assert_true(case_pairs(&rig, types[t], case_operations[i]));
    }
  }
}

static void test_steps(void **state)
{
  (void)state;
  assert_true(case_steps(&rig, &step));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_types),
      cmocka_unit_test(test_pairs),
      cmocka_unit_test(test_steps),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
