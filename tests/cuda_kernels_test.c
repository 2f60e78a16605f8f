// cuda_kernels_test.c: the PTX that ships, as the driver runs it, against the host's reductions: every bit of every
// type and operation. On the driver for tests a few cases, on a real one (CUDA_TEST_DRIVER) many.
#include "cuda_gpu.h"

#include "device/cuda/kernels/cases_rig.h"

// What kernels of cases read and write, in pinned memory of the host: addresses are the same on both sides.
typedef struct cases {
  case_rig rig;
  case_step step;
} cases;

static cases *all;
static CUstream stream;

static void launch(void *arg, const char *module, const char *kernel, unsigned ctas, const tt_cuda_step *s)
{
  (void)arg;
  gpu_launch(gpu_kernel(module, kernel), ctas, s, stream);
  DO(cu->StreamSynchronize(stream));
}

static int open_cases(void **state)
{
  (void)state;
  gpu_open();
  stream = gpu_stream();
  all = gpu_pinned(sizeof *all);
  all->rig.launch = launch;
  all->rig.seed = 88172645463325252ULL;
  all->rig.go = 1;
  return 0;
}

static int close_cases(void **state)
{
  (void)state;
  DO(cu->MemFreeHost(all));
  DO(cu->StreamDestroy(stream));
  return 0;
}

static void test_types(void **state)
{
  (void)state;
  const int rounds = real_driver() ? 200 : 3;
  const size_t longest = real_driver() ? CASE_SLOT / 8 - 8 : 100;
  for (int type = 0; type < ncclNumTypes; type++) {
    assert_true(case_type(&all->rig, (ncclDataType_t)type, rounds, longest));
  }
}

// Conversions and roundings of the 8-bit types, whole.
static void test_pairs(void **state)
{
  (void)state;
  static const ncclRedOp_t ops[] = {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg};
  for (size_t i = 0; i < (real_driver() ? TT_COUNT(ops) : 1); i++) {
    assert_true(case_pairs(&all->rig, ncclFloat8e4m3, ops[i]));
    assert_true(case_pairs(&all->rig, ncclFloat8e5m2, ops[i]));
  }
}

static void test_steps(void **state)
{
  (void)state;
  for (int i = 0; i < (real_driver() ? 500 : 3); i++) {
    assert_true(case_steps(&all->rig, &all->step));
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_types), cmocka_unit_test(test_pairs),
                                     cmocka_unit_test(test_steps)};
  use_driver();
  set_modes("", "kernels-test");
  if (argc > 1) {
    cmocka_set_test_filter(argv[1]);
  }
  return cmocka_run_group_tests(tests, open_cases, close_cases);
}
