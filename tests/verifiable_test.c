// verifiable_test.c: the library behind nccl-tests' check (nccl_tests/verifiable.c): what the collectives make of its
// inputs is what it expects, for every type and operation; and it finds what is wrong, be it one bit.
#include "nccl_tests/verifiable.c"

#include "harness.h"

enum { RANKS = 3, COUNT = PERF_PERIOD + 500, SEED = 7, FIRST = 4000, OPS = ncclNumOps + 1 };

typedef struct job {
  ncclComm_t comm[RANKS];
  cudaStream_t stream[RANKS];
  char *in[RANKS], *out[RANKS], *expected;
} job;

static void open_job(job *j)
{
  assert_int_equal(ncclCommInitAll(j->comm, RANKS, NULL), ncclSuccess);
  for (int r = 0; r < RANKS; r++) {
    assert_int_equal(tuttiStreamCreate(&j->stream[r], TUTTI_STREAM_DEFAULT), ncclSuccess);
    j->in[r] = malloc(COUNT * 8);
    j->out[r] = malloc(COUNT * 8);
  }
  j->expected = malloc(COUNT * 8);
}

static void close_job(job *j)
{
  for (int r = 0; r < RANKS; r++) {
    assert_int_equal(ncclCommDestroy(j->comm[r]), ncclSuccess);
    assert_int_equal(tuttiStreamDestroy(j->stream[r]), ncclSuccess);
    free(j->in[r]);
    free(j->out[r]);
  }
  free(j->expected);
}

// The operation as rank r names it: nccl-tests multiplies by 1 and 2 in turn.
static ncclRedOp_t operation(const job *j, int r, int type, int op)
{
  ncclRedOp_t made = (ncclRedOp_t)op;
  uint64_t scalar = perf_mulsum_scalar(type, r);
  if (op == ncclNumOps) {
    assert_int_equal(
        ncclRedOpCreatePreMulSum(&made, &scalar, (ncclDataType_t)type, ncclScalarHostImmediate, j->comm[r]),
        ncclSuccess);
  }
  return made;
}

static void all_reduce(const job *j, int type, int op)
{
  ncclRedOp_t ops[RANKS];
  for (int r = 0; r < RANKS; r++) {
    assert_int_equal(tests_prepare_input(j->in[r], COUNT, type, op, RANKS, r, SEED, FIRST, j->stream[r]), 0);
    ops[r] = operation(j, r, type, op);
  }
  assert_int_equal(ncclGroupStart(), ncclSuccess);
  for (int r = 0; r < RANKS; r++) {
    assert_int_equal(ncclAllReduce(j->in[r], j->out[r], COUNT, (ncclDataType_t)type, ops[r], j->comm[r], j->stream[r]),
                     ncclSuccess);
  }
  assert_int_equal(ncclGroupEnd(), ncclSuccess);
  for (int r = 0; r < RANKS; r++) {
    assert_int_equal(tuttiStreamSynchronize(j->stream[r]), ncclSuccess);
    if (op == ncclNumOps) {
      assert_int_equal(ncclRedOpDestroy(ops[r], j->comm[r]), ncclSuccess);
    }
  }
}

static int64_t wrong(const job *j, const char *results, int type, int op, bool prepared)
{
  int64_t found = -1;
  assert_int_equal(
      tests_verify(results, prepared ? j->expected : NULL, COUNT, type, op, RANKS, SEED, FIRST, &found, NULL), 0);
  return found;
}

// One element is another one by a quarter of its bits: beyond every tolerance.
static void a_wrong_element_is_found(const job *j, int type, int op, bool prepared)
{
  size_t elt = perf_type_info(type)->size, at = (size_t)(type * 331 + op * 17);
  uint64_t right = perf_load(j->out[0], at, elt);
  perf_store(j->out[0], at, elt, right ^ 1ULL << (2 * elt + 3));
  assert_int_equal(wrong(j, j->out[0], type, op, prepared), 1);
  perf_store(j->out[0], at, elt, right);
}

static void reductions(void **state)
{
  job j;
  (void)state;
  open_job(&j);
  for (int type = 0; type < ncclNumTypes; type++) {
    for (int op = 0; op < OPS; op++) {
      all_reduce(&j, type, op);
      assert_int_equal(tests_prepare_expected(j.expected, COUNT, type, op, RANKS, SEED, FIRST, NULL), 0);
      for (int prepared = 0; prepared < 2; prepared++) {
        assert_int_equal(wrong(&j, j.out[0], type, op, prepared), 0);
        assert_int_equal(wrong(&j, j.out[RANKS - 1], type, op, prepared), 0);
        a_wrong_element_is_found(&j, type, op, prepared);
      }
      // One rank's input is not the sum of all of them.
      assert_true(op != ncclSum || wrong(&j, j.in[1], type, op, true) > COUNT / 2);
    }
  }
  close_job(&j);
}

// Data that is only moved: a part is what the whole has at its place, and nothing else is.
static void copies(void **state)
{
  uint32_t whole[COUNT], part[COUNT];
  int64_t found = -1;
  (void)state;
  assert_int_equal(tests_prepare_input(whole, COUNT, ncclInt32, ncclSum, 1, 0, SEED, 0, NULL), 0);
  assert_int_equal(tests_prepare_input(part, COUNT - 100, ncclInt32, ncclSum, 1, 0, SEED, 100, NULL), 0);
  assert_memory_equal(whole + 100, part, (COUNT - 100) * sizeof *part);
  assert_int_equal(tests_verify(part, whole, COUNT - 100, ncclInt32, ncclSum, 1, SEED, 0, &found, NULL), 0);
  assert_true(found > COUNT - 200);
  assert_int_equal(tests_verify(whole, NULL, COUNT, ncclInt32, ncclSum, 1, SEED + 1, 0, &found, NULL), 0);
  assert_true(found > COUNT - 200);
  assert_int_equal(tests_verify(whole, NULL, 0, ncclInt32, ncclSum, 1, SEED + 1, 0, &found, NULL), 0);
  assert_int_equal(found, 0);
}

static void wrong_arguments(void **state)
{
  uint64_t data = 5;
  (void)state;
  assert_int_equal(tests_prepare_input(&data, 1, ncclNumTypes, ncclSum, 2, 0, SEED, 0, NULL), 1);
  assert_int_equal(tests_prepare_input(&data, 1, ncclInt64, ncclSum, 2, 2, SEED, 0, NULL), 1);
  assert_int_equal(tests_prepare_expected(&data, 1, ncclInt64, ncclSum, 0, SEED, 0, NULL), 1);
  assert_int_equal(data, 5);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reductions),
      cmocka_unit_test(copies),
      cmocka_unit_test(wrong_arguments),
  };
  return RUN_TESTS("verifiable", tests, argc, argv);
}
