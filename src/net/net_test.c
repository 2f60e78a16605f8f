// net_test.c: NCCL_NET chooses a network by name.
#include "base/test_child.h"

#include "base/result.h"
#include "net/net.h"

static void print_choice(void)
{
  const tt_net_ops *ops = NULL;
  ncclResult_t res = tt_net_find(&ops);
  printf("%d %s %s\n", (int)res, ops != NULL ? ops->name : "none", tt_last_error());
}

static void test_choice(void **state)
{
  char out[2000];
  (void)state;
  child_run(CHILD_ENV("NCCL_DEBUG=NONE"), print_choice, out, sizeof(out));
  assert_contains(out, "0 Socket");
  child_run(CHILD_ENV("NCCL_DEBUG=NONE", "NCCL_NET=soCKet"), print_choice, out, sizeof(out));
  assert_contains(out, "0 Socket");
  child_run(CHILD_ENV("NCCL_DEBUG=NONE", "NCCL_NET="), print_choice, out, sizeof(out));
  assert_contains(out, "0 Socket");
  child_run(CHILD_ENV("NCCL_DEBUG=NONE", "NCCL_NET=IB"), print_choice, out, sizeof(out));
  assert_contains(out, "none no network is called NCCL_NET=IB; there are: Socket");
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_choice)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
