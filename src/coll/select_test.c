// select_test.c: the syntax of NCCL_ALGO and NCCL_PROTO.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/result.h"
#include "coll/select.h"

static uint32_t bit(const char *name)
{
  int row = tt_algorithm_find(name);
  assert_true(row >= 0);
  return 1u << row;
}

static uint32_t capable(tt_func f)
{
  int count;
  uint32_t mask = 0;
  const tt_algorithm *table = tt_algorithms(&count);
  for (int i = 0; i < count; i++) {
    mask |= (table[i].funcs >> f & 1) << i;
  }
  return mask & ~bit("Packed"); // by its name alone
}

static tt_algo_filter parse(const char *algo, const char *proto)
{
  tt_algo_filter filter;
  assert_int_equal(tt_algo_filter_parse(algo, proto, &filter), ncclSuccess);
  return filter;
}

static void test_nothing_given(void **state)
{
  (void)state;
  for (int k = 0; k < 2; k++) {
    tt_algo_filter x = parse(k ? "" : NULL, k ? "" : NULL);
    for (int f = 0; f < TT_NFUNCS; f++) {
      assert_int_equal(x.algos[f], capable((tt_func)f));
      assert_int_equal(x.protos[f], TT_PROTO_ALL);
    }
  }
}

static void test_lists(void **state)
{
  (void)state;
  tt_algo_filter x = parse("ring,TREE", "Simple");
  assert_int_equal(x.algos[TT_FUNC_ALLREDUCE], bit("Ring") | bit("Tree"));
  assert_int_equal(x.algos[TT_FUNC_ALLGATHER], bit("Ring"));
  assert_int_equal(x.algos[TT_FUNC_ALLTOALL], capable(TT_FUNC_ALLTOALL));
  assert_int_equal(x.protos[TT_FUNC_REDUCE], TT_PROTO_SIMPLE);
  assert_int_equal(x.protos[TT_FUNC_SEND], TT_PROTO_ALL);
  x = parse("^tree", "^LL");
  assert_int_equal(x.algos[TT_FUNC_ALLREDUCE], capable(TT_FUNC_ALLREDUCE) & ~bit("Tree"));
  assert_int_equal(x.protos[TT_FUNC_ALLREDUCE], TT_PROTO_SIMPLE);
  x = parse("^Tree, Ring", "LL128");
  assert_int_equal(x.algos[TT_FUNC_BROADCAST], capable(TT_FUNC_BROADCAST) & ~bit("Tree") & ~bit("Ring"));
  assert_int_equal(x.protos[TT_FUNC_ALLREDUCE], TT_PROTO_LL);
  assert_true(x.ll128);
  assert_false(parse(NULL, NULL).ll128 || parse(NULL, "LL,Simple").ll128 || parse(NULL, "^LL128").ll128);
  assert_false(parse(NULL, "^LL").ll128);
  assert_true(parse(NULL, "allreduce:Simple;broadcast:LL,LL128").ll128);
  assert_int_equal(parse(NULL, "^LL128").protos[TT_FUNC_ALLREDUCE], TT_PROTO_ALL);
  assert_int_equal(parse("packed", NULL).algos[TT_FUNC_ALLREDUCE], bit("Packed"));
  assert_int_equal(parse("packed,ring", NULL).algos[TT_FUNC_ALLGATHER], bit("Ring"));
  assert_int_equal(parse("^packed", NULL).algos[TT_FUNC_REDUCE], capable(TT_FUNC_REDUCE));
}

static void test_functions(void **state)
{
  (void)state;
  tt_algo_filter x = parse("allreduce:tree;Broadcast:ring", NULL);
  assert_int_equal(x.algos[TT_FUNC_ALLREDUCE], bit("Tree"));
  assert_int_equal(x.algos[TT_FUNC_BROADCAST], bit("Ring"));
  assert_int_equal(x.algos[TT_FUNC_REDUCE], capable(TT_FUNC_REDUCE));
  x = parse("ring;allreduce:tree,collnetdirect;alltoall:pairwise", "LL,Simple;allreduce:^LL");
  assert_int_equal(x.algos[TT_FUNC_REDUCESCATTER], bit("Ring"));
  assert_int_equal(x.algos[TT_FUNC_ALLREDUCE], bit("Tree") | bit("CollNetDirect"));
  assert_int_equal(x.algos[TT_FUNC_ALLTOALL], bit("Pairwise"));
  assert_int_equal(x.protos[TT_FUNC_ALLREDUCE], TT_PROTO_SIMPLE);
  assert_int_equal(x.protos[TT_FUNC_BROADCAST], TT_PROTO_ALL);
}

static void test_absent_names(void **state)
{
  (void)state;
  assert_int_equal(parse("NVLS,nvlstree", NULL).algos[TT_FUNC_ALLREDUCE], 0);
  assert_int_equal(parse("collnetdirect", NULL).algos[TT_FUNC_ALLREDUCE], bit("CollNetDirect"));
  assert_int_equal(parse("CollnetChain", NULL).algos[TT_FUNC_ALLGATHER], 0);
  assert_int_equal(parse("^nvls", NULL).algos[TT_FUNC_ALLREDUCE], capable(TT_FUNC_ALLREDUCE));
  assert_int_equal(parse("PAT", NULL).algos[TT_FUNC_ALLREDUCE], 0);
}

static void expect_error(const char *algo, const char *proto, const char *word)
{
  tt_algo_filter x = {.algos = {12345}};
  assert_int_equal(tt_algo_filter_parse(algo, proto, &x), ncclInvalidUsage);
  assert_int_equal(x.algos[0], 12345);
  assert_non_null(strstr(tt_last_error(), word));
  assert_non_null(strstr(tt_last_error(), algo ? "NCCL_ALGO" : "NCCL_PROTO"));
}

static void test_errors(void **state)
{
  (void)state;
  expect_error("ring,treee", NULL, "\"treee\"");
  expect_error("ring,treee", NULL, "Oneshot");
  expect_error("^rin", NULL, "\"rin\"");
  expect_error("allreduc:ring", NULL, "\"allreduc\"");
  expect_error("allreduce:ring;tree", NULL, "\"tree\"");
  expect_error("allreduce:ring:tree", NULL, "\"ring:tree\"");
  expect_error(NULL, "LL256", "LL128");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_nothing_given), cmocka_unit_test(test_lists),  cmocka_unit_test(test_functions),
      cmocka_unit_test(test_absent_names),  cmocka_unit_test(test_errors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
